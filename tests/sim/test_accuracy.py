"""Accuracy of a model; intervals of shares and of losses: published values, and how often they hold what is true."""

from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ModelError, NwWarning
from nwcompile.sim.accuracy import loss_interval, ratio_interval, share_interval
from tests.made.nets import FIXED, dense_net

N_TRIALS = 200


@pytest.mark.parametrize(
    ("n_right", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_share_interval_is_that_of_newcombe_1998(n_right, n, low, high):
    """R. G. Newcombe, Statistics in Medicine 17 (1998), p. 857, table I, method 3."""
    assert share_interval(n_right / n, n) == pytest.approx((low, high), abs=1e-4)


def test_loss_interval_is_that_of_fagerland_2014():
    """M. W. Fagerland, S. Lydersen, P. Laake, Statistics in Medicine 33 (2014), p. 2850: 1, 1, 7 and 12 of 21 pairs."""
    before = np.repeat([True, True, False, False], [1, 1, 7, 12])
    after = np.repeat([True, False, True, False], [1, 1, 7, 12])
    assert loss_interval(before, after) == pytest.approx((-0.508, -0.013), abs=1e-3)


def test_intervals_hold_the_truth_in_about_95_percent_of_the_draws():
    rng, held = np.random.default_rng(0), {"share": 0, "loss": 0, "ratio": 0}
    for _ in range(N_TRIALS):
        before = rng.random(60) < 0.9
        after = np.where(rng.random(60) < 0.1, rng.random(60) < 0.5, before)  # right in 0.86 of the draws
        whole = rng.integers(50, 150, 60)
        part = rng.binomial(whole, rng.beta(3, 12, 60))  # the ratio is 0.2
        for name, (low, high), truth in (
            ("share", share_interval(before.mean(), 60), 0.9),
            ("loss", loss_interval(before, after), 0.04),
            ("ratio", ratio_interval(part, whole), 0.2),
        ):
            held[name] += low <= truth <= high
    assert all(0.9 * N_TRIALS < n < N_TRIALS for n in held.values()), held


def test_one_sample_does_not_bound_a_ratio():
    assert ratio_interval(np.array([3]), np.array([10])) == (0.0, 1.0)
    assert ratio_interval(np.array([0]), np.array([0])) == (0.0, 0.0)


def test_evaluate_counts_right_answers_of_networks_and_programs():
    x = (np.random.default_rng(0).random((40, 8, 6)) < 0.4).astype(np.int8)
    network = dense_net(6, 12, 4, spec=FIXED.replace(reset="subtract"))
    program = nw.compile(network, "tiny")
    y = nw.simulate(program, x).output.sum(1).argmax(1)
    y[:10] = (y[:10] + 1) % 4
    for found in (nw.evaluate(program, x, y), nw.evaluate(program, x, y, "cycle"), nw.evaluate(network, x, y)):
        assert (found.accuracy, found.n_samples) == (0.75, 40)
        assert found.interval == share_interval(0.75, 40)
        assert repr(found) == "75.00 % (59.8 to 85.8 % at 95 % confidence, 40 samples); " + found.rule
    with pytest.raises(
        nw.ModelError, match=r"^labels y of shape \[2\] do not fit the 40 samples of x; give one for each"
    ):
        nw.evaluate(program, x, [0, 1])
    with pytest.raises(nw.OptionError, match="^evaluate takes a Network or a Program, not int$"):
        nw.evaluate(3, x, y)
    with pytest.raises(nw.ModelError, match="^labels y are 0..4, but the output has 4 neurons, 0..3$"):
        nw.evaluate(program, x, np.arange(40) % 5)


def test_evaluate_warns_of_another_rule_at_the_callers_line():
    network = replace(dense_net(4, 3), left_out="the module does something else")
    with pytest.warns(NwWarning, match="^the accuracy follows .*, but the module does something else$") as said:
        nw.evaluate(network, np.ones((2, 3, 4), np.float32), [0, 1])
    assert [warning.filename for warning in said] == [__file__]


def test_evaluate_checks_labels_before_it_simulates(monkeypatch):
    network = dense_net(4, 3)
    monkeypatch.setattr("nwcompile.sim.accuracy.simulate", None)
    with pytest.raises(ModelError) as e:
        nw.evaluate(network, np.ones((5, 3, 4), np.float32), [0, 1])
    assert str(e.value) == "labels y of shape [2] do not fit the 5 samples of x; give one for each sample"
