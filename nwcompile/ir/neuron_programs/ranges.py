"""Ranges: bounds of each value of a neuron program, by interval arithmetic on its operations.

They prove that no integer operation overflows 64 bits (so every backend computes the same), that no shift is negative,
and what payload a message must carry.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from math import exp, floor, inf, sqrt, trunc
from operator import lshift, neg, rshift
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from nwcompile.ir.neuron_programs.program import NeuronProgram

LARGEST_NUMBER = (1 << 63) - 1  # Kernels compute with 64-bit integers.
LARGEST_INPUT = 1 << 40  # Assumed limit of a synaptic sum: 256 weights and payloads of 16 bits each.
LONGEST_SHIFT = 62  # 64 bits without the sign and one remaining bit.
SETTLING_STEPS = 300  # Bounds of decaying states are nearly settled by then; a step takes 50 us.
FEW_STEPS = 2  # Enough to undo the overestimate of a flag.
LARGEST_NARROW = (1 << 31) - 1  # GPU kernels compute in 32 bits if all values fit.
LONGEST_NARROW_SHIFT = 31  # Limit of shifts of 32-bit integers.
SHIFTS = ("shl", "shr", "shr0")
FLOAT_ONLY = ("div", "floor", "trunc", "exp", "tanh", "sqrt")
WHOLE_ONLY = ("shl", "shr", "shr0", "modulo", "table")
LARGEST_STEP = 30  # Table entries are at most 2**30 apart; times their difference gives 62 bits.
TRUTHS = ("lt", "le", "eq", "ne", "and", "or", "not")  # operations whose result is a truth value


class Range(NamedTuple):
    """Numbers `low`..`high`, only integers if `is_whole`; truth values if `is_truth`."""

    low: float
    high: float
    is_whole: bool
    is_truth: bool = False

    def __str__(self) -> str:
        return "true or false" if self.is_truth else f"{self.low}..{self.high}"

    @property
    def message(self) -> str:
        """Kind of payload that such a number needs (`SENDS` of neuron_programs/program.py)."""
        if not self.is_whole:
            return "graded"
        if self.low >= 0:
            return "binary" if self.high <= 1 else "multi"
        return "bipolar" if self.low >= -1 and self.high <= 1 else "graded"


TRUTH = Range(0, 1, True, True)
ANYTHING = Range(-inf, inf, False)


def find_ranges(
    program: "NeuronProgram", fail: Callable[[str], Exception], largest_input: int = LARGEST_INPUT
) -> dict[str, Range]:
    """Find the range of every value of a program; raise `fail(text)` for an operation that is out of range.

    `largest_input` is the largest magnitude of a synaptic sum in this step; in earlier steps it is LARGEST_INPUT.
    """
    reach = {name: array_range(value) for name, value in program.parameters.items()}
    if not program.is_fixed:
        changing = dict.fromkeys([*program.inputs, *program.state_names], ANYTHING)
        return propagate_ranges(program, {**reach, **changing}, fail)
    always = dict.fromkeys(program.inputs, Range(-LARGEST_INPUT, LARGEST_INPUT, True))
    now = dict.fromkeys(program.inputs, Range(-largest_input, largest_input, True))
    states = _bound_states(program, {**reach, **always}, fail, FEW_STEPS)
    return propagate_ranges(program, {**reach, **states, **now}, fail)


def state_ranges(program: "NeuronProgram", x: Range) -> dict[str, Range]:
    """Range of each state's next value in any step, before it saturates or wraps, for synaptic sums within `x`.

    The program is a verified fixed-point program.
    """
    known = {name: array_range(value) for name, value in program.parameters.items()} | dict.fromkeys(program.inputs, x)
    return _next_ranges(program, known, _bound_states(program, known, AssertionError, SETTLING_STEPS), AssertionError)


def _next_ranges(program: "NeuronProgram", known: dict[str, Range], held: dict[str, Range], fail) -> dict[str, Range]:
    """Range of each state's next value, from states within `held`."""
    reach = propagate_ranges(program, {**known, **held}, fail)
    return {s.name: reach[s.next] if isinstance(s.next, str) else array_range(s.next) for s in program.states}


def _bound_states(program: "NeuronProgram", known: dict[str, Range], fail, n_steps: int) -> dict[str, Range]:
    """Range of each state of a fixed-point program over all steps.

    The proof is an induction over steps: the ranges include the initial values, and a step from within them does not
    leave them (the limits of a state apply). They are widened until this holds, then narrowed at most `n_steps` times.
    """
    limits = {s.name: Range(*s.limits, True) for s in program.states}
    initial = {s.name: array_range(s.initial) for s in program.states}
    goes_round = {s.name for s in program.states if s.overflow == "modulo"}

    def limit_range(name: str, reach: Range) -> Range:
        """Limit a range of next values to the state, and include its initial value."""
        low, high, *_ = limits[name]
        if name in goes_round and not low <= reach.low <= reach.high <= high:
            return limits[name]
        inside = Range(min(max(reach.low, low), high), max(min(reach.high, high), low), reach.is_whole)
        return _join_ranges(TRUTH, inside, initial[name])

    held, grows = initial, True
    while grows:
        wanted = {name: limit_range(name, reach) for name, reach in _next_ranges(program, known, held, fail).items()}
        wider = {name: _widen_range(held[name], wanted[name], limits[name]) for name in held}
        grows, held = wider != held, wider
    for _ in range(n_steps):
        narrower = {name: limit_range(name, reach) for name, reach in _next_ranges(program, known, held, fail).items()}
        if narrower == held:
            break
        held = narrower
    return held


def _widen_range(held: Range, wanted: Range, limits: Range) -> Range:
    """Widen `held` to include `wanted`, with a margin that saves repetitions, up to the limits."""
    low, high = held.low, held.high
    if wanted.low < low:
        low = max(wanted.low - abs(wanted.low) - 1, limits.low)
    if wanted.high > high:
        high = min(wanted.high + abs(wanted.high) + 1, limits.high)
    return Range(low, high, held.is_whole)


def propagate_ranges(program: "NeuronProgram", given_ranges: dict[str, Range], fail) -> dict[str, Range]:
    """Extend the ranges of inputs, states and parameters to the result of each operation."""
    reach = dict(given_ranges)
    for operation in program.operations:
        entries = [program.tables[str(o)] for o in operation.operands[: operation.kind == "table"]]
        given = [reach[o] if isinstance(o, str) else array_range(o) for o in operation.operands[len(entries) :]]
        _verify_truths(operation, given, fail)
        if entries:
            _verify_read(operation, len(entries[0]), given[0], given[1], fail)
        if operation.kind in SHIFTS and not 0 <= given[1].low <= given[1].high <= LONGEST_SHIFT:
            raise fail(f"{operation}: it shifts by {given[1]}; shift by 0..{LONGEST_SHIFT}")
        if operation.kind == "modulo" and not (given[1].low == given[1].high and 2 <= given[1].low <= LONGEST_SHIFT):
            raise fail(f"{operation}: it is of {given[1]} bits; give one number of bits, 2..{LONGEST_SHIFT}")
        result = RULES[operation.kind](*entries, *given)
        if program.is_fixed and max(-result.low, result.high) > LARGEST_NUMBER:
            raise fail(f"{operation}: it may be {result}, beyond 64 bits; clamp or shift what goes into it")
        reach[operation.result] = result
    return reach


def _verify_read(operation, n_entries: int, at: Range, bits: Range, fail: Callable[[str], Exception]) -> None:
    """Raise `fail(text)` unless a table is read between its first and last entry."""
    if not 0 <= bits.low == bits.high <= LARGEST_STEP:
        raise fail(f"{operation}: its entries lie 2**({bits}) apart; give one number of bits, 0..{LARGEST_STEP}")
    end = (n_entries - 1 << int(bits.low)) - 1
    if not 0 <= at.low <= at.high <= end:
        raise fail(f"{operation}: a table of {n_entries} entries is read at {at}; clamp its index to 0..{end}")


def _largest_product(program: "NeuronProgram", operation, bits: int) -> int:
    """Largest intermediate value when interpolating between two table entries."""
    steps = np.abs(np.diff(program.tables[operation.operands[0]].astype(np.int64)))
    return int(steps.max()) * ((1 << bits) - 1) + (1 << bits)


def fits_32_bits(program: "NeuronProgram", largest_input: int) -> bool:
    """Whether a verified fixed-point program gives the same results in 32 bits, for sums up to `largest_input`."""
    reach = find_ranges(program, AssertionError, largest_input)

    def range_of(operand) -> Range:
        return reach[operand] if isinstance(operand, str) else array_range(operand)

    read = {*program.tables}
    used = [*reach.values()]
    used += [range_of(o) for operation in program.operations for o in operation.operands if o not in read]
    shifts = [range_of(o.operands[1]).high for o in program.operations if o.kind in SHIFTS]
    modulos = [[range_of(operand) for operand in o.operands] for o in program.operations if o.kind == "modulo"]
    rounds = [(reach, int(bits.low)) for reach, bits in modulos]
    rounds += [(range_of(s.next), int(s.bits or 0)) for s in program.states if s.overflow == "modulo"]
    largest = [max(-r.low, r.high) for r in (*used, *(range_of(s.next) for s in program.states))]
    largest += [max(-r.low, r.high) + (1 << (bits - 1)) for r, bits in rounds]
    largest += [
        _largest_product(program, o, int(range_of(o.operands[2]).low)) for o in program.operations if o.kind == "table"
    ]
    return max(largest) <= LARGEST_NARROW and max(shifts, default=0) <= LONGEST_NARROW_SHIFT


def _verify_truths(operation, given: list[Range], fail) -> None:
    """Check that `and`, `or`, `not`, `number` and the condition of `select` get truth values, and all else numbers."""
    wanted = [operation.kind in ("and", "or", "not", "number")] * len(given)
    if operation.kind == "select":
        wanted = [True, False, False]
    for operand, reach, is_truth in zip(operation.operands[-len(given) :], given, wanted, strict=True):
        if reach.is_truth != is_truth:
            has, needs = ("a truth value", "a number") if reach.is_truth else ("a number", "a truth value")
            raise fail(f"{operation}: {operand} is {has}, and {operation.kind!r} takes {needs}")


def array_range(value) -> Range:
    numbers = np.asarray(value)
    low, high = numbers.min().item(), numbers.max().item()
    return Range(low, high, bool((numbers == np.trunc(numbers)).all()))


def _map_corners(function: Callable, *given: Range, is_whole: bool | None = None) -> Range:
    """Range of a function that is monotonic in each operand, from its values at the ends of their ranges."""
    values = [function(*ends) for ends in product(*((reach.low, reach.high) for reach in given))]
    return Range(min(values), max(values), all(g.is_whole for g in given) if is_whole is None else is_whole)


def _divide_ranges(left: Range, right: Range) -> Range:
    if right.low <= 0 <= right.high or inf in (-right.low, right.high):
        return ANYTHING
    return _map_corners(lambda x, y: x / y, left, right, is_whole=False)


def _magnitude_range(reach: Range) -> Range:
    low = 0 if reach.low <= 0 <= reach.high else min(abs(reach.low), abs(reach.high))
    return Range(low, max(-reach.low, reach.high), reach.is_whole)


def _wrap_range(reach: Range, bits: Range) -> Range:
    half = 1 << (int(bits.low) - 1)
    return reach if -half <= reach.low and reach.high < half else Range(-half, half - 1, True)


def _read_table_range(entries: np.ndarray, at: Range, bits: Range) -> Range:
    """Range from the smallest to the largest of the entries that are read."""
    shift = int(bits.low)
    read = entries[int(at.low) >> shift : (int(at.high) >> shift) + 2]
    return Range(int(read.min()), int(read.max()), True)


def _round_ends(function: Callable) -> Callable[[Range], Range]:
    def round_range(reach: Range) -> Range:
        low, high = (end if abs(end) == inf else function(end) for end in (reach.low, reach.high))
        return Range(low, high, True)

    return round_range


def _exp_range(reach: Range) -> Range:
    # e**80 is close to the largest float32; a bound beyond it is useless.
    return Range(exp(reach.low) if reach.low < 80 else 0.0, exp(reach.high) if reach.high < 80 else inf, False)


def _sqrt_range(reach: Range) -> Range:
    return Range(sqrt(max(reach.low, 0)), sqrt(reach.high) if 0 <= reach.high < inf else inf, False)


def _join_ranges(_: Range, yes: Range, no: Range) -> Range:
    return Range(min(yes.low, no.low), max(yes.high, no.high), yes.is_whole and no.is_whole)


RULES: dict[str, Callable[..., Range]] = {
    "add": lambda left, right: Range(left.low + right.low, left.high + right.high, left.is_whole and right.is_whole),
    "sub": lambda left, right: Range(left.low - right.high, left.high - right.low, left.is_whole and right.is_whole),
    "mul": partial(_map_corners, lambda a, b: 0 if a == 0 or b == 0 else a * b),  # 0 * inf is 0
    "div": _divide_ranges,
    "neg": partial(_map_corners, neg),
    "abs": _magnitude_range,
    "sign": lambda reach: Range((reach.low > 0) - (reach.low < 0), (reach.high > 0) - (reach.high < 0), True),
    "min": partial(_map_corners, min),
    "max": partial(_map_corners, max),
    "shl": partial(_map_corners, lshift),
    "shr": partial(_map_corners, rshift),
    "shr0": partial(_map_corners, lambda a, bits: a >> bits if a >= 0 else -(-a >> bits)),
    "modulo": _wrap_range,
    "table": _read_table_range,
    "floor": _round_ends(floor),
    "trunc": _round_ends(trunc),
    "exp": _exp_range,
    "tanh": lambda _: Range(-1.0, 1.0, False),
    "sqrt": _sqrt_range,
    "select": _join_ranges,
    "number": lambda _: Range(0, 1, True),
    **{kind: lambda *_: TRUTH for kind in TRUTHS},
}
