"""Shift registers: states that hold what a module computes otherwise in its first steps, or in each step of a few."""

from dataclasses import replace

import networkx as nx
import torch

from nwcompile.frontend.torch.operators.graph import MOVES, Node, Ref, StepGraph, find_first_value, run_node
from nwcompile.frontend.torch.operators.neurons import find_cores, is_elementwise, is_linear
from nwcompile.frontend.torch.operators.ops import aten, constant_op, make_op
from nwcompile.frontend.torch.operators.roll import ENTRY, compute_before
from nwcompile.frontend.torch.operators.unroll import REGISTER

ERROR_CODE = "NW2307"


def correct_starts(graph: StepGraph) -> StepGraph:
    """Return the graph with a register for each late map that the module does not compute in its first steps.

    A chip computes the map of silent neurons, its bias, in these steps. The register subtracts it.
    """
    cores, added = find_cores(graph), list[Node]()
    for node, longest in graph.longest_delays.items():
        is_map = node.refs and node not in cores and (is_linear(node) or not is_elementwise(node))
        steps = range(1, longest + 1) if is_map else ()
        first = {k: value for k in steps if isinstance(value := find_first_value(node, k), torch.Tensor)}
        silent = {k: compute_before(node, k, {*cores}) for k in first}
        if all(torch.equal(first[k], silent[k]) for k in first):
            continue
        node.values |= {-k - node.shift: constant_op(value, node.op.site) for k, value in silent.items()}
        register = _make_register(node, {k: first[k] - silent[k] for k in first})
        added.append(register)
        late = [ref for user, delay in graph.users[node] if delay for ref in user.refs if ref.node is node]
        for delay in {ref.delay for ref in late} - {0}:
            total = _make_node(aten.add.Tensor, Ref(node, delay), Ref(register, delay))
            added.append(total)
            for ref in (ref for ref in late if ref.node is node and ref.delay == delay):
                ref.node, ref.delay = total, 0
    return replace(graph, nodes=[*added, *graph.nodes])


def choose_entries(graph: StepGraph) -> StepGraph:
    """Return the graph whose neurons take all entries of a map of the input, and by registers choose each step's."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name == ENTRY:
            ops = [node.values[t] for t in range(graph.n_steps)]
            ops = [make_op(op.func, op.args, op.kwargs, op.value, op.site) for op in ops]
            entries = [Node(op, (node.refs[0], *op.args[1:]), op.kwargs) for op in ops]
            register = _make_register(node, {1: torch.ones_like(node.op.value)})
            chosen = [
                _make_node(aten.mul.Tensor, Ref(entry, 0), Ref(register, t + 1 + node.shift))
                for t, entry in enumerate(entries)
            ]
            nodes += [*entries, register, *chosen]
            total = chosen[0]
            for term in chosen[1:]:
                total = _make_node(aten.add.Tensor, Ref(total, 0), Ref(term, 0))
                nodes.append(total)
            nodes.pop()
            node.op, node.args = total.op, total.args
        nodes.append(node)
    return replace(graph, nodes=nodes)


def expand_buffers(graph: StepGraph) -> StepGraph:
    """Return the graph with the values of earlier steps instead of each tensor that only keeps the latest of them.

    Operators only move the entries of such a tensor and write one value, as torch.roll and buffer[0] = x do.
    """
    edges = nx.DiGraph([(ref.node, node) for node in graph.nodes if node.name in MOVES for ref in node.refs])
    groups = [group for group in nx.strongly_connected_components(edges) if edges.subgraph(group).edges]
    dropped: set[Node] = set()
    for group in groups:
        kept = [node for node in graph.nodes if node in group and any(d for u, d in graph.users[node] if u in group)]
        if len(kept) == 1 and _expand_buffer(graph, kept[0], [node for node in graph.nodes if node in group]):
            dropped |= {n for n in group - {kept[0]} if all(user in group for user, _ in graph.users[n])}
    return replace(graph, nodes=[node for node in graph.nodes if node not in dropped])


def _expand_buffer(graph: StepGraph, buffer: Node, group: list[Node]) -> bool:
    """Make a buffer the stack of a value in this step and in earlier ones; return whether it is one."""
    written = {(ref.node, ref.delay) for node in group for ref in node.refs if ref.node not in group}
    late = {ref.delay for node in group for ref in node.refs if ref.node is buffer}
    start = find_first_value(buffer, 1 - buffer.shift)
    has_constants = any(not operand.depends for node in group for operand in node.op.operands)
    if len(written) != 1 or late != {1} or start is None or has_constants or buffer in graph.returned:
        return False
    ((source, delay),) = written
    numbers = torch.arange(source.size)  # of entries; those of the buffer in the step before are negative
    places = {
        (source, delay): numbers.reshape(source.shape),
        (buffer, 1): -1 - torch.arange(buffer.size).reshape(buffer.shape),
    }
    for node in group:
        places[node, 0] = run_node(node, lambda ref: places[ref.node, ref.delay])
    written_at = places[buffer, 0].reshape(-1)
    entries, ages = written_at.clone(), torch.zeros_like(written_at)
    while bool((entries < 0).any()) and int(ages.max()) < graph.n_steps:
        ages += entries < 0
        entries = torch.where(entries < 0, written_at[-1 - entries.clamp(max=-1)], entries)
    for axis in range(len(buffer.shape)):
        age, rows = (v.reshape(buffer.shape).movedim(axis, 0).flatten(1) for v in (ages, entries))
        if rows.shape[1] == source.size and bool((rows == numbers).all()) and bool((age == age[:, :1]).all()):
            break
    else:
        return False
    delays = [delay + int(k) for k in age[:, 0]]
    for k, d in enumerate(delays):
        t = buffer.shift - 1 - d - source.shift  # when the source had what the buffer starts with
        first, known = start.select(axis, k).reshape(source.shape), find_first_value(source, -t - source.shift)
        if t >= 0 or (known is not None and not torch.equal(known, first)):
            return False
        source.values.setdefault(t, constant_op(first, buffer.op.site))
    is_row = source.shape == buffer.shape[:axis] + buffer.shape[axis + 1 :]
    func = aten.stack.default if is_row else aten.cat.default
    buffer.op = make_op(func, ([source.op] * len(delays), axis), {}, buffer.op.value, buffer.op.site)
    buffer.args, buffer.kwargs = ([Ref(source, d) for d in delays], axis), {}
    return True


def _make_node(func, *refs: Ref) -> Node:
    """Return a node of an elementwise operator of two nodes of the same shape."""
    first = refs[0].node.op
    return Node(make_op(func, tuple(ref.node.op for ref in refs), {}, first.value, first.site), refs)


def _make_register(like: Node, first: dict[int, torch.Tensor]) -> Node:
    """Return a node of a node's shape that is `first[k]` k steps before the first one, and 0 from then on."""
    zero = constant_op(torch.zeros_like(like.op.value), like.op.site)
    values = {-k: constant_op(value, like.op.site) for k, value in first.items()}
    register = Node(replace(zero, name=REGISTER, func=aten.mul.Tensor, depends=True), values=values)
    register.args = (Ref(register, 1), 0)
    return register
