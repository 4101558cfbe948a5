"""from_torch of SpikingJelly before 2.0, each version in its own process (Makefile: OLD_SPIKINGJELLY)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

VERSIONS = [
    pytest.param("0.0.0.0.4", "clock_driven", marks=pytest.mark.long),
    ("0.0.0.0.12", "clock_driven"),
    pytest.param("0.0.0.0.14", "activation_based", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("version", "package"), VERSIONS)
def test_every_spike_of_old_spikingjelly_is_the_modules(version, package):
    folder = Path(sys.prefix) / f"spikingjelly-{version}"
    if not folder.is_dir():
        assert not os.environ.get("CI"), f"no {folder}"
        pytest.skip(f"no {folder}")
    command = [sys.executable, "-W", "ignore", "-m", "tests.frontend.old_spikingjelly", package]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert len(counts) >= 7
    wrong = {name: found for name, found in counts.items() if isinstance(found, str) or found[0] or not found[1]}
    assert wrong == {}
