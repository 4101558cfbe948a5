"""The nets of benchmarks/quantize.py: real data as spikes, cut in folds, and the layers that learn them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch

import nwcompile as nw
from benchmarks.folds import Fold, mnist, stratified
from nwcompile import nn

N_STEPS = 10
LEVELS = 8  # of a channel of a time series
STEP_S = 2e-3
LIF = {"reset_mechanism": "zero", "dt": STEP_S, "surrogate": "atan"}
Coder = Callable[[np.ndarray, object], np.ndarray]  # values [n, ...] and a seed to spikes float32[n, T, *shape]


@dataclass(frozen=True, eq=False)
class Case:
    """A data set and a net for it.

    `data` gives values `[n, ...]`, labels int64[n] and folds; `coder` takes the training values and gives what encodes
    any; `layers` makes an untrained net. Training takes `n_epochs`, then as many again. It runs on `chip`; `learned`
    are parameters of neuron programs that are trained, too, in its integers.
    """

    data: Callable[[], tuple[np.ndarray, np.ndarray, list[Fold]]]
    coder: Callable[[np.ndarray], Coder]
    layers: Callable[[], nn.Sequential]
    n_epochs: int
    batch: int
    unit: str = "points"  # in which the goals are given: points of accuracy, or samples
    chip: str = "loihi1"
    learned: tuple[str, ...] = ()


def lif(n_neurons: int, tau_steps: float = 5.0) -> nn.LIFLayer:
    return nn.LIFLayer(n_neurons, taus=tau_steps * STEP_S, **LIF)


def dense(n_in: int, n_hidden: int, n_out: int, tau_steps: float = 5.0) -> nn.Sequential:
    """n_in - n_hidden - n_out neurons; images are flattened first."""
    hidden, out = torch.nn.Linear(n_in, n_hidden), torch.nn.Linear(n_hidden, n_out)
    return nn.Sequential(torch.nn.Flatten(), hidden, lif(n_hidden, tau_steps), out, lif(n_out, tau_steps))


@nw.neuron
def adaptive(state, x, beta=0.82, rho=0.9, jump=0.5):
    """ALIF: a leaky membrane whose threshold rises with every spike and falls back."""
    v = beta * state.v + x
    threshold = 1.0 + state.a
    spike = nn.spike(v, threshold, "atan")
    return {"v": v - spike * threshold, "a": rho * state.a + jump * spike}, spike


ADAPTIVE = ("beta", "rho", "jump")


def alif(n_in: int, n_hidden: int, n_out: int) -> nn.Sequential:
    """As `dense`, with a hidden layer of ALIF neurons, each with parameters of its own, which are trained."""
    hidden, out = torch.nn.Linear(n_in, n_hidden), torch.nn.Linear(n_hidden, n_out)
    own = {name: np.full(n_hidden, value) for name, value in adaptive.defaults.items()}
    layer = nn.ProgramLayer(adaptive, n_hidden, learn=ADAPTIVE, **own)
    return nn.Sequential(torch.nn.Flatten(), hidden, layer, out, lif(n_out))


def conv() -> nn.Sequential:
    """28 x 28 images: 8 channels of 12 x 12, 16 of 5 x 5, 10 neurons; 61,600 multiplications a step."""
    first, second = torch.nn.Conv2d(1, 8, 5, stride=2), torch.nn.Conv2d(8, 16, 3, stride=2)
    return nn.Sequential(
        first, lif(8 * 12 * 12), second, lif(16 * 5 * 5), torch.nn.Flatten(), torch.nn.Linear(16 * 5 * 5, 10), lif(10)
    )


def pixels(images: np.ndarray, seed) -> np.ndarray:
    """Spikes float32[n, T, 1, H, W]: a pixel of gray value g fires g times a step on average, evenly; phases by chance.

    It fires in step t (from 0) where the whole part of g * t + phase grows, never twice: phases are whole 4096ths, so
    that sums of float32 are exact where g is 1.
    """
    phase = np.random.default_rng(seed).integers(0, 4096, images.shape, np.int16).astype(np.float32) / 4096
    reached = images[:, None] * np.arange(N_STEPS + 1, dtype=np.float32)[:, None, None] + phase[:, None]
    return np.diff(np.floor(reached), axis=1)[:, :, None]


def thermometer(levels: np.ndarray, series: np.ndarray, seed) -> np.ndarray:
    """Spikes float32[n, T, C * L]: where series[n, C, T] (NaN after the end) is above each of its levels[C, L]."""
    above = series.transpose(0, 2, 1)[..., None] > levels
    return above.reshape(*above.shape[:2], -1).astype(np.float32)


def quantiles(series: np.ndarray) -> Coder:
    """A thermometer whose levels divide each channel of the training values into equal shares."""
    values = series.transpose(1, 0, 2).reshape(series.shape[1], -1)
    return partial(thermometer, np.nanquantile(values, (np.arange(LEVELS) + 0.5) / LEVELS, axis=1).T)


@cache
def mnist_folds() -> tuple[np.ndarray, np.ndarray, list[Fold]]:
    images, labels = mnist()
    return images, labels, stratified(labels, 5)


@cache
def digits() -> tuple[np.ndarray, np.ndarray, list[Fold]]:
    """1,797 images of 8 x 8 pixels (scikit-learn)."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    labels = labels.astype(np.int64)
    return (images / 16).astype(np.float32).reshape(-1, 8, 8), labels, stratified(labels, 5)


@cache
def basic_motions() -> tuple[np.ndarray, np.ndarray, list[Fold]]:
    """80 recordings of a smart watch, 6 channels, 4 motions (aeon)."""
    from aeon.datasets import load_basic_motions

    values, labels, _ = joined(load_basic_motions)
    return values, labels, stratified(labels, 10)


@cache
def japanese_vowels() -> tuple[np.ndarray, np.ndarray, list[Fold]]:
    """640 utterances, 12 channels, 9 speakers (aeon): five trainings on the 270 that are meant for it."""
    from aeon.datasets import load_japanese_vowels

    values, labels, n_train = joined(load_japanese_vowels)
    return values, labels, [Fold(np.arange(n_train), np.arange(n_train, len(labels)))] * 5


def joined(load: Callable) -> tuple[np.ndarray, np.ndarray, int]:
    """Training samples, then test samples, of an aeon data set: float64[n, C, T], NaN after the end; labels; sizes."""
    parts = [load(split=split) for split in ("train", "test")]
    series = [sample for values, _ in parts for sample in values]
    values = np.full((len(series), len(series[0]), max(s.shape[1] for s in series)), np.nan)
    for row, sample in zip(values, series, strict=True):
        row[:, : sample.shape[1]] = sample
    labels = np.unique(np.concatenate([labels for _, labels in parts]), return_inverse=True)[1]
    return values, labels.astype(np.int64), len(parts[0][0])


def gray(images: np.ndarray) -> Coder:
    return pixels


CASES = {
    "mnist_dense": Case(mnist_folds, gray, partial(dense, 784, 128, 10), 10, 64),
    "mnist_conv": Case(mnist_folds, gray, conv, 10, 64),
    "digits": Case(digits, gray, partial(dense, 64, 64, 10), 20, 32),
    "basic_motions": Case(basic_motions, quantiles, partial(dense, 6 * LEVELS, 64, 4), 20, 32, "samples"),
    "digits_alif": Case(digits, gray, partial(alif, 64, 64, 10), 20, 32, chip="loihi2", learned=ADAPTIVE),
    "japanese_vowels": Case(japanese_vowels, quantiles, partial(dense, 12 * LEVELS, 64, 9), 20, 32, "samples"),
}
