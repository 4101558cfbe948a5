"""Partition: neurons to logical cores, within every limit of the chip, and the cores to sites in row-major order."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from nwcompile import plugins
from nwcompile.errors import FitError, ModelError, OptionError, Violation
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_neurons, join_layers, split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.shown import count_text
from nwcompile.passes.analyze import capacity
from nwcompile.passes.analyze.capacity import binding_notes
from nwcompile.passes.analyze.check import capacity_violations, too_many_cores
from nwcompile.passes.analyze.core_rules import for_states, needs_slices
from nwcompile.passes.analyze.fixed_sites import FREE, kinds_of_sites, pins, split_to_sites, verify_sites
from nwcompile.passes.partition.baselines.hypergraph import hypergraph
from nwcompile.passes.partition.baselines.kernighan_lin import kernighan_lin
from nwcompile.passes.partition.baselines.neumap import neumap
from nwcompile.passes.partition.baselines.streaming import streaming
from nwcompile.passes.partition.floorline.floorline import floorline
from nwcompile.passes.partition.logical_cores import LogicalCores, Partitioned
from nwcompile.passes.partition.metis import metis
from nwcompile.passes.partition.sequential import sequential
from nwcompile.passes.partition.striped import striped

PARTITIONERS: dict[str, Callable[..., LogicalCores]] = {
    "sequential": sequential,
    "metis": metis,
    "striped": striped,
    "striped-halves": partial(striped, n_bands=2),
    "kernighan-lin": kernighan_lin,
    "hypergraph": hypergraph,
    "streaming": streaming,
    "neumap": neumap,
    "floorline": floorline,
    "coarse": partial(floorline, n_levels=0),
}

# Methods that know nothing of `nwcompile.passes.analyze.core_rules`; the default gives slices there, and says so.
BREAKS_RULES = set(PARTITIONERS) - {"sequential", "floorline", "coarse"}


def partition(network: Network, chip: Chip, activity: Activity, options: Options) -> Partitioned:
    """Neurons of a normalized network on the cores of a chip, each core at the first site that holds it; and warnings.

    `options.partitioner` names one of `PARTITIONERS` or of a plugin, or is a callable: it takes the arguments of this
    function and gives the logical core of every neuron of every layer, {layer: int[n]}, or a Mapping, whose sites and
    order of visits are then kept. Cores without neurons are dropped. `mapping.note` says what fills each core most.
    Raises FitError with every limit that is exceeded, and OptionError for an unknown method, an impossible `n_cores`,
    or a method that cannot keep the chip's rules of cores.
    """
    method = options.partitioner
    if not callable(method):
        method = plugins.chosen(plugins.PARTITIONERS, "partitioner", method, PARTITIONERS)
    if options.partitioner in BREAKS_RULES and needs_slices(chip):
        raise OptionError(
            f"{chip.name} limits the layers or destinations of a core, which partitioner {options.partitioner!r} "
            "cannot keep; use partitioner='sequential'"
        )
    n_neurons = count_neurons(network)
    n_usable = capacity.n_usable(chip)
    if options.n_cores is not None and options.n_cores > min(n_usable, n_neurons):
        raise OptionError(
            f"n_cores={options.n_cores} is too many: {chip.name} has {count_text(n_usable, 'core')}, the net "
            f"{count_text(n_neurons, 'neuron')}"
        )
    activity.verify(network)
    cores = _as_logical_cores(method(network, for_states(network, chip), activity, options))
    given = cores.mapping
    if given is None:
        return Partitioned(on_sites(network, chip, cores.core_of, options), cores.warnings, cores.fewest)
    given.verify(network, chip)
    kept = on_sites(network, chip, given.core_of, options, may_cut=False)
    used = np.unique(_flat(network, given.core_of))
    return Partitioned(Mapping(kept.core_of, given.site_of[used], kept.note, given.visit), cores.warnings)


def _as_logical_cores(answer) -> LogicalCores:
    """The answer of a partitioner, a callable of the user's own among them, in the one form that methods give."""
    if isinstance(answer, LogicalCores):
        if not isinstance(answer.mapping, Mapping | None):
            raise ModelError(f"partitioner: gave {type(answer.mapping).__name__} for a mapping, not a Mapping")
        return answer
    return LogicalCores(answer.core_of, mapping=answer) if isinstance(answer, Mapping) else LogicalCores(answer)


def on_sites(
    network: Network, chip: Chip, core_of: dict[str, np.ndarray], options: Options, may_cut: bool = True
) -> Mapping:
    """The mapping of the given logical cores, each at the first site, in row-major order, that holds it.

    Cores of `options.fixed_sites` are where they should be. Where cores are unequal, sites are exchanged until every
    core has one, if that is possible at all; if not, and with `may_cut`, cores are numbered anew for the fixed sites
    and cut (`split_to_sites`), but never cut where `options.n_cores` is given or the chip has core rules. Raises
    FitError where no sites are found, OptionError where fixed sites contradict the cores, and ModelError where
    `core_of` is not one core for every neuron.
    """
    used_cores, flat = np.unique(_flat(network, core_of), return_inverse=True)
    flat, n_cores = flat.reshape(-1).astype(np.int32), len(used_cores)
    verify_sites(network, chip, options)
    try:
        return _on_sites(network, chip, flat, n_cores, options)
    except (FitError, OptionError):
        cut = None if not may_cut else split_to_sites(network, chip, flat, options)
        if cut is None or (cut.max() >= n_cores and (options.n_cores is not None or needs_slices(chip))):
            raise
        with suppress(FitError, OptionError):  # what was wrong without the cut is told
            return _on_sites(network, chip, cut, int(cut.max()) + 1, options)
        raise


def _on_sites(network: Network, chip: Chip, flat: np.ndarray, n_cores: int, options: Options) -> Mapping:
    """`on_sites` of cores int32[neuron] as they are; OptionError where `options.fixed_sites` contradicts them."""
    used, limits = capacity.used_by_core(network, chip, flat, n_cores), capacity.site_limits(chip)
    pinned = pins(network, chip, split_layers(network, flat.astype(np.int32)), n_cores, options)
    sites = match_sites(used, limits[:, : used.shape[1]], pinned)
    if sites is None:
        raise FitError(chip.name, _violations(network, chip, flat, used, limits, pinned))
    note = binding_notes(used, limits[sites, : used.shape[1]])
    return Mapping(split_layers(network, flat.astype(np.int32)), chip.sites[sites], note)


def _violations(network: Network, chip: Chip, flat, used, limits, pinned) -> list[Violation]:
    """What is exceeded if the cores, by the neurons they hold, go to the sites, by the neurons these hold."""
    n_cores, n_usable = len(used), capacity.n_usable(chip)
    largest_first = np.argsort(-limits[:, 0], kind="stable")
    rank = np.argsort(np.argsort(-used[:, 0], kind="stable"))
    judged = limits[largest_first][np.minimum(rank, n_usable - 1)]
    judged[pinned != FREE] = limits[pinned[pinned != FREE]]
    violations = [too_many_cores(network, chip, n_cores)] if n_cores > n_usable else []
    violations += capacity_violations(network, chip, flat, judged)
    if violations:
        return violations
    kind, fits = kinds_of_sites(limits, used, pinned)
    n_most = int((maximum_bipartite_matching(csr_array(fits[:, kind]), "column") >= 0).sum())
    return [Violation("sites", f"cores of the network -> {chip.name}", n_cores, n_most,
                      "use another partitioner, or make room at fixed_sites, noc.faults or io.sites")]  # fmt: skip


def match_sites(used: np.ndarray, limits: np.ndarray, pinned: np.ndarray | None = None) -> np.ndarray | None:
    """int64[core]: a site of its own for every core, the first that holds it where there is a choice; None if none.

    `used` int64[core, resource], `limits` int64[site, resource], `pinned` int64[core]: the site of a core that is fixed
    at it, else `FREE`. Bipartite matching by augmenting paths (Kuhn 1955).
    """
    if len(used) > len(limits):
        return None
    is_free = pinned is None or (pinned == FREE).all()
    usable = np.flatnonzero((used.min(0) <= limits).all(1))
    if is_free and len(used) <= len(usable) and (used.max(0) <= limits[usable]).all():
        return usable[: len(used)]
    kind, fits_kind = kinds_of_sites(limits, used, np.full(len(used), FREE) if pinned is None else pinned)
    fits = fits_kind[:, kind]
    core_at = np.full(len(limits), -1)
    for core in range(len(used)):
        reached_from, queue, free = np.full(len(limits), -1), [core], -1
        seen = np.zeros(len(limits), bool)
        while queue and free < 0:
            one = queue.pop(0)
            for site in np.flatnonzero(fits[one] & ~seen):
                seen[site], reached_from[site] = True, one
                if core_at[site] < 0:
                    free = int(site)
                    break
                queue.append(int(core_at[site]))
        if free < 0:
            return None
        while free >= 0:
            one = reached_from[free]
            before = np.flatnonzero(core_at == one)
            core_at[free] = one
            free = int(before[0]) if len(before) else -1
    return np.argsort(np.where(core_at < 0, len(limits) + np.arange(len(limits)), core_at), kind="stable")[: len(used)]


def _flat(network: Network, core_of: dict[str, np.ndarray]) -> np.ndarray:
    """int64[neuron] from a partitioner's answer, or ModelError naming the layer that is wrong."""
    if not isinstance(core_of, dict):
        raise ModelError(
            f"partitioner: gave {type(core_of).__name__}, not the core of every neuron as {{layer: int[n]}}"
        )
    for name in network.layers:
        n = network.node(name).n_neurons
        try:
            cores = np.asarray(core_of.get(name, ()))
        except ValueError:  # of lists that are not equally long
            cores = np.zeros(0)
        if cores.shape != (n,) or not np.issubdtype(cores.dtype, np.integer) or cores.min() < 0:
            raise ModelError(f"partitioner: layer {name!r} needs the cores, 0 or more, of its {n} neurons as int[{n}]")
    return join_layers(network, core_of).astype(np.int64)
