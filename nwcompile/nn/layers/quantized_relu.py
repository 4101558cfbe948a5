"""Quantized ReLU, the activation that a spiking neuron computes in several steps; for training before conversion."""

import math
from numbers import Real

import torch

from nwcompile.errors import ModelError, OptionError, check_int, shown


class QuantizedReLU(torch.nn.Module):
    """Elementwise `step * clip(floor(x / step + 1/2), 0, levels)`, with a learned step.

    A calcium-gated neuron of `nwcompile.convert(..., method="quantized")` sends this value in `levels` or more steps:
    a spike is worth `steps * step`, so the mean over the steps is a multiple of `step`. The gradient passes straight
    through the rounding. The step is a parameter with the gradient of LSQ (Esser et al., ICLR 2020, eq. 3, scaled by
    1 / sqrt(levels * entries of a sample)), so the range adapts. Without `step` the first training batch, or
    `calibrate`, sets it: the largest level becomes the 99.9th percentile of the positive values. Raises OptionError
    for levels that are not a whole number >= 1 and for a step not above 0. Raises ModelError for a step that was never
    set, or that became 0 or less in training.
    """

    MOST_LEVELS = 1 << 24  # float32 holds whole numbers exactly up to here
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
        """Set the step from values of any shape that the layer will see. Raises ModelError if none is above 0."""
        above = values[values > 0]
        if not values.isfinite().all():
            raise ModelError("QuantizedReLU is given NaN or infinite values, so it cannot set its step; clean the data")
        if not above.numel():
            raise ModelError(
                "QuantizedReLU is given nothing above 0, so it cannot set its step; give it other data or step="
            )
        rank = max(1, math.ceil(self.PERCENTILE * above.numel()))
        self.step.copy_(above.float().kthvalue(rank).values / self.levels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the quantized activations, in the shape and dtype of x."""
        if self.training and self.step.detach() == 0:
            self.calibrate(x.detach())
        if not self.step.detach() > 0:
            if self.step.detach() == 0:
                todo = "train it for a batch, call calibrate(x), or give step="
                raise ModelError(f"QuantizedReLU has no step yet; {todo}")
            became = f"the step of a QuantizedReLU became {float(self.step.detach()):g} in training"
            raise ModelError(f"{became}; lower the learning rate, or give more levels")
        scale = 1 / math.sqrt(self.levels * max(1, x.numel() // max(1, len(x) if x.ndim else 1)))
        step = self.step * scale + (self.step * (1 - scale)).detach()
        scaled = (x / step).clamp(0, self.levels)
        return (scaled + (torch.floor(scaled + 0.5) - scaled).detach()) * step

    def extra_repr(self) -> str:
        return f"levels={self.levels}, step={float(self.step.detach()):.4g}"
