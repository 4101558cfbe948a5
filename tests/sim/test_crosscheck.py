"""crosscheck: where backends differ first, and how far the float network is from its program."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim import crosscheck as module

SPEC = nw.NeuronSpec(threshold=1.0, beta=0.9)


def two_layers(readout: bool = False) -> nw.Network:
    """5 inputs, 4 neurons `a`, 3 neurons `out`, whose weights no 8-bit number holds exactly."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(0.3, 0.4, shape).astype(np.float32) for shape in ((4, 5), (3, 4))]
    edges = [nw.Dense("in", "a", weights[0]), nw.Dense("a", "out", weights[1])]
    return nw.Network.from_arrays({"a": SPEC, "out": SPEC.replace(fires=not readout)}, edges, {"in": 5})


X = (np.random.default_rng(1).random((6, 20, 5)) < 0.4).astype(np.int8)


@pytest.mark.parametrize("against", [BACKENDS, ("sequence", "cycle")])
def test_crosscheck_has_a_row_for_every_layer(against):
    program = nw.compile(two_layers(), "tiny", calibration=X)
    result = nw.crosscheck(program, X, against)
    run = simulate(program, X)
    assert result.agree and result.first_difference is None and result.float_difference is None
    assert [(row.layer, row.n_neurons, row.n_spikes) for row in result.layers] == [("a", 4, 480), ("out", 3, 360)]
    for row in result.layers:
        assert row.fired == dict.fromkeys(against, int(run.spikes[row.layer].sum())) and row.fired[against[0]] > 0


def spoiled(monkeypatch, changes: dict) -> None:
    """`changes[backend]` changes the run of a backend."""

    def wrong(model, x, backend="reference", *rest, **more):
        run = simulate(model, x, backend, *rest, **more)
        changes.get(backend, lambda run: None)(run)
        return run

    monkeypatch.setattr(module, "simulate", wrong)


def test_crosscheck_names_the_earliest_step_over_all_layers_and_backends(monkeypatch):
    program = nw.compile(two_layers(), "tiny", calibration=X)

    def cycle(run):
        run.states["a"]["v"][3, 9, 2] += 5
        run.states["a"]["u"][5, 8, 1] += 1

    def sequence(run):
        run.spikes["out"][4, 7, 2] ^= 1
        run.spikes["out"][2, 7, 0] ^= 1

    spoiled(monkeypatch, {"cycle": cycle, "sequence": sequence})
    result = nw.crosscheck(program, X)
    run = simulate(program, X, record="all")
    spike, u = int(run.spikes["out"][2, 7, 0]), int(run.states["a"]["u"][5, 8, 1])
    rows = [row.first_difference for row in result.layers]
    assert not result.agree and result.first_difference == rows[1]
    assert (rows[1].quantity, rows[1].step, rows[1].sample, rows[1].neuron) == ("spikes", 7, 2, 0)
    assert rows[1].values == {"reference": spike, "cycle": spike, "sequence": 1 - spike}
    assert (rows[0].quantity, rows[0].step, rows[0].sample, rows[0].neuron) == ("u", 8, 5, 1)
    assert rows[0].values == {"reference": u, "cycle": u + 1, "sequence": u}
    assert rows[0].core == program.mapping.where("a", 1)[0]


def test_crosscheck_names_a_counter_where_only_that_differs(monkeypatch):
    program = nw.compile(two_layers(), "tiny", calibration=X)

    def cycle(run):
        run.counters["hops"][4, 0] += 1

    spoiled(monkeypatch, {"cycle": cycle})
    result = nw.crosscheck(program, X)
    hops = int(simulate(program, X).counters["hops"][4, 0])
    assert [row.first_difference for row in result.layers] == [None, None]
    assert str(result) == (
        f"reference, cycle, sequence disagree first at step 4, core 0: hops reference={hops}, cycle={hops + 1}, "
        f"sequence={hops}"
    )


def test_crosscheck_tells_how_far_the_float_network_is():
    network = two_layers()
    program = nw.compile(network, "tiny", calibration=X, options=nw.Options(bits=3))
    result = nw.crosscheck(program, X, ("float", "sequence", "cycle"), network=network)
    wanted, run = simulate(network, X), simulate(program, X)
    assert result.agree and result.backends == ("sequence", "cycle")
    gap = result.float_difference
    assert gap.backend == "sequence"
    for row in gap.layers:
        a, b = wanted.spikes[row.layer], run.spikes[row.layer]
        where = np.argwhere(a != b)
        assert len(where) and (row.n_differing, row.first_step) == (len(where), where[:, 1].min())
        assert (row.spikes_float, row.spikes_fixed) == (a.sum(), b.sum())
        assert (row.rate_float, row.rate_fixed) == (a.mean(), b.mean())
        assert row.share_differing == len(where) / ((a + b) > 0).sum()
    assert gap.answers_float == tuple(wanted.output.sum(1).argmax(1))
    assert gap.answers_fixed == tuple(run.output.sum(1).argmax(1))
    assert gap.n_alike == sum(a == b for a, b in zip(gap.answers_float, gap.answers_fixed, strict=True))


def test_crosscheck_with_one_integer_backend_compares_it_with_float_only():
    network = two_layers()
    result = nw.crosscheck(nw.compile(network, "tiny"), X, ("cycle", "float"), network=network)
    assert result.agree and result.float_difference.backend == "cycle"
    assert str(result) == "cycle ran alone on 6 samples: no other integer backend was named"


def test_crosscheck_compares_the_membrane_of_a_readout():
    network = two_layers(readout=True)
    program = nw.compile(network, "tiny", calibration=X)
    row = nw.crosscheck(program, X, ("float", "cycle"), network=network).float_difference.layers[1]
    wanted = simulate(network, X).output
    error = simulate(program, X).output / program.output_scale["out"] - wanted
    assert row.n_differing is None and 0 < row.membrane_error < 0.5
    assert row.membrane_error == pytest.approx(np.sqrt((error**2).mean() / (wanted**2).mean()))


def test_crosscheck_of_several_outputs_has_no_answer():
    layers = {"a": SPEC, "b": SPEC}
    edges = [nw.Dense("in", name, np.ones((2, 5), np.float32)) for name in layers]
    network = nw.Network.from_arrays(layers, edges, {"in": 5})
    gap = nw.crosscheck(nw.compile(network, "tiny"), X, ("float", "cycle"), network=network).float_difference
    assert (gap.answers_float, gap.answers_fixed, gap.n_alike) == (None, None, None)


@pytest.mark.parametrize(
    "error, more, text",
    [
        (nw.BackendError, {"against": "cycle"}, "crosscheck needs two backends or more, got cycle"),
        (nw.BackendError, {"against": ("cycle", "cycle")}, "crosscheck needs two backends or more, got cycle"),
        (nw.BackendError, {"against": ("cycle", "flaot")},
         "unknown backend 'flaot'; choose one of: float, cycle, reference, sequence"),
        (nw.OptionError, {"against": ("float", "cycle")},
         "'float' needs the network as it was before quantization, which a program does not hold; give it as network=, "
         "or with --model on the command line"),
        (nw.OptionError, {"against": ("float", "cycle"), "network": 3},
         "network= takes the nw.Network that was compiled, not int"),
        (nw.OptionError, {"network": two_layers()},
         "network= is compared as backend 'float'; put 'float' into `against`"),
        (nw.OptionError, {"against": ("float", "cycle"), "network": two_layers(), "window": "hardware"},
         "a float network has no window 'hardware'; leave 'float' out, or use window='aligned'"),
        (nw.ModelError, {"against": ("float", "cycle"), "network": nw.Network.from_arrays(
            {"a": SPEC}, [nw.Dense("in", "a", np.ones((4, 5), np.float32))], {"in": 5})},
         "the program was not made from this network: layer 'out' has shape [3] in the program and none in the "
         "network; give the one that was compiled"),
    ],
)  # fmt: skip
def test_crosscheck_of_what_cannot_be_compared_is_one_sentence(error, more, text):
    with pytest.raises(error) as caught:
        nw.crosscheck(nw.compile(two_layers(), "tiny"), X, **more)
    assert str(caught.value) == text


def test_crosscheck_of_an_integer_network_has_no_float():
    program = nw.compile(two_layers(), "tiny")
    with pytest.raises(nw.ModelError) as caught:
        nw.crosscheck(program, X, ("float", "cycle"), network=program.network)
    assert str(caught.value) == (
        "the network came in integers, so there is no float network to compare with; leave 'float' out of the backends"
    )
