"""Sweep: run one network at many points of chips, options and inputs; store each point, and compute none twice."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.code_version import code_version
from nwcompile.errors import ModelError, OptionError, shown, unknown_choice
from nwcompile.ir.artifact import write_bytes, write_files
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_neurons
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.shown import count_text, data_frame, network_title, wrap_lines
from nwcompile.report.html_markup import tag
from nwcompile.report.html_tables import html_table
from nwcompile.report.text import align_rows
from nwcompile.sim import BACKENDS
from nwcompile.sim.accuracy import check_labels
from nwcompile.sim.answers import count_classes
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.workbench.figures import ENERGIES, TIMES, find_bases, format_cell
from nwcompile.workbench.sweep.measure import OUT_OF_MEMORY, PREDICTION, Measured
from nwcompile.workbench.sweep.page import name_column, render_page
from nwcompile.workbench.sweep.points import CHIP, INPUT, Point, Question, Samples, Space, check_size, read_grid
from nwcompile.workbench.sweep.search import Search, search_points
from nwcompile.workbench.sweep.store import Store
from nwcompile.workbench.sweep.workers import KILLED, Workers

DEFAULTS = Options()
FIGURES = ("n_cores_used", "step_us", "sample_us", "sample_nj", "power_mw", "edp_nj_us", "accuracy")
KEPT = ("front", "all")  # The points whose programs and reports can be stored.
OF_THE_MACHINE = (KILLED, OUT_OF_MEMORY)  # Errors that may not occur again on a larger or less busy machine.
PAGE = "sweep.html"
MOST_SHOWN = 12  # Rows of the front on a terminal; the page has all.
POINTS = "points"  # The folder of programs and reports, in folders by point id.
FILES = ("net.nwc", "report.json", "report.html")
LEAST = ("step_us", "sample_nj", "n_cores_used")
LARGEST = ("accuracy",)


@dataclass(frozen=True, eq=False)
class Sweep:
    """The result of `sweep`: one row per point, in the order of the grid or the search, and which of them are best.

    A row has the id of its point, nwcompile's version, hashes of model and samples, the settings, the figures (none if
    there is an `error`) and the seconds that it took. `n_computed` rows were computed by this call; `n_stale` rows in
    the folder are of another version, model or samples; `n_unreadable` lines are not rows. `title`: names of model and
    input, network and chip.
    """

    rows: tuple[dict, ...]
    settings: tuple[str, ...]
    minimize: tuple[str, ...]
    maximize: tuple[str, ...]
    folder: Path | None
    n_computed: int
    n_stale: int
    n_unreadable: int
    title: str = "a network"

    def __repr__(self) -> str:
        return "\n".join(wrap_lines(self.text.split("\n")))

    @property
    def text(self) -> str:
        """The table of points and its notes; each note is one line, which `repr` wraps."""
        header, cells = self._cells()
        more = [f"... and {len(cells) - MOST_SHOWN} more"] if len(cells) > MOST_SHOWN else []
        few = cells[:MOST_SHOWN]
        lines = align_rows([header, *few], n_left=1)
        return "\n".join([self.line, *self.bases, "", *lines, *more, *self.failures])

    def _repr_html_(self) -> str:
        header, cells = self._cells()
        columns = [(name, "left" if i == 0 else "right") for i, name in enumerate(header)]
        lines = [tag("p", line) for line in (self.line, *self.bases, *self.failures)]
        return tag("div", *lines, html_table(columns, [list(row) for row in cells]))

    @property
    def front(self) -> list[dict]:
        """The rows that no other row dominates in the objectives."""
        return [self.rows[i] for i in pareto_front(list(self.rows), self.minimize, self.maximize)]

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each point, by which people call it, by its id: 1 for the first row."""
        return {row["id"]: i for i, row in enumerate(self.rows, 1)}

    @property
    def failed(self) -> list[dict]:
        """The rows without figures."""
        return [row for row in self.rows if row["error"] is not None]

    @property
    def line(self) -> str:
        """Summary in one line."""
        goals = [(name, "") for name in self.minimize] + [(name, " (highest)") for name in self.maximize]
        wanted = [f"{name_column(name).partition(',')[0]}{way}" for name, way in goals]
        varied = [name for name in self.settings if any(row.get(name) != self.rows[0].get(name) for row in self.rows)]
        reused = len(self.rows) - self.n_computed
        how = f"{self.n_computed} computed" + (f" now, {reused} before" if reused else "")
        n_failed = len(self.failed)
        return (
            f"{count_text(len(self.rows), 'point')} ({how}{f', {n_failed} failed' if n_failed else ''})"
            f"{' over ' * bool(varied)}{', '.join(map(name_column, varied))}; "
            f"{len(self.front)} Pareto-optimal in {', '.join(wanted)}"
        )

    @property
    def bases(self) -> list[str]:
        """Say how times and energies are known: `times: scaled; -35 % on PilotNet`, with the points of each."""
        lines = []
        for what, name in (("times", "step_us"), ("energies of the cores", "sample_nj")):
            texts = Counter(text for row in self.rows for text in find_bases(row, name))
            counted = [text if len(texts) == 1 else f"{text} ({count_text(n, 'point')})" for text, n in texts.items()]
            lines += [f"{what}: {', '.join(counted)}"] if counted else []
        return lines

    @property
    def failures(self) -> list[str]:
        """The reasons why points failed, the most frequent first, at most five."""
        reasons: dict[str, int] = {}
        for row in self.failed:
            reasons[row["error"]] = reasons.get(row["error"], 0) + 1
        listed = sorted(reasons.items(), key=lambda item: -item[1])
        more = [f"... and {count_text(len(listed) - 5, 'other reason')}"] if len(listed) > 5 else []
        return [*(f"{count_text(n, 'point')} failed: {text}" for text, n in listed[:5]), *more]

    def to_frame(self):
        """Return one row per point as a pandas.DataFrame; figures of failed points are missing."""
        return data_frame(list(self.rows))

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The front as a table: the number of the point, settings, figures."""
        rows, numbers = self.front, self.numbers
        names = [*self.settings, *(name for name in FIGURES if any(row.get(name) is not None for row in rows))]
        cells = [(str(numbers[row["id"]]), *(format_cell(row, name) for name in names)) for row in rows]
        return ("point", *map(name_column, names)), cells


@checked("folder", "minimize", "maximize", "on_point", "on_start", "title")
def sweep(
    network: Network,
    x,
    grid: dict,
    chip: Chip | str = "loihi1",
    *,
    labels=None,
    calibration=None,
    options: Options = DEFAULTS,
    backend: str | None = None,
    folder: Path | str | None = None,
    search: Search | int | None = None,
    minimize: str | Sequence[str] | None = None,
    maximize: str | Sequence[str] | None = None,
    processes: int | None = None,
    cluster: str | None = None,
    keep: str | None = None,
    on_point: Callable | None = None,
    on_start: Callable | None = None,
    title: str | None = None,
) -> Sweep:
    """Compile and run a network at every point of `grid`, or at the points of a `search` (a number of trials).

    `grid`: {key: values}. A key is one of the chip file ("noc.buffer_flits"), a field of Options, "layer_bits.NAME",
    "chip", or "input" with values {name: samples or (samples, labels)}; then `x` is None. Keys that the grid lacks are
    as in `chip` and `options`. Points are calibrated on `calibration` (default: their samples `x`) and run on
    `backend`: "cycle" (default with samples), "sequence", "reference", or "prediction", which does not simulate.
    `folder` stores each finished point (sweep.jsonl), and stored points are reused. It also gets sweep.html and, with
    `keep` "front" or "all", the programs and reports of the best or all points. `minimize` and `maximize` name figures;
    the default is time, energy, cores and accuracy, where known. `processes` run in parallel, by default one for each
    available core; `cluster` is "dask" or the address of a dask scheduler.
    `on_start(n_done, n_points)` is called before the first point that must be computed, `on_point(row, n_done,
    n_points)` after each. `title`: names of model and input, which the page's title begins with. Except for the
    seconds, rows do not depend on how they are computed. Raises ModelError, ChipError and OptionError for errors that
    every point would have, ArtifactError for a folder that cannot be written or is in use by another sweep,
    BackendError for an unreachable cluster.
    """
    question, grid = _build_question(network, x, labels, calibration, backend, grid)
    if not isinstance(options, Options):
        raise OptionError(f"options must be an nw.Options(...), not {type(options).__name__}")
    search = search if search is None or isinstance(search, Search) else Search(search)
    space = read_grid(grid, question, chip if isinstance(chip, Chip) else Chip.load(chip), options)
    minimize, maximize = _choose_objectives(space, minimize, maximize)
    if search is None:
        check_size(space)
    if keep is not None and not (isinstance(keep, str) and keep in KEPT):
        raise OptionError(unknown_choice("keep", keep, KEPT))
    if keep is not None and folder is None:
        raise OptionError(f"keep={keep!r} needs a folder to keep programs and reports in")
    folder = None if folder is None else Path(folder)
    with Store(folder) as store, Workers(question, processes, cluster) as workers:
        made = Making(question, store, workers, keep == "all", on_start, on_point)
        if search is None:
            points = list(space.points())
            made.n_points = len(points)
            made.rows_of(points)
        else:
            made.n_points = search.trials
            points = list(search_points(space, search, minimize, maximize, made.rows_of))
        points = list({point.id: point for point in points}.values())
        rows = [made.rows[point.id] for point in points]
        if keep is not None:
            made.keep([points[i] for i in pareto_front(rows, minimize, maximize)])
        chips = {chip.name for chip in space.values.get(CHIP, (space.chip,))}
        chip_text = f"{len(chips)} chips" if len(chips) > 3 else " and ".join(sorted(chips))
        network_text = network_title(len(network.layers), count_neurons(network), chip_text)
        result = Sweep(
            rows=tuple(rows),
            settings=tuple(space.values),
            minimize=minimize,
            maximize=maximize,
            folder=folder,
            n_computed=made.n_computed,
            n_stale=made.n_stale,
            n_unreadable=store.n_unreadable,
            title=f"{title}: {network_text}" if title is not None else network_text,
        )
        if folder is not None:
            write_bytes(folder / PAGE, render_page(result, has_report=made.has_files).encode())
    return result


class Making:
    """The state of a running sweep: `rows` by point id, and the total number of points, `n_points`."""

    def __init__(
        self,
        question: Question,
        store: Store,
        workers: Workers,
        keeps_all: bool,
        on_start: Callable | None,
        on_point: Callable | None,
    ):
        self.question, self.store, self.workers = question, store, workers
        self.keeps_all, self.on_start, self.on_point = keeps_all, on_start, on_point
        self.rows: dict[str, dict] = {}
        self.n_points = self.n_computed = 0

    @property
    def n_stale(self) -> int:
        """The number of rows in the folder that are of another version, model or samples."""
        data = {self.question.data(name) for name in self.question.inputs}
        known = (code_version(), self.question.model)
        return sum(
            (row.get("version"), row.get("model")) != known or row.get("data") not in data
            for row in self.store.rows.values()
        )

    def rows_of(self, points: list[Point]) -> dict[str, dict]:
        """Load the rows of these points from the store, compute the missing ones, and return all rows so far."""
        missing: dict[str, Point] = {}
        for point in points:
            row = self.store.rows.get(point.id)
            if row is None or _may_succeed_later(row) or (self.keeps_all and not self._is_kept(row)):
                missing[point.id] = point
            else:
                self.rows[point.id] = {**row, **point.settings}
        for id_ in self.rows:
            missing.pop(id_, None)
        if missing and self.n_computed == 0 and self.on_start is not None:
            self.on_start(len(self.rows), self.n_points)
        for point, measured in self.workers.compute_points(list(missing.values()), self.keeps_all):
            self._write(point, measured)
            self._add(point, measured)
        return self.rows

    def keep(self, points: list[Point]) -> None:
        """Write the programs and reports of these points that the folder lacks."""
        missing = [point for point in points if not self.has_files(point.id)]
        for point, measured in self.workers.compute_points(missing, keep=True):
            self._write(point, measured)
            if measured.figures.get("program") != self.rows[point.id].get("program"):
                self._add(point, measured)  # The program depends on the machine's speed (time_budget_s).

    def has_files(self, point_id: str) -> bool:
        """Whether the folder has the program and the report of a point."""
        folder = self._folder(point_id)
        return folder is not None and all((folder / name).is_file() for name in FILES)

    def _is_kept(self, row: dict) -> bool:
        return row["error"] is not None or self.has_files(row["id"])

    def _folder(self, point_id: str) -> Path | None:
        return None if self.store.path is None else self.store.path.parent / POINTS / point_id

    def _write(self, point: Point, measured: Measured) -> None:
        folder = self._folder(point.id)
        if folder is not None and measured.files:
            write_files({folder / name: data for name, data in measured.files.items()})

    def _add(self, point: Point, measured: Measured) -> None:
        known = {"version": code_version(), "model": self.question.model, "data": self.question.data(point.input)}
        row = {"id": point.id, **known, **point.settings, **measured.figures}
        self.rows[point.id] = row | {"error": measured.error, "seconds": round(measured.seconds, 3)}
        self.store.add(self.rows[point.id])
        self.n_computed += 1
        if self.on_point is not None:
            self.on_point(self.rows[point.id], len(self.rows), self.n_points)


def _may_succeed_later(row: dict) -> bool:
    """Whether a row failed for lack of memory, so that it may succeed on a larger or less busy machine."""
    return row["error"] is not None and row["error"].partition(":")[0] in OF_THE_MACHINE


def _build_question(network, x, labels, calibration, backend: str | None, grid) -> tuple[Question, dict]:
    """Build the Question, and replace the grid's inputs by their names. Raises errors that every point would have."""
    if not isinstance(network, Network):
        raise ModelError(
            f"sweep takes a Network, not {type(network).__name__}; make one with nw.from_torch(module, example_input)"
        )
    inputs = {"x": Samples(x, None if labels is None else np.asarray(labels))}
    named = grid.get(INPUT) if isinstance(grid, dict) else None
    if isinstance(named, dict):
        if x is not None or labels is not None:
            raise OptionError("grid: input names the samples of each point; leave out x and labels")
        pairs = {name: given if isinstance(given, tuple) else (given, None) for name, given in named.items()}
        wrong = next((name for name, pair in pairs.items() if len(pair) != 2), None)
        if wrong is not None:
            raise OptionError(
                f"grid: input {wrong!r} must be samples or (samples, labels), not {len(pairs[wrong])} things"
            )
        inputs = {name: Samples(x, None if y is None else np.asarray(y)) for name, (x, y) in pairs.items()}
    elif named is not None:
        raise OptionError(f"grid: input = {shown(named)} must be {{name: samples}} or {{name: (samples, labels)}}")
    without = next((name for name, samples in inputs.items() if samples.x is None), None)
    backend = backend or (PREDICTION if without is not None else "cycle")
    if backend not in (PREDICTION, *BACKENDS):
        raise OptionError(unknown_choice("backend", backend, (PREDICTION, *BACKENDS)))
    if backend != PREDICTION and without is not None:
        raise OptionError(f"backend {backend!r} needs samples to run; give x, or backend {PREDICTION!r}")
    for samples in inputs.values():
        _check_samples(network, samples)
    if calibration is not None:
        prepare_inputs(network, calibration)
    return Question(network, inputs, None if calibration is None else Samples(calibration), backend), grid


def _check_samples(network: Network, samples: Samples) -> None:
    if samples.x is None:
        if samples.labels is not None:
            raise OptionError("labels need samples; give x")
        return
    n_samples = len(next(iter(prepare_inputs(network, samples.x)[0].values())))
    labels = samples.labels
    if labels is None:
        return
    if labels.shape != (n_samples,) or labels.dtype.kind not in "iu":
        raise ModelError(
            f"labels of shape {list(labels.shape)} and type {labels.dtype} must be whole numbers, one for each of the "
            f"{n_samples} samples"
        )
    n_classes = count_classes(network)
    if n_classes is not None:
        check_labels(labels, n_classes)


def _choose_objectives(space: Space, minimize, maximize) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The objectives: the named figures, or the default ones that the chip files and samples can provide."""
    chips = space.values.get(CHIP, (space.chip,))
    unknown: dict[str, str] = {}
    if not all(chip.gives_times for chip in chips):
        unknown |= dict.fromkeys(TIMES, "a chip file without all of its times (cost.*)")
    if not all(chip.has_energies for chip in chips):
        unknown |= dict.fromkeys(ENERGIES, "a chip file without all of its energies (energy.*)")
    if not all(samples.labels is not None for samples in space.question.inputs.values()):
        unknown["accuracy"] = "samples without labels"
    if minimize is None and maximize is None:
        return tuple(n for n in LEAST if n not in unknown), tuple(n for n in LARGEST if n not in unknown)
    least, largest = ((n,) if isinstance(n, str) else tuple(n or ()) for n in (minimize, maximize))
    if not least and not largest:
        raise OptionError(f"no figure is named to be least or largest; choose from: {', '.join(FIGURES)}")
    for i, name in enumerate((*least, *largest)):
        if name not in FIGURES:
            raise OptionError(unknown_choice("figure", name, FIGURES))
        if name in unknown:
            raise OptionError(f"{name} cannot be an objective: the sweep has {unknown[name]}")
        if name in (*least, *largest)[:i]:
            raise OptionError(f"{name} is an objective twice; name each figure once, to be least or to be largest")
    return least, largest


def pareto_front(rows: list[dict], minimize: tuple[str, ...], maximize: tuple[str, ...]) -> list[int]:
    """Indices of the rows on the Pareto front; equal rows all stay.

    Rows that lack one of the figures are left out.
    """
    names = (*minimize, *maximize)
    known = [i for i, row in enumerate(rows) if all(row.get(name) is not None for name in names)]
    if not known or not names:
        return []
    sign = np.array([1.0] * len(minimize) + [-1.0] * len(maximize))
    costs = np.array([[float(rows[i][name]) for name in names] for i in known]) * sign
    left, best = np.lexsort(costs.T[::-1]), []  # A row that dominates another comes before it.
    while len(left):
        first = costs[left[0]]
        equal = (costs[left] == first).all(1)
        best += left[equal].tolist()
        left = left[(costs[left] < first).any(1)]
    return sorted(known[i] for i in best)
