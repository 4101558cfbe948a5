"""State range: proven bounds of u and v of a fixed-point layer from its weights, and their largest values in samples.

The decays of DESIGN 4.2 round towards 0, so |dec(x, k)| <= |x| * (1 - k/2**w). A state that gains at most D per step
therefore stays within D / (k/2**w), whatever the spikes are; without a leak there is no such bound. A decay by shift
leaves at most 1 more, as if the state gained D + 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from nwcompile.ir.arithmetic import decay, shift_lost
from nwcompile.ir.connection import Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.neuron_programs.ranges import LARGEST_INPUT, Range, state_ranges
from nwcompile.passes.prepare.fold import apply_map, linear_map, row_sums
from nwcompile.sim.reference.synaptic_sums import effective_connection

STATES = ("u", "v")
# The largest positive and negative value that a neuron sends.
PAYLOADS = {"binary": (1.0, 0.0), "multi": (inf, 0.0), "bipolar": (1.0, 1.0), "graded": (inf, inf)}
ONE_SPIKE = (1.0, 0.0)  # The largest positive and negative value of an input line that sends spikes.
CHUNK = 1 << 23  # Numbers held at once, 64 MiB of float64.


@dataclass(frozen=True)
class StateRange:
    """Largest magnitudes of u and v of one layer, before u wraps and v saturates, in state units.

    `u_bound`, `v_bound`: proven for spikes with payloads up to those of calibration (at least 1); None without a bound.
    `u_largest`, `v_largest`: in the calibration samples, None without any. `limit`: the largest value of a state.
    `reaches_threshold`: whether the bound lets any neuron of a layer fire.
    """

    u_bound: int | None
    v_bound: int | None
    u_largest: int | None
    v_largest: int | None
    limit: int
    reaches_threshold: bool

    @property
    def overflowing_states(self) -> list[str]:
        """The states that exceeded their register in the calibration samples."""
        return [name for name in STATES if (getattr(self, f"{name}_largest") or 0) > self.limit]

    @property
    def is_safe(self) -> bool:
        """Whether no spikes can overflow the states."""
        return all(bound is not None and bound <= self.limit for bound in (self.u_bound, self.v_bound))


def state_bits(largest: int | None) -> int | None:
    """Return the width of a state that holds magnitudes up to `largest`."""
    return None if largest is None else int(largest).bit_length() + 1


def state_range(network: Network, name: str, sent: dict | None, states: dict | None) -> StateRange:
    """Return the range of layer `name` of a fixed-point network.

    `sent`: spikes `[B, T, *shape]` of every input and layer in the calibration samples; `states`: u and v of this
    layer.
    """
    node = network.node(name)
    spec = node.neuron
    limit = (1 << (spec.fixed.state_bits - 1)) - 1
    (u_up, u_down), (v_up, v_down) = _state_bounds(network, name, sent)
    u_bound, v_bound = _whole_bound(u_up, u_down), _whole_bound(v_up, v_down)
    threshold = spec.array("threshold", node.shape).reshape(-1)
    reaches = not spec.fires or spec.spikes == "bipolar" or bool((v_up >= threshold + spec.strict).any())
    u_largest, v_largest = None, None
    if sent is not None and states is not None:
        u_largest, v_largest = _largest_seen(network, name, sent, states, u_bound is not None and u_bound <= limit)
    return StateRange(
        u_bound=u_bound,
        v_bound=v_bound,
        u_largest=u_largest,
        v_largest=v_largest,
        limit=limit,
        reaches_threshold=reaches,
    )


def program_bounds(network: Network, name: str, sent: dict | None) -> dict[str, int]:
    """Return the largest magnitude of each state's next value in a program layer, before it saturates or wraps.

    The bounds are proven for spikes with payloads up to those of calibration (at least 1), as in `state_range`.
    """
    sums = largest_sums(network, name, _get_payloads(network, sent, ONE_SPIKE))
    rise, fall = (min(float(side.max(initial=0)), LARGEST_INPUT) for side in sums)
    reach = state_ranges(network.node(name).neuron, Range(-int(fall), int(rise), True))
    return {state: int(max(-r.low, r.high)) for state, r in reach.items()}


def lowest_membrane(network: Network, name: str, of_input: tuple[float, float]) -> np.ndarray:
    """Return a proven lower bound of a fixed-point layer's membranes before a clamp, float64[n]; -inf if there is none.

    `of_input`: the largest positive and the largest negative value of an input line.
    """
    return -_state_bounds(network, name, None, of_input)[1][1]


def _state_bounds(network: Network, name: str, sent: dict | None, of_input: tuple[float, float] = ONE_SPIKE) -> tuple:
    """Return the bounds of u, then v, upwards and downwards, float64[n]; u before it wraps, v from the wrapped u."""
    node = network.node(name)
    spec = node.neuron
    bias, unit = spec.array("bias_u", node.shape).reshape(-1).astype(np.float64), 1 << spec.fixed.shift_bits
    rise, fall = largest_sums(network, name, _get_payloads(network, sent, of_input))
    gains = (rise + np.maximum(bias, 0)) * unit, (fall + np.maximum(-bias, 0)) * unit  # exact below 2**53
    u_up, u_down = u = tuple(_bound_leaky(gain, spec, "decay_u", node.shape) for gain in gains)
    u_up, u_down = _either_sign(u, spec, "u")
    if spec.fixed.shifts:  # the membrane gets the rest after the decay
        left = 1 - spec.fixed.lost(spec.array("decay_u", node.shape).reshape(-1))
        u_up, u_down = (multiply_bounds(bound, left) + (bound > 0) for bound in (u_up, u_down))
    bias = spec.array("bias", node.shape).reshape(-1)
    v = _membrane_bounds(u_up + np.maximum(bias, 0), u_down + np.maximum(-bias, 0), spec, node.shape)
    return u, _either_sign(v, spec, "v")


def _either_sign(bounds, spec: NeuronSpec, state: str) -> tuple:
    """Return the bounds of a state upwards and downwards, both equal if it may wrap and so change its sign."""
    if not spec.number_format.wraps(state):
        return tuple(bounds)
    limit = (1 << (spec.number_format.state_bits - 1)) - 1
    either = np.maximum(*bounds)
    return tuple(np.where(either > limit, either, side) for side in bounds)


def largest_sums(
    network: Network, name: str, payload_of: Callable[[str], tuple[float, float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest and smallest synaptic sum of a step, as magnitudes upwards and downwards, float64[sum].

    A layer of n neurons with K inputs has K * n sums, those of the first input first.

    `payload_of(source)`: the largest positive and the largest negative number that an input or layer sends.
    """
    node = network.node(name)
    rise, fall = np.zeros(node.n_sums), np.zeros(node.n_sums)
    for c in map(effective_connection, network.into(name)):
        source = network.node(c.source)
        high, low = payload_of(c.source)
        weight = np.asarray(c.weight, np.int64)
        up, down = (
            np.bincount(c.post, part, node.n_sums)  # exact below 2**53, and without a sorted matrix
            if isinstance(c, Sparse)
            else row_sums(linear_map(c.replace(weight=part), source.shape, node.input_shape))
            for part in (np.maximum(weight, 0), np.maximum(-weight, 0))
        )
        its_bias = c.bias_per_neuron(node.input_shape)
        its_bias = np.zeros(1) if its_bias is None else np.asarray(its_bias, np.float64).reshape(-1)
        rise = rise + multiply_bounds(high, up) + multiply_bounds(low, down) + np.maximum(its_bias, 0)
        fall = fall + multiply_bounds(high, down) + multiply_bounds(low, up) + np.maximum(-its_bias, 0)
    return rise, fall


def _get_payloads(
    network: Network, sent: dict | None, of_input: tuple[float, float]
) -> Callable[[str], tuple[float, float]]:
    """Return the largest positive and negative payload by source; of an input, calibration's or `of_input`."""

    def payload(name: str) -> tuple[float, float]:
        spec = network.node(name).neuron
        if spec is not None:
            return largest_payload(spec)
        if sent is None:
            return of_input
        return max(1.0, sent[name].max(initial=0)), max(0.0, -sent[name].min(initial=0))

    return payload


def largest_payload(spec: NeuronSpec | NeuronProgram | None) -> tuple[float, float]:
    """Return the largest positive and negative number that a neuron, or (None) an input line, sends in a step."""
    cap = getattr(spec, "max_spikes", None)
    high, low = PAYLOADS["graded" if spec is None else spec.message]
    return high if cap is None else min(high, float(cap)), low


def multiply_bounds(a, b) -> np.ndarray:
    """Return the product of two bounds, float64. Infinity means no bound, and 0 times infinity is 0."""
    product = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)))
    return np.multiply(a, b, out=product, where=(a != 0) & (b != 0))


def _bound_leaky(gain: np.ndarray, spec: NeuronSpec, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the bound of a leaky state that gains at most `gain` per step."""
    lost = spec.number_format.lost(spec.array(name, shape).reshape(-1))
    gain = gain + (gain > 0) * spec.number_format.shifts
    endless = np.where(gain > 0, inf, 0.0)
    return np.divide(gain, lost, out=endless, where=(lost > 0) & (gain > 0))


def _membrane_bounds(up: np.ndarray, down: np.ndarray, spec: NeuronSpec, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return the bounds of v upwards and downwards before its reset, from its leak and from a reset to a value.

    A membrane that did not fire is not above its threshold. A late reset acts after the leak, so one by subtraction can
    overshoot 0 by a threshold.
    """
    threshold = spec.array("threshold", shape).reshape(-1)
    value = spec.array("reset_value", shape).reshape(-1) * (spec.reset == "value")
    late = np.abs(threshold) * (spec.reset == "subtract" and (spec.reset_timing != "now" or threshold.min() < 0))
    bounds = [_bound_leaky(gain + late, spec, "decay_v", shape) for gain in (up, down)]
    if spec.fires and spec.reset in ("zero", "value") and spec.spikes == "binary":
        keep = 1 - spec.number_format.lost(spec.array("decay_v", shape).reshape(-1))
        bounds[0] = np.minimum(bounds[0], np.maximum(threshold, 0) * keep + up)
    floor = value
    if spec.v_min is not None:  # clamp="reset" sets v to the reset value with the other sign
        floor = np.maximum(value, -value if spec.clamp == "reset" else spec.array("v_min", shape).reshape(-1))
        value = np.minimum(value, -value) if spec.clamp == "reset" else value
    jumps = np.where(floor > 0, floor + up, 0), np.where(value < 0, down - value, 0)
    return [np.maximum(bound, jump) for bound, jump in zip(bounds, jumps, strict=True)]


def _whole_bound(*bounds: np.ndarray) -> int | None:
    largest = max(float(b.max(initial=0)) for b in bounds)
    return int(largest) if largest < 1 << 53 else None


def _largest_seen(network: Network, name: str, sent: dict, states: dict, is_exact: bool) -> tuple[int, int]:
    """Return the largest |u| and |v| in the samples before they wrap or saturate, v before its reset.

    Recorded v is used if a late reset or a refractory time intervenes, and recorded u if it cannot overflow.
    """
    node, shape = network.node(name), network.node(name).shape
    spec = node.neuron
    k_u, k_v, bias = (spec.array(key, shape) for key in ("decay_u", "decay_v", "bias"))
    is_plain = not spec.fires or (spec.reset_timing == "now" and np.max(spec.refractory) <= 1)
    n_samples, n_steps = states["u"].shape[:2]
    widest = max(node.n_neurons, *(network.node(c.source).n_neurons for c in network.into(name)), 1)
    size, largest = max(1, CHUNK // (n_steps * widest)), [0, 0]
    for start in range(0, n_samples, size):
        part = slice(start, start + size)
        u, v = states["u"][part], states["v"][part]
        u_before, v_before = (np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], 1) for x in (u, v))
        unbounded = [u, _apply_decay(v_before, k_v, spec) + u + bias if is_plain else v]
        if not is_exact:
            before = u_before if spec.fixed.shifts else _apply_decay(u_before, k_u, spec)  # shifts come after the sum
            unbounded[0] = before + _sum_drive(network, name, {s: x[part] for s, x in sent.items()}, n_steps)
        largest = [max(so_far, int(np.abs(x).max(initial=0))) for so_far, x in zip(largest, unbounded, strict=True)]
    return largest[0], largest[1]


def _apply_decay(x: np.ndarray, k: np.ndarray, spec: NeuronSpec) -> np.ndarray:
    """Return the states after a decay."""
    fixed = spec.number_format
    return x - shift_lost(x, k) if fixed.shifts else decay(x, k, fixed.decay_bits)


def _sum_drive(network: Network, name: str, sent: dict, n_steps: int) -> np.ndarray:
    """Return the increments of u in every step, int64[B, T, *shape]."""
    node = network.node(name)
    n_samples = len(next(iter(sent.values())))
    drive = np.zeros((n_samples, n_steps, *node.shape))
    for c in map(effective_connection, network.into(name)):
        source, late = network.node(c.source), max(n_steps - c.aligned_delay, 0)
        x = sent[c.source][:, :late].reshape(n_samples * late, source.n_neurons).astype(np.float64)
        y = apply_map(linear_map(c, source.shape, node.shape), x)
        drive[:, n_steps - late :] += y.reshape(n_samples, late, *node.shape)
        its_bias = c.bias_per_neuron(node.shape)
        drive += 0 if its_bias is None else its_bias
    return (drive.astype(np.int64) + node.neuron.array("bias_u", node.shape)) << node.neuron.fixed.shift_bits
