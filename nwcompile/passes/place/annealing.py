"""Annealing: how every search that anneals goes through its temperatures, in chunks of moves, and when it ends.

What a move is, what it changes and how it is taken back is the search's own kernel (`propose`, the change of the cost,
the move itself and its reverse); random numbers and Metropolis's rule are those of `kernels/mapping/random.py`. Why the
loop over single moves stands in every kernel: `docs/decisions/mapping.md`.
"""

from collections.abc import Callable, Sequence

import numpy as np

from nwcompile.threads import raise_if_canceled


def cool(
    temperatures: Sequence[float], n_moves: int, chunk_moves: int, attempt: Callable[[int, float, int], bool]
) -> None:
    """Try `n_moves` moves at each temperature, in chunks of at most `chunk_moves`.

    Kirkpatrick et al., Science 220, 1983. `attempt(i, temperature, n)` tries n moves at the i-th temperature and tells
    whether to go on.
    """
    for i, temperature in enumerate(temperatures):
        for left in range(n_moves, 0, -chunk_moves):
            raise_if_canceled()
            if not attempt(i, temperature, min(left, chunk_moves)):
                return


def uphill_mean(changes: np.ndarray) -> float:
    """Mean of those of the changes of the cost, int64[move], that make it worse; 0 if none does."""
    worse = changes[changes > 0]
    return float(worse.sum()) / max(len(worse), 1)
