"""Maxima of currents on chips whose neurons are programs: the float network's own spikes, on every backend."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.sim import BACKENDS
from tests.made.maxima import LIF, image_spikes, pooled_currents

QUICK = nw.Options(partitioner="sequential", placer="row-major")
EXACT = replace(QUICK, input_layer="exact")
SCALED = {"after": (np.array([0.5, -1.0, 2.0], np.float32), np.array([0.25, 1.75, 0.0], np.float32))}


@pytest.mark.parametrize(
    "chip, window, n_rounds",
    [
        ("loihi2", {}, 2),
        ("spinnaker2", {"kernel": 3, "stride": 2, "padding": 1}, 4),
        ("spinnaker2", {"kernel": (1, 3)}, 2),
        ("loihi2", {"stride": 1}, 2),
        ("loihi2", SCALED, 2),
    ],
)
def test_compared_currents_give_the_spikes_of_the_float_network(chip, window, n_rounds):
    """Weights are quarters, which integers hold exactly; a negative scale behind the pooling takes the least."""
    network, x = pooled_currents(**window), image_spikes(0.15)
    program = nw.compile(network, chip, x, EXACT)
    rounds = [f"a/lead{i + 1}" for i in range(n_rounds)]
    assert program.network.layers == ("a/sums", *rounds, "a", "out")
    wanted, result = nw.simulate(network, x).spikes, nw.crosscheck(program, x)
    assert result.agree, str(result)
    run = nw.simulate(program, x).spikes
    assert all(np.array_equal(run[name], wanted[name]) for name in ("a", "out"))
    assert 0.1 < wanted["a"].mean() < 0.95


def flat(network: nw.Network) -> nw.Network:
    """The same with a layer `a` of one axis, as a module that flattens before its neurons has it."""
    node = network.node("a")
    return replace(network, nodes=network.nodes | {"a": replace(node, shape=(node.n_neurons,))})


@pytest.mark.parametrize("chip", ["loihi2", "loihi1"])
def test_a_flat_layer_behind_a_maximum_sends_what_one_of_channels_does(chip):
    """On loihi1, which cannot compare currents, spikes are pooled instead."""
    network, x = pooled_currents(after=(np.array([0.5, -1.0, 2.0], np.float32), 0.0)), image_spikes(0.15)
    conv, *others = network.connections
    biased = conv.replace(bias=np.array([0.25, 0.5, -0.25], np.float32))  # then neurons differ by channel
    network = replace(network, connections=(biased, *others))
    options = replace(EXACT, approximate="pool")
    programs = [nw.compile(net, chip, x, options) for net in (network, flat(network))]
    run, flat_run = (nw.simulate(program, x).spikes for program in programs)
    assert np.array_equal(flat_run["a"], run["a"].reshape(flat_run["a"].shape)) and run["a"].any()
    assert np.array_equal(flat_run["out"], run["out"]) and nw.crosscheck(programs[1], x).agree


def test_compared_currents_have_a_row_that_says_exact_and_need_no_flag():
    program = nw.compile(pooled_currents(), "loihi2", image_spikes(), EXACT)
    (row,) = program.manifest["legalization"]
    assert (row["layer"], row["was"], row["label"]) == ("a", "maximum of currents over 36 windows", "exact")
    assert row["how"] == (
        "144 neurons send their currents, 108 compare two of a window, for up to 23831 spikes of a source at once"
    )
    asked = nw.compile(pooled_currents(), "loihi2", image_spikes(), replace(EXACT, approximate="all"))
    assert [row["label"] for row in asked.manifest["legalization"]] == ["exact"] and "price" not in asked.manifest
    assert asked.network.layers == program.network.layers


def with_skip() -> nw.Network:
    """first -> sum -> a, a maximum of currents -> out, which first feeds too."""
    kernel = np.random.default_rng(0).integers(-3, 5, (3, 2, 3, 3)).astype(np.float32) / 4
    edges = [
        nw.Conv2d("in", "first", np.ones((2, 2, 1, 1), np.float32) / 2),
        nw.Conv2d("first", "sum", kernel, padding=1),
        nw.MaxPool2d("sum", "a", 2),
        nw.Dense("a", "out", kernel.reshape(-1)[: 2 * 36 // 2].reshape(1, 36)),
        nw.Dense("first", "out", np.full((1, 96), 0.125, np.float32)),
    ]
    layers = {"first": (LIF, (2, 6, 8)), "sum": (None, (3, 6, 8)), "a": (LIF, (3, 3, 4)), "out": LIF}
    return nw.Network.from_arrays(layers, edges, {"in": (2, 6, 8)})


def test_compared_currents_of_a_skip_are_awaited_over_relay_neurons():
    """What goes around the pooling comes in the step of the last comparison, although axons delay 3 steps at most.

    The quantization table has the rates of the float network, maximum of currents included: weights are quarters.
    """
    network, x = with_skip(), image_spikes()
    wanted = nw.simulate(network, x).spikes
    program = nw.compile(network, Chip.load("loihi2").replace({"neuron.delay_max_steps": 3}), x, QUICK)
    run = nw.simulate(program, x, backend="cycle").spikes
    assert all(np.array_equal(run[name], wanted[name]) for name in ("first", "a", "out")) and wanted["out"].any()
    changes = {row["layer"]: row["how"] for row in program.manifest["legalization"]}
    assert changes["a"] == "144 neurons send their currents, 108 compare two of a window"
    assert changes["first -> out"] == "96 relay neurons, 1 for each of first"
    rows = {row["layer"]: row for row in program.manifest["quantization"]}
    assert tuple(rows) == program.network.layers and "first/relay1" in rows
    for name in ("first", "a", "out"):
        rate = np.count_nonzero(wanted[name]) / wanted[name].size
        assert (rows[name]["rate_float"], rows[name]["rate_fixed"]) == (rate, rate)
        assert rows[name]["spike_agreement_percent"] == 100
    assert rows["a/sums"]["rate_fixed"] > 0 and rows["a/sums"]["rate_float"] is None


@pytest.mark.long
def test_currents_of_a_fan_in_beyond_a_cores_are_compared():
    """Neurons that send currents get partial sums, as any do."""
    network, x = pooled_currents(), image_spikes(0.15)
    chip = Chip.load("loihi2").replace({"core.max_in_axons": 17})
    program = nw.compile(network, chip, x, EXACT)
    assert program.network.layers[:4] == ("a/sums/part1", "a/sums/part2", "a/sums", "a/lead1")
    wanted = nw.simulate(network, x).spikes
    for backend in BACKENDS:
        run = nw.simulate(program, x, backend=backend).spikes
        assert all(np.array_equal(run[name], wanted[name]) for name in ("a", "out"))


@pytest.mark.parametrize(
    "chip, options",
    [
        ({"neuron.programmable": False, "neuron.strict": [True, False]}, {}),
        ({"noc.payload_bits": 1}, {}),
        ({"core.max_neurons": 2}, {}),
        ({}, {"on_multi_spike": "repeat"}),
    ],
)
def test_maxima_are_refused_where_currents_cannot_be_compared(chip, options):
    with pytest.raises(
        FitError, match=r"pooling  sum -> a  must be sums, is a maximum of currents  compile with approximate"
    ):
        nw.compile(pooled_currents(), Chip.load("loihi2").replace(chip), image_spikes(), replace(EXACT, **options))


def test_currents_wider_than_messages_are_refused_with_what_would_fit(tmp_path):
    text = (Path(nw.__file__).parents[1] / "hwmodels" / "loihi2.toml").read_text()
    narrow = text.replace('name = "loihi2"', 'name = "narrow"').replace("payload_bits = 32", "payload_bits = 8")
    (tmp_path / "narrow.toml").write_text(narrow.replace("proposed = true", "proposed = false"))
    with pytest.raises(FitError) as error:
        nw.compile(pooled_currents(), str(tmp_path / "narrow.toml"), image_spikes(), EXACT)
    lines = str(error.value).splitlines()
    assert lines[:3] == [
        "1 limit exceeded on narrow",
        "  payload bits  a (before pooling)  18 of 8  raise noc.payload_bits, use fewer weight bits, or put the "
        "pooling behind a layer that spikes",
        "it fits with messages of 18 bits (noc.payload_bits=18)",
    ]
    assert lines[3].startswith("it fits unchanged on loihi2 (") and len(lines) == 4


def test_quantize_aware_does_not_wait_for_a_comparison():
    with pytest.raises(FitError, match="approximate='pool'"):
        nw.nn.quantize_aware(pooled_currents(), "loihi2", image_spikes(), input_layer="exact")
