"""Merging the inputs that a program adds up changes no spike; dyadic weights make the comparison exact."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable
from nwcompile.passes.prepare.programs import find_factors, merge_inputs
from tests.made.nets import dyadic
from tests.made.spikes import draw_spikes


def neuron(*steps, inputs=("x", "x2"), **parameters) -> NeuronProgram:
    """A leaky membrane that adds `total`, computed by the steps from its inputs."""
    after = (
        ("kept", "mul", "v", 0.5),
        ("v2", "add", "kept", "total"),
        ("fires", "lt", 1, "v2"),
        ("y", "number", "fires"),
    )
    operations = tuple(Operation(result, kind, tuple(given)) for result, kind, *given in (*steps, *after))
    return NeuronProgram(
        "p", (StateVariable("v", "v2"),), operations, "y", "binary", parameters=parameters, inputs=inputs
    )


ADDED = {
    "a sum": ([("total", "add", "x", "x2")], [1, 1]),
    "a difference": ([("total", "sub", "x", "x2")], [1, -1]),
    "the second first": ([("total", "sub", "x2", "x")], [1, -1]),
    "with a factor": ([("part", "mul", "x2", 0.25), ("total", "add", "part", "x")], [1, 0.25]),
    "divided": ([("part", "div", "x", 2.0), ("low", "neg", "x2"), ("total", "add", "part", "low")], [1, -2]),
    "with a state between": ([("one", "sub", "v", "x2"), ("total", "add", "one", "x")], [1, -1]),
}
APART = {
    "a product": [("total", "mul", "x", "x2")],
    "a comparison": [("one", "lt", "x", "x2"), ("total", "number", "one")],
    "a function of one": [("part", "abs", "x2"), ("total", "add", "x", "part")],
    "read twice": [("part", "abs", "x2"), ("one", "add", "x", "x2"), ("total", "add", "one", "part")],
    "divided by": [("part", "div", 1.0, "x2"), ("total", "add", "x", "part")],
    "a factor for each neuron": [("part", "mul", "x2", "k"), ("total", "add", "x", "part")],
}


@pytest.mark.parametrize("kind", ADDED)
def test_inputs_that_a_program_adds_become_one(kind):
    steps, factors = ADDED[kind]
    program, rng = neuron(*steps), np.random.default_rng(0)
    assert find_factors(program) == factors
    places = np.arange(4)
    edges = [
        nw.Dense("in", "a", dyadic(rng, 8, 5)),
        nw.Dense("in", "other", dyadic(rng, 4, 5)),
        nw.Sparse("other", "a", pre=places, post=4 + places, weight=np.ones(4, np.float32), delay=2),
        nw.Sparse("a", "a", pre=places, post=4 + places[::-1], weight=np.ones(4, np.float32)),
    ]
    layers = {"a": (program, 4), "other": (nw.NeuronSpec(beta=0.5), 4)}
    network = nw.Network.from_arrays(layers, edges, {"in": 5})
    merged = merge_inputs(network)
    merged.verify()
    assert merged.node("a").neuron.inputs == ("x",) and {*merged.layers} == {*network.layers}
    x = draw_spikes(rng, 3, 9, 5)
    before, after = (nw.simulate(n, x, record="all") for n in (network, merged))
    np.testing.assert_array_equal(before.states["a"]["v"], after.states["a"]["v"])
    np.testing.assert_array_equal(before.spikes["a"], after.spikes["a"])
    assert before.spikes["a"].any()
    assert nw.compile(network, "loihi2", x).network.node("a").n_inputs == 1


def test_a_state_that_keeps_the_sum_keeps_what_is_left_of_it():
    program = neuron(("one", "mul", "current", 0.5), ("part", "add", "one", "x"), ("total", "add", "part", "x2"))
    program = program.replace(states=(*program.states, StateVariable("current", "total")))
    network = nw.Network.from_arrays({"a": program}, [nw.Dense("in", "a", np.ones((8, 5), np.float32))], {"in": 5})
    merged, x = merge_inputs(network), draw_spikes(np.random.default_rng(0), 3, 9, 5)
    merged.verify()
    before, after = (nw.simulate(n, x, record="all").states["a"]["current"] for n in (network, merged))
    np.testing.assert_array_equal(before, after)
    assert before.any()


@pytest.mark.parametrize("kind", APART)
def test_other_inputs_stay_apart(kind):
    program = neuron(*APART[kind], **({"k": np.arange(1.0, 5.0)} if "k" in str(APART[kind]) else {}))
    assert find_factors(program) is None
    network = nw.Network.from_arrays({"a": program}, [nw.Dense("in", "a", np.ones((8, 5), np.float32))], {"in": 5})
    assert merge_inputs(network) is network
