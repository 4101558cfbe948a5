"""Surrogate gradients: what backpropagation uses in place of the derivative of a spike by the membrane.

Each function takes `x`, the membrane minus the threshold (any shape), and gives the derivative there, of x's shape
and dtype. A larger `slope` makes it narrower. To change a slope use `functools.partial(atan, slope=4.0)`; any callable
of the same form can be given to a layer, which then goes through the steps one by one in torch operations.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from nwcompile.errors import OptionError, unknown_choice


def atan(x: torch.Tensor, slope: float = 2.0) -> torch.Tensor:
    """slope/2 / (1 + (pi/2 * slope * x)^2), the derivative of an arctangent (Fang et al., ICCV 2021, PLIF)."""
    return slope / 2 / (1 + (math.pi / 2 * slope * x).square())


def fast_sigmoid(x: torch.Tensor, slope: float = 25.0) -> torch.Tensor:
    """1 / (1 + slope*|x|)^2 (Zenke and Ganguli, Neural Computation 2018, SuperSpike)."""
    return (1 + slope * x.abs()).square().reciprocal()


def sigmoid(x: torch.Tensor, slope: float = 4.0) -> torch.Tensor:
    """slope * y * (1 - y) with y = 1 / (1 + exp(-slope*x)), the derivative of a logistic function."""
    y = torch.sigmoid(slope * x)
    return slope * y * (1 - y)


def piecewise_linear(x: torch.Tensor, slope: float = 1.0) -> torch.Tensor:
    """slope/2 where |x| < 1/slope, else 0: the derivative of a line clipped to 0..1."""
    return (slope * x.abs() < 1).to(x.dtype) * (slope / 2)


def triangular(x: torch.Tensor, slope: float = 1.0) -> torch.Tensor:
    """slope * max(0, 1 - slope*|x|) (Bellec et al., NeurIPS 2018, with dampening 1)."""
    return slope * (1 - slope * x.abs()).clamp(min=0)


SURROGATES = {f.__name__: f for f in (atan, fast_sigmoid, sigmoid, piecewise_linear, triangular)}


def named(surrogate: str | Callable) -> Callable:
    """The surrogate of that name, or the callable itself. Raises OptionError for an unknown name."""
    if callable(surrogate):
        return surrogate
    if surrogate not in SURROGATES:
        raise OptionError(unknown_choice("surrogate", surrogate, SURROGATES))
    return SURROGATES[surrogate]


def kernel_form(surrogate: Callable) -> tuple[str, float] | None:
    """(name, slope) of one of the functions above, or of a `functools.partial` of one; None for any other callable."""
    slope = None
    function: Any = surrogate
    if isinstance(function, partial) and not function.args and function.keywords.keys() == {"slope"}:
        slope = float(function.keywords["slope"])
        function = function.func
    name = getattr(function, "__name__", None)
    if SURROGATES.get(name) is not function:
        return None
    return name, function.__defaults__[0] if slope is None else slope
