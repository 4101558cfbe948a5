"""Boards: how many chips they have, how many a mapping uses, and which rectangle of chips holds so many cores."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from nwcompile.ir.chip import HWMODELS, Chip
from nwcompile.ir.chip_sections import chips_used, count_chips, fewest_chips
from tests.made.chips import small_chip

BOARD = small_chip(noc__columns=8, noc__rows=6, noc__cores_per_router=1, noc__chip_columns=4, noc__chip_rows=2).noc


def test_chips_are_counted_and_one_mesh_is_one_chip():
    assert count_chips(BOARD) == (2, 3) and count_chips(small_chip().noc) == (1, 1)
    assert count_chips(small_chip(noc__columns=5, noc__chip_columns=2).noc) == (3, 1)


def test_chips_used_are_those_with_a_core():
    assert chips_used(BOARD, np.array([[0, 0, 0], [3, 1, 0]])) == 1
    assert chips_used(BOARD, np.array([[3, 0, 0], [4, 0, 0], [4, 1, 0], [7, 5, 0]])) == 3
    assert chips_used(small_chip().noc, np.array([[0, 0, 0], [2, 1, 0]])) == 1


@pytest.mark.parametrize(
    ("n_cores", "expected"),
    [(1, (1, 1)), (8, (1, 1)), (9, (2, 1)), (17, (1, 3)), (25, (2, 2)), (48, (2, 3)), (49, (2, 3))],
)
def test_fewest_chips_are_a_rectangle_that_holds_the_cores(n_cores, expected):
    assert fewest_chips(BOARD, n_cores) == expected


def test_fewest_chips_counts_what_is_left_of_a_chip_at_the_edge():
    noc = small_chip(noc__columns=5, noc__rows=4, noc__cores_per_router=1, noc__chip_columns=4, noc__chip_rows=2).noc
    assert [fewest_chips(noc, n) for n in (8, 9, 11, 17)] == [(1, 1), (2, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("name", "base", "n_chips"), [("loihi1_nahuku", "loihi1", 32), ("loihi2_kapoho", "loihi2", 8),
                                  ("loihi2_hala", "loihi2", 1152),
                                  ("spinnaker2_48", "spinnaker2", 48)]
)  # fmt: skip
def test_shipped_boards_are_whole_chips_of_their_base_joined_by_slower_links(name, base, n_chips):
    board, one = Chip.load(name), Chip.load(base)
    assert count_chips(board.noc)[0] * count_chips(board.noc)[1] == n_chips
    assert (board.noc.chip_columns, board.noc.chip_rows) == (one.noc.columns, one.noc.rows)
    assert board.n_cores == n_chips * one.n_cores
    for section in ("core", "weights", "state", "neuron"):
        assert getattr(board, section) == getattr(one, section)
    static = one.energy.static_mw
    assert board.energy == replace(one.energy, static_mw=None if static is None else pytest.approx(n_chips * static))
    assert board.noc.chip_hop_cycles > max(one.noc.hop_cycles_ew, one.noc.hop_cycles_ns)
    n_routers = one.noc.columns * one.noc.rows
    if one.has_times:
        assert [board.barrier_cycles(n) for n in range(1, n_routers + 1)] == [
            one.barrier_cycles(n) for n in range(1, n_routers + 1)
        ]
        assert board.barrier_cycles(n_routers + 1) >= one.barrier_cycles(n_routers)


@pytest.mark.parametrize("name", [name for name in Chip.names() if Chip.load(name).is_board])
def test_shipped_boards_write_only_what_lies_between_chips_each_key_with_its_own_source(name):
    table = tomllib.loads((HWMODELS / f"{name}.toml").read_text())
    written = {f"{section}.{key}" for section, keys in table.items() if isinstance(keys, dict) for key in keys}
    sources = {key for key in written if key.startswith("sources.")}
    assert {key.removeprefix("sources.") for key in sources} == written - sources
    changed = ("noc.columns", "noc.rows", "noc.chip_", "cost.barrier_cycles", "cost.min_step_cycles", "energy.hop_",
               "energy.static_mw")  # fmt: skip
    assert all(key.startswith(changed) for key in written - sources)
