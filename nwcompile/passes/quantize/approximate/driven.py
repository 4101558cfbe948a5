"""Driven layer: run one fixed-point layer with known synaptic input, with one neuron after another."""

import numpy as np

from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.sim.reference.synaptic_sums import effective_network
from nwcompile.sim.sequence.run import LayerGroup


class DrivenLayer:
    """Layer `name` of a fixed-point network, driven by the spikes `sent` `[B, T, *shape]` of its sources and by itself.

    Synaptic sums are computed once; only connections from the layer to itself are summed in every run.
    """

    def __init__(self, network: Network, name: str, sent: dict[str, np.ndarray]):
        node = network.node(name)
        sources = {c.source for c in network.into(name)} - {name}
        inputs = {source: Node(source, network.node(source).shape) for source in network.offsets if source in sources}
        alone = effective_network(Network(inputs, {name: node}, network.into(name)))
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
