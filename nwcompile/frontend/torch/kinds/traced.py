"""Trace neurons of the frameworks into neuron programs: a module's own step, operation by operation.

For each class, only the call of one step is written here, so the numbers are the framework's own.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.kind import layer_error, read_numbers
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operand
from nwcompile.nn.neurons.trace import infer_message, trace

States = dict[str, torch.Tensor]
Step = Callable[[States, torch.Tensor], tuple[States, torch.Tensor | None]]
NEUTRAL = {"mul": {0: 1, 1: 1}, "div": {1: 1}, "add": {0: 0, 1: 0}, "sub": {1: 0}}  # by position of the operand


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
        result = _known_result(operation.kind, operands, [program.parameters.get(str(o), o) for o in operands])
        if result is None:
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
