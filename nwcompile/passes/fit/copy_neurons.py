"""Copy neurons: rewrite a mapped network so that no neuron, or core, exceeds the chip's number of destination cores.

A neuron of TrueNorth has one axon, a core of Speck two destinations. A neuron that reaches more cores is placed several
times, with the same inputs, and its copies share the destinations. A core is copied whole: a copy holds those of its
neurons that need it, so it fits wherever the core does. Copies of a layer are destinations of the layers before it,
which may need copies in turn.

Another way is a splitter: relay neurons that copy a layer's spikes one step later, all copies of a neuron on the same
core, so that nothing in front of the layer needs copies. For each layer, the variant with fewer cores in total is used.
The copies of a plan become layers of their own, and every synapse is connected to the copy that sends to it.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array

from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.errors import FitError, ModelError, Violation
from nwcompile.ir.activity import Activity, MultiSpike
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, synapse_list
from nwcompile.ir.flat import count_neurons, csr_entries, csr_offset, join_layers, neuron_offsets
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.options import Options
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.analyze.capability import delay_violations
from nwcompile.passes.analyze.capacity import n_usable
from nwcompile.passes.analyze.core_rules import n_over
from nwcompile.passes.fit.relay_delays import build_relay, relay_layer, sends_binary
from nwcompile.passes.prepare.weights import list_synapses
from nwcompile.passes.quantize.send_sums import schedule_senders

SPLITTER = "{}/splitter"
LARGEST = 10_000_000  # Networks with more synapses are left to the check, because each synapse is visited.
COPY = "{}/copy{}"  # The first copy keeps the layer's name, so its spikes are the layer's.
MOST_COPIES = 1 << 22  # Plans with more neurons than the largest chip of four million are given up.


@dataclass(frozen=True, eq=False)
class CopyPlan:
    """The number of copies of each neuron, `copies` int64[neuron], and its first core, `core_of` int64[neuron].

    Copy j > 0 of a core c is core `later[c] + j - 1`. The copies of `packed` neurons (bool[neuron]) are on one core.
    `share`: destinations of each copy of a neuron, or of a core if `by_core`.
    """

    core_of: np.ndarray
    copies: np.ndarray
    packed: np.ndarray
    later: np.ndarray  # int64[core]
    n_cores: int
    share: int
    by_core: bool

    def core_of_copy(self, neuron: np.ndarray, copy: np.ndarray) -> np.ndarray:
        """Return the core of a copy of each neuron, int64."""
        first = self.core_of[neuron]
        return np.where((copy == 0) | self.packed[neuron], first, self.later[first] + copy - 1)


def synapse_ends(network: Network, connection: Connection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return source, target and weight index of every synapse; neurons as in ir/flat.py, lines within their input."""
    pre, post, place = synapse_list(connection, network.node(connection.source).shape)
    first = neuron_offsets(network)
    pre, post = np.asarray(pre, np.int64), np.asarray(post, np.int64)
    return pre + first.get(connection.source, 0), post + first[connection.target], np.asarray(place)


def most_destinations(chip: Chip) -> tuple[int, bool] | None:
    """Return the limit on destination cores, and whether it is per core (True) or per neuron; None without a limit."""
    of_core, of_neuron = chip.limit("max_destinations"), chip.limit("max_neuron_destinations")
    limits = [int(limit.min()) for limit in (of_core, of_neuron) if limit is not None]
    return (min(limits), of_core is not None) if limits and min(limits) > 0 else None


def plan_copies(network: Network, chip: Chip, core_of: np.ndarray, packed: np.ndarray) -> CopyPlan | None:
    """Return the fewest copies for the given cores int64[neuron], or None if no number of them suffices.

    `packed` neurons come with one core each; here they are packed onto common cores, as many as fit with their copies.
    """
    limit = most_destinations(chip)
    assert limit is not None
    share, by_core = limit
    copies = _settle_copies(network, core_of, packed, share, by_core)
    if copies is None:
        return None
    together = _pack_neurons(chip, core_of, copies, packed)
    if together is None:
        return None
    n_cores = int(together.max()) + 1
    of_core = np.ones(n_cores, np.int64)
    np.maximum.at(of_core, together[~packed], copies[~packed])
    later = n_cores + np.cumsum(of_core - 1) - (of_core - 1)
    return CopyPlan(
        core_of=together,
        copies=copies,
        packed=packed,
        later=later,
        n_cores=n_cores + int((of_core - 1).sum()),
        share=share,
        by_core=by_core,
    )


def _settle_copies(network: Network, core_of, packed, share: int, by_core: bool) -> np.ndarray | None:
    """Return int64[neuron]: copies, raised until every neuron (core) has enough; None if impossible."""
    n = count_neurons(network)
    copies, n_cores = np.ones(n, np.int64), int(core_of.max()) + 1
    sender = core_of if by_core else np.arange(n)
    parts = [synapse_ends(network, c)[:2] for c in network.connections if c.source not in network.inputs]
    none = np.zeros(0, np.int64)
    pre, post = (np.concatenate(ends) for ends in zip((none, none), *parts, strict=True))
    pre, post = _expand_shared_axons(network, pre, post)
    key = sender[pre] * n_cores + core_of[post]
    order = np.argsort(key, kind="stable")
    key, post = key[order], post[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(key), 1), bool), key[1:] != key[:-1]]))
    if len(key) and _never_settles(sender[post], packed[post], key, starts, n_cores, share):
        return None
    while len(key):
        reached = np.where(packed, 1, copies)[post]
        n_reached = np.bincount(key[starts] // n_cores, np.maximum.reduceat(reached, starts), int(sender.max()) + 1)
        wanted = np.maximum(copies, -(-n_reached.astype(np.int64) // share)[sender])
        if (wanted == copies).all():
            break
        copies = wanted
        if copies.sum() > MOST_COPIES:
            return None
    return copies


def _never_settles(
    of_target: np.ndarray, packed: np.ndarray, key: np.ndarray, starts: np.ndarray, n_cores: int, share: int
) -> bool:
    """Return whether copies grow without end, because each new one is a destination that needs another copy.

    They do in a loop of senders that each reach `share` cores of the loop, if one of them reaches one core more. By
    sorted synapse: `of_target` int64, the sender of its target; `packed` bool, whether copies of the target are on one
    core; `key` int64, its sender times `n_cores` plus the core it reaches. `starts`: the first of each key.
    """
    from scipy.sparse.csgraph import connected_components  # loads scipy.sparse.linalg, which few programs need

    sender, n = key // n_cores, int(max(key[-1] // n_cores, of_target.max())) + 1
    ends = sender[~packed], of_target[~packed]
    _, loop = connected_components(coo_array((np.ones(len(ends[0]), bool), ends), (n, n)), connection="strong")
    is_inside = np.logical_or.reduceat((loop[sender] == loop[of_target]) & ~packed, starts)
    n_inside = np.bincount(sender[starts], is_inside, n)
    fewest_inside, most_reached = np.full(n, n_cores), np.zeros(n, np.int64)
    np.minimum.at(fewest_inside, loop, n_inside.astype(np.int64))
    np.maximum.at(most_reached, loop, np.bincount(sender[starts], minlength=n))
    return bool(((fewest_inside >= share) & (most_reached > share)).any())


def _expand_shared_axons(network: Network, pre: np.ndarray, post: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return synapses int64[...] with those of a shared axon repeated for each neuron that sends to it."""
    first = neuron_offsets(network)
    nodes = [network.node(name) for name in network.layers]
    every = [np.arange(node.n_neurons) if node.axon_of is None else node.axon_of for node in nodes]
    axon_of = np.concatenate([axons + first[node.name] for node, axons in zip(nodes, every, strict=True)])
    offset = csr_offset(np.bincount(axon_of, minlength=len(axon_of)))
    entries = csr_entries(offset, pre)
    return np.argsort(axon_of, kind="stable")[entries], np.repeat(post, np.diff(offset)[pre])


def _pack_neurons(chip: Chip, core_of: np.ndarray, copies: np.ndarray, packed: np.ndarray) -> np.ndarray | None:
    """Put packed neurons, in order, onto cores that hold them with all their copies; cores are renumbered."""
    core_of = core_of.copy()
    neurons = np.flatnonzero(packed)
    if len(neurons):
        room = int(chip.max_neurons.min()) // int(copies[neurons].max())
        max_in_axons = chip.limit("max_in_axons")
        if max_in_axons is not None:
            room = min(room, int(max_in_axons.min()))
        if room < 1:
            return None
        core_of[neurons] = int(core_of.max()) + 1 + np.arange(len(neurons)) // room
    return np.unique(core_of, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Wanted:
    """A network, possibly with splitters, whose neurons `plan` copies, with its schedule and activity."""

    network: Network
    timing: Schedule
    activity: Activity
    plan: CopyPlan


class Copied(NamedTuple):
    """The network with copies as layers of their own, its schedule, activity and cores, and the changes.

    `copy_of`: by copied layer, the original layer and the neurons that are copied.
    """

    network: Network
    timing: Schedule
    activity: Activity
    core_of: dict[str, np.ndarray]
    copy_of: dict[str, tuple[str, np.ndarray]]
    changes: list[Change]


def may_copy(chip: Chip) -> bool:
    """Return whether neurons of the chip may need copies or splitters. A splitter can shorten a delay by one step."""
    return most_destinations(chip) is not None


def sends_too_far(network: Network, chip: Chip, mapping: Mapping) -> bool:
    """Return whether a neuron, or core, sends to more cores than the chip allows."""
    return may_copy(chip) and n_over(network, chip, join_layers(network, mapping.core_of)) > 0


def copy_neurons(
    network: Network, timing: Schedule, chip: Chip, activity: Activity, mapping: Mapping, options: Options
) -> Copied | None:
    """Return the network with as many copies of its neurons as their destinations need, and the core of each neuron.

    Spikes of the given layers stay the same: they are those of each neuron's first copy, and all copies spike alike.
    Returns None if copies cannot help (neurons that send to all cores of their own layer): `check` refuses them. Raises
    FitError if the chip has too few cores.
    """
    is_small = sum(synapse_count(network, c) for c in network.connections) <= LARGEST
    plan = _plan_copies(network, chip, mapping) if is_small else None
    if plan is None:
        return None
    best = Wanted(network, timing, activity, plan)
    for name in network.layers if not plan.by_core else ():
        if _slice_layer(network, name, plan.copies).max() > 1 and sends_binary(network, chip, options, name):
            other = _add_splitter(best, chip, mapping, options, name)
            best = other if other is not None and other.plan.n_cores < best.plan.n_cores else best
    if best.plan.n_cores > n_usable(chip):
        copies = {name: int(_slice_layer(best.network, name, best.plan.copies).max()) for name in best.network.layers}
        layer = max(copies, key=lambda name: copies[name])
        advice = f"{layer} needs up to {copies[layer]} copies, {_rule_text(best.plan)}: make what it feeds smaller"
        where, advice = f"network with copies -> {chip.name}", f"{advice} or raise noc.columns"
        raise FitError(chip.name, [Violation("cores", where, best.plan.n_cores, n_usable(chip), advice)])
    copied = build_copied_network(best, _list_changes(network, best, chip))
    return copied if copied.network.outputs == network.outputs else None


def _rule_text(plan: CopyPlan) -> str:
    whose = "core" if plan.by_core else "neuron"
    return f"{plan.share} destination core{'s' if plan.share > 1 else ''} of a {whose}"


def _plan_copies(network: Network, chip: Chip, mapping: Mapping) -> CopyPlan | None:
    """Plan the copies of a network whose layers are placed as in `mapping`; layers not in it are packed splitters."""
    n_cores = mapping.n_cores
    cores = []
    for name in network.layers:
        n = network.node(name).n_neurons
        cores.append(mapping.core_of.get(name, np.arange(n_cores, n_cores + n)))
        n_cores += 0 if name in mapping.core_of else n
    packed = [np.full(network.node(name).n_neurons, name not in mapping.core_of) for name in network.layers]
    return plan_copies(network, chip, np.concatenate(cores).astype(np.int64), np.concatenate(packed))


def _slice_layer(network: Network, name: str, values: np.ndarray) -> np.ndarray:
    first = neuron_offsets(network)[name]
    return values[first : first + network.node(name).n_neurons]


def _add_splitter(before: Wanted, chip: Chip, mapping: Mapping, options: Options, name: str) -> Wanted | None:
    """Return `before` with relay neurons behind layer `name`, which share out its spikes; None if impossible."""
    network, splitter = before.network, SPLITTER.format(name)
    relay = build_relay(network, chip, options)
    if relay is None:
        return None
    node, edge = relay_layer(relay, network.node(name), splitter)
    nodes: dict[str, Node] = {}
    for old in network.nodes:
        nodes |= {old: network.nodes[old], **({splitter: node} if old == name else {})}
    moved = (c.replace(source=splitter, delay=c.aligned_delay) if c.source == name else c for c in network.connections)
    split = Network(network.inputs, nodes, (*moved, edge))
    try:
        timing = schedule_senders(split, before.timing.execution)
    except ModelError:  # a loop has no spare step
        return None
    plan = _plan_copies(split, chip, mapping) if not list(delay_violations(split, timing, chip)) else None
    if plan is None:
        return None
    counts = {**before.activity.counts, splitter: before.activity.counts[name]}
    updates = {**before.activity.updates, splitter: counts[splitter]} if before.activity.updates else {}
    activity = replace(before.activity, counts=counts, updates=updates)
    return Wanted(split, timing, activity, plan)


def copy_activity(activity: Activity, copy_of: dict[str, tuple[str, np.ndarray]]) -> Activity:
    """Give copies the activity of their originals."""
    counts, updates, heard = ({**table} for table in (activity.counts, activity.updates, activity.heard))
    multi = {**activity.multi}
    for copy, (name, neurons) in copy_of.items():
        counts[copy] = counts[name][:, neurons]
        if name in updates:
            updates[copy] = updates[name][:, neurons]
        if name in heard:
            heard[copy] = heard[name][:, neurons]
        if name in multi:
            multi[copy] = MultiSpike(multi[name].by_source[:, neurons], multi[name].largest)
    return Activity(counts, activity.n_samples, updates, multi, heard)


def _list_changes(network: Network, made: Wanted, chip: Chip) -> list[Change]:
    """Return a row for every layer that is copied, or that a splitter copies."""
    changes = []
    has = _rule_text(made.plan)
    for name in made.network.layers:
        copies = _slice_layer(made.network, name, made.plan.copies)
        if name not in network.nodes:
            layer, n = name.removesuffix(SPLITTER.format("")), int(copies.sum())
            how = f"{n} relay neurons of a splitter, up to {copies.max()} for each of {layer}, one step later"
        elif copies.max() > 1:
            layer, n = name, int((copies - 1).sum())
            how = f"{n} more neurons, up to {copies.max()} copies of each"
        else:
            continue
        reached = (int(copies.max()) - 1) * made.plan.share
        changes.append(
            Change(layer, f"spikes for more than {reached} core{'s' if reached > 1 else ''}", has, how, EXACT)
        )
    return changes


class _Ends(NamedTuple):
    """The synapses of a connection in a copied network, one entry for each copy of their target."""

    synapse: np.ndarray  # int64[end]
    source: np.ndarray  # int64[end]: index of the sending copy
    target: np.ndarray  # int64[end]: index of the receiving copy


def build_copied_network(wanted: Wanted, changes: list[Change]) -> Copied:
    """Apply the plan to a fixed-point network; all copies have the inputs of the first. `changes`: its rows.

    A connection that is divided among copies becomes lists of synapses; one that stays whole keeps its form.
    """
    network, timing, plan = wanted.network, wanted.timing, wanted.plan
    first = neuron_offsets(network)
    nodes: dict[str, Node] = {}
    cores: dict[str, np.ndarray] = {}
    copy_of: dict[str, tuple[str, np.ndarray]] = {}
    for name, node in network.nodes.items():
        copies = plan.copies[first[name] : first[name] + node.n_neurons]
        for j in range(int(copies.max())):
            neurons = np.flatnonzero(copies > j)
            made = copy_node(node, _name(name, j), neurons)
            nodes[made.name] = made
            cores[made.name] = plan.core_of_copy(first[name] + neurons, np.full(len(neurons), j)).astype(np.int32)
            if j:
                copy_of[made.name] = (name, neurons)
    synapses = [synapse_ends(network, c) for c in network.connections]
    ends = _find_ends(network, plan, synapses)
    connections: list[Connection] = []
    delay: list[int] = []
    for i, (c, (pre, post, place)) in enumerate(zip(network.connections, synapses, strict=True)):
        parts = _copy_edges(c, network, plan, (pre - first.get(c.source, 0), post - first[c.target], place), ends[i])
        connections += parts
        delay += [timing.delay[i]] * len(parts)
    offset = {**timing.offset, **{copy: timing.offset[name] for copy, (name, _) in copy_of.items()}}
    copied = Network(network.inputs, nodes, tuple(connections))
    copied.verify()
    return Copied(
        network=copied,
        timing=replace(timing, offset=offset, delay=tuple(delay)),
        activity=copy_activity(wanted.activity, copy_of),
        core_of=cores,
        copy_of=copy_of,
        changes=changes,
    )


def _name(layer: str, copy: int) -> str:
    return COPY.format(layer, copy + 1) if copy else layer


def copy_node(node: Node, name: str, neurons: np.ndarray) -> Node:
    """Return a layer of some neurons, int64[n], of another."""
    if len(neurons) == node.n_neurons:
        return replace(node, name=name)
    axon_of = None if node.axon_of is None else np.searchsorted(neurons, node.axon_of[neurons])
    if isinstance(node.neuron, NeuronProgram):
        return Node(name, (len(neurons),), node.neuron.select_neurons(neurons, node.shape), axon_of=axon_of)
    arrays = (field for field in NeuronSpec.NUMBERS if isinstance(getattr(node.neuron, field), np.ndarray))
    values = {field: node.neuron.array(field, node.shape).reshape(-1)[neurons] for field in arrays}
    return Node(name, (len(neurons),), node.neuron.replace(**values), axon_of=axon_of)


def _find_ends(network: Network, plan: CopyPlan, synapses: list) -> list[_Ends]:
    """Return the copies at both ends of every synapse: copies of a sender share its destinations in order."""
    expanded: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for c, (pre, post, _) in zip(network.connections, synapses, strict=True):
        copies = plan.copies[post]
        synapse = np.repeat(np.arange(len(post)), copies)
        target = np.arange(len(synapse)) - np.repeat(np.cumsum(copies) - copies, copies)
        core, key = plan.core_of_copy(post[synapse], target), np.full(len(synapse), -1)
        if c.source not in network.inputs:  # each neuron, or its core, distributes destinations
            sender = plan.core_of[pre[synapse]] if plan.by_core else pre[synapse]
            key = sender * plan.n_cores + core
        expanded.append((synapse, target, key))
    keys = np.unique(np.concatenate([np.zeros(0, np.int64), *(key[key >= 0] for _, _, key in expanded)]))
    sender = keys // plan.n_cores
    copy = (np.arange(len(keys)) - np.searchsorted(sender, sender)) // plan.share
    ends = []
    for synapse, target, key in expanded:
        sends = key >= 0
        source = np.zeros(len(key), np.int64)
        source[sends] = copy[np.searchsorted(keys, key[sends])]
        ends.append(_Ends(synapse, source, target))
    return ends


def _copy_edges(edge: Connection, network: Network, plan: CopyPlan, synapses: tuple, ends: _Ends) -> list[Connection]:
    """Return the connection between copies: unchanged between whole layers, else lists of synapses."""
    pre, post, place = synapses
    first = neuron_offsets(network)
    n_copies = int(plan.copies[first[edge.target] : first[edge.target] + network.node(edge.target).n_neurons].max())
    pairs = np.unique(ends.target * (int(ends.source.max(initial=0)) + 1) + ends.source)
    made: list[Connection] = []
    for j in range(n_copies):
        into = _rank_in_copy(network, plan, edge.target, j)
        n_sources = int(ends.source.max(initial=0)) + 1
        senders = [int(pair % n_sources) for pair in pairs if pair // n_sources == j]
        bias = edge.bias_per_neuron(network.node(edge.target).shape)
        bias = None if bias is None else bias.reshape(-1)[into >= 0]
        for i in senders or [0]:
            of_pair = ends.synapse[(ends.source == i) & (ends.target == j)]
            out_of = _rank_in_copy(network, plan, edge.source, i)
            is_whole = len(of_pair) == len(place) and (into >= 0).all() and (out_of >= 0).all()
            if is_whole:
                made.append(
                    edge.replace(source=_name(edge.source, i), target=_name(edge.target, j), delay=edge.aligned_delay)
                )
            elif len(of_pair) or bias is not None:
                weight = np.asarray(edge.weight).reshape(-1)[place[of_pair]]
                ends_of_copy = {"source": _name(edge.source, i), "target": _name(edge.target, j), "bias": bias}
                made.append(list_synapses(edge, out_of[pre[of_pair]], into[post[of_pair]], weight, **ends_of_copy))
            bias = None
    return made


def _rank_in_copy(network: Network, plan: CopyPlan, name: str, copy: int) -> np.ndarray:
    """Return int64[n]: the index of each neuron of a layer within one of its copies, -1 if absent."""
    n = network.node(name).n_neurons
    if name in network.inputs:
        return np.arange(n)
    first = neuron_offsets(network)[name]
    is_in = plan.copies[first : first + n] > copy
    return np.where(is_in, np.cumsum(is_in) - 1, -1)
