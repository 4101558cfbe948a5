"""EventProp in steps beside a surrogate gradient: what a layer keeps for the backward pass, and what it learns.

`python benchmarks/eventprop.py` prints both tables of docs/event.md. Data are scikit-learn's handwritten digits, a pixel
a spike that comes the sooner the darker it is; the net has current-based LIF neurons, 64-100-10.
"""

import argparse
import math
import time

import torch
from sklearn.datasets import load_digits

from nwcompile import nn
from nwcompile.nn.ops.scan import LIFNeurons, scan
from nwcompile.nn.ops.surrogate import of_layer

SURROGATES = ("eventprop", "fast_sigmoid", "atan")
ACTIVITIES = (0.01, 0.05, 0.2)
SHAPE = (32, 100, 512)
N_STEPS = 40
STEP_S = 1e-3


def kept_bytes(surrogate: str, activity: float, shape=SHAPE, reset: str = "subtraction") -> int:
    """Bytes that a layer keeps from a forward pass of `shape`, of a current at which it spikes so often."""
    current = current_of(activity, shape).requires_grad_()
    neurons = LIFNeurons(torch.full(shape[2:], 0.9), torch.ones(shape[2]), reset, of_layer(surrogate))
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        spikes, *_ = scan(current, neurons.cleared(current), neurons)
    assert abs(spikes.mean() - activity) < 0.1 * activity
    return sum(kept.values())


def current_of(activity: float, shape) -> torch.Tensor:
    """A current that brings a neuron to its threshold of 1 in `activity` of the steps, and else takes nothing away."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(0)) < activity).float() * 1.01


class Digits(torch.nn.Module):
    """Current-based LIF neurons, the last of them read by their membranes."""

    def __init__(self, surrogate: str, n_hidden: int):
        super().__init__()
        self.first, self.last = nn.LIFSynapse(64, n_hidden), nn.LIFSynapse(n_hidden, 10)
        with torch.no_grad():
            self.first.weight.normal_(3 / math.sqrt(64), 5 / math.sqrt(64))
        filters = {"thresholds": 1e9, "reset_mechanism": "none", "dt": STEP_S, "surrogate": surrogate}
        self.currents = torch.nn.ModuleList(nn.LIFLayer(n, taus=5e-3, **filters) for n in (n_hidden, 10))
        self.hidden = nn.LIFLayer(n_hidden, taus=20e-3, reset_mechanism="zero", dt=STEP_S, surrogate=surrogate)
        self.readout = nn.LIFLayer(10, taus=20e-3, **filters)

    def forward(self, spikes: torch.Tensor) -> torch.Tensor:
        """Spikes `[B, T, 64]` to logits `[B, 10]`: the mean membranes, of early steps more than of late ones."""
        nn.prepare_net(self)
        hidden, _ = self.hidden(self.currents[0](self.first(spikes))[1] * 0.05)
        _, mem = self.readout(self.currents[1](self.last(hidden))[1])
        early = torch.exp(-torch.arange(N_STEPS) / (N_STEPS / 2))
        return (mem * early[:, None]).mean(1), hidden


def data() -> tuple[torch.Tensor, torch.Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(pixels, dtype=torch.float32) / 16
    step = ((1 - pixels) * 20).long()
    spikes = torch.zeros(len(pixels), N_STEPS, 64).scatter_(1, step[:, None], 1.0)
    return spikes * (pixels > 0.1)[:, None], torch.tensor(labels)


def accuracy(surrogate: str, seed: int, n_epochs: int, n_hidden: int, rate: float) -> tuple[float, float, float]:
    """Test accuracy in per cent, spikes of a hidden neuron and sample, CPU seconds."""
    begin = time.process_time()
    torch.manual_seed(seed)
    spikes, labels = data()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1297], order[1297:]
    net = Digits(surrogate, n_hidden)
    optimizer = torch.optim.Adam(net.parameters(), rate)
    for epoch in range(n_epochs):
        total = 0
        for batch in train[torch.randperm(len(train))].split(64):
            loss = torch.nn.functional.cross_entropy(net(spikes[batch])[0], labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(epoch, total / 21, flush=True) if epoch % 5 == 0 else None
    with torch.no_grad():
        logits, hidden = net(spikes[test])
    right = (logits.argmax(1) == labels[test]).float().mean().item()
    return 100 * right, hidden.sum(1).mean().item(), time.process_time() - begin


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--hidden", type=int, default=100)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for activity in ACTIVITIES:
        print(activity, *(f"{s} {kept_bytes(s, activity):,}" for s in SURROGATES[:2]))
    for surrogate in SURROGATES:
        for seed in range(given.seeds):
            print(surrogate, seed, accuracy(surrogate, seed, given.epochs, given.hidden, given.rate), flush=True)
