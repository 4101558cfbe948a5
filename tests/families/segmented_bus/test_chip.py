"""A segmented bus in a chip file: what is refused and why, which links there are, what a shipped one holds."""

import numpy as np
import pytest

from nwcompile.cost.time.work import link_name
from nwcompile.errors import ChipError
from nwcompile.families.segmented_bus.chip import MESH_KEYS, count_lanes, list_transfer_links, slot_cycles
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import Noc
from tests.made.buses import bus_chip
from tests.made.chips import small_chip


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"noc__rows": 2}, "noc.rows: 2 on a segmented bus, which has 1 row; raise noc.columns instead"),
        ({"noc__lanes": None}, "noc.lanes: missing key; a segmented bus needs it"),
        ({"noc__lanes": 0}, "noc.lanes: 0 must be above 0"),
        ({"noc__lanes": 300}, "noc.lanes: 300 is above the largest supported, 256"),
        ({"noc__columns": 600}, "noc.columns: 1200 cores on a segmented bus are above the largest supported, 1024"),
        ({"noc__slot_cycles": 14}, "noc.slot_cycles: 14 is too short for a transfer from end to end, which takes 15; "
                                   "raise it, or leave it out"),
        ({"noc__virtual_channels": 2}, "noc.virtual_channels: a segmented bus has none, a transfer has its lane to "
                                       "itself; leave it out"),
        ({"noc__faults": ["1,0"]}, "noc.faults: a segmented bus has none, faulty lanes and switches are not modeled; "
                                   "leave it out"),
        ({"noc__routing": "yx"}, "noc.routing: a segmented bus has none, there is one route along the lanes; leave it "
                                 "out"),
        ({"noc__on_full": "drop"}, "noc.on_full: a segmented bus has none, its queues stall what would enter them; "
                                   "leave it out"),
    ],
)  # fmt: skip
def test_bus_refuses_what_cannot_be(changes, text):
    with pytest.raises(ChipError) as error:
        bus_chip().replace({key.replace("__", "."): value for key, value in changes.items()})
    assert str(error.value) == f"small bus: {text}"


def test_bus_refuses_every_key_that_is_only_of_a_mesh():
    values = {"speculative": False, "routing": "yx", "faults": ["0,0"], "on_full": "drop", "multicast": "tree"}
    for key in MESH_KEYS:
        with pytest.raises(ChipError, match=f"noc.{key}: a segmented bus has none, .*; leave it out"):
            bus_chip().replace({f"noc.{key}": values.get(key, 4)})
        assert key in Noc.__dataclass_fields__ and not bus_chip().has_key(f"noc.{key}")
        assert small_chip().has_key(f"noc.{key}")


@pytest.mark.parametrize("key", ["lanes", "slot_cycles"])
def test_mesh_refuses_keys_of_a_bus(key):
    with pytest.raises(ChipError) as error:
        small_chip().replace({f"noc.{key}": 40})
    assert str(error.value) == f'small: noc.{key}: a mesh has none; set noc.topology = "segmented_bus"'


def test_bus_slot_is_as_long_as_a_transfer_from_end_to_end_unless_given():
    assert slot_cycles(bus_chip().noc) == 2 + 5 * 2 + 3 and slot_cycles(bus_chip(noc__slot_cycles=15).noc) == 15
    assert slot_cycles(bus_chip(noc__slot_cycles=99).noc) == 99


def test_bus_stretches_hold_the_segments_and_switches_between_two_cores():
    """4 positions of 2 cores: segments 0..2, switches 3..6."""
    offset, link = list_transfer_links(4, 2, np.array([0, 7, 2, 5]), np.array([5, 2, 3, 5]))
    parts = [link[a:b].tolist() for a, b in zip(offset, offset[1:], strict=False)]
    assert parts == [[0, 1, 3, 4, 5], [1, 2, 4, 5, 6], [4], []]


def test_bus_links_have_names_lanes_and_slots():
    chip = bus_chip()
    n = len(chip.link_cycles)
    assert n == 5 + 6 + 2 * 12 and set(chip.link_cycles.tolist()) == {15}
    assert count_lanes(chip).tolist() == [2] * 11 + [1] * 24
    names = [link_name(chip, i) for i in (0, 4, 5, 10, 11, n - 1)]
    assert names == ["segment 0-1", "segment 4-5", "switch 0", "switch 5", "(0, 0) port 0 inject",
                     "(5, 0) port 1 eject"]  # fmt: skip


def test_ladderbus_is_sixteen_cores_on_four_lanes():
    chip = Chip.load("ladderbus")
    assert (chip.n_cores, chip.noc.lanes, slot_cycles(chip.noc), chip.core.max_neurons) == (16, 4, 17, 256)
    assert chip.has_times and not chip.has_energies
