"""The backends against SANA-FE on its Loihi model: the same spikes, and a step time near that of its BookSim mode."""

import csv

import numpy as np
import pytest
from scipy.stats import spearmanr

from nwcompile.cost.time.floorline import bound_tightness, floorline
from nwcompile.sim import BACKENDS, simulate
from tests.made.sanafe import dvs_program, random_net


@pytest.mark.parametrize("backend", BACKENDS)
def test_spikes_packets_hops_and_energy_equal_sanafe(reference, backend):
    program, activity, columns = random_net(reference)
    run = simulate(program, None, backend, steps=len(activity.counts["n"]))
    assert np.array_equal(run.spikes["n"][0], activity.counts["n"])
    assert np.array_equal(run.counters["synops"].sum(1), columns["spikes"])
    assert np.array_equal(run.counters["hops"].sum(1), columns["hops"])
    assert run.energy_pj["total"] == pytest.approx(columns["total_energy"].sum() * 1e12, rel=1e-9)


def step_seconds(program, n_steps):
    run = simulate(program, None, "cycle", steps=n_steps, window="hardware")
    return run, run.step_cycles * program.chip.core.cycle_ns * 1e-9


def seconds_of(path, name):
    with open(path, newline="") as stream:
        return np.array([float(row[name]) for row in csv.DictReader(stream)])


def test_cycle_time_exceeds_the_bound_about_as_much_as_sanafe_with_booksim(reference):
    program, _, columns = random_net(reference)
    bound = np.array(columns["sim_time"])
    booksim = seconds_of(reference / "sanafe" / "rand1024_c16_cycle.csv", "sim_time") - bound
    excess = step_seconds(program, len(bound))[1] - bound
    assert excess.min() >= 0
    assert 0.5 < excess.sum() / booksim.sum() < 2
    assert spearmanr(excess, booksim).statistic >= 0.7


DVS_BOOKSIM_100 = 2.03783e-3  # seconds of the first 100 steps with BookSim (reference/sanafe/README.md)


def test_dvs_net_fires_and_sends_as_in_sanafe(reference):
    run = simulate(dvs_program(reference), None, "sequence", steps=100)
    assert sum(int(spikes.sum()) for spikes in run.spikes.values()) == 29_252
    assert run.counters["synops"].sum() == 4_172_959
    assert run.counters["messages_out"].sum() == 198_161


@pytest.mark.long
def test_dvs_net_takes_the_energy_and_time_of_sanafe(reference):
    run, seconds = step_seconds(dvs_program(reference), 1000)
    assert sum(int(spikes.sum()) for spikes in run.spikes.values()) == 365_277
    assert run.counters["messages_out"].sum() == 2_482_643
    assert run.counters["neuron_updates"].sum() == 15_539_753
    energy = run.energy_pj
    soma = energy["visit"] + energy["update"] + energy["spike"]
    network = energy["message_out"] + energy["hop_ew"] + energy["hop_ns"]
    assert energy["synop_dense"] == pytest.approx(1.830003e9, rel=1e-6)
    assert soma == pytest.approx(1.317286e9, rel=1e-6)
    assert network == pytest.approx(0.293282e9, rel=1e-6)
    assert energy["total"] == pytest.approx(3.440571e9, rel=1e-6)
    simple = seconds_of(reference / "sanafe" / "dvs_challenge_loihi_1000steps.csv", "sim_time_simple_s")
    assert simple.sum() == pytest.approx(23.95134e-3, rel=1e-6)
    assert (seconds - simple).min() >= -1e-15
    assert 0.5 < (seconds[:100] - simple[:100]).sum() / (DVS_BOOKSIM_100 - simple[:100].sum()) < 2


@pytest.mark.parametrize("net", ["rand1024", "dvs"])
def test_bound_is_tight_where_links_are_not_busy(net, reference):
    program = random_net(reference)[0] if net == "rand1024" else dvs_program(reference)
    run, _ = step_seconds(program, 100)
    bound = floorline(program, run.counters, run.link_flits, run.n_samples).bound_cycles
    assert (run.link_flits * program.chip.link_cycles).sum(0).max() < 0.3 * run.step_cycles.sum()
    assert (bound <= run.step_cycles).all()
    assert bound_tightness(bound, run.step_cycles) >= 0.95
