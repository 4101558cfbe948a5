"""A network for chips with a pool of hidden neurons and separate outputs."""

import numpy as np

from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec

OUT = NeuronSpec(threshold=1.0, reset="subtract", strict=False, alpha=0.5, beta=0.75, current_order="add_then_decay")
HIDDEN = OUT.replace(spikes="multi", max_spikes=31)


def pool_net(n_in=4, n_hidden=6, n_out=3, extra=(), hidden=HIDDEN, out=OUT, **layers) -> Network:
    rng = np.random.default_rng(0)
    sizes = {"in": n_in, "h": n_hidden, "o": n_out} | {name: n for name, (_, n) in layers.items()}
    ends = [("in", "h", 0), ("h", "o", 0), *extra]
    edges = [
        Dense(a, b, rng.uniform(0.1, 0.5, (sizes[b], sizes[a])).astype(np.float32), delay=delay) for a, b, delay in ends
    ]
    return Network.from_arrays({"h": (hidden, (n_hidden,)), "o": (out, (n_out,))} | layers, edges, {"in": (n_in,)})
