"""Random rate coding of numbers as spikes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from nwcompile.errors import ModelError, OptionError
from nwcompile.nn.data.samples import as_array

ERROR_CODE = "NW8101"


@dataclass(frozen=True)
class RandomRate:
    """Random rate coding: in each of `n_steps` steps a spike has the number itself, 0 to 1, as its probability.

    Every call draws from torch's generator, so results are not cached. Raises OptionError for `n_steps` < 1.
    """

    n_steps: int

    deterministic: ClassVar[bool] = False

    def __post_init__(self):
        if not (isinstance(self.n_steps, int) and self.n_steps >= 1):
            raise OptionError(f"RandomRate: n_steps is {self.n_steps}, must be a whole number >= 1")

    def __call__(self, numbers) -> np.ndarray:
        """Return uint8 `[T, N]` for N numbers in any shape. Raises ModelError for numbers outside 0 to 1."""
        array = as_array(numbers)
        if array.dtype.kind not in "biuf":
            raise ModelError(f"numbers of type {array.dtype} cannot be the probability of a spike; give 0 to 1")
        rate = torch.from_numpy(array.astype(np.float32)).reshape(-1)
        outside = ~((rate >= 0) & (rate <= 1))
        if outside.any():
            i = int(outside.int().argmax())
            raise ModelError(f"number {i} is {rate[i]:g}, must be from 0 to 1, the probability of a spike in a step")
        return (torch.rand(self.n_steps, len(rate)) < rate).to(torch.uint8).numpy()
