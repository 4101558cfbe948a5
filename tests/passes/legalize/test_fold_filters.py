"""Filters in front of weights: they become part of the neurons behind them, or stay and are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.readout import choose_readout
from nwcompile.passes.legalize.fold_filters import fold_filters, is_filter
from nwcompile.passes.prepare.normalize import normalize

N_IN, N = 6, 5
SPIKES = (np.random.default_rng(0).random((3, 12, N_IN)) < 0.4).astype(np.float32)


@nw.neuron(sends="graded")
def trace(state, x, slow=0.75, fast=0.5):
    q = fast * state.q + x
    p = slow * state.p + 0.25 * (q - (-state.q) / 2)
    return {"q": q, "p": p}, p


@nw.neuron
def lif(state, x, slow=0.5):
    v = slow * state.v + x
    s = nw.nn.spike(v, 1.0)
    return {"v": v * (1 - s)}, s


def filtered(program=None, reader=None, bias=None, n_readers=1, also=()):
    """An input, a filter, weights, and neurons; all numbers are powers of two, so that float32 rounds nothing."""
    weight = np.random.default_rng(1).choice([-0.5, 0.25, 0.5, 1.0], (n_readers, N, N_IN)).astype(np.float32)
    names = [f"out{i}" for i in range(n_readers)]
    layers = {"filter": (program or trace.program(), N_IN)} | {name: (reader or lif.program(), N) for name in names}
    edges = [nw.Dense("filter", name, weight[i], bias=bias) for i, name in enumerate(names)]
    return nw.Network.from_arrays(
        layers,
        [nw.Scale("x", "filter", 0.5), *edges, *(nw.Dense(source, "out0", weight[0, :, :n]) for source, n in also)],
        {"x": N_IN},
    )


def fold(net):
    return fold_filters(normalize(net), Chip.load("loihi2"), nw.Options())


def test_a_filter_that_the_readout_reads_stays():
    net = replace(normalize(filtered()), readout=choose_readout("last", "filter", "p", N_IN))
    folded, rows = fold_filters(net, Chip.load("loihi2"), nw.Options())
    assert folded is net and rows == []


@pytest.mark.parametrize("changes", [{}, {"bias": np.linspace(-0.25, 0.5, N)}, {"n_readers": 2}])
def test_neurons_behind_the_weights_filter_their_sums(changes):
    net = filtered(**changes)
    folded, rows = fold(net)
    assert list(folded.layers) == [name for name in net.layers if name != "filter"]
    assert [(row.layer, row.label) for row in rows] == [("filter", "exact")]
    wanted, made = (nw.simulate(n, SPIKES).spikes for n in (net, folded))
    for name in folded.layers:
        assert 0.05 < wanted[name].mean() < 0.95
        np.testing.assert_array_equal(made[name], wanted[name])


def test_filter_in_front_of_another_is_folded_with_it():
    net = filtered(reader=trace.program())
    layers = {name: (net.node(name).neuron, net.node(name).shape) for name in net.layers} | {"last": (lif.program(), N)}
    edges = [*net.connections, nw.Dense("out0", "last", np.eye(N, dtype=np.float32))]
    net = nw.Network.from_arrays(layers, edges, {"x": N_IN})
    folded, rows = fold(net)
    assert list(folded.layers) == ["last"] and len(rows) == 2
    wanted = nw.simulate(net, SPIKES).spikes["last"]
    np.testing.assert_array_equal(nw.simulate(folded, SPIKES).spikes["last"], wanted)
    assert wanted.any()


@pytest.mark.parametrize("chip", ["loihi2", "spinnaker2"])
def test_filtered_neurons_are_equal_in_every_backend(chip):
    net = filtered(bias=np.linspace(-0.25, 0.5, N))
    program = nw.compile(net, chip, SPIKES)
    nw.crosscheck(program, SPIKES)
    made = nw.simulate(program, SPIKES, backend="sequence").spikes["out0"]
    assert (made == nw.simulate(net, SPIKES).spikes["out0"]).mean() > 0.97
    assert program.manifest["legalization"][0]["how"] == "behind the weights, in the neurons of out0"


@nw.neuron(sends="graded", initial={"p": 1.0})
def begun(state, x):
    p = 0.5 * state.p + x
    return {"p": p}, p


@nw.neuron(sends="graded")
def shifted(state, x):
    p = 0.5 * state.p + x + 1.0
    return {"p": p}, p


@nw.neuron(sends="graded")
def squared(state, x):
    p = 0.5 * state.p + x
    return {"p": p}, p * p


@nw.neuron(sends="graded")
def inverse(state, x):
    p = 0.5 * state.p + x
    return {"p": p}, 1 / (p + 2)


@nw.neuron(sends="graded")
def bent(state, x):
    p = torch.relu(0.5 * state.p + x)
    return {"p": p}, p


@pytest.mark.parametrize("neuron", [begun, shifted, squared, inverse, bent])
def test_programs_that_are_no_filters_stay(neuron):
    assert is_filter(trace.program()) and not is_filter(neuron.program()) and not is_filter(lif.program())
    assert not is_filter(trace.program(slow=np.linspace(0.5, 0.9, N_IN)))  # weights mix neurons that differ
    constant = [replace(state, next=1.0) for state in trace.program().states]
    assert not is_filter(trace.program().replace(states=tuple(constant)))
    with pytest.raises(ModelError, match=r"^layer .*: program .* sends .*, a number that is not whole; messages"):
        nw.compile(filtered(neuron.program()), "loihi2", SPIKES)


@pytest.mark.parametrize(
    "changes", [{"also": [("x", N_IN)]}, {"also": [("out0", N)]}, {"reader": nw.NeuronSpec(beta=0.5)}]
)
def test_filters_of_neurons_that_others_feed_or_that_are_built_in_stay(changes):
    net = normalize(filtered(**changes))
    folded, rows = fold_filters(net, Chip.load("loihi2"), nw.Options())
    assert folded is net and not rows
