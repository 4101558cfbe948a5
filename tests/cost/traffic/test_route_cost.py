"""Costs of ways are the sums of their links' costs, round faults and over the borders of chips."""

import numpy as np
import pytest

from nwcompile.cost.traffic.route_cost import link_weights, route_cost
from nwcompile.errors import OptionError
from nwcompile.ir.noc.routing import find_chip_crossings, list_route_links
from tests.made.chips import small_chip

BOARD = {"noc__columns": 6, "noc__rows": 4, "noc__chip_columns": 3, "noc__chip_rows": 2, "noc__chip_hop_cycles": 50,
         "noc__chip_link_cycles_per_flit": 9}  # fmt: skip
CHIPS = [
    {},
    {"noc__topology": "torus", "noc__columns": 5, "noc__virtual_channels": 2},
    BOARD,
    {**BOARD, "noc__routing": "odd-even"},
    {**BOARD, "noc__topology": "torus", "noc__routing": "yx", "noc__virtual_channels": 2},
    {**BOARD, "noc__routing": "up-down", "noc__faults": ["2,1", "4,2-5,2", "0,3-1,3"]},
]


@pytest.mark.parametrize("keys", CHIPS)
def test_way_cost_is_the_sum_of_the_links_on_the_way(keys):
    chip = small_chip(**keys)
    ew, ns, slow_ew, slow_ns = link_weights(chip, "time")
    slow = find_chip_crossings(chip.grid, chip.noc.chip_columns, chip.noc.chip_rows)
    cost = np.where(slow, [slow_ew, slow_ew, slow_ns, slow_ns], [ew, ew, ns, ns]).reshape(-1)
    routers = np.flatnonzero(chip.grid.is_open)
    a, b = (r.reshape(-1) for r in np.meshgrid(routers, routers))
    offset, link = list_route_links(chip.grid, a, b)
    sums = np.diff(np.concatenate([[0], np.cumsum(cost[link])])[offset])
    assert route_cost(chip, "time").between_routers(a, b).tolist() == sums.tolist()
    assert route_cost(chip, "traffic").between_routers(a, b).tolist() == np.diff(offset).tolist()


def test_link_weights_are_exact_proportions():
    assert link_weights(small_chip(noc__hop_cycles_ew=41, noc__hop_cycles_ns=65), "time") == (41, 65, 41, 65)
    assert link_weights(small_chip(), "energy") == (5, 7, 5, 7)
    assert link_weights(small_chip(energy__hop_ew_pj=0.0), "energy") == (0, 1, 0, 1)
    assert link_weights(small_chip(), "traffic") == (1, 1, 1, 1)
    for other in ("edp", "cores"):
        assert link_weights(small_chip(), other) == link_weights(small_chip(), "time") == (2, 3, 2, 3)


def test_a_slow_link_weighs_its_hop_and_the_cycles_that_its_flits_take_more():
    assert link_weights(small_chip(**BOARD), "time") == (2, 3, 29, 29)
    assert link_weights(small_chip(**{**BOARD, "noc__flits_per_message": 3}), "time") == (2, 3, 37, 37)
    assert link_weights(small_chip(**{**BOARD, "noc__chip_hop_cycles": None}), "time") == (2, 3, 6, 7)
    assert link_weights(small_chip(**BOARD), "energy") == (5, 7, 5, 7)


def test_weights_beyond_whole_proportions_are_rounded():
    odd = link_weights(small_chip(energy__hop_ew_pj=1.000037, energy__hop_ns_pj=1.2345678), "energy")
    assert odd[1] / odd[0] == pytest.approx(1.2345678 / 1.000037, rel=1e-4)


def test_energies_that_are_not_there_are_named():
    table = small_chip().to_dict()
    del table["energy"]["hop_ns_pj"]
    with pytest.raises(OptionError) as error:
        route_cost(type(small_chip()).from_dict(table), "energy")
    assert str(error.value) == (
        "optimize='energy' needs energy.hop_ew_pj and energy.hop_ns_pj, which small does not give; "
        "use optimize='time' or 'traffic'"
    )
