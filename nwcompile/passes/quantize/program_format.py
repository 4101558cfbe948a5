"""A float neuron program in whole numbers: every value with so many bits after the point, each operation in its place.

A value is either a whole number (a spike, a sign) or has `fraction_bits`. Products of two that have them are shifted
back, rounded toward 0 as the decays of built-in neurons are; the rest is the same operation on whole numbers.
"""

from dataclasses import replace

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operand, Operation

SAME = ("add", "sub", "min", "max", "neg", "abs", "select", "lt", "le", "eq", "ne")  # of values alike
OF_TRUTHS = ("and", "or", "not")
GAIN = "input_gain"  # The parameter that a synaptic sum is multiplied with.
COEFFICIENT_BITS = 16  # Of a number that values are multiplied with; finer than the 12 bits of a built-in leak.
GAIN_BITS = 14  # Bits of the gain: its rounding is far below that of the weights.


def in_whole_numbers(program: NeuronProgram, fraction_bits: int, state_bits: int, gain: float) -> NeuronProgram:
    """The program on synaptic sums in weight units, of which one is `gain` of the float program's input.

    Raises ModelError, naming the operation, for what whole numbers have no operation for.
    """
    converter = _Converter(program, fraction_bits)
    converter.read_input(gain, state_bits)
    for operation in program.operations:
        converter.add(operation)
    fine = {state.name: converter.aligned(state.next, fraction_bits) for state in program.states}
    states = tuple(
        replace(s, next=fine[s.name], initial=converter.rounded(s.initial), bits=state_bits) for s in program.states
    )
    output = program.output
    if program.fires:
        output = converter.renamed.get(output, output)
        if converter.bits_of(output):
            raise ModelError(
                f"program {program.name!r} sends {program.output!r}, a number that is not whole; messages of chips "
                "carry whole numbers: send spikes, or write the program with whole numbers (bits=)"
            )
    whole = program.replace(
        states=states,
        operations=tuple(converter.operations),
        output=output,
        is_fixed=True,
        parameters=converter.parameters,
    )
    return whole


def _coefficients(program: NeuronProgram) -> set[str]:
    """The parameters that values are multiplied with, and nothing else."""
    others = {o for operation in program.operations if operation.kind not in ("mul", "div") for o in operation.operands}
    others |= {program.output, *(state.next for state in program.states)}
    return {name for name in program.parameters if name not in others}


def _coefficient_bits(value) -> int:
    """Bits after the point with which the largest of some coefficients has COEFFICIENT_BITS."""
    largest = float(np.abs(np.asarray(value, np.float64)).max())
    return max(int(COEFFICIENT_BITS - np.ceil(np.log2(largest))), 0) if largest else COEFFICIENT_BITS


class _Converter:
    """Collects the operations on whole numbers."""

    def __init__(self, program: NeuronProgram, fraction_bits: int):
        self.program, self.fraction_bits = program, fraction_bits
        self.fractions = dict.fromkeys((*program.parameters, *program.state_names), fraction_bits)
        self.fractions |= {name: _coefficient_bits(program.parameters[name]) for name in _coefficients(program)}
        self.parameters = {
            name: self.rounded(value, self.fractions[name]) for name, value in program.parameters.items()
        }
        self.operations: list[Operation] = []
        self.renamed: dict[Operand, Operand] = {}  # what holds the value of the float program's
        self.taken = {INPUT, *self.fractions, *(o.result for o in program.operations)}

    def rounded(self, value, bits: int | None = None):
        """A number, or an array, with so many bits after the point; those of states unless said."""
        bits = self.fraction_bits if bits is None else bits
        return np.rint(np.asarray(value, np.float64) * 2.0**bits).astype(np.int64)

    def read_input(self, gain: float, state_bits: int) -> None:
        """The synaptic sum as a value with bits after the point, which saturates as a state does."""
        factor = gain * 2.0**self.fraction_bits
        shift = int(np.clip(GAIN_BITS - np.ceil(np.log2(factor)), 0, 40))
        name = self._free(GAIN)
        self.parameters[name] = np.int64(np.rint(factor * 2.0**shift))
        shifted = self.aligned(self._done("mul", (INPUT, name), self.fraction_bits + shift), self.fraction_bits)
        top = (1 << (state_bits - 1)) - 1
        below = self._done("min", (shifted, top), self.fraction_bits)
        self.renamed[INPUT] = self._done("max", (below, -top), self.fraction_bits)

    def bits_of(self, operand: Operand) -> int:
        """Bits after the point of a value of the program on whole numbers, or those that a number needs."""
        if isinstance(operand, str):
            return self.fractions.get(operand, 0)
        return 0 if operand == int(operand) else self.fraction_bits

    def aligned(self, operand: Operand, bits: int) -> Operand:
        """The operand with so many bits after the point."""
        operand = self.renamed.get(operand, operand)
        if not isinstance(operand, str):
            return int(np.rint(operand * 2.0**bits))
        more = bits - self.bits_of(operand)
        if more == 0:
            return operand
        return self._done("shl" if more > 0 else "shr0", (operand, abs(more)), bits)

    def add(self, operation: Operation) -> None:
        """One operation of the float program."""
        kind, given = operation.kind, [self.renamed.get(o, o) for o in operation.operands]
        if kind == "mul":
            result = self._product(given)
        elif kind == "div":
            result = self._quotient(operation, given)
        elif kind in OF_TRUTHS or kind == "number" or kind == "sign":
            result = self._done(kind, tuple(given), 0)
        elif kind in ("floor", "trunc"):
            shift = "shr" if kind == "floor" else "shr0"
            is_whole = not self.bits_of(given[0])
            result = given[0] if is_whole else self._done(shift, (given[0], self.fraction_bits), 0)
        elif kind in SAME:
            result = self._alike(kind, given)
        else:
            raise ModelError(
                f"program {self.program.name!r}: {operation}: chips compute in whole numbers, which have no {kind!r}; "
                "write it as sums and products, or compute it outside of the step"
            )
        self.renamed[operation.result] = result

    def _alike(self, kind: str, given: list[Operand]) -> Operand:
        truth = given[:1] if kind == "select" else []
        numbers = given[len(truth) :]
        bits = min(max(self.bits_of(o) for o in numbers), self.fraction_bits)
        numbers = [self.aligned(o, bits) for o in numbers]
        return self._done(kind, (*truth, *numbers), bits)

    def _product(self, given: list[Operand]) -> Operand:
        """A product, shifted back to the bits after the point of its operands."""
        bits = [self.bits_of(o) for o in given]
        for i, number in enumerate(given):
            if not isinstance(number, str) and bits[i] and bits[1 - i]:
                bits[i] = _coefficient_bits(number)
        factors = (self.aligned(o, b) for o, b in zip(given, bits, strict=True))
        product = self._done("mul", tuple(factors), sum(bits))
        return self.aligned(product, min(sum(bits), self.fraction_bits))

    def _quotient(self, operation: Operation, given: list[Operand]) -> Operand:
        """A division by a constant, as a product with its inverse."""
        divisor = given[1]
        if divisor in self.program.parameters:
            name = self._free(f"inverse_{divisor}")
            inverse = 1 / np.asarray(self.program.parameters[divisor], np.float64)
            self.fractions[name] = _coefficient_bits(inverse)
            self.parameters[name] = self.rounded(inverse, self.fractions[name])
            return self._product([given[0], name])
        if isinstance(divisor, str):
            raise ModelError(
                f"program {self.program.name!r}: {operation}: chips divide by constants only; write it as a product"
            )
        return self._product([given[0], 1 / divisor])

    def _done(self, kind: str, operands: tuple[Operand, ...], bits: int) -> str:
        """Add an operation, unless it was done before; the name of its result."""
        for done in self.operations:
            if (done.kind, done.operands) == (kind, operands):
                return done.result
        name = self._free(f"q{len(self.operations) + 1}")
        self.operations.append(Operation(name, kind, operands))
        self.fractions[name] = bits
        return name

    def _free(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name
