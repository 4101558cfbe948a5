"""Curves of a float neuron program: chains of operations on one value that whole numbers cannot express.

`1 / (1 + exp(-v))` is one curve of v, not three: its table is rounded once. A curve ends where its value is combined
with values other than constants and curves of the same argument.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from nwcompile.ir.neuron_programs.program import NeuronProgram, Operand, Operation, StateVariable
from nwcompile.sim.reference.program_step import MEANING

BENDS = ("exp", "tanh", "sqrt")  # also a division by a varying value
STRAIGHT = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "neg": "(-{0})",
}  # their notation within other expressions


@dataclass(frozen=True, eq=False)
class Curve:
    """A function of one value, the `argument`, given by `operations` and `constants`: numbers by name."""

    result: str
    argument: str
    operations: tuple[Operation, ...]
    constants: dict[str, float]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return its values in float64; not finite where undefined."""
        return np.asarray(self._evaluate_all(x)[self.result])

    def is_defined(self, x: np.ndarray) -> np.ndarray:
        """Return where its values are finite and no divisor changed its sign since the first of `x`."""
        values = self._evaluate_all(x)
        good = np.isfinite(values[self.result])
        for operation in self.operations:
            divisor = np.asarray(values.get(operation.operands[-1], 1.0))
            if operation.kind == "div" and divisor.ndim:
                good = good & (np.sign(divisor) == np.sign(divisor[0])) & (divisor != 0)
        return good

    def _evaluate_all(self, x: np.ndarray) -> dict:
        """Return the result of every operation."""
        values = {**self.constants, self.argument: np.asarray(x, np.float64)}

        def of(operand: Operand):
            return values[operand] if isinstance(operand, str) else np.float64(operand)

        with np.errstate(all="ignore"):
            for operation in self.operations:
                values[operation.result] = MEANING[operation.kind](*map(of, operation.operands))
        return values

    def __str__(self) -> str:
        """Return its formula, such as `exp((v - 0.8) / 0.5)`."""
        texts = {self.argument: self.argument} | {name: f"{value:.6g}" for name, value in self.constants.items()}
        for operation in self.operations:
            given = [texts[o] if isinstance(o, str) else f"{o:.6g}" for o in operation.operands]
            if operation.kind in BENDS:
                texts[operation.result] = f"{operation.kind}({_strip_brackets(given[0])})"
            else:
                texts[operation.result] = STRAIGHT[operation.kind].format(*given)
        return _strip_brackets(texts[self.result])


def _strip_brackets(text: str) -> str:
    """Remove the outer brackets."""
    return text[1:-1] if text.startswith("(") else text


def find_curves(program: NeuronProgram, learned: Collection[str] = ()) -> dict[str, Curve]:
    """Return the curves of a program from `use_inverses` that something else uses, by result.

    Parameters that are `learned` belong to no curve: a table stays fixed while they change.
    """
    lines = _follow_operations(program, learned)
    used = {o for operation in program.operations if operation.result not in lines.bent for o in operation.operands}
    used |= {program.output, *(state.next for state in program.states)}
    return {name: lines.build_curve(name) for name in lines.bent if name in used}


def find_curve_values(program: NeuronProgram, learned: Collection[str] = ()) -> set[Operand]:
    """Return the results that are on a curve, at its end or inside."""
    return set(_follow_operations(program, learned).bent)


def use_inverses(program: NeuronProgram, learned: Collection[str] = ()) -> NeuronProgram:
    """Replace each `a / b` that is no curve and whose b varies by `a * (1 / b)`."""
    lines = _follow_operations(program, learned)
    taken = {*program.inputs, *program.parameters, *program.state_names, *(o.result for o in program.operations)}
    inverses: dict[Operand, str] = {}
    operations: list[Operation] = []
    for operation in program.operations:
        given = operation.operands
        if operation.kind == "div" and lines.varies(given[1]) and operation.result not in lines.bent:
            if given[1] not in inverses:
                name = f"inverse_{given[1]}"
                while name in taken:
                    name += "_"
                taken.add(name)
                inverses[given[1]] = name
                operations.append(Operation(name, "div", (1.0, given[1])))
            operation = replace(operation, kind="mul", operands=(given[0], inverses[given[1]]))
        operations.append(operation)
    return program.replace(operations=tuple(operations))


def record_arguments(program: NeuronProgram, learned: Collection[str] = ()) -> NeuronProgram:
    """Return the same float program with further states for the `known_arguments`, with their values in every step."""
    arguments = known_arguments(use_inverses(program, learned), learned)
    return program.replace(states=(*program.states, *(StateVariable(*pair) for pair in arguments.items())))


def known_arguments(program: NeuronProgram, learned: Collection[str]) -> dict[str, str]:
    """Return the arguments of curves, and the inputs, by the name of the state that holds them."""
    arguments = {argument_state(name): curve.argument for name, curve in find_curves(program, learned).items()}
    return arguments | {argument_state(name): name for name in program.inputs}


def argument_state(result: str) -> str:
    """Return the name of the state that holds the argument of the curve that ends in `result`, or an input."""
    return f"argument_of_{result}"


def _follow_operations(program: NeuronProgram, learned: Collection[str]) -> "_Lines":
    lines = _Lines(program, learned)
    for operation in program.operations:
        lines.add_operation(operation)
    return lines


class _Lines:
    """Finds values that are linear functions or curves of another: `source` has that other value, `bent` the curves."""

    def __init__(self, program: NeuronProgram, learned: Collection[str]):
        self.parameters = set(program.parameters)
        numbers = {name: v for name, v in program.parameters.items() if np.ndim(v) == 0 and name not in learned}
        self.constants = {name: float(value) for name, value in numbers.items()}
        self.source: dict[Operand, Operand] = {}
        self.bent: list[str] = []
        self.made_by: dict[Operand, Operation] = {}

    def varies(self, operand: Operand) -> bool:
        """Return whether a value may differ between steps."""
        return isinstance(operand, str) and operand not in self.parameters

    def add_operation(self, operation: Operation) -> None:
        """Process the next operation."""
        others: list[Operand] = [o for o in operation.operands if isinstance(o, str) and o not in self.constants]
        sources = {self.source.get(o, o) for o in others}
        if len(sources) != 1 or not all(map(self.varies, others)):
            return
        is_bent = self._is_bent(operation.kind, others, divides=self.varies(operation.operands[-1]))
        if is_bent or operation.kind in STRAIGHT and len(others) == 1:
            self.source[operation.result] = sources.pop()
            self.made_by[operation.result] = operation
        if is_bent:
            self.bent.append(operation.result)

    def _is_bent(self, kind: str, varying: list[Operand], divides: bool) -> bool:
        """Return whether an operation on lines and curves of a value is a curve; `divides`: the divisor varies."""
        if kind in BENDS:
            return True
        if kind == "div" and divides:
            varying = varying[:-1]  # A numerator has to be a curve, or constant.
        elif kind not in STRAIGHT:
            return False
        return all(o in self.bent for o in varying)

    def build_curve(self, result: str) -> Curve:
        """Return the curve that ends in `result`."""
        argument, needed = self.source[result], set()
        waiting: list[Operand] = [result]
        while waiting:
            name = waiting.pop()
            if name in self.made_by and name not in needed:
                needed.add(name)
                waiting += self.made_by[name].operands
        operations = tuple(operation for name, operation in self.made_by.items() if name in needed)
        used = {o for operation in operations for o in operation.operands}
        constants = {name: value for name, value in self.constants.items() if name in used}
        return Curve(result, str(argument), operations, constants)
