"""Relay delays: chains of relay neurons for delays longer than those of a chip."""

from dataclasses import replace
from typing import NamedTuple

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection
from nwcompile.ir.host import Injected
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.options import Options
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.analyze.check import verify_relays
from nwcompile.passes.fit.relays import build_relay, relay_layer, sends_binary
from nwcompile.passes.legalize.relay_neuron import relay_neuron
from nwcompile.passes.prepare.schedule import schedule


class Relayed(NamedTuple):
    """A network with relay neurons, its schedule, and a row for each delay that needed them."""

    network: Network
    timing: Schedule
    changes: list[Change]


def has_late(network: Network, timing: Schedule, chip: Chip) -> bool:
    """Return whether a connection delays spikes longer than the chip can."""
    reach = 1 + chip.neuron.delay_max_steps
    return any(_n_steps(c, delay, timing) > reach for c, delay in zip(network.connections, timing.delay, strict=True))


def count_relays(network: Network, timing: Schedule, chip: Chip, options: Options) -> dict[tuple[str, int], int]:
    """Return the number of relay layers for delays longer than the chip's, by source and aligned delay.

    Returns {} for a chip whose neurons cannot be relays. Raises FitError if the chip has no room for them.
    """
    reach = 1 + chip.neuron.delay_max_steps
    late: dict[tuple[str, int], int] = {}
    for c, delay in zip(network.connections, timing.delay, strict=True):
        n = -(-_n_steps(c, delay, timing) // reach) - 1
        if n > 0 and c.source not in network.outputs and sends_binary(network, chip, options, c.source):
            late[c.source, c.aligned_delay] = max(n, late.get((c.source, c.aligned_delay), 0))
    if not late or relay_neuron(chip) is None:
        return {}
    verify_relays(network, chip, relay_sizes(network, late))
    return late


def relay_sizes(network: Network, n_relays_of: dict[tuple[str, int], int]) -> list[tuple[int, int]]:
    """Return the pairs for `least_cores`: neurons of a relay layer, and the number of such layers."""
    return [(network.node(source).n_neurons, n) for (source, _), n in n_relays_of.items()]


def relay_delays(network: Network, timing: Schedule, chip: Chip, options: Options) -> Relayed:
    """Insert relay neurons for delays longer than `neuron.delay_max_steps`, and adapt the schedule.

    There is one relay neuron per source neuron and 1 + delay_max_steps steps, shared by all connections of the source
    with the same aligned delay: each connection of the chain delays a spike by as many steps as the chip allows.
    Spikes of the given layers stay the same. Two kinds of delays stay, for `check` to refuse: those of spikes other
    than 0 and 1, and those of a layer that only feeds itself, which would cease to be an output. Raises FitError,
    before any relay neuron is built, if the chip has no room for them.
    """
    reach = 1 + chip.neuron.delay_max_steps
    n_relays_of = count_relays(network, timing, chip, options)
    relay = build_relay(network, chip, options) if n_relays_of else None
    if relay is None:
        return Relayed(network, timing, [])
    wanted = {c: _n_steps(c, delay, timing) for c, delay in zip(network.connections, timing.delay, strict=True)}
    late: dict[tuple[str, int], list[Connection]] = {key: [] for key in n_relays_of}
    for c, steps in wanted.items():
        if steps > reach and (c.source, c.aligned_delay) in late:
            late[c.source, c.aligned_delay].append(c)
    rewired: dict[Connection, Connection] = {}
    chains: dict[str, list[tuple[Node, Connection]]] = {}
    offset = dict(timing.offset)
    changes: list[Change] = []
    for (source, aligned), connections in late.items():
        n_relays, chain = n_relays_of[source, aligned], chains.setdefault(source, [])
        taps, before, passed = [], network.node(source), 0
        for k in range(1, n_relays + 1):
            upto = min(aligned, k * reach)  # the first steps of the aligned delay pass in the chain
            node, edge = relay_layer(relay, before, f"{source}/relay{len(chain) + 1}", upto - passed)
            offset[node.name] = timing.offset[source] + k * reach - upto
            chain.append((node, edge))
            taps.append((node.name, upto))
            before, passed = node, upto
        for c in connections:
            tap, upto = taps[-(-wanted[c] // reach) - 2]
            rewired[c] = c.replace(source=tap, delay=aligned - upto)
        changes.append(_make_row(network, source, connections, n_relays, max(wanted[c] for c in connections) - 1, chip))
    relayed = _insert_chains(network, chains, rewired)
    if timing.period > 1:
        return Relayed(relayed, schedule(relayed, timing.execution), changes)
    delay = tuple(c.aligned_delay + offset[c.target] - offset[c.source] for c in relayed.connections)
    return Relayed(relayed, replace(timing, offset=offset, delay=delay), changes)


def _n_steps(connection: Connection, delay: int, timing: Schedule) -> int:
    """Return the hardware steps from a spike to its effect, 1 if only the pipeline delays it.

    The host writes registers when their layer needs them.
    """
    if isinstance(connection, Injected):
        return 1
    return (timing.offset[connection.source] % timing.period + delay) // timing.period


def _insert_chains(network: Network, chains: dict[str, list[tuple[Node, Connection]]], rewired: dict) -> Network:
    """Insert every chain behind its source, so that partitioners see them side by side."""
    relays = {source: {node.name: node for node, _ in chain} for source, chain in chains.items()}
    nodes: dict[str, Node] = {}
    for source in network.inputs:
        nodes |= relays.get(source, {})
    for name, node in network.nodes.items():
        nodes |= {name: node, **relays.get(name, {})}
    edges = [edge for chain in chains.values() for _, edge in chain]
    relayed = Network(network.inputs, nodes, (*(rewired.get(c, c) for c in network.connections), *edges))
    relayed.verify()
    return relayed


def _make_row(network: Network, source: str, connections, n_relays: int, steps: int, chip: Chip) -> Change:
    has = f"at most {chip.neuron.delay_max_steps}"
    n_neurons = n_relays * network.node(source).n_neurons
    targets = ", ".join(dict.fromkeys(c.target for c in connections))
    how = f"{n_neurons} relay neurons, {n_relays} for each of {source}"
    return Change(f"{source} -> {targets}", f"a delay of {steps} steps", has, how, EXACT)
