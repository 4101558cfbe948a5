"""Nets of other people's figures, every flit simulated: speed beside SANA-FE, set-up, memory."""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import nwcompile as nw
from benchmarks.nets import program_of, random_net
from benchmarks.record import median_seconds, save
from nwcompile.sim.cycle.noc_tables import build_mesh
from nwcompile.sim.cycle.run import ChipRun
from tests.sim.cycle.test_sanafe import dvs_program

# steps a second of SANA-FE 2.2.9 on another machine: shared/notes/noc-and-chip-simulators.md, 3.4
NOTED = {"DVS gesture": {"analytic": 119, "flit-exact": 1}, "random 16384": {"analytic": 22, "flit-exact": None}}
RANDOM = {"n_neurons": 16384, "n_cores": 128, "fan_out": 64, "active": 0.04}
MEMORY = """
import re, sys, time
from benchmarks.nets import program_of, random_net
from nwcompile.sim import simulate
program = program_of(random_net(64, 4, 8, 0.05))
simulate(program, None, "cycle", steps=200, window="hardware", record=sys.argv[2])
start = time.process_time()
simulate(program, None, "cycle", steps=int(sys.argv[1]), window="hardware", record=sys.argv[2])
print(time.process_time() - start, re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
"""


def nets(args) -> None:
    """Steps a second of the nets."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.npz"
        np.savez(path, **random_net(**RANDOM))
        dvs = args.reference / "models" / "sanafe_dvs" / "dvs_challenge.npz"
        files = {"DVS gesture": ("dvs", dvs), "random 16384": ("random", path)}
        for name, program, steps in _programs(args):
            row = {"net": name, "steps": steps, **_ours(program, steps, args.repeats)}
            row |= {f"SANA-FE noted, {model} steps/s": figure for model, figure in NOTED[name].items()}
            if args.sanafe:
                row |= _theirs(args.sanafe, *files[name], steps, row)
            rows.append(row)
    save(
        f"cycle_nets_{args.threads}",
        rows,
        {"repeats": args.repeats, "threads": args.threads, "seed": 0, "sanafe": bool(args.sanafe), **RANDOM},
    )


def _programs(args) -> list[tuple[str, nw.Program, int]]:
    """The nets by name, and how many steps of each are simulated."""
    return [
        ("DVS gesture", dvs_program(args.reference), 1000),
        ("random 16384", program_of(random_net(**RANDOM)), 500),
    ]


def threads(args) -> None:
    """One sample on one core and on two, in turn, and two such runs at once: medians of wall clock and of ratios."""
    rows = []
    for name, program, steps in _programs(args):

        def seconds(cores: list[int], program=program, steps=steps) -> float:
            os.sched_setaffinity(0, cores)  # of this thread and of those that it starts
            start = time.perf_counter()
            nw.simulate(program, None, "cycle", steps=steps, window="hardware")
            return time.perf_counter() - start

        first, second = args.cores[:2]
        seconds([first])
        times = []
        for _ in range(args.repeats):
            one, two = seconds([first]), seconds([first, second])
            with ThreadPoolExecutor(2) as pool:
                start = time.perf_counter()
                list(pool.map(seconds, ([first], [second])))
                both = time.perf_counter() - start
            times.append((one, two, both, one / two, 2 * one / both))
        columns = (
            "s on one core",
            "s on two",
            "s of two runs at once",
            "times as fast on two",
            "work of two runs at once",
        )
        rows.append({"net": name, "steps": steps, **dict(zip(columns, np.median(times, 0).tolist(), strict=True))})
    save("cycle_threads", rows, {"repeats": args.repeats, "seed": 0, **RANDOM})


def _ours(program: nw.Program, steps: int, repeats: int) -> dict:
    """One run at a time, whose steps share the cores that the process is pinned to."""

    def once() -> nw.Run:
        return nw.simulate(program, None, "cycle", steps=steps, window="hardware")

    run, times = once(), []
    for _ in range(repeats):
        start = time.process_time(), time.perf_counter()
        once()
        times.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    cpu, wall = (float(seconds) for seconds in np.median(times, 0))
    work = {name: int(run.counters[name].sum()) for name in ("spikes_out", "messages_out", "synops")}
    flit_hops = work["messages_out"] + int(run.counters["hops"].sum())
    return {"steps/s of CPU": steps / cpu, "steps/s of wall clock": steps / wall,
            "flit-hops a step": flit_hops / steps, "flit-hops/s of CPU": flit_hops / cpu, **work,
            "hardware s": run.seconds}  # fmt: skip


def _theirs(python: str, kind: str, path: Path, steps: int, ours: dict) -> dict:
    """SANA-FE on the same net: its analytic model for all steps, its flit-exact one for a hundredth of them."""
    found = {}
    for model, name, n in (("simple", "analytic", steps), ("cycle", "flit-exact", max(steps // 100, 5))):
        command = [python, Path(__file__).parent / "sanafe_peer.py", kind, path, str(n), model]
        done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        found |= {f"SANA-FE {name} steps/s": n / done["seconds"], "SANA-FE set-up s": done["setup s"]}
        if n == steps:
            counted = {"spikes_out": "neurons_fired", "messages_out": "packets_sent", "synops": "spikes"}
            assert all(ours[own] == done[their] for own, their in counted.items()), (ours, done)
    return found


def setup(args) -> None:
    """CPU seconds until the first step: compiling, the tables of a program, those of networks on chip."""
    rows = []
    for name, build in (
        ("DVS gesture", lambda: dvs_program(args.reference)),
        ("random 16384", lambda: program_of(random_net(**RANDOM))),
    ):
        compiled, program = median_seconds(build, args.repeats)
        tables, _ = median_seconds(lambda p=program: ChipRun(p, 1, 1, "hardware").idle_state(), args.repeats)
        rows.append({"what": f"{name} net", "compile s": compiled, "tables s": tables, "SANA-FE noted s": "13 to 60"})
    for k in (4, 16, 32, 64):
        for routing in ("xy", "up-down"):
            keys = {"noc.columns": k, "noc.rows": k, "noc.routing": routing}
            chip = nw.Chip.load("mesh_spec")
            seconds, _ = median_seconds(lambda c=chip, o=keys: build_mesh(c.replace(o)), args.repeats)
            rows.append(
                {
                    "what": f"mesh of {k * k} routers, {routing}",
                    "compile s": 0.0,
                    "tables s": seconds,
                    "SANA-FE noted s": "about 9 for 32 routers" if k == 4 else "",
                }
            )
    save("cycle_setup", rows, {"repeats": args.repeats, "seed": 0})


def memory(args) -> None:
    """Largest memory of a process that simulates so many steps, of which it keeps sums, or all."""
    rows = []
    for record, steps in (
        ("totals", 1000),
        ("totals", 10_000),
        ("totals", 1_000_000),
        ("spikes", 1000),
        ("spikes", 10_000),
    ):
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-c", MEMORY, str(steps), record]
        text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        seconds, kibibytes = text.split()
        rows.append({"record": record, "steps": steps, "CPU s": float(seconds), "largest MiB": int(kibibytes) / 1024})
    save("cycle_memory", rows, {"neurons": 64, "cores": 4, "seed": 0})
