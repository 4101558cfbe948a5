"""Kernels without the taps that only padding meets: the same spikes, fewer weights, where chips store kernels."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.connection import Conv2d, Dense
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.prepare.weights import drop_unmet_taps
from nwcompile.sim import BACKENDS, simulate
from tests.made.chips import small_chip
from tests.made.nets import FIXED, integers

SHARED = small_chip(weights__sharing=True)


def net(shape: tuple[int, int, int], kernel=(3, 3), **conv) -> Network:
    edge = Conv2d("in", "conv", integers((6, shape[0] // conv.get("groups", 1), *kernel)), **conv)
    n = int(np.prod(edge.output_shape(shape)))
    out = Dense("conv", "out", integers((5, n), 1))
    return Network.from_arrays({"conv": FIXED, "out": FIXED}, [edge, out], {"in": shape})


def cut(network: Network) -> Network:
    return drop_unmet_taps(network, SHARED, Options())[0]


@pytest.mark.parametrize(
    ("shape", "conv", "left", "padding"),
    [
        ((4, 1, 1), {"padding": 1}, (1, 1), (0, 0)),
        ((4, 2, 2), {"padding": 1, "stride": 2}, (2, 2), (0, 0)),
        ((4, 1, 5), {"padding": 1}, (1, 3), (0, 1)),
        ((4, 1, 1), {"padding": 2, "kernel": (5, 5), "groups": 2}, (1, 1), (0, 0)),
        ((4, 2, 2), {"padding": 2, "dilation": 2}, (1, 1), (0, 0)),
        ((4, 2, 2), {"padding": 1}, (3, 3), (1, 1)),
    ],
)
def test_unmet_taps_are_left_out_and_no_spike_changes(shape, conv, left, padding):
    network = net(shape, **conv)
    smaller = cut(network)
    edge = smaller.connections[0]
    assert np.shape(edge.weight)[2:] == left and tuple(np.broadcast_to(edge.padding, 2)) == padding
    x = np.random.default_rng(1).integers(0, 2, (3, 9, *shape))
    before, after = (simulate(n, x).spikes for n in (network, smaller))
    assert before["conv"].any()
    for layer in before:
        np.testing.assert_array_equal(before[layer], after[layer])


def test_unmet_taps_stay_where_the_sizes_would_not_agree():
    network = net((4, 1, 1), (2, 2), padding=1)  # four outputs of which each tap serves one
    assert cut(network) is network


def test_unmet_taps_free_memory_in_the_program_and_are_told_of():
    network, x = net((4, 1, 1), padding=1), np.ones((2, 8, 4, 1, 1), np.int8)
    program = nw.compile(network, SHARED, x, Options(partitioner="sequential"))
    (row,) = (r for r in program.manifest["legalization"] if r["layer"] == "conv")
    assert (row["was"], row["has"], row["label"]) == ("a kernel of 3 x 3", "1 x 1 of it meet the map", "exact")
    wanted = simulate(nw.compile(network, small_chip(), x, Options(partitioner="sequential")), x)
    for backend in BACKENDS:
        np.testing.assert_array_equal(simulate(program, x, backend).spikes["out"], wanted.spikes["out"])


def test_unmet_taps_stay_on_chips_that_store_no_kernels():
    network = net((4, 1, 1), padding=1)
    assert drop_unmet_taps(network, small_chip(), Options()) == (network, [])
