"""Whole processes of `nwcompile sweep`, interrupted and killed: what was told to be done is kept, and goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.workbench.sweep.measure import point_figures
from nwcompile.workbench.sweep.store import FILE
from tests.interrupts import PATIENCE_S
from tests.long import EXAMPLES

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[3]
PLAN = """
model = "demo.nir"
input = "demo.npz"

[grid]
n_cores = { from = 1, to = 10 }
bits = [2, 3, 4, 6, 8]
noc.buffer_flits = [1, 2, 4, 8]
"""
FEW = PLAN.replace("to = 10", "to = 2").replace("[2, 3, 4, 6, 8]", "[4, 8]")
N_POINTS, MANY = (200, PLAN) if EXAMPLES >= 200 else (16, FEW)


@pytest.fixture
def folder(tmp_path):
    """The demo network and its samples as files."""
    demo = nw.demo()
    nw.to_nir(demo.network, tmp_path / "demo.nir")
    np.savez(tmp_path / "demo.npz", x=demo.x, y=demo.labels)
    return tmp_path


def started(folder: Path, plan: str) -> subprocess.Popen:
    (folder / "plan.toml").write_text(plan)
    command = [sys.executable, "-m", "nwcompile", "sweep", "plan.toml", "-o", "made", "--keep", "none", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def lines(folder: Path) -> list[str]:
    path = folder / "made" / FILE
    return path.read_text().splitlines(keepends=True) if path.exists() else []


def wait_for(folder: Path, n_rows: int, process: subprocess.Popen) -> None:
    while len(lines(folder)) < n_rows and process.poll() is None:
        time.sleep(0.05)


def workers_of(process: subprocess.Popen) -> list[str]:
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [pid for pid in pids if "LokyProcess" in Path(f"/proc/{pid}/cmdline").read_text()]


def hears_ctrl_c(pid: str) -> bool:
    """Whether a process neither blocks nor ignores Ctrl-C."""
    masks = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return not (int(masks["SigBlk"], 16) | int(masks["SigIgn"], 16)) >> (signal.SIGINT - 1) & 1


@pytest.mark.parametrize("n_rows", [0, 1, 5])
def test_sweep_loses_nothing_at_ctrl_c(folder, n_rows):
    process = started(folder, FEW)
    while not (folder / "made").exists() and process.poll() is None:  # with n_rows 0: as the pool is about to start
        time.sleep(0.05)
    wait_for(folder, n_rows, process)
    if n_rows:
        workers = workers_of(process)
        assert workers and not any(hears_ctrl_c(pid) for pid in workers)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes of the group
    out, err = process.communicate(timeout=PATIENCE_S)
    before = lines(folder)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert len(before) >= n_rows and all(line.endswith("\n") for line in before)
    if n_rows:
        assert err.splitlines()[-1] == (
            f"nwcompile: interrupted; finished points are in made/{FILE}, and the same command continues from there"
        )
    process = started(folder, FEW)
    out, err = process.communicate(timeout=PATIENCE_S)
    doc = json.loads(out)
    assert process.returncode == 0 and len(doc["rows"]) == 16 and doc["n_computed"] == 16 - len(before)
    assert lines(folder)[: len(before)] == before


def test_points_killed_and_resumed_equal_single_compiles(folder):
    """Two hundred of them, or in CI 16."""
    process = started(folder, MANY)
    wait_for(folder, N_POINTS // 2, process)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    before = [line for line in lines(folder) if line.endswith("\n")]
    assert N_POINTS // 2 <= len(before) < N_POINTS
    with open(folder / "made" / FILE, "a") as file:
        file.write(before[0][:40])  # as if it had been killed in the middle of a line
    process = started(folder, MANY)
    out, _ = process.communicate(timeout=3600)
    doc = json.loads(out)
    assert process.returncode == 0 and doc["n_computed"] == N_POINTS - len(before) and len(doc["rows"]) == N_POINTS
    assert lines(folder)[: len(before)] == before
    demo, network = nw.demo(), nw.from_nir(folder / "demo.nir")
    for row in doc["rows"]:
        chip = nw.Chip.load("loihi1").replace({"noc.buffer_flits": row["noc.buffer_flits"]})
        program = nw.compile(network, chip, demo.x, nw.Options(n_cores=row["n_cores"], bits=row["bits"]))
        run = nw.simulate(program, demo.x, backend="cycle")
        single = point_figures(program, run)
        assert (row["program"], row["error"]) == (program.hash, None)
        assert {name: row[name] for name in single} == json.loads(json.dumps(single))
        assert row["accuracy"] == np.mean(run.output.sum(1).argmax(1) == demo.labels)
