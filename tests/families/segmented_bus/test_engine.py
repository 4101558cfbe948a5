"""The cycle backend on a segmented bus: the same answers, slots that add up, times that can be counted by hand."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.cost.time.floorline import floorline
from nwcompile.cost.time.work import link_name
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import BackendError, OptionError
from nwcompile.families.segmented_bus.chip import slot_cycles
from nwcompile.flow import compile
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.emit import emit
from nwcompile.passes.place.place import routed_cost
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.report.export.perfetto import format_trace
from nwcompile.sim import simulate
from nwcompile.sim.crosscheck import crosscheck
from nwcompile.sim.cycle.noc import offer_load, replay_packets
from tests.long import n_drawn
from tests.made.buses import FREE, bus_chip, busy_program, pairs_program
from tests.made.nets import dense_net
from tests.made.random_programs import OF_PROGRAMS, buses, inputs, programs

EXAMPLES = settings(OF_PROGRAMS, max_examples=n_drawn(25))


@pytest.mark.parametrize("window", ["aligned", "hardware"])
@EXAMPLES
@given(data=st.data())
def test_backends_agree_on_a_bus(window, data):
    program = data.draw(programs(on=buses))
    result = crosscheck(program, data.draw(inputs(program)), window=window)
    assert result.agree, str(result)


@EXAMPLES
@given(data=st.data())
def test_bus_carries_every_message_once_and_no_faster_than_its_bounds(data):
    program = data.draw(programs(on=buses))
    run = simulate(program, data.draw(inputs(program)), "cycle")
    run.verify()
    assert np.array_equal(run.link_flits, link_flits(program, run.activity))
    bound = floorline(program, run.counters, run.link_flits, run.n_samples).bound_cycles
    assert (bound <= run.step_cycles).all()
    chip, bus = program.chip, run.bus
    n_lane_links = 2 * chip.noc.columns - 1
    assert (bus.slots * chip.noc.lanes >= run.link_flits[:, :n_lane_links].max(1)).all()
    assert (bus.slots >= run.link_flits[:, n_lane_links:].max(1)).all()
    assert (bus.slots * slot_cycles(chip.noc) * chip.noc.cycle_ns <= run.step_cycles * chip.core.cycle_ns).all()
    assert (bus.conflicts <= bus.waited).all() and (bus.waited <= bus.transfers).all()
    assert (bus.lane_slots <= bus.slots * bus.peak_lanes).all() and bus.peak_lanes.max() <= chip.noc.lanes
    assert bus.peak_queue.max() <= chip.noc.buffer_flits
    assert run.link_flits[:, chip.noc.columns - 1 : n_lane_links].sum() == (
        run.counters["hops"].sum() + run.counters["hops_io_ew"].sum() + bus.transfers.sum()
    )


@EXAMPLES
@given(data=st.data())
def test_bus_results_do_not_depend_on_batching_or_watching(data):
    program = data.draw(programs(on=buses))
    x = data.draw(inputs(program))
    whole = simulate(program, x, "cycle", profile=True)
    parts = [simulate(program, x[b : b + 1], "cycle") for b in range(len(x))]
    assert np.array_equal(whole.step_cycles, sum(p.step_cycles for p in parts))
    for name in ("slots", "transfers", "waited", "conflicts", "lane_slots"):
        assert np.array_equal(getattr(whole.bus, name), sum(getattr(p.bus, name) for p in parts))
    assert np.array_equal(whole.bus.peak_queue, np.max([p.bus.peak_queue for p in parts], 0))
    totals = simulate(program, x, "cycle", record="totals")
    assert totals.bus.slots.tolist() == [whole.bus.slots.sum()] and totals.step_cycles[0] == whole.step_cycles.sum()
    assert totals.bus.peak_lanes.tolist() == [whole.bus.peak_lanes.max()]
    sent = whole.counters["messages_out"].sum() + whole.counters["messages_io"].sum()
    assert whole.profile.latency_count.sum() == sent


def relay(chip, sites, n=2):
    """A program of n cores with one neuron each: input -> 0 -> 1 -> ..., each at one of `sites`."""
    spec = NeuronSpec(threshold=1, strict=False, reset="zero", fixed=chip.fixed_point)
    names = [f"n{i}" for i in range(n)]
    edges = [Dense(a, b, np.array([[1]], np.int8)) for a, b in zip(["in", *names], names, strict=False)]
    network = Network.from_arrays(dict.fromkeys(names, (spec, (1,))), edges, {"in": (1,)})
    mapping = Mapping.from_arrays({name: [i] for i, name in enumerate(names)}, sites)
    return emit(network, schedule(network), mapping, chip, None, {})


def test_bus_time_of_one_message_is_counted_by_hand():
    """6 positions: a slot is 2 + 5 * 2 + 3 = 15 cycles. Core 0 sends once, over 4 segments to position 4."""
    chip = bus_chip()
    program = relay(chip, [[0, 0, 1], [4, 0, 0]])
    run = simulate(program, np.ones((1, 1, 1), np.int8), "cycle")
    # step 1: neuron 0 is visited (6), updated (4), spikes (30) and sends (5): ready at 45, the beginning of slot 3;
    # it arrives at 45 + 2 + 4 * 2 + 3 = 58, and is read by 58 + 16 + 1 + 4 = 79, after the end of the slot
    assert run.step_cycles.tolist() == [21 + 1000, 79 + 1000, 40 + 1000]
    assert run.counters["hops_ew"].sum(0).tolist() == [4, 0]
    assert run.bus.slots.tolist() == [0, 1, 0] and run.bus.waited.sum() == 0


def test_bus_works_until_the_end_of_its_last_slot():
    chip = bus_chip(**FREE, noc__slot_cycles=100)
    run = simulate(relay(chip, [[0, 0, 0], [1, 0, 0]]), np.ones((1, 1, 1), np.int8), "cycle")
    assert run.step_cycles.tolist() == [1000, 1100, 1000]


def test_bus_step_that_takes_too_long_ends_with_its_busiest_link():
    chip = bus_chip(noc__max_step_cycles=60)
    with pytest.raises(BackendError) as error:
        simulate(relay(chip, [[0, 0, 1], [4, 0, 0]]), np.ones((1, 1, 1), np.int8), "cycle")
    assert str(error.value) == (
        "step 1 of sample 0 on small bus: not done after 60 cycles (noc.max_step_cycles), 1 of 1 flits offered were "
        "accepted; the busiest link is (0, 0) port 1 inject; send less, place it again, or raise noc.max_step_cycles"
    )


def fan_in(chip, sources):
    """Cores at positions `sources` with a neuron each, which all send to a core at position 5 at once."""
    spec = NeuronSpec(threshold=1, strict=False, reset="zero", fixed=chip.fixed_point)
    n = len(sources)
    edges = [Dense("in", "a", np.ones((n, 1), np.int8)), Dense("a", "b", np.ones((1, n), np.int8))]
    network = Network.from_arrays({"a": (spec, (n,)), "b": (spec, (1,))}, edges, {"in": (1,)})
    sites = [[x, 0, 0] for x in sources] + [[5, 0, 1]]
    mapping = Mapping.from_arrays({"a": np.arange(n), "b": [n]}, sites)
    return emit(network, schedule(network), mapping, chip, None, {})


def test_bus_receiver_takes_one_message_a_slot():
    chip = bus_chip(**FREE, noc__lanes=4)
    run = simulate(fan_in(chip, [0, 1, 2, 3]), np.ones((1, 1, 1), np.int8), "cycle")
    assert run.bus.slots.tolist() == [0, 4, 0] and run.bus.peak_lanes.max() == 1
    assert run.bus.waited.sum() == 3 and run.bus.conflicts.sum() == 0  # its port was taken, no path was


@pytest.mark.parametrize(("lanes", "slots", "conflicts"), [(1, 3, 2), (2, 2, 1), (3, 1, 0)])
def test_bus_paths_that_cross_wait_for_a_lane(lanes, slots, conflicts):
    chip = bus_chip(**FREE, noc__lanes=lanes)
    program = pairs_program(chip, [((0, 0), (3, 0)), ((1, 0), (4, 0)), ((2, 0), (5, 0))])
    run = simulate(program, np.ones((1, 1, 1), np.int8), "cycle")
    assert (run.bus.slots[1], run.bus.conflicts[1], run.bus.peak_lanes[1]) == (slots, conflicts, lanes)
    assert run.link_flits[1, :5].tolist() == [1, 2, 3, 2, 1]


def test_bus_paths_apart_share_a_lane():
    chip = bus_chip(**FREE, noc__lanes=1)
    program = pairs_program(chip, [((0, 0), (1, 0)), ((3, 0), (2, 0)), ((4, 0), (5, 0))])
    run = simulate(program, np.ones((1, 1, 1), np.int8), "cycle")
    assert run.bus.slots.tolist() == [0, 1, 0] and run.bus.transfers[1] == 3


def test_bus_short_queues_stall_the_send_side():
    x = np.random.default_rng(1).integers(0, 2, (1, 8, 12))
    runs = [simulate(busy_program(bus_chip(noc__buffer_flits=n)), x, "cycle", profile=True) for n in (1, 64)]
    stalls = [run.profile.stall_cycles.sum() for run in runs]
    assert stalls[0] > 0 and stalls[1] == 0
    assert runs[0].bus.peak_queue.max() == 1 < runs[1].bus.peak_queue.max()
    ports = [i for i in np.flatnonzero(runs[1].link_flits.sum(0)) if i >= 11]
    assert (runs[1].profile.link_peak[ports] > 0).all() and (runs[1].profile.link_mean[ports] > 0).all()


def test_bus_trace_and_critical_paths_name_its_links():
    program = busy_program(bus_chip())
    x = np.random.default_rng(1).integers(0, 2, (1, 8, 12))
    run = simulate(program, x, "cycle", profile=True, flight_steps=8)
    events = json.loads(format_trace(program, run, 8))["traceEvents"]
    flights = [e["args"]["flits"] for e in events if e["ph"] == "C"]
    assert max(flights) > 2 and flights[-1] == 0
    names = {link_name(program.chip, link) for link in run.profile.path["link"] if link >= 0}
    assert names and all(name.startswith(("segment", "switch", "(")) for name in names)


def test_placers_count_the_segments_that_messages_pass():
    chip, network = bus_chip(core__max_neurons=4), dense_net(12, 20, 9, recurrent=True)
    x, hops = np.random.default_rng(1).integers(0, 2, (1, 8, 12)), {}
    for placer in ("row-major", "anneal"):
        program = compile(network, chip, x, Options(placer=placer))
        run = simulate(program, x, "cycle")
        hops[placer] = run.counters["hops"].sum()
        assert routed_cost(program.mapping, program.network, chip, run.activity, "traffic") == hops[placer]
    assert hops["anneal"] < hops["row-major"]


def test_noc_latency_on_an_idle_bus_is_exact():
    chip = bus_chip(noc__cores_per_router=1)
    src, dst = (a.ravel() for a in np.meshgrid(np.arange(6), np.arange(6)))
    for a, b in zip(src, dst, strict=True):
        done = replay_packets(chip, [15 * 7], [a], [b], [1])
        assert done.inject[0] == 105 and done.arrive[0] - 105 == 2 + 2 * abs(a - b) + 3
        assert done.hops[0] == abs(a - b)


def test_noc_packets_wait_for_the_next_slot_and_for_lanes():
    chip = bus_chip(noc__cores_per_router=1, noc__lanes=1)
    done = replay_packets(chip, [1, 1, 1, 20], [0, 1, 4, 5], [3, 2, 5, 0], [1] * 4)
    assert done.inject.tolist() == [15, 30, 15, 45]
    assert done.link_flits[:5].tolist() == [2, 3, 2, 1, 2]


def test_noc_load_on_a_bus_saturates_and_names_its_busiest_switch():
    chip = bus_chip(noc__cores_per_router=1, noc__columns=8)
    light, heavy = offer_load(chip, "uniform", 0.002, cycles=20000), offer_load(chip, "uniform", 0.2, cycles=20000)
    assert light.stable and light.mean_latency < 2 * slot_cycles(chip.noc)
    assert not heavy.stable and heavy.accepted < 0.1 and heavy.bottleneck.startswith("switch ")


def test_noc_refuses_long_packets_on_a_bus():
    chip = bus_chip()
    with pytest.raises(OptionError) as error:
        replay_packets(chip, [0], [0], [1], [4])
    assert str(error.value) == (
        "packet 0 has 4 flits; on the segmented bus of small bus every packet is one transfer, of 1 flit"
    )


@pytest.mark.parametrize("last, inject, arrive", [
    (0, [0, -1], [-1, -1]), (14, [0, -1], [-1, -1]), (16, [0, 15], [15, -1]), (28, [0, 15], [15, 28]),
])  # fmt: skip
def test_replay_on_a_bus_that_is_cut_off_says_what_has_not_arrived(last, inject, arrive):
    """Two packets of a core: in slots at 0 and 15, 5 and 4 segments of 2 cycles away."""
    done = replay_packets(bus_chip(noc__cores_per_router=1), [0, 0], [0, 0], [5, 4], [1, 1], last)
    assert (done.inject.tolist(), done.arrive.tolist()) == (inject, arrive)
