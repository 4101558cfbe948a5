"""Visit order: choose the order in which cores visit their neurons, so that messages leave them evenly over a step."""

from dataclasses import replace

import numpy as np

from nwcompile.cost.time.work import cycles_of_event
from nwcompile.cost.traffic.memory import stored_kind
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import join_layers, split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.program import SYNAPSE_KINDS

BETWEEN_NEURONS = 0.6180339887498949  # 1 / golden ratio, whose multiples modulo 1 are evenly spread for any count
BETWEEN_CORES = 0.7548776662466927  # 1 / plastic number: together with the other, points are evenly spread in a square


def interleave_visits(mapping: Mapping, network: Network, chip: Chip, activity: Activity) -> Mapping:
    """Add an order of visits in which every part of a step sends the same amount of work.

    Layer by layer, cores that wait for the spikes of a late layer would idle first and be flooded later. Busiest first,
    all would send at once and messages would block each other. So each core's neurons, sorted by the cycles that their
    spikes in `activity` cause in synapses, take the positions of a low-discrepancy sequence (additive recurrence;
    Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018), with a different offset for each core.
    The order affects time only, no results. A mapping with an order keeps it.
    """
    if mapping.visit:
        return mapping
    caused = _synapse_cycles(network, chip, activity)
    core_of = join_layers(network, mapping.core_of)
    by_work = np.lexsort((-join_layers(network, caused), core_of))
    core = core_of[by_work]
    rank = np.arange(len(core)) - np.searchsorted(core, core)
    order = by_work[np.lexsort((np.modf(rank * BETWEEN_NEURONS + core * BETWEEN_CORES)[0], core))]
    place = np.empty(len(order), np.int32)
    place[order] = rank
    return replace(mapping, visit=split_layers(network, place))


def _synapse_cycles(network: Network, chip: Chip, activity: Activity) -> dict[str, np.ndarray]:
    """Return int64[n] of every layer: cycles of the synapses of its spikes, on all cores together."""
    caused = {name: np.zeros(network.node(name).n_neurons, np.int64) for name in network.layers}
    for c in (c for c in network.connections if c.source in caused):
        wires = connection_wiring(network, c)
        synop_cycles = cycles_of_event(chip, f"synop_{SYNAPSE_KINDS[stored_kind(wires.kind, chip)]}")
        caused[c.source] += activity.count_reads(c.source).sum(0, dtype=np.int64) * wires.fan_out * synop_cycles
    return caused
