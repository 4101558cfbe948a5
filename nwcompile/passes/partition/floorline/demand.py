"""Demand: what clusters of neurons ask of the cores that hold them, gathered once before any of them moves."""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.time.work import cycles_of_event, update_cycles
from nwcompile.cost.traffic.destinations import source_classes
from nwcompile.cost.traffic.memory import stored_kind, synapse_bits
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_entries, csr_groups, csr_offset, csr_sums, neuron_offsets
from nwcompile.ir.network import Network
from nwcompile.ir.program import CONV, SYNAPSE_KINDS
from nwcompile.ir.resources import N_RESOURCES
from nwcompile.ir.schedule import Schedule
from nwcompile.kernels.mapping import cluster_state, clusters, moves
from nwcompile.kernels.mapping.core_usage import SynapseTable
from nwcompile.passes.analyze import capacity

DESTINATIONS = 8  # cores of a spike, before it is known
LARGEST_TABLE = 1 << 26  # cycles kept by cluster and step; above that, steps are left out at even distances


class Spikes(NamedTuple):
    """Spikes in every step as CSR lists of the steps with any."""

    offset: np.ndarray  # int64[... + 1]
    step: np.ndarray  # int32[...]
    n: np.ndarray  # int32[...]: how many


class Entries(NamedTuple):
    """What the clusters read: entries by cluster, and the source class and format of every row."""

    offset: np.ndarray  # int64[cluster + 1]
    row: np.ndarray  # int32[entry]
    n_synapses: np.ndarray  # int32[entry]: of each source of the row in the cluster
    source_class: np.ndarray  # int64[row]
    format: np.ndarray  # int64[row]


class Groups(NamedTuple):
    """Sources of one class in one cluster, in the order of clusters; cluster -1 (of input lines) comes last."""

    source_class: np.ndarray  # int64[group]
    cluster: np.ndarray  # int64[group]
    size: np.ndarray  # int64[group]
    spikes: Spikes


def cluster_demand(
    network: Network,
    chip: Chip,
    activity: Activity,
    timing: Schedule,
    cluster_of: np.ndarray,
    n_cores: int,
    max_steps: int | None = None,
) -> cluster_state.Demand:
    """The Demand of the clusters int32[neuron] (0.., none empty) of a normalized network, on up to `n_cores` cores.

    A cost that the chip does not give counts as one cycle; where messages fork, sending one is the cluster's own work.
    Steps are hardware steps, as in `traffic.count_events`; of more than `max_steps`, or than `LARGEST_TABLE` allows,
    some at even distances.
    """
    table, n_clusters = capacity.fan_in(network, chip), int(cluster_of.max()) + 1
    neurons = np.argsort(cluster_of, kind="stable")
    start = csr_offset(np.bincount(cluster_of))
    entries, class_of, class_size = _read(network, table, start, neurons)
    n_kept = min(max_steps or LARGEST_TABLE, max(1, LARGEST_TABLE // n_clusters))
    step_at, n_steps = _kept_steps(timing.n_hardware_steps(activity.n_steps, "aligned"), n_kept)
    groups = _groups(network, activity, timing, cluster_of, class_of, step_at, n_steps)
    arrivals, of_class_offset, of_class = _arrivals(groups, len(class_size), n_steps)
    row_bits, shared_bits, synop_cycles = _formats(network, chip, table)
    receive = np.zeros((n_clusters, n_steps), np.int64)
    clusters.add_received(
        entries.offset,
        entries.row,
        entries.n_synapses,
        entries.source_class,
        synop_cycles[entries.format],
        arrivals.offset,
        arrivals.step,
        arrivals.n,
        receive,
    )
    kernel_offset, kernel, n_readers = _kernels(table, start, neurons)
    costs = [cycles_of_event(chip, name) for name in ("message_out", "message_in", "word")]
    send = _send(network, chip, activity, timing, cluster_of, step_at, n_steps)
    if chip.noc.multicast == "tree":
        _add_forking(send, groups, entries, costs[cluster_state.MESSAGE_OUT])
        costs[cluster_state.MESSAGE_OUT] = 0
    inside = groups.cluster >= 0
    return cluster_state.Demand(
        reads=cluster_state.Reads(
            receive=receive,
            row_offset=entries.offset,
            row=entries.row,
            n_synapses=entries.n_synapses,
            kernel_offset=kernel_offset,
            kernel=kernel,
            n_readers=n_readers,
        ),
        rows=cluster_state.Rows(
            source_class=entries.source_class,
            format=entries.format,
            bits=row_bits,
            shared_bits=shared_bits,
            kernels=table.kernels,
        ),
        sends=cluster_state.Sends(
            n_neurons=np.bincount(cluster_of).astype(np.int64),
            send=send,
            group_offset=np.searchsorted(groups.cluster[inside], np.arange(n_clusters + 1)),
            group_class=groups.source_class[inside].astype(np.int32),
            group_cluster=groups.cluster[inside].astype(np.int32),
            group_size=groups.size[inside],
            group_spikes=_totals(groups.spikes)[inside],
            spike_offset=groups.spikes.offset,
            spike_step=groups.spikes.step,
            spike_count=groups.spikes.n,
        ),
        classes=cluster_state.SourceClasses(
            size=class_size,
            spikes=_totals(arrivals),
            group_offset=of_class_offset,
            group=of_class,
            arrival_offset=arrivals.offset,
            arrival_step=arrivals.step,
            arrival_count=arrivals.n,
        ),
        rules=_core_rules(chip, n_cores, activity.n_samples * timing.period, costs),
    )


def _core_rules(chip: Chip, n_cores: int, n_barriers: int, costs: list[int]) -> cluster_state.CoreRules:
    """The largest `n_cores` cores, the largest first, every cluster free to go to any of them."""
    limit = capacity.site_limits(chip)[:, :N_RESOURCES]
    limit = limit[np.lexsort(tuple(-limit[:, i] for i in reversed(range(limit.shape[1]))))][:n_cores]
    return cluster_state.CoreRules(
        cycles=np.array(costs, np.int64),
        word_bits=np.array([chip.core.word_bits]),
        limit=np.ascontiguousarray(limit),
        barrier=_barriers(chip, n_cores, n_barriers),
        region=np.tile([0, len(limit)], (len(limit), 1)),
    )


def empty_cores(demand: cluster_state.Demand, chip: Chip) -> cluster_state.CoreState:
    """The state of cores without clusters, all totals known."""
    n_clusters, n_steps = demand.sends.send.shape
    n_cores = len(demand.rules.limit)
    n_columns = n_cores if chip.cost.units == "shared" else 2 * n_cores
    n_classes = len(demand.classes.size)
    state = cluster_state.CoreState(
        held=cluster_state.CoreContents(
            core_of=np.zeros(n_clusters, np.int32),
            n_clusters=np.zeros(n_cores, np.int64),
            n_synapses=np.zeros((n_cores, len(demand.rows.source_class)), np.int32),
            n_rows=np.zeros((n_cores, n_classes), np.int32),
            n_readers=np.zeros((n_cores, len(demand.rows.kernels.group)), np.int32),
            n_kernels=np.zeros((n_cores, len(demand.rows.kernels.bits)), np.int32),
            fan_out=np.zeros(n_classes, np.int32),
            used=np.zeros((n_cores, N_RESOURCES), np.int64),
            excess=np.zeros(n_cores, np.int64),
        ),
        busy=cluster_state.StepLoads(
            load=np.zeros((n_columns, n_steps), np.int64),
            top=np.zeros(n_steps, np.int64),
            top_column=np.zeros(n_steps, np.int64),
            total=np.zeros(cluster_state.N_TOTALS, np.int64),
            touched=np.zeros(n_columns + 1, np.int64),
            is_touched=np.zeros(n_columns, bool),
        ),
        attempt=cluster_state.Attempt(
            cluster=np.zeros(2, np.int64),
            to=np.zeros(2, np.int64),
            top=np.zeros(n_steps, np.int64),
            top_column=np.zeros(n_steps, np.int64),
            total=np.zeros(cluster_state.N_TOTALS, np.int64),
        ),
    )
    return _begun(demand, state)


def _begun(demand: cluster_state.Demand, state: cluster_state.CoreState) -> cluster_state.CoreState:
    """A state that is 0 throughout, as it is of cores without clusters."""
    state.held.core_of.fill(-1)
    state.attempt.cluster.fill(-1)
    state.attempt.to.fill(-1)
    state.busy.total[cluster_state.TIME] = state.busy.load.shape[1] * demand.rules.barrier[0]
    return state


def filled_cores(
    demand: cluster_state.Demand, chip: Chip, core_of: np.ndarray, used: cluster_state.CoreState | None = None
) -> cluster_state.CoreState:
    """The state of cores that hold every cluster on its core, core_of: int[cluster].

    It is made of `used`, where that is a state of as many clusters, rows, cores and steps that is needed no longer: on
    thousands of cores new memory takes longer than to fill it.
    """
    core_of = np.array(core_of, np.int64)
    if used is None:
        state = empty_cores(demand, chip)
    else:
        for array in (array for part in used for array in part):
            array.fill(0)
        state = _begun(demand, used)
    moves.fill_cores(*demand, state.held, state.busy, core_of)
    moves.refresh_totals(demand.rules, state.held, state.busy)
    return state


def neuron_load(network: Network, chip: Chip, activity: Activity) -> np.ndarray:
    """int64[neuron]: the share in all that cores send or in all that they receive, the larger, in parts of 2**40.

    Before any is on a core, a spike is taken to go to `DESTINATIONS` of them. Alike where nothing takes any cycles.
    """
    visits = activity.n_steps * activity.n_samples
    synops = capacity.synaptic_load(network, activity) - visits
    spike_cycles = cycles_of_event(chip, "spike") + DESTINATIONS * cycles_of_event(chip, "message_out")
    sent = np.concatenate([activity.counts[name].sum(0, dtype=np.int64) * spike_cycles for name in network.layers])
    nodes = [network.node(name) for name in network.layers]
    updates = np.repeat([update_cycles(chip, node.neuron) for node in nodes], [node.n_neurons for node in nodes])
    sent += visits * (cycles_of_event(chip, "visit") + updates)
    if chip.cost.units == "shared":
        load = sent + synops * max(cycles_of_event(chip, f"synop_{kind}") for kind in SYNAPSE_KINDS)
        return load if load.any() else np.ones_like(load)
    share = np.maximum(sent / max(1, sent.sum()), synops / max(1, synops.sum()))
    return np.ceil((share if share.any() else np.ones_like(share)) * (1 << 40)).astype(np.int64)


def _kept_steps(n_steps: int, max_steps: int) -> tuple[np.ndarray, int]:
    """int64[H]: the place of every hardware step that is looked at, -1 for the others, and how many are."""
    n_kept = min(n_steps, max_steps)
    step_at = np.full(n_steps, -1)
    step_at[np.arange(n_kept) * n_steps // n_kept] = np.arange(n_kept)
    return step_at, n_kept


def _read(network: Network, table: SynapseTable, start, neurons) -> tuple[Entries, dict[str, np.ndarray], np.ndarray]:
    """What the clusters read, the class of every source of each node that sends, int64[n], and the classes' sizes.

    Sources of which every cluster has the same synapses are one class here: no place of the clusters tells them apart.
    """
    offset, row, n_synapses = _cluster_rows(table, start, neurons)
    row_format = table.row_format[csr_groups(table.class_offset)]
    of_row = np.zeros((len(row_format), 2), np.uint64)
    clusters.readers_of_rows(offset, row, n_synapses, row_format, of_row)
    digest = np.zeros((len(table.class_size), 2), np.uint64)
    np.add.at(digest, table.classes, of_row)
    merged, first = _merged(digest)
    class_of, _ = source_classes(network)
    is_first = np.zeros(len(digest), bool)
    is_first[first] = True
    is_kept = is_first[table.classes]
    new_row = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
    kept = np.zeros(len(offset), np.int64)
    clusters.keep_rows(offset, row, n_synapses, new_row, kept)
    n_kept = kept[-1]
    entries = Entries(
        kept, row[:n_kept].copy(), n_synapses[:n_kept].copy(), merged[table.classes[is_kept]], row_format[is_kept]
    )
    size = np.bincount(merged, table.class_size, len(first)).astype(np.int64)
    return entries, {name: merged[source_class] for name, source_class in class_of.items()}, size


def _cluster_rows(table: SynapseTable, start, neurons) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offset, row and number of synapses of the entries of `clusters.cluster_rows`."""
    offset = np.zeros(len(start), np.int64)
    row, count = np.zeros(0, np.int32), np.zeros(0, np.int32)
    place = np.full(len(table.row_size), -1, np.int64)
    clusters.cluster_rows(table, start, neurons, place, offset, row, count)
    row, count = np.zeros(offset[-1], np.int32), np.zeros(offset[-1], np.int32)
    place[:] = -1
    clusters.cluster_rows(table, start, neurons, place, offset, row, count)
    return offset, row, count


def _spikes_of(counts: np.ndarray, step0: int, group: np.ndarray, size: np.ndarray, step_at, n_steps: int) -> Spikes:
    """Spikes of one layer's groups: counts int32[T, n], group int64[n], size int64[group]."""
    members, start = np.argsort(group, kind="stable"), csr_offset(size)
    total, offset = np.zeros(n_steps, np.int64), np.zeros(len(start), np.int64)
    step, count = np.zeros(0, np.int32), np.zeros(0, np.int32)
    clusters.spikes_of(counts, step0, start, members, step_at, total, offset, step, count)
    step, count = np.zeros(offset[-1], np.int32), np.zeros(offset[-1], np.int32)
    clusters.spikes_of(counts, step0, start, members, step_at, total, offset, step, count)
    return Spikes(offset, step, count)


def _merged(digest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sources of equal uint64[..., 2] under one number, in the order in which they come, and the first of each."""
    order = np.lexsort(digest.T)
    begins = np.concatenate([[True], (digest[order[1:]] != digest[order[:-1]]).any(1)])[: len(order)]
    first = order[begins]  # the sort is stable
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    merged = np.empty(len(order), np.int64)
    merged[order] = rank[np.cumsum(begins) - 1]
    return merged, np.sort(first)


def _groups(network, activity, timing, cluster_of, class_of, step_at, n_steps) -> Groups:
    first_neuron, parts = neuron_offsets(network), []
    for name, source_class in class_of.items():
        n = len(source_class)
        first = first_neuron.get(name)
        cluster = np.full(n, -1) if first is None else cluster_of[first : first + n]
        width = int(source_class.max()) + 1
        key, group = np.unique((cluster.astype(np.int64) + 1) * width + source_class, return_inverse=True)
        group = group.reshape(-1)
        size = np.bincount(group)
        step0 = timing.offset[name] if timing.period == 1 else 0
        spikes = _spikes_of(activity.counts[name], step0, group, size, step_at, n_steps)
        parts.append(Groups(key % width, key // width - 1, size, spikes))
    return _in_cluster_order(parts)


def _in_cluster_order(parts: list[Groups]) -> Groups:
    if not parts:
        none = np.zeros(0, np.int64)
        return Groups(none, none, none, Spikes(np.zeros(1, np.int64), none.astype(np.int32), none.astype(np.int32)))
    source_class, cluster, size = (np.concatenate([p[i] for p in parts]) for i in range(3))
    order = np.argsort(np.where(cluster < 0, np.iinfo(np.int64).max, cluster), kind="stable")
    joined = _joined_spikes([p.spikes for p in parts])
    return Groups(source_class[order], cluster[order], size[order].astype(np.int64), _picked(joined, order))


def _joined_spikes(parts: list[Spikes]) -> Spikes:
    length = np.concatenate([np.diff(p.offset) for p in parts])
    return Spikes(
        csr_offset(length),
        np.concatenate([p.step for p in parts]),
        np.concatenate([p.n for p in parts]),
    )


def _picked(spikes: Spikes, order: np.ndarray) -> Spikes:
    """The lists of spikes in another order."""
    offset = csr_offset(np.diff(spikes.offset)[order])
    at = csr_entries(spikes.offset, order)
    return Spikes(offset, spikes.step[at], spikes.n[at])


def _arrivals(groups: Groups, n_classes: int, n_steps: int) -> tuple[Spikes, np.ndarray, np.ndarray]:
    """Spikes of all sources of every class, and the groups of every class that lie in clusters, as CSR."""
    of_spike = np.repeat(groups.source_class, np.diff(groups.spikes.offset)) * n_steps + groups.spikes.step
    key, inverse = np.unique(of_spike, return_inverse=True)
    count = np.bincount(inverse.reshape(-1), groups.spikes.n, len(key)).astype(np.int32)
    offset = np.searchsorted(key, np.arange(n_classes + 1) * n_steps)
    of_group = groups.source_class[groups.cluster >= 0]
    order = np.argsort(of_group, kind="stable").astype(np.int32)
    group_offset = csr_offset(np.bincount(of_group, minlength=n_classes))
    return Spikes(offset, (key % n_steps).astype(np.int32), count), group_offset, order


def _totals(spikes: Spikes) -> np.ndarray:
    """int64: spikes over all steps of each list."""
    return csr_sums(spikes.offset, spikes.n)


def _formats(network: Network, chip: Chip, table: SynapseTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By connection: bits of a row of 0.. synapses, bits of a synapse of a shared kernel or 0, cycles of a synop."""
    n = len(network.connections)
    row_bits = np.concatenate([np.zeros((n, 1), np.int64), np.cumsum(table.step_bits, 1)], 1)
    shared, synop = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i, c in enumerate(network.connections):
        kind = connection_wiring(network, c).kind
        if kind == CONV and chip.weights.sharing:
            shared[i] = synapse_bits(c, kind, chip)
        synop[i] = cycles_of_event(chip, f"synop_{SYNAPSE_KINDS[stored_kind(kind, chip)]}")
    return row_bits, shared, synop


def _kernels(table: SynapseTable, start: np.ndarray, neurons: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CSR by cluster: the shared kernels that its neurons read, and how many neurons read each."""
    cluster_of = np.empty(len(neurons), np.int64)
    cluster_of[neurons] = np.repeat(np.arange(len(start) - 1), np.diff(start))
    of_slot = np.repeat(cluster_of, np.diff(table.slot_offset))[table.slot_kernel >= 0]
    n_kernels = max(1, len(table.kernels.group))
    key, count = np.unique(of_slot * n_kernels + table.slot_kernel[table.slot_kernel >= 0], return_counts=True)
    offset = np.searchsorted(key, np.arange(len(start)) * n_kernels)
    return offset, (key % n_kernels).astype(np.int32), count.astype(np.int32)


def _send(network, chip, activity, timing, cluster_of, step_at, n_steps) -> np.ndarray:
    """int64[cluster, step]: cycles of visits, updates and spikes."""
    visits = np.bincount(cluster_of) * activity.n_samples * cycles_of_event(chip, "visit")
    done = np.repeat(visits[None].astype(np.int64), n_steps, 0)
    first = neuron_offsets(network)
    for name, at in first.items():
        cluster = cluster_of[at : at + network.node(name).n_neurons]
        step0 = timing.offset[name] if timing.period == 1 else 0
        for t in range(activity.n_steps):
            h = step_at[step0 + t]
            if h < 0:
                continue
            updates = activity.updates[name][t] if name in activity.updates else activity.n_samples
            busy_cycles = updates * np.int64(update_cycles(chip, network.node(name).neuron))
            spike_cycles = activity.counts[name][t] * np.int64(cycles_of_event(chip, "spike"))
            np.add.at(done[h], cluster, busy_cycles + spike_cycles)
    return np.ascontiguousarray(done.T)


def _add_forking(send: np.ndarray, groups: Groups, entries: Entries, message_cycles: int) -> None:
    """Add the cycles of messages that fork on their way, so that a spike is one wherever it is read."""
    is_sent = (groups.cluster >= 0) & np.isin(groups.source_class, entries.source_class)
    length = np.diff(groups.spikes.offset)
    of_spike = np.repeat(is_sent, length)
    cluster = np.repeat(groups.cluster, length)[of_spike]
    np.add.at(
        send, (cluster, groups.spikes.step[of_spike]), message_cycles * groups.spikes.n[of_spike].astype(np.int64)
    )


def _barriers(chip: Chip, n_cores: int, n_barriers: int) -> np.ndarray:
    """int64[cores in use + 1]: cycles of a step's barriers, on as few routers as hold that many cores."""
    tiles = -(-np.maximum(np.arange(n_cores + 1), 1) // chip.noc.cores_per_router)
    if chip.cost.barrier_cycles is None:
        return np.zeros(n_cores + 1, np.int64)
    of_tiles = [0, *(chip.barrier_cycles(n) for n in range(1, int(tiles[-1]) + 1))]
    return np.array(of_tiles, np.int64)[tiles] * n_barriers
