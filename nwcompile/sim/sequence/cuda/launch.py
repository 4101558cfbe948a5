"""Launch parameters shared by the scans over time of all neurons: block sizes and events."""

import torch

FEW_LANES = 1 << 15  # With at most this many neurons over all samples, blocks of one warp use more multiprocessors.
AHEAD_STEPS = 8  # Steps of input that are prefetched while a step is computed.


def block_of(n_lanes: int) -> int:
    """Return the lanes per program for `n_lanes` neurons over all samples."""
    return 32 if n_lanes <= FEW_LANES else 128


def given_events(
    sums: torch.Tensor, touched: torch.Tensor | None, unread: torch.Tensor
) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Return the events, or the placeholder `unread`, and the strides of both inputs for the kernels."""
    events = unread if touched is None else touched
    strides = sums.stride(0), sums.stride(1), events.stride(0), events.stride(1), int(events.shape[2] > 1)
    return events, strides
