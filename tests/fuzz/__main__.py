"""`make fuzz`: damaged files through every reader, and a table of what became of them. Exit code 1 if any failed.

Input i of a reader depends on the seed and i alone: --start N goes on where a run was ended, and a failure is made
again with --readers NAME --start INDEX --inputs 1. Files that failed stay in the folder of --keep.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

from nwcompile.cli.outputs.text import format_table
from tests.fuzz.readers import READERS, compile_kernels
from tests.fuzz.watch import Tally, watch, worker_command

BATCH = 2500


def main() -> int:
    args = _arguments()
    args.keep.mkdir(parents=True, exist_ok=True)
    compile_kernels()
    n_each = args.inputs // len(args.readers)
    tallies = {name: Tally() for name in args.readers}
    starts = range(args.start, args.start + n_each, args.batch)
    open_batches = [(name, start) for start in starts for name in tallies]
    lock, interrupted = Lock(), Event()

    def batch(name: str, start: int) -> None:
        stop = min(start + args.batch, args.start + n_each)
        tally = watch(worker_command(name, args.seed, args.keep), start, stop, interrupted)
        with lock:
            if not interrupted.is_set():
                open_batches.remove((name, start))
            tallies[name].add(tally)
            for index, text in tally.failures:
                print(f"{name} {index} (seed {args.seed}):\n{text}", flush=True)
            done = sum(tally.n for tally in tallies.values())
            print(f"{done} of {n_each * len(tallies)}; {name} up to {stop}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            for job in [pool.submit(batch, *which) for which in open_batches]:
                job.result()
        except KeyboardInterrupt:
            interrupted.set()
            pool.shutdown(cancel_futures=True)
    print(report(tallies))
    if interrupted.is_set():
        print(f"interrupted; go on with --start {min(start for _, start in open_batches)}")
        return 130
    return 1 if any(tally.failures for tally in tallies.values()) else 0


def report(tallies: dict[str, Tally]) -> str:
    """One row for each reader."""
    header = ("reader", "inputs", "refused", "accepted", "failed", "slowest", "its index")
    rows = [
        (name, t.n, t.counts["refused"], t.counts["accepted"], t.counts["failed"], f"{t.slowest_seconds:.2f} s",
         t.slowest_index)
        for name, t in tallies.items()
    ]  # fmt: skip
    return format_table(header, rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000, help="shared out evenly among the readers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="first input of each reader")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--batch", type=int, default=BATCH, help="inputs of one worker process")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
