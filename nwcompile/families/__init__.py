"""Chip families: a chip that is no mesh or torus of routers with a barrier belongs to a family with its own folder.

The trunk asks `Chip.family` (the mesh's answers: ir/family.py), and looks up the other files of a family by name:

| file of a family | content | layer |
|---|---|---|
| chip.py | a `Family`: keys, checks, links | ir |
| kernel*.py | kernels; kernels/cycle.py:ENGINES has the type of the family's network | kernels |
| cost.py | `COST`, a cost/family.py:FamilyCost | cost |
| engine.py | `ENGINE`, a sim/cycle/engine.py:Engine | sim |
| report.py | `SECTION`, a report/section.py:Section | report |
| rest | exports and other files that only this family needs | as their imports |

A family is a row of FAMILIES. Whoever deletes one deletes the row, its folder, and its network in ENGINES: Numba needs
all types when it compiles a kernel.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from nwcompile.families.segmented_bus.chip import SegmentedBus
from nwcompile.ir.family import Family

FAMILIES: tuple[Family, ...] = (SegmentedBus(),)
MESH = Family()


def find_family(chip) -> Family:
    """Return the family of a Chip; the first of FAMILIES that it belongs to, otherwise MESH."""
    return next((family for family in FAMILIES if family.has_member(chip)), MESH)


@cache
def load_part(family: Family, file: str) -> ModuleType | None:
    """Import a file of a family's folder, like "engine"; None if the family has no such file."""
    name = f"{type(family).__module__.rpartition('.')[0]}.{file}"
    return import_module(name) if family in FAMILIES and find_spec(name) else None


def load_parts(file: str) -> list[ModuleType]:
    """Import a file of all families that have it."""
    return [part for family in FAMILIES if (part := load_part(family, file)) is not None]
