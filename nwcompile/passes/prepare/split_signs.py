"""Split signs: integer weights that a chip holds only without a sign become two connections, exactly.

On Loihi a mixed-sign mantissa of 8 bits is a multiple of 2 in -256..254, one of a single sign any number up to 255
(DESIGN 4.2): odd weights of both signs are stored as an excitatory and an inhibitory connection.
"""

import numpy as np

from nwcompile.ir.arithmetic import mantissa_range, mantissa_step
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.passes.prepare.prune_zeros import to_sparse


def split_signs(network: Network, chip: Chip) -> tuple[Network, list[str]]:
    """The same fixed-point network in connections that the chip can store, and a warning for each split.

    Only mixed-sign connections that are off the chip's grid, but on it sign by sign, change; a float network does not.
    """
    connections: list[Connection] = []
    warnings = []
    for c in network.connections:
        parts = _parts(c, chip) if network.is_fixed else [c]
        connections += parts
        if len(parts) > 1:
            warnings.append(_warning(c, parts, chip))
    return Network(network.inputs, network.nodes, tuple(connections)), warnings


def _parts(c: Connection, chip: Chip) -> list[Connection]:
    weight = np.asarray(c.weight)
    if c.sign_mode != "mixed" or (c.weight_bits or 0) > chip.weights.bits or _holds(weight, c, chip, "mixed"):
        return [c]
    signs = [mode for mode, has in (("exc", (weight > 0).any()), ("inh", (weight < 0).any())) if has]
    if not all(_holds(_part(weight, mode), c, chip, mode) for mode in signs):
        return [c]
    if len(signs) == 1:
        return [c.replace(sign_mode=signs[0])]
    bits = c.weight_bits or chip.weights.bits
    if isinstance(c, Dense) and np.count_nonzero(weight) * (bits + chip.weights.index_bits) < 2 * weight.size * bits:
        parts: list[Connection] = [to_sparse(c.replace(weight=_part(weight, mode), sign_mode=mode)) for mode in signs]
    elif isinstance(c, Sparse):
        parts = [_kept(c, mode) for mode in signs]
    else:
        parts = [c.replace(weight=_part(weight, mode), sign_mode=mode) for mode in signs]
    return [parts[0], *(part.replace(bias=None) for part in parts[1:])]


def _holds(weight: np.ndarray, c: Connection, chip: Chip, sign_mode: str) -> bool:
    """Whether the chip stores these mantissas in a connection of that sign mode."""
    form = c.weight_bits or chip.weights.bits, chip.weights.bits, chip.weights.step, sign_mode
    low, high = mantissa_range(*form)
    inside = weight.min(initial=0) >= low and weight.max(initial=0) <= high
    return bool(inside and not np.any((weight.astype(np.int64) - low) % mantissa_step(*form)))


def _part(weight: np.ndarray, sign_mode: str) -> np.ndarray:
    """The weights of one sign, 0 in the place of the others."""
    return np.maximum(weight, 0) if sign_mode == "exc" else np.minimum(weight, 0)


def _kept(c: Sparse, sign_mode: str) -> Sparse:
    """The synapses of one sign; those of weight 0 stay with the first."""
    weight = np.asarray(c.weight)
    kept = weight >= 0 if sign_mode == "exc" else weight < 0
    pre, post = np.asarray(c.pre)[kept], np.asarray(c.post)[kept]
    return c.replace(pre=pre, post=post, weight=weight[kept], sign_mode=sign_mode)


def _warning(c: Connection, parts: list[Connection], chip: Chip) -> str:
    before, after = np.size(c.weight), sum(np.size(part.weight) for part in parts)
    kind = " sparse" if isinstance(parts[0], Sparse) and not isinstance(c, Sparse) else ""
    step = mantissa_step(c.weight_bits or chip.weights.bits, chip.weights.bits, chip.weights.step, "mixed")
    return (
        f"connection {c.source} -> {c.target}: weights of both signs are multiples of {step} on {chip.name}, so "
        f"these became an excitatory and an inhibitory{kind} connection, exactly: {after} stored weights instead "
        f"of {before}, messages and axons as before"
    )
