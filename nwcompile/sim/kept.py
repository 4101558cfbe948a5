"""Checkpointed runs are split into groups of samples, and these into parts of their steps (`checkpoint.py`)."""

from nwcompile.checkpoint import hash_values
from nwcompile.ir.program import Program

MOST_GROUPS = 256  # Groups of samples that run together; each has its own file.
LEAST_SAMPLES = 64  # Samples per group, so that every core of the machine has work.


def groups_of_samples(n_samples: int, largest: int) -> list[slice]:
    """Split the samples into groups of at most `largest`."""
    size = min(max(LEAST_SAMPLES, -(-n_samples // MOST_GROUPS)), largest)
    return [slice(first, min(first + size, n_samples)) for first in range(0, n_samples, size)]


def program_digest(program: Program) -> str:
    """Return the SHA-256 of everything in a program that its results depend on."""
    mapping, axons = program.mapping, program.axons
    return hash_values(
        [
            [program.network.hash, program.chip.hash, repr(program.schedule), program.on_multi_spike],
            [mapping.core_of, mapping.site_of, mapping.visit],
            [axons.offset, axons.core, axons.synops, axons.words, axons.row_bits, axons.kernel_bits],
        ]
    )
