"""Merge axons: compute a maximum of spikes without relay neurons, on chips whose axons are one bit that any spike sets.

On TrueNorth and RANC a spike sets a bit of its target core (Merolla et al., Science 345, 2014, doi
10.1126/science.1254642), and a step reads the synapses of every bit once. If all neurons of a window send to one such
axon, the axon is their maximum. The relay neuron for it, and the step it takes, are not needed.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, pair, synapse_list
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network, Node
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.fit.relay_delays import has_late
from nwcompile.passes.legalize.pool_spikes import pooled_spikes
from nwcompile.passes.prepare.fold import Convolution, build_channel_scaling, compose, linear_map
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.passes.prepare.weights import list_synapses


class Merged(NamedTuple):
    """The network with merged axons, its schedule and activity, a row for every layer, and the removed relay layers."""

    network: Network
    timing: Schedule
    activity: Activity
    changes: list[Change]
    gone: tuple[str, ...]


def merge_axons(network: Network, timing: Schedule, chip: Chip, activity: Activity, mapping: Mapping | None) -> Merged:
    """Remove the relay neurons that pool spikes from a fixed-point network, if `core.axon_merge` is "or".

    A layer is pooled in its readers' axons if it only feeds the relay neurons, its windows do not overlap, and the
    relay neurons, which a given `mapping` does not place, feed no loop back to it. Other layers stay unchanged.
    """
    merged = Merged(network, timing, activity, [], ())
    if chip.core.axon_merge != "or" or chip.limit("max_destinations") is not None:  # such cores are copied whole
        return merged
    for name in network.built_in:
        pre_post = None if mapping is not None and name in mapping.core_of else _find_pooled(merged.network, name, chip)
        if pre_post is not None:
            merged = _remove_relays(merged, name, *pre_post, chip)
    return merged


def _find_pooled(network: Network, name: str, chip: Chip) -> tuple[np.ndarray, np.ndarray] | None:
    """Return neurons and windows of a layer of relay neurons that can be removed, in flat order, or None."""
    windows = pooled_spikes(network, name, chip)
    if windows is None or name in network.outputs:
        return None
    (edge,) = network.into(name)
    source = network.node(edge.source)
    alone = network.out_of(source.name) == (edge,)
    if source.neuron is None or source.axon_of is not None or not alone or edge.aligned_delay:
        return None
    each_once, n_windows = len(np.unique(windows[0])) == len(windows[0]), len(np.unique(windows[1]))
    disjoint = each_once and n_windows == network.node(name).n_neurons
    return windows if disjoint and source.name not in network.find_reached(name) else None


def _remove_relays(before: Merged, name: str, neurons: np.ndarray, windows: np.ndarray, chip: Chip) -> Merged:
    """Remove one layer of relay neurons; nothing changes if a delay would then be too long for the chip."""
    network, node = before.network, before.network.node(name)
    (edge,) = network.into(name)
    source = network.node(edge.source)
    first = np.full(node.n_neurons, source.n_neurons)
    np.minimum.at(first, windows, neurons)  # the neuron whose axon each window uses
    axon_of = np.arange(source.n_neurons)
    axon_of[neurons] = first[windows]
    nodes = {**network.nodes, source.name: replace(source, axon_of=axon_of)}
    del nodes[name]
    kept = (c for c in network.connections if c is not edge)
    edges = tuple(_rewire_edge(c, edge, node, source, first) if c.source == name else c for c in kept)
    merged = replace(network, nodes=nodes, connections=edges)
    merged.verify()
    try:
        timing = schedule(merged, before.timing.execution)
    except ModelError:  # a loop has no spare step
        return before
    if has_late(merged, timing, chip):
        return before
    heard = np.zeros_like(before.activity.counts[source.name])
    heard[:, first] = before.activity.counts[name]
    activity = before.activity.drop_nodes((name,))
    activity = replace(activity, heard={**activity.heard, source.name: heard})
    how = f"{len(neurons)} neurons share {len(first)} axons: no relay neurons, and one step less"
    was = f"{node.n_neurons} relay neurons that pool spikes of {source.name}"
    change = Change(name, was, "axons of one bit", how, EXACT)
    return Merged(merged, timing, activity, [*before.changes, change], (*before.gone, name))


def _rewire_edge(edge: Connection, pool: Connection, relay: Node, source: Node, first: np.ndarray) -> Connection:
    """Rewrite a connection from relay neurons as one from the neurons whose axons they use."""
    if isinstance(edge, Conv2d) and edge.source_shape is None and _is_regular(pool, relay, source, first):
        firsts = build_channel_scaling(np.ones(source.shape[0]), source.shape, relay.shape, pair(pool.stride))
        product = compose(linear_map(edge, relay.shape, ()), firsts)
        if isinstance(product, Convolution):
            return edge.replace(
                source=source.name,
                weight=product.weight.astype(np.asarray(edge.weight).dtype),
                stride=product.stride,
                padding=product.padding,
                dilation=product.dilation,
            )
    pre, post, place = synapse_list(edge, relay.shape)
    return list_synapses(edge, first[pre], post, np.ravel(edge.weight)[place], source=source.name)


def _is_regular(pool: Connection, relay: Node, source: Node, first: np.ndarray) -> bool:
    """Return whether the first neurons of a convolution's windows form a regular grid from the first row and column."""
    if not isinstance(pool, Conv2d) or pool.source_shape is not None:
        return False
    (rows, columns), (_, height, width) = pair(pool.stride), relay.shape
    index = np.arange(source.n_neurons).reshape(source.shape)[:, ::rows, ::columns][:, :height, :width]
    return index.shape == relay.shape and bool((index.reshape(-1) == first).all())
