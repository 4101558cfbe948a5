"""NeuronProgram: any neuron as data: named states, and the operations of one step from a closed set (DESIGN 4.1)."""

import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np

from nwcompile.argument_types import has_type
from nwcompile.errors import ModelError, shown, unknown_choice
from nwcompile.ir.neuron import LARGEST_WHOLE, MESSAGES, align_to_shape, is_in_float32, to_plain
from nwcompile.ir.neuron_programs.ranges import FLOAT_ONLY, LARGEST_NUMBER, WHOLE_ONLY, find_ranges
from nwcompile.ir.shown import format_lines

SENDS = (*MESSAGES, "graded", "none")  # graded: any number of either sign; none: the output is only read
STATE_OVERFLOWS = ("saturate", "modulo")  # those of `FixedPoint` that are the same for every state
STATE_BITS = (2, 32)  # as `FixedPoint.WIDTHS`
LARGEST_OUTPUT = (1 << 31) - 1  # Payloads are recorded in 32 bits.
LARGEST_ENTRY = (1 << 31) - 1  # Table entries have 32 bits, like states.
INPUT = "x"  # Name of the only synaptic input of a program, or of its first one.
INPUT_BIAS = "input_bias"  # Parameter that is added to the first input if connections had biases.

# Operations as Python and Numba expressions. On integers `>>` rounds down.
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
FREE = ("number",)  # Takes no instruction: a stored truth value is a number already.
# Read of entries i = a >> bits and i + 1 (shift, sum, two reads), then interpolation (shift back, two differences,
# product, sum, shift, sum).
TABLE_INSTRUCTIONS = 11

Operand = str | int | float


@dataclass(frozen=True)
class Operation:
    """One operation `result = kind(operands)`; an operand is the name of an earlier value, or a number."""

    result: str
    kind: str
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{self.result} = {WRITTEN[self.kind].format(*self.operands)}"


@dataclass(frozen=True, eq=False)
class StateVariable:
    """A state of a neuron: `next` names its value after a step, `initial` is its value when a sample begins.

    Integers that exceed `bits` saturate or wrap (`ir.arithmetic`) at the end of the step.
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
        """Smallest and largest integer of the state."""
        assert self.bits is not None, "a float state has no limits"
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.overflow == "modulo" else (1 - half, half - 1)


@dataclass(frozen=True, eq=False)
class NeuronProgram:
    """Update rule of a layer's neurons: `operations` that are executed in order, each on values named before.

    The first values are the synaptic input `x` (connection biases included; recurrent spikes are those of t-1), the
    `states` after the step before, and the `parameters`: numbers, or arrays for the layer's shape like those of a
    NeuronSpec. `output` names the value that is sent. `sends`, one of SENDS, is the kind of payload. With "none" the
    output is a state that is only read, and the layer is a readout.

    `inputs` are the names of the synaptic inputs. Neurons with gates have several, each a sum of its own. Connections
    into a layer of C channels and K inputs see K * C channels, starting with the first input (`Node.input_shape`).

    Float programs (`is_fixed` False) compute in the network's float type, operation by operation. Fixed-point programs
    compute with 64-bit integers, and `verify` proves that no operation overflows. Each state has its own width.
    """

    name: str
    states: tuple[StateVariable, ...]
    operations: tuple[Operation, ...]
    output: Operand
    sends: str
    is_fixed: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: tuple[str, ...] = (INPUT,)

    def __post_init__(self):
        kinds = {"states": StateVariable, "operations": Operation}
        for name, kind in kinds.items():
            if not has_type(getattr(self, name), tuple[kind, ...]):
                raise ModelError(f"neuron program {shown(self.name)}: {name} must be a tuple of {kind.__name__}s")
        for name in ("parameters", "tables"):
            if not isinstance(getattr(self, name), Mapping):
                raise ModelError(f"neuron program {shown(self.name)}: {name} must be a dict by name")
        if not has_type(self.inputs, tuple[str, ...]) or not self.inputs:
            raise ModelError(
                f"neuron program {shown(self.name)}: inputs={shown(self.inputs)} must be a tuple of names, one at least"
            )
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
        """Whether the neurons send messages; otherwise they are a readout."""
        return self.sends != "none"

    @property
    def message(self) -> str:
        """Kind of payload that a message must carry: one of a NeuronSpec, or "graded"."""
        return self.sends if self.fires else "binary"

    @property
    def spike_dtype(self) -> type:
        """Type of recorded messages."""
        if self.message not in ("multi", "graded"):
            return np.int8
        if self.is_fixed:
            return np.int32
        return np.int64 if self.message == "multi" else np.float32

    @property
    def largest_output(self) -> float:
        """Largest magnitude of the output of a verified fixed-point program."""
        if not self.fires or not isinstance(self.output, str):
            return 0.0
        sent = find_ranges(self, AssertionError)[self.output]
        return float(max(-sent.low, sent.high))

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the recorded states."""
        return tuple(state.name for state in self.states)

    @property
    def readout(self) -> str:
        """Name of the state that is read if nothing is sent."""
        return str(self.output)

    @property
    def n_operations(self) -> int:
        """Number of instructions of a step; an operation that reads a table takes several."""
        taken = {"table": TABLE_INSTRUCTIONS, **dict.fromkeys(FREE, 0)}
        return sum(taken.get(operation.kind, 1) for operation in self.operations)

    @property
    def n_entries(self) -> int:
        """Number of entries of all tables."""
        return sum(map(len, self.tables.values()))

    @property
    def table_entries(self) -> np.ndarray:
        """int64[entry]: entries of all tables, concatenated."""
        return np.concatenate([np.zeros(0, np.int64), *self.tables.values()])

    @cached_property
    def structure(self) -> tuple:
        """The computation without names and values of parameters: tuples that are equal for equal computations.

        `(is_fixed, n_parameters, operations, states, output, n_entries, n_inputs)`. An operand is a number or a text:
        `x`, `x1`, `p3`, `s0`, `v7` for the first input, the second one, a parameter, a state, the result of an
        operation. A table becomes two operands: index of its first entry among all entries, and number of entries. The
        output of a readout is 0.
        """
        short = {name: f"{INPUT}{i or ''}" for i, name in enumerate(self.inputs)}
        short |= {name: f"p{i}" for i, name in enumerate(self.parameters)}
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
        return self.is_fixed, len(self.parameters), operations, states, output, self.n_entries, len(self.inputs)

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return a parameter or initial state broadcast to `shape`: int64 if fixed-point, else its own float type."""
        value = self.parameters[name] if name in self.parameters else self._initials[name]
        value = np.asarray(align_to_shape(value, shape), np.int64 if self.is_fixed else None)
        return np.ascontiguousarray(np.broadcast_to(value, shape))

    @property
    def _initials(self) -> dict[str, Any]:
        return {state.name: state.initial for state in self.states}

    def map_arrays(self, change) -> "NeuronProgram":
        """Apply `change(name, value)` to the value of every parameter and every initial state."""
        states = tuple(replace(s, initial=change(s.name, s.initial)) for s in self.states)
        return self.replace(states=states, parameters={n: change(n, v) for n, v in self.parameters.items()})

    def align_arrays(self, shape: tuple[int, ...]) -> "NeuronProgram":
        """Return the same neurons with every array reshaped to broadcast to a layer of `shape`."""
        return self.map_arrays(lambda _, value: align_to_shape(value, shape))

    def select_neurons(self, neurons: np.ndarray, shape: tuple[int, ...]) -> "NeuronProgram":
        """Select neurons with flat indices `neurons` of a layer of `shape`, as a layer of one axis."""

        def select_values(name: str, value):
            return self.array(name, shape).reshape(-1)[neurons] if isinstance(value, np.ndarray) else value

        return self.map_arrays(select_values)

    def add_input_bias(self, bias) -> "NeuronProgram":
        """Add `bias` [n_inputs * C, ...], of the shape that connections fill, to the synaptic inputs of every step."""
        program = self
        for i, (name, part) in enumerate(zip(self.inputs, np.split(bias, len(self.inputs)), strict=True)):
            parameter = program._find_unused_name(f"{INPUT_BIAS}_{name}" if i else INPUT_BIAS)
            program = program._change_input(name, "biased", "add", parameter)
            program = program.replace(parameters={**program.parameters, parameter: part})
        return program

    def shift_input(self, bits: int) -> "NeuronProgram":
        """Multiply the synaptic inputs of every step by 2**bits; a bias that was added to them stays the same."""
        program = self
        for name in self.inputs:
            program = program._change_input(name, "shifted", "shl", bits)
        return program

    def _change_input(self, name: str, how: str, kind: str, operand: Operand) -> "NeuronProgram":
        """Use `kind(x, operand)`, which is computed first, in place of the synaptic input x called `name`."""
        result = self._find_unused_name(f"{how}_{name}")

        def replace_input(given: Operand) -> Operand:
            return result if given == name else given

        rest = (replace(o, operands=tuple(map(replace_input, o.operands))) for o in self.operations)
        return self.replace(
            operations=(Operation(result, kind, (name, operand)), *rest),
            states=tuple(replace(s, next=replace_input(s.next)) for s in self.states),
            output=replace_input(self.output),
        )

    def _find_unused_name(self, name: str) -> str:
        while name in {*self.parameters, *self._initials, *(o.result for o in self.operations)}:
            name += "_"
        return name

    @property
    def input_bias(self):
        """Bias that `add_input_bias` added to the synaptic input, or 0."""
        kind, operands = (self.operations[0].kind, self.operations[0].operands) if self.operations else ("", ())
        is_added = kind == "add" and operands[0] == INPUT and str(operands[1]).startswith(INPUT_BIAS)
        return self.parameters[operands[1]] if is_added else 0

    def canonical_fields(self) -> list:
        """Names with plain values or arrays in a fixed order, for hashing and saving."""
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
            *([("inputs", list(self.inputs))] if self.inputs != (INPUT,) else []),
        ]

    @classmethod
    def from_canonical(cls, values: dict) -> "NeuronProgram":
        """Build the program of the names and values of `canonical_fields`."""
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
            inputs=tuple(values.get("inputs", (INPUT,))),
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
        names = [*self.inputs, *self.parameters, *self._initials, *(o.result for o in self.operations)]
        for name in (*names, *self.tables):
            if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
                raise fail(f"{shown(name)} is not a name that a value can have")
            if name in known:
                raise fail(f"{name!r} names two values; give each its own name")
            known.add(name)
        known = set(names[: len(self.inputs) + len(self.parameters) + len(self.states)])
        numbers = "whole numbers" if self.is_fixed else "float numbers"
        for operation in self.operations:
            kind, used = operation.kind, operation.operands
            if kind not in WRITTEN:
                raise fail(unknown_choice(f"operation of {operation.result!r}", kind, WRITTEN))
            if kind in (FLOAT_ONLY if self.is_fixed else WHOLE_ONLY):
                raise fail(f"{kind!r} of {operation.result!r} is not an operation of {numbers}")
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
        self._verify_operands("the output", [self.output], known, fail)
        self._verify_operands("a next state", [state.next for state in self.states], known, fail)

    def _verify_operands(self, of: str, operands, known: set[str], fail) -> None:
        for operand in operands:
            if isinstance(operand, str):
                if operand not in known:
                    raise fail(f"{of} uses {operand!r}, which nothing computed before")
            elif not isinstance(operand, int | float) or not has_type(operand, float) or not isfinite(operand):
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
        for operand, what in ((self.output, "the output"), *((s.next, f"state {s.name!r}") for s in self.states)):
            if isinstance(operand, str) and reach[operand].is_truth:
                raise fail(f"{what} is a truth value; make it a number")
        if not self.fires:
            return
        sent = reach[self.output] if isinstance(self.output, str) else None
        if sent is None:
            raise fail(f"the output is always {self.output}; it must be computed")
        enough = {"graded", sent.message, *(("multi", "bipolar") if sent.message == "binary" else ())}
        if self.sends not in enough:
            raise fail(f"sends={self.sends!r}, but its output may be {sent}; that is {sent.message!r}")
        if self.is_fixed and max(-sent.low, sent.high) > LARGEST_OUTPUT:
            raise fail(f"its output may be {sent}, and a message holds at most {LARGEST_OUTPUT}; clamp it")


def _to_entries(values) -> np.ndarray:
    """Convert integers to int64; return other values unchanged, for `verify` to refuse."""
    array = np.asarray(to_plain(values))
    return array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array
