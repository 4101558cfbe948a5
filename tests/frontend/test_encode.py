"""Encoding: real numbers as whole numbers in every step, that add up to them."""

import numpy as np
import pytest

import nwcompile as nw

X = np.random.default_rng(0).uniform(-1, 1, (3, 2, 5)).astype(np.float32)


@pytest.mark.parametrize("unit", [1.0, 0.3, 1 / 7])
def test_encode_current_adds_up_to_the_samples_after_every_step(unit):
    spikes = nw.encode(X, 9, unit=unit)
    assert spikes.dtype == np.int8 and spikes.shape == (3, 9, 2, 5)
    due = np.arange(1, 10)[:, None, None] * X[:, None].astype(float) / unit
    assert np.abs(spikes.astype(int).cumsum(1) - due).max() <= 0.5 + 1e-6


def test_encode_current_is_the_same_in_every_step_for_multiples_of_the_unit():
    grey = np.arange(256, dtype=np.uint8).reshape(1, 256)
    spikes = nw.encode((grey / 255).astype(np.float32), 40, unit=1 / 255)
    assert spikes.dtype == np.int32
    np.testing.assert_array_equal(spikes, np.broadcast_to(grey[:, None], spikes.shape))


def test_encode_bernoulli_has_chances_signs_and_a_seed():
    spikes = nw.encode(X, 4000, "bernoulli", seed=5)
    assert np.abs(spikes.mean(1) - X).max() < 0.05
    assert (np.abs(spikes).max(1) <= 1).all() and ((spikes * X[:, None]) >= 0).all()
    np.testing.assert_array_equal(spikes, nw.encode(X, 4000, "bernoulli", seed=5))
    assert (spikes != nw.encode(X, 4000, "bernoulli", seed=6)).any()


@pytest.mark.parametrize(
    "x, options, text",
    [
        (X, {"kind": "poisson"}, "unknown kind 'poisson'; choose one of: bernoulli, current, delta"),
        (X, {"steps": 0}, "steps=0 must be a whole number from 1 on"),
        (X, {"kind": np.array(["current", "bernoulli"])}, "unknown kind \"['current' 'bernoulli']\"; choose one of: "
         "bernoulli, current, delta"),
        (X, {"steps": 1 << 50}, "steps=1125899906842624 of 3 samples do not fit in memory; encode fewer"),
        (X, {"kind": "bernoulli", "seed": -1}, "seed=-1 must be a whole number from 0 on"),
        (X, {"kind": "bernoulli", "seed": 1.5}, "seed=1.5 must be a whole number from 0 on"),
        (X, {"unit": 0}, "unit=0 must be a number above 0, the value of one unit of the input"),
        (np.where(X > 0, np.nan, X), {}, "samples have NaN or infinite values; clean the data first"),
        (X[:0], {}, "samples must be numbers [B, *shape], got float32 of shape [0, 2, 5]"),
        (np.array([["a"]]), {}, "samples must be numbers [B, *shape], got <U1 of shape [1, 1]"),
        (np.array([[3.5]]), {"kind": "bernoulli"}, "samples go up to 3.5 units of 1, but a chance is at most 1; give a "
         "larger unit, or scale them"),
        (np.array([[3e9]]), {}, "samples go up to 3e+09 units of 1, but an input sends at most 8388607 in a step; give "
         "a larger unit, or scale them"),
    ],
)  # fmt: skip
def test_encode_refuses(x, options, text):
    with pytest.raises(nw.NwError) as error:
        nw.encode(x, **{"steps": 4, **options})
    assert str(error.value) == text
