"""Sequential for spiking layers."""

import torch

from nwcompile.errors import ModelError
from nwcompile.nn.layers.delays import Delays
from nwcompile.nn.layers.lif import LIFLayer, LIFSynapse
from nwcompile.nn.layers.program import ProgramLayer
from nwcompile.nn.ops.device import Movable


class Sequential(torch.nn.Sequential, Movable):
    """torch.nn.Sequential for whole sequences `[B, T, *shape]`.

    A LIFLayer returns `(spikes, mem)`; only the spikes reach the next module. Modules without time (Conv, pool,
    BatchNorm, Flatten, Linear, ...) see all steps as one batch, `[B*T, *shape]`, so their channel axis stays in place.
    Returns the result of the last module: `(spikes, mem)` of a LIFLayer, or one tensor, `[B, T, *]`.
    Raises ModelError for an input with fewer than 3 axes.
    """

    def forward(self, x: torch.Tensor):
        """Run all modules on `x` `[B, T, *shape]`."""
        if x.ndim < 3:
            shape = tuple(x.shape)
            raise ModelError(f"nwcompile.nn.Sequential takes whole sequences [B, T, *shape], got shape {shape}")
        result = x
        for module in self:
            x = result[0] if isinstance(result, tuple) else result
            if any(isinstance(m, Delays | LIFLayer | LIFSynapse | ProgramLayer) for m in module.modules()):
                result = module(x)
            else:
                result = module(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return result
