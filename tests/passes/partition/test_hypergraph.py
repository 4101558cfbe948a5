"""Hyperedges are neurons with their readers; without Mt-KaHyPar one sentence says what to install."""

import builtins

import numpy as np
import pytest

from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.options import Options
from nwcompile.passes.partition.baselines import build_hypergraph, load_library
from nwcompile.passes.partition.partition import partition
from tests.made.chips import small_chip
from tests.made.nets import dense_net, mixed_net, synapses


@pytest.mark.parametrize("fine, most", [(1 << 30, 3), (0, 3)])
def test_hyperedges_hold_a_neuron_and_all_its_readers(monkeypatch, fine, most):
    monkeypatch.setattr("nwcompile.passes.partition.baselines.FINE", fine)
    network, rng = mixed_net(4), np.random.default_rng(4)
    counts = {n: rng.poisson(0.7, (3, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    pins, weight, vertex_of = build_hypergraph(network, Activity(counts, 1), most)
    expected = [{v} for v in range(len(pins))]
    for c in network.connections:
        for pre, post in synapses(network, c):
            source, target = network.offsets[c.source] + pre, network.offsets[c.target] + post
            expected[vertex_of[source]].add(int(vertex_of[target]))
    assert [set(p.tolist()) for p in pins] == expected
    assert [len(p) for p in pins] == [len(e) for e in expected]
    spikes = np.concatenate([counts[name].sum(0) for name in network.offsets])
    assert weight.tolist() == np.maximum(1, np.bincount(vertex_of, spikes)).tolist()
    assert (len(pins) < len(vertex_of)) == (fine == 0)


def test_hypergraph_refuses_more_pins_than_can_be_handed_over(monkeypatch):
    monkeypatch.setattr("nwcompile.passes.partition.baselines.MOST_PINS", 1000)
    network = dense_net(10, 60, 60)
    with pytest.raises(OptionError) as error:
        build_hypergraph(network, Activity.uniform(network), 1)
    assert str(error.value) == (
        "partitioner 'hypergraph' makes over 1 000 pins of the synapses; use partitioner='sequential'"
    )


def test_hypergraph_says_what_to_install(monkeypatch):
    load = builtins.__import__

    def without(name, *arguments, **more):
        if name == "mtkahypar":
            raise ImportError(name)
        return load(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    load_library.cache_clear()
    network = dense_net(2, 3)
    with pytest.raises(OptionError) as error:
        partition(network, small_chip(), Activity.uniform(network), Options(partitioner="hypergraph"))
    assert str(error.value) == (
        "partitioner 'hypergraph' needs Mt-KaHyPar, which is not installed: pip install 'nwcompile[hypergraph]' "
        "(package mtkahypar)"
    )
