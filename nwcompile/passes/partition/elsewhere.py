"""Elsewhere: which shipped chips, and boards of several chips, take a network as it is that this chip refuses.

A chip is named only after a check: its neurons can do what the layers ask, its delays are long enough, and contiguous
slices (`sequential`) of the network fit its cores. For large networks, and where what fits depends on weights that are
not quantized yet, only totals are looked at (`estimate`), and the line says so.
"""

from dataclasses import replace
from math import prod
from typing import NamedTuple

from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.errors import NwError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.noc.board import count_chips, fewest_chips
from nwcompile.ir.options import Options
from nwcompile.passes.fit import capability
from nwcompile.passes.fit.check import estimate, least_cores
from nwcompile.passes.legalize.legalize import legalize, sized
from nwcompile.passes.legalize.relay_delays import has_late, relay_delays
from nwcompile.passes.partition.copy_neurons import copy_neurons, sends_too_far
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.prepare.schedule import schedule

# Chips to propose, a single chip before the board of it; grids made for benchmarks and variants of a file are none.
CHIPS = ("loihi1", "loihi2", "spinnaker2", "truenorth", "speck", "h1v1", "h1v2")
BOARDS = {"loihi1": "loihi1_nahuku", "loihi2": "loihi2_kapoho", "spinnaker2": "spinnaker2_48"}

# So many synapses are looked at for one error, every check going through all of a network's: about a second. What is
# left of the list after that is judged by its totals.
MOST_SYNAPSES = 15_000_000


class Place(NamedTuple):
    """A chip or board that takes a network of so many synapses on so many cores: at least, unless that was checked."""

    chip: Chip
    n_synapses: int
    n_cores: int
    is_checked: bool


def elsewhere(network: Network, chip: Chip, options: Options) -> str | None:
    """Sentences that name the shipped chips and boards which take the network as it is.

    `network` is the one that `compile` was given. None for a chip that is not a shipped one as it is shipped, and where
    `options` bind cores to this chip (`n_cores`, `fixed_sites`).
    """
    if options.n_cores is not None or options.fixed_sites or not _is_shipped(chip):
        return None
    options = replace(options, approximate=(), step_limit_us=None)
    places, left = [], MOST_SYNAPSES
    for name in sorted(CHIPS, key=lambda name: name != chip.name):
        for one in (one for one in (name, BOARDS.get(name)) if one not in (None, chip.name)):
            place = _place(network, Chip.load(one), options, left)
            if place is not None:
                places.append(place)
                left -= place.n_synapses if place.is_checked else 0
                break
    checked = [_named(place) for place in places if place.is_checked]
    by_totals = [_named(place) for place in places if not place.is_checked]
    texts = [f"as it is it fits {', '.join(checked)}"] if checked else []
    texts += [f"by its totals it may fit {', '.join(by_totals)}"] if by_totals else []
    return "; ".join(texts) or "as it is it fits none of the shipped chips and boards"


def _is_shipped(chip: Chip) -> bool:
    return chip.name in Chip.names() and chip.hash == Chip.load(chip.name).hash


def _place(network: Network, chip: Chip, options: Options, most_synapses: int) -> Place | None:
    """The chip as a Place if it takes the network, else None; beyond `most_synapses` its totals are judged."""
    try:
        legal = legalize(normalize(sized(network, chip, options)), chip, options).network
        estimate(legal, chip, options.on_multi_spike)
        timing = schedule(legal, options.execution)
        weights = (v for c in legal.connections if legal.is_fixed for v in capability.weight_violations(c, chip))
        if has_late(legal, timing, chip):
            legal, timing, _ = relay_delays(legal, timing, chip, options)
        if any(capability.delay_violations(legal, timing, chip)) or any(weights):
            return None
        n_synapses = sum(synapse_count(legal, c) for c in legal.connections)
        if n_synapses > most_synapses or chip.weights.axon_types is not None:
            return Place(chip, n_synapses, least_cores(legal, chip), False)
        slices = replace(options, partitioner="sequential", optimize="time")
        activity = Activity.uniform(legal, 1)
        mapping = partition(legal, chip, activity, slices).mapping
        if sends_too_far(legal, chip, mapping):
            copied = copy_neurons(legal, timing, chip, activity, mapping, slices)
            if sends_too_far(copied.network, chip, copied.mapping):
                return None
            mapping = copied.mapping
        return Place(chip, n_synapses, mapping.n_cores, True)
    except NwError:
        return None


def _named(place: Place) -> str:
    """`loihi2 (12 of 128 cores)`, or `loihi2_kapoho (2 of 8 chips)`."""
    chip, least = place.chip, "" if place.is_checked else "at least "
    if chip.is_board:
        n_chips = prod(fewest_chips(chip.noc, place.n_cores))
        return f"{chip.name} ({least}{n_chips} of {prod(count_chips(chip.noc))} chips)"
    return f"{chip.name} ({least}{place.n_cores} of {int(chip.is_usable.sum())} cores)"
