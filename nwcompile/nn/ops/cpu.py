"""The kernels of `nwcompile.kernels` on torch's tensors: whole `[B, T, N]` in, whole `[B, T, N]` out, on the CPU."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from nwcompile.kernels.layers.lif import (
    RESET_NONE,
    RESET_SUBTRACTION,
    RESET_ZERO,
    lif_backward,
    lif_forward,
    lif_forward_narrow,
)
from nwcompile.kernels.layers.recurrent import recurrent_backward, recurrent_forward
from nwcompile.kernels.layers.simd import LANES, WORD_BITS, width_of
from nwcompile.kernels.layers.spike_matmul import GROUP, MOST_LOOKED_UP, weigh_narrow
from nwcompile.kernels.layers.spike_matmul import weigh as weigh_wide
from nwcompile.kernels.layers.surrogate import NAMES as SURROGATE_NAMES
from nwcompile.nn.ops.buffers import new
from nwcompile.nn.ops.threads import over_parts, parts, split

RESETS = {"subtraction": RESET_SUBTRACTION, "zero": RESET_ZERO, "none": RESET_NONE}
NO_SUMS = np.empty(0)


def forward(current, state, beta, threshold, w_rec, reset: str, floor: bool):
    """`spikes` and `mem` of the current's shape, and the state `[1 or 2, B, N]` after the last step."""
    n_samples, n_steps, n = shape = _steps(current)
    x, strides = _laid_out(current, (1,))
    sizes = current.shape, current.shape, state.shape
    (spikes, *out), (mem, *mem_out), (last, *last_out) = (new(size, x.dtype) for size in sizes)
    neurons, out = (_flat(beta), _flat(threshold), RESETS[reset], floor), (*out, *mem_out, *last_out)
    if w_rec is None:
        first = _flat(state)
        kernel = _kernel_for(n)
        _run(kernel, shape, False, lambda at, k: (x, (*at, n_steps, n), strides[:2], first, *neurons, 1, *out))
    else:
        last.copy_(state)
        w, size = _flat(w_rec), (n_samples, n_steps, n)
        _run(recurrent_forward, shape, True, lambda at, k: (x, (*at[:2], *size), strides[:2], w, *neurons, *out))
    return spikes, mem, last


def fire(current, state, beta, threshold, reset: str, floor: bool, form: str):
    """Spikes alone, as "float", "uint8" or "bits" (int32 `[B, ceil(T/32), N]`), and the state after the last step."""
    n_samples, n_steps, n = shape = current.shape
    x, strides = _laid_out(current, (1,))
    per_word = WORD_BITS if form == "bits" else 1
    dtype = {"float": x.dtype, "uint8": np.uint8, "bits": np.int32}[form]
    spikes, out = new((n_samples, -(-n_steps // per_word), n), dtype)
    last, last_out = new(state.shape, x.dtype)
    given = _flat(state), _flat(beta), _flat(threshold), RESETS[reset], floor, per_word, out, x[:0], last_out
    _run(_kernel_for(n), shape, False, lambda at, k: (x, (*at, n_steps, n), strides[:2], *given))
    return spikes, last


def backward(grads, current, spikes, mem, state, beta, threshold, w_rec, rule, learns: bool):
    """Gradients of current, state, beta and threshold, the last two empty unless `learns`.

    grads: of spikes, mem and last, any of them None. rule: (reset, floor, detach_reset, surrogate, slope).
    """
    n_samples, n_steps, n = shape = _steps(current)
    x, x_at = _laid_out(current, (1,))
    nothing = np.zeros(1, x.dtype), (0, 0, 0)
    (h, h_at), (g, g_at) = (nothing if t is None else _laid_out(t) for t in grads[:2])
    (grad_current, out), (carried, carried_out) = new(current.shape, x.dtype), new(state.shape, x.dtype)
    carried_out[:] = 0 if grads[2] is None else _flat(grads[2])
    reset, floor, detach, surrogate, slope = rule
    form = RESETS[reset], int(floor), int(detach), SURROGATE_NAMES.index(surrogate)
    rest = (*x_at[:2], *h_at, *g_at), _flat(beta), _flat(threshold), form, x.dtype.type(slope), out, carried_out
    before = _flat(mem), _flat(state), h, g
    cut = parts(*shape, w_rec is not None, LANES)
    sums = np.zeros((len(cut), 2 * n)) if learns else [NO_SUMS] * len(cut)
    if w_rec is None:
        _run(lif_backward, shape, False, lambda at, k: (x, *before, (*at, n_steps, n), *rest, sums[k]))
    else:
        size, fired, rest = (n_samples, n_steps, n), _flat(spikes), (rest[0], _flat(w_rec), _flat(w_rec.T), *rest[1:])
        _run(recurrent_backward, shape, True, lambda at, k: (x, fired, *before, (*at[:2], *size), *rest, sums[k]))
    if not learns:
        return grad_current, carried, beta.new_empty(0), beta.new_empty(0)
    of_beta, of_threshold = sums.sum(0).astype(x.dtype).reshape(2, n)
    return grad_current, carried, torch.from_numpy(of_beta.copy()), torch.from_numpy(of_threshold.copy())


def weigh(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`x @ weight`, `[..., n_in]` and `[n_in, n_out]`, for an x of many zeros and weights that the cache holds."""
    n_in, n_out = weight.shape
    n_rows = math.prod(x.shape[:-1])
    given, w = _flat(x), _flat(weight)
    result, out = new((*x.shape[:-1], n_out), w.dtype)
    kernel = _weigher_for(n_in, n_out)
    cut = split(n_rows, n_rows * max(n_in, n_out))
    over_parts(lambda k: kernel(given, (*cut[k], n_in, n_out), w, out), len(cut))
    return result


@cache
def _weigher_for(n_in: int, n_out: int) -> Callable:
    few = n_out <= LANES and n_in <= MOST_LOOKED_UP
    return weigh_narrow(max(1, -(-n_in // (2 * GROUP))), width_of(n_out)) if few else weigh_wide


@cache
def _kernel_for(n_neurons: int) -> Callable:
    return lif_forward_narrow(width_of(n_neurons)) if n_neurons <= LANES else lif_forward


def _run(kernel: Callable, shape, whole_rows: bool, arguments: Callable) -> None:
    cut = parts(*shape, whole_rows, LANES)
    over_parts(lambda k: kernel(*arguments(cut[k], k)), len(cut))


def _steps(current: torch.Tensor) -> tuple[int, ...]:
    """(B, T, N) of `[B, T, N]`, or of one step `[B, N]`."""
    return tuple(current.shape) if current.ndim == 3 else (current.shape[0], 1, current.shape[1])


def _flat(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy().reshape(-1)


def _laid_out(tensor: torch.Tensor, apart: tuple[int, ...] = (0, 1)) -> tuple[np.ndarray, tuple[int, ...]]:
    """A tensor's memory as a flat array, and how far apart its samples, steps and neurons are there.

    It is copied if its neurons are not as far `apart`: 1, or 0 where one number is expanded to all.
    """
    tensor = tensor.detach()
    if tensor.stride(-1) not in apart:
        tensor = tensor.contiguous()
    strides = tensor.stride()
    if tensor.is_contiguous():
        flat = tensor.numpy().reshape(-1)
    else:
        span = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, strides, strict=True))
        flat = tensor.as_strided((span,), (1,)).numpy()
    return flat, strides if len(strides) == 3 else (strides[0], 0, strides[1])
