"""Relay neuron: the chip's neuron that sends in a step what it receives in it."""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.neuron import NeuronSpec

RELAY = NeuronSpec(beta=0.0, threshold=0.5, reset="zero")  # It keeps no state: a spike of weight 1 drives it to 1.
HARMLESS = ("zero", "value", "none", "subtract")  # Resets in order of preference; v is forgotten after the step anyway.


def relay_neuron(chip: Chip) -> NeuronSpec | None:
    """Return the float relay neuron that the chip supports, or None.

    If decays are shifts, a current outlasts its step, and a relay neuron would send a spike twice.
    """
    kind = harmless_reset(chip)
    if kind is None or chip.fixed_point.shifts:
        return None
    timing = "now" if "now" in chip.neuron.reset_timing else chip.neuron.reset_timing[0]
    if chip.neuron.leak is False:  # Then the reset clears v, because any spike makes it fire.
        return RELAY.replace(beta=1.0, reset=kind, reset_timing=timing) if kind in ("zero", "value") else None
    return RELAY.replace(reset=kind, reset_timing=timing, v_min=0.0 if chip.neuron.v_min == "zero" else None)


def harmless_reset(chip: Chip) -> str | None:
    """Return a reset of the chip that has no effect on the spikes of a neuron without state, or None."""
    late = "now" not in chip.neuron.reset_timing  # then only kinds that the step forgets anyway
    kinds = [kind for kind in HARMLESS if kind in chip.neuron.reset and not (late and kind in ("value", "subtract"))]
    return kinds[0] if kinds else None


def to_scalar_neuron(spec: NeuronSpec) -> NeuronSpec:
    """Return the neuron of a layer of size one with scalar parameters, for layers of any shape."""
    values = {name: getattr(spec, name) for name in NeuronSpec.NUMBERS}
    return spec.replace(**{name: v.item() for name, v in values.items() if isinstance(v, np.ndarray)})
