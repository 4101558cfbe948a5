"""Normalizing changes the shape of a network, never its spikes: dyadic weights make the comparison exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Conv1d, Conv2d, Dense, Pool2d, Scale, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.sim import simulate
from tests.long import n_drawn
from tests.made.nets import dyadic
from tests.made.spikes import draw_spikes

SPEC = NeuronSpec(threshold=1.0, beta=0.5)
IMAGE = (2, 7, 6)


def assert_same_spikes(raw: Network, x) -> Network:
    folded = normalize(raw)
    assert all(node.neuron is not None for node in folded.nodes.values())
    assert all(isinstance(c, Dense | Conv2d | Sparse) for c in folded.connections)
    before, after = simulate(raw, x, record="all"), simulate(folded, x, record="all")
    for name in raw.layers:
        np.testing.assert_array_equal(before.states[name]["v"], after.states[name]["v"])
        np.testing.assert_array_equal(before.spikes[name], after.spikes[name])
    return folded


def chain(maps, shape, end_shape=None, spec=SPEC):
    """Input -> maps in turn through junctions -> layer `out`; each map is given as `f(source, target)`."""
    names = ["in", *(f"j{i}" for i in range(len(maps) - 1)), "out"]
    connections = [f(a, b) for f, a, b in zip(maps, names, names[1:], strict=False)]
    shapes, here = {}, shape
    for c, target in zip(connections, names[1:], strict=True):
        here = c.output_shape(here) if not isinstance(c, Scale) else here
        shapes[target] = here
    layers = {n: (None, shapes[n]) for n in names[1:-1]}
    return Network.from_arrays({**layers, "out": (spec, end_shape or shapes["out"])}, connections, {"in": shape})


def test_normalize_keeps_a_direct_connection_as_it_is():
    weight = np.ones((3, 4), np.float32)
    raw = Network.from_arrays({"a": SPEC}, [Dense("in", "a", weight, delay=2)], {"in": 4})
    (c,) = normalize(raw).connections
    assert c.weight is weight and c.aligned_delay == 2 and c.bias is None


def test_normalize_folds_batch_norm_into_a_convolution():
    rng = np.random.default_rng(0)
    raw = chain(
        [
            lambda a, b: Conv2d(a, b, dyadic(rng, 3, 2, 3, 3), bias=dyadic(rng, 3), padding=1),
            lambda a, b: Scale(a, b, scale=dyadic(rng, 3), shift=dyadic(rng, 3)),
        ],
        IMAGE,
    )
    (c,) = assert_same_spikes(raw, draw_spikes(rng, 2, 4, *IMAGE)).connections
    assert isinstance(c, Conv2d) and c.bias.shape == (3,) and c.weight.shape == (3, 2, 3, 3)


@pytest.mark.parametrize(("size", "symbolic"), [((2, 8, 8), True), ((2, 7, 8), False)])
def test_normalize_pool_then_padded_convolution_is_symbolic_only_if_the_border_stays_zero(size, symbolic):
    rng = np.random.default_rng(1)
    raw = chain(
        [lambda a, b: Pool2d(a, b, 2, kind="avg"), lambda a, b: Conv2d(a, b, dyadic(rng, 3, 2, 3, 3), padding=1)], size
    )
    (c,) = assert_same_spikes(raw, draw_spikes(rng, 2, 4, *size)).connections
    assert isinstance(c, Conv2d) is symbolic
    if symbolic:
        assert c.weight.shape == (3, 2, 6, 6) and c.stride == (2, 2) and c.padding == (2, 2)


def test_normalize_carries_a_shift_through_a_padded_convolution_border_by_border():
    rng = np.random.default_rng(2)
    raw = chain(
        [
            lambda a, b: Scale(a, b, scale=0.5, shift=1.0),
            lambda a, b: Conv2d(a, b, np.ones((1, 2, 3, 3), np.float32), padding=1),
        ],
        IMAGE,
        spec=NeuronSpec(threshold=8.0),
    )
    (c,) = assert_same_spikes(raw, draw_spikes(rng, 2, 4, *IMAGE)).connections
    assert isinstance(c, Conv2d)
    assert c.bias.shape == (1, 7, 6) and c.bias[0, 0, 0] == 8 and c.bias[0, 3, 3] == 18


def test_normalize_keeps_pooling_of_pooling_channel_by_channel():
    rng = np.random.default_rng(10)
    raw = chain([lambda a, b: Pool2d(a, b, 2, stride=1), lambda a, b: Pool2d(a, b, (1, 3), kind="sum")], IMAGE)
    (c,) = assert_same_spikes(raw, draw_spikes(rng, 2, 4, *IMAGE)).connections
    assert c.groups == 2 and c.weight.shape == (2, 1, 2, 4)


def test_normalize_composes_a_dense_with_everything_before_it_into_a_dense():
    rng = np.random.default_rng(3)
    raw = chain(
        [
            lambda a, b: Conv2d(a, b, dyadic(rng, 4, 1, 2, 2), groups=2, stride=2, bias=dyadic(rng, 4)),
            lambda a, b: Pool2d(a, b, 2, stride=1),
            lambda a, b: Dense(a, b, dyadic(rng, 5, 4 * 2 * 2), bias=dyadic(rng, 5)),
        ],
        IMAGE,
    )
    (c,) = assert_same_spikes(raw, draw_spikes(rng, 2, 4, *IMAGE)).connections
    assert isinstance(c, Dense) and c.weight.shape == (5, 84)


def test_normalize_makes_a_mostly_zero_dense_product_sparse():
    rng = np.random.default_rng(4)
    raw = chain(
        [lambda a, b: Dense(a, b, np.eye(16, 16, dtype=np.float32)), lambda a, b: Scale(a, b, scale=0.5)], (16,)
    )
    (c,) = assert_same_spikes(raw, draw_spikes(rng, 2, 4, 16)).connections
    assert isinstance(c, Sparse) and len(c.weight) == 16 and set(c.weight) == {0.5}


def test_normalize_adds_up_delays_and_keeps_recurrence_through_a_junction():
    rng = np.random.default_rng(5)
    raw = Network.from_arrays(
        {"j": (None, 3), "a": (SPEC, 3)},
        [Dense("in", "a", dyadic(rng, 3, 3), delay=1), Dense("a", "j", dyadic(rng, 3, 3), delay=2),
         Dense("j", "a", dyadic(rng, 3, 3), delay=1)],
        {"in": 3},
    )  # fmt: skip
    folded = assert_same_spikes(raw, draw_spikes(rng, 2, 8, 3))
    assert [(c.source, c.aligned_delay) for c in folded.connections] == [("in", 1), ("a", 3)]


def test_normalize_makes_one_connection_of_parallel_paths_of_one_kind():
    rng = np.random.default_rng(6)
    raw = Network.from_arrays(
        {"j": (None, 4), "k": (None, 4), "sum": (None, 4), "a": (SPEC, 2)},
        [Dense("in", "j", dyadic(rng, 4, 4)), Dense("in", "k", dyadic(rng, 4, 4)), Scale("j", "sum"), Scale("k", "sum"),
         Dense("sum", "a", dyadic(rng, 2, 4))],
        {"in": 4},
    )  # fmt: skip
    assert len(assert_same_spikes(raw, draw_spikes(rng, 2, 4, 4)).connections) == 1


def test_normalize_keeps_a_residual_add_as_two_convolutions():
    rng = np.random.default_rng(7)
    raw = Network.from_arrays(
        {"add": (None, IMAGE), "a": (SPEC, IMAGE)},
        [Conv2d("in", "add", dyadic(rng, 2, 2, 3, 3), padding=1), Scale("in", "add"), Scale("add", "a", scale=0.5)],
        {"in": IMAGE},
    )
    block, skip = assert_same_spikes(raw, draw_spikes(rng, 2, 4, *IMAGE)).connections
    assert isinstance(block, Conv2d) and isinstance(skip, Conv2d) and skip.weight.shape == (2, 1, 1, 1)


def test_normalize_writes_a_1d_convolution_as_a_2d_one():
    rng = np.random.default_rng(8)
    raw = chain(
        [
            lambda a, b: Conv1d(a, b, dyadic(rng, 4, 2, 3), bias=dyadic(rng, 4), padding=1, stride=2),
            lambda a, b: Scale(a, b, scale=dyadic(rng, 4)),
            lambda a, b: Conv1d(a, b, dyadic(rng, 2, 4, 2)),
        ],
        (2, 9),
    )
    (c,) = assert_same_spikes(raw, draw_spikes(rng, 2, 4, 2, 9)).connections
    assert c.source_shape == (2, 1, 9)
    direct = chain([lambda a, b: Conv1d(a, b, dyadic(rng, 4, 2, 3), bias=dyadic(rng, 4))], (2, 9))
    assert_same_spikes(direct, draw_spikes(rng, 2, 4, 2, 9))


def test_normalize_flattens_into_a_flat_layer_without_losing_the_convolution():
    rng = np.random.default_rng(9)
    raw = chain([lambda a, b: Conv2d(a, b, dyadic(rng, 3, 2, 2, 2)), Scale], IMAGE, end_shape=(3 * 6 * 5,))
    (c,) = assert_same_spikes(raw, draw_spikes(rng, 2, 4, *IMAGE)).connections
    assert c.source_shape == IMAGE


def random_map(rng, source, target, shape):
    """One random connection from a place of `shape`, and the shape that it gives."""
    kind = rng.choice(["conv", "pool", "scale", "channel", "dense", "sparse"]) if len(shape) == 3 else "dense"
    c = {
        "conv": lambda: Conv2d(
            source, target, dyadic(rng, 2 * shape[0], 1 if shape[0] % 2 else shape[0] // 2, *rng.integers(1, 4, 2)),
            bias=dyadic(rng, 2 * shape[0]), stride=tuple(rng.integers(1, 3, 2)), padding=tuple(rng.integers(0, 3, 2)),
            dilation=tuple(rng.integers(1, 3, 2)), groups=shape[0] if shape[0] % 2 else 2,
        ),
        "pool": lambda: Pool2d(source, target, 2, stride=int(rng.integers(1, 3)), padding=int(rng.integers(0, 2))),
        "scale": lambda: Scale(source, target, scale=dyadic(rng, *shape), shift=dyadic(rng, *shape)),
        "channel": lambda: Scale(source, target, scale=dyadic(rng, shape[0]), shift=dyadic(rng, shape[0])),
        "dense": lambda: Dense(source, target, dyadic(rng, 3, int(np.prod(shape))), bias=dyadic(rng, 3)),
        "sparse": lambda: Sparse(source, target, *rng.integers(0, np.prod(shape), (2, 20)), dyadic(rng, 20)),
    }[kind]()  # fmt: skip
    return c, (shape if kind in ("scale", "channel", "sparse") else c.output_shape(shape))


@settings(max_examples=n_drawn(80), deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 3))
def test_normalize_gives_random_chains_the_same_spikes(seed, n_maps):
    rng = np.random.default_rng(seed)
    first = shape = (int(rng.integers(1, 3)), 7, 6)
    connections, layers = [], {}
    for i in range(n_maps):
        source, target = "in" if i == 0 else f"j{i - 1}", "out" if i == n_maps - 1 else f"j{i}"
        try:
            c, shape = random_map(rng, source, target, shape)
        except ModelError:
            return
        connections.append(c)
        layers[target] = (SPEC if target == "out" else None, shape)
    assert_same_spikes(Network.from_arrays(layers, connections, {"in": first}), draw_spikes(rng, 2, 3, *first))


def test_normalize_refuses_a_delayed_bias():
    raw = Network.from_arrays(
        {"j": (None, 2), "a": (SPEC, 2)},
        [Dense("in", "j", np.eye(2), bias=np.ones(2)), Scale("j", "a", delay=1)],
        {"in": 2},
    )
    with pytest.raises(ModelError) as error:
        normalize(raw)
    assert str(error.value) == (
        "connection 'j' -> 'a': delays a bias or shift by 1 steps, which no neuron's bias can; "
        "move the delay to the connections into 'j'"
    )


def test_normalize_refuses_a_junction_that_ends_nowhere():
    raw = Network.from_arrays(
        {"a": SPEC, "head": (None, 2)}, [Dense("in", "a", np.eye(2)), Dense("a", "head", np.eye(2))], {"in": 2}
    )
    with pytest.raises(ModelError) as error:
        normalize(raw)
    assert str(error.value) == (
        "junction 'head' feeds no layer, so a chip cannot show it; end the network with a neuron layer "
        "(NeuronSpec(fires=False) for a readout)"
    )


def test_normalize_refuses_junctions_in_a_loop():
    raw = Network.from_arrays(
        {"j": (None, 2), "k": (None, 2), "a": (SPEC, 2)},
        [Scale("in", "j"), Scale("j", "k"), Scale("k", "j", delay=1), Dense("k", "a", np.eye(2))],
        {"in": 2},
    )
    with pytest.raises(ModelError) as error:
        normalize(raw)
    assert str(error.value) == "junctions 'j', 'k' feed each other without a neuron layer; put a layer into the loop"


def test_normalize_refuses_a_junction_without_sources():
    raw = Network.from_arrays({"j": (None, 2), "a": (SPEC, 2)}, [Scale("j", "a")], {})
    with pytest.raises(ModelError) as error:
        normalize(raw)
    assert str(error.value) == "junction 'j' receives nothing; connect it or leave it out"


def test_normalize_passes_a_fixed_network_through():
    spec = NeuronSpec(threshold=64, fixed=FixedPoint())
    weight = np.arange(6, dtype=np.int64).reshape(2, 1, 3)
    raw = Network.from_arrays(
        {"a": spec, "b": spec},
        [Conv1d("in", "a", weight, exponent=2), Dense("a", "b", np.eye(14, dtype=int))],
        {"in": (1, 9)},
    )
    folded = normalize(raw)
    assert isinstance(folded.connections[0], Conv2d) and folded.connections[0].exponent == 2
    assert folded.connections[1] is raw.connections[1] and folded.nodes == raw.nodes
    rng = np.random.default_rng(0)
    x = draw_spikes(rng, 2, 4, 1, 9)
    np.testing.assert_array_equal(simulate(raw, x).output, simulate(folded, x).output)


def test_normalize_refuses_a_junction_in_a_fixed_network():
    spec = NeuronSpec(threshold=64, fixed=FixedPoint())
    eye = np.eye(2, dtype=np.int64)
    raw = Network.from_arrays(
        {"j": (None, 2), "a": (spec, 2)}, [Dense("in", "j", eye), Dense("j", "a", eye)], {"in": 2}
    )
    with pytest.raises(ModelError) as error:
        normalize(raw)
    assert str(error.value) == "junction 'j' in a fixed-point network: connect its sources to its targets directly"


def test_normalize_refuses_a_product_of_weights_beyond_float32():
    weight = np.full((2, 2), 1e30, np.float32)
    layers = {"sum": (None, (2,)), "a": (NeuronSpec(), (2,))}
    network = Network.from_arrays(layers, [Dense("in", "sum", weight), Dense("sum", "a", weight)], {"in": 2})
    with pytest.raises(ModelError, match="'in' -> 'a': weight has NaN or infinite values"):
        normalize(network)
