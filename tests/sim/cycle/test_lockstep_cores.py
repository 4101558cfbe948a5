"""Cores cycle by cycle and event by event: both give every count, time and flit alike, or fail with the same words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.errors import BackendError, ChipError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.noc.routing import HERE
from nwcompile.ir.program import Program
from nwcompile.kernels.noc.mesh import RouteTable
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate
from nwcompile.sim.cycle import engine
from nwcompile.sim.cycle.lockstep import SLOWEST_LINK
from nwcompile.sim.cycle.noc_tables import build_mesh
from nwcompile.sim.cycle.run import ChipRun
from tests.made.chips import small_chip
from tests.made.nets import FIXED
from tests.made.programs import with_keys
from tests.made.random_programs import SIXTY, chips, inputs, programs

QUICK = {f"cost__{work}_cycles": 0 for work in ("visit", "update", "spike", "message_out")}
SINGLE = {"virtual_channels": 1, "flits_per_message": 1, "payload_flits": 0, "multicast": "unicast"}


@st.composite
def chips_in_lockstep(draw) -> Chip:
    """Random chips with one channel, messages of one flit, cores with sides of their own; some receive slowly."""
    table = draw(chips()).to_dict()
    table["io"] = {}
    table["cost"] |= {"units": "overlap", "message_in_cycles": draw(st.sampled_from([1, 3, 50]))}
    noc = table["noc"] | SINGLE | {"topology": "mesh", "cycle_ns": draw(st.sampled_from([1.0, 0.5]))}
    noc |= {"speculative": draw(st.booleans()), "route_cycles": draw(st.integers(0, 2))}
    if draw(st.booleans()):
        noc |= {"link_cycles_per_flit": 1, "chip_link_cycles_per_flit": None}
    elif noc.get("chip_link_cycles_per_flit"):
        noc["chip_link_cycles_per_flit"] = min(noc["chip_link_cycles_per_flit"], SLOWEST_LINK)
    try:
        return Chip.from_dict(table | {"noc": noc})
    except ChipError:  # without the links of a torus a router is cut off
        noc.pop("faults")
        return Chip.from_dict(table | {"noc": noc})


def is_in_lockstep(program: Program) -> bool:
    return ChipRun(program, 1, 1, "aligned").is_in_lockstep


def attempt(*args, **options):
    try:
        return simulate(*args, **options)
    except BackendError as error:
        return str(error)


def both(program: Program, x, **options) -> list:
    """The Run or error by the kernel that is chosen, and event by event."""
    one = attempt(program, x, "cycle", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "cores_fit_lockstep", lambda *_: False)
        return [one, attempt(program, x, "cycle", **options)]


def assert_same(one, other):
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    for name in ("step_cycles", "link_flits"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    for name, counts in one.counters.items():
        np.testing.assert_array_equal(counts, other.counters[name], name)
    for name, spikes in one.spikes.items():
        np.testing.assert_array_equal(spikes, other.spikes[name], name)
    for name, states in one.states.items():
        for state, values in states.items():
            np.testing.assert_array_equal(values, other.states[name][state], name)
    assert one.energy_pj == other.energy_pj


@SIXTY
@given(data=st.data(), record=st.sampled_from(["all", "totals"]))
def test_every_count_time_and_flit_is_that_of_the_events(data, record):
    program = data.draw(programs(chips_in_lockstep))
    assert is_in_lockstep(program)
    assert_same(*both(program, data.draw(inputs(program)), record=record))


@SIXTY
@given(data=st.data())
def test_a_step_is_too_long_when_it_is_by_events_and_is_told_in_the_same_words(data):
    program = data.draw(programs(chips_in_lockstep))
    x = data.draw(inputs(program))
    longest = int(simulate(program, x, "cycle").step_cycles.max())
    assert_same(*both(with_keys(program, **{"noc.max_step_cycles": data.draw(st.integers(1, longest))}), x))


@SIXTY
@given(data=st.data(), n_threads=st.integers(2, 3))
def test_threads_change_nothing(data, n_threads):
    program = data.draw(programs(chips_in_lockstep))
    x = data.draw(inputs(program))
    found = []
    for n in (1, n_threads):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.sched_getaffinity", lambda _, n=n: set(range(n)))
            found.append(simulate(program, x, "cycle", record="all"))
    assert_same(*found)


def square(n=8, **keys) -> Program:
    """Four cores in a square, each sends to the three others, other neurons of it in each step; buffers of one flit."""
    names, rng = "abcd", np.random.default_rng(1)
    edges = [Dense("in", name, rng.choice([0, 2], (n, n)).astype(np.int8)) for name in names]
    edges += [Dense(a, b, np.ones((n, n), np.int8), delay=4) for a in names for b in names if a != b]
    network = Network.from_arrays(dict.fromkeys(names, (FIXED, n)), edges, {"in": n})
    sites = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
    chip = small_chip(noc__columns=2, noc__rows=2, noc__buffer_flits=1, **keys)
    core_of = {name: [k] * n for k, name in enumerate(names)}
    return emit(network, schedule(network, "phased"), Mapping.from_arrays(core_of, sites), chip, None, {})


def spikes_in(n_steps=8) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 2, (1, n_steps, 8)).astype(np.int8)


@pytest.mark.parametrize("link", [1, 2, 8])
def test_a_crowd_in_the_smallest_buffers_has_the_times_of_the_events(link):
    """Flits meet at the outputs, and a link may be busy when its core has the next message; turns begin anew."""
    program = square(**QUICK, noc__link_cycles_per_flit=link)
    assert is_in_lockstep(program)
    one, other = both(program, spikes_in())
    assert one.link_flits.sum() > 500
    assert_same(one, other)


@pytest.mark.parametrize("link", [1, 8])
@pytest.mark.parametrize("speculative", [True, False])
def test_who_went_first_in_one_step_has_no_turn_to_wait_for_in_the_next(link, speculative, monkeypatch):
    """Two messages meet at a link; to which core the first one goes, with much or little work, shows in the time."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})  # with two threads the steps have networks of their own
    edges = [Dense("in", "a", np.array([[2, 0]], np.int8)), Dense("in", "b", np.array([[0, 2]], np.int8))]
    edges += [Dense("a", "c", np.ones((50, 1), np.int8)), Dense("b", "d", np.ones((1, 1), np.int8))]
    sizes = {"a": 1, "b": 1, "c": 50, "d": 1}
    network = Network.from_arrays({name: (FIXED, n) for name, n in sizes.items()}, edges, {"in": 2})
    chip = small_chip(
        **QUICK, noc__columns=2, noc__rows=1, noc__cores_per_router=2, noc__link_cycles_per_flit=link,
        noc__speculative=speculative,
    )  # fmt: skip
    sites = [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]
    mapping = Mapping.from_arrays({"a": [0], "b": [1], "c": [2] * 50, "d": [3]}, sites)
    program = emit(network, schedule(network), mapping, chip, None, {})
    assert is_in_lockstep(program)
    found = []
    for first in ([0, 0], [1, 0], [0, 1], [1, 1]):
        one, other = both(program, np.array([[first, [1, 1]]], np.int8))
        assert_same(one, other)
        found.append(one.step_cycles[2])
    assert len(set(found)) == 1


@pytest.mark.parametrize("spike", [10, 300, 5_000, 100_000])
def test_cores_that_work_long_before_a_message_wake_in_time(spike):
    """Beyond the rows of the agenda, and beyond the blocks in which they wait for that."""
    program = square(**QUICK | {"cost__spike_cycles": spike, "cost__visit_cycles": 7}, noc__link_cycles_per_flit=2)
    one, other = both(program, spikes_in(3))
    assert one.step_cycles.max() > spike
    assert_same(one, other)


def test_every_limit_of_a_step_is_passed_at_the_same_flit():
    program, x = square(**QUICK), spikes_in(1)
    for limit in range(1, 300, 7):
        one, other = both(with_keys(program, **{"noc.max_step_cycles": limit}), x)
        assert_same(one, other)
        assert limit > 8 or isinstance(one, str)


def test_messages_that_wait_for_each_other_are_stuck_in_the_same_words(monkeypatch):
    """All go round the square in one direction, however far: a circle in one channel."""

    def turned(chip, tick):
        mesh = build_mesh(chip, tick)
        onward = (chip.grid.neighbor == np.array([1, 3, 0, 2])[:, None]).argmax(1)
        router, core = np.arange(4, dtype=np.int32), np.arange(8, dtype=np.int32)
        is_here = router[:, None] == core // 2
        route = np.where(is_here, HERE + core % 2, onward[:, None]).astype(np.uint8)
        return mesh._replace(routes=RouteTable(router * 8, core, route.reshape(-1)))

    monkeypatch.setattr(engine, "build_mesh", turned)
    one, other = both(square(), spikes_in())
    assert one == other
    assert "messages got stuck" in one


@pytest.mark.parametrize(
    "keys",
    [
        {"noc.virtual_channels": 2},
        {"noc.flits_per_message": 2},
        {"noc.multicast": "tree"},
        {"noc.on_full": "drop"},
        {"cost.units": "shared"},
        {"noc.cycle_ns": 1.5},
        {"noc.link_cycles_per_flit": 9},
        {"cost.message_in_cycles": 0, "cost.word_cycles": 0, "cost.synop_dense_cycles": 0},
        {"io.sites": ["0,0,1"]},
    ],
    ids=lambda keys: next(iter(keys)),
)
def test_what_lockstep_does_not_do_goes_event_by_event(keys):
    program = square()
    assert is_in_lockstep(program) and not is_in_lockstep(with_keys(program, **keys))


def test_a_run_that_is_profiled_goes_event_by_event_and_takes_as_long():
    program, x = square(), spikes_in()
    profiled, plain = simulate(program, x, "cycle", profile=True), simulate(program, x, "cycle")
    assert profiled.profile.latency_count.sum() > 0
    assert_same(profiled, plain)
