"""A small chip with a segmented bus for tests."""

from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import SECTIONS
from tests.chips import small_chip

BUS = {"topology": "segmented_bus", "columns": 6, "rows": 1, "cores_per_router": 2, "lanes": 2, "hop_cycles_ew": 2}


def bus_chip(**overrides) -> Chip:
    """6 positions of 2 cores on 2 lanes, else as `small_chip`; `noc__lanes=4` overrides `noc.lanes`."""
    table = small_chip().to_dict()
    noc = BUS | {key.removeprefix("noc__"): value for key, value in overrides.items() if key.startswith("noc__")}
    table |= {"name": "small bus", "noc": noc, "sources": dict.fromkeys(SECTIONS, "assumed: for tests")}
    others = {key.replace("__", "."): value for key, value in overrides.items() if not key.startswith("noc__")}
    return Chip.from_dict(table).replace(others)
