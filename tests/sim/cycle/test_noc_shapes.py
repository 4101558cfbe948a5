"""Every topology and routing: under load no packet is lost, doubled or stuck; alone, one takes as long as its way."""

import numpy as np
import pytest

from nwcompile.errors import OptionError
from nwcompile.ir.noc.routing import count_hops, find_chip_crossings, list_route_links
from nwcompile.sim.cycle.noc import offer_load, replay_packets
from tests.long import EXAMPLES
from tests.made.layouts import LAYOUTS, chip_of_layout, usable

N_PACKETS = 3000
TRAFFIC = ("random", "tornado", "complement", "all to one")
FLIT_HOPS = 200_000 * EXAMPLES  # 1e8 in `make test-long`, 5e6 in CI


def targets(c, traffic, src, rng):
    """Random; half way round in both directions; across to the far corner; all to one core."""
    noc, router = c.noc, src // c.noc.cores_per_router
    x, y, port = router % noc.columns, router // noc.columns, src % noc.cores_per_router
    if traffic == "tornado":
        x, y = (x + noc.columns // 2) % noc.columns, (y + noc.rows // 2) % noc.rows
    if traffic == "complement":
        x, y = noc.columns - 1 - x, noc.rows - 1 - y
    if traffic == "all to one":
        x = y = port = np.zeros_like(x) + 1
    dst = (y * noc.columns + x) * noc.cores_per_router + port
    at_random = rng.choice(usable(c), len(src))
    return at_random if traffic == "random" else np.where(np.isin(dst, usable(c)), dst, at_random)


@pytest.mark.parametrize("traffic", TRAFFIC)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_packet_arrives_once_through_the_smallest_buffers(layout, traffic):
    rng = np.random.default_rng(len(layout))
    for size in (np.ones(N_PACKETS, int), rng.integers(1, 7, N_PACKETS)):
        c = chip_of_layout(layout, buffer_flits=1)
        src = rng.choice(usable(c), N_PACKETS)
        dst = targets(c, traffic, src, rng)
        done = replay_packets(c, rng.integers(0, 50, N_PACKETS), src, dst, size)
        assert (done.arrive >= 0).all()
        np.testing.assert_array_equal(done.hops, count_hops(c.grid, src // 2, dst // 2).sum(1))
        flits = np.zeros_like(done.link_flits)
        offset, link = list_route_links(c.grid, src // 2, dst // 2)
        np.add.at(flits, link, np.repeat(size, np.diff(offset)))
        np.add.at(flits, 100 + src, size)
        np.add.at(flits, 150 + dst, size)
        np.testing.assert_array_equal(done.link_flits, flits)


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_lost_or_stuck_in_many_flit_hops(layout):
    """Long overload through the smallest buffers; a source is served however busy the way is."""
    rng, n_moved, n = np.random.default_rng(1), 0, 60_000
    c = chip_of_layout(layout, buffer_flits=1)
    while n_moved < FLIT_HOPS / len(LAYOUTS):
        for traffic in TRAFFIC:
            src, size = rng.choice(usable(c), n), rng.integers(1, 4, n)
            dst = targets(c, traffic, src, rng)
            done = replay_packets(c, np.sort(rng.integers(0, n // 50, n)), src, dst, size)
            assert (done.arrive > done.inject).all() and (done.inject >= 0).all()
            assert done.link_flits[150:].sum() == done.link_flits[100:150].sum() == size.sum()
            n_moved += int((size * (done.hops + 1)).sum())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_packet_alone_takes_as_long_as_its_way(layout):
    c, rng = chip_of_layout(layout, hop_cycles_ew=3, hop_cycles_ns=5, buffer_flits=16), np.random.default_rng(0)
    noc = c.noc
    cycles = np.tile([3, 3, 5, 5], 25)
    cycles[find_chip_crossings(c.grid, noc.chip_columns, noc.chip_rows).reshape(-1)] = noc.chip_hop_cycles or 0
    for src, dst in rng.choice(usable(c), (30, 2)):
        _, link = list_route_links(c.grid, np.array([src // 2]), np.array([dst // 2]))
        way = noc.inject_cycles + cycles[link].sum() + noc.eject_cycles
        slowest = c.link_cycles[link].max(initial=1)
        for size in (1, 4):
            done = replay_packets(c, [7], [src], [dst], [size])
            assert done.arrive[0] - 7 == way + (size - 1) * slowest, (src, dst, size)


def test_a_link_between_chips_carries_a_flit_in_as_many_cycles_as_it_says():
    c = chip_of_layout("chips", rows=1, chip_rows=None, buffer_flits=16)
    src, dst = np.zeros(200, int), np.full(200, 9)
    assert np.diff(np.sort(replay_packets(c, src, src, dst, src + 1).arrive))[20:].mean() == 4
    within = replay_packets(c, src, src, dst - 4, src + 1)
    assert np.diff(np.sort(within.arrive))[20:].mean() == 1


def test_a_torus_carries_more_than_a_mesh():
    keys = {"cores_per_router": 1, "columns": 8, "rows": 8, "virtual_channels": 8, "hop_cycles_ns": 4}
    mesh, torus = (
        offer_load(chip_of_layout(name, **keys), "uniform", 0.55, cycles=4000) for name in ("xy", "torus xy")
    )
    assert (torus.stable, mesh.stable) == (True, False)


def test_packets_to_a_router_out_of_use_are_refused():
    c = chip_of_layout("faults", cores_per_router=1)
    with pytest.raises(OptionError) as caught:
        replay_packets(c, [0, 1], [0, 7], [1, 0], [1, 1])
    assert str(caught.value) == "packet 1: core 7 or 0 is at a router of noc.faults"
    with pytest.raises(OptionError) as caught:
        offer_load(c, "uniform", 0.1)
    assert str(caught.value) == (
        "traffic goes to every core; small has routers out of use, take them out of noc.faults"
    )
