"""METIS partitioner: neurons cut into parts with little spike traffic between them, then made to fit exactly.

After SNEAP (Li et al., GLSVLSI'20, arXiv 2004.01639): METIS minimises the edge cut, an edge being a synapse weighted
by the spikes of its source. METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998) balances neurons only; axons
and synapse memory are settled afterwards. The edge cut is not what a chip with one message per spike and core pays.
"""

from math import ceil

import numpy as np

from nwcompile.cost.traffic import synapse_bits
from nwcompile.cost.wiring import synapse_count
from nwcompile.errors import FitError, OptionError, Violation
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import DENSE, SPARSE
from nwcompile.kernels import cpu_partition as kernels
from nwcompile.passes import capacity
from nwcompile.passes.core_rules import has_rules
from nwcompile.passes.sequential import halve_heaviest, in_order, sequential, site_orders
from nwcompile.passes.synapse_graph import SynapseGraph, synapse_graph

VERTICES_PER_CORE = 32  # so fine that parts can be balanced
LARGEST_IMBALANCE = 30  # per mille; METIS's own default for k-way cuts
GROWTH = 1.25
BISECTION_EDGES = 20_000_000  # edges METIS may work through, all calls together, to save single cores


def metis(network: Network, chip: Chip, activity: Activity, options: Options) -> dict[str, np.ndarray]:
    """Cores int32[n] of every layer, on `options.n_cores` cores or on the fewest for which parts can be made to fit.

    Input lines are vertices without weight: they take no room, but draw together what they feed. Neurons that a core
    has no room for move to the first core that has. The cores are tried by the largest first. METIS cannot keep core
    rules (`nwcompile.passes.core_rules`): for a chip with any, these are the slices of `sequential`. Raises OptionError
    for more edges than METIS can take; the result may exceed the chip: `partition` judges it.
    """
    if has_rules(chip):
        return sequential(network, chip, activity, options)
    fan, load = capacity.fan_in(network, chip), capacity.synaptic_load(network, activity)
    limits = capacity.site_limits(chip)
    limits = limits[site_orders(limits)[-1]]
    n_lines = sum(node.n_neurons for node in network.inputs.values())
    graphs: dict[int, SynapseGraph] = {}
    parts = {1: np.zeros(len(load), np.int32)}
    too_few: set[int] = set()  # numbers of cores that did not do; out-axons only become more

    def attempt(k: int, out_axons: np.ndarray) -> tuple[np.ndarray, bool]:
        if k not in parts:
            twins = 1 << (max(1, len(load) // (VERTICES_PER_CORE * k)).bit_length() - 1)
            if twins not in graphs:
                graphs[twins] = synapse_graph(network, activity, twins)
            parts[k] = _parts(graphs[twins], n_lines, limits[:k], options.seed)
        if k in too_few:
            return parts[k], False
        core_of, fits = _repair(fan, np.stack([out_axons, load], 1), parts[k], limits[:k])
        if not fits:
            too_few.add(k)
        return core_of, fits

    def build(out_axons):
        if options.n_cores is not None:
            core_of, fits = attempt(options.n_cores, out_axons)
            return halve_heaviest(core_of, load, options.n_cores) if fits else core_of
        return _fewest(network, chip, fan, lambda k: attempt(k, out_axons))

    core_of = in_order(capacity.settle_out_axons(network, chip, build))
    return capacity.by_layer(network, core_of)


def _fewest(network: Network, chip: Chip, fan, attempt) -> np.ndarray:
    """The fewest cores found: more and more until the parts fit, then bisection while METIS has little to do."""
    n_neurons = sum(network.node(name).n_neurons for name in network.layers)
    n_edges = sum(synapse_count(network, c) for c in network.connections)
    k = _least_cores(network, chip)
    too_few, n_calls, highest = k - 1, 1, min(chip.n_cores, n_neurons)
    core_of, fits = attempt(k)
    most = capacity.alone(fan, np.arange(n_neurons)).max(0)
    if (most > capacity.site_limits(chip).max(0)).any():
        return core_of  # some neuron fits on no core at all
    while not fits and k < highest:
        too_few, k = k, min(highest, max(k + 1, ceil(GROWTH * k)))
        core_of, fits = attempt(k)
        n_calls += 1
    if not fits:
        _suggest_sequential(network, chip)
    while fits and k - too_few > 1 and n_calls * n_edges < BISECTION_EDGES:
        middle = (too_few + k) // 2
        found, found_fits = attempt(middle)
        n_calls += 1
        if found_fits:
            core_of, k = found, middle
        else:
            too_few = middle
    return core_of


def _suggest_sequential(network: Network, chip: Chip) -> None:
    """Raise FitError if contiguous slices fit where the parts of METIS do not; neither needs the activity."""
    cores = sequential(network, chip, Activity.uniform(network, 1), Options())
    n_cores = 1 + max(int(c.max()) for c in cores.values())
    held, _ = capacity.account(network, chip, np.concatenate([*cores.values()]), n_cores)
    limits = capacity.site_limits(chip)
    fits = all((held[name] <= limits[:, i].max()).all() for i, name in enumerate(capacity.LIMITS))
    if fits and n_cores <= chip.n_cores:
        raise FitError(chip.name, [Violation("cores", "network -> metis", f"more than {chip.n_cores}", chip.n_cores,
                                             f"use partitioner='sequential', which needs {n_cores}")])  # fmt: skip


def _least_cores(network: Network, chip: Chip) -> int:
    """A number of cores that no partition can go below: by neurons and by synapse memory without overhead."""
    n_neurons = sum(network.node(name).n_neurons for name in network.layers)
    bits = 0
    for c in network.connections:
        if not (isinstance(c, Conv2d) and chip.weights.sharing):
            bits += synapse_count(network, c) * synapse_bits(c, SPARSE if isinstance(c, Sparse) else DENSE, chip)
    least = 1
    for used, limit in ((n_neurons, chip.limit("max_neurons")), (bits, chip.limit("synapse_bits"))):
        if limit is not None:
            room = np.cumsum(np.sort(limit)[::-1])
            least = max(least, 1 + int(np.searchsorted(room, used)))
    return min(least, chip.n_cores, n_neurons)


def _parts(graph: SynapseGraph, n_lines: int, limits: np.ndarray, seed: int) -> np.ndarray:
    """int32[neuron]: the part METIS gives each neuron, parts as large as the cores with these limits are."""
    import pymetis

    room = limits[:, kernels.NEURONS]
    spare = 1000 * int(room.sum()) // int(graph.n_neurons.sum()) - 1000
    share = None if (room == room[0]).all() else (room / room.sum()).tolist()
    kept = {"tpwgts": share, "options": pymetis.Options(seed=seed, ufactor=max(1, min(spare, LARGEST_IMBALANCE)))}
    edges = pymetis.CSRAdjacency(graph.start, graph.other)
    try:
        _, part = pymetis.part_graph(len(limits), edges, vweights=graph.n_neurons, eweights=graph.weight, **kept)
    except RuntimeError as error:  # out of memory, and whatever else METIS gives up on
        raise OptionError(
            f"METIS gave up on {len(graph.other) // 2:,} edges and {len(limits)} parts ({error}); "
            "use partitioner='sequential'"
        ) from None
    return np.asarray(part, np.int32)[graph.vertex_of[n_lines:]]


def _repair(fan, demand: np.ndarray, parts: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, bool]:
    """The parts with every neuron that its core has no room for moved to the first core that has; whether all fit."""
    core, core_of = capacity.empty_core(fan), np.full(len(parts), -1, np.int32)
    for stage in (parts, None):
        for c in range(len(limits)):
            held = np.flatnonzero(core_of == c)
            candidates = np.flatnonzero(parts == c if stage is not None else core_of < 0)
            if len(candidates) == 0:
                continue
            kernels.fill(fan, core, demand, held, limits[c], True, np.zeros(len(held), bool))
            taken = np.zeros(len(candidates), bool)
            kernels.fill(fan, core, demand, candidates, limits[c], True, taken)
            core_of[candidates[taken]] = c
            kernels.clear(fan, core, demand, np.concatenate([held, candidates[taken]]))
    fits = bool((core_of >= 0).all())
    return (core_of if fits else parts), fits
