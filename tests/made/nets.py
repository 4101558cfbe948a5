"""Small networks: fixed-point and float, of every connection kind."""

from dataclasses import replace

import numpy as np

import nwcompile as nw
import nwcompile.ir.connection as connections
from nwcompile.ir.connection import Conv2d, Dense, Sparse, pair
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule

FIXED = NeuronSpec(threshold=64, fixed=FixedPoint(), decay_v=0)


def integers(shape, seed: int = 0, low: int = -5, high: int = 5) -> np.ndarray:
    """int8 weights, some of them zero."""
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(np.int8)


def dyadic(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """float32 weights of -1 to 1 in eighths, whose sums are exact in any order."""
    return rng.integers(-8, 9, shape).astype(np.float32) / 8


def dense_net(*sizes: int, spec: NeuronSpec = FIXED, seed: int = 0, recurrent: bool = False) -> Network:
    """Build input `in` of sizes[0] lines and dense layers `fc1`, `fc2`, ...; `recurrent` connects each to itself."""
    names = ["in", *(f"fc{i}" for i in range(1, len(sizes)))]
    edges = [
        connections.Dense(names[i], names[i + 1], integers((sizes[i + 1], sizes[i]), seed + i))
        for i in range(len(sizes) - 1)
    ]
    if recurrent:
        edges += [
            connections.Dense(n, n, integers((k, k), seed + 9)) for n, k in zip(names[1:], sizes[1:], strict=True)
        ]
    layers = {name: (spec, (size,)) for name, size in zip(names[1:], sizes[1:], strict=True)}
    return Network.from_arrays(layers, edges, {"in": (sizes[0],)})


def float_net(*sizes: int, beta: float = 0.5, mean: float = 0.3) -> Network:
    """The layers of `dense_net` in float, with random weights around `mean`."""
    names, rng = ["in", *(f"fc{i}" for i in range(1, len(sizes)))], np.random.default_rng(0)
    edges = [
        connections.Dense(names[i], names[i + 1], rng.normal(mean, 0.5, (sizes[i + 1], sizes[i])).astype(np.float32))
        for i in range(len(sizes) - 1)
    ]
    layers = {name: (NeuronSpec(threshold=1.0, beta=beta), (n,)) for name, n in zip(names[1:], sizes[1:], strict=True)}
    return Network.from_arrays(layers, edges, {"in": (sizes[0],)})


def registers_as_inputs(program: Program) -> Program:
    """Turn the registers that the host writes into inputs of the user, so that there is one numbering of sources.

    The result is an oracle for code that names the sources of a program with a host.
    """
    loaded = program.loaded_program
    return replace(loaded, network=replace(loaded.network, host=None))


def conv_net(shape=(2, 6, 5), channels: int = 4, n_out: int = 3, spec: NeuronSpec = FIXED, **conv) -> Network:
    """Build input [C, H, W] -> `conv` (3 x 3 kernel) -> dense `out`; `**conv` is stride, padding, dilation, groups."""
    weight = integers((channels, shape[0] // conv.get("groups", 1), 3, 3))
    edge = connections.Conv2d("in", "conv", weight, **conv)
    size = int(np.prod(edge.output_shape(shape)))
    out = connections.Dense("conv", "out", integers((n_out, size), 1))
    return Network.from_arrays({"conv": spec, "out": spec}, [edge, out], {"in": shape})


def sparse_edge(source: str, target: str, n_source: int, n_target: int, n: int, seed: int = 0, **more):
    """Build `n` random synapses, including repeated ones and zero weights."""
    rng = np.random.default_rng(seed)
    pre, post = rng.integers(0, n_source, n), rng.integers(0, n_target, n)
    return connections.Sparse(source, target, pre, post, integers(n, seed), **more)


def feed_forward(network: Network) -> Schedule:
    """Schedule a feed-forward network as a pipeline: each layer works one step after its last source."""
    offset = dict.fromkeys(network.inputs, 0)
    for name in network.layers:
        sources = [c.source for c in network.into(name) if c.source != name]
        offset[name] = max((offset[s] + 1 for s in sources), default=0)
    delay = tuple(c.aligned_delay + offset[c.target] - offset[c.source] for c in network.connections)
    return Schedule("pipelined", 1, offset, delay)


def synapses(network, c):
    """List (pre, post) of every stored synapse of a connection, flat indices, in plain loops."""
    source, target = network.node(c.source), network.node(c.target)
    if isinstance(c, Dense):
        return [(i, j) for i in range(source.n_neurons) for j in range(target.n_neurons)]
    if isinstance(c, Sparse):
        return list(zip(c.pre.tolist(), c.post.tolist(), strict=True))
    (_, rows, columns), (n_out, out_rows, out_columns) = c.kernel_geometry(source.shape)
    (sy, sx), (py, px), (dy, dx) = pair(c.stride), pair(c.padding), pair(c.dilation)
    per_group = n_out // c.groups
    found = []
    for o, oy, ox, i, ky, kx in np.ndindex(n_out, out_rows, out_columns, *c.weight.shape[1:]):
        channel, y, x = (o // per_group) * c.weight.shape[1] + i, oy * sy - py + ky * dy, ox * sx - px + kx * dx
        if 0 <= y < rows and 0 <= x < columns:
            found.append(((channel * rows + y) * columns + x, (o * out_rows + oy) * out_columns + ox))
    return found


def mixed_net(seed: int) -> Network:
    """Build a net of dense, sparse and (strided, padded, dilated, grouped) convolutions, a skip and a recurrence."""
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 2]))
    conv = Conv2d(
        "in", "a", integers((4, 2 // groups, 3, 2), seed), stride=tuple(rng.integers(1, 3, 2)),
        padding=tuple(rng.integers(0, 3, 2)), dilation=tuple(rng.integers(1, 3, 2)), groups=groups, weight_bits=4,
    )  # fmt: skip
    n = int(np.prod(conv.output_shape((2, 7, 6))))
    edges = [
        conv,
        sparse_edge("in", "a", 84, n, 60, seed, delay=2),
        Dense("a", "b", integers((5, n), seed)),
        sparse_edge("a", "b", n, 5, 40, seed + 1, weight_bits=6),
        Dense("in", "b", integers((5, 84), seed)),
        sparse_edge("a", "a", n, n, 30, seed),
        Conv2d("b", "c", integers((3, 1, 1, 2)), source_shape=(1, 1, 5)),
    ]
    return Network.from_arrays({"a": FIXED, "b": (FIXED, (5,)), "c": FIXED}, edges, {"in": (2, 7, 6)})


def two_layer_net(n_inputs: int = 20) -> nw.Network:
    spec = nw.NeuronSpec(threshold=1.0, beta=0.75, reset="zero")
    weights = [
        integers(shape, seed, -3, 5).astype(np.float32) / 4 for seed, shape in enumerate(((12, n_inputs), (5, 12)))
    ]
    edges = [nw.Dense("in", "hidden", weights[0]), nw.Dense("hidden", "out", weights[1])]
    return nw.Network.from_arrays({"hidden": spec, "out": spec}, edges, {"in": n_inputs})


def two_layer_samples(n_inputs: int = 20) -> np.ndarray:
    return (np.random.default_rng(3).random((4, 9, n_inputs)) < 0.3).astype(np.float32)
