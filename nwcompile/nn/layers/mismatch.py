"""Mismatch between devices of the same design.

Factors are drawn on the CPU from (seed, name, number of the call), so every device and process draws the same ones.
The draw is an operator that torch can compile; its result is decided at run time.
"""

import hashlib
import math

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.nn.ops.torch_ops import is_in_backward

ERROR_CODE = "NW8002"


@torch.library.custom_op("nwcompile::standard_normal", mutates_args=())
def standard_normal(call: torch.Tensor, seed: int | None, name: str, n_rows: int, n_columns: int) -> torch.Tensor:
    """Draw float32 `[n_rows, n_columns]` on the CPU from (seed, name, call).

    call: int64 of one entry. seed: None for torch's own.
    """
    key = f"{torch.initial_seed() if seed is None else seed}/{name}/{int(call)}"
    generator = np.random.default_rng(np.frombuffer(hashlib.sha256(key.encode()).digest(), np.uint32))
    return torch.from_numpy(generator.standard_normal((n_rows, n_columns), np.float32))


@standard_normal.register_fake
def _(call, seed, name, n_rows, n_columns):
    return torch.empty((n_rows, n_columns), dtype=torch.float32, device="cpu")


class Mismatch:
    """Factors 1 + deviation * e for the numbers of a tensor, with e drawn from a normal distribution.

    They are 1 if `deviation` is None or 0, and in eval mode unless `prepare` asks for mismatch. `prepare` draws them.
    If `waits`, a use before that raises ModelError. Raises ModelError, with the argument's name, for a deviation that
    is negative or not a number.
    """

    def __init__(self, where: str, argument: str, deviation: float | None = None, waits: bool = False):
        if deviation is not None and not 0 <= deviation < math.inf:
            raise ModelError(f"{where}: {argument} is {deviation}, must be a number >= 0, or None for none")
        self.where, self.deviation = where, float(deviation or 0.0)
        self.name = ""
        self.seed: int | None = None
        self.in_eval = False
        self.call, self.waits = torch.zeros((), dtype=torch.int64), waits

    def prepare(self, name: str, seed: int | None, in_eval: bool) -> None:
        """Draw new factors from now on, for the tensor of that name. Raises ModelError in a backward pass."""
        if self.deviation and is_in_backward():
            raise ModelError(
                f"{self.where}: computed again in a backward pass, as torch.utils.checkpoint does, its mismatch would "
                "change; do not checkpoint this layer"
            )
        self.name, self.seed, self.in_eval, self.waits = name, seed, in_eval, False
        if self.deviation and not torch.compiler.is_exporting():
            self.call = self.call + 1

    def is_active(self, training: bool) -> bool:
        """Return whether factors differ from 1. Raises ModelError if they do and are not drawn yet."""
        if not self.deviation or not (training or self.in_eval):
            return False
        if self.waits:
            raise ModelError(
                f"{self.where}: its mismatch is not drawn yet; call nwcompile.nn.prepare_net(model) before the forward "
                "pass of every batch"
            )
        return True

    def draw(self, like: torch.Tensor, training: bool) -> torch.Tensor:
        """Draw the factors for a tensor of any shape; they are the same until the next `prepare`."""
        if not self.is_active(training):
            return torch.ones_like(like)
        rows, columns = (1, *like.shape) if like.ndim == 1 else (len(like), math.prod(like.shape[1:]))
        drawn = standard_normal(self.call, self.seed, self.name, rows, columns)
        return 1 + self.deviation * drawn.reshape(like.shape).to(like)
