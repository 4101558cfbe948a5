"""The backends against SANA-FE on its Loihi model: the same spikes, and a step time near that of its BookSim mode."""

import csv

import numpy as np
import pytest

from nwcompile.sim import BACKENDS, simulate
from tests.cost.sanafe import random_net


@pytest.mark.parametrize("backend", BACKENDS)
def test_spikes_packets_hops_and_energy_equal_sanafe(reference, backend):
    program, activity, columns = random_net(reference)
    run = simulate(program, None, backend, steps=len(activity.counts["n"]))
    assert np.array_equal(run.spikes["n"][0], activity.counts["n"])
    assert np.array_equal(run.counters["synops"].sum(1), columns["spikes"])
    assert np.array_equal(run.counters["hops"].sum(1), columns["hops"])
    assert run.energy_pj["total"] == pytest.approx(columns["total_energy"].sum() * 1e12, rel=1e-9)


def test_cycle_time_is_between_the_bound_and_sanafe_with_booksim(reference):
    program, _, columns = random_net(reference)
    with open(reference / "sanafe" / "rand1024_c16_cycle.csv", newline="") as stream:
        booksim = sum(float(row["sim_time"]) for row in csv.DictReader(stream))
    bound = columns["sim_time"].sum()
    seconds = simulate(program, None, "cycle", steps=len(columns["spikes"])).seconds
    assert bound < seconds < booksim * 1.01
