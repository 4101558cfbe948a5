"""What a spiking layer keeps from one call to the next."""

from dataclasses import dataclass

import torch

FREED = "second time"  # of what torch says of a graph that a backward pass has gone through


@dataclass(frozen=True, eq=False)
class Kept:
    """The state after the last step, with its graph; `exported`: made for torch.export, of no use to other calls."""

    state: torch.Tensor
    exported: bool


def is_used_up(tensor: torch.Tensor) -> bool:
    """Whether a backward pass has freed what an operation of `nn.ops` made `tensor` from."""
    return is_freed(tensor.grad_fn)


def is_freed(node) -> bool:
    """Whether a backward pass has freed what a node has saved; False for None and for nodes of torch's own."""
    try:
        return getattr(node, "saved_tensors", ()) is None
    except RuntimeError as e:  # also where a saved tensor was changed since, which is another fault
        return FREED in str(e)
