"""Estimate: one network on many chips, side by side: what fits, how fast, how much energy; and what no chip decides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nwcompile.cost.operations import Operations, operations
from nwcompile.cost.prediction import predict
from nwcompile.errors import FitError, LossError, ModelError, OptionError
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.legalization import APPROXIMATE, EXACT, HOST
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.shown import data_frame
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.report.html_markup import tag
from nwcompile.report.html_tables import table
from nwcompile.report.json.collect import collect
from nwcompile.report.text import aligned, number
from nwcompile.sim import simulate
from nwcompile.sim.inputs import prepare

ALL = "all"  # The word for every chip and board that a refusal may name.
DEFAULTS = Options()
NO_SOURCE = "no source"  # What stands where a chip file has no figures for it: never a guess.
NOT_ON = "–"  # What stands where a network is not on a chip.


@dataclass(frozen=True)
class OnChip:
    """A network on one chip. `label`: exact, approximate or host, None where it does not fit, for a `reason`.

    Times are the floorline's bound of a hardware step, and of a sample, in microseconds, or the mean step of a pool of
    neurons; energy in nanojoules, power in milliwatts, the mean over the sample. None: the chip file lacks figures.
    `bound`: what binds the step, memory, compute, traffic or barrier.
    """

    chip: str
    n_cores: int | None = None
    of_cores: int | None = None
    label: str | None = None
    step_us: float | None = None
    sample_us: float | None = None
    sample_nj: float | None = None
    power_mw: float | None = None
    bound: str | None = None
    reason: str | None = None

    @property
    def fits(self) -> bool:
        """Whether it is on the chip."""
        return self.reason is None


@dataclass(frozen=True)
class Estimate:
    """What `estimate` gives: a row a chip, and the operations of a sample, or why they are not counted."""

    chips: tuple[OnChip, ...]
    operations: Operations | None
    note: str | None = None

    def __repr__(self) -> str:
        header, rows = self._cells()
        return "\n".join([*aligned([header, *rows], n_left=1), "", *self.lines])

    def _repr_html_(self) -> str:
        header, rows = self._cells()
        columns = [(name, "left" if name in ("chip", "as", "bound by") else "right") for name in header]
        return tag("div", table(columns, [list(row) for row in rows]), *(tag("p", line) for line in self.lines))

    def to_frame(self):
        """A row a chip as a pandas.DataFrame, with the fields of OnChip as columns."""
        return data_frame([row.__dict__ for row in self.chips])

    @property
    def lines(self) -> list[str]:
        """What is in the way on chips that are too small or lack a feature, and the operations."""
        lines = [f"{row.chip}: {row.reason}" for row in self.chips if not row.fits]
        if self.operations is None:
            return [*lines, *([] if self.note is None else [self.note])]
        o = self.operations
        lines.append(
            f"operations of a sample, on any chip: {number(o.synops)} synops ({number(o.acs)} ACs, {number(o.macs)} "
            f"MACs), {number(o.energy_nj)} nJ by the 45 nm table; a network without steps: {number(o.ann_macs)} MACs, "
            f"{number(o.ann_energy_nj)} nJ"
        )
        return lines

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        header = ("chip", "cores", "as", "step us", "sample us", "sample nJ", "mean mW", "bound by")
        return header, [_cells_of(row) for row in self.chips]


def _cells_of(row: OnChip) -> tuple[str, ...]:
    if not row.fits:
        return (row.chip, "does not fit", *[NOT_ON] * 6)
    figures = [row.step_us, row.sample_us, row.sample_nj, row.power_mw]
    texts = [NO_SOURCE if figure is None else number(figure) for figure in figures]
    return (row.chip, f"{row.n_cores} of {row.of_cores}", row.label, *texts, row.bound or NO_SOURCE)


def estimate(
    network: Network, chips: Sequence[str | Chip] | str = ALL, x=None, options: Options = DEFAULTS
) -> Estimate:
    """What a network needs of every chip: it is compiled for each with `options`, and nothing is simulated on it.

    `chips`: "all" for the shipped ones, a board where the network is too large for its chip; a name or Chip; or a list.
    `x`: sample input, laid out as the network says; times and energies are those of its activity, a bound on the step,
    and operations are counted in a run of the float network on it. Without it every neuron is taken to spike in 10 % of
    its steps, and operations are not counted. Raises ModelError for samples that the network does not take, ChipError
    for unknown chips, OptionError for options and for no chip at all.
    """
    wanted, boards = _chips(chips)
    if x is not None:
        prepare(network, x)  # samples that are none are no fault of a chip
    rows = [_on(network, chip, x, options) for chip in wanted]
    for i, row in enumerate(rows):
        if not row.fits and row.chip in boards:
            larger = _on(network, boards[row.chip], x, options)
            rows[i] = larger if larger.fits else row
    if x is None:
        return Estimate(tuple(rows), None, "operations are not counted without samples; give --input (x=)")
    counted, note = _operations(network, x)
    return Estimate(tuple(rows), counted, note)


def _chips(chips: Sequence[str | Chip] | str) -> tuple[list[Chip], dict[str, Chip]]:
    """The chips, and for those of "all" the board that each has."""
    if isinstance(chips, str) and chips == ALL:
        known = [chip for name in Chip.names() if (chip := Chip.load(name)).listing.proposed]
        boards = {chip.family: chip for chip in known if chip.is_board}
        return [chip for chip in known if not chip.is_board], boards
    given = [chips] if isinstance(chips, str | Chip) else list(chips)
    if not given:
        raise OptionError("estimate: no chip is named; give names, or 'all'")
    return [chip if isinstance(chip, Chip) else Chip.load(chip) for chip in given], {}


def _on(network: Network, chip: Chip, x, options: Options) -> OnChip:
    try:
        program = compile(network, chip, x, options)
    except FitError as e:
        return OnChip(chip.name, reason=_sentence(str(e.violations[0]), e.change))
    except (LossError, ModelError) as e:
        return OnChip(chip.name, reason=" ".join(str(e).splitlines()[0].split()))
    run = predict(program)
    doc = collect(program, run)
    labels = {change["label"] for change in program.legalization}
    time, energy, pool_us = doc["time"] or {}, doc["energy"] or {}, doc["chip"]["pool_step_us"]
    n_steps = program.schedule.n_hardware_steps(run.activity.n_steps, "aligned")
    row = OnChip(
        chip=chip.name,
        n_cores=program.mapping.n_cores,
        of_cores=chip.n_cores,
        label=next((label for label in (APPROXIMATE, HOST) if label in labels), EXACT),
        step_us=time.get("step_us", pool_us),
        sample_us=time.get("sample_us", None if pool_us is None else pool_us * n_steps),
        sample_nj=energy.get("sample_nj"),
        bound=doc["bottleneck"] and doc["bottleneck"]["kind"],
    )
    known = row.sample_us and row.sample_nj is not None
    return replace(row, power_mw=row.sample_nj / row.sample_us) if known else row


def _sentence(violation: str, change: str | None) -> str:
    text = "  ".join(part.strip() for part in violation.split("  ") if part.strip())
    return text if change is None else f"{text}; it fits with {change}"


def _operations(network: Network, x) -> tuple[Operations | None, str | None]:
    """The operations of a sample in a run of the float network, or why they are not counted."""
    try:
        normal = normalize(network)
        inputs = prepare(normal, x)[0]
        graded = [name for name in normal.inputs if not np.isin(inputs[name], (-1, 0, 1)).all()]
        return operations(normal, simulate(normal, inputs), graded), None
    except ModelError as e:
        return None, f"operations are not counted: {str(e).splitlines()[0]}"
