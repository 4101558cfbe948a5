"""What only integers prove: clamps that never act, and thresholds that say the same for the other comparison."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.legalize.prove import idle_clamps, same_comparison
from nwcompile.sim import simulate
from tests.made.chips import small_chip

LEAKY = NeuronSpec(threshold=300, fixed=FixedPoint(), decay_v=1024, v_min=-1600)
CHIPS = {"none": small_chip(), "zero": small_chip(neuron__v_min="zero")}


def drawn(spec: NeuronSpec, seed: int, low: int = -3) -> Network:
    rng = np.random.default_rng(seed)
    edges = [Dense(*ends, rng.integers(low, 8, (5, 5)).astype(np.int8)) for ends in (("in", "a"), ("a", "b"))]
    return Network.from_arrays(dict.fromkeys("ab", (spec, 5)), edges, {"in": 5})


def lowest(network: Network) -> int:
    """How low a membrane can be driven: one neuron's negative weights in every step."""
    worst = max(float(np.maximum(-np.asarray(c.weight, int), 0).sum(1).max()) for c in network.connections)
    x = np.zeros((5, 60, 5), int)
    for i, row in enumerate(np.asarray(network.connections[0].weight)):
        x[i] = row < 0
    return int(worst * 64 * 4096 / 1024), int(simulate(network, x, record="all").states["a"]["v"].min())


@pytest.mark.parametrize("seed", range(6))
def test_idle_clamps_are_dropped_only_where_no_spikes_reach_them(seed):
    free = drawn(LEAKY.replace(v_min=None), seed)
    bound, reached = lowest(free)
    assert -bound <= reached
    kept, changes = idle_clamps(drawn(LEAKY.replace(v_min=-bound + 1), seed), CHIPS["none"], Options())
    dropped, rows = idle_clamps(drawn(LEAKY.replace(v_min=-bound), seed), CHIPS["none"], Options())
    assert dropped.node("a").neuron.v_min is None and dropped.node("b").neuron.v_min is None
    assert {row.label for row in rows} == {"exact"} and len(rows) == 2
    assert any(kept.node(name).neuron.v_min is not None for name in "ab") and len(changes) < 2
    x = np.random.default_rng(seed + 9).integers(0, 2, (4, 50, 5))
    clamped = drawn(LEAKY.replace(v_min=-bound), seed)
    assert all(np.array_equal(simulate(clamped, x).spikes[n], simulate(dropped, x).spikes[n]) for n in "ab")


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("gain", [0.0, 1.0])
@pytest.mark.parametrize("low", [-3, 0])
def test_a_bound_of_endless_input_warns_of_no_arithmetic(low, gain):
    spec = NeuronSpec(threshold=2.0, beta=0.5, gain=gain, v_min=-1.0)
    weight = np.random.default_rng(0).integers(low, 8, (5, 5)).astype(np.float32)
    network = Network.from_arrays({"a": (spec, 5)}, [Dense("in", "a", np.where(weight == 7, 0, weight))], {"in": 5})
    dropped, _ = idle_clamps(network, CHIPS["none"], Options(on_multi_spike="repeat"))
    is_idle = low == 0 or gain == 0
    assert dropped.node("a").neuron.v_min == (None if is_idle else -1.0)


def test_a_clamp_that_acts_changes_spikes_and_is_kept():
    network = drawn(LEAKY.replace(v_min=-100), 1)
    assert idle_clamps(network, CHIPS["none"], Options()) == (network, [])
    x = np.random.default_rng(1).integers(0, 2, (8, 60, 5))
    free = drawn(LEAKY.replace(v_min=None), 1)
    assert any(not np.array_equal(simulate(network, x).spikes[n], simulate(free, x).spikes[n]) for n in "ab")


def test_a_chip_that_clamps_at_zero_takes_membranes_that_are_never_below():
    positive = drawn(LEAKY.replace(v_min=None), 2, low=0)
    clamped, rows = idle_clamps(positive, CHIPS["zero"], Options())
    assert [clamped.node(n).neuron.v_min for n in "ab"] == [0, 0]
    assert [(r.was, r.has, r.how) for r in rows] == [("no clamp", "a clamp at 0", "no membrane can be below 0")] * 2
    assert idle_clamps(drawn(LEAKY.replace(v_min=None), 2), CHIPS["zero"], Options())[1] == []
    signed = CHIPS["zero"].replace({"neuron.spikes": ["binary", "bipolar"]})
    assert [row.layer for row in idle_clamps(positive, signed, Options())[1]] == ["b"]  # input lines may be negative


@pytest.mark.parametrize(("v_min", "is_idle"), [(-4.0, True), (-3.75, False)])
def test_negative_spikes_lower_float_membranes_through_positive_weights(v_min, is_idle):
    spec = NeuronSpec(threshold=1.0, beta=0.5, v_min=v_min)  # two lines of -1 in every step: -2 / (1 - 0.5)
    network = Network.from_arrays({"a": spec}, [Dense("in", "a", np.ones((1, 2), np.float32))], {"in": 2})
    signed = small_chip(neuron__spikes=["binary", "bipolar"])
    assert idle_clamps(network, signed, Options())[0].node("a").neuron.v_min == (None if is_idle else v_min)


def test_compile_drops_an_idle_clamp_of_a_float_network_and_refuses_one_that_acts():
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 6, (6, 5)).astype(np.float32) / 8
    x = rng.integers(0, 2, (4, 30, 5))
    for v_min, factor in ((0.0, 1), (-8.0, -1)):
        spec = NeuronSpec(threshold=1.0, beta=0.5, v_min=v_min)
        signed = weight * np.where(np.arange(5) == 0, factor, 1).astype(np.float32)
        network = Network.from_arrays({"a": spec}, [Dense("in", "a", signed)], {"in": 5})
        program = nw.compile(network, "loihi1", x)
        assert [(row["was"], row["has"], row["label"]) for row in program.legalization] == [
            ("a clamp below 0" if v_min else "a clamp at 0", "no clamp", "exact")
        ]
        assert np.array_equal(simulate(program, x).spikes["a"], simulate(network, x).spikes["a"])
    acts = Network.from_arrays({"a": spec.replace(v_min=-0.1)}, [Dense("in", "a", signed)], {"in": 5})
    with pytest.raises(FitError) as error:
        nw.compile(acts, "loihi1", x)
    assert [v.what for v in error.value.violations] == ["v_min"] and "approximate='v_min'" in error.value.change


@pytest.mark.parametrize("strict", [True, False])
def test_same_comparison_sends_the_same_spikes(strict):
    chip = small_chip(neuron__strict=[not strict], neuron__spikes=["binary", "multi"])
    spec = LEAKY.replace(strict=strict, v_min=None, threshold=192, decay_v=0)  # sums often meet it exactly
    x = np.random.default_rng(3).integers(0, 2, (4, 50, 5))
    for seed in range(4):
        network = drawn(spec, seed)
        other, rows = same_comparison(network, chip, Options())
        assert other.node("a").neuron.strict is not strict and [row.label for row in rows] == ["exact"] * 2
        wanted, got = simulate(network, x).spikes, simulate(other, x).spikes
        assert all(np.array_equal(wanted[n], got[n]) for n in "ab") and wanted["b"].any()
        swapped = drawn(spec.replace(strict=not strict), seed)
        assert any(not np.array_equal(wanted[n], simulate(swapped, x).spikes[n]) for n in "ab")
    for more in ({"reset": "subtract"}, {"spikes": "multi"}):
        assert same_comparison(drawn(spec.replace(**more), 0), chip, Options())[1] == []
    coarse = chip.replace({"neuron.threshold_shift_bits": 6})
    assert same_comparison(drawn(spec, 0), coarse, Options())[1] == []  # one beside it is on no grid of 64


def of_sums(beta: float, bias: float = 0.0) -> Network:
    """Neurons that fire at the threshold, of which sums of weights of 1 meet it exactly."""
    spec = NeuronSpec(beta=beta, strict=False, threshold=2.0, bias=bias)
    return Network.from_arrays({"a": spec}, [Dense("in", "a", np.ones((3, 4)))], {"in": 4})


def test_compile_says_that_a_quantized_comparison_is_the_same():
    x = np.random.default_rng(0).integers(0, 2, (4, 40, 4))
    program = nw.compile(of_sums(1.0), "loihi1", x)
    assert [(row["was"], row["has"], row["how"]) for row in program.legalization] == [
        ("v >= threshold", "v > threshold", "the threshold one lower: the same for whole numbers")
    ]
    fixed = program.network
    spec = fixed.node("a").neuron
    unit = 1 << nw.Chip.load("loihi1").neuron.threshold_shift_bits
    wanted = spec.replace(strict=False, threshold=np.asarray(spec.threshold) + unit)
    ideal = Network(fixed.inputs, {"a": Node("a", (3,), wanted)}, fixed.connections)
    assert np.array_equal(simulate(ideal, x).spikes["a"], simulate(fixed, x).spikes["a"])


@pytest.mark.parametrize(("beta", "bias"), [(0.5, 0.0), (1.0, 0.013)])
def test_comparison_between_the_thresholds_of_a_chip_is_rounding_and_no_exact_change(beta, bias):
    program = nw.compile(of_sums(beta, bias), "loihi1", np.random.default_rng(0).integers(0, 2, (4, 40, 4)))
    assert program.legalization == []
    (row,) = program.manifest["quantization"]
    assert row["strict_change"].startswith("v >= ")
