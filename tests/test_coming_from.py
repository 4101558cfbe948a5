"""The code of docs/coming-from.md runs, and does what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from tests.frontend.frameworks import framework
from tests.made.lava_files import dense, write

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "coming-from.md").read_text()
NEEDS = {"SpikingJelly": "spikingjelly", "sinabs": "sinabs", "Rockpool": "rockpool", "Lava and lava-dl": "h5py",
         "SANA-FE": "sanafe"}  # fmt: skip


def code_of(section: str) -> str:
    first, *sections = re.split(r"^## ", PAGE, flags=re.M)
    text = next(text for text in sections if text.startswith(f"{section}\n"))
    return "\n".join(re.findall(r"```python\n(.*?)```", first + text, flags=re.S))


def test_every_section_is_run():
    assert re.findall(r"^## (.*)", PAGE, flags=re.M) == list(NEEDS)


@pytest.mark.long
@pytest.mark.parametrize("section", NEEDS)
def test_code_of_the_section_runs(section, tmp_path, monkeypatch, capsys):
    framework(NEEDS[section])
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    write("trained.net", [{"type": [b"input"], "shape": [12]}, dense(rng.integers(-20, 60, (5, 12)))])
    names: dict = {}
    exec(compile(code_of(section), f"docs/coming-from.md, {section}", "exec"), names)
    out = capsys.readouterr().out
    given = next(names[name] for name in ("samples", "events", "spikes", "x") if name in names)
    run = nw.simulate(names["program"], given)
    hidden = [spikes for name, spikes in run.spikes.items() if name not in names["program"].network.outputs]
    assert run.output.any() and all(spikes.any() for spikes in hidden), "the network of the page does something"
    assert ("agree bit for bit" in out) == ("crosscheck" in code_of(section))
    if section == "SANA-FE":
        theirs, ours = map(float, out.splitlines()[-1].split())
        assert ours > 0 and theirs == pytest.approx(ours, rel=1e-6)
