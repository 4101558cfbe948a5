"""Read delays of lava-dl `.net` layers: on outgoing spikes (SLAYER's axons), on inputs, or on single synapses."""

from math import prod

import numpy as np

from nwcompile.frontend.lava.entry import DENSE, Entry
from nwcompile.frontend.lava.wires import MAX_LISTED_SYNAPSES, Shape, list_synapses
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse

ERROR_CODE = "NW2203"
NONE = np.zeros((1, 1), np.int64)


def read_delays(entry: Entry, shape: Shape, n_source: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `delay` steps of the inputs, int64[n_target or 1, n_source or 1], and of the spikes, int64[1, n or 1].

    One number, one per channel or one per neuron delays the layer's spikes (SLAYER exports these). In dense layers,
    netx reads one per input, or a matrix [n_target, n_source] with one per synapse.
    """
    steps = entry.read_integers("delay", 0)
    n = prod(shape)
    if steps.min() < 0:
        raise entry.fail(f"delay {steps.min()} must be 0 or more steps")
    if steps.ndim == 2 and entry.kind in DENSE and steps.shape == (n, n_source) and min(steps.shape) > 1:
        return steps, NONE
    if (steps == steps.flat[0]).all() and steps.size in (1, shape[0], n):
        return NONE, steps.reshape(-1, 1)[:1]
    if steps.size in (shape[0], n) and n <= MAX_LISTED_SYNAPSES:
        return NONE, np.repeat(steps.reshape(-1), n // steps.size)[None]
    if entry.kind in DENSE and steps.size == n_source:
        return steps.reshape(1, -1), NONE
    sizes = ", ".join(str(size) for size in sorted({1, shape[0], n}))
    inputs = f", or {n_source} (its inputs)" if entry.kind in DENSE else ""
    raise entry.fail(f"delay has shape {steps.shape}; this layer takes {sizes} values (its neurons){inputs}")


def add_delays(entry: Entry, connection: Connection, more: tuple[np.ndarray, ...], source: Shape) -> list[Connection]:
    """Add the steps of `more`, each int64[n_target or 1, n_source or 1], and return one connection per delay.

    If delays differ, the synapses are listed one by one.
    """
    if all((steps == steps.flat[0]).all() for steps in more):
        return [connection.replace(delay=connection.aligned_delay + sum(int(steps.flat[0]) for steps in more))]
    if isinstance(connection, Sparse):
        many = connection
    else:
        assert isinstance(connection, Dense | Conv2d)
        many = list_synapses(entry, connection, source, connection.output_shape(source))
    late = np.zeros(len(many.pre), np.int64)
    for steps in more:
        late += steps[many.post if steps.shape[0] > 1 else 0, many.pre if steps.shape[1] > 1 else 0]
    by_delay = [(int(d), np.flatnonzero(late == d)) for d in np.unique(late)]
    return [
        many.replace(pre=many.pre[k], post=many.post[k], weight=many.weight[k], delay=many.aligned_delay + delay)
        for delay, k in by_delay
    ]
