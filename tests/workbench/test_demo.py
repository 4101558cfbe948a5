"""The first cell of a notebook: a trained network, what it is worth on a chip, and its picture."""

import nwcompile as nw


def test_demo_shows_a_trained_network_on_its_chip():
    demo = nw.demo("loihi2")
    assert demo.report["accuracy"] == {"float": 0.975, "chip": 0.975}
    assert demo.run.backend == "cycle" and demo.x.shape == (200, 16, 64)
    text = repr(demo)
    assert "accuracy: 97.5 % in float" in text and "fits loihi2" in text and len(text.splitlines()) <= 10
    page = demo._repr_html_()
    assert page.count("<rect") == 3 and "srcdoc" in page and "accuracy" in page
