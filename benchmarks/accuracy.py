"""Accuracy of the demo network over several seeds: float, and compiled for a chip with the default options.

    python benchmarks/accuracy.py [--seeds 3] [--chip loihi1]

A seed decides the split of the 5,000 images, the first weights and the training spikes. Accuracy is that on the 1,000
test images, which neither training nor calibration sees; `s` is seconds of training on one thread.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import save

N_CALIBRATION = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--chip", default="loihi1")
    args = parser.parse_args()
    rows = [measure(seed, args.chip) for seed in range(args.seeds)]
    rows.append(
        {"seed": "mean", **{column: mean(row[column] for row in rows) for column in rows[0] if column != "seed"}}
    )
    save("accuracy", rows, vars(args) | {"training_threads": 1})


def measure(seed: int, chip_name: str) -> dict:
    """One row of the table; accuracies in percent."""
    import nwcompile as nw
    from examples import mnist_snn

    data = mnist_snn.digits(seed)
    start = time.perf_counter()
    module = mnist_snn.train(data, seed)
    seconds = time.perf_counter() - start
    test = mnist_snn.encode(data.test_images)
    calibration = mnist_snn.encode(data.train_images[:N_CALIBRATION])
    program = nw.compile(nw.from_torch(module, test[:2]), nw.Chip.load(chip_name), calibration)
    on_chip = nw.simulate(program, test, backend="sequence").output
    in_float = 100 * mnist_snn.accuracy(mnist_snn.run(module, test), data.test_labels)
    in_integers = 100 * mnist_snn.accuracy(on_chip, data.test_labels)
    return {
        "seed": seed,
        "float %": in_float,
        f"{chip_name} %": in_integers,
        "drop": in_float - in_integers,
        "s": seconds,
    }


if __name__ == "__main__":
    main()
