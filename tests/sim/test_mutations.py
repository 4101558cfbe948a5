"""Proof that the agreement tests can fail: break one line of a kernel in a copy of the project and see them go red."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AGREE = [
    "tests/sim/test_multi_spike.py::test_multi_spike_repeat_agrees_in_all_backends",
    "tests/sim/test_backends_agree.py::test_backends_agree_at_the_edge_of_the_wrap",
    "tests/sim/test_backends_agree.py::test_backends_agree_on_spikes_states_and_counters",
    "tests/passes/quantize/test_program_tables.py::test_curves_are_the_same_in_three_backends",
]
MUTATIONS = {
    "strict comparison": ("cores/neuron.py", "above = v > threshold if strict", "above = v >= threshold if strict"),
    "rounding of the decay": (
        "cores/neuron.py",
        "return kept if x >= 0 else -kept",
        "return kept if x >= 0 else -kept - 1",
    ),
    "edge of the wrap": ("cores/neuron.py", "if x <= -half:", "if x < -half:"),
    "refractory count": ("cores/neuron.py", "frozen = since < rule.refractory", "frozen = since <= rule.refractory"),
    "delay slot": ("cores/synapse.py", "(now + edge.delay) % drive", "(now + edge.delay + 1) % drive"),
    "padding of a tap": ("cores/synapse.py", "at + padding - k * dilation", "at + padding + k * dilation"),
    "messages of several spikes": ("cycle.py", "fan_out.sent[j, column] * times", "fan_out.sent[j, column]"),
    "all of a repeated spike": ("cycle.py", "None, -1, read, count, micro", "None, -1, read, count // times, micro"),
    "repeats of an input": ("cycle.py", "inputs.left[k] = times", "inputs.left[k] = 1"),
    "neurons that sleep": ("cores/neuron.py", "states.u[k] == 0 and states.v[k] == 0", "states.v[k] == 0"),
    "rounding of a table": ("cores/programs/operations.py", "+ ((1 << bits) >> 1)) >> bits)", ") >> bits)"),
    "visit of idle neurons": ("cycle.py", "is_updated = touched or not is_at_rest", "is_updated = not is_at_rest"),
}


def copy(folder: Path) -> None:
    """The project, with the machine code kept beside its kernels: only what comes of a broken file is made again."""
    for part in ("nwcompile", "hwmodels", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.pyc", "*.tmp.*"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def run_agreement(folder: Path) -> subprocess.CompletedProcess:
    programs = {"NWCOMPILE_CACHE": str(folder / "programs")}  # Those of the machine have the right operations in them.
    environment = {**os.environ, **programs, "PYTHONPATH": str(folder), "HYPOTHESIS_PROFILE": "first"}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *AGREE]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTATIONS)
def test_agreement_goes_red_when_a_kernel_is_broken(name, tmp_path):
    file, right, wrong = MUTATIONS[name]
    copy(tmp_path)
    kernel = tmp_path / "nwcompile" / "kernels" / file
    text = kernel.read_text()
    assert text.count(right) == 1
    kernel.write_text(text.replace(right, wrong))
    result = run_agreement(tmp_path)
    assert result.returncode == 1, result.stdout[-2000:]
    assert "disagree first at" in result.stdout
