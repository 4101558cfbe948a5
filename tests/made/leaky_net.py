"""Three layers of snnTorch's Leaky, samples, and options for fast compilation."""

import numpy as np

from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec

LEAKY = NeuronSpec(threshold=1.0, beta=0.9, reset="subtract", reset_timing="next")  # defaults of snnTorch's Leaky
ONE_CORE = {"optimize": "cores", "partitioner": "sequential", "placer": "row-major"}


def leaky_net(spec: NeuronSpec = LEAKY, bias: bool = True) -> Network:
    """Build three layers with torch's initial weights of Linear, slightly enlarged."""
    rng = np.random.default_rng(0)
    sizes, names, edges = (60, 60, 60, 10), ("in", "l1", "l2", "l3"), []
    for a, b, n, m in zip(names[:-1], names[1:], sizes[:-1], sizes[1:], strict=True):
        limit = 2.2 / np.sqrt(n)
        weight = rng.uniform(-limit, limit, (m, n)).astype(np.float32)
        edges.append(Dense(a, b, weight, bias=rng.uniform(0, limit, m).astype(np.float32) if bias else None))
    return Network.from_arrays(dict.fromkeys(names[1:], spec), edges, {"in": sizes[0]})


def leaky_samples(n: int = 30) -> np.ndarray:
    return (np.random.default_rng(1).random((n, 25, 60)) < 0.3).astype(np.float32)
