"""Legalize: a normalized network rewritten for a chip, change after change, each with its label.

`REWRITES` is the list, in order. A rewriting takes `(network, chip, options)` and gives the network and its Changes.
"""

from collections.abc import Callable
from typing import NamedTuple

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.maxima import comparable
from nwcompile.passes.legalize.bias_lines import bias_lines
from nwcompile.passes.legalize.comparison import same_comparison
from nwcompile.passes.legalize.idle_clamps import idle_clamps
from nwcompile.passes.legalize.multiply_spikes import multiply_spikes
from nwcompile.passes.legalize.pool_spikes import pool_spikes
from nwcompile.passes.legalize.reset_timing import reset_now
from nwcompile.passes.legalize.self_connections import self_connections
from nwcompile.passes.legalize.split_signs import split_signs
from nwcompile.passes.legalize.stateless import free_resets
from nwcompile.passes.prepare.prune_zeros import prune_zeros
from nwcompile.passes.prepare.recognize import built_in_neurons
from nwcompile.passes.prepare.unmet_taps import without_unmet_taps
from nwcompile.passes.prepare.weight_bits import apply_weight_bits

Rewriting = Callable[[Network, Chip, Options], tuple[Network, list[Change]]]
REWRITES: tuple[Rewriting, ...] = (
    without_unmet_taps,
    free_resets,
    self_connections,
    reset_now,
    bias_lines,
    same_comparison,
)


class Legalized(NamedTuple):
    """The network as the chip can have it, what was changed, and a sentence for what a person should know of.

    `compared`: the layers that `compare_currents` gives an exact maximum of currents once they are quantized.
    """

    network: Network
    changes: list[Change]
    warnings: list[str]
    compared: tuple[str, ...] = ()


def sized(network: Network, chip: Chip, options: Options) -> Network:
    """The network with the widths that were asked for, pruned connections as lists; raises OptionError for widths."""
    return prune_zeros(apply_weight_bits(network, chip, options), chip)


def legalize(network: Network, chip: Chip, options: Options, may_compare: bool = True) -> Legalized:
    """A normalized float or fixed-point network rewritten for the chip.

    `may_compare`: whether layers may wait for `compare_currents`, which takes neuron programs.
    """
    compared = comparable(network, chip, options) if may_compare else ()
    network, recognized = built_in_neurons(network, chip)
    network, pooled = pool_spikes(network, chip, options, compared)
    network, multiplied = multiply_spikes(network, chip, options)
    legal, said = split_signs(network, chip)
    changes = [*recognized, *pooled, *multiplied, *(_split(text, chip) for text in said)]
    # `prove` judges the clamps of a float network, once it is in integers.
    for rewrite in (*REWRITES, idle_clamps) if legal.is_fixed else REWRITES:
        legal, made = rewrite(legal, chip, options)
        changes += made
    return Legalized(legal, changes, said, compared)


def _split(text: str, chip: Chip) -> Change:
    """The row of a warning of `split_signs`, which names the connection first."""
    where = text.partition(":")[0].removeprefix("connection ")
    step = f"weights of both signs that are multiples of {chip.weights.step}"
    return Change(where, "odd weights of both signs", step, "two connections, one for each sign", EXACT)
