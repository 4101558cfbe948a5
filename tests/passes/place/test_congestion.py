"""The placer `routed` keeps an exact account of links, and trades hops for a cooler link only as its weights say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.ir.noc.routing import find_chip_crossings
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import link_load, placement
from nwcompile.passes.place.congestion import LINK_WEIGHT, all_routes
from nwcompile.passes.place.place import place
from nwcompile.passes.place.problem import cores_at, placement_problem
from tests.made.chips import small_chip
from tests.made.mapped import scattered_net


def loads(problem, table, site_of) -> np.ndarray:
    load = np.zeros(len(np.unique(table.router)) * 4, np.int64)
    link_load.fill_links(problem, table, site_of, load)
    return load


@given(seed=st.integers(0, 10**6))
def test_cooling_keeps_its_own_account_of_links_and_hops(seed):
    faults = {"noc__routing": "up-down", "noc__faults": ["1,0-2,0"]} if seed % 2 else {}
    chip = small_chip(noc__columns=4, **faults)
    network, mapping, activity = scattered_net(seed, chip, 7)
    problem = placement_problem(mapping, network, chip, activity, Options(optimize="traffic"))
    table, site_of = all_routes(chip), chip.site_index(mapping.site_of)
    load, before = loads(problem, table, site_of), placement.routed_cost(problem, site_of)
    hottest = load.max()
    assert load.sum() == before
    core_at, state = cores_at(site_of, chip.n_cores), np.array([seed], np.uint64)
    change = link_load.cool_links(problem, table, site_of, core_at, state, 300, 0.5, load)
    assert np.array_equal(load, loads(problem, table, site_of))
    assert placement.routed_cost(problem, site_of) == before + change
    assert change + 0.5 * (int(load.max()) - int(hottest)) <= 0
    assert np.array_equal(core_at, cores_at(site_of, chip.n_cores))


@given(seed=st.integers(0, 10**6))
def test_links_between_chips_are_cooled_by_what_a_flit_takes_there(seed):
    board = {"noc__columns": 4, "noc__chip_columns": 2, "noc__chip_rows": 2, "noc__chip_hop_cycles": 500}
    chip = small_chip(**board, noc__buffer_flits=4)  # links within chips: 5 cycles of 4 hops' length, between them 500
    network, mapping, activity = scattered_net(seed, chip, 7)
    problem = placement_problem(mapping, network, chip, activity, Options(optimize="traffic"))
    table, site_of = all_routes(chip), chip.site_index(mapping.site_of)
    slow = find_chip_crossings(chip.grid, 2, 2).reshape(-1)
    assert (table.need == np.where(slow, 100, 1)).all()
    load, before = loads(problem, table, site_of), placement.routed_cost(problem, site_of)
    assert np.array_equal(load // table.need, loads(problem, table._replace(need=np.ones_like(table.need)), site_of))
    hottest, state = load.max(), np.array([seed], np.uint64)
    change = link_load.cool_links(problem, table, site_of, cores_at(site_of, chip.n_cores), state, 300, 0.5, load)
    assert np.array_equal(load, loads(problem, table, site_of))
    assert placement.routed_cost(problem, site_of) == before + change
    assert change + 0.5 * (int(load.max()) - int(hottest)) <= 0


@pytest.mark.parametrize("board", [{}, {"noc__chip_columns": 2, "noc__chip_hop_cycles": 500, "noc__buffer_flits": 4}])
def test_only_swaps_that_help_no_link_are_passed_over(board):
    """Without the look at the hottest link alone every swap is counted whole; the sites are the same."""
    chip = small_chip(noc__columns=4, noc__rows=4, **board)
    network, mapping, activity = scattered_net(5, chip, 14)
    problem = placement_problem(mapping, network, chip, activity, Options(optimize="traffic"))
    table, start = all_routes(chip), chip.site_index(mapping.site_of)
    found = []
    for is_plain in (False, True):
        site_of, state, load = start.copy(), np.array([3], np.uint64), loads(problem, table, start)
        cool = plainly_cooled if is_plain else link_load.cool_links
        cool(problem, table, site_of, cores_at(site_of, chip.n_cores), state, 400, 0.5, load)
        found.append(site_of)
    assert np.array_equal(*found) and not np.array_equal(found[0], start)


def plainly_cooled(problem, table, site_of, core_at, state, n_moves, weight, load):
    """`link_load.cool_links`, with all links and routes counted anew for every swap."""
    for _ in range(n_moves):
        a, b, new = placement.propose(problem, site_of, core_at, state)
        if a < 0:
            continue
        old, before = (
            site_of[a],
            placement.routed_cost(problem, site_of) + weight * loads(problem, table, site_of).max(),
        )
        placement.swap(site_of, core_at, a, new)
        if placement.routed_cost(problem, site_of) + weight * loads(problem, table, site_of).max() >= before:
            placement.swap(site_of, core_at, a, old)


def test_routed_is_as_good_as_its_annealing_by_hops_and_hottest_link():
    chip = small_chip(noc__columns=4, noc__rows=4, noc__cores_per_router=1)
    network, mapping, activity = scattered_net(3, chip, 14)
    problem = placement_problem(mapping, network, chip, activity, Options(optimize="traffic"))
    table, score = all_routes(chip), {}
    for placer in ("row-major", "anneal", "routed"):
        placed = place(mapping, network, chip, activity, Options(placer=placer, optimize="traffic"))
        site_of = chip.site_index(placed.site_of)
        score[placer] = placement.routed_cost(problem, site_of) + LINK_WEIGHT * loads(problem, table, site_of).max()
    assert score["routed"] < score["row-major"]
    assert score["routed"] <= 1.01 * score["anneal"]


def test_routed_spreads_cores_while_the_barrier_costs_nothing_more_and_messages_wait():
    barrier = {"1": 10, "3": 20, "13": 30}
    chip = small_chip(noc__columns=4, noc__rows=4, noc__cores_per_router=4, cost__barrier_cycles=barrier)
    network, mapping, activity = scattered_net(2, chip, 14)
    for buffer, optimize, most in ((1, "time", 2), (1, "traffic", 4), (1000, "time", 4)):
        deep = chip.replace({"noc.buffer_flits": buffer})
        placed = place(mapping, network, deep, activity, Options(placer="routed", optimize=optimize))
        _, held = np.unique(placed.site_of[:, :2], axis=0, return_counts=True)
        assert held.max() == most, (buffer, optimize)
        assert len(held) <= 12
    pinned = Options(placer="routed", fixed_sites={"fc1": ((3, 3, 0),)})
    narrow = chip.replace({"noc.buffer_flits": 1})
    assert place(mapping, network, narrow, activity, pinned).site_of[mapping.core_of["fc1"].min()].tolist() == [3, 3, 0]
