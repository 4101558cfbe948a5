"""Argument types: values that match an annotation, and errors inside a checked function."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nwcompile.argument_types import checked, has_type
from nwcompile.errors import NotEnoughMemoryError


@pytest.mark.parametrize(
    "kind, values, others",
    [
        (int, [0, np.int8(3), (1 << 63) - 1, -(1 << 63)], [True, 2.0, "2", 1 << 63, -(1 << 63) - 1]),
        (float, [1, 0.5, np.float32(2), float("nan")], [True, "1", 1j, 10**400]),
        (bool, [True, np.bool_(False)], [0, 1, None]),
        (tuple[int, int], [(1, 2), [1, 2]], [(1,), (1, 2, 3), (1, 2.0), 1, "12"]),
        (tuple[int, ...], [(), (1,), [1, 2, 3]], [(1, None), {1: 2}]),
        (str | Sequence[str], ["a", ["a", "b"]], [["a", 1], 1]),
        (Path | str, ["a", Path("a")], ["a\0", b"a", 1]),
        (dict[str, int] | None, [{}, {"a": 1}, None], [{"a": 1.5}, {1: 1}, ["a"]]),
    ],
)
def test_values_are_told_from_those_of_another_type(kind, values, others):
    assert all(has_type(value, kind) for value in values)
    assert not any(has_type(value, kind) for value in others)


@pytest.mark.parametrize(
    "raised, text",
    [
        (MemoryError(), "fill: this needs more memory than there is; use smaller sizes"),
        (NotEnoughMemoryError("needs 3 GiB of 2 GiB"), "needs 3 GiB of 2 GiB"),
    ],
)
def test_an_allocation_that_fails_is_refused_unless_a_sentence_says_more(raised, text):
    @checked()
    def fill():
        raise raised

    with pytest.raises(NotEnoughMemoryError) as error:
        fill()
    assert str(error.value).endswith(text)
