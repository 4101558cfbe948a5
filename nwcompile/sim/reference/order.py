"""Order: find sums that may depend on the order of spikes, on a chip that saturates at every addition.

Backends add all spikes of a step and clip once. A chip that adds them one by one and saturates gives the same result,
unless both signs occur and a partial sum can pass the limit: then 127 + 127 - 128 may end below 126. The two one-sided
sums prove which results no order can change.
"""

import numpy as np
from scipy.sparse import csr_array

from nwcompile.ir.arithmetic import clip, shift_lost
from nwcompile.ir.connection import Connection, synapse_list
from nwcompile.ir.network import Network, Node
from nwcompile.ir.program import Program
from nwcompile.sim.reference.synaptic_sums import effective_network

CHUNK = 1 << 22  # Sums per chunk: 32 MiB for each sign.


def order_dependent(model: Network | Program, window: str, inputs: dict, spikes: dict) -> dict[str, np.ndarray] | None:
    """Return where currents may depend on the order of spikes, by layer int64[place, 3]: sample, step, neuron.

    `spikes` holds every layer, in the steps of the `window`. Returns None if no layer has decays by shift, as only
    there every addition saturates.
    """
    network = model.network if isinstance(model, Program) else model
    layers = [
        name for name in network.built_in if (form := network.node(name).neuron.fixed) is not None and form.shifts
    ]
    if not layers:
        return None
    network = effective_network(network)
    delays = [c.aligned_delay for c in network.connections]
    if isinstance(model, Program) and window == "hardware" and model.schedule.period == 1:
        delays = list(model.schedule.delay)
    sent = {**inputs, **spikes}
    return {name: _find_places(network, name, delays, sent, len(spikes[name])) for name in layers}


def _find_places(network: Network, name: str, delays, sent: dict, n_samples: int) -> np.ndarray:
    node = network.node(name)
    edges = [(c, delay) for c, delay in zip(network.connections, delays, strict=True) if c.target == name]
    maps = [_split_signs(c, network) for c, _ in edges]
    n_steps = sent[name].shape[1]
    size = max(1, CHUNK // (n_steps * node.n_neurons))
    places = [np.zeros((0, 3), np.int64)]
    for start in range(0, n_samples, size):
        part = slice(start, start + size)
        up, down = np.zeros((2, len(sent[name][part]), n_steps, node.n_neurons), np.int64)
        for (c, delay), (excites, inhibits) in zip(edges, maps, strict=True):
            late = sent[c.source][part, : max(n_steps - delay, 0)]
            x = late.reshape(-1, excites.shape[1]).astype(np.int64)
            shape = (*late.shape[:2], node.n_neurons)
            for values, ups, downs in ((np.maximum(x, 0), excites, inhibits), (np.minimum(x, 0), inhibits, excites)):
                up[:, n_steps - late.shape[1] :] += (ups @ values.T).T.reshape(shape)
                down[:, n_steps - late.shape[1] :] += (downs @ values.T).T.reshape(shape)
        places.append(np.argwhere(_depends_on_order(node, up, down)) + (start, 0, 0))
    return np.concatenate(places)


def _split_signs(connection: Connection, network: Network) -> tuple[csr_array, csr_array]:
    """Split the weights of a connection into positive and negative ones, int64[target, source] each."""
    source, target = (network.node(name) for name in (connection.source, connection.target))
    pre, post, place = synapse_list(connection, source.shape)
    weight = np.asarray(connection.weight).reshape(-1)[place].astype(np.int64)
    shape = (target.n_neurons, source.n_neurons)
    parts = (np.maximum(weight, 0), np.minimum(weight, 0))
    return tuple(csr_array((part, (post, pre)), shape=shape) for part in parts)


def _depends_on_order(node: Node, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Return where `up` and `down` [B, T, n] are both non-zero in a step and one alone would pass the limit."""
    spec, fixed = node.neuron, node.neuron.fixed
    low, high = fixed.limits
    k_u, bias = (spec.array(key, node.shape).reshape(-1) for key in ("decay_u", "bias_u"))
    u, is_open = np.zeros_like(up[:, 0]), np.zeros(up.shape, bool)
    for t in range(up.shape[1]):
        rise = (up[:, t] + np.maximum(bias, 0)) << fixed.shift_bits
        fall = (down[:, t] + np.minimum(bias, 0)) << fixed.shift_bits
        is_open[:, t] = (rise > 0) & (fall < 0) & ((u + rise > high) | (u + fall < low))
        u = clip(u + rise + fall, fixed.state_bits)
        u = u - shift_lost(u, k_u)
    return is_open
