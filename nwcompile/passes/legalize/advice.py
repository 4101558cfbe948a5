"""Advice: which approximations would make a network fit, where it is the chip's neurons that are too few."""

from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import APPROXIMATIONS, Options
from nwcompile.passes.fit.axon_types import too_many_weights
from nwcompile.passes.fit.check import estimate
from nwcompile.passes.fit.maxima import maxima, pooled_layer
from nwcompile.passes.legalize.legalize import expected
from nwcompile.passes.legalize.nearest import needed
from nwcompile.passes.legalize.pool_spikes import pool_spikes

MESSAGES = {"graded": "messages carry counts and signs", "repeat": "n spikes are n messages"}  # by `on_multi_spike`


def approximations(network: Network, chip: Chip, options: Options) -> str | None:
    """The words of `approximate` with which a legalized network would fit as far as totals show, or None."""
    words = {*options.approximate, *needed(network, chip, options)}
    if any(pooled_layer(network, pool) for pool in maxima(network)):
        words.add("pool")
    if words == set(options.approximate):
        return None
    if too_many_weights(network, chip) or not _fits(network, chip, replace(options, approximate=tuple(words))):
        return None
    listed = ",".join(word for word in APPROXIMATIONS if word in words)
    text = f"{_sent(network, chip, options, words)}approximate={listed!r} (--approximate {listed}): the nearest that "
    text += f"{chip.name} has, its price measured"
    if chip.weights.axon_types is None:
        return text
    n_types = chip.weights.axon_types
    return f"{text} (if its quantized weights need no more than {n_types} axon types, which this does not tell)"


def _fits(network: Network, chip: Chip, options: Options) -> bool:
    """Whether it would fit so as far as totals show."""
    try:
        estimate(expected(pool_spikes(network, chip, options)[0], chip, options), chip, options.on_multi_spike)
    except FitError:
        return False
    return True


def _sent(network: Network, chip: Chip, options: Options, words: set[str]) -> str:
    """That other messages would leave several or negative spikes as they are, where they would."""
    if "multi-spike" not in words - set(options.approximate):
        return ""
    fewer = tuple(word for word in APPROXIMATIONS if word in words - {"multi-spike"})
    asked = f" and approximate={','.join(fewer)!r}" if fewer else ""
    for way, what in MESSAGES.items():
        if _fits(network, chip, replace(options, on_multi_spike=way, approximate=fewer)):
            return f"on_multi_spike={way!r}{asked} (nearer: {what}), or "
    return ""
