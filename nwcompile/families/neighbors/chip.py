"""Chips whose cores wait for their neighbors only; docs/decisions/noc.md defines their steps."""

from nwcompile.errors import ChipError
from nwcompile.families.family import Family
from nwcompile.ir.chip_sections import NEIGHBORS

ERROR_CODE = "NW4003"


class NeighborSync(Family):
    """Chips without a barrier."""

    key, value = "cost.sync", NEIGHBORS
    has_barrier = False

    def verify(self, chip, where: str) -> None:
        """Check that the routers between cores lose no message."""
        key = reason = ""
        if chip.noc.on_full == "drop":
            key, reason = "noc.on_full", "a core would wait for ever for a message that is lost"
        elif chip.core.axon_merge is not None:
            key, reason = "core.axon_merge", "which spike is read first is known at a barrier only"
        if key:
            value = repr(chip.value(key))
            raise ChipError(
                f'{where}: cost.sync: "neighbors" does not go with {key} = {value}: {reason}; change one of them'
            )

    def refuse_run(self, chip, profile: bool, totals: bool) -> str | None:
        if not (profile or totals):
            return None
        what = "a profile" if profile else "record='totals'"
        return (
            f"{what} follows steps that end for all cores at once, and those of {chip.name} wait for their "
            'neighbors only (cost.sync = "neighbors"): Run.step_cycles tells how long they take; leave it out, or '
            'set cost.sync = "barrier"'
        )
