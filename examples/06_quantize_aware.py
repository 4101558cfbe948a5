"""Weights of 2 bits: rounded after training they cost accuracy; trained as the chip computes them they cost less.

python examples/06_quantize_aware.py [--bits 2] [--epochs 5]      (under a minute; extra `demo` for the images)

A 784-128-10 network learns digits in float for some epochs. Then it goes on for as many in float, and on the chip's
integers; both are compiled, and so is the float network with its weights rounded at the end.
"""

import argparse
import copy

import numpy as np
import torch
from mnist_snn import accuracy, answers, digits, encode, network

import nwcompile as nw
from nwcompile import nn

CHIP, N_STEPS, BATCH, LEARNING_RATE = "loihi1", 10, 64, 2e-3


def fit(module: torch.nn.Module, run, data, epochs: range) -> torch.nn.Module:
    """Train `module`; `run(x)` gives its output spikes [B, T, 10]."""
    labels = torch.from_numpy(data.train_labels)
    n_batches = -(-len(labels) // BATCH)
    optimizer = torch.optim.Adam(module.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=len(epochs) * n_batches)
    for epoch in epochs:
        order = np.random.default_rng(epoch).permutation(len(labels))
        for i, rows in enumerate(np.array_split(order, n_batches)):
            spikes = torch.from_numpy(encode(data.train_images[rows], [epoch, i], N_STEPS))
            loss = torch.nn.functional.cross_entropy(10 * run(spikes).mean(1), labels[rows], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return module


def in_float(net: nn.Sequential):
    """What runs a float network from cleared states."""

    def run(x: torch.Tensor) -> torch.Tensor:
        nn.prepare_net(net)
        return net(x)[0]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    if not 1 <= args.bits <= 8:
        parser.error("--bits must be from 1 to 8")
    torch.set_num_threads(1)
    data = digits()
    x, samples = encode(data.test_images, n_steps=N_STEPS), encode(data.train_images[:200], 1, N_STEPS)

    def show(name: str, spikes: np.ndarray) -> None:
        print(f"{name:44}{100 * accuracy(spikes, data.test_labels):6.1f} %", flush=True)

    half = network()
    fit(half, in_float(half), data, range(args.epochs))
    twin = copy.deepcopy(half)
    fit(twin, in_float(twin), data, range(args.epochs, 2 * args.epochs))
    with torch.no_grad():
        show("float", in_float(twin)(torch.from_numpy(x)).numpy())
    rounded = nw.compile(nw.from_torch(twin, samples[:2]), CHIP, samples, nw.Options(bits=args.bits))
    show(f"{args.bits} bits, rounded after training", nw.simulate(rounded, x, backend="sequence").output)

    module = nn.quantize_aware(half, CHIP, samples, bits=args.bits)
    fit(module, module, data, range(args.epochs, 2 * args.epochs))
    program = nw.compile(module.network(), CHIP, samples)
    output = nw.simulate(program, x, backend="sequence").output
    show(f"{args.bits} bits, trained with them, on {CHIP}", output)
    with torch.no_grad():
        own = module(x).numpy()
    print(
        f"the module's output spikes are the program's: {np.array_equal(own, output)}, "
        f"{np.count_nonzero(answers(own) == answers(output))} of {len(x)} answers alike"
    )


if __name__ == "__main__":
    main()
