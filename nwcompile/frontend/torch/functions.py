"""Follow torch functions that compute linear maps: + - * / of tensors and constants, sums, means, matrix products.

Functions with weights as arguments (`F.linear`, `F.conv2d`, `x @ w`, ...) are treated as modules.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from nwcompile.frontend.torch.moves import Extent, Tracked
from nwcompile.frontend.torch.operations import UnfollowableError, affine_operation, build_operation
from nwcompile.frontend.torch.symbols import Applied, Averaged, Constant, Operation, Picked, Pooled, Summed, Symbol
from nwcompile.ir.connection import MatMul, Pool2d, Scale

SIGNS = {"add": (1, 1), "radd": (1, 1), "iadd": (1, 1), "sub": (1, -1), "isub": (1, -1), "subtract": (1, -1),
         "rsub": (-1, 1)}  # fmt: skip
PRODUCTS = ("mul", "rmul", "imul", "multiply")
QUOTIENTS = ("div", "truediv", "itruediv", "divide", "true_divide")
REDUCTIONS = {"sum": "sum", "mean": "avg"}
MATRIX_PRODUCTS = ("matmul", "__matmul__", "bmm")
Move = Callable[..., Tracked | None]  # the symbol of a function that only moves entries


def is_linear(name: str) -> bool:
    """Return whether the torch function of this name is a sum, difference, product or quotient."""
    return name.strip("_") in (*SIGNS, *PRODUCTS, *QUOTIENTS)


def describe_factor(factors: list[Symbol], is_spikes: Callable[[Symbol], bool]) -> str:
    """Name a factor of a product that is a sum of spikes; "" if there is none."""
    sums = [f for f in factors if isinstance(f, Summed) and all(is_binary(term, is_spikes) for term in f.terms)]
    if not sums:
        return ""
    return f"one factor of which is a sum of spikes, up to {len(sums[0].terms)}, not 0 or 1: multiply before adding"


def follow_linear(name: str, args, kwargs, known: Callable[[torch.Tensor], Tracked], path: str) -> Tracked | None:
    """Return the symbol of the result, None if it is not linear or broadcasts; `path` names a junction."""
    name = name.strip("_")
    if len(args) != 2 or set(kwargs) - {"alpha"}:
        return None
    a: Any
    b: Any
    a, b = (x.item() if isinstance(x, torch.Tensor) and x.ndim == 0 else x for x in args)
    tensors = [x for x in (a, b) if isinstance(x, torch.Tensor)]
    if len(tensors) == 2:
        if a.shape == b.shape:
            return _add_tensors(name, a, b, kwargs.get("alpha", 1), known, path)
        tensors = [x for x in tensors if not isinstance(known(x).symbol, Constant)]
    if len(tensors) != 1:
        return None
    x = known(tensors[0])
    is_first = tensors[0] is a
    number = _read_constant(b if is_first else a, tensors[0], x.symbol)
    if number is None:
        return None
    scale, shift = _affine_coefficients(name, number, is_first, kwargs.get("alpha", 1))
    return None if scale is None else Tracked(scale_symbol(x.symbol, scale, shift, path), x.lead)


def follow_and(
    name: str, args, known: Callable[[torch.Tensor], Tracked], is_spikes: Callable[[Symbol], bool], path: str
) -> Tracked | None:
    """Return the symbol of the product of two spike tensors, a * b or a * (1 - b); None for other products.

    It becomes memoryless neurons that fire if a + b - 1 is 1 (AND; with 1 - b, the IAND of SEW-ResNet).
    """
    if name.strip("_") not in PRODUCTS or len(args) != 2 or not all(isinstance(x, torch.Tensor) for x in args):
        return None
    a, b = map(known, args)
    if args[0].shape != args[1].shape or a.lead != b.lead or not all(is_binary(x.symbol, is_spikes) for x in (a, b)):
        return None
    shape = a.symbol.shape
    return Tracked(Pooled(affine_operation(path, "and", 1, -1), Summed((a.symbol, b.symbol), shape), shape), a.lead)


def is_binary(symbol: Symbol, is_spikes: Callable[[Symbol], bool]) -> bool:
    """Return whether the values are 0 or 1: spikes, or 1 - spikes."""
    if not isinstance(symbol, Applied):
        return is_spikes(symbol)
    done = symbol.operation.connect("", "", 0, symbol.shape)
    low, high = (done.shift, done.scale + done.shift) if isinstance(done, Scale) else (np.nan, np.nan)
    return is_spikes(symbol.source) and bool(np.isin([low, high], (0, 1)).all())


def _read_constant(value, tensor: torch.Tensor, symbol: Symbol):
    """Return a number unchanged, a constant as one float32 per entry of a step, or None if neither."""
    if not isinstance(value, torch.Tensor):
        return value
    try:
        wide = value.detach().expand(tensor.shape).reshape(-1, *symbol.shape)
    except RuntimeError:
        return None
    return wide[0].cpu().to(torch.float32).numpy().copy() if (wide == wide[:1]).all() else None


def _affine_coefficients(name: str, number, tensor_first: bool, alpha: float) -> tuple:
    """Return (scale, shift) of the function with a number, or an array of numbers, as the other operand."""
    if name in PRODUCTS:
        return number, 0.0
    if name in QUOTIENTS:
        return (1 / number if tensor_first and np.all(number) else None), 0
    first, second = SIGNS[name]
    of_second = second * alpha
    return (first, of_second * number) if tensor_first else (of_second, first * number)


def _add_tensors(name: str, a, b, alpha: float, known, path: str) -> Tracked | None:
    if name not in SIGNS:
        return None
    first, second = SIGNS[name]
    terms = [known(a), known(b)]
    leads = {term.lead for term in terms if not isinstance(term.symbol, Constant)}
    if len(leads) != 1:
        return None
    shape = next(term.symbol.shape for term in terms if not isinstance(term.symbol, Constant))
    one, other = (scale_symbol(term.symbol, k, 0, path) for term, k in zip(terms, (first, second * alpha), strict=True))
    return Tracked(Summed((one, other), shape), leads.pop())


def scale_symbol(symbol: Symbol, scale, shift, path: str) -> Symbol:
    """Return `scale * symbol + shift`, with numbers, one per channel or one per entry; `path` names a junction."""
    if np.all(scale == 1) and np.all(shift == 0):
        return symbol
    digest = b"".join(np.asarray(number, np.float64).tobytes() for number in (scale, shift))
    return Applied(replace(affine_operation(path, "affine", scale, shift), digest=digest), symbol, symbol.shape)


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

    done = matmul_operation(path, left, right)
    return Tracked(Applied(done, both.symbol, (*heads, a.shape[-2], b.shape[-1])), both.lead)


def matmul_operation(path: str, left: tuple[int, ...], right: tuple[int, ...]) -> Operation:
    """Return the product of matrices `[heads, n, k]` and `[heads, k, m]`, whose entries are side by side."""

    def connect(source, target, delay, _shape):
        return MatMul(source, target, left=left, right=right, delay=delay)

    return Operation(path, "matmul", connect, reshapes=True)


def _pool_operation(path: str, name: str, n_added: int) -> Operation:
    """Return the sum, or mean, over the last axis of `[C, 1, n_added]`."""

    def connect(source, target, delay, _shape):
        return Pool2d(source, target, kernel=(1, n_added), kind=REDUCTIONS[name], delay=delay)

    return Operation(path, name, connect)


@dataclass(frozen=True)
class Function:
    """A torch function: the equivalent module class, its parameters with defaults, and the module's attributes."""

    kind: type
    parameters: dict
    attributes: Callable[[dict], dict]


def _convolution_attributes(given: dict) -> dict:
    n_axes = given["weight"].ndim - 2
    names = ("stride", "padding", "dilation", "output_padding")
    wide = {name: _as_tuple(given[name], n_axes) for name in names if name in given}
    return {**wide, "kernel_size": tuple(given["weight"].shape[2:]), "padding_mode": "zeros"}


def _pool_attributes(given: dict) -> dict:
    stride = given["stride"]
    return {"stride": given["kernel_size"] if stride is None or stride == () or stride == [] else stride}


def _batch_norm_attributes(given: dict) -> dict:
    if given["training"]:
        raise UnfollowableError(
            "which takes the statistics of the batch (training=True); import the module in eval mode"
        )
    return {}


def _product_attributes(given: dict) -> dict:
    weight = given["weight"]
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2:
        raise UnfollowableError("of which the second factor is not a weight [n_in, n_out]")
    return {"weight": weight.T, "bias": None}


def _as_tuple(value, n_axes: int):
    if isinstance(value, str):
        return value
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * n_axes if len(values) == 1 else values


CONVOLUTION = {"input": None, "weight": None, "bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
TRANSPOSED = {"input": None, "weight": None, "bias": None, "stride": 1, "padding": 0, "output_padding": 0, "groups": 1,
              "dilation": 1}  # fmt: skip
RESIZE = {"input": None, "size": None, "scale_factor": None, "mode": "nearest", "align_corners": None,
          "recompute_scale_factor": None, "antialias": False}  # fmt: skip
AVERAGE = {"input": None, "kernel_size": None, "stride": None, "padding": 0, "ceil_mode": False,
           "count_include_pad": True, "divisor_override": None}  # fmt: skip
MAXIMUM = {"input": None, "kernel_size": None, "stride": None, "padding": 0, "dilation": 1, "ceil_mode": False,
           "return_indices": False}  # fmt: skip
POWER = {"input": None, "norm_type": None, "kernel_size": None, "stride": None, "ceil_mode": False}
NORM = {"input": None, "running_mean": None, "running_var": None, "weight": None, "bias": None, "training": False,
        "momentum": 0.1, "eps": 1e-5}  # fmt: skip
PRODUCT = Function(torch.nn.Linear, {"input": None, "weight": None}, _product_attributes)
FUNCTIONS = {
    "linear": Function(torch.nn.Linear, {"input": None, "weight": None, "bias": None}, lambda given: {}),
    "matmul": PRODUCT,
    "mm": PRODUCT,
    "__matmul__": PRODUCT,
    "conv1d": Function(torch.nn.Conv1d, CONVOLUTION, _convolution_attributes),
    "conv2d": Function(torch.nn.Conv2d, CONVOLUTION, _convolution_attributes),
    "conv_transpose1d": Function(torch.nn.ConvTranspose1d, TRANSPOSED, _convolution_attributes),
    "conv_transpose2d": Function(torch.nn.ConvTranspose2d, TRANSPOSED, _convolution_attributes),
    "interpolate": Function(torch.nn.Upsample, RESIZE, lambda given: {}),
    "avg_pool1d": Function(torch.nn.AvgPool1d, AVERAGE, _pool_attributes),
    "avg_pool2d": Function(torch.nn.AvgPool2d, AVERAGE, _pool_attributes),
    "adaptive_avg_pool2d": Function(torch.nn.AdaptiveAvgPool2d, {"input": None, "output_size": None}, lambda given: {}),
    "max_pool1d": Function(torch.nn.MaxPool1d, MAXIMUM, _pool_attributes),
    "max_pool2d": Function(torch.nn.MaxPool2d, MAXIMUM, _pool_attributes),
    "lp_pool2d": Function(torch.nn.LPPool2d, POWER, _pool_attributes),
    "batch_norm": Function(torch.nn.BatchNorm2d, NORM, _batch_norm_attributes),
}


def bind_arguments(name: str, args, kwargs) -> dict:
    """Return the call's arguments by name, with defaults."""
    parameters = FUNCTIONS[name].parameters
    given = {**parameters, **dict(zip(parameters, args, strict=False)), **kwargs}
    if "other" in given or "mat2" in given:
        given["weight"] = given.pop("other", None) if "other" in given else given.pop("mat2")
    return given


def operation_from_call(name: str, given: dict, path: str, shape: tuple[int, ...], one_step: bool) -> Operation:
    """Return the operation of the call on a tensor of `shape` per step; `one_step` as in `operation_from_module`."""
    function = FUNCTIONS[name]
    module = SimpleNamespace(**{**given, **function.attributes(given)})
    kind = function.kind
    if kind is torch.nn.BatchNorm2d and len(shape) < 3:
        kind = torch.nn.BatchNorm1d
    done = build_operation(kind, module, path, shape, one_step)
    digest = hashlib.sha1(usedforsecurity=False)
    for value in given.values():
        if isinstance(value, torch.Tensor) and value is not given["input"]:
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return replace(done, kind=name, digest=digest.digest())
