"""Routes of messages: as short as promised, without cycles of channels that wait for one another, round faults."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.errors import ChipError, ModelError
from nwcompile.ir.chip_sections import Noc
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.noc.routing import (
    AFTER,
    ANY,
    BEFORE,
    ROUTINGS,
    build_grid,
    count_hops,
    find_chip_crossings,
    find_ports,
    list_route_links,
    vc_classes,
)
from tests.made.chips import small_chip
from tests.made.nets import dense_net

TURNS_TAKEN = {
    "xy": {(0, 2), (0, 3), (1, 2), (1, 3)},
    "yx": {(2, 0), (2, 1), (3, 0), (3, 1)},
    "west-first": {(1, 2), (1, 3), (0, 2), (0, 3), (2, 0), (3, 0)},
}
SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 7))


def routers(columns, rows, topology="mesh", routing="xy", faults=()):
    return build_grid(Noc(columns, rows, topology=topology, routing=routing, faults=list(faults)), "chip")


def pairs(g):
    there = np.flatnonzero(g.is_open)
    return (a.reshape(-1) for a in np.meshgrid(there, there))


def dependencies(g, halves=True) -> nx.DiGraph:
    """Which (link, channels) a message may hold while it waits for which, by following every route."""
    at, to = pairs(g)
    offset, link = list_route_links(g, at, to)
    pair = np.repeat(np.arange(len(at)), np.diff(offset))
    taken = link * 3 + (vc_classes(g, link // 4, to[pair]) if halves else 0)
    assert (find_ports(g, link // 4, to[pair]) == link % 4).all()
    assert (g.neighbor.reshape(-1)[link] >= 0).all()
    follows = pair[1:] == pair[:-1]
    return nx.DiGraph(np.unique(np.stack([taken[:-1], taken[1:]], 1)[follows], axis=0).tolist())


@pytest.mark.parametrize("routing", [*ROUTINGS, "up-down"])
@given(shape=SHAPES)
@settings(max_examples=15, deadline=None)
def test_routes_on_a_mesh_are_shortest_and_cannot_deadlock(routing, shape):
    g = routers(*shape, routing=routing)
    assert nx.is_directed_acyclic_graph(dependencies(g))
    at, to = pairs(g)
    x, y = to % g.columns - at % g.columns, to // g.columns - at // g.columns
    np.testing.assert_array_equal(count_hops(g, at, to), np.stack([abs(x), abs(y)], 1))


@pytest.mark.parametrize("routing", ["xy", "yx"])
@given(shape=SHAPES)
@settings(max_examples=15, deadline=None)
def test_routes_on_a_torus_are_the_shorter_way_round_and_cannot_deadlock(routing, shape):
    g = routers(*shape, "torus", routing)
    assert nx.is_directed_acyclic_graph(dependencies(g))
    at, to = pairs(g)
    size = np.array(shape)
    around = np.abs(np.stack([to % g.columns - at % g.columns, to // g.columns - at // g.columns], 1))
    np.testing.assert_array_equal(count_hops(g, at, to), np.minimum(around, size - around))
    assert set(vc_classes(g, at, to)[at != to]) <= {BEFORE, AFTER}
    assert set(vc_classes(g, at, to)[at == to]) == {ANY}


def test_a_torus_without_halves_of_channels_has_a_circle():
    assert not nx.is_directed_acyclic_graph(dependencies(routers(4, 1, "torus"), halves=False))
    assert nx.is_directed_acyclic_graph(dependencies(routers(3, 3, "torus"), halves=False))


@given(shape=SHAPES, topology=st.sampled_from(["mesh", "torus"]), seed=st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None)
def test_detours_reach_every_open_router_and_cannot_deadlock(shape, topology, seed):
    rng = np.random.default_rng(seed)
    faults = [f"{rng.integers(shape[0])},{rng.integers(shape[1])}" for _ in range(rng.integers(0, 4))]
    for x, y in zip(rng.integers(0, max(shape[0] - 1, 1), 4), rng.integers(0, shape[1], 4), strict=True):
        faults += [f"{x},{y}-{x + 1},{y}"] if shape[0] > 1 and rng.integers(2) else []
    try:
        g = routers(*shape, topology, "up-down", dict.fromkeys(faults))
    except ChipError as error:
        assert "no route is left" in str(error) or "no router is left" in str(error) or "no link" in str(error)
        return
    assert nx.is_directed_acyclic_graph(dependencies(g))
    at, to = pairs(g)
    offset, link = list_route_links(g, at, to)
    np.testing.assert_array_equal(np.diff(offset), count_hops(g, at, to).sum(1))
    np.testing.assert_array_equal(np.add.reduceat(np.append(link % 4 < 2, 0), offset[:-1])[at != to],
                                  count_hops(g, at, to)[at != to, 0])  # fmt: skip
    end = to[at != to]
    np.testing.assert_array_equal(g.neighbor.reshape(-1)[link[offset[1:][at != to] - 1]], end)


@pytest.mark.parametrize("routing", [*TURNS_TAKEN, "odd-even"])
def test_turns_are_those_of_the_turn_model(routing):
    g = routers(6, 6, routing=routing)
    taken = set()
    for at, to in zip(*pairs(g), strict=True):
        _, link = list_route_links(g, np.array([at]), np.array([to]))
        for a, b in zip(link[:-1], link[1:], strict=True):
            if a % 4 != b % 4:
                taken.add((int(a % 4), int(b % 4), int(b // 4 % 6 % 2)))
    if routing == "odd-even":
        assert not {(0, 2, 0), (0, 3, 0), (2, 1, 1), (3, 1, 1)} & taken
        assert {turn[:2] for turn in taken} == {(a, b) for a in range(4) for b in range(4) if a // 2 != b // 2}
    else:
        assert {turn[:2] for turn in taken} == TURNS_TAKEN[routing]


def test_a_way_goes_round_what_is_out_of_use():
    g = routers(3, 3, routing="up-down", faults=["1,0", "0,1-1,1"])
    assert count_hops(g, 0, 2).tolist() == [2, 4]
    offset, link = list_route_links(g, np.array([0, 3]), np.array([2, 4]))
    assert link.tolist() == [0 * 4 + 2, 3 * 4 + 2, 6 * 4, 7 * 4 + 3, 4 * 4, 5 * 4 + 3, 3 * 4 + 2, 6 * 4, 7 * 4 + 3]
    assert offset.tolist() == [0, 6, 9]


def test_faults_may_be_named_twice_and_overlap():
    once = routers(3, 3, routing="up-down", faults=["1,0", "0,1-1,1"])
    again = routers(3, 3, routing="up-down", faults=["1,1-0,1", "1,0-2,0", "1,0", "0,1-1,1", "1,0"])
    np.testing.assert_array_equal(once.neighbor, again.neighbor)
    assert once.is_open.tolist() == again.is_open.tolist() == [True, False] + [True] * 7


def test_links_between_chips_are_those_over_a_border():
    mesh, torus = routers(4, 3), routers(4, 3, "torus")
    assert np.flatnonzero(find_chip_crossings(mesh, 2, None)).tolist() == [4, 9, 20, 25, 36, 41]
    assert np.flatnonzero(find_chip_crossings(mesh, None, 2)).tolist() == [18, 22, 26, 30, 35, 39, 43, 47]
    assert np.flatnonzero(find_chip_crossings(torus, 2, None)[0]).tolist() == [1]
    assert not find_chip_crossings(torus, None, None).any()


BAD = [
    ({"virtual_channels": 1, "topology": "torus"},
     "noc.virtual_channels: 1 could deadlock: routing 'xy' needs 2 or more on a torus, half of them for messages that "
     "have gone round"),
    ({"virtual_channels": 2, "topology": "torus", "routing": "odd-even"},
     "noc.routing: 'odd-even' could deadlock on a torus; use \"xy\", \"yx\" or \"up-down\""),
    ({"faults": ["1,0"]}, "noc.faults: 'xy' has no detours; set noc.routing = \"up-down\""),
    ({"faults": ["1;0"], "routing": "up-down"},
     "noc.faults: expected routers like \"1,0\" and links like \"1,0-2,0\", got '1;0'"),
    ({"faults": ["3,0"], "routing": "up-down"}, "noc.faults: there is no router 3,0; the last one is 2,1"),
    ({"faults": ["0,0-2,0"], "routing": "up-down"},
     "noc.faults: there is no link 0,0-2,0; a link joins two neighbors"),
    ({"faults": ["1,0", "1,1-2,1"], "routing": "up-down"},
     "noc.faults: no route is left from router 0,0 to router 2,0; leave a link between them, or add the routers that "
     "are cut off"),
    ({"faults": ["0,0"], "routing": "up-down", "columns": 1, "rows": 1},
     "noc.faults: no router is left; take some out"),
    ({"routing": "up-down", "columns": 65, "rows": 64},
     "noc.routing: \"up-down\" keeps a table of all routes; 4160 routers are above the largest supported, 4096"),
    ({"routing": "down-up"},
     "noc.routing: unknown value 'down-up'; choose one of: up-down, odd-even, west-first, xy, yx"),
    ({"topology": "ring"}, "noc.topology: unknown value 'ring'; choose one of: mesh, segmented_bus, torus"),
    ({"chip_hop_cycles": 9}, "noc.chip_hop_cycles: there is one chip; give noc.chip_columns or noc.chip_rows too"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "text"), BAD)
def test_networks_that_cannot_be_are_refused(keys, text):
    with pytest.raises(ChipError) as caught:
        small_chip(**{f"noc__{key}": value for key, value in keys.items()})
    assert str(caught.value) == f"small: {text}"


def test_no_neuron_fits_a_core_at_a_router_out_of_use():
    chip = small_chip(noc__faults=["1,0"], noc__routing="up-down")
    assert chip.limit("max_neurons").tolist() == [64, 64, 0, 0, *[64] * 8]
    mapping = Mapping.from_arrays({"fc1": [0, 1, 1]}, [(0, 0, 0), (1, 0, 1)])
    with pytest.raises(ModelError) as caught:
        mapping.verify(dense_net(2, 3), chip)
    assert str(caught.value) == "mapping: core 1 is at router 1,0, which small has out of use"
