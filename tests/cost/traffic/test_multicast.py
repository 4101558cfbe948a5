"""Sources that share a tree, against sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.ir.flat import csr_offset
from nwcompile.kernels.mapping import traffic


@given(seed=st.integers(0, 10**6), n=st.integers(0, 60))
def test_same_destinations_numbers_sources_by_core_and_destinations(seed, n):
    rng = np.random.default_rng(seed)
    rows = [np.flatnonzero(rng.random(3) < 0.5) for _ in range(n)]
    home = rng.integers(-1, 2, n).astype(np.int32)
    core = np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.int32)
    group = np.full(n, -1)
    first = traffic.same_destinations(csr_offset(np.array([len(row) for row in rows], np.int64)), core, home, group)
    number: dict[tuple, int] = {}
    expected = []
    for row, at in zip(rows, home.tolist(), strict=True):
        known = number.setdefault((at, *row.tolist()), len(number)) if at >= 0 and len(row) else -1
        expected.append(known)
    assert group.tolist() == expected
    assert first.tolist() == [expected.index(k) for k in range(len(number))]
