"""The time of links, counted before there are axons, is that of the program that is made later."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.time.work import compute_work
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.ir.options import Options
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.floorline.demand import cluster_demand, filled_cores
from nwcompile.passes.partition.floorline.objective import link_cycles, step_cycles
from nwcompile.passes.partition.floorline.search import Search
from nwcompile.passes.prepare.schedule import schedule
from tests.made.chips import small_chip
from tests.made.mapped import scattered_net

CHIPS = {
    "mesh": {"noc__rows": 3},
    "shared, faults": {"cost__units": "shared", "noc__rows": 3, "noc__routing": "up-down", "noc__faults": ["1,0-2,0"]},
    "board": {"noc__columns": 4, "noc__chip_columns": 2, "noc__chip_rows": 1, "noc__chip_hop_cycles": 3000},
    "trees": {"noc__columns": 4, "noc__multicast": "tree", "noc__chip_columns": 2, "noc__chip_hop_cycles": 3000},
    "ways that part and meet again": {"noc__multicast": "tree", "noc__routing": "odd-even", "noc__columns": 5,
                                      "noc__rows": 4, "noc__cores_per_router": 1},
    "the same, faults": {"noc__multicast": "tree", "noc__routing": "up-down", "noc__columns": 5, "noc__rows": 4,
                         "noc__cores_per_router": 1, "noc__faults": ["1,0-2,0", "2,2"]},
    "long messages": {"noc__flits_per_message": 3, "noc__cycle_ns": 2.5, "noc__link_cycles_per_flit": 40},
}  # fmt: skip


@pytest.mark.parametrize("name", CHIPS)
@given(seed=st.integers(0, 10**6))
def test_link_time_is_that_of_the_program(name, seed):
    chip = small_chip(core__max_in_axons=None, core__max_out_axons=None, **CHIPS[name])
    network, mapping, activity = scattered_net(seed, chip, min(14, chip.n_cores // 2 + 2))
    silent = {n: np.zeros_like(activity.counts[n]) if n in network.inputs else c for n, c in activity.counts.items()}
    activity = type(activity)(silent, 1)
    timing = schedule(network)
    program = emit(network, timing, mapping, chip, None, {})
    done = compute_work(program, count_events(program, activity), link_flits(program, activity), 1)
    cores = np.concatenate([mapping.core_of[n] for n in network.layers])
    clusters = np.random.default_rng(seed).permutation(len(cores))
    demand = cluster_demand(network, chip, activity, timing, clusters, mapping.n_cores)
    state = filled_cores(demand, chip, cores[np.argsort(clusters)])
    site = chip.site_index(mapping.site_of)
    assert np.array_equal(link_cycles(demand, state, chip, site), done.link_cycles)
    n_tiles = -(-mapping.n_cores // chip.noc.cores_per_router)
    more = chip.barrier_cycles(program.mapping.n_tiles) - chip.barrier_cycles(n_tiles)
    search = Search(
        network=network, chip=chip, activity=activity, timing=timing, options=Options(), load=np.ones(len(cores)),
        state=np.zeros(1, np.uint64), deadline=None, n_levels=2, tried={},
    )  # fmt: skip
    assert step_cycles(search, cores, site) + more * len(done.link_cycles) == done.bound_cycles.sum()
