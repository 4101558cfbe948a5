"""Core traffic adds up to the messages that cores get and to the flits that links carry, on any chip."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.traffic.core_traffic import OUTSIDE, core_traffic, largest_into, largest_over
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.sim import simulate
from tests.made.programs import run_of, three_cores
from tests.made.random_programs import buses, chips, inputs, programs

ALL = 10**6


@pytest.mark.parametrize("on", [chips, buses])
@given(data=st.data())
def test_traffic_adds_up_to_messages_in_and_to_the_flits_of_links(on, data):
    program = data.draw(programs(on))
    run = simulate(program, data.draw(inputs(program)), "reference")
    rows, chip = core_traffic(program, run.activity), program.chip
    arrived = np.zeros(program.mapping.n_cores, np.int64)
    inside = rows.to != OUTSIDE
    np.add.at(arrived, rows.to[inside], rows.messages[inside])
    assert arrived.tolist() == run.counters["messages_in"].sum(0).tolist()
    offset, kept = largest_into(rows, program.mapping.n_cores, ALL)
    assert sorted(kept.tolist()) == np.flatnonzero(inside).tolist()
    for core in range(program.mapping.n_cores):
        of_core = kept[offset[core] : offset[core + 1]]
        assert (rows.to[of_core] == core).all() and (np.diff(rows.messages[of_core]) <= 0).all()
    offset, kept = largest_over(program, rows, ALL, ALL)
    n_mesh = len(chip.link_cycles) - 2 * chip.n_cores
    carried = [int(rows.flits[kept[i:j]].sum()) for i, j in zip(offset[:-1], offset[1:], strict=True)]
    if chip.noc.multicast == "tree":
        return  # whose messages share flits
    assert carried[:n_mesh] == link_flits(program, run.activity).sum(0)[:n_mesh].tolist()


def test_only_the_largest_rows_are_listed_and_followed():
    program = three_cores()
    rows = core_traffic(program, run_of(program).activity)
    assert [column.tolist() for column in rows] == [
        [0, 0, 1, 1], [OUTSIDE, OUTSIDE, 0, 1], [0, 1, 2, 2], [10, 10, 12, 12], [10, 10, 12, 12]
    ]  # fmt: skip
    offset, kept = largest_into(rows, 3, 1)
    assert (offset.tolist(), kept.tolist()) == ([0, 1, 2, 3], [0, 1, 2])
    offset, kept = largest_over(program, rows, 5, 1)
    assert kept.tolist() == [2] and offset.tolist() == [0] + [1] * (len(offset) - 1)
