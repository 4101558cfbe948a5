"""Legalization: what the compiler changed so that a chip can run a network, row by row, with label and price."""

from dataclasses import asdict, dataclass

EXACT = "exact"  # Every spike of the user's layers is as the same integers give on a chip with every neuron feature.
APPROXIMATE = "approximate"  # Spikes differ from those; by how much is the price.
HOST = "host"  # The CPU computes it, once per input, as the framework does.
LABELS = (EXACT, APPROXIMATE, HOST)


@dataclass(frozen=True)
class Change:
    """One rewriting of one layer: what it `was`, what the chip `has` instead, `how` that meets it, and a label.

    `price`: plain numbers by name, measured on samples that no parameter was fitted to (docs/legalize.md defines
    them), or None where there is nothing to pay or no samples to measure with.
    """

    layer: str
    was: str
    has: str
    how: str
    label: str
    price: dict[str, float] | None = None

    def __post_init__(self):
        assert self.label in LABELS, self.label

    def to_dict(self) -> dict:
        """Plain values for the manifest of a program."""
        return asdict(self)
