"""Sweeps: 200 points of the demo network on one and two processes and on a dask cluster; a search of the DVS net.

    .venv/bin/python benchmarks/sweep.py grid [--repeats 3]
    .venv/bin/python benchmarks/sweep.py search [--reference DIR] [--folder DIR]

grid: whole processes, `nwcompile sweep` from start to end, one and two processes by turns, then two workers of a dask
cluster; all tables must be equal but for the seconds. search: 100 trials of Optuna for the least energy-delay product
of the DVS-gesture net on Loihi 1, time measured by backend cycle; its input is what the first layer fires in 100 steps.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from benchmarks.record import save
from tests.conftest import REFERENCE
from tests.sim.cycle.test_sanafe import dvs_program

ROOT = Path(__file__).resolve().parents[1]
PLAN = """
model = "demo.nir"
input = "demo.npz"

[grid]
n_cores = { from = 1, to = N_CORES }
bits = [2, 3, 4, 6, 8]
noc.buffer_flits = [1, 2, 4, 8]
"""
N_POINTS_OF_A_CORE_COUNT = 20
STEPS = 100
AXONS = {"core.max_in_axons": 4096, "core.max_out_axons": 4096, "noc.buffer_flits": 16}  # as in benchmarks/mapping.py
SPACE = {
    "optimize": ["time", "edp", "energy"],
    "n_cores": [None, *range(48, 129, 8)],
    "partitioner": ["floorline", "striped"],
    "placer": ["anneal", "routed"],
    "seed": [0, 1, 2],
}


def demo_plan(folder: Path, n_cores: int) -> None:
    """The demo network, its samples and the plan, as files."""
    shown = nw.demo()
    nw.to_nir(shown.network, folder / "demo.nir")
    np.savez(folder / "demo.npz", x=shown.x, y=shown.labels)
    (folder / "plan.toml").write_text(PLAN.replace("N_CORES", str(n_cores)))


def seconds_of(folder: Path, output: str, *flags: str) -> float:
    """Wall seconds of one whole sweep into an empty folder."""
    command = [sys.executable, "-m", "nwcompile", "sweep", "plan.toml", "-o", output, "--keep", "none", *flags]
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, check=True)
    return time.perf_counter() - start


def table_of(folder: Path, output: str) -> dict[str, dict]:
    """The rows by id, without their seconds."""
    rows = [json.loads(line) for line in (folder / output / "sweep.jsonl").read_text().splitlines()]
    return {row["id"]: {name: value for name, value in row.items() if name != "seconds"} for row in rows}


def grid(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        demo_plan(folder, args.cores)
        ways = {"1 process": ("--processes", "1"), "2 processes": ("--processes", "2"),
                "dask, 2 workers": ("--processes", "2", "--cluster", "dask")}  # fmt: skip
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for repeat in range(args.repeats):
            for way, flags in ways.items():
                seconds[way].append(seconds_of(folder, f"{way}{repeat}", *flags))
                print(f"{way}: {seconds[way][-1]:.1f} s", file=sys.stderr, flush=True)
        tables = [table_of(folder, f"{way}{repeat}") for way in ways for repeat in range(args.repeats)]
        n_points = args.cores * N_POINTS_OF_A_CORE_COUNT
        assert len(tables[0]) == n_points and all(table == tables[0] for table in tables[1:])
    one = statistics.median(seconds["1 process"])
    rows = []
    for way, walls in seconds.items():
        median = statistics.median(walls)
        rows.append({"way": way, "points": n_points, "seconds": round(median, 1), "points a second": n_points / median,
                     "times as fast": one / median, "all seconds": [round(s, 1) for s in walls]})  # fmt: skip
    save("sweep", rows, {"plan": PLAN, "repeats": args.repeats, "order": "by turns", "equal tables": True})


def dvs(reference: Path) -> tuple[nw.Network, np.ndarray, nw.Chip]:
    """The DVS-gesture net without its first layer, what that fires as its input [1, T, 1, 32, 32], and its chip."""
    base = dvs_program(reference)
    spikes = nw.simulate(base, None, "sequence", steps=STEPS).spikes["input"]
    whole = base.network
    layers = {name: (whole.node(name).neuron, whole.node(name).shape) for name in whole.layers if name != "input"}
    edges = [replace(edge, delay=0) if edge.source == "input" else edge for edge in whole.connections]
    network = nw.Network.from_arrays(layers, edges, {"input": whole.node("input").shape})
    return network, spikes, base.chip.replace(AXONS)


def search(args: argparse.Namespace) -> None:
    network, x, chip = dvs(args.reference)

    def told(row: dict, n_done: int, n_points: int) -> None:
        print(n_done, n_points, row.get("edp_nj_us"), row["error"], row["seconds"], file=sys.stderr, flush=True)

    start = time.perf_counter()
    goals = ("edp_nj_us", "step_us", "sample_nj", "n_cores_used")
    made = nw.sweep(network, x, SPACE, chip, folder=args.folder, search=args.trials, minimize=goals, on_point=told)
    seconds = time.perf_counter() - start
    default = made.rows[0]
    assert [default[key] for key in SPACE] == ["time", None, "floorline", "anneal", 0]
    good = [row for row in made.rows if row["error"] is None]
    best = min(good, key=lambda row: row["edp_nj_us"])
    rows = [
        {"point": name, **{key: row[key] for key in SPACE}, "cores": row["n_cores_used"], "step us": row["step_us"],
         "sample nJ": row["sample_nj"], "edp nJ us": row["edp_nj_us"], "bound": row["least_edp_nj_us"],
         "times the bound": row["edp_nj_us"] / row["least_edp_nj_us"]}
        for name, row in [("default", default), ("best", best)]
    ]  # fmt: skip
    above = sorted(row["edp_nj_us"] / row["least_edp_nj_us"] for row in made.front)
    settings = {"trials": args.trials, "steps": STEPS, "points": len(made.rows), "failed": len(made.failed),
                "front": len(made.front), "times the bound, on the front": [above[0], above[-1]],
                "seconds": round(seconds, 1), "computed now": made.n_computed, "space": SPACE}  # fmt: skip
    save("sweep_search", rows, settings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("grid", "search"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, default=10, help="of the grid, 20 points for each")
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--folder", help="keeps the points of a search, and goes on with them")
    given = parser.parse_args()
    {"grid": grid, "search": search}[given.what](given)
