"""The linear maps that a chip's host computes before the first layers, to be trained with the layers behind them."""

from dataclasses import replace

import numpy as np
import torch

from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse
from nwcompile.ir.host import Host
from nwcompile.ir.network import Network
from nwcompile.nn.qat.sums import sums
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.sim.host import compute_host


class HostMaps(torch.nn.Module):
    """A host's float maps as parameters: `weights[i]` and `biases[i]` (empty without one) of connection i.

    They are what a host of way "bias" computes, normalized. A maximum among them, and the layers of way "host", stay as
    they are: then there is nothing to train.
    """

    def __init__(self, host: Host):
        super().__init__()
        self.given = host
        network = normalize(host.network) if host.way == "bias" else host.network
        is_linear = all(isinstance(c, Dense | Conv2d | Sparse) for c in network.connections)
        self.trains = host.way == "bias" and is_linear
        self.float_network = network if self.trains else host.network
        self.connections: tuple[Connection, ...] = self.float_network.connections if self.trains else ()
        self.weights = torch.nn.ParameterList(_parameter(c.weight) for c in self.connections)
        self.biases = torch.nn.ParameterList(
            _parameter(np.zeros(0) if c.bias is None else c.bias) for c in self.connections
        )

    def host(self) -> Host:
        """The host with the weights as they are now."""
        if not self.trains:
            return self.given
        edges = tuple(
            c.replace(weight=_array(w), bias=None if c.bias is None else _array(b))
            for c, w, b in zip(self.connections, self.weights, self.biases, strict=True)
        )
        network = self.float_network
        return replace(self.given, network=Network(network.inputs, network.nodes, edges))

    def currents(self, inputs: dict[str, np.ndarray], n_steps: int) -> dict[str, torch.Tensor]:
        """By layer with registers what `Encoding`s are made of, `[B, T, n]` (T may be 1), with the maps' gradients.

        `inputs`: float32 `[B, T, *shape]`. The numbers are those of the float reference, to the bit.
        """
        host = self.host()
        run, n_computed = compute_host(host, inputs, n_steps)
        by_layer = {}
        for encoding in host.gives.values():
            value = torch.from_numpy(run.states[encoding.layer]["v"]).flatten(2)
            if self.trains:
                mapped = self._mapped(encoding.layer, inputs, n_computed)
                value = mapped + (value - mapped).detach()
            by_layer[encoding.layer] = value
        return by_layer

    def _mapped(self, layer: str, inputs: dict[str, np.ndarray], n_steps: int) -> torch.Tensor:
        """The sum of the maps into a layer, `[B, T, n]`, in torch."""
        node = self.float_network.node(layer)
        total = torch.zeros(())
        for c, weight, bias in zip(self.connections, self.weights, self.biases, strict=True):
            if c.target != layer:
                continue
            source = self.float_network.node(c.source)
            n_late = max(n_steps - c.aligned_delay, 0)
            given = torch.from_numpy(np.array(inputs[c.source][:, :n_late])).reshape(-1, source.n_neurons)
            added = sums(c, given, weight, source.shape, node.n_neurons).unflatten(0, (-1, n_late))
            added = torch.nn.functional.pad(added, (0, 0, n_steps - n_late, 0))
            if c.bias is not None:
                places = c.replace(bias=np.arange(bias.numel()).reshape(bias.shape)).bias_per_neuron(node.shape)
                assert places is not None, "it has a bias"
                added = added + bias.reshape(-1)[torch.from_numpy(places.reshape(-1).astype(np.int64))]
            total = total + added
        return total


def _parameter(value) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(np.array(value, np.float32)))


def _array(parameter: torch.Tensor) -> np.ndarray:
    return np.array(parameter.detach().numpy())
