"""A maximum of currents, exact, on chips whose neurons are programs and whose messages carry numbers of either sign.

max(a, b) = b + max(a - b, 0), and min(a, b) = a - max(a - b, 0). So one neuron sends each synaptic sum of the map as a
number; of two currents of a window, one neuron sends by how much the first leads the second; and where the next neuron
needs the larger one, it adds up those numbers with weights 1 and -1. A window of n currents takes n - 1 such neurons,
in rounds as in a tournament, and the layer's own neurons get the last sum.

It is done on integers, where these sums lose nothing: what `pool_spikes` made of the layer (neurons at full resolution)
is quantized first, and its weights and neurons are taken over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from nwcompile.errors import FitError, Violation
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, MaxPool2d, Sparse
from nwcompile.ir.flat import count_neurons
from nwcompile.ir.legalization import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import LARGEST_OUTPUT, NeuronProgram, Operation
from nwcompile.ir.options import Options
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.fit.maxima import maxima, pooled_layer
from nwcompile.passes.legalize.ideal import Windows, one_a_channel, windows_of
from nwcompile.passes.legalize.pool_spikes import FULL
from nwcompile.passes.prepare.fold import forward, linear_map
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.passes.quantize.grids import WeightGrid
from nwcompile.passes.quantize.quantize import Quantized
from nwcompile.passes.quantize.state_range import largest_payload
from nwcompile.passes.quantize.table import kept_row, program_states
from nwcompile.sim.reference.synaptic_sums import effective_network

SUMS = "{}/sums"  # The neurons that send the synaptic sums of the map, at full resolution.
LEADS = "{}/lead{}"  # Those that compare two currents, by round.


def comparable(network: Network, chip: Chip, options: Options) -> tuple[str, ...]:
    """The layers of a normalized network behind a maximum of currents that the chip can find exactly."""
    grid = WeightGrid.of_signs("mixed", chip.weights.bits, chip)
    ones = np.array([1.0, -1.0])
    can_send = {"multi", "bipolar"} <= {*chip.neuron.spikes} and chip.carries("graded")
    can_add = np.array_equal(grid.effective(ones, grid.finest), ones)
    if not (chip.neuron.programmable and can_send and can_add) or options.on_multi_spike == "repeat":
        return ()
    layers = {layer: pool for pool in maxima(network) if (layer := pooled_layer(network, pool)) is not None}
    n_more = sum(_n_more(network, pool) for pool in layers.values())
    has_room = count_neurons(network) + n_more <= int(chip.limit("max_neurons").sum())
    return tuple(layers) if has_room else ()


def _n_more(network: Network, pool: MaxPool2d) -> int:
    """Neurons that a maximum takes: one for each of its currents, and one for each but the largest of a window."""
    source, window = pool.windows(network.node(pool.source).shape)
    return network.node(pool.source).n_neurons + len(source) - len(np.unique(window))


class Compared(NamedTuple):
    """The quantized network in which currents are compared, its schedule, and a row for each layer behind them."""

    quantized: Quantized
    timing: Schedule
    changes: list[Change]


def compare_currents(quantized: Quantized, layers: Sequence[str], chip: Chip, options: Options) -> Compared:
    """The quantized network in which each of `layers` gets the largest current of each window.

    Raises FitError where the messages of the chip are too narrow for the currents.
    """
    changes = []
    for name in layers:
        quantized, change = _compared(quantized, name, chip)
        changes.append(change)
    return Compared(quantized, schedule(quantized.network, options.execution), changes)


class Term(NamedTuple):
    """What one neuron of the tournament adds to a current: a `neuron` of a `round`, counted in it, times `sign`."""

    round: int  # 0: the synaptic sums
    neuron: int
    sign: int


@dataclass
class Tournament:
    """Of each round of comparisons, 1 the first, what its neurons add up; `last`: what each window's neuron does."""

    rounds: list[list[list[Term]]] = field(default_factory=list)
    last: list[list[Term]] = field(default_factory=list)

    @classmethod
    def of(cls, windows: Windows) -> "Tournament":
        tournament = cls()
        for taps, takes_least in zip(np.split(windows.source, windows.first[1:]), windows.takes_least, strict=True):
            tournament.last.append(tournament._winner([[Term(0, int(tap), 1)] for tap in taps], bool(takes_least)))
        return tournament

    def _winner(self, currents: list[list[Term]], takes_least: bool) -> list[Term]:
        """The largest, or least, of some currents, as terms to add up."""
        n_round = 0
        while len(currents) > 1:
            n_round += 1
            left = currents[-1:] if len(currents) % 2 else []
            pairs = zip(currents[::2], currents[1::2], strict=False)
            currents = [self._larger(a, b, n_round, takes_least) for a, b in pairs] + left
        return currents[0]

    def _larger(self, a: list[Term], b: list[Term], n_round: int, takes_least: bool) -> list[Term]:
        if len(self.rounds) < n_round:
            self.rounds.append([])
        neurons = self.rounds[n_round - 1]
        neurons.append([*a, *(term._replace(sign=-term.sign) for term in b)])
        lead = Term(n_round, len(neurons) - 1, 1)
        return [*a, lead._replace(sign=-1)] if takes_least else [*b, lead]


def _compared(quantized: Quantized, name: str, chip: Chip) -> tuple[Quantized, Change]:
    """One layer whose neurons at full resolution are quantized, behind a tournament of their currents."""
    network = quantized.network
    full, layer = network.node(FULL.format(name)), network.node(name)
    tournament = Tournament.of(windows_of(network, name))
    largest, n_counts = _largest_message(network, full.name, chip)
    sums = SUMS.format(name)
    nodes: dict[str, Node] = {sums: Node(sums, full.shape, _sends("sum", -largest, largest))}
    edges = [c.replace(target=sums) for c in network.into(full.name)]
    names = [sums]
    for i, neurons in enumerate(tournament.rounds, 1):
        lead = LEADS.format(name, i)
        nodes[lead] = Node(lead, (len(neurons),), _sends("lead", 0, largest))
        edges += _added_up(names, lead, neurons, chip)
        names.append(lead)
    nodes[name] = Node(name, layer.shape, one_a_channel(full.neuron, full.shape))
    edges += _added_up(names, name, tournament.last, chip)
    made = _with(network, full.name, name, nodes, edges)
    counts = "" if n_counts is None else f", for up to {n_counts} spikes of a source at once"
    n_leads = sum(map(len, tournament.rounds))
    change = Change(
        name,
        f"maximum of currents over {len(tournament.last)} windows",
        "sums of currents",
        f"{full.n_neurons} neurons send their currents, {n_leads} compare two of a window{counts}",
        EXACT,
    )
    return replace(quantized, network=made, table=_table(quantized.table, full.name, name, made, nodes, chip)), change


def _sends(name: str, low: int, high: int) -> NeuronProgram:
    """A neuron that keeps nothing and sends its input, clamped: `compare_currents` proves that nothing is above."""
    clamped = (Operation("below", "min", ("x", high)), Operation("sent", "max", ("below", low)))
    return NeuronProgram(name=name, states=(), operations=clamped, output="sent", sends="graded", is_fixed=True)


def _largest_message(network: Network, full: str, chip: Chip) -> tuple[int, int | None]:
    """What a message can hold, and how many spikes of each source at once no difference of two sums is above it for.

    The latter is None where no source sends more, whatever it gets.
    """
    bits = chip.noc.payload_bits
    room = LARGEST_OUTPUT if bits is None else min(LARGEST_OUTPUT, (1 << (bits - 1)) - 1)
    node, total = network.node(full), np.zeros(1)
    counts: list[float] = []
    for c in effective_network(network).into(full):
        source, weight = network.node(c.source), np.abs(np.asarray(c.weight, np.int64))
        one_each = np.ones((1, source.n_neurons))
        total = total + forward(linear_map(c.replace(weight=weight), source.shape, node.shape), one_each)[0]
        counts.append(max(largest_payload(source.neuron)))
    largest = max(int(total.max()), 1)
    n_counts = room // (2 * largest)
    if n_counts < 1:
        needed = (2 * largest).bit_length() + 1
        advice = "raise noc.payload_bits, use fewer weight bits, or put the pooling behind a layer that spikes"
        raise FitError(chip.name, [Violation("payload bits", full, needed, bits, advice)])
    return room, None if max(counts) <= n_counts else n_counts


def _added_up(names: list[str], target: str, neurons: list[list[Term]], chip: Chip) -> list[Connection]:
    """The synapses of weight 1 and -1 by which the neurons of a target add up their terms, by source layer."""
    grid = WeightGrid.of_signs("mixed", chip.weights.bits, chip)
    terms = np.array([(*term, post) for post, added in enumerate(neurons) for term in added], np.int64)
    edges: list[Connection] = []
    for n_round, source in enumerate(names):
        _, pre, sign, post = terms[terms[:, 0] == n_round].T
        if len(pre):
            weight = grid.at(sign.astype(np.float64), grid.finest)
            edges.append(
                Sparse(
                    source,
                    target,
                    pre=pre,
                    post=post,
                    weight=weight.mantissa,
                    delay=0,
                    exponent=weight.exponent,
                    sign_mode=grid.sign_mode,
                    weight_bits=grid.bits,
                )
            )
    return edges


def _with(network: Network, full: str, name: str, nodes: dict[str, Node], edges: list[Connection]) -> Network:
    """The network with `nodes` in the place of layer `name`, and `edges` in that of what led to it and to `full`."""
    kept: dict[str, Node] = {}
    for node in network.nodes.values():
        kept |= nodes if node.name == name else {} if node.name == full else {node.name: node}
    others = [c for c in network.connections if c.target not in (full, name)]
    made = Network(network.inputs, kept, (*others, *edges))
    made.verify()
    return made


def _table(table: list[dict], full: str, name: str, network: Network, nodes: dict[str, Node], chip: Chip) -> list[dict]:
    """The rows of the layers: that of the neurons at full resolution, whose weights and thresholds are kept, and more.

    How the layer's spikes compare with the float ones is not known for it.
    """
    unknown = dict.fromkeys(("rate_float", "rate_fixed", "spike_agreement_percent"))
    rows = {row["layer"]: row for row in table}
    rows[name] = rows.pop(full) | unknown | {"layer": name}
    for node in nodes.values():
        if node.name != name:
            rows[node.name] = kept_row(node.name, node.neuron, network.into(node.name), chip)
            rows[node.name] |= program_states(node.neuron, None)
    return [rows[layer] for layer in network.layers]
