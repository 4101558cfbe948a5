"""Currents from spikes: the matrix product with the weights, computed in the fastest way for its size."""

import torch

from nwcompile.nn.ops import cpu, torch_ops
from nwcompile.nn.ops.cpu import allocate_tensor
from nwcompile.nn.ops.torch_ops import KERNEL_DTYPES

MAX_CACHED_WEIGHTS = 1 << 16  # Weights that a core's cache holds in addition to the spikes.


def spike_matmul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return `x @ weight` of `[..., n_in]` and `[n_in, n_out]` of one dtype; differentiable.

    On the CPU a kernel takes small weights. It reads only the weights of spikes, and the sum of a row does not depend
    on other rows. Everything else takes torch's matrix product, which may group rows.
    """
    small = x.device.type == "cpu" and x.dtype in KERNEL_DTYPES and weight.numel() <= MAX_CACHED_WEIGHTS
    if small and not torch.is_autocast_enabled("cpu"):
        if not torch_ops.is_plain(x):
            return torch_ops.spike_matmul(x, weight)
        return torch_ops.DirectSpikeMatmul.apply(x, weight) if torch.is_grad_enabled() else cpu.spike_matmul(x, weight)
    if torch.is_grad_enabled() or not torch_ops.is_plain(x) or torch.is_autocast_enabled("cpu"):
        return x @ weight
    if x.device.type != "cpu" or x.dtype not in KERNEL_DTYPES:
        return x @ weight
    out, _ = allocate_tensor((*x.shape[:-1], weight.shape[1]), str(x.dtype).removeprefix("torch."))
    torch.mm(x.reshape(-1, len(weight)), weight, out=out.view(-1, weight.shape[1]))
    return out
