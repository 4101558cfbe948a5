"""Currents from spikes: the product with the weights, by the way that is fastest for its size."""

import torch

from nwcompile.nn.ops import cpu, torch_ops
from nwcompile.nn.ops.buffers import allocate_tensor
from nwcompile.nn.ops.torch_ops import KERNEL_DTYPES

MAX_CACHED_WEIGHTS = 1 << 16  # So many weights a core's cache holds beside the spikes.


def spike_matmul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`x @ weight`, `[..., n_in]` and `[n_in, n_out]` of one dtype, differentiable.

    Few weights on the CPU take a kernel that looks at those of spikes only, and whose sum of a row does not depend on
    the other rows; torch's matrix product, which takes the rest, may group rows.
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
