"""Striping deals units over the cores in turn, in proportion to what unequal cores hold."""

import numpy as np
import pytest

from nwcompile.ir.activity import Activity
from nwcompile.ir.options import Options
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.partition.striped import _turns, striped_clusters
from tests.chips import small_chip
from tests.nets import conv_net, dense_net


def dealt(network, method, n_cores):
    options = Options(partitioner=method, n_cores=n_cores)
    return partition(network, small_chip(core__max_in_axons=600), Activity.uniform(network), options).mapping.core_of


@pytest.mark.parametrize("method, channels, bands", [("striped", 4, 1), ("striped-halves", 5, 2)])
def test_striped_deals_the_bands_of_every_pixel_layer_after_layer(method, channels, bands):
    network = conv_net((2, 6, 5), channels=channels, n_out=3)  # 4 x 3 pixels, then 3 neurons
    band = np.arange(channels) * bands // channels
    expected = [*(np.arange(12) * bands + band[:, None]).reshape(-1) % 7, *(12 * bands + np.arange(3)) % 7]
    core_of = dealt(network, method, 7)
    found = [*core_of["conv"], *core_of["out"]]
    assert len(set(zip(expected, found, strict=True))) == len(set(expected)) == len(set(found)) == 7


def test_units_of_a_single_channel_have_one_band():
    assert striped_clusters(conv_net((1, 3, 3), channels=1, n_out=2), 2).tolist() == [0, 1, 2]
    assert striped_clusters(dense_net(2, 3, 2), 2).tolist() == [0, 1, 2, 3, 4]


def test_turns_follow_what_unequal_cores_hold():
    turns = _turns(np.array([100, 50, 50, 0]), 12)
    assert np.bincount(turns, minlength=4).tolist() == [6, 3, 3, 0]
    assert turns[:4].tolist() == turns[4:8].tolist()
