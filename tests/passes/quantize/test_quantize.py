"""Quantizing: exact where the chip's numbers allow it, closest where they do not, and never off the chip's grids."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.errors import ModelError
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import CURRENT_ORDERS, FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.capability import neuron_violations, weight_violations
from nwcompile.passes.analyze.grids import WeightGrid, layer_dynamics, round_bias, round_threshold
from nwcompile.passes.quantize.layer_warnings import rate_warnings
from nwcompile.passes.quantize.quantize import quantize
from nwcompile.passes.quantize.scale_search import choose_scale, spike_distance
from nwcompile.passes.quantize.scaled_layer import describe_layer, scale_layer
from nwcompile.passes.quantize.table import COLUMNS
from nwcompile.sim import simulate
from tests.long import n_drawn
from tests.made.nets import FIXED, dense_net, dyadic, float_net
from tests.made.spikes import draw_spikes

TINY, LOIHI = Chip.load("tiny"), Chip.load("loihi1")


def one_layer(weight, spec, n_in=None, **more):
    return Network.from_arrays(
        {"a": spec}, [Dense("in", "a", np.asarray(weight, np.float32), **more)], {"in": n_in or 2}
    )


def assert_same_spikes(network, chip, x):
    quantized = quantize(network, chip, x, Options())
    wanted, got = simulate(network, x), simulate(quantized.network, x)
    for name in network.layers:
        np.testing.assert_array_equal(wanted.spikes[name], got.spikes[name])
    assert all(row["spike_agreement_percent"] in (100.0, None) for row in quantized.table)
    return quantized


def assert_on_grid(network, chip):
    for name in network.layers:
        spec = network.node(name).neuron
        assert not list(neuron_violations(network.node(name), chip, bool(np.any(spec.bias) or np.any(spec.bias_u))))
    for c in network.connections:
        assert not list(weight_violations(c, chip))


specs = st.builds(
    NeuronSpec,
    threshold=st.sampled_from([0.75, 1.0, 2.0]),
    strict=st.booleans(),
    spikes=st.sampled_from(["binary", "multi", "bipolar"]),
    reset=st.sampled_from(["zero", "value", "subtract", "none"]),
    reset_value=st.sampled_from([0.0, -0.5, 0.25]),
    reset_timing=st.sampled_from(["now", "next"]),
    refractory=st.integers(0, 3),
    v_min=st.sampled_from([None, 0.0, -1.0]),
    bias=st.sampled_from([0.0, 0.25, -0.125]),
    membrane=st.sampled_from(["linear", "euler"]),
    beta=st.sampled_from([0.0, 0.5, 1.0]),
    gain=st.sampled_from([0.5, 1.0]),
    leak=st.sampled_from([0.0, 0.125]),
    k=st.sampled_from([0.5, 1.0]),
    v_leak=st.sampled_from([0.0, 0.25]),
    r=st.sampled_from([1.0, 2.0]),
    alpha=st.sampled_from([None, 0.0, 0.5]),
    w_in=st.sampled_from([1.0, 0.5]),
    current_order=st.sampled_from(CURRENT_ORDERS),
)


@settings(max_examples=n_drawn(60))
@given(specs, st.integers(0, 10**6))
def test_quantize_is_exact_where_every_number_is_dyadic(spec, seed):
    rng = np.random.default_rng(seed)
    weight, recurrent = dyadic(rng, 3, 4), dyadic(rng, 3, 3) / 2
    weight[0, 0] = 1.0
    network = Network.from_arrays(
        {"a": spec, "b": NeuronSpec(threshold=0.5, beta=0.5)},
        [
            Dense("in", "a", weight, bias=dyadic(rng, 3) / 8),
            Dense("a", "a", recurrent),
            Dense("a", "b", dyadic(rng, 2, 3)),
        ],
        {"in": 4},
    )
    assert_on_grid(assert_same_spikes(network, TINY, draw_spikes(rng, 3, 5, 4)).network, TINY)


@settings(max_examples=n_drawn(30))
@given(st.integers(0, 10**6), st.sampled_from(["loihi1", "tiny"]), st.integers(1, 8), st.booleans())
def test_quantize_stays_on_the_grids_of_the_chip(seed, chip, bits, calibrated):
    rng = np.random.default_rng(seed)
    chip = Chip.load(chip)
    size = 10.0 ** rng.uniform(-4, 4)
    spec = NeuronSpec(threshold=size, beta=rng.uniform(0, 1), alpha=rng.choice([None, 0.7]), bias=0.1 * size)
    network = Network.from_arrays(
        {"a": (spec, (3, 4, 4)), "b": spec.replace(threshold=size * rng.uniform(0.5, 2, 5))},
        [Conv2d("in", "a", size * rng.normal(size=(3, 2, 3, 3)), bias=size * rng.normal(size=3), padding=1),
         Dense("a", "b", size * rng.normal(size=(5, 48))),
         Sparse("b", "b", np.arange(5), np.arange(5), size * np.ones(5))],
        {"in": (2, 4, 4)},
    )  # fmt: skip
    x = draw_spikes(rng, 2, 6, 2, 4, 4) if calibrated else None
    quantized = quantize(network, chip, x, Options(bits=bits))
    assert_on_grid(quantized.network, chip)
    assert [c.weight_bits for c in quantized.network.connections] == [bits] * 3
    for row in quantized.table:
        assert tuple(row) == COLUMNS and row["bits"] == bits and np.isfinite(row["scale"])


def test_quantize_turns_not_strict_into_the_chips_comparison_and_says_so():
    network = one_layer([[0.5, 0.25]], NeuronSpec(threshold=1.0, strict=False))
    rng = np.random.default_rng(0)
    quantized = assert_same_spikes(network, LOIHI, draw_spikes(rng, 4, 20, 2))
    spec = quantized.network.node("a").neuron
    scale = quantized.table[0]["scale"]
    assert spec.strict and spec.threshold == scale - 64
    assert quantized.table[0]["strict_change"] == f"v >= {scale:.6g} became v > {spec.threshold}"


def test_round_threshold_moves_by_one_grid_step_only_where_the_comparison_changes():
    never_strict = TINY.replace({"neuron.strict": [False], "neuron.threshold_shift_bits": 3})
    assert round_threshold(np.array(640.0), True, LOIHI) == (640, True)
    assert round_threshold(np.array(640.0), False, LOIHI) == (576, True)
    assert round_threshold(np.array(641.0), False, LOIHI) == (640, True)
    assert round_threshold(np.array(640.0), True, never_strict) == (648, False)
    assert round_threshold(np.array(643.0), False, never_strict) == (640, False)


def test_weight_grid_uses_the_smallest_exponent_and_the_nearest_grid_point():
    grid = WeightGrid.from_weights(np.array([1.0, -1.0]), 8, LOIHI)
    rounded = grid.round_within(np.array([100.2, -255.4, 3.1]), np.inf)
    assert (
        rounded.exponent == 1 and list(rounded.mantissa) == [50, -128, 2] and list(rounded.effective) == [100, -256, 4]
    )
    fine = grid.round_within(np.array([100.2, -3.4]), np.inf)
    assert fine.exponent == -1 and list(fine.mantissa) == [200, -6] and list(fine.effective) == [100, -3]
    clipped = grid.round_within(np.array([100.0, 400.0]), 254.0)
    assert clipped.exponent == 0 and list(clipped.effective) == [100, 254] and clipped.n_clipped == 1


def test_round_bias_uses_the_finest_grid_that_holds_each_value():
    values = np.array([5.0, 4095.0, 4097.0, -9001.0, 1e9])
    assert list(round_bias(values, LOIHI)) == [5, 4095, 4096, -9000, 4095 << 7]
    assert list(round_bias(np.array([100.0]), LOIHI, unit_bits=6)) == [128]
    assert list(round_bias(np.array([1e20, -1e20]), LOIHI)) == [4095 << 7, -4095 << 7]


def test_quantize_clips_weights_that_no_spike_meets():
    rng = np.random.default_rng(1)
    weight = rng.normal(size=(40, 30)) * 0.2
    weight[:, :10] = 1.2
    network = one_layer(weight, NeuronSpec(beta=0.9), 30)
    x = draw_spikes(rng, 8, 20, 30, rate=0.2)
    x[:, :, :10] = 0
    wanted = simulate(network, x).output
    searched = quantize(network, LOIHI, x, Options(bits=4))
    plain = quantize(network, LOIHI, None, Options(bits=4))
    distance = [spike_distance(simulate(q.network, x).output, wanted) for q in (searched, plain)]
    assert distance[0] < 0.7 * distance[1]
    assert searched.table[0]["clipped_weights"] >= 400 and plain.table[0]["clipped_weights"] == 0
    assert searched.table[0]["weight_error_rms"] > plain.table[0]["weight_error_rms"]


def test_quantize_keeps_a_current_from_overflowing_under_any_input():
    rng = np.random.default_rng(2)
    network = one_layer(rng.uniform(0, 1, (5, 300)), NeuronSpec(threshold=50.0, beta=0.5), 300)
    quantized = quantize(network, LOIHI, None, Options())
    everything = np.ones((1, 3, 300))
    run = simulate(quantized.network, everything, record="all")
    assert run.states["a"]["u"].min() > 0 and run.output.all()


def test_quantize_gives_connections_of_unlike_size_exponents_of_their_own():
    rng = np.random.default_rng(3)
    network = Network.from_arrays(
        {"a": (NeuronSpec(beta=0.5), 4)},
        [Dense("in", "a", rng.normal(size=(4, 6))), Dense("a", "a", rng.normal(size=(4, 4)) / 30)],
        {"in": 6},
    )
    quantized = quantize(network, LOIHI, draw_spikes(rng, 4, 10, 6), Options())
    big, small = quantized.network.connections
    assert big.exponent > small.exponent and quantized.table[0]["exponents"] == [big.exponent, small.exponent]
    assert quantized.table[0]["weight_error_rms"] < 0.01


def test_quantize_keeps_per_neuron_thresholds_and_decays():
    spec = NeuronSpec(threshold=np.array([1.0, 2.0, 4.0]), beta=np.array([0.5, 0.75, 1.0]))
    quantized = quantize(one_layer(np.ones((3, 2)), spec), TINY, None, Options())
    fixed = quantized.network.node("a").neuron
    np.testing.assert_array_equal(fixed.threshold, quantized.table[0]["scale"] * np.array([1, 2, 4]))
    np.testing.assert_array_equal(fixed.decay_v, [2048, 1024, 0])
    assert quantized.table[0]["threshold_float"] == [1.0, 4.0]


def test_quantize_scales_a_readout_for_precision_and_states_its_unit():
    rng = np.random.default_rng(4)
    network = one_layer(rng.normal(size=(3, 20)), NeuronSpec(fires=False, beta=0.9, reset="none"), 20)
    x = draw_spikes(rng, 4, 15, 20)
    quantized = quantize(network, LOIHI, x, Options())
    scale = quantized.table[0]["scale"]
    wanted, got = simulate(network, x).output, simulate(quantized.network, x).output / scale
    assert np.abs(wanted - got).max() < 0.02 * np.abs(wanted).max()
    assert scale * np.abs(wanted).max() > 1 << 20
    assert quantized.network.node("a").neuron.reset == "zero" and quantized.table[0]["threshold_int"] is None
    assert_on_grid(quantized.network, LOIHI)


def test_dynamics_reports_the_error_of_a_time_constant():
    d = layer_dynamics(one_layer(np.ones((1, 2)), NeuronSpec(beta=0.999)), "a", TINY)
    assert d.decay_v == 4 and d.decay_u == 4096
    tau, chip_tau = -1 / np.log(np.float32(0.999).astype(float)), -1 / np.log(1 - 4 / 4096)
    assert d.tau_error_percent == pytest.approx(100 * (chip_tau / tau - 1))


def test_dynamics_lets_a_current_decay_at_least_as_fast_as_the_chip_does():
    network = one_layer(np.ones((1, 2)), NeuronSpec(alpha=1.0))
    assert layer_dynamics(network, "a", LOIHI).decay_u == 1 and layer_dynamics(network, "a", TINY).decay_u == 0


def test_quantize_warns_of_a_leak_finer_than_the_chips():
    quantized = quantize(one_layer(np.ones((1, 2)), NeuronSpec(beta=0.99999)), TINY, None, Options())
    assert quantized.table[0]["tau_error_percent"] is None
    assert quantized.warnings == [
        "layer 'a': a leak is finer than the chip's decay of 12 bits, which cannot tell it from none or from a full one"
    ]


def test_quantize_warns_of_a_layer_that_dies_on_the_chip():
    weight = np.array([[100.0, 0.0], [0.0, 0.3]])
    network = Network.from_arrays(
        {"a": NeuronSpec(threshold=np.array([1e6, 1.0]))}, [Dense("in", "a", weight)], {"in": 2}
    )
    x = np.zeros((2, 8, 2))
    x[:, :, 1] = 1
    quantized = quantize(network, TINY, x, Options())
    assert quantized.warnings == [
        "layer 'a' is dead on the chip: no spike in the calibration samples, 4 in float; "
        "give it more weight bits, or train it with weights of more equal size"
    ]


DIFFER = (
    "layer 'a': the chip's weights differ from the float ones by {} % (root mean square), and from 20 % on networks "
)


def test_quantize_warns_of_weights_that_few_bits_have_changed_much():
    network = one_layer(np.random.default_rng(0).normal(size=(30, 20)), NeuronSpec(threshold=2.0), 20)
    assert quantize(network, LOIHI, None, Options(bits=4)).warnings == []
    assert quantize(network, LOIHI, None, Options(bits=2)).warnings == [
        f"{DIFFER.format(39)}lose accuracy; give it more bits than 2, or train it with nn.quantize_aware"
    ]


@pytest.mark.parametrize(("chip", "error"), [("h1v2", 70), ("tiny", 50)])
def test_quantize_tells_clipped_weights_from_weights_without_room(chip, error):
    weight = np.random.default_rng(0).normal(size=(8, 12)) * 0.4
    weight[0, 5] = 40.0
    x = draw_spikes(np.random.default_rng(1), 6, 20, 12)
    chip, network = Chip.load(chip), one_layer(weight, NeuronSpec(beta=0.9), 12)
    bits = chip.weights.bits
    assert quantize(network, chip, x, Options()).warnings == [
        f"{DIFFER.format(error)}lose accuracy; the chip has no more bits than {bits} for them; train the layer with "
        "weights of more equal size, or with nn.quantize_aware"
    ]


def test_quantize_warns_of_weights_that_a_large_threshold_leaves_no_room():
    network = one_layer(np.random.default_rng(0).normal(size=(30, 20)), NeuronSpec(threshold=1.3e5), 20)
    assert quantize(network, TINY, None, Options()).warnings == [
        f"{DIFFER.format(29)}lose accuracy; the largest is 4 there, because its threshold, biases or currents are so "
        "much larger; scale its input up (of nw.convert and nw.encode: a larger unit), or take a chip with wider states"
    ]


def test_quantize_does_not_warn_of_weights_that_changed_where_spikes_did_not():
    network = one_layer([[0.1, 1.0]], NeuronSpec(threshold=0.05, beta=0.5))
    x = np.zeros((2, 8, 2))
    x[:, ::2, 0] = 1  # the large weight meets no spike
    quantized = quantize(network, LOIHI, x, Options(bits=2))
    assert quantized.table[0]["weight_error_rms"] > 0.4 and quantized.table[0]["spike_agreement_percent"] == 100
    assert quantized.warnings == []


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        (
            NeuronSpec(threshold=1e3),
            "layer 'a' is dead: no spike in the calibration samples; lower its threshold or train it longer",
        ),
        (
            NeuronSpec(threshold=np.array([0.5, 0.5, 0.5, 0.5])),
            "layer 'a' is saturated: 100 % of its neurons and steps fire in the calibration samples; "
            "raise its threshold or scale its input down",
        ),
        (
            NeuronSpec(threshold=np.array([0.5, 3.5, 3.5, 3.5])),
            "layer 'a': 1 of 4 neurons fire in every step of the calibration samples; they carry nothing",
        ),
    ],
)
def test_quantize_warns_of_layers_that_say_nothing(spec, warning):
    quantized = quantize(one_layer(np.ones((4, 2)) / 2, spec), TINY, np.ones((2, 6, 2)), Options())
    assert quantized.warnings == [warning]


def test_quantize_keeps_a_fixed_point_network_as_it_is():
    network = dense_net(4, 3, 2, spec=FIXED)
    quantized = quantize(network, LOIHI, np.ones((1, 5, 4)), Options(bits=4))
    assert quantized.network is network
    assert [row["layer"] for row in quantized.table] == ["fc1", "fc2"]
    row = quantized.table[0]
    assert tuple(row) == COLUMNS and row["scale"] == 1.0 and row["threshold_int"] == 64 and row["rate_float"] is None
    assert quantized.warnings[0] == "bits=4 has no effect: the network is already in integers"


@pytest.mark.parametrize(
    "late", [Dense("a", "a", np.eye(3), delay=2), Conv2d("a", "a", np.ones((1, 1, 1, 1)), delay=2)]
)
@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_quantize_takes_samples_shorter_than_a_delay(n_steps, late):
    shape = (3,) if isinstance(late, Dense) else (1, 3, 1)
    edges = [Dense("in", "a", np.eye(3)), late]
    network = Network.from_arrays({"a": (NeuronSpec(reset="zero"), shape)}, edges, {"in": 3})
    quantized = quantize(network, TINY, np.ones((2, n_steps, 3), np.int8), Options())
    assert quantized.table[0]["spike_agreement_percent"] == 100


def test_quantize_is_the_same_twice():
    rng = np.random.default_rng(5)
    network = one_layer(rng.normal(size=(6, 9)), NeuronSpec(beta=0.9), 9)
    x = draw_spikes(rng, 3, 8, 9)
    assert quantize(network, LOIHI, x, Options()).network.hash == quantize(network, LOIHI, x, Options()).network.hash


def test_choose_tries_the_exact_power_of_two():
    layer = describe_layer(one_layer([[0.75, -0.125]], NeuronSpec()), "a", TINY)
    scaled, _ = choose_scale(layer, TINY, None)
    assert np.log2(scaled.scale) % 1 == 0 and scale_layer(layer, TINY, scaled.scale).weights[0].n_clipped == 0


def test_quantize_refuses_a_leak_that_grows():
    with pytest.raises(ModelError) as error:
        quantize(one_layer(np.ones((1, 2)), NeuronSpec(beta=1.25)), TINY, None, Options())
    assert str(error.value) == (
        "layer 'a': beta = 1.25 is outside 0..1, and a chip's state can only decay; "
        "train it with a leak between 0 and 1"
    )


def test_quantize_refuses_a_gain_that_differs_inside_a_channel():
    spec = NeuronSpec(gain=np.arange(1.0, 10.0).reshape(1, 3, 3))
    network = Network.from_arrays({"a": spec}, [Conv2d("in", "a", np.ones((1, 1, 1, 1)))], {"in": (1, 3, 3)})
    with pytest.raises(ModelError) as error:
        quantize(network, TINY, None, Options())
    assert str(error.value) == (
        "layer 'a': its gain differs inside a channel, which the convolution from 'in' cannot take up; "
        "give one gain for each channel"
    )


def test_quantize_refuses_real_valued_calibration():
    with pytest.raises(ModelError) as error:
        quantize(one_layer(np.ones((1, 2)), NeuronSpec()), LOIHI, np.full((1, 2, 2), 0.5), Options())
    assert str(error.value) == (
        "input 'in' has the value 0.5, but the integer program takes whole numbers; "
        "encode real values into spikes first (nwcompile.encode does), or compile the model with calibration "
        "samples of such values"
    )


def test_quantize_warns_of_weights_that_all_become_zero():
    quantized = quantize(one_layer(np.ones((1, 2)), NeuronSpec(threshold=1e9)), TINY, None, Options())
    assert quantized.warnings == [
        "layer 'a': every weight is 0 after rounding, because its biases, threshold or currents are so much larger; "
        "scale its input or take a chip with wider states"
    ]


def test_quantize_warns_once_of_all_connections_that_become_zero():
    rng, spec = np.random.default_rng(0), NeuronSpec(beta=0.95)
    sizes = {("a", "h"): 2e-4, ("b", "h"): 0.075, ("b", "k"): 0.075, ("h", "k"): 1e-5, ("a", "k"): 0.0}
    n = {"a": 400, "b": 20, "h": 8, "k": 8}
    connections = [Dense(*pair, np.full((8, n[pair[0]]), size)) for pair, size in sizes.items()]
    network = Network.from_arrays({"h": (spec, 8), "k": (spec, 8)}, connections, {"a": 400, "b": 20})
    x = {"a": draw_spikes(rng, 4, 60, 400), "b": draw_spikes(rng, 4, 60, 20, rate=0.02)}
    for samples in (x, None):
        warnings = quantize(network, Chip.load("h1v2"), samples, Options()).warnings
        found = [text for text in warnings if "0 after rounding" in text]
        assert (
            len(found) == 1
            and "2 connections have only weights of 0 after rounding ('a' -> 'h', 'h' -> 'k')" in found[0]
        )


@pytest.mark.parametrize("kind", ["dense", "conv", "sparse"])
def test_quantize_warns_once_of_all_neurons_that_lose_their_weights(kind):
    rng, size = np.random.default_rng(1), np.where(np.arange(8) < 4, 1 / 512, 1.0)
    size[3] = 0.0  # has nothing to lose
    post, pre = np.nonzero(np.ones((8, 30), int))
    c = {
        "dense": Dense("in", "a", rng.normal(0.1, 0.3, (8, 30)) * size[:, None]),
        "sparse": Sparse("in", "a", pre, post, rng.normal(0.1, 0.3, 240) * size[post]),
        "conv": Conv2d("in", "a", rng.normal(0.1, 0.3, (8, 30, 1, 1)) * size[:, None, None, None]),
    }[kind]
    shapes = ((8, 2, 1), (30, 2, 1)) if kind == "conv" else ((8,), (30,))
    threshold = np.maximum(size, 1e-3).reshape(8, *[1] * (len(shapes[0]) - 1))
    network = Network.from_arrays({"a": (NeuronSpec(threshold=threshold, beta=0.9), shapes[0])}, [c], {"in": shapes[1]})
    what = "6 neurons have only weights of 0 after rounding, in layer 'a' (6 of 16: 0, 1, 2, 3, 4, and 1 more)"
    if kind != "conv":
        what = "3 neurons have only weights of 0 after rounding, in layer 'a' (3 of 8: 0, 1, 2)"
    x = draw_spikes(rng, 4, 60, *shapes[1], rate=0.3)
    for samples in (x, None):
        warnings = quantize(network, LOIHI, samples, Options(bits=4)).warnings
        assert sum(text.startswith(what) for text in warnings) == 1


def test_quantize_does_not_warn_of_lost_weights_of_neurons_that_do_not_fire():
    rng, weight = np.random.default_rng(2), np.full((4, 10), 0.3)
    weight[1] = 1e-6
    samples = draw_spikes(rng, 4, 40, 10, rate=0.3)
    quantized = quantize(one_layer(weight, NeuronSpec(beta=0.9), 10), LOIHI, samples, Options())
    assert not quantized.network.connections[0].weight[1].any() and quantized.warnings == []


def test_quantize_warns_of_rates_that_rounding_moves():
    rng = np.random.default_rng(3)
    network = Network.from_arrays(
        {"h": (NeuronSpec(beta=0.95), 8)},
        [Dense("a", "h", np.full((8, 400), 2e-4)), Dense("b", "h", np.full((8, 20), 0.075))],
        {"a": 400, "b": 20},
    )
    x = {"a": draw_spikes(rng, 8, 100, 400), "b": draw_spikes(rng, 8, 100, 20, rate=0.02)}
    text = "rounding changes the firing rate of 1 layer by more than 20 %"
    for chip, n in ((Chip.load("h1v2"), 1), (LOIHI, 0)):  # Loihi's connections have exponents of their own
        quantized = quantize(network, chip, x, Options())
        assert sum(found.startswith(text) for found in quantized.warnings) == n


@pytest.mark.parametrize(
    "wanted, sent, is_moved",
    [
        ((50, 50, 50, 50), (65, 65, 65, 65), True),  # by 30 %
        ((50, 50, 50, 50), (35, 35, 35, 35), True),
        ((50, 50, 50, 50), (58, 58, 58, 58), False),  # by 16 %
        ((20, 20, 20, 20), (10, 10, 10, 10), False),  # 80 spikes are too few to tell
        ((50, 50, 50, 50), (80, 50, 50, 20), True),  # half of the neurons by 60 %
        ((50, 50, 50, 50), (77, 41, 41, 41), False),  # a quarter of them by 54 %
    ],
)
def test_rates_that_move_are_told_up_and_down_of_layers_and_of_neurons(wanted, sent, is_moved):
    spikes = [{"a": (np.arange(100)[:, None] < counts)[None]} for counts in (wanted, sent)]  # 1 sample of 100 steps
    row = {"layer": "a", "rate_float": spikes[0]["a"].mean(), "rate_fixed": spikes[1]["a"].mean()}
    assert len(rate_warnings([row], *spikes)) == is_moved


def test_quantize_fills_the_weights_of_a_chip_without_exponents():
    rng = np.random.default_rng(6)
    spec = NeuronSpec(strict=False, reset="subtract", v_min=0.0, beta=0.9)
    network = one_layer(rng.normal(size=(8, 30)) * 0.3, spec, 30)
    h1v2 = Chip.load("h1v2")
    quantized = quantize(network, h1v2, draw_spikes(rng, 6, 30, 30, rate=0.3), Options())
    assert_on_grid(quantized.network, h1v2)
    weight = quantized.network.connections[0].weight
    assert np.abs(weight).max() >= 15 and quantized.table[0]["exponents"] == [0]
    assert quantized.table[0]["spike_agreement_percent"] > 60


def test_quantize_states_what_a_layer_lost_and_how_large_its_states_become():
    weight = np.array([[2.0, 0.25, -0.25], [0.25, -0.25, 0.5]])
    spec = NeuronSpec(threshold=1.0, beta=0.875, alpha=np.array([0.5, 0.75]))
    x = draw_spikes(np.random.default_rng(0), 4, 30, 3)
    row = quantize(one_layer(weight, spec, 3), TINY, x, Options(bits=2)).table[0]
    assert (row["bits"], row["n_weights"], row["state_limit"], row["state_bits"]) == (2, 6, (1 << 23) - 1, 24)
    assert row["clipped_percent"] == 100 * row["clipped_weights"] / 6
    assert row["tau_v"] == row["tau_v_chip"] == pytest.approx(-1 / np.log(0.875))
    assert row["tau_u"] == row["tau_u_chip"] == pytest.approx([-1 / np.log(0.5), -1 / np.log(0.75)])
    assert 0 < row["u_largest"] <= row["u_bound"] <= row["state_limit"] and row["overflow"] is None
    assert row["v_largest"] <= row["v_bound"]


def test_quantize_says_which_state_could_overflow_and_what_ends_that():
    network = one_layer(np.ones((1, 4000)), NeuronSpec(threshold=1.0, beta=1.0, reset="none"), 4000)
    x = np.zeros((1, 5, 4000))
    x[:, :, 0] = 1
    row = quantize(network, TINY.replace({"state.bits": 16, "state.shift_bits": 0}), x, Options()).table[0]
    assert row["overflow"] == (
        f"u may need {int(row['u_bound']).bit_length() + 1} bits, more than the chip's 16, and then wraps (not in the "
        "calibration samples); v may grow without bound and then saturates (not in the calibration samples); "
        'state.overflow = "saturate" keeps u from wrapping'
    )
    ranc = Chip.load("ranc_dense")
    adds = one_layer(np.ones((1, 20)), NeuronSpec(threshold=1.0, beta=1.0, reset="subtract", strict=False), 20)
    row = quantize(adds, ranc, x[:, :, :20], Options())
    assert row.table[0]["overflow"] == (
        "v may grow without bound and then wraps (not in the calibration samples); more state.bits delay it, and "
        "exports prove for how many steps it cannot happen"
    )
    leaky = one_layer(np.ones((1, 4000)), NeuronSpec(threshold=1.0, beta=0.5, reset="none"), 4000)
    chip = TINY.replace({"state.bits": 16, "state.shift_bits": 0, "state.overflow": "saturate"})
    row = quantize(leaky, chip, x, Options()).table[0]
    bits = [int(row[f"{state}_bound"]).bit_length() + 1 for state in "uv"]
    assert row["overflow"] == (
        f"u may need {bits[0]} bits, more than the chip's 16, and then saturates (not in the calibration samples); "
        f"v may need {bits[1]} bits, more than the chip's 16, and then saturates (not in the calibration samples); "
        f"state.bits = {bits[1]} holds every value"
    )


def fixed_net(weight, **more):
    spec = NeuronSpec(**{"threshold": 64, "fixed": FixedPoint(), "decay_v": 4096} | more)
    return Network.from_arrays({"a": spec}, [Dense("in", "a", np.array(weight))], {"in": len(weight[0])})


def test_quantize_warns_of_a_threshold_beyond_reach():
    found = quantize(fixed_net([[3, 2]], threshold=320), TINY, np.ones((1, 4, 2)), Options())
    assert found.warnings == [
        "layer 'a' can never fire at 8 weight bits: its membranes reach 320 at most, its thresholds are 320; "
        "give it more bits, or lower its threshold"
    ]
    assert not quantize(fixed_net([[3, 2]], threshold=319), TINY, np.eye(2)[None], Options(seed=1)).warnings[1:]


@pytest.mark.parametrize(
    ("overflow", "text"),
    [("wrap", 'and wraps, beyond the 24 bits of a state; set state.overflow = "saturate" or state.bits = 26, or'),
     ("saturate", "and saturates, beyond the 24 bits of a state; set state.bits = 26, or")],
)  # fmt: skip
def test_quantize_warns_of_a_state_that_overflows_in_the_samples(overflow, text):
    chip = TINY.replace({"state.overflow": overflow, "weights.effective_limit": 1 << 20})
    network = fixed_net([[1 << 17] * 3], fixed=FixedPoint(overflow=overflow))
    found = quantize(network, chip, np.ones((1, 4, 3)), Options())
    assert f"layer 'a': u reaches {3 << 23} in the calibration samples {text} scale the layer down" in found.warnings


def test_quantize_warns_of_samples_without_a_spike():
    found = quantize(one_layer(np.ones((1, 2)), NeuronSpec()), TINY, np.zeros((2, 5, 2)), Options())
    assert found.warnings == [
        "no input spikes in any calibration sample; give samples like those that the chip will see"
    ]


@pytest.mark.parametrize(
    ("shape", "text"),
    [((0, 5, 2), "got shape [0, 5, 2] (give a sample or more)"),
     ((3, 0, 2), "got shape [3, 0, 2] (give a step or more)"),
     ((3, 5, 4), "got shape [3, 5, 4]"), ((5, 2), "got shape [5, 2] (is the time axis missing?)")],
)  # fmt: skip
def test_quantize_refuses_samples_of_another_shape(shape, text):
    with pytest.raises(ModelError) as e:
        quantize(one_layer(np.ones((1, 2)), NeuronSpec()), TINY, np.ones(shape), Options())
    assert str(e.value) == f"input 'in' must be [B, T, 2], {text}"


def test_quantize_learns_nothing_from_samples_without_a_spike():
    weight = np.random.default_rng(0).normal(0.3, 1, size=(4, 30)) / 1000
    network = one_layer(weight, NeuronSpec(threshold=0.001, beta=0.9, alpha=0.5), 30)
    silent, without = (quantize(network, TINY, x, Options()) for x in (np.zeros((2, 5, 30)), None))
    assert silent.table[0]["scale"] == without.table[0]["scale"]
    assert silent.table[0]["u_bound"] <= silent.table[0]["state_limit"]


def test_quantize_names_the_layer_that_others_get_no_spike_from():
    nodes = {"a": NeuronSpec(threshold=9.0), "b": NeuronSpec(threshold=0.5), "c": NeuronSpec(threshold=0.5)}
    edges = [Dense(a, b, np.ones((2, 2))) for a, b in (("in", "a"), ("a", "b"), ("b", "c"), ("c", "c"))]
    found = quantize(Network.from_arrays(nodes, edges, {"in": 2}), TINY, np.ones((1, 3, 2)), Options())
    assert found.warnings == [
        "layer 'a' is dead: no spike in the calibration samples; lower its threshold or train it longer",
        "layer 'b' gets no spike in the calibration samples: a sent none",
        "layer 'c' gets no spike in the calibration samples: b sent none",
    ]


def test_quantize_warns_of_zeros_that_binary_weights_cannot_be():
    network = one_layer([[1.0, -1.0, 0.0, 0.0]], NeuronSpec(), 4)
    x = np.array([[[1, 0, 0, 0], [0, 1, 0, 0]]])
    assert quantize(network, TINY, x, Options(bits=1)).warnings[0] == (
        "layer 'a': weights of 1 bit and both signs have no 0, so 2 of 4 weights are no longer 0; "
        "give it 2 bits, or leave these synapses out"
    )
    assert not any("no 0" in w for w in quantize(network, TINY, x, Options(bits=2)).warnings)


def test_quantize_samples_beyond_a_message_are_compiled_without_a_warning_of_numpy():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        compile(float_net(6, 4), "loihi2", np.full((2, 3, 6), 2**40))
