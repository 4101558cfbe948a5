"""Treat torch functions with weights as arguments as modules: `F.linear`, `F.conv2d`, `x @ w`, ..."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch

from nwcompile.frontend.torch.operations import UnfollowableError, build_operation
from nwcompile.frontend.torch.symbols import Operation


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
