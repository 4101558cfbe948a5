"""Advice: approximations with which a network would fit whose neurons lack a feature on the chip."""

from collections.abc import Callable
from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import APPROXIMATIONS, Options
from nwcompile.passes.analyze.axon_types import too_many_weights
from nwcompile.passes.analyze.nonlinear import find_maxima, pooled_layer
from nwcompile.passes.quantize.approximate.nearest import needed_items

MESSAGES = {"graded": "messages carry counts and signs", "repeat": "n spikes are n messages"}  # by `on_multi_spike`


def suggest_items(network: Network, chip: Chip, options: Options, check: Callable[[Options], object]) -> str | None:
    """Return the `approximate` items with which a legalized network's totals would fit, as advice, or None.

    `check(options)` raises FitError unless the network fits with other options.
    """
    words = {*options.approximate, *needed_items(network, chip, options)}
    if any(pooled_layer(network, pool) for pool in find_maxima(network)):
        words.add("pool")
    if words == set(options.approximate):
        return None
    if too_many_weights(network, chip) or not _options_fit(check, replace(options, approximate=tuple(words))):
        return None
    listed = ",".join(word for word in APPROXIMATIONS if word in words)
    text = f"approximate={listed!r} (--approximate {listed}): the nearest that {chip.name} has, its price measured"
    if "multi-spike" in words - set(options.approximate):
        text = f"{_other_messages(options, words, check)}{text}"
    if chip.weights.axon_types is None:
        return text
    n_types = chip.weights.axon_types
    return f"{text} (if its quantized weights need no more than {n_types} axon types, which this does not tell)"


def _options_fit(check: Callable[[Options], object], options: Options) -> bool:
    try:
        check(options)
    except FitError:
        return False
    return True


def _other_messages(options: Options, words: set[str], check: Callable[[Options], object]) -> str:
    """Return a way to send several or negative spikes unchanged, if one fits."""
    fewer = tuple(word for word in APPROXIMATIONS if word in words - {"multi-spike"})
    asked = f" and approximate={','.join(fewer)!r}" if fewer else ""
    for way, what in MESSAGES.items():
        if _options_fit(check, replace(options, on_multi_spike=way, approximate=fewer)):
            return f"on_multi_spike={way!r}{asked} (nearer: {what}), or "
    return ""
