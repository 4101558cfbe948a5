"""Sums of whole numbers in floats: which float type holds them, and the gradients of every kind of connection."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.nn.qat import sums as integer_sums
from nwcompile.nn.qat.sums import IntegerWeights, sum_synapses


@pytest.mark.parametrize(
    ("row", "largest", "wanted"),
    [
        ([1 << 23, 1 << 23], 1, torch.float32),
        ([(1 << 24) - 1, 1, 1], 1, torch.float64),
        ([(1 << 24) - 1, 2], 1, torch.float64),
        ([-(1 << 24), 64], 1, torch.float32),  # multiples of 64: the sums have 19 bits
        ([1, 3], 1 << 22, torch.float32),
        ([1, 4], 1 << 22, torch.float64),
    ],
)
def test_sums_take_the_narrowest_float_that_is_proved(row, largest, wanted):
    weight = np.array([row, [0] * len(row)], np.float64)
    c = nw.Dense("a", "b", weight.astype(np.float32))
    assert IntegerWeights.from_connection(c, weight, 2).choose_dtype(c, largest) == wanted


def test_sums_of_synapses_count_each_of_a_neuron():
    weight = np.array([1 << 23, 1 << 23, 1 << 23, 1], np.float64)
    c = nw.Sparse("a", "b", [0, 1, 0, 1], [0, 0, 1, 0], weight.astype(np.float32))
    assert IntegerWeights.from_connection(c, weight, 2).choose_dtype(c, 1) == torch.float64
    assert IntegerWeights.from_connection(c, weight, 2).row_sum == (1 << 24) + 1


@pytest.mark.parametrize("filled", [0, 32])
def test_sums_and_gradients_of_synapses_are_those_of_the_matrix(filled, monkeypatch):
    monkeypatch.setattr(integer_sums, "MAX_ENTRIES_PER_SYNAPSE", filled)
    rng = np.random.default_rng(0)
    pre, post = rng.integers(0, 5, 12), rng.integers(0, 4, 12)  # some twice
    weight = torch.tensor(rng.integers(-9, 10, 12), dtype=torch.float64, requires_grad=True)
    x = torch.tensor(rng.integers(0, 3, (6, 5)), dtype=torch.float64, requires_grad=True)
    matrix = torch.zeros(4, 5, dtype=torch.float64).index_put((torch.tensor(post), torch.tensor(pre)), weight, True)
    of = torch.tensor(rng.normal(size=(6, 4)))
    found = sum_synapses(nw.Sparse("a", "b", pre, post, np.zeros(12)), x, weight, (5,), 4)
    assert torch.equal(found, x @ matrix.T)
    wanted = torch.autograd.grad(((x @ matrix.T) * of).sum(), (x, weight), retain_graph=True)
    for one, other in zip(wanted, torch.autograd.grad((found * of).sum(), (x, weight)), strict=True):
        torch.testing.assert_close(other, one)
