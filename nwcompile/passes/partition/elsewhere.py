"""Elsewhere: which other chips, and boards of several chips, take a network as it is that this chip refuses.

Chip files say whether they are proposed (`Chip.proposals`). A chip is named only after a check: its neurons can do what
the layers ask, its delays are long enough, no neuron has more weights than it has axon types, and contiguous slices
(`sequential`) of the network fit its cores. For large networks, and where what fits depends on weights that are not
quantized yet (axon types, messages of partial sums), only totals are looked at (`estimate`), and the line says so.
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
from nwcompile.passes.fit.axon_types import too_many_weights
from nwcompile.passes.fit.check import estimate, least_cores, verify_relays
from nwcompile.passes.legalize.legalize import legalize, sized
from nwcompile.passes.legalize.relay_delays import relay_delays, relay_layers, sizes_of
from nwcompile.passes.legalize.sums.send_sums import scheduled
from nwcompile.passes.legalize.sums.split_fan_in import parts_surely_hold, with_parts
from nwcompile.passes.partition.copy_neurons import copy_neurons, sends_too_far
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.prepare.normalize import normalize

# So many synapses are looked at for one error, every check going through all of a network's: about a second. What is
# left of the list after that is judged by its totals.
MOST_SYNAPSES = 15_000_000
# A check also looks through all connections for each layer; each of those looks takes as long as so many synapses.
SYNAPSES_OF_A_PAIR = 25


class Place(NamedTuple):
    """A chip or board that takes a network on so many cores: at least, unless that was checked.

    `work`: how many synapses the check looks at, or what takes as long.
    """

    chip: Chip
    work: int
    n_cores: int
    is_checked: bool


def elsewhere(network: Network, chip: Chip, options: Options) -> str | None:
    """Sentences that name the proposed chips and boards which take the network as it is.

    They are those of the shipped files and of the folder of this chip's. `network` is the one that `compile` was given.
    None for a chip that is not as its file says, and where `options` bind cores to this chip (`n_cores`,
    `fixed_sites`).
    """
    if options.n_cores is not None or options.fixed_sites or chip.listing.folder is None:
        return None
    options = replace(options, approximate=(), step_limit_us=None)
    places: list[Place] = []
    left = MOST_SYNAPSES
    for one in chip.proposals():
        place = None if one.family in {place.chip.family for place in places} else _place(network, one, options, left)
        if place is not None:
            places.append(place)
            left -= place.work if place.is_checked else 0
    checked = [_named(place) for place in places if place.is_checked]
    by_totals = [_named(place) for place in places if not place.is_checked]
    texts = [f"as it is it fits {', '.join(checked)}"] if checked else []
    texts += [f"by its totals it may fit {', '.join(by_totals)}"] if by_totals else []
    return "; ".join(texts) or "as it is it fits none of the shipped chips and boards"


def _place(network: Network, chip: Chip, options: Options, most_work: int) -> Place | None:
    """The chip as a Place if it takes the network, else None; beyond `most_work` its totals are judged."""
    try:
        whole = legalize(normalize(sized(network, chip, options)), chip, options).network
        legal = with_parts(whole, chip, options)
        may_be_narrow = legal is not whole and not parts_surely_hold(legal, chip)
        estimate(legal, chip, options.on_multi_spike)
        timing = scheduled(legal, options.execution)
        weights = (v for c in legal.connections if legal.is_fixed for v in capability.weight_violations(c, chip))
        n_relays_of = relay_layers(legal, timing, chip, options)
        if SYNAPSES_OF_A_PAIR * sum(n_relays_of.values()) ** 2 > most_work:
            relays = sizes_of(legal, n_relays_of)
            verify_relays(legal, chip, relays)
            return Place(chip, 0, least_cores(legal, chip, relays), False)
        legal, timing, _ = relay_delays(legal, timing, chip, options)
        if any(capability.delay_violations(legal, timing, chip)) or any(weights) or too_many_weights(legal, chip):
            return None
        work = sum(synapse_count(legal, c) for c in legal.connections)
        work += SYNAPSES_OF_A_PAIR * len(legal.layers) * len(legal.connections)
        if work > most_work or chip.weights.axon_types is not None or may_be_narrow:
            return Place(chip, work, least_cores(legal, chip), False)
        slices = replace(options, partitioner="sequential", optimize="time")
        activity = Activity.uniform(legal, 1)
        mapping = partition(legal, chip, activity, slices).mapping
        if sends_too_far(legal, chip, mapping):
            copied = copy_neurons(legal, timing, chip, activity, mapping, slices)
            if sends_too_far(copied.network, chip, copied.mapping):
                return None
            mapping = copied.mapping
        return Place(chip, work, mapping.n_cores, True)
    except NwError:
        return None


def _named(place: Place) -> str:
    """`loihi2 (12 of 128 cores)`, or `loihi2_kapoho (2 of 8 chips)`."""
    chip, least = place.chip, "" if place.is_checked else "at least "
    if chip.is_board:
        n_chips = prod(fewest_chips(chip.noc, place.n_cores))
        return f"{chip.name} ({least}{n_chips} of {prod(count_chips(chip.noc))} chips)"
    return f"{chip.name} ({least}{place.n_cores} of {int(chip.is_usable.sum())} cores)"
