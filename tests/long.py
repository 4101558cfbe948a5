"""Size of the random tests: 500 examples of each in `make test-long`, fewer in CI, and a third in `make test`."""

import os

EXAMPLES = int(os.environ.get("LONG_EXAMPLES", "500"))
IS_WHOLE = EXAMPLES >= 200  # not CI's share
IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


def n_drawn(n: int) -> int:
    """Return how many of `n` examples a random test draws: all in the long tests, a third of them in `make test`."""
    return n if IS_LONG else max(n // 3, 2)
