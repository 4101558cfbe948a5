"""Legalize: rewrite a normalized network for a chip, one change after another, each with its label.

`REWRITES` lists the rewritings in order. Each takes `(network, chip, options)` and returns the network and its Changes.
"""

from collections.abc import Callable
from typing import NamedTuple

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.nonlinear import comparable_layers
from nwcompile.passes.legalize.bias_lines import bias_lines
from nwcompile.passes.legalize.fold_filters import fold_filters
from nwcompile.passes.legalize.multiply_spikes import multiply_spikes
from nwcompile.passes.legalize.pool_spikes import pool_spikes
from nwcompile.passes.legalize.prove import idle_clamps, same_comparison
from nwcompile.passes.legalize.resets import free_resets, reset_now, self_connections
from nwcompile.passes.legalize.split_signs import split_signs
from nwcompile.passes.legalize.write_programs import fold_exponents, write_programs
from nwcompile.passes.prepare.programs import recognize_programs
from nwcompile.passes.prepare.weights import drop_unmet_taps

Rewriting = Callable[[Network, Chip, Options], tuple[Network, list[Change]]]
REWRITES: tuple[Rewriting, ...] = (
    drop_unmet_taps,
    free_resets,
    self_connections,
    reset_now,
    bias_lines,
    same_comparison,
)


class Legalized(NamedTuple):
    """The rewritten network, its changes, and warnings for the user.

    `compared`: layers whose maximum of currents `compare_currents` makes exact after quantization.
    """

    network: Network
    changes: list[Change]
    warnings: list[str]
    compared: tuple[str, ...] = ()


def legalize(network: Network, chip: Chip, options: Options, may_compare: bool = True) -> Legalized:
    """Rewrite a normalized float or fixed-point network for the chip.

    `may_compare`: whether layers may wait for `compare_currents`, which takes neuron programs.
    """
    network, folded = fold_filters(network, chip, options)
    compared = comparable_layers(network, chip, options) if may_compare else ()
    network, recognized = recognize_programs(network, chip)
    network, pooled = pool_spikes(network, chip, options, compared)
    network, multiplied = multiply_spikes(network, chip, options)
    network, rounded = fold_exponents(network, chip)
    network, written = write_programs(network, chip, options)
    legal, said = split_signs(network, chip)
    was, has = "odd weights of both signs", f"weights of both signs that are multiples of {chip.weights.step}"
    split = (text.partition(":")[0].removeprefix("connection ") for text in said)
    changes = [*folded, *recognized, *pooled, *multiplied, *rounded, *written]
    changes += [Change(where, was, has, "two connections, one for each sign", EXACT) for where in split]
    # `prove` judges the clamps of a float network, once it is in integers.
    for rewrite in (*REWRITES, idle_clamps) if legal.is_fixed else REWRITES:
        legal, made = rewrite(legal, chip, options)
        changes += made
    return Legalized(legal, changes, said, compared)
