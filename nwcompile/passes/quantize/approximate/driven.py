"""Driven: one fixed-point layer whose synaptic input is known, to be run with one neuron after another."""

import numpy as np

from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.sim.reference.synaptic_sums import effective_network
from nwcompile.sim.sequence.run import LayerGroup


class DrivenLayer:
    """Layer `name` of a fixed-point network, fed by what its sources `sent` `[B, T, *shape]`, its own spikes by itself.

    Synaptic sums are made once; only connections from the layer to itself are summed in every run.
    """

    def __init__(self, network: Network, name: str, sent: dict[str, np.ndarray]):
        node = network.node(name)
        sources = {c.source for c in network.into(name)} - {name}
        inputs = {source: Node(source, network.node(source).shape) for source in network.offsets if source in sources}
        alone = effective_network(Network(inputs, {name: node}, network.into(name)))
        self.alone, self.node = alone, alone.node(name)
        self.n_samples, self.n_steps = next(iter(sent.values())).shape[:2]
        self.delays = [min(c.aligned_delay, self.n_steps) for c in alone.connections]
        self.drive, self.touched = self._group(self.node.neuron).sum_inputs(sent, self.n_samples, self.n_steps)

    @property
    def largest_drive(self) -> int:
        """The largest synaptic sum of any neuron in any step, without a sign."""
        return int(np.abs(self.drive).max(initial=0))

    def _group(self, neuron: NeuronSpec) -> LayerGroup:
        name = self.node.name
        nodes = {name: Node(name, self.node.shape, neuron)}
        return LayerGroup(Network(self.alone.inputs, nodes, self.alone.connections), [name], self.delays)

    def spikes(self, neuron: NeuronSpec) -> np.ndarray:
        """What the layer sends with other neurons, `[B, T, *shape]`."""
        out: np.ndarray = np.empty(self.drive.shape, neuron.spike_dtype)
        self._group(neuron).scan(self.drive, self.touched, out)
        return out.reshape(self.n_samples, self.n_steps, *self.node.shape)

    def membrane(self, neuron: NeuronSpec) -> np.ndarray:
        """The membranes of the layer with other neurons at the end of each step, `[B, T, *shape]`."""
        out: np.ndarray = np.empty(self.drive.shape, neuron.spike_dtype)
        v = self._group(neuron).scan(self.drive, self.touched, out, keep_states=True).v
        return v.reshape(self.n_samples, self.n_steps, *self.node.shape)

    def trains(self, neuron: NeuronSpec) -> tuple[np.ndarray, ...]:
        """All spikes that are to be alike: those of this layer."""
        return (self.spikes(neuron),)
