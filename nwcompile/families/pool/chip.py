"""A pool: hidden neurons without a network on chip, whose steps take the cycles of `chip.pool`."""

from dataclasses import fields

from nwcompile.errors import ChipError
from nwcompile.families.family import Family

ERROR_CODE = "NW4003"


class NeuronPool(Family):
    """Chips that give the cycles of a pool; they replace all costs."""

    key, value = "pool.line_cycles", None
    has_own_times = True

    def has_member(self, chip) -> bool:
        return any(value is not None for value in _pool_cycles(chip).values())

    def verify(self, chip, where: str) -> None:
        """Check that the cycles of a pool are complete, in half cycles, and that there is one core."""
        cycles = _pool_cycles(chip)
        given = next(key for key, value in cycles.items() if value is not None)
        for key, value in cycles.items():
            if value is None:
                raise ChipError(f"{where}: {key}: missing key; a chip with {given} needs all cycles of a pool")
            if value * 2 % 1:
                raise ChipError(f"{where}: {key}: {value} is not a number of whole or half cycles")
        if chip.n_cores != 1:
            raise ChipError(
                f"{where}: {given}: a pool is one core, and here are {chip.n_cores}; leave section pool out"
            )

    def refuse_run(self, chip, profile: bool, totals: bool) -> str | None:
        if not profile:
            return None
        return (
            f"profiles follow flits through a network, and {chip.name} is one pool of neurons without one; leave "
            "profile out: Run.step_cycles has the times of its steps"
        )


def _pool_cycles(chip) -> dict[str, float | None]:
    """Return the cycles of a pool by key."""
    return {f"pool.{f.name}": getattr(chip.pool, f.name) for f in fields(chip.pool) if f.name.endswith("_cycles")}
