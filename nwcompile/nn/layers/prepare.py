"""Effective values that layers compute with instead of their parameters, and `prepare_net`, which renews them.

Mismatch between devices of the same design changes them. Its factors are drawn on the CPU from (seed, name, number of
the call), so every device and process draws the same ones. The draw is an operator that torch can compile; its result
is decided at run time.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.nn.ops.device import Movable
from nwcompile.nn.ops.torch_ops import KERNEL_DTYPES, is_in_backward, is_plain, is_used_up, straight_through

MISMATCH = "NW8002"  # code of its refusals
MAX_COMPARED_NUMBERS = 1 << 16  # Larger parameters are recomputed: a comparison with the last batch costs as much.


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
            raise ModelError(
                f"{where}: {argument} is {deviation}, must be a number >= 0, or None for none", code=MISMATCH
            )
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
                "change; do not checkpoint this layer",
                code=MISMATCH,
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
                "pass of every batch",
                code=MISMATCH,
            )
        return True

    def draw(self, like: torch.Tensor, training: bool) -> torch.Tensor:
        """Draw the factors for a tensor of any shape; they are the same until the next `prepare`."""
        if not self.is_active(training):
            return torch.ones_like(like)
        rows, columns = (1, *like.shape) if like.ndim == 1 else (len(like), math.prod(like.shape[1:]))
        drawn = standard_normal(self.call, self.seed, self.name, rows, columns)
        return 1 + self.deviation * drawn.reshape(like.shape).to(like)


@dataclass(frozen=True, eq=False)
class Made:
    """A `value` computed from a version of `source` in a `mode`; `spent`: a backward pass through it is an error."""

    value: torch.Tensor
    source: torch.Tensor
    version: int
    mode: tuple[bool, bool, bool]  # training, with a graph, for inference only
    spent: bool


@dataclass(frozen=True, eq=False)
class Known:
    """A `value` without a graph and its `source`: dtype, shape and bytes of a parameter, and further numbers."""

    source: tuple
    value: torch.Tensor


def verify_forward(where: str) -> None:
    """Raise ModelError in a backward pass: the layer no longer has the state that it started from."""
    if is_in_backward():
        raise ModelError(
            f"{where}: computed again in a backward pass, as torch.utils.checkpoint does, but it would continue from "
            "the state of its last step; call nwcompile.nn.prepare_net(model) first in the function that is "
            "checkpointed, and give it all steps at once"
        )


class Prepared(Movable):
    """A layer that computes with effective values of its parameters, computed once for all steps of a batch.

    Without a gradient, a value is reused as long as its parameter is bit for bit unchanged.
    """

    def __init__(self):
        super().__init__()
        self._made: dict[str, Made] = {}
        self._known: dict[str, Known] = {}

    def prepare(self, name: str, seed: int | None, mismatch_in_eval: bool) -> None:
        """Forget effective values for a new batch, see `prepare_net`. `name`: the layer's name in its model."""
        self.forget_values()

    def forget_values(self) -> None:
        """Forget effective values; the next step computes the same ones in a new graph."""
        self._made = {}

    def _make_once(
        self,
        key: str,
        source: torch.Tensor,
        make: Callable[[bool], torch.Tensor],
        numbers: Callable[[], tuple | None] = lambda: None,
    ) -> torch.Tensor:
        """Return the last result of `make(spent)`; call it again if `source`, the mode or the batch has changed.

        `spent`: a backward pass has used up the last value, and `prepare` was not called since. `numbers()`: everything
        that the value depends on besides `source`; None if it is drawn for each batch.
        """
        if torch.compiler.is_compiling():
            return make(False)
        has_graph = torch.is_grad_enabled() and source.requires_grad
        mode = (self.training, has_graph, torch.is_inference_mode_enabled())
        made = self._made.get(key)
        if made and made.source is source and made.version == source._version and made.mode == mode:
            return made.value
        spent = made is not None and (made.spent or is_used_up(made.value))
        of = None if has_graph else numbers()
        value = make(spent) if of is None else self._reuse_known(key, source, make, of)
        self._made[key] = Made(value, source, source._version, mode, spent)
        return value

    def _reuse_known(self, key: str, source: torch.Tensor, make: Callable, numbers: tuple) -> torch.Tensor:
        """Return a copy of the value that `make` returned for equal numbers; call `make` if there is none."""
        given = source.detach()
        is_small = given.numel() <= MAX_COMPARED_NUMBERS and given.dtype in KERNEL_DTYPES
        if not (is_small and is_plain(given) and given.device.type == "cpu"):
            return make(False)
        content = given.dtype, given.shape, given.numpy().tobytes(), numbers
        known = self._known.get(key)
        if known is None or known.source != content:
            known = self._known[key] = Known(content, make(False))
        return known.value.clone()

    def _apply_mismatch(self, key: str, parameter: torch.Tensor, mismatch: Mismatch) -> torch.Tensor:
        """Return a parameter times its mismatch factors, computed once per batch, or without mismatch the parameter."""
        if not mismatch.is_active(self.training):
            return parameter

        def make_value(spent: bool) -> torch.Tensor:
            value = parameter.detach()
            factor = mismatch.draw(value, self.training)
            return straight_through(parameter, value * factor, factor, spent)

        return self._make_once(key, parameter, make_value)

    def _apply(self, fn, recurse=True):
        self._made, self._known = {}, {}
        return super()._apply(fn, recurse)

    def __getstate__(self):
        return {**self.__dict__, "_made": {}, "_known": {}}


def prepare_net(model: torch.nn.Module, seed: int | None = None, mismatch_in_eval: bool = False) -> None:
    """Prepare `model` for a new batch: call it before each forward pass that does not continue the last one.

    Every layer forgets its state, and effective weights are recomputed from the parameters, with gradients. Mismatch
    is drawn again from `seed` (None: torch's own, set by `torch.manual_seed`), the layer's name in `model` and the
    number of calls, so it does not depend on the device. There is no mismatch in eval mode unless `mismatch_in_eval`.
    Without this call, a second backward pass through weights that the first one has used up raises ModelError.
    """
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"prepare_net takes a torch.nn.Module, not {type(model).__name__}")
    for name, module in model.named_modules():
        if isinstance(module, Prepared):
            module.prepare(name, seed, mismatch_in_eval)
