"""Legalize: what the chip's weights and messages cannot be is rewritten, before anything is computed with it.

The steps, in this order: the widths that were asked for (`weight_bits`), pruned connections as lists of synapses
(`prune_zeros`), neurons without negative spikes where messages carry no sign (`drop_signs`), and weights of both signs
as two connections where only those fit (`split_signs`).
"""

from typing import NamedTuple

from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.prepare.drop_signs import drop_signs
from nwcompile.passes.prepare.prune_zeros import prune_zeros
from nwcompile.passes.prepare.split_signs import split_signs
from nwcompile.passes.prepare.weight_bits import apply_weight_bits


class Legalized(NamedTuple):
    """The network as the chip can have it, and a sentence for each change that a person should know of."""

    network: Network
    warnings: list[str]


def legalize(network: Network, chip: Chip, options: Options) -> Legalized:
    """A float or fixed-point network rewritten for the chip; raises OptionError for widths that it cannot have."""
    network = prune_zeros(apply_weight_bits(network, chip, options), chip)
    network, unsigned = drop_signs(network, chip, options.on_multi_spike)
    network, split = split_signs(network, chip)
    return Legalized(network, [*unsigned, *split])
