"""The floorline against hand computations and against SANA-FE's simple timing model."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nwcompile.cost.time.advice import Advice
from nwcompile.cost.time.floorline import bound_tightness, floorline
from nwcompile.cost.time.work import Bottleneck, link_name
from nwcompile.cost.traffic.axons import build_axons
from nwcompile.cost.traffic.events import count_events, synops_into
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import ChipError
from nwcompile.flow import compile
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.flat import flat_cores
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.ir.run import COUNTERS
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate
from tests.long import n_drawn
from tests.made.chips import small_chip
from tests.made.nets import conv_net, dense_net, feed_forward
from tests.made.sanafe import random_net

SITES = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]


def three_core_program(chip, plan=None, activity=None, cores=((0, 0, 0, 1, 1, 1), (2, 2))):
    """4 lines -> fc1 (3 neurons on core 0, 3 on core 1) -> fc2 (2 neurons on core 2); 2 tiles in use."""
    network = dense_net(4, 6, 2)
    mapping = Mapping.from_arrays({"fc1": cores[0], "fc2": cores[1]}, SITES)
    axons = build_axons(network, flat_cores(network, mapping), 3, chip)
    return Program(network, plan or feed_forward(network), mapping, chip, axons, activity)


def counters(**given):
    """Counters of 2 steps on 3 cores, zero where not given."""
    return {name: np.array(given.get(name, [[0, 0, 0], [0, 0, 0]]), np.int64) for name in COUNTERS}


def no_flits(chip, n_steps=2):
    return np.zeros((n_steps, 4 * chip.noc.columns * chip.noc.rows + 2 * chip.n_cores), np.int64)


BUSY = counters(
    neuron_visits=[[6, 6, 4], [6, 6, 4]], neuron_updates=[[6, 2, 0], [4, 6, 4]], spikes_out=[[0, 0, 0], [3, 1, 2]],
    messages_out=[[0, 0, 0], [3, 1, 0]], messages_in=[[7, 7, 0], [2, 2, 4]], weight_reads=[[7, 7, 0], [2, 2, 4]],
    synops_dense=[[21, 21, 0], [6, 6, 8]], synops_sparse=[[0, 9, 0], [0, 0, 0]], synops_conv=[[0, 0, 0], [0, 0, 1]],
)  # fmt: skip


def test_floorline_equals_a_hand_computation():
    chip = small_chip()
    line = floorline(three_core_program(chip), BUSY, no_flits(chip), 2)
    # per sample: barrier 1000 (2 tiles); receive of core 1 in step 0; send of core 0 in step 1
    receive = 7 * 16 + 7 * 1 + 21 * 4 + 9 * 5
    send = 6 * 6 + 4 * 4 + 3 * 30 + 3 * 5
    assert line.bound_cycles.tolist() == [2 * 1000 + receive, 2 * 1000 + send]
    assert line.bound_cycles.dtype == np.int64
    assert line.step_us == pytest.approx([1.124, 1.0785])


def test_floorline_of_a_shared_unit_adds_sending_and_receiving():
    chip = small_chip(cost__units="shared")
    line = floorline(three_core_program(chip), BUSY, no_flits(chip), 2)
    core_1 = (6 * 6 + 2 * 4) + (7 * 16 + 7 * 1 + 21 * 4 + 9 * 5)
    core_0 = (6 * 6 + 4 * 4 + 3 * 30 + 3 * 5) + (2 * 16 + 2 * 1 + 6 * 4)
    assert line.bound_cycles.tolist() == [2000 + core_1, 2000 + core_0]


def test_floorline_counts_the_busiest_link_in_core_cycles():
    chip = small_chip(noc__cycle_ns=0.5, core__cycle_ns=2.0, noc__link_cycles_per_flit=3)
    flits = no_flits(chip)
    flits[1, [0, 6, 24]] = [4001, 9, 4000]
    line = floorline(three_core_program(chip), counters(), flits, 1)
    assert line.bound_cycles.tolist() == [1000, 1000 + 4001 * 3 // 4]
    assert line.link.tolist() == [-1, 0]
    assert line.bottlenecks[1] == Bottleneck("traffic", link=0, share=3000 / 4000)
    assert line.link_share == pytest.approx(3000 / 5000)


def test_floorline_counts_the_link_that_is_busy_longest_where_chips_are_joined():
    chip = small_chip(noc__chip_columns=2, noc__chip_link_cycles_per_flit=5)
    flits = no_flits(chip)
    flits[1, [0, 4, 9]] = [1900, 400, 399]  # 0: within a chip; 4 and 9: from (1, 0) east and from (2, 0) west
    line = floorline(three_core_program(chip), counters(), flits, 1)
    assert line.bound_cycles.tolist() == [1000, 3000]
    assert line.bottlenecks[1] == Bottleneck("traffic", link=4, share=2000 / 3000)


def test_floorline_counts_the_hops_that_a_buffer_has_slots_for():
    chip = small_chip(noc__chip_columns=2, noc__chip_hop_cycles=90, noc__buffer_flits=4, noc__virtual_channels=2)
    flits = no_flits(chip)
    flits[1, [0, 4]] = [1900, 400]  # 0: within a chip; 4: from (1, 0) east, 8 flits at a time take 90 cycles
    line = floorline(three_core_program(chip), counters(), flits, 1)
    assert line.bound_cycles.tolist() == [1000, 1000 + 400 * 90 // 8]
    assert line.link.tolist() == [-1, 4]


@pytest.mark.parametrize("n_slots", [1, 2, 8])
def test_floorline_is_near_what_a_slow_link_takes(n_slots):
    keys = {"noc__columns": 2, "noc__rows": 1, "noc__chip_columns": 1, "noc__chip_hop_cycles": 200}
    chip = small_chip(**keys, noc__buffer_flits=n_slots)
    network = dense_net(24, 24, 1)
    cores = {"fc1": np.zeros(24, np.int64), "fc2": np.ones(1, np.int64)}
    program = emit(network, schedule(network), Mapping.from_arrays(cores, chip.sites), chip, None, {})
    run = simulate(program, np.ones((1, 4, 24), np.int64), backend="cycle")
    line = floorline(program, run.counters, run.link_flits, run.n_samples)
    assert (line.bound_cycles <= run.step_cycles).all()
    link = line.work.link_cycles.argmax()
    assert line.bound_cycles[link] > 0.8 * run.step_cycles[link]


def test_floorline_of_phased_execution_pays_a_barrier_for_every_phase():
    chip = small_chip()
    network = dense_net(4, 6, 2)
    phased = Schedule("phased", 3, dict.fromkeys(network.offsets, 0) | {"fc1": 1, "fc2": 2}, (1, 1))
    line = floorline(three_core_program(chip, phased), BUSY, no_flits(chip), 2)
    assert line.bound_cycles.tolist() == [3 * 2 * 1000 + 248, 3 * 2 * 1000 + 157]


def test_floorline_of_a_chip_without_costs_is_none():
    table = small_chip().to_dict()
    del table["cost"]["word_cycles"]
    chip = Chip.from_dict(table)
    assert floorline(three_core_program(chip), BUSY, no_flits(chip), 2) is None


@pytest.mark.parametrize(
    ("given", "kind", "core", "unit", "layer"),
    [
        ({"synops_dense": [[0, 0, 0], [0, 9000, 0]]}, "memory", 1, "receive", "fc1"),
        ({"weight_reads": [[0, 0, 0], [0, 0, 9000]]}, "memory", 2, "receive", "fc2"),
        ({"neuron_visits": [[900, 0, 0], [900, 0, 0]]}, "compute", 0, "send", "fc1"),
        ({"spikes_out": [[0, 0, 0], [0, 0, 900]]}, "compute", 2, "send", "fc2"),
        ({"messages_out": [[0, 0, 0], [0, 900, 0]]}, "traffic", 1, "send", "fc1"),
        ({"messages_in": [[0, 0, 0], [0, 0, 900]]}, "traffic", 2, "receive", "fc2"),
        ({"synops_dense": [[0, 0, 0], [0, 10, 0]]}, "barrier", None, None, None),
    ],
)
def test_bottleneck_names_what_fills_the_largest_unit(given, kind, core, unit, layer):
    chip = small_chip()
    line = floorline(three_core_program(chip), counters(**given), no_flits(chip), 1)
    b = line.bottleneck
    assert (b.kind, b.core, b.unit, b.layer, b.link) == (kind, core, unit, layer, None)


def test_bottleneck_names_the_layer_with_most_of_a_core_that_two_layers_share():
    chip = small_chip()
    heavy = counters(synops_dense=[[9000, 0, 0], [0, 0, 0]])
    spikes = {"in": np.zeros((1, 4), np.int32), "fc1": np.full((1, 6), 5, np.int32), "fc2": np.zeros((1, 2), np.int32)}
    program = three_core_program(chip, activity=Activity(spikes, 5), cores=((0, 0, 0, 0, 0, 0), (0, 1)))
    assert floorline(program, heavy, no_flits(chip), 1).bottleneck.layer == "fc2"
    busy_input = Activity(spikes | {"in": np.full((1, 4), 5, np.int32)}, 5)
    assert floorline(program, heavy, no_flits(chip), 1, busy_input).bottleneck.layer == "fc1"


def test_time_share_accounts_for_the_whole_bound():
    chip = small_chip()
    line = floorline(three_core_program(chip), BUSY, no_flits(chip), 2)
    assert line.barrier_share == pytest.approx(4000 / 4405)
    assert line.time_share == pytest.approx({"fc1": 405 / 4405, "fc2": 0})
    assert line.link_share == 0


def test_floorline_equals_the_simple_timing_model_of_sanafe(reference):
    program, spikes, columns = random_net(reference)
    events = count_events(program, spikes, "hardware")
    line = floorline(program, events, link_flits(program, spikes, "hardware"), 1)
    assert line.step_us * 1e-6 == pytest.approx(columns["sim_time"], rel=1e-12)


def test_synops_of_layers_add_up_to_those_of_cores():
    for network in (dense_net(5, 8, 3, recurrent=True), conv_net(groups=2, stride=2, padding=1)):
        cores = {n: np.arange(network.node(n).n_neurons) % 3 for n in network.layers}
        mapping = Mapping.from_arrays(cores, SITES)
        chip = small_chip()
        axons = build_axons(network, flat_cores(network, mapping), 3, chip)
        rng = np.random.default_rng(3)
        counts = {n: rng.integers(0, 4, (6, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
        activity = Activity(counts, 3)
        events = count_events(Program(network, feed_forward(network), mapping, chip, axons), activity)
        synops = synops_into(network, activity)
        assert sum(s.sum() for s in synops.values()) == events["synops"].sum() > 0
        per_core = sum(np.bincount(mapping.core_of[n], synops[n], 3) for n in network.layers)
        assert per_core.tolist() == events["synops"].sum(0).tolist()


def advice(given, cores=((0, 0, 0, 1, 1, 1), (2, 2)), flits=None, **overrides):
    chip = small_chip(**overrides)
    program = three_core_program(chip, cores=cores)
    return floorline(program, counters(**given), no_flits(chip) if flits is None else flits, 1).advice


def test_advice_for_a_memory_bound_layer_is_to_spread_it():
    # 20,000 cycles of synops on each core of fc1: 2 x 1000 + 20000 -> 2 x 1000 + 10000, one step without work
    got = advice({"synops_dense": [[0, 0, 0], [5000, 5000, 0]]})
    assert got == Advice("spread layer fc1 over 4 cores instead of 2 (n_cores=5)", pytest.approx(22000 / 12000))
    assert str(got) == "spread layer fc1 over 4 cores instead of 2 (n_cores=5): about 1.8x shorter step"


def test_advice_to_spread_must_be_worth_its_cores():
    # 16,000 of 22,000 cycles stay: half of fc1's 6,000 is saved by 2 cores more than 3, a gain of 22 / 19 < sqrt(5 / 3)
    given = {"synops_dense": [[0, 0, 0], [1500, 1500, 0]], "neuron_visits": [[0, 0, 0], [0, 0, 0]]}
    got = advice(given, cost__barrier_cycles={"1": 8000})
    assert "spread" not in str(got)


def test_advice_to_spread_is_given_from_the_root_of_the_cores_on():
    # 2 x 1000 + 4000 -> 2 x 1000 + 2000, a gain of 6 / 4 on 5 / 3 of the cores
    got = advice({"synops_dense": [[0, 0, 0], [1000, 1000, 0]]})
    assert got == Advice("spread layer fc1 over 4 cores instead of 2 (n_cores=5)", pytest.approx(6000 / 4000))


@pytest.mark.parametrize("n_cores, is_spread", [(None, False), (3, True)])
def test_advice_is_to_spread_only_where_a_person_chose_the_number_of_cores(n_cores, is_spread):
    chip = small_chip()
    program = replace(three_core_program(chip), manifest={"options": Options(n_cores=n_cores).to_dict()})
    busy = counters(synops_dense=[[0, 0, 0], [5000, 5000, 0]])
    assert ("spread" in str(floorline(program, busy, no_flits(chip), 1).advice)) == is_spread


def test_advice_counts_the_messages_that_spreading_adds():
    # fc1 sends all it has to fc2: on two cores instead of one, fc2 would make core 0 send 4000 messages, not 2000
    got = advice({"synops_dense": [[0, 0, 0], [0, 0, 5000]], "messages_out": [[0, 0, 0], [2000, 0, 0]]})
    assert got == Advice("train layer fc1 to half its spikes", pytest.approx(22000 / 12000))


def test_advice_for_uneven_cores_is_to_even_them_out():
    got = advice({"synops_dense": [[0, 0, 0], [9000, 1000, 0]]}, noc__rows=1, noc__cores_per_router=1)
    assert got == Advice("deal the work of layer fc1 evenly over its 2 cores", pytest.approx(38000 / 22000))


def test_advice_without_a_free_core_is_to_send_less():
    got = advice({"synops_dense": [[0, 0, 0], [5000, 5000, 0]]}, noc__rows=1, noc__cores_per_router=1)
    assert got == Advice("encode input 'in' with half the spikes", pytest.approx(22000 / 12000))
    got = advice({"messages_out": [[0, 0, 0], [4000, 4000, 0]]}, noc__rows=1, noc__cores_per_router=1)
    assert got == Advice("train layer fc1 to half its spikes", pytest.approx(22000 / 12000))


def test_advice_for_a_barrier_bound_step_is_fewer_tiles_or_fewer_steps():
    assert str(advice({})) == "run fewer steps per sample: the barrier is 100 % of each"
    packed = small_chip(cost__barrier_cycles={"1": 100, "2": 1000}, noc__cores_per_router=4)
    program = three_core_program(packed)
    assert floorline(program, counters(), no_flits(packed), 1).advice == Advice(
        "place the 3 cores on 1 tile instead of 2", pytest.approx(10)
    )


def test_advice_for_a_full_link_is_to_place_again_unless_it_is_a_core_s_own():
    for link, port_flits in ((5, 0), (5, 2000), (24, 0)):
        flits = no_flits(small_chip())
        flits[:, link] = 5000
        flits[:, 25] = port_flits
        cycles = 1000 + 5000, 1000 + port_flits  # per step: the barrier and the busiest link, before and after
        wanted = f'place again with optimize="traffic" (at best): about {cycles[0] / cycles[1]:.1f}x shorter step'
        assert (str(advice({}, flits=flits)) == wanted) == (link == 5), link


@pytest.mark.parametrize("execution", ["pipelined", "phased"])
@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_floorline_never_exceeds_the_measured_step_time(units, execution):
    for seed, slow_link in ((0, 1), (1, 40)):
        chip = small_chip(cost__units=units, noc__link_cycles_per_flit=slow_link, noc__cycle_ns=0.7)
        network = dense_net(12, 20, 9, recurrent=True, seed=seed)
        rng = np.random.default_rng(seed)
        cores = {n: rng.integers(0, 5, network.node(n).n_neurons) for n in network.layers}
        mapping = Mapping.from_arrays(cores, chip.sites[[0, 7, 3, 11, 4]])
        program = emit(network, schedule(network, execution), mapping, chip, None, {})
        run = simulate(program, rng.integers(0, 2, (3, 8, 12)), backend="cycle")
        line = floorline(program, run.counters, run.link_flits, run.n_samples)
        assert (line.bound_cycles <= run.step_cycles).all()
        assert 0.5 < bound_tightness(line.bound_cycles, run.step_cycles) <= 1


def test_link_is_busy_until_the_last_flit_of_a_sample_is_out_of_it():
    """Link 0 passes a flit on after 4 cycles."""
    chip, flits = small_chip(noc__link_cycles_per_flit=10), no_flits(small_chip(), 1)
    flits[:, 0] = 3
    assert [chip.family.link_busy(chip, flits, n_free)[0, 0] for n_free in (0, 1)] == [30, 10 + 10 + 4]
    assert not small_chip().family.link_busy(small_chip(), 0 * flits, 1).any()


def in_mode(chip: Chip, keys: dict) -> Chip:
    """The chip with those of the keys that its kind takes."""
    for key, value in keys.items():
        with suppress(ChipError):
            chip = chip.replace({key: value})
    return chip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if Chip.load(name).is_board else ())
        for name in Chip.names()
        if Chip.load(name).has_times
    ],
)
@settings(max_examples=n_drawn(10), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_floorline_never_exceeds_the_measured_time_of_any_chip_in_any_mode(name, data):
    """Weights of 1 and a threshold below it: most neurons fire, so that links, too, are what takes longest."""
    one_of = {
        "cost.sync": ["neighbors", "barrier"],
        "cost.units": ["overlap", "shared"],
        "noc.multicast": ["unicast", "tree"],
        "noc.flits_per_message": [1, 3],
        "noc.link_cycles_per_flit": [1, 7, 60],
        "noc.cycle_ns": [0.7, 5.0],
        "noc.buffer_flits": [1, 4],
    }
    chip = in_mode(Chip.load(name), {key: data.draw(st.sampled_from(values), key) for key, values in one_of.items()})
    n = data.draw(st.integers(2, 6), "neurons")
    spec = NeuronSpec(threshold=0.5, beta=1.0, reset=chip.neuron.reset[0])
    edges = [Dense(here, there, np.ones((n, n), np.float32)) for here, there in (("in", "a"), ("a", "b"))]
    options = Options(
        seed=data.draw(st.integers(0, 9), "seed"), partitioner="sequential", placer="random",
        n_cores=data.draw(st.integers(2, 3) if chip.n_cores > 2 else st.just(1), "cores"), on_multi_spike="repeat",
    )  # fmt: skip
    program = compile(Network.from_arrays({"a": (spec, n), "b": (spec, n)}, edges, {"in": n}), chip, options=options)
    run = simulate(program, np.ones((2, 3, n)), backend="cycle")
    bound, measured = floorline(program, run.counters, run.link_flits, run.n_samples).bound_cycles, run.step_cycles
    if not chip.family.has_barrier:
        bound, measured = bound.cumsum(), measured.cumsum()
    assert (bound <= measured).all()


def test_tightness_is_the_bound_over_the_measured_time():
    assert bound_tightness(np.array([30, 60]), np.array([40, 80])) == 0.75


def test_link_name_says_where_a_link_is():
    chip = small_chip()
    assert [link_name(chip, i) for i in (0, 5, 23, 24 + 3, 36 + 11)] == [
        "(0, 0) E", "(1, 0) W", "(2, 1) S", "(1, 0) port 1 inject", "(2, 1) port 1 eject"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "last, layer", [("copy2", "fc1"), ("relay1", "fc1"), ("splitter", "fc1"), ("gates", None), ("part1", None)]
)
def test_advice_names_layers_of_the_user(last, layer):
    """A layer of the compiler's, with most messages, has the spikes of one of the user's, or is not trained at all."""
    chip = small_chip(noc__rows=1, noc__cores_per_router=1)
    spec = NeuronSpec(threshold=64, fixed=FixedPoint(), decay_v=4096)
    inserted = f"fc1/{last}"
    edges = [Dense("in", "fc1", np.ones((2, 1), np.int8)), Dense("in", inserted, np.ones((2, 1), np.int8))]
    edges += [Dense("fc1", "fc2", np.ones((2, 2), np.int8)), Dense(inserted, "fc2", np.ones((2, 2), np.int8))]
    network = Network.from_arrays({"fc1": (spec, 2), inserted: (spec, 2), "fc2": (spec, 2)}, edges, {"in": 1})
    cores = {"fc1": [0, 0], inserted: [1, 1], "fc2": [2, 2]}
    mapping = Mapping.from_arrays(cores, [[0, 0, 0], [1, 0, 0], [2, 0, 0]])
    program = emit(network, schedule(network), mapping, chip, None, {})
    busy = counters(messages_out=[[0, 0, 0], [0, 9000, 0]])
    text = str(floorline(program, busy, no_flits(chip), 1).advice)
    assert text.startswith("train layer fc1 to half its spikes" if layer else "none")
