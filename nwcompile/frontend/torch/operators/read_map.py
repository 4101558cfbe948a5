"""Read a linear map, whatever its name, from the results on chosen inputs."""

from collections.abc import Callable, Iterator
from math import prod
from typing import NamedTuple

import torch

from nwcompile.frontend.torch.operations import UnfollowableError

ERROR_CODE = "NW2307"
MOST_PROBED = 1 << 24  # entries of a map that is found by trying each input
LEAST_RESULT = 1 << 8  # entries for which every trial counts at least
SCALES = (1e-4, 1e4)  # of drawn inputs: a function that is linear only nearby is not taken
EQUAL = 1e-6  # relative to the largest result: sums in another order round otherwise


class LinearMap(NamedTuple):
    """`weight[i]` from input `pre[i]` to result `post[i]`, all flat; `shift`: the result of zeros."""

    pre: torch.Tensor
    post: torch.Tensor
    weight: torch.Tensor
    shift: torch.Tensor


def read_linear_map(run: Callable, before: tuple[int, ...], after: tuple[int, ...]) -> LinearMap | None:
    """Return what `run` computes of flat inputs of shape `before`; None if that is not linear.

    The map moves entries, does the same to every channel, or is a matrix. It must explain the results on drawn inputs.
    Raises UnfollowableError if it is too large.
    """
    n = prod(before)
    shift = run(torch.zeros(n, dtype=torch.float64))
    drawn = torch.randn(3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn[2] = drawn[0] - 3 * drawn[1]
    wanted = torch.stack([run(row) - shift for row in drawn])
    sums = wanted[0] - 3 * wanted[1]
    scaled = [(run(scale * drawn[2]) - shift) / scale for scale in SCALES]
    if not all(_are_equal(given, sums) for given in (wanted[2], *scaled)):
        return None
    for pre, post, weight in _read_entries(lambda row: run(row) - shift, before, after):
        if _are_equal(torch.zeros_like(wanted).index_add(1, post, drawn[:, pre] * weight), wanted):
            return LinearMap(pre, post, weight, shift)
    return None


def _read_entries(run: Callable, before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple]:
    """Yield what the linear map `run` of flat inputs may be: moved entries, a matrix for every channel, a matrix."""
    n, n_results = prod(before), prod(after)
    place = run(torch.arange(1, n + 1, dtype=torch.float64)).round().long()
    post = torch.nonzero((place > 0) & (place <= n))[:, 0]
    yield place[post] - 1, post, torch.ones(len(post), dtype=torch.float64)
    for n_channels in {prod(before[:2]) if len(before) > 2 and before[:2] == after[:2] else 1: 0, 1: 0}:
        n_inner, n_outer = n // n_channels, n_results // n_channels
        if n_inner * max(n_outer, LEAST_RESULT) > MOST_PROBED:
            size = f"{list(before)} to {list(after)}, too large for a list of weights"
            raise UnfollowableError(f"which maps {size}; use a convolution, a pooling or a Linear")
        rows: list[torch.Tensor] = []
        for i in range(0, n_inner, n_channels):  # each channel has a 1 at another place
            k = torch.arange(min(n_channels, n_inner - i))
            ones = torch.zeros(n_channels, n_inner, dtype=torch.float64)
            ones[k, i + k] = 1
            rows.extend(row.to_sparse() for row in run(ones.ravel()).reshape(n_channels, n_outer)[: len(k)])
        matrix = torch.stack(rows).coalesce()
        (pre, post), weight = matrix.indices(), matrix.values()
        channel = torch.arange(n_channels)[:, None]
        yield (channel * n_inner + pre).ravel(), (channel * n_outer + post).ravel(), weight.repeat(n_channels)


def _are_equal(given: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool(((given - wanted).abs() <= EQUAL * wanted.abs().max().clamp(min=1e-30)).all())
