"""Batches `[B, T, N]`, through PyTorch's DataLoader."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from nwcompile.errors import ModelError, OptionError, unknown_choice
from nwcompile.nn.data.packed import (
    Packed,
    Words,
    count_samples,
    pack_bits,
    stack_labels,
    transform_sample,
    unpack_bits,
)
from nwcompile.nn.ops.scan import FORMS


class Batch(NamedTuple):
    """One batch: `spikes` `[B, T, N]`, padded with 0 to the longest sample; `lengths` int64[B]; `labels`."""

    spikes: torch.Tensor
    lengths: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True, eq=False)
class Transformed(Dataset):
    """A data set that transforms its `samples`, pairs (recording, label), at each access: (uint8 `[T, N]`, label)."""

    samples: object
    transform: Callable

    def __len__(self) -> int:
        return count_samples(self.samples)

    def __getitem__(self, i: int) -> tuple[np.ndarray, object]:
        return transform_sample(self.samples, i, self.transform)


def batches(data: Packed | Transformed, form: str = "float", **options) -> DataLoader:
    """Return a DataLoader of `Batch`es; `options` are those of DataLoader (batch_size, shuffle, num_workers, ...).

    form: "float" and "uint8" `[B, T, N]`, or "bits", int32 `[B, ceil(T/32), N]`. Data on a GPU are batched there. No
    kernel of nwcompile runs in the workers, so they may be forked.
    Raises OptionError for another form, and for workers if the data are on a GPU.
    """
    if form not in FORMS:
        raise OptionError(unknown_choice("form", form, FORMS))
    if "collate_fn" in options or options.get("batch_size", 1) is None:
        raise OptionError("batches are put together here: give no collate_fn, and a batch_size >= 1")
    if isinstance(data, Packed) and data.words.device.type != "cpu" and options.get("num_workers"):
        n = options["num_workers"]
        raise OptionError(f"num_workers is {n}, but processes cannot read a cache on a GPU; use num_workers=0")
    return DataLoader(data, collate_fn=Collate(form), **options)


@dataclass(frozen=True)
class Collate:
    """Collates the samples of a data set into a Batch."""

    form: str

    def __call__(self, samples: Words | list) -> Batch:
        dtype = torch.float32 if self.form == "float" else torch.uint8
        if isinstance(samples, Words):
            spikes = samples.words
            if self.form != "bits":
                spikes = unpack_bits(spikes, int(samples.lengths.max()), dtype)
            return Batch(spikes, samples.lengths, samples.labels)
        if any(getattr(spikes, "ndim", 0) != 2 for spikes, _ in samples):
            raise ModelError(
                "batches are made of spikes [T, N]; give what packed, cached or Transformed makes of samples"
            )
        lengths = [len(spikes) for spikes, _ in samples]
        n_neurons = {spikes.shape[1] for spikes, _ in samples}
        if len(n_neurons) > 1:
            raise ModelError(
                f"samples of a batch have {min(n_neurons)} to {max(n_neurons)} neurons; all must have the same number"
            )
        whole = np.zeros((len(samples), max(lengths), *n_neurons), np.uint8)
        for to, (spikes, _) in zip(whole, samples, strict=True):
            to[: len(spikes)] = spikes
        if self.form == "bits":
            spikes = torch.from_numpy(np.stack([pack_bits(sample) for sample in whole]))
        else:
            spikes = torch.from_numpy(whole).to(dtype)
        return Batch(spikes, torch.tensor(lengths), stack_labels([label for _, label in samples]))
