"""Sweep: one network at many points of chips, options and inputs; each kept when it is done, none computed twice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.code_version import code_version
from nwcompile.errors import ModelError, OptionError, shown, unknown_choice
from nwcompile.ir.artifact import write_bytes, write_files
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.shown import count_text, data_frame
from nwcompile.report.html_markup import tag
from nwcompile.report.html_tables import table
from nwcompile.report.text import aligned, number
from nwcompile.sim import BACKENDS
from nwcompile.sim.accuracy import check_labels
from nwcompile.sim.inputs import prepare
from nwcompile.workbench.sweep.front import LARGEST, LEAST, front
from nwcompile.workbench.sweep.measure import OUT_OF_MEMORY, PREDICTION, Measured
from nwcompile.workbench.sweep.page import page
from nwcompile.workbench.sweep.points import CHIP, INPUT, Point, Question, Samples, Space, check_size, read_grid
from nwcompile.workbench.sweep.search import Search, searched
from nwcompile.workbench.sweep.store import Store
from nwcompile.workbench.sweep.workers import KILLED, Workers

DEFAULTS = Options()
TIMES = ("step_us", "sample_us", "edp_nj_us", "least_step_us", "least_edp_nj_us")
ENERGIES = ("sample_nj", "edp_nj_us", "least_sample_nj", "least_edp_nj_us")
FIGURES = ("n_cores_used", "step_us", "sample_us", "sample_nj", "power_mw", "edp_nj_us", "accuracy")
KEPT = ("front", "all")  # Of which points programs and reports can be kept.
OF_THE_MACHINE = (KILLED, OUT_OF_MEMORY)  # Errors that another machine, or a calmer one, need not have.
PAGE = "sweep.html"
MOST_SHOWN = 12  # Rows of the best on a terminal; the page has all.
POINTS = "points"  # The folder of programs and reports, in folders by point id.
FILES = ("net.nwc", "report.json", "report.html")


@dataclass(frozen=True, eq=False)
class Sweep:
    """What `sweep` gives: a row a point, in the order of the grid or of the search, and which of them are best.

    A row has the id of its point, nwcompile's version, what tells model and samples from others, the settings, the
    figures (none where there is an `error`) and the seconds that it took. `n_computed` rows were made now; `n_stale`
    rows in the folder are of another version, model or samples, `n_unreadable` lines are no rows.
    """

    rows: tuple[dict, ...]
    settings: tuple[str, ...]
    minimize: tuple[str, ...]
    maximize: tuple[str, ...]
    folder: Path | None
    n_computed: int
    n_stale: int
    n_unreadable: int

    def __repr__(self) -> str:
        header, cells = self._cells()
        more = [f"... and {len(cells) - MOST_SHOWN} more"] if len(cells) > MOST_SHOWN else []
        few = cells[:MOST_SHOWN]
        lines = aligned([header, *few], n_left=1)
        return "\n".join([self.line, "", *lines, *more, *self.failures])

    def _repr_html_(self) -> str:
        header, cells = self._cells()
        columns = [(name, "left" if i == 0 else "right") for i, name in enumerate(header)]
        lines = [tag("p", line) for line in (self.line, *self.failures)]
        return tag("div", *lines, table(columns, [list(row) for row in cells]))

    @property
    def front(self) -> list[dict]:
        """The rows that no other row beats in every objective."""
        return [self.rows[i] for i in front(list(self.rows), self.minimize, self.maximize)]

    @property
    def failed(self) -> list[dict]:
        """The rows without figures."""
        return [row for row in self.rows if row["error"] is not None]

    @property
    def line(self) -> str:
        """What there is, in one line."""
        wanted = [*(f"least {name}" for name in self.minimize), *(f"highest {name}" for name in self.maximize)]
        reused = len(self.rows) - self.n_computed
        how = f"{self.n_computed} computed" + (f" now, {reused} before" if reused else "")
        n_failed = len(self.failed)
        return (
            f"{count_text(len(self.rows), 'point')} ({how}{f', {n_failed} failed' if n_failed else ''}); best for "
            f"{', '.join(wanted)}: {len(self.front)}"
        )

    @property
    def failures(self) -> list[str]:
        """Why points failed, the most frequent reason first, five at most."""
        reasons: dict[str, int] = {}
        for row in self.failed:
            reasons[row["error"]] = reasons.get(row["error"], 0) + 1
        listed = sorted(reasons.items(), key=lambda item: -item[1])
        more = [f"... and {count_text(len(listed) - 5, 'other reason')}"] if len(listed) > 5 else []
        return [*(f"{count_text(n, 'point')} failed: {text}" for text, n in listed[:5]), *more]

    def to_frame(self):
        """A row a point as a pandas.DataFrame; figures of points that failed are missing."""
        return data_frame(list(self.rows))

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The front as a table: id, settings that differ, figures."""
        rows = self.front
        shown_figures = [name for name in FIGURES if any(row.get(name) is not None for row in rows)]
        header = ("id", *self.settings, *shown_figures)
        return header, [tuple(_cell(row.get(name)) for name in header) for row in rows]


@checked("folder", "minimize", "maximize", "on_point")
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
) -> Sweep:
    """The network compiled and run at every point of `grid`, or at those that a `search` (so many trials) asks for.

    `grid`: {key: values}; a key is one of the chip file ("noc.buffer_flits"), a field of Options, "layer_bits.NAME",
    "chip", or "input" with {name: samples or (samples, labels)} as values, `x` being None then. Other keys are those of
    `chip` and `options`. Points are calibrated on `calibration` (default: their samples `x`) and run on `backend`:
    "cycle" (default with samples), "sequence", "reference", or "prediction", which simulates nothing.
    `folder` keeps each point when it is done (sweep.jsonl) and takes those that are there; there come sweep.html, and
    with `keep` "front" or "all" the programs and reports of the best or all points. `minimize` and `maximize` name
    figures; default: time, energy and cores, and the accuracy, where they are known. `processes` work at once, one for
    each core at hand by default; `cluster` "dask" or the address of a dask scheduler has it done there.
    `on_point(row, n_done, n_points)` is called for each. Rows do not depend on how they are computed, but for the
    seconds. Raises ModelError, ChipError and OptionError for what no point could be computed with, ArtifactError for a
    folder that cannot be written or that another sweep writes to, BackendError for a cluster that cannot be reached.
    """
    question, grid = _question(network, x, labels, calibration, backend, grid)
    if not isinstance(options, Options):
        raise OptionError(f"options must be an nw.Options(...), not {type(options).__name__}")
    search = search if search is None or isinstance(search, Search) else Search(search)
    space = read_grid(grid, question, chip if isinstance(chip, Chip) else Chip.load(chip), options)
    minimize, maximize = _objectives(space, minimize, maximize)
    if search is None:
        check_size(space)
    if keep is not None and not (isinstance(keep, str) and keep in KEPT):
        raise OptionError(unknown_choice("keep", keep, KEPT))
    if keep is not None and folder is None:
        raise OptionError(f"keep={keep!r} needs a folder to keep programs and reports in")
    folder = None if folder is None else Path(folder)
    with Store(folder) as store, Workers(question, processes, cluster) as workers:
        made = Making(question, store, workers, keep == "all", on_point)
        if search is None:
            points = made.announced(list(space.points()))
            made.rows_of(points)
        else:
            made.n_points = search.trials
            points = list(searched(space, search, minimize, maximize, made.rows_of))
        points = list({point.id: point for point in points}.values())
        rows = [made.rows[point.id] for point in points]
        if keep is not None:
            made.keep([points[i] for i in front(rows, minimize, maximize)])
        result = Sweep(
            rows=tuple(rows),
            settings=tuple(space.values),
            minimize=minimize,
            maximize=maximize,
            folder=folder,
            n_computed=made.n_computed,
            n_stale=made.n_stale,
            n_unreadable=store.n_unreadable,
        )
        if folder is not None:
            write_bytes(folder / PAGE, page(result, has_report=made.has_files).encode())
    return result


class Making:
    """The rows of a sweep while they are made: `rows` by point id, and of how many points (`n_points`) that is."""

    def __init__(self, question: Question, store: Store, workers: Workers, keeps_all: bool, on_point: Callable | None):
        self.question, self.store, self.workers = question, store, workers
        self.keeps_all, self.on_point = keeps_all, on_point
        self.rows: dict[str, dict] = {}
        self.n_points = self.n_computed = 0

    @property
    def n_stale(self) -> int:
        """Rows of the folder that another version wrote, or that are of another model or other samples."""
        data = {self.question.data(name) for name in self.question.inputs}
        known = (code_version(), self.question.model)
        return sum(
            (row.get("version"), row.get("model")) != known or row.get("data") not in data
            for row in self.store.rows.values()
        )

    def announced(self, points: list[Point]) -> list[Point]:
        """The points, as all that there are."""
        self.n_points = len(points)
        return points

    def rows_of(self, points: list[Point]) -> dict[str, dict]:
        """The rows of these points, and of all before: those that are in the store, and others computed."""
        missing: dict[str, Point] = {}
        for point in points:
            row = self.store.rows.get(point.id)
            if row is None or _may_go_better(row) or (self.keeps_all and not self._is_kept(row)):
                missing[point.id] = point
            else:
                self.rows[point.id] = {**row, **point.settings}
        for id_ in self.rows:
            missing.pop(id_, None)
        for point, measured in self.workers.measured(list(missing.values()), self.keeps_all):
            self._write(point, measured)
            self._add(point, measured)
        return self.rows

    def keep(self, points: list[Point]) -> None:
        """Have the programs and reports of these points in the folder."""
        missing = [point for point in points if not self.has_files(point.id)]
        for point, measured in self.workers.measured(missing, keep=True):
            self._write(point, measured)
            if measured.figures.get("program") != self.rows[point.id].get("program"):
                self._add(point, measured)  # a point that depends on the machine's speed (time_budget_s)

    def has_files(self, point_id: str) -> bool:
        """Whether the folder has the report of a point."""
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


def _may_go_better(row: dict) -> bool:
    """Whether a row has no figures for want of memory: on a calmer or larger machine it may have some."""
    return row["error"] is not None and row["error"].partition(":")[0] in OF_THE_MACHINE


def _question(network, x, labels, calibration, backend: str | None, grid) -> tuple[Question, dict]:
    """What is asked, and the grid with names for its inputs. Raises errors that every point would have."""
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
        prepare(network, calibration)
    return Question(network, inputs, None if calibration is None else Samples(calibration), backend), grid


def _check_samples(network: Network, samples: Samples) -> None:
    if samples.x is None:
        if samples.labels is not None:
            raise OptionError("labels need samples; give x")
        return
    n_samples = len(next(iter(prepare(network, samples.x)[0].values())))
    labels = samples.labels
    if labels is None:
        return
    if labels.shape != (n_samples,) or labels.dtype.kind not in "iu":
        raise ModelError(
            f"labels of shape {list(labels.shape)} and type {labels.dtype} must be whole numbers, one for each of the "
            f"{n_samples} samples"
        )
    if len(network.outputs) == 1:
        check_labels(labels, network.node(network.outputs[0]).n_neurons)


def _objectives(space: Space, minimize, maximize) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The figures that a point is judged by: those that are named, or of the usual ones those that will be known."""
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


def _cell(value) -> str:
    return "" if value is None else number(value) if isinstance(value, float) else str(value)
