"""Emit: effective weights, folded biases, a program that verifies and reads back as it was written."""

import numpy as np
import pytest

from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from tests.made.chips import small_chip
from tests.made.nets import FIXED, dense_net, feed_forward, mixed_net


def on_one_core(network, chip=None, **more) -> Program:
    chip = chip or small_chip()
    mapping = Mapping.from_arrays({n: [0] * network.node(n).n_neurons for n in network.layers}, chip.sites[:1])
    return emit(network, feed_forward(network), mapping, chip, more.get("activity"), more.get("manifest", {}))


@pytest.mark.parametrize(
    ("mantissa", "exponent", "effective", "dtype"),
    [
        ([-3, 3, 127], 0, [-3, 3, 127], np.int8),
        ([-3, 3, 7], -1, [-2, 1, 3], np.int8),
        ([-128, 127, 0], 0, [-128, 127, 0], np.int8),
        ([-3, 3, 100], 4, [-48, 48, 1600], np.int16),
        ([-3, 100, 0], 9, [-1536, 32767, 0], np.int16),
        ([1, 2, 3], -9, [0, 0, 0], np.int8),
    ],
)
def test_emit_computes_effective_weights_in_the_smallest_type(mantissa, exponent, effective, dtype):
    weight = np.array(mantissa, np.int16).reshape(3, 1)
    edge = Dense("in", "a", weight, exponent=exponent, sign_mode="mixed", weight_bits=7)
    network = Network.from_arrays({"a": FIXED}, [edge], {"in": (1,)})
    (found,) = on_one_core(network).network.connections
    assert found.weight.reshape(-1).tolist() == effective
    assert found.weight.dtype == dtype
    assert (found.exponent, found.sign_mode, found.weight_bits) == (0, "mixed", 7)


def test_emit_takes_32_bits_where_the_chip_computes_with_them():
    edge = Dense("in", "a", np.array([[100]], np.int8), exponent=9)
    network = Network.from_arrays({"a": FIXED}, [edge], {"in": (1,)})
    (found,) = on_one_core(network, small_chip(weights__effective_limit=1 << 20)).network.connections
    assert found.weight.tolist() == [[51200]]
    assert found.weight.dtype == np.int32


def test_emit_folds_all_biases_into_the_neurons():
    edges = [
        Conv2d("in", "a", np.ones((2, 1, 1, 1), np.int8), np.array([3, -4])),
        Dense("in", "a", np.ones((4, 2), np.int8), np.array([0, 10, 20, 30])),
        Sparse("a", "a", np.array([0]), np.array([1]), np.array([1], np.int8)),
    ]
    network = Network.from_arrays({"a": FIXED.replace(bias_u=100)}, edges, {"in": (1, 1, 2)})
    program = on_one_core(network)
    assert program.network.node("a").neuron.bias_u.tolist() == [[[103, 113]], [[116, 126]]]
    assert all(c.bias is None for c in program.network.connections)
    assert on_one_core(dense_net(1, 2)).network.node("fc1").neuron.bias_u == 0


def test_emit_gives_a_program_that_reads_back_as_it_was(tmp_path):
    network, chip = mixed_net(1), small_chip()
    core_of = {n: np.arange(network.node(n).n_neurons) % 3 for n in network.layers}
    mapping, activity = Mapping.from_arrays(core_of, chip.sites[[4, 1, 7]]), Activity.uniform(network)
    program = emit(network, feed_forward(network), mapping, chip, activity, {"seed": 7})
    program.save(tmp_path / "net.nwc")
    loaded = Program.load(tmp_path / "net.nwc")
    assert loaded.hash == program.hash
    assert loaded.manifest["seed"] == 7
    np.testing.assert_array_equal(loaded.axons.synops, program.axons.synops)


def test_emit_refuses_a_float_network_and_a_mapping_of_another():
    network = Network.from_arrays({"a": NeuronSpec()}, [Dense("in", "a", np.ones((2, 2), np.float32))], {"in": (2,)})
    with pytest.raises(ModelError) as error:
        on_one_core(network)
    assert str(error.value) == "only a fixed-point network can be emitted; quantize it first"
    network, chip = dense_net(1, 2), small_chip()
    with pytest.raises(ModelError) as error:
        emit(network, feed_forward(network), Mapping.from_arrays({"fc1": [0]}, chip.sites[:1]), chip, None, {})
    assert str(error.value) == "mapping: layer 'fc1' needs the cores of its 2 neurons, got (1,)"
