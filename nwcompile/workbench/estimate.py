"""Estimate: compare one network on many chips: fit, time and energy, and its chip-independent operations."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from operator import call
from typing import Any

import numpy as np

from nwcompile import plugins
from nwcompile.argument_types import checked
from nwcompile.cost.energy import predict
from nwcompile.cost.tool_counts import Count, Operations, count_operations, op_counts, syops
from nwcompile.errors import ChipError, FitError, LossError, ModelError, OptionError
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_neurons
from nwcompile.ir.manifest import EXACT
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.shown import data_frame, grouped, wrap_lines
from nwcompile.kernels.jit import compile_placement_elsewhere
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize.memory import n_with_room
from nwcompile.passes.quantize.quantize import share_results
from nwcompile.report.html_markup import tag
from nwcompile.report.html_tables import html_table
from nwcompile.report.text import align_rows
from nwcompile.sim import simulate
from nwcompile.sim.inputs import Inputs, prepare_inputs
from nwcompile.sim.sequence.float_run import run_values
from nwcompile.threads import at_once, n_threads
from nwcompile.workbench.figures import collect_figures, describe_failure, format_cell

ALL = "all"  # The word for every chip and board that a refusal may name.
ROUTERS_ONLY = "it describes a network on chip, for nwcompile noc: its cores take no time"
DEFAULTS = Options(partitioner="coarse")  # It maps a network in a few seconds.
MAX_NEURONS_AT_ONCE = 1 << 19  # Larger networks are mapped one by one, as each mapping may take gigabytes.
IN_INTEGERS = "syops and SpikingJelly count layers of torch, not networks in integers"
NO_SOURCE = "–"  # Shown if the chip file has no figures; nothing is guessed.
COUNTS = ("operations of a sample, on any chip", "ACs", "MACs", "nJ by the 45 nm table")
COLUMNS = ("chip", "cores", "step us", "sample us", "nJ", "mW", "basis", "bound by")  # 80 characters in all
LEFT_COLUMNS = ("chip", "basis", "bound by")  # Those with words.


@dataclass(frozen=True)
class OnChip:
    """A network on one chip. `label` is exact, approximate or host, or None with a `reason` if it does not fit.

    Times are the floorline's bound of a hardware step and of a sample in microseconds, or the mean step of a pool of
    neurons. `time_basis`, `energy_basis`: how they are known, as `scaled; -35 % on PilotNet`. Energy is that of the
    cores in nanojoules; power is the mean over the sample in milliwatts. None: the chip file lacks
    figures. `bound`: what limits the step, memory, compute, traffic or barrier.
    """

    chip: str
    n_cores: int | None = None
    of_cores: int | None = None
    label: str | None = None
    step_us: float | None = None
    sample_us: float | None = None
    time_basis: str | None = None
    sample_nj: float | None = None
    energy_basis: str | None = None
    power_mw: float | None = None
    bound: str | None = None
    reason: str | None = None

    @property
    def fits(self) -> bool:
        """Whether the network fits the chip."""
        return self.reason is None


@dataclass(frozen=True)
class Estimate:
    """The result of `estimate`: one row per chip, and the operations of a sample, or why they are not counted."""

    chips: tuple[OnChip, ...]
    operations: Operations | None
    note: str | None = None

    def __repr__(self) -> str:
        return "\n".join(wrap_lines(self.text.split("\n")))

    @property
    def text(self) -> str:
        """The tables and their notes; each note is one line, which `repr` wraps."""
        counts = [""] + align_rows([COUNTS, *self._counts()], n_left=1) if self.counts else []
        table = align_rows([COLUMNS, *rows], n_left=1) if (rows := self._rows()) else []
        return "\n".join([*table, *self.bases, *counts, "", *self.lines]).strip("\n")

    def _repr_html_(self) -> str:
        columns = [(name, "left" if name in LEFT_COLUMNS else "right") for name in COLUMNS]
        counted = [
            html_table(
                [(name, "right" if i else "left") for i, name in enumerate(COUNTS)],
                [list(row) for row in self._counts()],
            )
        ]
        bases, lines = ([tag("p", line) for line in part] for part in (self.bases, self.lines))
        table = html_table(columns, [list(row) for row in self._rows()])
        return tag("div", table, *bases, *(counted if self.counts else ()), *lines)

    def to_frame(self):
        """Return one row per chip as a pandas.DataFrame, with the fields of OnChip as columns."""
        return data_frame([row.__dict__ for row in self.chips])

    @property
    def counts(self) -> tuple[Count, ...]:
        """The operations of a sample by the tools that count them; empty without samples."""
        return () if self.operations is None else self.operations.counts

    @property
    def lines(self) -> list[str]:
        """The reasons why the network does not fit some chips, and what is not counted."""
        chips: dict[str | None, list[str]] = {}
        for row in self.chips:
            if not row.fits:
                chips.setdefault(row.reason, []).append(row.chip)
        lines = [f"does not fit {', '.join(names)}: {reason}" for reason, names in chips.items()]
        return [*lines, *([] if self.note is None else [self.note])]

    @property
    def bases(self) -> list[str]:
        """Notes below the table: on energies, labels, and errors against silicon: `loihi2: time -35 % on PilotNet`."""
        energies = any(row.sample_nj is not None for row in self.chips)
        lines = (
            ["nJ (per sample) and mW (mean) are of the cores only; basis: how the times are known"] if energies else []
        )
        rows = [row for row in self.chips if row.fits]
        lines += [f"{row.chip}: {row.label}" for row in rows if row.label != EXACT]
        if any(NO_SOURCE in _row_cells(row) for row in rows):
            lines.append(f"{NO_SOURCE}: the chip file has no source for the figure")
        for row in rows:
            bases = {"time": row.time_basis, "energy": row.energy_basis}
            texts = {name: (basis or "").partition("; ")[2] for name, basis in bases.items()}
            kinds = [(basis or "").partition(";")[0] for basis in bases.values()]
            lines += [f"{row.chip}: energy is {kinds[1]}"] if all(kinds) and kinds[0] != kinds[1] else []
            errors = ", ".join(f"{name} {error}" for name, error in texts.items() if error)
            lines += [f"{row.chip} against silicon: {errors}"] if errors else []
        return lines

    def _counts(self) -> list[tuple[str, ...]]:
        return [(c.tool, grouped(c.acs), grouped(c.macs), grouped(c.energy_nj)) for c in self.counts]

    def _rows(self) -> list[tuple[str, ...]]:
        return [_row_cells(row) for row in self.chips if row.fits]


def _row_cells(row: OnChip) -> tuple[str, ...]:
    names = ("n_cores", "step_us", "sample_us", "sample_nj", "power_mw")
    basis = (row.time_basis or row.energy_basis or NO_SOURCE).partition(";")[0]
    figures = (format_cell(row.__dict__, name) or NO_SOURCE for name in names)
    return (row.chip, *figures, basis, row.bound or NO_SOURCE)


@checked("options")
def estimate(
    network: Network,
    chips: Sequence[str | Chip] | str = ALL,
    x=None,
    options: Options = DEFAULTS,
    on_chip: Callable[[int, int], None] | None = None,
) -> Estimate:
    """Compile a network for every chip with `options`, and compare cores, time and energy without simulating.

    The default partitioner is `coarse`, which takes seconds. The steps of programs from `compile` are shorter, mostly
    by a few percent, on hundreds of cores by up to half. Several chips are compiled for in parallel, limited by
    processor cores (or NUMBA_NUM_THREADS) and memory; the rows are the same as one after another.

    `chips`: a name, a Chip, a list of them, or "all": every shipped chip (if the network does not fit it, then also its
    boards, up to the first that it fits) and every chip of a plugin. A plugin's chip that fails to load has a row with
    the reason. `x`: sample input in the network's layout. Times (a bound on the step) and energies are for its
    activity, and operations are counted in a run of the float network on it. Without `x` every neuron is assumed to
    spike in 10 % of its steps, and operations are not counted. `on_chip` is called after each of several chips with the
    number of those that are done, and of all. Raises ModelError for samples that do not match the
    network, ChipError for unknown chips, OptionError for wrong options and for an empty list of chips.
    """
    if not isinstance(network, Network):
        raise ModelError(
            f"estimate takes a Network, not {type(network).__name__}; make one with "
            "nw.from_torch(module, example_input)"
        )
    wanted, boards, broken = _load_chips(chips)
    inputs = None if x is None else prepare_inputs(network, x)[0]  # Wrong samples are an error on every chip.
    parts: list[Callable[[], Any]] = [partial(_try_to_count, network, inputs)]
    done = count(1)

    def estimate_one(chip: Chip) -> list[OnChip]:
        rows = _estimate_with_boards(network, boards, x, options, chip)
        if on_chip is not None and len(wanted) > 1:
            on_chip(next(done), len(wanted))
        return rows

    parts += [partial(estimate_one, chip) for chip in wanted]
    n_at_once = _count_parallel(network, inputs, options)
    with share_results(), compile_placement_elsewhere():
        try:
            made = at_once(call, parts, n_at_once)
        except MemoryError:
            if n_at_once == 1:
                raise
            made = at_once(call, parts, 1)  # One at a time may fit into memory.
    (counts, note), *rows = made
    return Estimate((*chain(*rows), *broken), counts, note)


def _load_chips(chips: Sequence[str | Chip] | str) -> tuple[list[Chip], dict[str, list[Chip]], list[OnChip]]:
    """Load the chips; for "all" also return the shipped boards by chip, smallest first, and rows of failed plugins."""
    if isinstance(chips, str) and chips == ALL:
        shipped = [Chip.load(name) for name in Chip.shipped() if name not in plugins.find_entry_points(plugins.CHIPS)]
        boards: dict[str, list[Chip]] = {}
        for chip in sorted(shipped, key=lambda chip: chip.n_cores):
            if chip.listing.board_of is not None:
                boards.setdefault(chip.listing.board_of, []).append(chip)
        given, broken = _load_plugin_chips()
        broken += [OnChip(chip.name, reason=ROUTERS_ONLY) for chip in shipped if _has_routers_only(chip)]
        wanted = [chip for chip in shipped if chip.listing.board_of is None and not _has_routers_only(chip)]
        return [*wanted, *given], boards, broken
    is_one = isinstance(chips, str) or not isinstance(chips, Iterable) or getattr(chips, "ndim", 1) == 0
    named = [chips] if is_one else list(chips)
    if not named:
        raise OptionError("estimate: no chip is named; give names, or 'all'")
    if any(isinstance(name, str) and name == ALL for name in named):
        raise OptionError("estimate: 'all' stands for every chip, alone and in no list")
    return [chip if isinstance(chip, Chip) else Chip.load(chip) for chip in named], {}, []


def _has_routers_only(chip: Chip) -> bool:
    """Whether a chip file describes a network on chip alone: the times of its cores are given, and are all 0."""
    given = [value for name, value in vars(chip.cost).items() if name.endswith("_cycles") and value is not None]
    times = [[*value.values()] if isinstance(value, dict) else value for value in given]
    return chip.cost.barrier_cycles is not None and not any(map(np.any, times))


def _load_plugin_chips() -> tuple[list[Chip], list[OnChip]]:
    """Load the chips and boards of plugins, and make a row for each that fails to load."""
    given, broken = [], []
    for name in plugins.list_names(plugins.CHIPS):
        try:
            given.append(Chip.load(name))
        except (ChipError, OptionError) as e:
            broken.append(OnChip(name, reason=describe_failure(e)))
    return given, broken


def _count_parallel(network: Network, inputs: Inputs | None, options: Options) -> int:
    """The number of chips to compile for in parallel, limited by cores and memory.

    It is 1 with a time budget, a partitioner or placer other than the default, many neurons, or a ModelError.
    """
    usual = (options.partitioner, options.placer) == (DEFAULTS.partitioner, DEFAULTS.placer)
    if not usual or options.time_budget_s is not None or count_neurons(network) > MAX_NEURONS_AT_ONCE:
        return 1
    try:
        return n_with_room(normalize(network), inputs, n_threads())
    except ModelError:
        return 1


def _estimate_with_boards(
    network: Network, boards: dict[str, list[Chip]], x, options: Options, chip: Chip
) -> list[OnChip]:
    """The row of the chip and, if the network does not fit it, those of its boards up to the first that it fits."""
    rows = []
    for place in (chip, *boards.get(chip.name, ())):
        rows.append(_estimate_chip(network, place, x, options))
        if rows[-1].fits:
            break
    return rows


def _estimate_chip(network: Network, chip: Chip, x, options: Options) -> OnChip:
    alone = replace(chip, listing=replace(chip.listing, folder=None))  # A FitError shall not try all other chips.
    try:
        program = compile(network, alone, x, options)
    except (FitError, LossError, ModelError) as e:
        return OnChip(chip.name, reason=describe_failure(e))
    return OnChip(chip.name, **collect_figures(program, predict(program)))


def _try_to_count(network: Network, inputs: Inputs | None) -> tuple[Operations | None, str | None]:
    """Count the operations of a sample; None if not counted, with a note on what is not."""
    if inputs is None:
        real = ", and the figures are for spikes, though the model's example has real values" * network.real_example
        return None, f"operations are not counted without samples{real}; give --input (x=)"
    try:
        return _count_operations(network, inputs)
    except ModelError as e:
        return None, f"operations are not counted: {str(e).splitlines()[0]}"


def _count_operations(network: Network, inputs: Inputs) -> tuple[Operations, str | None]:
    """Count the operations of a sample in a run of the network, and say why a tool does not count them.

    Raises ModelError if no tool does.
    """
    normal = normalize(network)
    graded = [name for name in normal.inputs if not np.isin(inputs[name], (-1, 0, 1)).all()]
    if network.is_fixed or network.host is not None:
        return count_operations(normal, simulate(normal, inputs), graded), IN_INTEGERS
    run, values = run_values(network, inputs, inputs.shape[1], False)
    counted = count_operations(normal, run, graded)
    try:
        return replace(counted, syops=syops(network, values), spikingjelly=op_counts(network, values)), None
    except ModelError as e:
        return counted, f"syops and SpikingJelly do not count it: {str(e).splitlines()[0]}"
