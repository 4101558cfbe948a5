"""Units of a float neuron program: which of its numbers grow with the synaptic input, by dimensional analysis.

A program whose input, membranes and thresholds can be measured in any unit gives the same spikes in each: its layer has
a scale. The unit of a value is the exponent of that scale: 1 for values like the membrane, 0 for dimensionless ones.
Values that are added or compared have the same unit, units of factors add up, and operands and results of exp are
dimensionless, as are spikes. A constant has the unit that this requires. Without a requirement, a state counts as a
membrane and a constant as dimensionless: the spikes do not depend on it.

Two kinds of states are exact: those that only count, and those that only add up the synaptic input.
"""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, log2

import numpy as np

from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operand, Operation
from nwcompile.passes.quantize.program_curves import Curve, argument_state, find_curves, known_arguments, use_inverses

ALIKE = ("add", "sub", "min", "max", "neg", "abs", "select")  # operands and result have one unit
COMPARED = ("lt", "le", "eq", "ne")
NUMBERS_ONLY = ("exp", "tanh", "floor", "trunc")  # operands and result are dimensionless
Equation = dict[Hashable, Fraction]  # the sum of unit times factor is 0; the key ONE holds a constant
ONE = None
SAME = (*ALIKE, *COMPARED)  # whole if operands are
WHOLE = ("floor", "trunc", "number", "sign")  # whole for any operand


@dataclass(frozen=True, eq=False)
class Units:
    """The unit of every value of a program by its name, and of each plain number by (result, operand position).

    `has_scale`: all inputs have unit 1, so that the layer may have any scale; otherwise nothing has a unit. `unbound`:
    states whose unit does not follow from the input's, and is assumed to be 1.
    """

    of: dict[Hashable, Fraction]
    has_scale: bool
    unbound: frozenset[str]

    def __getitem__(self, name: Hashable) -> float:
        return float(self.of.get(name, 0))


def find_units(program: NeuronProgram, without: Iterable[str] = ()) -> Units:
    """Return the units of a float program; `without`: states and parameters that must be dimensionless (counts)."""
    asked: list[Equation] = [*_unit_equations(program)]
    asked += [{name: Fraction(1)} for name in without]
    asked += [{name: Fraction(1), ONE: Fraction(-1)} for name in program.inputs]
    system = _Equations()
    if not all(system.add_equation(equation) for equation in asked):
        return Units({}, False, frozenset())
    for name in program.state_names:
        system.add_equation({name: Fraction(1), ONE: Fraction(-1)})  # Refused if it already has a unit.
    constants: list[Equation] = [{name: Fraction(1)} for name in (*_number_places(program), *program.parameters)]
    plain = [equation for equation in constants if system.add_equation(equation)]
    for operation in program.operations:
        system.add_equation({operation.result: Fraction(1)})
    follows = _Equations()
    for equation in (*asked, *plain):
        follows.add_equation(equation)
    if any((system.solve_unit(name) or Fraction(0)).denominator > 1 for name in program.state_names):
        return Units({}, False, frozenset())  # A root of the scale is no sensible unit.
    names = {*program.inputs, *program.state_names, *program.parameters, *_number_places(program)}
    names |= {operation.result for operation in program.operations}
    solved = {name: system.solve_unit(name) for name in names}
    unbound = frozenset(name for name in program.state_names if follows.solve_unit(name) is None)
    return Units({name: unit for name, unit in solved.items() if unit is not None}, True, unbound)


def scale_program(program: NeuronProgram, measures: Units, factor: float) -> NeuronProgram:
    """Return the same program for input times `factor`: constants are scaled by `factor` to the power of their unit."""

    def scaled(value, name: Hashable):
        unit = measures[name]
        return value if unit == 0 else np.asarray(value, np.float64) * factor**unit

    def constant(operand: Operand, of: str, place: int) -> Operand:
        value = operand if isinstance(operand, str) else scaled(operand, (of, place))
        return value if isinstance(value, str | int | float) else float(value)

    operations = (
        replace(o, operands=tuple(constant(given, o.result, i) for i, given in enumerate(o.operands)))
        for o in program.operations
    )
    states = (replace(s, next=constant(s.next, s.name, -1), initial=scaled(s.initial, s.name)) for s in program.states)
    return program.replace(
        operations=tuple(operations),
        states=tuple(states),
        parameters={name: scaled(value, name) for name, value in program.parameters.items()},
    )


def _number_places(program: NeuronProgram) -> list[Hashable]:
    """Return every position of a plain number."""
    places: list[Hashable] = [
        (o.result, i) for o in program.operations for i, given in enumerate(o.operands) if not isinstance(given, str)
    ]
    return [*places, *((s.name, -1) for s in program.states if not isinstance(s.next, str))]


def _unit_equations(program: NeuronProgram) -> Iterable[Equation]:
    """Yield the equations that operations require of units."""
    one = Fraction(1)
    for operation in program.operations:
        given: list[Hashable] = [
            o if isinstance(o, str) else (operation.result, i) for i, o in enumerate(operation.operands)
        ]
        yield from _operation_equations(operation, given)
    for state in program.states:
        becomes = state.next if isinstance(state.next, str) else (state.name, -1)
        yield _equate_units(state.name, becomes)
    if program.fires:
        yield {program.output: one}


def _operation_equations(operation: Operation, given: list[Hashable]) -> Iterable[Equation]:
    kind, result, one = operation.kind, operation.result, Fraction(1)
    if kind in ALIKE:
        for other in given[kind == "select" :]:
            yield _equate_units(result, other)
    elif kind in COMPARED:
        yield _equate_units(*given)
    elif kind in ("mul", "div"):
        yield _collect_terms([(result, -one), (given[0], one), (given[1], one if kind == "mul" else -one)])
    elif kind in NUMBERS_ONLY:
        yield {given[0]: one}
        yield {result: one}
    elif kind == "sqrt":
        yield _collect_terms([(result, 2 * one), (given[0], -one)])
    elif kind in ("sign", "number"):
        yield {result: one}


def _equate_units(left: Hashable, right: Hashable) -> Equation:
    return _collect_terms([(left, Fraction(1)), (right, Fraction(-1))])


def _collect_terms(terms: list[tuple[Hashable, Fraction]]) -> Equation:
    equation: Equation = {}
    for name, factor in terms:
        equation[name] = equation.get(name, Fraction(0)) + factor
    return {name: factor for name, factor in equation.items() if factor}


class _Equations:
    """Linear equations, solved incrementally: each row expresses one unit by others that are still open."""

    def __init__(self):
        self.rows: dict[Hashable, Equation] = {}  # a unit is the sum of the terms of its row

    def add_equation(self, equation: Equation) -> bool:
        """Add an equation; return False and ignore it if it contradicts earlier ones."""
        for name in list(equation):
            if name in self.rows:
                equation = self._substitute_row(equation, name, self.rows[name])
        rest = dict(equation)
        name = next((n for n in rest if n is not ONE), None)
        if name is None:
            return not rest
        factor = rest.pop(name)
        row = {n: -f / factor for n, f in rest.items()}
        self.rows = {n: self._substitute_row(terms, name, row) for n, terms in self.rows.items()}
        self.rows[name] = row
        return True

    def solve_unit(self, name: Hashable) -> Fraction | None:
        """Return the unit, or None if it is still open."""
        row = self.rows.get(name)
        return row.get(ONE, Fraction(0)) if row is not None and not set(row) - {ONE} else None

    @staticmethod
    def _substitute_row(terms: Equation, name: Hashable, row: Equation) -> Equation:
        """Substitute a unit by its row."""
        if name not in terms:
            return terms
        factor = terms[name]
        others = [(n, f) for n, f in terms.items() if n != name]
        return _collect_terms([*others, *((n, factor * f) for n, f in row.items())])


@dataclass(frozen=True, eq=False)
class Measured:
    """A float program `given` in the units of the chip: `program`, whose numbers are scaled by `factor`.

    Each number is scaled by `factor` to the power of its unit. `states`: those of its float run in the same units, or
    None. `unit`: weight units per unit of the float program's input. `learned`: parameters that are trained.
    """

    given: NeuronProgram
    program: NeuronProgram
    units: Units
    factor: float
    unit: float
    states: dict[str, np.ndarray] | None
    learned: frozenset[str]

    @classmethod
    def from_program(
        cls, program: NeuronProgram, unit: float, states: dict[str, np.ndarray] | None, learned: Collection[str] = ()
    ) -> "Measured":
        """Choose the factor, 0.5..1, for which a weight unit is a power of two, if the program has a scale."""
        whole = use_inverses(program, learned)
        measures = find_units(whole, find_counts(program, learned) & set(program.state_names))
        factor = unit * 2.0 ** floor(-log2(unit)) if measures.has_scale else 1.0
        arguments = known_arguments(whole, learned)
        seen = states and {
            name: array * factor ** measures[arguments.get(name, name)] for name, array in states.items()
        }
        return cls(
            given=whole,
            program=scale_program(whole, measures, factor),
            units=measures,
            factor=factor,
            unit=unit,
            states=seen,
            learned=frozenset(learned),
        )

    @property
    def gain(self) -> float:
        """The value of a weight unit in these units."""
        return self.factor / self.unit

    def find_curves(self) -> dict[str, Curve]:
        """Return the curves of the given program, by result."""
        return find_curves(self.given, self.learned)

    def per_unit(self, name: str) -> float:
        """Return the scale of a value of the float program."""
        return self.factor ** self.units[name]

    def seen_range(self, curve: Curve) -> tuple[float, float] | None:
        """Return the smallest and largest argument of a curve in the samples."""
        if self.states is None:
            return None
        values = self.states[argument_state(curve.result)]
        return float(values.min()), float(values.max())

    def state_formats(self, fraction_bits: int) -> list[dict]:
        """Return each state's unit, and integer units per unit of the float program."""
        sums, whole, rows = set(input_sums(self.program).values()), find_counts(self.program, self.learned), []
        for name in self.given.state_names:
            if name in sums:
                text, scale = "weights", self.unit
            elif name in whole:
                text, scale = "count", 1.0
            else:
                text, scale = self.describe_unit(name), 2.0**fraction_bits * self.per_unit(name)
            rows.append({"state": name, "unit": text, "scale": scale})
        return rows

    def describe_unit(self, name: str) -> str:
        """Return the unit of a state or parameter as text."""
        unit = self.units.of.get(name, Fraction(0))
        text = "dimensionless" if unit == 0 else "membrane" if unit == 1 else f"membrane^{unit}"
        return f"{text}, taken" if name in self.units.unbound else text


def input_sums(program: NeuronProgram) -> dict[str, str]:
    """Return states that only add up the synaptic input, by the sum's name; none if the input has another use.

    There are none in neurons with several inputs.
    """
    sums = {}
    for operation in program.operations if len(program.inputs) == 1 else ():
        if INPUT in operation.operands:
            (state,) = (o for o in operation.operands if o != INPUT) if len(set(operation.operands)) == 2 else (None,)
            becomes = {s.name for s in program.states if s.next == operation.result}
            if operation.kind != "add" or state not in becomes:
                return {}
            sums[operation.result] = state
    return sums


def find_counts(program: NeuronProgram, learned: Collection[str] = ()) -> set[str]:
    """Return states, and parameters used only with them, that are always whole numbers, except `learned` ones."""
    whole = {s.name for s in program.states if _is_whole(s.initial)}
    while True:
        fixed = {name: value for name, value in program.parameters.items() if name not in learned}
        values = {name for name, value in fixed.items() if _is_whole(value)} | whole
        for operation in program.operations:
            numbers = operation.operands[operation.kind == "select" :]
            alike = operation.kind in (*SAME, "mul") and all(_is_whole_operand(o, values) for o in numbers)
            if operation.kind in WHOLE or alike:
                values.add(operation.result)
        kept = {s.name for s in program.states if s.name in whole and _is_whole_operand(s.next, values)}
        if kept == whole:
            break
        whole = kept
    mixed = {
        o
        for operation in program.operations
        for o in operation.operands
        if not all(_is_whole_operand(other, values) for other in operation.operands[operation.kind == "select" :])
    }
    return (whole | ({name for name in program.parameters if name in values} - mixed)) if whole else set()


def _is_whole(value) -> bool:
    return bool((np.asarray(value) == np.trunc(value)).all())


def _is_whole_operand(operand: Operand, whole: set) -> bool:
    return operand in whole if isinstance(operand, str) else operand == int(operand)
