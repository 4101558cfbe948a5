"""One step of a layer's neurons in NumPy: the definition of NeuronSpec (DESIGN 4.1 float, 4.2 fixed)."""

from dataclasses import dataclass

import numpy as np

from nwcompile.ir.arithmetic import clip, decay, modulo, negate, saturate, shift_lost, spike_count, wrap
from nwcompile.ir.neuron import NeuronSpec

LONG_AGO = 1 << 30  # Steps since the last spike of a neuron that never fired; longer than any refractory time.
LIMIT_U = {"wrap": wrap, "saturate": saturate, "modulo": modulo, "clip": clip}  # how u overflows
LIMIT_V = {"wrap": saturate, "saturate": saturate, "modulo": modulo, "clip": clip}  # how v overflows
NO_CLAMP = -(1 << 62)  # Below every membrane, so this clamp never acts.


@dataclass(eq=False)
class LayerState:
    """State of a layer for B samples: membrane `v`, current (`i` float, `u` fixed), steps since the last spike.

    `net`: spikes fired so far minus negative ones; used by gated neurons.
    """

    spec: NeuronSpec
    v: np.ndarray
    current: np.ndarray
    since_spike: np.ndarray
    net: np.ndarray

    @classmethod
    def from_spec(cls, spec: NeuronSpec, shape: tuple[int, ...]) -> "LayerState":
        """Build the zero state of shape [B, *layer]."""
        dtype = np.float32 if spec.fixed is None else np.int64
        return cls(
            spec=spec,
            v=np.zeros(shape, dtype),
            current=np.zeros(shape, dtype),
            since_spike=np.full(shape, LONG_AGO),
            net=np.zeros(shape, np.int64),
        )

    @property
    def named(self) -> dict[str, np.ndarray]:
        """States by name, those of `NeuronSpec.state_names`."""
        values = {"u": self.current, "i": self.current, "v": self.v}
        return {name: values[name] for name in self.spec.state_names}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on."""
        return {"v": self.v, "current": self.current, "since_spike": self.since_spike, "net": self.net}

    @property
    def is_at_rest(self) -> np.ndarray:
        """Neurons of a fixed layer that need no update without events: no bias, v = 0, no u that outlasts the step."""
        spec = self.spec
        assert spec.fixed is not None, "float neurons are not counted"
        has_bias = (np.asarray(spec.bias) != 0) | (np.asarray(spec.bias_u) != 0)
        keeps_u = (self.current != 0) & (np.asarray(spec.decay_u) != spec.fixed.fastest)
        return (self.v == 0) & ~keeps_u & ~has_bias

    def step(self, x: np.ndarray) -> np.ndarray:
        """Update from the synaptic input `x` [B, *layer]; returns the spikes, int64 of the same shape."""
        spec = self.spec
        self.since_spike = np.minimum(self.since_spike + 1, LONG_AGO)
        frozen = self.since_spike < np.asarray(spec.refractory)
        threshold = _get_array(spec, "threshold")
        none = np.zeros(self.v.shape, np.int64)
        cap = spec.max_spikes
        before = spike_count(self.v, threshold, spec.strict, spec.spikes, cap=cap) if spec.fires else none
        if spec.fixed is None:
            v = self._float_membrane(x, before)
        else:
            v = self._shifted_membrane(x, before) if spec.fixed.shifts else self._fixed_membrane(x, before)
        spikes = spike_count(v, threshold, spec.strict, spec.spikes, self.net, cap) if spec.fires else none
        v = _reset_membrane(spec, v, spikes, before, threshold)
        if spec.v_min is not None:
            v = _clamp_membrane(spec, v, spikes)
        if spec.fixed is not None:
            v = LIMIT_V[spec.fixed.overflow](v, spec.fixed.state_bits)
        self.v = np.where(frozen, self.v, v).astype(self.v.dtype, copy=False)
        spikes = np.where(frozen, 0, spikes)
        self.since_spike = np.where(spikes != 0, 0, self.since_spike)
        self.net = self.net + spikes if spec.spikes == "gated" else self.net
        return spikes

    def _fixed_membrane(self, x, before):
        spec, fixed = self.spec, self.spec.fixed
        drive = (x + _get_array(spec, "bias_u")) << fixed.shift_bits
        u = decay(self.current, _get_array(spec, "decay_u"), fixed.decay_bits) + drive
        self.current = LIMIT_U[fixed.overflow](u, fixed.state_bits)
        leaked = _late_reset(spec, decay(self.v, _get_array(spec, "decay_v"), fixed.decay_bits), before)
        v = leaked + self.current + _get_array(spec, "bias")
        return LIMIT_V[fixed.overflow](_late_subtract(spec, v, before), fixed.state_bits)

    def _shifted_membrane(self, x, before):
        """Update the membrane if decays are shifts: every addition saturates, in this order."""
        spec, fixed = self.spec, self.spec.fixed
        u = clip(self.current + ((x + _get_array(spec, "bias_u")) << fixed.shift_bits), fixed.state_bits)
        self.current = u - shift_lost(u, _get_array(spec, "decay_u"))
        change = negate(shift_lost(self.v, _get_array(spec, "decay_v")), fixed.state_bits)
        kept, change = _late_reset(spec, self.v, before), _late_cleared(spec, change, before)
        change = clip(change + self.current, fixed.state_bits)
        v = clip(kept + clip(change + _get_array(spec, "bias"), fixed.state_bits), fixed.state_bits)
        return clip(_late_subtract(spec, v, before), fixed.state_bits)

    def _float_membrane(self, x, before):
        spec = self.spec
        current = x.astype(np.float32, copy=False)
        if spec.alpha is not None:
            alpha = _get_array(spec, "alpha")
            drive = _get_array(spec, "w_in") * current
            if spec.current_order == "decay_then_add":
                current = self.current = alpha * self.current + drive
            elif spec.current_order == "add_then_decay":
                current = self.current = (self.current + drive) * alpha
            else:
                current = self.current + drive
                self.current = alpha * current
        if spec.membrane == "linear":
            v = _late_reset(spec, _get_array(spec, "beta") * self.v, before) + _get_array(spec, "gain") * current
            v = v + _get_array(spec, "leak")
        else:
            v = _late_reset(spec, self.v, before)
            v = v + _get_array(spec, "k") * ((_get_array(spec, "v_leak") - v) + _get_array(spec, "r") * current)
        return _late_subtract(spec, v + _get_array(spec, "bias"), before)


def _get_array(spec: NeuronSpec, name: str) -> np.ndarray:
    return np.asarray(getattr(spec, name), np.int64 if spec.fixed is not None else np.float32)


def _clamp_membrane(spec: NeuronSpec, v, spikes):
    """Clamp to v_min. `shift` also rounds float membranes above v_min; `reset` acts like the reset of a spike."""
    v_min = _get_array(spec, "v_min")
    if spec.clamp == "reset":
        after = {"zero": 0, "value": -_get_array(spec, "reset_value"), "subtract": v - v_min}[spec.reset]
        return np.where((spikes == 0) & (v < v_min), after, v)
    return np.maximum(v, v_min) if spec.clamp == "maximum" else np.maximum(v - v_min, 0) + v_min


def _late_reset(spec: NeuronSpec, leaked, before):
    """Reset to a value one step late, after the leak (`reset_timing="next"`)."""
    if spec.reset_timing != "next" or spec.reset not in ("zero", "value"):
        return leaked
    return np.where(before != 0, 0 if spec.reset == "zero" else _get_array(spec, "reset_value"), leaked)


def _late_cleared(spec: NeuronSpec, change, before):
    """Return the change by the leak, 0 where the membrane is reset to a value one step late."""
    if spec.reset_timing != "next" or spec.reset not in ("zero", "value"):
        return change
    return np.where(before != 0, 0, change)


def _late_subtract(spec: NeuronSpec, v, before):
    """Subtract the threshold for spikes from before the update (`reset_timing` `next` and `both`)."""
    if spec.reset_timing == "now" or spec.reset != "subtract":
        return v
    return v - before.astype(v.dtype) * _get_array(spec, "threshold")


def _reset_membrane(spec: NeuronSpec, v, spikes, before, threshold):
    """Reset in the step of the spike (`now`); for `both`, subtract only what the late reset did not."""
    if spec.reset_timing == "next" or spec.reset == "none":
        return v
    if spec.reset == "subtract":
        count = spikes - before if spec.reset_timing == "both" else spikes
        return v - count.astype(v.dtype) * threshold
    return np.where(spikes != 0, 0 if spec.reset == "zero" else _get_array(spec, "reset_value"), v)
