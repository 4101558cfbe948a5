"""Partition: assign neurons to logical cores within every limit of the chip, and cores to sites in row-major order."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
from scipy.sparse import csr_array

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
from nwcompile.passes.analyze.core_rules import limit_to_states, needs_slices
from nwcompile.passes.analyze.fixed_sites import FREE, kinds_of_sites, pins, split_to_sites, verify_sites
from nwcompile.passes.partition.baselines import (
    kernighan_lin,
    partition_by_neumap,
    partition_by_streaming,
    partition_hypergraph,
)
from nwcompile.passes.partition.floorline.floorline import partition_by_floorline
from nwcompile.passes.partition.graph_partition import cut_stripes, partition_by_metis
from nwcompile.passes.partition.logical_cores import LogicalCores
from nwcompile.passes.partition.sequential import cut_slices

PARTITIONERS: dict[str, Callable[..., LogicalCores]] = {
    "sequential": cut_slices,
    "metis": partition_by_metis,
    "striped": cut_stripes,
    "striped-halves": partial(cut_stripes, n_bands=2),
    "kernighan-lin": kernighan_lin,
    "hypergraph": partition_hypergraph,
    "streaming": partition_by_streaming,
    "neumap": partition_by_neumap,
    "floorline": partition_by_floorline,
    "coarse": partial(partition_by_floorline, n_levels=0),
}

# Methods that ignore `nwcompile.passes.analyze.core_rules`; the default falls back to slices there, with a warning.
BREAKS_RULES = set(PARTITIONERS) - {"sequential", "floorline", "coarse"}


def partition(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Assign neurons of a normalized network to cores, each at the first site that holds it: the result has a mapping.

    `options.partitioner` names one of `PARTITIONERS` or of a plugin, or is a callable. It takes the arguments of this
    function and returns the logical core of every neuron of every layer, {layer: int[n]}, or a Mapping, whose sites and
    order of visits are kept. Cores without neurons are dropped. `mapping.note` has the fullest resource of each core.
    Raises FitError with every exceeded limit, and OptionError for an unknown method, an impossible `n_cores`, or a
    method that ignores the chip's core rules.
    """
    method = options.partitioner
    if not callable(method):
        method = plugins.look_up(plugins.PARTITIONERS, "partitioner", method, PARTITIONERS)
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
    cores = _to_logical_cores(method(network, limit_to_states(network, chip), activity, options))
    given = cores.mapping
    if given is None:
        mapping = assign_sites(network, chip, cores.core_of, options)
    else:
        given.verify(network, chip)
        kept = assign_sites(network, chip, given.core_of, options, may_cut=False)
        used = np.unique(_flatten_cores(network, given.core_of))
        mapping = Mapping(kept.core_of, given.site_of[used], kept.note, given.visit)
    return cores._replace(core_of=mapping.core_of, mapping=mapping)


def _to_logical_cores(answer) -> LogicalCores:
    """Convert the answer of any partitioner, including a user's callable, to LogicalCores."""
    if isinstance(answer, LogicalCores):
        if not isinstance(answer.mapping, Mapping | None):
            raise ModelError(f"partitioner: gave {type(answer.mapping).__name__} for a mapping, not a Mapping")
        return answer
    return LogicalCores(answer.core_of, mapping=answer) if isinstance(answer, Mapping) else LogicalCores(answer)


def assign_sites(
    network: Network, chip: Chip, core_of: dict[str, np.ndarray], options: Options, may_cut: bool = True
) -> Mapping:
    """Return the mapping of the given logical cores, each at the first site, in row-major order, that holds it.

    Cores of `options.fixed_sites` are at their sites. If cores are unequal, sites are swapped until every core has one,
    if possible. If not, and with `may_cut`, cores are renumbered for the fixed sites and split (`split_to_sites`), but
    never split if `options.n_cores` is given or the chip has core rules. Raises FitError if no sites are found,
    OptionError if fixed sites contradict the cores, and ModelError if `core_of` is not one core for every neuron.
    """
    used_cores, flat = np.unique(_flatten_cores(network, core_of), return_inverse=True)
    flat, n_cores = flat.reshape(-1).astype(np.int32), len(used_cores)
    verify_sites(network, chip, options)
    try:
        return _match_cores(network, chip, flat, n_cores, options)
    except (FitError, OptionError):
        cut = None if not may_cut else split_to_sites(network, chip, flat, options)
        if cut is None or (cut.max() >= n_cores and (options.n_cores is not None or needs_slices(chip))):
            raise
        with suppress(FitError, OptionError):  # the error without the cut is reported
            return _match_cores(network, chip, cut, int(cut.max()) + 1, options)
        raise


def _match_cores(network: Network, chip: Chip, flat: np.ndarray, n_cores: int, options: Options) -> Mapping:
    """Assign sites to cores int32[neuron] without splitting. Raises OptionError if fixed sites contradict them."""
    used, limits = capacity.used_by_core(network, chip, flat, n_cores), capacity.site_limits(chip)
    pinned = pins(network, chip, split_layers(network, flat.astype(np.int32)), n_cores, options)
    sites = match_sites(used, limits[:, : used.shape[1]], pinned)
    if sites is None:
        raise FitError(chip.name, _site_violations(network, chip, flat, used, limits, pinned))
    note = binding_notes(used, limits[sites, : used.shape[1]])
    return Mapping(split_layers(network, flat.astype(np.int32)), chip.sites[sites], note)


def _site_violations(network: Network, chip: Chip, flat, used, limits, pinned) -> list[Violation]:
    """Return the exceeded limits if cores and sites are paired in order of the neurons that they hold."""
    n_cores, n_usable = len(used), capacity.n_usable(chip)
    largest_first = np.argsort(-limits[:, 0], kind="stable")
    rank = np.argsort(np.argsort(-used[:, 0], kind="stable"))
    judged = limits[largest_first][np.minimum(rank, n_usable - 1)]
    judged[pinned != FREE] = limits[pinned[pinned != FREE]]
    violations = [too_many_cores(network, chip, n_cores)] if n_cores > n_usable else []
    violations += capacity_violations(network, chip, flat, judged)
    if violations:
        return violations
    from scipy.sparse.csgraph import maximum_bipartite_matching  # loads scipy.sparse.linalg; only refusals need it

    kind, fits = kinds_of_sites(limits, used, pinned)
    n_most = int((maximum_bipartite_matching(csr_array(fits[:, kind]), "column") >= 0).sum())
    return [Violation("sites", f"cores of the network -> {chip.name}", n_cores, n_most,
                      "use another partitioner, or make room at fixed_sites, noc.faults or io.sites")]  # fmt: skip


def match_sites(used: np.ndarray, limits: np.ndarray, pinned: np.ndarray | None = None) -> np.ndarray | None:
    """Return int64[core]: a site for every core, the first that holds it if there is a choice; None if impossible.

    `used` int64[core, resource], `limits` int64[site, resource], `pinned` int64[core]: the site of a fixed core, else
    `FREE`. Bipartite matching by augmenting paths (Kuhn 1955).
    """
    if len(used) > len(limits):
        return None
    is_free = pinned is None or (pinned == FREE).all()
    usable = np.flatnonzero((used.min(0) <= limits).all(1))
    if is_free and len(used) <= len(usable) and (used.max(0) <= limits[usable]).all():
        return usable[: len(used)]
    kind, fits_kind = kinds_of_sites(limits, used, np.full(len(used), FREE) if pinned is None else pinned)
    fits = fits_kind[:, kind]
    core_at, site_of = np.full(len(limits), -1), np.full(len(used), -1)
    for core in range(len(used)):
        reached_from, queue, free = np.full(len(limits), -1), [core], -1
        while queue and free < 0:
            one = queue.pop(0)
            for site in np.flatnonzero(fits[one] & (reached_from < 0)):
                reached_from[site] = one
                if core_at[site] < 0:
                    free = int(site)
                    break
                queue.append(int(core_at[site]))
        if free < 0:
            return None
        while free >= 0:
            one = reached_from[free]
            core_at[free], site_of[one], free = one, free, site_of[one]
    return site_of


def _flatten_cores(network: Network, core_of: dict[str, np.ndarray]) -> np.ndarray:
    """Return int64[neuron] from a partitioner's answer. Raises ModelError with the name of a wrong layer."""
    if not isinstance(core_of, dict):
        raise ModelError(
            f"partitioner: gave {type(core_of).__name__}, not the core of every neuron as {{layer: int[n]}}"
        )
    for name in network.layers:
        n = network.node(name).n_neurons
        try:
            cores = np.asarray(core_of.get(name, ()))
        except ValueError:  # lists of unequal length
            cores = np.zeros(0)
        if cores.shape != (n,) or not np.issubdtype(cores.dtype, np.integer) or cores.min() < 0:
            raise ModelError(f"partitioner: layer {name!r} needs the cores, 0 or more, of its {n} neurons as int[{n}]")
    return join_layers(network, core_of).astype(np.int64)
