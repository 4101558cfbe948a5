"""Relay delays: chains of relay neurons for delays longer than those of a chip.

The neurons of a relay layer send in a step what they receive in it, so that a spike arrives elsewhere, or later.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Sparse
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.options import Options
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.analyze.check import verify_relays
from nwcompile.passes.analyze.nonlinear import can_send_sums
from nwcompile.passes.legalize.resets import relay_neuron, to_scalar_neuron
from nwcompile.passes.prepare.schedule import n_steps, schedule
from nwcompile.passes.quantize.quantize import quantize
from nwcompile.passes.quantize.send_sums import build_sender, message_room


class Relay(NamedTuple):
    """The relay neuron of a network, float or quantized like its neurons, with its input weight and its format."""

    neuron: NeuronSpec | NeuronProgram
    weight: np.ndarray
    form: dict


def build_relay(network: Network, chip: Chip, options: Options) -> Relay | None:
    """Return the relay neuron for a network, or None if the chip has no such neuron."""
    spec = relay_neuron(chip)
    if spec is None or not network.is_fixed:
        return None if spec is None else Relay(spec, np.ones(1, np.float32), {})
    one = np.zeros(1, np.int64)
    only = Sparse("x", "relay", pre=one, post=one, weight=np.ones(1, np.float32))
    alone = Network.from_arrays({"relay": (spec, 1)}, [only], {"x": 1})
    fixed = quantize(alone, chip, None, replace(options, layer_bits=None)).network
    (wired,) = fixed.connections
    form = {key: getattr(wired, key) for key in ("exponent", "sign_mode", "weight_bits")}
    return Relay(to_scalar_neuron(fixed.node("relay").neuron), np.asarray(wired.weight).astype(np.int32), form)


def build_number_relay(network: Network, chip: Chip) -> Relay:
    """Return the relay neuron for numbers, a program that sends its input."""
    room, one = message_room(chip), np.ones(1, np.int32 if network.is_fixed else np.float32)
    return Relay(build_sender("relay", -room, room, network.is_fixed), one, {"sign_mode": "exc"})


def can_relay(network: Network, chip: Chip, options: Options, source: str) -> bool:
    """Return whether neurons of the chip can repeat what an input or layer sends: spikes, or numbers by programs."""
    if sends_binary(network, chip, options, source):
        return relay_neuron(chip) is not None
    return network.node(source).axon_of is None and can_send_sums(chip, options.on_multi_spike)


def relay_layer(relay: Relay, source: Node, name: str, delay: int = 0) -> tuple[Node, Connection]:
    """Return a layer `name` that repeats what `source` sends after `delay` steps, and its connection."""
    shape = source.shape
    if len(shape) == 3:
        kernel = relay.weight.repeat(shape[0]).reshape(-1, 1, 1, 1)
        edge: Connection = Conv2d(source.name, name, kernel, groups=shape[0], delay=delay, **relay.form)
        return Node(name, shape, relay.neuron), edge
    every = np.arange(source.n_neurons)
    weight = relay.weight.repeat(len(every))
    edge = Sparse(source.name, name, pre=every, post=every, weight=weight, delay=delay, **relay.form)
    return Node(name, shape, relay.neuron), edge


def sends_binary(network: Network, chip: Chip, options: Options, source: str) -> bool:
    """Return whether an input or layer sends only 0 or 1 on the chip, over axons of its own."""
    neuron = network.node(source).neuron
    if network.node(source).axon_of is not None:
        return False
    if neuron is not None:
        return neuron.fires and neuron.message == "binary"
    return source in network.inputs and chip.neuron.spikes == ["binary"] and options.on_multi_spike == "refuse"


class Relayed(NamedTuple):
    """A network with relay neurons, its schedule, and a row for each delay that needed them."""

    network: Network
    timing: Schedule
    changes: list[Change]


def has_late(network: Network, timing: Schedule, chip: Chip) -> bool:
    """Return whether a connection delays spikes longer than the chip can."""
    reach = 1 + chip.neuron.delay_max_steps
    return any(n_steps(c, delay, timing) > reach for c, delay in zip(network.connections, timing.delay, strict=True))


def count_relays(network: Network, timing: Schedule, chip: Chip, options: Options) -> dict[tuple[str, int], int]:
    """Return the number of relay layers for delays longer than the chip's, by source and aligned delay.

    Sources that the chip's neurons cannot relay are left out. Raises FitError if the chip has no room for them.
    """
    reach = 1 + chip.neuron.delay_max_steps
    late: dict[tuple[str, int], int] = {}
    for c, delay in zip(network.connections, timing.delay, strict=True):
        n = -(-n_steps(c, delay, timing) // reach) - 1
        if n > 0 and c.source not in network.outputs and can_relay(network, chip, options, c.source):
            late[c.source, c.aligned_delay] = max(n, late.get((c.source, c.aligned_delay), 0))
    verify_relays(network, chip, relay_sizes(network, late, chip))
    return late


def relay_sizes(network: Network, n_relays_of: dict[tuple[str, int], int], chip: Chip) -> list[tuple[int, int]]:
    """Return the pairs for `least_cores`: neurons of a relay layer, and the number of such layers, by source."""
    shared: dict[str, int] = {}  # each of them holds every delay of the source that is as long
    others: dict[str, int] = {}
    for (source, aligned), n in n_relays_of.items():
        n_shared = min(n, aligned // (1 + chip.neuron.delay_max_steps))
        shared[source] = max(n_shared, shared.get(source, 0))
        others[source] = others.get(source, 0) + n - n_shared
    return [(network.node(source).n_neurons, n + others[source]) for source, n in shared.items()]


def relay_delays(network: Network, timing: Schedule, chip: Chip, options: Options) -> Relayed:
    """Insert relay neurons for delays longer than `neuron.delay_max_steps`, and adapt the schedule.

    There is one relay neuron per source neuron and 1 + delay_max_steps steps, shared by all connections of the source
    that are at least as late: each connection of the chain delays a spike by as many steps as the chip allows. Only the
    rest of an aligned delay that is not a multiple of them has relay neurons of its own. Spikes of the given layers
    stay the same. Two kinds of delays stay, for `check` to refuse: those of numbers, if the chip runs no programs, and
    those of a layer that only feeds itself, which would cease to be an output. Raises FitError, before any relay neuron
    is built, if the chip has no room for them.
    """
    reach = 1 + chip.neuron.delay_max_steps
    n_relays_of = count_relays(network, timing, chip, options)
    if not n_relays_of:
        return Relayed(network, timing, [])
    is_binary = {source: sends_binary(network, chip, options, source) for source, _ in n_relays_of}
    binary = build_relay(network, chip, options) if any(is_binary.values()) else None
    relay_of = {name: binary if is_binary[name] else build_number_relay(network, chip) for name in is_binary}
    wanted = {c: n_steps(c, delay, timing) for c, delay in zip(network.connections, timing.delay, strict=True)}
    late: dict[tuple[str, int], list[Connection]] = {key: [] for key in n_relays_of}
    for c, steps in wanted.items():
        if steps > reach and (c.source, c.aligned_delay) in late:
            late[c.source, c.aligned_delay].append(c)
    rewired: dict[Connection, Connection] = {}
    chains: dict[str, dict[tuple[int, int], tuple[Node, Connection]]] = {name: {} for name in is_binary}
    offset = dict(timing.offset)
    changes: list[Change] = []
    for (source, aligned), connections in late.items():
        chain, relay = chains[source], relay_of[source]
        assert relay is not None, "can_relay: the chip has a relay neuron"
        before, passed = network.node(source), 0
        for k in range(1, n_relays_of[source, aligned] + 1):
            upto = min(aligned, k * reach)  # the first steps of the aligned delay pass in the chain
            if (k, upto) not in chain:
                name = network.free_name(f"{source}/relay{len(chain) + 1}")
                chain[k, upto] = relay_layer(relay, before, name, upto - passed)
                offset[name] = timing.offset[source] + k * reach - upto
            before, passed = chain[k, upto][0], upto
        for c in connections:
            k = -(-wanted[c] // reach) - 1
            tap, upto = chain[k, min(aligned, k * reach)][0].name, min(aligned, k * reach)
            rewired[c] = c.replace(source=tap, delay=aligned - upto)
    for source, chain in chains.items():
        connections = [c for (name, _), many in late.items() if name == source for c in many]
        changes.append(_make_row(network, connections, len(chain), max(wanted[c] for c in connections) - 1, chip))
    relayed = _insert_chains(network, chains, rewired)
    if timing.period > 1:
        return Relayed(relayed, schedule(relayed, timing.execution), changes)
    delay = tuple(c.aligned_delay + offset[c.target] - offset[c.source] for c in relayed.connections)
    return Relayed(relayed, replace(timing, offset=offset, delay=delay), changes)


def _insert_chains(network: Network, chains: dict[str, dict], rewired: dict[Connection, Connection]) -> Network:
    """Insert every chain behind its source, so that partitioners see them side by side."""
    relays = {source: {node.name: node for node, _ in chain.values()} for source, chain in chains.items()}
    nodes: dict[str, Node] = {}
    for source in network.inputs:
        nodes |= relays.get(source, {})
    for name, node in network.nodes.items():
        nodes |= {name: node, **relays.get(name, {})}
    edges = [edge for chain in chains.values() for _, edge in chain.values()]
    relayed = Network(network.inputs, nodes, (*(rewired.get(c, c) for c in network.connections), *edges))
    relayed.verify()
    return relayed


def _make_row(network: Network, connections: list[Connection], n_relays: int, steps: int, chip: Chip) -> Change:
    has, source = f"at most {chip.neuron.delay_max_steps}", connections[0].source
    n_neurons = n_relays * network.node(source).n_neurons
    targets = ", ".join(dict.fromkeys(c.target for c in connections))
    how = f"{n_neurons} relay neurons, {n_relays} for each of {source}"
    was = "a delay of" if len({c.aligned_delay for c in connections}) == 1 else "delays of up to"
    return Change(f"{source} -> {targets}", f"{was} {steps} steps", has, how, EXACT)
