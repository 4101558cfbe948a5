"""What a neuron module of any framework is to the recorder, and how its numbers are read."""

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
    """What the neurons of one module compute: how they update, and their connections to themselves."""

    spec: NeuronSpec | NeuronProgram
    recurrent: tuple[Connection, ...] = ()


@dataclass(frozen=True)
class Kind:
    """How the calls of one class of neuron modules are read.

    `package` and `name`: where the class is defined; the package is not imported. `read(module, layer, shape)` gives
    the neurons of a module whose layer has that shape. `leads(module)`: what the axes of its input may begin with:
    "B" one step, "BT" or "TB" all steps, "B*T" or "T*B" all steps in one axis. `keeps_state`: a call without states
    goes on from the call before. `clear(module)` makes it forget. `spike(module)`: the number that a spike is.
    `gives(module)`: "spikes", one at most; "counts", several in a step; or "membrane", as it never fires.
    `weight(module)`: of its own, `[n, n_in]`, that its input is multiplied with first, or None.
    `decided_by`: methods that a subclass must leave as they are to be read like this class.
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
    """An error about the neurons of `layer` that names the module's class."""
    return ModelError(f"layer {layer!r} ({type(module).__module__.partition('.')[0]} {type(module).__name__}): {text}")


def read_numbers(
    module: torch.nn.Module, layer: str, name: str, value, shape: tuple[int, ...], dtype=torch.float32
) -> float | np.ndarray:
    """`value` (a number, or a tensor that broadcasts to `[B, *shape]`) as one float where all are equal, else `shape`.

    float32, as torch computes with it, unless `dtype` is another. Raises ModelError, naming the layer, where it does
    not broadcast.
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
    """Whether `fire`, the module's spike function of v - threshold, needs more than 0 to give 1.

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
