"""Trainable linear maps that a chip's host computes before the first layers."""

from dataclasses import replace

import numpy as np
import torch

from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse
from nwcompile.ir.host import Host
from nwcompile.ir.network import Network
from nwcompile.nn.qat.connected import copy_array, locate_biases, make_parameter
from nwcompile.nn.qat.sums import sum_synapses
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.sim.host import compute_host


class HostMaps(torch.nn.Module):
    """A host's float maps as parameters: `weights[i]` and `biases[i]` (empty without a bias) of connection i.

    A host of way "bias" computes these normalized maps. If there is a maximum among them, or for way "host", the host
    stays unchanged and there is nothing to train.
    """

    def __init__(self, host: Host):
        super().__init__()
        self.given = host
        network = normalize(host.network) if host.way == "bias" else host.network
        is_linear = all(isinstance(c, Dense | Conv2d | Sparse) for c in network.connections)
        self.trains = host.way == "bias" and is_linear
        self.float_network = network if self.trains else host.network
        self.connections: tuple[Connection, ...] = self.float_network.connections if self.trains else ()
        self.weights = torch.nn.ParameterList(make_parameter(c.weight, True) for c in self.connections)
        self.biases = torch.nn.ParameterList(
            make_parameter(np.zeros(0) if c.bias is None else c.bias, True) for c in self.connections
        )

    def current_host(self) -> Host:
        """Return the host with the current weights."""
        if not self.trains:
            return self.given
        edges = tuple(
            c.replace(weight=copy_array(w, np.float32), bias=None if c.bias is None else copy_array(b, np.float32))
            for c, w, b in zip(self.connections, self.weights, self.biases, strict=True)
        )
        network = self.float_network
        return replace(self.given, network=Network(network.inputs, network.nodes, edges))

    def compute_currents(self, inputs: dict[str, np.ndarray], n_steps: int) -> dict[str, torch.Tensor]:
        """Return the float input of the `Encoding` of each layer with registers, `[B, T, n]`, with the maps' gradients.

        `inputs`: float32 `[B, T, *shape]`. T of the result may be 1. The numbers equal the float reference bit for bit.
        """
        host = self.current_host()
        run, n_computed = compute_host(host, inputs, n_steps)
        by_layer = {}
        for encoding in host.gives.values():
            value = torch.from_numpy(run.states[encoding.layer]["v"]).flatten(2)
            if self.trains:
                mapped = self._sum_maps(encoding.layer, inputs, n_computed)
                value = mapped + (value - mapped).detach()
            by_layer[encoding.layer] = value
        return by_layer

    def _sum_maps(self, layer: str, inputs: dict[str, np.ndarray], n_steps: int) -> torch.Tensor:
        """Return the sum of the maps into a layer, `[B, T, n]`, computed in torch."""
        node = self.float_network.node(layer)
        total = torch.zeros(())
        for c, weight, bias in zip(self.connections, self.weights, self.biases, strict=True):
            if c.target != layer:
                continue
            source = self.float_network.node(c.source)
            n_late = max(n_steps - c.aligned_delay, 0)
            given = torch.from_numpy(np.array(inputs[c.source][:, :n_late])).reshape(-1, source.n_neurons)
            added = sum_synapses(c, given, weight, source.shape, node.n_neurons).unflatten(0, (-1, n_late))
            added = torch.nn.functional.pad(added, (0, 0, n_steps - n_late, 0))
            if c.bias is not None:
                added = added + bias.reshape(-1)[locate_biases(c, node.shape)]
            total = total + added
        return total
