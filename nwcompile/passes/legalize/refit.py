"""Refit: the threshold and the leak with which the chip's nearest neurons fire most like those that are wanted.

A neuron that resets to zero loses what it had beyond its threshold, so it fires less than one that subtracts. For every
leak that is tried, the threshold is searched at which the layer fires as often as it should, by halving (the rate falls
as the threshold rises). Among these the leak is best whose spike trains are closest (`scale_search.spike_distance`).
Both are numbers of a whole layer: the ratio of its thresholds, and of its leak rates, stays as it was.

Where one strong input makes a neuron fire in several steps, no threshold is low enough: a reset to zero forgets what is
left. If the rate is missed so, the input is spread over steps by a synaptic current that decays.
"""

from dataclasses import dataclass

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.passes.legalize.driven import DrivenLayer
from nwcompile.passes.legalize.ideal import PooledLayer
from nwcompile.passes.quantize.grids import largest_threshold
from nwcompile.passes.quantize.scale_search import spike_distance

# Leak rates that are tried, as a part of the neuron's own: a hard reset wants others, mostly slower ones.
LEAK_FACTORS = (0.0, 0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)
N_LEAKS_REFINED = 4  # More leak rates, each halfway between the best so far and one beside it.
SLOW_LEAKS = (0.0, 0.01, 0.03, 0.1)  # Leak rates that are tried where the neuron has none of its own.
SMALLEST_THRESHOLD_FACTOR = 0.02  # Thresholds are searched down to so small a part of the neuron's own.
LARGEST_THRESHOLD_FACTOR = 16.0  # And up to so many times: a neuron that sends once instead of n times may need it.
WIDENED = 1.25  # The factor by which the search for a threshold widens until the wanted rate lies inside.
N_HALVINGS = 6  # Of that range on a logarithmic scale: to less than half a percent of a threshold.
WELL_MATCHED = 0.02  # Rates that differ by less are taken as equal: then the spike trains decide.
MISSED = 0.05  # A rate that is off by more, at every leak, has currents tried.
CURRENTS = (0.3, 0.5, 0.7)  # Parts of the synaptic current that stay in a step, tried where there is no current.


@dataclass(frozen=True)
class Refitted:
    """Neurons on the chip's grids, what their thresholds and leak rates were multiplied by, and how far they are off.

    `leak` is the part of the membrane that is lost in a step where there was no leak to multiply. `current` is the
    part of a synaptic current that stays in a step, None where none was added. `distance` is that of the spike trains,
    `n_spikes` what the layer sends on the samples.
    """

    neuron: NeuronSpec
    threshold_factor: float
    leak_factor: float | None
    distance: float
    n_spikes: int
    current: float | None = None

    def __str__(self) -> str:
        leak = "" if self.leak_factor is None else f", leak x {self.leak_factor:.3g}"
        current = "" if self.current is None else f", inputs as a current that keeps {self.current:.0%} a step"
        return f"threshold x {self.threshold_factor:.3g}{leak}{current}"


def refit(layer: DrivenLayer | PooledLayer, neuron: NeuronSpec, wanted: np.ndarray, chip: Chip) -> Refitted:
    """The nearest `neuron` with the threshold and leak whose spikes are closest to `wanted` `[B, T, *shape]`.

    Samples in which the layer should not fire at all are no evidence: the neuron stays as it is.
    """
    search = _Search(layer, neuron, wanted, chip)
    if search.aim == 0:
        return search.fitted(1.0, None)
    best = search.best()
    if search.badness(best)[0] <= MISSED:
        return best
    spread = [kept for kept in CURRENTS if _holds_current(layer, neuron, kept)]
    others = [_Search(layer, with_current(neuron, kept), wanted, chip, kept).best() for kept in spread]
    return min([best, *others], key=search.badness)


def with_current(neuron: NeuronSpec, kept: float) -> NeuronSpec:
    """A fixed-point neuron whose synaptic current keeps this part of itself in a step."""
    whole = 1 << neuron.fixed.decay_bits
    return neuron.replace(decay_u=np.full(np.shape(neuron.decay_u), round(whole * (1 - kept)), np.int64))


def _holds_current(layer: DrivenLayer | PooledLayer, neuron: NeuronSpec, kept: float) -> bool:
    """Whether the layer has no current yet, and its state would hold that one on the samples."""
    if neuron.decay_u is None or np.any(np.asarray(neuron.decay_u) != 1 << neuron.fixed.decay_bits):
        return False
    largest = (layer.largest_drive << neuron.fixed.shift_bits) + int(np.abs(neuron.bias_u).max())
    return largest / (1 - kept) < 1 << (neuron.fixed.state_bits - 1)


class _Search:
    """The thresholds of one layer at one leak after the other; each search begins where the last one ended."""

    def __init__(
        self, layer: DrivenLayer | PooledLayer, neuron: NeuronSpec, wanted: np.ndarray, chip: Chip, current=None
    ):
        self.layer, self.neuron, self.wanted, self.chip, self.current = layer, neuron, wanted, chip, current
        self.aim, self.start = _n_spikes(wanted), 1.0

    def best(self) -> Refitted:
        """The fit that is off least, over leaks first far apart, then between."""
        tried: dict[float, Refitted] = {}
        for leak in LEAK_FACTORS if np.any(self.neuron.decay_v) else SLOW_LEAKS:
            tried[leak] = self.at_leak(leak)
        for _ in range(N_LEAKS_REFINED):
            leaks = sorted(tried)
            at = leaks.index(min(leaks, key=lambda leak: self.badness(tried[leak])))
            beside = [leaks[i] for i in (at - 1, at + 1) if 0 <= i < len(leaks)]
            widest = max(beside, key=lambda leak: abs(leak - leaks[at]))
            between = (leaks[at] + widest) / 2
            tried[between] = self.at_leak(between)
        return min(tried.values(), key=self.badness)

    def badness(self, fit: Refitted) -> tuple[float, float]:
        """How far a fit is off: its rate, unless that is well matched, then its spike trains."""
        off = abs(fit.n_spikes / self.aim - 1)
        return (0.0 if off < WELL_MATCHED else off, fit.distance)

    def at_leak(self, leak: float) -> Refitted:
        """The neuron with this leak and the threshold at which it fires as often as it should."""
        counts = {self.start: self._count(self.start, leak)}
        grows = counts[self.start] > self.aim  # then the threshold must be higher
        inside, outside = self.start, self.start
        while (counts[outside] > self.aim) == grows and counts[outside] != self.aim:
            inside, outside = outside, outside * WIDENED if grows else outside / WIDENED
            if not SMALLEST_THRESHOLD_FACTOR < outside < LARGEST_THRESHOLD_FACTOR:
                break
            counts[outside] = self._count(outside, leak)
        for _ in range(N_HALVINGS):
            middle = float(np.sqrt(inside * outside))
            counts[middle] = self._count(middle, leak)
            inside, outside = (middle, outside) if (counts[middle] > self.aim) == grows else (inside, middle)
        self.start = min(counts, key=lambda factor: (abs(counts[factor] - self.aim), factor))
        return self.fitted(self.start, leak)

    def fitted(self, factor: float, leak: float | None) -> Refitted:
        """The neuron at one threshold and leak, and what it gives."""
        neuron = scaled(self.neuron, self.chip, factor, leak)
        spikes = self.layer.spikes(neuron)
        return Refitted(
            neuron=neuron,
            threshold_factor=factor,
            leak_factor=leak,
            distance=spike_distance(spikes, self.wanted),
            n_spikes=_n_spikes(spikes),
            current=self.current,
        )

    def _count(self, factor: float, leak: float) -> int:
        return _n_spikes(self.layer.spikes(scaled(self.neuron, self.chip, factor, leak)))


def _n_spikes(spikes: np.ndarray) -> int:
    return int(np.abs(spikes).sum(dtype=np.int64))


def scaled(neuron: NeuronSpec, chip: Chip, factor: float, leak: float | None) -> NeuronSpec:
    """Fixed-point neurons with thresholds times `factor` on the chip's grid, and leak rates times `leak`.

    Where the membrane does not leak, `leak` is the part that it loses in a step; None leaves the leak as it is.
    """
    unit = 1 << chip.neuron.threshold_shift_bits
    threshold = np.rint(np.asarray(neuron.threshold, np.float64) * factor / unit).astype(np.int64) * unit
    threshold = np.clip(threshold, unit, largest_threshold(chip))
    decay, whole = np.asarray(neuron.decay_v, np.float64), 1 << neuron.fixed.decay_bits
    if leak is not None:
        decay = np.minimum(decay * leak, whole) if np.any(decay) else np.full(decay.shape, leak * whole)
    return neuron.replace(threshold=threshold, decay_v=np.rint(decay).astype(np.int64))
