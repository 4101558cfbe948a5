"""Read the neurons of snnTorch 1.0.0 as `snntorch/_neurons/*.py` computes them.

Leaky, Synaptic, RLeaky and RSynaptic are built-in neurons:

    i = clamp(alpha)*i + x;  v = clamp(beta)*v + i (or + x);  spikes = spike_grad(v - threshold)

The R... kinds add recurrent(spikes of the last step) to x.

`subtract` subtracts the threshold in the next step; `reset_delay=False` also corrects v at once (reset_timing `both`).
`zero`: Leaky clears v before the next update, which equals clearing it at once. The other kinds, with
`reset_delay=True`, clear v after the next update, so the step after a spike is lost (refractory 2). RSynaptic ignores
`reset_delay=False`: it changes a variable that nothing reads (and fails without states).

Alpha, DeltaLeaky, Lapicque unless its R is 1, and neurons with a state_quant are traced through their own step.
LeakyParallel is torch's ReLU-RNN with one weight from each neuron to itself: v = relu((W x + b) + (w*v + b')).
StateLeaky and LinearLeaky compute all steps at once by a convolution with exp(-t/tau); except for rounding, that is v =
exp(-1/tau)*v + x, a built-in neuron without reset.
"""

from functools import partial
from typing import Any

import torch

from nwcompile.frontend.torch.kind import (
    Kind,
    ReadNeurons,
    all_steps,
    clear_buffers,
    is_strict,
    layer_error,
    one_step,
    read_numbers,
    trace_step,
)
from nwcompile.frontend.torch.operations import operation_from_module
from nwcompile.ir.connection import Connection, Scale
from nwcompile.ir.neuron import NeuronSpec

RESETS = {"_base_sub": ("subtract", 0), "_base_zero": ("zero", 1), "_base_int": ("none", 2)}  # name, buffer value
STATES = ("spk", "syn", "mem", "syn_exc", "syn_inh")
TRACED = {  # a class, the states of its step
    "Alpha": ("syn_exc", "syn_inh", "mem"),
    "Lapicque": ("mem",),
    "DeltaLeaky": ("mem",),
    "Leaky": ("mem",),
    "RLeaky": ("mem",),
    "Synaptic": ("syn", "mem"),
    "RSynaptic": ("syn", "mem"),
}
REFUSED = {
    "AssociativeLeaky": "its state is a matrix, into which all its inputs are multiplied with each other",
}


def _read_spec(module, layer, shape) -> ReadNeurons:
    _verify_alone(module, layer)
    if module.state_quant:
        return _read_step(module, layer, shape)
    fields: dict[str, Any] = {
        "beta": read_numbers(module, layer, "beta", module.beta.clamp(0, 1), shape),
        "threshold": read_numbers(module, layer, "threshold", module.threshold, shape),
        "strict": is_strict(module, layer, "spike_grad", module.spike_grad),
    }
    if hasattr(module, "alpha"):
        fields["alpha"] = read_numbers(module, layer, "alpha", module.alpha.clamp(0, 1), shape)
    return ReadNeurons(NeuronSpec(**fields, **_reset_fields(module, layer)), _build_recurrence(module, layer, shape))


def _read_lapicque(module, layer, shape) -> ReadNeurons:
    """Read v = (1 - dt/(R*C))*v + x*R*(1/(R*C))*dt; R = dt = 1 leaves one product, bit-equal to a built-in neuron."""
    _verify_alone(module, layer)
    if module.state_quant or (module.R != 1).any() or (module.time_step != 1).any():
        return _read_step(module, layer, shape)
    fields: dict[str, Any] = {
        "beta": read_numbers(module, layer, "C", 1 - module.time_step / (module.R * module.C), shape),
        "gain": read_numbers(module, layer, "C", 1 / (module.R * module.C), shape),
        "threshold": read_numbers(module, layer, "threshold", module.threshold, shape),
        "strict": is_strict(module, layer, "spike_grad", module.spike_grad),
    }
    reset = RESETS[module.state_function.__name__][0]
    fields |= {"reset": reset, "reset_timing": "next"} if reset == "subtract" else {"reset": reset}
    return ReadNeurons(NeuronSpec(refractory=2 if reset == "zero" else 0, **fields))


def _verify_alone(module, layer) -> None:
    if module.inhibition:
        text = "inhibition lets only the largest of its neurons fire, and a neuron fires alone; use inhibition=False"
        raise layer_error(module, layer, text)


class _Nothing(torch.nn.Module):
    """Replaces recurrent weights, which become a connection."""

    def forward(self, spikes: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(spikes)


def _read_step(module, layer, shape) -> ReadNeurons:
    """Trace a neuron's step."""
    _verify_alone(module, layer)
    recurrent = _build_recurrence(module, layer, shape)
    if recurrent:
        module.recurrent = _Nothing()
    module.init_hidden, module.output = True, False
    module._parameters.pop("graded_spikes_factor", None)
    module._buffers["graded_spikes_factor"] = torch.tensor(1.0)  # `Kind.spike` was read before

    def step(states, x):
        module._buffers.update(states)
        spikes = module(x)
        spikes = spikes[0] if isinstance(spikes, tuple) else spikes
        return {name: module._buffers[name] for name in states}, spikes

    kind = next(cls.__name__ for cls in type(module).__mro__ if cls.__name__ in TRACED)
    program = trace_step(module, layer, shape, step, dict.fromkeys(TRACED[kind], 0))
    return ReadNeurons(program, recurrent)


def _read_parallel(module, layer, shape) -> ReadNeurons:
    rnn = module.rnn
    kept = rnn.weight_hh_l0.detach()
    if torch.count_nonzero(kept - torch.diag(kept.diagonal())):
        raise layer_error(
            module,
            layer,
            "its membranes feed each other (weight_hh_enable=True), and neurons send spikes only; use "
            "weight_hh_enable=False, or a recurrent layer",
        )

    def step(states, x):
        zero = torch.zeros(())
        input_bias, state_bias = (rnn.bias_ih_l0, rnn.bias_hh_l0) if rnn.bias else (zero, zero)
        v = torch.relu((x + input_bias) + (kept.diagonal() * states["v"] + state_bias))
        return {"v": v}, module.spike_grad(v - module.threshold)

    return ReadNeurons(trace_step(module, layer, shape, step, {"v": 0}))


def _read_convolution(module, layer, shape) -> ReadNeurons:
    if module.state_quant:
        raise layer_error(module, layer, "state_quant is not supported; train and import it without")
    if module.kernel_truncation_steps is not None:
        text = "kernel_truncation_steps cuts off older input, but a membrane only leaks; use None"
        raise layer_error(module, layer, text)
    beta = torch.exp(-1 / torch.as_tensor(module.tau, dtype=torch.float64))
    fields: dict[str, Any] = {"beta": read_numbers(module, layer, "tau", beta, shape), "reset": "none"}
    if getattr(getattr(module, "linear", None), "bias", None) is not None:
        fields["bias"] = read_numbers(module, layer, "linear.bias", module.linear.bias, shape)
    if not module.output:
        return ReadNeurons(NeuronSpec(fires=False, **fields))
    fields["threshold"] = read_numbers(module, layer, "threshold", module.threshold, shape)
    return ReadNeurons(NeuronSpec(strict=is_strict(module, layer, "spike_grad", module.spike_grad), **fields))


def _reset_fields(module, layer) -> dict:
    reset, value = RESETS[module.state_function.__name__]
    is_late = module.reset_delay or type(module).__name__ == "RSynaptic"
    if not is_late and int(module.reset_mechanism_val) != value:
        raise layer_error(
            module,
            layer,
            f"its reset_mechanism was changed to {module.reset_mechanism!r} after construction; construct it with that",
        )
    if reset == "subtract":
        return {"reset": reset, "reset_timing": "next" if is_late else "both"}
    wipes = hasattr(module, "alpha") or hasattr(module, "recurrent")  # all but Leaky clear the input of the step
    loses_a_step = reset == "zero" and is_late and wipes
    return {"reset": reset, "refractory": 2 if loses_a_step else 0}


def _build_recurrence(module, layer, shape) -> tuple[Connection, ...]:
    if not hasattr(module, "recurrent"):
        return ()
    inner = module.recurrent
    if isinstance(inner, torch.nn.Linear | torch.nn.Conv2d):
        return operation_from_module(inner, f"{layer}.recurrent", shape).build_connections(layer, layer, 1, shape)
    return (Scale(layer, layer, read_numbers(module, layer, "V", inner.V, shape), delay=1),)


def _spike_value(module) -> float:
    return float(module.graded_spikes_factor)


def _clear_delta(module) -> None:
    module.mem = module.mem_prev = None


def _squared_spike_value(module) -> float:
    """Return the spike value of kinds that apply the factor twice."""
    return _spike_value(module) ** 2


def _input_weight(module) -> torch.Tensor:
    """Return the input weights of LeakyParallel or LinearLeaky."""
    return module.rnn.weight_ih_l0 if hasattr(module, "rnn") else module.linear.weight


STEPWISE: dict[str, Any] = {"leads": one_step, "clear": partial(clear_buffers, names=STATES), "spike": _spike_value}
WHOLE: dict[str, Any] = {"leads": all_steps, "keeps_state": False}
CONVOLUTION: dict[str, Any] = {
    **WHOLE,
    "spike": _squared_spike_value,
    "gives": lambda module: "spikes" if module.output else "membrane",
}
KINDS = (
    *(Kind("snntorch", name, _read_spec, **STEPWISE) for name in ("Leaky", "Synaptic", "RLeaky", "RSynaptic")),
    Kind("snntorch", "Alpha", _read_step, **STEPWISE),
    Kind("snntorch", "Lapicque", _read_lapicque, **STEPWISE),
    Kind("snntorch", "DeltaLeaky", _read_step, one_step, clear=_clear_delta),
    Kind("snntorch", "LeakyParallel", _read_parallel, **WHOLE, spike=_spike_value, weight=_input_weight),
    Kind("snntorch", "StateLeaky", _read_convolution, **CONVOLUTION),
    Kind("snntorch", "LinearLeaky", _read_convolution, **CONVOLUTION, weight=_input_weight),
)
