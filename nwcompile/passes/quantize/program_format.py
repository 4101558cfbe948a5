"""Convert a float neuron program to whole numbers: values have bits after the point, and operations work on integers.

A value is either a whole number (a spike, a sign, a count) or has `fraction_bits`. Products of two such values are
shifted back, rounded toward 0 like the decays of built-in neurons; other operations stay the same on whole numbers.
Operations without an integer form (exp, tanh, sqrt, divisions by varying values) are read from tables. A state that
only adds up the synaptic input stays in weight units, so that sums are never rounded.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operand, Operation
from nwcompile.ir.neuron_programs.ranges import LONGEST_SHIFT
from nwcompile.passes.quantize.program_curves import Curve, find_curve_values, find_curves, use_inverses
from nwcompile.passes.quantize.program_tables import CurveTable
from nwcompile.passes.quantize.program_units import SAME, find_counts, input_sums

OF_TRUTHS = ("and", "or", "not")
COMPARED = ("lt", "le")
GAIN = "input_gain"  # The parameter by which a synaptic sum is multiplied.
COEFFICIENT_BITS = 16  # Width of a number that values are multiplied by; finer than the 12 bits of a built-in leak.
TableMaker = Callable[[Curve, int], CurveTable]  # from a curve and the bits after the point of its argument
GAIN_BITS = 14  # Width of the gain: its rounding error is far below that of the weights.


@dataclass(frozen=True, eq=False)
class Whole:
    """A float program in whole numbers: `program`, and the bits after the point of each of its values.

    `inverses`: by parameter used as a divisor, the parameter that holds its inverse. `compared`: by the result of a
    comparison, the value of the float program that it compares.
    """

    program: NeuronProgram
    fractions: dict[str, int]
    inverses: dict[str, str]
    compared: dict[str, str]

    @property
    def parameter_bits(self) -> dict[str, int]:
        """The bits after the point of parameters of the float program, and of their inverses."""
        return {name: self.fractions[name] for name in self.program.parameters if name in self.fractions}

    def compared_units(self, per_unit: Callable[[str], float]) -> tuple[float, ...]:
        """Return, for each operation, the float program's value of 1 in the difference that it compares; 0 for others.

        `per_unit(name)` returns the scale of a value of the float program before the conversion to whole numbers.
        """
        return tuple(
            2.0 ** -max(self.fractions.get(str(o), 0) for o in operation.operands)
            / per_unit(self.compared[operation.result])
            if operation.kind in COMPARED
            else 0.0
            for operation in self.program.operations
        )


def verify_divisors(program: NeuronProgram) -> None:
    """Raise ModelError for a division by a constant whose inverse is not finite."""
    for operation in program.operations:
        divisor = operation.operands[-1]
        value = program.parameters.get(divisor) if isinstance(divisor, str) else divisor
        if operation.kind != "div" or value is None:
            continue
        with np.errstate(all="ignore"):
            is_finite = np.isfinite(1 / np.asarray(value, np.float64))
        if not is_finite.all():
            worst = np.asarray(value)[~is_finite].flat[0]
            whose = f"{divisor!r}, which is {worst:g}" if isinstance(divisor, str) else f"{worst:g}"
            raise ModelError(
                f"program {program.name!r}: {operation} divides by {whose}; its inverse is not finite, so give it "
                "another value"
            )


def to_whole_numbers(
    program: NeuronProgram,
    fraction_bits: int,
    state_bits: int,
    gain: float,
    learned: Collection[str] = (),
    parameter_bits: Mapping[str, int] | None = None,
    table_of: TableMaker | None = None,
) -> Whole:
    """Convert the program to synaptic sums in weight units; one weight unit is `gain` of the float program's input.

    Parameters that are `learned` may change later. With `parameter_bits` of an earlier conversion, the operations do
    not depend on the parameters' values. `table_of` builds the tables of curves. Raises ModelError, naming the
    operation, for operations that whole numbers lack.
    """
    program = use_inverses(program, learned)
    converter = _Converter(program, fraction_bits, learned, parameter_bits or {}, table_of)
    converter.read_input(gain, state_bits)
    for operation in program.operations:
        converter.convert_operation(operation)
    states = tuple(replace(s, bits=state_bits, **converter.to_state(s.name, s.next, s.initial)) for s in program.states)
    output = program.output
    if program.fires:
        output = converter.renamed.get(output, output)
        if converter.bits_of(output):
            raise ModelError(
                f"program {program.name!r} sends {program.output!r}, a number that is not whole; messages of chips "
                "carry whole numbers: send spikes (nw.convert turns the ReLUs of a network into spiking neurons), or "
                "write the program with whole numbers (bits=)"
            )
    whole = program.replace(
        states=states,
        operations=tuple(converter.operations),
        output=output,
        is_fixed=True,
        parameters=converter.parameters,
        tables=converter.tables,
    )
    return Whole(_drop_unused(whole, learned), converter.fractions, converter.inverses, converter.compared)


def _drop_unused(program: NeuronProgram, learned: Collection[str]) -> NeuronProgram:
    """Remove operations without an effect, and parameters that only they used."""
    used = {program.output, *(state.next for state in program.states)}
    kept = []
    for operation in reversed(program.operations):
        if operation.result in used:
            kept.append(operation)
            used |= set(operation.operands)
    left = {o for operation in program.operations for o in operation.operands} - used - {*learned}
    parameters = {name: value for name, value in program.parameters.items() if name not in left}
    return program.replace(operations=tuple(reversed(kept)), parameters=parameters)


def _coefficient_bits(value) -> int:
    """Return the bits after the point with which the largest coefficient has COEFFICIENT_BITS."""
    largest = float(np.abs(np.asarray(value, np.float64)).max())
    return max(int(COEFFICIENT_BITS - np.ceil(np.log2(largest))), 0) if largest else COEFFICIENT_BITS


class _Converter:
    """Collects the operations on whole numbers."""

    def __init__(
        self,
        program: NeuronProgram,
        fraction_bits: int,
        learned: Collection[str],
        parameter_bits: Mapping[str, int],
        table_of: TableMaker | None,
    ):
        self.table_of, self.curves = table_of, find_curves(program, learned)
        self.inside = find_curve_values(program, learned) - self.curves.keys()
        self.tables: dict[str, np.ndarray] = {}
        self.compared: dict[str, str] = {}
        self.program, self.fraction_bits, self.parameter_bits = program, fraction_bits, parameter_bits
        self.fractions = dict.fromkeys((*program.parameters, *program.state_names), fraction_bits)
        sums = (operation for operation in program.operations if operation.kind not in ("mul", "div"))
        others = {o for operation in sums for o in operation.operands}
        others |= {program.output, *(state.next for state in program.states)}
        factors = {name: value for name, value in program.parameters.items() if name not in others}
        self.fractions |= {name: _coefficient_bits(value) for name, value in factors.items()}
        self.sums = input_sums(program)
        self.fractions |= dict.fromkeys(find_counts(program, learned) - set(self.sums.values()), 0)
        self.fractions |= {name: bits for name, bits in parameter_bits.items() if name in program.parameters}
        self.inverses: dict[str, str] = {}  # by the parameter that is the divisor
        self.exact: dict[Operand, str] = {}  # names of sums of input in weight units
        self.parameters = {
            name: self.round_value(value, self.fractions[name]) for name, value in program.parameters.items()
        }
        self.operations: list[Operation] = []
        self.renamed: dict[Operand, Operand] = {}  # names that hold the values of the float program
        self.taken = {*program.inputs, *self.fractions, *(o.result for o in program.operations)}

    def round_value(self, value, bits: int | None = None):
        """Round a number, or an array, to `bits` after the point; by default, to those of states."""
        bits = self.fraction_bits if bits is None else bits
        return np.rint(np.asarray(value, np.float64) * 2.0**bits).astype(np.int64)

    def read_input(self, gain: float, state_bits: int) -> None:
        """Choose the gain, and convert synaptic sums, or states that add one up, to values with bits after the point.

        They are shifted if a weight unit is a power of two, otherwise multiplied.
        """
        factor = gain * 2.0**self.fraction_bits
        self.gain, self.top = gain, (1 << (state_bits - 1)) - 1
        self.shift = int(np.log2(factor)) if float(np.log2(factor)).is_integer() else None
        self.gain_shift = int(np.clip(GAIN_BITS - np.ceil(np.log2(factor)), 0, 40))
        if self.shift is None:
            self.gain_name = self._free_name(GAIN)
            self.parameters[self.gain_name] = np.int64(np.rint(factor * 2.0**self.gain_shift))
        if not self.sums:
            self.renamed |= {name: self._weigh_sum(name) for name in self.program.inputs}
        others = (o for o in self.program.operations if o.result not in self.sums)
        read = {name for o in others for name in o.operands}
        for state in self.sums.values():
            if state in read:
                self.renamed[state] = self._weigh_sum(state)

    def _weigh_sum(self, operand: str) -> str:
        """Convert a number in weight units to a value with bits after the point, which saturates like a state."""
        bits = self.fraction_bits
        if self.shift is None:
            product = self._add_operation("mul", (operand, self.gain_name), bits + self.gain_shift)
            value = self.align_bits(product, bits)
        else:
            value = self._add_operation("shr0" if self.shift < 0 else "shl", (operand, abs(self.shift)), bits)
        below = self._add_operation("min", (value, self.top), bits)
        return self._add_operation("max", (below, -self.top), bits)

    def to_state(self, name: str, becomes: Operand, initial) -> dict:
        """Return a state's next and initial value: in weight units, whole, or with bits after the point."""
        if name in self.sums.values():
            return {"next": self.exact[becomes], "initial": self.round_value(np.asarray(initial) / self.gain, 0)}
        bits = self.fractions[name]
        return {"next": self.align_bits(becomes, bits), "initial": self.round_value(initial, bits)}

    def bits_of(self, operand: Operand) -> int:
        """Return the bits after the point of a value of the integer program, or those that a number needs."""
        if isinstance(operand, str):
            return self.fractions.get(operand, 0)
        return 0 if operand == int(operand) else self.fraction_bits

    def align_bits(self, operand: Operand, bits: int) -> Operand:
        """Return the operand with `bits` after the point."""
        operand = self.renamed.get(operand, operand)
        if not isinstance(operand, str):
            return int(np.rint(operand * 2.0**bits))
        more = bits - self.bits_of(operand)
        if more == 0:
            return operand
        if -more > LONGEST_SHIFT:
            return 0  # no number has so many bits
        return self._add_operation("shl" if more > 0 else "shr0", (operand, abs(more)), bits)

    def convert_operation(self, operation: Operation) -> None:
        """Convert one operation of the float program."""
        if operation.result in self.sums:
            total = self._add_operation("add", (self.sums[operation.result], INPUT), 0)
            self.exact[operation.result] = total
            self.renamed[operation.result] = self._weigh_sum(total)
            return
        if operation.result in self.inside:
            return
        if operation.result in self.curves:
            self.renamed[operation.result] = self._add_lookup(self.curves[operation.result])
            return
        kind, given = operation.kind, [self.renamed.get(o, o) for o in operation.operands]
        if kind == "mul":
            result = self._add_product(given)
        elif kind == "div":
            result = self._add_quotient(operation, given)
        elif kind in OF_TRUTHS or kind == "number" or kind == "sign":
            result = self._add_operation(kind, tuple(given), 0)
        elif kind in ("floor", "trunc"):
            shift = "shr" if kind == "floor" else "shr0"
            bits = self.bits_of(given[0])
            result = self._add_operation(shift, (given[0], bits), 0) if bits else given[0]
        elif kind in SAME:
            result = self._add_aligned(kind, given)
        else:
            raise ModelError(
                f"program {self.program.name!r}: {operation}: chips compute in whole numbers, which have no {kind!r}; "
                "write it as sums and products, or compute it outside of the step"
            )
        self.renamed[operation.result] = result
        if kind in COMPARED:
            self.compared[str(result)] = str(next((o for o in operation.operands if isinstance(o, str)), ""))

    def _add_lookup(self, curve: Curve) -> str:
        """Return the value of a curve, read from its table."""
        assert self.table_of is not None, "a program with curves needs tables"
        argument = str(self.renamed.get(curve.argument, curve.argument))
        made = self.table_of(curve, self.bits_of(argument))
        name = self._free_name(f"table_{curve.result}")
        self.tables[name] = made.entries
        below = self._add_operation("min", (argument, made.last), made.argument_bits)
        within = self._add_operation("max", (below, made.first), made.argument_bits)
        at = self._add_operation("sub", (within, made.first), made.argument_bits)
        return self._add_operation("table", (name, at, made.step_bits), made.result_bits)

    def _add_aligned(self, kind: str, given: list[Operand]) -> Operand:
        truth = given[:1] if kind == "select" else []
        numbers = given[len(truth) :]
        bits = min(max(self.bits_of(o) for o in numbers), self.fraction_bits)
        numbers = [self.align_bits(o, bits) for o in numbers]
        return self._add_operation(kind, (*truth, *numbers), bits)

    def _add_product(self, given: list[Operand]) -> Operand:
        """Return a product, shifted back to the bits after the point of its operands."""
        bits = [self.bits_of(o) for o in given]
        for i, number in enumerate(given):
            if not isinstance(number, str) and bits[i] and bits[1 - i]:
                bits[i] = _coefficient_bits(number)
        factors = (self.align_bits(o, b) for o, b in zip(given, bits, strict=True))
        product = self._add_operation("mul", tuple(factors), sum(bits))
        return self.align_bits(product, min(sum(bits), self.fraction_bits))

    def _add_quotient(self, operation: Operation, given: list[Operand]) -> Operand:
        """Return a division by a constant, as a product with its inverse."""
        divisor = given[1]
        if divisor in self.program.parameters:
            return self._add_product([given[0], self._inverse_parameter(str(divisor))])
        assert not isinstance(divisor, str), f"{operation}: divisors that vary have tables"
        return self._add_product([given[0], 1 / divisor])

    def _inverse_parameter(self, divisor: str) -> str:
        """Return the parameter that holds the inverse of a parameter."""
        if divisor not in self.inverses:
            name = self.inverses[divisor] = self._free_name(f"inverse_{divisor}")
            inverse = 1 / np.asarray(self.program.parameters[divisor], np.float64)
            self.fractions[name] = self.parameter_bits.get(name, _coefficient_bits(inverse))
            self.parameters[name] = self.round_value(inverse, self.fractions[name])
        return self.inverses[divisor]

    def _add_operation(self, kind: str, operands: tuple[Operand, ...], bits: int) -> str:
        """Add an operation unless it exists, and return the name of its result."""
        for done in self.operations:
            if (done.kind, done.operands) == (kind, operands):
                return done.result
        name = self._free_name(f"q{len(self.operations) + 1}")
        self.operations.append(Operation(name, kind, operands))
        self.fractions[name] = bits
        return name

    def _free_name(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name
