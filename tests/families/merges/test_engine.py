"""Routers that are merges: every packet of RANC's recorded RTL runs in its cycle."""

import numpy as np
import pytest

from nwcompile.errors import BackendError, ChipError, OptionError
from nwcompile.families.merges.engine import verify_packets
from nwcompile.families.merges.packets import trace_packets
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.options import Options
from nwcompile.kernels.cores.tables import FanOut
from nwcompile.report.json.traffic import collect_dropped
from nwcompile.sim import simulate
from nwcompile.sim.cycle.noc import replay_packets
from nwcompile.sim.inputs import prepare_inputs
from tests.made.nets import dense_net, float_net, registers_as_inputs
from tests.made.ranc_cases import CASES, PLAIN, bus, case, recorded_input, recorded_program


def given(program, rtl: dict) -> dict[str, np.ndarray]:
    return prepare_inputs(program.network, recorded_input(rtl), None, program.chip, "refuse")[0]


def sent_by_neurons(done, program, numbers, rtl: dict) -> np.ndarray:
    """int64[packet, 5]: tick, core * N + slot, cycle sent, cycle written, lost; by tick and neuron."""
    n_lines = program.network.inputs["in"].n_neurons
    number = np.concatenate([numbers[name] for name in program.network.layers])
    ours = done.source >= n_lines
    table = np.stack(
        [done.step - 1, number[np.maximum(done.source - n_lines, 0)], done.sent, done.written, done.lost], 1
    )[ours]
    return table[np.lexsort((table[:, 1], table[:, 0]))]


def recorded_packets(rtl: dict) -> np.ndarray:
    """The same of the RTL."""
    tick, core, neuron, *_, sent, written, lost = rtl["packets"][rtl["packets"][:, 1] >= 0].T
    table = np.stack([tick, core * rtl["N"] + neuron, sent, written, lost], 1)
    return table[np.lexsort((table[:, 1], table[:, 0]))]


@pytest.mark.parametrize("name", [*PLAIN, "five_8x8_lost"])
def test_cycle_gives_every_recorded_spike_membrane_and_packet(name):
    rtl = case(name)
    program, numbers = recorded_program(rtl)
    run = simulate(program, recorded_input(rtl), "cycle", record="all")
    for layer, ids in numbers.items():
        spikes, v = (rtl[key].reshape(rtl["T"], -1)[:, ids] for key in ("rtl_spike", "rtl_v"))
        assert np.array_equal(run.spikes[layer][0], spikes) and np.array_equal(run.states[layer]["v"][0], v), layer
    assert run.n_dropped == rtl["packets"][:, 9].sum()
    done = trace_packets(program, given(program, rtl), rtl["T"])
    assert np.array_equal(sent_by_neurons(done, program, numbers, rtl), recorded_packets(rtl))


@pytest.mark.parametrize("name", CASES)
def test_packets_of_recorded_spikes_and_scans_keep_the_recorded_cycles(name):
    """Also where axons are shared by neurons with delays of their own, which no program here does."""
    rtl = case(name)
    program, numbers = recorded_program(rtl)
    spikes = np.zeros((rtl["T"], len(program.core_of) - rtl["A"] * rtl["X"] * rtl["Y"]), np.int32)
    number = np.concatenate([numbers[layer] for layer in program.network.layers])
    spikes[:] = rtl["rtl_spike"].reshape(rtl["T"], -1)[:, number]
    done = trace_packets(program, given(program, rtl), rtl["T"], spikes)
    table = sent_by_neurons(done, program, numbers, rtl)
    assert np.array_equal(table, recorded_packets(rtl))
    n, visit = rtl["N"], rtl["A"] + 2
    plan = 1 + (np.arange(n) + 1) * visit
    held = np.zeros((rtl["T"], rtl["X"] * rtl["Y"], n), np.int64)  # how long the scan had been held at each slot
    core, slot = table[:, 1] // n, table[:, 1] % n
    held[table[:, 0], core, slot] = table[:, 2] - plan[slot]
    held = np.maximum.accumulate(held, 2)
    cores = np.arange(rtl["X"] * rtl["Y"]) != bus(rtl)
    assert np.array_equal((plan + held)[:, cores], rtl["writeback_cycle"][:, cores])
    assert np.array_equal((plan + held)[:, cores, -1] + 2, rtl["clear_cycle"][:, cores])


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("five")])
def test_packets_of_the_host_take_the_recorded_cycles(name):
    """But for the four runs whose host packets come with delays and in an order of their own, which no program has."""
    rtl = case(name)
    program, _ = recorded_program(rtl)
    done = trace_packets(program, given(program, rtl), rtl["T"])
    of_host = done.source < program.network.inputs["in"].n_neurons
    ours = np.stack([done.step, done.source, done.written - done.sent], 1)[of_host]
    tick, core, _, target, axon, *_, sent, written, _ = rtl["packets"][rtl["packets"][:, 1] < 0].T
    wanted = np.stack([tick, target * rtl["A"] + axon, written - sent], 1)
    assert len(ours) and np.array_equal(np.unique(ours, axis=0), np.unique(wanted, axis=0))


def test_packet_that_is_late_at_a_short_period_is_told_with_the_period_that_avoids_it():
    rtl = case("grid3x3_congested")
    program, _ = recorded_program(rtl)
    done = trace_packets(program, given(program, rtl), rtl["T"])
    assert not done.is_late(done.period_cycles).any() and done.is_late(done.period_cycles - 1).sum() >= 1
    assert done.period_cycles == simulate(program, recorded_input(rtl), "cycle").step_cycles.max()


@pytest.mark.parametrize(
    "change, text",
    [
        ({"noc.virtual_channels": 2},
         'noc.virtual_channels: with noc.router = "merges" there is none, FIFOs are joined by merges; leave it out'),
        ({"noc.hop_cycles_ew": 3}, 'noc.hop_cycles_ew: with noc.router = "merges" it is 2, not 3'),
        ({"cost.update_cycles": 1}, 'cost.update_cycles: with noc.router = "merges" it is 0, not 1'),
        ({"cost.visits": None}, 'cost.visits: with noc.router = "merges" it is all, not None'),
        ({"cost.visit_cycles": 1}, 'cost.visit_cycles: noc.router = "merges" needs 2 or more, not 1'),
        ({"io.sites": ["0,0,0", "1,0,0"]}, 'io.sites: noc.router = "merges" needs the one place where spikes leave'),
    ],
)  # fmt: skip
def test_chip_with_merges_refuses_what_they_are_not(change, text):
    with pytest.raises(ChipError) as error:
        Chip.load("ranc").replace(change)
    assert str(error.value) == f"ranc: {text}"


def test_packets_of_a_program_with_registers_number_its_own_neurons():
    x = np.random.default_rng(0).random((1, 1, 6)).astype(np.float32).repeat(8, 1)
    program = compile(float_net(6, 4, 3, beta=1.0), "ranc", x, Options(input_layer="bias"))
    given, bare = prepare_inputs(program.network, x, None, program.chip)[0], registers_as_inputs(program)
    done, wanted = trace_packets(program, given, 8), trace_packets(bare, given, 8)
    assert np.array_equal(done.source, wanted.source - 4) and len(done.source)


def test_packets_are_followed_on_merges_only():
    program = compile(dense_net(2, 3), "tiny")
    with pytest.raises(OptionError, match='packets are followed on chips with noc.router = "merges"'):
        trace_packets(program, {"in": np.ones((1, 3, 2), np.int32)}, 3)


def test_merges_refuse_packets_without_a_network_and_profiles():
    with pytest.raises(OptionError, match="packets can only be simulated together with a network"):
        replay_packets(Chip.load("ranc"), [0], [0], [1], [1])
    rtl = case("one_neuron")
    program, _ = recorded_program(rtl)
    with pytest.raises(BackendError, match="writes when each packet is sent and arrives"):
        simulate(program, recorded_input(rtl), "cycle", profile=True)


def test_neuron_that_would_send_two_packets_is_refused():
    program, _ = recorded_program(case("one_neuron"))
    two_each = FanOut(offset=2 * np.arange(len(program.core_of) + 1), sent=np.zeros(0), root=np.zeros(0))
    with pytest.raises(BackendError) as error:
        verify_packets(program, two_each)
    assert str(error.value) == (
        "a spike is one packet on ranc, and source 16 sends 2; compile the network for this chip, with its "
        "core.max_neuron_destinations = 1"
    )


def test_report_says_why_packets_were_lost():
    rtl = case("five_8x8_lost")
    program, _ = recorded_program(rtl)
    run = simulate(program, recorded_input(rtl), "cycle")
    text = collect_dropped(program, run)["text"]
    assert text.startswith("dropped because they came when their core cleared its axons: 7 messages per sample, ")
