"""Split fan-in: split a fan-in that no core holds, exactly, into partial sums, which the layer adds a step later.

A neuron needs an axon and a synapse for each of its sources, on one core. If no core has enough, the sources are split
into parts. For each neuron and part, a further neuron sends the sum of that part's synapses as a signed number, and the
neuron itself adds up those numbers with weights 1. In integers this is the same sum in any order. Connections that
close a loop stay, because they have no spare step.

Small layers are cut as lists of synapses. Where such a list would take gigabytes, connections stay symbolic. Sources
with equal weights everywhere, such as the pixels of a mean, are added up before one synapse reads them. Other sources
are cut into channel groups, and one grouped convolution adds up all of them.
"""

from math import ceil, prod
from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.memory import row_bits, synapse_bits
from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.errors import FitError, Violation
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Dense, Direct, Sparse, synapse_list
from nwcompile.ir.host import Injected
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.options import Options
from nwcompile.ir.program import SPARSE
from nwcompile.ir.resources import IN_AXONS, N_RESOURCES, NEURONS, SYNAPSE_BITS
from nwcompile.passes.analyze import capacity
from nwcompile.passes.analyze.nonlinear import can_send_sums
from nwcompile.passes.prepare.weights import list_synapses
from nwcompile.passes.quantize.send_sums import (
    SUM,
    build_sender,
    connect_signed,
    count_safe_spikes,
    message_room,
    up_to,
)

PARTS = "{}/part{}"  # Name of the neurons that send the sums of one part of a layer's sources.
WAS = {IN_AXONS: "fan-in of {} axons", SYNAPSE_BITS: "fan-in of {} bits of synapses"}  # text of a row
ADVICE = "raise noc.payload_bits, use fewer weight bits, or give {} fewer inputs"
LARGEST = 50_000_000  # Synapses of a layer above which it stays symbolic: a list of them would take gigabytes.
FEWER = 2  # Sources are added up before they are read if this leaves at most one in FEWER.
MOST_GROUPS = 16  # With more groups, sending neurons cost more than the rows of synapses that they save.


class Part(NamedTuple):
    """A further layer, whose neurons send sums of their inputs, and the connection that reads them."""

    shape: tuple[int, ...]
    into: list[Connection]
    out: Connection


class Cut(NamedTuple):
    """The sources of a layer in `parts`, and the `network` with their neurons.

    `resource`: the row of RESOURCES of which one neuron takes `used`, more than the `limit` of any core.
    """

    network: Network
    parts: list[Part]
    resource: int
    used: int
    limit: int


def split_fan_in(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Feed partial sums to every neuron that exceeds a core on its own.

    Raises FitError, with all layers whose partial sums do not fit into the chip's messages. Messages are checked, and
    rows made, only for a fixed-point network.
    """
    changes: list[Change] = []
    violations: list[Violation] = []
    for name in network.layers if can_send_sums(chip, options.on_multi_spike) else ():
        cut = _cut_sources(network, name, chip)
        if cut is None:
            continue
        network = cut.network
        if network.is_fixed:
            changes.append(_describe_split(network, name, cut, chip, violations))
    if violations:
        raise FitError(chip.name, violations)
    return network, changes


def _cut_sources(network: Network, name: str, chip: Chip) -> Cut | None:
    """Return how to split the sources of a layer; None if a core holds each neuron, or if no parts would help."""
    limits = capacity.site_limits(chip)[chip.max_neurons > 0, :N_RESOURCES].max(0)  # the largest limits of any core
    into = [c for c in network.into(name) if not isinstance(c, Injected)]
    if network.node(name).n_inputs > 1 or not all(isinstance(c, Direct) for c in into):
        return None
    if _surely_fits(network, into, limits, chip):
        return None
    used = _usage_alone(network, name, chip)
    over = [i for i in (IN_AXONS, SYNAPSE_BITS) if used[i] > limits[i]]
    if not over:
        return None
    behind = network.find_reached(name)
    split = [c for c in into if c.source not in behind]
    as_lists = sum(synapse_count(network, c) for c in into) <= LARGEST
    parts = (_list_parts if as_lists else symbolic_parts)(network, name, split, limits, chip)
    if parts is None:
        return None
    made = _insert_parts(network, name, parts, split, chip)
    new = [name, *(PARTS.format(name, i) for i in range(1, len(parts) + 1))]
    takes = (_usage_alone(made, layer, chip) for layer in new)
    if not all((n[[IN_AXONS, SYNAPSE_BITS]] <= limits[[IN_AXONS, SYNAPSE_BITS]]).all() for n in takes):
        return None
    return Cut(made, parts, over[0], int(used[over[0]]), int(limits[over[0]]))


def _usage_alone(network: Network, name: str, chip: Chip) -> np.ndarray:
    """Return int64[resource]: the most that a neuron of a layer takes on its own core."""
    into = tuple(c for c in network.into(name) if not isinstance(c, Injected))
    sources = {c.source for c in into} - {name}
    inputs = {source: Node(source, network.node(source).shape) for source in network.offsets if source in sources}
    layer = Network(inputs, {name: network.node(name)}, into)
    neurons = np.arange(network.node(name).n_neurons)
    return capacity.count_alone(capacity.fan_in(layer, chip), neurons)[:, :N_RESOURCES].max(0)


def _surely_fits(network: Network, into: list[Connection], limits: np.ndarray, chip: Chip) -> bool:
    """Return whether a row for every source of a neuron is within the limits, without visiting each neuron."""
    axons, bits = 0, 0
    for c in into:
        n = _most_sources(network, c)
        axons += n
        bits += n * int(row_bits(1, synapse_bits(c, SPARSE, chip), chip))
    return bool(axons <= limits[IN_AXONS] and bits <= limits[SYNAPSE_BITS])


def _most_sources(network: Network, edge: Connection) -> int:
    """Return the largest fan-in of a neuron through this connection."""
    if isinstance(edge, Sparse):
        return int(np.bincount(np.asarray(edge.post), minlength=1).max())
    n_sources = network.node(edge.source).n_neurons
    return n_sources if isinstance(edge, Dense) else min(n_sources, int(np.prod(np.shape(edge.weight)[1:])))


def symbolic_parts(
    network: Network, name: str, split: list[Connection], limits: np.ndarray, chip: Chip
) -> list[Part] | None:
    """Return a part for each connection, without lists of synapses.

    `limits`: int64[resource] of a core. Returns None if a connection is a list, or if no number of groups keeps them.
    """
    parts = []
    for i, edge in enumerate(split, 1):
        if not isinstance(edge, Dense | Conv2d):
            return None
        sends = PARTS.format(name, i)
        part = _sum_equal_sources(network, edge, sends, chip) if isinstance(edge, Dense) else None
        part = part or _sum_groups(network, edge, sends, limits, chip)
        if part is None:
            return None
        parts.append(part)
    return parts or None


def _list_parts(
    network: Network, name: str, split: list[Connection], limits: np.ndarray, chip: Chip
) -> list[Part] | None:
    """Return the fewest equal parts such that a core holds every neuron of a part; None if there are none."""
    if not split:
        return None
    lists = [_list_synapses(network, c) for c in split]
    first = np.cumsum([0, *(network.node(c.source).n_neurons for c in split)])
    source = np.concatenate([edge.pre + at for edge, at in zip(lists, first, strict=False)])
    post, n = np.concatenate([edge.post for edge in lists]), network.node(name).n_neurons
    is_used = np.zeros(first[-1], bool)
    is_used[source] = True
    n_used, rank = int(np.count_nonzero(is_used)), np.cumsum(is_used) - 1
    a_row = max(int(row_bits(1, synapse_bits(c, SPARSE, chip), chip)) for c in lists)
    n_held = min(int(limits[IN_AXONS]), int(limits[SYNAPSE_BITS]) // a_row)  # synapses of a neuron, one row each
    if n_held < 1:
        return None
    fan_in = int(np.bincount(post, minlength=n).max())
    for n_parts in range(max(2, ceil(fan_in / n_held)), min(n_used, n_held) + 1):
        part = (rank * n_parts // n_used)[source]
        if np.bincount(part * n + post).max() <= n_held:
            ends = np.cumsum([0, *map(len, (edge.post for edge in lists))])
            by_edge = [part[a:b] for a, b in zip(ends, ends[1:], strict=False)]
            return [_build_part(network, lists, by_edge, i, chip) for i in range(n_parts)]
    return None


def _list_synapses(network: Network, edge: Connection) -> Sparse:
    """Return a connection as the list of its non-zero synapses, without its biases."""
    assert isinstance(edge, Direct)
    pre, post, place = synapse_list(edge, network.node(edge.source).shape)
    weight = np.asarray(edge.weight).reshape(-1)[place]
    stays = weight != 0
    return list_synapses(edge, pre[stays], post[stays], weight[stays], bias=None)


def _build_part(network: Network, lists: list[Sparse], part_of: list[np.ndarray], part: int, chip: Chip) -> Part:
    """Return the synapses of one part, with a list for every connection that has any in it."""
    name = lists[0].target
    target, every = PARTS.format(name, part + 1), np.arange(network.node(name).n_neurons)
    into: list[Connection] = [
        edge.replace(target=target, pre=edge.pre[held], post=edge.post[held], weight=edge.weight[held])
        for edge, held in ((edge, its == part) for edge, its in zip(lists, part_of, strict=True))
        if held.any()
    ]
    return Part(network.node(name).shape, into, connect_sums(network, target, name, every, every, chip))


def _insert_parts(network: Network, name: str, parts: list[Part], split: list[Connection], chip: Chip) -> Network:
    """Insert the parts for the connections in `split` in front of their layer, which keeps all biases."""
    node, room = network.node(name), message_room(chip)
    biases = [c.bias_per_neuron(node.shape) for c in split if c.bias is not None]
    nodes: dict[str, Node] = {}
    edges = [c for c in network.connections if c not in split]
    for i, part in enumerate(parts, 1):
        sends = PARTS.format(name, i)
        nodes[sends] = Node(sends, part.shape, build_sender(SUM, -room, room, network.is_fixed))
        edges += [*part.into, part.out.replace(bias=sum(biases)) if biases and i == 1 else part.out]
    layers: dict[str, Node] = {}
    for layer, kept in network.nodes.items():
        layers |= {**nodes, name: kept} if layer == name else {layer: kept}
    made = Network(network.inputs, layers, tuple(edges))
    made.verify()
    return made


def _describe_split(network: Network, name: str, cut: Cut, chip: Chip, violations: list[Violation]) -> Change:
    """Return the row of a split layer of a fixed-point network; messages that are too narrow add to `violations`."""
    parts = [PARTS.format(name, i) for i in range(1, len(cut.parts) + 1)]
    counts = []
    for part in parts:
        try:
            counts.append(count_safe_spikes(network, part, chip, ADVICE.format(name)))
        except FitError as e:
            violations += e.violations
    n_counts = min((n for n in counts if n is not None), default=None)
    n_all, n = sum(prod(part.shape) for part in cut.parts), network.node(name).n_neurons
    to_layer = f", {len(parts)} for each of {name}" if n_all == n * len(parts) else f" to {name}"
    how = f"{n_all} neurons send sums{to_layer}, a step before it{up_to(n_counts)}"
    has = f"at most {cut.limit} per core"
    return Change(name, WAS[cut.resource].format(cut.used), has, how, EXACT)


def connect_sums(network: Network, source: str, target: str, pre: np.ndarray, post: np.ndarray, chip: Chip) -> Sparse:
    """Return synapses of weight 1 by which a target's neurons add up those of a source, float in a float network."""
    return connect_signed(source, target, pre, post, np.ones(len(pre)), chip if network.is_fixed else None)


def _sum_equal_sources(network: Network, edge: Dense, part: str, chip: Chip) -> Part | None:
    """Use a neuron for each set of sources with the same weights into all targets; None if there are many sets."""
    weight = np.asarray(edge.weight)
    first, of_source = _equal_columns(weight)
    if FEWER * len(first) > weight.shape[1]:
        return None
    sums = connect_sums(network, edge.source, part, np.arange(weight.shape[1]), of_source, chip)
    reads = edge.replace(source=part, weight=np.ascontiguousarray(weight[:, first]), bias=None, delay=0)
    return Part((len(first),), [sums.replace(delay=edge.aligned_delay)], reads)


def _equal_columns(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first of each set of equal columns of weight [row, column], and each column's set, int64[column]."""
    mixed = np.random.default_rng(0).random(len(weight)) @ weight  # columns can only be equal if their sums are
    rounded = np.round(mixed, 6)  # the order of summation differs between columns
    _, first, of_column = np.unique(rounded, return_index=True, return_inverse=True)
    of_column = of_column.reshape(-1)
    if not (weight == weight[:, first][:, of_column]).all():
        return np.arange(weight.shape[1]), np.arange(weight.shape[1])
    return first, of_column


def _sum_groups(network: Network, edge: Dense | Conv2d, part: str, limits: np.ndarray, chip: Chip) -> Part | None:
    """Repeat every neuron of the layer for each group of source channels, all in one grouped convolution."""
    n_target = network.node(edge.target).n_neurons
    n_groups = _best_groups(edge, n_target, limits, chip)
    if n_groups is None:
        return None
    grouped = _group_convolution(edge, n_groups)
    shape = grouped.output_shape(network.node(edge.source).shape)
    every = np.arange(prod(shape))
    return Part(
        shape,
        [grouped.replace(target=part, bias=None, delay=edge.aligned_delay)],
        connect_sums(network, part, edge.target, every, every % n_target, chip),
    )


def _best_groups(edge: Dense | Conv2d, n_target: int, limits: np.ndarray, chip: Chip) -> int | None:
    """Return the number of groups that needs the fewest cores, by synapse rows and neurons; None if none fits.

    A row of one synapse takes a header, and few neurons per core make many such rows.
    """
    weight = np.shape(edge.weight)
    channels, taps = weight[1], prod(weight[2:])
    bits = synapse_bits(edge, SPARSE, chip)
    n = np.arange(1, weight[0] + 1)
    cores: dict[int, float] = {}
    for n_groups in range(1, min(channels, MOST_GROUPS) + 1 if getattr(edge, "groups", 1) == 1 else 2):
        n_rows = channels // n_groups * taps
        n_held = int(np.count_nonzero(n_rows * row_bits(n, bits, chip) <= limits[SYNAPSE_BITS]))
        if channels % n_groups == 0 and n_rows <= limits[IN_AXONS] and n_held:
            cores[n_groups] = n_groups * (weight[0] / n_held + n_target / limits[NEURONS])
    return min(cores, key=lambda n_groups: (cores[n_groups], n_groups), default=None)


def _group_convolution(edge: Dense | Conv2d, n_groups: int) -> Conv2d:
    """Return a convolution that sums each group of source channels separately, group after group."""
    weight = np.asarray(edge.weight)
    n_out, n_in, *kernel = weight.shape
    kernel = kernel or [1, n_in // n_groups]
    block = weight.reshape(n_out, n_groups, -1).swapaxes(0, 1)
    if isinstance(edge, Conv2d):
        wide = block.reshape(n_groups * n_out, n_in // n_groups, *kernel)
        return edge.replace(weight=wide, groups=n_groups * edge.groups)
    return Conv2d(
        edge.source,
        edge.target,
        weight=block.reshape(n_groups * n_out, 1, *kernel),
        groups=n_groups,
        exponent=edge.exponent,
        sign_mode=edge.sign_mode,
        weight_bits=edge.weight_bits,
        source_shape=(n_groups, *kernel),
    )
