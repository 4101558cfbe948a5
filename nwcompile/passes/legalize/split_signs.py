"""Split signs: store integer weights that a chip holds only without a sign as two connections, exactly.

On Loihi a mixed-sign mantissa of 8 bits is a multiple of 2 in -256..254, and one of a single sign is any number up to
255 (DESIGN 4.2). So odd weights of both signs are stored as an excitatory and an inhibitory connection.
"""

import numpy as np

from nwcompile.ir.arithmetic import mantissa_step
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.passes.analyze.grids import holds_mantissas
from nwcompile.passes.prepare.weights import to_sparse


def split_signs(network: Network, chip: Chip) -> tuple[Network, list[str]]:
    """Return the same fixed-point network in connections that the chip can store, and a warning for each split.

    A mixed-sign connection changes if it is off the chip's grid, but on it for each sign. Float networks do not change.
    """
    connections: list[Connection] = []
    warnings = []
    for c in network.connections:
        parts = _split_connection(c, chip) if network.is_fixed else [c]
        connections += parts
        if len(parts) > 1:
            warnings.append(_split_warning(c, parts, chip))
    return Network(network.inputs, network.nodes, tuple(connections)), warnings


def _split_connection(connection: Connection, chip: Chip) -> list[Connection]:
    weight = np.asarray(connection.weight)
    bits = connection.weight_bits or chip.weights.bits
    if connection.sign_mode != "mixed" or bits > chip.weights.bits or holds_mantissas(weight, chip, "mixed", bits):
        return [connection]
    signs = [mode for mode, has in (("exc", (weight > 0).any()), ("inh", (weight < 0).any())) if has]
    if not all(holds_mantissas(_keep_sign(weight, mode), chip, mode, bits) for mode in signs):
        return [connection]
    if len(signs) == 1:
        return [connection.replace(sign_mode=signs[0])]
    if isinstance(connection, Sparse):
        parts: list[Connection] = [_keep_synapses(connection, mode) for mode in signs]
    else:
        parts = [connection.replace(weight=_keep_sign(weight, mode), sign_mode=mode) for mode in signs]
    is_shorter = np.count_nonzero(weight) * (bits + chip.weights.index_bits) < 2 * weight.size * bits
    if isinstance(connection, Dense) and is_shorter:
        parts = [to_sparse(part) for part in parts if isinstance(part, Dense)]
    return [parts[0], *(part.replace(bias=None) for part in parts[1:])]


def _keep_sign(weight: np.ndarray, sign_mode: str) -> np.ndarray:
    """Return the weights of one sign, with zeros for the others."""
    return np.maximum(weight, 0) if sign_mode == "exc" else np.minimum(weight, 0)


def _keep_synapses(connection: Sparse, sign_mode: str) -> Sparse:
    """Return the synapses of one sign; those of weight 0 stay with the first."""
    weight = np.asarray(connection.weight)
    kept = weight >= 0 if sign_mode == "exc" else weight < 0
    pre, post = np.asarray(connection.pre)[kept], np.asarray(connection.post)[kept]
    return connection.replace(pre=pre, post=post, weight=weight[kept], sign_mode=sign_mode)


def _split_warning(connection: Connection, parts: list[Connection], chip: Chip) -> str:
    before, after = np.size(connection.weight), sum(np.size(part.weight) for part in parts)
    kind = " sparse" if isinstance(parts[0], Sparse) and not isinstance(connection, Sparse) else ""
    step = mantissa_step(connection.weight_bits or chip.weights.bits, chip.weights.bits, chip.weights.step, "mixed")
    return (
        f"connection {connection.source} -> {connection.target}: weights of both signs are multiples of {step} on "
        f"{chip.name}, so "
        f"these became an excitatory and an inhibitory{kind} connection, exactly: {after} stored weights instead "
        f"of {before}, messages and axons as before"
    )
