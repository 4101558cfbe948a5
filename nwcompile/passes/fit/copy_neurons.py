"""Copy neurons: rewrite a mapped network so that no neuron, or core, exceeds the chip's number of destination cores.

A neuron of TrueNorth has one axon, a core of Speck two destinations. Copies of neurons (`copy_plan.py`) satisfy such a
limit. So does a splitter: relay neurons that copy a layer's spikes one step later, all copies of a neuron on the same
core, so that nothing in front of the layer needs copies. For each layer, the variant with fewer cores in total is used.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.errors import FitError, ModelError, Violation
from nwcompile.ir.activity import Activity, MultiSpike
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import join_layers, neuron_offsets
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network, Node
from nwcompile.ir.options import Options
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.analyze.capability import delay_violations
from nwcompile.passes.analyze.capacity import n_usable
from nwcompile.passes.analyze.core_rules import n_over
from nwcompile.passes.fit.copied_network import build_copied_network
from nwcompile.passes.fit.copy_plan import CopyPlan, most_destinations, plan_copies
from nwcompile.passes.fit.relays import build_relay, relay_layer, sends_binary
from nwcompile.passes.quantize.sums.send_sums import schedule_senders

SPLITTER = "{}/splitter"
LARGEST = 10_000_000  # Networks with more synapses are left to the check, because each synapse is visited.


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
    changes: list[Change]
    copy_of: dict[str, tuple[str, np.ndarray]]


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
        raise FitError(chip.name, [_too_many(best, chip)])
    copied = build_copied_network(best.network, best.timing, best.plan)
    if copied.network.outputs != network.outputs:
        return None
    return Copied(
        network=copied.network,
        timing=copied.timing,
        activity=_copy_activity(best.activity, copied.copy_of),
        core_of=copied.core_of,
        changes=_list_changes(network, best, chip),
        copy_of=copied.copy_of,
    )


def _too_many(wanted: Wanted, chip: Chip) -> Violation:
    """Return the violation of needing more cores, with all copies, than the chip has."""
    copies = {name: int(_slice_layer(wanted.network, name, wanted.plan.copies).max()) for name in wanted.network.layers}
    layer = max(copies, key=lambda name: copies[name])
    advice = f"{layer} needs up to {copies[layer]} copies, {_rule_text(wanted.plan)}: make what it feeds smaller"
    where = f"network with copies -> {chip.name}"
    return Violation("cores", where, wanted.plan.n_cores, n_usable(chip), f"{advice} or raise noc.columns")


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


def _copy_activity(activity: Activity, copy_of: dict[str, tuple[str, np.ndarray]]) -> Activity:
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
