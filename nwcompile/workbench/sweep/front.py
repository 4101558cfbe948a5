"""Front: the Pareto front of a table, the rows that no other row dominates."""

import numpy as np

LEAST = ("step_us", "sample_nj", "n_cores_used")
LARGEST = ("accuracy",)


def pareto_front(rows: list[dict], minimize: tuple[str, ...], maximize: tuple[str, ...]) -> list[int]:
    """Indices of the rows on the Pareto front; equal rows all stay.

    Rows that lack one of the figures are left out.
    """
    names = (*minimize, *maximize)
    known = [i for i, row in enumerate(rows) if all(row.get(name) is not None for name in names)]
    if not known or not names:
        return []
    sign = np.array([1.0] * len(minimize) + [-1.0] * len(maximize))
    costs = np.array([[float(rows[i][name]) for name in names] for i in known]) * sign
    left, best = np.lexsort(costs.T[::-1]), []  # A row that dominates another comes before it.
    while len(left):
        first = costs[left[0]]
        equal = (costs[left] == first).all(1)
        best += left[equal].tolist()
        left = left[(costs[left] < first).any(1)]
    return sorted(known[i] for i in best)
