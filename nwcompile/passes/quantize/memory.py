"""Memory: a lower bound of the memory that compilation needs, from the network's weights and calibration samples.

As in `sim/memory.py`, only arrays that certainly coexist are counted: those of choosing scales, with several float64
copies of every weight, those of the float run for comparison, and those of calibration. The memory of partitioners and
placers depends on their search and is not counted.
"""

import numpy as np

from nwcompile.ir.network import Network
from nwcompile.ir.shown import count_text
from nwcompile.memory import measure_room, verify_room
from nwcompile.passes.quantize.quantize import searched_samples
from nwcompile.sim.memory import CHUNK_BYTES, MOST_BEYOND, calibration_bytes, most_with_room, n_weights, run_bytes

SCALED_BYTES = 17  # per weight of a scaled layer: float64, rounded float64, and its mantissa
ROUNDED_BYTES = 32  # per weight that is being rounded: itself, scaled, rounded, and over 2**exponent
EFFECTIVE_BYTES = 16  # per weight that was given as an integer, when made effective: shifted, and clipped


def weight_bytes(network: Network) -> int:
    """Return the peak memory of the weights of a normalized network in bytes."""
    if network.is_fixed:
        return EFFECTIVE_BYTES * max((n_weights(c) for c in network.connections), default=0)
    n_bytes = n_scaled = 0
    for name in network.built_in:
        of_layer = sum(n_weights(c) for c in network.into(name))
        n_bytes = max(n_bytes, SCALED_BYTES * n_scaled + ROUNDED_BYTES * of_layer)
        n_scaled += of_layer
    return n_bytes


def sample_bytes(network: Network, n_samples: int, n_steps: int) -> int:
    """Return the bytes that calibration needs in addition to its samples."""
    n_searched = len(searched_samples(network, n_samples, n_steps))
    compared = 0 if network.is_fixed else run_bytes(network, n_searched, n_steps, "reference", "all")
    return max(compared, calibration_bytes(network, n_samples, n_steps))


def verify_memory(network: Network, samples: dict[str, np.ndarray] | None) -> None:
    """Raise NotEnoughMemoryError if compiling a normalized network needs more memory than this process may use."""
    n_samples, n_steps = _sample_size(samples)
    of_weights, of_samples = weight_bytes(network), sample_bytes(network, n_samples, n_steps) if n_samples else 0

    def advice(room: int) -> str:
        if MOST_BEYOND * of_weights > room:
            return "use a machine with more, or a network of smaller layers"
        left = room - CHUNK_BYTES["cpu"]  # memory of one chunk of scales, in addition to what is counted
        n = most_with_room(lambda n: MOST_BEYOND * sample_bytes(network, n, n_steps) <= left, n_samples)
        return f"give at most {count_text(n, 'calibration sample')}, or fewer steps" if n else "give fewer steps"

    n_all = sum(n_weights(c) for c in network.connections)
    of_steps = f"{count_text(n_samples, 'calibration sample')} of {count_text(n_steps, 'step')}"
    with_samples = f" with {of_steps}" if samples else ""
    verify_room(f"compiling {count_text(n_all, 'weight')}{with_samples}", max(of_weights, of_samples), advice)


def n_with_room(network: Network, samples: dict[str, np.ndarray] | None, n_most: int) -> int:
    """Return how many compilations of a normalized network fit into memory at once, from 1 to `n_most`."""
    n_samples, n_steps = _sample_size(samples)
    n_bytes = MOST_BEYOND * max(weight_bytes(network), sample_bytes(network, n_samples, n_steps) if n_samples else 0)
    left = measure_room() if n_bytes else None
    return n_most if left is None else max(1, min(n_most, left.n_bytes // n_bytes))


def _sample_size(samples: dict[str, np.ndarray] | None) -> tuple[int, int]:
    """Return the number of samples, and of their steps."""
    return next(iter(samples.values())).shape[:2] if samples else (0, 0)
