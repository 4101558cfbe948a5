import numpy as np
import pytest

from nwcompile.ir import flat
from tests.made.nets import dense_net

COUNTS = [2, 0, 3]
OFFSET = np.array([0, 2, 2, 5])


def test_neurons_of_layers_are_one_vector_after_the_lines():
    network = dense_net(3, 4, 2)
    sizes = [network.node(name).n_neurons for name in network.layers]
    assert flat.count_lines(network) == 3 and flat.count_neurons(network) == sum(sizes)
    starts = flat.neuron_offsets(network)
    assert list(starts.values()) == [0, sizes[0]]
    assert all(start + 3 == network.offsets[name] for name, start in starts.items())
    assert flat.layer_numbers(network).tolist() == [0] * sizes[0] + [1] * sizes[1]


def test_joined_layers_are_cut_into_the_same_arrays():
    network = dense_net(3, 4, 2)
    by_layer = {name: np.arange(network.node(name).n_neurons) + 10 * i for i, name in enumerate(network.layers)}
    vector = flat.join_layers(network, by_layer)
    assert vector.tolist() == [0, 1, 2, 3, 10, 11]
    cut = flat.split_layers(network, vector)
    assert list(cut) == list(network.layers) and all((cut[name] == by_layer[name]).all() for name in cut)
    cores = flat.cores_of_sources(network, vector)
    assert cores.dtype == np.int32 and cores.tolist() == [-1] * 3 + vector.tolist()


@pytest.mark.parametrize("counts", [COUNTS, np.array(COUNTS, np.int32), np.array(COUNTS, np.uint8)])
def test_csr_offset_is_int64_of_any_counts(counts):
    offset = flat.csr_offset(counts)
    assert offset.dtype == np.int64 and offset.tolist() == OFFSET.tolist()
    assert flat.csr_offset([]).tolist() == [0] and flat.csr_offset([]).dtype == np.int64


def test_csr_groups_entries_and_sums_follow_the_offsets():
    assert flat.csr_groups(OFFSET).tolist() == [0, 0, 2, 2, 2]
    assert flat.csr_entries(OFFSET, np.array([2, 1, 0, 2])).tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert flat.csr_entries(OFFSET, np.zeros(0, int)).tolist() == []
    assert flat.csr_sums(OFFSET, np.array([1, 2, 4, 8, 16])).tolist() == [3, 0, 28]
    assert flat.csr_sums(OFFSET, np.array([True, True, False, True, True])).tolist() == [2, 0, 2]


def test_entries_of_a_part_of_the_groups_are_counted_by_column():
    offset, column = np.array([0, 1, 4, 4, 6]), np.array([2, 0, 1, 0, 2, 2], np.int32)
    assert flat.csr_counts(offset, column, 3).toarray().tolist() == [[0, 0, 1], [2, 1, 0], [0, 0, 0], [0, 0, 2]]
    assert flat.csr_counts(offset[1:], column, 3).toarray().tolist() == [[2, 1, 0], [0, 0, 0], [0, 0, 2]]
