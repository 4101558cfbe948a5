"""Read the neuron layers of nwcompile.nn."""

from math import prod
from typing import Any

from nwcompile.frontend.torch.kind import Kind, ReadNeurons, layer_error, read_numbers
from nwcompile.ir.connection import Dense
from nwcompile.ir.neuron import NeuronSpec

RESETS = {"subtraction": "subtract", "zero": "zero", "none": "none"}


def _read_spec(module, layer, shape) -> ReadNeurons:
    if module.beta.numel() != prod(shape):
        raise layer_error(module, layer, f"has {module.beta.numel()} neurons, but is given {shape} in a step")
    per_neuron: dict[str, Any] = {
        "beta": read_numbers(module, layer, "taus", module.beta.reshape(shape), shape),
        "threshold": read_numbers(module, layer, "thresholds", module.thresholds.reshape(shape), shape),
    }
    spec = NeuronSpec(
        strict=False, reset=RESETS[module.reset_mechanism], v_min=0.0 if module.floor else None, **per_neuron
    )
    if module.layer_topology != "RC":
        return ReadNeurons(spec)
    weight = module.effective_w_rec().detach().float().cpu().T.contiguous().numpy().copy()
    return ReadNeurons(spec, (Dense(layer, layer, weight, delay=1),))


def _read_program(module, layer, shape) -> ReadNeurons:
    if module.shape != shape:
        raise layer_error(module, layer, f"it has neurons of shape {module.shape}, and its input has {shape}")
    return ReadNeurons(module.program())


def _output_kind(module) -> str:
    if module.read is not None:
        return "membrane"
    return "spikes" if module.program().message == "binary" else "counts"


KINDS = (
    Kind("nwcompile", "LIFLayer", _read_spec, lambda module: ("BT", "B")),
    Kind("nwcompile", "ProgramLayer", _read_program, lambda module: ("BT", "B"), gives=_output_kind),
)
