"""Neuron programs in every backend: each operation, the built-in neuron, networks of all kinds of neurons."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.neuron_programs.program import WRITTEN
from nwcompile.ir.neuron_programs.ranges import FLOAT_ONLY
from nwcompile.sim import BACKENDS
from nwcompile.sim.sequence.run import record_activity, trace_layers
from tests.made.neuron_programs import adaptive, cuba, every_operation, integrator

RNG = np.random.default_rng(0)
X = (RNG.random((3, 25, 12)) < 0.3).astype(np.int8)


def fixed(layers, edges) -> nw.Network:
    return nw.Network.from_arrays(layers, edges, {"in": 12})


def weights(*shape, largest=100) -> np.ndarray:
    return RNG.integers(-largest, largest, shape).astype(np.int8)


def test_the_program_of_every_operation_leaves_none_out():
    used = {operation.kind for operation in every_operation().operations}
    assert used == set(WRITTEN) - set(FLOAT_ONLY)


def assert_equal_runs(network: nw.Network, x=X) -> dict:
    """Reference and sequence give the same spikes, states and updates; returns the spikes."""
    run = nw.simulate(network, x, record="all")
    spikes, states = trace_layers(network, x)
    for name in network.layers:
        assert np.array_equal(run.spikes[name], spikes[name]), name
        assert spikes[name].dtype == run.spikes[name].dtype
        for state, values in run.states[name].items():
            assert np.array_equal(values, states[name][state]), (name, state)
    return spikes


def test_every_operation_is_the_same_in_both():
    network = fixed({"h": (every_operation(), 10)}, [nw.Dense("in", "h", weights(10, 12))])
    sent = assert_equal_runs(network)["h"]
    assert sent.min() < -40 and sent.max() > 40


def test_the_built_in_neuron_as_a_program_does_the_same():
    spec = nw.NeuronSpec(threshold=6400, decay_u=1000, decay_v=300, fixed=nw.FixedPoint(overflow="saturate"))
    edges = [nw.Dense("in", "h", weights(20, 12))]
    built_in, program = (fixed({"h": neuron}, edges) for neuron in (spec, cuba(6400, 1000, 300)))
    (activity, spikes), (same_activity, same) = (record_activity(network, X) for network in (built_in, program))
    assert spikes["h"].sum() > 100
    assert np.array_equal(spikes["h"], same["h"])
    assert np.array_equal(activity.updates["h"], same_activity.updates["h"])
    states, same_states = (trace_layers(network, X)[1]["h"] for network in (built_in, program))
    assert all(np.array_equal(states[name], same_states[name]) for name in ("u", "v"))
    assert_equal_runs(program)


@pytest.fixture(scope="module")
def mixed() -> nw.Network:
    """Adaptive neurons that feed themselves and built-in ones, which feed them back; a program reads them out."""
    spec = nw.NeuronSpec(threshold=6400, decay_u=1000, decay_v=300, fixed=nw.FixedPoint())
    layers = {"h": (adaptive.program(base=RNG.integers(3000, 4000, 15)), 15), "m": (spec, 9)}
    edges = [
        nw.Dense("in", "h", weights(15, 12), bias=RNG.integers(-5, 20, 15)),
        nw.Dense("h", "h", weights(15, 15, largest=40)),
        nw.Dense("h", "m", weights(9, 15)),
        nw.Dense("m", "h", weights(15, 9, largest=40), delay=2),
        nw.Dense("m", "out", weights(4, 9)),
    ]
    return fixed({**layers, "out": (integrator.program(), 4)}, edges)


def test_programs_in_a_loop_with_built_in_neurons(mixed):
    spikes = assert_equal_runs(mixed)
    assert spikes["h"].sum() > 50 and spikes["m"].sum() > 20


@pytest.fixture(scope="module")
def compiled(mixed) -> nw.Program:
    return nw.compile(mixed, "loihi2", X)


def test_backends_agree_on_a_chip_of_programs(compiled):
    result = nw.crosscheck(compiled, X)
    assert result.agree, result
    runs = {backend: nw.simulate(compiled, X, backend, record="all") for backend in BACKENDS}
    for run in runs.values():
        assert {name: set(states) for name, states in run.states.items()} == {"h": {"v", "a"}, "m": {"u", "v"},
                                                                              "out": {"v"}}  # fmt: skip
        for name, states in run.states.items():
            for state, values in states.items():
                assert np.array_equal(values, runs["reference"].states[name][state]), (run.backend, name, state)
        for counter, counts in run.counters.items():
            assert np.array_equal(counts, runs["reference"].counters[counter]), (run.backend, counter)
    assert runs["cycle"].output.shape == (3, 25, 4) and runs["cycle"].output.any()


def test_totals_end_with_the_same_states(compiled):
    whole = nw.simulate(compiled, X, "cycle")
    totals = nw.simulate(compiled, X, "cycle", record="totals")
    assert np.array_equal(totals.output[:, 0], whole.output[:, -1])
    assert totals.spikes["h"].sum() == whole.spikes["h"].sum()


def test_a_compiled_program_survives_its_file(compiled, tmp_path):
    compiled.save(tmp_path / "net.nwc")
    again = nw.Program.load(tmp_path / "net.nwc")
    assert again.hash == compiled.hash
    assert again.network.node("h").neuron.structure == compiled.network.node("h").neuron.structure
    assert np.array_equal(nw.simulate(again, X).output, nw.simulate(compiled, X).output)


def test_an_altered_program_in_a_file_is_refused(compiled, tmp_path):
    from dataclasses import replace

    node = compiled.network.node("h")
    wrong = replace(node.neuron.operations[0], kind="__import__")
    neuron = node.neuron.replace(operations=(wrong, *node.neuron.operations[1:]))
    nodes = {**compiled.network.nodes, "h": replace(node, neuron=neuron)}
    replace(compiled, network=replace(compiled.network, nodes=nodes)).save(tmp_path / "net.nwc")
    with pytest.raises(nw.ArtifactError, match="unknown operation of 'biased_x' '__import__'"):
        nw.Program.load(tmp_path / "net.nwc")


def test_the_quantization_table_shows_every_state(compiled):
    rows = {row["layer"]: row for row in compiled.manifest["quantization"]}
    assert rows["h"]["program"] == "adaptive"
    run = nw.simulate(compiled, X, record="all")
    largest = {name: int(np.abs(values).max()) for name, values in run.states["h"].items()}
    bounds = [state.pop("bound") for state in rows["h"]["states"]]
    assert rows["h"]["states"] == [
        {"state": "v", "unit": None, "scale": None, "bits": 24, "overflow": "saturate", "largest": largest["v"]},
        {"state": "a", "unit": None, "scale": None, "bits": 16, "overflow": "saturate", "largest": largest["a"]},
    ]
    assert largest["v"] <= bounds[0] < 1 << 23
    assert bounds[1] == 600 * 4096 // 100  # where it loses as much as a spike adds


def test_instructions_of_a_program_are_counted(compiled):
    run = nw.simulate(compiled, X, "cycle")
    extra = compiled.network.node("h").neuron.n_operations - 11
    assert extra > 0
    only_h = run.counters["neuron_instructions"].sum() / extra
    assert only_h == run.activity.updates["h"].sum() if run.activity.updates else only_h > 0


@pytest.mark.parametrize("chip", ["loihi1", "truenorth", "speck"])
def test_a_chip_without_programs_names_what_it_lacks(mixed, chip):
    with pytest.raises(nw.FitError) as e:
        nw.compile(mixed, chip, X)
    assert "neuron  h  must be built-in neurons (" in str(e.value)
    assert ", is program adaptive of states " in str(e.value)
    assert "take a chip whose neurons are programs (neuron.programmable: loihi2, spinnaker2)" in str(e.value)


def test_states_wider_than_the_chips_are_refused(mixed):
    chip = nw.Chip.load("loihi2").replace({"state.bits": 20})
    with pytest.raises(nw.FitError, match=r"state bits +h\.v +24 of 20 +give state v of h fewer bits"):
        nw.compile(fixed({"h": (adaptive.program(), 15)}, [mixed.connections[0].replace(bias=None)]), chip, X)
