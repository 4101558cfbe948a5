"""Following a step: what torch computes of a neuron's states and input, operation by operation, is its program."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nwcompile.errors import ModelError
from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operand, Operation, StateVariable
from nwcompile.ir.neuron_programs.ranges import ranges
from nwcompile.nn.neurons.aten import MAKERS, RULES

EXAMPLE = 1  # Neurons that a step is followed with: operations on one are operations on any.
READS_VALUE = ("_local_scalar_dense", "is_nonzero", "equal", "item")


class States:
    """The states of a neuron while its step is followed: a name that is read for the first time becomes a state."""

    def __init__(self, made: Callable[[str], torch.Tensor]):
        vars(self).update(_read={}, _made=made)

    def __getattr__(self, name: str) -> torch.Tensor:
        read = vars(self)["_read"]
        if name not in read:
            read[name] = vars(self)["_made"](name)
        return read[name]

    def __setattr__(self, name: str, value) -> None:
        raise AttributeError(f"state {name!r} cannot be set: a step gives its next states back, in a dict")


class Tracer(TorchDispatchMode):
    """Writes down the operations on tensors that follow from the states and the input.

    What torch computes of other tensors alone (parameters, and what was written as a tensor) is a parameter of the
    program; numbers stay numbers.
    """

    def __init__(self, name: str, is_fixed: bool, taken: set[str]):
        super().__init__()
        self.name, self.is_fixed, self.taken = name, is_fixed, taken
        self.dtype = torch.int64 if is_fixed else torch.float32
        self.operations: dict[tuple, Operation] = {}
        self.operand_of: dict[int, Operand] = {}  # by id of a tensor that follows from states or input
        self.parameter_of: dict[int, str] = {}  # by id of a tensor that does not
        self.parameters: dict[str, torch.Tensor] = {}
        self.made: set[int] = set()  # ids of tensors that torch filled with one number
        self.kept: list[torch.Tensor] = []  # no id is used twice while its tensor is kept
        self.truths: set[Operand] = set()  # of the operands

    def follow(self, tensor: torch.Tensor, operand: Operand) -> torch.Tensor:
        """From now on `tensor` is known as `operand`."""
        self.operand_of[id(tensor)] = operand
        self.kept.append(tensor)
        return tensor

    def refused(self, what: str, instead: str) -> ModelError:
        """The error for what no program can do."""
        return ModelError(f"neuron {self.name!r}: {what} is no operation of a neuron program; {instead}")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kind = func.overloadpacket.__name__
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        follows = any(id(t) in self.operand_of for t in tensors)
        if follows and kind in READS_VALUE:
            raise self.refused("control flow on a value (if, while, .item())", "choose with torch.where")
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise self.refused(f"a random number (torch's {kind})", "draw none: backends must agree")
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            if follows:
                raise self.refused(f"torch's {kind}", "use elementwise operations")
            return result
        if follows and kind.removesuffix("_") not in MAKERS:
            self._apply(kind, args, kwargs, result)
        elif kind.removesuffix("_") in MAKERS or all(id(t) in self.made for t in tensors):
            self.made.add(id(result))
            self.kept.append(result)
        return result

    def _apply(self, kind: str, args, kwargs, result: torch.Tensor) -> None:
        plain = kind if kind in RULES else kind.removesuffix("_")  # in place it is the same operation
        if plain not in RULES:
            raise self.refused(f"torch's {kind}", f"the elementwise ones are {', '.join(sorted(RULES))}")
        if result.dtype not in (self.dtype, torch.bool):
            numbers = "whole numbers" if self.is_fixed else "float32 numbers"
            raise self.refused(f"torch's {kind}, which makes {result.dtype} of {numbers}", "keep to one type")
        given = [self.operand(a) for a in args]
        named = {k: self.operand(v) for k, v in kwargs.items() if plain != "_to_copy"}
        operand = RULES[plain](self, *given, **named)
        if plain == "_to_copy" and operand in self.truths and result.dtype != torch.bool:
            operand = self.number("number", operand)
        elif result.dtype == torch.bool and operand not in self.truths:
            operand = self.truth("ne", operand, 0)
        self.follow(result, operand)

    def operand(self, value) -> Any:
        """A tensor as the name of its value, or as a number; anything else as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in self.operand_of:
            return self.operand_of[id(value)]
        if id(value) in self.made and bool((value == value.reshape(-1)[0]).all()):
            return value.reshape(-1)[0].item()
        if id(value) not in self.parameter_of:
            self.parameter_of[id(value)] = self._free("c")
            self.kept.append(value)
        name = self.parameter_of[id(value)]
        self.parameters.setdefault(name, value)
        return name

    def plain_number(self, value) -> Operand:
        """What a step gives back as an operand; of a truth value 0 or 1."""
        operand = self.operand(value)
        return self.number("number", operand) if operand in self.truths else self._literal(operand)

    def number(self, kind: str, *operands) -> Operand:
        """An operation on numbers; truth values among them become 0 and 1."""
        takes_truth = kind in ("select", "number")  # as its first operand
        numbers = [
            self.number("number", operand) if operand in self.truths and (i or not takes_truth) else operand
            for i, operand in enumerate(operands)
        ]
        return self._done(kind, numbers)

    def truth(self, kind: str, *operands) -> Operand:
        """A comparison of numbers."""
        result = self.number(kind, *operands)
        self.truths.add(result)
        return result

    def logical(self, kind: str, *operands) -> Operand:
        """An operation on truth values; of numbers whether they are not 0."""
        truths = [o if o in self.truths else self.truth("ne", o, 0) for o in operands]
        result = self._done(kind, truths)
        self.truths.add(result)
        return result

    def _done(self, kind: str, given: list) -> str:
        operands = tuple(self._literal(o) for o in given)
        key = (kind, *((type(o), o) for o in operands))
        if key not in self.operations:
            self.operations[key] = Operation(self._free("t"), kind, operands)
        return self.operations[key].result

    def _literal(self, operand: Operand) -> Operand:
        if isinstance(operand, str):
            return operand
        return int(operand) if self.is_fixed and operand == int(operand) else operand

    def _free(self, letter: str) -> str:
        n = 1
        while f"{letter}{n}" in self.taken:
            n += 1
        self.taken.add(f"{letter}{n}")
        return f"{letter}{n}"


def trace(
    step: Callable,
    name: str,
    parameters: dict[str, torch.Tensor],
    bits: int | dict[str, int] | None = None,
    overflow: str | dict[str, str] = "saturate",
    sends: str | None = None,
    initial: dict[str, Any] | None = None,
) -> NeuronProgram:
    """The program of `step(state, x, **parameters) -> (next states by name, what leaves)`.

    With `bits` (of all states, or by name) it computes in whole numbers, else in float. `sends`: what messages must
    tell, one of `neuron_program.SENDS`; not given, as little as the ranges of its operations allow. What leaves is None
    for a readout: its first state is read. Raises ModelError, naming what the step does that no program can.
    """
    tracer = Tracer(name, bits is not None, {INPUT, *parameters})
    tracer.parameter_of |= {id(value): key for key, value in parameters.items()}

    def made(state: str) -> torch.Tensor:
        if state in tracer.taken:
            raise ModelError(f"neuron {name!r}: {state!r} is the name of a state and of another value")
        tracer.taken.add(state)
        return tracer.follow(torch.zeros(EXAMPLE, dtype=tracer.dtype), state)

    states = States(made)
    with torch.no_grad(), tracer:
        given = step(states, tracer.follow(torch.ones(EXAMPLE, dtype=tracer.dtype), INPUT), **parameters)
        becomes, output = _given_back(name, states, given)
        operands = {key: tracer.plain_number(value) for key, value in becomes.items()}
        sent = next(iter(operands)) if output is None else tracer.plain_number(output)
    program = NeuronProgram(
        name=name,
        states=tuple(
            StateVariable(
                name=key,
                next=operand,
                initial=(initial or {}).get(key, 0),
                bits=bits.get(key) if isinstance(bits, dict) else bits,
                overflow=overflow.get(key, "saturate") if isinstance(overflow, dict) else overflow,
            )
            for key, operand in operands.items()
        ),
        operations=_needed(tracer.operations.values(), {sent, *operands.values()}),
        output=sent,
        sends="none" if output is None else sends or "graded",
        is_fixed=tracer.is_fixed,
        parameters={key: value.detach().cpu().numpy() for key, value in tracer.parameters.items()},
    )
    if sends is None and program.fires and isinstance(sent, str):
        reach = ranges(program, lambda text: ModelError(f"neuron {name!r}: {text}"))
        program = program.replace(sends=reach[sent].message)
    return program


def _given_back(name: str, states: States, given) -> tuple[dict, Any]:
    """The next states by name, and what leaves."""
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], dict):
        raise ModelError(
            f"neuron {name!r}: a step gives back its next states, in a dict by name, and what leaves (None for a "
            "readout): return {'v': v}, spike"
        )
    becomes, output = given
    if lost := [key for key in vars(states)["_read"] if key not in becomes]:
        raise ModelError(f"neuron {name!r}: state {lost[0]!r} is read, but the step does not give back its next value")
    if output is None and not becomes:
        raise ModelError(f"neuron {name!r}: it keeps no state and sends nothing")
    return becomes, output


def _needed(operations, used: set) -> tuple[Operation, ...]:
    """The operations that anything used follows from."""
    kept = []
    for operation in reversed(list(operations)):
        if operation.result in used:
            kept.append(operation)
            used |= set(operation.operands)
    return tuple(reversed(kept))
