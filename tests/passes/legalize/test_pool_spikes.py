"""Maxima of currents before a layer: refused by chips, or met by the maximum of spikes behind it, if asked for."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.passes.legalize.pool_spikes import pool_spikes
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.sim import BACKENDS
from tests.made.maxima import LIF, image_spikes, pooled_currents
from tests.made.nets import integers

POOL = nw.Options(approximate="pool")


def legal(network: nw.Network) -> nw.Network:
    return pool_spikes(normalize(network), nw.Chip.load("loihi2"), POOL)[0]


@pytest.mark.parametrize("window", [{}, {"stride": 1}, {"kernel": 3, "stride": 2, "padding": 1}])
def test_pooled_spikes_are_those_of_the_neurons_at_full_resolution(window):
    network = pooled_currents(**window)
    net = legal(network)
    assert net.layers == ("a/full", "a", "out") and net.node("a").shape == network.node("a").shape
    x = image_spikes()
    run = nw.simulate(net, x)
    full = nw.Network.from_arrays(
        {"a": (LIF, (3, 6, 8))}, [network.into("sum")[0].replace(target="a")], {"in": (2, 6, 8)}
    )
    assert np.array_equal(run.spikes["a/full"], nw.simulate(full, x).spikes["a"])
    pool = network.into("a")[0]
    pre, post = pool.window_taps((3, 6, 8))
    flat = run.spikes["a/full"].reshape(3, 12, -1)
    wanted = np.zeros((3, 12, network.node("a").n_neurons), np.int8)
    np.maximum.at(wanted, (slice(None), slice(None), post), flat[..., pre])
    assert np.array_equal(run.spikes["a"].reshape(wanted.shape), wanted) and 0 < wanted.mean() < 1


def test_pooled_spikes_of_windows_of_one_are_exact():
    """Where a window has one current the approximation is none."""
    network, x = pooled_currents(kernel=1), image_spikes()
    wanted, run = nw.simulate(network, x), nw.simulate(legal(network), x)
    assert all(np.array_equal(run.spikes[name], wanted.spikes[name]) for name in network.layers)


def test_a_negative_scale_behind_the_pooling_asks_for_all_spikes_of_a_window():
    factor = np.array([0.5, -1.0, 2.0], np.float32)
    network, x = pooled_currents(after=(factor, np.array([0.25, 1.75, 0.0], np.float32))), image_spikes()
    net = legal(network)
    assert net.layers == ("a/full", "a", "out")
    run = nw.simulate(net, x).spikes
    windows = run["a/full"].reshape(3, 12, 3, 3, 2, 4, 2)
    wanted = windows.max((4, 6))
    wanted[:, :, 1] = windows.min((4, 6))[:, :, 1]
    assert np.array_equal(run["a"], wanted) and wanted[:, :, 1].any()


def test_maximum_of_currents_is_refused_unless_its_spikes_may_be_pooled():
    with pytest.raises(FitError) as error:
        nw.compile(pooled_currents(), "loihi1", image_spikes(), nw.Options(input_layer="exact"))
    assert str(error.value).splitlines()[1:] == [
        "  pooling  sum -> a  must be sums, is a maximum of currents  compile with approximate='pool' (--approximate "
        "pool: the spikes of a are pooled instead)",
        "it fits with approximate='pool' (--approximate pool): the chip's nearest features; the report shows the loss",
        "it fits unchanged on loihi2 (1 of 128 cores), spinnaker2 (1 of 152 cores)",
    ]
    for spec in (LIF.replace(fires=False), LIF.replace(spikes="multi", reset="subtract")):
        with pytest.raises(FitError) as error:
            nw.compile(pooled_currents(spec), "tiny", image_spikes(), POOL)
        assert (
            "  pooling  sum -> a  must be sums, is a maximum of currents  put the pooling behind a layer that spikes"
            in (str(error.value))
        )


@pytest.mark.parametrize("chip", ["loihi1", "tiny"])
def test_pooled_spikes_compile_alike_on_every_backend_and_are_said_to_be_approximate(chip):
    network, x = pooled_currents(), image_spikes()
    program = nw.compile(network, chip, x, POOL)
    (row,) = [row for row in program.manifest["legalization"] if row["layer"] == "a"]
    assert row["label"] == "approximate" and row["was"] == "maximum of currents over 2 x 2"
    how = "spikes pooled instead: 144 neurons at full resolution, 36 relay neurons; threshold x "
    assert row["how"].startswith(how) and abs(row["price"]["rate_change_percent"]) < 10
    assert nw.crosscheck(program, x).agree
    runs = [nw.simulate(program, x, backend).spikes for backend in BACKENDS]
    assert all(np.array_equal(run["a"], runs[0]["a"]) for run in runs) and runs[0]["a"].any()


@pytest.mark.filterwarnings("ignore:layer .* neurons? fire")
def test_quantize_aware_trains_the_net_with_pooled_spikes():
    from nwcompile import nn

    x = image_spikes(0.1)
    net = nn.quantize_aware(pooled_currents(), "loihi2", x, approximate="pool")
    assert net.names == ("a/full", "a", "out")
    program = nw.compile(net.network(), "loihi2", x)
    trained = {name: spikes.detach().numpy() for name, spikes in net.spikes(x).items()}
    run = nw.simulate(program, x)
    assert all(np.array_equal(run.spikes[name], trained[name]) for name in net.names)


def test_maximum_of_binary_spikes_is_a_layer_of_relay_neurons_exactly():
    edges = [
        nw.Conv2d("in", "a", integers((3, 2, 3, 3), 1, -3, 5).astype(np.float32) / 4, padding=1),
        nw.MaxPool2d("a", "max", 2),
        nw.Dense("max", "out", integers((5, 36), 2, -3, 5).astype(np.float32) / 4),
    ]
    layers = {"a": (LIF, (3, 6, 8)), "max": (None, (3, 3, 4)), "out": LIF}
    network, x = nw.Network.from_arrays(layers, edges, {"in": (2, 6, 8)}), image_spikes()
    program = nw.compile(network, "loihi2", x)
    assert program.network.layers == ("a", "max", "out")
    assert [row["label"] for row in program.manifest["legalization"]] == ["exact"]
    wanted, run = nw.simulate(network, x), nw.simulate(legal(network), x)
    assert all(np.array_equal(run.spikes[name], wanted.spikes[name]) for name in ("a", "out"))


def test_maxima_of_two_windows_in_one_layer_are_two_layers_of_relays():
    x = (np.random.default_rng(0).random((4, 7, 1, 8, 8)) < 0.15).astype(np.float32)
    layers = {"s": (LIF, (1, 8, 8)), "out": (LIF.replace(threshold=1.5), (1, 4, 4))}
    edges = [nw.Scale("in", "s", 2.0), nw.MaxPool2d("s", "out", 2, 2), nw.MaxPool2d("s", "out", 4, 2, 1)]
    network = nw.Network.from_arrays(layers, edges, {"in": (1, 8, 8)})
    program, wanted = nw.compile(network, "loihi1", x), nw.simulate(network, x).spikes["out"]
    assert {"s/max/out", "s/max/out/2"} <= {*program.network.layers}
    assert np.array_equal(nw.simulate(program, x).spikes["out"], wanted) and 0 < wanted.mean() < 1


@pytest.mark.parametrize("chip", ["loihi1", "loihi2", "spinnaker2"])
def test_a_maximum_of_spikes_between_two_layers_of_neurons_is_exact(chip):
    x = (np.random.default_rng(0).random((4, 7, 1, 8, 8)) < 0.15).astype(np.float32)
    layers = {"s": (LIF, (1, 8, 8)), "out": (LIF.replace(threshold=1.5), (1, 4, 4))}
    edges = [nw.Scale("in", "s", 2.0), nw.MaxPool2d("s", "out", 2, 2)]
    network = nw.Network.from_arrays(layers, edges, {"in": (1, 8, 8)})
    wanted = nw.simulate(network, x).spikes["out"]
    assert np.array_equal(nw.simulate(nw.compile(network, chip, x), x).spikes["out"], wanted) and wanted.any()


def test_float_run_is_compared_in_the_layers_that_the_network_has():
    network, x = pooled_currents(), image_spikes()
    program = nw.compile(network, "loihi1", x, POOL)
    compared = nw.crosscheck(program, x, against=("reference", "float"), network=network).float_difference
    assert [layer.layer for layer in compared.layers] == ["a", "out"]
    with pytest.raises(nw.ModelError, match="layer .a. has shape"):
        nw.crosscheck(program, x, against=("reference", "float"), network=pooled_currents(kernel=1))
