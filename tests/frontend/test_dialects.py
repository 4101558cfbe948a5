"""What each dialect makes of a NIR neuron node, field by field, and what it says about what it assumed."""

import warnings

import nir
import numpy as np
import pytest
import torch

from nwcompile.errors import ModelError, NwWarning
from nwcompile.frontend.nir import from_nir
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.sim import simulate
from tests.made.nir_graphs import cuba, graph, if_node, inputs, lif, linear, one_layer, outputs

E1 = float(np.exp(-0.1))


def spec(neuron, dialect: str, dt: float | None = 1e-4, **given) -> NeuronSpec:
    """The NeuronSpec of a one-layer graph, warnings left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        return from_nir(one_layer(neuron), dt=dt, dialect=dialect, neuron=given).node("n").neuron


def spec_of(neuron, dialect: str, n: int, dt: float = 1e-4) -> NeuronSpec:
    """The NeuronSpec of a graph of `n` neurons, warnings left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        return from_nir(one_layer(neuron, n), dt=dt, dialect=dialect, neuron={"reset": "zero"}).node("n").neuron


def said(neuron, dialect: str, dt: float | None = 1e-4, **given) -> list[str]:
    """The warnings of importing a one-layer graph."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_nir(one_layer(neuron), dt=dt, dialect=dialect, neuron=given)
    assert all(w.category is NwWarning for w in caught)
    return [str(w.message) for w in caught]


def refused(neuron, dialect="snntorch", dt=1e-4, **given) -> str:
    with pytest.raises(ModelError) as caught:
        from_nir(one_layer(neuron), dt=dt, dialect=dialect, neuron=given)
    return str(caught.value)


LEAKY = lif(3)
CASES = [
    ("snntorch", LEAKY, {"beta": 0.9, "gain": 1.0, "strict": True, "reset": "subtract", "reset_timing": "next"}),
    ("snntorch", cuba(3), {"alpha": 0.5, "w_in": 1.0, "beta": 0.75, "gain": 1.0, "current_order": "decay_then_add"}),
    ("snntorch", if_node(3), {"beta": 1.0, "gain": 1.0}),
    ("norse", lif(3, r=1.0), {"membrane": "euler", "k": 0.1, "r": 1.0, "strict": True, "reset": "zero"}),
    ("norse", lif(3, r=1.0, v_reset=-0.5), {"reset": "value", "reset_value": -0.5}),
    ("norse", cuba(3, r=1.0, w_in=1.0), {"membrane": "euler", "alpha": 0.5, "w_in": 0.5, "k": 0.25}),
    ("norse", lif(3, tau=1e-7, r=1.0), {"membrane": "euler", "k": 0.1}),
    ("norse", cuba(3, tau_syn=2e-8, tau_mem=1e-7, r=1.0, w_in=1.0),
     {"alpha": 0.5, "w_in": 1.0, "k": 0.1, "current_order": "add_use_decay"}),
    ("norse", lif(3, r=1.0, v_leak=0.2), {"v_leak": 0.0, "threshold": 0.8, "reset": "value", "reset_value": -0.2}),
    ("spikingjelly", if_node(3, r=1e4), {"beta": 1.0, "gain": 1.0, "strict": False, "reset": "zero"}),
    ("spikingjelly", lif(3, r=1.0), {"membrane": "euler", "k": 0.1, "strict": False}),
    ("spikingjelly", LEAKY, {"membrane": "linear", "beta": 0.9, "gain": 1.0, "strict": False, "reset": "zero"}),
    ("spikingjelly", lif(3, r=1.0, v_leak=0.3, v_reset=0.3), {"threshold": 0.7, "v_leak": 0.0, "reset": "zero"}),
    ("spikingjelly", cuba(3), {"alpha": 0.5, "w_in": 1.0, "beta": 0.75, "gain": 1.0, "strict": False}),
    ("rockpool", lif(3, r=10 * E1), {"beta": E1, "gain": 1.0, "spikes": "multi", "strict": False, "reset": "subtract"}),
    ("rockpool", cuba(3, tau_syn=1e-3, tau_mem=1e-3, r=10 * E1, w_in=1.0),
     {"alpha": E1, "w_in": 1.0, "beta": E1, "gain": 1.0, "current_order": "add_then_decay"}),
    ("lava", cuba(3), {"alpha": 0.5, "beta": 0.75, "strict": True, "reset": "zero", "current_order": "decay_then_add"}),
    ("nir", lif(3, r=2.0, v_leak=0.5), {"beta": 0.9, "gain": 0.2, "leak": 0.05, "strict": True, "reset": "zero"}),
    ("nir", cuba(3), {"alpha": 0.5, "w_in": 1.0, "beta": 0.75, "gain": 1.0}),
    ("nir", if_node(3, r=500.0), {"beta": 1.0, "gain": 0.05}),
    ("nir", nir.I(np.full(3, 500.0)), {"fires": False, "beta": 1.0, "gain": 0.05, "reset": "none"}),
]  # fmt: skip


@pytest.mark.parametrize("dialect, neuron, fields", CASES)
def test_dialect_gives_fields(dialect, neuron, fields):
    found = spec(neuron, dialect)
    for key, value in fields.items():
        assert getattr(found, key) == (value if isinstance(value, str | bool) else pytest.approx(value, abs=1e-7)), key


def test_sinabs_counts_steps_and_normalizes_its_input():
    leaky = lif(3, tau=10.0, r=1.0)
    for dt in (None, 1.0):
        found = spec(leaky, "sinabs", dt)
        assert found.beta == pytest.approx(E1)
        assert np.float32(found.gain) == np.float32(1) - np.float32(E1)
        assert (found.spikes, found.strict, found.reset, found.v_min) == ("multi", False, "subtract", None)
    assert spec(leaky, "sinabs", 1.0, norm_input=False).gain == 1.0
    assert spec(if_node(3, v_threshold=0.5), "sinabs", None).v_min == -0.5
    assert spec(if_node(3), "sinabs", None, v_min=None, spikes="binary").v_min is None


def test_snntorch_default_reset_is_assumed_aloud():
    text = "dialect 'snntorch', NIR node 'n': {}assumed, which NIR files do not hold; state it with neuron={{...}}"
    assert said(LEAKY, "snntorch") == [text.format("reset='subtract', reset_timing='next' ")]
    assert said(LEAKY, "snntorch", reset="subtract") == [text.format("reset_timing='next' ")]
    assert said(LEAKY, "snntorch", reset="subtract", reset_timing="both") == []
    assert said(LEAKY, "snntorch", reset="zero") == said(LEAKY, "snntorch", reset="none") == []


def test_snntorch_reset_to_zero_acts_at_once():
    assert spec(LEAKY, "snntorch", reset="zero").reset_timing == "now"
    assert spec(LEAKY, "snntorch", reset="subtract").reset_timing == "next"


def test_sinabs_defaults_are_assumed_aloud():
    text = "dialect 'sinabs', NIR node 'n': {} assumed, which NIR files do not hold; state it with neuron={{...}}"
    assert said(if_node(3), "sinabs", None) == [text.format("spikes='multi', reset='subtract', v_min=-1.0")]
    assert said(lif(3, tau=9.0, r=1.0), "sinabs", None, spikes="binary", reset="subtract") == [
        text.format("norm_input=True")
    ]


@pytest.mark.parametrize(
    "dialect, neuron, text",
    [
        ("snntorch", lif(3, r=1.0),
         "r is 1, not tau/dt for dt=0.0001, as the dialect writes it; used as the file says"),
        ("spikingjelly", lif(3, r=3.0),
         "r is 3, not 1 or tau/dt for dt=0.0001, as the dialect writes it; used as the file says"),
        ("norse", LEAKY, "r is 10, not 1 for dt=0.0001, as the dialect writes it; used as the file says"),
        ("rockpool", LEAKY,
         "r is 10, not tau*exp(-dt/tau)/dt for dt=0.0001, as the dialect writes it; used as the file says"),
        ("snntorch", cuba(3, w_in=1.0),
         "w_in is 1, not tau_syn/dt for dt=0.0001, as the dialect writes it; used as the file says"),
        ("snntorch", lif(3, v_leak=0.5), "v_leak is not 0, as the dialect has it; used as the file says"),
        ("snntorch", lif(3, v_reset=0.5),
         "v_reset is not 0, but the dialect never resets to a value; reset='value' used, as the file says"),
        ("norse", if_node(3, r=3.0), "r is 3, neither 1 nor 1/dt, as the dialect writes it; used as the file says"),
        ("nir", if_node(3), "r is 1: taken as a gain of 1 per step, as exporters mean it, not as r*dt = 0.0001"),
        ("spikingjelly", if_node(3, r=1e4, v_reset=0.25),
         "v starts at v_reset 0.25; threshold, reset and states are relative to it"),
    ],
)  # fmt: skip
def test_contradiction_is_said(dialect, neuron, text):
    assert f"dialect '{dialect}', NIR node 'n': {text}" in said(neuron, dialect)


def test_norse_export_with_its_time_constants_is_said():
    assert said(lif(3, tau=1e-7, r=1.0), "norse") == [
        "NIR node 'n': a time constant below dt=0.0001; norse's exporter writes dt / tau_inv for 1 / tau_inv, so every "
        "time constant of the file is divided by dt"
    ]


def test_time_step_other_than_steps_is_said_for_sinabs():
    found = said(lif(3, tau=1e-2, r=1.0), "sinabs", 1e-3, spikes="binary", reset="subtract", norm_input=True)
    assert found == ["dialect 'sinabs' counts time constants in steps (dt=1); they are read with dt=0.001"]


def test_one_warning_names_all_nodes_it_is_about():
    g = graph("input > f > a > g > b > output",
              input=inputs(2), f=linear(3, 2), a=lif(3), g=linear(3, 3), b=lif(3), output=outputs(3))  # fmt: skip
    with pytest.warns(NwWarning) as caught:
        from_nir(g, dt=1e-4, dialect="snntorch")
    assert [str(w.message).split(":")[0] for w in caught] == ["dialect 'snntorch', NIR nodes 'a', 'b'"]


@pytest.mark.parametrize("key", ["r", "v_leak", "v_threshold", "v_reset"])
def test_number_that_is_infinite_is_a_model_error(key):
    assert refused(lif(3, **{key: np.inf})) == (
        f"NIR node 'n' (LIF): {key} has infinite values; the model is not usable, train or export it again"
    )


def test_snntorch_beta_of_one_has_infinite_constants():
    found = spec(lif(3, tau=np.inf, r=np.inf), "snntorch", reset="zero")
    assert (found.beta, found.gain, found.leak) == (1.0, 1.0, 0.0)


def test_decay_is_the_framework_s_own_float32():
    beta = np.random.default_rng(0).uniform(0.5, 1, 500).astype(np.float32)
    tau = np.float32(1e-4) / (1 - beta)
    n = nir.LIF(tau=tau, r=tau / np.float32(1e-4), v_leak=np.zeros(500), v_threshold=np.ones(500))
    assert np.array_equal(spec_of(n, "snntorch", 500).beta, beta)


def test_decay_is_what_torch_makes_of_tau():
    tau = torch.tensor([0.01, 0.006, 0.0075, 0.05, 0.1])
    n = nir.LIF(tau=tau.numpy(), r=np.ones(5), v_leak=np.zeros(5), v_threshold=np.ones(5))
    assert np.array_equal(spec_of(n, "rockpool", 5, 1e-3).beta, torch.exp(-1e-3 / tau).numpy())
    inverse = torch.tensor([100.0, 200.0, 50.0])
    n = nir.LIF(tau=(1e-3 / inverse).numpy(), r=np.ones(3), v_leak=np.zeros(3), v_threshold=np.ones(3))
    np.testing.assert_allclose(spec_of(n, "norse", 3, 1e-3).k, (1e-3 * inverse).numpy(), rtol=1.2e-7)


def test_gain_is_one_whatever_float32_made_of_the_constants():
    n = lif(3, tau=np.float32(0.0009999996982514858), r=np.float32(9.99999713897705))
    assert spec(n, "snntorch").gain == 1.0
    assert np.float32(spec(n, "snntorch").beta) == np.float32(0.9)


def test_override_of_one_neuron_s_input_norm():
    g = graph("input > f > a > g > b > output", input=inputs(2), f=linear(3, 2), a=lif(3, tau=10.0, r=1.0),
              g=linear(3, 3), b=lif(3, tau=10.0, r=1.0), output=outputs(3))  # fmt: skip
    given = {"spikes": "binary", "reset": "zero", "norm_input": True, "b": {"norm_input": False}}
    network = from_nir(g, dialect="sinabs", neuron=given)
    assert (network.node("a").neuron.gain < 0.1, network.node("b").neuron.gain) == (True, 1.0)


def test_overrides_shift_with_the_voltage_v_starts_at():
    found = spec(if_node(3, r=1e4, v_reset=0.25), "spikingjelly", v_min=None, threshold=0.75)
    assert (found.threshold, found.v_min, found.reset) == (0.5, None, "zero")


def test_bias_of_a_recurrence_in_norse_is_said():
    import nir

    g = graph("input > n > output, n > w > n", input=inputs(3), n=lif(3, r=1.0),
              w=nir.Affine(np.eye(3, dtype=np.float32), np.ones(3, np.float32)), output=outputs(3))  # fmt: skip
    with pytest.warns(NwWarning) as caught:
        from_nir(g, dt=1e-4, dialect="norse")
    assert [str(w.message) for w in caught] == [
        "dialect 'norse', NIR node 'w': the bias of a recurrence acts in every step; norse leaves it out in step 0, "
        "where nothing is fed back yet"
    ]


def test_override_of_all_neurons_and_of_one():
    g = graph("input > f > a > g > b > t > output", input=inputs(2), f=linear(3, 2), a=lif(3), g=linear(3, 3), b=lif(3),
              t=nir.Threshold(np.full(3, 0.5)), output=outputs(3))  # fmt: skip
    given = {"reset": "zero", "refractory": 2, "b": {"threshold": 3.0, "reset": "none"}}
    network = from_nir(g, dt=1e-4, dialect="snntorch", neuron=given)
    a, b, t = (network.node(n).neuron for n in "abt")
    assert (a.reset, a.refractory, a.threshold) == ("zero", 2, 1.0)
    assert (b.reset, b.refractory, b.threshold) == ("none", 2, 3.0)
    assert (t.reset, t.refractory) == ("none", 0)


@pytest.mark.parametrize(
    "given, text",
    [
        ({"rest": "zero"}, "unknown neuron field 'rest'; choose one of: reset, alpha, beta, "),
        ({"m": {"reset": "zero"}}, "unknown neuron node 'm'; choose one of: n"),
        ({"reset": "hard"}, "neuron field reset: unknown reset 'hard'; choose one of: none, subtract, value, zero"),
        (
            {"reset": np.array(["zero", "zero"])},
            "neuron field reset: unknown reset \"['zero' 'zero']\"; choose one of: ",
        ),
        (
            {"n": {"spikes": None}},
            "neuron field spikes: unknown spikes 'None'; choose one of: binary, bipolar, gated, multi",
        ),
        ({"threshold": "high"}, "neuron field threshold='high' must be a number, or one for each neuron"),
        ({"beta": [[1], [1, 2]]}, "neuron field beta=[[1], [1, 2]] must be a number, or one for each neuron"),
        ({"gain": None}, "neuron field gain=None must be a number, or one for each neuron"),
        ({"threshold": np.ones(2)}, "NIR node 'n' (LIF): threshold of shape (2,) does not fit the layer's shape (3,)"),
        ({"reset": "zero", "n": {"refractory": -1}}, "layer 'n': refractory -1 is negative; give steps >= 0"),
        ({"strict": "yes"}, "neuron field strict='yes' must be True or False"),
        ({"norm_input": True}, "neuron field norm_input belongs to dialect 'sinabs', not 'snntorch'; leave it out"),
        ({"fixed": None}, "unknown neuron field 'fixed'; choose one of: "),
    ],
)
def test_override_that_is_unknown_is_a_model_error(given, text):
    assert refused(LEAKY, **given).startswith(text)


def test_overrides_that_are_no_dict_are_a_model_error():
    with pytest.raises(ModelError) as caught:
        from_nir(one_layer(LEAKY), dt=1e-4, dialect="nir", neuron="zero")
    assert str(caught.value) == "neuron='zero' must be a dict of NeuronSpec fields, or of such dicts by node name"


@pytest.mark.parametrize("dialect", ["snnTorch", " SNNTORCH "])
@pytest.mark.parametrize("dt", [np.array(1e-4), np.float64(1e-4)])
def test_dialect_and_time_step_are_taken_as_people_have_them(dialect, dt):
    usual = from_nir(one_layer(LEAKY), dt=1e-4, dialect="snntorch", neuron={"reset": "zero"})
    assert from_nir(one_layer(LEAKY), dt=dt, dialect=dialect, neuron={"reset": "zero"}).hash == usual.hash


def test_nodes_that_are_named_by_numbers_may_be_given_by_number():
    numbered = graph("in > 0 > 1 > out", **{"in": inputs(3), "0": linear(3, 3), "1": LEAKY, "out": outputs(3)})
    network = from_nir(numbered, dt=1e-4, dialect="snntorch", neuron={1: {"reset": "zero"}})
    assert network.node("1").neuron.reset == "zero"


def test_missing_or_unknown_dialect_names_the_choices():
    assert refused(LEAKY, dialect=None) == (
        "from_nir needs dialect=, because NIR files do not say how neurons are discretized, fire and reset; "
        "choose one of: lava, nir, norse, rockpool, sinabs, snntorch, spikingjelly, spyx"
    )
    assert refused(LEAKY, dialect="snn-torch") == (
        "unknown dialect 'snn-torch'; choose one of: snntorch, lava, nir, norse, rockpool, sinabs, spikingjelly, spyx"
    )


@pytest.mark.parametrize("neuron", [LEAKY, cuba(3), if_node(3, r=1e4)])
def test_missing_time_step_names_the_node_and_what_frameworks_write(neuron):
    assert refused(neuron, dt=None) == (
        f"NIR node 'n' ({type(neuron).__name__}): needs the time step; give dt= in the unit of the file's time "
        "constants (snntorch and spikingjelly write dt=1e-4, norse 1e-3, rockpool its own, sinabs counts steps: dt=1.0)"
    )


def test_time_step_is_not_needed_where_nothing_depends_on_it():
    assert spec(if_node(3), "snntorch", None).gain == 1.0


@pytest.mark.parametrize("dt", [0, -1e-4, np.nan, "1e-4", True])
def test_time_step_that_is_no_positive_number_is_a_model_error(dt):
    assert refused(LEAKY, dt=dt) == f"dt={dt!r} must be a number above 0, in the unit of the file's time constants"


def test_start_away_from_zero_cannot_be_subtracted_from():
    assert refused(if_node(3, r=1e4, v_reset=0.25), "spikingjelly", reset="subtract") == (
        "NIR node 'n' (IF): reset 'subtract' is not supported where v starts at v_reset 0.25, not 0"
    )


def test_snntorch_late_zero_of_neurons_with_a_current_loses_the_step_after_a_spike():
    late = {"reset": "zero", "reset_timing": "next"}
    with pytest.warns(NwWarning) as told:
        network = from_nir(one_layer(cuba(3, r=4e4 / 1, w_in=2.0)), dt=1e-4, dialect="snntorch", neuron=late)
    assert any("the step after a spike is lost (refractory=2)" in str(w.message) for w in told)
    neuron = network.node("n").neuron
    assert (neuron.reset, neuron.reset_timing, neuron.refractory) == ("zero", "now", 2)
    plain = from_nir(one_layer(LEAKY), dt=1e-4, dialect="snntorch", neuron=late).node("n").neuron
    assert (plain.reset_timing, plain.refractory) == ("next", 0)


def spyx_spikes(x, weights, kind: str, recurrent=None) -> np.ndarray:
    """Spikes [T, 3] of two layers of Spyx 1.0.0 (`spyx/nn.py`), which follow from the membranes of the step before."""
    v, i = [np.zeros(3, np.float32) for _ in weights], [np.zeros(3, np.float32) for _ in weights]
    given = []
    for drive in x:
        for n, (w, bias) in enumerate(weights):
            spikes = (v[n] > 1).astype(np.float32)
            drive = w @ drive + bias + (0 if recurrent is None or n else recurrent @ spikes)
            if kind == "CubaLIF":
                i[n] = np.float32(0.5) * i[n] + drive
                v[n] = np.float32(0.75) * (v[n] - spikes) + i[n]
            else:
                v[n] = (np.float32(0.75) if kind == "LIF" else np.float32(1)) * v[n] + drive - spikes
            drive = spikes
        given.append(drive)
    return np.array(given)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", ["LIF", "CubaLIF", "IF"])
def test_spyx_file_spikes_as_spyx_one_step_later(kind, recurrent):
    """The graph is as Spyx's exporter writes it: r is beta, and the input of a loop leads through its weights."""
    rng, one = np.random.default_rng(3), np.ones(3, np.float32)
    made = {
        "IF": lambda: nir.IF(r=one, v_threshold=one),
        "LIF": lambda: nir.LIF(tau=4 * one, v_threshold=one, v_leak=0 * one, r=0.75 * one),
        "CubaLIF": lambda: nir.CubaLIF(tau_mem=4 * one, tau_syn=2 * one, v_threshold=one, v_leak=0 * one, r=0.75 * one),
    }[kind]
    weights = [
        (rng.normal(0.2, 0.5, (3, n)).astype(np.float32), rng.normal(0, 0.1, 3).astype(np.float32)) for n in (4, 3)
    ]
    loop = rng.normal(0, 0.4, (3, 3)).astype(np.float32) if recurrent else None
    first = made() if loop is None else graph(
        "a.input > a.w > a.lif > a.output, a.lif > a.w", type_check=False,
        **{"a.input": inputs(3), "a.w": nir.Linear(loop), "a.lif": made(), "a.output": outputs(3)},
    )  # fmt: skip
    layers = {"f": nir.Affine(*weights[0]), "a": first, "g": nir.Affine(*weights[1]), "b": made()}
    g = graph("input > f > a > g > b > output", type_check=False, input=inputs(4), **layers, output=outputs(3))
    network = from_nir(g, dt=1.0, dialect="spyx")
    x = (rng.random((60, 4)) < 0.6).astype(np.float32)
    expected = spyx_spikes(x, weights, kind, loop)
    found = simulate(network, x[None]).output[0]
    assert 10 < expected.sum() < 150 and np.array_equal(found[:-1], expected[1:])
