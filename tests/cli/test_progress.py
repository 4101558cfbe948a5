"""Progress lines of the stages that go over an earlier result: delays, sums that are sent, merged axons, copies."""

import numpy as np

import nwcompile as nw
from nwcompile.cli.outputs.progress import Progress
from tests.made.chips import small_chip
from tests.made.maxima import image_spikes as spikes_of_currents
from tests.made.maxima import pooled_currents as of_currents
from tests.made.maxima import pooled_spikes as of_merged
from tests.made.maxima import square_spikes as spikes_of_merged
from tests.made.nets import integers

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
    for later, earlier in (("delays", "prove"), ("copies", "partition")):
        assert names.index(later) == names.index(earlier) + 1
        assert place[names.index(later)] == place[names.index(earlier)]
    told = dict(zip(names, (line[-1] for line in lines), strict=True))
    assert told["delays"] == "a -> b: 20 relay neurons, 2 for each of a"
    splitter = "20 relay neurons of a splitter, up to 2 for each of a/relay2, one step later"
    assert told["copies"] == f"a/relay2: {splitter}"


def test_progress_tells_of_axons_that_neurons_share(capsys):
    network, x, options = of_merged(), spikes_of_merged(), nw.Options()
    chip = nw.Chip.load("ranc_dense")
    nw.compile(network, chip, x, options, on_stage=Progress(network, chip, options))
    lines = [line.split("] ")[1] for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    (merge,) = [line for line in lines if line.startswith("merge")]
    assert merge.endswith("max: 128 neurons share 32 axons: no relay neurons, and one step less")
    assert any(line.startswith("place") and "hops per step and sample" in line for line in lines)


def test_progress_tells_of_currents_that_are_compared(capsys):
    network, options = of_currents(), nw.Options(input_layer="exact")
    chip = nw.Chip.load("loihi2")
    nw.compile(network, chip, spikes_of_currents(), options, on_stage=Progress(network, chip, options))
    lines = [line.split("] ")[1] for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    (compare,) = [line for line in lines if line.startswith("compare")]
    assert "pipelined, depth 5" in compare and "a: 144 neurons send their currents" in compare


def test_progress_tells_of_a_fan_in_that_is_split(capsys):
    edge = nw.Dense("in", "fc1", integers((4, 30), 0, -6, 9).astype(np.float32) / 16)
    network = nw.Network.from_arrays({"fc1": (LIF, (4,))}, [edge], {"in": (30,)})
    chip = nw.Chip.load("loihi2").replace({"core.max_in_axons": 20})
    nw.compile(network, chip, on_stage=Progress(network, chip, nw.Options()))
    lines = [line.split("] ")[1] for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    (split,) = [line for line in lines if line.startswith("split")]
    assert "pipelined, depth 2" in split and "fc1: 8 neurons send sums, 2 for each of fc1" in split


def test_progress_counts_the_check_of_the_step_time_where_a_limit_was_given(capsys):
    edge = nw.Dense("in", "fc1", integers((4, 30), 0, -6, 9).astype(np.float32) / 16)
    network = nw.Network.from_arrays({"fc1": (LIF, (4,))}, [edge], {"in": (30,)})
    chip, options = nw.Chip.load("tiny"), nw.Options(optimize="cores", step_limit_us=1000.0)
    nw.compile(network, chip, options=options, on_stage=Progress(network, chip, options))
    lines = [line.split("  ")[0] for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert lines[0] == "[1/13] normalize" and lines[-1] == "[13/13] limit" and len(lines) == 13
