"""What neuron programs take of a core: program memory and state words, where the chip limits them."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.neuron_program import program_length, state_words
from tests.made.neuron_programs import adaptive, integrator

X = (np.random.default_rng(0).random((2, 10, 6)) < 0.4).astype(np.int8)


def network(n: int = 24) -> nw.Network:
    rng = np.random.default_rng(1)
    edges = [
        nw.Dense("in", "h", rng.integers(-90, 100, (n, 6)).astype(np.int8)),
        nw.Dense("h", "out", rng.integers(-90, 100, (4, n)).astype(np.int8)),
    ]
    return nw.Network.from_arrays({"h": (adaptive.program(), n), "out": (integrator.program(), 4)}, edges, {"in": 6})


def chip(**core: int) -> nw.Chip:
    return nw.Chip.load("loihi2").replace({f"core.{key}": value for key, value in core.items()})


def test_words_and_lengths_of_programs_and_built_in_neurons():
    assert (state_words(adaptive.program(), chip()), state_words(integrator.program(), chip())) == (2, 1)
    assert program_length(adaptive.program()) == adaptive.program().n_operations == 11
    assert state_words(nw.NeuronSpec(threshold=1), chip()) == 2
    assert state_words(nw.NeuronSpec(threshold=1, refractory=3), chip()) == 3
    assert program_length(nw.NeuronSpec(threshold=1, reset="subtract")) == 11 + 1


@pytest.mark.parametrize("partitioner", ["floorline", "sequential"])
def test_cores_hold_as_many_neurons_as_their_states_leave_room_for(partitioner):
    program = nw.compile(network(), chip(max_state_words=24), X, nw.Options(partitioner=partitioner))
    words = np.zeros(program.mapping.n_cores, int)
    for name, n_words in (("h", 2), ("out", 1)):
        np.add.at(words, program.mapping.core_of[name].reshape(-1), n_words)
    assert words.max() <= 24 and program.mapping.n_cores >= 3
    assert nw.crosscheck(program, X).agree


def test_a_core_given_too_many_states_is_refused():
    core_of = {"h": np.zeros(24, int), "out": np.zeros(4, int)}
    with pytest.raises(nw.FitError) as error:
        nw.compile(network(), chip(max_state_words=51), X, nw.Options(partitioner=lambda *_: core_of))
    assert "state memory  h -> core 0  52 of 51  keep fewer states in h (2 a neuron) or raise core.max_state_words" in (
        " ".join(str(error.value).split(" ")).replace("   ", "  ")
    )


def test_a_program_longer_than_program_memory_is_refused():
    with pytest.raises(nw.FitError) as error:
        nw.compile(network(), chip(max_instructions=10), X)
    text = str(error.value)
    assert "program memory" in text and "11 of 10" in text
    assert "shorten the neuron of h (11 operations) or raise core.max_instructions" in text


def test_programs_of_several_layers_share_program_memory():
    length = program_length(integrator.program())
    program = nw.compile(network(), chip(max_instructions=11 + length - 1), X)
    cores = [set(program.mapping.core_of[name].reshape(-1).tolist()) for name in ("h", "out")]
    assert not cores[0] & cores[1]


def test_the_quantization_table_tells_what_a_program_takes():
    program = nw.compile(network(), "loihi2", X)
    row = program.manifest["quantization"][0]
    assert (row["instructions"], row["state_words"]) == (program_length(program.network.node("h").neuron), 2)
