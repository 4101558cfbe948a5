"""Sequential: a partitioner that cuts each layer into contiguous slices, core after core.

After the splitter of PACMAN, the mapper of SpiNNaker (Galluppi et al., CF'12; SpiNNakerManchester/PACMAN), with exact
limits for neurons, axons and synapse memory instead of a fixed number of neurons per core.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nwcompile.errors import FitError, Violation
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_neurons, neuron_offsets
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.resources import RESOURCES
from nwcompile.kernels.mapping import core_usage as kernels
from nwcompile.passes.analyze import capacity
from nwcompile.passes.analyze.core_rules import n_over
from nwcompile.passes.partition.logical_cores import LogicalCores, logical_cores


class Candidate(NamedTuple):
    """A way to cut: neurons in order, ranges of them that may not share a core, and limits of the cores in order."""

    order: np.ndarray  # int64[neuron]
    stretches: list[tuple[int, int]]
    limits: np.ndarray  # int64[core, resource]


class Slices(NamedTuple):
    """A cut of all neurons into cores: int32[neuron], the number of cores, and whether the chip has them."""

    core_of: np.ndarray
    n_cores: int
    fits: bool


def cut_slices(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Return cores int32[n] of every layer: slices in topological order, each as long as the next core holds.

    A map [C, H, W] is cut channel by channel, or pixel by pixel with all channels of a pixel together. The result has
    the fewest cores that such slices need; two layers share a core only if that saves one and the chip allows it. With
    `options.n_cores`, the load of the heaviest core (visits and synaptic events of `activity`) is minimized for that
    number of cores; raises FitError if they are too few. The result may exceed the chip: `partition` checks it. If the
    chip limits only neurons, cores are filled without visiting synapses.
    """
    load = capacity.synaptic_load(network, activity)
    is_counted = any(chip.limit(resource.limit_key) is not None for resource in RESOURCES[1:])
    fan = capacity.fan_in(network if is_counted else replace(network, connections=()), chip)

    def build(out_axons):
        demand = np.stack([out_axons, load], 1)
        cut = _fewest_slices if options.n_cores is None else _spread_slices
        return cut(network, chip, fan, demand, options.n_cores).core_of

    return logical_cores(network, capacity.settle_out_axons(network, chip, build))


def halve_heaviest(core_of: np.ndarray, load: np.ndarray, n_cores: int) -> np.ndarray:
    """Split the heaviest core with at least two neurons until there are `n_cores`; int32[neuron]."""
    core_of = np.unique(core_of, return_inverse=True)[1].reshape(-1).astype(np.int32)
    for new in range(int(core_of.max()) + 1, n_cores):
        total = np.bincount(core_of, load)
        total[np.bincount(core_of) < 2] = -1
        neurons = np.flatnonzero(core_of == total.argmax())
        upto = np.cumsum(load[neurons])
        middle = 1 + int(np.searchsorted(upto[:-1], upto[-1] / 2))
        core_of[neurons[min(middle, len(neurons) - 1) :]] = new
    return number_in_order(core_of)


def number_in_order(core_of: np.ndarray) -> np.ndarray:
    """Number the cores by their first neuron, without gaps; int32[neuron]."""
    _, first, core_of = np.unique(core_of, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[core_of.reshape(-1)].astype(np.int32)


def site_orders(limits: np.ndarray) -> list[np.ndarray]:
    """Return orders in which to fill the physical cores: row-major, and the largest first if that differs."""
    row_major = np.arange(len(limits))
    if (limits == limits[0]).all():
        return [row_major]
    return [row_major, np.lexsort(tuple(-limits[:, i] for i in reversed(range(limits.shape[1]))))]


def _list_candidates(network: Network, chip: Chip) -> list[Candidate]:
    """List the ways to cut: cores of one layer before shared ones, channel by channel before pixel by pixel."""
    starts = neuron_offsets(network)
    n = count_neurons(network)
    apart = list(zip(starts.values(), [*list(starts.values())[1:], n], strict=True))
    pixels = [
        np.arange(stop - start).reshape(network.node(name).shape[0], -1).T.reshape(-1) + start
        for name, (start, stop) in zip(starts, apart, strict=True)
    ]
    limits, max_layers, shared = capacity.site_limits(chip), chip.limit("max_layers"), [[(0, n)]]
    if max_layers is not None and 1 < (n_most := int(max_layers.max())) < len(apart):
        groups = [apart[i : i + n_most] for i in range(0, len(apart), n_most)]
        shared.append([(group[0][0], group[-1][1]) for group in groups])
    orders = [np.arange(n), np.concatenate(pixels)]
    if np.array_equal(*orders):
        orders.pop()
    return [
        Candidate(order, stretches, limits[sites])
        for stretches in (apart, *shared)
        for order in orders
        for sites in site_orders(limits)
    ]


def _fewest_slices(network: Network, chip: Chip, fan, demand: np.ndarray, _) -> Slices:
    cuts = [_fill_slices(fan, demand, candidate) for candidate in _list_candidates(network, chip)]
    over = [n_over(network, chip, cut.core_of) for cut in cuts]  # if all break rules, report the first

    def rank(i: int):
        return over[i] > 0 or not cuts[i].fits, over[i], i if over[i] else cuts[i].n_cores

    return cuts[min(range(len(cuts)), key=rank)]


def _spread_slices(network: Network, chip: Chip, fan, demand: np.ndarray, n_cores: int) -> Slices:
    """Minimize the load of the heaviest core: bisect the load that a core may have, then halve cores for the rest."""
    needed, load = [], demand[:, 1]
    for candidate in _list_candidates(network, chip):
        best = _fill_slices(fan, demand, candidate)
        needed.append(best.n_cores)
        if not best.fits or best.n_cores > n_cores:
            continue
        low, high = int(load.max()), int(load.sum())
        while low < high:
            middle = (low + high) // 2
            cut = _fill_slices(fan, demand, candidate, middle, n_cores)
            if cut.fits and cut.n_cores <= n_cores:
                best, high = cut, middle
            else:
                low = middle + 1
        core_of, order = best.core_of.copy(), candidate.order
        core_of[order] = halve_heaviest(core_of[order], load[order], n_cores)
        return Slices(core_of, n_cores, True)
    raise FitError(
        chip.name, [Violation("cores", "network -> n_cores", min(needed), n_cores, "raise n_cores or leave it out")]
    )


def _fill_slices(fan, demand, candidate: Candidate, load_limit=capacity.NO_LIMIT, n_most=capacity.NO_LIMIT) -> Slices:
    """Fill core after core; a neuron that no core holds sets `fits` to false, and its core's limits are ignored.

    Cores beyond the chip's have the last one's limits, so that the count shows how many are needed. Gives up, with
    `fits` false, above `n_most` cores.
    """
    core, core_of = capacity.empty_core(fan), np.zeros(len(demand), np.int32)
    limits = candidate.limits.copy()
    limits[:, kernels.LOAD] = load_limit
    n_cores, site, fits = 0, 0, True
    for at, stop in candidate.stretches:
        while at < stop and n_cores <= n_most:
            ahead, n_left = candidate.order[at:stop], min(stop - at, n_most + 1 - n_cores)
            is_beyond = site >= len(limits)
            fits = fits and not is_beyond
            cores = np.repeat(limits[-1:], n_left, 0) if is_beyond else limits[site : site + n_left]
            n_taken = np.zeros(len(cores), np.int64)
            n_filled = kernels.fill_in_turn(fan, core, demand, ahead, cores, n_taken)
            if n_filled == 0 and not is_beyond:  # if one core holds nothing, equal ones do not either
                others = np.flatnonzero((candidate.limits[site + 1 :] != candidate.limits[site]).any(axis=1))
                site = site + 1 + int(others[0]) if len(others) else len(limits)
                continue
            if n_filled == 0:  # ignore the limits that the neuron alone exceeds
                used = np.zeros((1, kernels.N_RESOURCES), np.int64)
                kernels.alone(fan, core, demand, ahead[:1], used)
                relaxed = np.where(used[0] > candidate.limits[-1], capacity.NO_LIMIT, candidate.limits[-1])
                relaxed[kernels.LOAD] = load_limit
                n_filled = kernels.fill_in_turn(fan, core, demand, ahead, relaxed[None], n_taken)
            n = n_taken[:n_filled].sum()
            core_of[ahead[:n]] = n_cores + np.repeat(np.arange(n_filled), n_taken[:n_filled])
            n_cores, site, at = n_cores + n_filled, site + n_filled, at + n
        if at < stop:
            return Slices(core_of, n_cores, False)
    return Slices(core_of, n_cores, fits)
