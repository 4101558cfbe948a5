"""What a spiking layer keeps from one call to the next."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class Kept:
    """The state after the last step, with its graph; `exported`: made for torch.export, of no use to other calls."""

    state: torch.Tensor
    exported: bool


def is_used_up(tensor: torch.Tensor) -> bool:
    """Whether a backward pass has freed what an operation of `nn.ops` made `tensor` from."""
    try:
        return hasattr(tensor.grad_fn, "saved_tensors") and tensor.grad_fn.saved_tensors is None
    except RuntimeError:
        return True
