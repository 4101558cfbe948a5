"""Networks: shapes and order that follow from the connections, and what is refused, word for word."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError
from nwcompile.ir.readout import choose_readout

SPEC = nw.NeuronSpec()
FIXED = nw.NeuronSpec(threshold=64, fixed=nw.FixedPoint())
ONES = np.ones((2, 16), np.float32)
KERNEL = np.ones((2, 1, 3, 3), np.float32)
BEYOND = "beyond float32, whose largest number is 3.40282e+38; choose smaller units"
PRE, POST = np.array([0, 1]), np.array([0, 0])


def build(connection, spec=SPEC, shape=None):
    layers = {"a": spec if shape is None else (spec, shape)}
    return nw.Network.from_arrays(layers, [connection], {"in": (1, 4, 4)})


def test_network_shapes_follow_from_the_connections():
    network = nw.Network.from_arrays(
        {"conv": SPEC, "pool": (None, (2, 2, 2)), "out": SPEC},
        [
            nw.Conv2d("in", "conv", KERNEL, padding=1),
            nw.Pool2d("conv", "pool", 2),
            nw.Dense("pool", "out", ONES[:, :8]),
        ],
        {"in": (1, 4, 4)},
    )
    assert {name: network.node(name).shape for name in network.layers} == {"conv": (2, 4, 4), "out": (2,)}
    assert network.outputs == ("out",) and network.offsets == {"in": 0, "conv": 16, "out": 48}
    assert set(network.graph.edges(keys=False)) == {("in", "conv"), ("conv", "pool"), ("pool", "out")}


def test_network_order_is_topological_and_recurrence_has_a_delay():
    w = np.eye(2, dtype=np.float32)
    network = nw.Network.from_arrays(
        {"b": (SPEC, 2), "a": (SPEC, 2)},
        [nw.Dense("a", "b", w), nw.Dense("in", "a", w), nw.Dense("b", "b", w), nw.Dense("b", "a", w, delay=1)],
        {"in": 2},
    )
    assert network.layers == ("a", "b")
    assert [c.aligned_delay for c in network.connections] == [0, 0, 1, 1]
    a_b, in_a, b_b, b_a = network.connections
    assert (network.into("a"), network.into("b"), network.into("in")) == ((in_a, b_a), (a_b, b_b), ())
    assert (network.out_of("a"), network.out_of("b"), network.out_of("in")) == ((a_b,), (b_b, b_a), (in_a,))


def test_network_outputs_are_layers_that_feed_no_other_whatever_junctions_lie_between():
    w = np.eye(2, dtype=np.float32)
    layers = {"a": (SPEC, 2), "b": (SPEC, 2), "c": (SPEC, 2), "sum": (None, 2), "again": (None, 2)}
    edges = [nw.Dense("in", "a", w), nw.Dense("a", "b", w), nw.Dense("a", "c", w)]
    own = [nw.Dense("b", "again", w), nw.Dense("again", "sum", w), nw.Dense("sum", "b", w, delay=1)]
    assert nw.Network.from_arrays(layers, edges + own, {"in": 2}).outputs == ("b", "c")
    back = [nw.Dense("b", "sum", w), nw.Dense("sum", "a", w, delay=1), nw.Dense("a", "again", w)]
    assert nw.Network.from_arrays(layers, edges + back, {"in": 2}).outputs == ("c",)
    loop = [nw.Dense("c", "sum", w), nw.Dense("b", "sum", w), nw.Dense("sum", "b", w, delay=1)]
    assert nw.Network.from_arrays(layers, edges + loop, {"in": 2}).outputs == ("b",)


def test_outputs_of_a_loop_are_the_layers_that_the_readout_reads():
    w = np.eye(2, dtype=np.float32)
    edges = [nw.Dense("in", "a", w), nw.Dense("a", "b", w), nw.Dense("b", "a", w, delay=1)]
    loop = nw.Network.from_arrays({"a": (SPEC, 2), "b": (SPEC, 2)}, edges, {"in": 2})
    assert loop.outputs == ("b",)
    assert replace(loop, readout=choose_readout("sum", "a", None, 2)).outputs == ("a",)


def test_network_hash_changes_with_a_weight():
    weight = ONES.copy()
    first = build(nw.Dense("in", "a", weight)).hash
    weight[1, 3] += 1
    assert build(nw.Dense("in", "a", weight)).hash != first == build(nw.Dense("in", "a", ONES)).hash


@pytest.mark.parametrize(
    "connection, text",
    [
        (nw.Conv2d("in", "a", KERNEL, stride=0), "stride=0 must be whole numbers >= 1"),
        (nw.Conv2d("in", "a", KERNEL, padding="same"), "padding='same' must be whole numbers >= 0"),
        (nw.Conv2d("in", "a", KERNEL, dilation=(1, -1)), "dilation=(1, -1) must be whole numbers >= 1"),
        (
            nw.Conv2d("in", "a", KERNEL, dilation=1 << 40),
            f"dilation={1 << 40} is beyond the largest supported, {1 << 24}",
        ),
        (nw.Conv2d("in", "a", KERNEL, groups=0), "groups=0 must be whole numbers >= 1"),
        (nw.Conv2d("in", "a", KERNEL, stride=1.5), "stride=1.5 must be whole numbers >= 1"),
        (nw.Conv2d("in", "a", KERNEL, dilation=2), "kernel (3, 3) is larger than the padded source (4, 4)"),
        (nw.Pool2d("in", "a", 0), "kernel=0 must be whole numbers >= 1"),
        (nw.Pool2d("in", "a", 2, kind="mean"), "pooling kind 'mean' is none of avg, sum"),
        (nw.Dense("in", "a", ONES, delay=1.5), "delay 1.5 must be a whole number of steps, 0..2147483647"),
        (nw.Dense("in", "a", ONES, delay="x"), "delay x must be a whole number of steps, 0..2147483647"),
        (nw.Dense("in", "a", ONES, delay=-1), "delay -1 must be a whole number of steps, 0..2147483647"),
        (nw.Dense("in", "a", ONES, delay=1 << 31), "delay 2147483648 must be a whole number of steps, 0..2147483647"),
        (nw.Dense("in", "a", ONES[:, :3]), "weight (2, 3) takes 3 inputs, 'in' has (1, 4, 4)"),
        (nw.Dense("in", "a", ONES[0]), "a dense weight is [n_target, n_source], not of shape (16,)"),
        (nw.Dense("in", "a", np.full((2, 16), "x")), "weight of dtype <U1 must be an array of numbers"),
        (
            nw.Dense("in", "a", ONES * np.nan),
            "weight has NaN or infinite values; the model is not usable, train or load it again",
        ),
        (
            nw.Dense("in", "a", ONES, bias=[1, np.inf]),
            "bias has NaN or infinite values; the model is not usable, train or load it again",
        ),
        (nw.Dense("in", "a", ONES, bias=[1, 2, 3]), "bias of shape (3,) does not fit the target's shape (2,)"),
        (nw.Dense("in", "a", ONES, sign_mode="both"), "sign_mode 'both' is none of mixed, exc, inh"),
        (nw.Dense("in", "b", ONES), "there is no layer or input 'b'"),
        (nw.Sparse("in", "a", PRE, POST, np.ones(3)), "pre (2,), post (2,) and weight (3,) must be equal 1-D lengths"),
        (nw.Sparse("in", "a", PRE + 15, POST, np.ones(2)), "pre index 16 is outside the 16 neurons of 'in'"),
        (nw.Sparse("in", "a", PRE, POST + 2, np.ones(2)), "post index 2 is outside the neurons of 'a' (2,)"),
        (
            nw.Dense("in", "a", ONES.astype(float) * 1e39),
            "weight has NaN or infinite values; the model is not usable, train or load it again",
        ),
        (nw.Dense("in", "a", ONES, exponent=0.5), "exponent=0.5 must be a whole number -32..32"),
        (nw.Dense("in", "a", ONES, weight_bits=0), "weight_bits=0 must be a whole number 1..32"),
        (nw.Scale("in", "a", 10**400), "scale of dtype object must be an array of numbers"),
        (nw.Sparse("in", "a", PRE * 0.5, POST, np.ones(2)), "pre of dtype float64 must be whole numbers"),
    ],
)
def test_network_wrong_connection_is_refused_with_its_ends(connection, text):
    with pytest.raises(ModelError) as caught:
        build(connection, shape=(2,))
    assert str(caught.value) == f"connection 'in' -> {connection.target!r}: {text}"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"reset": "zeor"}, "unknown reset 'zeor'; choose one of: zero, none, subtract, value"),
        ({"threshold": np.nan}, "threshold has NaN or infinite values; give finite numbers"),
        ({"threshold": "a"}, "threshold='a' must be a number"),
        ({"threshold": "1"}, "threshold='1' must be a number"),
        ({"threshold": ["1", "2"]}, "threshold=array(['1', '2'], dtype='<U1') must be a number"),
        ({"threshold": [1, 2, 3]}, "threshold of shape (3,) does not broadcast to the layer's shape (2,)"),
        ({"threshold": [[1], [2, 3]]}, "threshold=[[1], [2, 3]] must be a number"),
        ({"bias": 1e300}, f"bias 1e+300 is {BEYOND}"),
        ({"gain": [1.0, -1e300]}, f"gain -1e+300 is {BEYOND}"),
        ({"threshold": 2**200}, f"threshold 1.60694e+60 is {BEYOND}"),
        ({"v_min": -1e39}, f"v_min -1e+39 is {BEYOND}"),
        ({"refractory": 1 << 40}, "refractory 1.09951e+12 is beyond the largest supported, 1073741823"),
        ({"fixed": 24}, "fixed=24 must be an nw.FixedPoint, or None for float"),
        ({"strict": 1}, "strict=1 must be True or False"),
        ({"refractory": -1}, "refractory -1 is negative; give steps >= 0"),
        ({"spikes": "multi", "threshold": 0}, "spikes='multi' needs a threshold above 0"),
        (
            {"spikes": "gated", "reset": "subtract", "refractory": [0, 2]},
            "spikes='gated' needs reset='subtract', reset_timing='now' and refractory=0, not 'subtract', 'now' and 2",
        ),
        ({"reset_timing": "both"}, "reset_timing='both' needs reset='subtract', not 'zero'"),
    ],
)
def test_network_wrong_neuron_is_refused_with_its_layer(change, text):
    with pytest.raises(ModelError) as caught:
        build(nw.Dense("in", "a", ONES), SPEC.replace(**change))
    assert str(caught.value) == f"layer 'a': {text}"


@pytest.mark.parametrize(
    "change, text",
    [
        ({"fixed": nw.FixedPoint(state_bits=99)}, "state_bits=99 must be a whole number 2..32"),
        (
            {"fixed": nw.FixedPoint(overflow="crash")},
            "unknown overflow 'crash'; choose one of: clip, modulo, saturate, wrap",
        ),
        ({"threshold": 1.5}, "threshold of a fixed-point layer must be whole numbers"),
        ({"threshold": 1e30}, "threshold 1e+30 is beyond the largest supported, 1099511627776"),
        ({"decay_v": 4097}, "decay_v 4097 is outside 0..4096"),
    ],
)
def test_network_wrong_fixed_point_neuron_is_refused(change, text):
    with pytest.raises(ModelError) as caught:
        build(nw.Dense("in", "a", ONES.astype(np.int8)), FIXED.replace(**change))
    assert str(caught.value) == f"layer 'a': {text}"


def test_network_fixed_point_needs_integer_weights():
    with pytest.raises(ModelError) as caught:
        build(nw.Dense("in", "a", ONES), FIXED)
    assert str(caught.value) == (
        "connection 'in' -> 'a': a fixed-point network needs integer weights in a Dense, Conv1d, Conv2d or Sparse "
        "connection"
    )


def test_network_fixed_point_needs_whole_biases():
    with pytest.raises(ModelError) as caught:
        build(nw.Dense("in", "a", ONES.astype(np.int8), bias=[1.0, 0.5]), FIXED)
    assert str(caught.value) == "connection 'in' -> 'a': a fixed-point network needs a bias of whole numbers"


def test_network_cycle_without_delay_names_its_layers():
    w = np.eye(2, dtype=np.float32)
    with pytest.raises(ModelError) as caught:
        nw.Network.from_arrays({"a": (SPEC, 2), "b": (SPEC, 2)}, [nw.Dense("a", "b", w), nw.Dense("b", "a", w)])
    assert str(caught.value) == "cycle without delay through 'a', 'b'; give one connection of the cycle delay=1"


@pytest.mark.parametrize(
    "layers, inputs, text",
    [
        ({"a": SPEC}, {}, "layer 'a': no connection tells its shape; give (neuron, shape)"),
        ({"a": (SPEC, 0)}, {}, "'a': shape (0,) must be whole numbers >= 1"),
        ({"a": (SPEC, (2, None))}, {}, "'a': shape (2, None) must be whole numbers >= 1"),
        ({"a": (SPEC, 2)}, {"a": 2}, "name 'a' is used by an input and a layer; give each its own name"),
        ({"a": (None, 2)}, {}, "the network has no neuron layer; it needs at least one"),
        ({1: (SPEC, 2)}, {}, "name 1 of an input or a layer must be a text of printable characters"),
        (
            {"a\n\x1b[31m": (SPEC, 2)},
            {},
            r"name 'a\n\x1b[31m' of an input or a layer must be a text of printable characters",
        ),
        ({"a": ("LIF", 2)}, {}, "layer 'a': expected a NeuronSpec or a NeuronProgram, or (neuron, shape), got str"),
        (
            {"a": (SPEC, (1 << 20, 1 << 20))},
            {},
            "'a': shape (1048576, 1048576) has 1099511627776 neurons; the limit is 2147483647",
        ),
    ],
)
def test_network_wrong_layers_are_refused(layers, inputs, text):
    with pytest.raises(ModelError) as caught:
        nw.Network.from_arrays(layers, [], inputs)
    assert str(caught.value) == text


def test_connection_takes_lists_and_tensors_as_arrays():
    sparse = nw.Sparse("in", "a", [0, 1], [1, 0], [2, -3])
    assert sparse.pre.dtype == sparse.weight.dtype == np.int64 and sparse.is_integer
    dense = nw.Dense("in", "a", torch.ones(2, 3, requires_grad=True), bias=[1.0, 2.0])
    assert dense.weight.dtype == np.float32 and dense.bias.shape == (2,)


def test_connection_weight_of_ragged_lists_is_refused():
    with pytest.raises(ModelError) as caught:
        nw.Dense("in", "a", [[1, 2], [3]])
    assert str(caught.value) == (
        "connection 'in' -> 'a': weight has rows of different lengths; give an array of numbers"
    )


def test_network_of_no_connection_is_refused():
    with pytest.raises(ModelError) as caught:
        nw.Network.from_arrays({"a": (SPEC, 2)}, ["in"], {"in": 2})
    assert str(caught.value) == "a connection is an nw.Dense, nw.Conv2d, nw.Sparse, ..., not str"


def test_connection_empty_lists_are_synapses_of_any_network():
    nothing = nw.Sparse("in", "a", [], [], [])
    assert not nw.simulate(build(nothing, FIXED, shape=(2,)), steps=3).output.any()
    assert not nw.simulate(build(nothing, SPEC, shape=(2,)), steps=3).output.any()


def test_network_computes_with_float32_weights():
    weight = np.array([[0.1, 1e-10 - 0.1]])  # in float32 their sum is 0
    readout = nw.NeuronSpec(fires=False)
    network = nw.Network.from_arrays({"a": readout}, [nw.Dense("in", "a", weight)], {"in": 2})
    assert nw.simulate(network, np.ones((1, 1, 2))).output == 0


def test_network_takes_whole_numbers_beyond_64_bits_as_floats():
    x = np.ones((1, 3, 16), np.float32)
    edges = [nw.Dense("in", "a", ONES), nw.Scale("a", "b", 2**70)]
    network = nw.Network.from_arrays({"a": SPEC.replace(threshold=2**70), "b": SPEC}, edges, {"in": 16})
    assert network.node("a").neuron.threshold == 2.0**70 and not nw.simulate(network, x).output.any()
    nw.compile(network, "loihi2", x)


@pytest.mark.parametrize("kind", [tuple, list, np.array])
def test_conv1d_takes_the_tuples_of_torch(kind):
    def edges(wrap):
        numbers = {"stride": wrap(2), "padding": wrap(1), "dilation": wrap(1)}
        return [nw.Conv1d("in", "a", KERNEL[:, :, 0], **numbers)]

    plain, wrapped = (nw.Network.from_arrays({"a": SPEC}, edges(w), {"in": (1, 8)}) for w in (int, lambda n: kind([n])))
    assert wrapped.node("a").shape == (2, 4) and wrapped.hash == plain.hash


@pytest.mark.parametrize("name", ["stride", "padding", "dilation"])
def test_window_of_rows_of_different_lengths_is_refused(name):
    with pytest.raises(ModelError, match=rf"{name}=\[\[1\], \[1, 2\]\] must be whole numbers >= "):
        build(nw.Conv2d("in", "a", KERNEL, **{name: [[1], [1, 2]]}))


def test_conv1d_of_two_numbers_is_refused():
    with pytest.raises(ModelError, match=r"padding=\(1, 2\) must be whole numbers >= 0"):
        nw.Network.from_arrays({"a": SPEC}, [nw.Conv1d("in", "a", KERNEL[:, :, 0], padding=(1, 2))], {"in": (1, 8)})


def test_layer_whose_shape_follows_from_a_connection_has_the_limit_of_others():
    with pytest.raises(ModelError, match="'a': shape .* neurons; the limit is 2147483647"):
        nw.Network.from_arrays({"a": SPEC}, [nw.Conv2d("in", "a", KERNEL, padding=2**24)], {"in": (1, 4, 4)})


def test_every_connection_has_its_index():
    edges = [
        nw.Dense("in", "a", np.ones((2, 3))),
        nw.Dense("a", "a", np.ones((2, 2))),
        nw.Dense("in", "a", np.ones((2, 3))),
    ]
    network = nw.Network.from_arrays({"a": (nw.NeuronSpec(), 2)}, edges, {"in": 3})
    assert [network.index_of[c] for c in network.connections] == [0, 1, 2]
