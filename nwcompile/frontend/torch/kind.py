"""Describe how the recorder treats a neuron module of a framework, read its numbers, or trace its step.

A traced step becomes a neuron program, operation by operation. For each class, only the call of one step is written in
`kinds/`, so the numbers are the framework's own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Connection
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operand
from nwcompile.nn.neurons.trace import infer_message, trace

ERROR_CODE = "NW2303"
States = dict[str, torch.Tensor]
Step = Callable[[States, torch.Tensor], tuple[States, torch.Tensor | None]]
NEUTRAL = {"mul": {0: 1, 1: 1}, "div": {1: 1}, "add": {0: 0, 1: 0}, "sub": {1: 0}}  # by position of the operand


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


def one_step(_module: torch.nn.Module) -> tuple[str, ...]:
    """Return the leading axes of a module that takes one step."""
    return ("B",)


def all_steps(_module: torch.nn.Module) -> tuple[str, ...]:
    """Return the leading axes of a module that takes all steps."""
    return ("TB",)


def clear_buffers(module: torch.nn.Module, names: tuple[str, ...]) -> None:
    """Empty the buffers of these names that a module has; its next call makes them."""
    for name in names:
        buffer = module._buffers.get(name)
        if buffer is not None:
            module._buffers[name] = buffer.new_zeros(0)


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


def trace_step(module: torch.nn.Module, layer: str, shape: tuple[int, ...], step: Step, initial: dict) -> NeuronProgram:
    """Return the program of `step(states, x) -> (next states, output)` on tensors `[1, *shape]`; no output: a readout.

    `step` may change the module; the importer restores it. `initial`: the first value of each state, a number or a
    tensor `[1, *shape]`. Parameters keep their names in the module. Raises ModelError, naming the layer, for operations
    that no program can compute.
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    dtype = next((t.dtype for _, t in named if t.is_floating_point() and t.numel()), torch.get_default_dtype())
    parameters = {name.replace(".", "_"): t for name, t in named if name not in initial and t is not None}
    name = type(module).__name__
    try:
        program = trace(
            lambda state, x, **_: step({key: getattr(state, key) for key in initial}, x),
            name,
            parameters,
            initial={key: _read_numbers(module, layer, key, value, shape, dtype) for key, value in initial.items()},
            example=torch.zeros(1, *shape, dtype=dtype),
        )
    except ModelError as e:
        raise layer_error(module, layer, str(e).removeprefix(f"neuron {name!r}: ")) from None
    return simplify_program(program, lambda key, value: _read_numbers(module, layer, key, value, shape, dtype))


def simplify_program(program: NeuronProgram, read_constant: Callable[[str, torch.Tensor], object]) -> NeuronProgram:
    """Return a traced program without operations and states that change nothing, with the smallest kind of message.

    `read_constant(name, value)`: the number, or the array for the layer's shape, of a constant.
    """
    constants = {key: read_constant(key, torch.as_tensor(value)) for key, value in program.parameters.items()}
    program = _drop_unread_states(_drop_neutral_operations(program.replace(parameters=constants)))
    return program.replace(sends=infer_message(program)) if program.fires else program


def _read_numbers(module, layer, name, value, shape, dtype):
    value = torch.as_tensor(value, dtype=dtype)
    return read_numbers(module, layer, name, value[0] if value.ndim > len(shape) else value, shape, dtype)


def _drop_neutral_operations(program: NeuronProgram) -> NeuronProgram:
    """Remove operations that change no finite number: products with 1 and 0, sums with 0, a value minus itself."""
    known: dict[Operand, Operand] = {}  # result of a removed operation -> its value

    def resolve_operand(operand: Operand) -> Operand:
        return known.get(operand, operand) if isinstance(operand, str) else operand

    operations = []
    for operation in program.operations:
        operands = tuple(map(resolve_operand, operation.operands))
        values = [program.parameters.get(str(o), o) for o in operands]
        result = _known_result(operation.kind, operands, values)
        if operation.kind == "select" and not any(map(np.ndim, values)) and values[1:] == [1, 0]:
            operations.append(replace(operation, kind="number", operands=operands[:1]))
        elif result is None:
            operations.append(replace(operation, operands=operands))
        else:
            known[operation.result] = result
    states = tuple(replace(s, next=resolve_operand(s.next)) for s in program.states)
    return program.replace(operations=tuple(operations), states=states, output=resolve_operand(program.output))


def _known_result(kind: str, operands: tuple[Operand, ...], values: list) -> Operand | None:
    """Return an operation's result if it needs no computation, else None; `values` are the operands' numbers."""
    if kind == "sub" and operands[0] == operands[1]:
        return 0.0
    numbers = [None if isinstance(v, str | np.ndarray) else v for v in values]
    if kind == "mul" and 0 in numbers:
        return 0.0
    for place, number in NEUTRAL.get(kind, {}).items():
        if numbers[place] == number:
            return operands[1 - place]
    return None


def _drop_unread_states(program: NeuronProgram) -> NeuronProgram:
    """Remove states that nothing reads, and the operations that only they need."""
    becomes = {state.name: state.next for state in program.states}
    made_of = {operation.result: operation.operands for operation in program.operations}
    needed: set[Operand] = set()
    waiting: list[Operand] = [program.output]
    while waiting:
        operand = waiting.pop()
        if operand in needed or not isinstance(operand, str):
            continue
        needed.add(operand)
        waiting += [becomes[operand]] if operand in becomes else made_of.get(operand, ())
    return program.replace(
        operations=tuple(o for o in program.operations if o.result in needed),
        states=tuple(s for s in program.states if s.name in needed),
        parameters={name: value for name, value in program.parameters.items() if name in needed},
    )
