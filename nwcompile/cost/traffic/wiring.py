"""Wiring: the synapses of a connection in symbolic form, as classes of neurons with the same sources or targets.

A dense connection has one class on each side; a convolution has one per channel group and pixel, for any number of
channels; a sparse one has a class per neuron. Nothing here is as long as the list of synapses, unless the network
itself is such a list.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse, pair, synapse_list
from nwcompile.ir.flat import csr_entries, csr_groups, csr_offset, csr_sums
from nwcompile.ir.network import Network
from nwcompile.ir.program import CONV, DENSE, SPARSE
from nwcompile.kernels.mapping import traffic


@dataclass(frozen=True, eq=False)
class Wiring:
    """The synapses of a connection: a neuron of target class k has one from every neuron of its tapped source classes.

    The source classes that class k taps are `taps[offset[k]:offset[k + 1]]`; a neuron with several inputs may tap one
    several times. In a convolution, `kernel[target]` is the kernel (output channel) of a neuron, else None;
    `kernel_size` is the number of its weights. The kernels of all inputs of a neuron count as one.
    """

    kind: int  # DENSE, SPARSE or CONV
    source_class: np.ndarray  # int32[source]
    target_class: np.ndarray  # int32[target]
    offset: np.ndarray  # int64[target class + 1]
    taps: np.ndarray  # int32[tap]: source class
    kernel: np.ndarray | None = None  # int32[target]
    kernel_size: int = 0

    @cached_property
    def source_size(self) -> np.ndarray:
        """int64[source class]: number of neurons."""
        return np.bincount(self.source_class, minlength=self.n_source_classes)

    @cached_property
    def n_source_classes(self) -> int:
        """Number of source classes, including those that no target taps."""
        return int(self.source_class.max(initial=-1)) + 1

    @property
    def fan_in(self) -> np.ndarray:
        """int64[target]: synapses of each target neuron."""
        return csr_sums(self.offset, self.source_size[self.taps])[self.target_class]

    @cached_property
    def fan_out(self) -> np.ndarray:
        """int64[source]: synapses of each source neuron."""
        readers = np.bincount(self.target_class, minlength=len(self.offset) - 1)[csr_groups(self.offset)]
        return np.bincount(self.taps, readers, self.n_source_classes).astype(np.int64)[self.source_class]

    def core_rows(self, core_of: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Count the synapses of a neuron of each source class in each core; targets on core -1 are ignored.

        `core_of` is int32[target]. Returns (offset int64[source class + 1], core int32[row], n_synapses int64[row]):
        the rows of class k are `offset[k]:offset[k + 1]`, sorted by core.
        """
        n_classes = len(self.offset) - 1
        mapped = core_of >= 0
        key = core_of[mapped].astype(np.int64) * n_classes + self.target_class[mapped]
        key, count = np.unique(key, return_counts=True)
        return traffic.rows_of_classes(
            key // n_classes, key % n_classes, count, self.offset, self.taps, self.n_source_classes
        )


_known: WeakKeyDictionary[Connection, tuple[tuple, Wiring]] = WeakKeyDictionary()  # connections are immutable


def connection_wiring(network: Network, connection: Connection) -> Wiring:
    """Return the Wiring of a connection of a normalized network. Raises ModelError for other kinds of connection.

    It is cached as long as the connection exists, because sorting a list of synapses is slow.
    """
    target = network.node(connection.target)
    key = network.node(connection.source).shape, target.shape, target.n_inputs
    known = _known.get(connection)
    if known is None or known[0] != key:
        wires = _build_wiring(network, connection)
        known = _known[connection] = key, wires if target.n_inputs == 1 else _join_inputs(wires, target.n_inputs)
    return known[1]


def _join_inputs(wires: Wiring, n_inputs: int) -> Wiring:
    """Return the wiring of neurons from that of their inputs: a neuron has the synapses of all of them."""
    of_inputs, target_class = np.unique(wires.target_class.reshape(n_inputs, -1), axis=1, return_inverse=True)
    classes = of_inputs.T.reshape(-1)
    n_taps = np.diff(wires.offset)[classes].reshape(-1, n_inputs).sum(1)
    return replace(
        wires,
        target_class=target_class.reshape(-1).astype(np.int32),
        offset=csr_offset(n_taps),
        taps=wires.taps[csr_entries(wires.offset, classes)],
        kernel=None if wires.kernel is None else wires.kernel.reshape(n_inputs, -1)[0],
        kernel_size=wires.kernel_size * n_inputs,
    )


def _build_wiring(network: Network, connection: Connection) -> Wiring:
    source, target = network.node(connection.source), network.node(connection.target)
    if isinstance(connection, Dense):
        return Wiring(
            kind=DENSE,
            source_class=np.zeros(source.n_neurons, np.int32),
            target_class=np.zeros(target.n_sums, np.int32),
            offset=np.array([0, 1], np.int64),
            taps=np.zeros(1, np.int32),
        )
    if isinstance(connection, Sparse):
        post, n_source, n_target = np.asarray(connection.post), source.n_neurons, target.n_sums
        offset = csr_offset(np.bincount(post, minlength=n_target))
        taps = np.asarray(connection.pre)[np.argsort(post, kind="stable")].astype(np.int32)
        return Wiring(SPARSE, np.arange(n_source, dtype=np.int32), np.arange(n_target, dtype=np.int32), offset, taps)
    if isinstance(connection, Conv2d):
        return _conv_wiring(connection, source.shape)
    raise ModelError(
        f"connection {connection.source!r} -> {connection.target!r}: a {type(connection).__name__} has no synapses "
        "to place; normalize the network first",
        code="NW5008",
    )


def axis_taps(connection: Conv2d, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the kernel taps inside the map for every output row and column, int64; `shape` is the source's."""
    (_, *size), (_, *out) = connection.kernel_geometry(shape)
    kernel, counts = np.shape(connection.weight)[2:], []
    for a in (0, 1):
        first = np.arange(out[a]) * pair(connection.stride)[a] - pair(connection.padding)[a]
        at = first[:, None] + np.arange(kernel[a]) * pair(connection.dilation)[a]
        counts.append(((at >= 0) & (at < size[a])).sum(1))
    return counts[0], counts[1]


def synapse_count(network: Network, connection: Connection) -> int:
    """Return the number of stored synapses of a Dense, Conv2d or Sparse connection, in closed form."""
    if isinstance(connection, Conv2d):
        rows, columns = axis_taps(connection, network.node(connection.source).shape)
        n_out, n_in = np.shape(connection.weight)[:2]
        return int(rows.sum()) * int(columns.sum()) * n_in * n_out
    return int(np.size(connection.weight))


def _conv_wiring(connection: Conv2d, shape: tuple[int, ...]) -> Wiring:
    (n_in, rows, columns), (n_out, out_rows, out_columns) = connection.kernel_geometry(shape)
    weight, groups = np.asarray(connection.weight), connection.groups
    offset, taps = traffic.conv_taps(
        (groups, rows, columns),
        (out_rows, out_columns),
        weight.shape[2:],
        pair(connection.stride),
        pair(connection.padding),
        pair(connection.dilation),
    )
    return Wiring(
        kind=CONV,
        source_class=_group_pixel(n_in, groups, rows * columns),
        target_class=_group_pixel(n_out, groups, out_rows * out_columns),
        offset=offset,
        taps=taps,
        kernel=np.repeat(np.arange(n_out, dtype=np.int32), out_rows * out_columns),
        kernel_size=weight[0].size,
    )


def _group_pixel(n_channels: int, groups: int, n_pixels: int) -> np.ndarray:
    """Return int32[channel * pixel]: index of (channel group, pixel) of every neuron of a map."""
    group = np.arange(n_channels, dtype=np.int32) // (n_channels // groups)
    return (group[:, None] * np.int32(n_pixels) + np.arange(n_pixels, dtype=np.int32)).reshape(-1)


def fed_neurons(network: Network, source: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return by target of a node which of its neurons are fed, bool[target], and the fan-out of each source neuron.

    Weights of 0 do not count.
    """
    n_source = network.node(source).n_neurons
    pairs: dict[str, list[np.ndarray]] = {}
    for c in network.connections:
        if c.source == source and c.has_weight and c.target in network.layers:
            pre, post, place = synapse_list(c, network.node(source).shape)
            kept = np.asarray(c.weight).reshape(-1)[place] != 0
            n_target = network.node(c.target).n_neurons
            pairs.setdefault(c.target, []).append(pre[kept].astype(np.int64) * n_target + post[kept] % n_target)
    fed = {}
    for target, parts in pairs.items():
        n_target = network.node(target).n_neurons
        pre, post = np.divmod(np.unique(np.concatenate(parts)), n_target)
        fed[target] = np.bincount(post, minlength=n_target) > 0, np.bincount(pre, minlength=n_source)
    return fed
