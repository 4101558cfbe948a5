"""Stateless neurons: choose any reset and clamp of the chip for neurons that forget their membrane in every step.

A neuron without current and membrane memory, such as a relay neuron of pooled spikes, fires by the input of the step
alone. Its reset and clamp act after the spike, so they affect no spike.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.legalize.relay_neuron import harmless_reset


def free_resets(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Use the chip's resets and clamp for stateless neurons whose own the chip lacks."""
    nodes, changes = dict(network.nodes), []
    for name in network.built_in:
        spec = nodes[name].neuron
        if not is_stateless(spec):
            continue
        fitting = _fit_reset(_fit_clamp(spec, chip), chip)
        if fitting is not None and fitting is not spec:
            nodes[name] = Node(name, nodes[name].shape, fitting)
            how = "it keeps no membrane from step to step"
            changes.append(Change(name, _describe_reset(spec), _describe_reset(fitting), how, EXACT))
    return (Network(network.inputs, nodes, network.connections), changes) if changes else (network, [])


def is_stateless(spec: NeuronSpec) -> bool:
    """Return whether a neuron's spikes depend only on the input of the step, apart from a refractory time."""
    if not spec.fires or spec.spikes == "gated":
        return False
    if spec.reset_timing != "now" and spec.reset not in ("zero", "none"):
        return False  # a reset in the next step would subtract from its input
    if spec.fixed is not None:
        return all(np.all(np.asarray(decay) == spec.fixed.fastest) for decay in (spec.decay_u, spec.decay_v))
    return spec.alpha is None and spec.membrane == "linear" and not np.any(spec.beta)


def _fit_clamp(spec: NeuronSpec, chip: Chip) -> NeuronSpec:
    if chip.neuron.has_floor(spec):
        return spec
    return spec.replace(v_min=0 if chip.neuron.v_min == "zero" else None, clamp="maximum")


def _fit_reset(spec: NeuronSpec, chip: Chip) -> NeuronSpec | None:
    """Return the neuron with a reset of the chip, or None if none is harmless."""
    reset = "zero" if spec.reset == "value" and not np.any(spec.reset_value) else spec.reset
    timed = spec.reset == "none" or spec.reset_timing in chip.neuron.reset_timing
    if reset in chip.neuron.reset and timed:
        return spec
    kind = harmless_reset(chip)
    if kind is None:
        return None
    timing = "now" if "now" in chip.neuron.reset_timing else chip.neuron.reset_timing[0]
    return spec.replace(reset=kind, reset_value=0, reset_timing=timing)


def _describe_reset(spec: NeuronSpec) -> str:
    clamp = "no clamp" if spec.v_min is None else f"clamp at {float(np.min(spec.v_min)):g}"
    return f"reset {spec.reset}, {clamp}"
