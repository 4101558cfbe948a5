"""Small networks for tests: fixed-point and float, of every connection kind."""

from dataclasses import replace

import numpy as np

import nwcompile.ir.connection as connections
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule

FIXED = NeuronSpec(threshold=64, fixed=FixedPoint(), decay_v=0)


def integers(shape, seed: int = 0, low: int = -5, high: int = 5) -> np.ndarray:
    """int8 weights, some of them zero."""
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(np.int8)


def dense_net(*sizes: int, spec: NeuronSpec = FIXED, seed: int = 0, recurrent: bool = False) -> Network:
    """Input `in` of sizes[0] lines, then dense layers `fc1`, `fc2`, ...; `recurrent` joins each onto itself."""
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
    """The program as if what the host writes into registers were inputs that a person gives: one numbering of sources.

    It is an oracle for whatever names the sources of a program with a host.
    """
    loaded = program.loaded
    return replace(loaded, network=replace(loaded.network, host=None))


def conv_net(shape=(2, 6, 5), channels: int = 4, n_out: int = 3, spec: NeuronSpec = FIXED, **conv) -> Network:
    """Input [C, H, W] -> `conv` (3 x 3 kernel) -> dense `out`; `conv` takes stride, padding, dilation, groups."""
    weight = integers((channels, shape[0] // conv.get("groups", 1), 3, 3))
    edge = connections.Conv2d("in", "conv", weight, **conv)
    size = int(np.prod(edge.output_shape(shape)))
    out = connections.Dense("conv", "out", integers((n_out, size), 1))
    return Network.from_arrays({"conv": spec, "out": spec}, [edge, out], {"in": shape})


def sparse_edge(source: str, target: str, n_source: int, n_target: int, n: int, seed: int = 0, **more):
    """`n` random synapses, repeats and zero weights among them."""
    rng = np.random.default_rng(seed)
    pre, post = rng.integers(0, n_source, n), rng.integers(0, n_target, n)
    return connections.Sparse(source, target, pre, post, integers(n, seed), **more)


def feed_forward(network: Network) -> Schedule:
    """A pipelined schedule of a network whose connections point forward: each layer one step after its last source."""
    offset = dict.fromkeys(network.inputs, 0)
    for name in network.layers:
        sources = [c.source for c in network.into(name) if c.source != name]
        offset[name] = max((offset[s] + 1 for s in sources), default=0)
    delay = tuple(c.aligned_delay + offset[c.target] - offset[c.source] for c in network.connections)
    return Schedule("pipelined", 1, offset, delay)
