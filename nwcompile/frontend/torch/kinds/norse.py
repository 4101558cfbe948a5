"""Read the neurons of norse 1.1.0 as `norse/torch/functional/*.py` computes them.

LIFBox, LIF, IAF, LI and LIBox are built-in neurons:

    LIF     i = i + x;  v = v + dt*tau_mem_inv*((v_leak - v) + i);  then i = i - dt*tau_syn_inv*i
    LIFBox  v = v + dt*tau_mem_inv*(x + v_leak - v);  IAF  v = v + x
    spike = v > v_th;  v = v_reset where it fired, or, with LIFBox's reset_subtract, v - v_th

The ...Recurrent kinds use input_weights @ x + recurrent_weights @ (spikes of the last step) as x. LI and LIBox are LIF
and LIFBox that never fire and return v. A membrane starts at v_leak, that of IAF at v_reset. A network's membrane
starts at 0, so every voltage is relative to the start. The cells take one step, the others `[T, B, *]`. A call without
a state starts again.

Any other module with an `activation`, norse's word for a step, is traced (LSNN, LIFAdEx, LIFEx, LIFRefrac, Izhikevich,
and user classes). Its weights become connections: x is the sum of the weighted inputs and spikes.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from nwcompile.frontend.torch.kind import Kind, ReadNeurons, all_steps, layer_error, one_step, read_numbers, trace_step
from nwcompile.frontend.torch.operations import as_float32
from nwcompile.ir.connection import Dense
from nwcompile.ir.neuron import NeuronSpec

COUPLED = "the membranes of its compartments feed each other in a step, and each neuron of a program updates alone"
REFUSED = {
    "LIFCorrelation": "it keeps a trace for each of its synapses, and a neuron program has states of neurons",
    "LIFMCRecurrentCell": COUPLED,
    "LIFMCRefracRecurrentCell": COUPLED,
    "CobaLIFCell": "weights of each sign go into a conductance of their own, not into one sum",
}
RESETS = {"reset_value": "value", "reset_subtract": "subtract"}


def _read_spec(module, layer, shape) -> ReadNeurons:
    p = module.p
    is_iaf = not hasattr(p, "v_leak")
    start = torch.as_tensor(p.v_reset if is_iaf else p.v_leak).detach()
    fields = {"beta": 1.0} if is_iaf else _leak_fields(module, layer, shape)
    reset = RESETS.get(getattr(getattr(p, "reset_method", None), "__name__", "reset_value"))
    if hasattr(p, "v_th") and (reset is None or (reset == "subtract" and start.any())):
        return _read_step(module, layer, shape)
    if hasattr(p, "v_th"):
        fields |= _firing_fields(module, layer, shape, start, reset)
    elif start.any():
        text = "v_leak is not 0, where the membrane that it gives starts; use v_leak=0, and add v_leak to the result"
        raise layer_error(module, layer, text)
    else:
        fields |= {"fires": False, "reset": "none"}
    return ReadNeurons(NeuronSpec(**fields), _build_recurrence(module, layer))


def _build_recurrence(module, layer: str) -> tuple[Dense, ...]:
    recurrent = getattr(module, "recurrent_weights", None)
    return () if recurrent is None else (Dense(layer, layer, as_float32(recurrent), delay=1),)


def _leak_fields(module, layer, shape) -> dict:
    """Return the fields of the leak: of the membrane, and of the current if there is one."""
    fields = {
        "membrane": "euler",
        "k": read_numbers(module, layer, "tau_mem_inv", module.dt * module.p.tau_mem_inv, shape),
    }
    if hasattr(module.p, "tau_syn_inv"):
        keep = 1 - module.dt * torch.as_tensor(module.p.tau_syn_inv, dtype=torch.float32)
        fields["alpha"] = read_numbers(module, layer, "tau_syn_inv", keep, shape)
        fields["current_order"] = "add_use_decay"
    return fields


def _firing_fields(module, layer, shape, start, reset) -> dict:
    """Return the fields of threshold and reset, relative to the start of the membrane."""
    p = module.p
    fields = {"threshold": read_numbers(module, layer, "v_th", p.v_th - start, shape), "reset": reset}
    if reset == "value":
        fields["reset_value"] = read_numbers(module, layer, "v_reset", p.v_reset - start, shape)
    return fields


class _Weighed(TorchFunctionMode):
    """Bypass linear maps with the module's weights, which are connections: return the input, and 0 for the feedback."""

    def __init__(self, module):
        super().__init__()
        self.weights = [getattr(module, name, None) for name in ("input_weights", "recurrent_weights")]

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear and args[1] is self.weights[0]:
            return args[0]
        if func is torch.nn.functional.linear and args[1] is self.weights[1]:
            return torch.zeros_like(args[0])
        return func(*args, **(kwargs or {}))


def _read_step(module, layer, shape) -> ReadNeurons:
    """Trace a module's activation."""
    recurrent = getattr(module, "recurrent_weights", None)
    n_steps = () if "B" in _step_leads(module) else (1,)
    start = module.state_fallback(torch.zeros(*n_steps, 1, *shape))

    def step(states, x):
        weights = () if recurrent is None else (module.input_weights, recurrent)
        with _Weighed(module):
            sent, becomes = module.activation(x, _update(start, states), *weights, module.p, module.dt)
        return dict(_state_tensors(becomes)), sent

    program = trace_step(module, layer, shape, step, {name: value.detach() for name, value in _state_tensors(start)})
    return ReadNeurons(program, _build_recurrence(module, layer))


def _state_tensors(state) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a state, a possibly nested named tuple, by name."""
    for name, value in state._asdict().items():
        if isinstance(value, tuple):
            yield from _state_tensors(value)
        else:
            yield name, torch.as_tensor(value)


def _update(state, values: dict[str, torch.Tensor]):
    """Return the state with the tensors replaced."""
    fields = {name: _update(v, values) if isinstance(v, tuple) else values[name] for name, v in state._asdict().items()}
    return type(state)(**fields)


def _step_leads(module) -> tuple[str, ...]:
    is_cell = any(cls.__name__ in ("SNNCell", "SNNRecurrentCell") for cls in type(module).__mro__)
    return ("B",) if is_cell else ("TB",)


NAMES = {
    one_step: ("LIFBoxCell", "LIFCell", "IAFCell", "LIFRecurrentCell", "LICell", "LIBoxCell", "LILinearCell"),
    all_steps: ("LIF", "IAF", "LIFRecurrent", "LI"),
}
STEPS = ("SNNCell", "SNN", "SNNRecurrentCell", "SNNRecurrent")
ALIKE: dict[str, Any] = {"keeps_state": False, "weight": lambda module: getattr(module, "input_weights", None)}
KINDS = (
    *(
        Kind(
            "norse", name, _read_spec, leads, **ALIKE, gives=lambda m: "spikes" if hasattr(m.p, "v_th") else "membrane"
        )
        for leads, names in NAMES.items()
        for name in names
    ),
    *(
        Kind(
            "norse",
            name,
            _read_step,
            _step_leads,
            **ALIKE,
            gives=lambda m: "spikes" if type(m).__module__.startswith("norse.") else "counts",
        )
        for name in STEPS
    ),
)
