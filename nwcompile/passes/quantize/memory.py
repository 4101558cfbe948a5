"""Memory: what compiling a network takes for certain, counted from its weights and its calibration samples.

As in `sim/memory.py` only arrays are counted that are surely there at one moment: those of choosing scales, which hold
every weight several times in float64, those of the float run that scales are compared with, and those of calibrating.
What partitioners and placers take depends on what they find, and is not counted.
"""

import numpy as np

from nwcompile.ir.network import Network
from nwcompile.ir.shown import count_text
from nwcompile.memory import room, verify_room
from nwcompile.passes.quantize.quantize import searched_samples
from nwcompile.sim.memory import CHUNK_BYTES, MOST_BEYOND, calibration_bytes, most_with_room, n_weights, run_bytes

SCALED_BYTES = 17  # of a weight of a layer that has its scale: as float64, rounded as float64, and its mantissa
ROUNDED_BYTES = 32  # of a weight that is being rounded: itself, times the scale, rounded, and over 2**exponent
EFFECTIVE_BYTES = 16  # of a weight that came as an integer, when it is made effective: shifted, and clipped


def weight_bytes(network: Network) -> int:
    """Bytes that the weights of a normalized network take, at most at once."""
    if network.is_fixed:
        return EFFECTIVE_BYTES * max((n_weights(c) for c in network.connections), default=0)
    n_bytes = n_scaled = 0
    for name in network.built_in:
        of_layer = sum(n_weights(c) for c in network.into(name))
        n_bytes = max(n_bytes, SCALED_BYTES * n_scaled + ROUNDED_BYTES * of_layer)
        n_scaled += of_layer
    return n_bytes


def sample_bytes(network: Network, n_samples: int, n_steps: int) -> int:
    """Bytes that calibration samples take beside themselves."""
    n_searched = len(searched_samples(network, n_samples, n_steps))
    compared = 0 if network.is_fixed else run_bytes(network, n_searched, n_steps, "reference", "all")
    return max(compared, calibration_bytes(network, n_samples, n_steps))


def verify_memory(network: Network, samples: dict[str, np.ndarray] | None) -> None:
    """Raise NotEnoughMemoryError where a normalized network takes more to compile than this process may."""
    n_samples, n_steps = _size(samples)
    of_weights, of_samples = weight_bytes(network), sample_bytes(network, n_samples, n_steps) if n_samples else 0

    def advice(room: int) -> str:
        if MOST_BEYOND * of_weights > room:
            return "use a machine with more, or a network of smaller layers"
        left = room - CHUNK_BYTES["cpu"]  # Scales are tried on so much at once, beside what is counted.
        n = most_with_room(lambda n: MOST_BEYOND * sample_bytes(network, n, n_steps) <= left, n_samples)
        return f"give at most {count_text(n, 'calibration sample')}, or fewer steps" if n else "give fewer steps"

    n_all = sum(n_weights(c) for c in network.connections)
    of_steps = f"{count_text(n_samples, 'calibration sample')} of {count_text(n_steps, 'step')}"
    with_samples = f" with {of_steps}" if samples else ""
    verify_room(f"compiling {count_text(n_all, 'weight')}{with_samples}", max(of_weights, of_samples), advice)


def n_with_room(network: Network, samples: dict[str, np.ndarray] | None, n_most: int) -> int:
    """How many compilations of a normalized network fit into memory at once, from 1 to `n_most`."""
    n_samples, n_steps = _size(samples)
    n_bytes = MOST_BEYOND * max(weight_bytes(network), sample_bytes(network, n_samples, n_steps) if n_samples else 0)
    left = room() if n_bytes else None
    return n_most if left is None else max(1, min(n_most, left.n_bytes // n_bytes))


def _size(samples: dict[str, np.ndarray] | None) -> tuple[int, int]:
    """How many samples, and of how many steps."""
    return next(iter(samples.values())).shape[:2] if samples else (0, 0)
