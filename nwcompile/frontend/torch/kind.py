"""Describe how the recorder treats a neuron module of a framework, and read its numbers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Connection
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

ERROR_CODE = "NW2303"


@dataclass(frozen=True, eq=False)
class ReadNeurons:
    """The neurons of one module: their update, and their connections to themselves."""

    spec: NeuronSpec | NeuronProgram
    recurrent: tuple[Connection, ...] = ()


@dataclass(frozen=True)
class Kind:
    """How the calls of one class of neuron modules are read.

    `package` and `name`: where the class is defined; the package is not imported. `read(module, layer, shape)` returns
    the neurons of a module whose layer has that shape. `leads(module)`: possible leading axes of its input: "B" one
    step, "BT" or "TB" all steps, "B*T" or "T*B" all steps in one axis. `keeps_state`: a call without states continues
    from the last call. `clear(module)` resets its state. `spike(module)`: the value of a spike. `gives(module)`:
    "spikes", at most one per step; "counts", several per step; or "membrane", for neurons that never fire.
    `weight(module)`: the weights `[n, n_in]` that the module itself applies to its input, or None. `decided_by`:
    methods that a subclass must inherit unchanged to be read like this class.
    """

    package: str
    name: str
    read: Callable[[torch.nn.Module, str, tuple[int, ...]], ReadNeurons]
    leads: Callable[[torch.nn.Module], tuple[str, ...]]
    keeps_state: bool = True
    clear: Callable[[torch.nn.Module], object] = lambda module: None
    spike: Callable[[torch.nn.Module], float] = lambda module: 1.0
    gives: Callable[[torch.nn.Module], str] = lambda module: "spikes"
    weight: Callable[[torch.nn.Module], torch.Tensor | None] = lambda module: None
    decided_by: tuple[str, ...] = ("forward",)


def layer_error(module: torch.nn.Module, layer: str, text: str) -> ModelError:
    """Return an error about the neurons of `layer` that names the module's class."""
    return ModelError(f"layer {layer!r} ({type(module).__module__.partition('.')[0]} {type(module).__name__}): {text}")


def read_numbers(
    module: torch.nn.Module, layer: str, name: str, value, shape: tuple[int, ...], dtype=torch.float32
) -> float | np.ndarray:
    """Return `value`, which broadcasts to `[B, *shape]`, as one float if all are equal, else as an array of `shape`.

    The type is float32, as torch computes, unless `dtype` is given. Raises ModelError, naming the layer, if `value`
    does not broadcast.
    """
    value = torch.as_tensor(value, dtype=dtype).detach().cpu().numpy()
    if value.size and (value == value.flat[0]).all():
        return float(value.flat[0])
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0]
    try:
        return np.ascontiguousarray(np.broadcast_to(value, shape))
    except ValueError:
        raise layer_error(
            module, layer, f"{name} of shape {tuple(value.shape)} does not fit the layer's shape {shape}"
        ) from None


def is_strict(module: torch.nn.Module, layer: str, name: str, fire: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Return whether `fire`, the module's spike function of v - threshold, needs more than 0 to return 1.

    It is tried on numbers around 0. Raises ModelError if it is not a step from 0 to 1 there.
    """
    tiny = torch.finfo(torch.float32).tiny
    x = torch.tensor([-2.0, -1e-3, -tiny, 0.0, tiny, 1e-3, 2.0])
    with torch.no_grad():
        fired = [float(v) for v in fire(x)]
    if fired not in ([0.0] * 4 + [1.0] * 3, [0.0] * 3 + [1.0] * 4):
        stated = ", ".join(f"{v:g}" for v in fired)
        raise layer_error(
            module, layer, f"{name} gives {stated} for inputs from -2 to 2; it must step from 0 to 1 at 0, in eval mode"
        )
    return fired[3] == 0.0
