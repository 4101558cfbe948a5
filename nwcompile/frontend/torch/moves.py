"""Follow tensor functions that only move entries: indexing, views, transposes, cat, stack, unbind, ...

The function is run again on tensors of entry numbers. The numbers in the result give the sample, step and position of
every entry. One rule covers all these functions, and nothing is guessed from shapes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import torch

from nwcompile.frontend.torch.symbols import Picked, Stacked, Symbol

CHOICES = ("__getitem__", "__get__", "select", "narrow", "index_select", "unbind", "flip", "roll")
PARTS = ("chunk", "split", "split_with_sizes", "tensor_split")
VIEWS = ("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze")
ORDERS = ("permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis")
COPIES = ("contiguous", "clone", "detach", "expand", "expand_as", "repeat", "repeat_interleave", "tile")
JOINS = ("cat", "concat", "concatenate", "stack", "hstack", "vstack")
MOVES = frozenset((*CHOICES, *PARTS, *VIEWS, *ORDERS, *COPIES, *JOINS))
NO_STEP = -1
ONE_STEP = ("B", "1B")


@dataclass(frozen=True, eq=False)
class Tracked:
    """A tensor's symbol, and the order of its leading axes.

    `lead`: "BT" or "TB" for all steps, "B*T" or "T*B" if they are merged into one axis, "B" for one step, "1B" for one
    step with an additional axis (`x.unsqueeze(0)`).
    """

    symbol: Symbol
    lead: str


@dataclass(frozen=True)
class Extent:
    """B and T of the example. `has_steps`: tensors may hold several steps even if the example has only one."""

    n_samples: int
    n_steps: int
    has_steps: bool = True

    @property
    def axes(self) -> dict[str, tuple[int, ...]]:
        """Sizes of the leading axes by `lead`."""
        b, t = self.n_samples, self.n_steps
        return {"BT": (b, t), "TB": (t, b), "B*T": (b * t,), "T*B": (t * b,), "B": (b,), "1B": (1, b)}


def samples_first(tensor: torch.Tensor, lead: str, extent: Extent) -> torch.Tensor:
    """Return a copy of a layer's output as `[B, T, *]`, with T = 1 for one step."""
    n_samples, n_steps = extent.axes["BT"]
    shape = tensor.shape[len(extent.axes[lead]) :]
    if lead in ("TB", "T*B"):
        return tensor.reshape(n_steps, n_samples, *shape).transpose(0, 1).clone()
    n_steps = 1 if lead in ONE_STEP else n_steps
    return tensor.reshape(n_samples, n_steps, *shape).clone()


def follow_moves(
    func, args, kwargs, operand: Callable[[torch.Tensor], Tracked | None], extent: Extent
) -> list[Tracked | None]:
    """Return the symbol of each tensor in the function's result (None: not a move).

    `operand` returns a tensor's symbol, or None for a tensor of indices.
    """
    operands: list[Tracked] = []
    starts = [0]

    def number_entries(value):
        if isinstance(value, list | tuple):
            return type(value)(map(number_entries, value))
        known = operand(value) if isinstance(value, torch.Tensor) else None
        if known is None:
            return value
        operands.append(known)
        starts.append(starts[-1] + value.numel())
        return torch.arange(starts[-2], starts[-1], device=value.device).reshape(value.shape)

    result = func(*number_entries(tuple(args)), **{name: number_entries(value) for name, value in kwargs.items()})
    outputs = result if isinstance(result, list | tuple) else [result]
    origins = _Origins(operands, np.array(starts[:-1]), extent)
    return [origins.find_origin(ids.cpu().numpy()) if isinstance(ids, torch.Tensor) else None for ids in outputs]


@dataclass(frozen=True, eq=False)
class _Origins:
    """The origins of entry numbers: those of operand k start at `starts[k]`."""

    operands: list[Tracked]
    starts: np.ndarray
    extent: Extent

    def find_origin(self, ids: np.ndarray) -> Tracked | None:
        """Return the symbol of a result with these entry numbers, or None if its entries mix samples or steps."""
        for lead, axes in self.extent.axes.items():
            if not self.extent.has_steps and lead not in ONE_STEP:
                continue
            if ids.shape[: len(axes)] == axes and 0 not in ids.shape:
                symbol = self._origin_symbol(ids, lead, ids.shape[len(axes) :])
                if symbol is not None:
                    return Tracked(symbol, lead)
        return None

    def _origin_symbol(self, ids: np.ndarray, lead: str, shape: tuple[int, ...]) -> Symbol | None:
        last = self.extent.n_steps - 1
        steps = [NO_STEP] if lead in ONE_STEP else range(last + 1)
        first = [self._locate_entries(ids, lead, 0, t) for t in steps]
        samples = {0: first, self.extent.n_samples - 1: [self._locate_entries(ids, lead, -1, t) for t in steps]}
        which, _, _, index = first[-1]
        for b, blocks in samples.items():
            for block, reference in zip(blocks, first, strict=True):
                if (block[1] != b).any() or (block[0] != reference[0]).any() or (block[3] != index).any():
                    return None
        times = np.array([[block[2].min(), block[2].max()] for block in first])
        if (times[:, 0] != times[:, 1]).any():
            return None
        if lead in ONE_STEP:
            shift = 0 if times[0, 0] == NO_STEP else int(times[0, 0]) - last
            return self._pick_entries(which, index, shape, shift)
        if (times[:, 0] == np.arange(last + 1)).all():
            return self._pick_entries(which, index, shape, 0) if all((b[0] == which).all() for b in first) else None
        if (times == NO_STEP).all():
            return Stacked(tuple(self._pick_entries(block[0], index, shape, 0) for block in first), shape)
        return None

    def _locate_entries(self, ids: np.ndarray, lead: str, b: int, t: int):
        """Return (operand, sample, step, position) of every entry of sample b (0 or -1) in step t, flat."""
        n_samples, n_steps = self.extent.n_samples, self.extent.n_steps
        b %= n_samples
        places = {"BT": (b, t), "TB": (t, b), "B*T": (b * n_steps + t,), "T*B": (t * n_samples + b,), "B": (b,)}
        ids = ids[places.get(lead, (0, b))].reshape(-1)
        which = np.searchsorted(self.starts, ids, side="right") - 1
        local = ids - self.starts[which]
        sample, step, position = np.empty((3, ids.size), np.int64)
        for k in np.unique(which):
            here = which == k
            operand = self.operands[k]
            rest, position[here] = np.divmod(local[here], prod(operand.symbol.shape))
            if operand.lead in ONE_STEP:
                sample[here], step[here] = rest, NO_STEP
            elif operand.lead in ("TB", "T*B"):
                step[here], sample[here] = np.divmod(rest, n_samples)
            else:
                sample[here], step[here] = np.divmod(rest, n_steps)
        return which, sample, step, position

    def _pick_entries(self, which: np.ndarray, index: np.ndarray, shape: tuple[int, ...], shift: int) -> Symbol:
        sources: dict[Symbol, int] = {}  # in order of first use
        picks = np.empty((2, index.size), np.int64)
        for k in np.unique(which):
            here = which == k
            symbol = self.operands[k].symbol
            if isinstance(symbol, Picked) and symbol.shift == 0:
                inner = [sources.setdefault(s, len(sources)) for s in symbol.sources]
                picks[:, here] = np.array(inner)[symbol.which[index[here]]], symbol.index[index[here]]
            else:
                picks[0, here] = sources.setdefault(symbol, len(sources))
                picks[1, here] = index[here]
        from_source, entry = picks
        picked = Picked(tuple(sources), from_source, entry, tuple(shape), shift)
        only = picked.sources[0]
        return only if picked.is_view and shift == 0 and only.shape == picked.shape else picked
