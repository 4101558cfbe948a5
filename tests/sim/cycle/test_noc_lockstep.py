"""Packets cycle by cycle and event by event: both kernels give every packet the same cycles, in any network."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile.ir.noc.routing import EAST, HERE, NORTH, SOUTH, WEST
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.mesh import RouteTable
from nwcompile.sim.cycle import noc
from nwcompile.sim.cycle.lockstep import fits_lockstep
from nwcompile.sim.cycle.noc_tables import build_mesh
from tests.made.chips import small_chip

TRAFFIC = ("random", "burst", "all to one", "few")
ROUTINGS = ("xy", "yx", "west-first", "odd-even", "up-down")


@st.composite
def chips(draw):
    keys = {name: draw(st.integers(low, high)) for name, low, high in (
        ("columns", 1, 5), ("rows", 1, 5), ("cores_per_router", 1, 4), ("virtual_channels", 1, 5),
        ("buffer_flits", 1, 9), ("hop_cycles_ew", 1, 6), ("hop_cycles_ns", 1, 6), ("inject_cycles", 1, 4),
        ("eject_cycles", 1, 70), ("credit_cycles", 1, 6), ("route_cycles", 0, 3),
        ("link_cycles_per_flit", 1, 3))}  # fmt: skip
    keys |= {"speculative": draw(st.booleans()), "routing": draw(st.sampled_from(ROUTINGS))}
    if keys["routing"] == "up-down" or keys["routing"] in ("xy", "yx") and keys["virtual_channels"] > 1:
        keys["topology"] = draw(st.sampled_from(["mesh", "torus"]))
    if keys["routing"] == "up-down" and keys["columns"] > 1 < keys["rows"] and draw(st.booleans()):
        keys["faults"] = draw(st.sampled_from([["0,0"], ["0,0-1,0"]]))
    if draw(st.booleans()):
        slow = draw(st.sampled_from([1, 4]))
        keys |= {"chip_columns": draw(st.integers(1, 3)), "chip_hop_cycles": 11, "chip_link_cycles_per_flit": slow}
    return small_chip(**{f"noc__{name}": value for name, value in keys.items()})


def packets(c, traffic, seed, n=400):
    """(time, src, dst, size) of packets that come in no order of time."""
    rng = np.random.default_rng(seed)
    cores = np.flatnonzero(c.limit("max_neurons"))
    src, dst = rng.choice(cores, (2, n))
    span = {"random": n, "burst": 1, "all to one": n // 4, "few": 100 * n}[traffic]
    size = rng.integers(1, rng.integers(2, 7), n)
    return rng.integers(0, span, n), src, np.full(n, dst[0]) if traffic == "all to one" else dst, size


def both(c, listed, last=NEVER):
    """The same packets by the kernel that is chosen for them, and event by event."""
    return [noc.replay_packets(c, *listed, last), by_events(c, listed, last)]


def by_events(c, listed, last):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noc, "fits_lockstep", lambda mesh: False)
        return noc.replay_packets(c, *listed, last)


def assert_same(one, other):
    for name in ("inject", "arrive", "hops", "link_flits"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


@given(chips(), st.sampled_from(TRAFFIC), st.integers(0, 99))
def test_every_packet_has_the_cycles_of_the_events(c, traffic, seed):
    assert fits_lockstep(build_mesh(c))
    assert_same(*both(c, packets(c, traffic, seed)))


@given(chips(), st.sampled_from(TRAFFIC), st.integers(0, 99), st.integers(0, 200))
def test_a_replay_that_is_cut_off_stands_where_the_events_do(c, traffic, seed, last):
    assert_same(*both(c, packets(c, traffic, seed), last))


@pytest.mark.parametrize("n_vcs", [1, 4])
def test_a_mesh_in_overload_and_all_to_one(n_vcs):
    keys = {"noc.columns": 6, "noc.buffer_flits": 4, "noc.virtual_channels": n_vcs}
    c = nw.Chip.load("mesh_spec").replace(keys)
    for dst in (None, 21):
        rng = np.random.default_rng(1)
        made, src = np.nonzero(rng.random((300, c.n_cores)) < 0.7)
        to = rng.integers(0, c.n_cores, len(made)) if dst is None else np.full(len(made), dst)
        assert_same(*both(c, (made, src, to, rng.integers(1, 3, len(made)))))


def test_flits_that_wait_for_each_other_in_a_circle_end_a_replay(monkeypatch):
    """No routing of ours does so: here every message goes round clockwise until it is there."""
    c = small_chip(noc__columns=2, noc__cores_per_router=1, noc__buffer_flits=1)
    mesh = build_mesh(c)
    route = np.where(np.eye(4), HERE, np.array([[EAST], [NORTH], [SOUTH], [WEST]])).astype(np.uint8)
    router = np.arange(4, dtype=np.int32)
    routes = RouteTable(router * 4, router, route.reshape(-1))
    monkeypatch.setattr(noc, "build_mesh", lambda chip: mesh._replace(routes=routes))
    src = np.tile(np.arange(4), 50)
    lists, events = both(c, (np.zeros(200, int), src, 3 - src, np.ones(200, int)))
    assert_same(lists, events)
    assert 0 < (lists.arrive < 0).sum()


def test_one_cycle_of_credit_more_is_seen():
    """The comparison can fail: a burst into one core waits for slots, and they come back a cycle later."""
    c, late = (small_chip(noc__buffer_flits=2, noc__credit_cycles=cycles) for cycles in (2, 3))
    listed = packets(c, "all to one", 0)
    with pytest.raises(AssertionError):
        assert_same(noc.replay_packets(c, *listed), by_events(late, listed, NEVER))


OTHERS = [
    {"link_cycles_per_flit": 9},
    {"chip_columns": 1, "chip_link_cycles_per_flit": 9},
    {"hop_cycles_ew": 1 << 20},
]


@pytest.mark.parametrize("keys", OTHERS)
def test_other_networks_go_event_by_event(keys):
    assert fits_lockstep(build_mesh(small_chip()))
    assert not fits_lockstep(build_mesh(small_chip(**{f"noc__{name}": value for name, value in keys.items()})))
