"""One step of a layer's neurons in NumPy: the definition of NeuronSpec (DESIGN 4.1 float, 4.2 fixed)."""

from dataclasses import dataclass

import numpy as np

from nwcompile.ir.arithmetic import clip, decay, modulo, negate, saturate, shift_lost, spike_count, wrap
from nwcompile.ir.neuron import NeuronSpec

LONG_AGO = 1 << 30  # Steps since the last spike of a neuron that has not fired: beyond any refractory time.
LIMIT_U = {"wrap": wrap, "saturate": saturate, "modulo": modulo, "clip": clip}  # what u does on overflow
LIMIT_V = {"wrap": saturate, "saturate": saturate, "modulo": modulo, "clip": clip}  # what v does then
NO_CLAMP = -(1 << 62)  # No membrane is as low as this, so a clamp here never acts.


@dataclass(eq=False)
class LayerState:
    """State of a layer for B samples: membrane `v`, current (`i` float, `u` fixed), steps since the last spike.

    `net`: spikes fired so far, negative ones taken off; kept by gated neurons.
    """

    spec: NeuronSpec
    v: np.ndarray
    current: np.ndarray
    since_spike: np.ndarray
    net: np.ndarray

    @classmethod
    def cleared(cls, spec: NeuronSpec, shape: tuple[int, ...]) -> "LayerState":
        """Zero state of shape [B, *layer]."""
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
        """All that the next step begins with."""
        return {"v": self.v, "current": self.current, "since_spike": self.since_spike, "net": self.net}

    @property
    def is_at_rest(self) -> np.ndarray:
        """Neurons of a fixed layer with nothing to update but events: no bias, v = 0, no u that outlasts the step."""
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
        threshold = _number(spec, "threshold")
        none = np.zeros(self.v.shape, np.int64)
        cap = spec.max_spikes
        before = spike_count(self.v, threshold, spec.strict, spec.spikes, cap=cap) if spec.fires else none
        if spec.fixed is None:
            v = self._float_membrane(x, before)
        else:
            v = self._shifted_membrane(x, before) if spec.fixed.shifts else self._fixed_membrane(x, before)
        spikes = spike_count(v, threshold, spec.strict, spec.spikes, self.net, cap) if spec.fires else none
        v = _reset(spec, v, spikes, before, threshold)
        if spec.v_min is not None:
            v = _clamped(spec, v, spikes)
        if spec.fixed is not None:
            v = LIMIT_V[spec.fixed.overflow](v, spec.fixed.state_bits)
        self.v = np.where(frozen, self.v, v).astype(self.v.dtype, copy=False)
        spikes = np.where(frozen, 0, spikes)
        self.since_spike = np.where(spikes != 0, 0, self.since_spike)
        self.net = self.net + spikes if spec.spikes == "gated" else self.net
        return spikes

    def _fixed_membrane(self, x, before):
        spec, fixed = self.spec, self.spec.fixed
        drive = (x + _number(spec, "bias_u")) << fixed.shift_bits
        u = decay(self.current, _number(spec, "decay_u"), fixed.decay_bits) + drive
        self.current = LIMIT_U[fixed.overflow](u, fixed.state_bits)
        leaked = _late_reset(spec, decay(self.v, _number(spec, "decay_v"), fixed.decay_bits), before)
        v = leaked + self.current + _number(spec, "bias")
        return LIMIT_V[fixed.overflow](_late_subtract(spec, v, before), fixed.state_bits)

    def _shifted_membrane(self, x, before):
        """Where decays are shifts: every addition saturates, in this order."""
        spec, fixed = self.spec, self.spec.fixed
        u = clip(self.current + ((x + _number(spec, "bias_u")) << fixed.shift_bits), fixed.state_bits)
        self.current = u - shift_lost(u, _number(spec, "decay_u"))
        change = negate(shift_lost(self.v, _number(spec, "decay_v")), fixed.state_bits)
        kept, change = _late_reset(spec, self.v, before), _late_cleared(spec, change, before)
        change = clip(change + self.current, fixed.state_bits)
        v = clip(kept + clip(change + _number(spec, "bias"), fixed.state_bits), fixed.state_bits)
        return clip(_late_subtract(spec, v, before), fixed.state_bits)

    def _float_membrane(self, x, before):
        spec = self.spec
        current = x.astype(np.float32, copy=False)
        if spec.alpha is not None:
            alpha = _number(spec, "alpha")
            drive = _number(spec, "w_in") * current
            if spec.current_order == "decay_then_add":
                current = self.current = alpha * self.current + drive
            elif spec.current_order == "add_then_decay":
                current = self.current = (self.current + drive) * alpha
            else:
                current = self.current + drive
                self.current = alpha * current
        if spec.membrane == "linear":
            v = _late_reset(spec, _number(spec, "beta") * self.v, before) + _number(spec, "gain") * current
            v = v + _number(spec, "leak")
        else:
            v = _late_reset(spec, self.v, before)
            v = v + _number(spec, "k") * ((_number(spec, "v_leak") - v) + _number(spec, "r") * current)
        return _late_subtract(spec, v + _number(spec, "bias"), before)


def _number(spec: NeuronSpec, name: str) -> np.ndarray:
    return np.asarray(getattr(spec, name), np.int64 if spec.fixed is not None else np.float32)


def _clamped(spec: NeuronSpec, v, spikes):
    """Not below v_min; `shift` rounds every float membrane on the way, also those above it; `reset` as by a spike."""
    v_min = _number(spec, "v_min")
    if spec.clamp == "reset":
        after = {"zero": 0, "value": -_number(spec, "reset_value"), "subtract": v - v_min}[spec.reset]
        return np.where((spikes == 0) & (v < v_min), after, v)
    return np.maximum(v, v_min) if spec.clamp == "maximum" else np.maximum(v - v_min, 0) + v_min


def _late_reset(spec: NeuronSpec, leaked, before):
    """Reset to a value one step late, right after the leak (`reset_timing="next"`)."""
    if spec.reset_timing != "next" or spec.reset not in ("zero", "value"):
        return leaked
    return np.where(before != 0, 0 if spec.reset == "zero" else _number(spec, "reset_value"), leaked)


def _late_cleared(spec: NeuronSpec, change, before):
    """What a leak takes off a membrane, where none is reset to a value after it."""
    if spec.reset_timing != "next" or spec.reset not in ("zero", "value"):
        return change
    return np.where(before != 0, 0, change)


def _late_subtract(spec: NeuronSpec, v, before):
    """Subtract for the spikes that stood before the update (`reset_timing` `next` and `both`)."""
    if spec.reset_timing == "now" or spec.reset != "subtract":
        return v
    return v - before.astype(v.dtype) * _number(spec, "threshold")


def _reset(spec: NeuronSpec, v, spikes, before, threshold):
    """Reset in the step of the spike (`now`), or the difference that `both` still owes."""
    if spec.reset_timing == "next" or spec.reset == "none":
        return v
    if spec.reset == "subtract":
        count = spikes - before if spec.reset_timing == "both" else spikes
        return v - count.astype(v.dtype) * threshold
    return np.where(spikes != 0, 0 if spec.reset == "zero" else _number(spec, "reset_value"), v)
