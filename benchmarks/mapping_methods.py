"""Methods of other people that are not in the package, for benchmarks/mapping.py: HySMap and NeuroMap.

Both take the arguments of partitioners and placers (docs/mapping.md). A third is in benchmarks/halving.py.
"""

from collections.abc import Callable
from typing import NamedTuple

import networkx
import numpy as np
from numba import njit

import nwcompile as nw
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import count_lines, count_neurons, split_layers
from nwcompile.kernels.mapping import local_search
from nwcompile.passes.partition.baselines import build_hypergraph
from nwcompile.passes.partition.graph_partition import partition_graph
from nwcompile.passes.place.problem import cores_at, placement_problem, seat_cores

MOST_NEURONS = 1000  # hysmap: it makes a dense matrix of all pairs of neurons, and visits all pairs of cores
# HySMap's own parameters (include/hysmap/types.hpp).
SLACK, EDGE_PASSES, TREE_PASSES, RESTARTS, JOINT_CYCLES = 0.15, 2, 4, 5, 2
MAX_LINK_WEIGHT, VARIANCE_WEIGHT = 0.1, 0.01  # of the hottest link and of the variance of links, relative to a hop
LEAST_GAIN = 1e-12  # a change must save more than rounding


def partition_by_neuromap(network: nw.Network, chip: nw.Chip, activity: Activity, options: nw.Options):
    """Partition as NeuroMap, of which only the abstract was accessible: METIS by recursive two-way cuts.

    NeuroMap: A Scalable Toolchain for Mapping Memristor-based Spiking Neural Networks (Wang et al., ISQED 2026).
    Assumed: edges are weighted by spikes, as in SNEAP, and parts balance neurons.
    """
    import pymetis

    def cut(graph, room: np.ndarray) -> np.ndarray:
        edges = pymetis.CSRAdjacency(graph.start, graph.other)
        share, own = (room / room.sum()).tolist(), pymetis.Options(seed=options.seed)
        sizes = {"vweights": graph.n_neurons, "eweights": graph.weight, "tpwgts": share}
        return np.asarray(pymetis.part_graph(len(room), edges, recursive=True, options=own, **sizes)[1], np.int32)

    return partition_graph(network, chip, activity, options, "neuromap", cut)


def place_by_neuromap(mapping: nw.Mapping, network: nw.Network, chip: nw.Chip, activity: Activity, options: nw.Options):
    """Place as NeuroMap, of which only the abstract was accessible: a refinement guided by PageRank.

    Assumed: cores are ranked by PageRank (Page et al., Stanford, 1999) on the messages between them. In this order each
    takes the free site nearest to the middle of the chip, and then moves where it saves most, until none can.
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    home, ends = np.repeat(np.arange(mapping.n_cores), np.diff(problem.start)), np.stack([problem.sent, problem.other])
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(mapping.n_cores))
    graph.add_weighted_edges_from((a, int(b), int(n)) for a, (n, b) in zip(home.tolist(), ends.T, strict=True) if n)
    rank = networkx.pagerank(graph)
    order = np.array(sorted(rank, key=rank.get, reverse=True))
    away = np.abs(chip.sites[:, :2] - (np.array([chip.noc.columns, chip.noc.rows]) - 1) / 2).sum(1)
    site_of = seat_cores(problem, chip.site_index(mapping.site_of), order, lambda core: away)
    core_at = cores_at(site_of, chip.n_cores)
    while local_search.climb(problem, site_of, core_at, order):
        pass
    return nw.Mapping(mapping.core_of, chip.sites[site_of], mapping.note)


def hysmap(network: nw.Network, chip: nw.Chip, activity: Activity, options: nw.Options) -> nw.Mapping:
    """Partition and place with the steps of HySMap, mapper `hysmap`, which uses all cores, one at each router.

    github.com/amineux/HySMap (docs/technical-report.md, src/), after M-HySMap (arXiv 2608.26223), of which only the
    abstract was accessible. The best of three starts by J = hops + 0.1 hottest link + 0.01 variance of links is
    refined: cut edges, then a quadratic assignment; the same, then trees; the spectrum of the hypergraph, then trees.
    Its random numbers are others, and its force-directed swaps of neighbors after the assignment, whose result cannot
    be improved by swaps, are left out. Input lines are left out. Limits other than neurons are not considered.
    Raises OptionError for more than `MOST_NEURONS` neurons.
    """
    if (n := count_neurons(network)) > MOST_NEURONS:
        raise OptionError(f"hysmap takes at most {MOST_NEURONS:,} neurons, and the net has {n:,}")
    search = _HySMap(network, chip, activity, options)
    home, site = search.rng.permutation(n) % search.n_cores, np.arange(search.n_cores)
    search.move_neurons(home, search.cut_costs, EDGE_PASSES)
    site = search.assign(home, site, RESTARTS)
    starts = [(home, site), search.improve_sites(search.improve_trees(home.copy(), site), site, 1)]
    home, site = search.spread(), np.arange(search.n_cores)
    search.move_neurons(home, search.cut_costs, EDGE_PASSES)
    starts.append(search.refine(home, search.place_spectrum(home)))
    home, site = search.refine(*min(starts, key=lambda start: search.cost(*start)))
    used, core = np.unique(home, return_inverse=True)
    sites = chip.sites[search.sites[site[used]]]
    return nw.Mapping.from_arrays(split_layers(network, core.reshape(-1).astype(np.int32)), sites)


class _HySMap:
    """One net on one chip: `home` int64[neuron] is a neuron's core, `site` int64[core] a core's place on the chip."""

    def __init__(self, network: nw.Network, chip: nw.Chip, activity: Activity, options: nw.Options):
        graph, n_lines = build_hypergraph(network, activity, 1), count_lines(network)
        pins = [np.setdiff1d(row, row[:0]) - n_lines for row in graph.pins]
        readers = [row[row != i] for i, row in enumerate(pins[n_lines:])]
        self.rng = np.random.default_rng(options.seed)
        self.tree = Trees(
            offset=np.cumsum([0, *map(len, readers)]),
            target=np.concatenate(readers),
            rate=graph.weight[n_lines:] / activity.n_samples,
        )
        n, self.sites = len(readers), np.flatnonzero(chip.is_usable)[: options.n_cores]
        self.xy, self.n_cores = chip.sites[self.sites, :2].astype(np.int64), len(self.sites)
        self.shape = np.array([chip.noc.columns, chip.noc.rows])
        self.fewest = int((1 - SLACK) * n / self.n_cores)
        self.most = min(int(np.ceil((1 + SLACK) * n / self.n_cores)), chip.core.max_neurons or n)
        self.distance = np.abs(self.xy[:, None] - self.xy).sum(-1)
        self.links = np.zeros((*self.shape, 4))
        source = np.repeat(np.arange(n), np.diff(self.tree.offset))
        edges = np.zeros((n, n))
        edges[source, self.tree.target] = self.tree.rate[source]
        self.edges = edges + edges.T
        self.members = np.eye(n, dtype=bool)  # [hyperedge, neuron]
        self.members[source, self.tree.target] = True

    def cost(self, home: np.ndarray, site: np.ndarray) -> float:
        """J of a mapping."""
        return evaluate(home, self.xy[site], *self.tree, self.links)

    def cut_costs(self, home: np.ndarray, v: int) -> np.ndarray:
        """float64[core]: rates over edges of neuron v that would be cut, less a constant."""
        return -np.bincount(home, self.edges[v], self.n_cores)

    def move_neurons(self, home: np.ndarray, costs: Callable, n_passes: int) -> np.ndarray:
        """Move each neuron, in random order, to the core of least `costs(home, v)` that has room; in place."""
        size = np.bincount(home, minlength=self.n_cores)
        for _ in range(n_passes):
            n_moved = 0
            for v in self.rng.permutation(len(home)):
                if size[home[v]] > self.fewest:
                    cost, has_room = costs(home, v), size < self.most
                    best = int(np.where(has_room, cost, np.inf).argmin())
                    if has_room[best] and cost[best] < cost[home[v]] - LEAST_GAIN:
                        size[home[v]] -= 1
                        size[best] += 1
                        home[v], n_moved = best, n_moved + 1
            if n_moved == 0:
                break
        return home

    def improve_trees(self, home: np.ndarray, site: np.ndarray) -> np.ndarray:
        """Move neurons while J falls, in place."""
        xy = self.xy[site]
        return self.move_neurons(home, lambda home, v: try_cores(v, home, xy, *self.tree, self.links), TREE_PASSES)

    def improve_sites(self, home: np.ndarray, site: np.ndarray, n_starts: int) -> tuple[np.ndarray, np.ndarray]:
        """Swap the cores whose swap lowers J most, until none does, from `site` and from random sites."""
        found = []
        for start in [site, *(self.rng.permutation(self.n_cores) for _ in range(n_starts - 1))]:
            place = start.copy()
            swap_cores(home, place, self.xy, *self.tree, self.links)
            found.append(place)
        return home, min(found, key=lambda place: self.cost(home, place))

    def assign(self, home: np.ndarray, site: np.ndarray, n_random: int) -> np.ndarray:
        """Quadratic assignment of rates between cores, by best swaps from `site`, from the order and from random sites.

        The change by every swap is a matrix (Burkard and Rendl, EJOR 17, 1984).
        """
        flow, found = np.zeros((self.n_cores, self.n_cores)), []
        np.add.at(flow, (home[:, None], home), self.edges)
        np.fill_diagonal(flow, 0)
        for start in [site, np.arange(self.n_cores), *(self.rng.permutation(self.n_cores) for _ in range(n_random))]:
            place = start.copy()
            while True:
                apart = self.distance[np.ix_(place, place)]
                cross = flow @ apart
                own = np.diag(cross)
                change = cross + cross.T - own[:, None] - own + 2 * flow * apart
                i, j = np.unravel_index(change.argmin(), change.shape)
                if change[i, j] > -LEAST_GAIN:
                    break
                place[[i, j]] = place[[j, i]]
            found.append(((flow * apart).sum(), place))
        return min(found, key=lambda pair: pair[0])[1]

    def spread(self) -> np.ndarray:
        """Neurons at the cores nearest to their spectral coordinates, in order, as long as there is room."""
        wanted = self._waves(self.members, self.tree.rate) * (self.shape - 1)
        home, size = np.zeros(len(wanted), np.int64), np.zeros(self.n_cores, np.int64)
        for v, at in enumerate(wanted):
            home[v] = np.where(size < self.most, np.hypot(*(self.xy - at).T), np.inf).argmin()
            size[home[v]] += 1
        return home

    def place_spectrum(self, home: np.ndarray) -> np.ndarray:
        """Cores at the free sites nearest to their spectral coordinates, the outermost cores first."""
        members = np.zeros((len(home), self.n_cores), bool)
        source, v = np.nonzero(self.members)
        members[source, home[v]] = True
        at, site = self._waves(members, self.tree.rate), np.full(self.n_cores, -1)
        scale = np.maximum(self.shape - 1, 1)
        for core in np.argsort(-np.hypot(*(at - 0.5).T), kind="stable"):
            away = np.hypot(*(self.xy / scale - at[core]).T)
            away[site[site >= 0]] = np.inf
            site[core] = away.argmin()
        return site

    @staticmethod
    def _waves(members: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """float64[node, 2] in 0..1: the two slowest eigenvectors of the Laplacian of hyperedges as pairs of nodes."""
        weight = members.T @ (members * rate[:, None])
        np.fill_diagonal(weight, 0)
        root = np.sqrt(np.maximum(weight.sum(0), LEAST_GAIN))
        value, vector = np.linalg.eigh(np.eye(len(weight)) - weight / root / root[:, None])
        first = max(1, int(np.searchsorted(value, 1e-10)))
        at = vector[:, first : first + 2]
        return (at - at.min(0)) / np.maximum(np.ptp(at, axis=0), LEAST_GAIN)

    def refine(self, home: np.ndarray, site: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lower J by moves of neurons and swaps of cores, with quadratic assignments in between."""
        home, site = self.improve_sites(self.improve_trees(home.copy(), site), site, RESTARTS // 2)
        for _ in range(JOINT_CYCLES):
            home, site = self.improve_sites(home, self.assign(home, site, 2), 1)
            home = self.improve_trees(home, site)
        return self.improve_sites(home, site, 1)


class Trees(NamedTuple):
    """Neurons and their readers: `target[offset[v]:offset[v + 1]]` read neuron v, which sends `rate[v]` messages."""

    offset: np.ndarray  # int64[neuron + 1]
    target: np.ndarray  # int64[...]
    rate: np.ndarray  # float64[neuron]


@njit(cache=True)
def evaluate(home, xy, offset, target, rate, links):
    """J of a mapping. home: int64[neuron]; xy: int64[core, 2]; links: float64[x, y, direction], scratch."""
    links[:] = 0.0
    last = np.full(links.shape, -1)  # the last source whose tree has the link
    hops = 0.0
    for u in range(len(home)):
        for e in range(offset[u], offset[u + 1]):
            x, y = xy[home[u], 0], xy[home[u], 1]
            goal_x, goal_y = xy[home[target[e]], 0], xy[home[target[e]], 1]
            while x != goal_x or y != goal_y:
                step_x, step_y = np.sign(goal_x - x), 0
                if step_x == 0:
                    step_y = np.sign(goal_y - y)
                way = 1 + step_x if step_x else 2 + step_y  # W 0, E 2, S 1, N 3
                if last[x, y, way] != u:
                    last[x, y, way] = u
                    links[x, y, way] += rate[u]
                    hops += rate[u]
                x += step_x
                y += step_y
    n_columns, n_rows = links.shape[:2]
    n_links = max(1, 2 * (n_columns * (n_rows - 1) + n_rows * (n_columns - 1)))
    variance = (links**2).sum() / n_links - (hops / n_links) ** 2
    return hops + MAX_LINK_WEIGHT * links.max() + VARIANCE_WEIGHT * variance


@njit(cache=True)
def try_cores(v, home, xy, offset, target, rate, links):
    """float64[core]: J if neuron v were on each core."""
    cost, own = np.empty(len(xy)), home[v]
    for core in range(len(xy)):
        home[v] = core
        cost[core] = evaluate(home, xy, offset, target, rate, links)
    home[v] = own
    return cost


@njit(cache=True)
def swap_cores(home, site, all_xy, offset, target, rate, links):
    """Swap the two cores whose swap lowers J most, until none does. site: int64[core], changed; all_xy: of sites."""
    least = evaluate(home, all_xy[site], offset, target, rate, links)
    while True:
        first, second = -1, -1
        for i in range(len(site)):
            for j in range(i + 1, len(site)):
                site[i], site[j] = site[j], site[i]
                cost = evaluate(home, all_xy[site], offset, target, rate, links)
                site[i], site[j] = site[j], site[i]
                if cost < least - LEAST_GAIN:
                    first, second, least = i, j, cost
        if first < 0:
            return
        site[first], site[second] = site[second], site[first]
