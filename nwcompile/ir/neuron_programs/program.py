"""NeuronProgram: any neuron as data: named states, and the operations of one step, of a closed set (DESIGN 4.1)."""

import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np

from nwcompile.argument_types import is_of
from nwcompile.errors import ModelError, shown, unknown_choice
from nwcompile.ir.neuron import LARGEST_WHOLE, MESSAGES, align_to_shape, is_in_float32, to_plain
from nwcompile.ir.neuron_programs.ranges import FLOAT_ONLY, LARGEST_NUMBER, WHOLE_ONLY, find_ranges
from nwcompile.ir.shown import format_lines

SENDS = (*MESSAGES, "graded", "none")  # graded: any number, of either sign; none: the output is only read
STATE_OVERFLOWS = ("saturate", "modulo")  # of `FixedPoint`, those that are the same for every state
STATE_BITS = (2, 32)  # as `FixedPoint.WIDTHS`
LARGEST_OUTPUT = (1 << 31) - 1  # What a message carries is recorded in 32 bits.
LARGEST_ENTRY = (1 << 31) - 1  # An entry of a table is a number of 32 bits, as a state is.
INPUT = "x"  # The name of the synaptic input among the values of a step.
INPUT_BIAS = "input_bias"  # The parameter that is added to it, where connections had biases.

# Kinds of operations, as Python and Numba write them. Where whole numbers are meant, `>>` rounds down.
WRITTEN = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "abs": "abs({0})",
    "sign": "sign({0})",
    "min": "min({0}, {1})",
    "max": "max({0}, {1})",
    "shl": "{0} << {1}",
    "shr": "{0} >> {1}",
    "shr0": "shr0({0}, {1})",
    "modulo": "modulo({0}, {1})",
    "table": "{0}[{1} >> {2}]",
    "floor": "floor({0})",
    "trunc": "trunc({0})",
    "exp": "exp({0})",
    "tanh": "tanh({0})",
    "sqrt": "sqrt({0})",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} and {1}",
    "or": "{0} or {1}",
    "not": "not {0}",
    "select": "{1} if {0} else {2}",
    "number": "number({0})",
}
ARITY = {kind: sum(f"{{{i}}}" in text for i in range(3)) for kind, text in WRITTEN.items()}
FREE = ("number",)  # A truth value is a number already where it is stored.
# Entries are read at i = a >> bits and at i + 1 (shift, sum, two reads); the line between them (shift back, two
# differences, product, sum, shift, sum).
TABLE_INSTRUCTIONS = 11

Operand = str | int | float


@dataclass(frozen=True)
class Operation:
    """`result = kind(operands)`; an operand is the name of a value computed before, or a number."""

    result: str
    kind: str
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{self.result} = {WRITTEN[self.kind].format(*self.operands)}"


@dataclass(frozen=True, eq=False)
class StateVariable:
    """A number that a neuron keeps from step to step: `next` names what it becomes, `initial` is where a sample begins.

    Of whole numbers, what has more than `bits` bits saturates or goes round (`ir.arithmetic`) at the end of the step.
    """

    name: str
    next: Operand
    initial: Any = 0
    bits: int | None = None
    overflow: str = "saturate"

    def __post_init__(self):
        object.__setattr__(self, "initial", to_plain(self.initial))

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest whole number that it holds."""
        assert self.bits is not None, "a float state has no limits"
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.overflow == "modulo" else (1 - half, half - 1)


@dataclass(frozen=True, eq=False)
class NeuronProgram:
    """How a layer's neurons update in a step: `operations`, done in order on the values named so far.

    Named at first are the synaptic input `x` (connection biases included; recurrent spikes are those of t-1), the
    `states` as the step before left them, and the `parameters`: numbers, or arrays for the layer's shape as those of a
    NeuronSpec. `output` names what leaves; `sends` says what a message must tell of it, one of SENDS. With "none" the
    output is a state, which is only read: the layer is a readout.

    Float (`is_fixed` False) programs compute in the network's float type, operation by operation; fixed ones in whole
    numbers of 64 bits, which no operation leaves (`verify` proves it), and states of the bits that each has.
    """

    name: str
    states: tuple[StateVariable, ...]
    operations: tuple[Operation, ...]
    output: Operand
    sends: str
    is_fixed: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        kinds = {"states": StateVariable, "operations": Operation}
        for name, kind in kinds.items():
            if not is_of(getattr(self, name), tuple[kind, ...]):
                raise ModelError(f"neuron program {shown(self.name)}: {name} must be a tuple of {kind.__name__}s")
        for name in ("parameters", "tables"):
            if not isinstance(getattr(self, name), Mapping):
                raise ModelError(f"neuron program {shown(self.name)}: {name} must be a dict by name")
        object.__setattr__(self, "parameters", {name: to_plain(value) for name, value in self.parameters.items()})
        object.__setattr__(self, "tables", {name: _to_entries(value) for name, value in self.tables.items()})

    def __repr__(self) -> str:
        kind = "whole numbers" if self.is_fixed else "float"
        states = ", ".join(s.name + (f" ({s.bits} bits)" if s.bits else "") for s in self.states) or "none"
        head = f"NeuronProgram {self.name} ({kind}): states {states}; sends {self.sends}: {self.output}"
        rows = [str(operation) for operation in self.operations]
        rows += [f"{name}: table of {np.size(entries)} entries" for name, entries in self.tables.items()]
        return format_lines(head, [*rows, *(f"{s.name} becomes {s.next}" for s in self.states)], "operations")

    def replace(self, **changes) -> "NeuronProgram":
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def fires(self) -> bool:
        """Whether the neurons send messages; else they are a readout."""
        return self.sends != "none"

    @property
    def message(self) -> str:
        """What a message must be able to tell; as that of a NeuronSpec, or "graded"."""
        return self.sends if self.fires else "binary"

    @property
    def spike_dtype(self) -> type:
        """What a step's messages are recorded as."""
        if self.message not in ("multi", "graded"):
            return np.int8
        if self.is_fixed:
            return np.int32
        return np.int64 if self.message == "multi" else np.float32

    @property
    def largest_output(self) -> float:
        """The largest magnitude of what leaves, of a verified program of whole numbers."""
        if not self.fires or not isinstance(self.output, str):
            return 0.0
        sent = find_ranges(self, AssertionError)[self.output]
        return float(max(-sent.low, sent.high))

    @property
    def state_names(self) -> tuple[str, ...]:
        """What is recorded of a layer."""
        return tuple(state.name for state in self.states)

    @property
    def readout(self) -> str:
        """The state that is read where nothing is sent."""
        return str(self.output)

    @property
    def n_operations(self) -> int:
        """Operations of a step that take an instruction; as many as it takes for one that reads a table."""
        taken = {"table": TABLE_INSTRUCTIONS, **dict.fromkeys(FREE, 0)}
        return sum(taken.get(operation.kind, 1) for operation in self.operations)

    @property
    def n_entries(self) -> int:
        """Entries of all tables."""
        return sum(map(len, self.tables.values()))

    @property
    def table_entries(self) -> np.ndarray:
        """int64[entry]: those of all tables, one after the other."""
        return np.concatenate([np.zeros(0, np.int64), *self.tables.values()])

    @cached_property
    def structure(self) -> tuple:
        """What is computed, without names and values of parameters: plain tuples, equal for programs that do the same.

        `(is_fixed, n_parameters, operations, states, output, n_entries)`; an operand is a number, or a text: `x`, `p3`,
        `s0`, `v7` for the input, a parameter, a state, the result of an operation; for a table there are two: where it
        begins among all entries, and how many it has. The output of a readout is 0.
        """
        short = {INPUT: INPUT} | {name: f"p{i}" for i, name in enumerate(self.parameters)}
        short |= {state.name: f"s{i}" for i, state in enumerate(self.states)}
        short |= {operation.result: f"v{i}" for i, operation in enumerate(self.operations)}

        first = dict(zip(self.tables, np.cumsum([0, *map(len, self.tables.values())]).tolist(), strict=False))

        def shorten_operand(operand: Operand) -> Operand:
            return short[operand] if isinstance(operand, str) else operand

        def shorten_operands(operation: Operation) -> tuple:
            table, *rest = operation.operands
            if operation.kind != "table":
                return tuple(map(shorten_operand, operation.operands))
            return first[str(table)], len(self.tables[str(table)]), *map(shorten_operand, rest)

        operations = tuple((o.kind, *shorten_operands(o)) for o in self.operations)
        states = tuple((shorten_operand(s.next), s.bits, s.overflow) for s in self.states)
        output = shorten_operand(self.output) if self.fires else 0
        return self.is_fixed, len(self.parameters), operations, states, output, self.n_entries

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A parameter, or the initial value of a state, broadcast to `shape`: int64 where fixed, else its own float."""
        value = self.parameters[name] if name in self.parameters else self._initials[name]
        value = np.asarray(align_to_shape(value, shape), np.int64 if self.is_fixed else None)
        return np.ascontiguousarray(np.broadcast_to(value, shape))

    @property
    def _initials(self) -> dict[str, Any]:
        return {state.name: state.initial for state in self.states}

    def map_arrays(self, change) -> "NeuronProgram":
        """The same with `change(name, value)` in place of the value of every parameter and every initial state."""
        states = tuple(replace(s, initial=change(s.name, s.initial)) for s in self.states)
        return self.replace(states=states, parameters={n: change(n, v) for n, v in self.parameters.items()})

    def align_arrays(self, shape: tuple[int, ...]) -> "NeuronProgram":
        """The same neurons with every array in the axes of a layer of `shape`, so that it broadcasts."""
        return self.map_arrays(lambda _, value: align_to_shape(value, shape))

    def select_neurons(self, neurons: np.ndarray, shape: tuple[int, ...]) -> "NeuronProgram":
        """Those of a layer of `shape` that have the flat indices `neurons`, as a layer of one axis."""

        def select_values(name: str, value):
            return self.array(name, shape).reshape(-1)[neurons] if isinstance(value, np.ndarray) else value

        return self.map_arrays(select_values)

    def add_input_bias(self, bias) -> "NeuronProgram":
        """The same neurons with `bias` added to their synaptic input in every step."""
        taken = {*self.parameters, *self._initials, *(o.result for o in self.operations)}
        parameter, total = (_find_unused_name(name, taken) for name in (INPUT_BIAS, "biased_x"))

        def replace_input(operand: Operand) -> Operand:
            return total if operand == INPUT else operand

        rest = (replace(o, operands=tuple(map(replace_input, o.operands))) for o in self.operations)
        return self.replace(
            operations=(Operation(total, "add", (INPUT, parameter)), *rest),
            states=tuple(replace(s, next=replace_input(s.next)) for s in self.states),
            output=replace_input(self.output),
            parameters={**self.parameters, parameter: bias},
        )

    @property
    def input_bias(self):
        """What `with_input_bias` added to the synaptic input; 0 without."""
        kind, operands = (self.operations[0].kind, self.operations[0].operands) if self.operations else ("", ())
        is_added = kind == "add" and operands[0] == INPUT and str(operands[1]).startswith(INPUT_BIAS)
        return self.parameters[operands[1]] if is_added else 0

    def canonical_fields(self) -> list:
        """Names with plain values or arrays, in a fixed order: what hashing and saving use."""
        return [
            ("program", self.name),
            ("operations", [[o.result, o.kind, list(o.operands)] for o in self.operations]),
            ("states", [[s.name, s.next, s.bits, s.overflow] for s in self.states]),
            ("output", self.output),
            ("sends", self.sends),
            ("is_fixed", self.is_fixed),
            ("parameters", list(self.parameters)),
            *((f"parameter {name}", value) for name, value in self.parameters.items()),
            *((f"initial {name}", value) for name, value in self._initials.items()),
            *([("tables", list(self.tables))] if self.tables else []),
            *((f"table {name}", entries) for name, entries in self.tables.items()),
        ]

    @classmethod
    def from_canonical(cls, values: dict) -> "NeuronProgram":
        """The program of such names and values."""
        return cls(
            name=values["program"],
            states=tuple(
                StateVariable(name, becomes, values[f"initial {name}"], bits, overflow)
                for name, becomes, bits, overflow in values["states"]
            ),
            operations=tuple(Operation(result, kind, tuple(given)) for result, kind, given in values["operations"]),
            output=values["output"],
            sends=values["sends"],
            is_fixed=values["is_fixed"],
            parameters={name: values[f"parameter {name}"] for name in values["parameters"]},
            tables={name: values[f"table {name}"] for name in values.get("tables", ())},
        )

    def verify(self, layer: str, shape: tuple[int, ...]) -> None:
        """Raise ModelError, naming the layer, unless names, numbers and ranges are usable for a layer of `shape`."""

        def fail(text: str) -> ModelError:
            return ModelError(f"layer {layer!r}: program {shown(self.name)}: {text}")

        if not isinstance(self.name, str) or not self.name.isprintable() or not self.name:
            raise fail("its name must be a text of printable characters")
        if not isinstance(self.is_fixed, bool):
            raise fail(f"is_fixed={shown(self.is_fixed)} must be True or False")
        if self.sends not in SENDS:
            raise fail(unknown_choice("sends", self.sends, SENDS))
        self._verify_names(fail)
        for name, entries in self.tables.items():
            self._verify_table(name, entries, fail)
        for state in self.states:
            self._verify_state(state, fail)
        for name, value in (*self.parameters.items(), *self._initials.items()):
            self._verify_number(name, value, shape, fail)
        for state in self.states if self.is_fixed else ():
            (low, high), initial = state.limits, np.asarray(state.initial)
            if initial.min() < low or initial.max() > high:
                value = initial.min() if initial.min() < low else initial.max()
                raise fail(f"state {state.name!r} begins at {value}, and its {state.bits} bits hold {low}..{high}")
        if not self.fires and self.output not in self._initials:
            raise fail(f"sends 'none' reads a state, and {shown(self.output)} is none of {', '.join(self._initials)}")
        self._verify_ranges(fail)

    def _verify_names(self, fail) -> None:
        known: set[str] = set()
        names = [INPUT, *self.parameters, *self._initials, *(o.result for o in self.operations)]
        for name in (*names, *self.tables):
            if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
                raise fail(f"{shown(name)} is not a name that a value can have")
            if name in known:
                raise fail(f"{name!r} names two values; give each its own name")
            known.add(name)
        known = set(names[: 1 + len(self.parameters) + len(self.states)])
        for operation in self.operations:
            kind, used = operation.kind, operation.operands
            if kind not in WRITTEN:
                raise fail(unknown_choice(f"operation of {operation.result!r}", kind, WRITTEN))
            if kind in (FLOAT_ONLY if self.is_fixed else WHOLE_ONLY):
                raise fail(f"{kind!r} of {operation.result!r} is not an operation of {self._kind_of_numbers}")
            if not isinstance(used, tuple | list):
                raise fail(f"the operands of {operation.result!r} must be a tuple, not {shown(used)}")
            if len(used) != ARITY[kind]:
                raise fail(f"{kind!r} of {operation.result!r} takes {ARITY[kind]} operands, not {len(used)}")
            if kind == "table":
                if used[0] not in self.tables:
                    raise fail(f"{operation.result!r} reads the table {shown(used[0])}, and there is none of that name")
                used = used[1:]
            self._verify_operands(repr(operation.result), used, known, fail)
            known.add(operation.result)
        outcomes = (self.output, *(state.next for state in self.states))
        self._verify_operands("what leaves, and what states become,", outcomes, known, fail)

    @property
    def _kind_of_numbers(self) -> str:
        return "whole numbers" if self.is_fixed else "float numbers"

    def _verify_operands(self, of: str, operands, known: set[str], fail) -> None:
        for operand in operands:
            if isinstance(operand, str):
                if operand not in known:
                    raise fail(f"{of} uses {operand!r}, which nothing computed before")
            elif not isinstance(operand, int | float) or not is_of(operand, float) or not isfinite(operand):
                raise fail(f"{of} uses {shown(operand)}, which is not a finite number")
            elif self.is_fixed and not isinstance(operand, int):
                raise fail(f"{of} uses {operand}, and a fixed-point program needs whole numbers")
            elif self.is_fixed and abs(operand) > LARGEST_NUMBER:
                raise fail(f"{of} uses {shown(operand)}, which is beyond 64 bits; make it smaller")

    def _verify_state(self, state: StateVariable, fail) -> None:
        low, high = STATE_BITS
        if not self.is_fixed:
            if state.bits is not None:
                raise fail(f"state {state.name!r} has bits, which only states of fixed-point programs have")
        elif isinstance(state.bits, bool) or not isinstance(state.bits, int) or not low <= state.bits <= high:
            raise fail(f"bits={shown(state.bits)} of state {state.name!r} must be a whole number {low}..{high}")
        if state.overflow not in STATE_OVERFLOWS:
            raise fail(unknown_choice(f"overflow of {state.name!r}", state.overflow, STATE_OVERFLOWS))

    def _verify_table(self, name: str, entries, fail) -> None:
        array = np.asarray(entries)
        if array.ndim != 1 or len(array) < 2 or not np.issubdtype(array.dtype, np.integer):
            raise fail(f"table {name!r} must be at least two whole numbers, one after the other")
        if np.abs(array.astype(np.int64)).max() > LARGEST_ENTRY:
            raise fail(f"table {name!r} has an entry beyond {LARGEST_ENTRY}, the largest that there can be")

    def _verify_number(self, name: str, value, shape: tuple[int, ...], fail) -> None:
        try:
            array = np.asarray(value, np.float64)
            np.broadcast_to(align_to_shape(array, shape), shape)
        except (TypeError, ValueError, OverflowError):
            if np.ndim(value) == 0:
                raise fail(f"{name}={shown(value)} must be a number") from None
            raise fail(f"{name} of shape {np.shape(value)} does not broadcast to the layer's shape {shape}") from None
        if not np.isfinite(array).all():
            raise fail(f"{name} has NaN or infinite values; give finite numbers")
        if not self.is_fixed and not is_in_float32(array):
            raise fail(f"{name} {np.abs(array).max():g} is beyond float32; choose smaller units")
        if self.is_fixed and ((array != np.trunc(array)).any() or np.abs(array).max(initial=0) > LARGEST_WHOLE):
            raise fail(f"{name} must be whole numbers of at most {LARGEST_WHOLE} in a fixed-point program")

    def _verify_ranges(self, fail) -> None:
        reach = find_ranges(self, fail)
        for operand, what in ((self.output, "what leaves"), *((s.next, f"state {s.name!r}") for s in self.states)):
            if isinstance(operand, str) and reach[operand].is_truth:
                raise fail(f"{what} is a truth value; make it a number")
        if not self.fires:
            return
        sent = reach[self.output] if isinstance(self.output, str) else None
        if sent is None:
            raise fail(f"what leaves is always {self.output}; it must be computed")
        enough = {"graded", sent.message, *(("multi", "bipolar") if sent.message == "binary" else ())}
        if self.sends not in enough:
            raise fail(f"sends={self.sends!r}, but its output may be {sent}; that is {sent.message!r}")
        if self.is_fixed and max(-sent.low, sent.high) > LARGEST_OUTPUT:
            raise fail(f"its output may be {sent}, and a message holds at most {LARGEST_OUTPUT}; clamp it")


def _to_entries(values) -> np.ndarray:
    """Whole numbers in 64 bits; what is no array of them is left for `verify` to refuse."""
    array = np.asarray(to_plain(values))
    return array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array


def _find_unused_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
