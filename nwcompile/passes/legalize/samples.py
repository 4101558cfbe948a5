"""Samples: which of the calibration samples parameters are fitted to, and on which others the price is measured."""

import numpy as np

HELD_OUT = 5  # Every fifth sample, 20 %, is kept back: no parameter of an approximation is fitted to it.
FEWEST = 2  # Of fewer samples none can be kept back.
LARGEST_FIT = 1_000_000  # Neuron updates of one run of a layer: with more, each of the search's runs takes too long.
FEWEST_FITTED = 4  # With fewer samples a neuron would be fitted to chance.


def split(n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the samples to fit to and of those that are held out, the last of every five, or of fewer than five.

    Without FEWEST samples nothing is held out: then there is no price.
    """
    index = np.arange(n_samples)
    held = index % HELD_OUT == HELD_OUT - 1
    if n_samples < HELD_OUT:
        held = (index == n_samples - 1) & (n_samples >= FEWEST)
    return index[~held], index[held]


def as_many(samples: np.ndarray, n_updates: int) -> np.ndarray:
    """As many of the samples, evenly spread, as a search has time for; `n_updates`: neuron updates of one of them."""
    n_kept = min(len(samples), max(FEWEST_FITTED, LARGEST_FIT // max(n_updates, 1)))
    return samples[np.linspace(0, len(samples) - 1, n_kept).astype(int)]
