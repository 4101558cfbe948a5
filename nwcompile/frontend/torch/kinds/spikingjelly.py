"""SpikingJelly 2.0.0: IF, LIF, PLIF and CUBALIF nodes, as `activation_based/neuron` and `_ops/*/reference.py` say.

    IF    v = v + x
    LIF   v = v + (x - (v - rest))/tau with decay_input, else v = v - (v - rest)/tau + x;  PLIF: * sigmoid(w) for /tau
    CUBA  c = c_decay*c + x;  v = v_decay*v + c
    spike = surrogate_function(v - v_threshold);  v = v_reset where it fired, or without v_reset v - v_threshold

with rest = v_reset, or 0. A membrane starts at its memory's reset value: v_reset, but 0 in the Simple nodes. In a
network it starts at 0, so every voltage is taken relative to the start. A network multiplies by 1/tau: voltages are
equal to the bit where tau is a power of two (2 is the default) or sigmoid(w) with decay_input and v_reset is 0 or None;
elsewhere the last bit may differ, which changed 7 of 272 million spikes.
"""

from copy import deepcopy

import torch

from nwcompile.frontend.torch.kind import Kind, ReadNeurons, is_strict, numbers, refused
from nwcompile.ir.neuron import NeuronSpec

UPDATES = (
    "forward",
    "single_step_forward",
    "multi_step_forward",
    "materialize_states",
    "single_step_functional_forward",
    "multi_step_functional_forward",
    "neuronal_charge",
    "neuronal_fire",
    "neuronal_reset",
)


def _read(module, layer, shape) -> ReadNeurons:
    threshold = torch.as_tensor(module.v_threshold, dtype=torch.float64)
    start = module._memories_rv["v"]
    if isinstance(start, torch.Tensor):
        raise refused(module, layer, "v starts at a tensor (set_reset_value), which is not supported; give one number")
    rest = 0.0 if module.v_reset is None else module.v_reset
    fields = {
        "threshold": numbers(module, layer, "v_threshold", threshold - start, shape),
        "strict": is_strict(module, layer, "surrogate_function", module.surrogate_function),
        **_membrane(module, layer, shape, start, rest - start),
    }
    if module.v_reset is None and start:
        raise refused(module, layer, f"v starts at {start:g}, which is supported with a v_reset only; start at 0")
    if module.v_reset is None:
        return ReadNeurons(NeuronSpec(reset="subtract", **fields))
    if rest == start:
        return ReadNeurons(NeuronSpec(reset="zero", **fields))
    return ReadNeurons(NeuronSpec(reset="value", reset_value=rest - start, **fields))


def _membrane(module, layer, shape, start: float, rest: float) -> dict:
    """Fields of the update; `rest` is where a leak leads to, relative to the start."""
    if hasattr(module, "c_decay"):
        keep = torch.as_tensor(module.v_decay, dtype=torch.float64)
        return {
            "alpha": numbers(module, layer, "c_decay", module.c_decay, shape),
            "beta": numbers(module, layer, "v_decay", keep, shape),
            "leak": numbers(module, layer, "v_decay", (keep - 1) * start, shape),
        }
    if not hasattr(module, "decay_input"):
        return {"beta": 1.0}
    name = "w" if hasattr(module, "w") else "tau"
    rate = torch.sigmoid(module.w.detach()) if name == "w" else 1 / torch.as_tensor(module.tau, dtype=torch.float64)
    if module.decay_input:
        return {"membrane": "euler", "k": numbers(module, layer, name, rate, shape), "v_leak": rest}
    rate = rate.double()
    return {
        "beta": numbers(module, layer, name, 1 - rate, shape),
        "leak": numbers(module, layer, name, rate * rest, shape),
    }


def _leads(module) -> tuple[str, ...]:
    return ("TB",) if module.step_mode == "m" else ("B",)


def clear(module) -> None:
    """Make a MemoryModule (a neuron node, a recurrent container, a Delay) start again."""
    module._memories.update(deepcopy(module._memories_rv))


KINDS = tuple(
    Kind("spikingjelly", name, _read, _leads, clear=clear, decided_by=UPDATES)
    for name in ("IFNode", "LIFNode", "ParametricLIFNode", "CUBALIFNode", "SimpleIFNode", "SimpleLIFNode")
)
