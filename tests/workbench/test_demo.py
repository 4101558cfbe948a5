"""The first cell of a notebook: a trained network, what it is worth on a chip, and its picture."""

import json
import re
from pathlib import Path

import pytest

import nwcompile as nw
from nwcompile import cli


def test_demo_shows_a_trained_network_on_its_chip():
    demo = nw.demo("loihi2")
    assert demo.report["accuracy"] == {"float": 0.975, "chip": 0.975}
    assert demo.run.backend == "cycle" and demo.x.shape == (200, 16, 64)
    text = repr(demo)
    assert "accuracy: 97.5 % in float" in text and "fits loihi2" in text and len(text.splitlines()) <= 10
    page = demo._repr_html_()
    assert page.count("<rect") == 3 and "srcdoc" in page and "accuracy" in page


def test_demo_is_a_model_and_its_samples(capsys):
    demo = nw.demo()
    assert cli.main(["simulate", "demo", "--input", "demo", "--json"]) == 0
    spikes = json.loads(capsys.readouterr().out)["spikes"]
    assert spikes == {name: int(a.sum()) for name, a in nw.simulate(demo.network, demo.x).spikes.items()}
    assert cli.main(["evaluate", "demo", "--input", "demo", "--chip", "loihi1", "--calibration", "demo", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["accuracy"] == demo.report["accuracy"] and figures["n_samples"] == len(demo.x)
    assert dict(demo.report["verdict_rows"])["board"].endswith(" uJ per sample (fitted; -18 % on keyword spotting)")
    assert cli.main(["simulate", "demo", "--steps", "3", "--dt", "1e-3"]) == 2
    assert capsys.readouterr().err.endswith("say how to read a .nir file; demo is no file\n")


def test_code_of_the_page_on_notebooks_runs(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).resolve().parents[2] / "docs" / "notebooks.md").read_text()
    first, *blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    demo = nw.demo()
    assert "nw.demo()" in first and len(blocks) == 3
    names = {"nw": nw, "program": demo.program, "x": demo.x}
    exec("\n".join(blocks), names)
    assert names["doc"]["chip"]["name"] == "loihi1" and len(names["steps"]) == 18
    pyplot.close("all")  # of DataFrame.plot
