"""Sums over delayed synapses for whole sequences, and the surrogate by which a delay is trained.

A trained delay d is a real number of steps. The synapse then reads several consecutive steps of its source (taps).
The shares of the taps depend on d, so d gets a gradient:

  "linear"    Two taps, floor(d) and the next step. With f = d - floor(d) the second has the share
              clamp((f - 1/2) / width + 1/2, 0, 1), 0 < width <= 1. Width 1 is linear interpolation (DCLS,
              Khalfaoui-Hassani, Pellegrini, Masquelier, arXiv:2112.03740).
  "gaussian"  Tap k has the share exp(-(k - d)^2 / (2 width^2)), divided by the sum of all shares (Hammouamri,
              Khalfaoui-Hassani, Masquelier, arXiv:2306.17670). There the width shrinks during training.

With width 0 both are one tap at the nearest step, as on a chip; halves round up.
"""

import math
from dataclasses import dataclass, fields

import torch

from nwcompile.kernels.layers.delays import TILE
from nwcompile.nn.ops import torch_ops

SURROGATES = ("linear", "gaussian")
TAIL_WIDTHS = 3  # A Gaussian is cut off this many widths from its centre; 0.3 % of it lies beyond.


@dataclass(frozen=True, eq=False)
class SynapseLists:
    """Synapses in the kernels' order: by target for the forward sums, by source for the gradients.

    order: int64[synapse], the synapse of each list entry. row: int64[part * n + 1]. source, target: int32[synapse] of
    the entries. See `kernels.layers.delays`.
    """

    order_by_target: torch.Tensor
    row_by_target: torch.Tensor
    source: torch.Tensor
    order_by_source: torch.Tensor
    row_by_source: torch.Tensor
    target: torch.Tensor
    n_out: int

    def to(self, device: torch.device) -> "SynapseLists":
        """Copy the lists to a device."""
        tensors = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "n_out"}
        return SynapseLists(**tensors, n_out=self.n_out)


def build_synapse_lists(source: torch.Tensor, target: torch.Tensor, n_in: int, n_out: int) -> SynapseLists:
    """Build the lists of the synapses from neuron `source[k]` to neuron `target[k]`, int64[synapse] each."""
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
    """Sort synapses by parts of `TILE` sources, then target, then source; return the order and the row starts."""
    row_of = source // TILE * n_out + target
    order = torch.argsort(row_of * n_in + source, stable=True)
    n_parts = max(1, -(-n_in // TILE))
    return order, torch.searchsorted(row_of[order], torch.arange(n_parts * n_out + 1))


def compute_taps(delay: torch.Tensor, max_delay: int, width: float, form: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first tap, int32 shaped as `delay` (steps, 0..max_delay), and the taps' shares, `[*, n_taps]`."""
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
    nearest = away.detach().amin(-1, keepdim=True)  # subtracted to keep the squares finite for narrow widths
    return first.int(), torch.softmax((nearest - away) * (nearest + away) / 2, -1)


def delayed_sums(x: torch.Tensor, taps: torch.Tensor, start: torch.Tensor, lists: SynapseLists, reach: int):
    """Sum taps[s, j] * x[:, t - start[s] - j] over the synapses s of each target and their taps j: `[B, T, n_out]`.

    x: `[B, T, n_in]`, 0 before step 0. taps: `[synapse, n_taps]`. start: int32[synapse]. reach: the longest delay of
    any tap. Differentiable in x and taps.
    """
    by_target = [lists.order_by_target, lists.row_by_target, lists.source]
    by_source = [lists.order_by_source, lists.row_by_source, lists.target]
    return torch_ops.delayed_sums(x, taps, start, by_target, by_source, lists.n_out, reach)
