"""Demand: what units of neurons ask of the cores that hold them, gathered once before any of them moves."""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.destinations import source_atoms
from nwcompile.cost.traffic.memory import stored_kind, synapse_bits
from nwcompile.cost.traffic.wiring import wiring
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_entries, csr_groups, csr_offset, csr_sums, neuron_offsets
from nwcompile.ir.network import Network
from nwcompile.ir.program import CONV, SYNAPSE_KINDS
from nwcompile.ir.resources import N_RESOURCES
from nwcompile.ir.schedule import Schedule
from nwcompile.kernels.mapping import cluster_state, clusters, moves, source_classes
from nwcompile.kernels.mapping.core_usage import FanIn
from nwcompile.passes.fit import capacity

DESTINATIONS = 8  # cores of a spike, before it is known
LARGEST_TABLE = 1 << 26  # cycles kept by unit and step; above that, steps are left out at even distances


class Spikes(NamedTuple):
    """Spikes in every step as CSR lists of the steps with any."""

    offset: np.ndarray  # int64[... + 1]
    step: np.ndarray  # int32[...]
    n: np.ndarray  # int32[...]: how many


class Rows(NamedTuple):
    """What the units read: entries by unit, and the atom and format of every row."""

    offset: np.ndarray  # int64[unit + 1]
    row: np.ndarray  # int32[entry]
    n_synapses: np.ndarray  # int32[entry]: of each source of the row in the unit
    atom: np.ndarray  # int64[row]
    format: np.ndarray  # int64[row]


class Groups(NamedTuple):
    """Sources of one atom in one unit, in the order of units; unit -1 (of input lines) comes last."""

    atom: np.ndarray  # int64[group]
    unit: np.ndarray  # int64[group]
    size: np.ndarray  # int64[group]
    spikes: Spikes


def unit_demand(
    network: Network,
    chip: Chip,
    activity: Activity,
    timing: Schedule,
    unit_of: np.ndarray,
    n_cores: int,
    most_steps: int | None = None,
) -> cluster_state.Demand:
    """The Demand of the units int32[neuron] (0.., none empty) of a normalized network, on up to `n_cores` cores.

    A cost that the chip does not give counts as one cycle; where messages fork, sending one is the unit's own work.
    Steps are hardware steps, as in `traffic.count_events`; of more than `most_steps`, or than `LARGEST_TABLE` allows,
    some at even distances.
    """
    fan, n_units = capacity.fan_in(network, chip), int(unit_of.max()) + 1
    neurons = np.argsort(unit_of, kind="stable")
    start = csr_offset(np.bincount(unit_of))
    rows, atom_of, atom_size = _read(network, fan, start, neurons)
    most = min(most_steps or LARGEST_TABLE, max(1, LARGEST_TABLE // n_units))
    step_at, n_steps = _kept_steps(timing.n_hardware_steps(activity.n_steps, "aligned"), most)
    groups = _groups(network, activity, timing, unit_of, atom_of, step_at, n_steps)
    arrivals, atom_offset, atom_group = _arrivals(groups, len(atom_size), n_steps)
    row_bits, shared_bits, row_cycles = _formats(network, chip, fan)
    receive = np.zeros((n_units, n_steps), np.int64)
    clusters.add_received(*rows[:4], row_cycles[rows.format], *arrivals, receive)
    inside = groups.unit >= 0
    kernels = _kernels(fan, start, neurons)
    each = [cycles(chip, name) for name in ("message_out", "message_in", "word")]
    send = _send(network, chip, activity, timing, unit_of, step_at, n_steps)
    if chip.noc.multicast == "tree":
        _add_forking(send, groups, rows, each[0])
        each[0] = 0
    limit = capacity.site_limits(chip)[:, :N_RESOURCES]
    limit = limit[np.lexsort(tuple(-limit[:, i] for i in reversed(range(limit.shape[1]))))][:n_cores]
    return cluster_state.Demand(
        np.bincount(unit_of).astype(np.int64), send, receive, *rows[:3],
        np.searchsorted(groups.unit[inside], np.arange(n_units + 1)), groups.atom[inside].astype(np.int32),
        groups.unit[inside].astype(np.int32), groups.size[inside], _totals(groups.spikes)[inside],
        *groups.spikes, atom_offset, atom_group, atom_size, *arrivals, _totals(arrivals),
        rows.atom, rows.format, row_bits, shared_bits,
        *kernels, fan.kernel_bits, np.array(each, np.int64), np.array([chip.core.word_bits]),
        np.ascontiguousarray(limit), _barriers(chip, n_cores, activity.n_samples * timing.period),
        np.tile([0, len(limit)], (len(limit), 1)),
    )  # fmt: skip


def empty_loads(demand: cluster_state.Demand, chip: Chip) -> cluster_state.Loads:
    """Loads of cores without units, settled."""
    n_units, n_steps = demand.send.shape
    n_cores = len(demand.limit)
    n_columns = n_cores if chip.cost.units == "shared" else 2 * n_cores
    n_rows, n_atoms, n_kernels = len(demand.row_atom), len(demand.atom_size), len(demand.kernel_bits)
    loads = cluster_state.Loads(
        np.full(n_units, -1, np.int32), np.zeros(n_cores, np.int64), np.zeros((n_cores, n_rows), np.int32),
        np.zeros((n_cores, n_atoms), np.int32), np.zeros((n_cores, n_kernels), np.int32), np.zeros(n_atoms, np.int32),
        np.zeros((n_cores, N_RESOURCES), np.int64), np.zeros(n_cores, np.int64),
        np.zeros((n_columns, n_steps), np.int64), np.zeros(n_steps, np.int64), np.zeros(n_steps, np.int32),
        np.zeros(cluster_state.N_TOTALS, np.int64), np.zeros(n_columns + 1, np.int64), np.zeros(n_columns, bool),
        np.zeros(n_steps, np.int64), np.zeros(n_steps, np.int32), np.zeros(cluster_state.N_TOTALS, np.int64),
    )  # fmt: skip
    moves.settle(demand, loads)
    return loads


def neuron_load(network: Network, chip: Chip, activity: Activity) -> np.ndarray:
    """int64[neuron]: the share in all that cores send or in all that they receive, the larger, in parts of 2**40.

    Before any is on a core, a spike is taken to go to `DESTINATIONS` of them. Alike where nothing takes any cycles.
    """
    visits = activity.n_steps * activity.n_samples
    synops = capacity.synaptic_load(network, activity) - visits
    each_spike = cycles(chip, "spike") + DESTINATIONS * cycles(chip, "message_out")
    sent = np.concatenate([activity.counts[name].sum(0, dtype=np.int64) * each_spike for name in network.layers])
    sent += visits * (cycles(chip, "visit") + cycles(chip, "update"))
    if chip.cost.units == "shared":
        load = sent + synops * max(cycles(chip, f"synop_{kind}") for kind in SYNAPSE_KINDS)
        return load if load.any() else np.ones_like(load)
    share = np.maximum(sent / max(1, sent.sum()), synops / max(1, synops.sum()))
    return np.ceil((share if share.any() else np.ones_like(share)) * (1 << 40)).astype(np.int64)


def cycles(chip: Chip, event: str) -> int:
    """Cycles of an event, or 1 where the chip does not say."""
    each = getattr(chip.cost, f"{event}_cycles")
    return 1 if each is None else each


def _kept_steps(n_steps: int, most: int) -> tuple[np.ndarray, int]:
    """int64[H]: the place of every hardware step that is looked at, -1 for the others, and how many are."""
    n_kept = min(n_steps, most)
    step_at = np.full(n_steps, -1)
    step_at[np.arange(n_kept) * n_steps // n_kept] = np.arange(n_kept)
    return step_at, n_kept


def _read(network: Network, fan: FanIn, start, neurons) -> tuple[Rows, dict[str, np.ndarray], np.ndarray]:
    """What the units read, the atom of every source of each node that sends, int64[n], and the atoms' sizes.

    Sources of which every unit has the same synapses are one atom here: no place of the units tells them apart.
    """
    offset, row, n_synapses = clusters.unit_rows(fan, start, neurons)
    rows = Rows(offset, row, n_synapses, fan.atoms, np.repeat(fan.class_format, np.diff(fan.atom_offset)))
    of_row = np.zeros((len(rows.atom), 2), np.uint64)
    source_classes.readers_of_rows(*rows[:3], rows.format, of_row)
    digest = np.zeros((len(fan.atom_size), 2), np.uint64)
    np.add.at(digest, rows.atom, of_row)
    merged, first = _merged(digest)
    atom_of, _ = source_atoms(network, [wiring(network, c) for c in network.connections])
    kept = np.zeros(len(digest), bool)
    kept[first] = True
    new_row = np.where(kept[rows.atom], np.cumsum(kept[rows.atom]) - 1, -1)
    offset = source_classes.kept_rows(*rows[:3], new_row)
    is_kept, n = new_row >= 0, offset[-1]
    row, n_synapses = row[:n].copy(), n_synapses[:n].copy()
    rows = Rows(offset, row, n_synapses, merged[rows.atom[is_kept]], rows.format[is_kept])
    size = np.bincount(merged, fan.atom_size, len(first)).astype(np.int64)
    return rows, {name: merged[atom] for name, atom in atom_of.items()}, size


def _merged(digest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Atoms of equal uint64[atom, 2] under one number, in the order in which they come, and the first of each."""
    order = np.lexsort(digest.T)
    begins = np.concatenate([[True], (digest[order[1:]] != digest[order[:-1]]).any(1)])[: len(order)]
    first = order[begins]  # the sort is stable
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    merged = np.empty(len(order), np.int64)
    merged[order] = rank[np.cumsum(begins) - 1]
    return merged, np.sort(first)


def _groups(network, activity, timing, unit_of, atom_of, step_at, n_steps) -> Groups:
    first, parts = neuron_offsets(network), []
    for name, atom in atom_of.items():
        n = len(atom)
        unit = unit_of[first[name] : first[name] + n] if name in first else np.full(n, -1)
        width = int(atom.max()) + 1
        key, group = np.unique((unit.astype(np.int64) + 1) * width + atom, return_inverse=True)
        group = group.reshape(-1)
        size = np.bincount(group)
        start = csr_offset(size)
        step0 = timing.offset[name] if timing.period == 1 else 0
        spikes = clusters.spikes_of(
            activity.counts[name], step0, start, np.argsort(group, kind="stable"), step_at, n_steps
        )
        parts.append(Groups(key % width, key // width - 1, size, Spikes(*spikes)))
    return _in_unit_order(parts)


def _in_unit_order(parts: list[Groups]) -> Groups:
    if not parts:
        none = np.zeros(0, np.int64)
        return Groups(none, none, none, Spikes(np.zeros(1, np.int64), none.astype(np.int32), none.astype(np.int32)))
    atom, unit, size = (np.concatenate([p[i] for p in parts]) for i in range(3))
    order = np.argsort(np.where(unit < 0, np.iinfo(np.int64).max, unit), kind="stable")
    joined = _joined_spikes([p.spikes for p in parts])
    return Groups(atom[order], unit[order], size[order].astype(np.int64), _picked(joined, order))


def _joined_spikes(parts: list[Spikes]) -> Spikes:
    length = np.concatenate([np.diff(p.offset) for p in parts])
    return Spikes(
        csr_offset(length), np.concatenate([p.step for p in parts]),
        np.concatenate([p.n for p in parts]),
    )  # fmt: skip


def _picked(spikes: Spikes, order: np.ndarray) -> Spikes:
    """The lists of spikes in another order."""
    offset = csr_offset(np.diff(spikes.offset)[order])
    at = csr_entries(spikes.offset, order)
    return Spikes(offset, spikes.step[at], spikes.n[at])


def _arrivals(groups: Groups, n_atoms: int, n_steps: int) -> tuple[Spikes, np.ndarray, np.ndarray]:
    """Spikes of all sources of every atom, and the groups of every atom that lie in units, as CSR."""
    of_spike = np.repeat(groups.atom, np.diff(groups.spikes.offset)) * n_steps + groups.spikes.step
    key, inverse = np.unique(of_spike, return_inverse=True)
    count = np.bincount(inverse.reshape(-1), groups.spikes.n, len(key)).astype(np.int32)
    offset = np.searchsorted(key, np.arange(n_atoms + 1) * n_steps)
    inside = groups.unit >= 0
    order = np.argsort(groups.atom[inside], kind="stable").astype(np.int32)
    atom_offset = csr_offset(np.bincount(groups.atom[inside], minlength=n_atoms))
    return Spikes(offset, (key % n_steps).astype(np.int32), count), atom_offset, order


def _totals(spikes: Spikes) -> np.ndarray:
    """int64: spikes over all steps of each list."""
    return csr_sums(spikes.offset, spikes.n)


def _formats(network: Network, chip: Chip, fan: FanIn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By connection: bits of a row of 0.. synapses, bits of a synapse of a shared kernel or 0, cycles of a synop."""
    n = len(network.connections)
    row_bits = np.concatenate([np.zeros((n, 1), np.int64), np.cumsum(fan.step_bits, 1)], 1)
    shared, synop = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i, c in enumerate(network.connections):
        kind = wiring(network, c).kind
        if kind == CONV and chip.weights.sharing:
            shared[i] = synapse_bits(c, kind, chip)
        synop[i] = cycles(chip, f"synop_{SYNAPSE_KINDS[stored_kind(kind, chip)]}")
    return row_bits, shared, synop


def _kernels(fan: FanIn, start: np.ndarray, neurons: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CSR by unit: the shared kernels that its neurons read, and how many neurons read each."""
    unit_of = np.empty(len(neurons), np.int64)
    unit_of[neurons] = csr_groups(start)
    of_slot = np.repeat(unit_of, np.diff(fan.slot_offset))[fan.slot_kernel >= 0]
    n_kernels = max(1, len(fan.kernel_bits))
    key, count = np.unique(of_slot * n_kernels + fan.slot_kernel[fan.slot_kernel >= 0], return_counts=True)
    offset = np.searchsorted(key, np.arange(len(start)) * n_kernels)
    return offset, (key % n_kernels).astype(np.int32), count.astype(np.int32)


def _send(network, chip, activity, timing, unit_of, step_at, n_steps) -> np.ndarray:
    """int64[unit, step]: cycles of visits, updates and spikes."""
    visits = np.bincount(unit_of) * activity.n_samples * cycles(chip, "visit")
    done = np.repeat(visits[:, None], n_steps, 1).astype(np.int64)
    first = neuron_offsets(network)
    for name, at in first.items():
        unit = unit_of[at : at + network.node(name).n_neurons]
        step0 = timing.offset[name] if timing.period == 1 else 0
        for t in range(activity.n_steps):
            h = step_at[step0 + t]
            if h < 0:
                continue
            updates = activity.updates[name][t] if name in activity.updates else activity.n_samples
            each = updates * np.int64(cycles(chip, "update"))
            np.add.at(done[:, h], unit, each + activity.counts[name][t] * np.int64(cycles(chip, "spike")))
    return done


def _add_forking(send: np.ndarray, groups: Groups, rows: Rows, each: int) -> None:
    """Add the cycles, `each`, of messages that fork on their way, so that a spike is one wherever it is read."""
    is_sent = (groups.unit >= 0) & np.isin(groups.atom, rows.atom)
    length = np.diff(groups.spikes.offset)
    of_spike = np.repeat(is_sent, length)
    unit = np.repeat(groups.unit, length)[of_spike]
    np.add.at(send, (unit, groups.spikes.step[of_spike]), each * groups.spikes.n[of_spike].astype(np.int64))


def _barriers(chip: Chip, n_cores: int, n_barriers: int) -> np.ndarray:
    """int64[cores in use + 1]: cycles of a step's barriers, on as few routers as hold that many cores."""
    tiles = -(-np.maximum(np.arange(n_cores + 1), 1) // chip.noc.cores_per_router)
    if chip.cost.barrier_cycles is None:
        return np.zeros(n_cores + 1, np.int64)
    return np.array([chip.barrier_cycles(n) for n in tiles], np.int64) * n_barriers
