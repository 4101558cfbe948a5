"""A network made for TrueNorth: patches of 196 pixels, a core each, whose weights come from four types of axons.

A core's 256 axons are each of one of four types, a neuron has one weight for each type, and a synapse is on or off
(Merolla et al., Science 345, 2014). So a trained weight is `strength[neuron, type of the axon]` where the synapse is
on, and 0 elsewhere; which are on is learned by a straight-through gradient, as in Esser et al. (PNAS 113, 2016), who
train networks for this chip so. A neuron sends to one core only: patches do not overlap, and all of them end in one.
"""

import torch
from torch import nn
from torch.nn.utils import parametrize

from tests.frontend.frameworks import framework
from tests.zoo.spikingjelly_nets import integrate_and_fire

functional = framework("spikingjelly.activation_based.functional")
neuron = framework("spikingjelly.activation_based.neuron")
surrogate = framework("spikingjelly.activation_based.surrogate")

N_TYPES = 4  # Of the axons of a TrueNorth core.
PATCH = 14  # Pixels along a side: four patches tile a digit of 28 x 28, and 196 axons are within a core's 256.
N_HIDDEN = 60  # Neurons of a patch: those of all four patches are 240 axons of the last core.
N_VOTES = 20  # Output neurons of a class: 200 in all, within a core's 256.


class OfTypes(nn.Module):
    """A weight matrix as a TrueNorth core can hold it, made of the free matrix that is trained.

    `types` int64[axon]. A synapse is on where its free weight is positive, and then weighs the neuron's strength for
    the axon's type, which is trained too and may have either sign.
    """

    def __init__(self, types: torch.Tensor, n_neurons: int):
        super().__init__()
        self.register_buffer("of_type", nn.functional.one_hot(types, N_TYPES).float())
        signs = torch.tensor([1.0, -1.0, 1.0, -1.0]).expand(n_neurons, N_TYPES)
        self.strength = nn.Parameter(0.05 * signs)

    def forward(self, free: torch.Tensor) -> torch.Tensor:
        straight = free.clamp(-1, 1)
        is_on = (free > 0).float() + (straight - straight.detach())
        return is_on * (self.strength @ self.of_type.T)


class Patches(nn.Module):
    """784-(4 x 60)-200 integrate-and-fire neurons; spikes `[T, B, 1, 28, 28]` in, ten classes of 20 votes out."""

    def __init__(self):
        super().__init__()
        self.patches = nn.ModuleList(nn.Linear(PATCH * PATCH, N_HIDDEN) for _ in range(4))
        self.hidden = nn.ModuleList(integrate_and_fire() for _ in range(4))
        self.out = nn.Linear(4 * N_HIDDEN, 10 * N_VOTES)
        self.votes = integrate_and_fire()
        functional.set_step_mode(self, "m")

    def forward(self, x):
        corners = [(y, x) for y in (0, PATCH) for x in (0, PATCH)]
        spikes = []
        for (top, left), linear, neurons in zip(corners, self.patches, self.hidden, strict=True):
            patch = x[..., top : top + PATCH, left : left + PATCH].flatten(2)
            spikes.append(neurons(linear(patch)))
        return self.votes(self.out(torch.cat(spikes, -1)))


def with_axon_types(module: Patches) -> Patches:
    """Let its weights come from four types of axons from now on; neighbors in a 2 x 2 square are of four types."""
    y, x = torch.meshgrid(torch.arange(PATCH), torch.arange(PATCH), indexing="ij")
    in_patch = (2 * (y % 2) + x % 2).flatten()
    for linear in module.patches:
        parametrize.register_parametrization(linear, "weight", OfTypes(in_patch, N_HIDDEN))
    in_hidden = torch.arange(4 * N_HIDDEN) % N_TYPES
    parametrize.register_parametrization(module.out, "weight", OfTypes(in_hidden, 10 * N_VOTES))
    return module


def fixed(module: Patches) -> Patches:
    """The weights as they are now, without what made them."""
    for linear in (*module.patches, module.out):
        parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)
    return module


def votes(module: Patches, x: torch.Tensor) -> torch.Tensor:
    """Mean votes of a step of each class, float32[B, 10], from cleared state."""
    functional.reset_net(module)
    return of_classes(module(x).mean(0))


def of_classes(counts):
    """Means of the votes `[B, 200]` of ten classes, `[B, 10]`."""
    return counts.reshape(len(counts), 10, N_VOTES).mean(-1)


def train(module: Patches, x: torch.Tensor, labels: torch.Tensor, n_epochs: int, rate: float) -> Patches:
    """The module after so many epochs on spikes `x` `[T, B, 1, 28, 28]`."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    n_steps = n_epochs * -(-len(labels) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=n_steps)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(labels), generator=generator).split(64):
            loss = nn.functional.cross_entropy(10 * votes(module, x[:, rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return module.eval()
