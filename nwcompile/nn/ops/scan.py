"""Differentiable LIF dynamics over time, on whole `[B, T, N]` tensors."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from nwcompile.errors import BackendError, ModelError, OptionError, unknown_choice
from nwcompile.nn.ops import cpu, torch_ops
from nwcompile.nn.ops.device import MAX_RECURRENT_NEURONS
from nwcompile.nn.ops.surrogate import eventprop, kernel_form
from nwcompile.nn.ops.torch_ops import KERNEL_DTYPES, select_kernels

RESETS = tuple(cpu.RESETS)
HALF = (torch.float16, torch.bfloat16)
FORMS = ("float", "uint8", "bits")


@dataclass(frozen=True)
class LIFNeurons:
    """N neurons as the scan takes them: `beta` and `threshold` `[N]`, name of the reset, surrogate gradient.

    `floor`: clip the membrane at 0 after the reset. `w_rec` `[N, N]`: add spikes(t-1) @ w_rec to the current.
    """

    beta: torch.Tensor
    threshold: torch.Tensor
    reset: str
    surrogate: Callable
    detach_reset: bool = False
    floor: bool = False
    w_rec: torch.Tensor | None = None

    def initial_state(self, current: torch.Tensor) -> torch.Tensor:
        """Return the zero state before the first step of `current`, `[B, T, N]` or `[B, N]`."""
        return self.beta.new_zeros(1 if self.w_rec is None else 2, current.shape[0], current.shape[-1])


def scan(
    current: torch.Tensor, state: torch.Tensor, neurons: LIFNeurons
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run LIF neurons over `current`, starting from `state`; return `spikes`, `mem` and the last state.

    `current`, `spikes` and `mem` are `[B, T, N]`, or `[B, N]` for one step.

    Each step computes i = current(t) + spikes(t-1) @ w_rec, v = beta*v + i and s = v >= threshold, then applies the
    reset and the floor. `mem` is v after them. `state` holds the membranes, `[1, B, N]`; with `w_rec` also the spikes,
    `[2, B, N]`. Differentiable in current, state, beta, threshold and w_rec. The gradient of a spike by v is the
    surrogate at v - threshold. All steps run in one kernel if there is one (see `has_kernel`), else in `scan_loop`.
    Both give the same bits if sums of weights are exact. `current` is cast to the dtype of beta.
    """
    current = _cast_current(current, neurons)
    form = kernel_form(neurons.surrogate)
    if form is None or not has_kernel(current, neurons):
        return scan_loop(current, state, neurons)
    if neurons.surrogate is eventprop:
        _verify_spike_times(current, state, neurons)
    arguments = current, state, neurons.beta, neurons.threshold, neurons.w_rec, neurons.reset, neurons.floor
    if not torch_ops.is_plain(current):
        return torch_ops.lif_scan(*arguments, neurons.detach_reset, *form)
    if not torch.is_grad_enabled():
        return select_kernels(current).forward(*arguments)
    direct = torch_ops.SpikeScan if neurons.surrogate is eventprop else torch_ops.DirectScan
    return direct.apply(*arguments, neurons.detach_reset, *form)


def has_kernel(current: torch.Tensor, neurons: LIFNeurons) -> bool:
    """Return whether one kernel runs all steps of `current`, forward and backward.

    There is one for float32 and float64 with a surrogate of `nn.surrogate`, on the CPU and on a GPU. With `w_rec` a GPU
    takes up to `device.MAX_RECURRENT_NEURONS` neurons.
    """
    known = kernel_form(neurons.surrogate) is not None and neurons.beta.dtype in KERNEL_DTYPES
    if current.device.type == "cuda":
        return known and (neurons.w_rec is None or len(neurons.w_rec) <= MAX_RECURRENT_NEURONS)
    return known and current.device.type == "cpu"


def _verify_spike_times(current: torch.Tensor, state: torch.Tensor, neurons: LIFNeurons) -> None:
    """Raise ModelError if a gradient is needed that EventProp does not define."""
    of = (current, state, neurons.beta, neurons.threshold, neurons.w_rec)
    if not torch.is_grad_enabled() or not any(t is not None and t.requires_grad for t in of):
        return
    if neurons.w_rec is not None:
        raise ModelError(
            "surrogate 'eventprop' has no gradient of recurrent weights; use layer_topology='FF' or another surrogate"
        )
    if current.ndim == 2 or current.shape[1] == 1:
        raise ModelError(
            "surrogate 'eventprop' has no gradient of one step, [B, N] or [B, 1, N], as a spike's is a difference of "
            "steps; give all steps at once, [B, T, N], or use another surrogate"
        )


def scan_loop(current: torch.Tensor, state: torch.Tensor, neurons: LIFNeurons):
    """Compute `scan` step by step in torch operations, for layers without a kernel."""
    if current.ndim == 2:
        spikes, mem, last = scan_loop(current[:, None], state, neurons)
        return spikes[:, 0], mem[:, 0], last
    v = state[0]
    spikes = state[-1]
    all_spikes, all_mem = [], []
    for i in current.unbind(1):
        v = neurons.beta * v + (i if neurons.w_rec is None else i + spikes @ neurons.w_rec)
        spikes = Spike.apply(v, neurons.threshold, neurons.surrogate)
        reset = spikes.detach() if neurons.detach_reset else spikes
        if neurons.reset == "subtraction":
            v = v - reset * neurons.threshold
        elif neurons.reset == "zero":
            v = v * (1 - reset)
        if neurons.floor:
            v = v.clamp(min=0)
        all_spikes.append(spikes)
        all_mem.append(v)
    last = v[None] if neurons.w_rec is None else torch.stack([v, spikes])
    return torch.stack(all_spikes, 1), torch.stack(all_mem, 1), last.clone()


def fire(
    current: torch.Tensor, state: torch.Tensor, neurons: LIFNeurons, form: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the spikes of `scan` in compact form and the last state; no gradient, no `w_rec`, CPU or GPU.

    form: "float" `[B, T, N]` of beta's dtype; "uint8" `[B, T, N]`; "bits" int32 `[B, ceil(T/32), N]`, step t in
    bit t % 32 of word t // 32, unused bits 0. Raises OptionError for another form, BackendError for another device or
    for neurons with `w_rec`.
    """
    if form not in FORMS:
        raise OptionError(unknown_choice("form", form, FORMS))
    refused = {
        "neurons with recurrent weights": neurons.w_rec is not None,
        f"device {current.device.type!r}": current.device.type not in torch_ops.DEVICES,
        f"beta of {neurons.beta.dtype}": neurons.beta.dtype not in KERNEL_DTYPES,
    }
    what = next((what for what, is_so in refused.items() if is_so), None)
    if what is not None:
        raise BackendError(f"spikes without membranes have no kernel for {what}; use nwcompile.nn.ops.scan.scan")
    current = _cast_current(current, neurons)
    arguments = current, state, neurons.beta, neurons.threshold, neurons.reset, neurons.floor, form
    if torch_ops.is_plain(current) and not torch.is_grad_enabled():
        return select_kernels(current).fire(*arguments)
    return torch_ops.lif_fire(*arguments)


def _cast_current(current: torch.Tensor, neurons: LIFNeurons) -> torch.Tensor:
    """Cast the current to the dtype of beta; a GPU kernel also takes half precision."""
    if current.dtype == neurons.beta.dtype or (current.is_cuda and current.dtype in HALF):
        return current
    return current.to(neurons.beta.dtype)


class Spike(torch.autograd.Function):
    """The spike `v >= threshold` as a number, with a surrogate derivative."""

    @staticmethod
    def forward(ctx, v, threshold, surrogate):
        ctx.save_for_backward(v, threshold)
        ctx.surrogate = surrogate
        return (v >= threshold).to(v.dtype)

    @staticmethod
    def backward(ctx, grad):
        v, threshold = ctx.saved_tensors
        grad = grad * ctx.surrogate(v - threshold)
        return grad, -grad.sum_to_size(threshold.shape), None
