"""Annealing: the loop over temperatures and chunks of moves that every annealing search uses.

Each search has its own kernel for its moves (`propose`, the change of the cost, the move and its reverse). Random
numbers and the Metropolis rule are in `kernels/mapping/random.py`. `docs/decisions/mapping.md` explains why every
kernel has its own loop over single moves.
"""

from collections.abc import Callable, Sequence

import numpy as np

from nwcompile.threads import raise_if_canceled


def cool(
    temperatures: Sequence[float], n_moves: int, chunk_moves: int, attempt: Callable[[int, float, int], bool]
) -> None:
    """Try `n_moves` moves at each temperature, in chunks of at most `chunk_moves`.

    Kirkpatrick et al., Science 220, 1983. `attempt(i, temperature, n)` tries n moves at the i-th temperature and
    returns whether to continue.
    """
    for i, temperature in enumerate(temperatures):
        for left in range(n_moves, 0, -chunk_moves):
            raise_if_canceled()
            if not attempt(i, temperature, min(left, chunk_moves)):
                return


def uphill_mean(changes: np.ndarray) -> float:
    """Return the mean of the positive changes of the cost, int64[move]; 0 if there are none."""
    worse = changes[changes > 0]
    return float(worse.sum()) / max(len(worse), 1)
