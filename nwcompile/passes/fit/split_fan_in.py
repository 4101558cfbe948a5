"""Split fan-in: split a fan-in that no core holds, exactly, into partial sums, which the layer adds a step later.

A neuron needs an axon and a synapse for each of its sources, on one core. If no core has enough, the sources are split
into parts. For each neuron and part, a further neuron sends the sum of that part's synapses as a signed number, and the
neuron itself adds up those numbers with weights 1. In integers this is the same sum in any order. Connections that
close a loop stay, because they have no spare step.
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
from nwcompile.ir.resources import IN_AXONS, N_RESOURCES, SYNAPSE_BITS
from nwcompile.passes.analyze import capacity
from nwcompile.passes.analyze.nonlinear import can_send_sums
from nwcompile.passes.fit.parts import Part, connect_sums, symbolic_part
from nwcompile.passes.quantize.sums.send_sums import (
    SUM,
    build_sender,
    largest_message,
    message_room,
    up_to,
)

PARTS = "{}/part{}"  # Name of the neurons that send the sums of one part of a layer's sources.
WAS = {IN_AXONS: "fan-in of {} axons", SYNAPSE_BITS: "fan-in of {} bits of synapses"}  # text of a row
ADVICE = "raise noc.payload_bits, use fewer weight bits, or give {} fewer inputs"
LARGEST = 50_000_000  # Synapses of a layer above which it stays symbolic: a list of them would take gigabytes.


class Cut(NamedTuple):
    """The sources of a layer in `parts`; the connections that stay are `direct`.

    `resource`: the row of RESOURCES of which one neuron takes `used`, more than the `limit` of any core.
    """

    parts: list[Part]
    direct: list[Connection]
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
    for name in network.layers if can_send_sums(chip, options) else ():
        cut = _cut_sources(network, name, chip)
        if cut is None:
            continue
        network = _insert_parts(network, name, cut, chip)
        try:
            changes += [_describe_split(network, name, cut, chip)] if network.is_fixed else []
        except FitError as e:
            violations += e.violations
    if violations:
        raise FitError(chip.name, violations)
    return network, changes


def _cut_sources(network: Network, name: str, chip: Chip) -> Cut | None:
    """Return how to split the sources of a layer; None if a core holds each neuron, or if no parts would help."""
    limits = capacity.site_limits(chip)[chip.max_neurons > 0, :N_RESOURCES].max(0)  # the largest limits of any core
    into = [c for c in network.into(name) if not isinstance(c, Injected)]
    if not all(isinstance(c, Direct) for c in into) or _surely_fits(network, into, limits, chip):
        return None
    used = _usage_alone(network, name, chip)
    over = [i for i in (IN_AXONS, SYNAPSE_BITS) if used[i] > limits[i]]
    if not over:
        return None
    behind = network.find_reached(name)
    split = [c for c in into if c.source not in behind]
    as_lists = sum(synapse_count(network, c) for c in into) <= LARGEST
    parts = (_list_parts if as_lists else _symbolic_parts)(network, name, split, limits, chip)
    if parts is None:
        return None
    direct = [c for c in network.into(name) if c not in split]
    cut = Cut(parts, direct, over[0], int(used[over[0]]), int(limits[over[0]]))
    made = _insert_parts(network, name, cut, chip)
    new = [name, *(PARTS.format(name, i) for i in range(1, len(parts) + 1))]
    takes = (_usage_alone(made, layer, chip) for layer in new)
    return cut if all((n[[IN_AXONS, SYNAPSE_BITS]] <= limits[[IN_AXONS, SYNAPSE_BITS]]).all() for n in takes) else None


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


def _symbolic_parts(
    network: Network, name: str, split: list[Connection], limits: np.ndarray, chip: Chip
) -> list[Part] | None:
    """Return a part for each connection, without lists of synapses; None if there are none."""
    parts = []
    for i, edge in enumerate(split, 1):
        if not isinstance(edge, Dense | Conv2d):
            return None
        part = symbolic_part(network, edge, PARTS.format(name, i), limits, chip)
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
    used, rank = np.unique(source, return_inverse=True)
    a_row = max(int(row_bits(1, synapse_bits(c, SPARSE, chip), chip)) for c in lists)
    n_held = min(int(limits[IN_AXONS]), int(limits[SYNAPSE_BITS]) // a_row)  # synapses of a neuron, one row each
    if n_held < 1:
        return None
    fan_in = int(np.bincount(post, minlength=n).max())
    for n_parts in range(max(2, ceil(fan_in / n_held)), min(len(used), n_held) + 1):
        part = rank * n_parts // len(used)
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
    return Sparse(
        edge.source,
        edge.target,
        pre=pre[stays],
        post=post[stays],
        weight=weight[stays],
        delay=edge.aligned_delay,
        exponent=edge.exponent,
        sign_mode=edge.sign_mode,
        weight_bits=edge.weight_bits,
    )


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


def _insert_parts(network: Network, name: str, cut: Cut, chip: Chip) -> Network:
    """Insert the neurons of the parts in front of their layer, which keeps direct connections and all biases."""
    node, room = network.node(name), message_room(chip)
    biases = [c.bias_per_neuron(node.shape) for c in network.into(name) if c not in cut.direct and c.bias is not None]
    nodes: dict[str, Node] = {}
    edges = [c for c in network.connections if c.target != name or c in cut.direct]
    for i, part in enumerate(cut.parts, 1):
        sends = PARTS.format(name, i)
        nodes[sends] = Node(sends, part.shape, build_sender(SUM, -room, room, network.is_fixed))
        edges += [*part.into, part.out.replace(bias=sum(biases)) if biases and i == 1 else part.out]
    layers: dict[str, Node] = {}
    for layer, kept in network.nodes.items():
        layers |= {**nodes, name: kept} if layer == name else {layer: kept}
    made = Network(network.inputs, layers, tuple(edges))
    made.verify()
    return made


def _describe_split(network: Network, name: str, cut: Cut, chip: Chip) -> Change:
    """Return the row of a split layer of a fixed-point network. Raises FitError if messages are too narrow."""
    parts = [PARTS.format(name, i) for i in range(1, len(cut.parts) + 1)]
    violations: list[Violation] = []
    counts = []
    for part in parts:
        try:
            counts.append(largest_message(network, part, chip, ADVICE.format(name))[1])
        except FitError as e:
            violations += e.violations
    if violations:
        raise FitError(chip.name, violations)
    n_counts = min((n for n in counts if n is not None), default=None)
    n_all, n = sum(prod(part.shape) for part in cut.parts), network.node(name).n_neurons
    to_layer = f", {len(parts)} for each of {name}" if n_all == n * len(parts) else f" to {name}"
    how = f"{n_all} neurons send sums{to_layer}, a step before it{up_to(n_counts)}"
    has = f"at most {cut.limit} a core"
    return Change(name, WAS[cut.resource].format(cut.used), has, how, EXACT)
