"""snnTorch 1.0.0: Leaky, Synaptic, RLeaky and RSynaptic, as `snntorch/_neurons/*.py` computes them.

    i = clamp(alpha)*i + x;  v = clamp(beta)*v + i (or + x);  spikes = spike_grad(v - threshold)

with recurrent(spikes of the step before) added to x in the R... kinds.

`subtract` takes the threshold off in the next step, with `reset_delay=False` by the difference in the step itself.
`zero`: Leaky clears v before the next update, which is what clearing it at once gives; the other kinds, with
`reset_delay=True`, clear v after the next update, so the step after a spike is lost (refractory 2). RSynaptic has no
effect from `reset_delay=False`: it changes a variable that nothing reads (and fails without states).
"""

from typing import Any

import torch

from nwcompile.frontend.torch.kind import Kind, ReadNeurons, is_strict, numbers, refused
from nwcompile.frontend.torch.operations import operation
from nwcompile.ir.connection import Connection, Scale
from nwcompile.ir.neuron import NeuronSpec

RESETS = {"_base_sub": ("subtract", 0), "_base_zero": ("zero", 1), "_base_int": ("none", 2)}  # name, its buffer's value
STATES = ("spk", "syn", "mem")


def _read(module, layer, shape) -> ReadNeurons:
    for name in ("state_quant", "inhibition"):
        if getattr(module, name):
            raise refused(module, layer, f"{name} is not supported; train and import it without")
    fields: dict[str, Any] = {
        "beta": numbers(module, layer, "beta", module.beta.clamp(0, 1), shape),
        "threshold": numbers(module, layer, "threshold", module.threshold, shape),
        "strict": is_strict(module, layer, "spike_grad", module.spike_grad),
    }
    if hasattr(module, "alpha"):
        fields["alpha"] = numbers(module, layer, "alpha", module.alpha.clamp(0, 1), shape)
    return ReadNeurons(NeuronSpec(**fields, **_reset(module, layer)), _recurrent(module, layer, shape))


def _reset(module, layer) -> dict:
    reset, value = RESETS[module.state_function.__name__]
    is_late = module.reset_delay or type(module).__name__ == "RSynaptic"
    if not is_late and int(module.reset_mechanism_val) != value:
        raise refused(
            module,
            layer,
            f"it was made with another reset_mechanism than {module.reset_mechanism!r}, which it has now; make it with "
            "the one that is meant",
        )
    if reset == "subtract":
        return {"reset": reset, "reset_timing": "next" if is_late else "both"}
    loses_a_step = reset == "zero" and is_late and _wipes(module)
    return {"reset": reset, "refractory": 2 if loses_a_step else 0}


def _wipes(module) -> bool:
    """Whether a late reset to zero also clears what arrives in its step: all kinds but Leaky."""
    return hasattr(module, "alpha") or hasattr(module, "recurrent")


def _recurrent(module, layer, shape) -> tuple[Connection, ...]:
    if not hasattr(module, "recurrent"):
        return ()
    inner = module.recurrent
    if isinstance(inner, torch.nn.Linear | torch.nn.Conv2d):
        return (operation(inner, f"{layer}.recurrent", shape, True).connect(layer, layer, 1, shape),)
    return (Scale(layer, layer, numbers(module, layer, "V", inner.V, shape), delay=1),)


def _clear(module) -> None:
    for name in STATES:
        if name in module._buffers:
            module._buffers[name] = torch.zeros(0)


def _spike(module) -> float:
    return float(module.graded_spikes_factor)


KINDS = tuple(
    Kind("snntorch", name, _read, lambda module: ("B",), clear=_clear, spike=_spike)
    for name in ("Leaky", "Synaptic", "RLeaky", "RSynaptic")
)
