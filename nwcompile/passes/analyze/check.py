"""Check: test whether the network fits the chip, and list every exceeded limit at once with advice."""

from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np

from nwcompile.cost.traffic.memory import synapse_bits
from nwcompile.cost.traffic.wiring import axis_taps, synapse_count
from nwcompile.errors import FitError, ModelError, Violation, first_places
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse
from nwcompile.ir.flat import join_layers, layer_numbers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.program import DENSE, SPARSE
from nwcompile.ir.resources import IN_AXONS, RESOURCES, SYNAPSE_BITS
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.analyze import capability, capacity
from nwcompile.passes.analyze.axon_types import axon_type_violations
from nwcompile.passes.analyze.core_rules import core_rule_violations
from nwcompile.passes.analyze.nonlinear import maximum_violations, product_violations
from nwcompile.passes.analyze.pool import pool_violations, spike_cap
from nwcompile.sim.reference.synaptic_sums import fold_bias

ERROR_CODE = "NW5011"


def check(
    network: Network, chip: Chip, schedule: Schedule, mapping: Mapping, on_multi_spike: str = "refuse"
) -> Mapping:
    """Return the mapping of a fixed-point network if it fits, with notes on the fullest resource of each core.

    Raises FitError with every violation if it does not. Each core is checked against the limits of its own site.
    `on_multi_spike` is that of `Options`. Raises ModelError for a mapping of another network.
    """
    if not network.is_fixed:
        raise ModelError("only a fixed-point network can be checked; quantize it first")
    violations = unmapped_violations(network, chip, schedule, on_multi_spike)
    violations += capability.delay_violations(network, schedule, chip)
    if mapping.n_cores > chip.n_cores:
        violations.append(too_many_cores(network, chip, mapping.n_cores))
    else:
        mapping.verify(network, chip)
        sites = chip.site_index(mapping.site_of)
        core_of = join_layers(network, mapping.core_of)
        too_full = capacity_violations(network, chip, core_of, capacity.site_limits(chip)[sites])
        violations += [*too_full, *core_rule_violations(network, chip, core_of, sites)]
        if not too_full:  # otherwise cores will hold other neurons
            violations += axon_type_violations(network, chip, core_of, mapping.n_cores)
    if violations:
        raise FitError(chip.name, violations)
    return mapping if mapping.note else capacity.add_binding_notes(mapping, network, chip)


def estimate(network: Network, chip: Chip, on_multi_spike: str = "refuse") -> None:
    """Raise FitError if totals alone show that a network cannot fit, before anything is mapped.

    Checks neurons, layers, minimal synapse memory, the widest fan-in and the features of each layer's neurons. Fast for
    any size, for float and fixed-point networks. A network that passes may still not fit.
    """
    violations = [*maximum_violations(network), *product_violations(network, chip, on_multi_spike)]
    violations += [*_layer_violations(network, chip, on_multi_spike), *pool_violations(network, chip)]
    n_neurons = sum(size for size, _ in _layer_sizes(network, chip))
    room = int(chip.max_neurons.sum())
    if n_neurons > room:
        advice = f"make {_largest_layer(network)} smaller or raise noc.columns"
        violations.append(Violation("neurons", f"network -> {chip.name}", n_neurons, room, advice))
    bits = _bits_of_ends(network, chip)
    n_bits = sum(bits.values())
    memory = chip.limit("synapse_bits")
    room = capacity.NO_LIMIT if memory is None else int(memory.sum())
    if n_bits > room:
        source, target = max(bits, key=lambda ends: bits[ends])
        advice = f"make {source} -> {target} smaller, use fewer weight bits or raise core.synapse_bits"
        violations.append(Violation(RESOURCES[SYNAPSE_BITS].name, f"network -> {chip.name}", n_bits, room, advice))
    n_cores = least_cores(network, chip)
    if not violations and n_cores > capacity.n_usable(chip):
        violations.append(too_many_cores(network, chip, n_cores))
    violations += _fan_in_violations(network, chip)
    if violations:
        raise FitError(chip.name, violations)


def least_cores(network: Network, chip: Chip, relays: Sequence[tuple[int, int]] = ()) -> int:
    """Return a lower bound of the cores of any mapping: by neurons, by layers and by minimal synapse memory.

    `relays`: relay layers that will be added, as pairs (neurons per layer, number of such layers).
    """
    n_bits = sum(_bits_of_ends(network, chip).values())
    bits = chip.limit("synapse_bits")
    by_bits = 0 if bits is None else ceil(n_bits / int(bits.max()))
    return max(_cores_of_layers([*_layer_sizes(network, chip), *relays], chip), by_bits)


def verify_relays(network: Network, chip: Chip, relays: Sequence[tuple[int, int]]) -> None:
    """Raise FitError if a network with its relay layers needs more cores than the chip has (`least_cores`)."""
    n_cores = least_cores(network, chip, relays)
    if n_cores > capacity.n_usable(chip):
        where = f"network with relay neurons -> {chip.name}"
        n_neurons, n_layers = sum(size * n for size, n in relays), sum(n for _, n in relays)
        advice = f"{n_neurons} relay neurons in {n_layers} layers hold spikes that are delayed: shorten the delays "
        advice += (
            f"(approximate='delay' clamps them at {chip.neuron.delay_max_steps} steps, at a measured price), or raise "
        )
        advice += "neuron.delay_max_steps or noc.columns"
        raise FitError(chip.name, [Violation("cores", where, n_cores, capacity.n_usable(chip), advice)])


def _layer_sizes(network: Network, chip: Chip) -> list[tuple[int, int]]:
    """Return pairs (neurons, 1) of all layers except those that `merge_axons` may remove, for lower bounds.

    It removes relay neurons, which read one layer with equal weights; every such layer is left out.
    """
    may_merge = chip.core.axon_merge == "or" and chip.limit("max_destinations") is None
    into = {name: network.into(name) for name in network.layers if may_merge}
    weights = {n: np.ravel(getattr(edges[0], "weight", 0)) for n, edges in into.items() if len(edges) == 1}
    gone = {name for name, weight in weights.items() if weight.size and (weight == weight[0]).all()}
    return [(network.node(name).n_neurons, 1) for name in network.layers if name not in gone]


def _cores_of_layers(layers: list[tuple[int, int]], chip: Chip) -> int:
    """Return the fewest cores of layers given as pairs (neurons, number of layers), by neurons and by layers."""
    room = np.sort(chip.max_neurons)[::-1].cumsum()
    largest, n_all = int(room[0]), sum(size * n for size, n in layers)
    beyond = ceil(max(0, n_all - int(room[-1])) / largest)  # on further cores as large as the largest
    by_neurons = len(room) + beyond if beyond else int(np.searchsorted(room, n_all)) + 1
    max_layers = chip.limit("max_layers")
    if max_layers is None:
        return by_neurons
    return max(by_neurons, ceil(sum(ceil(size / largest) * n for size, n in layers) / int(max_layers.max())))


def unmapped_violations(network: Network, chip: Chip, schedule: Schedule, on_multi_spike: str) -> list[Violation]:
    """List features of neurons, and of integer weights, that the chip lacks whatever the mapping."""
    violations = _layer_violations(network, chip, on_multi_spike)
    if network.is_fixed:
        violations += [v for c in network.connections for v in capability.weight_violations(c, chip)]
        violations += [*capability.sign_violations(network, chip), *capability.cell_violations(network, chip)]
    violations += pool_violations(network, chip)
    if not chip.family.has_barrier and schedule.period > 1:  # nothing ends a phase
        advice = "compile with execution='pipelined' or set cost.sync = \"barrier\""
        violations.append(Violation("execution", "all layers", "phased", "pipelined", advice))
    return violations


def too_many_cores(network: Network, chip: Chip, n_cores: int) -> Violation:
    """Return the violation of a network that needs more cores than the chip has."""
    max_layers = chip.limit("max_layers")
    advice = f"make {_largest_layer(network)} smaller or raise noc.columns"
    if max_layers is not None and len(network.layers) > (room := capacity.n_usable(chip) * int(max_layers.max())):
        advice = f"use at most {room} layers or raise noc.columns"
    return Violation("cores", f"network -> {chip.name}", n_cores, capacity.n_usable(chip), advice)


def capacity_violations(network: Network, chip: Chip, core_of: np.ndarray, limits: np.ndarray) -> list[Violation]:
    """List limits that cores exceed: `core_of` int32[neuron], `limits` int64[core, resource] of each core's site.

    A core is named after the layer with most neurons on it, or after the layer of a neuron that exceeds the limit
    alone. For each layer and limit, the worst five cores are shown, with the number of the others.
    """
    held = capacity.count_usage(network, chip, core_of, len(limits)).held
    layer_of = layer_numbers(network)
    count = np.zeros((len(network.layers), len(limits)), np.int64)
    np.add.at(count, (layer_of, core_of), 1)
    violations = []
    for i, resource in enumerate(RESOURCES):
        used = held[resource.key]
        limit = limits[:, i]
        over = np.flatnonzero(used > limit)
        alone = np.zeros(len(core_of), np.int64)  # what each neuron of such a core takes on its own core
        if len(over):
            members = np.flatnonzero(np.isin(core_of, over))
            alone[members] = capacity.count_alone(capacity.fan_in(network, chip), members)[:, i]
        named = [_name_core(count[:, c], layer_of, alone * (core_of == c), limit[c]) for c in over]
        for layer, alone_takes in dict.fromkeys(named):
            cores = over[[n == (layer, alone_takes) for n in named]]
            cores = cores[np.argsort(limit[cores] - used[cores], kind="stable")]
            if alone_takes:
                advice = f"one neuron of {network.layers[layer]} alone takes {alone_takes}: give it fewer inputs"
            else:
                n = int((count[layer] > 0).sum()) + sum(ceil(used[c] / limit[c]) - 1 for c in cores)
                advice = f"split {network.layers[layer]} over {n} cores"
            advice += f" or raise {chip.limit_key(resource.limit_key)}"
            for c, place in zip(cores, first_places([f"core {c}" for c in cores], "core"), strict=False):
                where = f"{network.layers[layer]} -> {place}"
                violations.append(Violation(resource.name, where, int(used[c]), int(limit[c]), advice))
    return violations


def _name_core(count: np.ndarray, layer_of: np.ndarray, alone: np.ndarray, limit: int) -> tuple[int, int]:
    """Return the layer to name a core by, and the use of one of its neurons if that exceeds the limit alone, else 0."""
    if alone.max() > limit:
        return int(layer_of[alone.argmax()]), int(alone.max())
    return int(count.argmax()), 0


def _layer_violations(network: Network, chip: Chip, on_multi_spike: str) -> list[Violation]:
    """List the features of layers that the chip's neurons lack, biases of their connections included."""
    violations: list[Violation] = []
    for name in network.layers:
        node = network.node(name)
        if name in network.programs:
            violations += capability.program_violations(node, chip, on_multi_spike)
            continue
        biases = (node.neuron.bias, node.neuron.bias_u, *(getattr(c, "bias", None) for c in network.into(name)))
        has_bias = any(bias is not None and np.any(bias) for bias in biases)
        node = fold_bias(network, node) if network.is_fixed else node
        cap = spike_cap(network, chip, name)
        violations += capability.neuron_violations(node, chip, has_bias, on_multi_spike, cap)
    return violations


def _largest_layer(network: Network) -> str:
    return max(network.layers, key=lambda name: network.node(name).n_neurons)


def _layer_connections(network: Network) -> list[Connection]:
    """Return connections with synapses between inputs and layers; those of junctions may shrink when normalized."""
    ends = {*network.inputs, *network.layers}
    return [c for c in network.connections if c.has_weight and c.source in ends and c.target in ends]


def _bits_of_ends(network: Network, chip: Chip) -> dict[tuple[str, str], int]:
    """Return the minimal synapse memory by the ends of connections; parallel ones, which may merge, count once."""
    bits: dict[tuple[str, str], int] = {}
    for c in _layer_connections(network):
        ends = c.source, c.target
        n_stored = np.size(c.weight) if chip.weights.sharing else synapse_count(network, c)  # a shared kernel once
        least = n_stored * synapse_bits(c, SPARSE if isinstance(c, Sparse) else DENSE, chip)  # without blocks' overhead
        bits[ends] = max(bits.get(ends, 0), least)
    return bits


def _fan_in_violations(network: Network, chip: Chip) -> Iterator[Violation]:
    """Yield layers with a neuron that alone reads more sources than any core has input axons."""
    limit = chip.limit("max_in_axons")
    into: dict[str, list[Connection]] = {}
    if limit is None:
        return
    for c in _layer_connections(network):
        into.setdefault(c.target, []).append(c)
    for target, connections in into.items():
        n = {c.source: network.node(c.source).n_neurons for c in connections if isinstance(c, Dense)}  # of every neuron
        others = [(_most_sources(network, c), c.source) for c in connections if c.source not in n]
        n |= {source: taken for taken, source in sorted(others)[-1:] if taken}
        alone = [(source, taken) for source, taken in n.items() if taken > limit.max()]
        for source, taken in alone or [(f"{len(n)} sources", sum(n.values()))]:
            if taken > limit.max():
                advice = f"one neuron of {target} alone takes {taken}: give it fewer inputs or raise "
                advice += chip.limit_key("max_in_axons")
                where = f"{source} -> {target}"
                yield Violation(RESOURCES[IN_AXONS].name, where, taken, int(limit.max()), advice)


def _most_sources(network: Network, connection: Connection) -> int:
    """Return the largest fan-in of a neuron through a Conv2d or Sparse connection, 0 for others."""
    shape, n_source = network.node(connection.source).shape, network.node(connection.source).n_neurons
    if isinstance(connection, Conv2d):
        rows, columns = axis_taps(connection, shape)
        return int(rows.max() * columns.max()) * np.shape(connection.weight)[1]
    if isinstance(connection, Sparse):
        target = network.node(connection.target)
        post = np.asarray(connection.post, np.int64) % target.n_neurons
        synapses = post * n_source + np.asarray(connection.pre)
        synapses.sort(kind="stable")  # fast for those of a dense map, which are in order
        again = synapses[1:][synapses[1:] == synapses[:-1]] // n_source  # few or none: np.unique takes longer
        n_again = np.bincount(again, minlength=target.n_neurons)
        return int((np.bincount(post, minlength=len(n_again)) - n_again).max())
    return 0
