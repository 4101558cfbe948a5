"""The operations of a neuron program, written as the source of kernels: Numba for CPUs, Triton for GPUs.

The text contains only plain numbers and generated names (`v0`, `s1`, `p2`), never text of a user. `operation_lines`
alone defines the computation and its order; the dialects differ in how they write an operation.
"""

from dataclasses import dataclass

from nwcompile.ir.neuron_programs.program import WRITTEN

# Operations whose last bits differ between float libraries, torch among them.
WITHOUT_KERNEL = ("exp", "tanh")


@dataclass(frozen=True)
class Dialect:
    """The source syntax of one kind of kernels: `written` operations, a number literal, and a module's text."""

    written: dict[str, str]
    number: str
    module: str

    def operand(self, operand: str | float) -> str:
        """The name of a value, or a number literal."""
        return operand if isinstance(operand, str) else self.number.format(operand)


NUMBA_MODULE = '''"""A neuron program, written by nwcompile.kernels.cores.programs.source."""

from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.cores.programs.operations import (
    C_STEP,
    AsCFunction,
    carray,
    modulo,
    number,
    saturate,
    shr0,
    sign,
    table,
)


@inlined
def step(given, entries, state, i, x):
{step}


@kernel
def scan(given, entries, initial, rests, drive, touched, spikes, kept, updates, state, first_step):
    n_samples, n_steps, n = spikes.shape
    keep = kept.shape[0] > 0
    for b in range(n_samples):
        if first_step == 0:
            for i in range(n):
                for s in range({n_states}):
                    state[s, i] = initial[s, i]
        for t in range(n_steps):
            for i in range(n):
                has_event = touched[b, t, i] != 0
                for k in range(1, {n_inputs}):
                    state[{n_states} + k - 1, i] = drive[b, t, k * n + i]
                    has_event |= touched[b, t, k * n + i] != 0
                if has_event or not ({still}):
                    updates[t, i] += 1
                spikes[b, t, i] = step(given, entries, state, i, drive[b, t, i])
                if keep:
                    for s in range({n_states}):
                        kept[b, t, s, i] = state[s, i]


def by_pointers(given, state, n, i, x):
    entries = carray(given, ({n_given} * n + {n_entries},))[{n_given} * n :]
    return step(carray(given, ({n_given}, n)), entries, carray(state, ({n_states} + {n_inputs} - 1, n)), i, x)


c_step = AsCFunction(C_STEP, by_pointers)
'''

NUMBA_FLOAT_MODULE = '''"""A neuron program in {real}, written by nwcompile.kernels.cores.programs.source."""

from numba import {real} as real

from nwcompile.kernels.layers.program import (
    AHEAD_STEPS,
    LANES,
    SOON_STEPS,
    as_numbers,
    ask_for,
    both,
    either,
    fence,
    filled_lanes,
    filled_like,
    floor,
    goes_past,
    larger,
    load_like,
    magnitude,
    negated,
    root,
    sign,
    smaller,
    store,
    store_large,
    trunc,
    where,
)
from nwcompile.kernels.jit import kernel
{scans}'''

FLOAT_SCAN = """

@kernel
def {name}(given, drive, sent, state, sizes{arguments}):
    first, end, n_samples, n_steps, n = sizes
    zero = filled_lanes(real(0), LANES)
    past = goes_past(sent, n)
    for b in range(first, end):
        for t0 in range(0, n_steps, AHEAD_STEPS):
            for c in range(0, n, LANES):
                left = n - c
{read}
                for t in range(t0, min(t0 + AHEAD_STEPS, n_steps)):
                    at = (b * n_steps + t) * n + c
{inputs}
{step}
{write}
    fence()
"""

TRITON_MODULE = '''"""A neuron program, written by nwcompile.kernels.cores.programs.source."""

import triton
import triton.language as tl

from nwcompile.kernels.gpu.program import modulo, saturate, shr0, sign, table


@triton.jit
def step(given, entries, states, sums):
{step}
'''

NUMBA = Dialect({**WRITTEN, "table": "table(entries, {0}, {2}, {3})"}, "({})", NUMBA_MODULE)
NUMBA_FLOAT = Dialect(
    {
        **WRITTEN,
        "neg": "{0} * filled_like(zero, real(-1))",
        "abs": "magnitude({0})",
        "sign": "sign({0}, zero)",
        "min": "smaller({0}, {1})",
        "max": "larger({0}, {1})",
        "sqrt": "root({0})",
        "and": "both({0}, {1})",
        "or": "either({0}, {1})",
        "not": "negated({0})",
        "select": "where({0}, {1}, {2})",
        "number": "as_numbers(zero, {0})",
    },
    "filled_like(zero, real({}))",
    NUMBA_FLOAT_MODULE,
)
TRITON = Dialect(
    {
        **WRITTEN,
        "abs": "tl.abs({0})",
        "min": "tl.minimum({0}, {1})",
        "max": "tl.maximum({0}, {1})",
        "and": "{0} & {1}",
        "or": "{0} | {1}",
        "not": "~{0}",
        "select": "tl.where({0}, {1}, {2})",
        "number": "{0}.to(x.dtype)",
        "table": "table(entries, {0}, {1}, {2}, {3})",
    },
    "tl.full(x.shape, {}, x.dtype)",
    TRITON_MODULE,
)
TRITON_FLOAT = Dialect(
    {
        **TRITON.written,
        "div": "tl.div_rn({0}, {1})",  # `/` does not round to nearest.
        "neg": "{0} * tl.full(x.shape, -1, x.dtype)",  # Triton's own negation subtracts from 0.
        "min": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "max": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "floor": "tl.floor({0})",
        "trunc": "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))",
        "sqrt": "tl.sqrt_rn({0})",
    },
    TRITON.number,
    TRITON_MODULE,
)


def source_of(structure: tuple, real: str = "float32") -> str:
    """The Numba module of a program (`NeuronProgram.structure`); `real`: the number type of a float program.

    For whole numbers, `step(given, entries, state, i, x)` updates neuron i and returns its output; given is
    int64[parameter, neuron], entries int64[entry] of all tables, state int64[state, neuron], with the sums of further
    inputs in rows behind the states. `scan` runs sequences with the arrays of `cores.neuron.scan`, except drive and
    touched: [sample, step, input * neuron], rests: bool[neuron] (no update without an event while all states are 0),
    and kept: int64[sample, step, state, neuron], of 0 samples if not wanted. `c_step` is `step` by pointers; there the
    entries follow the parameters.

    For floats, `scan(given, drive, sent, state, sizes)` takes flat arrays: given real[parameter, neuron], drive
    real[sample, step, input, neuron]; sent, real[sample, step, neuron], is written, and state real[state, sample,
    neuron] is updated. sizes:
    (first sample, last sample, n_samples, n_steps, n). `record` also writes kept: real[state, sample, step, neuron].
    """
    is_fixed, n_parameters, operations, states, output, n_entries, n_inputs = structure
    if not is_fixed:
        scans = (_float_scan(n_parameters, operations, states, output, n_inputs, keeps) for keeps in (False, True))
        return NUMBA_FLOAT.module.format(real=real, scans="".join(scans))
    lines = [f"p{i} = given[{i}, i]" for i in range(n_parameters)]
    lines += [f"s{i} = state[{i}, i]" for i in range(len(states))]
    lines += [f"x{k} = state[{len(states) + k - 1}, i]" for k in range(1, n_inputs)]
    lines += operation_lines(operations, NUMBA)
    lines += [f"state[{i}, i] = {becomes}" for i, becomes in enumerate(next_states(states, NUMBA))]
    lines.append(f"return {NUMBA.operand(output)}")
    still = ["rests[i]", *(f"state[{i}, i] == 0" for i in range(len(states)))]
    return NUMBA.module.format(
        step=body(lines),
        still=" and ".join(still),
        n_given=n_parameters,
        n_states=len(states),
        n_entries=n_entries,
        n_inputs=n_inputs,
    )


def _float_scan(n_parameters: int, operations: tuple, states: tuple, output, n_inputs: int, keeps: bool) -> str:
    """Source of a scan over vectors of neurons, which stay in registers for several steps."""
    places = [f"({i} * n_samples + b) * n + c" for i in range(len(states))]
    read = [f"p{i} = load_like(zero, given, {i} * n + c, left)" for i in range(n_parameters)]
    read += [f"s{i} = load_like(zero, state, {place}, left)" for i, place in enumerate(places)]
    given = []
    for k in range(n_inputs):
        given.append(f"place = ((b * n_steps + t) * {n_inputs} + {k}) * n + c")
        given.append(f"x{k or ''} = load_like(zero, drive, place, left)")
        given.append(f"ask_for(zero, drive, place + SOON_STEPS * {n_inputs} * n)")
    lines = operation_lines(operations, NUMBA_FLOAT)
    lines.append(f"store_large(sent, at, left, {NUMBA_FLOAT.operand(output)}, past)")
    following = ", ".join(next_states(states, NUMBA_FLOAT))
    lines.append(f"{', '.join(f's{i}' for i in range(len(states)))} = {following}" if states else "pass")
    if keeps:
        lines += [f"store(kept, {i} * n_samples * n_steps * n + at, left, s{i})" for i in range(len(states))]
    write = [f"store(state, {place}, left, s{i})" for i, place in enumerate(places)]
    return FLOAT_SCAN.format(
        name="record" if keeps else "scan",
        arguments=", kept" if keeps else "",
        read=body(read, indent=16),
        inputs=body(given, indent=20),
        step=body(lines, indent=20),
        write=body(write, indent=16),
    )


def triton_source_of(structure: tuple) -> str:
    """The Triton module of a program: `step(given, entries, states, sums)` for `kernels.gpu.program.scan`.

    given, states, sums: tuples of tensors of one type, one per parameter, state and input; entries: pointer to those of
    all tables. `step` returns the tuple of the next states, and the output.
    """
    is_fixed, n_parameters, operations, states, output, _, n_inputs = structure
    dialect = TRITON if is_fixed else TRITON_FLOAT
    lines = [f"p{i} = given[{i}]" for i in range(n_parameters)]
    lines += [f"s{i} = states[{i}]" for i in range(len(states))]
    lines += [f"x{k or ''} = sums[{k}]" for k in range(n_inputs)]
    lines += operation_lines(operations, dialect)
    following = "".join(f"{becomes}, " for becomes in next_states(states, dialect))
    lines.append(f"return ({following}), {dialect.operand(output)}")
    return dialect.module.format(step=body(lines))


def operation_lines(operations: tuple, dialect: Dialect) -> list[str]:
    """The operations in order, one line each."""
    return [
        f"v{i} = {dialect.written[kind].format(*map(dialect.operand, given))}"
        for i, (kind, *given) in enumerate(operations)
    ]


def next_states(states: tuple, dialect: Dialect) -> list[str]:
    """Expressions of the next states, with overflow."""
    return [
        f"{overflow}({dialect.operand(becomes)}, {dialect.operand(bits)})" if bits else dialect.operand(becomes)
        for becomes, bits, overflow in states
    ]


def body(lines: list[str], indent: int = 4) -> str:
    """Indented lines of a function body."""
    return "\n".join(f"{' ' * indent}{line}" for line in lines)
