"""A scale for every output channel: the same layer in float, and closer spikes in narrow weights."""

import numpy as np
import pytest

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.prepare.weights import apply_weight_bits
from nwcompile.passes.quantize.quantize import quantize
from nwcompile.passes.quantize.scaled_layer import describe_layer, scale_channels
from nwcompile.sim import simulate

CHIP = Chip.load("tiny").replace({"neuron.threshold_per": "neuron"})
NARROW = Options(bits=3)
SIZE = np.array([1.0, 2.0, 4.0])


def net(rng, **spec):
    """Channels with weights, biases and thresholds of unlike size, by the kinds of connection."""
    threshold = SIZE[:, None, None]
    spec = NeuronSpec(**{"threshold": threshold, "beta": 0.9, "alpha": 0.5, "v_min": -threshold} | spec)
    post, pre = np.nonzero(rng.random((27, 27)) < 0.2)
    return Network.from_arrays(
        {"a": (spec, (3, 3, 3)), "out": NeuronSpec(fires=False)},
        [Conv2d("in", "a", rng.normal(size=(3, 1, 3, 3)) * SIZE[:, None, None, None], bias=SIZE / 8, padding=1),
         Sparse("a", "a", pre, post, rng.normal(size=len(post)) * SIZE[post // 9] / 4),
         Dense("in", "a", rng.normal(size=(27, 9)) * np.repeat(SIZE, 9)[:, None] / 4),
         Dense("a", "out", rng.normal(size=(2, 27)))],
        {"in": (1, 3, 3)},
    )  # fmt: skip


def test_channel_scale_multiplies_all_of_a_neuron_by_one_number():
    network = apply_weight_bits(net(np.random.default_rng(0)), CHIP, NARROW)
    before = describe_layer(network, "a", CHIP)
    after = scale_channels(before, CHIP)
    factor = after.channel_scale
    assert factor.shape == (3, 1, 1) and len(np.unique(factor)) == 3 and (factor[0] > factor[1]).all()
    for name in ("threshold", "v_min"):
        np.testing.assert_allclose(getattr(after.neuron, name), getattr(before.neuron, name) * factor)
    for name in ("factor", "constant_u", "constant_v"):
        new, old = (np.broadcast_to(getattr(layer.dynamics, name), (3, 3, 3)) for layer in (after, before))
        np.testing.assert_allclose(new, old * factor)
    conv, sparse, dense = after.weights
    np.testing.assert_allclose(conv, before.weights[0] * factor[..., None])
    np.testing.assert_allclose(
        sparse, before.weights[1] * factor.reshape(3)[np.asarray(before.connections[1].post) // 9]
    )
    np.testing.assert_allclose(dense, before.weights[2] * np.repeat(factor, 9)[:, None])


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_channel_scale_brings_narrow_weights_closer_to_the_float_spikes(size):
    rng = np.random.default_rng(1)
    sizes = size * 2.0 ** rng.uniform(-1.5, 1.5, 24)
    weight = rng.normal(0.2, 1, size=(24, 30)) * sizes[:, None]
    spec = NeuronSpec(threshold=3 * sizes, beta=0.9, bias=sizes / 9, reset="subtract")
    network = Network.from_arrays({"a": spec}, [Dense("in", "a", weight)], {"in": 30})
    x = (rng.random((6, 40, 30)) < 0.2).astype(np.int8)
    wanted = simulate(network, x).spikes["a"]
    rows, error = [], []
    for chip in (CHIP, Chip.load("tiny")):
        quantized = quantize(network, chip, x, NARROW)
        error.append(np.count_nonzero(simulate(quantized.network, x).spikes["a"] != wanted))
        rows.append(quantized.table[0])
    assert error[0] < 0.9 * error[1]
    low, high = rows[0]["channel_scale"]
    assert 0.25 <= low < 0.5 and 2 < high <= 4 and rows[1]["channel_scale"] is None
    assert rows[0]["threshold_float"] == rows[1]["threshold_float"] == [3 * sizes.min(), 3 * sizes.max()]


def test_channel_scale_is_for_narrow_weights_of_neurons_that_fire():
    network = net(np.random.default_rng(0))
    assert [row["channel_scale"] for row in quantize(network, CHIP, None, Options()).table] == [None, None]
    found = [row["channel_scale"] for row in quantize(network, CHIP, None, NARROW).table]
    assert found[0] is not None and found[1] is None


def test_channel_scale_of_channels_without_weights_is_one():
    weight = np.array([[0.0, 0.0], [1.0, 0.5], [0.25, 0.5]])
    network = Network.from_arrays({"a": NeuronSpec(bias=0.1)}, [Dense("in", "a", weight)], {"in": 2})
    assert quantize(network, CHIP, np.ones((1, 9, 2)), NARROW).table[0]["spike_agreement_percent"] == 100
    layer = scale_channels(describe_layer(apply_weight_bits(network, CHIP, NARROW), "a", CHIP), CHIP)
    assert layer.channel_scale.tolist() == [1.0, 0.75, 1.5]


def test_channel_scale_keeps_neurons_whose_weights_and_thresholds_are_much_smaller():
    rng = np.random.default_rng(0)
    size = np.where(np.arange(8) < 4, 1 / 512, 1.0)
    network = Network.from_arrays(
        {"a": NeuronSpec(threshold=size, beta=0.95)},
        [Dense("in", "a", rng.normal(0.1, 0.3, (8, 30)) * size[:, None])],
        {"in": 30},
    )
    x = (rng.random((4, 60, 30)) < 0.3).astype(np.int8)
    quantized = quantize(network, CHIP, x, Options(bits=4))
    rates = [run.output.mean((0, 1)) for run in (simulate(network, x), simulate(quantized.network, x))]
    np.testing.assert_allclose(*rates, rtol=0.2, atol=0.02)
    assert rates[0].min() > 0.02 and quantized.warnings == []


def test_channel_scale_does_not_raise_thresholds_far_above_the_others():
    weight = np.ones((4, 2)) * [[1.0], [1.0], [1.0], [1e-6]]
    network = Network.from_arrays({"a": NeuronSpec(threshold=1.0)}, [Dense("in", "a", weight)], {"in": 2})
    layer = scale_channels(describe_layer(apply_weight_bits(network, CHIP, NARROW), "a", CHIP), CHIP)
    assert layer.neuron.threshold.tolist() == [1.0, 1.0, 1.0, 4.0]
