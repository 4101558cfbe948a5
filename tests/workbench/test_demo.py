"""The first cell of a notebook: a trained network, what it is worth on a chip, and its picture."""

import json

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
