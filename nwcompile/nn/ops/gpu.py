"""Launches of the Triton kernels of `nwcompile.kernels` on GPU tensors: `[B, T, N]` in, `[B, T, N]` out.

Functions, arguments and results equal those of `nn.ops.cpu`, bit for bit unless a docstring says otherwise.
A `current` in half precision stays so in memory and is computed in float32.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.errors import BackendError
from nwcompile.kernels.cores.programs.build import build_gpu_module
from nwcompile.kernels.gpu import delays, eventprop, lif, recurrent
from nwcompile.kernels.gpu import program as program_kernel
from nwcompile.nn.ops.cpu import empty_spikes, split_shape
from nwcompile.nn.ops.device import MAX_RECURRENT_NEURONS

EXACT = {"enable_fp_fusion": False}
UNIT_NUMBERS = 16  # Sizes and strides that are multiples of this allow wide loads and stores.
WARP_LANES = 32


@dataclass(frozen=True)
class Launch:
    """Launch settings of a scan: (sample, neuron) pairs per program, steps read ahead, warps of 32 lanes."""

    block: int
    ahead: int
    warps: int

    @property
    def options(self) -> dict:
        return {"BLOCK": self.block, "AHEAD": self.ahead, "num_warps": self.warps, **EXACT}


@dataclass(frozen=True)
class Backward(Launch):
    """Launch settings of a backward scan. `recomputes`: recompute membranes instead of reading them from memory."""

    recomputes: bool

    @property
    def options(self) -> dict:
        return {"RECOMPUTES": self.recomputes, **super().options}


# Launch settings by the largest number of pairs. Few pairs wait for memory: one lane each, which reads far ahead, twice
# as far backward if every scheduler has one warp (forward, 32 steps would take 8 s to compile). Many pairs keep the
# lanes busy: wide reads. Derived from the processor (132 of 4 x 32 lanes), not measured.
ONE_WARP_EACH = 132 * 4 * 32
FORWARD = ((1 << 16, Launch(32, 16, 1)), (math.inf, Launch(256, 8, 2)))
BACKWARD = (
    (ONE_WARP_EACH, Backward(32, 16, 1, True)),
    (1 << 16, Backward(32, 8, 1, True)),
    (math.inf, Backward(128, 4, 2, True)),
)
# Samples and steps per program of `kernels.gpu.delays`: four numbers per lane. Not measured.
DELAYED = {"SAMPLES": 4, "STEPS": 128, "num_warps": 4}
# Pairs per program of `kernels.gpu.eventprop`, one per lane, and steps read ahead. Not measured.
AT_SPIKES = {"BLOCK": 64, "AHEAD": 4, "num_warps": 2}
# The largest layer whose weights, twice, stay in the registers of the backward kernel; it reads those of larger ones
# again in every step.
MAX_HELD_NEURONS = 64
RECURRENT_AHEAD_STEPS = 4  # Steps of current read ahead; the weights leave no registers for more.


def forward(current, state, beta, threshold, w_rec, reset: str, floor: bool):
    """Return `spikes` and `mem` in the shape of `current`, and the state `[1 or 2, B, N]` after the last step."""
    spikes = torch.empty(current.shape, dtype=beta.dtype, device=current.device)
    mem = torch.empty_like(spikes)
    out = spikes, mem, torch.empty_like(state, memory_format=torch.contiguous_format)
    if w_rec is None:
        _launch_scan(current, state, beta, threshold, reset, floor, out)
        return out
    x = _ensure_row_layout(current)
    sizes = split_shape(current)
    given = x, *_make_contiguous(state, w_rec, beta, threshold)
    form = {"RESET": reset, "FLOOR": floor, "AHEAD": RECURRENT_AHEAD_STEPS, **_recurrent_options(sizes[2], 2048)}
    _start_kernel(recurrent.recurrent_forward, current, sizes[0], *given, *out, *sizes, *_read_strides(x), **form)
    return out


def fire(current, state, beta, threshold, reset: str, floor: bool, form: str):
    """Return spikes as "float", "uint8" or "bits" (int32 `[B, ceil(T/32), N]`), and the state after the last step."""
    n_samples, n_steps, _ = current.shape
    spikes = empty_spikes(n_samples, n_steps, beta, form)
    last = torch.empty_like(state, memory_format=torch.contiguous_format)
    _launch_scan(current, state, beta, threshold, reset, floor, (spikes, None, last))
    return spikes, last


def _launch_scan(current, state, beta, threshold, reset, floor, out) -> None:
    x = _ensure_row_layout(current)
    unit, sizes, distances = _convert_to_units(current, x)
    launch, n_programs = _choose_launch(FORWARD, current, unit)
    given = x, *_make_contiguous(state, beta, threshold)
    form = {"RESET": reset, "FLOOR": floor, "UNIT": unit, **launch}
    _start_kernel(lif.lif_forward, current, n_programs, *given, *out, *sizes, *distances, **form)


def backward(grads, current, spikes, mem, state, beta, threshold, w_rec, rule, learns: bool):
    """Return the gradients of current, state, beta and threshold; the last two are empty unless `learns`.

    grads: gradients of spikes, mem and last; each may be None. rule: (reset, floor, detach_reset, surrogate, slope).
    The gradients of beta and threshold are summed in float64, over each sample's steps from last to first, then over
    the samples, and rounded once. Every run gives the same bits, but the CPU adds in another order. "sigmoid" uses the
    exponential of the GPU.
    """
    reset, floor, detach, surrogate, slope = rule
    x = _ensure_row_layout(current)
    (h, g) = (None if t is None else _ensure_row_layout(t, (0, 1)) for t in grads[:2])
    grad_current = torch.empty_like(current, memory_format=torch.contiguous_format)
    carried = torch.zeros_like(state, memory_format=torch.contiguous_format)
    if grads[2] is not None:
        carried.copy_(grads[2])
    sums = torch.empty((2, *state.shape[1:]), dtype=torch.float64, device=state.device) if learns else None
    number = np.dtype(str(beta.dtype).removeprefix("torch.")).type
    form = {
        "RESET": reset, "FLOOR": floor, "DETACH": detach, "SURROGATE": surrogate, "SLOPE": float(number(slope)),
        "SCALED": float(number(math.pi / 2) * number(slope)), "H_EACH": _neuron_stride(h), "G_EACH": _neuron_stride(g),
    }  # fmt: skip
    before = *_make_contiguous(mem, state), h, g
    neurons = _make_contiguous(beta, threshold)
    out = grad_current, carried, sums
    if w_rec is None:
        unit, sizes, distances = _convert_to_units(current, x, h, g)
        launch, n_programs = _choose_launch(BACKWARD, current, unit)
        given = x, *before, *neurons
        form |= {"UNIT": unit, **launch}
        _start_kernel(lif.lif_backward, current, n_programs, *given, *out, *sizes, *distances, **form)
    else:
        sizes = split_shape(current)
        distances = [d for array in (x, h, g) for d in _read_strides(array)]
        given = x, spikes.contiguous(), *before, *_make_contiguous(w_rec, w_rec.T), *neurons
        form |= _recurrent_options(sizes[2], 2048 if sizes[2] <= MAX_HELD_NEURONS else 1024)
        _start_kernel(recurrent.recurrent_backward, current, sizes[0], *given, *out, *sizes, *distances, **form)
    return grad_current, carried, *_add_samples(sums, beta)


def keep_spikes(current, spikes, mem, state, beta, threshold, reset: str, floor: bool):
    """Save what `spike_adjoint` needs from a forward pass, in the order of `kernels.layers.eventprop`."""
    n_samples, n_steps, n = split_shape(current)
    x = _ensure_row_layout(current)
    first = torch.nn.functional.pad(spikes.sum(1, dtype=torch.int64).flatten().cumsum(0), (1, 0))
    words = empty_spikes(n_samples, n_steps, beta, "bits")
    clipped = torch.empty(words.shape if floor else 0, dtype=torch.int32, device=words.device)
    values = torch.zeros((3 if reset == "zero" else 2, int(first[-1])), dtype=beta.dtype, device=words.device)
    given = x, *_make_contiguous(spikes, mem, state, beta, threshold), first
    sizes = n_samples, n_steps, n, values.shape[1], *_read_strides(x)
    form = {"RESET": reset, "FLOOR": floor, **AT_SPIKES, **EXACT}
    n_programs = -(-n_samples * n // AT_SPIKES["BLOCK"])
    _start_kernel(eventprop.keep_spikes, current, n_programs, *given, words, clipped, values, *sizes, **form)
    return words, clipped, first, values


def spike_adjoint(grads, shape, kept, mem, state, beta, threshold, reset: str, floor: bool, detach: bool, learns: bool):
    """Return the same gradients as `backward`, computed with EventProp; that of beta is 0 without `mem`.

    shape: (B, T, N). kept: result of `keep_spikes`. grads: gradients of spikes, mem and last; each may be None. Sums
    are added in the order of `backward`.
    """
    n_samples, n_steps, n = shape
    words, clipped, first, values = kept
    (h, g) = (None if t is None else _ensure_row_layout(t, (0, 1)) for t in grads[:2])
    grad_current = torch.empty(shape, dtype=beta.dtype, device=beta.device)
    carried = torch.zeros_like(state, memory_format=torch.contiguous_format)
    if grads[2] is not None:
        carried.copy_(grads[2])
    sums = torch.empty((2, n_samples, n), dtype=torch.float64, device=beta.device) if learns else None
    before = (mem.contiguous() if learns and mem is not None else None), state.contiguous(), h, g
    sizes = n_samples, n_steps, n, values.shape[1], *_read_strides(h), *_read_strides(g)
    form = {"RESET": reset, "FLOOR": floor, "DETACH": detach, **AT_SPIKES, **EXACT}
    form |= {"H_EACH": _neuron_stride(h), "G_EACH": _neuron_stride(g)}
    given = words, clipped, first, values, *before, *_make_contiguous(beta, threshold)
    n_programs = -(-n_samples * n // AT_SPIKES["BLOCK"])
    _start_kernel(eventprop.spike_adjoint, beta, n_programs, *given, grad_current, carried, sums, *sizes, **form)
    return grad_current, carried, *_add_samples(sums, beta)


def _add_samples(sums: torch.Tensor | None, beta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of beta and threshold, from those of each sample; empty ones if they are not wanted."""
    if sums is None:
        return beta.new_empty(0), beta.new_empty(0)
    of_beta, of_threshold = sums.sum(1).to(beta.dtype)
    return of_beta, of_threshold.clone()


def run_program(structure: tuple, given: torch.Tensor, current: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Run a float neuron program (`NeuronProgram.structure`) over all steps and return its output, float32[B, T, N].

    given: float32[parameter, N]. current: float32[B, T, N]. state: float32[state, B, N], overwritten with the state
    after the last step.
    """
    n_samples, n_steps, n = current.shape
    x = _ensure_row_layout(current)
    sent = torch.empty(current.shape, dtype=torch.float32, device=current.device)
    nothing = sent[:0]
    launch, n_programs = _choose_launch(FORWARD, current, 1)
    inputs = x, nothing, given, nothing, nothing, nothing, state, sent, nothing, nothing
    sizes = n_samples * n, n, n_steps, 0
    strides = *_read_strides(x), 0, 0, 0, sent.stride(0), 0
    form = {"STEP": build_gpu_module(structure).step, "N_GIVEN": len(given), "N_STATES": len(state), **launch}
    form |= {"N_INPUTS": 1, "KEEPS": False, "COUNTS": False, "TOUCHED": False, "RESUMES": True}
    _start_kernel(program_kernel.scan, current, n_programs, *inputs, *sizes, *strides, **form)
    return sent


def spike_matmul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return torch's matrix product `x @ weight` of `[..., n_in]` and `[n_in, n_out]`."""
    return x @ weight


def delayed_sums(x, taps, start, row, source, n_rows: int, reach: int, is_early: bool):
    """Return the sum of every row of a list of synapses, `[B, T, n_rows]`; for the arguments see `nn.ops.delays`."""
    n_samples, n_steps, n = x.shape
    out = taps.new_empty((n_samples, n_rows, n_steps))
    n_programs = n_rows * -(-n_samples // DELAYED["SAMPLES"]) * -(-n_steps // DELAYED["STEPS"])
    if out.numel() > 0:
        given = x.transpose(1, 2).contiguous(), row, source, start, taps
        sizes = n_samples, n_steps, (len(row) - 1) // n_rows, n, n_rows
        form = {"N_TAPS": taps.shape[1], "IS_EARLY": is_early, **DELAYED, **EXACT}
        _start_kernel(delays.delayed_sums, x, n_programs, *given, out, *sizes, **form)
    return out.transpose(1, 2).contiguous()


def delayed_products(x, grad, start, row, source, n_taps: int, reach: int):
    """Return the gradient of the taps, `[synapse, n_taps]`; the CPU adds in another order."""
    n_samples, n_steps, n = x.shape
    n_rows = grad.shape[2]
    rows = torch.arange(len(row) - 1, device=row.device, dtype=torch.int32) % n_rows
    target = rows.repeat_interleave(row.diff(), output_size=len(start))
    out = x.new_empty((len(start), n_taps))
    if out.numel() > 0:
        given = *_make_contiguous(x.transpose(1, 2), grad.transpose(1, 2)), target, source, start
        sizes = n_samples, n_steps, n, n_rows
        form = {"N_TAPS": n_taps, **DELAYED, **EXACT}
        _start_kernel(delays.delayed_products, x, len(start), *given, out, *sizes, **form)
    return out


def _make_contiguous(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.contiguous() for tensor in tensors)


def _choose_launch(table, current: torch.Tensor, unit: int) -> tuple[dict, int]:
    """Choose the launch options for the pairs of `current`; return them and the number of programs.

    Without a `unit` for wide stores every pair has a lane of its own: stores of several pairs, one by one, would pass
    through shared memory in every step.
    """
    n_pairs = current.shape[0] * current.shape[-1]
    launch = next(launch for limit, launch in table if n_pairs <= limit)
    options = launch.options if unit > 1 else launch.options | {"num_warps": launch.block // WARP_LANES}
    return options, -(-n_pairs // launch.block)


def _recurrent_options(n: int, n_of_warp: int) -> dict:
    """Return the options of programs with N x N weights, `n_of_warp` per warp. Raises BackendError for too many."""
    if n > MAX_RECURRENT_NEURONS:  # registers hold no more: 64 KiB of a processor's 256
        raise BackendError(
            f"recurrent weights of {n} neurons: the GPU kernel holds those of {MAX_RECURRENT_NEURONS} at most; "
            "use nwcompile.nn.ops.scan.scan, which then runs step by step"
        )
    size = max(16, 1 << (n - 1).bit_length())
    return {"SIZE": size, "num_warps": max(1, size * size // n_of_warp), **EXACT}


def _start_kernel(kernel, current: torch.Tensor, n_programs: int, *arguments, **constants) -> None:
    """Start a kernel on the device of `current`."""
    if n_programs:
        with torch.cuda.device(current.device) if current.is_cuda else nullcontext():
            kernel[(n_programs,)](*arguments, **constants)


def _convert_to_units(current: torch.Tensor, *arrays: torch.Tensor | None):
    """Return the unit, the sizes (B, T, N in units), and the strides of each array's samples and steps in units."""
    n_samples, n_steps, n = split_shape(current)
    distances = [d for array in arrays for d in _read_strides(array)]
    unit = UNIT_NUMBERS if all(d % UNIT_NUMBERS == 0 for d in (n, *distances)) else 1
    return unit, (n_samples, n_steps, n // unit), [d // unit for d in distances]


def _read_strides(array: torch.Tensor | None) -> tuple[int, int]:
    if array is None:
        return 0, 0
    return array.stride(0), array.stride(1) if array.ndim == 3 else 0


def _neuron_stride(array: torch.Tensor | None) -> int:
    return 1 if array is None else array.stride(-1)


def _ensure_row_layout(tensor: torch.Tensor, apart: tuple[int, ...] = (1,)) -> torch.Tensor:
    """Copy the tensor unless the stride of its neurons is in `apart`. A stride of 0 is an expanded number."""
    tensor = tensor.detach()
    return tensor if tensor.stride(-1) in apart else tensor.contiguous()
