"""Tables of a program's axons and of its chip's io sites for the core kernels."""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.time.work import core_cycles
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.cost.traffic.multicast import MulticastTrees, hops_of_axons, spike_fanout
from nwcompile.ir.flat import count_lines, csr_entries, csr_offset
from nwcompile.ir.program import SYNAPSE_KINDS, Program
from nwcompile.kernels.cores.tables import AXON, Axons, FanOut, IoAxons, SharedAxons, Sites


class AxonTables(NamedTuple):
    """The axons of a program with their costs, as the kernels need them to receive, route and send messages."""

    axons: Axons
    sites: Sites
    fan_out: FanOut
    io: IoAxons
    shared: SharedAxons | None  # where neurons share axons


def build_axon_tables(program: Program, trees: MulticastTrees | None) -> AxonTables:
    """Build the axon tables: costs in ticks, axons of output neurons to io sites, and the roots of `trees` if given."""
    chip, offset = program.chip, program.axons.offset
    site = np.concatenate([chip.site_index(program.mapping.site_of), chip.io_cores]).astype(np.int32)
    core_at = np.full(chip.n_cores, -1, np.int32)
    core_at[site] = np.arange(len(site))
    rows, io = _build_rows(program), IoAxons(np.zeros(1, np.int64), np.zeros(0, np.int64))
    if (routes := io_routes(program)) is not None:
        come, leave = (core_at[direction.site] for direction in routes)
        come[~np.isin(routes[0].site, chip.io_cores)] = program.mapping.n_cores  # sent as if by the first io site
        io = _group_input_axons(program, rows, come)
        rows, offset = _append_output_axons(program, rows, offset, leave)
    nodes = [program.network.node(name) for name in program.network.offsets]
    flits = np.concatenate([np.full(node.n_neurons, program.message_flits(node.name)) for node in nodes])
    rows["to"], rows["flits"] = site[rows["core"]], flits.astype(np.int32)[rows["source"]]
    root = np.full(len(program.core_of), -1, np.int32)
    if trees is not None:
        root[trees.tree_of >= 0] = trees.trees.root[trees.tree_of[trees.tree_of >= 0]]
    sent = spike_fanout(program)
    n_lines = int(np.count_nonzero(program.core_of < 0))
    fan_out, shared = FanOut(offset=offset, sent=np.column_stack([sent.messages, sent.hops]), root=root), None
    if any(node.axon_of is not None for node in program.network.nodes.values()):
        rows, fan_out, shared = _append_shared_axons(program, rows, fan_out)
    return AxonTables(
        axons=Axons(row=rows, n_cores=program.mapping.n_cores, n_sites=len(site), n_lines=n_lines),
        sites=Sites(site, core_at),
        fan_out=fan_out,
        io=io,
        shared=shared,
    )


def _append_shared_axons(program: Program, rows: np.ndarray, fan_out: FanOut) -> tuple[np.ndarray, FanOut, SharedAxons]:
    """Append a second copy of shared axons: the first copy reads no synapses, the second belongs to extra sources.

    The first spike of a step is sent by a neuron's extra source, all others by the neuron itself.
    """
    network, n_lines = program.network, count_lines(program.network)
    axon_of = np.full(len(program.core_of), -1)
    for name, first in network.offsets.items():
        node = network.node(name)
        if node.axon_of is not None:
            axon_of[first : first + node.n_neurons] = first + node.axon_of
    sharing = np.flatnonzero(axon_of >= 0)
    length = np.diff(fan_out.offset)[sharing]
    sent, read = csr_entries(fan_out.offset, sharing), csr_entries(fan_out.offset, axon_of[sharing])
    reading, rows = rows[sent], rows.copy()
    for field in ("ticks", *SYNAPSE_KINDS, "words"):
        reading[field] = rows[field][read]
        rows[field][sent] = 0
    rows["ticks"][sent] = (program.chip.cost.message_in_cycles or 0) * program.chip.ticks[0]
    offset = np.concatenate([fan_out.offset, len(rows) + np.cumsum(length)])
    number = np.full(len(axon_of), -1)
    number[sharing] = len(axon_of) + np.arange(len(sharing))
    return (
        np.concatenate([rows, reading]),
        FanOut(
            offset=offset,
            sent=np.concatenate([fan_out.sent, fan_out.sent[sharing]]),
            root=np.concatenate([fan_out.root, fan_out.root[sharing]]),
        ),
        SharedAxons(axon_of[n_lines:], number[n_lines:], *np.full((2, len(axon_of)), -1)),
    )


def _build_rows(program: Program) -> np.ndarray:
    """Build AXON[axon] of the program's axons, without `to` and `flits`."""
    axons, cost = program.axons, program.chip.cost
    per_synop = np.stack([core_cycles(program, f"synop_{kind}") for kind in SYNAPSE_KINDS], 1)
    cycles = (cost.message_in_cycles or 0) + (axons.synops.astype(np.int64) * per_synop[axons.core]).sum(1)
    cycles += axons.words.astype(np.int64) * (cost.word_cycles or 0)
    rows = np.zeros(axons.n_axons, AXON)
    rows["ticks"], rows["source"], rows["core"] = cycles * program.chip.ticks[0], axons.source, axons.core
    for kind, synops in zip(SYNAPSE_KINDS, axons.synops.T, strict=True):
        rows[kind] = synops
    rows["words"] = axons.words
    rows["hops_ew"], rows["hops_ns"] = hops_of_axons(program).T
    return rows


def _group_input_axons(program: Program, rows: np.ndarray, site_of: np.ndarray) -> IoAxons:
    """Group the axons of input lines by the io site that sends them, ordered by source."""
    core, source = rows["core"], rows["source"]
    of_line = np.flatnonzero(program.core_of[source] < 0)
    site = site_of[core[of_line]] - program.mapping.n_cores
    counts = np.bincount(site, minlength=len(program.chip.io_cores))
    order = np.lexsort((core[of_line], source[of_line], site))
    return IoAxons(csr_offset(counts), of_line[order])


def _append_output_axons(program: Program, rows: np.ndarray, offset: np.ndarray, site_of: np.ndarray):
    """Append an axon of every output neuron to the io site of its core, without costs; return rows and offsets."""
    network = program.network
    goes_out = np.zeros(len(program.core_of), np.int64)
    for name in network.outputs:
        first = network.offsets[name]
        goes_out[first : first + network.node(name).n_neurons] = 1
    source = np.flatnonzero(goes_out).astype(np.int32)
    more = np.zeros(len(source), AXON)
    more["source"], more["core"] = source, site_of[program.core_of[source]]
    return np.insert(rows, offset[source + 1], more), offset + csr_offset(goes_out)
