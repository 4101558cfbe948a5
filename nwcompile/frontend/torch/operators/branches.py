"""Neurons that add up branches of their own, such as dendrites: each branch alone is a part of the neuron."""

from dataclasses import replace

from nwcompile.frontend.torch.operators.graph import Node, Ref, StepGraph, find_first_value, is_ref
from nwcompile.frontend.torch.operators.neurons import find_cores, is_elementwise, is_linear
from nwcompile.frontend.torch.operators.ops import Op, aten, constant_op, is_op, make_op, map_leaves, run_op

ERROR_CODE = "NW2307"
MOST_BRANCHES = 64  # of a neuron: the inputs of a neuron of spinnaker2


def split_branches(graph: StepGraph) -> StepGraph:
    """Return the graph in which states that neurons add up along an axis are states of these neurons.

    So `d = b * d + x; v = a * v + d.sum(2)`, with `d` and `x` of [B, n, 4], are neurons with four inputs.
    """
    for total in graph.nodes:
        branches = _find_branches(total, graph)
        if branches:
            return split_branches(_split_axis(total, branches, graph))
    return graph


def _find_branches(total: Node, graph: StepGraph) -> list[Node]:
    """Return the nodes of the states that a node adds up along an axis, for other neurons; [] if it does not."""
    axes = total.args[1] if total.name in ("sum", "mean") and len(total.args) == 2 else None
    if not axes or len(axes) > 1 or total.refs[0].delay or total in graph.returned:
        return []
    source, users = total.refs[0].node, [user for user, _ in graph.users[total]]
    if not users or not all(map(is_elementwise, users)) or not 1 < source.shape[axes[0]] <= MOST_BRANCHES:
        return []
    members: set[Node] = set()
    waiting = [source]
    while waiting:
        node = waiting.pop()
        if node not in members and is_elementwise(node) and node.shape == source.shape:
            members.add(node)
            waiting += [ref.node for ref in node.refs]
    shared = {total}
    while shared:  # with nodes outside
        inside = {*members, total}
        shared = {n for n in members if n in graph.returned or any(u not in inside for u, _ in graph.users[n])}
        members -= shared
    has_state = source in members and bool(members & find_cores(graph).keys())
    fires = any(node.is_message for node in members)  # such neurons are a layer of their own
    are_alike = all(is_linear(node) and not _varies(node, axes[0]) for node in members)  # a sum of them is one of them
    return [node for node in graph.nodes if node in members] if has_state and not fires and not are_alike else []


def _varies(node: Node, axis: int) -> bool:
    """Return whether a node has a constant of several values along an axis."""
    wholes = [op.value.expand(node.shape) for op in node.op.operands if not op.depends]
    return any(bool((whole != whole.narrow(axis, 0, 1)).any()) for whole in wholes)


def _split_axis(total: Node, members: list[Node], graph: StepGraph) -> StepGraph:
    """Return the graph with a copy of the members for each place of the axis that `total` adds up."""
    source = total.refs[0].node
    axis = total.args[1][0] - len(source.shape) * (total.args[1][0] >= 0)  # from the last one
    nodes: list[Node] = []
    ends: list[Node] = []
    for k in range(source.shape[axis]):
        copies, entries = _copy_members(members, axis, k)
        nodes += [*(node for node in entries if node not in graph.nodes), *copies.values()]
        ends.append(copies[source])
    place = graph.nodes.index(total)
    nodes = [*graph.nodes[:place], *nodes, *_replace_total(total, ends, axis), *graph.nodes[place:]]
    return replace(graph, nodes=[node for node in nodes if node not in members])


def _copy_members(members: list[Node], axis: int, k: int) -> tuple[dict[Node, Node], list[Node]]:
    """Return a copy of each member for a place of an axis, and the nodes outside whose results the copies take."""
    shape = members[0].shape

    def take(op: Op) -> Op:
        whole = run_op(aten.expand.default, (op, list(shape)), {}, op.site)
        return run_op(aten.select.int, (whole, axis, k), {}, op.site)

    copies = {node: Node(take(node.op), shift=node.shift, values=_take_first(node, axis, k)) for node in members}
    outside = {ref.node: None for node in members for ref in node.refs if ref.node not in copies}
    entries = {node: _take_entry(node, axis, k) for node in outside}
    taken = entries | {node: Ref(copy, 0) for node, copy in copies.items()}

    def change(leaf):
        if is_ref(leaf):
            return Ref(taken[leaf.node].node, leaf.delay + taken[leaf.node].delay)
        return constant_op(take(leaf).value, leaf.site) if is_op(leaf) and leaf.value.ndim else leaf

    for node, copy in copies.items():
        copy.args, copy.kwargs = map_leaves(change, (node.args, node.kwargs))
        plain, named = map_leaves(lambda a: a.node.op if is_ref(a) else a, (copy.args, copy.kwargs))
        copy.op = make_op(node.op.func, plain, named, copy.op.value, node.op.site)
    return copies, [ref.node for ref in entries.values()]


def _replace_total(total: Node, ends: list[Node], axis: int) -> list[Node]:
    """Make a sum or mean along an axis the last sum, or the quotient, of the nodes of its places; return the others."""
    joined = run_op(aten.stack.default, ([end.op for end in ends], axis), {}, total.op.site)
    stacked = Node(joined, ([Ref(end, 0) for end in ends], axis))
    total.recorded = Node(total.op, (Ref(stacked, 0), *total.args[1:]), total.kwargs)  # torch adds in another order
    sums = [ends[0]]
    for end in ends[1:]:
        op = run_op(aten.add.Tensor, (sums[-1].op, end.op), {}, end.op.site)
        sums.append(Node(op, (Ref(sums[-1], 0), Ref(end, 0))))
    if total.name == "mean":
        op = run_op(aten.div.Tensor, (sums[-1].op, len(ends)), {}, total.op.site)
        sums.append(Node(op, (Ref(sums[-1], 0), len(ends))))
    total.op, total.args, total.kwargs = sums[-1].op, sums[-1].args, {}
    return sums[1:-1]


def _take_entry(node: Node, axis: int, k: int) -> Ref:
    """Return the entry of a node at a place of an axis, counted from the last one, along which it may be repeated."""
    if len(node.shape) < -axis:
        return Ref(node, 0)
    if node.shape[axis] > 1:
        return Ref(Node(run_op(aten.select.int, (node.op, axis, k), {}, node.op.site), (Ref(node, 0), axis, k)), 0)
    shape = [*node.shape]
    del shape[axis]
    source = node.refs[0] if node.name == "reshape" else Ref(node, 0)
    if source.node.shape == tuple(shape):
        return source
    return Ref(Node(run_op(aten.reshape.default, (node.op, shape), {}, node.op.site), (Ref(node, 0), shape)), 0)


def _take_first(node: Node, axis: int, k: int) -> dict[int, Op]:
    """Return the values before the first step of a node at a place of an axis."""
    first = {t: find_first_value(node, -t - node.shift) for t in node.values}
    return {t: constant_op(v.select(axis, k), node.op.site) for t, v in first.items() if v is not None}
