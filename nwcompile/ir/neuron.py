"""NeuronSpec: one explicit description of how a neuron updates, float or fixed-point (DESIGN 4)."""

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
LARGEST_WHOLE = 1 << 40  # No fixed-point field is larger: this is beyond any state a chip holds.
LARGEST_COUNT = (1 << 23) - 1  # Of spikes that a neuron fires at once, beyond what any message carries.
LARGEST_REFRACTORY = (1 << 30) - 1  # Twice as many steps still fit 32 bits.


def to_plain(value):
    """Tensors, lists and tuples as NumPy arrays, NumPy scalars and 0-d arrays as Python's, the rest as it is.

    Arrays are in the byte order of the machine, so that equal numbers give equal programs.
    What makes no array is left for `verify` to refuse.
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
    """As `plain`; whole numbers beyond 64 bits become floats."""
    value = to_plain(value)
    is_long = type(value) is int and not -(1 << 63) <= value < 1 << 63
    if not is_long and not (isinstance(value, np.ndarray) and value.dtype.kind == "O"):
        return value
    try:
        return to_plain(np.asarray(value, np.float64))
    except (TypeError, ValueError, OverflowError):
        return value


def _find_furthest(array: np.ndarray) -> float:
    """The number that is furthest from 0."""
    return array.flat[np.abs(array).argmax()]


def is_in_float32(value) -> bool:
    """Whether numbers are finite as float32, which is what float networks compute with."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.asarray(value).astype(np.float32)).all())


@dataclass(frozen=True)
class FixedPoint:
    """Number format of a fixed-point layer: widths in bits, the shift of a synaptic sum, what u does on overflow.

    v saturates, whatever u does, but with `modulo`: then u and v are two's complement numbers that go round; and with
    `clip`, where both stay within the range of such numbers, -2**(state_bits-1) among them.

    `decay`: a `fraction` k/2**decay_bits of a state is lost in a step, rounded so that no more is lost than that, or by
    `shift` x >> k is, at least 1; then u decays after the synaptic sum is added to it, and every addition is clipped
    (SynSense Xylo).
    """

    state_bits: int = 24
    decay_bits: int = 12
    shift_bits: int = 6
    overflow: str = "wrap"
    decay: str = "fraction"

    WIDTHS: ClassVar[dict[str, tuple[int, int]]] = {"state_bits": (2, 32), "decay_bits": (1, 16), "shift_bits": (0, 16)}

    def wraps(self, state: str) -> bool:
        """Whether `u` or `v` takes the other sign when it is too large, instead of staying at its largest."""
        return self.overflow == "modulo" or (self.overflow == "wrap" and state == "u")

    @property
    def shifts(self) -> bool:
        """Whether decays are shifts."""
        return self.decay == "shift"

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest state."""
        high = (1 << (self.state_bits - 1)) - 1
        return -high - (self.overflow in ("modulo", "clip")), high

    @property
    def fastest(self) -> int:
        """The decay that leaves nothing of a state."""
        return 0 if self.shifts else 1 << self.decay_bits

    @property
    def decay_range(self) -> tuple[int, int]:
        """The least and the largest decay."""
        return 0, (1 << self.decay_bits) - self.shifts

    def lost(self, decay) -> np.ndarray:
        """The share of a large state that a decay takes in a step, 0..1."""
        decay = np.asarray(decay, np.float64)
        return 2.0**-decay if self.shifts else decay / (1 << self.decay_bits)

    def to_dict(self) -> dict:
        """Plain values; a decay by fractions, which all chips had at first, is not named."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "decay" or self.shifts}

    def __repr__(self) -> str:
        return f"FixedPoint({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"

    def verify(self, layer: str) -> None:
        """Raise ModelError, naming the layer, unless the widths are whole numbers that the kernels can hold."""
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
    """An array per channel [C] or of all neurons [n] in the axes of a layer of `shape`; any other value as it is."""
    if np.ndim(value) != 1 or len(shape) < 2:
        return value
    if len(value) == shape[0]:
        return np.reshape(value, (-1, *[1] * (len(shape) - 1)))
    return np.reshape(value, shape) if len(value) == prod(shape) else value


@dataclass(frozen=True, eq=False)
class NeuronSpec:
    """How one layer's neurons update in a step. Every number is a scalar or an array for the layer's shape.

    On a layer [C, ...] of several axes, an array [C] means one number per channel (also where another axis is as long),
    as in a connection's bias, and a flat one of all neurons one per neuron; any other array broadcasts.

    Order in a step: synaptic input x (connection biases included; recurrent spikes are those of t-1) ->
    current -> membrane -> fire -> reset -> `v_min` clamp. While a neuron is refractory
    (`t - t_spike < refractory`) its v is not updated and it does not fire; its current goes on.

    Float (`fixed is None`), float32:

    - current, if `alpha` is given: `decay_then_add` i = alpha*i + w_in*x; `add_then_decay` i = alpha*(i + w_in*x);
      `add_use_decay` i = i + w_in*x is used, then i = alpha*i. Without `alpha`, i = x.
    - membrane `linear`: v = beta*v + gain*i + leak + bias; `euler`: v = v + k*(v_leak - v + r*i) + bias.

    Fixed (`fixed` set), integers, with the rules of `nwcompile.ir.arithmetic`:

    - u = wrap(decay(u, decay_u) + ((sum weff*s + bias_u) << shift_bits)); v = saturate(decay(v, decay_v) + u + bias).
    - Where decays are shifts: u = clip(u + ((sum weff*s + bias_u) << shift_bits)); u -= lost(u, decay_u);
      v = clip(v + clip(clip(u - lost(v, decay_v)) + bias)).

    What both do then:

    - Fire: `v > threshold` (`strict`) or `v >= threshold`; `spikes` binary, multi (at most `max_spikes` in a step,
      None: any number), bipolar or gated; a layer with `fires=False` is a readout and never spikes. `gated` is the
      calcium-gated bipolar neuron (Gao et al. 2023, doi:10.3389/fnins.2023.1141701): +1 as binary, and -1 where v < 0
      takes back a spike that was sent before, so that the net count of spikes since the sample began never falls below
      0. It subtracts, now, and is never refractory.
    - Reset, n = spikes fired: `zero` v = 0; `value` v = reset_value; `subtract` v -= n*threshold; `none`.
      `reset_timing`: `now`, in the step of the spike; `next`, one step late, right after the leak;
      `both` (subtract only): at the leak with the count before the update, then by the difference after it.
    - Clamp: `maximum` v = max(v, v_min); `shift` v = max(v - v_min, 0) + v_min, which float32 rounds otherwise
      (sinabs); `reset` is a negative threshold: where v < v_min <= 0 and no spike is fired, v is reset as by a spike,
      with the other sign: `zero` v = 0, `value` v = -reset_value, `subtract` v -= v_min.
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
        """Whether the neurons compute in whole numbers."""
        return self.fixed is not None

    @property
    def number_format(self) -> FixedPoint:
        """`fixed` of neurons that compute in whole numbers."""
        assert self.fixed is not None, "ask is_fixed first"
        return self.fixed

    @property
    def state_names(self) -> tuple[str, ...]:
        """What is recorded of a layer: `u`, `v` of a fixed-point one; `i`, where it has one, and `v` of a float one."""
        if self.is_fixed:
            return ("u", "v")
        return ("v",) if self.alpha is None else ("i", "v")

    @property
    def readout(self) -> str:
        """The state that is read where nothing is sent."""
        return "v"

    @property
    def spike_dtype(self) -> type:
        """What a step's spikes are recorded as: int8; where several may be fired at once int32, or int64 of floats."""
        if self.spikes != "multi":
            return np.int8
        return np.int32 if self.is_fixed else np.int64

    @property
    def message(self) -> str:
        """What a message must be able to tell of its spikes, one of MESSAGES."""
        return "bipolar" if self.spikes == "gated" else self.spikes

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Field `name` broadcast to `shape`: int64 for fixed-point and for `refractory`, else float32."""
        dtype = np.int64 if self.fixed is not None or name == "refractory" else np.float32
        value = np.asarray(align_to_shape(getattr(self, name), shape), dtype)
        return np.ascontiguousarray(np.broadcast_to(value, shape))

    def align_arrays(self, shape: tuple[int, ...]) -> "NeuronSpec":
        """The same neurons with every array in the axes of a layer of `shape`, so that it broadcasts."""
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
        if self.fixed is not None:
            self._verify_decays(layer, *self.fixed.decay_range)

    def _verify_decays(self, layer: str, bottom: int, top: int) -> None:
        for name in ("decay_u", "decay_v"):
            low, high = np.min(getattr(self, name)), np.max(getattr(self, name))
            if low < bottom or high > top:
                raise ModelError(f"layer {layer!r}: {name} {low}..{high} is outside {bottom}..{top}")

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
        """Field names with plain values or arrays, in a fixed order: what hashing and saving use.

        `max_spikes` is named only where there is one: it came later, and programs without it stay what they were.
        """
        values = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return [(name, value) for name, value in values if name != "max_spikes" or value is not None]
