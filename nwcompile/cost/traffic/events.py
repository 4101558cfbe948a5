"""Traffic: which axons a mapping needs, what they take in each core, and the events and link loads they cause.

One message per non-zero spike and destination core, whatever the number of synapses there (DESIGN 4.3 and 7).
"""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.destinations import core_pairs, rows_by_connection
from nwcompile.cost.traffic.io_sites import gate_messages, gates
from nwcompile.cost.traffic.multicast import forest, leaves
from nwcompile.cost.traffic.wiring import Wiring, wiring
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection
from nwcompile.ir.flat import cores_of_sources, csr_offset, join_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.noc.bus import stretches
from nwcompile.ir.noc.routing import routes
from nwcompile.ir.program import CONV, DENSE, SPARSE, SYNAPSE_KINDS, Axons, Program
from nwcompile.kernels.mapping import traffic


def flat_cores(network: Network, mapping: Mapping) -> np.ndarray:
    """int32[source]: logical core of every source in the order `network.offsets`; -1 for input lines."""
    return cores_of_sources(network, join_layers(network, mapping.core_of))


def synapse_bits(connection: Connection, kind: int, chip: Chip) -> int:
    """Bits that one stored synapse of a connection takes on the chip, its index included if sparse."""
    return (connection.weight_bits or chip.weights.bits) + (chip.weights.index_bits if kind == SPARSE else 0)


def row_bits(n_synapses, bits: int, chip: Chip):
    """Synapse memory of a row of `n_synapses`: blocks of up to `core.block_synapses`, each with its overhead, in words.

    After the discrete-axon format of Loihi 1 (DESIGN 5). `n_synapses` may be an array.
    """
    core = chip.core

    def block(n):
        return -(-(n * bits + core.block_overhead_bits) // core.word_bits) * core.word_bits

    rest = n_synapses % core.block_synapses
    return n_synapses // core.block_synapses * block(core.block_synapses) + (rest > 0) * block(rest)


def build_axons(network: Network, core_of: np.ndarray, n_cores: int, chip: Chip) -> Axons:
    """The axons of a normalized network whose sources lie on the cores `core_of` (only its structure matters).

    `core_of` is int32[source] in the order `network.offsets`, -1 for input lines; neurons of core -1 have no axon to
    them. A stored zero counts as a synapse; a convolution's tap outside the map does not. Raises ModelError for a
    connection that `normalize` should have folded.
    """
    rows: dict[str, list[_Rows]] = {name: [] for name in network.offsets}
    kernel_bits = np.zeros(n_cores, np.int64)
    for c, (offset, core, n_synapses) in zip(
        network.connections, rows_by_connection(network, core_of, n_cores), strict=True
    ):
        wires, first = wiring(network, c), network.offsets[c.target]
        kernel_bits += kernel_memory(c, wires, core_of[first : first + len(wires.target_class)], n_cores, chip)
        bits, words = row_memory(c, wires, n_synapses, chip)
        row = np.stack([n_synapses, words, bits], 1)
        at = offset[wires.source_class], offset[wires.source_class + 1]
        rows[c.source].append(_Rows(*at, stored_kind(wires.kind, chip), core, row))
    joined = {name: _joined(found) for name, found in rows.items() if found}
    n_axons = np.zeros(len(core_of), np.int64)
    for name, own in joined.items():
        first = network.offsets[name]
        traffic.count_merged(own.begin, own.end, own.core, n_axons[first : first + len(own.begin)])
    offset = csr_offset(n_axons)
    n = offset[-1]
    made = Axons(offset, np.empty(n, np.int32), np.zeros((n, len(SYNAPSE_KINDS)), np.int32), np.zeros(n, np.int32),
                 np.zeros(n, np.int64), kernel_bits)  # fmt: skip
    for name, own in joined.items():
        first = network.offsets[name]
        out = made.core, made.synops, made.words, made.row_bits
        traffic.merge_rows(*own, offset[first : first + len(own.begin) + 1], *out)
    return made


class _Rows(NamedTuple):
    """Rows of one node's sources: of one connection, or of several joined."""

    begin: np.ndarray  # int64[source], or [source, connection]
    end: np.ndarray
    kind: int | np.ndarray  # how the connection is stored, or of each
    core: np.ndarray  # int32[row], ascending in each source's rows of a connection
    row: np.ndarray  # int64[row, 3]: synapses, words, bits


def _joined(parts: list[_Rows]) -> _Rows:
    first = csr_offset([len(p.core) for p in parts])[:-1]
    begin, end = (np.stack([p[i] for p in parts], 1) + first for i in range(2))
    kind = np.array([p.kind for p in parts])
    return _Rows(begin, end, kind, np.concatenate([p.core for p in parts]), np.concatenate([p.row for p in parts]))


def stored_kind(kind: int, chip: Chip) -> int:
    """How a connection of that kind lies in the synapse memory, and so what a synapse of it costs to read.

    Without shared weights a convolution lies there as dense rows, a run of taps for each source (as SANA-FE counts its
    convolutions on Loihi 1: reference/models, sanafe_dvs).
    """
    return DENSE if kind == CONV and not chip.weights.sharing else kind


def row_memory(connection: Connection, wires: Wiring, n_synapses: np.ndarray, chip: Chip):
    """Bits that rows of so many synapses of a connection take, int64[row], and words that a message reads of each.

    Of a shared kernel a row reads its synapses, but takes nothing.
    """
    bits_each = synapse_bits(connection, wires.kind, chip)
    if stored_kind(wires.kind, chip) == CONV:
        return np.zeros(len(n_synapses), np.int64), -(-n_synapses * bits_each // chip.core.word_bits)
    bits = row_bits(n_synapses, bits_each, chip)
    return bits, bits // chip.core.word_bits


def kernel_memory(connection: Connection, wires: Wiring, target_core: np.ndarray, n_cores: int, chip: Chip):
    """int64[core]: bits of the shared kernels that a connection's targets on each core read; 0 for what is not shared.

    `target_core`: int32[target], -1 for targets on none.
    """
    if stored_kind(wires.kind, chip) != CONV:
        return np.zeros(n_cores, np.int64)
    n_kernels = wires.kernel.max() + 1
    core_held = np.unique(target_core.astype(np.int64) * n_kernels + wires.kernel) // n_kernels
    bits_each = synapse_bits(connection, wires.kind, chip)
    return np.bincount(core_held[core_held >= 0], minlength=n_cores) * wires.kernel_size * bits_each


def resources(axons: Axons, core_of: np.ndarray, n_cores: int) -> dict[str, np.ndarray]:
    """What each core holds, int64[core]: `neurons`, `in_axons`, `out_axons`, `synapse_bits`."""
    bits, on_chip, n_out = axons.kernel_bits.copy(), core_of >= 0, np.zeros(n_cores, np.int64)
    np.add.at(bits, axons.core, axons.row_bits)
    np.add.at(n_out, core_of[on_chip], np.diff(axons.offset)[on_chip])
    return {
        "neurons": np.bincount(core_of[on_chip], minlength=n_cores),
        "in_axons": np.bincount(axons.core, minlength=n_cores),
        "out_axons": n_out,
        "synapse_bits": bits,
    }


def count_events(program: Program, activity: Activity, window: str = "aligned") -> dict[str, np.ndarray]:
    """Every counter of `nwcompile.ir.run.COUNTERS`, int64[H, core], that `activity` causes on a program.

    Exact, given exact spike counts; `neuron_updates` too where `activity.updates` has the layer, else every neuron
    counts as updated in its own steps. `window="aligned"`: counts of aligned step t belong to hardware step
    t + offset. `window="hardware"`: row t of `activity` is hardware step t, and H = T.
    """
    n_steps, n_cores = program.schedule.n_hardware_steps(activity.n_steps, window), program.mapping.n_cores
    axons, core_of, sent = program.axons, program.core_of, leaves(program)

    def table(*outer):
        return np.zeros((*outer, n_steps, n_cores), np.int64)

    messages_in, words, synops = table(), table(), table(len(SYNAPSE_KINDS))
    spikes, messages_out, routed, updates = table(), table(), table(2), table()
    for name, first in program.network.offsets.items():
        count, h0 = activity.counts[name], _first_step(program, name, window)
        last = first + count.shape[1]
        offset = axons.offset[first : last + 1]
        traffic.count_arrivals(count, h0, offset, axons.core, axons.synops, axons.words, messages_in, synops, words)
        if name in program.network.layers:
            cores = core_of[first:last]
            traffic.count_departures(
                count, h0, cores, sent.messages[first:last], sent.hops[first:last], spikes, messages_out, routed
            )
            for t in range(activity.n_steps):
                updated = activity.updates[name][t] if name in activity.updates else activity.n_samples
                updates[h0 + t] += _per_core(cores, updated, n_cores)
    visits = np.tile(_per_core(core_of[core_of >= 0], activity.n_samples, n_cores), (n_steps, 1))
    by_kind = {f"synops_{kind}": synops[i] for i, kind in enumerate(SYNAPSE_KINDS)}
    io = _count_io(program, activity, n_steps, window)
    return {"synops": synops.sum(0), **by_kind, "weight_reads": words, "neuron_visits": visits,
            "neuron_updates": updates, "spikes_out": spikes, "messages_out": messages_out, "messages_in": messages_in,
            "deliveries": messages_in.copy(), "hops": routed.sum(0), "hops_ew": routed[0],
            "hops_ns": routed[1], **io}  # fmt: skip


def _count_io(program: Program, activity: Activity, n_steps: int, window: str) -> dict[str, np.ndarray]:
    """The counters of messages through the chip's io.sites, int64[H, core]; zero where there are none."""
    found, shape = gates(program), (n_steps, program.mapping.n_cores)
    come, leave, *along = np.zeros((4, *shape), np.int64)
    if found is not None:
        come, leave = gate_messages(program, activity, n_steps, lambda name: _first_step(program, name, window))
        along = [come * found[0].hops[:, i] + leave * found[1].hops[:, i] for i in range(2)]
    return {"messages_io": come + leave, "messages_io_in": come, "messages_io_out": leave, "hops_io_ew": along[0],
            "hops_io_ns": along[1]}  # fmt: skip


def _first_step(program: Program, name: str, window: str) -> int:
    """Hardware step of row 0 of the activity of a layer or input."""
    return program.schedule.offset[name] if window == "aligned" and program.schedule.period == 1 else 0


def _per_core(cores: np.ndarray, amount, n_cores: int) -> np.ndarray:
    """int64[core]: sum of `amount` (a number, or one per neuron) over the neurons of each core."""
    total = np.zeros(n_cores, np.int64)
    np.add.at(total, cores, amount)
    return total


def pair_messages(
    network: Network, axons: Axons, axon_pair: np.ndarray, n_pairs: int, activity: Activity
) -> np.ndarray:
    """int64[pair]: messages between the cores of each of `core_pairs` over all steps of `activity`."""
    messages = np.zeros(n_pairs, np.int64)
    for name in network.layers:
        first = network.offsets[name]
        offset = axons.offset[first : first + network.node(name).n_neurons + 1]
        traffic.count_pairs(activity.counts[name].sum(0, dtype=np.int64), offset, axon_pair, messages)
    return messages


def link_flits(
    program: Program, activity: Activity, window: str = "aligned", multicast: str | None = None
) -> np.ndarray:
    """int64[H, link]: flits that cross each link in each hardware step, on the ways of the chip's routing.

    Links: `router * 4 + direction`, router = y * columns + x, direction 0 E (+x), 1 W (-x), 2 N (+y), 3 S (-y); then
    the injection and then the ejection link of every physical core; of a bus: ir/noc/bus.py. Messages of input
    lines, and those to the outside, use links only where the chip has io.sites. `multicast`: "unicast" or "tree"; None:
    as the chip does.
    """
    chip, found = program.chip, gates(program)
    n_steps = program.schedule.n_hardware_steps(activity.n_steps, window)
    flits = np.zeros((n_steps, len(chip.link_cycles)), np.int64)
    is_tree = (multicast or chip.noc.multicast) == "tree"
    (_tree_flits if is_tree else _pair_flits)(program, activity, window, flits)
    if found is not None:
        site = chip.site_index(program.mapping.site_of)
        by_gate = gate_messages(program, activity, n_steps, lambda name: _first_step(program, name, window), flits=True)
        ends = np.concatenate([[found[0].site, site], [site, found[1].site]], 1)
        _along_ways(chip, np.concatenate([*by_gate], 1), ends, flits)
    return flits


def _pair_flits(program: Program, activity: Activity, window: str, flits: np.ndarray) -> None:
    """Add a message to each destination core of every spike to `flits` int64[H, link]."""
    mapping, axons, network = program.mapping, program.axons, program.network
    axon_pair, pair = core_pairs(axons, program.core_of, mapping.n_cores)
    carried = np.zeros((len(flits), len(pair)), np.int64)
    for name in network.layers:
        each = np.int64(program.message_flits(name))
        first, h0 = network.offsets[name], _first_step(program, name, window)
        offset = axons.offset[first : first + network.node(name).n_neurons + 1]
        for t in range(activity.n_steps):
            traffic.count_pairs(activity.counts[name][t] * each, offset, axon_pair, carried[h0 + t])
    _along_ways(program.chip, carried, program.chip.site_index(mapping.site_of)[pair].T, flits)


def _along_ways(chip: Chip, carried: np.ndarray, ends: np.ndarray, flits: np.ndarray) -> None:
    """Add flits carried int64[H, pair] between physical cores `ends` int64[2, pair] to `flits` int64[H, link]."""
    used = carried.any(0)
    carried, ends = carried[:, used], ends[:, used]
    offset, link = _links_on_the_way(chip, *ends)
    ends = ends + np.array([[len(chip.link_cycles) - 2 * chip.n_cores], [len(chip.link_cycles) - chip.n_cores]])
    for h in range(len(flits)):
        traffic.count_links(carried[h], ends, offset, link, flits[h])


def _links_on_the_way(chip: Chip, here: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The links, those of the cores' own ports left out, between pairs of physical cores, as `routes` gives them."""
    per = chip.noc.cores_per_router
    if chip.is_bus:
        return stretches(chip.noc.columns, per, here, there)
    return routes(chip.grid, here // per, there // per)


def _tree_flits(program: Program, activity: Activity, window: str, flits: np.ndarray) -> None:
    """Add one message of every spike, forking on its tree, to `flits` int64[H, link]."""
    chip, network, own = program.chip, program.network, forest(program)
    carried = np.zeros((len(flits), len(own.home)), np.int64)
    for name in network.layers:
        first, h0 = network.offsets[name], _first_step(program, name, window)
        tree = own.tree_of[first : first + network.node(name).n_neurons]
        for t in range(activity.n_steps):
            np.add.at(carried[h0 + t], tree[tree >= 0], activity.counts[name][t][tree >= 0])
    site = chip.site_index(program.mapping.site_of)
    inject, eject = len(chip.link_cycles) - 2 * chip.n_cores, len(chip.link_cycles) - chip.n_cores
    for h in np.flatnonzero(carried.any(1)):
        np.add.at(flits[h], own.trees.link, np.repeat(carried[h], np.diff(own.trees.offset)))
        np.add.at(flits[h], inject + site[own.home], carried[h])
        np.add.at(flits[h], eject + site[own.core], np.repeat(carried[h], np.diff(own.offset)))
