"""Multicast trees: their links are those of the single ways, and following their branches reaches every destination."""

import numpy as np
import pytest

from nwcompile.cost.traffic.multicast import build_trees
from nwcompile.ir.noc.routing import HERE, list_route_links
from tests.made.chips import small_chip

SHAPES = [
    {}, {"noc.routing": "yx"}, {"noc.routing": "west-first"}, {"noc.routing": "odd-even"},
    {"noc.topology": "torus", "noc.virtual_channels": 2},
    {"noc.routing": "up-down", "noc.faults": ["2,1", "0,0-1,0"]},
]  # fmt: skip


def of(shape, n_groups=40, seed=0):
    c = small_chip().replace({"noc.columns": 6, "noc.rows": 5, "noc.cores_per_router": 2, **shape})
    rng = np.random.default_rng(seed)
    cores = np.flatnonzero(c.grid.is_open[np.arange(c.n_cores) // 2])
    source = rng.choice(cores, n_groups)
    sets = [np.sort(rng.choice(cores, rng.integers(0, 12), replace=False)) for _ in range(n_groups)]
    offset = np.concatenate([[0], np.cumsum([len(s) for s in sets])])
    return c, source, sets, build_trees(c.grid, 2, source, offset, np.concatenate(sets))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_followed_through_its_branches_reaches_every_destination_once(shape):
    c, source, sets, found = of(shape)
    for k, wanted in enumerate(sets):
        reached, links, todo = [], [], [(source[k] // 2, found.root[k])]
        assert (found.root[k] < 0) == (len(wanted) == 0)
        while todo:
            router, first = todo.pop()
            branch = first - c.n_cores
            while branch >= 0:
                port, to = int(found.port[branch]), int(found.to[branch])
                if port >= HERE:
                    assert wanted[to] == router * 2 + port - HERE
                    reached.append(to)
                else:
                    links.append(router * 4 + port)
                    todo.append((c.grid.neighbor[router, port], to))
                branch = -1 if found.is_last[branch] else branch + 1
        assert sorted(reached) == list(range(len(wanted)))
        assert sorted(links) == sorted(found.link[found.offset[k] : found.offset[k + 1]])


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_has_the_links_of_the_single_ways_each_once_where_ways_stay_together(shape):
    c, source, sets, found = of(shape)
    for k, wanted in enumerate(sets):
        single = list_route_links(c.grid, np.repeat(source[k] // 2, len(wanted)), wanted // 2)[1]
        own = found.link[found.offset[k] : found.offset[k + 1]]
        assert set(own) == set(single)
        assert len(own) <= len(single)
        if c.noc.routing in ("xy", "yx"):
            assert len(own) == len(set(own))
        horizontal = np.isin(own % 4, (0, 1)).sum()
        assert found.hops[k].tolist() == [horizontal, len(own) - horizontal]


def test_a_tree_along_one_row_takes_each_link_once():
    c = small_chip().replace({"noc.columns": 4, "noc.rows": 1, "noc.cores_per_router": 1})
    found = build_trees(c.grid, 1, np.array([0]), np.array([0, 3]), np.array([1, 2, 3]))
    assert found.link.tolist() == [0, 4, 8]
    assert found.hops.tolist() == [[3, 0]]
