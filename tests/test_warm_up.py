"""Warm-up: messages about compilation, and the process that compiles for another one."""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import nwcompile as nw
from nwcompile import warm_up
from nwcompile.ir.chip import Chip
from nwcompile.kernels import cycle, jit
from nwcompile.sim import simulate
from nwcompile.workbench.demo import demo_network
from tests.made.programs import four_cores

ONE_KERNEL = """
from nwcompile.kernels.cores.neuron import decay
for _ in range(2):
    decay(8, 1, 12)
"""


def stderr_of(code: str, cache, **environment) -> str:
    """Stderr of a new process whose kernel cache is the folder `cache`."""
    inherited = {name: value for name, value in os.environ.items() if name != jit.QUIET}
    environment = {**inherited, "NUMBA_CACHE_DIR": str(cache), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stderr


def test_first_compilation_is_announced_in_one_line_and_a_kept_kernel_is_not(tmp_path):
    assert stderr_of(ONE_KERNEL, tmp_path) == "compiling kernels, once on this machine: about 15 s\n"
    assert stderr_of(ONE_KERNEL, tmp_path) == ""
    another = ONE_KERNEL.replace("decay(8, 1, 12)", "wrap(8, 24)").replace("import decay", "import wrap")
    assert stderr_of(another, tmp_path) == "compiling more kernels, once on this machine: some seconds\n"


def test_compilations_are_not_announced_where_the_environment_says_so(tmp_path):
    assert stderr_of(ONE_KERNEL, tmp_path, **{jit.QUIET: "1"}) == ""


@pytest.mark.parametrize("name", Chip.names())
def test_few_neurons_run_on_every_chip(name):
    warm_up.simulate_few_neurons(Chip.load(name))


def test_kernels_are_compiled_elsewhere_only_where_none_is_kept(monkeypatch):
    started, told = [], []
    monkeypatch.setattr(jit, "compile_elsewhere", lambda part, command: started.append(command))
    monkeypatch.setattr(jit, "tell_others", told.append)
    warm_up.simulate_few_neurons(Chip.load("loihi1"))
    warm_up.start(Chip.load("loihi1"))
    assert not started
    monkeypatch.setattr(jit, "is_cold", lambda kernel: kernel is cycle.run_samples)
    warm_up.start(Chip.load("mesh_spec"))
    assert started == [[sys.executable, "-P", "-m", "nwcompile.warm_up", "cycle"]]
    assert Chip.from_dict(json.loads(told[-1])).name == "mesh_spec"


def test_estimate_compiles_placement_elsewhere_and_no_cycle_backend(monkeypatch):
    started, waited = [], []
    monkeypatch.setattr(jit, "compile_elsewhere", lambda part, command: started.append(part))
    monkeypatch.setattr(jit, "wait_for", waited.append)
    network = demo_network()
    monkeypatch.setattr(jit, "is_cold", lambda kernel: kernel is cycle.run_samples)
    nw.estimate(network, ["tiny"])
    assert not started
    nw.compile(network, "tiny")
    assert started == [jit.CYCLE]
    monkeypatch.setattr(jit, "is_cold", lambda kernel: True)
    nw.estimate(network, ["tiny"])
    assert started == [jit.CYCLE, jit.PLACEMENT]
    assert waited == [jit.PLACEMENT] * 3  # before each of the three placements


@pytest.mark.long
def test_process_leaves_the_kernels_of_placement_in_the_cache(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([*jit.WARM_UP, jit.PLACEMENT], env=environment, input="", text=True, check=True)
    kept = {path.name.split("-")[0] for path in tmp_path.rglob("*.nbi")}
    assert {"placement.anneal_cores", "trees.merge_routes"} <= kept
    assert not any(name.startswith(("moves.", "cycle.")) for name in kept)


def test_nothing_is_compiled_elsewhere_where_no_core_is_free(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    jit.compile_elsewhere(jit.CYCLE, [sys.executable, "-c", ""])
    assert not jit.OTHERS


@pytest.mark.parametrize("given", ["", "mesh_spec"])
def test_process_that_warms_up_takes_the_chip_it_is_told_or_none(given):
    text = json.dumps(Chip.load(given).to_dict()) if given else ""
    process = subprocess.run([*jit.WARM_UP, jit.CYCLE], input=text, text=True, capture_output=True)
    assert (process.returncode, process.stderr) == (0, "")


def test_first_compilation_of_all_starts_the_process_that_warms_up(tmp_path):
    code = (
        "from nwcompile.kernels import jit\njit.compile_elsewhere = lambda part, command: print(command[1:])\n"
        + ONE_KERNEL
    )
    environment = {name: value for name, value in os.environ.items() if name != jit.QUIET}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path)
    runs = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [run.stdout for run in runs] == ["['-P', '-m', 'nwcompile.warm_up', 'cycle']\n", ""]


def test_garbage_collector_rests_only_while_a_kernel_is_compiled():
    code = ONE_KERNEL + "import gc; import sys; sys.stderr.write(str(gc.isenabled()))"
    with tempfile.TemporaryDirectory() as cache:
        assert stderr_of(code, cache, **{jit.QUIET: "1"}) == "True"


def test_kernel_is_cold_until_it_is_compiled_or_kept(tmp_path):
    code = "from nwcompile.kernels.cores.neuron import decay; from nwcompile.kernels.jit import is_cold\n"
    told = "import sys; sys.stderr.write(str(is_cold(decay)))\n"
    assert stderr_of(f"{code}{told}", tmp_path, **{jit.QUIET: "1"}) == "True"
    assert stderr_of(f"{code}decay(8, 1, 12)\n{told}", tmp_path, **{jit.QUIET: "1"}) == "False"
    assert stderr_of(f"{code}{told}", tmp_path, **{jit.QUIET: "1"}) == "False"


def test_others_that_compile_are_waited_for(tmp_path):
    done = tmp_path / "done"
    jit.compile_elsewhere(
        jit.CYCLE, [sys.executable, "-c", f"import sys; open({str(done)!r}, 'w').write(sys.stdin.read())"]
    )
    jit.tell_others("yes")
    jit.tell_others("no")
    jit.wait_for(jit.CYCLE)
    assert done.read_text() == "yes"
    assert not jit.OTHERS


@pytest.mark.parametrize("command", [["/nowhere/python"], ["true"]])
def test_process_that_cannot_start_or_ends_at_once_is_done_without(command):
    jit.compile_elsewhere(jit.CYCLE, command)
    jit.tell_others("x" * (1 << 20))
    jit.wait_for(jit.CYCLE)
    assert not jit.OTHERS


def test_process_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(jit, "LONGEST_WAIT_S", 0.2)
    jit.compile_elsewhere(jit.CYCLE, ["sleep", "60"])
    (other,) = jit.OTHERS.values()
    jit.wait_for(jit.PLACEMENT)
    assert other.poll() is None  # it compiles another part
    jit.wait_for(jit.CYCLE)
    assert other.poll() is not None


def test_process_imports_the_package_of_this_one_wherever_it_is_started(tmp_path, monkeypatch):
    (tmp_path / "nwcompile").mkdir()
    (tmp_path / "nwcompile" / "__init__.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    jit.compile_elsewhere(jit.CYCLE, [sys.executable, "-P", "-c", "import nwcompile.errors"])
    (other,) = jit.OTHERS.values()
    jit.wait_for(jit.CYCLE)
    assert other.returncode == 0


def test_kernel_whose_index_is_cut_is_compiled_again(tmp_path):
    stderr_of(ONE_KERNEL, tmp_path)
    (index,) = tmp_path.rglob("neuron.decay-*.nbi")
    for content in (b"", index.read_bytes()[:100]):
        index.write_bytes(content)
        assert stderr_of(ONE_KERNEL, tmp_path).startswith("compiling ")


@pytest.mark.parametrize("record", ["spikes", "totals"])
def test_cycle_backend_waits_for_others(record):
    program = four_cores()
    jit.compile_elsewhere(jit.CYCLE, [sys.executable, "-c", ""])
    simulate(program, np.ones((1, 2, 6), np.int8), backend="cycle", record=record)
    assert not jit.OTHERS
