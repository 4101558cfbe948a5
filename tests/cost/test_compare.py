"""Figures of a mapping are those that a run counts; layers that moved are counted neuron by neuron."""

import numpy as np
import pytest

from nwcompile.cost.compare import Figures, change_percent, measured_figures, moved_neurons, predicted_figures
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.mapping import Mapping
from nwcompile.passes.emit import emit
from nwcompile.sim import simulate
from tests.made.chips import small_chip
from tests.made.nets import dense_net, feed_forward
from tests.made.programs import chip_without, run_of, three_cores


def test_predicted_figures_are_those_that_a_run_counts():
    program = three_cores()
    run = run_of(program)
    found = predicted_figures(program, run.activity)
    n = len(run.step_cycles) * run.n_samples
    assert found.cores == 3
    assert found.messages_per_step == pytest.approx(run.counters["messages_out"].sum() / n)
    assert found.hops_per_step == pytest.approx(run.counters["hops"].sum() / n)
    assert found.sample_nj == pytest.approx(run.energy_pj["total"] / 1000 / run.n_samples)
    measured = measured_figures(program, run)
    assert measured.step_us == pytest.approx(run.step_cycles.mean() / 1000 / run.n_samples)
    assert 0 < found.step_us <= measured.step_us
    assert found.hottest_link_cycles == measured.hottest_link_cycles
    assert found.hottest_link_cycles == pytest.approx((run.link_flits * program.chip.link_cycles).sum(0).max() / n)


def test_figures_that_a_chip_cannot_give_are_none():
    program = three_cores(chip_without("cost.visit_cycles", "energy.spike_pj"))
    found = predicted_figures(program, Activity.uniform(program.network))
    assert (found.step_us, found.sample_nj) == (None, None)
    change = change_percent(found, Figures(6, 1.0, 0.0, 1.0, 3.0, None))
    assert (change["cores"], change["step_us"], change["sample_nj"]) == (100, None, None)
    zero = Figures(1, 0.0, 0.0, 0.0, 1.0, 1.0)
    assert change_percent(zero, zero)["hops_per_step"] == 0
    assert change_percent(zero, Figures(1, 2.0, 0.0, 0.0, 1.0, 1.0))["messages_per_step"] is None


def test_moved_counts_neurons_whose_site_is_another():
    network, chip = dense_net(3, 4, 2), small_chip()

    def program(cores, sites):
        mapping = Mapping.from_arrays(cores, sites)
        return emit(network, feed_forward(network), mapping, chip, None, {})

    before = program({"fc1": [0, 0, 0, 0], "fc2": [1, 1]}, [[0, 0, 0], [1, 0, 0]])
    after = program({"fc1": [1, 1, 0, 0], "fc2": [2, 2]}, [[2, 1, 1], [0, 0, 0], [1, 0, 0]])
    rows = moved_neurons(before, after)
    assert [(r.layer, r.n_neurons, r.cores_before, r.cores_after, r.n_moved) for r in rows] == [
        ("fc1", 4, 1, 2, 2),
        ("fc2", 2, 1, 1, 0),
    ]
    with pytest.raises(ModelError) as error:
        moved_neurons(before, three_cores())
    assert str(error.value) == ("these are not mappings of one network: 'in' has 3 and 4 neurons; compile both from it")


def test_measured_figures_of_several_samples_are_means():
    program = three_cores()
    x = np.ones((3, 2, 4), np.int64)
    one, three = (measured_figures(program, simulate(program, a, "cycle")) for a in (x[:1], x))
    assert (one.hops_per_step, one.sample_nj) == pytest.approx((three.hops_per_step, three.sample_nj))
    assert one.step_us == pytest.approx(three.step_us)
