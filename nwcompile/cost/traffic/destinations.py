"""Destinations: the destination cores of every source, stored per class of sources.

Sources of a node with exactly the same readers form a source class: the channels of a pixel under a convolution, all
neurons under a dense connection. They send to the same cores, so a large map costs no more here than its pixels.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Connection
from nwcompile.ir.flat import csr_entries, csr_groups, csr_offset
from nwcompile.ir.network import Network
from nwcompile.ir.program import Axons
from nwcompile.kernels.mapping import link_flits, traffic

RowsByClass = tuple[np.ndarray, np.ndarray, np.ndarray]  # result of `Wiring.core_rows`
RowsOfNode = tuple[str, list[tuple[Connection, RowsByClass]]]  # an input or layer, and its outgoing connections


class Destinations(NamedTuple):
    """Source classes of all sending nodes, and the destination cores of each as CSR, ascending."""

    class_of: dict[str, np.ndarray]  # int64[n] by node: source class of each source
    size: np.ndarray  # int64[class]: number of sources
    offset: np.ndarray  # int64[class + 1]
    core: np.ndarray  # int32[...]


class Flows(NamedTuple):
    """Sources of one class on one core (-1: input lines), and their messages to each destination."""

    source_class: np.ndarray  # int64[flow]
    home: np.ndarray  # int64[flow]
    messages: np.ndarray  # int64[flow]


def source_classes(network: Network) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the source class of every source of each sending node, int64[n], and the class sizes, int64[class].

    Neurons that share an axon are in one class, and count once in its size.
    """
    class_of, sizes, n_classes = {}, [np.zeros(0, np.int64)], 0
    for name in network.offsets:
        leaving = [connection_wiring(network, c) for c in network.out_of(name)]
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


def rows_by_source(network: Network, core_of: np.ndarray) -> Iterator[RowsOfNode]:
    """Yield for each sending input or layer, in the order `network.offsets`, its connections and `Wiring.core_rows`.

    `core_of` is int32[source] in that order. It yields one node at a time, because all rows of a large network need
    more memory than the network itself.
    """
    for name in network.offsets:
        rows = []
        for c in network.out_of(name):
            first = network.offsets[c.target]
            core_of_targets = core_of[first : first + network.node(c.target).n_neurons]
            rows.append((c, connection_wiring(network, c).core_rows(core_of_targets)))
        if rows:
            yield name, rows


def find_destinations(network: Network, rows: Iterable[RowsOfNode], n_cores: int) -> Destinations:
    """Find the Destinations of a normalized network with these `rows_by_source`."""
    class_of, size = source_classes(network)
    length, cores = np.zeros(len(size), np.int64), [np.zeros(0, np.int32)]
    for name, leaving in rows:
        classes, one = np.unique(class_of[name], return_index=True)
        if len(leaving) == 1:  # the rows of a class are its destinations
            ((c, (offset, core, _)),) = leaving
            at = connection_wiring(network, c).source_class[one]
            length[classes] = np.diff(offset)[at]
            in_order = np.array_equal(at, np.arange(len(offset) - 1))
            cores.append(core if in_order else core[csr_entries(offset, at)])
            continue
        first_key, n_rows = (classes - classes[0]) * n_cores, sum(len(core) for _, (_, core, _) in leaving)
        parts = (_destination_keys(network, c, rows_of, one, first_key) for c, rows_of in leaving)
        place, core = np.divmod(_distinct_keys(parts, int(first_key[-1]) + n_cores, n_rows), n_cores)
        length[classes] = np.bincount(place, minlength=classes[-1] - classes[0] + 1)[classes - classes[0]]
        cores.append(core.astype(np.int32))
    return Destinations(class_of, size, csr_offset(length), np.concatenate(cores))


def _destination_keys(network: Network, c: Connection, rows: RowsByClass, one: np.ndarray, first_key) -> np.ndarray:
    """Return int64[...]: the key of class and core of each row of a connection, ordered by class.

    `one`, `first_key`: int64[class], a source of each class, and the key of the class and core 0.
    """
    offset, core, _ = rows
    at = connection_wiring(network, c).source_class[one]
    length = np.diff(offset)[at]
    return np.repeat(first_key, length) + core[csr_entries(offset, at)]


def _distinct_keys(parts: Iterator[np.ndarray], n_keys: int, n_entries: int) -> np.ndarray:
    """Return int64[...]: the distinct keys 0..n_keys-1 of all parts, ascending; they have about n_entries in total.

    Many entries are marked in a table of all keys, part by part, so that they are not in memory together.
    """
    if n_keys > n_entries * 8:  # bytes of an entry
        return np.unique(np.concatenate(list(parts)))
    is_there = np.zeros(n_keys, np.bool_)
    for keys in parts:
        is_there[keys] = True
    return np.flatnonzero(is_there)


def count_flows(network: Network, reached: Destinations, core_of: np.ndarray, activity: Activity) -> Flows:
    """Count the Flows of all sources over all steps of `activity`, by source class and then by core."""
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
    """Return pairs of cores (from, to) int64[pair, 2], -1 for input lines, ascending, and their messages int64[pair].

    Pairs without messages are omitted.
    """
    order = np.argsort(flow.home, kind="stable")
    start = np.searchsorted(flow.home[order], np.arange(-1, n_cores + 1))
    offset, to, messages = link_flits.core_messages(
        start, flow.source_class[order], flow.messages[order], reached.offset, reached.core, n_cores
    )
    return np.stack([csr_groups(offset) - 1, to], 1), messages


def core_pairs(axons: Axons, core_of: np.ndarray, n_cores: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of cores with an axon between them: (pair of each axon int32[axon], pair int32[pair, 2]).

    A pair is (from, to), and may be one core twice. Axons of input lines have no pair, -1.
    """
    order = np.argsort(core_of, kind="stable")
    axon_pair = np.full(axons.n_axons, -1, np.int32)
    start = np.searchsorted(core_of[order], np.arange(n_cores + 1))
    first, to = traffic.pairs_of_axons(order, start, axons.offset, axons.core, n_cores, axon_pair)
    return axon_pair, np.stack([csr_groups(first), to], 1).astype(np.int32)
