"""Surrogate gradients, which replace the derivative of a spike by the membrane in backpropagation.

Each function takes `x`, the membrane minus the threshold in any shape, and returns the derivative in the shape and
dtype of x. A larger `slope` makes it narrower. Change a slope with `functools.partial(atan, slope=4.0)`. A layer takes
any callable of this form, but runs unknown ones step by step in torch operations.

`eventprop` is not such a function: it names the gradient of spike times.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from nwcompile.errors import OptionError, unknown_choice


def atan(x: torch.Tensor, slope: float = 2.0) -> torch.Tensor:
    """Return slope/2 / (1 + (pi/2 * slope * x)^2), the derivative of an arctangent (Fang et al., ICCV 2021, PLIF)."""
    return slope / 2 / (1 + (math.pi / 2 * slope * x).square())


def fast_sigmoid(x: torch.Tensor, slope: float = 25.0) -> torch.Tensor:
    """Return 1 / (1 + slope*|x|)^2 (Zenke and Ganguli, Neural Computation 2018, SuperSpike)."""
    return (1 + slope * x.abs()).square().reciprocal()


def sigmoid(x: torch.Tensor, slope: float = 4.0) -> torch.Tensor:
    """Return slope * y * (1 - y) with y = 1 / (1 + exp(-slope*x)), the derivative of a logistic function."""
    y = torch.sigmoid(slope * x)
    return slope * y * (1 - y)


def piecewise_linear(x: torch.Tensor, slope: float = 1.0) -> torch.Tensor:
    """Return slope/2 where |x| < 1/slope, else 0: the derivative of a line clipped to 0..1."""
    return (slope * x.abs() < 1).to(x.dtype) * (slope / 2)


def triangular(x: torch.Tensor, slope: float = 1.0) -> torch.Tensor:
    """Return slope * max(0, 1 - slope*|x|) (Bellec et al., NeurIPS 2018, with dampening 1)."""
    return slope * (1 - slope * x.abs()).clamp(min=0)


def eventprop(x: torch.Tensor) -> torch.Tensor:
    """Name the gradients of spike times: `surrogate="eventprop"` of a LIF layer. Calling it raises OptionError.

    This is EventProp (Wunderlich and Pehle, Scientific Reports 11, 12829, 2021) in steps, as in mlGeNN (Nowotny, Turner
    and Knight, arXiv:2212.01232). The forward pass is the same as with any surrogate.

    In the backward pass a spike has a time. Its membrane rises in step t from before(t) < threshold, the value after
    step t-1, to v(t) >= threshold. It crosses the threshold at the fraction x = (threshold - before(t)) /
    (v(t) - before(t)) of the step. Let y be x minus its own value: y is 0 but has a derivative. A spike that comes y
    later moves the share y of its effect from step t to step t+1. With the current i, fired 0 or 1, and after(t) =
    before(t+1), the v(t) after reset and floor, the gradients are those of
      v(t) = beta*before(t) + i(t) - y(t-1)*late(t)
      spikes(t) = fired(t) - y(t) + y(t-1)
      mem(t) = after(t) + y(t)*more(t)
    With "subtraction" more = threshold and late = (1 - beta)*threshold: the subtracted part stays longer and decays for
    a shorter time. With "zero" more(t) = v(t), and late(t) is v(t) for y(t-1) = 0, which rises from 0 in less time.
    `detach_reset` takes y out of v and mem. So the adjoint of v decays, and jumps only at spikes, by
    (g(t+1) - g(t) + ...) / (v(t) - before(t)), with g(t) the incoming gradient of a spike in step t.

    y is 0 in the last step of a call. It is also 0 if the membrane was at the threshold before the step, after more
    current than a reset removes; so the rise is always above 0. Without a reset only membranes have a gradient.
    """
    raise OptionError(NO_FUNCTION)


SURROGATES = {f.__name__: f for f in (atan, fast_sigmoid, sigmoid, piecewise_linear, triangular)}


NO_FUNCTION = (
    "surrogate 'eventprop' is the gradient of a LIF layer's spike times, not a function of the membrane; use one of: "
    + ", ".join(sorted(SURROGATES))
)


def look_up_surrogate(surrogate: str | Callable) -> Callable:
    """Return the surrogate of that name, or the callable itself. Raises OptionError for other names and eventprop."""
    if not isinstance(surrogate, str) and not callable(surrogate):
        raise OptionError(
            f"surrogate={type(surrogate).__name__} must be a name, or a function of nwcompile.nn.surrogate"
        )
    if surrogate in ("eventprop", eventprop):
        raise OptionError(NO_FUNCTION)
    if callable(surrogate):
        return surrogate
    if surrogate not in SURROGATES:
        raise OptionError(unknown_choice("surrogate", surrogate, SURROGATES))
    return SURROGATES[surrogate]


def look_up_layer_surrogate(surrogate: str | Callable) -> Callable:
    """Look up a surrogate as `look_up_surrogate` does; a LIF layer also takes eventprop."""
    if surrogate in ("eventprop", eventprop):
        return eventprop
    if not callable(surrogate) and surrogate not in SURROGATES:
        raise OptionError(unknown_choice("surrogate", surrogate, [*SURROGATES, "eventprop"]))
    return look_up_surrogate(surrogate)


def kernel_form(surrogate: Callable) -> tuple[str, float] | None:
    """Return (name, slope) of a function above or of a `functools.partial` of one; None for any other callable."""
    if surrogate is eventprop:
        return "eventprop", 0.0
    slope = None
    function: Any = surrogate
    if isinstance(function, partial) and not function.args and function.keywords.keys() == {"slope"}:
        slope = float(function.keywords["slope"])
        function = function.func
    name, defaults = getattr(function, "__name__", ""), getattr(function, "__defaults__", None)
    if SURROGATES.get(name) is not function or defaults is None:
        return None
    return name, defaults[0] if slope is None else slope
