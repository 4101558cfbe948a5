"""Synapses that delay what they pass on: their sums over whole sequences, and the surrogate that a delay is trained by.

A trained delay d is a real number of steps. A synapse then passes on not one step of its source but some in a row
(taps), whose shares depend on d, so that the loss has a gradient by d:

  "linear"    two taps, floor(d) and the one after it; with f = d - floor(d) the second has the share
              clamp((f - 1/2) / width + 1/2, 0, 1), 0 < width <= 1. With width 1 that is linear interpolation (DCLS,
              Khalfaoui-Hassani, Pellegrini, Masquelier, arXiv:2112.03740).
  "gaussian"  shares exp(-(k - d)^2 / (2 width^2)) of taps k, divided by their sum (Hammouamri, Khalfaoui-Hassani,
              Masquelier, arXiv:2306.17670, whose width shrinks while the network is trained).

With width 0 either is one tap at the nearest step (halves go up): what a chip does.
"""

import math
from dataclasses import dataclass, fields

import torch

from nwcompile.kernels.layers.delays import TILE
from nwcompile.nn.ops import torch_ops

SURROGATES = ("linear", "gaussian")
TAIL_WIDTHS = 3  # A Gaussian is followed this many widths to each side: what is beyond is 0.3 % of it.


@dataclass(frozen=True, eq=False)
class SynapseLists:
    """Synapses in the order in which the kernels take them, as sums into their targets and back to their sources.

    order: int64[synapse], which synapse each entry of a list is; row: int64[part * n + 1]; source, target:
    int32[synapse], of the entries; see `kernels.layers.delays`.
    """

    order_by_target: torch.Tensor
    row_by_target: torch.Tensor
    source: torch.Tensor
    order_by_source: torch.Tensor
    row_by_source: torch.Tensor
    target: torch.Tensor
    n_out: int

    def to(self, device: torch.device) -> "SynapseLists":
        """The same on a device."""
        tensors = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "n_out"}
        return SynapseLists(**tensors, n_out=self.n_out)


def build_synapse_lists(source: torch.Tensor, target: torch.Tensor, n_in: int, n_out: int) -> SynapseLists:
    """The lists of synapses from neuron `source[k]` to neuron `target[k]`, int64[synapse] each."""
    order, row = _sort_synapses(source, target, n_in, n_out)
    back, row_back = _sort_synapses(target, source, n_out, n_in)
    return SynapseLists(
        order_by_target=order,
        row_by_target=row,
        source=source[order].int(),
        order_by_source=back,
        row_by_source=row_back,
        target=target[back].int(),
        n_out=n_out,
    )


def _sort_synapses(source, target, n_in: int, n_out: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Order and rows of a list by parts of `TILE` sources, in a part by target, for a target by source."""
    row_of = source // TILE * n_out + target
    order = torch.argsort(row_of * n_in + source, stable=True)
    n_parts = max(1, -(-n_in // TILE))
    return order, torch.searchsorted(row_of[order], torch.arange(n_parts * n_out + 1))


def compute_taps(delay: torch.Tensor, max_delay: int, width: float, form: str) -> tuple[torch.Tensor, torch.Tensor]:
    """First tap, int32 of the shape of `delay` (steps, 0..max_delay), and the shares of all, `[*, n_taps]`."""
    if width == 0 or max_delay == 0:
        return (delay.detach() + 0.5).floor().clamp(0, max_delay).int(), torch.ones_like(delay.detach())[..., None]
    if form == "linear":
        first = delay.detach().floor().clamp(0, max_delay - 1)
        second = ((delay - first - 0.5) / width + 0.5).clamp(0, 1)
        return first.int(), torch.stack([1 - second, second], -1)
    n_taps = min(max_delay + 1, 2 * math.ceil(TAIL_WIDTHS * width) + 1)
    first = (delay.detach().round() - n_taps // 2).clamp(0, max_delay + 1 - n_taps)
    steps = first[..., None] + torch.arange(n_taps, dtype=delay.dtype, device=delay.device)
    away = ((steps - delay[..., None]) / width).abs()
    nearest = away.detach().amin(-1, keepdim=True)  # taken off, so that squares of narrow widths stay finite
    return first.int(), torch.softmax((nearest - away) * (nearest + away) / 2, -1)


def delayed_sums(x: torch.Tensor, taps: torch.Tensor, start: torch.Tensor, lists: SynapseLists, reach: int):
    """`[B, T, n_out]`: of each synapse s the sum of taps[s, j] * x[:, t - start[s] - j], added up target by target.

    x: `[B, T, n_in]`, 0 before step 0; taps: `[synapse, n_taps]`; start: int32[synapse]; none is later than `reach`.
    Differentiable by x and taps.
    """
    by_target = [lists.order_by_target, lists.row_by_target, lists.source]
    by_source = [lists.order_by_source, lists.row_by_source, lists.target]
    return torch_ops.delayed_sums(x, taps, start, by_target, by_source, lists.n_out, reach)
