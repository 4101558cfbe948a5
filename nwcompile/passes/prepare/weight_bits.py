"""Weight bits: set the width of the weights into each layer, within that of the chip's synapses."""

from nwcompile.errors import OptionError, unknown_choice
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options


def apply_weight_bits(network: Network, chip: Chip, options: Options) -> Network:
    """Set `options.bits` and `options.layer_bits` in the connections of a float network.

    Connections that the options leave open keep the network's widths, or the chip's. A fixed-point network keeps its
    widths. Raises OptionError for layers that the network does not have, and for weights wider than the chip's.
    """
    if network.is_fixed:
        return network
    chosen = options.layer_bits or {}
    for name in chosen:
        if name not in network.layers:
            raise OptionError(f"layer_bits: {unknown_choice('layer', name, network.layers)}", code="NW1007")
    connections = []
    for c in network.connections:
        bits = chosen.get(c.target, options.bits)
        if c.has_weight and bits is not None:
            c = c.replace(weight_bits=bits)
        connections.append(c)
    for c in connections:
        if c.has_weight and (c.weight_bits or 0) > chip.weights.bits:
            raise OptionError(
                f"{c.weight_bits}-bit weights into layer {c.target!r} are wider than those of {chip.name}, which have "
                f"{chip.weights.bits}; give 1 to {chip.weights.bits}, or set weights.bits = {c.weight_bits}",
                code="NW1007",
            )
    return Network(network.inputs, network.nodes, tuple(connections))
