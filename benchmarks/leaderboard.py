"""Leaderboard: every mapping method on our nets and those of publications, with equal chips, cores and seconds.

    python benchmarks/leaderboard.py
    python benchmarks/leaderboard.py --net mnist,hysmap80-4 --method all,benchmarks.own_method:deal --name mine
    python benchmarks/leaderboard.py --page

Each row is one mapping of one net by one method, as benchmarks/mapping.py makes and measures it. Methods are named as
there; `all` stands for those of the leaderboard, and module:function is one of your own. Every method gets the same
chip, the same number of cores and `--limit` seconds of the processor. The halving rule takes no number of cores and
finds its own. Two processes measure one row after another, each on one thread. The table is printed and written to
results/<name>.json, after every row; `--resume` takes rows from there. `--page` writes docs/leaderboard.md and its
figure from results/leaderboard.json, and measures nothing.
"""

import argparse
import itertools
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from benchmarks.mapping import REFERENCE, load_net, measure
from benchmarks.mapping_nets import Net
from benchmarks.record import RESULTS, save, write
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.kernels.mapping import core_usage
from nwcompile.passes.analyze.capacity import site_limits

TIME, EDP, HOPS = "measured us", "EDP J s", "hops"  # columns by which mappings are compared


class Contest(NamedTuple):
    """The cores that every method gets for a net, and the columns that are compared."""

    cores: int
    goals: tuple[str, ...]


# Hops are no goal where a few cores could hold the net, and the others would get a neuron each, or where the search for
# the fewest takes longer than the limit. benchmarks/mapping.py compares them there, at equal steps.
CONTESTS = {
    "hysmap80-4": Contest(16, (HOPS,)),
    "hysmap80-6": Contest(36, (HOPS,)),
    "hysmap108-6": Contest(36, (HOPS,)),
    "mlp": Contest(128, (TIME,)),
    "mnist": Contest(11, (TIME, EDP)),
    "cnn": Contest(32, (TIME, EDP, HOPS)),
    "dvs": Contest(42, (TIME, EDP, HOPS)),
    "potjans2": Contest(16, (TIME,)),
    "potjans": Contest(16, (TIME, EDP)),
    "random": Contest(32, (TIME, EDP)),
    "vgg9": Contest(256, (TIME,)),
}
OURS = {TIME: "floorline+routed", EDP: "floorline:edp+routed", HOPS: "floorline:traffic"}
PARTITIONS = [
    *("metis", "sequential", "striped", "striped-halves", "kernighan-lin", "hypergraph", "streaming"),
    *("neumap+neumap", "neuromap+neuromap", "hysmap+row-major", "halving"),
]
PLACERS = [f"metis+{placer}" for placer in ("row-major", "hilbert", "spectral", "force", "pso", "hill-climb")]
OWN_CORES = {"halving"}  # methods that take no number of cores
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Job(NamedTuple):
    """One row to measure."""

    net: str
    method: str


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default=",".join(CONTESTS), help="comma-separated: " + ", ".join(CONTESTS))
    parser.add_argument("--method", default="all", help="comma-separated; all: those of the leaderboard")
    parser.add_argument("--limit", type=int, default=60, help="CPU seconds for each row")
    parser.add_argument("--seed", type=int, default=0, help="of all random searches")
    parser.add_argument("--processes", type=int, default=2, help="rows measured at a time")
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="folder of other projects' files")
    parser.add_argument("--name", default="leaderboard", help="writes benchmarks/results/NAME.json")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the results have")
    parser.add_argument("--page", action="store_true", help="only write the page from the results")
    args = parser.parse_args(argv)
    if args.page:
        from benchmarks.leaderboard_page import write_files

        return write_files(json.loads((RESULTS / "leaderboard.json").read_text()))
    if unknown := {*args.net.split(",")} - {*CONTESTS}:
        parser.error(f"unknown net {', '.join(sorted(unknown))}; choose from {', '.join(CONTESTS)}")
    if args.limit < 1:
        parser.error(f"--limit {args.limit} must be 1 or more CPU seconds")
    os.environ.update(dict.fromkeys(THREADS, "1"))  # of the processes that are started
    start, path = time.perf_counter(), RESULTS / f"{args.name}.json"
    before = json.loads(path.read_text())["rows"] if args.resume else []
    rows = {Job(row["net"], row["method"]): row for row in before}
    asked = itertools.product(args.net.split(","), args.method.split(","))
    jobs = [Job(net, name) for net, method in asked for name in (methods_of(net) if method == "all" else [method])]
    jobs = [job for job in jobs if job not in rows]
    settings = {key: getattr(args, key) for key in ("limit", "seed", "processes")}
    with tempfile.TemporaryDirectory() as folder:
        for row in measure_all(jobs, args, Path(folder)):
            rows[Job(row["net"], row["method"])] = row
            write(args.name, in_order(rows.values()), settings)
    save(args.name, in_order(rows.values()), settings)
    total = sum(row["row s"] for row in rows.values())
    print(f"{time.perf_counter() - start:.0f} s; all rows took {total:.0f} CPU seconds")


def methods_of(net: str) -> list[str]:
    """Methods for a net: placers only if hops are a goal, as other goals hardly depend on them."""
    goals = CONTESTS[net].goals
    return [*PARTITIONS, *(PLACERS if HOPS in goals else []), *(OURS[goal] for goal in goals)]


def in_order(rows) -> list[dict]:
    """The rows by net, all with the same columns."""
    nets, columns = list(CONTESTS), dict.fromkeys(key for row in rows for key in row)
    return [{**columns, **row} for row in sorted(rows, key=lambda row: nets.index(row["net"]))]


def measure_all(jobs: list[Job], args, folder: Path) -> Iterator[dict]:
    """Yield the rows of all jobs as they come, from `args.processes` processes at a time."""
    found: SimpleQueue[dict] = SimpleQueue()
    nets = list(dict.fromkeys(job.net for job in reversed(jobs)))  # the last ones take longest
    with ThreadPoolExecutor(args.processes) as pool:
        works = [pool.submit(_measure_net, [j for j in jobs if j.net == net], args, folder, found) for net in nets]
        for _ in jobs:
            yield found.get()
        for work in works:
            work.result()


def _measure_net(jobs: list[Job], args, folder: Path, found: SimpleQueue) -> None:
    """Put the rows of one net, measured by one process, which is started again if a row ends it."""
    context, left = get_context("spawn"), list(jobs)
    while left:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, left, args, folder))
        process.start()
        theirs.close()
        try:
            while left:
                found.put(ours.recv())
                left.pop(0)
        except EOFError:
            process.join()
            is_late = process.exitcode == -signal.SIGXCPU
            outcome = f"over {args.limit} s" if is_late else f"ended with {process.exitcode}"
            found.put({**left.pop(0)._asdict(), "row s": float(args.limit), "outcome": outcome})
        process.join()


def _serve(pipe, jobs: list[Job], args, folder: Path) -> None:
    """Measure jobs of one net and send the rows. The kernel ends this process when a row takes too long."""
    net = load_net(jobs[0].net, folder, args.reference)
    for job in jobs:
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + args.limit + 1, resource.RLIM_INFINITY))
        pipe.send(measure_row(net, job, args))
    pipe.close()


def measure_row(net, job: Job, args) -> dict:
    """Measure one row: the figures of the mapping, and bounds that no mapping can undercut."""
    start, cores = time.process_time(), "" if job.method in OWN_CORES else f"@{CONTESTS[job.net].cores}"
    own = {"method": job.method + cores, "seed": args.seed, "optimize": "time", "predict_only": False, "sanafe": None}
    row = measure(net, argparse.Namespace(**own))
    kept = ("cores", TIME, EDP, HOPS, "least us", "least EDP J s", "seconds", "outcome")
    of_net = {"chip": net.chip.name, "neurons": net.n_neurons, "least hops": least_hops(net)}
    return {**job._asdict(), **of_net, **{k: row.get(k) for k in kept}, "row s": time.process_time() - start}


def least_hops(net: Net) -> float:
    """Hops per sample that no mapping can undercut.

    A spike reaches every router that holds a reader. A router holds `room` neurons, the spike's own router one less
    besides its neuron, and messages to n other routers take at least n links. Readers in several layers add up.
    """
    chip, network, hops = net.chip, net.network, 0.0
    room = chip.noc.cores_per_router * int(site_limits(chip)[:, core_usage.NEURONS].max())
    for name in network.layers:
        n_readers = {}  # by target: several connections to one layer may reach the same neurons
        for edge in (edge for edge in network.connections if edge.source == name):
            wiring = connection_wiring(network, edge)
            size = np.bincount(wiring.target_class, minlength=len(wiring.offset) - 1)
            of_class = np.bincount(wiring.taps, np.repeat(size, np.diff(wiring.offset)), wiring.source_class.max() + 1)
            has_loops = edge.target == name and not (isinstance(edge, nw.Sparse) and (edge.pre != edge.post).all())
            n = of_class[wiring.source_class] - has_loops
            n_readers[edge.target] = np.maximum(n_readers.get(edge.target, 0), n)
        n_outside = np.maximum(sum(n_readers.values(), np.zeros(1)) - (room - 1), 0)
        hops += (net.activity.counts[name].sum(0) * np.ceil(n_outside / room)).sum()
    return float(hops / net.activity.n_samples)


if __name__ == "__main__":
    main()
