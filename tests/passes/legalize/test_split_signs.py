"""Odd weights of both signs on a chip whose mixed-sign weights are even: two connections, and the same network."""

import numpy as np
import pytest

from nwcompile import flow
from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.passes.legalize.split_signs import split_signs
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.crosscheck import crosscheck
from tests.made.nets import integers, sparse_edge

LOIHI = NeuronSpec(threshold=640, fixed=FixedPoint(), decay_u=4096, decay_v=300, bias=64)


def odd_net() -> Network:
    """Every kind of connection, with odd and even weights of both signs, a bias and a delay."""
    conv = Conv2d("in", "a", integers((4, 2, 3, 3), 1, -99, 99), bias=np.array([3, -2, 0, 5]), stride=2, padding=1)
    dense = Dense("a", "b", integers((7, 36), 2, -20, 20).astype(np.int16), exponent=-1, delay=1)
    sparse = sparse_edge("b", "c", 7, 6, 30, 3)
    own = Dense("c", "c", integers((6, 6), 4, -9, -1))
    layers = {name: (LOIHI, shape) for name, shape in (("a", (4, 3, 3)), ("b", 7), ("c", 6))}
    return Network.from_arrays(layers, [conv, dense, sparse, own], {"in": (2, 6, 6)})


def test_split_signs_of_odd_weights_compiles_for_loihi_exactly():
    network = odd_net()
    x = np.random.default_rng(5).integers(0, 2, (2, 25, 2, 6, 6))
    program = flow.compile(network, "loihi1", x)
    wanted = simulate(network, x).spikes
    assert all(wanted[name].any() and not wanted[name].all() for name in network.layers)
    for backend in BACKENDS:
        spikes = simulate(program, x, backend).spikes
        assert all(np.array_equal(spikes[name], wanted[name]) for name in network.layers), backend
    assert crosscheck(program, x).agree
    n_nonzero = np.count_nonzero(network.connections[1].weight)
    both, became = (
        "weights of both signs are multiples of 2 on loihi1, so these",
        "became an excitatory and an inhibitory",
    )
    as_before = "messages and axons as before"
    assert program.warnings[:3] == [
        f"connection in -> a: {both} {became} connection, exactly: 144 stored weights instead of 72, {as_before}",
        f"connection a -> b: {both} {became} sparse connection, exactly: {n_nonzero} stored weights instead of 252, "
        f"{as_before}",
        f"connection b -> c: {both} {became} connection, exactly: 30 stored weights instead of 30, {as_before}",
    ]
    modes = [c.sign_mode for c in program.network.connections]
    assert modes == ["exc", "inh", "exc", "inh", "exc", "inh", "inh"]  # the last has one sign only: no cost, no warning


def test_split_signs_leaves_what_the_chip_holds():
    even = Dense("in", "a", 2 * integers((3, 4)))
    network = Network.from_arrays({"a": (LOIHI, 3)}, [even], {"in": 4})
    for chip in ("loihi1", "tiny"):
        kept, warnings = split_signs(network, Chip.load(chip))
        assert kept.connections[0] is even and not warnings
    assert split_signs(odd_net(), Chip.load("tiny"))[1] == []


def test_split_signs_splits_nothing_in_vain():
    """255 and more needs another exponent: the chip's refusal stays."""
    weight = np.array([[257, -3]], np.int16)
    network = Network.from_arrays({"a": (LOIHI, 1)}, [Dense("in", "a", weight)], {"in": 2})
    with pytest.raises(
        FitError, match="weight  in -> a  must be -256..254, is 257  scale the weights down or quantize again"
    ):
        flow.compile(network, "loihi1")
    asked = Dense("in", "a", np.array([[3, -3]], np.int8), sign_mode="exc")
    network = Network.from_arrays({"a": (LOIHI, 1)}, [asked], {"in": 2})
    assert split_signs(network, Chip.load("loihi1"))[0].connections[0] is asked


def test_split_signs_keeps_dense_weights_dense_where_an_index_costs_more():
    chip = Chip.load("loihi1").replace({"weights.index_bits": 9})
    weight = np.array([[1, -1], [3, -5]], np.int8)
    network = Network.from_arrays({"a": (LOIHI, 2)}, [Dense("in", "a", weight, bias=np.array([1, 2]))], {"in": 2})
    split = split_signs(network, chip)[0].connections
    assert [type(c) for c in split] == [Dense, Dense] and split[0].bias is not None and split[1].bias is None
    assert np.array_equal(split[0].weight + split[1].weight, weight)
    sparse = split_signs(network, Chip.load("loihi1"))[0].connections
    assert [type(c) for c in sparse] == [Sparse, Sparse] and sum(np.size(c.weight) for c in sparse) == 4
