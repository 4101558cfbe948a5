"""BasicMotions and JapaneseVowels with and without trained delays, at equal neurons.

    python -m benchmarks.delays_series [--hidden 8 32] [--seeds 0 1 2 3 4]      (extra `bench`)

The nets, ways and settings of `benchmarks/yin_yang.py`, but for batches of 16 and the scale of the weights that are
drawn, 1: of 0.3, 1 and 3 the best for nets with weights alone on a quarter of the training samples held out. A channel
of a series is 8 lines, each of which spikes in the steps in which the value is above its level; levels divide the
training values into equal shares. BasicMotions: 80 recordings of 4 motions, 100 steps, a seed is a fold of five.
JapaneseVowels: 640 utterances of 9 speakers, at most 29 steps, its own split in five trainings. Delays count rounded
in the test.
"""

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context

import torch

from benchmarks.folds import stratified
from benchmarks.quantize_nets import basic_motions, japanese_vowels, quantiles
from benchmarks.record import save
from benchmarks.yin_yang import EPOCHS, WAYS, layers, percent_right, train

BATCH = 16  # Of 64 and 270 samples.
WEIGHT_SCALE = 1.0  # Half of the lines spike in a step, so weights as they are drawn make neurons fire.
SETS = ("basic_motions", "japanese_vowels")


def accuracy(name: str, way: str, n_hidden: int, seed: int, n_epochs: int) -> float:
    """Percent of the test samples that are told right."""
    torch.set_num_threads(1)
    series, labels, folds = basic_motions() if name == "basic_motions" else japanese_vowels()
    fold = (stratified(labels, 5) if name == "basic_motions" else folds)[seed]
    coder = quantiles(series[fold.train])
    seen, unseen = (torch.from_numpy(coder(series[part], None)) for part in (fold.train, fold.test))
    torch.manual_seed(seed)
    net = layers(way, seen.shape[2], n_hidden, int(labels.max()) + 1, WEIGHT_SCALE)
    train(net, seen, torch.from_numpy(labels[fold.train]), n_epochs, BATCH)
    return percent_right(net, unseen, labels[fold.test])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--hidden", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    cases = list(product(SETS, given.hidden, WAYS, given.seeds))
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        rights = [pool.submit(accuracy, name, way, n_hidden, seed, given.epochs) for name, n_hidden, way, seed in cases]
        of_case = {case: right.result() for case, right in zip(cases, rights, strict=True)}
    rows = []
    for name, n_hidden, way in product(SETS, given.hidden, WAYS):
        of_way = [of_case[name, n_hidden, way, seed] for seed in given.seeds]
        rows.append({"set": name, "hidden": n_hidden, "trained": way, "accuracy (%)": statistics.mean(of_way),
                     "std": statistics.stdev(of_way) if len(of_way) > 1 else None,
                     "seeds": " ".join(f"{right:.1f}" for right in of_way)})  # fmt: skip
    save("delays_series", rows, vars(given))


if __name__ == "__main__":
    main()
