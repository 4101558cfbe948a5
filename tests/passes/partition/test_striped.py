"""Striping deals units over the cores in turn, in proportion to what unequal cores hold."""

import numpy as np
import pytest

from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Conv2d
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.partition import graph_partition
from nwcompile.passes.partition.graph_partition import _take_turns, striped_clusters
from nwcompile.passes.partition.partition import partition
from tests.made.chips import small_chip
from tests.made.nets import FIXED, conv_net, dense_net, integers


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
    turns = _take_turns(np.array([100, 50, 50, 0]), 12)
    assert np.bincount(turns, minlength=4).tolist() == [6, 3, 3, 0]
    assert turns[:4].tolist() == turns[4:8].tolist()


@pytest.mark.parametrize(("bits", "kernel_rows", "n_given_up"), [(700, False, 4), (1800, False, 4), (1800, True, 0)])
def test_parts_that_surely_lack_memory_for_kernels_are_given_up_before_that_is_found_out(
    monkeypatch, bits, kernel_rows, n_given_up
):
    network = Network.from_arrays({"a": FIXED}, [Conv2d("in", "a", integers((24, 2, 3, 3)))], {"in": (2, 6, 5)})
    chip = small_chip(core__synapse_bits=bits, core__max_in_axons=None, weights__sharing=True,
                      weights__kernel_rows=kernel_rows, core__block_overhead_bits=0)  # fmt: skip
    judge, answers = graph_partition._lacks_memory, []

    def cores():
        options = Options(partitioner="striped")
        return partition(network, chip, Activity.uniform(network), options).mapping.core_of["a"].tolist()

    monkeypatch.setattr(graph_partition, "_lacks_memory", lambda *given: answers.append(judge(*given)) or answers[-1])
    found = cores()
    monkeypatch.setattr(graph_partition, "_lacks_memory", lambda *given: False)
    assert found == cores() and sum(answers) == n_given_up and not answers[-1]
