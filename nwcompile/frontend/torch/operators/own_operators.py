"""Operators of nwcompile.nn in operators of torch, so that its layers may stand next to neurons written by hand."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from nwcompile.errors import ModelError
from nwcompile.nn.ops.scan import LIFNeurons, scan_loop
from nwcompile.nn.ops.surrogate import fast_sigmoid
from nwcompile.nn.ops.torch_ops import select_kernels

ERROR_CODE = "NW2307"
MOST_WEIGHTS = 1 << 27  # of all delays of a layer; they are stored one by one


def _scan(current, state, beta, threshold, w_rec, reset: str, floor: bool, *_) -> Any:
    neurons = LIFNeurons(beta, threshold, reset, fast_sigmoid, floor=floor, w_rec=w_rec)  # gradients are not recorded
    return scan_loop(current, state, neurons)


def _run_kernel(current, state, beta, threshold, w_rec, reset: str, floor: bool, *_) -> Any:
    return select_kernels(current).forward(current, state, beta, threshold, w_rec, reset, floor)


def _sum_delayed(x, taps, start, by_target: list[torch.Tensor], by_source, n_out: int, reach: int) -> torch.Tensor:
    """Return the sums of delayed synapses `[B, T, n_out]`: one product with the weights of each delay."""
    n_samples, n_steps, n_in = x.shape
    with _disable_current_modes():
        order, row, source = by_target
        target = (torch.arange(len(row) - 1).repeat_interleave(row.diff()) % n_out)[:, None]
        delays, taps = start[order].long()[:, None] + torch.arange(taps.shape[1]), taps[order]
        is_diagonal = n_in == n_out and bool((source == target[:, 0]).all())  # delays of axons
        used = delays[taps != 0].unique().tolist()
        if not is_diagonal and len(used) * n_in * n_out > MOST_WEIGHTS:
            raise ModelError(
                f"{len(used)} delays of {n_in} x {n_out} synapses are too many next to neurons written by hand; use "
                "fewer delays, or layers of nwcompile.nn only"
            )
        place = (target,) if is_diagonal else (source.long()[:, None], target)
        shape = (n_out,) if is_diagonal else (n_in, n_out)
        weights = [taps.new_zeros(shape).index_put_(place, taps * (delays == d), accumulate=True) for d in used]
    if used and used[-1] >= n_steps:
        raise ModelError(
            f"a delay of {used[-1]} steps needs an example_input of more steps than its {n_steps}", code="NW2308"
        )
    late = [torch.cat([x.new_zeros(n_samples, d, n_in), x[:, : n_steps - d]], 1) if d else x for d in used]
    sums = [part * w if is_diagonal else part @ w for part, w in zip(late, weights, strict=True)]
    return sum(sums[1:], sums[0]) if sums else x.new_zeros(n_samples, n_steps, n_out)


IN_TORCH: dict[str, Callable] = {
    "nwcompile.lif_scan.default": _scan,
    "nwcompile.spike_matmul.default": torch.matmul,
    "nwcompile.delayed_sums.default": _sum_delayed,
}
# Operators inside of a layer, run without torch's wrapper, which loads torch._dynamo for 1.3 s.
INSIDE: dict[str, Callable] = {
    "nwcompile.lif_scan.default": _run_kernel,
    "nwcompile.spike_matmul.default": lambda x, weight: select_kernels(x).spike_matmul(x, weight),
}
