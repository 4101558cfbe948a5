"""Speed of the network on chip under generated load: packets and flit-hops per second of CPU time, kernels warm.

    python benchmarks/noc.py [--repeats 5] [--booksim PATH]

Uniform traffic of single flits on square meshes (`mesh_spec`), the loads of BookSim 2's table. With `--booksim`, that
program (built from its public sources) runs the same meshes and loads in turn with ours, as often, and the last column
is the ratio of flit-hops per second. Every figure is that of the run with the least CPU time of the whole process (a
replay runs in a thread of its own, so the clock of the calling thread would not see it); the wall clock of that run
stands beside it. A packet's flit-hops are its links between routers and one more.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import save

CASES = [(8, 1, 0.05, 40_000), (8, 1, 0.15, 20_000), (8, 1, 0.30, 10_000), (16, 1, 0.05, 10_000), (16, 1, 0.12, 6_000),
         (8, 4, 0.05, 40_000), (8, 4, 0.15, 20_000), (8, 4, 0.30, 10_000), (16, 4, 0.12, 6_000)]  # fmt: skip
CONFIG = """topology = mesh; n = 2; k = {k}; routing_function = dor; traffic = uniform; packet_size = 1;
num_vcs = {n_vcs}; vc_buf_size = 8; speculative = 1; routing_delay = 0; vc_alloc_delay = 1; sw_alloc_delay = 1;
vc_allocator = islip; sw_allocator = islip; credit_delay = 0; injection_rate = {load};
sim_type = latency; warmup_periods = 3; sim_count = 1; sample_period = 3000;
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--booksim", metavar="PATH", help="the program of BookSim 2")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    rows = []
    for k, n_vcs, load, cycles in CASES:
        row = {"mesh": f"{k}x{k}", "channels": n_vcs, "load": load, **ours(k, n_vcs, load, cycles, args.repeats)}
        if args.booksim:
            theirs = max(booksim(args.booksim, k, n_vcs, load) for _ in range(args.repeats))
            row |= {"BookSim flit-hops/s": theirs, "times BookSim": row["flit-hops/s"] / theirs}
        rows.append(row)
    save("noc", rows, {"repeats": args.repeats, "threads": 1, "seed": 0, "booksim": bool(args.booksim)})


def ours(k: int, n_vcs: int, load: float, cycles: int, repeats: int) -> dict:
    """Figures of the fastest of some replays of one drawn list of packets."""
    import numpy as np

    import nwcompile as nw
    from nwcompile.sim.cycle.noc import replay_packets

    keys = {"noc.columns": k, "noc.rows": k, "noc.virtual_channels": n_vcs}
    chip = nw.Chip.load("mesh_spec").replace(keys)
    rng = np.random.default_rng(0)
    made, src = np.nonzero(rng.random((cycles, k * k)) < load)
    dst = rng.integers(0, k * k, len(made))
    replay_packets(chip, made[:100], src[:100], dst[:100], np.ones(100))
    times = []
    for _ in range(repeats):
        cpu, wall = time.process_time(), time.perf_counter()
        done = replay_packets(chip, made, src, dst, np.ones(len(made)))
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    seconds, wall_seconds = min(times)
    return {
        "packets": len(made),
        "mean latency": float((done.arrive - made).mean()),
        "packets/s": len(made) / seconds,
        "flit-hops/s": float((done.hops + 1).sum()) / seconds,
        "wall s": wall_seconds,
    }


def booksim(program: str, k: int, n_vcs: int, load: float) -> float:
    """Flit-hops per second of CPU time of one run of BookSim 2, as long as its own stopping rule has it."""
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(CONFIG.format(k=k, n_vcs=n_vcs, load=load))
        config.flush()
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        text = subprocess.run([program, config.name], capture_output=True, text=True, check=False).stdout
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    cycles = int(re.findall(r"Time taken is (\d+) cycles", text)[-1])
    hops = float(re.findall(r"Hops average = ([0-9.]+)", text)[-1])
    accepted = float(re.findall(r"Accepted flit rate average = ([0-9.]+)", text)[-1])
    return cycles * k * k * accepted * hops / seconds


if __name__ == "__main__":
    main()
