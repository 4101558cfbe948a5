"""Advice: which approximations would make a network fit, where it is the chip's neurons that are too few."""

from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import APPROXIMATIONS, Options
from nwcompile.passes.fit.check import estimate
from nwcompile.passes.fit.maxima import maxima, pooled_layer
from nwcompile.passes.legalize.legalize import expected
from nwcompile.passes.legalize.nearest import needed
from nwcompile.passes.legalize.pool_spikes import pool_spikes


def approximations(network: Network, chip: Chip, options: Options) -> str | None:
    """The words of `approximate` with which a legalized network would fit as far as totals show, or None."""
    words = {*options.approximate, *needed(network, chip, options)}
    if any(pooled_layer(network, pool) for pool in maxima(network)):
        words.add("pool")
    if words == set(options.approximate):
        return None
    asked = replace(options, approximate=tuple(words))
    try:
        pooled = pool_spikes(network, chip, asked)[0]
        estimate(expected(pooled, chip, asked), chip, options.on_multi_spike)
    except FitError:
        return None
    listed = ",".join(word for word in APPROXIMATIONS if word in words)
    text = f"approximate={listed!r} (--approximate {listed}): the nearest that {chip.name} has, its price measured"
    if chip.weights.axon_types is None:
        return text
    n_types = chip.weights.axon_types
    return f"{text} (if its quantized weights need no more than {n_types} axon types, which this does not tell)"
