"""Compare currents: compute a maximum of currents exactly, on chips with programmable neurons and signed messages.

max(a, b) = b + max(a - b, 0), and min(a, b) = a - max(a - b, 0). So one neuron sends each synaptic sum of the map as a
number. For two currents of a window, one neuron sends by how much the first leads the second. A neuron that needs the
larger one adds up those numbers with weights 1 and -1. A window of n currents takes n - 1 such neurons, in rounds as in
a tournament, and the layer's own neurons get the last sum.

It works on integers, where these sums lose nothing: the full-resolution neurons that `pool_spikes` made of the layer
are quantized first, and their weights and neurons are reused.

A maximum that several layers read, or that others add to, is found by the same tournament before quantization
(`send_maxima`), once, for every layer that reads it. Its layers send sums, and the last one the largest of each window.
Only these begin in float, with weights that are rounded later.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, MaxPool2d, Scale
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import LARGEST_OUTPUT
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.nonlinear import can_send_sums, find_maxima, pooled_layer, sends_spikes
from nwcompile.passes.legalize.pool_spikes import FULL
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize.approximate.ideal import Windows, find_windows, reduce_to_channels
from nwcompile.passes.quantize.gate_currents import is_gate
from nwcompile.passes.quantize.send_sums import (
    SUM,
    build_sender,
    connect_signed,
    count_safe_spikes,
    message_room,
    sends_current,
    up_to,
)

SUMS = "{}/sums"  # Name of the neurons that send the synaptic sums of the map, at full resolution.
LEADS = "{}/lead{}"  # Name of those that compare two currents, by round.
ADVICE = "raise noc.payload_bits, use fewer weight bits, or put the pooling behind a layer that spikes"
MAXIMA = "{}/max"  # Name of the neurons that send the largest current of each window.


def compare_currents(network: Network, layers: Sequence[str], chip: Chip) -> tuple[Network, list[Change]]:
    """Give each of `layers` of a fixed-point network the largest current of each window.

    Raises FitError if the messages of the chip are too narrow for the currents.
    """
    changes = []
    for name in layers:
        network, change = _insert_tournament(network, name, chip)
        changes.append(change)
    return network, changes


def verify_messages(legal: Network, network: Network, chip: Chip) -> None:
    """Raise FitError if messages are too narrow for the currents that neurons of the float network `legal` send."""
    for name in legal.layers:
        if sends_current(legal, name):
            is_gated = any(is_gate(legal.node(c.target).neuron) for c in legal.out_of(name))
            advice = "raise noc.payload_bits, or use fewer weight bits" if is_gated else ADVICE
            count_safe_spikes(network, name, chip, advice, n_sums=2)


def compared_rows(table: list[dict], layers: Sequence[str]) -> list[dict]:
    """Return the quantization table after `compare_currents`: a layer gets the row of its full-resolution neurons.

    Weights and thresholds are the same, but the layer spikes at another rate, so the row's rates are None.
    """
    no_rates = dict.fromkeys(("rate_float", "rate_fixed", "spike_agreement_percent"))
    layer_of = {FULL.format(name): name for name in layers}
    return [
        row | no_rates | {"layer": layer_of[row["layer"]]} if row["layer"] in layer_of else row
        for row in table
        if row["layer"] not in layers
    ]


class Term(NamedTuple):
    """A term of a sum: neuron number `neuron` of a `round` of the tournament, times `sign`."""

    round: int  # 0: the synaptic sums
    neuron: int
    sign: int


@dataclass
class Tournament:
    """The terms that each neuron of each round of comparisons adds up; `last`: those of each window's neuron."""

    rounds: list[list[list[Term]]] = field(default_factory=list)
    last: list[list[Term]] = field(default_factory=list)

    @classmethod
    def from_windows(cls, windows: Windows) -> "Tournament":
        tournament = cls()
        for taps, takes_least in zip(np.split(windows.source, windows.first[1:]), windows.takes_least, strict=True):
            tournament.last.append(tournament._find_winner([[Term(0, int(tap), 1)] for tap in taps], bool(takes_least)))
        return tournament

    def _find_winner(self, currents: list[list[Term]], takes_least: bool) -> list[Term]:
        """Return the largest, or least, of some currents, as terms to add up."""
        n_round = 0
        while len(currents) > 1:
            n_round += 1
            left = currents[-1:] if len(currents) % 2 else []
            pairs = zip(currents[::2], currents[1::2], strict=False)
            currents = [self._add_comparison(a, b, n_round, takes_least) for a, b in pairs] + left
        return currents[0]

    def _add_comparison(self, a: list[Term], b: list[Term], n_round: int, takes_least: bool) -> list[Term]:
        if len(self.rounds) < n_round:
            self.rounds.append([])
        neurons = self.rounds[n_round - 1]
        neurons.append([*a, *(term._replace(sign=-term.sign) for term in b)])
        lead = Term(n_round, len(neurons) - 1, 1)
        return [*a, lead._replace(sign=-1)] if takes_least else [*b, lead]


def _insert_tournament(network: Network, name: str, chip: Chip) -> tuple[Network, Change]:
    """Put a layer, whose full-resolution neurons are quantized, behind a tournament of their currents."""
    full, layer = network.node(FULL.format(name)), network.node(name)
    tournament = Tournament.from_windows(find_windows(network, name))
    largest, n_counts = message_room(chip), count_safe_spikes(network, full.name, chip, ADVICE, n_sums=2)
    sums = SUMS.format(name)
    nodes: dict[str, Node] = {sums: Node(sums, full.shape, build_sender(SUM, -largest, largest))}
    edges = [c.replace(target=sums) for c in network.into(full.name)]
    names = [sums]
    for i, neurons in enumerate(tournament.rounds, 1):
        lead = LEADS.format(name, i)
        nodes[lead] = Node(lead, (len(neurons),), build_sender("lead", 0, largest))
        edges += _connect_terms(names, lead, neurons, chip)
        names.append(lead)
    nodes[name] = Node(name, layer.shape, reduce_to_channels(full, layer.shape))
    edges += _connect_terms(names, name, tournament.last, chip)
    made = _replace_layer(network, full.name, name, nodes, edges)
    n_leads = sum(map(len, tournament.rounds))
    change = Change(
        name,
        f"maximum of currents over {len(tournament.last)} windows",
        "sums of currents",
        f"{full.n_neurons} neurons send their currents, {n_leads} compare two of a window{up_to(n_counts)}",
        EXACT,
    )
    return made, change


def _connect_terms(names: list[str], target: str, neurons: list[list[Term]], chip: Chip | None) -> list[Connection]:
    """Return the synapses of weight 1 and -1 by which a target's neurons add up their terms, by source layer.

    They are in the chip's integers, or in float without a chip.
    """
    terms = np.array([(*term, post) for post, added in enumerate(neurons) for term in added], np.int64)
    edges: list[Connection] = []
    for n_round, source in enumerate(names):
        _, pre, sign, post = terms[terms[:, 0] == n_round].T
        if len(pre):
            edges.append(connect_signed(source, target, pre, post, sign, chip))
    return edges


def _replace_layer(network: Network, full: str, name: str, nodes: dict[str, Node], edges: list[Connection]) -> Network:
    """Replace layer `name` by `nodes`, and the connections into it and into `full` by `edges`."""
    kept: dict[str, Node] = {}
    for node in network.nodes.values():
        kept |= nodes if node.name == name else {} if node.name == full else {node.name: node}
    others = [c for c in network.connections if c.target not in (full, name)]
    made = Network(network.inputs, kept, (*others, *edges))
    made.verify()
    return made


def send_maxima(
    network: Network, chip: Chip, options: Options, compared: Sequence[str]
) -> tuple[Network, list[Change]]:
    """Replace maxima of currents that no single layer computes by neurons that send and compare them.

    The currents have to be sums of single spikes, so that a message is proved to hold them. `compared`: layers that
    compute a maximum of their own.
    """
    changes: list[Change] = []
    for pool in find_maxima(network) if can_send_sums(chip, options.on_multi_spike) and not network.is_fixed else ():
        pools = (p for p in network.out_of(pool.source) if isinstance(p, MaxPool2d))
        window = pool.kernel, pool.stride, pool.padding
        alike = [p for p in pools if (p.kernel, p.stride, p.padding) == window]
        others = [p for p in alike if pooled_layer(network, p) not in compared]
        if pool in others and _can_send(network, pool):
            network, n_leads = _insert_senders(network, others)
            n_sums = network.node(SUMS.format(pool.source)).n_neurons
            how = f"{n_sums} neurons send their currents, {n_leads} compare two of a window, for all that read it"
            changes.append(Change(pool.source, "maximum of currents", "sums of currents", how, EXACT))
    return (normalize(network) if changes else network), changes


def _can_send(network: Network, pool: MaxPool2d) -> bool:
    """Return whether the currents are sums of single spikes, with one constant in all of a window."""
    edges = network.into(pool.source)
    are_spikes = all(sends_spikes(network, c.source) for c in edges)
    is_free = SUMS.format(pool.source) not in network.nodes and network.node(pool.source).neuron is None
    if not edges or not is_free or not are_spikes or not all(c.is_linear for c in edges):
        return False
    return bool(np.ptp(_window_constants(network, pool), axis=0).max(initial=0) == 0)


def _window_constants(network: Network, pool: MaxPool2d) -> np.ndarray:
    """Return the least and the largest constant in each window, float64[2, window]."""
    node = network.node(pool.source)
    biases = [c.bias_per_neuron(node.shape) for c in network.into(pool.source)]
    constant = sum((b.astype(np.float64) for b in biases if b is not None), np.zeros(node.shape)).reshape(-1)
    source, window = pool.window_taps(node.shape)
    first = np.searchsorted(window, np.arange(window.max() + 1))
    return np.stack([reduce.reduceat(constant[source], first) for reduce in (np.minimum, np.maximum)])


def _insert_senders(network: Network, pools: list[MaxPool2d]) -> tuple[Network, int]:
    """Put a tournament of currents in front of `pools`; also return its number of comparisons."""
    pool, currents = pools[0], network.node(pools[0].source)
    source, window = pool.window_taps(currents.shape)
    first = np.searchsorted(window, np.arange(window.max() + 1))
    tournament = Tournament.from_windows(Windows(source, first, np.zeros(len(first), bool)))
    sums, last = SUMS.format(currents.name), MAXIMA.format(currents.name)
    names = [sums]
    edges: list[Connection] = [c.replace(target=sums, bias=None) for c in network.into(currents.name)]
    nodes = {
        **network.nodes,
        sums: Node(sums, currents.shape, build_sender(SUM, -LARGEST_OUTPUT, LARGEST_OUTPUT, False)),
    }
    for i, neurons in enumerate([*tournament.rounds, tournament.last], 1):
        is_last = i > len(tournament.rounds)
        name = last if is_last else LEADS.format(currents.name, i)
        shape = pool.output_shape(currents.shape) if is_last else (len(neurons),)
        nodes[name] = Node(name, shape, build_sender(SUM, -LARGEST_OUTPUT if is_last else 0, LARGEST_OUTPUT, False))
        edges += _connect_terms(names, name, neurons, None)
        names.append(name)
    constant = _window_constants(network, pool)[0].astype(np.float32).reshape(nodes[last].shape)
    edges += [Scale(last, p.target, shift=constant, delay=p.aligned_delay) for p in pools]
    kept = [c for c in network.connections if c not in pools]
    if not any(c.source == currents.name for c in kept):
        kept = [c for c in kept if c.target != currents.name]
        del nodes[currents.name]
    return Network(network.inputs, nodes, (*kept, *edges)), sum(map(len, tournament.rounds))
