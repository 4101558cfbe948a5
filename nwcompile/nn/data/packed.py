"""Samples of a data set, and the spikes of many as bits: the format of caches and the source of batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch.utils.data import Dataset

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError
from nwcompile.nn.ops.device import torch_device

WORD_BITS = 32
BITS = np.dtype("<i4")
LARGEST_LABEL = (1 << 63) - 1


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


@dataclass(frozen=True, eq=False)
class Words:
    """Packed samples of a batch: `words` int32 `[B, ceil(T/32), N]`, `lengths` int64[B], `labels` `[B, ...]`.

    Step t of a neuron is bit t % 32 of its word t // 32. Bits after the end of a sample are 0.
    """

    words: torch.Tensor
    lengths: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True, eq=False)
class Packed(Dataset):
    """Recordings of N neurons as bits, without padding to the longest recording.

    words: int32 `[rows, N]`; a recording of T steps has ceil(T/32) rows, in the order of the recordings.
    lengths: int64 `[n]`, in steps. labels: `[n, ...]`. All are on one device.
    """

    words: torch.Tensor
    lengths: torch.Tensor
    labels: torch.Tensor

    @cached_property
    def _n_rows(self) -> torch.Tensor:
        """The number of rows of each recording."""
        return (self.lengths + WORD_BITS - 1) // WORD_BITS

    @cached_property
    def _first_row(self) -> torch.Tensor:
        """The first row of each recording."""
        return self._n_rows.cumsum(0) - self._n_rows

    @property
    def n_bytes(self) -> int:
        """The size of the spikes in bytes."""
        return self.words.nbytes

    def to(self, device: str) -> "Packed":
        """Copy the recordings to a device, "cpu" or "gpu" = "cuda". Data on disk are read into memory.

        Raises BackendError without a GPU.
        """
        target = torch_device(device)
        return replace(
            self, words=self.words.to(target, copy=True), lengths=self.lengths.to(target), labels=self.labels.to(target)
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the spikes uint8 `[T, N]` and the label of one recording."""
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        of = self.__getitems__([i % len(self)])
        return unpack_bits(of.words, int(of.lengths), torch.uint8)[0], of.labels[0]

    def __getitems__(self, indices: Sequence[int]) -> Words:
        """Return several recordings at once, for a DataLoader."""
        at = torch.as_tensor(indices, device=self.lengths.device)
        lengths = self.lengths[at]
        n_rows = self._n_rows[at]
        row = torch.arange(int(n_rows.max()), device=at.device)
        rows = self._first_row[at, None] + row
        beyond = row >= n_rows[:, None]
        words = self.words[rows.masked_fill_(beyond, 0)]
        return Words(words.masked_fill_(beyond[..., None], 0), lengths, self.labels[at])


def packed(samples, transform) -> Packed:
    """Transform and pack every recording of `samples`, pairs (recording, label), in memory.

    Raises ModelError, naming the sample, for a recording that the transform refuses, for labels that are not numbers of
    one shape, and for recordings with different numbers of neurons.
    """
    words: list[np.ndarray] = []
    lengths, labels = [], []
    for i in range(count_samples(samples)):
        spikes, label = transform_sample(samples, i, transform)
        if words and words[0].shape[1] != spikes.shape[1]:
            n = words[0].shape[1]
            raise ModelError(f"sample {i}: {spikes.shape[1]} neurons, sample 0 has {n}; all must have the same number")
        words.append(pack_bits(spikes))
        lengths.append(len(spikes))
        labels.append(label)
    if not words:
        raise ModelError("the data set has no samples; give one at least")
    return Packed(torch.from_numpy(np.concatenate(words)), torch.tensor(lengths), stack_labels(labels))


def stack_labels(labels: list) -> torch.Tensor:
    """Stack labels into one tensor; whole numbers become int64.

    Raises ModelError unless they are numbers, or arrays of numbers of one shape.
    """
    try:
        array = np.array([as_array(label) for label in labels])
    except ValueError:  # different shapes, or a ModelError, which is a ValueError
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise ModelError(f"labels such as {labels[0]!r} are not numbers of one shape; number the classes from 0")
    if array.dtype.kind in "iu":
        if array.size and array.max() > LARGEST_LABEL:
            raise ModelError(f"label {array.max()} exceeds a signed 64-bit integer; number the classes from 0")
        return torch.from_numpy(array.astype(np.int64))
    return torch.from_numpy(array.astype(np.float64 if array.itemsize > 8 else array.dtype.newbyteorder("=")))


@checked()
def pack_bits(spikes: np.ndarray) -> np.ndarray:
    """Pack spikes uint8 `[T, N]` of 0 and 1 into int32 `[ceil(T/32), N]`: step t is bit t % 32 of word t // 32."""
    if spikes.ndim != 2 or spikes.dtype != np.uint8:
        raise ModelError(f"pack_bits takes spikes uint8 [T, N], not {spikes.dtype} {list(spikes.shape)}")
    n_steps, n = spikes.shape
    n_rows = -(-n_steps // WORD_BITS)
    rows = np.zeros((4 * n_rows, n), np.uint8)
    rows[: -(-n_steps // 8)] = np.packbits(spikes, axis=0, bitorder="little")
    return np.ascontiguousarray(rows.reshape(n_rows, 4, n).swapaxes(1, 2)).view(BITS)[..., 0]


def unpack_bits(words: torch.Tensor, n_steps: int, dtype: torch.dtype) -> torch.Tensor:
    """Unpack `words` int32 `[B, ceil(T/32), N]` into 0 and 1, `[B, T, N]`, on their device."""
    n_samples, n_rows, n = words.shape
    if words.device.type == "cpu":  # NumPy is several times faster there
        in_words = np.ascontiguousarray(words.contiguous().numpy()).view(np.uint8).reshape(n_samples, n_rows, n, 4)
        in_bytes = np.ascontiguousarray(in_words.swapaxes(2, 3)).reshape(n_samples, 4 * n_rows, n)
        return torch.from_numpy(np.unpackbits(in_bytes, axis=1, count=n_steps, bitorder="little")).to(dtype)
    bit = torch.arange(WORD_BITS, dtype=torch.int32, device=words.device)[:, None]
    return ((words[:, :, None] >> bit) & 1).flatten(1, 2)[:, :n_steps].to(dtype)
