"""Convert torch modules, and the delay layers of nwcompile.nn, to operations between layers; list those supported."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.symbols import Applied, Operation, Picked, Symbol
from nwcompile.ir.connection import (
    Connection,
    Conv1d,
    Conv2d,
    Dense,
    MaxPool2d,
    Pool2d,
    Scale,
    Sparse,
    pair,
    synapse_list,
)
from nwcompile.nn import Delay, DelayedConv2d, DelayedLinear, LIFSynapse

NUMBERS = ("weight", "bias", "running_mean", "running_var", "thresholds", "beta", "w_rec", "input_weights",
           "recurrent_weights", "steps")  # fmt: skip
IDENTITIES = (torch.nn.Identity, torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.AlphaDropout)
SHAPERS = (torch.nn.Flatten, torch.nn.Unflatten)
SUPPORTED = (
    "supported between spiking layers: Linear, LIFSynapse, Delay, DelayedLinear, DelayedConv2d, "
    "Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, AvgPool1d, AvgPool2d, AdaptiveAvgPool2d, MaxPool1d, MaxPool2d, "
    "nearest Upsample, BatchNorm1d, BatchNorm2d, "
    "Flatten, Unflatten, Dropout, Identity, and + - * / with numbers and constants, + and - of tensors, "
    "products of spikes, matrix products, sums and means over axes, indexing, views, cat, stack"
)

DELAYING = (Delay, DelayedLinear, DelayedConv2d)


class UnfollowableError(Exception):
    """A module or operator cannot be an operation; the text is a clause that follows its name: "..., which ..."."""


def operation_from_module(module: torch.nn.Module, path: str, shape: tuple[int, ...]) -> Operation:
    """Return the operation of `module` on a tensor of `shape` per step; raise UnfollowableError if it has none."""
    for kind in MAKERS:
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return build_operation(kind, module, path, shape)
    raise UnfollowableError("which is not supported")


def build_operation(kind: type, module, path: str, shape: tuple[int, ...]) -> Operation:
    """Return the operation of a module of class `kind`, or of any object with its attributes."""
    if len(shape) not in AXES[kind]:
        wanted = " or ".join(WANTED[n] for n in AXES[kind])
        raise UnfollowableError(f"which is given {shape} in a step, not {wanted}")
    return MAKERS[kind](module, path, shape)


def verify_finite(module: torch.nn.Module) -> None:
    """Raise ModelError if a number in `module` or a part of it is NaN, infinite or not initialized."""
    for path, part in module.named_modules():
        for name in NUMBERS:
            value = getattr(part, name, None)
            kind = type(part).__name__
            if isinstance(value, torch.Tensor) and (torch.nn.parameter.is_lazy(value) or value.is_meta):
                raise ModelError(
                    f"{f'{path!r} ({kind})' if path else kind}: {name} has no values yet; "
                    "run the model on a batch, or load it, first"
                )
            if isinstance(value, torch.Tensor) and not value.isfinite().all():
                raise ModelError(
                    f"{f'{path!r} ({kind})' if path else kind}: {name} has NaN or infinite values; "
                    "the model is not usable, train or load it again"
                )


def as_float32(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of a tensor as a float32 array."""
    return tensor.detach().cpu().to(torch.float32).contiguous().numpy().copy()


def _dense_operation(module, path, shape) -> Operation:
    weight = as_float32(module.effective_weight().T if isinstance(module, LIFSynapse) else module.weight)
    offsets = getattr(module, "bias", None)
    bias = None if offsets is None else as_float32(offsets)
    if len(shape) > 1:
        return _token_operation(module, path, shape, weight)

    def connect(source, target, delay, _source_shape):
        return Dense(source, target, weight, bias, delay=delay)

    has_bias = bias is not None and bool(bias.any())
    return Operation(path, type(module).__name__, connect, reshapes=True, has_bias=has_bias)


def _token_operation(module, path, shape, weight: np.ndarray) -> Operation:
    """Return a linear map of the last axis for all tokens: a convolution `[n_in, n_tokens]` -> `[n_out, n_tokens]`."""
    n_out, n_in = weight.shape
    n_tokens = prod(shape[:-1])

    def first(symbol: Symbol) -> Symbol:
        return _transpose_entries(symbol, (n_tokens, n_in), (n_in, n_tokens))

    def then(symbol: Symbol, shape: tuple[int, ...]) -> Symbol:
        return _transpose_entries(symbol, (n_out, n_tokens), shape)

    alone = SimpleNamespace(bias=module.bias, groups=1)
    done = _convolve(alone, path, weight[:, :, None], {"stride": (1,), "padding": (0,), "dilation": (1,)})
    return replace(done, kind=type(module).__name__, first=first, then=then)


def _transpose_entries(symbol: Symbol, axes: tuple[int, int], shape: tuple[int, ...]) -> Picked:
    """Transpose a symbol's entries as a matrix of `axes`, and return them in `shape`."""
    index = np.arange(prod(axes)).reshape(axes).T.ravel()
    return Picked((symbol,), np.zeros(len(index), np.int64), index, shape)


def _convolution_operation(module, path, _shape) -> Operation:
    if module.padding_mode != "zeros":
        raise UnfollowableError(f"whose padding_mode {module.padding_mode!r} is not supported, only 'zeros'")
    padding = module.padding
    if padding == "valid":
        padding = (0,) * len(module.kernel_size)
    elif padding == "same":
        total = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        if any(n % 2 for n in total):
            raise UnfollowableError("whose padding='same' is uneven for this kernel, which is not supported")
        padding = tuple(n // 2 for n in total)
    geometry = {"stride": module.stride, "padding": padding, "dilation": module.dilation}
    return _convolve(module, path, as_float32(module.weight), geometry)


def _convolve(module, path, weight: np.ndarray, geometry: dict) -> Operation:
    """Return the convolution with `weight` and a module's bias; `geometry` has a number for each axis."""
    bias = None if module.bias is None else as_float32(module.bias)
    numbers = geometry if weight.ndim == 4 else {name: value[0] for name, value in geometry.items()}

    def connect(source, target, delay, shape):
        if weight.ndim == 3:
            return Conv1d(source, target, weight, bias, groups=module.groups, delay=delay, **numbers)
        whole = {**numbers, "groups": module.groups, "source_shape": shape}
        return Conv2d(source, target, weight, bias, delay=delay, **whole)

    has_bias = bias is not None and bool(bias.any())
    return Operation(path, type(module).__name__, connect, reshapes=weight.ndim == 4, has_bias=has_bias)


def _transposed_convolution(module, path, shape) -> Operation:
    """Insert zeros between the source entries, then convolve with the flipped kernel."""
    if module.padding_mode != "zeros":
        raise UnfollowableError(f"whose padding_mode {module.padding_mode!r} is not supported, only 'zeros'")
    weight = as_float32(module.weight)
    n_in, n_out, *kernel = weight.shape
    weight = np.flip(weight, range(2, weight.ndim)).reshape(module.groups, -1, n_out, *kernel).swapaxes(1, 2)
    wide, places = [n_in], [np.arange(n_in)]
    for axis, (k, stride, padding, more, dilation) in enumerate(
        zip(kernel, module.stride, module.padding, module.output_padding, module.dilation, strict=True), 1
    ):
        reach = dilation * (k - 1)
        wide.append((shape[axis] - 1) * stride + 1 + more - 2 * padding + 2 * reach)
        places.append(np.arange(shape[axis]) * stride + reach - padding)
    kept = [(at >= 0) & (at < size) for at, size in zip(places, wide, strict=True)]
    pre = np.arange(prod(shape)).reshape(shape)[np.ix_(*kept)].ravel()
    at = np.ix_(*(at[k] for at, k in zip(places, kept, strict=True)))
    post = np.arange(prod(wide)).reshape(wide)[at].ravel()
    spread = sparse_operation(path, "spread", pre, post)

    def first(symbol: Symbol) -> Symbol:
        return Applied(spread, symbol, tuple(wide))

    geometry = {"stride": (1,) * len(kernel), "padding": (0,) * len(kernel), "dilation": module.dilation}
    done = _convolve(module, path, np.ascontiguousarray(weight.reshape(module.groups * n_out, -1, *kernel)), geometry)
    return replace(done, first=first)


def _upsample_operation(module, path, shape) -> Operation:
    if module.mode not in ("nearest", "nearest-exact"):
        raise UnfollowableError(f"whose mode {module.mode!r} is not supported, only 'nearest'")
    numbers = torch.arange(prod(shape), dtype=torch.float64).reshape(1, *shape)
    pre = torch.nn.functional.interpolate(
        numbers, module.size, module.scale_factor, module.mode, None, module.recompute_scale_factor
    )
    return sparse_operation(path, type(module).__name__, pre.numpy().ravel().astype(np.int64), np.arange(pre.numel()))


def sparse_operation(
    path: str, kind: str, pre: np.ndarray, post: np.ndarray, weight: np.ndarray | None = None
) -> Operation:
    """Return an operation whose result has entries `pre` of the source at `post`, times `weight`, and 0 elsewhere."""
    weight = np.ones(len(pre), np.float32) if weight is None else weight

    def connect(source, target, delay, _shape):
        return Sparse(source, target, pre=pre, post=post, weight=weight, delay=delay)

    return Operation(path, kind, connect)


def _average_pool(module, path, _shape) -> Operation:
    if module.ceil_mode or module.divisor_override is not None:
        raise UnfollowableError("whose ceil_mode or divisor_override is not supported")
    if not module.count_include_pad and any(pair(module.padding)):
        raise UnfollowableError("whose count_include_pad=False is not supported with padding")
    return _pool_operation(module, path, "avg")


def _adaptive_average_pool(module, path, shape) -> Operation:
    """Return means over torch's windows: entry i of m from n covers floor(i*n/m) up to ceil((i+1)*n/m)."""
    sizes, given = shape[1:], module.output_size
    both = given if isinstance(given, list | tuple) else (given, given)
    wanted = tuple(m or n for m, n in zip(both, sizes, strict=True))
    if not any(n % m for n, m in zip(sizes, wanted, strict=True)):
        kernel = tuple(n // m for n, m in zip(sizes, wanted, strict=True))
        return _pool_operation(SimpleNamespace(kernel_size=kernel, stride=kernel, padding=0), path, "avg")
    windows = np.kron(*(_adaptive_windows(n, m) for n, m in zip(sizes, wanted, strict=True)))
    return _windows_operation(path, type(module).__name__, shape[0], windows, 1 / windows.sum(1))


def _windows_operation(path: str, kind: str, n_channels: int, windows: np.ndarray, weights: np.ndarray) -> Operation:
    """Return the operation whose result i, in every channel, is `weights[i]` times the sum over `windows[i]`."""
    post, pre = np.nonzero(windows)
    weight = np.tile(weights[post].astype(np.float32), n_channels)
    channel = np.arange(n_channels)[:, None]
    pre, post = ((channel * size + at).ravel() for size, at in zip(windows.shape[::-1], (pre, post), strict=True))

    return sparse_operation(path, kind, pre, post, weight)


def _adaptive_windows(n: int, m: int) -> np.ndarray:
    """Return bool[m, n]: which of n entries are in each of m windows."""
    i = np.arange(m)[:, None]
    k = np.arange(n)
    return (k >= i * n // m) & (k < -(-(i + 1) * n // m))


def _maximum_pool(module, path, _shape) -> Operation:
    if module.ceil_mode or module.return_indices or pair(module.dilation) != (1, 1):
        raise UnfollowableError("whose ceil_mode, return_indices or dilation is not supported")
    return _add_maximum(_pool_operation(module, path, "sum"), module, lambda value, _rows: pair(value))


def _average_1d(module, path, shape) -> Operation:
    if module.ceil_mode or (not module.count_include_pad and _first_number(module.padding)):
        raise UnfollowableError("whose ceil_mode, or count_include_pad=False with padding, is not supported")
    return _pool_1d(module, path, shape, 1 / _first_number(module.kernel_size))


def _maximum_1d(module, path, shape) -> Operation:
    if module.ceil_mode or module.return_indices or _first_number(module.dilation) != 1:
        raise UnfollowableError("whose ceil_mode, return_indices or dilation is not supported")
    return _add_maximum(_pool_1d(module, path, shape, 1.0), module, lambda value, rows: (rows, _first_number(value)))


def _add_maximum(summed: Operation, module, windows: Callable) -> Operation:
    """Add the maximum for values that are not spikes; `windows` converts numbers of the module to pairs."""
    kernel, padding = module.kernel_size, module.padding
    stride = kernel if module.stride is None else module.stride

    def connect_maximum(source, target, delay, _shape):
        sizes = {"kernel": windows(kernel, 1), "stride": windows(stride, 1), "padding": windows(padding, 0)}
        return MaxPool2d(source, target, delay=delay, **sizes)

    return replace(summed, maximum=connect_maximum)


def _pool_1d(module, path, shape, weight: float) -> Operation:
    """Return sums over windows of the last axis, times `weight`."""
    kernel = _first_number(module.kernel_size)
    padding = _first_number(module.padding)
    stride = kernel if module.stride is None else _first_number(module.stride)
    windows = _list_windows(shape[1], (shape[1] + 2 * padding - kernel) // stride + 1, kernel, stride, padding)
    return _windows_operation(path, type(module).__name__, shape[0], windows, np.full(len(windows), weight))


def _list_windows(n: int, m: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> np.ndarray:
    """Return bool[m, n]: which of n entries are in each of m windows."""
    place = np.arange(n) - (stride * np.arange(m)[:, None] - padding)
    return (place >= 0) & (place < dilation * kernel) & (place % dilation == 0)


def sum_windows(path: str, before: tuple[int, ...], after: tuple[int, ...], **numbers) -> Operation:
    """Return sums over the windows of a torch.nn.MaxPool2d of these `numbers`, from `[C, H, W]` before to after it."""
    names = ("kernel_size", "stride", "padding", "dilation")
    rows = zip(before[1:], after[1:], *(numbers[name] for name in names), strict=True)
    windows = np.kron(*(_list_windows(*row) for row in rows))
    return _windows_operation(path, "MaxPool2d", before[0], windows, np.ones(len(windows)))


def _first_number(value) -> int:
    return value[0] if isinstance(value, list | tuple) else value


def _power_average(module, path, _shape) -> Operation:
    if module.norm_type != 1 or module.ceil_mode:
        raise UnfollowableError("whose norm_type is not 1, or whose ceil_mode is not False, which is not supported")
    return _pool_operation(module, path, "sum")


def _pool_operation(module, path, kind) -> Operation:
    kernel = pair(module.kernel_size)
    padding = pair(getattr(module, "padding", 0))
    stride = kernel if module.stride is None else pair(module.stride)

    def connect(source, target, delay, _shape):
        return Pool2d(source, target, kernel=kernel, stride=stride, padding=padding, kind=kind, delay=delay)

    return Operation(path, type(module).__name__, connect)


def _delay_operation(module, path, _shape) -> Operation:
    def connect(source, target, delay, shape):
        return delay_connections(module, source, target, delay, shape)

    reshapes = not isinstance(module, DelayedConv2d)
    return Operation(path, type(module).__name__, connect, reshapes=reshapes)


def _batch_norm(module, path, _shape) -> Operation:
    if module.running_var is None:
        raise UnfollowableError("which has no running statistics (track_running_stats=False)")
    scale = 1 / torch.sqrt(module.running_var.detach().double() + module.eps)
    shift = -module.running_mean.detach().double() * scale
    if module.weight is not None:
        scale, shift = scale * module.weight.detach(), shift * module.weight.detach()
    if module.bias is not None:
        shift = shift + module.bias.detach()
    return affine_operation(path, type(module).__name__, as_float32(scale), as_float32(shift))


def affine_operation(path: str, kind: str, scale, shift) -> Operation:
    """Return the operation scale * x + shift, with numbers or one value per channel."""

    def connect(source, target, delay, _shape):
        return Scale(source, target, scale, shift, delay)

    return Operation(path, kind, connect, has_bias=bool(np.any(shift)))


MAKERS: dict[Any, Callable] = {
    torch.nn.Linear: _dense_operation,
    LIFSynapse: _dense_operation,
    Delay: _delay_operation,
    DelayedLinear: _delay_operation,
    DelayedConv2d: _delay_operation,
    torch.nn.Conv1d: _convolution_operation,
    torch.nn.Conv2d: _convolution_operation,
    torch.nn.ConvTranspose1d: _transposed_convolution,
    torch.nn.ConvTranspose2d: _transposed_convolution,
    torch.nn.Upsample: _upsample_operation,
    torch.nn.AvgPool1d: _average_1d,
    torch.nn.AvgPool2d: _average_pool,
    torch.nn.AdaptiveAvgPool2d: _adaptive_average_pool,
    torch.nn.MaxPool1d: _maximum_1d,
    torch.nn.MaxPool2d: _maximum_pool,
    torch.nn.LPPool2d: _power_average,
    torch.nn.BatchNorm1d: _batch_norm,
    torch.nn.BatchNorm2d: _batch_norm,
}
AXES = {
    torch.nn.Linear: (1, 2, 3),
    LIFSynapse: (1,),
    Delay: (1, 2, 3),
    DelayedLinear: (1,),
    DelayedConv2d: (3,),
    torch.nn.Conv1d: (2,),
    torch.nn.Conv2d: (3,),
    torch.nn.ConvTranspose1d: (2,),
    torch.nn.ConvTranspose2d: (3,),
    torch.nn.Upsample: (2, 3),
    torch.nn.AvgPool1d: (2,),
    torch.nn.AvgPool2d: (3,),
    torch.nn.AdaptiveAvgPool2d: (3,),
    torch.nn.MaxPool1d: (2,),
    torch.nn.MaxPool2d: (3,),
    torch.nn.LPPool2d: (3,),
    torch.nn.BatchNorm1d: (1, 2),
    torch.nn.BatchNorm2d: (3,),
}
WANTED = {1: "[B, N]", 2: "[B, C, L]", 3: "[B, C, H, W]"}


def delay_connections(module, source: str, target: str, late: int, shape: tuple[int, ...]) -> tuple[Connection, ...]:
    """Return the connections that compute `module` for a source of `shape`, each with `late` additional steps."""
    steps = module.delays.rounded_steps.cpu().numpy()
    if isinstance(module, Delay):
        whole: Connection = Scale(source, target, delay=late)
        axons = np.arange(prod(shape))
        pre, post, weight, steps = axons, axons, np.ones(len(axons), np.float32), steps.reshape(-1)
    elif isinstance(module, DelayedLinear):
        of_synapse = module.effective_weight().detach().float().cpu().T.contiguous().numpy().copy()
        whole = Dense(source, target, of_synapse, delay=late)
        pre, post, place = synapse_list(whole, shape)
        weight, steps = of_synapse.reshape(-1)[place], steps.T.reshape(-1)[place]
    else:
        whole = module.connection(source, target, late)
        assert isinstance(whole, Conv2d)
        pre, post, place = synapse_list(whole, shape)
        weight, steps = np.asarray(whole.weight).reshape(-1)[place], steps.reshape(-1)[place]
    occurring = np.unique(steps)
    if len(occurring) == 1:
        return (whole.replace(delay=late + int(occurring[0])),)
    return tuple(
        Sparse(source, target, pre[k], post[k], weight[k], delay=late + int(d))
        for d, k in ((d, np.flatnonzero(steps == d)) for d in occurring)
    )
