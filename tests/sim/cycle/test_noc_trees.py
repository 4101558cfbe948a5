"""Multicast trees in the routers: every destination gets its copy once, whatever the shape, load and buffers."""

import numpy as np
import pytest

from nwcompile.errors import OptionError
from nwcompile.ir.noc.trees import trees
from nwcompile.sim.cycle.noc import replay, replay_trees
from tests.long import EXAMPLES
from tests.sim.cycle.test_noc_shapes import LAYOUTS, chip, usable

FLIT_HOPS = 40_000 * EXAMPLES  # 2e7 in `make test-long`, of each shape


def random_lists(c, n, most, rng):
    cores = usable(c)
    return [rng.choice(cores, rng.integers(1, most), replace=False) for _ in range(n)]


def link_flits(c, src, lists):
    offset = np.concatenate([[0], np.cumsum([len(x) for x in lists])])
    found = trees(c.grid, c.noc.cores_per_router, src, offset, np.concatenate(lists))
    n_mesh = 4 * c.noc.columns * c.noc.rows
    parts = found.link, n_mesh + src, n_mesh + c.n_cores + np.concatenate(lists)
    return sum(np.bincount(part, minlength=len(c.link_cycles)) for part in parts)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_destination_gets_its_copy_once_through_the_smallest_buffers(layout):
    rng, c, n = np.random.default_rng(len(layout)), chip(layout, buffer_flits=1), 800
    src, lists = rng.choice(usable(c), n), random_lists(c, n, 13, rng)
    done = replay_trees(c, rng.integers(0, 50, n), src, lists)
    assert (done.arrive >= 0).all()
    np.testing.assert_array_equal(done.link_flits, link_flits(c, src, lists))


@pytest.mark.parametrize("layout", ["xy", "odd-even", "torus xy", "faults"])
def test_trees_of_one_destination_are_single_messages(layout):
    rng, c, n = np.random.default_rng(2), chip(layout), 2000
    time, src, dst = rng.integers(0, 300, n), rng.choice(usable(c), n), rng.choice(usable(c), n)
    single, tree = replay(c, time, src, dst, np.ones(n)), replay_trees(c, time, src, dst[:, None])
    for name in ("inject", "arrive", "hops", "link_flits"):
        np.testing.assert_array_equal(getattr(single, name), getattr(tree, name))


def test_copies_leave_a_router_one_cycle_after_the_other():
    """From the corner of a row: 3 copies at the first router (E, and both of its cores), then 2 at each."""
    c = chip("xy", columns=3, rows=1)
    single = [int(replay(c, [0], [0], [d], [1]).arrive[0]) for d in range(6)]
    tree = replay_trees(c, [0], [0], [np.arange(6)]).arrive
    assert (tree - single).tolist() == [1, 2, 1, 2, 0, 1]


def test_all_to_all_at_once_ends():
    c = chip("torus xy", buffer_flits=1)
    cores = usable(c)
    done = replay_trees(c, np.zeros(len(cores)), cores, [cores] * len(cores))
    assert (done.arrive >= 0).all()


def test_a_list_that_names_a_core_twice_is_refused():
    with pytest.raises(OptionError) as caught:
        replay_trees(chip("xy"), [0, 0], [1, 2], [[3, 4], [5, 5]])
    assert str(caught.value) == "packet 1: its 2 destinations must be one or more different cores"


def test_lists_of_trees_that_cannot_be_are_named():
    assert replay_trees(chip("xy"), [], [], []).arrive.tolist() == []
    for cores, text in (([1.5], "whole numbers"), (["a"], "a list of whole numbers"), (1, "a list of whole numbers")):
        with pytest.raises(OptionError) as error:
            replay_trees(chip("xy"), [0], [0], [cores])
        assert str(error.value) == f"packets: dst must be {text}"


@pytest.mark.long
@pytest.mark.parametrize("layout", ["xy", "west-first", "torus xy", "torus faults", "torus of chips"])
def test_nothing_is_lost_or_stuck_in_many_copies(layout):
    rng, n_moved, n = np.random.default_rng(3), 0, 20_000
    while n_moved < FLIT_HOPS:
        c = chip(layout, buffer_flits=int(rng.integers(1, 3)))
        src = rng.choice(usable(c), n) if n_moved else np.full(n, usable(c)[0])
        done = replay_trees(c, rng.integers(0, 5000, n), src, random_lists(c, n, 40, rng))
        assert (done.arrive >= 0).all()
        n_moved += int(done.link_flits.sum())
