"""Demand: the demand of neuron clusters on the cores that hold them, gathered once before any of them moves."""

from collections.abc import Callable
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

DESTINATIONS = 8  # assumed number of cores that a spike goes to
FEW_CLUSTERS = 1024  # as many or fewer are put on cores by `relocate`: compiling `fill_cores` takes longer
LARGEST_TABLE = 1 << 26  # cycles stored by cluster and step; above that, evenly spaced steps are used


class Spikes(NamedTuple):
    """Spikes in every step as CSR lists of the steps with any."""

    offset: np.ndarray  # int64[... + 1]
    step: np.ndarray  # int32[...]
    n: np.ndarray  # int32[...]: number of spikes


class Entries(NamedTuple):
    """The rows that clusters read: entries by cluster, and the source class and format of every row."""

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
    """Return the Demand of clusters int32[neuron] (0.., none empty) of a normalized network, on up to `n_cores` cores.

    A cost that the chip does not give counts as one cycle. If messages fork, sending one is the cluster's own work.
    Steps are hardware steps, as in `traffic.count_events`; beyond `max_steps`, or what `LARGEST_TABLE` allows, evenly
    spaced ones are used.
    """
    table, n_clusters = capacity.fan_in(network, chip), int(cluster_of.max()) + 1
    neurons = np.argsort(cluster_of, kind="stable")
    start = csr_offset(np.bincount(cluster_of))
    entries, class_of, class_size = _read_clusters(network, table, start, neurons)
    n_all = timing.n_hardware_steps(activity.n_steps, "aligned")
    n_steps = min(n_all, max_steps or LARGEST_TABLE, max(1, LARGEST_TABLE // n_clusters))
    step_at = np.full(n_all, -1)  # int64[hardware step]: the index of those that are used, -1 for others
    step_at[np.arange(n_steps) * n_all // n_steps] = np.arange(n_steps)
    groups = _group_sources(network, activity, timing, cluster_of, class_of, step_at, n_steps)
    arrivals, of_class_offset, of_class = _class_arrivals(groups, len(class_size), n_steps)
    row_bits, shared_bits, synop_cycles = _row_formats(network, chip, table)
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
    kernel_offset, kernel, n_readers = _cluster_kernels(table, start, neurons)
    costs = [cycles_of_event(chip, name) for name in ("message_out", "message_in", "word")]
    send = sending_cycles(network, chip, activity, timing, cluster_of, step_at, n_steps)
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
            group_spikes=csr_sums(groups.spikes.offset, groups.spikes.n)[inside],
            spike_offset=groups.spikes.offset,
            spike_step=groups.spikes.step,
            spike_count=groups.spikes.n,
        ),
        classes=cluster_state.SourceClasses(
            size=class_size,
            spikes=csr_sums(arrivals.offset, arrivals.n),
            group_offset=of_class_offset,
            group=of_class,
            arrival_offset=arrivals.offset,
            arrival_step=arrivals.step,
            arrival_count=arrivals.n,
        ),
        rules=core_rules(chip, n_cores, activity.n_samples * timing.period, costs),
    )


def core_rules(chip: Chip, n_cores: int, n_barriers: int, costs: list[int]) -> cluster_state.CoreRules:
    """Return the rules of the largest `n_cores` cores, the largest first; every cluster may go to any of them."""
    limit = capacity.site_limits(chip)[:, :N_RESOURCES]
    limit = limit[np.lexsort(tuple(-limit[:, i] for i in reversed(range(limit.shape[1]))))][:n_cores]
    return cluster_state.CoreRules(
        cycles=np.array(costs, np.int64),
        word_bits=np.array([chip.core.word_bits]),
        limit=np.ascontiguousarray(limit),
        barrier=_cycles_by_cores(chip, chip.barrier_cycles, n_cores, n_barriers),
        min_work=_cycles_by_cores(chip, chip.min_work_cycles, n_cores, n_barriers),
        region=np.tile([0, len(limit)], (len(limit), 1)),
    )


def empty_cores(demand: cluster_state.Demand, chip: Chip) -> cluster_state.CoreState:
    """Return the state of empty cores, with all totals computed."""
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
    return _begin_state(demand, state)


def _begin_state(demand: cluster_state.Demand, state: cluster_state.CoreState) -> cluster_state.CoreState:
    """Initialize a state of zeros to that of empty cores."""
    state.held.core_of.fill(-1)
    state.attempt.cluster.fill(-1)
    state.attempt.to.fill(-1)
    state.busy.total[cluster_state.TIME] = state.busy.load.shape[1] * (
        demand.rules.barrier[0] + demand.rules.min_work[0]
    )
    return state


def filled_cores(
    demand: cluster_state.Demand, chip: Chip, core_of: np.ndarray, used: cluster_state.CoreState | None = None
) -> cluster_state.CoreState:
    """Return the state of cores that hold every cluster on its core, core_of: int[cluster].

    It reuses the memory of `used`, a state of as many clusters, rows, cores and steps that is not needed any more: for
    thousands of cores, allocation takes longer than filling.
    """
    core_of = np.array(core_of, np.int64)
    if used is None:
        state = empty_cores(demand, chip)
    else:
        for array in (array for part in used for array in part):
            array.fill(0)
        state = _begin_state(demand, used)
    if len(core_of) > FEW_CLUSTERS:
        moves.fill_cores(*demand, state.held, state.busy, core_of)
    else:  # to an equal state, by a kernel that every search compiles
        moves.relocate(*demand, state.held, state.busy, np.arange(len(core_of)), core_of)
    moves.refresh_totals(demand.rules, state.held, state.busy)
    return state


def neuron_load(network: Network, chip: Chip, activity: Activity) -> np.ndarray:
    """Return int64[neuron]: its share of all sending or of all receiving work, the larger one, in units of 2**-40.

    The cores of targets are not known yet, so a spike is assumed to go to `DESTINATIONS` of them. If nothing takes any
    cycles, all loads are equal.
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


def _read_clusters(
    network: Network, table: SynapseTable, start, neurons
) -> tuple[Entries, dict[str, np.ndarray], np.ndarray]:
    """Return what the clusters read, the class of every source of each sending node, int64[n], and the classes' sizes.

    Source classes that every cluster reads identically are merged here; no placement can distinguish them.
    """
    offset, row, n_synapses = _cluster_rows(table, start, neurons)
    row_format = table.row_format[csr_groups(table.class_offset)]
    of_row = np.zeros((len(row_format), 2), np.uint64)
    clusters.readers_of_rows(offset, row, n_synapses, row_format, of_row)
    digest = np.zeros((len(table.class_size), 2), np.uint64)
    np.add.at(digest, table.classes, of_row)
    merged, first = _merge_sources(digest)
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
    """Return offset, row and number of synapses of the entries of `clusters.cluster_rows`."""
    offset = np.zeros(len(start), np.int64)
    row, count = np.zeros(0, np.int32), np.zeros(0, np.int32)
    place = np.full(len(table.row_size), -1, np.int64)
    clusters.cluster_rows(table, start, neurons, place, offset, row, count)
    row, count = np.zeros(offset[-1], np.int32), np.zeros(offset[-1], np.int32)
    place[:] = -1
    clusters.cluster_rows(table, start, neurons, place, offset, row, count)
    return offset, row, count


def _sum_spikes(counts: np.ndarray, step0: int, group: np.ndarray, size: np.ndarray, step_at, n_steps: int) -> Spikes:
    """Return the spikes of one layer's groups: counts int32[T, n], group int64[n], size int64[group]."""
    members, start = np.argsort(group, kind="stable"), csr_offset(size)
    total, offset = np.zeros(n_steps, np.int64), np.zeros(len(start), np.int64)
    step, count = np.zeros(0, np.int32), np.zeros(0, np.int32)
    clusters.spikes_of(counts, step0, start, members, step_at, total, offset, step, count)
    step, count = np.zeros(offset[-1], np.int32), np.zeros(offset[-1], np.int32)
    clusters.spikes_of(counts, step0, start, members, step_at, total, offset, step, count)
    return Spikes(offset, step, count)


def _merge_sources(digest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give sources of equal uint64[..., 2] one number, in order of appearance; also return the first of each."""
    order = np.lexsort(digest.T)
    begins = np.concatenate([[True], (digest[order[1:]] != digest[order[:-1]]).any(1)])[: len(order)]
    first = order[begins]  # the sort is stable
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    merged = np.empty(len(order), np.int64)
    merged[order] = rank[np.cumsum(begins) - 1]
    return merged, np.sort(first)


def _group_sources(network, activity, timing, cluster_of, class_of, step_at, n_steps) -> Groups:
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
        counts = timing.spread_rows(name, activity.counts[name])
        spikes = _sum_spikes(counts, step0, group, size, step_at, n_steps)
        parts.append(Groups(key % width, key // width - 1, size, spikes))
    return _sort_by_cluster(parts)


def _sort_by_cluster(parts: list[Groups]) -> Groups:
    if not parts:
        none = np.zeros(0, np.int64)
        return Groups(none, none, none, Spikes(np.zeros(1, np.int64), none.astype(np.int32), none.astype(np.int32)))
    source_class, cluster, size = (np.concatenate([p[i] for p in parts]) for i in range(3))
    order = np.argsort(np.where(cluster < 0, np.iinfo(np.int64).max, cluster), kind="stable")
    spikes = [p.spikes for p in parts]
    length = np.concatenate([np.diff(s.offset) for s in spikes])
    at = csr_entries(csr_offset(length), order)
    step, n = np.concatenate([s.step for s in spikes])[at], np.concatenate([s.n for s in spikes])[at]
    in_order = Spikes(csr_offset(length[order]), step, n)
    return Groups(source_class[order], cluster[order], size[order].astype(np.int64), in_order)


def _class_arrivals(groups: Groups, n_classes: int, n_steps: int) -> tuple[Spikes, np.ndarray, np.ndarray]:
    """Return spikes of all sources of every class, and the groups of every class that are in clusters, as CSR."""
    of_spike = np.repeat(groups.source_class, np.diff(groups.spikes.offset)) * n_steps + groups.spikes.step
    key, inverse = np.unique(of_spike, return_inverse=True)
    count = np.bincount(inverse.reshape(-1), groups.spikes.n, len(key)).astype(np.int32)
    offset = np.searchsorted(key, np.arange(n_classes + 1) * n_steps)
    of_group = groups.source_class[groups.cluster >= 0]
    order = np.argsort(of_group, kind="stable").astype(np.int32)
    group_offset = csr_offset(np.bincount(of_group, minlength=n_classes))
    return Spikes(offset, (key % n_steps).astype(np.int32), count), group_offset, order


def _row_formats(network: Network, chip: Chip, table: SynapseTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, by connection, bits of a row of 0.. synapses, bits per shared-kernel synapse or 0, and synop cycles."""
    n = len(network.connections)
    row_bits = np.concatenate([np.zeros((n, 1), np.int64), np.cumsum(table.step_bits, 1)], 1)
    shared, synop = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i, c in enumerate(network.connections):
        kind = connection_wiring(network, c).kind
        if kind == CONV and chip.weights.sharing:
            shared[i] = synapse_bits(c, kind, chip)
        synop[i] = cycles_of_event(chip, f"synop_{SYNAPSE_KINDS[stored_kind(kind, chip)]}")
    return row_bits, shared, synop


def _cluster_kernels(
    table: SynapseTable, start: np.ndarray, neurons: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, as CSR by cluster, the shared kernels that its neurons read, and how many neurons read each."""
    cluster_of = np.empty(len(neurons), np.int64)
    cluster_of[neurons] = np.repeat(np.arange(len(start) - 1), np.diff(start))
    of_slot = np.repeat(cluster_of, np.diff(table.slot_offset))[table.slot_kernel >= 0]
    n_kernels = max(1, len(table.kernels.group))
    key, count = np.unique(of_slot * n_kernels + table.slot_kernel[table.slot_kernel >= 0], return_counts=True)
    offset = np.searchsorted(key, np.arange(len(start)) * n_kernels)
    return offset, (key % n_kernels).astype(np.int32), count.astype(np.int32)


def sending_cycles(network, chip, activity, timing, cluster_of, step_at, n_steps) -> np.ndarray:
    """Return int64[cluster, step]: cycles of visits, updates and spikes."""
    visits = np.bincount(cluster_of) * activity.n_samples * cycles_of_event(chip, "visit")
    done = np.repeat(visits[None].astype(np.int64), n_steps, 0)
    first = neuron_offsets(network)
    for name, at in first.items():
        cluster = cluster_of[at : at + network.node(name).n_neurons]
        step0 = timing.offset[name] if timing.period == 1 else 0
        always = np.broadcast_to(activity.n_samples, activity.counts[name].shape)
        updates, counts = (
            timing.spread_rows(name, a) for a in (activity.updates.get(name, always), activity.counts[name])
        )
        for t in range(len(counts)):
            h = step_at[step0 + t]
            if h < 0:
                continue
            busy_cycles = updates[t] * np.int64(update_cycles(chip, network.node(name).neuron))
            spike_cycles = counts[t] * np.int64(cycles_of_event(chip, "spike"))
            np.add.at(done[h], cluster, busy_cycles + spike_cycles)
    return np.ascontiguousarray(done.T)


def _add_forking(send: np.ndarray, groups: Groups, entries: Entries, message_cycles: int) -> None:
    """Add the cycles of messages that fork on their way: a spike is one message wherever it is read."""
    is_sent = (groups.cluster >= 0) & np.isin(groups.source_class, entries.source_class)
    length = np.diff(groups.spikes.offset)
    of_spike = np.repeat(is_sent, length)
    cluster = np.repeat(groups.cluster, length)[of_spike]
    np.add.at(
        send, (cluster, groups.spikes.step[of_spike]), message_cycles * groups.spikes.n[of_spike].astype(np.int64)
    )


def _cycles_by_cores(chip: Chip, of_tiles: Callable[[int], int], n_cores: int, n_barriers: int) -> np.ndarray:
    """Return int64[cores in use + 1]: `of_tiles` of a step's barriers, on the fewest routers that hold the cores."""
    tiles = -(-np.maximum(np.arange(n_cores + 1), 1) // chip.noc.cores_per_router)
    if chip.cost.barrier_cycles is None:
        return np.zeros(n_cores + 1, np.int64)
    cycles = [0, *(of_tiles(n) for n in range(1, int(tiles[-1]) + 1))]
    return np.array(cycles, np.int64)[tiles] * n_barriers
