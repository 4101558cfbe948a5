"""A network of the zoo, and weights that keep every layer of it at work.

Random weights as they come leave deep layers silent or busy in every step; a comparison of spikes would say nothing.
So each network multiplies its drawn weights by gains that make its neurons spike in about 12 % of their steps on its
input, in the middle of the 2 to 30 % of trained networks (5 % for sinabs, whose page for chips asks for few events);
they were looked for layer after layer, by halving.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, eq=False)
class Net:
    """A module as its authors write it: `x` is what it takes in `layout`; `run(x)` is one pass from cleared state.

    `samples` is the axis of `x` that counts samples, `calibration` its first part and `held_out` the rest.
    """

    module: torch.nn.Module
    x: torch.Tensor
    layout: str
    run: Callable[[torch.Tensor], object]
    n_held_out: int = 1

    @property
    def samples(self) -> int:
        return 1 if self.layout == "TB" else 0

    @property
    def n_steps(self) -> int:
        """Steps of `x`; of a static image those that the module loops over."""
        if self.layout == "B":
            return self.module.n_steps
        return self.x.shape[1 - self.samples]

    @property
    def calibration(self) -> np.ndarray:
        return self._part(0, self.x.shape[self.samples] - self.n_held_out)

    @property
    def held_out(self) -> np.ndarray:
        return self._part(self.x.shape[self.samples] - self.n_held_out, self.n_held_out)

    def _part(self, first: int, n: int) -> np.ndarray:
        return self.x.narrow(self.samples, first, n).numpy()


def spike_rate(net: Net, neuron: torch.nn.Module) -> float:
    """Spikes of one layer's neurons a step, over all samples and steps."""
    counts: list[float] = []

    def count(_module, _given, result):
        spikes = result[0] if isinstance(result, tuple) else result
        counts.append(float(spikes.mean()))

    hook = neuron.register_forward_hook(count)
    try:
        with torch.no_grad():
            net.run(net.x)
    finally:
        hook.remove()
    return float(np.mean(counts))


def scale_weights(net: Net, linears: list[torch.nn.Module], gains: tuple[float, ...]) -> Net:
    """Multiply the weights and biases of some linear maps; the gains stand where the network does."""
    for linear, gain in zip(linears, gains, strict=True):
        for parameter in linear.parameters():
            parameter.data *= gain
    return net


def norms_from_input(net: Net) -> Net:
    """Give every batch norm the mean and variance of what it meets, as training leaves them."""
    norms = [part for part in net.module.modules() if hasattr(part, "running_mean")]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    net.module.train()
    with torch.no_grad():
        net.run(net.x)
    net.module.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return net
