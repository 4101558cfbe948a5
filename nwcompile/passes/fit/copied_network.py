"""Copied network: turn the copies of a plan into layers, and connect every synapse to the copy that sends to it."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nwcompile.ir.connection import Connection, Sparse
from nwcompile.ir.flat import neuron_offsets
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.fit.copy_plan import CopyPlan, synapse_ends

COPY = "{}/copy{}"  # The first copy keeps the layer's name, so its spikes are the layer's.


class CopiedNetwork(NamedTuple):
    """A network with copies, its schedule, the core of every neuron by layer, and the original of each copied layer."""

    network: Network
    timing: Schedule
    core_of: dict[str, np.ndarray]
    copy_of: dict[str, tuple[str, np.ndarray]]  # by copied layer: the original layer, and the neurons that are copied


class _Ends(NamedTuple):
    """The synapses of a connection in a copied network, one entry for each copy of their target."""

    synapse: np.ndarray  # int64[end]
    source: np.ndarray  # int64[end]: index of the sending copy
    target: np.ndarray  # int64[end]: index of the receiving copy


def build_copied_network(network: Network, timing: Schedule, plan: CopyPlan) -> CopiedNetwork:
    """Apply the plan to a fixed-point network; all copies have the inputs of the first.

    A connection that is divided among copies becomes lists of synapses; one that stays whole keeps its form.
    """
    first = neuron_offsets(network)
    nodes: dict[str, Node] = {}
    cores: dict[str, np.ndarray] = {}
    copy_of: dict[str, tuple[str, np.ndarray]] = {}
    for name, node in network.nodes.items():
        copies = plan.copies[first[name] : first[name] + node.n_neurons]
        for j in range(int(copies.max())):
            neurons = np.flatnonzero(copies > j)
            made = _copy_node(node, _name(name, j), neurons)
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
    return CopiedNetwork(copied, replace(timing, offset=offset, delay=tuple(delay)), cores, copy_of)


def _name(layer: str, copy: int) -> str:
    return COPY.format(layer, copy + 1) if copy else layer


def _copy_node(node: Node, name: str, neurons: np.ndarray) -> Node:
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
        core = plan.core_of_copy(post[synapse], target)
        key = (
            np.full(len(synapse), -1)
            if c.source in network.inputs
            else plan.find_sender(pre[synapse]) * plan.n_cores + core
        )
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
                made.append(_copy_list(edge, i, j, (out_of[pre[of_pair]], into[post[of_pair]], place[of_pair]), bias))
            bias = None
    return made


def _copy_list(edge: Connection, source: int, target: int, synapses: tuple, bias) -> Sparse:
    pre, post, place = synapses
    return Sparse(
        source=_name(edge.source, source),
        target=_name(edge.target, target),
        pre=pre,
        post=post,
        weight=np.asarray(edge.weight).reshape(-1)[place],
        delay=edge.aligned_delay,
        bias=bias,
        exponent=edge.exponent,
        sign_mode=edge.sign_mode,
        weight_bits=edge.weight_bits,
    )


def _rank_in_copy(network: Network, plan: CopyPlan, name: str, copy: int) -> np.ndarray:
    """Return int64[n]: the index of each neuron of a layer within one of its copies, -1 if absent."""
    n = network.node(name).n_neurons
    if name in network.inputs:
        return np.arange(n)
    first = neuron_offsets(network)[name]
    is_in = plan.copies[first : first + n] > copy
    return np.where(is_in, np.cumsum(is_in) - 1, -1)
