"""Multicast trees in the routers: every destination gets its copy once, whatever the shape, load and buffers."""

import numpy as np
import pytest

from nwcompile.cost.traffic.multicast import build_trees
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.sim.cycle.noc import Replay, replay_packets, send_by_events
from nwcompile.sim.cycle.noc_tables import add_trees, build_mesh
from tests.long import EXAMPLES
from tests.made.layouts import LAYOUTS, chip_of_layout, usable

FLIT_HOPS = 40_000 * EXAMPLES  # 2e7 in `make test-long`, of each shape


def replay_trees(c, time, src, lists) -> Replay:
    """Send packets of one flit, made at cycle `time[k]` in core `src[k]`, each to all cores of `lists[k]`.

    `arrive` is by delivery, packet by packet in the order of its list; `hops` counts each link of a tree once.
    """
    time, src = np.asarray(time, np.int64), np.asarray(src, np.int64)
    length = np.array([len(cores) for cores in lists])
    offset = np.concatenate([[0], np.cumsum(length)])
    planned = build_trees(c.grid, c.noc.cores_per_router, src, offset, np.concatenate(lists))
    order = np.lexsort((time, src))
    inject, arrive = np.full(len(time), -1), np.empty(offset[-1], np.int64)
    inject[order], arrived, flits = send_by_events(
        add_trees(build_mesh(c), planned), time[order], src[order], np.ones(len(time), np.int64), planned.root[order],
        length[order], NEVER,
    )  # fmt: skip
    arrive[np.concatenate([np.arange(offset[k], offset[k + 1]) for k in order])] = arrived
    return Replay(inject, arrive, planned.hops.sum(1), flits)


def random_lists(c, n, longest, rng):
    cores = usable(c)
    return [rng.choice(cores, rng.integers(1, longest), replace=False) for _ in range(n)]


def link_flits(c, src, lists):
    offset = np.concatenate([[0], np.cumsum([len(x) for x in lists])])
    planned = build_trees(c.grid, c.noc.cores_per_router, src, offset, np.concatenate(lists))
    n_mesh = 4 * c.noc.columns * c.noc.rows
    parts = planned.link, n_mesh + src, n_mesh + c.n_cores + np.concatenate(lists)
    return sum(np.bincount(part, minlength=len(c.link_cycles)) for part in parts)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_destination_gets_its_copy_once_through_the_smallest_buffers(layout):
    rng, c, n = np.random.default_rng(len(layout)), chip_of_layout(layout, buffer_flits=1), 800
    src, lists = rng.choice(usable(c), n), random_lists(c, n, 13, rng)
    done = replay_trees(c, rng.integers(0, 50, n), src, lists)
    assert (done.arrive >= 0).all()
    np.testing.assert_array_equal(done.link_flits, link_flits(c, src, lists))


@pytest.mark.parametrize("layout", ["xy", "odd-even", "torus xy", "faults"])
def test_trees_of_one_destination_are_single_messages(layout):
    rng, c, n = np.random.default_rng(2), chip_of_layout(layout), 2000
    time, src, dst = rng.integers(0, 300, n), rng.choice(usable(c), n), rng.choice(usable(c), n)
    single, tree = replay_packets(c, time, src, dst, np.ones(n)), replay_trees(c, time, src, dst[:, None])
    for name in ("inject", "arrive", "hops", "link_flits"):
        np.testing.assert_array_equal(getattr(single, name), getattr(tree, name))


def test_copies_leave_a_router_one_cycle_after_the_other():
    """From the corner of a row: 3 copies at the first router (E, and both of its cores), then 2 at each."""
    c = chip_of_layout("xy", columns=3, rows=1)
    single = [int(replay_packets(c, [0], [0], [d], [1]).arrive[0]) for d in range(6)]
    tree = replay_trees(c, [0], [0], [np.arange(6)]).arrive
    assert (tree - single).tolist() == [1, 2, 1, 2, 0, 1]


def test_all_to_all_at_once_ends():
    c = chip_of_layout("torus xy", buffer_flits=1)
    cores = usable(c)
    done = replay_trees(c, np.zeros(len(cores)), cores, [cores] * len(cores))
    assert (done.arrive >= 0).all()


@pytest.mark.long
@pytest.mark.parametrize("layout", ["xy", "west-first", "torus xy", "torus faults", "torus of chips"])
def test_nothing_is_lost_or_stuck_in_many_copies(layout):
    rng, n_moved, n = np.random.default_rng(3), 0, 20_000
    while n_moved < FLIT_HOPS:
        c = chip_of_layout(layout, buffer_flits=int(rng.integers(1, 3)))
        src = rng.choice(usable(c), n) if n_moved else np.full(n, usable(c)[0])
        done = replay_trees(c, rng.integers(0, 5000, n), src, random_lists(c, n, 40, rng))
        assert (done.arrive >= 0).all()
        n_moved += int(done.link_flits.sum())
