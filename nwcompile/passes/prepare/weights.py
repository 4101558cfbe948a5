"""Weights before quantization: their widths, pruned connections as lists of synapses, kernels without unmet taps.

`prune_zeros` replaces a pruned dense connection by a list of its synapses. The chip then neither stores nor reads
zeros, and a source without synapses on a core sends no message there.

`drop_unmet_taps` removes rows and columns of stored kernels that only ever see padding. A 3 x 3 kernel on a 1 x 1 map,
as deep layers of small images have, reads only its middle tap. If a chip stores convolutions as kernels
(`weights.sharing`), the other taps would take eight ninths of the memory. The effect of a spike stays the same.
"""

from dataclasses import replace

import numpy as np

from nwcompile.cost.traffic.memory import synapse_bits
from nwcompile.errors import OptionError, unknown_choice
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse, pair, window_count
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import DENSE, SPARSE

MOST_LEFT = 0.5  # Fraction of non-zero weights above which a Dense stays one: a list would save little.


def apply_weight_bits(network: Network, chip: Chip, options: Options) -> Network:
    """Set `options.bits` and `options.layer_bits` in the connections of a float network.

    Connections that the options leave open keep the network's widths, or the chip's. A fixed-point network keeps its
    widths. Raises OptionError for layers that the network does not have, and for weights wider than the chip's.
    """
    if network.is_fixed:
        return network
    chosen = options.layer_bits or {}
    for name in chosen:
        if name not in network.layers:
            raise OptionError(f"layer_bits: {unknown_choice('layer', name, network.layers)}", code="NW1007")
    connections = []
    for c in network.connections:
        bits = chosen.get(c.target, options.bits)
        if c.has_weight and bits is not None:
            c = c.replace(weight_bits=bits)
        connections.append(c)
    for c in connections:
        if c.has_weight and (c.weight_bits or 0) > chip.weights.bits:
            raise OptionError(
                f"{c.weight_bits}-bit weights into layer {c.target!r} are wider than those of {chip.name}, which have "
                f"{chip.weights.bits}; give 1 to {chip.weights.bits}, or set weights.bits = {c.weight_bits}",
                code="NW1007",
            )
    return Network(network.inputs, network.nodes, tuple(connections))


def prune_zeros(network: Network, chip: Chip) -> Network:
    """Replace every Dense with at most half its weights non-zero by a Sparse, if that is cheaper.

    It is cheaper if the synapses with their indices need less memory than all weights, and reading them takes no more
    time, by the chip's figures. A chip whose cores distinguish weights by axon types keeps rows. A Dense from more
    sources than a core has axons fits no core, so there every zero saves an axon.
    """
    connections: list[Connection] = []
    for c in network.connections:
        if isinstance(c, Dense):
            n_most = most_listed(int(np.size(c.weight)), np.shape(c.weight)[1], c, chip)
            c = to_sparse(c) if np.count_nonzero(c.weight) <= n_most else c
        connections.append(c)
    return Network(network.inputs, network.nodes, tuple(connections))


def most_listed(n: int, n_sources: int, dense_edge: Dense, chip: Chip) -> int:
    """Return how many of `n` weights from `n_sources` a list may have at most; -1 if the chip always keeps rows."""
    in_axons = chip.limit("max_in_axons")
    if in_axons is not None and n_sources > in_axons.max():
        return n - 1
    if chip.weights.axon_types is not None:
        return -1
    dense, sparse = (np.max(getattr(chip.cost, f"synop_{kind}_cycles") or 0) for kind in ("dense", "sparse"))
    bits = [synapse_bits(dense_edge, kind, chip) for kind in (DENSE, SPARSE)]
    by_time = n if sparse == 0 else n * dense // sparse
    return min(int(MOST_LEFT * n), (n * bits[0] - 1) // bits[1], by_time)


def to_sparse(dense_edge: Dense) -> Sparse:
    """Return a dense connection's non-zero weights as a Sparse."""
    weight = np.asarray(dense_edge.weight)
    post, pre = np.nonzero(weight)
    return list_synapses(dense_edge, pre, post, weight[post, pre], delay=dense_edge.delay)


def list_synapses(edge: Connection, pre: np.ndarray, post: np.ndarray, weight: np.ndarray, **changes) -> Sparse:
    """Return synapses of a connection as a Sparse with its ends, delay, bias and format, except for `changes`."""
    kept = {name: getattr(edge, name) for name in ("source", "target", "bias", "exponent", "sign_mode", "weight_bits")}
    return Sparse(pre=pre, post=post, weight=weight, **({"delay": edge.aligned_delay} | kept | changes))


def drop_unmet_taps(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Crop every kernel to the taps that read its source, if the chip stores kernels."""
    if not chip.weights.sharing:
        return network, []
    edges, changes = [], []
    for edge in network.connections:
        cut = _drop_taps(edge, network.node(edge.source).shape) if isinstance(edge, Conv2d) else edge
        edges.append(cut)
        if cut is not edge:
            was, has = (" x ".join(map(str, np.shape(e.weight)[2:])) for e in (edge, cut))
            how = f"taps of the kernel from {edge.source} that only padding meets are left out"
            changes.append(Change(edge.target, f"a kernel of {was}", f"{has} of it meet the map", how, EXACT))
    return replace(network, connections=tuple(edges)) if changes else network, changes


def _drop_taps(edge: Conv2d, shape: tuple[int, ...]) -> Conv2d:
    """Return the connection with fewer taps and less padding; unchanged if no tap can go or sizes would differ."""
    source, target = edge.kernel_geometry(shape)
    strides, paddings, dilations = (pair(value) for value in (edge.stride, edge.padding, edge.dilation))
    kept, padding = [], []
    for axis in range(2):
        taps = np.arange(np.shape(edge.weight)[2 + axis]) * dilations[axis] - paddings[axis]
        places = np.arange(target[1 + axis])[:, None] * strides[axis] + taps
        (met,) = np.nonzero(((places >= 0) & (places < source[1 + axis])).any(0))
        if not met.size:
            return edge
        kept.append(slice(int(met[0]), int(met[-1]) + 1))
        padding.append(paddings[axis] - int(met[0]) * dilations[axis])
    weight = np.ascontiguousarray(np.asarray(edge.weight)[:, :, kept[0], kept[1]])
    if weight.shape == np.shape(edge.weight) or min(padding) < 0:
        return edge
    if window_count(source[1:], weight.shape[2:], strides, tuple(padding), dilations) != target[1:]:
        return edge
    return edge.replace(weight=weight, padding=tuple(padding))
