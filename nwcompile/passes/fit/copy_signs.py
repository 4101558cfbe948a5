"""Copy signs: copy neurons and input lines with synapses of both signs, on chips whose sources have one sign.

On ODIN the sign of a synapse is a bit of its source. A source with both signs keeps its positive synapses. Its copy,
a neuron with the same inputs or a line with the same events, has the negative ones. So all spikes stay the same.
"""

from dataclasses import replace
from itertools import count

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, synapse_list
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.schedule import Schedule
from nwcompile.ir.shown import count_text
from nwcompile.passes.analyze.capability import find_both_signs
from nwcompile.passes.fit.copy_neurons import COPY, Copied, copy_activity, copy_node
from nwcompile.passes.prepare.weights import list_synapses

BOTH_SIGNS = "synapses of both signs"


def copy_signs(network: Network, timing: Schedule, chip: Chip, activity: Activity) -> Copied | None:
    """Return the fixed-point network with a copy of each source of both signs; None if there are none.

    Spikes of the given layers stay the same. Returns None too if one of several output layers has such synapses to
    itself: `check` refuses it. The network has no cores yet, so `core_of` is empty.
    """
    both = find_both_signs(network, chip)
    if not both:
        return None
    names = {name: _free_name(network, name) for name in both}
    inputs, nodes = dict[str, Node](), dict[str, Node]()
    for name, node in (network.inputs | network.nodes).items():
        made = inputs if name in network.inputs else nodes
        if name in both and name in network.inputs:
            made[names[name]] = Node(names[name], (len(both[name]),), repeats=(name, both[name]))
        elif name in both:  # in front of the layer, which stays the last one if it is the output
            made[names[name]] = copy_node(node, names[name], both[name])
        made[name] = node
    parts = [_copy_edge(c, network, chip, both, names) for c in network.connections]
    delays = [(delay,) * len(of_edge) for delay, of_edge in zip(timing.delay, parts, strict=True)]
    copied = replace(network, inputs=inputs, nodes=nodes, connections=tuple(sum(parts, [])))
    copied.verify()
    if copied.outputs != network.outputs:
        return None
    copy_of = {names[name]: (name, sources) for name, sources in both.items()}
    offset = timing.offset | {copy: timing.offset[name] for copy, (name, _) in copy_of.items()}
    return Copied(
        network=copied,
        timing=replace(timing, offset=offset, delay=sum(delays, ())),
        activity=copy_activity(activity, copy_of),
        core_of={},
        copy_of={copy: entry for copy, entry in copy_of.items() if copy in nodes},
        changes=[_describe_copies(network, name, len(sources)) for name, sources in both.items()],
    )


def _describe_copies(network: Network, name: str, n: int) -> Change:
    copies = count_text(n, "more line" if name in network.inputs else "more neuron")
    return Change(name, BOTH_SIGNS, "one sign for a source", f"{copies} with the negative ones", EXACT)


def _free_name(network: Network, name: str) -> str:
    taken = network.inputs | network.nodes
    return next(free for n in count(2) if (free := COPY.format(name, n)) not in taken)


def _copy_edge(
    edge: Connection, network: Network, chip: Chip, both: dict[str, np.ndarray], names: dict[str, str]
) -> list[Connection]:
    """Return the connection from the sources and their copies into the targets and theirs.

    It stays whole if no source has a copy; otherwise, and into copies, it becomes lists of synapses.
    """
    pre, post, place = synapse_list(edge, network.node(edge.source).shape)
    weight = np.ravel(edge.weight)[place]
    out_of, into = (_rank_in_copy(network, name, both) for name in (edge.source, edge.target))
    moves = (effective_weight(weight, edge.exponent, chip.weights.effective_limit) < 0) & (out_of[pre] >= 0)
    parts: list[Connection] = [] if moves.any() else [edge]
    bias = edge.bias_per_neuron(network.node(edge.target).shape)
    for target, rank in ((edge.target, np.arange(len(into))), (names.get(edge.target, ""), into)):
        if (target == edge.target and parts) or (rank < 0).all():
            continue
        of_copy = None if bias is None else bias.reshape(-1)[rank >= 0]
        for source, index, chosen in (
            (edge.source, np.arange(len(out_of)), ~moves),
            (names.get(edge.source, ""), out_of, moves),
        ):
            kept = chosen & (rank[post] >= 0)
            if kept.any() or of_copy is not None:
                ends = {"source": source, "target": target, "bias": of_copy}
                parts.append(list_synapses(edge, index[pre[kept]], rank[post[kept]], weight[kept], **ends))
            of_copy = None
    return parts


def _rank_in_copy(network: Network, name: str, both: dict[str, np.ndarray]) -> np.ndarray:
    """Return int64[n]: the index of each source within the copies of its node, -1 without a copy."""
    rank = np.full(network.node(name).n_neurons, -1)
    rank[both.get(name, [])] = np.arange(len(both.get(name, [])))
    return rank
