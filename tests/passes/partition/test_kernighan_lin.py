"""Kernighan-Lin: what it says it saved is what the cut lost, and parts keep their size."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.kernels.mapping import kernighan_lin as kernels
from nwcompile.passes.partition.baselines import _initial_slices


def random_graph(seed: int, n: int):
    """CSR of a random graph with weights 1..9."""
    rng = np.random.default_rng(seed)
    matrix = np.triu(rng.integers(0, 10, (n, n)) * (rng.random((n, n)) < 0.4), 1)
    matrix = matrix + matrix.T
    rows, other = np.nonzero(matrix)
    start = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int32)
    return matrix, (start, other.astype(np.int32), matrix[rows, other].astype(np.int32))


@given(seed=st.integers(0, 10**6), n=st.integers(4, 24))
def test_refined_pair_saves_what_it_says_and_swaps_equals_only(seed, n):
    rng = np.random.default_rng(seed)
    matrix, edges = random_graph(seed, n)
    size = rng.integers(1, 3, n).astype(np.int32)
    part = rng.integers(-1, 3, n).astype(np.int32)
    part[:2] = 0, 1
    before = part.copy()
    table = kernels.traffic_between(*edges, part, 3)
    cut = matrix[part[:, None] != part].sum() // 2
    assert table[0, 1] == matrix[np.ix_(part == 0, part == 1)].sum()
    members = [np.flatnonzero(part == p) for p in (0, 1)]
    scratch = np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, np.int64)
    saved = kernels.refine_pair(*edges, size, part, np.concatenate(members), len(members[0]), *scratch)
    assert saved >= 0
    assert matrix[part[:, None] != part].sum() // 2 == cut - saved
    for p in (0, 1):
        assert sorted(size[part == p]) == sorted(size[before == p])
    assert (part[before >= 2] == 2).all() and (part[before < 0] == -1).all()
    assert not any(a.any() for a in scratch[1:])


def test_slices_are_in_proportion_to_what_parts_hold():
    assert _initial_slices(np.array([0, 1, 1, 1, 1, 0]), np.array([30, 10])).tolist() == [-1, 0, 0, 0, 1, -1]
    assert _initial_slices(np.full(9, 2), np.array([5, 5, 5])).tolist() == [0] * 3 + [1] * 3 + [2] * 3
