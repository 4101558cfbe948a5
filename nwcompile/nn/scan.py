"""The LIF dynamics over time, differentiable: a Numba kernel on the CPU, a loop of torch operations elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.kernels.cpu_lif import RESET_NONE, RESET_SUBTRACTION, RESET_ZERO, lif_backward, lif_forward

RESETS = {"subtraction": RESET_SUBTRACTION, "zero": RESET_ZERO, "none": RESET_NONE}
BLOCK_ENTRIES = 1 << 16  # entries that the backward pass takes at once, so that its temporaries stay in the cache
KERNEL_DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Neurons:
    """What the scan needs of N neurons: `beta` and `threshold` `[N]`, the reset's name, the surrogate gradient."""

    beta: torch.Tensor
    threshold: torch.Tensor
    reset: str
    surrogate: Callable
    detach_reset: bool


def scan(current: torch.Tensor, v0: torch.Tensor, neurons: Neurons) -> tuple[torch.Tensor, torch.Tensor]:
    """`(spikes, mem)`, both `[B, T, N]`, of a LIF layer fed `current` `[B, T, N]` from membrane `v0` `[B, N]`.

    In each step v = beta*v + i, s = v >= threshold, then the reset; `mem` is v after it. Differentiable in current,
    v0, beta and threshold; the gradient of a spike by v is `surrogate(v - threshold)`. Tensors on the CPU in float32
    or float64 use one kernel for all steps; the result is bit for bit that of `scan_loop`.
    """
    if current.device.type == "cpu" and current.dtype in KERNEL_DTYPES:
        n = neurons
        return _KernelScan.apply(current, v0, n.beta, n.threshold, n.reset, n.surrogate, n.detach_reset)
    return scan_loop(current, v0, neurons)


def scan_loop(current: torch.Tensor, v0: torch.Tensor, neurons: Neurons) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as `scan`, step by step in torch operations; for devices and dtypes that have no kernel."""
    v, all_spikes, all_mem = v0, [], []
    for i in current.unbind(1):
        v = neurons.beta * v + i
        spikes = _Spike.apply(v, neurons.threshold, neurons.surrogate)
        reset = spikes.detach() if neurons.detach_reset else spikes
        if neurons.reset == "subtraction":
            v = v - reset * neurons.threshold
        elif neurons.reset == "zero":
            v = v * (1 - reset)
        all_spikes.append(spikes)
        all_mem.append(v)
    return torch.stack(all_spikes, 1), torch.stack(all_mem, 1)


def recurrent_scan(current, v0, spikes0, w_rec, neurons: Neurons) -> tuple[torch.Tensor, torch.Tensor]:
    """As `scan`, with spikes(t-1) @ w_rec added to the current of step t; `spikes0` `[B, N]`, `w_rec` `[N, N]`."""
    v, spikes, all_spikes, all_mem = v0, spikes0, [], []
    for i in current.unbind(1):
        spikes, v = (x[:, 0] for x in scan((i + spikes @ w_rec)[:, None], v, neurons))
        all_spikes.append(spikes)
        all_mem.append(v)
    return torch.stack(all_spikes, 1), torch.stack(all_mem, 1)


class _Spike(torch.autograd.Function):
    """v >= threshold as a number, with a surrogate derivative."""

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


class _KernelScan(torch.autograd.Function):
    """`lif_forward` and `lif_backward` as one differentiable operation."""

    @staticmethod
    def forward(ctx, current, v0, beta, threshold, reset, surrogate, detach_reset):
        current, v0 = current.contiguous(), v0.contiguous()
        spikes, mem = _new(current), _new(current)
        lif_forward(*map(_array, (current, v0, beta, threshold)), RESETS[reset], *map(_array, (spikes, mem)))
        ctx.save_for_backward(current, v0, beta, threshold, mem)
        ctx.options = reset, surrogate, detach_reset
        return spikes, mem

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_spikes, grad_mem):
        current, v0, beta, threshold, mem = ctx.saved_tensors
        reset, surrogate, detach_reset = ctx.options
        grad_v, grad_v0 = _new(current), torch.zeros_like(v0)
        grad_beta, grad_threshold = torch.zeros_like(beta), np.zeros(len(threshold), np.float64)
        for rows, steps in _blocks(current.shape):
            first = v0[rows, None] if steps.start == 0 else mem[rows, steps.start - 1, None]
            before = torch.cat([first, mem[rows, steps.start : steps.stop - 1]], 1)
            v = beta * before + current[rows, steps]
            slope = surrogate(v - threshold)
            grads = (g[rows, steps].contiguous() for g in (grad_spikes, grad_mem))
            grad = torch.empty_like(v)
            lif_backward(
                *map(_array, (v, slope.contiguous(), *grads, beta, threshold)), RESETS[reset], detach_reset,
                _array(grad), _array(grad_v0[rows]), grad_threshold,
            )  # fmt: skip
            grad_v[rows, steps] = grad
            if ctx.needs_input_grad[2]:
                grad_beta += (grad * before).sum((0, 1))
        return grad_v, grad_v0, grad_beta, torch.from_numpy(grad_threshold).to(grad_v.dtype), None, None, None


def _blocks(shape):
    """(samples, steps) slices that cover `[B, T, N]`, last steps first, each small enough to stay in the cache."""
    n_samples, n_steps, n_neurons = shape
    n_rows = max(1, BLOCK_ENTRIES // (n_steps * n_neurons))
    n_at_once = max(1, BLOCK_ENTRIES // (n_rows * n_neurons))
    for row in range(0, n_samples, n_rows):
        for stop in range(n_steps, 0, -n_at_once):
            yield slice(row, row + n_rows), slice(max(0, stop - n_at_once), stop)


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def _new(like: torch.Tensor) -> torch.Tensor:
    """An uninitialised tensor, allocated by NumPy: a large one costs far fewer page faults than `torch.empty`."""
    return torch.from_numpy(np.empty(like.shape, _array(like[:0]).dtype))
