"""What a checkpoint keeps of a run: some samples after others, and of these, parts of their steps (`checkpoint.py`)."""

from nwcompile.checkpoint import hash_values
from nwcompile.ir.program import Program

MOST_GROUPS = 256  # Of samples that go through their steps together: each begins a file of its own.
LEAST_SAMPLES = 64  # Of a group, so that all cores of a machine have some to work at.


def groups_of_samples(n_samples: int, largest: int) -> list[slice]:
    """The samples by group, of at most so many each."""
    size = min(max(LEAST_SAMPLES, -(-n_samples // MOST_GROUPS)), largest)
    return [slice(first, min(first + size, n_samples)) for first in range(0, n_samples, size)]


def content(program: Program) -> str:
    """SHA-256 of all of a program that what it computes depends on."""
    mapping, axons = program.mapping, program.axons
    return hash_values(
        [
            [program.network.hash, program.chip.hash, repr(program.schedule), program.on_multi_spike],
            [mapping.core_of, mapping.site_of, mapping.visit],
            [axons.offset, axons.core, axons.synops, axons.words, axons.row_bits, axons.kernel_bits],
        ]
    )
