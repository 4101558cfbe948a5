"""Samples over threads. Each thread takes samples of its own, so no result depends on how many threads there are."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def over_samples(n_samples: int, work: Callable[[slice], object]) -> list:
    """What `work` gives for each of consecutive slices of the samples, in order; one slice for each core at hand."""
    n_parts = max(1, min(n_samples, len(os.sched_getaffinity(0))))
    bounds = np.linspace(0, n_samples, n_parts + 1).astype(int)
    with ThreadPoolExecutor(n_parts) as pool:
        return list(pool.map(lambda k: work(slice(bounds[k], bounds[k + 1])), range(n_parts)))
