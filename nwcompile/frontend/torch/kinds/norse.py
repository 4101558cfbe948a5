"""norse 1.1.0: LIFBox, LIF, IAF, LI and LIBox, as `norse/torch/functional/*.py` computes them.

    LIF     i = i + x;  v = v + dt*tau_mem_inv*((v_leak - v) + i);  then i = i - dt*tau_syn_inv*i
    LIFBox  v = v + dt*tau_mem_inv*(x + v_leak - v);  IAF  v = v + x
    spike = v > v_th;  v = v_reset where it fired, or, with LIFBox's reset_subtract, v - v_th

with input_weights @ x + recurrent_weights @ (spikes of the step before) for x in the ...Recurrent kinds. LI and LIBox
are LIF and LIFBox that never fire and give v. A membrane starts at v_leak, that of IAF at v_reset; in a network it
starts at 0, so every voltage is taken relative to the start. The cells take one step, the others `[T, B, *]`, and all
start again when they are called without a state.
"""

import torch

from nwcompile.frontend.torch.kind import Kind, ReadNeurons, numbers, refused
from nwcompile.frontend.torch.operations import array
from nwcompile.ir.connection import Dense
from nwcompile.ir.neuron import NeuronSpec

RESETS = {"reset_value": "value", "reset_subtract": "subtract"}


def _read(module, layer, shape) -> ReadNeurons:
    p = module.p
    is_iaf = not hasattr(p, "v_leak")
    start = torch.as_tensor(p.v_reset if is_iaf else p.v_leak).detach()
    fields = {"beta": 1.0} if is_iaf else _leak(module, layer, shape)
    if hasattr(p, "v_th"):
        fields |= _firing(module, layer, shape, start)
    elif start.any():
        text = "v_leak is not 0, where the membrane that it gives starts; use v_leak=0, and add v_leak to the result"
        raise refused(module, layer, text)
    else:
        fields |= {"fires": False, "reset": "none"}
    recurrent = getattr(module, "recurrent_weights", None)
    if recurrent is None:
        return ReadNeurons(NeuronSpec(**fields))
    return ReadNeurons(NeuronSpec(**fields), (Dense(layer, layer, array(recurrent), delay=1),))


def _leak(module, layer, shape) -> dict:
    """Fields of the leak: membrane and, where there is one, current."""
    fields = {
        "membrane": "euler",
        "k": numbers(module, layer, "tau_mem_inv", module.dt * module.p.tau_mem_inv, shape),
    }
    if hasattr(module.p, "tau_syn_inv"):
        keep = 1 - module.dt * torch.as_tensor(module.p.tau_syn_inv, dtype=torch.float32)
        fields["alpha"] = numbers(module, layer, "tau_syn_inv", keep, shape)
        fields["current_order"] = "add_use_decay"
    return fields


def _firing(module, layer, shape, start) -> dict:
    """Fields of threshold and reset, relative to where the membrane starts."""
    p = module.p
    reset_method = getattr(p, "reset_method", None)
    reset = RESETS.get(getattr(reset_method, "__name__", "reset_value"))
    if reset is None:
        text = f"reset_method {reset_method.__name__} is not supported; use norse's reset_value or reset_subtract"
        raise refused(module, layer, text)
    if reset == "subtract" and start.any():
        text = "v_leak is not 0, at which the membrane starts, which is not supported with reset_subtract; use v_leak=0"
        raise refused(module, layer, text)
    fields = {"threshold": numbers(module, layer, "v_th", p.v_th - start, shape), "reset": reset}
    if reset == "value":
        fields["reset_value"] = numbers(module, layer, "v_reset", p.v_reset - start, shape)
    return fields


def _one_step(module) -> tuple[str, ...]:
    return ("B",)


def _all_steps(module) -> tuple[str, ...]:
    return ("TB",)


def _gives(module) -> str:
    return "spikes" if hasattr(module.p, "v_th") else "membrane"


def _weight(module) -> torch.Tensor | None:
    return getattr(module, "input_weights", None)


NAMES = {
    _one_step: ("LIFBoxCell", "LIFCell", "IAFCell", "LIFRecurrentCell", "LICell", "LIBoxCell", "LILinearCell"),
    _all_steps: ("LIF", "IAF", "LIFRecurrent", "LI"),
}
KINDS = tuple(
    Kind("norse", name, _read, leads, keeps_state=False, gives=_gives, weight=_weight)
    for leads, names in NAMES.items()
    for name in names
)
