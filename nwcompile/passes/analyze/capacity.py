"""Capacity: the exact account of what neurons take on a core, kept while a partitioner adds and takes them.

It gives what `nwcompile.cost.traffic.axons.core_use` gives for a whole mapping, one neuron at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from nwcompile.cost.traffic.destinations import RowsOfNode, find_destinations, rows_by_source, source_classes
from nwcompile.cost.traffic.events import synops_into
from nwcompile.cost.traffic.memory import (
    kernel_groups,
    kernel_memory,
    row_bits,
    row_memory,
    shared_bits,
    synapse_bits,
)
from nwcompile.cost.traffic.wiring import Wiring, connection_wiring
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d
from nwcompile.ir.flat import (
    cores_of_sources,
    count_lines,
    count_neurons,
    csr_groups,
    csr_offset,
    join_layers,
)
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.program import CONV
from nwcompile.ir.resources import RESOURCES
from nwcompile.kernels.mapping import core_usage as kernels

NO_LIMIT = np.iinfo(np.int64).max  # Every amount is below it, so that code needs no case for a chip without the limit.
OUT_AXON_ROUNDS = 16  # After so many rounds without a fit the last answer is taken, and judged by the check.


def site_limits(chip: Chip) -> np.ndarray:
    """int64[physical core, resource]: what each core holds, in the order of `RESOURCES`, then load: it has no limit."""
    limits = np.full((chip.n_cores, kernels.N_RESOURCES), NO_LIMIT, np.int64)
    for i, resource in enumerate(RESOURCES):
        limit = chip.limit(resource.limit_key)
        if limit is not None:
            limits[:, i] = limit
    return limits


def n_usable(chip: Chip) -> int:
    """How many of the chip's cores hold neurons at all: not those out of use, nor those kept for input and output."""
    return int((chip.max_neurons > 0).sum())


def account(network: Network, chip: Chip, core_of: np.ndarray, n_cores: int) -> tuple[dict, np.ndarray]:
    """`resources` of each core, int64[core] by name, and the out-axons of each neuron, for cores int32[neuron].

    Counted from the destinations of source classes, so that no axon is made.
    """
    n_lines = count_lines(network)
    core_of = cores_of_sources(network, core_of)
    bits, fan_out = np.zeros(n_cores, np.int64), np.zeros(len(core_of), np.int64)

    def counted() -> Iterator[RowsOfNode]:
        for name, rows in rows_by_source(network, core_of):
            for c, (offset, core, n_synapses) in rows:
                wires, first = connection_wiring(network, c), network.offsets[c.target]
                bits[:] += kernel_memory(c, wires, core_of[first : first + len(wires.target_class)], n_cores, chip)
                size = np.repeat(wires.source_size, np.diff(offset))
                np.add.at(bits, core, size * row_memory(c, wires, n_synapses, chip)[0])
            yield name, rows

    reached = find_destinations(network, counted(), n_cores)
    for name, source_class in reached.class_of.items():
        first = network.offsets[name]
        fan_out[first : first + len(source_class)] = np.diff(reached.offset)[source_class]
    used = {"neurons": np.bincount(core_of[n_lines:], minlength=n_cores), "synapse_bits": bits}
    for name, core, n in (
        ("in_axons", reached.core, np.repeat(reached.size, np.diff(reached.offset))),
        ("out_axons", core_of[n_lines:], fan_out[n_lines:]),
    ):
        used[name] = np.zeros(n_cores, np.int64)
        np.add.at(used[name], core, n)
    return used, fan_out[n_lines:]


def used_by_core(network: Network, chip: Chip, core_of: np.ndarray, n_cores: int) -> np.ndarray:
    """int64[core, resource]: what cores int32[neuron] take, in the order of `RESOURCES`."""
    held, _ = account(network, chip, core_of, n_cores)
    return np.stack([held[resource.key] for resource in RESOURCES], 1)


def binding_notes(used: np.ndarray, limits: np.ndarray) -> dict[int, str]:
    """By core: what fills it most and how far, like `fan-in axons 86 %`.

    `used`, `limits`: int64[core, resource], in the order of `RESOURCES`.
    """
    fill = used / limits
    return {c: f"{RESOURCES[row.argmax()].name} {round(100 * row.max())} %" for c, row in enumerate(fill)}


def with_binding_resource(mapping: Mapping, network: Network, chip: Chip) -> Mapping:
    """The mapping with `binding_notes` of its cores at their sites, which it must fit."""
    used = used_by_core(network, chip, join_layers(network, mapping.core_of), mapping.n_cores)
    limits = site_limits(chip)[chip.site_index(mapping.site_of), : used.shape[1]]
    return replace(mapping, note=binding_notes(used, limits))


def synaptic_load(network: Network, activity: Activity) -> np.ndarray:
    """int64[neuron]: one visit a step plus one event per synapse and spike, over all steps and samples."""
    visits = activity.n_steps * activity.n_samples
    return join_layers(network, synops_into(network, activity)) + visits


def settle_out_axons(network: Network, chip: Chip, build: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Cores int32[neuron] from `build(out_axons int64[neuron])`, repeated until the out-axons fit.

    How many cores a neuron sends to is known only when its targets are placed, so `build` is told what its own last
    answer caused, never less than before, and from the second time on one more on every core that is too full. The
    last answer is returned if none of `OUT_AXON_ROUNDS` fits.
    """
    told = np.zeros(count_neurons(network), np.int64)
    core_of, limit = build(told), chip.limit("max_out_axons")
    if limit is None:
        return core_of
    for i in range(OUT_AXON_ROUNDS):
        held, out_axons = account(network, chip, core_of, int(core_of.max()) + 1)
        if held["out_axons"].max() <= limit.min() or (out_axons <= told).all():
            break
        too_full = held["out_axons"] > limit.min()
        told = np.maximum(told, out_axons) + (too_full[core_of] if i else 0)
        core_of = build(told)
    return core_of


def fan_in(network: Network, chip: Chip) -> kernels.SynapseTable:
    """The SynapseTable of a normalized network, neurons numbered as in ir/flat.py."""
    wires = [connection_wiring(network, c) for c in network.connections]
    first_class = csr_offset([w.n_source_classes for w in wires])
    row_format, step_bits = _formats(network, wires, chip)
    class_offset, classes, class_size = _source_classes(network, wires, first_class)
    slot_offset, slot_class, slot_kernel = _slots(network, wires, chip)
    ends = csr_offset([len(w.taps) for w in wires])
    tap_offset = np.concatenate([[0], *(w.offset[1:] + ends[i] for i, w in enumerate(wires))])
    return kernels.SynapseTable(
        slot_offset=slot_offset,
        slot_class=slot_class,
        slot_kernel=slot_kernel,
        tap_offset=tap_offset.astype(np.int64),
        taps=_joined([w.taps + first_class[i] for i, w in enumerate(wires)]),
        row_size=_joined([w.source_size for w in wires]),
        row_format=row_format,
        step_bits=step_bits,
        class_offset=class_offset,
        classes=classes,
        class_size=class_size,
        kernels=_shared_kernels(network, wires, chip),
    )


def empty_core(fan: kernels.SynapseTable) -> kernels.CoreUsage:
    """An account with nothing on it."""
    of_kernels = len(fan.kernels.group), len(fan.kernels.bits)
    sizes = (len(fan.row_size), len(fan.class_size), *of_kernels, kernels.N_RESOURCES)
    return kernels.CoreUsage(*(np.zeros(n, np.int64) for n in sizes))


def alone(fan: kernels.SynapseTable, neurons: np.ndarray) -> np.ndarray:
    """int64[neuron, resource]: what each of `neurons` takes on a core of its own; out-axons and load are 0."""
    used = np.zeros((len(neurons), kernels.N_RESOURCES), np.int64)
    demand = np.zeros((len(fan.slot_offset) - 1, 2), np.int64)
    kernels.alone(fan, empty_core(fan), demand, np.asarray(neurons, np.int64), used)
    return used


def _joined(parts) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def _formats(network: Network, wires: list[Wiring], chip: Chip) -> tuple[np.ndarray, np.ndarray]:
    """Row of the step table for every source class, and the table: bits that synapse n + 1 adds to a row, by n."""
    n = np.arange(chip.core.block_synapses + 1)
    table = np.zeros((len(wires), chip.core.block_synapses), np.int64)
    for i, (c, w) in enumerate(zip(network.connections, wires, strict=True)):
        if not (w.kind == CONV and chip.weights.sharing):
            table[i] = np.diff(row_bits(n, synapse_bits(c, w.kind, chip), chip))
    return csr_groups(csr_offset([w.n_source_classes for w in wires])), table


def _slots(network: Network, wires: list[Wiring], chip: Chip):
    """Slots by neuron (offset, target class, kernel)."""
    first_class = csr_offset([len(w.offset) - 1 for w in wires])
    first_kernel = csr_offset([_n_kernels(w, chip) for w in wires])
    into: dict[str, list[int]] = {name: [] for name in network.layers}  # numbers: a connection may be listed twice
    for i, c in enumerate(network.connections):
        into[c.target].append(i)
    offset, classes, kernel = [np.zeros(1, np.int64)], [], []
    for name in network.layers:
        columns, kernel_columns = [], []
        for i in into[name]:
            w = wires[i]
            columns.append(w.target_class + first_class[i])
            if w.kind == CONV and chip.weights.sharing:
                kernel_columns.append(w.kernel + first_kernel[i])
            else:
                kernel_columns.append(np.full(len(w.target_class), -1))
        n = network.node(name).n_neurons
        offset.append(offset[-1][-1] + np.arange(1, n + 1) * len(columns))
        if columns:
            classes.append(np.stack(columns, 1).reshape(-1))
            kernel.append(np.stack(kernel_columns, 1).reshape(-1))
    return np.concatenate(offset).astype(np.int64), _joined(classes), _joined(kernel)


def _n_kernels(wires: Wiring, chip: Chip) -> int:
    """Shared kernels of a connection, one for each output channel of a convolution."""
    return int(wires.kernel.max()) + 1 if wires.kernel is not None and chip.weights.sharing else 0


def _shared_kernels(network: Network, wires: list[Wiring], chip: Chip) -> kernels.SharedKernels:
    """The groups of all shared kernels, numbered as in the slots, and what they take."""
    group, bits, n_groups = [], [], 0
    for c, w in zip(network.connections, wires, strict=True):
        n_kernels = _n_kernels(w, chip)
        if n_kernels and isinstance(c, Conv2d):
            group.append(kernel_groups(c) + n_groups)
            bits += c.groups * [shared_bits(c, w, np.arange(n_kernels // c.groups + 1), chip)]
            n_groups += c.groups
    table = np.zeros((n_groups, max(map(len, bits), default=1)), np.int64)
    for row, of_group in zip(table, bits, strict=True):
        row[: len(of_group)] = of_group
    return kernels.SharedKernels(_joined(group), table)


def _source_classes(network: Network, wires: list[Wiring], first_class: np.ndarray):
    """The source classes of every row, as CSR, and their sizes."""
    class_of, size = source_classes(network)
    pairs = [np.zeros((0, 2), np.int64)]
    for i, c in enumerate(network.connections):
        row, source_class = wires[i].source_class + first_class[i], class_of[c.source]
        if network.node(c.source).axon_of is None:  # then all sources of a class are of one row
            classes = np.arange(source_class.min(), source_class.max() + 1)
            row_of_class = np.empty(len(classes), np.int64)
            row_of_class[source_class - classes[0]] = row
            pairs.append(np.stack([row_of_class, classes], 1))
        else:
            key = np.unique(row * len(size) + source_class)
            pairs.append(np.stack([key // len(size), key % len(size)], 1))
    table = np.concatenate(pairs)
    table = table[np.argsort(table[:, 0], kind="stable")]
    offset = csr_offset(np.bincount(table[:, 0], minlength=first_class[-1]))
    return offset.astype(np.int64), np.ascontiguousarray(table[:, 1]), size
