"""Launches of the Numba kernels of `nwcompile.kernels` on CPU tensors: `[B, T, N]` in, `[B, T, N]` out.

The memory of large results is reused. A fresh block of memory costs one page fault per page. For a large tensor that
takes longer than the scan that fills it. Large results therefore get their memory from NumPy, in huge pages if the
system has them. When the last tensor on a block is gone, the block returns to a store. The store is emptied when it
would exceed `STORE_BYTES`.
"""

import math
import weakref
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.kernels.cores.programs.build import build_module
from nwcompile.kernels.layers import delays, eventprop
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
from nwcompile.kernels.layers.simd_code import LINE_BYTES
from nwcompile.kernels.layers.spike_matmul import GROUP_INPUTS, MAX_LOOKED_UP_INPUTS, spike_matmul_narrow
from nwcompile.kernels.layers.spike_matmul import spike_matmul as spike_matmul_wide
from nwcompile.kernels.layers.surrogate import NAMES as SURROGATE_NAMES
from nwcompile.nn.ops.threads import Block, run_on_threads, split_blocks, split_ranges

MAX_COUNTED = 1 << 24  # float32 counts exactly up to here, and is faster than a wider type.
RESETS = {"subtraction": RESET_SUBTRACTION, "zero": RESET_ZERO, "none": RESET_NONE}
LARGE_BYTES = 1 << 18  # Below this size a fresh block costs less than a search of the store.
PAGED_BYTES = 1 << 20  # Huge pages pay off from this size on.
HUGE_BYTES = 1 << 22  # NumPy requests huge pages from this size on; the unused rest of a block is never touched.
STORE_BYTES = 1 << 28  # The most memory that the store keeps from other programs.
_store: dict[int, list[np.ndarray]] = {}


def forward(current, state, beta, threshold, w_rec, reset: str, floor: bool):
    """Return `spikes` and `mem` in the shape of `current`, and the state `[1 or 2, B, N]` after the last step."""
    n_samples, n_steps, n = shape = split_shape(current)
    x, (x_sample, x_step, _) = _as_strided(current, (1,))
    strides = x_sample, x_step
    spikes, spikes_out = allocate_tensor(current.shape, x.dtype)
    mem, mem_out = allocate_tensor(current.shape, x.dtype)
    last, last_out = allocate_tensor(state.shape, x.dtype)
    neurons = _as_flat(beta), _as_flat(threshold), RESETS[reset], floor
    out = spikes_out, mem_out, last_out
    if w_rec is None:
        first = _as_flat(state)
        kernel = _select_lif_kernel(n)
        _run_blocks(kernel, shape, False, lambda block, k: (x, (*block, n_steps, n), strides, first, *neurons, 1, *out))
    else:
        last.copy_(state)
        weights = _as_flat(w_rec)

        def block_arguments(block: Block, k: int) -> tuple:
            return x, (block.first_sample, block.last_sample, *shape), strides, weights, *neurons, *out

        _run_blocks(recurrent_forward, shape, True, block_arguments)
    return spikes, mem, last


def fire(current, state, beta, threshold, reset: str, floor: bool, form: str):
    """Return spikes as "float", "uint8" or "bits" (int32 `[B, ceil(T/32), N]`), and the state after the last step."""
    n_samples, n_steps, n = shape = split_shape(current)
    x, (x_sample, x_step, _) = _as_strided(current, (1,))
    strides = x_sample, x_step
    per_word = WORD_BITS if form == "bits" else 1
    dtype = {"float": x.dtype, "uint8": np.uint8, "bits": np.int32}[form]
    spikes, out = allocate_tensor((n_samples, -(-n_steps // per_word), n), dtype)
    last, last_out = allocate_tensor(state.shape, x.dtype)
    given = _as_flat(state), _as_flat(beta), _as_flat(threshold), RESETS[reset], floor, per_word, out, x[:0], last_out
    _run_blocks(_select_lif_kernel(n), shape, False, lambda block, k: (x, (*block, n_steps, n), strides, *given))
    return spikes, last


def backward(grads, current, spikes, mem, state, beta, threshold, w_rec, rule, learns: bool):
    """Return the gradients of current, state, beta and threshold; the last two are empty unless `learns`.

    grads: gradients of the spikes, the membranes and the last membrane; each may be None.
    rule: (reset, floor, detach_reset, surrogate, slope).
    """
    n_samples, n_steps, n = shape = split_shape(current)
    x, (x_sample, x_step, _) = _as_strided(current, (1,))
    nothing = np.zeros(1, x.dtype), (0, 0, 0)
    (h, h_at), (g, g_at) = (nothing if t is None else _as_strided(t) for t in grads[:2])
    grad_current, grad_out = allocate_tensor(current.shape, x.dtype)
    carried, carried_out = allocate_tensor(state.shape, x.dtype)
    carried_out[:] = 0 if grads[2] is None else _as_flat(grads[2])
    reset, floor, detach, surrogate, slope = rule
    form = RESETS[reset], int(floor), int(detach), SURROGATE_NAMES.index(surrogate)
    strides = x_sample, x_step, *h_at, *g_at
    neurons = _as_flat(beta), _as_flat(threshold)
    rounded_slope = x.dtype.type(slope)
    before = _as_flat(mem), _as_flat(state), (h, g)
    n_blocks = len(split_blocks(*shape, w_rec is not None, LANES))
    sums = np.zeros((n_blocks, 2 * n if learns else 0))
    if w_rec is None:

        def block_arguments(block: Block, k: int) -> tuple:
            outputs = grad_out, carried_out, sums[k]
            return x, *before, (*block, n_steps, n), strides, neurons, form, rounded_slope, outputs

        _run_blocks(lif_backward, shape, False, block_arguments)
    else:
        fired = _as_flat(spikes)
        weights = _as_flat(w_rec), _as_flat(w_rec.T)

        def block_arguments(block: Block, k: int) -> tuple:
            size = block.first_sample, block.last_sample, *shape
            outputs = grad_out, carried_out, sums[k]
            return x, fired, *before, size, strides, weights, neurons, form, rounded_slope, outputs

        _run_blocks(recurrent_backward, shape, True, block_arguments)
    return grad_current, carried, *_add_blocks(sums, beta)


def keep_spikes(current, spikes, mem, state, beta, threshold, reset: str, floor: bool):
    """Save what `spike_adjoint` needs from a forward pass, in the order of `kernels.layers.eventprop`."""
    n_samples, n_steps, n = shape = split_shape(current)
    x, (x_sample, x_step, _) = _as_strided(current, (1,))
    first = torch.zeros(n_samples * n + 1, dtype=torch.int64)
    wide = torch.float64 if n_steps > MAX_COUNTED else spikes.dtype
    torch.cumsum(spikes.sum(1, dtype=wide).long().flatten(), 0, out=first[1:])
    words = torch.zeros((n_samples, -(-n_steps // WORD_BITS), n), dtype=torch.int32)
    clipped = torch.zeros(words.shape if floor else 0, dtype=torch.int32)
    values = torch.zeros((3 if reset == "zero" else 2, int(first[-1])), dtype=beta.dtype)
    before = _as_flat(spikes), _as_flat(mem), _as_flat(state)
    neurons = _as_flat(beta), _as_flat(threshold)
    start, form = _as_flat(first), (RESETS[reset], floor)
    out = _as_flat(words).view(np.uint32), _as_flat(clipped).view(np.uint32), _as_flat(values)

    def block_arguments(block: Block, k: int) -> tuple:
        return x, *before, (*block, n_steps, n), (x_sample, x_step), neurons, form, start, out

    _run_blocks(eventprop.keep_spikes, shape, False, block_arguments)
    return words, clipped, first, values


def spike_adjoint(grads, shape, kept, mem, state, beta, threshold, reset: str, floor: bool, detach: bool, learns: bool):
    """Return the same gradients as `backward`, computed with EventProp; that of beta is 0 without `mem`.

    shape: (B, T, N). kept: result of `keep_spikes`. grads: gradients of the spikes, the membranes and the last
    membrane; each may be None.
    """
    dtype = _as_flat(beta).dtype
    n_samples, n_steps, n = shape
    nothing = np.zeros(1, dtype), (0, 0, 0)
    (h, h_at), (g, g_at) = (nothing if t is None else _as_strided(t) for t in grads[:2])
    grad_current, grad_out = allocate_tensor(shape, dtype)
    carried, carried_out = allocate_tensor(state.shape, dtype)
    carried_out[:] = 0 if grads[2] is None else _as_flat(grads[2])
    words, clipped, first, values = (_as_flat(tensor) for tensor in kept)
    at_spikes = words.view(np.uint32), clipped.view(np.uint32), first, values
    sums = np.zeros((len(split_blocks(n_samples, n_steps, n, False, LANES)), 2 * n if learns else 0))
    before = np.zeros(0, dtype) if mem is None or not learns else _as_flat(mem), _as_flat(state)
    neurons = _as_flat(beta), _as_flat(threshold)
    form = RESETS[reset], floor, detach

    def block_arguments(block: Block, k: int) -> tuple:
        outputs = grad_out, carried_out, sums[k]
        return at_spikes, *before, (h, g), (*block, n_steps, n), (*h_at, *g_at), neurons, form, outputs

    _run_blocks(eventprop.spike_adjoint, shape, False, block_arguments)
    return grad_current, carried, *_add_blocks(sums, beta)


def _add_blocks(sums: np.ndarray, beta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of beta and threshold, from those of each block; empty ones if they are not wanted."""
    of_beta, of_threshold = torch.from_numpy(sums.sum(0)).to(beta.dtype).view(2, sums.shape[1] // 2)
    return of_beta.clone(), of_threshold.clone()


def run_program(structure: tuple, given: torch.Tensor, current: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Run a float neuron program (`NeuronProgram.structure`) over all steps and return its output, float32[B, T, N].

    given: float32[parameter, N]. current: float32[B, T, N]. state: float32[state, B, N], overwritten with the state
    after the last step.
    """
    sent, out = allocate_tensor(current.shape, np.float32)
    numbers, drive, states = (t.numpy().reshape(-1) for t in (given, current, state))
    scan, samples = build_module(structure).scan, split_ranges(len(current), current.numel())

    def run_range(k: int) -> None:
        scan(numbers, drive, out, states, (*samples[k], *current.shape))

    run_on_threads(run_range, len(samples))
    return sent


def spike_matmul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return `x @ weight` of `[..., n_in]` and `[n_in, n_out]`, for a sparse x and weights that fit into the cache."""
    n_in, n_out = weight.shape
    n_rows = math.prod(x.shape[:-1])
    given = _as_flat(x)
    weights = _as_flat(weight)
    result, out = allocate_tensor((*x.shape[:-1], n_out), weights.dtype)
    kernel = _select_matmul_kernel(n_in, n_out)
    rows = split_ranges(n_rows, n_rows * max(n_in, n_out))
    run_on_threads(lambda k: kernel(given, (*rows[k], n_in, n_out), weights, out), len(rows))
    return result


def delayed_sums(x, taps, start, row, source, n_rows: int, reach: int, is_early: bool):
    """Return the sum of every row of a list of synapses, `[B, T, n_rows]`; for the arguments see `nn.ops.delays`."""
    n_samples, n_steps, n = x.shape
    given, kernel, samples = _plan_sums(x, delays.delayed_sums, start, reach)
    flat, starts, rows = _as_flat(taps), _as_flat(start), _as_flat(row)
    sources = _as_flat(source)
    result, out = allocate_tensor((n_samples, n_steps, n_rows), given.dtype)
    size = n_steps, n, n_rows, taps.shape[1], reach, is_early
    run_on_threads(lambda k: kernel(given, (*samples[k], *size), rows, sources, starts, flat, out), len(samples))
    return result


def delayed_products(x, grad, start, row, source, n_taps: int, reach: int):
    """Return the gradient of the taps, `[synapse, n_taps]`, from the gradient of the sums, `[B, T, n_rows]`."""
    _, n_steps, n = x.shape
    given, kernel, samples = _plan_sums(x, delays.delayed_products, start, reach)
    back, starts, rows = _as_flat(grad), _as_flat(start), _as_flat(row)
    sources = _as_flat(source)
    sums = np.zeros((len(samples), len(start) * n_taps))
    size = n_steps, n, grad.shape[2], n_taps, reach, False
    run_on_threads(lambda k: kernel(given, back, (*samples[k], *size), rows, sources, starts, sums[k]), len(samples))
    return torch.from_numpy(sums.sum(0).astype(given.dtype)).view(-1, n_taps)


def _plan_sums(x: torch.Tensor, kernel: Callable, start: torch.Tensor, reach: int) -> tuple[np.ndarray, Callable, list]:
    """Return x as a flat array, the kernel for its number of samples, and the ranges of samples for threads.

    Raises ModelError for delays out of range, which would make the kernel read out of bounds; only NaN delays are.
    """
    if start.numel() and not 0 <= int(start.min()) <= int(start.max()) <= reach:
        raise ModelError(
            f"delays are {int(start.min())} to {int(start.max())} steps, must be numbers within 0..{reach}"
        )
    lanes = width_of(min(max(len(x), 1), delays.WIDEST))
    return _as_flat(x), kernel(lanes), split_ranges(len(x), len(x) * x.shape[1] * max(len(start), x.shape[2]), lanes)


@cache
def _select_matmul_kernel(n_in: int, n_out: int) -> Callable:
    few = n_out <= LANES and n_in <= MAX_LOOKED_UP_INPUTS
    return spike_matmul_narrow(max(1, -(-n_in // (2 * GROUP_INPUTS))), width_of(n_out)) if few else spike_matmul_wide


@cache
def _select_lif_kernel(n_neurons: int) -> Callable:
    return lif_forward_narrow(width_of(n_neurons)) if n_neurons <= LANES else lif_forward


def _run_blocks(kernel: Callable, shape: tuple[int, int, int], whole_rows: bool, arguments: Callable) -> None:
    cut = split_blocks(*shape, whole_rows, LANES)
    run_on_threads(lambda k: kernel(*arguments(cut[k], k)), len(cut))


def empty_spikes(n_samples: int, n_steps: int, beta: torch.Tensor, form: str) -> torch.Tensor:
    """Return an uninitialized tensor for spikes as "float", "uint8" or "bits", on the device of `beta`."""
    dtype = {"bits": torch.int32, "uint8": torch.uint8, "float": beta.dtype}[form]
    n_rows = (n_steps + WORD_BITS - 1) // WORD_BITS if form == "bits" else n_steps
    return beta.new_empty((n_samples, n_rows, beta.shape[0]), dtype=dtype)


def split_shape(current: torch.Tensor) -> tuple[int, int, int]:
    """Return (B, T, N) of `[B, T, N]`, or of one step `[B, N]`."""
    if current.ndim == 2:
        return current.shape[0], 1, current.shape[1]
    n_samples, n_steps, n = current.shape
    return n_samples, n_steps, n


def _as_flat(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy().reshape(-1)


def _as_strided(tensor: torch.Tensor, apart: tuple[int, ...] = (0, 1)) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return a tensor's memory as a flat array, and the strides of samples, steps and neurons.

    The tensor is copied unless the stride of its neurons is in `apart`. A stride of 0 is an expanded number.
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


def allocate_tensor(shape, dtype) -> tuple[torch.Tensor, np.ndarray]:
    """Allocate an uninitialized CPU tensor of a NumPy dtype; return it and a flat array on the same memory."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < LARGE_BYTES:
        array = np.empty(shape, dtype)
        return torch.from_numpy(array), array.reshape(-1)
    step = 1 << max(0, n_bytes.bit_length() - 4)  # sizes that differ by less than an eighth share blocks
    size = -(-n_bytes // step) * step
    try:
        block = _store.get(size, []).pop()
    except IndexError:
        block = np.empty(max(size + LINE_BYTES, HUGE_BYTES if size >= PAGED_BYTES else 0), np.uint8)
    start = -block.ctypes.data % LINE_BYTES
    used = block[start : start + n_bytes].view(dtype)
    tensor = torch.from_numpy(used)
    weakref.finalize(used, _give_back, size, block).atexit = False
    return tensor.view(shape), used


def _give_back(size: int, block: np.ndarray) -> None:
    if size + sum(key * len(blocks) for key, blocks in list(_store.items())) > STORE_BYTES:
        _store.clear()
    if size <= STORE_BYTES:
        _store.setdefault(size, []).append(block)
