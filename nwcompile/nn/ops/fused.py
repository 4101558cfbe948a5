"""A synapse and its neurons in one kernel on a GPU, for inference with small layers."""

import torch

from nwcompile.errors import BackendError, ModelError, OptionError, unknown_choice
from nwcompile.nn.ops import torch_ops
from nwcompile.nn.ops.scan import FORMS, Neurons

MOST = 512  # inputs, and neurons: beyond, a matrix product of its own is faster than sums in each lane


def fire_weighed(
    x: torch.Tensor, weight: torch.Tensor, state: torch.Tensor, n: Neurons, form: str, n_steps: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """`nn.scan.fire` of the currents x @ weight, which never lie in memory; without a gradient, on a GPU.

    x: `[B, T, n_in]` of any float type, or the packed int32 `[B, ceil(T/32), n_in]` of a layer before, with T as
    `n_steps`; weight: `[n_in, N]`, of the type of n.beta; state: `[1, B, N]`. Gives the spikes in that form, so that
    layers can hand on bits to each other, and the last state. The sums are those of the CPU bit for bit where they
    are exact. Raises OptionError for another form, ModelError for packed spikes of another number of steps,
    BackendError for another device, for neurons with `w_rec` and for more than `MOST` inputs or neurons.
    """
    if form not in FORMS:
        raise OptionError(unknown_choice("form", form, FORMS))
    n_in, n_out = weight.shape
    refused = {
        f"device {x.device.type!r}": not x.is_cuda,
        "neurons with recurrent weights": n.w_rec is not None,
        f"{n_in} inputs and {n_out} neurons, of {MOST} each": max(n_in, n_out) > MOST,
    }
    for what, is_so in refused.items():
        if is_so:
            raise BackendError(
                f"currents that are not written have no kernel for {what}; use nwcompile.nn.ops.spike_matmul.weigh and "
                "nwcompile.nn.ops.scan.fire"
            )
    packed = x.dtype == torch.int32
    n_steps = x.shape[1] if n_steps is None and not packed else n_steps
    n_rows = None if n_steps is None else -(-n_steps // torch_ops.WORD_BITS) if packed else n_steps
    if x.shape[1:] != (n_rows, n_in):
        raise ModelError(
            f"spikes of shape {tuple(x.shape)} and type {x.dtype} are not those of {n_in} inputs in {n_steps} steps"
        )
    return torch_ops.lif_fire_weighed(x, weight, state, n.beta, n.threshold, n.reset, n.floor, form, n_steps)
