"""The cost of single spikes: added up, it is the work that the counters of a run stand for."""

import numpy as np
import pytest

from nwcompile.cost.time.work import compute_work
from nwcompile.nn.training.busiest_core import idle_cycles, spike_cost
from tests.made.chips import small_chip
from tests.made.programs import chip_without, run_of, three_cores


@pytest.mark.parametrize("multicast", ["unicast", "tree"])
@pytest.mark.parametrize("units", ["overlap", "shared"])
@pytest.mark.parametrize("sites", [{}, {"io__sites": ["2,1,0"]}])
def test_spike_costs_add_up_to_the_work_of_a_run(multicast, units, sites):
    program = three_cores(small_chip(cost__units=units, noc__multicast=multicast, noc__payload_flits=0, **sites))
    run = run_of(program, "sequence")
    counters = {**run.counters, "neuron_updates": run.counters["neuron_visits"]}
    n_rows = len(counters["synops"])
    done = compute_work(program, counters, np.zeros((n_rows, len(program.chip.link_cycles)), int), 2)
    cycles, synops = n_rows * run.n_samples * idle_cycles(program), np.zeros(program.mapping.n_cores, int)
    for name in program.network.offsets:
        sent, cost = run.activity.counts[name].sum(0), spike_cost(program, name)
        cycles = cycles + np.einsum("s,usc->uc", sent, cost.cycles)
        synops += sent @ cost.synops
    np.testing.assert_array_equal(cycles, done.busy.sum(1))
    np.testing.assert_array_equal(synops, counters["synops"].sum(0))
    assert synops.all() and cycles.all()


def test_spikes_have_no_cycles_on_a_chip_without_times():
    program = three_cores(chip_without("cost.spike_cycles"))
    assert spike_cost(program, "fc1").cycles is None and idle_cycles(program) is None
    assert spike_cost(program, "fc1").synops.sum() == 12
