"""The table of chip families: every folder is in it, and a chip is of one family."""

import re
from pathlib import Path

import pytest

import nwcompile
from nwcompile.errors import ChipError
from nwcompile.families import FAMILIES, MESH
from nwcompile.ir.chip import Chip
from tests.made.buses import bus_chip
from tests.made.chips import small_chip

PACKAGE = Path(nwcompile.__file__).parent


def test_every_folder_is_a_row_of_the_table():
    folders = {file.parent.name for file in (PACKAGE / "families").glob("*/__init__.py")}
    assert folders == {type(family).__module__.split(".")[-2] for family in FAMILIES}


@pytest.mark.parametrize(
    ("name", "family"),
    [("ladderbus", "SegmentedBus"), ("ranc", "MergeRouters"), ("xylo_audio3", "NeuronPool"), ("loihi1", "Family")],
)
def test_family_of_a_shipped_chip(name, family):
    assert type(Chip.load(name).family).__name__ == family


def test_family_of_other_chips():
    assert small_chip().family is MESH
    assert type(small_chip(cost__sync="neighbors").family).__name__ == "NeighborSync"


def test_a_chip_of_two_families_is_refused():
    text = (
        "small bus: cost.sync: \"neighbors\" does not go with noc.topology = 'segmented_bus': a chip is of one family; "
    )
    with pytest.raises(ChipError, match=re.escape(text) + "change one of them"):
        bus_chip(cost__sync="neighbors")
    pool = {key: 1.0 for key in Chip.load("xylo_audio3").to_dict()["pool"] if key.endswith("_cycles")}
    table = small_chip().to_dict() | {"pool": pool, "name": "both"}
    table["cost"]["sync"] = "neighbors"
    table["sources"]["pool"] = "assumed: for tests"
    with pytest.raises(ChipError, match="does not go with pool.line_cycles = 1.0: a chip is of one family; change one"):
        Chip.from_dict(table)
