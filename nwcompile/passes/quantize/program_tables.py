"""Tables: exp, tanh, sqrt and divisions of neuron programs on whole numbers, each with its largest error.

A table holds the values of a curve at arguments 2**step_bits apart, with linear interpolation (operation `table`). It
covers the arguments of the samples and as many again on either side, as long as the result is at most four times the
largest one seen and interval arithmetic does not exclude them; without samples, all that interval arithmetic allows.
Arguments beyond the entries use the nearest entry. The entries lie where the largest error over all these arguments is
smallest.
"""

from dataclasses import asdict, dataclass, replace
from math import ceil, floor, inf, log2

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.arithmetic import interpolate_table
from nwcompile.ir.chip import Chip
from nwcompile.ir.neuron_programs.program import LARGEST_ENTRY
from nwcompile.ir.neuron_programs.ranges import Range, array_range, propagate_ranges
from nwcompile.passes.quantize.program_curves import Curve
from nwcompile.passes.quantize.program_units import Measured

SHARE_OF_MEMORY = 4  # All tables of a program take at most this part of a core's program memory: other layers need it.
MOST_ENTRIES = 1025  # Entries of all tables of a program on a chip without a limit: more gain nothing.
FEWEST_ENTRIES = 9  # With fewer, a table does not resemble its curve.
FINE_ERROR = 1.0  # In units of the result; rounding alone takes 1, so no table is finer than that.
PLACES = 16  # Start positions of the entries that are compared between both ends of the arguments.
HEADROOM = 4.0  # A result may become this much larger than in the samples, like a state.
LEAST_MARGIN = 0.25  # A range of arguments widens at least by this part of them: they may hardly have moved.
LOOKED_AT = 4096  # Arguments at which ranges are searched and steps compared; the error covers all arguments.
HOPELESS = 4.0  # Once finer steps raise the error to this multiple of the least, still finer ones cover too little.
CHUNK = 1 << 20  # Arguments whose error is computed at once, 8 MiB of float64 each.
MOST_ARGUMENTS = 1 << 30  # Of a table, whose error is computed at each of them: some ten seconds.


@dataclass(frozen=True)
class TableFormat:
    """The number format of a table: bits after the point of argument and result, and the width of a state.

    `argument_unit`, `result_unit`: scale of the float program's values.
    """

    argument_bits: int
    most_result_bits: int
    state_bits: int
    argument_unit: float = 1.0
    result_unit: float = 1.0


@dataclass(frozen=True, eq=False)
class CurveTable:
    """A curve as `entries`, 2**step_bits apart starting at `first`, read up to `last`: arguments in whole numbers.

    low..high: the arguments for which it was built. `bounds`: "proved" (no argument lies outside) or "seen" in samples.
    `error`: the largest difference from the curve over all whole numbers low..high, in units of the result.
    """

    entries: np.ndarray
    first: int
    last: int
    step_bits: int
    low: int
    high: int
    argument_bits: int
    result_bits: int
    bounds: str
    error: float

    def __call__(self, arguments: np.ndarray) -> np.ndarray:
        """Return what the chip computes for arguments in whole numbers."""
        return interpolate_table(self.entries, np.clip(arguments, self.first, self.last) - self.first, self.step_bits)

    def largest_difference(self, wanted: np.ndarray, arguments: np.ndarray) -> float:
        """Return the largest difference from the curve's values `wanted` at these arguments, in units of the result."""
        return float(np.abs(self(arguments) - wanted * 2.0**self.result_bits).max())


@dataclass(frozen=True, eq=False)
class ProgramTables:
    """The tables of a layer's program: `make_table` builds one; `rows` are for the quantization table, in float units.

    `pinned`: the fields of each table as plain values, by the result of its curve.
    """

    where: str
    measured: Measured
    texts: dict[str, str]
    possible: dict[str, Range]
    fraction_bits: int
    state_bits: int
    n_entries: int
    rows: list[dict]
    pinned: dict[str, dict]

    @classmethod
    def from_measured(
        cls, layer: str, measured: Measured, fraction_bits: int, chip: Chip, state_bits: int
    ) -> "ProgramTables":
        program = measured.program
        wanted, limit = measured.find_curves(), chip.limit("max_instructions")
        n_entries = MOST_ENTRIES if limit is None else min(int(limit.max()) // SHARE_OF_MEMORY, MOST_ENTRIES)
        largest = 2.0 ** (state_bits - 1 - fraction_bits)  # magnitude of states and inputs
        held = {name: Range(-largest, largest, False) for name in (*program.state_names, *program.inputs)}
        held |= {name: array_range(value) for name, value in program.parameters.items()}
        return cls(
            where=f"layer {layer!r}: program {program.name!r}",
            measured=measured,
            texts={name: str(curve) for name, curve in wanted.items()},
            possible=propagate_ranges(program, held, AssertionError) if wanted else {},
            fraction_bits=fraction_bits,
            state_bits=state_bits,
            n_entries=max(n_entries // max(len(wanted), 1), FEWEST_ENTRIES),
            rows=[],
            pinned={},
        )

    def make_table(self, curve: Curve, argument_bits: int) -> CurveTable:
        """Build the table of a curve of the program in its chosen units."""
        units = self.measured.per_unit(curve.argument), self.measured.per_unit(curve.result)
        form = TableFormat(argument_bits, self.fraction_bits, self.state_bits, *units)
        where = f"{self.where}: {self.texts[curve.result]}"
        seen = self.measured.seen_range(curve)
        made = build_table(curve, self.possible[curve.argument], seen, form, self.n_entries, where)
        argument, result = 2.0**made.argument_bits * units[0], 2.0**made.result_bits * units[1]
        self.pinned[curve.result] = {**asdict(made), "entries": made.entries.tolist()}
        self.rows.append(
            {
                "of": self.texts[curve.result],
                "argument": curve.argument,
                "low": made.low / argument,
                "high": made.high / argument,
                "bounds": made.bounds,
                "first": made.first / argument,
                "last": made.last / argument,
                "entries": len(made.entries),
                "step": 2.0**made.step_bits / argument,
                "error": made.error / result,
                "error_units": made.error,
            }
        )
        return made


def restore_table(pinned: dict) -> CurveTable:
    """Return the table of one of `ProgramTables.pinned`."""
    return CurveTable(**{**pinned, "entries": np.array(pinned["entries"], np.int64)})


def any_table(curve: Curve, argument_bits: int) -> CurveTable:
    """Return a placeholder table for `curve` if only the operations matter."""
    return CurveTable(
        entries=np.zeros(2, np.int64),
        first=0,
        last=0,
        step_bits=0,
        low=0,
        high=0,
        argument_bits=argument_bits,
        result_bits=0,
        bounds="proved",
        error=inf,
    )


def build_table(
    curve: Curve, possible: Range, seen: tuple[float, float] | None, form: TableFormat, n_entries: int, where: str
) -> CurveTable:
    """Build the table of a curve whose argument is within `possible`, and within `seen` in the samples.

    Raises ModelError, whose text begins with `where`, if the curve is not finite there or too large for a state.
    """
    low, high, bounds = _argument_range(curve, possible, seen, form, where)
    unit = 2.0**form.argument_bits
    first = floor(low * unit)
    last = max(ceil(high * unit), first + 1)
    # A rounded end may lie outside the curve's domain; one unit further inside is in it.
    first, last = _step_inside(curve, first, 1, unit), _step_inside(curve, last, -1, unit)
    if last - first > MOST_ARGUMENTS:
        raise ModelError(
            f"{where} takes {last - first} different arguments, {curve.argument} of {low / form.argument_unit:.6g}.."
            f"{high / form.argument_unit:.6g}, and table errors are computed for at most {MOST_ARGUMENTS}; "
            f"clamp {curve.argument}, or scale it down"
        )
    top = float(np.abs(curve(np.linspace(first, last, LOOKED_AT) / unit)).max())
    before = ceil(log2(top)) if top > 0 else 0
    result_bits = min(form.most_result_bits, form.state_bits - 1 - before)
    if result_bits < 0:
        raise ModelError(
            f"{where} reaches {top / form.result_unit:.3g}, beyond a state of {form.state_bits} bits; scale the "
            "program down, or clamp what it is computed of"
        )
    blank = replace(any_table(curve, form.argument_bits), first=first, last=last, low=first, high=last)
    made = _search_table(curve, replace(blank, result_bits=result_bits, bounds=bounds), n_entries - 1)
    error = greatest_error(curve, made)
    if not np.isfinite(error) or np.abs(made.entries).max() > LARGEST_ENTRY:
        raise ModelError(
            f"{where} is not finite for some {curve.argument} of {low / form.argument_unit:.6g}.."
            f"{high / form.argument_unit:.6g}; keep it away from them"
        )
    return replace(made, error=error)


def greatest_error(curve: Curve, made: CurveTable) -> float:
    """Return a table's largest difference from its curve over low..high, in units of the result."""
    error, unit = 0.0, 2.0**made.argument_bits
    for first in range(made.low, made.high + 1, CHUNK):
        arguments = np.arange(first, min(first + CHUNK, made.high + 1))
        error = max(error, made.largest_difference(curve(arguments / unit), arguments))
    return error


def _search_table(curve: Curve, blank: CurveTable, max_steps: int) -> CurveTable:
    """Return the table of at most `max_steps` steps with the least error; among fine enough ones, the smallest."""
    at = np.unique(np.linspace(blank.low, blank.high, LOOKED_AT).astype(np.int64))
    wanted = curve(at / 2.0**blank.argument_bits)
    size, best = blank.high - blank.low, blank
    for step_bits in range(size.bit_length(), -1, -1):
        n = min((size >> step_bits) + 1, max_steps)
        beyond = max(size - (n << step_bits), 0)  # the rest without entries, at either end
        low, high = blank.low, blank.low + beyond
        while True:
            places = sorted({low + (high - low) * place // PLACES for place in range(PLACES + 1)})
            tried = [_fill_entries(curve, replace(blank, first=first, step_bits=step_bits), n) for first in places]
            errors = [candidate.largest_difference(wanted, at) for candidate in tried]
            place = int(np.argmin(errors))
            if errors[place] < best.error:
                best = replace(tried[place], error=errors[place])
            if len(places) <= PLACES or high - low <= 1 << step_bits:
                break
            low, high = places[max(place - 1, 0)], places[min(place + 1, len(places) - 1)]
        if best.error <= FINE_ERROR or min(errors) > HOPELESS * best.error:
            break
    return best


def _fill_entries(curve: Curve, blank: CurveTable, n: int) -> CurveTable:
    """Fill in the curve's values at n + 1 arguments, rounded to the nearest number.

    If the last lies beyond `high`, its entry is chosen so that the line before it goes through the value at `high`.
    """
    last = min(blank.first + (n << blank.step_bits), blank.high)
    at = np.append(blank.first + (np.arange(n) << blank.step_bits), last)
    *inner, end = curve(at / 2.0**blank.argument_bits) * 2.0**blank.result_bits
    rest = last - int(at[-2])
    beyond = inner[-1] + (end - inner[-1]) * 2.0**blank.step_bits / rest if rest else inner[-1]
    with np.errstate(invalid="ignore"):
        entries = np.rint([*inner, beyond]).astype(np.int64)
    return replace(blank, entries=entries, last=min(last, blank.first + (n << blank.step_bits) - 1))


def _argument_range(
    curve: Curve, possible: Range, seen: tuple[float, float] | None, form: TableFormat, where: str
) -> tuple[float, float, str]:
    """Return the arguments that a table covers, and how they are known."""
    low, high = possible.low, possible.high
    inner, known = (low, high), "without samples (give calibration samples)"
    if seen is not None:
        margin = max(seen[1] - seen[0], LEAST_MARGIN * max(map(abs, seen)))
        low, high = max(low, seen[0] - margin), min(high, seen[1] + margin)
        inner, known = (min(max(seen[0], low), high), max(min(seen[1], high), low)), "in the samples"
    if not -inf < low <= high < inf:
        raise ModelError(f"{where} has no bounds without samples; give calibration samples, or clamp {curve.argument}")
    at = np.linspace(*inner, LOOKED_AT)
    if not curve.is_defined(at).all():
        raise ModelError(
            f"{where} is not finite for some {curve.argument} of {inner[0] / form.argument_unit:.6g}.."
            f"{inner[1] / form.argument_unit:.6g}, its range {known}; keep it away from there"
        )
    allowed = HEADROOM * float(np.abs(curve(at)).max())
    low = _extend_range(curve, inner[0], low, allowed)
    high = _extend_range(curve, inner[1], high, allowed)
    return low, high, "proved" if low <= possible.low and high >= possible.high else "seen"


def _extend_range(curve: Curve, start: float, end: float, allowed: float) -> float:
    """Return how far from `start` towards `end` the curve's magnitude is at most `allowed`."""
    at = np.linspace(start, end, LOOKED_AT)
    is_good = curve.is_defined(at) & (np.abs(curve(at)) <= allowed)
    return float(at[-1] if is_good.all() else at[max(int(is_good.argmin()) - 1, 0)])


def _step_inside(curve: Curve, at: int, direction: int, unit: float) -> int:
    return at if np.isfinite(curve(np.array(at / unit))) else at + direction
