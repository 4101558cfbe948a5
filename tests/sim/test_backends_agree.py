"""reference == cycle == sequence, bit for bit, on random programs; what must hold of the cycle backend's network."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.time.floorline import floorline
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.crosscheck import crosscheck
from nwcompile.sim.sequence.run import record_activity
from tests.made.nets import FIXED
from tests.made.random_programs import SIXTY, inputs, programs


@pytest.mark.parametrize("window", ["aligned", "hardware"])
@SIXTY
@given(data=st.data())
def test_backends_agree_on_spikes_states_and_counters(window, data):
    program = data.draw(programs())
    result = crosscheck(program, data.draw(inputs(program)), window=window)
    assert result.agree, str(result)


def test_backends_agree_at_the_edge_of_the_wrap():
    """u = -2**7 in 8 bits, which wraps, and 2**7, which does not."""
    chip = Chip.load("tiny").replace({"state.bits": 8})
    spec = NeuronSpec(threshold=100, fixed=chip.fixed_point)
    network = Network.from_arrays({"a": spec}, [Dense("in", "a", np.array([[-2], [2]], np.int8))], {"in": (1,)})
    x = np.ones((1, 3, 1), np.int32)
    program = compile(network, chip)
    assert simulate(program, x, record="all").states["a"]["u"][0, 0].tolist() == [128, 128]
    result = crosscheck(program, x)
    assert result.agree, str(result)


@SIXTY
@given(data=st.data())
def test_program_gives_the_spikes_of_its_network_whatever_the_pipeline_adds(data):
    """Skips, loops and delays on the chip against the network's own aligned steps."""
    program = data.draw(programs())
    x = data.draw(inputs(program))
    wanted = simulate(program.network, x, record="all")
    for backend in BACKENDS:
        run = simulate(program, x, backend, record="all")
        for name in program.network.layers:
            assert np.array_equal(run.spikes[name], wanted.spikes[name]), (backend, name)
            assert np.array_equal(run.states[name]["v"], wanted.states[name]["v"]), (backend, name)


@SIXTY
@given(data=st.data())
def test_cycle_every_message_arrives_once_over_its_route(data):
    program = data.draw(programs())
    run = simulate(program, data.draw(inputs(program)), "cycle")
    run.verify()
    counters = run.counters
    from_inputs = sum(
        int((run.activity.counts[name].sum(0) * np.diff(program.axons.offset)[first : first + n]).sum())
        for name, first, n in [("in", 0, program.network.inputs["in"].n_neurons)]
    )
    if program.chip.noc.multicast == "unicast":
        assert counters["messages_in"].sum() == counters["messages_out"].sum() + from_inputs
    assert np.array_equal(run.link_flits, link_flits(program, run.activity))


@SIXTY
@given(data=st.data())
def test_floorline_never_exceeds_the_measured_time_of_a_step(data):
    program = data.draw(programs())
    run = simulate(program, data.draw(inputs(program)), "cycle")
    bound = floorline(program, run.counters, run.link_flits, run.n_samples).bound_cycles
    assert (bound <= run.step_cycles).all()


@SIXTY
@given(data=st.data())
def test_cycle_results_do_not_depend_on_how_samples_are_batched(data):
    program = data.draw(programs())
    x = data.draw(inputs(program))
    whole = simulate(program, x, "cycle")
    parts = [simulate(program, x[b : b + 1], "cycle") for b in range(len(x))]
    assert np.array_equal(whole.step_cycles, sum(p.step_cycles for p in parts))


def test_recurrent_layer_given_after_the_layer_that_it_feeds():
    weight = np.array([[7]], np.int8)
    edges = [Dense("in", "first", weight), Dense("first", "first", -weight), Dense("first", "second", weight)]
    network = Network.from_arrays({"second": (FIXED, 1), "first": (FIXED, 1)}, edges, {"in": 1})
    x = np.ones((1, 4, 1), np.int8)
    spikes = record_activity(network, x)[1]
    assert spikes["first"].any()
    for name, wanted in simulate(network, x).spikes.items():
        assert np.array_equal(spikes[name], wanted)


@SIXTY
@given(data=st.data(), n_threads=st.integers(2, 4))
def test_cycle_results_do_not_depend_on_threads(data, n_threads):
    """Fewer samples than threads: their steps are shared out."""
    program = data.draw(programs())
    x = data.draw(inputs(program))
    runs = []
    for n in (1, n_threads):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.sched_getaffinity", lambda _, n=n: set(range(n)))
            runs.append(simulate(program, x, "cycle", record="all"))
    one, several = runs
    for name in program.network.layers:
        assert np.array_equal(one.spikes[name], several.spikes[name])
        assert np.array_equal(one.states[name]["v"], several.states[name]["v"])
    for name, counts in one.counters.items():
        assert np.array_equal(counts, several.counters[name]), name
    assert np.array_equal(one.step_cycles, several.step_cycles)
    assert np.array_equal(one.link_flits, several.link_flits)
    assert one.energy_pj == several.energy_pj


@pytest.mark.parametrize("backend", BACKENDS)
def test_spikes_have_the_type_of_their_neurons(backend):
    specs = {name: replace(FIXED, spikes=name) for name in ("binary", "multi")}
    edges = [Dense("in", name, np.ones((2, 4), np.int8)) for name in specs]
    program = compile(Network.from_arrays({n: (s, (2,)) for n, s in specs.items()}, edges, {"in": (4,)}), "loihi2")
    spikes = simulate(program, np.ones((1, 3, 4), np.int8), backend=backend).spikes
    assert {name: array.dtype for name, array in spikes.items()} == {"binary": np.int8, "multi": np.int32}
