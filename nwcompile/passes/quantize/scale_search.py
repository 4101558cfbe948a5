"""Scale search: find the scale of a layer at which its integer spikes are closest to its float spikes.

A leaky integrate-and-fire layer is scale-invariant: weights, biases and threshold times S give the same spikes, with a
membrane S times as large. The chip's widths bound S from above; the best one below that is found by trying.
"""

from dataclasses import dataclass
from math import floor, inf, log2

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Direct, Sparse
from nwcompile.passes.analyze import grids
from nwcompile.passes.prepare.fold import apply_map, linear_map
from nwcompile.passes.quantize.scaled_layer import (
    REGISTERS,
    Layer,
    Scaled,
    register_encoding,
    scale_layer,
    weight_error,
)
from nwcompile.sim.host import encode
from nwcompile.sim.sequence.run import record_activity, trace_layers

WHOLE_RANGE = 1.0  # The range of weights without clipping.
# Ranges of weights to try, over the largest weight: clipping some may represent the others better.
CLIPS = (WHOLE_RANGE, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 1.1, 1.25, 1.5)
NARROW = 4  # Weights of at most this width are mostly clipped or mostly 0: much smaller ranges are tried too.
NARROW_CLIPS = (0.35, 0.5, 0.65, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5, 3.0)  # range over the weights' root mean square
NARROW_THRESHOLDS = (0.7, 0.8, 0.9, 1.1, 1.2)  # thresholds tried with them; such weights drive neurons less or more
N_REFINED = 3  # Number of best scales for which other thresholds are tried too.
PEAK_MARGIN = 4.0  # Headroom of a current over the calibration samples before it overflows.
MEMBRANE_MARGIN = 2.0  # The same for a membrane, which saturates harmlessly.
LIKELY_COUNT = 8.0  # Assumed spikes per step of a multi-spike source without calibration samples.
LONGEST_MEMORY = 64  # Assumed steps that a readout without leak adds up, without calibration samples.
CHUNK = 1 << 23  # Numbers that the search for a peak holds at once, 64 MiB of float64.
MEMORY = 0.8  # Decay per step of the filter under which spike trains are compared.
# Below this error of its rate, a layer is judged by its spike times. So are narrow weights, whatever their rate: judged
# by rate first, 2-bit nets classified 1 % fewer of scikit-learn's digits correctly.
WELL_MATCHED = 0.05


@dataclass(frozen=True, eq=False)
class Evidence:
    """Calibration: `arriving[i]` spikes [B, T, *source] of connection i as the chip sends them, `wanted` float spikes.

    For a readout, `wanted` is the float membrane. `peak_u` and `peak_v` are the largest magnitudes of the float layer's
    current and membrane. `injected`: float values [B, T, *shape] for the registers of a layer that has them.
    """

    arriving: tuple[np.ndarray, ...]
    wanted: np.ndarray
    peak_u: float
    peak_v: float
    injected: np.ndarray | None = None

    @property
    def is_silent(self) -> bool:
        """Whether a layer with inputs receives nothing."""
        reached = any(spikes.any() for spikes in self.arriving)
        return bool(self.arriving) and not reached and self.injected is None


def choose_scale(layer: Layer, chip: Chip, evidence: Evidence | None) -> tuple[Scaled, np.ndarray | None]:
    """Return the layer at its best scale, and its spikes on the calibration samples if they were computed.

    The closest spikes (`how_far`) win, then the least weight error, then the largest scale. With narrow weights, and
    with decays by shift, other thresholds are tried too, at the best scales without them.

    Without evidence only the weight error counts, as for readouts with more bits; for readouts with few bits the
    membrane decides. Samples in which no spike reaches the layer are no evidence.
    """
    if evidence is not None and evidence.is_silent:
        evidence = None
    top = largest_scale(layer, chip, evidence)
    best = _Best(layer)
    if evidence is None or not (layer.neuron.fires or _is_narrow(layer)):
        for scale, clip in _list_candidates(layer, chip, top, (WHOLE_RANGE, *_narrow_clips(layer))):
            best.take_better((0.0, 0.0), scale_layer(layer, chip, scale, clip), None)
    else:
        tries = _list_candidates(layer, chip, top, (*CLIPS, *_narrow_clips(layer)))
        far = [best.take_better(*_try_scale(layer, chip, scale, clip, evidence)) for scale, clip in tries]
        for _, at in sorted(zip(far, tries, strict=True))[:N_REFINED]:
            for factor in _threshold_factors(layer, chip, at[0]):
                best.take_better(*_try_scale(layer, chip, *at, evidence, factor))
    assert best.scaled is not None, "every layer has candidates"
    return best.scaled, best.spikes


@dataclass(eq=False)
class _Best:
    """The first of the best scaled layers so far, with its spikes; others are dropped to save memory."""

    layer: Layer
    rank: tuple | None = None
    scaled: Scaled | None = None
    spikes: np.ndarray | None = None

    def take_better(self, far: tuple[float, float], scaled: Scaled, spikes: np.ndarray | None) -> tuple[float, float]:
        """Keep a layer at distance `far` if it is the best so far, and return `far`."""
        rank = (far, weight_error(self.layer, scaled), -scaled.scale)
        if self.rank is None or rank < self.rank:
            self.rank, self.scaled, self.spikes = rank, scaled, spikes
        return far


def largest_scale(layer: Layer, chip: Chip, evidence: Evidence | None) -> float:
    """Return the scale above which a state could overflow, or a threshold, bias or reset value exceed its register.

    A current must hold the worst possible input, or PEAK_MARGIN times the calibration's if that is less.
    """
    spec, d = layer.neuron, layer.dynamics
    state = (1 << (chip.state.bits - 1)) - 1
    threshold = float(np.abs(np.asarray(spec.threshold)).max()) if spec.fires else 0.0
    constant = float(np.abs(d.constant_v).max())
    u = _worst_current(layer, evidence)
    if evidence is None:
        memory = 1 if spec.fires else min(1 / max(1 - float(d.keep_v.max()), 1e-9), LONGEST_MEMORY)
        v = threshold + (u + constant) * memory
    else:
        u = min(u, PEAK_MARGIN * evidence.peak_u)
        counts = spec.fires and (spec.reset == "subtract" or spec.spikes == "multi")
        v = threshold + MEMBRANE_MARGIN * evidence.peak_v + (u if counts else 0.0)
    bounds = [(state, u), (state, v), (grids.largest_threshold(chip), threshold)]
    bounds += [
        (state, np.abs(np.asarray(x, np.float64)).max()) for x in (spec.reset_value, spec.v_min) if x is not None
    ]
    if evidence is not None and evidence.injected is not None:
        injected = float(np.abs(layer.register_currents(evidence.injected)).max())
        bounds.append((grids.largest_bias(chip), MEMBRANE_MARGIN * injected))
    if chip.neuron.bias:
        bounds += [(grids.largest_bias(chip), np.abs(x).max()) for x in (d.constant_u, d.constant_v)]
    top = min((float(limit / need) for limit, need in bounds if need > 0), default=inf)
    if not top:
        name = layer.node.name
        raise ModelError(
            f"layer {name!r}: membranes go beyond float32 in the calibration samples; choose smaller units"
        )
    return top if top == inf else floor(top * (grain := 2.0 ** (10 - floor(log2(top))))) / grain


def peak_current(layer: Layer, spikes: tuple[np.ndarray, ...], injected: np.ndarray | None = None) -> float:
    """Return the largest magnitude of u in the float layer, for spikes [B, T, *source] of each connection.

    `injected`: values [B, T, *shape] of its registers, if it has them.
    """
    d, shape, peak = layer.dynamics, layer.node.shape, 0.0
    pairs = zip(layer.connections, layer.sources, strict=True)
    maps = [linear_map(c, source.shape, shape) for c, source in pairs]
    known = spikes if injected is None else (injected, *spikes)
    n_samples, n_steps = known[0].shape[:2] if known else (1, LONGEST_MEMORY)
    size = max(1, CHUNK // (n_steps * max(node.n_neurons for node in (layer.node, *layer.sources))))
    for start in range(0, n_samples, size):
        n = min(size, n_samples - start)
        drive = np.zeros((n, n_steps, layer.node.n_neurons))
        for c, m, s in zip(layer.connections, maps, spikes, strict=True):
            n_late = max(n_steps - c.aligned_delay, 0)
            late = s[start : start + n, :n_late].reshape(n * n_late, s[0, 0].size)
            drive[:, n_steps - n_late :] += apply_map(m, late.astype(np.float64)).reshape(n, n_late, drive.shape[2])
        u = np.zeros((n, *shape))
        added = None if injected is None else layer.register_currents(injected[start : start + n])
        for t in range(n_steps):
            u = d.keep_u * u + d.factor * drive[:, t].reshape(n, *shape) + d.constant_u
            u = u if added is None else u + added[:, t]
            peak = max(peak, float(np.abs(u).max()))
    return peak


def how_far(spikes: np.ndarray, wanted: np.ndarray, matched: float) -> tuple[float, float]:
    """Return how far spike trains [B, T, ...] are from `wanted`: their rate's error, 0 below `matched`; then in time.

    The distance in time alone favors silence: trains that hardly agree in time, as behind many layers, are the closer
    to others the fewer spikes they have.
    """
    aim = n_spikes(wanted)
    off = abs(n_spikes(spikes) / aim - 1) if aim else 0.0
    return (0.0 if off < matched else off, spike_distance(spikes, wanted))


def n_spikes(spikes: np.ndarray) -> int:
    """Count the spikes of either sign."""
    return int(np.abs(spikes).sum(dtype=np.int64))


def spike_distance(spikes: np.ndarray, wanted: np.ndarray) -> float:
    """Squared difference of two sets of spike trains [B, T, ...], each filtered by an exponential (van Rossum 2001)."""
    filtered = np.zeros((len(spikes), *spikes.shape[2:]), np.float32)
    total = 0.0
    for t in range(spikes.shape[1]):
        filtered *= MEMORY
        filtered += spikes[:, t].astype(np.float32) - wanted[:, t]
        total += float((filtered * filtered).sum(dtype=np.float64))
    return total


def _worst_current(layer: Layer, evidence: Evidence | None) -> float:
    """Return the largest |u| that spikes can cause: all positive or all negative weights at once, in every step."""
    excited = inhibited = float(np.abs(layer.dynamics.constant_u).max())
    for i, (c, weight) in enumerate(zip(layer.connections, layer.weights, strict=True)):
        source = layer.sources[i].neuron
        payload = LIKELY_COUNT if source is not None and source.message in ("multi", "graded") else 1.0
        if evidence is not None:
            payload = max(1.0, float(np.abs(evidence.arriving[i]).max(initial=0)))
        excited += payload * _largest_sum(c, np.maximum(weight, 0), layer.node.n_neurons)
        inhibited += payload * _largest_sum(c, np.maximum(-weight, 0), layer.node.n_neurons)
    if evidence is not None and evidence.injected is not None:
        currents = MEMBRANE_MARGIN * layer.register_currents(evidence.injected)
        excited, inhibited = excited + max(0.0, currents.max()), inhibited + max(0.0, -currents.min())
    return max(excited, inhibited) / max(1 - float(layer.dynamics.keep_u.max()), 1 / LONGEST_MEMORY)


def _largest_sum(connection: Direct, weight: np.ndarray, n_target: int) -> float:
    """Return the largest sum of the weights into one neuron (padded taps of a convolution included)."""
    if isinstance(connection, Sparse):
        return float(np.bincount(connection.post, weight, n_target).max(initial=0))
    return float(weight.sum(tuple(range(1, weight.ndim))).max(initial=0))


def _is_narrow(layer: Layer) -> bool:
    return layer.bits is not None and layer.bits <= NARROW


def _narrow_clips(layer: Layer) -> tuple[float, ...]:
    """Return further weight ranges, over the largest weight, for narrow weights."""
    n = sum(np.count_nonzero(w) for w in layer.weights)
    if not n or not _is_narrow(layer):
        return ()
    rms = np.sqrt(sum(float((w**2).sum()) for w in layer.weights) / n) / layer.largest_weight
    return tuple(float(rms * x) for x in NARROW_CLIPS if rms * x < 1)


def _threshold_factors(layer: Layer, chip: Chip, scale: float) -> list[float]:
    """Return threshold factors to try at a scale, for narrow weights and for the few decays by shift."""
    if not (_is_narrow(layer) or chip.fixed_point.shifts) or not layer.neuron.fires:
        return []
    largest = scale * float(np.abs(np.asarray(layer.neuron.threshold)).max())
    return [factor for factor in NARROW_THRESHOLDS if factor * largest <= grids.largest_threshold(chip)]


def _list_candidates(layer: Layer, chip: Chip, top: float, clips: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return scales to try, each with its weight range: every clip at its best exponent, and a power of two."""
    largest = layer.largest_weight
    if largest == 0:
        return [(top if top < inf else float(1 << chip.state.shift_bits), 1.0)]
    widest = max(layer.grids, key=lambda grid: (grid.bits, -grid.finest if chip.weights.one_exponent else 0))
    full = widest.largest * 2.0**chip.state.shift_bits / largest
    exponents = widest.finest, widest.coarsest

    def at(clip: float) -> float:
        fitting = floor(log2(top * clip / full) + grids.NOISE) if top < inf else exponents[1]
        return min(full / clip * 2.0 ** max(min(fitting, exponents[1]), exponents[0]), top)

    return [*((at(clip), clip) for clip in clips), (2.0 ** floor(log2(at(1.0)) + grids.NOISE), 1.0)]


def _try_scale(layer: Layer, chip: Chip, scale: float, clip: float, evidence: Evidence, threshold_factor: float = 1.0):
    """Return the layer's distance, the layer, and its spikes (None for a readout) at one scale."""
    scaled = scale_layer(layer, chip, scale, clip, threshold_factor)
    x = {f"in{i}": spikes for i, spikes in enumerate(evidence.arriving)}
    if evidence.injected is not None:
        x[REGISTERS] = encode(register_encoding(layer, chip, scale), evidence.injected)[0]
    steps = None if x else evidence.wanted.shape[1]
    if not layer.neuron.fires:
        v = trace_layers(scaled.layer_network(layer), x or None, steps, keep_states=False)[1][layer.node.name]["v"]
        return (0.0, float(np.square(v / scale - evidence.wanted).sum())), scaled, None
    spikes = record_activity(scaled.layer_network(layer), x or None, steps)[1][layer.node.name]
    spikes = np.broadcast_to(spikes, evidence.wanted.shape)
    matched = inf if _is_narrow(layer) else WELL_MATCHED
    return how_far(spikes, evidence.wanted, matched), scaled, spikes
