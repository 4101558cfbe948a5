"""Accuracy on Yin-Yang data with and without trained delays, at equal neurons.

    python -m benchmarks.yin_yang

Points are drawn by the rule of Kriener, Goeltz, Petrovici (arXiv:2102.08211): in a disk, of class yin, yang or dot, as
often each; 5000 to train with, 1000 to test. A point is five spikes, at x, y, 1 - x, 1 - y and 0 of the first
30 steps. The class is that of three membranes whose largest is largest. Delays count rounded in the test.
"""

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context

import numpy as np
import torch

from benchmarks.record import save
from nwcompile import nn

SMALL, BIG = 0.1, 0.5  # radii of the dots and of the disk
INPUT_STEPS, MAX_DELAY, N_STEPS = 30, 15, 50
TAU_S, WEIGHT_SCALE = 8e-3, 3.0  # of steps of 1 ms; drawn weights are multiplied with the scale, so that neurons fire
EPOCHS, BATCH = 40, 128
RATE, DELAY_RATE = 5e-3, 0.1
ANNEALED = 0.7  # of the epochs, after which delays are whole
WAYS = ("weights", "weights, drawn delays", "weights and delays")


def points(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`[n, 2]` and their classes: 0 yang, 1 yin, 2 dot; every class is drawn first, then points until one is of it."""
    rng = np.random.default_rng(seed)
    classes, drawn, left = rng.integers(0, 3, n), np.empty((n, 2)), np.arange(n)
    while len(left):
        p = rng.random((len(left), 2)) * 2 * BIG
        to_left, to_right = (np.hypot(p[:, 0] - share * BIG, p[:, 1] - BIG) for share in (0.5, 1.5))
        is_yin = (to_right <= SMALL) | ((to_left > SMALL) & (to_left <= BIG / 2))
        is_yin |= (p[:, 1] > BIG) & (to_right > BIG / 2)
        is_dot = (to_left < SMALL) | (to_right < SMALL)
        fits = (np.where(is_dot, 2, is_yin) == classes[left]) & (np.hypot(*(p - BIG).T) <= BIG)
        drawn[left[fits]] = p[fits]
        left = left[~fits]
    return drawn, classes


def spikes_of(p: np.ndarray) -> torch.Tensor:
    """Float `[n, N_STEPS, 5]`."""
    steps = np.rint(np.concatenate([p, 1 - p, np.zeros((len(p), 1))], 1) * (INPUT_STEPS - 1)).astype(int)
    x = np.zeros((len(p), N_STEPS, 5), np.float32)
    sample, line = np.indices(steps.shape)
    x[sample, steps, line] = 1
    return torch.from_numpy(x)


def layers(way: str, n_in: int, n_hidden: int, n_out: int, weight_scale: float = WEIGHT_SCALE) -> nn.Sequential:
    """n_in lines, n_hidden neurons, n_out membranes that never fire; of `WAYS`."""

    def synapses(n_from: int, n_to: int) -> nn.LIFSynapse:
        if way == "weights":
            made = nn.LIFSynapse(n_from, n_to)
        else:
            learns = way == "weights and delays"
            made = nn.DelayedLinear(n_from, n_to, MAX_DELAY, learn_delays=learns, width=float(learns))
        with torch.no_grad():
            made.weight *= weight_scale
        return made

    hidden = nn.LIFLayer(n_hidden, TAU_S, reset_mechanism="zero")
    return nn.Sequential(
        synapses(n_in, n_hidden),
        hidden,
        synapses(n_hidden, n_out),
        nn.LIFLayer(n_out, TAU_S, 1e6, reset_mechanism="none"),
    )


def train(net: nn.Sequential, x: torch.Tensor, y: torch.Tensor, n_epochs: int, batch: int = BATCH) -> None:
    """Train on samples `[n, T, line]`, until their class has the largest membrane; delays are whole at the end."""
    learned = {name: p for name, p in net.named_parameters() if p.requires_grad}
    delays = [p for name, p in learned.items() if name.endswith("steps")]
    weights = [p for name, p in learned.items() if not name.endswith("steps")]
    groups = [{"params": weights, "lr": RATE}, {"params": delays, "lr": DELAY_RATE}]
    optimizer = torch.optim.Adam([group for group in groups if group["params"]])
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_epochs)
    annealing = nn.DelayAnnealing(net, max(1, int(ANNEALED * n_epochs))) if delays else None
    for _ in range(n_epochs):
        for rows in torch.randperm(len(x)).split(batch):
            nn.prepare_net(net)
            loss = torch.nn.functional.cross_entropy(net(x[rows])[1].amax(1), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        slower.step()
        if annealing is not None:
            annealing.step()


def percent_right(net: nn.Sequential, x: torch.Tensor, classes: np.ndarray) -> float:
    """Percent of samples that are told right, with rounded delays."""
    nn.prepare_net(net.eval())
    with torch.no_grad():
        told = net(x)[1].amax(1).argmax(1).numpy()
    return 100 * float((told == classes).mean())


def accuracy(way: str, seed: int, n_hidden: int, n_epochs: int) -> float:
    """Percent of the test samples that are told right."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    (points_seen, classes), (test, wanted) = points(5000, 42), points(1000, 40)
    net = layers(way, 5, n_hidden, 3)
    train(net, spikes_of(points_seen), torch.from_numpy(classes), n_epochs)
    return percent_right(net, spikes_of(test), wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12, 13, 14])
    parser.add_argument("--hidden", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    cases = list(product(WAYS, given.seeds))
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        found = list(pool.map(accuracy, *zip(*((w, s, given.hidden, given.epochs) for w, s in cases), strict=True)))
    rows = []
    for way in WAYS:
        of_way = [right for (name, _), right in zip(cases, found, strict=True) if name == way]
        rows.append({"trained": way, "hidden": given.hidden, "accuracy (%)": statistics.mean(of_way),
                     "std": statistics.stdev(of_way) if len(of_way) > 1 else None,
                     "seeds": " ".join(f"{right:.1f}" for right in of_way)})  # fmt: skip
    save("yin_yang", rows, vars(given))


if __name__ == "__main__":
    main()
