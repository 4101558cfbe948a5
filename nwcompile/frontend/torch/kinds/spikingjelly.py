"""Read the nodes of SpikingJelly 2.0.0 as `activation_based/neuron` and `_ops/*/reference.py` compute them.

IF, LIF, PLIF and CUBALIF nodes, and nodes that differ from them in training only, are built-in neurons:

    IF    v = v + x
    LIF   v = v + (x - (v - rest))/tau with decay_input, else v = v - (v - rest)/tau + x;  PLIF: * sigmoid(w) for /tau
    CUBA  c = c_decay*c + x;  v = v_decay*v + c
    spike = surrogate_function(v - v_threshold);  v = v_reset where it fired, or without v_reset v - v_threshold

with rest = v_reset, or 0. A membrane starts at its memory's reset value: v_reset, but 0 in the Simple nodes. A
network's membrane starts at 0, so every voltage is relative to the start. A network multiplies by 1/tau. Voltages are
bit-equal if tau is a power of two (2 is the default), or for sigmoid(w) with decay_input, and v_reset is 0 or None.
Otherwise the last bit may differ, which changed 7 of 272 million spikes.

Every other node with its own step (a BaseNode or SimpleBaseNode, user classes too) is traced.
"""

import sys
from copy import deepcopy
from typing import Any

import torch

from nwcompile.frontend.torch.kind import Kind, ReadNeurons, all_steps, is_strict, layer_error, read_numbers, trace_step
from nwcompile.ir.neuron import NeuronSpec

FORWARDS = ("forward", "single_step_forward", "multi_step_forward", "materialize_states")
FUNCTIONAL = ("single_step_functional_forward", "multi_step_functional_forward")
UPDATES = (*FORWARDS, *FUNCTIONAL, "neuronal_charge", "neuronal_fire", "neuronal_reset")
SPECS = ("IFNode", "LIFNode", "ParametricLIFNode", "CUBALIFNode", "SimpleIFNode", "SimpleLIFNode", "OTTTLIFNode",
         "SLTTLIFNode")  # fmt: skip
SPIKE = ("QIFNode", "EIFNode", "IzhikevichNode", "RAFNode", "KLIFNode", "ComplementaryLIFNode", "HalfThresholdIFNode",
         "ActivationAwareIFNode", "GatedLIFNode", "MPBNLIFNode", "SlidingPSN")  # fmt: skip
PARALLEL = "computes each step from several steps of its input by weights, and a neuron keeps states, no past input"
CONNECTED = "its spikes go through a convolution of its own into its next input; use a neuron and a recurrent layer"
NOISY = "it draws random numbers in every step, and backends must agree"
WHOLE = "it is a function of all steps together, for training by rates; use an IFNode or LIFNode of its threshold"
REFUSED = {
    "PSN": PARALLEL,
    "MaskedPSN": PARALLEL,
    "ILCBaseNode": CONNECTED,
    "NoisyBaseNode": NOISY,
    "NoisyNonSpikingBaseNode": NOISY,
    "DSRIFNode": WHOLE,
    "DSRLIFNode": WHOLE,
    "FewSpikeNode": "it keeps no state and sends real numbers of its own table; it is an activation, not a neuron",
}


def _read_spec(module, layer, shape) -> ReadNeurons:
    threshold = torch.as_tensor(module.v_threshold, dtype=torch.float64)
    start = module._memories_rv["v"]
    if isinstance(start, torch.Tensor):
        raise layer_error(
            module, layer, "v starts at a tensor (set_reset_value), which is not supported; give one number"
        )
    if module.v_reset is None and start:
        return _read_step(module, layer, shape)
    rest = 0.0 if module.v_reset is None else module.v_reset
    fields = {
        "threshold": read_numbers(module, layer, "v_threshold", threshold - start, shape),
        "strict": is_strict(module, layer, "surrogate_function", module.surrogate_function),
        **_membrane_fields(module, layer, shape, start, rest - start),
    }
    if module.v_reset is None:
        return ReadNeurons(NeuronSpec(reset="subtract", **fields))
    if rest == start:
        return ReadNeurons(NeuronSpec(reset="zero", **fields))
    return ReadNeurons(NeuronSpec(reset="value", reset_value=rest - start, **fields))


def _membrane_fields(module, layer, shape, start: float, rest: float) -> dict:
    """Return the fields of the update; `rest` is the leak's target, relative to the start."""
    if hasattr(module, "c_decay"):
        keep = torch.as_tensor(module.v_decay, dtype=torch.float64)
        return {
            "alpha": read_numbers(module, layer, "c_decay", module.c_decay, shape),
            "beta": read_numbers(module, layer, "v_decay", keep, shape),
            "leak": read_numbers(module, layer, "v_decay", (keep - 1) * start, shape),
        }
    if not hasattr(module, "decay_input"):
        return {"beta": 1.0}
    name = "w" if hasattr(module, "w") else "tau"
    rate = torch.sigmoid(module.w.detach()) if name == "w" else 1 / torch.as_tensor(module.tau, dtype=torch.float64)
    if module.decay_input:
        return {"membrane": "euler", "k": read_numbers(module, layer, name, rate, shape), "v_leak": rest}
    rate = rate.double()
    return {
        "beta": read_numbers(module, layer, name, 1 - rate, shape),
        "leak": read_numbers(module, layer, name, rate * rest, shape),
    }


def _read_step(module, layer, shape) -> ReadNeurons:
    """Trace a node's step; step_mode "m", which may round differently, runs a sequence of one step."""

    def step(states, x):
        module._memories.update(states)
        sent = module.multi_step_forward(x[None])[0] if module.step_mode == "m" else module.single_step_forward(x)
        sent = sent[0] if isinstance(sent, tuple | list) else sent
        return {name: module._memories[name] for name in states}, sent

    return ReadNeurons(trace_step(module, layer, shape, step, _initial_states(module, shape)))


def _initial_states(module, shape) -> dict[str, Any]:
    """Return the initial values of a node's memories that are numbers or tensors."""
    clear(module)
    memories = tuple(module._memories.values())
    made = module.materialize_states((torch.zeros(1, *shape),), memories, "s")
    return {name: value for name, value in zip(module._memories, made, strict=True) if value is not None}


def _read_quantized(module, layer, shape) -> ReadNeurons:
    """Read STBIFNode: a spike of either sign, worth q_threshold."""

    def step(states, x):
        module._memories.update(states)
        module.single_step_forward(x)
        return {name: module._memories[name] for name in states}, module._memories["cur_output"]

    return ReadNeurons(trace_step(module, layer, shape, step, _initial_states(module, shape)))


def _read_gated(module, layer, shape) -> ReadNeurons:
    """Read GatedLIFNode, which computes all steps in one function, through its `gated_lif_step`."""
    conduct = module.conduct.detach()
    if (conduct != conduct[0]).any():
        text = "its conduct differs from step to step, and a neuron program computes the same in every step"
        raise layer_error(module, layer, text)
    kind = next(cls for cls in type(module).__mro__ if cls.__name__ == "GatedLIFNode")
    functional = vars(sys.modules[kind.__module__])["functional"]
    names = ("alpha", "beta", "gamma", "tau", "v_threshold", "linear_decay", "v_subreset")

    def step(states, x):
        gates = [getattr(module, name).view(1, -1, 1, 1).sigmoid() for name in names]
        gates.append(conduct[0].view(1, -1, 1, 1).sigmoid())
        spike, v = functional.gated_lif_step(x, states["v"], states["spike"], *gates, module.surrogate_function)
        return {"v": v, "spike": spike}, spike

    return ReadNeurons(trace_step(module, layer, shape, step, {"v": 0, "spike": 0}))


def _read_flexible(module, layer, shape) -> ReadNeurons:
    """Read FlexSN, whose step is a user function; its states start at 0."""
    if module._num_inputs != 1 or module._num_outputs != 1:
        text = (
            f"its step has {module._num_inputs} inputs and {module._num_outputs} outputs, and a layer has one of each"
        )
        raise layer_error(module, layer, text)
    names = [f"state{i}" for i in range(module.num_states)]

    def step(states, x):
        sent, *becomes = module.core(x, *states.values(), *module.static_inputs)
        return dict(zip(names, becomes, strict=True)), sent

    return ReadNeurons(trace_step(module, layer, shape, step, dict.fromkeys(names, 0)))


def _read_sliding(module, layer, shape) -> ReadNeurons:
    """Read SlidingPSN: it fires if its last k inputs, weighed by their age, and a bias exceed 0; inputs become states.

    The terms are added from the oldest to the newest input, as in step_mode "s".
    """
    *earlier, newest = module.weight.detach().tolist()  # from the oldest input to the newest
    bias = module.bias.item()
    names = [f"x{age}" for age in range(len(earlier), 0, -1)]

    def step(states, x):
        terms = [states[name] * weight for name, weight in zip(names, earlier, strict=True)] + [x * newest]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return dict(zip(names, [*list(states.values())[1:], x], strict=False)), module.surrogate_function(total + bias)

    return ReadNeurons(trace_step(module, layer, shape, step, dict.fromkeys(names, 0)))


def _read_integrator(module, layer, shape) -> ReadNeurons:
    """Read the membranes of NonSpikingIFNode, v = v + x, and NonSpikingLIFNode, v = v + (x - v)/tau."""
    if module.decode is not None:
        raise layer_error(module, layer, f"decode={module.decode!r} is known after the last step only; use decode=None")
    if not hasattr(module, "tau"):
        return ReadNeurons(NeuronSpec(beta=1.0, fires=False, reset="none"))
    k = read_numbers(module, layer, "tau", 1 / torch.as_tensor(module.tau, dtype=torch.float64), shape)
    return ReadNeurons(NeuronSpec(membrane="euler", k=k, fires=False, reset="none"))


def _leads(module) -> tuple[str, ...]:
    return ("TB",) if module.step_mode == "m" else ("B",)


def _output_kind(module) -> str:
    is_spikes = type(module).__name__ in SPIKE and getattr(module.surrogate_function, "spiking", True)
    return "spikes" if is_spikes else "counts"


def _one_spike(module) -> float:
    return float(module.q_threshold)


def clear(module) -> None:
    """Reset the state of a MemoryModule (a neuron node, a recurrent container, a Delay)."""
    module._memories.update(deepcopy(module._memories_rv))


KINDS = (
    *(Kind("spikingjelly", name, _read_spec, _leads, clear=clear, decided_by=UPDATES) for name in SPECS),
    Kind("spikingjelly", "GatedLIFNode", _read_gated, all_steps, clear=clear),
    Kind("spikingjelly", "SlidingPSN", _read_sliding, _leads, clear=clear, decided_by=UPDATES, gives=_output_kind),
    Kind("spikingjelly", "FlexSN", _read_flexible, _leads, clear=clear, gives=lambda _: "counts"),
    Kind(
        "spikingjelly",
        "STBIFNode",
        _read_quantized,
        _leads,
        clear=clear,
        spike=_one_spike,
        gives=lambda _: "counts",
    ),
    *(
        Kind("spikingjelly", name, _read_integrator, all_steps, keeps_state=False, gives=lambda _: "membrane")
        for name in ("NonSpikingIFNode", "NonSpikingLIFNode")
    ),
    *(
        Kind("spikingjelly", name, _read_step, _leads, clear=clear, gives=_output_kind)
        for name in ("ActivationAwareIFNode", "MPBNLIFNode", "BaseNode", "SimpleBaseNode")
    ),
)
