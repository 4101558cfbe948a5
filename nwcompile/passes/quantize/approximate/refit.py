"""Refit: find the threshold and the leak with which the chip's nearest neurons fire most like the wanted ones.

A neuron that resets to zero loses its membrane above the threshold, so it fires less than one that subtracts. For every
leak that is tried, the threshold at which the layer fires as often as wanted is searched by bisection (the rate falls
as the threshold rises). The leak with the closest spike trains wins (`scale_search.how_far`). Both are factors of a
whole layer: the ratios of its thresholds, and of its leak rates, stay. If a chip has a threshold per neuron
(`neuron.threshold_per`), each neuron's is searched separately, and in maps each channel's: neurons that stay above
their threshold for long, and may fire several times at once on the chip, need much higher ones than those that seldom
fire.

Neurons that reset to zero also synchronize: under a constant input, one that fired in two of three steps fires in every
second. The next layer loses such bursts if its own reset forgets everything above the threshold; it also loses the rest
of one strong input that should make a neuron fire in several steps. Therefore decaying synaptic currents are tried as
well: they spread an input over later steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.host import Injected
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.passes.analyze.grids import find_decay_for_loss, largest_threshold, round_bias
from nwcompile.passes.quantize.approximate.ideal import DrivenLayer, PooledLayer
from nwcompile.passes.quantize.scale_search import how_far

# Leak rates to try, as factors of the neuron's own: a hard reset prefers others, mostly slower ones.
LEAK_FACTORS = (0.0, 0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)
N_LEAKS_REFINED = 4  # Further leak rates, each halfway between the best so far and a neighbor.
SLOW_LEAKS = (0.0, 0.01, 0.03, 0.1)  # Leak rates to try if the neuron has none of its own.
KEPT_CURRENTS = (0.0, 0.3, 0.5, 0.7)  # Shares of a current that remain after a step, tried if there was no current.
N_CURRENTS_REFINED = 2  # Further shares, each halfway between the best so far and a neighbor.
SMALLEST_THRESHOLD_FACTOR = 0.02  # Smallest threshold of the search, as a factor of the neuron's own.
LARGEST_THRESHOLD_FACTOR = 16.0  # Largest one: a neuron that sends once instead of n times may need it.
WIDENED = 1.25  # Factor by which the search for a threshold widens until the wanted rate lies inside.
N_HALVINGS = 6  # Bisections of that range on a logarithmic scale: to less than half a percent of a threshold.
MISSED = 0.05  # Above this error of the best rate, leaks cannot be compared: every current tries all of them.
WELL_MATCHED = 0.02  # Rates that differ by less count as equal: then the spike trains decide.
BOTH_WELL_MATCHED = 0.05  # The same for each of two rates that one threshold cannot match.


@dataclass(frozen=True)
class Refitted:
    """Neurons on the chip's grids, factors of their thresholds and leak rates, and their distance from the wanted ones.

    `threshold_factor`: one number, or one per neuron or channel, broadcastable to the layer. `leak_factor`: the factor
    of the leak rate, or the leak rate if there was none. `current` (0..1): the share of a synaptic current that remains
    after a step, None if none was added. `off`: the distance from the wanted spikes, rate and trains (`how_far`).
    `scale_factor`: for a readout that replaces a program, its membrane over the program's state, both in integers; else
    None.
    """

    neuron: NeuronSpec
    threshold_factor: np.ndarray
    leak_factor: float | None
    off: tuple[float, float]
    current: float | None = None
    scale_factor: float | None = None

    def __str__(self) -> str:
        leak = "" if self.leak_factor is None else f", leak x {self.leak_factor:.3g}"
        current = "" if self.current is None else f", inputs as a current that keeps {self.current:.0%} per step"
        least, largest = self.threshold_factor.min(), self.threshold_factor.max()
        factor = f"threshold x {least:.3g}" if least == largest else f"thresholds x {least:.3g} to {largest:.3g}"
        return f"{factor}{leak}{current}"


Fit = TypeVar("Fit", bound=Refitted)


def refit(layer: DrivenLayer | PooledLayer, neuron: NeuronSpec, wanted: tuple[np.ndarray, ...], chip: Chip) -> Refitted:
    """Fit threshold, leak and current of the nearest `neuron` to the trains `wanted` `[B, T, *shape]`.

    For a layer and its pooled spikes, one threshold may not match both rates: then their product is matched, so that
    each is off by half.

    Samples in which the layer should not fire at all are no evidence: the neuron stays unchanged.
    """
    search = _Search(layer, neuron, wanted, chip)
    if not search.aim.any():
        return search.measure_fit(search.start, None, 0.0)
    leaks: tuple[float, ...] = LEAK_FACTORS if np.any(neuron.number_format.lost(neuron.decay_v)) else SLOW_LEAKS
    leaks = (0.0,) if chip.neuron.leak is False else leaks
    leak, fit = best_value(lambda leak: search.fit_at(leak, 0.0), leaks, N_LEAKS_REFINED)
    currents = search.currents_to_try()
    if fit.off[0] > MISSED:
        others = []
        for kept in currents[1:]:
            search.start = np.full(search.start.shape, 1 - kept)  # the neuron's own threshold
            others.append(best_value(partial(search.fit_at, kept=kept), leaks, N_LEAKS_REFINED)[1])
        return min([fit, *others], key=lambda fit: fit.off)
    if len(currents) > 1:
        search.start = fit.threshold_factor
        _, fit = best_value(lambda kept: search.fit_at(leak, kept), currents, N_CURRENTS_REFINED)
    return fit


def best_value(at: Callable[[float], Fit], values: tuple[float, ...], n_refined: int) -> tuple[float, Fit]:
    """Return the value with the best fit, and that fit, from `values` and `n_refined` further ones next to the best."""
    tried = {value: at(value) for value in values}
    for _ in range(n_refined if len(values) > 1 else 0):
        values = tuple(sorted(tried))
        i = values.index(min(values, key=lambda value: tried[value].off))
        beside = [values[k] for k in (i - 1, i + 1) if 0 <= k < len(values)]
        widest = max(beside, key=lambda value: abs(value - values[i]))
        between = (values[i] + widest) / 2
        tried[between] = at(between)
    chosen = min(tried, key=lambda value: tried[value].off)
    return chosen, tried[chosen]


class _Search:
    """Searches a layer's thresholds for one leak or current after another, each from the last result."""

    def __init__(
        self, layer: DrivenLayer | PooledLayer, neuron: NeuronSpec, wanted: tuple[np.ndarray, ...], chip: Chip
    ):
        self.layer, self.neuron, self.wanted, self.chip = layer, neuron, wanted, chip
        shape = wanted[0].shape[2:]
        is_single = chip.neuron.threshold_per != "neuron" or isinstance(layer, PooledLayer)
        # In a map each channel has a threshold, because its neurons share their weights.
        self.groups = (1,) * len(shape) if is_single else (shape[0], *(1,) * (len(shape) - 1))
        # Neurons that send only positive spikes are fitted to the signed sum of the wanted ones.
        self.aim = self._mean([self._n_spikes(t) if neuron.message == "bipolar" else self._sum_axes(t) for t in wanted])
        self.start = np.ones(self.groups)

    def currents_to_try(self) -> tuple[float, ...]:
        """Return shares of a current to try: those that the chip supports and whose u holds the peak in every step.

        Returns only 0 if the chip has no currents, or the neurons have their own, or registers, which come after them.
        """
        driven = self.layer.full if isinstance(self.layer, PooledLayer) else self.layer
        if self.chip.neuron.current is False:
            return (0.0,)
        fixed = self.neuron.number_format
        if np.any(np.asarray(self.neuron.decay_u) != fixed.fastest) or np.any(self.neuron.bias_u):
            return (0.0,)
        if any(isinstance(c, Injected) for c in driven.alone.connections):
            return (0.0,)
        peak = self.layer.largest_drive << fixed.shift_bits
        limit = (1 << (fixed.state_bits - 1)) - 1
        can = (k for k in KEPT_CURRENTS[1:] if (1 - k) * (1 << fixed.decay_bits) >= self.chip.state.decay_offset)
        return (0.0, *(kept for kept in can if peak <= limit * (1 - kept)))

    def fit_at(self, leak: float, kept: float) -> Refitted:
        """Return the neuron with this leak and current, and the thresholds at which it fires as often as wanted."""
        inside = outside = chosen = self.start
        counts = self._count_trains(inside, leak, kept)
        grows = counts > self.aim  # then the threshold must be higher
        missed = np.abs(counts - self.aim)

        def closer(factor: np.ndarray, counts: np.ndarray) -> None:
            nonlocal chosen, missed
            off = np.abs(counts - self.aim)
            better = (off < missed) | ((off == missed) & (factor < chosen))
            chosen, missed = np.where(better, factor, chosen), np.where(better, off, missed)

        goes_on = counts != self.aim
        while goes_on.any():
            inside = np.where(goes_on, outside, inside)
            wider = np.where(grows, outside * WIDENED, outside / WIDENED)
            wider = np.clip(wider, SMALLEST_THRESHOLD_FACTOR, LARGEST_THRESHOLD_FACTOR)
            goes_on &= wider != outside
            outside = np.where(goes_on, wider, outside)
            counts = self._count_trains(outside, leak, kept)
            closer(outside, counts)
            goes_on &= ((counts > self.aim) == grows) & (counts != self.aim)
        for _ in range(N_HALVINGS):
            middle = np.sqrt(inside * outside)
            counts = self._count_trains(middle, leak, kept)
            closer(middle, counts)
            is_inside = (counts > self.aim) == grows
            inside, outside = np.where(is_inside, middle, inside), np.where(is_inside, outside, middle)
        self.start = chosen
        return self.measure_fit(chosen, leak, kept)

    def measure_fit(self, factor: np.ndarray, leak: float | None, kept: float) -> Refitted:
        """Return the neuron at one threshold, leak and current, and its distance."""
        neuron = scale_neuron(self.neuron, self.chip, factor, leak, kept)
        matched = WELL_MATCHED if len(self.wanted) == 1 else BOTH_WELL_MATCHED
        pairs = zip(self.layer.run_trains(neuron), self.wanted, strict=True)
        rates, distances = zip(*(how_far(train, wanted, matched) for train, wanted in pairs), strict=True)
        return Refitted(
            neuron=neuron,
            threshold_factor=factor,
            leak_factor=leak,
            off=(max(rates), sum(distances)),
            current=kept or None,
        )

    def _count_trains(self, factor: np.ndarray, leak: float, kept: float) -> np.ndarray:
        trains = self.layer.run_trains(scale_neuron(self.neuron, self.chip, factor, leak, kept))
        return self._mean([self._n_spikes(train) for train in trains])

    @staticmethod
    def _mean(counts: list[np.ndarray]) -> np.ndarray:
        """Return the geometric mean of counts, which is right if their product is."""
        return counts[0] if len(counts) == 1 else np.sqrt(np.prod(counts, axis=0))

    def _n_spikes(self, spikes: np.ndarray) -> np.ndarray:
        """Count spikes of either sign, in the shape of the thresholds."""
        return self._sum_axes(np.abs(spikes))

    def _sum_axes(self, spikes: np.ndarray) -> np.ndarray:
        axes = tuple(2 + axis for axis, n in enumerate(self.groups) if n == 1)
        return np.maximum(spikes.sum((0, 1, *axes), dtype=np.int64).reshape(self.groups), 0)


def scale_neuron(neuron: NeuronSpec, chip: Chip, factor: np.ndarray, leak: float | None, kept: float) -> NeuronSpec:
    """Return fixed-point neurons with thresholds times `factor` on the chip's grid, and leak rates times `leak`.

    If the membrane does not leak, `leak` is its leak rate; None keeps the leak. A current of which a share `kept`
    (0..1) remains after a step delivers 1 / (1 - kept) times as much to the membrane in total, so all other numbers of
    the membrane are multiplied by that factor.
    """
    unit = 1 << chip.neuron.threshold_shift_bits
    gain = 1 / (1 - kept)
    threshold = np.rint(np.asarray(neuron.threshold, np.float64) * factor * gain / unit).astype(np.int64) * unit
    threshold = np.clip(threshold, unit, largest_threshold(chip))
    fixed = neuron.number_format
    lost = fixed.lost(neuron.decay_v)
    changed: dict[str, Any] = {"threshold": threshold}
    if leak is not None:
        lost = np.minimum(lost * leak, 1) if np.any(lost) else np.full(lost.shape, leak)
        changed["decay_v"] = find_decay_for_loss(lost, fixed)
    if kept:
        changed["decay_u"] = find_decay_for_loss(np.asarray(1 - kept), fixed)
        changed["bias"] = round_bias(np.asarray(neuron.bias, np.float64) * gain, chip)
        for name in ("reset_value", "v_min"):
            if (value := getattr(neuron, name)) is not None:
                changed[name] = np.rint(np.asarray(value, np.float64) * gain).astype(np.int64)
    return neuron.replace(**changed)
