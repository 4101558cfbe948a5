"""A chip file on the base of a shipped one: figures and sources that it gives are its own, all others the base's."""

import pytest

from nwcompile.errors import ChipError
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import KEYS

LOIHI1 = Chip.load("loihi1")


def mine(**sections) -> Chip:
    return Chip.from_dict({"name": "mine", "base": "loihi1", **sections}, "mine.toml")


def test_chip_base_alone_gives_every_figure_and_source_of_the_base():
    chip = mine()
    assert chip.name == "mine" and chip.to_dict()["name"] == "mine" and "base" not in chip.to_dict()
    assert [key for key in KEYS if chip.value(key) != LOIHI1.value(key)] == []
    given = [key for key in KEYS if LOIHI1.value(key) is not None]
    assert [key for key in given if chip.source_of(key) != LOIHI1.source_of(key)] == []


def test_chip_base_figures_are_replaced_with_their_sources():
    chip = mine(noc={"rows": 2, "buffer_flits": 4}, sources={"noc": "our board", "noc.rows": "our eyes"})
    assert (chip.noc.rows, chip.noc.buffer_flits, chip.noc.columns) == (2, 4, 8)
    assert (chip.source_of("noc.rows"), chip.source_of("noc.buffer_flits")) == ("our eyes", "our board")
    assert chip.source_of("noc.columns") == LOIHI1.source_of("noc.columns")
    assert Chip.from_dict(chip.to_dict()).hash == chip.hash


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"cost": {"visit_cycles": 3}}, 'mine.toml: cost.visit_cycles: has no source; add sources.cost or '
         'sources."cost.visit_cycles" ("assumed: <reason>" is allowed)'),
        ({"base": "lohi1"}, "mine.toml: base: unknown chip 'lohi1'; choose one of: loihi1, "),
        ({"base": ["loihi1"]}, "mine.toml: base: unknown chip "),
        ({"noc": 3}, "mine.toml: noc: expected a table of keys, got 3"),
        ({"sources": 3}, "mine.toml: sources: expected texts, like "),
        ({"sources": {"nic": "x"}}, "mine.toml: sources.nic: there is no such section or key (did you mean 'noc'?)"),
        ({"cost": {"vist_cycles": 3}}, "mine.toml: cost.vist_cycles: unknown key (did you mean 'cost.visit_cycles'?)"),
    ],
)  # fmt: skip
def test_chip_base_is_checked_like_a_whole_file(table, expected):
    with pytest.raises(ChipError) as caught:
        mine(**table) if "base" not in table else Chip.from_dict({"name": "mine", **table}, "mine.toml")
    assert str(caught.value).startswith(expected)
