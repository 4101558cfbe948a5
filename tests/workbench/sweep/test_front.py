"""The front of a table against the definition, pair by pair."""

import numpy as np
import pytest

from nwcompile.workbench.sweep.sweep import pareto_front


def by_hand(rows: list[dict], minimize, maximize) -> list[int]:
    def beats(a, b):
        no_worse = all(a[n] <= b[n] for n in minimize) and all(a[n] >= b[n] for n in maximize)
        return no_worse and any(a[n] != b[n] for n in (*minimize, *maximize))

    known = [i for i, row in enumerate(rows) if None not in row.values()]
    return [i for i in known if not any(beats(rows[j], rows[i]) for j in known)]


@pytest.mark.parametrize("seed", range(20))
def test_front_is_what_no_row_beats(seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 6, (40, 3)).tolist()
    rows = [{"a": a, "b": b, "c": None if rng.random() < 0.1 else c} for a, b, c in table]
    for minimize, maximize in ((("a", "b"), ()), (("a",), ("c",)), (("a", "b"), ("c",)), ((), ("b",))):
        cut = [{name: row[name] for name in (*minimize, *maximize)} for row in rows]
        assert pareto_front(cut, minimize, maximize) == by_hand(cut, minimize, maximize)


def test_front_of_nothing_is_empty():
    assert (
        pareto_front([], ("a",), ()) == []
        and pareto_front([{"a": None}], ("a",), ()) == []
        and pareto_front([{"a": 1}], (), ()) == []
    )
