"""Capacity: the exact resource usage of cores, updated while a partitioner adds and removes neurons.

The result equals `nwcompile.cost.traffic.axons.core_use` of a whole mapping, but is computed one neuron at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.destinations import (
    Destinations,
    RowsOfNode,
    find_destinations,
    rows_by_source,
    source_classes,
)
from nwcompile.cost.traffic.events import synops_into
from nwcompile.cost.traffic.memory import kernel_groups, kernel_memory, row_bits, row_memory, shared_bits, synapse_bits
from nwcompile.cost.traffic.wiring import Wiring, connection_wiring
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d
from nwcompile.ir.flat import cores_of_sources, count_lines, count_neurons, csr_groups, csr_offset, join_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.program import CONV
from nwcompile.ir.resources import RESOURCES
from nwcompile.kernels.mapping import core_usage as kernels

NO_LIMIT = np.iinfo(np.int64).max  # Every amount is below it, so code needs no case for a chip without the limit.
OUT_AXON_ROUNDS = 16  # Rounds without a fit after which the last answer is returned, to be judged by the check.


def site_limits(chip: Chip) -> np.ndarray:
    """Return the limits int64[physical core, resource] in the order of `RESOURCES`, then load, which has none."""
    limits = np.full((chip.n_cores, kernels.N_RESOURCES), NO_LIMIT, np.int64)
    for i, resource in enumerate(RESOURCES):
        limit = chip.limit(resource.limit_key)
        if limit is not None:
            limits[:, i] = limit
    return limits


def n_usable(chip: Chip) -> int:
    """Count the cores that can hold neurons: all but those out of use and those reserved for input and output."""
    return int((chip.max_neurons > 0).sum())


class Usage(NamedTuple):
    """Resources in use: `held` int64[core] by resource; `out_axons` int64[neuron]; `destinations` of source classes."""

    held: dict[str, np.ndarray]
    out_axons: np.ndarray
    destinations: Destinations

    @property
    def by_core(self) -> np.ndarray:
        """int64[core, resource], in the order of `RESOURCES`."""
        return np.stack([self.held[resource.key] for resource in RESOURCES], 1)


def count_usage(network: Network, chip: Chip, core_of: np.ndarray, n_cores: int) -> Usage:
    """Return what each core uses, counted from destinations, without building axons; `core_of` int32[neuron]."""
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
    return Usage(held=used, out_axons=fan_out[n_lines:], destinations=reached)


def used_by_core(network: Network, chip: Chip, core_of: np.ndarray, n_cores: int) -> np.ndarray:
    """Return what each core uses, int64[core, resource] in the order of `RESOURCES`; `core_of` int32[neuron]."""
    return count_usage(network, chip, core_of, n_cores).by_core


def binding_notes(used: np.ndarray, limits: np.ndarray) -> dict[int, str]:
    """Return, by core, its fullest resource and how full it is, like `fan-in axons 86 %`.

    `used`, `limits`: int64[core, resource], in the order of `RESOURCES`.
    """
    fill = used / limits
    return {c: f"{RESOURCES[row.argmax()].name} {round(100 * row.max())} %" for c, row in enumerate(fill)}


def add_binding_notes(mapping: Mapping, network: Network, chip: Chip) -> Mapping:
    """Add the `binding_notes` of all cores at their sites to a mapping that fits."""
    used = used_by_core(network, chip, join_layers(network, mapping.core_of), mapping.n_cores)
    limits = site_limits(chip)[chip.site_index(mapping.site_of), : used.shape[1]]
    return replace(mapping, note=binding_notes(used, limits))


def synaptic_load(network: Network, activity: Activity) -> np.ndarray:
    """Return int64[neuron]: one visit per step plus one event per synapse and spike, over all steps and samples."""
    visits = activity.n_steps * activity.n_samples
    return join_layers(network, synops_into(network, activity)) + visits


def settle_out_axons(network: Network, chip: Chip, build: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Call `build(out_axons int64[neuron])` -> cores int32[neuron] repeatedly until the out-axons fit.

    The number of cores that a neuron sends to is known only after its targets are assigned. So `build` gets the counts
    of its last answer, never lower than before. From the second round on, neurons of overfull cores get one more. The
    last answer is returned if none of `OUT_AXON_ROUNDS` fits.
    """
    told = np.zeros(count_neurons(network), np.int64)
    core_of, limit = build(told), chip.limit("max_out_axons")
    if limit is None:
        return core_of
    for i in range(OUT_AXON_ROUNDS):
        held, out_axons, _ = count_usage(network, chip, core_of, int(core_of.max()) + 1)
        if held["out_axons"].max() <= limit.min() or (out_axons <= told).all():
            break
        too_full = held["out_axons"] > limit.min()
        told = np.maximum(told, out_axons) + (too_full[core_of] if i else 0)
        core_of = build(told)
    return core_of


def fan_in(network: Network, chip: Chip) -> kernels.SynapseTable:
    """Build the SynapseTable of a normalized network, neurons numbered as in ir/flat.py."""
    wires = [connection_wiring(network, c) for c in network.connections]
    first_class = csr_offset([w.n_source_classes for w in wires])
    row_format, step_bits = _row_formats(network, wires, chip)
    class_offset, classes, class_size = _source_classes(network, wires, first_class)
    slot_offset, slot_class, slot_kernel = _neuron_slots(network, wires, chip)
    ends = csr_offset([len(w.taps) for w in wires])
    tap_offset = np.concatenate([[0], *(w.offset[1:] + ends[i] for i, w in enumerate(wires))])
    return kernels.SynapseTable(
        slot_offset=slot_offset,
        slot_class=slot_class,
        slot_kernel=slot_kernel,
        tap_offset=tap_offset.astype(np.int64),
        taps=np.concatenate([np.zeros(0, np.int32), *(w.taps + np.int32(first_class[i]) for i, w in enumerate(wires))]),
        row_size=_join_parts([w.source_size for w in wires]),
        row_format=row_format,
        step_bits=step_bits,
        class_offset=class_offset,
        classes=classes,
        class_size=class_size,
        kernels=_shared_kernels(network, wires, chip),
    )


def empty_core(fan: kernels.SynapseTable) -> kernels.CoreUsage:
    """Return the CoreUsage of an empty core."""
    of_kernels = len(fan.kernels.group), len(fan.kernels.bits)
    sizes = (len(fan.row_size), len(fan.class_size), *of_kernels, kernels.N_RESOURCES)
    return kernels.CoreUsage(*(np.zeros(n, np.int64) for n in sizes))


def count_alone(fan: kernels.SynapseTable, neurons: np.ndarray) -> np.ndarray:
    """Return int64[neuron, resource]: what each of `neurons` takes on its own core; out-axons and load are 0."""
    used = np.zeros((len(neurons), kernels.N_RESOURCES), np.int64)
    demand = np.zeros((len(fan.slot_offset) - 1, 2), np.int64)
    kernels.alone(fan, empty_core(fan), demand, np.asarray(neurons, np.int64), used)
    return used


def _join_parts(parts) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def _row_formats(network: Network, wires: list[Wiring], chip: Chip) -> tuple[np.ndarray, np.ndarray]:
    """Return each source class's row of the step table, and the table: bits that synapse n + 1 adds to a row, by n."""
    n = np.arange(chip.core.block_synapses + 1)
    table = np.zeros((len(wires), chip.core.block_synapses), np.int64)
    for i, (c, w) in enumerate(zip(network.connections, wires, strict=True)):
        if not (w.kind == CONV and chip.weights.sharing):
            table[i] = np.diff(row_bits(n, synapse_bits(c, w.kind, chip), chip))
    return csr_groups(csr_offset([w.n_source_classes for w in wires])), table


def _neuron_slots(network: Network, wires: list[Wiring], chip: Chip):
    """Return slots by neuron (offset, target class, kernel)."""
    first_class = csr_offset([len(w.offset) - 1 for w in wires])
    first_kernel = csr_offset([_n_kernels(w, chip) for w in wires])
    into: dict[str, list[int]] = {name: [] for name in network.layers}  # by number: a connection may be listed twice
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
    return np.concatenate(offset).astype(np.int64), _join_parts(classes), _join_parts(kernel)


def _n_kernels(wires: Wiring, chip: Chip) -> int:
    """Count the shared kernels of a connection, one per output channel of a convolution."""
    return int(wires.kernel.max()) + 1 if wires.kernel is not None and chip.weights.sharing else 0


def _shared_kernels(network: Network, wires: list[Wiring], chip: Chip) -> kernels.SharedKernels:
    """Return the groups of all shared kernels, numbered as in the slots, and their memory."""
    group, bits, n_groups = [], [], 0
    for c, w in zip(network.connections, wires, strict=True):
        n_kernels = _n_kernels(w, chip)
        if n_kernels and isinstance(c, Conv2d):
            group.append(kernel_groups(c)[:n_kernels] + n_groups)
            bits += c.groups * [shared_bits(c, w, np.arange(len(c.weight) // c.groups + 1), chip)]
            n_groups += c.groups
    table = np.zeros((n_groups, max(map(len, bits), default=1)), np.int64)
    for row, of_group in zip(table, bits, strict=True):
        row[: len(of_group)] = of_group
    return kernels.SharedKernels(_join_parts(group), table)


def _source_classes(network: Network, wires: list[Wiring], first_class: np.ndarray):
    """Return the source classes of every row, as CSR, and their sizes."""
    class_of, size = source_classes(network)
    pairs = [np.zeros((0, 2), np.int64)]
    for i, c in enumerate(network.connections):
        row, source_class = wires[i].source_class + first_class[i], class_of[c.source]
        if network.node(c.source).axon_of is None:  # then all sources of a class have the same row
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
