"""Emit: turn a quantized, scheduled and mapped network into the Program that a chip is loaded with.

`interleave_visits` chooses the order in which cores visit their neurons, so that messages leave them evenly over a
step. `emit` builds the tables: effective weights, folded biases and axons.
"""

from dataclasses import replace

import numpy as np

from nwcompile.cost.time.work import cycles_of_event
from nwcompile.cost.traffic.axons import build_axons
from nwcompile.cost.traffic.memory import stored_kind
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, pair
from nwcompile.ir.flat import flat_cores, join_layers, split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.program import SYNAPSE_KINDS, WEIGHT_TYPES, Program
from nwcompile.ir.schedule import Schedule
from nwcompile.sim.reference.synaptic_sums import fold_bias

ERROR_CODE = "NW5011"
BETWEEN_NEURONS = 0.6180339887498949  # 1 / golden ratio, whose multiples modulo 1 are evenly spread for any count
BETWEEN_CORES = 0.7548776662466927  # 1 / plastic number: together with the other, points are evenly spread in a square


def emit(
    network: Network,
    schedule: Schedule,
    mapping: Mapping,
    chip: Chip,
    activity: Activity | None,
    manifest: dict,
    on_multi_spike: str = "refuse",
) -> Program:
    """Build and verify the Program of a fixed-point network: effective weights, biases folded into the neurons, axons.

    Weights are `clip(floor(mantissa * 2**exponent), weights.effective_limit)` in the smallest integer type that holds a
    connection's; exponents become 0, sign modes and weight bits stay for information. A connection's bias is in
    effective units and joins `bias_u`. `on_multi_spike` is that of `Options`. Raises ModelError if the network is not
    fixed-point or the mapping is incomplete.
    """
    if not network.is_fixed:
        raise ModelError("only a fixed-point network can be emitted; quantize it first")
    mapping.verify(network, chip)
    nodes = {name: fold_bias(network, node) for name, node in network.nodes.items()}
    axons = build_axons(network, flat_cores(network, mapping), mapping.n_cores, chip)  # by wirings that are known
    connections = tuple(_make_effective(c, chip.weights.effective_limit) for c in network.connections)
    network = Network(network.inputs, nodes, connections)
    program = Program(
        network=network,
        schedule=schedule,
        mapping=mapping,
        chip=chip,
        axons=axons,
        activity=activity,
        manifest=manifest,
        on_multi_spike=on_multi_spike,
    )
    program.verify()
    return program


def _make_effective(connection: Connection, limit: int) -> Connection:
    weight = effective_weight(connection.weight, connection.exponent, limit)
    low, high = weight.min(initial=0), weight.max(initial=0)
    dtype = next(t for t in WEIGHT_TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    plain: dict = {}
    if isinstance(connection, Conv2d):  # pairs of Python ints, for the file's JSON
        plain = {name: pair(getattr(connection, name)) for name in ("stride", "padding", "dilation")}
        plain["source_shape"] = connection.source_shape and tuple(int(n) for n in connection.source_shape)
    return connection.replace(weight=weight.astype(dtype), exponent=0, bias=None, **plain)


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
