"""Axon types: as few as possible, against trying all colorings; the violation says where and how many."""

from itertools import product

import numpy as np
import pytest
import torch

from nwcompile.ir.connection import Conv2d, Dense, Sparse, synapse_list
from nwcompile.ir.network import Network
from nwcompile.passes.analyze.axon_types import n_types, too_many_weights
from tests.made.chips import small_chip
from tests.made.nets import FIXED, sparse_edge
from tests.made.violations import lines


def fewest_types(weights: np.ndarray) -> int:
    """By trying every way to type the axons."""
    n = len(weights)
    apart = [(i, j) for i in range(n) for j in range(i)
             if np.any((weights[i] != 0) & (weights[j] != 0) & (weights[i] != weights[j]))]  # fmt: skip
    return next(
        k for k in range(1, n + 1) if any(all(t[i] != t[j] for i, j in apart) for t in product(range(k), repeat=n))
    )


@pytest.mark.parametrize("seed", range(30))
def test_axon_types_are_enough_exactly_where_some_typing_is(seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(-1, 2 + seed % 2, (rng.integers(1, 7), rng.integers(1, 5)))
    fewest = fewest_types(weights)
    for limit in range(1, 7):
        assert (n_types(weights, limit) <= limit) == (fewest <= limit)
        assert n_types(weights, limit) >= fewest


def test_axon_types_are_found_by_backtracking_where_the_first_choices_are_bad():
    rng = np.random.default_rng(309)
    apart = [(i, j) for i in range(9) for j in range(i) if rng.random() < 0.5]
    weights = np.zeros((9, len(apart)), np.int64)
    for neuron, (i, j) in enumerate(apart):
        weights[i, neuron], weights[j, neuron] = 1, 2
    assert n_types(weights, 4) == 4
    assert n_types(weights, 3) == 3


def test_axon_types_of_a_full_core_are_found_where_they_are_hidden():
    rng = np.random.default_rng(0)
    weights = (rng.random((256, 256)) < 0.1) * rng.integers(1, 200, (4, 256))[rng.integers(0, 4, 256)]
    assert n_types(weights, 4) == 4
    assert n_types(rng.integers(-100, 100, (256, 256)), 4) > 4


def net(edge) -> Network:
    return Network.from_arrays({"a": (FIXED, (4,))}, [edge], {"in": (3,)})


def test_axon_types_violation_names_layer_core_used_and_limit():
    network = net(Dense("in", "a", np.array([[1, 2, 3], [1, 0, 0], [0, 0, 0], [0, 0, 5]], np.int8)))
    assert lines(network, small_chip(weights__axon_types=3)) == []
    advice = "give each neuron of a at most 2 weights, and inputs of one kind the same one"
    assert lines(network, small_chip(weights__axon_types=2)) == [
        f"axon types  a -> core 0  3 of 2  {advice}, or raise weights.axon_types"
    ]


def test_axon_types_add_up_parallel_synapses():
    edges = [Dense("in", "a", np.array([[1, 2]] * 4, np.int8)), Dense("in", "a", np.array([[2, 1]] * 4, np.int8))]
    network = Network.from_arrays({"a": (FIXED, (4,))}, edges, {"in": (2,)})
    assert lines(network, small_chip(weights__axon_types=1)) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("conv", [{}, {"padding": 1, "stride": 2}, {"groups": 2}, {"dilation": 2, "padding": (2, 1)}])
def test_axon_types_of_a_convolution_are_those_of_its_synapses_one_by_one(conv, seed):
    n_read = 4 // conv.get("groups", 1)
    weight = np.random.default_rng(seed).integers(-2, 3, (4, n_read, 2, 3)).astype(np.int8)
    edge = Conv2d("in", "a", weight, **conv)
    shape = edge.output_shape((4, 5, 4))
    network = Network.from_arrays({"a": (FIXED, shape)}, [edge], {"in": (4, 5, 4)})
    one_by_one = torch.eye(80).reshape(80, 4, 5, 4)
    matrix = torch.nn.functional.conv2d(one_by_one, torch.from_numpy(weight).float(), **conv).reshape(80, -1)
    used = n_types(matrix.numpy().astype(np.int64), 1)
    assert used > 5
    found = lines(network, small_chip(core__max_neurons=128, weights__axon_types=1))
    assert [line.split("  ")[2] for line in found] == [f"{used} of 1"]


@pytest.mark.parametrize("seed", range(40))
def test_too_many_weights_are_those_that_one_neuron_reads(seed):
    """Nothing is said if weights add up, or if no neuron reads the whole kernel."""
    rng = np.random.default_rng(seed)
    shape = (2, *rng.integers(1, 5, 2).tolist())
    n = 2 * shape[1] * shape[2]
    kernel = rng.integers(-3, 4, (3, 2, *rng.integers(1, 4, 2))).astype(np.int8)
    edge = [
        Dense("in", "a", rng.integers(-3, 4, (6, n)).astype(np.int8)),
        Conv2d("in", "a", kernel, padding=(2, 2), stride=int(rng.integers(1, 3))),
        sparse_edge("in", "a", n, 6, int(rng.integers(1, 20)), seed),
    ][seed % 3]
    edges = [edge] if seed % 4 else [edge, edge.replace()]
    out = edge.output_shape(shape) or (6,)
    network = Network.from_arrays({"a": (FIXED, out)}, edges, {"in": shape})
    read = np.zeros((n, int(np.prod(out))), np.int64)
    for c in edges:
        pre, post, place = synapse_list(c, shape)
        np.add.at(read, (pre, post), np.ravel(c.weight)[place])
    most = max(len(np.unique(column[column != 0])) for column in read.T)
    told = [violation.used for violation in too_many_weights(network, small_chip(weights__axon_types=1))]
    adds_up = len(edges) > 1 or (
        isinstance(edge, Sparse) and len({*zip(edge.pre, edge.post, strict=True)}) < len(edge.pre)
    )
    may_be_part = isinstance(edge, Conv2d) and any(k > m for k, m in zip(kernel.shape[2:], shape[1:], strict=True))
    assert told == ([f"{most} or more"] if most > 1 and not adds_up and not may_be_part else [])


def test_too_many_weights_counts_weights_as_the_chip_clips_them():
    weight = np.array([[10, 20, 40, 80]] * 4, np.int8)  # times 4, at most 100: 40, 80, 100, 100
    edge = Dense("in", "a", weight, exponent=2)
    network = Network.from_arrays({"a": (FIXED, (4,))}, [edge], {"in": (4,)})
    chips = [small_chip(weights__axon_types=n, weights__effective_limit=100) for n in (2, 3)]
    told = [[violation.used for violation in too_many_weights(network, chip)] for chip in chips]
    assert told == [["3 or more"], []]


def test_too_many_weights_lists_five_connections_and_how_many_more_there_are():
    rng = np.random.default_rng(0)
    names = ["in", *(f"l{i}" for i in range(8))]
    edges = [Dense(a, b, rng.integers(1, 100, (4, 4)).astype(np.int8)) for a, b in zip(names, names[1:], strict=False)]
    network = Network.from_arrays(dict.fromkeys(names[1:], (FIXED, (4,))), edges, {"in": (4,)})
    told = [violation.where for violation in too_many_weights(network, small_chip(weights__axon_types=2))]
    assert told == ["in -> l0", "l0 -> l1", "l1 -> l2", "l2 -> l3", "l3 -> l4", "3 more connections"]


def test_axon_types_of_a_core_that_is_too_full_are_not_judged():
    network = net(Dense("in", "a", np.array([[1, 2, 3]] * 4, np.int8)))
    found = lines(network, small_chip(weights__axon_types=2, core__max_neurons=3))
    assert [line.split("  ")[0] for line in found] == ["neurons"]


def test_axon_types_of_sparse_synapses():
    network = net(sparse_edge("in", "a", 3, 4, 40))
    assert "axon types" in lines(network, small_chip(weights__axon_types=1))[0]
