"""Shift registers: states that hold what a module computes otherwise in its first steps than in all others."""

from dataclasses import replace

import torch

from nwcompile.frontend.torch.operators.graph import Node, Ref, StepGraph, find_first_value
from nwcompile.frontend.torch.operators.neurons import find_cores, is_elementwise, is_linear
from nwcompile.frontend.torch.operators.record import aten, constant_op, make_op
from nwcompile.frontend.torch.operators.roll import compute_before
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
        silent = {k: compute_before(node, k, set()) for k in first}
        if all(torch.equal(first[k], silent[k]) for k in first):
            continue
        node.values |= {-k - node.shift: constant_op(value, node.op.site) for k, value in silent.items()}
        register = make_register(node, {k: first[k] - silent[k] for k in first})
        added.append(register)
        late = [ref for user, delay in graph.users[node] if delay for ref in user.refs if ref.node is node]
        for delay in {ref.delay for ref in late}:
            terms = (Ref(node, delay), Ref(register, delay))
            total = Node(make_op(aten.add.Tensor, (node.op, register.op), {}, node.op.value, node.op.site), terms)
            added.append(total)
            for ref in (ref for ref in late if ref.node is node and ref.delay == delay):
                ref.node, ref.delay = total, 0
    return replace(graph, nodes=[*added, *graph.nodes])


def make_register(like: Node, first: dict[int, torch.Tensor]) -> Node:
    """Return a node of a node's shape that is `first[k]` k steps before the first one, and 0 from then on."""
    zero = constant_op(torch.zeros_like(like.op.value), like.op.site)
    op = make_op(aten.mul.Tensor, (zero, 0), {}, zero.value, like.op.site)
    values = {-k: constant_op(value, like.op.site) for k, value in first.items()}
    register = Node(replace(op, name=REGISTER, depends=True), values=values)
    register.args = (Ref(register, 1), 0)
    return register
