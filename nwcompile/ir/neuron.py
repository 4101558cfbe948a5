"""NeuronSpec: an explicit description of how a neuron updates, float or fixed-point (DESIGN 4)."""

from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from nwcompile.errors import ModelError, shown, unknown_choice

ERROR_CODE = "NW3003"
RESETS = ("zero", "value", "subtract", "none")
RESET_TIMINGS = ("now", "next", "both")
MESSAGES = ("binary", "multi", "bipolar")
SPIKES = (*MESSAGES, "gated")
MEMBRANES = ("linear", "euler")
CURRENT_ORDERS = ("decay_then_add", "add_then_decay", "add_use_decay")
CLAMPS = ("maximum", "shift", "reset")
OVERFLOWS = ("wrap", "saturate", "modulo", "clip")
DECAYS = ("fraction", "shift")
LARGEST_WHOLE = 1 << 40  # Limit of fixed-point fields, beyond any state of a chip.
LARGEST_COUNT = (1 << 23) - 1  # Limit of spikes of a neuron in a step, beyond what any message carries.
LARGEST_REFRACTORY = (1 << 30) - 1  # Steps; twice as many still fit 32 bits.


def to_plain(value):
    """Convert tensors, lists and tuples to NumPy arrays, and NumPy scalars and 0-d arrays to Python scalars.

    Arrays get the byte order of the machine, so that equal numbers give equal programs. Other values, and lists that
    make no array, are returned unchanged; `verify` refuses them.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    elif isinstance(value, list | tuple):
        try:
            value = np.asarray(value)
        except ValueError:
            return value
    if isinstance(value, np.ndarray):
        value = value.astype(value.dtype.newbyteorder("="), copy=False)
    return value.item() if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0 else value


def to_plain_numbers(value):
    """Convert like `to_plain`; integers beyond 64 bits become floats."""
    value = to_plain(value)
    is_long = type(value) is int and not -(1 << 63) <= value < 1 << 63
    if not is_long and not (isinstance(value, np.ndarray) and value.dtype.kind == "O"):
        return value
    try:
        return to_plain(np.asarray(value, np.float64))
    except (TypeError, ValueError, OverflowError):
        return value


def _find_furthest(array: np.ndarray) -> float:
    """Return the number of largest magnitude."""
    return array.flat[np.abs(array).argmax()]


def is_in_float32(value) -> bool:
    """Whether numbers are finite as float32, the type of float networks."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.asarray(value).astype(np.float32, copy=False)).all())


@dataclass(frozen=True)
class FixedPoint:
    """Number format of a fixed-point layer: widths in bits, shift of the synaptic sum, overflow of u, and decay.

    v saturates, except that with `modulo` u and v both wrap as two's complement numbers, and with `clip` both are
    clipped to the two's complement range, which includes -2**(state_bits-1).

    With `decay="fraction"` a state loses k/2**decay_bits of its value in a step, rounded so that it loses no more. With
    `decay="shift"` it loses x >> k, at least 1. Then u decays after the synaptic sum is added to it, and every addition
    is clipped (SynSense Xylo).
    """

    state_bits: int = 24
    decay_bits: int = 12
    shift_bits: int = 6
    overflow: str = "wrap"
    decay: str = "fraction"

    WIDTHS: ClassVar[dict[str, tuple[int, int]]] = {"state_bits": (2, 32), "decay_bits": (1, 16), "shift_bits": (0, 16)}

    def wraps(self, state: str) -> bool:
        """Whether state `u` or `v` changes sign on overflow instead of saturating."""
        return self.overflow == "modulo" or (self.overflow == "wrap" and state == "u")

    @property
    def shifts(self) -> bool:
        """Whether decays are shifts."""
        return self.decay == "shift"

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest state."""
        high = (1 << (self.state_bits - 1)) - 1
        return -high - (self.overflow in ("modulo", "clip")), high

    @property
    def fastest(self) -> int:
        """Decay value that leaves nothing of a state."""
        return 0 if self.shifts else 1 << self.decay_bits

    @property
    def decay_range(self) -> tuple[int, int]:
        """Smallest and largest decay value."""
        return 0, (1 << self.decay_bits) - self.shifts

    def lost(self, decay) -> np.ndarray:
        """Fraction 0..1 of a large state that a decay removes in a step."""
        decay = np.asarray(decay, np.float64)
        return 2.0**-decay if self.shifts else decay / (1 << self.decay_bits)

    def to_dict(self) -> dict:
        """Return plain values; the default decay `fraction` is left out, as in older files."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "decay" or self.shifts}

    def __repr__(self) -> str:
        return f"FixedPoint({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"

    def verify(self, layer: str) -> None:
        """Raise ModelError, naming the layer, unless the widths are integers that the kernels support."""
        for name, value, choices in (("overflow", self.overflow, OVERFLOWS), ("decay", self.decay, DECAYS)):
            if not isinstance(value, str) or value not in choices:
                raise ModelError(f"layer {layer!r}: {unknown_choice(name, value, choices)}")
        if self.shifts and self.overflow != "clip":
            raise ModelError(f"layer {layer!r}: decay='shift' needs overflow='clip', not {self.overflow!r}")
        for name, (low, high) in self.WIDTHS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ModelError(f"layer {layer!r}: {name}={shown(value)} must be a whole number {low}..{high}")


def align_to_shape(value, shape: tuple[int, ...]):
    """Reshape an array [C] or [n] so that it broadcasts to a layer of `shape`; return other values unchanged."""
    if np.ndim(value) != 1 or len(shape) < 2:
        return value
    if len(value) == shape[0]:
        return np.reshape(value, (-1, *[1] * (len(shape) - 1)))
    return np.reshape(value, shape) if len(value) == prod(shape) else value


@dataclass(frozen=True, eq=False)
class NeuronSpec:
    """Update rule of a layer's neurons. Every number is a scalar or an array for the layer's shape.

    On a layer [C, ...] of several axes, an array [C] has one number per channel, like a connection's bias, even if
    another axis has the same length. A flat array of all neurons has one number per neuron. Other arrays broadcast.

    Order in a step: synaptic input x (connection biases included; recurrent spikes are those of t-1) ->
    current -> membrane -> fire -> reset -> `v_min` clamp. While a neuron is refractory
    (`t - t_spike < refractory`) its v is not updated and it does not fire; its current is still updated.

    Float (`fixed is None`), float32:

    - current, if `alpha` is given: `decay_then_add` i = alpha*i + w_in*x; `add_then_decay` i = alpha*(i + w_in*x);
      `add_use_decay` i = i + w_in*x acts on v, then i = alpha*i. Without `alpha`, i = x.
    - membrane `linear`: v = beta*v + gain*i + leak + bias; `euler`: v = v + k*(v_leak - v + r*i) + bias.

    Fixed (`fixed` is set), integers, by the rules of `nwcompile.ir.arithmetic`:

    - u = wrap(decay(u, decay_u) + ((sum weff*s + bias_u) << shift_bits)); v = saturate(decay(v, decay_v) + u + bias).
    - If decays are shifts: u = clip(u + ((sum weff*s + bias_u) << shift_bits)); u -= lost(u, decay_u);
      v = clip(v + clip(clip(u - lost(v, decay_v)) + bias)).

    Then, in both:

    - Fire: `v > threshold` (`strict`) or `v >= threshold`; `spikes` binary, multi (at most `max_spikes` in a step,
      None: any number), bipolar or gated; a layer with `fires=False` is a readout and never spikes. `gated` is the
      calcium-gated bipolar neuron (Gao et al. 2023, doi:10.3389/fnins.2023.1141701): +1 as binary; -1 if v < 0 and the
      net count of spikes since the sample began is above 0. It needs reset `subtract`, timing `now`, and no refractory
      steps.
    - Reset, n = spikes fired: `zero` v = 0; `value` v = reset_value; `subtract` v -= n*threshold; `none`.
      `reset_timing`: `now`, in the step of the spike; `next`, one step later, right after the leak;
      `both` (subtract only): at the leak with the count before the update, then by the difference after it.
    - Clamp: `maximum` v = max(v, v_min); `shift` v = max(v - v_min, 0) + v_min, which rounds differently in
      float32 (sinabs); `reset` is a negative threshold: if v < v_min <= 0 and no spike is fired, v is reset as by a
      spike of opposite sign: `zero` v = 0, `value` v = -reset_value, `subtract` v -= v_min.
    """

    threshold: Any = 1.0
    strict: bool = True
    spikes: str = "binary"
    fires: bool = True
    reset: str = "zero"
    reset_value: Any = 0.0
    reset_timing: str = "now"
    refractory: Any = 0
    v_min: Any = None
    clamp: str = "maximum"
    bias: Any = 0.0
    membrane: str = "linear"
    beta: Any = 1.0
    gain: Any = 1.0
    leak: Any = 0.0
    k: Any = 0.0
    v_leak: Any = 0.0
    r: Any = 1.0
    alpha: Any = None
    w_in: Any = 1.0
    current_order: str = "decay_then_add"
    fixed: FixedPoint | None = None
    decay_u: Any = field(default=None)
    decay_v: Any = field(default=0)
    bias_u: Any = field(default=0)
    max_spikes: int | None = None

    NUMBERS = ("threshold", "reset_value", "refractory", "v_min", "bias", "beta", "gain", "leak", "k", "v_leak", "r",
               "alpha", "w_in", "decay_u", "decay_v", "bias_u")  # fmt: skip
    MAY_BE_NONE = ("v_min", "alpha", "decay_u")
    FIXED_NUMBERS = ("threshold", "reset_value", "refractory", "v_min", "bias", "decay_u", "decay_v", "bias_u")

    def __post_init__(self):
        for name in (*self.NUMBERS, "strict", "fires"):
            object.__setattr__(self, name, to_plain_numbers(getattr(self, name)))
        fixed = self.fixed
        is_usable = isinstance(fixed, FixedPoint) and isinstance(fixed.decay, str) and type(fixed.decay_bits) is int
        if is_usable and self.decay_u is None and fixed.decay_bits in range(32):
            object.__setattr__(self, "decay_u", fixed.fastest)

    def replace(self, **changes) -> "NeuronSpec":
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def is_fixed(self) -> bool:
        """Whether the neurons compute with integers."""
        return self.fixed is not None

    @property
    def number_format(self) -> FixedPoint:
        """Number format `fixed` of fixed-point neurons."""
        assert self.fixed is not None, "ask is_fixed first"
        return self.fixed

    @property
    def state_names(self) -> tuple[str, ...]:
        """Recorded states: `u`, `v` of a fixed-point layer; `v`, and `i` if there is a current, of a float layer."""
        if self.is_fixed:
            return ("u", "v")
        return ("v",) if self.alpha is None else ("i", "v")

    @property
    def readout(self) -> str:
        """Name of the state that is read if nothing is sent."""
        return "v"

    @property
    def spike_dtype(self) -> type:
        """Type of recorded spikes: int8; if several may fire in a step int32 (fixed-point) or int64 (float)."""
        if self.spikes != "multi":
            return np.int8
        return np.int32 if self.is_fixed else np.int64

    @property
    def message(self) -> str:
        """Kind of spikes that a message must carry, one of MESSAGES."""
        return "bipolar" if self.spikes == "gated" else self.spikes

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return field `name` broadcast to `shape`: int64 for fixed-point and for `refractory`, else float32."""
        dtype = np.int64 if self.fixed is not None or name == "refractory" else np.float32
        value = np.asarray(align_to_shape(getattr(self, name), shape), dtype)
        return np.ascontiguousarray(np.broadcast_to(value, shape))

    def align_arrays(self, shape: tuple[int, ...]) -> "NeuronSpec":
        """Return the same neurons with every array reshaped to broadcast to a layer of `shape`."""
        changes = {name: value for name in self.NUMBERS if isinstance(value := getattr(self, name), np.ndarray)}
        aligned_to = {name: align_to_shape(value, shape) for name, value in changes.items()}
        return self.replace(**aligned_to) if any(aligned_to[n] is not changes[n] for n in changes) else self

    def verify(self, layer: str, shape: tuple[int, ...]) -> None:
        """Raise ModelError, naming the layer and field, unless every field is usable for a layer of `shape`."""
        for name, value, choices in (
            ("reset", self.reset, RESETS),
            ("reset_timing", self.reset_timing, RESET_TIMINGS),
            ("spikes", self.spikes, SPIKES),
            ("membrane", self.membrane, MEMBRANES),
            ("current_order", self.current_order, CURRENT_ORDERS),
            ("clamp", self.clamp, CLAMPS),
        ):
            if not isinstance(value, str) or value not in choices:
                raise ModelError(f"layer {layer!r}: {unknown_choice(name, value, choices)}")
        for name in ("strict", "fires"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ModelError(f"layer {layer!r}: {name}={getattr(self, name)!r} must be True or False")
        if self.fixed is not None:
            if not isinstance(self.fixed, FixedPoint):
                raise ModelError(f"layer {layer!r}: fixed={self.fixed!r} must be an nw.FixedPoint, or None for float")
            self.fixed.verify(layer)
        for name in self.NUMBERS:
            self._verify_number(layer, name, shape)
        self._verify_ranges(layer)

    def _verify_number(self, layer: str, name: str, shape: tuple[int, ...]) -> None:
        value = getattr(self, name)
        if value is None and name in self.MAY_BE_NONE:
            return
        try:
            if np.asarray(value).dtype.kind in "US":  # NumPy reads numbers from texts
                raise TypeError
            array = np.asarray(value, np.float64)
            np.broadcast_to(align_to_shape(array, shape), shape)
        except (TypeError, ValueError, OverflowError):
            if isinstance(value, list | tuple) or np.ndim(value) == 0 or np.asarray(value).dtype.kind in "US":
                raise ModelError(f"layer {layer!r}: {name}={shown(value)} must be a number") from None
            raise ModelError(
                f"layer {layer!r}: {name} of shape {np.shape(value)} does not broadcast to the layer's shape {shape}"
            ) from None
        if not np.isfinite(array).all():
            raise ModelError(f"layer {layer!r}: {name} has NaN or infinite values; give finite numbers")
        if not is_in_float32(array):
            largest = float(np.finfo(np.float32).max)
            raise ModelError(
                f"layer {layer!r}: {name} {_find_furthest(array):g} is beyond float32, whose largest number is "
                f"{largest:g}; choose smaller units"
            )
        whole = name == "refractory" or (self.fixed is not None and name in self.FIXED_NUMBERS)
        if whole and (array != np.trunc(array)).any():
            raise ModelError(f"layer {layer!r}: {name} of a fixed-point layer must be whole numbers")
        largest = LARGEST_REFRACTORY if name == "refractory" else LARGEST_WHOLE
        if whole and np.abs(array).max() > largest:
            raise ModelError(
                f"layer {layer!r}: {name} {_find_furthest(array):g} is beyond the largest supported, {largest}"
            )

    def _verify_ranges(self, layer: str) -> None:
        if np.min(self.refractory) < 0:
            raise ModelError(f"layer {layer!r}: refractory {np.min(self.refractory)} is negative; give steps >= 0")
        if self.spikes != "binary" and np.min(self.threshold) <= 0:
            raise ModelError(f"layer {layer!r}: spikes={self.spikes!r} needs a threshold above 0")
        how = self.reset, self.reset_timing, int(np.max(self.refractory))
        if self.spikes == "gated" and how != ("subtract", "now", 0):
            raise ModelError(
                f"layer {layer!r}: spikes='gated' needs reset='subtract', reset_timing='now' and refractory=0, "
                f"not {how[0]!r}, {how[1]!r} and {how[2]}"
            )
        if self.reset_timing == "both" and self.reset != "subtract":
            raise ModelError(f"layer {layer!r}: reset_timing='both' needs reset='subtract', not {self.reset!r}")
        if self.clamp == "reset" and self.v_min is not None:
            self._verify_negative_threshold(layer)
        cap = self.max_spikes
        is_count = type(cap) is int and 1 <= cap <= LARGEST_COUNT
        if cap is not None and not (is_count and self.spikes == "multi"):
            raise ModelError(
                f"layer {layer!r}: max_spikes={shown(cap)} must be a whole number 1..{LARGEST_COUNT}, and "
                f"goes with spikes='multi', not {self.spikes!r}"
            )
        if self.fixed is None:
            return
        bottom, top = self.fixed.decay_range
        for name in ("decay_u", "decay_v"):
            low, high = np.min(getattr(self, name)), np.max(getattr(self, name))
            if low < bottom or high > top:
                used = f"{low}" if low == high else f"{low}..{high}"
                raise ModelError(f"layer {layer!r}: {name} {used} is outside {bottom}..{top}")

    def _verify_negative_threshold(self, layer: str) -> None:
        if np.max(self.v_min) > 0:
            raise ModelError(f"layer {layer!r}: clamp='reset' needs v_min <= 0, not {np.max(self.v_min)}")
        how = self.reset, self.reset_timing, self.spikes
        if self.reset == "none" or how[1:] != ("now", "binary"):
            raise ModelError(
                f"layer {layer!r}: clamp='reset' needs a reset, reset_timing='now' and spikes='binary', not "
                f"{how[0]!r}, {how[1]!r} and {how[2]!r}"
            )

    def canonical_fields(self) -> list:
        """Field names with plain values or arrays in a fixed order, for hashing and saving.

        `max_spikes` is left out if it is None, so that older files keep their hashes.
        """
        values = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return [(name, value) for name, value in values if name != "max_spikes" or value is not None]
