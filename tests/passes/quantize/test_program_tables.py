"""Tables of exp, tanh, sqrt and divisions: their stated error is that of exact mathematics, over every argument."""

import re
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.cost.neuron_program import program_length
from nwcompile.errors import ModelError
from nwcompile.ir.arithmetic import interpolate_table
from nwcompile.ir.neuron_programs.ranges import Range
from nwcompile.passes.quantize import program_tables
from nwcompile.passes.quantize.program_curves import find_curves, record_arguments, use_inverses
from nwcompile.passes.quantize.program_tables import TableFormat, build_table, greatest_error

ANYWHERE = Range(-1e6, 1e6, False)


def curve_of(step):
    """The only curve of a step of a neuron."""
    (curve,) = find_curves(use_inverses(nw.neuron(step).program())).values()
    return curve


def exponential(state, x):
    return {"v": 0.5 * torch.exp((state.v - 1.0) / 0.5)}, None


def logistic(state, x):
    return {"v": torch.sigmoid(2.0 * state.v)}, None


def bent(state, x):
    return {"v": torch.tanh(state.v) / 2}, None


def inverse(state, x):
    return {"v": 3.0 / (1.0 + 0.5 * state.v)}, None


def root(state, x):
    return {"v": torch.sqrt(state.v + 0.25)}, None


EXACT = {
    "exponential": (exponential, (-1.0, 2.0), lambda v: ((v - 1) / Decimal("0.5")).exp() / 2),
    "logistic": (logistic, (-2.0, 2.0), lambda v: 1 / (1 + (-2 * v).exp())),
    "tanh": (bent, (-1.0, 1.5), lambda v: (1 - 2 / ((2 * v).exp() + 1)) / 2),
    "inverse": (inverse, (0.0, 4.0), lambda v: 3 / (1 + v / 2)),
    "root": (root, (0.0, 3.0), lambda v: (v + Decimal("0.25")).sqrt()),
}


@pytest.mark.parametrize("name", EXACT)
def test_the_stated_error_is_the_greatest_over_all_arguments(name):
    step, seen, exact = EXACT[name]
    made = build_table(curve_of(step), ANYWHERE, seen, TableFormat(7, 12, 24), 33, "here")
    arguments = np.arange(made.low, made.high + 1)
    assert made.low / 128 < seen[0] and made.high / 128 > seen[1] and made.error > 0.5
    with localcontext() as context:
        context.prec = 40
        wanted = [exact(Decimal(int(a)) / 128) * 2**made.result_bits for a in arguments]
        errors = [abs(Decimal(int(ours)) - w) for ours, w in zip(made(arguments), wanted, strict=True)]
    assert float(max(errors)) == pytest.approx(made.error, abs=1e-6)


def test_the_error_of_a_range_of_a_million_arguments_is_computed_of_each():
    curve = curve_of(exponential)
    made = build_table(curve, ANYWHERE, (-1.0, 2.0), TableFormat(18, 18, 24), 257, "here")
    arguments = np.arange(made.low, made.high + 1)
    assert len(arguments) > 1 << 20
    exact = 0.5 * np.exp((arguments.astype(np.longdouble) / 2**18 - 1) / 0.5) * 2.0**made.result_bits
    assert float(np.abs(made(arguments) - exact).max()) == pytest.approx(made.error, abs=1e-6)


def rounding_table(monkeypatch=None, name=""):
    """A table whose steps are so short that rounding is all of its error, made by right or by broken rounding."""
    curve = curve_of(exponential)
    made = build_table(curve, ANYWHERE, (0.0, 1.0), TableFormat(14, 14, 24), 2000, "here")
    assert made.step_bits > 0
    blank = program_tables.replace(made, entries=np.zeros(2, np.int64))
    if name == "entries":
        monkeypatch.setattr(np, "rint", np.floor)
    if name == "line":
        monkeypatch.setattr(program_tables, "interpolate_table", lambda *at: interpolate_table(*at) - at[1] % 2)
    made = program_tables._fill_entries(curve, blank, len(made.entries) - 1)
    step = 2.0 ** (made.step_bits - made.argument_bits)
    largest = float(curve(np.array(made.high / 2.0**made.argument_bits))) * 4  # of the second derivative
    return greatest_error(curve, made), 1.0 + step**2 / 8 * largest * 2.0**made.result_bits


def test_no_table_is_worse_than_its_two_roundings_and_the_bend_of_a_step():
    error, bound = rounding_table()
    assert error <= bound < 1.1


@pytest.mark.parametrize("name", ["entries", "line"])
def test_a_wrong_rounding_is_seen(name, monkeypatch):
    error, bound = rounding_table(monkeypatch, name)
    assert error > bound


def test_a_proved_range_is_covered_whole_and_a_seen_one_with_room():
    curve = curve_of(logistic)
    proved = build_table(curve, Range(-1.0, 1.0, False), (-0.5, 0.5), TableFormat(10, 14, 24), 65, "here")
    assert (proved.low, proved.high, proved.bounds) == (-1024, 1024, "proved")
    seen = build_table(curve, ANYWHERE, (-0.5, 0.5), TableFormat(10, 14, 24), 65, "here")
    assert (seen.low, seen.high, seen.bounds) == (-1536, 1536, "seen")
    assumed = build_table(curve, Range(-4.0, 4.0, False), None, TableFormat(10, 14, 24), 65, "here")
    assert (assumed.low, assumed.high, assumed.bounds) == (-4096, 4096, "proved")


def test_a_result_may_become_four_times_as_large_as_in_the_samples():
    made = build_table(curve_of(exponential), ANYWHERE, (-5.0, 1.0), TableFormat(10, 10, 24), 257, "here")
    assert made.high / 1024 == pytest.approx(1.0 + 0.5 * np.log(4), abs=0.01)
    outside = np.array([made.high + 5000, made.low - 10**6])
    assert np.array_equal(made(outside), made(np.array([made.last, made.first])))


def test_one_curve_of_several_operations_is_one_table():
    def step(state, x):
        m = 0.5 * state.m + torch.sigmoid((state.v - 0.25) / 2)
        v = 0.9 * state.v + x / (1 + state.m.abs()) + torch.tanh(x) * torch.exp(-state.v)
        return {"v": v, "m": m}, v > 1

    program = nw.neuron(step).program()
    found = find_curves(use_inverses(program))
    assert sorted(f"{curve.argument}: {curve}" for curve in found.values()) == [
        "t10: 1 / (t10 + 1)",
        "v: 1 / (1 + exp(-((v - 0.25) / 2)))",
        "v: exp(-v)",
        "x: tanh(x)",
    ]
    assert [state.name for state in record_arguments(program).states] == [
        "v",
        "m",
        *(f"argument_of_{name}" for name in (*found, "x")),
    ]


def test_curves_of_neurons_own_parameters_begin_behind_them():
    def step(state, x, slope=0.5):
        v = 0.9 * state.v + x
        return {"v": v}, torch.exp(v * slope) > 2.0

    program = nw.neuron(step).program(slope=np.array([0.5, 0.25]))
    (curve,) = find_curves(use_inverses(program)).values()
    assert str(curve) == "exp(t3)" and curve.constants == {}


RNG = np.random.default_rng(0)
X = (RNG.random((4, 40, 10)) < 0.3).astype(np.int8)
WEIGHT = RNG.normal(0.1, 0.8, (12, 10)).astype(np.float32)


def one_layer(step, weight=WEIGHT) -> nw.Network:
    return nw.Network.from_arrays({"h": nw.neuron(step).program()}, [nw.Dense("in", "h", weight)], {"in": 10})


def eif(state, x):
    v = state.v + (x - state.v + 0.5 * torch.exp((state.v - 0.8) / 0.5)) / 4
    fired = v >= 1.5
    return {"v": torch.where(fired, 0.0, v)}, fired


def divided(state, x):
    """Several spikes per step, counted by a threshold that moves; sigmoid, tanh and a root."""
    v = 0.8 * state.v + x * torch.sigmoid(state.m)
    threshold = 1 + state.a
    n = torch.clamp(torch.floor(v / threshold), min=0)
    a = 0.9 * state.a + 0.3 * torch.sqrt(n + 0.01)
    return {"v": v - n * threshold, "a": a, "m": 0.7 * state.m + torch.tanh(v)}, n


@pytest.mark.parametrize("step", [eif, divided])
def test_curves_are_the_same_in_three_backends(step):
    program = nw.compile(one_layer(step), "loihi2", X)
    result = nw.crosscheck(program, X)
    assert result.agree, str(result)
    row = program.manifest["quantization"][0]
    assert row["rate_float"] > 0.02 and row["tables"][0]["error"] < 0.01
    neuron = program.network.node("h").neuron
    assert len(row["tables"]) == len(neuron.tables) == (1 if step is eif else 4)
    assert sum(t["entries"] for t in row["tables"]) == neuron.n_entries <= 1024 // 4
    assert program_length(neuron) == row["instructions"] == neuron.n_operations + neuron.n_entries


@pytest.mark.parametrize("step", [eif, divided])
def test_on_the_chips_weights_tables_change_hardly_a_spike(step):
    program = nw.compile(one_layer(step), "loihi2", X)
    (edge,) = program.network.into("h")
    on_chip = np.asarray(edge.weight) * 2.0**edge.exponent
    rounded = on_chip * np.abs(WEIGHT).max() / np.abs(on_chip).max()
    wanted = nw.simulate(one_layer(step, rounded.astype(np.float32)), X).spikes["h"]
    sent = nw.simulate(program, X, "sequence").spikes["h"]
    assert (sent == wanted)[wanted != 0].mean() > 0.99 and (sent != wanted).mean() < 0.001


def test_a_saved_program_has_its_tables(tmp_path):
    program = nw.compile(one_layer(eif), "loihi2", X)
    program.save(tmp_path / "eif.nwc")
    again = nw.Program.load(tmp_path / "eif.nwc")
    assert again.network.hash == program.network.hash
    (name, entries), (same_name, same) = (p.network.node("h").neuron.tables.popitem() for p in (program, again))
    assert name == same_name and np.array_equal(entries, same)


def through_zero(state, x):
    v = 0.9 * state.v + x
    return {"v": v}, 1 / v > 2


def growing(state, x):
    v = 0.9 * state.v + x
    return {"v": v}, torch.exp(5 * v) > 2


@pytest.mark.parametrize(
    ("step", "samples", "text"),
    [
        (
            through_zero,
            X,
            r"t2\) \* 1 is not finite for some t2 of -[\d.]+..[\d.]+, its range in the samples; keep it away",
        ),
        (
            through_zero,
            None,
            r"t2 of [-\d.]+..[\d.]+, its range without samples \(give calibration samples\); keep it away",
        ),
        (
            growing,
            X,
            r"exp\(t2 \* 5\) reaches .*, beyond a state of 24 bits; scale the program down, or clamp what it is",
        ),
    ],
)
def test_curves_without_a_table_are_refused(step, samples, text):
    with pytest.raises(nw.ModelError) as e:
        nw.compile(one_layer(step), "loihi2", samples)
    assert str(e.value).startswith(f"layer 'h': program '{step.__name__}': ")
    assert re.search(text, str(e.value)), str(e.value)


def test_without_samples_a_table_covers_all_that_its_argument_can_be():
    at_most = Range(-16.0, 16.0, False)
    made = build_table(curve_of(bent), at_most, None, TableFormat(7, 12, 24), 33, "here")
    assert (made.low, made.high, made.bounds) == (-16 << 7, 16 << 7, "proved")
    with pytest.raises(
        ModelError, match=r"here is not finite for some .* its range without samples \(give calibration"
    ):
        build_table(curve_of(root), at_most, None, TableFormat(7, 12, 24), 33, "here")
    unbounded = Range(-np.inf, 1.0, False)
    with pytest.raises(ModelError, match="here has no bounds without samples; give calibration samples, or clamp"):
        build_table(curve_of(bent), unbounded, None, TableFormat(7, 12, 24), 33, "here")


def test_a_table_of_more_arguments_than_can_be_looked_at_is_refused_at_once():
    with pytest.raises(ModelError, match="are computed for at most [0-9]+; clamp .*, or scale it down"):
        build_table(curve_of(bent), Range(-1e9, 1e9, False), None, TableFormat(7, 12, 24), 33, "here")


@nw.neuron
def shares(state, x, beta=0.5):
    """`1 / x`, which with a bias is the inverse of another value than the synaptic sum."""
    v = beta * state.v + state.last / x
    fired = nw.nn.spike(v, 1.5)
    return {"v": torch.where(fired > 0, 0.0, v), "last": x}, fired


@pytest.mark.parametrize("bias", [None, np.array([1.0, 1.5, 2.0])])
def test_an_inverse_of_the_input_has_a_table_with_a_bias_and_without(bias):
    rng = np.random.default_rng(0)
    edge = nw.Dense("in", "a", rng.uniform(0.25, 1.0, (3, 4)), bias=bias)
    network = nw.Network.from_arrays({"a": (shares.program(), (3,))}, [edge], {"in": (4,)})
    x = (rng.random((4, 20, 4)) < 0.5).astype(np.int8)
    x[:, :, 0] = 1  # the synaptic sum is never 0
    program = nw.compile(network, "loihi2", x)
    wanted, run = nw.simulate(network, x).spikes["a"], nw.simulate(program, x).spikes["a"]
    assert nw.crosscheck(program, x).agree and wanted.mean() > 0.1
    assert (run != wanted).mean() < 0.05


@pytest.mark.parametrize("x", [np.ones((2, 5, 4), np.int8), None])
@pytest.mark.parametrize("tau", [0.0, np.array([1.0, 0.0, 2.0])])
def test_a_division_by_a_constant_without_an_inverse_is_refused(tau, x):
    @nw.neuron
    def slow(state, x, tau=2.0):
        v = state.v + (x - state.v) / tau
        return {"v": v}, nw.nn.spike(v, 1.0)

    edge = nw.Dense("in", "a", np.ones((3, 4), np.float32))
    network = nw.Network.from_arrays({"a": (slow.program(tau=tau), (3,))}, [edge], {"in": (4,)})
    with pytest.raises(ModelError) as error:
        nw.compile(network, "loihi2", x)
    assert str(error.value) == (
        "layer 'a': program 'slow': t2 = t1 / tau divides by 'tau', which is 0; its inverse is not finite, so give it "
        "another value"
    )


def test_a_constant_whose_whole_number_is_beyond_64_bits_is_refused():
    @nw.neuron
    def deaf(state, x):
        v = 0.9 * state.v + x
        return {"v": v}, v > 1e30

    edge = nw.Dense("in", "a", np.ones((3, 4), np.float32))
    network = nw.Network.from_arrays({"a": (deaf.program(), (3,))}, [edge], {"in": (4,)})
    with pytest.raises(
        ModelError, match=r"^layer 'a': program 'deaf': 'q\d+' uses \d+, which is beyond 64 bits; make it smaller"
    ):
        nw.compile(network, "loihi2", np.ones((2, 5, 4), np.int8))
