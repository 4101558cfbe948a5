"""Networks with maximum pooling, of currents before neurons and of spikes after them, and their inputs."""

import numpy as np

import nwcompile as nw
from nwcompile.ir.connection import Conv2d, Dense, MaxPool2d
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from tests.made.nets import integers

LIF = nw.NeuronSpec(threshold=1.0, beta=0.75)
IF = NeuronSpec(beta=1.0, threshold=2.0, reset="subtract", strict=False)


def pooled_currents(spec=LIF, after=None, **window) -> nw.Network:
    """Build in [2, 6, 8] -> convolution -> maximum over windows (-> `after`, a scale) -> a -> dense layer out."""
    kernel = integers((3, 2, 3, 3), 1, -3, 5).astype(np.float32) / 4
    last = "max" if after is not None else "a"
    edges = [nw.Conv2d("in", "sum", kernel, padding=1), nw.MaxPool2d("sum", last, **{"kernel": 2, **window})]
    edges += [] if after is None else [nw.Scale("max", "a", *after)]
    size = int(np.prod(edges[1].output_shape((3, 6, 8))))
    edges.append(nw.Dense("a", "out", integers((5, size), 2, -3, 5).astype(np.float32) / 4))
    layers = {"sum": (None, (3, 6, 8)), "a": (spec, edges[1].output_shape((3, 6, 8))), "out": LIF}
    layers |= {"max": (None, edges[1].output_shape((3, 6, 8)))} if after is not None else {}
    return nw.Network.from_arrays(layers, edges, {"in": (2, 6, 8)})


def image_spikes(rate: float = 0.3) -> np.ndarray:
    return (np.random.default_rng(4).random((3, 12, 2, 6, 8)) < rate).astype(np.int8)


def pooled_spikes(size: int = 8, is_dense: bool = False, **window) -> Network:
    """Build in [1, size, size] -> a, 2 channels -> maximum of spikes -> b, a convolution, or none -> out."""
    pool = MaxPool2d("a", "max", **{"kernel": 2, **window})
    shape = pool.output_shape((2, size, size))
    n = int(np.prod(shape))
    edges = [Conv2d("in", "a", integers((2, 1, 3, 3), 1, -1, 2).astype(np.float32), padding=1), pool]
    if is_dense:
        edges += [Dense("max", "out", integers((30, n), 3, -1, 2).astype(np.float32))]
        layers = {}
    else:
        n = int(np.prod((3, *shape[1:])))
        edges += [Conv2d("max", "b", integers((3, 2, 3, 3), 2, -1, 2).astype(np.float32), padding=1)]
        edges += [Dense("b", "out", integers((4, n), 3, -1, 2).astype(np.float32))]
        layers = {"b": (IF, (3, *shape[1:]))}
    layers = {"a": (IF, (2, size, size)), "max": (None, shape), **layers, "out": IF}
    return Network.from_arrays(layers, edges, {"in": (1, size, size)})


def square_spikes(size: int = 8) -> np.ndarray:
    return (np.random.default_rng(4).random((3, 8, 1, size, size)) < 0.5).astype(np.int8)
