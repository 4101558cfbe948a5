"""Ideal: the run of the quantized integers on a chip with every neuron feature, including maxima of currents.

`DrivenLayer` runs one fixed-point layer on known synaptic input, for one candidate neuron after another. If
`pool_spikes` replaced a layer by full-resolution neurons and relay neurons (approximate='pool'), the original layer is
run: its neurons receive the largest synaptic sum of each window. Its weights and thresholds are those of the full-
resolution neurons, which are identical within a channel.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array

from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.passes.legalize.pool_spikes import FULL
from nwcompile.passes.prepare.fold import linear_map, to_matrix
from nwcompile.sim.reference.synaptic_sums import effective_network
from nwcompile.sim.sequence.run import LayerGroup, layer_groups, trace_layers


class DrivenLayer:
    """Layer `name` of a fixed-point network, driven by the spikes `sent` `[B, T, *shape]` of its sources and by itself.

    Synaptic sums are computed once; only connections from the layer to itself are summed in every run.
    """

    def __init__(self, network: Network, name: str, sent: dict[str, np.ndarray]):
        alone = effective_network(_isolate_layers(network, [name]))
        self.alone, self.node = alone, alone.node(name)
        self.n_samples, self.n_steps = next(iter(sent.values())).shape[:2]
        self.delays = [min(c.aligned_delay, self.n_steps) for c in alone.connections]
        self.drive, self.touched = self._layer_group(self.node.neuron).sum_inputs(sent, self.n_samples, self.n_steps)

    @property
    def largest_drive(self) -> int:
        """The largest magnitude of a synaptic sum, over neurons and steps."""
        return int(np.abs(self.drive).max(initial=0))

    def _layer_group(self, neuron: NeuronSpec) -> LayerGroup:
        name = self.node.name
        nodes = {name: Node(name, self.node.shape, neuron)}
        return LayerGroup(Network(self.alone.inputs, nodes, self.alone.connections), [name], self.delays)

    def run_spikes(self, neuron: NeuronSpec) -> np.ndarray:
        """Return the spikes of the layer with other neurons, `[B, T, *shape]`."""
        out: np.ndarray = np.empty(self.drive.shape, neuron.spike_dtype)
        self._layer_group(neuron).scan(self.drive, self.touched, out)
        return out.reshape(self.n_samples, self.n_steps, *self.node.shape)

    def run_membrane(self, neuron: NeuronSpec) -> np.ndarray:
        """Return the membranes of the layer with other neurons at the end of each step, `[B, T, *shape]`."""
        out: np.ndarray = np.empty(self.drive.shape, neuron.spike_dtype)
        v = self._layer_group(neuron).scan(self.drive, self.touched, out, keep_states=True).v
        return v.reshape(self.n_samples, self.n_steps, *self.node.shape)

    def run_trains(self, neuron: NeuronSpec) -> tuple[np.ndarray, ...]:
        """Return all spike trains that are compared: those of this layer."""
        return (self.run_spikes(neuron),)


@dataclass(frozen=True, eq=False)
class Windows:
    """The full-resolution neurons of each pooling window (flat, `source`), CSR by window (`first`).

    `takes_least` bool[window]: a negative scale behind the pooling turns the maximum into a minimum.
    """

    source: np.ndarray
    first: np.ndarray
    takes_least: np.ndarray

    def pool_values(self, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return the maximum (or minimum) of each window: `[B, T, n]` to `[B, T, *shape]`."""
        taken = values.reshape(*values.shape[:2], -1)[:, :, self.source]
        largest = np.maximum.reduceat(taken, self.first, axis=2)
        if self.takes_least.any():
            largest = np.where(self.takes_least, np.minimum.reduceat(taken, self.first, axis=2), largest)
        return largest.reshape(*values.shape[:2], *shape)


class PooledLayer:
    """Relay neurons `name` behind a layer `full`, to be run with different neurons of that layer.

    `full_counts`: whether the spikes of that layer are compared too, as for a model that pools spikes.
    """

    def __init__(self, network: Network, full: str, name: str, sent: dict[str, np.ndarray], full_counts: bool = False):
        self.full, self.full_counts = DrivenLayer(network, full, sent), full_counts
        self.windows, self.shape = find_windows(network, name), network.node(name).shape

    @property
    def largest_drive(self) -> int:
        """Largest synaptic sum of the full-resolution layer."""
        return self.full.largest_drive

    def run_trains(self, neuron: NeuronSpec) -> tuple[np.ndarray, ...]:
        """Return the relay neurons' trains, `[B, T, *shape]`: a spike if any (or all) in the window spike.

        If `full_counts`, the trains of the full-resolution layer come first.
        """
        spikes = self.full.run_spikes(neuron)
        pooled = self.windows.pool_values(spikes, self.shape)
        return (spikes, pooled) if self.full_counts else (pooled,)


def pooled_layers(network: Network) -> tuple[str, ...]:
    """Return the layers whose spikes are pooled instead of their currents."""
    return tuple(name for name in network.layers if FULL.format(name) in network.nodes)


def find_windows(network: Network, name: str) -> Windows:
    """Return the windows of a pooled layer of a fixed-point network."""
    network = effective_network(network)
    (edge,) = network.into(name)
    source, node = network.node(edge.source), network.node(name)
    taps = coo_array(to_matrix(linear_map(edge, source.shape, node.shape)))
    window, place = (index.astype(np.int64) for index in taps.coords)
    order = np.lexsort((place, window))
    first = np.searchsorted(window[order], np.arange(node.n_neurons))
    one_spike = int(taps.data.max()) << node.neuron.fixed.shift_bits
    threshold = node.neuron.array("threshold", node.shape).reshape(-1)
    return Windows(source=place[order], first=first, takes_least=threshold >= one_spike)


def ideal_trace(network: Network, inputs: dict[str, np.ndarray], keep_states: bool = False) -> tuple[dict, dict]:
    """Return spikes and states of every layer, as `trace_layers` does, on a chip with every feature.

    `inputs[name]`: `[B, T, *shape]`. Full-resolution layers of pooled ones are left out: the ideal chip has none.
    """
    pooled = pooled_layers(network)
    if not pooled:
        return trace_layers(network, inputs, keep_states=keep_states)
    full = {FULL.format(name): name for name in pooled}
    sent = dict(inputs)
    states: dict[str, dict[str, np.ndarray]] = {}
    for names in layer_groups(network):
        if names[0] in full:
            name = full[names[0]]
            sent[name] = _run_pooled_layer(network, name, sent)
        elif names[0] not in pooled:
            part = _isolate_layers(network, names)
            given = {source: sent[source] for source in part.inputs}
            spikes, kept = trace_layers(part, given, keep_states=keep_states)
            sent |= spikes
            states |= kept
    return {name: sent[name] for name in network.layers if name in sent}, states


def _run_pooled_layer(network: Network, name: str, sent: dict[str, np.ndarray]) -> np.ndarray:
    """Return the spikes of a pooled layer whose neurons receive the largest synaptic sum of each window."""
    full, node = DrivenLayer(network, FULL.format(name), sent), network.node(name)
    drive = find_windows(network, name).pool_values(full.drive, node.shape).reshape(*full.drive.shape[:2], -1)
    spec = reduce_to_channels(full.node, node.shape)
    alone = Network({}, {name: Node(name, node.shape, spec)}, ())
    out: np.ndarray = np.empty(drive.shape, spec.spike_dtype)
    LayerGroup(alone, [name], []).scan(np.ascontiguousarray(drive), np.ones(drive.shape, np.uint8), out)
    return out.reshape(*drive.shape[:2], *node.shape)


def reduce_to_channels(full: Node, shape: tuple[int, ...]) -> NeuronSpec:
    """Return the neurons of a full-resolution layer with one number per channel, that of its first position.

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


def _isolate_layers(network: Network, names: list[str]) -> Network:
    """Return the layers alone, with everything else that feeds them as inputs."""
    edges = tuple(c for c in network.connections if c.target in names)
    sources = dict.fromkeys(c.source for c in edges if c.source not in names)
    inputs = {source: Node(source, network.node(source).shape) for source in sources}
    return Network(inputs, {name: network.node(name) for name in names}, edges)
