"""Progress lines of the stages that go over an earlier one's result: delays by relay neurons, and copies."""

import numpy as np

import nwcompile as nw
from nwcompile.cli.progress import Progress
from tests.chips import small_chip
from tests.nets import integers

LIF = nw.NeuronSpec(threshold=1.0, reset="zero", beta=0.75)


def test_progress_tells_of_relay_neurons_and_of_copies_under_the_stage_that_they_go_over(capsys):
    edges = [
        nw.Dense(a, b, integers((n, m), i, -6, 9).astype(np.float32) / 16, delay=late)
        for i, (a, b, m, n, late) in enumerate([("in", "a", 6, 10, 0), ("a", "b", 10, 20, 4)])
    ]
    network = nw.Network.from_arrays({"a": (LIF, 10), "b": (LIF, 20)}, edges, {"in": 6})
    chip = small_chip(core__max_neurons=10, core__max_neuron_destinations=1, neuron__delay_max_steps=0)
    options = nw.Options()
    nw.compile(network, chip, options=options, on_stage=Progress(network, chip, options))
    lines = [line.split("  ") for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    place, names = zip(*(line[0].split("] ") for line in lines), strict=True)
    for later, earlier in (("delays", "schedule"), ("copies", "partition")):
        assert names.index(later) == names.index(earlier) + 1
        assert place[names.index(later)] == place[names.index(earlier)]
    told = dict(zip(names, (line[-1] for line in lines), strict=True))
    assert told["delays"] == "a -> b: 20 relay neurons, 2 for each of a"
    splitter = "20 relay neurons of a splitter, up to 2 for each of a/relay2, one step later"
    assert told["copies"] == f"a/relay2: {splitter}"
