"""NeuMap's partitioner: clusters hold neurons of one sub-network only, and every sub-network has its share of cores."""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.options import Options
from nwcompile.passes.partition.baselines import _share_parts, partition_by_neumap
from tests.made.chips import small_chip
from tests.made.nets import dense_net


def cores_of(n_cores: int) -> list[set[int]]:
    """Cores of the four layers of a net, 8 neurons each."""
    network = dense_net(5, 8, 8, 8, 8)
    options = Options(n_cores=n_cores)
    cores = partition_by_neumap(network, small_chip(), Activity.uniform(network), options).core_of
    return [set(np.unique(cores[name]).tolist()) for name in network.layers]


def test_neumap_keeps_two_adjacent_layers_together_and_others_apart():
    first, second, third, fourth = cores_of(4)
    assert len(first | second) == len(third | fourth) == 2
    assert not (first | second) & (third | fourth)


def test_neumap_on_fewer_cores_than_sub_networks_takes_neighbors_as_one():
    assert cores_of(1) == [{0}] * 4


def test_shares_give_every_sub_network_a_part_and_more_where_most_neurons_share_one():
    assert _share_parts(np.array([10, 100, 50]), 3).tolist() == [1, 1, 1]
    assert _share_parts(np.array([10, 100, 50]), 6).tolist() == [1, 3, 2]
