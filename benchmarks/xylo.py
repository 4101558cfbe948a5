"""Movements and speakers on XyloIMU: nets of sinabs and snnTorch in float, quantized, and trained as the chip computes.

    python benchmarks/xylo.py [--sets basic_motions,japanese_vowels] [--nets sinabs,snntorch] [--seeds 0,1,2,3,4]
                              [--quick]                                           (extras `bench` and `test`)

BasicMotions (80 recordings of a smart watch, 4 motions, five folds) and JapaneseVowels (640 utterances of 9 speakers,
its own split, five seeds), both of aeon. An input line carries a count of 0 to 15 a step, how many of the levels that
divide its channel's training values into equal shares a value is above: 6 channels are 12 lines, above and below the
median, and 12 channels 12 lines. 64 hidden neurons, an output a class, the answer is the output that spikes most.

`sinabs`: LIF with tau_syn, hidden neurons that send counts (MultiSpike); it lands with approximate="multi-spike" (up
to 31 at once). `snntorch`: Synaptic with its late subtraction, and approximate="timing,multi-spike". Decays are such
that shifts give. `float`: the framework's accuracy on the test part; `quantized`: of the program; `trained`: of the
program after some epochs of `nn.quantize_aware`; `float_trained`: as many more epochs in float. What single differences
cost snnTorch's net, in float: `reset_now`, resets at once; `several`, up to 31 spikes at once of hidden neurons, with
the threshold as it is. All in percent.
`step_cycles`: mean of a step of some test samples, the vendor's formula, from backend `cycle`; `order_dependent`: sums
of these that may depend on the order of their spikes. Written to results/xylo.json after every training.
"""

import argparse
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
import sinabs
import snntorch
import torch
from sinabs.activation import SingleSpike
from sinabs.layers import LIF
from torch.nn import functional

import nwcompile as nw
from benchmarks.folds import Fold, stratified
from benchmarks.quantize_nets import basic_motions, japanese_vowels
from benchmarks.record import show, write
from nwcompile import nn
from nwcompile.ir.network import Node

CHIP = "xylo_imu"
N_HIDDEN = 64
MOST = 15  # Events that an input line takes in a step.
KEPT_CURRENT, KEPT_MEMBRANE = 1 - 1 / 4, 1 - 1 / 16  # What shifts of 2 and 4 leave of a state in a step.
N_EPOCHS = {"basic_motions": 40, "japanese_vowels": 40}
TUNING_EPOCHS = 10
BATCH = 32
RATE = 2e-3  # Of Adam.
TUNING_RATE = 1e-3
GAIN = 2.0  # Rates, 0..1, are multiplied by N_STEPS * GAIN / 10 before their cross entropy.
N_TIMED = 5  # Test samples whose steps are measured.
APPROXIMATE = {"sinabs": "multi-spike", "snntorch": "timing,multi-spike"}
NUMBERS = ("float", "quantized", "trained", "float_trained")
DIFFERENCES = ("reset_now", "several")
CAP = 31  # Spikes of a hidden neuron at once.


class Synaptic(torch.nn.Module):
    """Two layers of snnTorch's Synaptic."""

    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.fc1, self.fc2 = linear(n_in, N_HIDDEN), linear(N_HIDDEN, n_out)
        self.lif1, self.lif2 = (
            snntorch.Synaptic(alpha=KEPT_CURRENT, beta=KEPT_MEMBRANE, threshold=1.0) for _ in range(2)
        )

    def forward(self, x):
        """Output spikes [B, T, n_out] of x [B, T, n_in]."""
        hidden_state, out_state, spikes = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for step in range(x.shape[1]):
            hidden, *hidden_state = self.lif1(self.fc1(x[:, step]), *hidden_state)
            out, *out_state = self.lif2(self.fc2(hidden), *out_state)
            spikes.append(out)
        return torch.stack(spikes, 1)


def linear(n_in: int, n_out: int) -> torch.nn.Linear:
    """Weights small enough for what counts and slow decays add up to."""
    layer = torch.nn.Linear(n_in, n_out, bias=False)
    with torch.no_grad():
        layer.weight.mul_(0.1)
    return layer


def of_sinabs(n_in: int, n_out: int) -> torch.nn.Sequential:
    """Two layers of sinabs' LIF with a synaptic current."""
    tau_syn, tau_mem = (float(-1 / np.log(keep)) for keep in (KEPT_CURRENT, KEPT_MEMBRANE))
    neurons = partial(LIF, tau_mem=tau_mem, tau_syn=tau_syn, norm_input=False)
    hidden, out = linear(n_in, N_HIDDEN), linear(N_HIDDEN, n_out)
    return torch.nn.Sequential(hidden, neurons(), out, neurons(spike_fn=SingleSpike))


NETS = {"sinabs": of_sinabs, "snntorch": Synaptic}


def counts(series: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Events int8[n, T, line] of series [n, C, T] (NaN after the end): levels are those of the training samples."""
    n_channels = series.shape[1]
    n_levels = MOST if n_channels * 2 > 16 else 2 * (MOST // 2)
    values = series[train].transpose(1, 0, 2).reshape(n_channels, -1)
    levels = np.nanquantile(values, (np.arange(n_levels) + 0.5) / n_levels, axis=1).T
    above = series.transpose(0, 2, 1)[..., None] > levels
    if n_levels == MOST:
        return above.sum(-1).astype(np.int8)
    half = n_levels // 2
    below = (series.transpose(0, 2, 1)[..., None] <= levels)[..., :half]
    return np.concatenate([above[..., half:].sum(-1), below.sum(-1)], -1).astype(np.int8)


def splits(name: str) -> tuple[np.ndarray, np.ndarray, list[Fold]]:
    """Series, labels, and five pairs of a training and a test part."""
    if name == "basic_motions":
        series, labels, _ = basic_motions()
        return series, labels, stratified(labels, 5)
    return japanese_vowels()


def rates(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Spikes a step of each output, [B, n_out], from a cleared state."""
    if isinstance(module, torch.nn.Sequential):
        sinabs.reset_states(module)
    return module(x).mean(1)


def train(module: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor, n_epochs: int, rate: float) -> None:
    """Train on samples [B, T, line], the right output's rate pushed up and the others' down."""
    optimizer = torch.optim.Adam(module.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_epochs)
    gain = x.shape[1] * GAIN / 10
    for _ in range(n_epochs):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(gain * rates(module, x[batch]), labels[batch]).backward()
            optimizer.step()
        schedule.step()


@torch.no_grad()
def right_in_float(module: torch.nn.Module, x: torch.Tensor, labels: np.ndarray) -> float:
    """Percent of right answers of the framework."""
    return 100 * float((rates(module, x).argmax(1).numpy() == labels).mean())


def right_on_chip(program: nw.Program, x: np.ndarray, labels: np.ndarray) -> float:
    """Percent of right answers of a program."""
    output = nw.simulate(program, x, backend="sequence").output.sum(1)
    return 100 * float((output.argmax(-1) == labels).mean())


def right_as_chip(network: nw.Network, x: np.ndarray, labels: np.ndarray, hidden: dict, out: dict) -> float:
    """Percent of right answers of a float network with other neurons: fields of its hidden and its output ones."""
    first, last = network.layers
    nodes = dict(network.nodes)
    for name, changed in ((first, hidden), (last, out)):
        nodes[name] = Node(name, nodes[name].shape, nodes[name].neuron.replace(**changed))
    output = nw.simulate(nw.Network(network.inputs, nodes, network.connections), x).output.sum(1)
    return 100 * float((output.argmax(-1) == labels).mean())


def row_of(name: str, net: str, seed: int, quick: bool) -> dict:
    """One training: in float, compiled, and trained further on the chip's arithmetic."""
    start, (series, labels, folds) = time.perf_counter(), splits(name)
    fold = folds[seed]
    events = counts(series, fold.train)
    x, of_train, of_test = torch.from_numpy(events.astype(np.float32)), labels[fold.train], labels[fold.test]
    known = torch.from_numpy(of_train)
    torch.manual_seed(seed)
    module = NETS[net](events.shape[2], int(labels.max()) + 1)
    train(module, x[fold.train], known, 1 if quick else N_EPOCHS[name], RATE)
    row = {"set": name, "net": net, "seed": seed, "float": right_in_float(module, x[fold.test], of_test)}
    calibration, options = events[fold.train], nw.Options(approximate=APPROXIMATE[net])
    network = nw.from_torch(module, calibration[:1].astype(np.float32))
    if net == "snntorch":
        now, several = {"reset_timing": "now"}, {"spikes": "multi", "max_spikes": CAP}
        row["reset_now"] = right_as_chip(network, events[fold.test], of_test, now, now)
        row["several"] = right_as_chip(network, events[fold.test], of_test, several, {})
    program = nw.compile(network, CHIP, calibration, options)
    row["quantized"] = right_on_chip(program, events[fold.test], of_test)
    aware = nn.quantize_aware(module, CHIP, calibration, approximate=APPROXIMATE[net])
    n_tuned = 1 if quick else TUNING_EPOCHS
    train(aware, x[fold.train], known, n_tuned, TUNING_RATE)
    program = nw.compile(aware.network(), CHIP, calibration, options)
    row["trained"] = right_on_chip(program, events[fold.test], of_test)
    train(module, x[fold.train], known, n_tuned, TUNING_RATE)
    row["float_trained"] = right_in_float(module, x[fold.test], of_test)
    timed = nw.simulate(program, events[fold.test[:N_TIMED]], "cycle")
    row["step_cycles"] = float(timed.step_cycles.sum() / timed.n_samples / len(timed.step_cycles))
    row["order_dependent"] = sum(map(len, timed.order_dependent.values()))
    row["agree"] = nw.crosscheck(program, events[fold.test[:1]]).agree
    return row | {"seconds": time.perf_counter() - start}


def summary(rows: list[dict]) -> list[dict]:
    """A row for each data set and net: means and standard deviations."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["net"]), []).append(row)
    shown = []
    for (name, net), group in groups.items():
        cells = {key: [row[key] for row in group if key in row] for key in (*NUMBERS, *DIFFERENCES, "step_cycles")}
        texts = {k: f"{statistics.mean(v):.1f} +- {statistics.pstdev(v):.1f}" if v else "-" for k, v in cells.items()}
        agree, n_open = all(row["agree"] for row in group), sum(row["order_dependent"] for row in group)
        shown.append({"set": name, "net": net, "n": len(group), **texts, "order_dependent": n_open, "agree": agree})
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(N_EPOCHS))
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--quick", action="store_true", help="one epoch each on one seed, written nowhere")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict] = []
    for seed in [0] if args.quick else map(int, args.seeds.split(",")):
        for name in args.sets.split(","):
            for net in args.nets.split(","):
                rows.append(row_of(name, net, seed, args.quick))
                print(rows[-1], file=sys.stderr, flush=True)
                if not args.quick:
                    settings = {"epochs": N_EPOCHS, "tuning_epochs": TUNING_EPOCHS, "hidden": N_HIDDEN, "chip": CHIP}
                    write("xylo", sorted(rows, key=lambda r: (r["set"], r["net"], r["seed"])), settings)
    show(summary(rows))


if __name__ == "__main__":
    main()
