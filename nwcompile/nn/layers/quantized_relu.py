"""Quantized ReLU: the activation that a spiking neuron computes in so many steps, for training before conversion."""

import math
from numbers import Real

import torch

from nwcompile.errors import ModelError, OptionError, check_int, shown


class QuantizedReLU(torch.nn.Module):
    """`step * clip(floor(x / step + 1/2), 0, levels)`, element by element, with a learned step.

    What a calcium-gated neuron of `nwcompile.convert(..., method="quantized")` sends in `levels` steps or more: a spike
    is worth `steps * step`, so their mean over the steps is a whole number of `step`. The gradient goes straight
    through the rounding; that of the step, a parameter, is LSQ's (Esser et al., ICLR 2020, eq. 3, scaled by
    1 / sqrt(levels * entries of a sample)), by which the range adapts. Without `step` the first batch in training, or
    `calibrate`, sets it so that the largest level is the 99.9th percentile of what is above 0. OptionError for levels
    that are no whole number from 1 on or a step not above 0, ModelError for a step that was never set, or that
    training has taken to 0 or below.
    """

    MOST_LEVELS = 1 << 24  # float32 holds no larger whole number exactly
    PERCENTILE = 0.999

    def __init__(self, levels: int, step: float | None = None):
        super().__init__()
        self.levels = check_int("levels", levels, 1)
        if self.levels > self.MOST_LEVELS:
            raise OptionError(f"levels={shown(levels)} is above the largest supported, {self.MOST_LEVELS}")
        is_one = isinstance(step, Real) or (isinstance(step, torch.Tensor) and step.numel() == 1)
        if step is not None and not (is_one and 0 < step <= torch.finfo().max):
            raise OptionError(f"step={shown(step)} must be a number above 0, or None to set it by the first batch")
        self.step = torch.nn.Parameter(torch.tensor(0.0 if step is None else float(step)))

    @torch.no_grad()
    def calibrate(self, values: torch.Tensor) -> None:
        """Set the step by what it will be given, any shape. ModelError if nothing of it is above 0."""
        above = values[values > 0]
        if not values.isfinite().all():
            raise ModelError("QuantizedReLU is given NaN or infinite values, so it can set no step; clean the data")
        if not above.numel():
            raise ModelError(
                "QuantizedReLU is given nothing above 0, so it can set no step; give it other data or step="
            )
        rank = max(1, math.ceil(self.PERCENTILE * above.numel()))
        self.step.copy_(above.float().kthvalue(rank).values / self.levels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The quantized activations, of x's shape and dtype."""
        if self.training and self.step.detach() == 0:
            self.calibrate(x.detach())
        if not self.step.detach() > 0:
            raise ModelError(self._fault(float(self.step.detach())))
        scale = 1 / math.sqrt(self.levels * max(1, x.numel() // max(1, len(x) if x.ndim else 1)))
        step = self.step * scale + (self.step * (1 - scale)).detach()
        scaled = (x / step).clamp(0, self.levels)
        return (scaled + (torch.floor(scaled + 0.5) - scaled).detach()) * step

    @staticmethod
    def _fault(step: float) -> str:
        if step == 0:
            return "QuantizedReLU has no step yet; train it for a batch, call calibrate(x), or give step="
        return f"the step of a QuantizedReLU became {step:g} in training; lower the learning rate, or give more levels"

    def extra_repr(self) -> str:
        return f"levels={self.levels}, step={float(self.step.detach()):.4g}"
