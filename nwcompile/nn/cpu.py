"""The kernels of `nwcompile.kernels` on torch's tensors: whole `[B, T, N]` in, whole `[B, T, N]` out, on the CPU."""

import math
from collections.abc import Callable

import numpy as np
import torch

from nwcompile.kernels import cpu_surrogate
from nwcompile.kernels.cpu_lif import RESET_NONE, RESET_SUBTRACTION, RESET_ZERO, lif_backward, lif_forward
from nwcompile.kernels.cpu_recurrent import recurrent_backward, recurrent_forward
from nwcompile.kernels.cpu_weigh import weigh as weigh_rows
from nwcompile.kernels.simd import LANES, WORD_BITS
from nwcompile.nn.buffers import new
from nwcompile.nn.parts import MOST_PARTS, SMALLEST_PART, over_parts, parts

RESETS = {"subtraction": RESET_SUBTRACTION, "zero": RESET_ZERO, "none": RESET_NONE}


def forward(current, state, beta, threshold, w_rec, reset: str, floor: bool):
    """`spikes` and `mem` `[B, T, N]`, and the state `[1 or 2, B, N]` after the last step."""
    n_samples, n_steps, n = shape = current.shape
    spikes, mem, last = (new(size, current.dtype) for size in (shape, shape, state.shape))
    x, strides = _laid_out(current)
    out = _flat(spikes), _flat(mem), _flat(last)
    neurons = _flat(beta), _flat(threshold), RESETS[reset], floor
    if w_rec is None:
        first = _flat(state)
        _run(lif_forward, shape, False, lambda at, k: (x, (*at, n_steps, n), strides[:2], first, *neurons, 1, *out))
    else:
        last.copy_(state)
        w, size = _flat(w_rec), (n_samples, n_steps, n)
        _run(recurrent_forward, shape, True, lambda at, k: (x, (*at[:2], *size), strides[:2], w, *neurons, *out))
    return spikes, mem, last


def fire(current, state, beta, threshold, reset: str, floor: bool, form: str):
    """Spikes alone, as "float", "uint8" or "bits" (int32 `[B, ceil(T/32), N]`), and the state after the last step."""
    n_samples, n_steps, n = shape = current.shape
    per_word = WORD_BITS if form == "bits" else 1
    dtype = {"float": current.dtype, "uint8": torch.uint8, "bits": torch.int32}[form]
    spikes, last = new((n_samples, -(-n_steps // per_word), n), dtype), new(state.shape, current.dtype)
    x, strides = _laid_out(current)
    given = _flat(state), _flat(beta), _flat(threshold), RESETS[reset], floor, per_word
    out = _flat(spikes), np.empty(0, x.dtype), _flat(last)
    _run(lif_forward, shape, False, lambda at, k: (x, (*at, n_steps, n), strides[:2], *given, *out))
    return spikes, last


def backward(grads, current, spikes, mem, state, beta, threshold, w_rec, rule, learns: bool):
    """Gradients of current, state, beta and threshold, the last two empty unless `learns`.

    grads: of spikes, mem and last, any of them None. rule: (reset, floor, detach_reset, surrogate, slope).
    """
    n_samples, n_steps, n = shape = current.shape
    grad_current, carried = new(shape, current.dtype), new(state.shape, current.dtype)
    carried.zero_() if grads[2] is None else carried.copy_(grads[2])
    none = current.new_zeros(1).expand(shape)
    (x, x_at), (h, h_at), (g, g_at) = (_laid_out(none if t is None else t) for t in (current, *grads[:2]))
    reset, floor, detach, surrogate, slope = rule
    form = RESETS[reset], int(floor), int(detach), cpu_surrogate.NAMES.index(surrogate)
    strides, neurons = (*x_at[:2], *h_at, *g_at), (_flat(beta), _flat(threshold), form, x.dtype.type(slope))
    out, before = (_flat(grad_current), _flat(carried)), (_flat(mem), _flat(state), h, g)
    sums = np.zeros((len(parts(*shape, w_rec is not None, LANES)), 2 * n if learns else 0))
    rest = strides, *neurons, *out
    if w_rec is None:
        _run(lif_backward, shape, False, lambda at, k: (x, *before, (*at, n_steps, n), *rest, sums[k]))
    else:
        size, fired, rest = (n_samples, n_steps, n), _flat(spikes), (strides, _flat(w_rec), _flat(w_rec.T), *rest[1:])
        _run(recurrent_backward, shape, True, lambda at, k: (x, fired, *before, (*at[:2], *size), *rest, sums[k]))
    of_beta, of_threshold = torch.from_numpy(sums.sum(0)).to(current.dtype).chunk(2)
    return grad_current, carried, of_beta.clone(), of_threshold.clone()


def weigh(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`x @ weight`, `[..., n_in]` and `[n_in, n_out]`, for an x of many zeros and weights that the cache holds."""
    n_in, n_out = weight.shape
    out = new((*x.shape[:-1], n_out), x.dtype)
    given, n_rows = (_flat(x), _flat(weight), _flat(out)), math.prod(x.shape[:-1])

    def part(k: int, n_parts: int) -> None:
        at = n_rows * k // n_parts, n_rows * (k + 1) // n_parts, n_in, n_out
        weigh_rows(given[0], at, *given[1:])

    n_parts = max(1, min(MOST_PARTS, n_rows * max(n_in, n_out) // SMALLEST_PART))
    over_parts(lambda k: part(k, n_parts), n_parts)
    return out


def _run(kernel: Callable, shape, whole_rows: bool, arguments: Callable) -> None:
    cut = parts(*shape, whole_rows, LANES)
    over_parts(lambda k: kernel(*arguments(cut[k], k)), len(cut))


def _flat(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy().reshape(-1)


def _laid_out(tensor: torch.Tensor) -> tuple[np.ndarray, tuple[int, ...]]:
    """A tensor's memory as a flat array, and its strides; a tensor expanded from a smaller one is not copied."""
    tensor = tensor.detach()
    if tensor.stride(-1) not in (0, 1):
        tensor = tensor.contiguous()
    span = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span,), (1,)).numpy(), tensor.stride()
