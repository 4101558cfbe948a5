"""Chip families: chips that are not a mesh or torus of routers with a barrier. Each family has a folder.

segmented_bus/  cores along lanes of switches        merges/     routers of FIFOs, as in RANC
pool/           one pool of neurons, as in Xylo      neighbors/  cores that wait for their neighbors only

All other code asks `Chip.family`; family.py:Family has the answers of a mesh. The other files of a folder are found by
name, with `load_part`, and belong to the layers that they serve: chip.py (the `Family`), cost.py (`COST`, a
cost/family.py:FamilyCost), engine.py (`ENGINE`, a sim/cycle/engine.py:Engine), export.py (`FORMATS`, rows of
report/export/formats.py), report.py (a section of a report: `KEY`, `collect`, `TITLE`, `ABOUT`, `card`), and kernels.

A family is a row of FAMILIES. Its network is also a row of kernels/cycle.py:ENGINES, as Numba needs all types.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from nwcompile.families.family import Family
from nwcompile.families.merges.chip import MergeRouters
from nwcompile.families.neighbors.chip import NeighborSync
from nwcompile.families.pool.chip import NeuronPool
from nwcompile.families.segmented_bus.chip import SegmentedBus

FAMILIES: tuple[Family, ...] = (SegmentedBus(), MergeRouters(), NeuronPool(), NeighborSync())
MESH = Family()


@cache
def load_part(family: Family, file: str) -> Any:
    """Import a file of a family's folder, like "engine"; None if it has no such file."""
    name = f"{type(family).__module__.rpartition('.')[0]}.{file}"
    return import_module(name) if family is not MESH and find_spec(name) else None


def load_parts(file: str) -> list[ModuleType]:
    """Import a file of all families that have it."""
    return [part for family in FAMILIES if (part := load_part(family, file)) is not None]
