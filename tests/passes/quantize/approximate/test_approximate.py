"""Neurons that a chip lacks, met by its nearest ones: refitted, priced on samples held out, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError, LossError, ModelError, NwWarning, OptionError
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, MaxPool2d
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.quantize.approximate.approximate import NOT_FITTED, NOT_PRICED
from nwcompile.passes.quantize.approximate.price import Price, check_loss, split_samples
from nwcompile.sim import simulate
from nwcompile.sim.accuracy import loss_interval
from tests.made.leaky_net import LEAKY, ONE_CORE, leaky_net, leaky_samples


def test_split_holds_out_every_fifth_sample_or_the_last():
    assert [len(part) for part in split_samples(40)] == [32, 8]
    assert [part.tolist() for part in split_samples(6)] == [[0, 1, 2, 3, 5], [4]]
    assert [part.tolist() for part in split_samples(3)] == [[0, 1], [2]]
    assert [part.tolist() for part in split_samples(1)] == [[0], []]


@pytest.mark.parametrize("beta", [0.9, 0.95])
def test_approximate_keeps_the_rates_of_soft_resets_within_ten_percent(beta):
    network, x = leaky_net(LEAKY.replace(beta=beta)), leaky_samples()
    program = compile(network, "loihi1", x, Options(approximate="reset,timing", **ONE_CORE))
    assert [node.neuron.reset for node in program.network.nodes.values()] == ["zero"] * 3
    prices = {row["layer"]: row["price"] for row in program.legalization}
    assert all(abs(price["rate_change_percent"]) < 10 for price in prices.values()), prices
    held = split_samples(len(x))[1]
    rates = {name: spikes.mean() for name, spikes in simulate(program, x[held]).spikes.items()}
    assert rates == pytest.approx({name: price["rate_chip"] for name, price in prices.items()})
    assert nw.crosscheck(program, x[:2]).agree


def bursting_net() -> tuple[Network, np.ndarray]:
    """A layer without leak whose rare inputs each make it fire for several steps, and its samples."""
    rng = np.random.default_rng(4)
    weight = rng.uniform(0.5, 4.0, (20, 12)).astype(np.float32)
    spec = NeuronSpec(threshold=1.0, beta=1.0, reset="subtract", reset_timing="now")
    network = Network.from_arrays({"out": spec}, [Dense("in", "out", weight)], {"in": 12})
    return network, (rng.random((12, 30, 12)) < 0.005).astype(np.float32)


def test_approximate_spreads_inputs_as_a_current_where_no_threshold_gives_the_rate():
    network, x = bursting_net()
    program = compile(network, "loihi1", x, Options(approximate="reset", **ONE_CORE))
    (row,) = (row for row in program.legalization if row["label"] == "approximate")
    assert "inputs as a current that keeps " in row["how"]
    assert abs(row["price"]["rate_change_percent"]) < 10
    alone = [compile_alone(network, x, factor) for factor in (0.02, 1.0)]
    assert max(alone) < 0.8 * row["price"]["rate_ideal"]  # so it is for thresholds alone, however low
    assert nw.crosscheck(program, x[:2]).agree


def compile_alone(network: Network, x: np.ndarray, factor: float) -> float:
    """The rate with a reset to zero and thresholds times a factor, on the samples that were held out above."""
    spec = network.node("out").neuron
    hard = {"out": spec.replace(reset="zero", threshold=spec.threshold * factor)}
    program = compile(Network.from_arrays(hard, network.connections, {"in": 12}), "loihi1", x, Options(**ONE_CORE))
    return float(simulate(program, x[split_samples(len(x))[1]]).spikes["out"].mean())


def test_approximate_is_closer_than_swapping_the_flag():
    network, x = leaky_net(), leaky_samples()
    program = compile(network, "loihi1", x, Options(approximate="all", **ONE_CORE))
    hard = {n: node.neuron.replace(reset="zero", reset_timing="now") for n, node in network.nodes.items()}
    swapped = Network.from_arrays(hard, network.connections, {"in": 60})
    plain = compile(swapped, "loihi1", x, Options(**ONE_CORE))
    wanted = simulate(compile(network, "tiny", x, Options(**ONE_CORE)), x).spikes
    fitted, naive = (simulate(p, x).spikes for p in (program, plain))
    for name in network.layers:
        off = [abs(spikes[name].mean() / wanted[name].mean() - 1) for spikes in (fitted, naive)]
        assert off[0] < off[1] / 2, name
    agree = [np.mean(spikes["l1"][wanted["l1"] != 0]) for spikes in (fitted, naive)]
    assert agree[0] > agree[1]


def test_approximate_leaves_a_network_that_fits_as_it_is():
    network, x = leaky_net(LEAKY.replace(reset="zero", reset_timing="now")), leaky_samples(4)
    exact, asked = (compile(network, "loihi1", x, Options(approximate=w, **ONE_CORE)) for w in ((), "all"))
    assert exact.network.hash == asked.network.hash
    assert "legalization" not in asked.manifest and "price" not in asked.manifest


def test_fit_error_names_the_approximations_that_would_make_it_fit():
    with pytest.raises(FitError) as error:
        compile(leaky_net(), "loihi1", leaky_samples(2))
    how = "the chip's nearest features; the report shows the loss"
    assert error.value.change == f"approximate='reset,timing' (--approximate reset,timing): {how}"
    with pytest.raises(FitError) as error:
        compile(leaky_net(), "loihi1", leaky_samples(2), Options(approximate="timing"))
    assert {v.what for v in error.value.violations} == {"reset"}
    assert error.value.change.startswith("approximate='reset,timing' ")


def test_fit_error_promises_no_fit_where_quantized_weights_decide():
    few = leaky_net()
    signs = tuple(c.replace(weight=np.sign(c.weight)) for c in few.connections)
    with pytest.raises(FitError) as refused:
        compile(Network(few.inputs, few.nodes, signs), "truenorth", leaky_samples())
    assert "(if its quantized weights need no more than 4 axon types, which this does not tell)" in str(refused.value)
    with pytest.raises(FitError) as refused:  # a neuron of more weights than there are types
        compile(leaky_net(), "truenorth", leaky_samples())
    assert "approximate=" not in str(refused.value) and "axon types" not in str(refused.value)


def test_approximate_without_calibration_says_that_nothing_is_known():
    program = compile(leaky_net(), "loihi1", None, Options(approximate="all", **ONE_CORE))
    assert NOT_FITTED in program.warnings
    assert [(row["how"], row["price"]) for row in program.legalization] == [("features only", None)] * 3
    assert NOT_FITTED == (
        "no calibration samples: the nearest neurons keep threshold and leak, and what they change is not known; give "
        "calibration samples to have them refitted and their price measured"
    )
    program = compile(leaky_net(), "loihi1", leaky_samples(1), Options(approximate="all", **ONE_CORE))
    assert NOT_PRICED in program.warnings and program.legalization[0]["price"] is None


@pytest.mark.parametrize(
    ("options", "labels", "kind", "text"),
    [
        ({"max_loss": "1%"}, None, LossError, r"approximating costs [\d.]+ % \(95 % interval [\d.]+ to [\d.]+\) of "
         r"the spikes on loihi1, more than "
         r"max_loss=1% \(2 samples held out; most in layer 'l[23]'\); fine-tune with nn.quantize_aware, or accept "
         "more"),
        ({"max_loss": "1pt"}, None, OptionError, r"max_loss='1pt' is in points of accuracy, which need labels "
         r"\(compile\(..., labels=\), or y in the calibration file\) and one output layer"),
        ({}, np.zeros(3, int), ModelError, "labels of shape .3. and type int64 must be whole numbers, one for each of "
         "the 10 calibration samples"),
    ],
)  # fmt: skip
def test_max_loss_refuses_what_costs_more_or_cannot_be_told(options, labels, kind, text):
    with pytest.raises(kind, match=text) as error:
        compile(leaky_net(), "loihi1", leaky_samples(10), Options(approximate="all", **options), labels=labels)
    assert kind is not LossError or error.value.exit_code == 1


def test_max_loss_needs_samples_and_accepts_a_price_below():
    with pytest.raises(OptionError) as error:
        compile(leaky_net(), "loihi1", None, Options(approximate="all", max_loss="2%"))
    assert str(error.value) == (
        "max_loss='2%' needs calibration samples, 2 or more: without them what the approximation costs is not known"
    )
    labels = np.zeros(10, int)
    options = Options(approximate="all", max_loss="100pt", **ONE_CORE)
    program = compile(leaky_net(), "loihi1", leaky_samples(10), options, labels=labels)
    price = program.manifest["price"]
    assert price["n_samples"] == 2 and 0 <= price["accuracy_chip"] <= 1 and price["accuracy_ideal"] is not None


def test_max_loss_that_lies_in_the_interval_is_a_warning():
    x, options = leaky_samples(30), Options(approximate="all", **ONE_CORE)
    price = compile(leaky_net(), "loihi1", x, options).manifest["price"]
    lost, (low, high) = price["spikes_changed_percent"], price["spikes_changed_interval_percent"]
    assert 0 < low < lost < high < 100
    limit = f"{(low + lost) / 2:.4f}%"
    with pytest.warns(NwWarning, match=f"too few samples to judge max_loss={limit}") as heard:
        program = compile(leaky_net(), "loihi1", x, replace(options, max_loss=limit))
    assert [str(heard[0].message)] == program.warnings
    assert compile(leaky_net(), "loihi1", x, replace(options, max_loss=f"{(lost + high) / 2:.4f}%")).warnings == []
    with pytest.raises(LossError):
        compile(leaky_net(), "loihi1", x, replace(options, max_loss=f"{low - 0.1:.4f}%"))


def price_of_answers(n_samples: int, n_lost: int, n_won: int) -> Price:
    """The price of a chip that loses `n_lost` right answers, and gets `n_won` right that the ideal has wrong."""
    ideal = np.arange(n_samples) >= n_won
    chip = np.where(ideal, np.arange(n_samples) < n_samples - n_lost, True)
    low, high = loss_interval(ideal, chip)
    return Price(
        n_samples, {}, {}, {"l": 1.0}, 1.0, (0.5, 1.5), 1.0, ideal.mean(), chip.mean(), (100 * low, 100 * high)
    )


def test_a_loss_of_exactly_the_limit_is_accepted():
    price = replace(price_of_answers(40, 0, 0), spikes_changed_percent=2.0, spikes_changed_interval=(1.5, 3.0))
    assert check_loss(price, Options(max_loss="2%"), "a", leaky_net()) == []
    (text,) = check_loss(price, Options(max_loss="1.5%"), "a", leaky_net())  # where the interval begins
    assert text.startswith("too few samples to judge max_loss=1.5%: ")


def test_max_loss_in_points_asks_for_more_samples_before_it_refuses():
    options = Options(max_loss="2pt")
    (text,) = check_loss(price_of_answers(40, 2, 0), options, "a", leaky_net())
    assert text == (
        "too few samples to judge max_loss=2pt: approximating costs 5 points (95 % interval -4.46 to 14) of accuracy "
        "(class = output neuron with most spikes over all steps) on 40 samples held out; about 398 would do: give 1990 "
        "calibration samples (every 5th is held out)"
    )
    assert check_loss(price_of_answers(40, 1, 1), options, "a", leaky_net()) == []
    with pytest.raises(
        LossError, match=r"costs 25 points \(95 % interval [\d.]+ to [\d.]+\) of accuracy \(class = .*\) on a, more "
    ):
        check_loss(price_of_answers(40, 10, 0), options, "a", leaky_net())
    with pytest.raises(LossError):
        check_loss(price_of_answers(4000, 200, 0), options, "a", leaky_net())


def test_approximate_meets_several_spikes_by_one_and_a_clamp_by_none():
    spec = NeuronSpec(threshold=1.0, beta=1.0, reset="subtract", spikes="multi", v_min=-0.5)
    network, x = leaky_net(spec, bias=False), leaky_samples(10)
    program = compile(network, "loihi1", x, Options(approximate="reset,multi-spike,v_min", **ONE_CORE))
    row = program.legalization[0]
    assert row["was"] == "reset subtract, multi spikes, a clamp below 0"
    assert (
        row["has"] == "reset zero, one spike per step (on_multi_spike='graded' sends the count), no clamp"
        and row["label"] == "approximate"
    )
    assert nw.crosscheck(program, x[:2]).agree


def test_approximate_lets_a_current_leak_as_slowly_as_the_chip_can():
    rng = np.random.default_rng(5)
    chip = nw.Chip.load("loihi1")
    spec = NeuronSpec(threshold=64 << 9, reset="zero", strict=True, decay_u=0, decay_v=900, fixed=chip.fixed_point)
    weight = 2 * rng.integers(-20, 20, (10, 12))
    network = Network.from_arrays({"out": spec}, [Dense("in", "out", weight, weight_bits=8)], {"in": 12})
    x = (rng.random((10, 20, 12)) < 0.2).astype(np.float32)
    with pytest.raises(FitError, match="decay_u  out  must be 1 or more, is 0") as error:
        compile(network, chip, x, Options(**ONE_CORE))
    assert error.value.change.startswith("approximate='decay' (--approximate decay): the chip's nearest features")
    program = compile(network, chip, x, Options(approximate="decay", **ONE_CORE))
    (row,) = program.legalization
    assert (row["was"], row["has"]) == ("a current that loses 0/4096 per step", "1/4096 or more")
    assert abs(row["price"]["rate_change_percent"]) < 10 and program.network.node("out").neuron.decay_u == 1
    assert nw.crosscheck(program, x[:2]).agree


def test_pooled_spikes_are_fitted_to_what_largest_currents_make_fire():
    rng = np.random.default_rng(0)
    conv = Conv2d("in", "map", rng.normal(0, 0.3, (4, 1, 3, 3)).astype(np.float32), padding=1, bias=np.full(4, 0.05))
    out = Dense("a", "out", rng.normal(0.02, 0.2, (10, 64)).astype(np.float32))
    layers = {"map": (None, (4, 8, 8)), "a": (LEAKY, (4, 4, 4)), "out": LEAKY}
    network = Network.from_arrays(layers, [conv, MaxPool2d("map", "a", 2), out], {"in": (1, 8, 8)})
    x = (rng.random((20, 20, 1, 8, 8)) < 0.3).astype(np.float32)
    with pytest.raises(FitError) as error:
        compile(network, "loihi1", x, Options(input_layer="exact"))  # else the host would do it
    assert error.value.change.startswith("approximate='reset,timing,pool' ")
    program = compile(network, "loihi1", x, Options(approximate="all", input_layer="exact", **ONE_CORE))
    wanted, got = (simulate(p, x).spikes for p in (network, program))
    ideal = program.manifest["price"]["layers"]
    held = split_samples(len(x))[1]
    for name in network.layers:
        assert ideal[name]["rate_ideal"] == pytest.approx(wanted[name][held].mean(), rel=0.03), name  # quantization
        assert abs(ideal[name]["rate_change_percent"]) < 10 and got[name].shape == wanted[name].shape
    assert all(row["price"] for row in program.legalization if row["label"] == "approximate")
    assert nw.crosscheck(program, x[:2]).agree


@pytest.mark.parametrize(("chip", "way"), [
    ("loihi1", "on_multi_spike='graded' and approximate='reset' (nearer: messages carry counts and signs), or "),
    ("speck", "on_multi_spike='repeat' (nearer: n spikes are n messages), or "),
    ("truenorth", ""),
])  # fmt: skip
def test_fit_error_names_messages_that_leave_several_spikes_as_they_are(chip, way):
    spec = NeuronSpec(threshold=1.0, beta=1.0, reset="subtract", spikes="multi")
    signs = Dense("in", "a", np.sign(np.random.default_rng(0).normal(size=(5, 12))).astype(np.float32))
    network = Network.from_arrays({"a": spec}, [signs], {"in": (12,)})
    with pytest.raises(FitError) as refused:
        compile(network, chip, None)
    words = "reset,multi-spike" if chip == "loihi1" else "multi-spike"
    fits = f"it fits with {way}approximate={words!r} (--approximate {words}): the chip's nearest features;"
    assert fits in str(refused.value)
    ways = {
        "loihi1": "'graded' (a message carries the count) or 'repeat'",
        "speck": "'repeat' (n spikes are n messages)",
    }
    assert ("on_multi_spike=" in str(refused.value)) == (chip != "truenorth") and ways.get(chip, "") in str(
        refused.value
    )


def test_a_refit_gives_no_current_to_a_chip_that_has_none():
    network, x = leaky_net(NeuronSpec(threshold=1.0, beta=0.9, reset="subtract")), leaky_samples(10)
    asked = Options(approximate="reset", **ONE_CORE)
    kept, none = (Chip.load("loihi1").replace({"neuron.current": current}) for current in (None, False))
    currents = [
        [node.neuron.decay_u for node in compile(network, chip, x, asked).network.nodes.values()]
        for chip in (kept, none)
    ]
    assert any(np.any(np.asarray(k) != 4096) for k in currents[0]) and all(
        np.all(np.asarray(k) == 4096) for k in currents[1]
    )


def test_a_chip_without_currents_does_without_where_that_is_asked_for():
    """Rates stay; a readout, which has none, has no price either."""
    spec = NeuronSpec(threshold=1.0, beta=0.8, alpha=0.6, reset="zero")
    network, x = leaky_net(spec, bias=False), leaky_samples()
    nodes = {**network.nodes, "l3": Node("l3", (10,), spec.replace(fires=False))}
    network = Network(network.inputs, nodes, network.connections)
    chip = Chip.load("loihi1").replace({"neuron.current": False})
    with pytest.raises(FitError, match="current  l1  must be no current, is a current that keeps up to 60 %") as error:
        compile(network, chip, x, Options(**ONE_CORE))
    assert "it fits with approximate='decay' (--approximate decay): the chip's nearest features" in str(error.value)
    program = compile(network, chip, x, Options(approximate="decay", **ONE_CORE))
    rows = {row["layer"]: row for row in program.legalization if row["label"] == "approximate"}
    assert {row["has"] for row in rows.values()} == {"no current"} and list(rows) == ["l1", "l2", "l3"]
    assert all(abs(rows[name]["price"]["rate_change_percent"]) < 10 for name in ("l1", "l2"))
    assert rows["l3"]["price"] is None and rows["l3"]["how"] == "features only"
    assert nw.crosscheck(program, x[:2]).agree
