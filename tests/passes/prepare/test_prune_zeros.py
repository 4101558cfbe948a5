"""Dropping zeros: pruned dense connections become lists where the chip is better off, and compute the same."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.connection import Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.passes.prepare.weights import prune_zeros
from nwcompile.sim import simulate
from tests.made.chips import small_chip


def network(n_left: int, **more) -> Network:
    """10 lines -> 10 neurons with so many weights that are not 0."""
    weight = np.zeros(100, int)
    weight[np.random.default_rng(0).permutation(100)[:n_left]] = 3
    edge = Dense("in", "out", weight.reshape(10, 10), np.arange(10), **more)
    return Network.from_arrays({"out": NeuronSpec(threshold=200, fixed=FixedPoint())}, [edge], {"in": (10,)})


@pytest.mark.parametrize(
    "n_left, chip, kind",
    [
        (50, {}, Sparse),
        (51, {}, Dense),
        (50, {"cost__synop_sparse_cycles": 8}, Sparse),  # 50 * 8 cycles are no more than 100 * 4
        (50, {"cost__synop_sparse_cycles": 9}, Dense),
        (49, {"weights__index_bits": 8}, Sparse),  # 49 * 16 bits are less than 100 * 8
        (50, {"weights__index_bits": 8}, Dense),
        (1, {"weights__axon_types": 4}, Dense),
        (1, {"weights__axon_types": 4, "core__max_in_axons": 10}, Dense),
        (1, {"weights__axon_types": 4, "core__max_in_axons": 9}, Sparse),  # its 10 rows fit no core
        (99, {"core__max_in_axons": 9}, Sparse),  # likewise, whatever that takes
        (100, {"core__max_in_axons": 9}, Dense),
        (0, {}, Sparse),
    ],
)  # fmt: skip
def test_zeros_are_dropped_where_that_takes_less_memory_and_no_more_time(n_left, chip, kind):
    (edge,) = prune_zeros(network(n_left), small_chip(**chip)).connections
    assert type(edge) is kind
    assert np.size(edge.weight) == (n_left if kind is Sparse else 100)


@pytest.mark.parametrize("n_left", [0, 30])
def test_a_network_without_its_zeros_computes_the_same(n_left):
    before = network(n_left, delay=1, exponent=1, sign_mode="exc", weight_bits=4)
    after = prune_zeros(before, small_chip())
    assert {**vars(after.connections[0]), **vars(before.connections[0])}.keys() >= {"delay", "exponent", "bias"}
    edge = after.connections[0]
    assert (edge.delay, edge.exponent, edge.sign_mode, edge.weight_bits) == (1, 1, "exc", 4)
    x = np.random.default_rng(1).integers(0, 2, (3, 9, 10))
    one, two = (simulate(n, x, record="all") for n in (before, after))
    np.testing.assert_array_equal(one.states["out"]["v"], two.states["out"]["v"])
    assert one.spikes["out"].any()


def test_a_pruned_network_fits_where_its_rows_would_not():
    chip = small_chip(core__synapse_bits=512, noc__columns=1, noc__rows=1, noc__cores_per_router=1)
    program = nw.compile(network(8), chip)
    assert program.axons.row_bits.sum() <= 512
    with pytest.raises(FitError):
        nw.compile(network(60), chip)
