"""Destinations: the cores that every source sends to, kept for classes of sources and not for each of them.

The sources of a node that the very same neurons read are a source class: the channels of a pixel under a convolution,
all neurons under a dense connection. They send to the same cores, so a large map costs no more here than its pixels.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.wiring import Wiring, wiring
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import csr_entries, csr_groups, csr_offset
from nwcompile.ir.network import Network
from nwcompile.ir.program import Axons
from nwcompile.kernels.mapping import link_flits, traffic

RowsByClass = tuple[np.ndarray, np.ndarray, np.ndarray]  # as `Wiring.rows` gives them


class Destinations(NamedTuple):
    """Source classes of all nodes that send, and the cores that each sends to, as CSR, ascending."""

    class_of: dict[str, np.ndarray]  # int64[n] by node: source class of each source
    size: np.ndarray  # int64[class]: sources
    offset: np.ndarray  # int64[class + 1]
    core: np.ndarray  # int64[...]


class Flows(NamedTuple):
    """Sources of one class on one core (-1: input lines), and the messages that they send to each destination."""

    source_class: np.ndarray  # int64[flow]
    home: np.ndarray  # int64[flow]
    messages: np.ndarray  # int64[flow]


def source_classes(network: Network, wires: list[Wiring]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The source class of every source of each node that sends, int64[n], and the sizes, int64[class].

    Neurons that share an axon are of one class, and count once in its size.
    """
    class_of, sizes, n_classes = {}, [np.zeros(0, np.int64)], 0
    for name in network.offsets:
        leaving = [w for c, w in zip(network.connections, wires, strict=True) if c.source == name]
        if not leaving:
            continue
        source_class = leaving[0].source_class.astype(np.int64)
        for w in leaving[1:]:
            source_class = np.unique(source_class * w.n_source_classes + w.source_class, return_inverse=True)[
                1
            ].reshape(-1)
        sizes.append(np.bincount(source_class))
        axon_of = network.node(name).axon_of
        class_of[name] = (source_class if axon_of is None else source_class[axon_of]) + n_classes
        n_classes += len(sizes[-1])
    return class_of, np.concatenate(sizes).astype(np.int64)


def rows_by_connection(network: Network, core_of: np.ndarray, n_cores: int) -> list[RowsByClass]:
    """`Wiring.rows` of every connection; `core_of` int32[source] in the order `network.offsets`."""
    rows = []
    for c in network.connections:
        first = network.offsets[c.target]
        rows.append(wiring(network, c).rows(core_of[first : first + network.node(c.target).n_neurons], n_cores))
    return rows


def destinations(network: Network, rows: list[RowsByClass], n_cores: int) -> Destinations:
    """The Destinations of a normalized network whose connections have these `rows_by_connection`."""
    wires = [wiring(network, c) for c in network.connections]
    class_of, size = source_classes(network, wires)
    keys = [np.zeros(0, np.int64)]
    for name, source_class in class_of.items():
        classes, one = np.unique(source_class, return_index=True)
        parts = []
        for c, w, (offset, core, _) in zip(network.connections, wires, rows, strict=True):
            if c.source == name:
                at = w.source_class[one]
                length = np.diff(offset)[at]
                parts.append(np.repeat(classes, length) * n_cores + core[csr_entries(offset, at)])
        keys.append(parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts)))
    key = np.concatenate(keys)
    offset = csr_offset(np.bincount(key // n_cores, minlength=len(size)))
    return Destinations(class_of, size, offset, key % n_cores)


def flows(network: Network, reached: Destinations, core_of: np.ndarray, activity: Activity) -> Flows:
    """The Flows of all sources over all steps of `activity`, by source class and then by core."""
    keys, sent, width = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], int(core_of.max(initial=-1)) + 2
    for name, source_class in reached.class_of.items():
        first = network.offsets[name]
        keys.append(source_class * width + core_of[first : first + len(source_class)] + 1)
        sent.append(activity.counts[name].sum(0, dtype=np.int64))
    key, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    messages = np.zeros(len(key), np.int64)
    np.add.at(messages, inverse.reshape(-1), np.concatenate(sent))
    return Flows(key // width, key % width - 1, messages)


def core_messages(reached: Destinations, flow: Flows, n_cores: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of cores (from, to) int64[pair, 2], -1 for input lines, ascending, and their messages int64[pair].

    Pairs between which nothing is sent are left out.
    """
    order = np.argsort(flow.home, kind="stable")
    start = np.searchsorted(flow.home[order], np.arange(-1, n_cores + 1))
    offset, to, messages = link_flits.core_messages(
        start, flow.source_class[order], flow.messages[order], reached.offset, reached.core, n_cores
    )
    return np.stack([csr_groups(offset) - 1, to], 1), messages


def core_pairs(axons: Axons, core_of: np.ndarray, n_cores: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of cores that have an axon between them: (pair of each axon int32[axon], pair int32[pair, 2]).

    A pair is (from, to), the own core included; axons of input lines belong to no pair, -1.
    """
    order = np.argsort(core_of, kind="stable")
    axon_pair = np.full(axons.n_axons, -1, np.int32)
    start = np.searchsorted(core_of[order], np.arange(n_cores + 1))
    first, to = traffic.pairs_of_axons(order, start, axons.offset, axons.core, n_cores, axon_pair)
    return axon_pair, np.stack([csr_groups(first), to], 1).astype(np.int32)
