"""What the populations of the microcircuit do: rates, CV of intervals and correlations of spike trains."""

import numpy as np

from benchmarks.microcircuit_net import PAPER_HZ, SIZES, STEP_MS, sizes_at

BIN_STEPS = 20  # 2 ms, for correlations (van Albada et al., Front. Neurosci. 12:291, 2018).
N_CORRELATED = 200  # Cells of a population whose pairs are correlated, as there.
FEWEST_SPIKES = 3  # Of a cell with a CV: two intervals.
SEED = 0  # Which cells are correlated.


def statistics(spikes: np.ndarray, first: int, end: int, scale: float = 1.0) -> dict[str, dict[str, float]]:
    """By population `hz`, `cv` and `correlation` of spikes int32[2, spike], steps and cells, in steps first..end-1.

    `cv`: standard deviation of a cell's intervals over their mean, averaged over cells with FEWEST_SPIKES or more.
    `correlation`: of spike counts in bins of 2 ms, averaged over all pairs of N_CORRELATED cells that spike at all.
    """
    rng, n_before, by_name = np.random.default_rng(SEED), 0, {}
    step, cell = spikes[:, (spikes[0] >= first) & (spikes[0] < end)]
    seconds = (end - first) * STEP_MS * 1e-3
    for name, n in sizes_at(scale).items():
        within = (cell >= n_before) & (cell < n_before + n)
        steps, cells = step[within] - first, cell[within] - n_before
        n_before += n
        by_name[name] = {"hz": len(steps) / n / seconds, "cv": _cv(steps, cells, n),
                         "correlation": _correlation(steps, cells, n, end - first, rng)}  # fmt: skip
    return by_name


def _cv(steps: np.ndarray, cells: np.ndarray, n: int) -> float:
    order = np.lexsort((steps, cells))
    steps, cells = steps[order].astype(np.float64), cells[order]
    same = cells[1:] == cells[:-1]
    interval, of = np.diff(steps)[same], cells[1:][same]
    count, total, square = (np.bincount(of, w, n) for w in (None, interval, interval**2))
    kept = count >= FEWEST_SPIKES - 1
    mean = total[kept] / count[kept]
    spread = np.sqrt(np.maximum(square[kept] / count[kept] - mean**2, 0))
    return float((spread / mean).mean()) if kept.any() else float("nan")


def _correlation(steps: np.ndarray, cells: np.ndarray, n: int, n_steps: int, rng) -> float:
    active = np.unique(cells)
    chosen = rng.permutation(active)[:N_CORRELATED]
    place = np.full(n, -1)
    place[chosen] = np.arange(len(chosen))
    kept, n_bins = place[cells] >= 0, n_steps // BIN_STEPS
    at = place[cells[kept]] * n_bins + np.minimum(steps[kept] // BIN_STEPS, n_bins - 1)
    table = np.bincount(at, minlength=len(chosen) * n_bins).reshape(len(chosen), n_bins)
    pairs = np.corrcoef(table)
    return float(pairs[np.triu_indices(len(chosen), 1)].mean())


def compared(files: list, integer, first: int, end: int) -> list[dict]:
    """A row for each population: mean and standard deviation of the float runs, the chip's integers, and how far off.

    `files`: .npz files of float runs, of which steps first..end-1 count; `integer`: that of a run of the program, the
    mean over all windows of that length from `first` on.
    """
    runs = [statistics(np.load(file)["spikes"], first, end) for file in files]
    with np.load(integer) as run:
        spikes, starts = run["spikes"], range(first, int(run["n_steps"]) - (end - first) + 1, end - first)
    windows = [statistics(spikes, start, start + end - first) for start in starts]
    rows = []
    for name in SIZES:
        row = {"population": name, "paper_hz": PAPER_HZ[name], "windows": len(windows)}
        for figure in ("hz", "cv", "correlation"):
            values = np.array([run[name][figure] for run in runs])
            mean, spread = float(values.mean()), float(values.std(ddof=1))
            ours = float(np.mean([window[name][figure] for window in windows]))
            row |= {f"{figure}_float": mean, f"{figure}_sd": spread, f"{figure}_integer": ours,
                    f"{figure}_off_sd": (ours - mean) / spread}  # fmt: skip
        rows.append(row)
    return rows
