"""Synaptic sums of whole numbers in float types that hold every partial sum exactly, and rounded weights."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse, pair

EXACT = {torch.float32: 1 << 24, torch.float64: 1 << 53}  # Each type holds whole numbers exactly up to here.
CHUNK_NUMBERS = 1 << 24  # Numbers per chunk of a list of synapses; bounds the memory.
# The most matrix entries per synapse for which the matrix product is faster than the list.
MAX_ENTRIES_PER_SYNAPSE = 32


@dataclass(frozen=True, eq=False)
class IntegerWeights:
    """Effective weights of one connection in whole numbers, and the largest sum of magnitudes into one neuron.

    `shared`: the largest power of two that divides all weights.
    """

    value: np.ndarray
    row_sum: int
    shared: int

    @classmethod
    def from_connection(cls, connection: Connection, effective: np.ndarray, n_target: int) -> "IntegerWeights":
        """Build from whole numbers in float64, in the shape of the connection's weights."""
        magnitude = np.abs(effective)
        if isinstance(connection, Sparse):
            largest = np.bincount(connection.post, magnitude, n_target).max(initial=0)
        else:
            largest = magnitude.reshape(len(magnitude), -1).sum(1).max(initial=0)
        bits = int(np.bitwise_or.reduce(magnitude.astype(np.int64), axis=None)) if effective.size else 0
        return cls(effective, int(largest), bits & -bits or 1)

    def choose_dtype(self, connection: Connection, largest: float) -> torch.dtype:
        """Choose the narrowest float type that holds every partial sum for spikes of magnitude up to `largest`.

        All sums are multiples of `shared`. Raises ModelError if no type holds them.
        """
        units = self.row_sum // self.shared * int(largest)
        for dtype, limit in EXACT.items():
            if units <= limit:
                return dtype
        raise ModelError(
            f"connection {connection.source!r} -> {connection.target!r}: sums up to {units * self.shared} are beyond "
            "2^53, which floats hold exactly; send smaller numbers"
        )


class StraightThrough(torch.autograd.Function):
    """Return `value`, rounded from `source`; the gradient passes straight through, times `factor`."""

    @staticmethod
    def forward(ctx, source, value, factor):
        ctx.factor, ctx.dtype = factor, source.dtype
        return value

    @staticmethod
    def backward(ctx, grad):
        return (grad * ctx.factor).to(ctx.dtype), None, None


@contextmanager
def exact_arithmetic():
    """Compute plain sums of products: disable autocast, oneDNN (narrower floats) and NNPACK (Winograd)."""
    was, (was_nnpack,) = torch.backends.mkldnn.enabled, torch.backends.nnpack.set_flags(False)
    torch.backends.mkldnn.enabled = False
    try:
        with torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.backends.mkldnn.enabled = was
        torch.backends.nnpack.set_flags(was_nnpack)


def sum_synapses(
    connection: Connection, x: torch.Tensor, weight: torch.Tensor, source_shape: tuple[int, ...], n_target: int
):
    """Return the connection's synaptic sums [k, n_target] for spikes `x` [k, n_source], in the weight's dtype."""
    if isinstance(connection, Dense):
        return x @ weight.T
    if isinstance(connection, Conv2d):
        images = x.reshape(len(x), *(connection.source_shape or source_shape))
        stride, padding, dilation = map(pair, (connection.stride, connection.padding, connection.dilation))
        return torch.nn.functional.conv2d(images, weight, None, stride, padding, dilation, connection.groups).flatten(1)
    assert isinstance(connection, Sparse)
    pre = torch.as_tensor(connection.pre).long()
    post = torch.as_tensor(connection.post).long()
    n_source = x.shape[1]
    if n_source * n_target <= min(MAX_ENTRIES_PER_SYNAPSE * len(weight), CHUNK_NUMBERS):
        rows = weight.new_zeros(n_target, n_source).index_put((post, pre), weight, accumulate=True)
        return x @ rows.T
    return _Synapses.apply(x, weight, pre, post, n_target)


class _Synapses(torch.autograd.Function):
    """Sums over a list of synapses: `y[:, post[k]] += x[:, pre[k]] * weight[k]`."""

    @staticmethod
    def forward(ctx, x, weight, pre, post, n_target):
        ctx.save_for_backward(x, weight, pre, post)
        out = x.new_zeros(n_target, len(x))
        columns = x.T.contiguous()
        for part in _split_synapses(len(weight), len(x)):
            out.index_add_(0, post[part], columns[pre[part]] * weight[part, None])
        return out.T

    @staticmethod
    def backward(ctx, grad):
        x, weight, pre, post = ctx.saved_tensors
        rows = grad.T.contiguous()
        columns = x.T.contiguous()
        of_x = torch.zeros_like(columns)
        of_weight = torch.empty_like(weight)
        for part in _split_synapses(len(weight), len(x)):
            back = rows[post[part]]
            of_weight[part] = (columns[pre[part]] * back).sum(1)
            of_x.index_add_(0, pre[part], back * weight[part, None])
        return of_x.T, of_weight, None, None, None


def _split_synapses(n_synapses: int, n_rows: int) -> list[slice]:
    size = max(1, CHUNK_NUMBERS // max(n_rows, 1))
    return [slice(first, first + size) for first in range(0, n_synapses, size)]
