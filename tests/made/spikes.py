"""Random binary spikes, as arrays and tensors."""

import numpy as np
import torch


def spikes(*shape: int, seed: int = 0, rate: float = 0.5, dtype=np.int8) -> np.ndarray:
    return draw_spikes(np.random.default_rng(seed), *shape, rate=rate).astype(dtype)


def draw_spikes(rng: np.random.Generator, *shape: int, rate: float = 0.5) -> np.ndarray:
    """Draw float32 spikes from a generator that the caller also uses."""
    return (rng.random(shape) < rate).astype(np.float32)


def spike_tensor(*shape: int, seed: int = 0, rate: float = 0.5) -> torch.Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < rate).float()


def next_spike_tensor(*shape: int, rate: float = 0.4) -> torch.Tensor:
    """Draw spikes from torch's global generator, which the caller seeds."""
    return (torch.rand(*shape) < rate).float()
