"""How the scans over time are launched, whatever the neurons: sizes, and where their events lie."""

import torch

FEW_LANES = 1 << 15  # With fewer neurons over all samples, blocks of one warp reach more multiprocessors.
AHEAD_STEPS = 8  # So many steps of input are under way while a step is computed.


def block_of(n_lanes: int) -> int:
    """Lanes of a program."""
    return 32 if n_lanes <= FEW_LANES else 128


def given_events(
    sums: torch.Tensor, touched: torch.Tensor | None, unread: torch.Tensor
) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Events, or what stands in for them unread, and the strides of both inputs as the kernels take them."""
    events = unread if touched is None else touched
    strides = sums.stride(0), sums.stride(1), events.stride(0), events.stride(1), int(events.shape[2] > 1)
    return events, strides
