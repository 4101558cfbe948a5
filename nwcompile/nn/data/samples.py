"""Access to the samples of a data set, and their transform."""

from collections.abc import Callable

import numpy as np
import torch

from nwcompile.errors import ModelError


def as_array(given) -> np.ndarray:
    """Convert an array, or a tensor on any device, to a NumPy array. Raises ModelError for anything else."""
    try:
        if isinstance(given, torch.Tensor):
            given = given.detach().cpu()
            return given.float().numpy() if given.dtype == torch.bfloat16 else given.numpy()
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError):
        raise ModelError(f"an object of type {type(given).__name__} is not an array of numbers") from None


def count_samples(samples) -> int:
    """Return the number of samples. Raises ModelError for samples without a length, such as a stream."""
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        kind = type(samples).__name__
        raise ModelError(f"samples of type {kind} must be a list, or a data set with a length and numbered access")
    return len(samples)


def read_pair(samples, i: int) -> tuple:
    """Return (recording, label) of sample i. Raises ModelError if it is not a pair."""
    sample = samples[i]
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise ModelError(f"sample {i} is of type {type(sample).__name__}, must be a pair (recording, label)")
    return tuple(sample)


def transform_sample(samples, i: int, transform: Callable) -> tuple[np.ndarray, object]:
    """Return (spikes uint8 `[T, N]`, label) of sample i. Raises ModelError, naming the sample."""
    recording, label = read_pair(samples, i)
    try:
        spikes = transform(recording)
    except ModelError as e:
        raise ModelError(f"sample {i}: {e}") from None
    is_array = isinstance(spikes, np.ndarray) and spikes.ndim == 2 and spikes.dtype == np.uint8
    if not is_array or not spikes.size or spikes.max() > 1:
        kind = type(transform).__name__
        raise ModelError(f"sample {i}: {kind} must give an array uint8 [T, N] of 0 and 1, T and N at least 1")
    return spikes, label
