"""Ideal: what the quantized integers send on a chip that has every neuron feature, maxima of currents among them.

A layer of which `pool_spikes` has made full-resolution neurons and relay neurons (approximate='pool') is here what it
was: neurons that receive the largest synaptic sum of each window. Quantized weights and thresholds are those of the
full-resolution neurons, which are alike throughout a channel.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array

from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.passes.legalize.pool_spikes import FULL
from nwcompile.passes.prepare.fold import linear_map, matrix
from nwcompile.passes.quantize.approximate.driven import DrivenLayer
from nwcompile.sim.reference.synaptic_sums import effective_network
from nwcompile.sim.sequence.run import LayerGroup, layer_groups, trace_layers


@dataclass(frozen=True, eq=False)
class Windows:
    """Which neurons at full resolution (flat, `source`) each window pools, CSR by window (`first`), and where least.

    `takes_least` bool[window]: a negative scale behind the pooling makes the least current of the largest.
    """

    source: np.ndarray
    first: np.ndarray
    takes_least: np.ndarray

    def pooled(self, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The largest (or least) of each window: `[B, T, n]` to `[B, T, *shape]`."""
        taken = values.reshape(*values.shape[:2], -1)[:, :, self.source]
        largest = np.maximum.reduceat(taken, self.first, axis=2)
        if self.takes_least.any():
            largest = np.where(self.takes_least, np.minimum.reduceat(taken, self.first, axis=2), largest)
        return largest.reshape(*values.shape[:2], *shape)


class PooledLayer:
    """Relay neurons `name` behind a layer `full`, to be run with one neuron of that layer after another.

    `full_counts`: whether the spikes of that layer are to be alike too, as where a model pools its spikes.
    """

    def __init__(self, network: Network, full: str, name: str, sent: dict[str, np.ndarray], full_counts: bool = False):
        self.full, self.full_counts = DrivenLayer(network, full, sent), full_counts
        self.windows, self.shape = windows_of(network, name), network.node(name).shape

    @property
    def largest_drive(self) -> int:
        """That of the layer at full resolution."""
        return self.full.largest_drive

    def trains(self, neuron: NeuronSpec) -> tuple[np.ndarray, ...]:
        """What the relay neurons send, `[B, T, *shape]`: a spike where any in the window has one (or all of them).

        Before it what the layer itself sends, where that counts.
        """
        spikes = self.full.spikes(neuron)
        pooled = self.windows.pooled(spikes, self.shape)
        return (spikes, pooled) if self.full_counts else (pooled,)


def pooled_layers(network: Network) -> tuple[str, ...]:
    """The layers whose spikes are pooled where their currents were."""
    return tuple(name for name in network.layers if FULL.format(name) in network.nodes)


def windows_of(network: Network, name: str) -> Windows:
    """The windows of a pooled layer of a fixed-point network."""
    network = effective_network(network)
    (edge,) = network.into(name)
    source, node = network.node(edge.source), network.node(name)
    window, taps, weight = _taps(edge, source, node)
    order = np.lexsort((taps, window))
    first = np.searchsorted(window[order], np.arange(node.n_neurons))
    one_spike = weight << node.neuron.fixed.shift_bits
    threshold = node.neuron.array("threshold", node.shape).reshape(-1)
    return Windows(source=taps[order], first=first, takes_least=threshold >= one_spike)


def _taps(edge: Connection, source: Node, node: Node) -> tuple[np.ndarray, np.ndarray, int]:
    """Window and source of every tap of a pooling connection, and its one effective weight."""
    taps = coo_array(matrix(linear_map(edge, source.shape, node.shape)))
    window, place = (index.astype(np.int64) for index in taps.coords)
    return window, place, int(taps.data.max())


def ideal_trace(network: Network, inputs: dict[str, np.ndarray]) -> tuple[dict, dict]:
    """Spikes of every layer, and states of readouts, as `trace_layers` gives them, on a chip with every feature.

    `inputs[name]`: `[B, T, *shape]`. Full-resolution layers of pooled ones are left out: the ideal chip has none.
    """
    pooled = pooled_layers(network)
    if not pooled:
        return trace_layers(network, inputs, keep_states=False)
    full = {FULL.format(name): name for name in pooled}
    sent = dict(inputs)
    states: dict[str, dict[str, np.ndarray]] = {}
    for names in layer_groups(network):
        if names[0] in full:
            name = full[names[0]]
            sent[name] = _of_largest_currents(network, name, sent)
        elif names[0] not in pooled:
            part = _part(network, names)
            spikes, kept = trace_layers(part, {source: sent[source] for source in part.inputs}, keep_states=False)
            sent |= spikes
            states |= kept
    return {name: sent[name] for name in network.layers if name in sent}, states


def _of_largest_currents(network: Network, name: str, sent: dict[str, np.ndarray]) -> np.ndarray:
    """What neurons of a pooled layer send that receive the largest synaptic sum of each window."""
    full, node = DrivenLayer(network, FULL.format(name), sent), network.node(name)
    drive = windows_of(network, name).pooled(full.drive, node.shape).reshape(*full.drive.shape[:2], -1)
    spec = one_a_channel(full.node, node.shape)
    alone = Network({}, {name: Node(name, node.shape, spec)}, ())
    out: np.ndarray = np.empty(drive.shape, spec.spike_dtype)
    LayerGroup(alone, [name], []).scan(np.ascontiguousarray(drive), np.ones(drive.shape, np.uint8), out)
    return out.reshape(*drive.shape[:2], *node.shape)


def one_a_channel(full: Node, shape: tuple[int, ...]) -> NeuronSpec:
    """The neurons of a layer at full resolution, with one number a channel, that of its first place, for a pooled one.

    `shape`: that of the pooled layer, which may be flat where `full` has channels.
    """
    numbers = {key: getattr(full.neuron, key) for key in NeuronSpec.NUMBERS}
    arrays = {key: np.broadcast_to(value, full.shape) for key, value in numbers.items() if np.ndim(value)}
    first = tuple(slice(None) if axis == 0 else slice(0, 1) for axis in range(len(full.shape)))
    channels = {key: value[first] for key, value in arrays.items()}
    if len(shape) != len(full.shape):
        n_places = int(np.prod(shape)) // full.shape[0]
        channels = {key: np.repeat(value.reshape(-1), n_places).reshape(shape) for key, value in channels.items()}
    return full.neuron.replace(**channels)


def _part(network: Network, names: list[str]) -> Network:
    """The layers alone; everything else that feeds them is an input."""
    edges = tuple(c for c in network.connections if c.target in names)
    sources = dict.fromkeys(c.source for c in edges if c.source not in names)
    inputs = {source: Node(source, network.node(source).shape) for source in sources}
    return Network(inputs, {name: network.node(name) for name in names}, edges)
