"""Samples, and steps, over threads; no result depends on how many threads there are."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

MOST_PARTS = 4  # of a sample's steps: every part updates all neurons, and has room for all spikes, by itself


def over_samples(n_samples: int, work: Callable[[slice], object], interrupted: np.ndarray | None = None) -> list:
    """What `work` gives for each of consecutive slices of the samples, in order; one slice for each core at hand."""
    return over_samples_and_steps(n_samples, False, lambda own, part, n_parts: work(own), interrupted)


def over_samples_and_steps(
    n_samples: int, may_split: bool, work: Callable[[slice, int, int], object], interrupted: np.ndarray | None = None
) -> list:
    """What `work(slice, part, n_parts)` gives for slices of the samples, and for all parts of each, in order.

    Samples are cut in parts, MOST_PARTS at most, only if there are fewer than cores at hand, and `may_split`.
    `interrupted` bool[1] tells work in progress that nobody waits for it any more (Ctrl-C).
    """
    n_threads = len(os.sched_getaffinity(0))
    n_slices = max(1, min(n_samples, n_threads))
    n_parts = min(n_threads // n_slices, MOST_PARTS) if may_split else 1
    bounds = np.linspace(0, n_samples, n_slices + 1).astype(int)
    jobs = [(slice(bounds[k], bounds[k + 1]), part) for k in range(n_slices) for part in range(n_parts)]
    with ThreadPoolExecutor(len(jobs)) as pool:
        try:
            return list(pool.map(lambda job: work(*job, n_parts), jobs))
        except KeyboardInterrupt:
            if interrupted is not None:
                interrupted[0] = True
            raise
