"""Follow torch functions that add up entries of a step: sums and means over axes, and matrix products."""

from collections.abc import Callable
from math import prod

import numpy as np
import torch

from nwcompile.frontend.torch.moves import Extent, Tracked
from nwcompile.frontend.torch.symbols import Applied, Averaged, Operation, Picked, Symbol
from nwcompile.ir.connection import MatMul, Pool2d

REDUCTIONS = {"sum": "sum", "mean": "avg"}
MATRIX_PRODUCTS = ("matmul", "__matmul__", "bmm")
Move = Callable[..., Tracked | None]  # the symbol of a function that only moves entries


def follow_sum(name: str, args, kwargs, given: Tracked, extent: Extent, move: Move, path: str) -> Tracked | None:
    """Return the symbol of a sum or mean over axes; None if it adds up samples, or sums steps.

    A mean over the steps is `Averaged`, which is known only after the last step.
    """
    options = {**dict(zip(("dim", "keepdim"), args[1:], strict=False)), **kwargs}
    tensor, lead = args[0], extent.axes[given.lead]
    if set(options) - {"dim", "axis", "keepdim"} or tuple(tensor.shape[: len(lead)]) != lead:
        return None
    dim = options.get("dim", options.get("axis"))
    axes = range(tensor.ndim) if dim is None or dim == () else dim if isinstance(dim, list | tuple) else (dim,)
    chosen = sorted(axis % tensor.ndim for axis in axes)
    inside = [axis for axis in chosen if axis >= len(lead)]
    outside = [axis for axis in chosen if axis < len(lead)]
    over_steps = outside == [given.lead.find("T")] and len(lead) == 2 and name == "mean"
    if outside and not over_steps:
        return None
    symbol: Symbol = given.symbol
    if inside:
        kept = [axis for axis in range(len(lead), tensor.ndim) if axis not in inside]
        n_kept, n_added = (prod(tensor.shape[axis] for axis in some) for some in (kept, inside))
        order = (*range(len(lead)), *kept, *inside)
        windows = move(lambda x: x.permute(order).reshape(*lead, n_kept, 1, n_added), tensor)
        if windows is None:
            return None
        sizes = [1 if axis in inside else tensor.shape[axis] for axis in range(len(lead), tensor.ndim)]
        shape = tuple(sizes) if options.get("keepdim") else tuple(tensor.shape[axis] for axis in kept) or (1,)
        pooled = Applied(_pool_operation(path, name, n_added), windows.symbol, (n_kept, 1, 1))
        symbol = Picked((pooled,), np.zeros(n_kept, np.int64), np.arange(n_kept), shape)
    if not outside:
        return Tracked(symbol, given.lead)
    return Tracked(Averaged(symbol, symbol.shape), "1B" if options.get("keepdim") else "B")


def follow_matmul(a: torch.Tensor, b: torch.Tensor, lead: str, extent: Extent, move: Move, path: str) -> Tracked | None:
    """Return the symbol of the matrix product of two followed tensors; None if it adds up steps or samples."""
    n_lead = len(extent.axes[lead])
    if a.ndim != b.ndim or a.ndim < n_lead + 2:
        return None
    heads = torch.broadcast_shapes(a.shape[n_lead:-2], b.shape[n_lead:-2])

    def join_factors(*factors: torch.Tensor) -> torch.Tensor:
        wide = (x.expand(*x.shape[:n_lead], *heads, *x.shape[-2:]) for x in factors)
        return torch.cat([x.flatten(n_lead) for x in wide], -1)

    both = move(join_factors, a, b)
    if both is None:
        return None
    left, right = ((prod(heads), *x.shape[-2:]) for x in (a, b))

    def connect(source, target, delay, _shape):
        return MatMul(source, target, left=left, right=right, delay=delay)

    done = Operation(path=path, kind="matmul", connect=connect, reshapes=True, has_weight=False, has_bias=False)
    return Tracked(Applied(done, both.symbol, (*heads, a.shape[-2], b.shape[-1])), both.lead)


def _pool_operation(path: str, name: str, n_added: int) -> Operation:
    """Return the sum, or mean, over the last axis of `[C, 1, n_added]`."""

    def connect(source, target, delay, _shape):
        return Pool2d(source, target, kernel=(1, n_added), kind=REDUCTIONS[name], delay=delay)

    return Operation(path=path, kind=name, connect=connect, reshapes=False, has_weight=False, has_bias=False)
