"""Drawn spikes: 0 and 1, as arrays and as tensors."""

import numpy as np
import torch


def spikes(*shape: int, seed: int = 0, rate: float = 0.5, dtype=np.int8) -> np.ndarray:
    return draw_spikes(np.random.default_rng(seed), *shape, rate=rate).astype(dtype)


def draw_spikes(rng: np.random.Generator, *shape: int, rate: float = 0.5) -> np.ndarray:
    """float32 spikes of a generator that also draws other things."""
    return (rng.random(shape) < rate).astype(np.float32)


def spike_tensor(*shape: int, seed: int = 0, rate: float = 0.5) -> torch.Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < rate).float()


def next_spike_tensor(*shape: int, rate: float = 0.4) -> torch.Tensor:
    """Spikes of torch's own generator, which the caller seeds."""
    return (torch.rand(*shape) < rate).float()
