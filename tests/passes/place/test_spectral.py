"""Spectral placement: the waves are eigenvectors of the graph's Laplacian, and cores lie where these say."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.place.direct import _shared_messages, _slowest_waves
from nwcompile.passes.place.place import place
from tests.made.chips import small_chip
from tests.made.nets import FIXED, integers


def test_waves_are_the_slowest_eigenvectors_of_the_laplacian():
    weight = np.zeros((6, 6))
    for a, b, w in ((0, 1, 9), (1, 2, 9), (2, 0, 7), (2, 3, 1), (3, 4, 5), (4, 5, 6), (5, 3, 8)):
        weight[a, b] = weight[b, a] = w
    total = weight.sum(0)
    values, vectors = np.linalg.eigh(np.eye(6) - weight / np.sqrt(total[:, None] * total))
    for found, exact in zip(_slowest_waves(csr_array(weight), total, 3), vectors.T[1:3], strict=True):
        exact = exact / np.sqrt(total)
        exact = exact * np.sign(exact[np.abs(exact).argmax()])
        assert found / np.abs(found).max() == pytest.approx(exact / np.abs(exact).max(), abs=1e-6)
    assert values[0] == pytest.approx(0)


def test_together_counts_the_messages_whose_hyperedge_holds_both_cores():
    edge = Sparse("a", "a", np.array([0, 0, 0, 1, 2]), np.array([1, 2, 3, 2, 2]), integers(5))
    network = Network.from_arrays({"a": (FIXED, (4,))}, [edge], {})
    mapping = Mapping.from_arrays({"a": [0, 1, 2, 1]}, small_chip().sites[:3])
    activity = Activity({"a": np.array([[5, 3, 7, 1]], np.int32)}, 9)
    found = _shared_messages(mapping, network, small_chip(), activity).toarray()
    assert found.tolist() == [[0, 5, 5], [5, 0, 8], [5, 8, 0]]


def test_spectral_lays_each_half_of_a_chain_on_its_side():
    n = 6
    edge = Sparse("a", "a", np.arange(n - 1), np.arange(1, n), integers(n - 1))
    network = Network.from_arrays({"a": (FIXED, (n,))}, [edge], {})
    chip = small_chip(noc__columns=n, noc__rows=1, noc__cores_per_router=1)
    order = np.random.default_rng(1).permutation(n)
    mapping = Mapping.from_arrays({"a": order}, chip.sites[:n])
    activity = Activity({"a": np.full((1, n), 4, np.int32)}, 4)
    x = place(mapping, network, chip, activity, Options(placer="spectral")).site_of[order, 0]
    assert sorted(x[:3].tolist()) in ([0, 1, 2], [3, 4, 5])


def test_spectral_leaves_a_mapping_without_messages_alone():
    network = Network.from_arrays({"a": (FIXED, (2,))}, [Sparse("a", "a", [0], [1], [3])], {})
    mapping = Mapping.from_arrays({"a": [0, 1]}, small_chip().sites[[4, 2]])
    silent = Activity({"a": np.zeros((1, 2), np.int32)}, 1)
    assert place(mapping, network, small_chip(), silent, Options(placer="spectral")).site_of.tolist() == (
        mapping.site_of.tolist()
    )
