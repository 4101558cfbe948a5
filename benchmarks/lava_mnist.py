"""A network of another toolchain, `lava_mnist` (784-128-64-10, integers), on 5,000 MNIST images in all backends.

    python benchmarks/lava_mnist.py [--reference DIR]

Its input encoder is not recorded with it. Here a pixel is an integrate-and-fire neuron without leak: in each of 32
steps it adds its gray value, 0 to 255, and fires where the sum passes a multiple of 255. The answer is the output
neuron with the most spikes. Every backend runs all images; `equal` says whether all output spikes are those of
`sequence`. The chip is loihi1, as it is.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.folds import mnist
from benchmarks.record import save

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"
N_STEPS = 32
BACKENDS = ("sequence", "cycle", "reference")
BATCH = 500  # images at once, for the memory of `reference`


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", default=str(REFERENCE), help="folder that holds models/lava_mnist")
    args = parser.parse_args()
    save("lava_mnist", rows(Path(args.reference)), {"steps": N_STEPS, "chip": "loihi1"})


def rows(reference: Path = REFERENCE) -> list[dict]:
    """A row for each backend: accuracy in percent, whether all output spikes are those of `sequence`, CPU seconds."""
    import nwcompile as nw

    images, labels = mnist()
    network = nw.from_lava(reference / "models" / "lava_mnist" / "trained_mnist_network.net")
    spikes = encode(images)
    program = nw.compile(network, nw.Chip.load("loihi1"), spikes[::50])
    found, wanted = [], None
    for backend in BACKENDS:
        start = time.process_time()
        parts = [nw.simulate(program, spikes[i : i + BATCH], backend).output for i in range(0, len(spikes), BATCH)]
        output = np.concatenate(parts)
        wanted = output if wanted is None else wanted
        right = output.sum(1).argmax(1) == labels
        found.append(
            {
                "net": "lava_mnist",
                "backend": backend,
                "images": len(labels),
                "accuracy %": 100 * right.mean(),
                "equal": bool(np.array_equal(output, wanted)),
                "CPU s": time.process_time() - start,
            }
        )
    return found


def encode(images: np.ndarray) -> np.ndarray:
    """int8 spikes `[n, 32, 784]` of images `[n, 28, 28]` in 0..1."""
    gray = np.rint(images.reshape(len(images), 1, -1) * 255).astype(np.int64)
    levels = gray * np.arange(N_STEPS + 1).reshape(1, -1, 1) // 255
    return np.diff(levels, axis=1).astype(np.int8)


if __name__ == "__main__":
    main()
