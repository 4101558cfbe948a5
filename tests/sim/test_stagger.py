"""Staggered layers: the same aligned spikes and states as without, on every backend and in every mode of a run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile import checkpoint
from nwcompile.cost.compare import predicted_figures
from nwcompile.cost.time.floorline import floorline
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import FitError, ModelError, OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.passes.prepare.schedule import stagger_layers
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.crosscheck import crosscheck
from tests.made.nets import integers
from tests.made.random_neurons import whole_neurons
from tests.made.random_programs import OF_PROGRAMS, inputs, programs, specs
from tests.made.spikes import spikes
from tests.made.streams import assert_is_run, assert_same, everything, spikes_in, stream

TWELVE = settings(OF_PROGRAMS, max_examples=12, phases=[Phase.explicit, Phase.generate])


def staggered(program: Program, n_parts: int) -> Program:
    """Return the program with its layers spread over `n_parts` steps."""
    return replace(program, schedule=stagger_layers(program.network, program.schedule, n_parts))


def any_neurons(repeated: bool):
    """Draw built-in neurons, or neuron programs where one message carries a count."""
    return specs(repeated) if repeated else st.one_of(specs(), whole_neurons())


@TWELVE
@given(data=st.data())
def test_stagger_changes_no_spike_and_no_state_of_any_backend(data):
    program = data.draw(programs(neurons=any_neurons, executions=("pipelined",)))
    x, late = data.draw(inputs(program)), staggered(program, data.draw(st.integers(2, 4)))
    assume(late.schedule.stagger)
    late.verify()
    result = crosscheck(late, x)
    assert result.agree, str(result)
    plain, spread = (simulate(p, x, record="all") for p in (program, late))
    for name in program.network.layers:
        assert np.array_equal(spread.spikes[name], plain.spikes[name])
        for state, values in plain.states[name].items():
            assert np.array_equal(spread.states[name][state], values)
    for counter in ("synops", "neuron_updates", "spikes_out", "messages_out", "messages_in", "hops", "messages_io"):
        assert np.array_equal(spread.counters[counter].sum(0), plain.counters[counter].sum(0)), counter


@pytest.mark.parametrize("backend", BACKENDS)
def test_stagger_leaves_a_stream_equal_to_its_run(backend):
    program = staggered(everything(), 3)
    assert set(program.schedule.stagger) == {"late", "gated", "program"}
    x = spikes_in(program)
    run = simulate(program, x[None], backend, record="all")
    for sizes in ([1], [2, 5], [14]):
        assert_is_run(stream(program, x, backend, sizes), run)


@pytest.mark.parametrize("backend", BACKENDS)
def test_stagger_leaves_a_run_with_a_checkpoint_unchanged(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "PART_SECONDS", 0.0)  # a file for every step
    program = staggered(everything(), 3)
    x = np.stack([spikes_in(program), spikes_in(program)[::-1]])
    wanted = simulate(program, x, backend, record="all")
    for _ in range(2):  # computed, then read
        run = simulate(program, x, backend, record="all", checkpoint=tmp_path)
        for field in ("spikes", "states", "counters"):
            assert_same(getattr(run, field), getattr(wanted, field), field)


@pytest.mark.parametrize("n_parts", [2, 3])
def test_stagger_is_counted_before_simulation_in_the_steps_of_the_chip(n_parts):
    program = staggered(everything(), n_parts)
    run, fast = (simulate(program, spikes_in(program)[None], backend) for backend in ("cycle", "sequence"))
    assert_same(count_events(program, fast.activity), run.counters, "counters")
    assert np.array_equal(link_flits(program, fast.activity), run.link_flits)
    assert (floorline(program, run.counters, run.link_flits, 1).bound_cycles <= run.step_cycles).all()
    totals = simulate(program, spikes_in(program)[None], "cycle", record="totals")
    assert totals.step_cycles.sum() == run.step_cycles.sum()


def burst_net() -> Network:
    """Build two layers of neurons that are all driven to spike in the same steps."""
    fixed = Chip.load("loihi1").fixed_point
    spec = NeuronSpec(threshold=64, fixed=fixed)
    edges = [Dense("in", "a", np.full((32, 4), 2, np.int8)), Dense("a", "b", integers((8, 32)) & ~np.int8(1))]
    return Network.from_arrays({"a": spec, "b": spec}, edges, {"in": (4,)})


def test_stagger_shortens_the_step_of_bursts_and_reports_the_added_steps():
    x = np.zeros((1, 12, 4), np.int32)
    x[:, ::4] = 1
    plain, late = (nw.compile(burst_net(), "loihi1", x, Options(n_cores=4, stagger=n)) for n in (1, 2))
    assert plain.schedule.stagger == {} and plain.schedule.offset == {"in": 0, "a": 1, "b": 2}
    assert late.schedule.stagger == {"a": 2, "b": 2} and late.schedule.offset == {"in": 0, "a": 1, "b": 3}
    runs = [simulate(program, x, "cycle") for program in (plain, late)]
    assert np.array_equal(runs[0].output, runs[1].output)
    assert runs[1].step_cycles.max() < runs[0].step_cycles.max()
    rows = {row["layer"]: row for row in late.legalization}
    assert rows["b"]["how"] == "spread over 2 steps; the last neurons answer 2 steps later"
    assert rows["b"]["label"] == "exact"
    assert "pipelined, depth 4" in repr(late)


def test_options_without_stagger_are_stored_as_before():
    assert "stagger" not in Options().to_dict() and Options(stagger=2).to_dict()["stagger"] == 2


def test_stagger_is_stored_in_the_file(tmp_path):
    late = nw.compile(burst_net(), "loihi1", None, Options(n_cores=4, stagger=3))
    late.save(tmp_path / "late.nwc")
    loaded = nw.Program.load(tmp_path / "late.nwc")
    assert loaded.schedule == late.schedule and loaded.schedule.stagger == {"a": 3, "b": 3}


def test_stagger_leaves_layers_in_loops_alone():
    late = staggered(everything(), 2).schedule
    assert "loop" not in late.stagger and "words" not in late.stagger


def test_stagger_is_refused_where_synapses_have_no_delays():
    with pytest.raises(FitError) as e:
        nw.compile(burst_net(), Chip.load("loihi1").replace({"neuron.delay_max_steps": 1}), None, Options(stagger=2))
    assert "delay steps" in str(e.value) and "lower stagger, or raise neuron.delay_max_steps" in str(e.value)


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"cost.sync": "neighbors"}, "leave stagger out: cores wait for their neighbors only"),
        ({"core.axon_merge": "or"}, "leave stagger out: an axon acts at one time"),
    ],
)
def test_stagger_is_refused_on_chips_that_cannot_hold_it(keys, said):
    with pytest.raises(FitError, match=said):
        nw.compile(burst_net(), Chip.load("loihi1").replace(keys), None, Options(stagger=2))


def test_stagger_is_refused_in_phases_and_in_the_hardware_window():
    with pytest.raises(OptionError, match="stagger goes with execution='pipelined'"):
        Options(stagger=2, execution="phased")
    program = staggered(everything(), 2)
    with pytest.raises(OptionError, match="this program staggers them; use window='aligned'"):
        simulate(program, spikes_in(program)[None], window="hardware")


@pytest.mark.parametrize("stagger", [{"in": 2}, {"late": 1}, {"loop": 3}, {"late": 9}])
def test_schedule_refuses_a_stagger_that_its_delays_cannot_hold(stagger):
    program = everything()
    with pytest.raises(ModelError, match="schedule the network again"):
        replace(program, schedule=replace(program.schedule, stagger=stagger)).verify()


def test_stagger_keeps_messages_that_are_accumulated_one_by_one():
    program = everything()
    program = replace(program, chip=program.chip.replace({"noc.on_full": "drop", "noc.buffer_flits": 64}))
    x = spikes_in(program)[None]
    plain, late = (simulate(p, x, "cycle", record="all") for p in (program, staggered(program, 3)))
    assert plain.dropped.at.sum() == late.dropped.at.sum() == 0
    assert_same(late.states, plain.states, "states")


@pytest.mark.parametrize("optimize", ["time", "edp"])
def test_stagger_auto_is_kept_where_a_sample_takes_less_time(optimize):
    x = np.zeros((1, 200, 4), np.int32)
    x[:, ::4] = 1
    options = {n: Options(n_cores=4, optimize=optimize, stagger=n) for n in (1, 2, 4, "auto")}
    programs_by_n = {n: nw.compile(burst_net(), "loihi1", x, o) for n, o in options.items()}
    cost = {}
    for n, program in programs_by_n.items():
        figures = predicted_figures(program, program.activity)
        us = figures.step_us * program.schedule.n_hardware_steps(200)
        cost[n] = us * (figures.sample_nj if optimize == "edp" else 1)
    assert cost["auto"] == min(cost.values()) < cost[1]
    assert programs_by_n["auto"].manifest["options"]["stagger"] == "auto"


def test_stagger_auto_is_not_kept_where_added_steps_cost_more_or_synapses_have_no_delays():
    x = np.ones((1, 1, 4), np.int32)
    assert nw.compile(burst_net(), "loihi1", x, Options(stagger="auto")).schedule.stagger == {}
    chip = Chip.load("loihi1").replace({"neuron.delay_max_steps": 0})
    x = np.tile(np.array([1, 0, 0, 0])[None, :, None], (1, 50, 4)).astype(np.int32)
    assert nw.compile(burst_net(), chip, x, Options(stagger="auto")).schedule.stagger == {}


@pytest.mark.parametrize(
    "options, said",
    [
        ({"stagger": 0}, "stagger=0 must be a whole number from 1 to 64"),
        ({"stagger": None}, "stagger=None must be a whole number from 1 to 64"),
        ({"stagger": "fast"}, "stagger='fast' must be a whole number from 1 to 64, or 'auto'"),
        (
            {"stagger": "auto", "optimize": "traffic"},
            "stagger='auto' goes with optimize='time' or 'edp', not 'traffic'",
        ),
    ],
)
def test_stagger_of_another_value_is_refused(options, said):
    with pytest.raises(OptionError, match=said):
        Options(**options)


def test_a_given_mapping_leaves_no_stagger_to_choose():
    mapping = nw.compile(burst_net(), "loihi1").mapping
    assert nw.compile(burst_net(), "loihi1", options=Options(stagger=2), mapping=mapping).schedule.stagger
    with pytest.raises(OptionError, match="but a mapping is given; set stagger to a number"):
        nw.compile(burst_net(), "loihi1", options=Options(stagger="auto"), mapping=mapping)


@pytest.mark.parametrize("n_parts", [2, 3])
def test_loss_of_the_busiest_core_counts_the_steps_of_staggered_layers(n_parts):
    x = spikes(1, 12, 4)
    program = nw.compile(burst_net(), "loihi1", x, Options(n_cores=4, stagger=n_parts))
    run = simulate(program, x, "cycle")
    given = {name: torch.from_numpy(rows).float() for name, rows in {**run.spikes, "in": x}.items()}
    loss = nw.nn.busiest_core_loss(given, program)
    assert float(loss) == pytest.approx(run.counters["synops"].max(1).mean())


def test_estimate_gives_chips_that_cannot_hold_a_stagger_a_reason():
    spec = NeuronSpec(threshold=1.0, reset="subtract", strict=False)
    edges = [Dense("in", "a", np.full((8, 4), 0.5, np.float32)), Dense("a", "b", np.full((4, 8), 0.25, np.float32))]
    net = Network.from_arrays({"a": spec, "b": spec}, edges, {"in": (4,)})
    rows = {row.chip: row for row in nw.estimate(net, "all", spikes(4, 12, 4), Options(stagger=2)).chips}
    assert rows["loihi2"].fits and "leave stagger out: an axon acts at one time" in rows["ranc"].reason


def test_layers_are_spread_over_no_more_steps_than_they_have_neurons():
    net = burst_net()
    timing = nw.compile(net, "loihi1", None, Options(stagger=30)).schedule
    assert timing.stagger == {name: min(30, net.node(name).n_neurons) for name in net.layers}
