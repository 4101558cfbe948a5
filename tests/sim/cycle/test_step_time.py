"""Step times of the cycle backend against times worked out by hand: units, clocks, barriers, phases, back-pressure."""

import numpy as np
import pytest

from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate
from tests.made.chips import COST, small_chip
from tests.made.nets import FIXED

VISIT, UPDATE, SPIKE, SEND = 6, 4, 30, 5  # of small_chip
FIRE = VISIT + UPDATE + SPIKE
WAY = 2 + 4 + 4 + 3  # injection, two hops east, ejection
ONE_NEURON = 16 + 1 + 4  # a message with a word of one synapse
TWO_NEURONS = 16 + 1 + 2 * 4


def step_cycles(x, *, n_b=2, execution="pipelined", sites=((0, 0, 0), (2, 0, 0)), **chip):
    """An input line makes a neuron of `a` on core 0 fire, that one `n_b` neurons of `b` on core 1; x is one sample."""
    edges = [Dense("in", "a", np.array([[2]], np.int8)), Dense("a", "b", np.full((n_b, 1), 2, np.int8))]
    network = Network.from_arrays({"a": (FIXED, 1), "b": (FIXED, n_b)}, edges, {"in": 1})
    mapping = Mapping.from_arrays({"a": [0], "b": [1] * n_b}, np.array(sites))
    free = {"cost__barrier_cycles": {"1": 0}} if "cost__barrier_cycles" not in chip else {}
    program = emit(network, schedule(network, execution), mapping, small_chip(**chip, **free), None, {})
    return simulate(program, np.array(x).reshape(1, -1, 1), "cycle").step_cycles.tolist()


def test_sides_that_overlap_take_the_longer_one():
    # the message comes; a fires and b receives; b fires
    assert step_cycles([1]) == [ONE_NEURON, FIRE + SEND + WAY + TWO_NEURONS, 2 * FIRE]
    # a receives while it fires
    assert step_cycles([1, 1])[1] == FIRE + SEND + WAY + TWO_NEURONS


def test_sides_that_share_a_unit_take_one_after_the_other():
    shared = {"cost__units": "shared"}
    assert step_cycles([1], **shared) == [ONE_NEURON + VISIT, FIRE + SEND + WAY + TWO_NEURONS, 2 * FIRE]
    # receiving comes first
    assert step_cycles([1, 1], **shared)[1] == ONE_NEURON + FIRE + SEND + WAY + TWO_NEURONS


@pytest.mark.parametrize(("units", "begins"), [("overlap", FIRE + SEND + WAY), ("shared", 10 * VISIT)])
def test_a_shared_unit_receives_when_its_piece_of_work_is_done(units, begins):
    """The message is there two cycles before core 1 has visited its ten neurons."""
    assert FIRE + SEND + WAY == 10 * VISIT - 2
    assert step_cycles([1], n_b=10, cost__units=units)[1] == begins + 16 + 2 + 10 * 4


def test_clocks_of_cores_and_network_differ():
    assert step_cycles([1], noc__cycle_ns=0.5)[1] == -(-(2 * (FIRE + SEND + TWO_NEURONS) + WAY) // 2)
    assert step_cycles([1], core__cycle_ns=0.5)[1] == FIRE + SEND + 2 * WAY + TWO_NEURONS
    assert step_cycles([1], core__cycle_ns=1.5)[1] == -(-(3 * (FIRE + SEND + TWO_NEURONS) + 2 * WAY) // 3)


@pytest.mark.parametrize(
    ("sites", "barrier"),
    [
        ([[0, 0, 0], [0, 0, 1]], 600),
        ([[0, 0, 0], [1, 0, 0]], 1000),
        ([[0, 0, 0], [1, 0, 0], [2, 0, 1]], 1000),
        ([[0, 0, 0], [1, 0, 0], [2, 0, 1], [2, 1, 0]], 1700),
        ([[0, 0, 0], [1, 0, 0], [2, 0, 1], [2, 1, 0], [2, 1, 1]], 1700),
    ],
)
def test_the_barrier_is_the_entry_of_the_largest_key_up_to_the_tiles_in_use(sites, barrier):
    table = {"1": 600, "2": 1000, "4": 1700}
    assert step_cycles([0], sites=sites, cost__barrier_cycles=table)[0] == 2 * VISIT + barrier


def test_phases_follow_one_another_with_a_barrier_each():
    table = COST["barrier_cycles"]
    pipelined = step_cycles([1], cost__barrier_cycles=table)
    phased = step_cycles([1], execution="phased", cost__barrier_cycles=table)
    assert pipelined == [1000 + ONE_NEURON, 1000 + FIRE + SEND + WAY + TWO_NEURONS, 1000 + 2 * FIRE]
    assert phased == [sum(pipelined)]
    # only the layer whose phase it is visits its neurons; the input's phase has none
    assert step_cycles([0], execution="phased", cost__barrier_cycles=table) == [3000 + VISIT + 2 * VISIT]


def test_no_step_is_shorter_than_the_chips_shortest():
    table, length = {"1": 40, "3": 900}, step_cycles([1])
    assert length[0] < 40 < length[1]
    assert step_cycles([1], cost__min_step_cycles=table) == [max(n, 40) for n in length]
    least = 40 + 1000  # the barrier is a part of the step, and so are the phases' three
    timed = {"cost__barrier_cycles": {"1": 1000}, "cost__min_step_cycles": {"1": least}}
    assert step_cycles([1], **timed) == [1000 + max(n, 40) for n in length]
    assert step_cycles([0], execution="phased", **timed) == [3 * least]
    assert step_cycles([0], cost__barrier_cycles={"1": 1000}, cost__min_step_cycles=table)[0] == 1000 + 2 * VISIT


def test_a_core_may_be_faster_than_others():
    synop = [4] * 12
    synop[4] = 1  # port 0 of router (2, 0), where b is
    assert step_cycles([1], cost__synop_dense_cycles=synop)[:2] == [ONE_NEURON, FIRE + SEND + WAY + TWO_NEURONS - 2 * 3]


def test_a_sample_takes_its_way_in_and_out_once():
    length = step_cycles([1, 0, 1])
    assert step_cycles([1, 0, 1], cost__sample_cycles=700) == [length[0] + 700, *length[1:]]


@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_phased_execution_pays_its_phases_in_every_step_and_sample(units):
    step = ONE_NEURON + FIRE + SEND + WAY + TWO_NEURONS + 2 * FIRE
    assert step_cycles([1, 1, 1], execution="phased", cost__units=units) == [step] * 3


@pytest.mark.parametrize("buffer_flits", [1, 8])
def test_a_slow_receiver_paces_the_step_whatever_the_buffers_hold(buffer_flits):
    """Twenty messages, one every 5 cycles, to a core that takes 25 for each."""
    edges = [Dense("in", "a", np.full((20, 1), 2, np.int8)), Dense("a", "b", np.full((2, 20), 2, np.int8))]
    network = Network.from_arrays({"a": (FIXED, 20), "b": (FIXED, 2)}, edges, {"in": 1})
    mapping = Mapping.from_arrays({"a": [0] * 20, "b": [1, 1]}, [[0, 0, 0], [2, 0, 0]])
    free = {f"cost__{event}_cycles": 0 for event in ("visit", "update", "spike")}
    chip = small_chip(**free, cost__barrier_cycles={"1": 0}, noc__buffer_flits=buffer_flits)
    program = emit(network, schedule(network), mapping, chip, None, {})
    run = simulate(program, np.array([[[1], [0]]]), "cycle", profile=True)
    assert run.step_cycles[1] == SEND + WAY + 20 * TWO_NEURONS
    # places on the way: the injection buffer, an input buffer in each of two routers, the receive queue
    sent_early = 4 * buffer_flits
    stalled = run.profile.stall_cycles[1]
    assert stalled[1] == 0
    assert (stalled[0] > 0) == (sent_early < 20 * 4 // 5)
