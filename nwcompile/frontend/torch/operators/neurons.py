"""Divide the operators of a step into neurons, with their states and nonlinear functions, and what connects them."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import Any

import networkx as nx
import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.kind import simplify_program
from nwcompile.frontend.torch.operators.graph import (
    MOVES,
    Node,
    Ref,
    StepGraph,
    find_operand_nodes,
    is_ref,
    run_node,
)
from nwcompile.frontend.torch.operators.ops import is_op, list_leaves, map_leaves, run_op
from nwcompile.frontend.torch.operators.unroll import REGISTER, is_entrywise
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operand
from nwcompile.nn.neurons.trace import States, trace

ERROR_CODE = "NW2307"
WEIGHTED = ("addmm", "mm", "bmm", "convolution")
SUMS = ("add", "sub", "rsub", "neg")
MAXIMA = ("maximum", "minimum", "amax", "amin", "max_pool2d_with_indices", "max_pool3d_with_indices")
KEEPS_WHOLE = (*MOVES, *SUMS, *MAXIMA, "mul", "getitem")  # of whole numbers they make whole numbers
JOINING = {"cat", "stack", "constant_pad_nd", "select_scatter", "slice_scatter"}  # moves that add entries
SPLITTING = (MOVES - JOINING) | {"getitem"}


@dataclass(eq=False)
class Region:
    """Neurons of one layer: the nodes of their step in order, and the node that they send, or that is only read.

    `inputs`: what the step takes from outside; `signs`: with which sign each is added to the first one, [] if they are
    not added.
    """

    nodes: list[Node]
    result: Node
    fires: bool
    inputs: list[Ref] = field(default_factory=list)
    signs: list[int] = field(default_factory=list)

    @cached_property
    def members(self) -> set[Node]:
        """The nodes."""
        return set(self.nodes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the largest result of the step."""
        return max((n.shape for n in self.nodes), key=lambda shape: (prod(shape), len(shape)))

    @property
    def has_state(self) -> bool:
        """Whether the neurons take a value of their own from an earlier step."""
        taken = {ref.node: ref.delay for ref in self.inputs}
        return any(ref.delay > taken.get(ref.node, 0) for node in self.nodes for ref in node.refs)

    @property
    def path(self) -> str:
        """Path of the module that computes the neurons."""
        return self.result.op.site.path

    def __str__(self) -> str:
        """Return the place of the neurons in the code."""
        return str(self.result.op.site)


def find_regions(graph: StepGraph) -> list[Region]:
    """Return the neurons of a graph, in order; those that send two values are there twice."""
    cores = find_cores(graph)
    groups = _join_nodes(graph, cores)
    regions = [region for nodes in groups for region in _make_regions(graph, nodes, cores)]
    return [_find_inputs(region, graph) for region in regions]


def drop_sums(graph: StepGraph) -> StepGraph:
    """Return the graph without sums over the steps that only the module's result holds."""
    for node in reversed(graph.nodes):
        refs = node.refs
        terms = [ref for ref in refs if ref.node is not node]
        if node.name == "add" and len(refs) == 2 and len(terms) == 1 and {u for u, _ in graph.users[node]} == {node}:
            kept = [n for n in graph.nodes if n is not node]
            returned = (graph.returned - {node}) | {terms[0].node}
            later, sums = [*graph.later, node.op], [node, *graph.sums]
            return drop_sums(replace(graph, nodes=kept, returned=returned, later=later, sums=sums))
    return graph


def split_functions(graph: StepGraph) -> StepGraph:
    """Return the graph in which nonlinear functions whose result is split among neurons run after the split.

    So `torch.sigmoid(gates).chunk(2, 1)` is a sigmoid of each chunk, which is a part of the neurons.
    """
    fed = {node: {core} for node, core in find_cores(graph).items()}  # the neurons that alone use a node
    for node in reversed(graph.nodes):
        users = [user for user, _ in graph.users[node]]
        if users and node not in fed and is_elementwise(node) and all(user in fed for user in users):
            fed[node] = set().union(*(fed[user] for user in users))

    def find_parts(node: Node) -> list[Node]:  # the last moves before the neurons; [] if anything else takes entries
        parts: list[Node] = []
        for user, delay in graph.users[node]:
            if user.name not in SPLITTING or len(user.refs) > 1 or delay or user in graph.returned:
                return []
            cores = [fed.get(reader, set()) for reader, _ in graph.users[user]]
            is_last = bool(cores) and all(cores) and len(set().union(*cores)) == 1
            further = [user] if is_last else find_parts(user)
            if not further:
                return []
            parts += further
        return parts

    for function in reversed(graph.nodes):
        parts = find_parts(function) if _is_function(function) and function not in graph.returned else []
        if any(part.size < function.size for part in parts):
            nodes: list[Node] = []
            for node in graph.nodes:
                if node in parts:
                    moved = {ref.node: _move_operand(ref.node, node, function, nodes) for ref in function.refs}
                    after = _copy_node(function, moved)
                    node.recorded = replace(node)  # torch rounds a function of fewer entries otherwise
                    node.op, node.args, node.kwargs = after.op, after.args, after.kwargs
                nodes.append(node)
            nodes = [n for n in nodes if function not in find_operand_nodes([n], lambda ref: not ref.delay)]
            return split_functions(replace(graph, nodes=nodes))
    return graph


def _is_function(node: Node) -> bool:
    """Return whether an operator is a nonlinear function of each entry of one value, or a linear one of such."""
    is_alone = all(not ref.delay and ref.node.shape == node.shape for ref in node.refs)
    has_arrays = any(op.value.numel() > 1 for op in node.op.operands if not op.depends)
    if not is_elementwise(node) or node.is_message or has_arrays or not is_alone:
        return False
    return any(_is_function(ref.node) for ref in node.refs) if is_linear(node) else len(node.refs) == 1


def _move_operand(operand: Node, move: Node, function: Node, nodes: list[Node]) -> Node:
    """Return a node that moves an operand of a function as `move` does its result; append the new nodes."""
    if move is function:
        return operand
    source = move.refs[0].node
    nodes.append(_copy_node(move, {source: _move_operand(operand, source, function, nodes)}))
    return nodes[-1]


def _copy_node(node: Node, operands: dict[Node, Node]) -> Node:
    """Return a node that computes what a node does, from other operands."""
    args, kwargs = map_leaves(lambda a: Ref(operands[a.node], 0) if is_ref(a) else a, (node.args, node.kwargs))
    plain, named = map_leaves(lambda a: a.node.op if is_ref(a) else a, (args, kwargs))
    return Node(run_op(node.op.func, plain, named, node.op.site), args, kwargs, shift=node.shift)


def is_elementwise(node: Node) -> bool:
    """Return whether an operator computes every entry alone, and so may be part of a neuron."""
    return node.op.func is not None and is_entrywise(node.op)


def _may_loop(node: Node) -> bool:
    """Return whether an operator may lie between a state and its next value."""
    whole = node.refs[0].node if node.name == "getitem" else node
    return is_elementwise(node) or node.name == "reshape" or whole.name == "native_batch_norm"


def find_cores(graph: StepGraph) -> dict[Node, int]:
    """Return the group of every node that lies between a state and its next value."""
    edges = nx.DiGraph()
    nodes = [node for node in graph.nodes if _may_loop(node)]
    edges.add_nodes_from(nodes)
    edges.add_edges_from((ref.node, node) for node in nodes for ref in node.refs if _may_loop(ref.node))
    groups = [g for g in nx.strongly_connected_components(edges) if len(g) > 1 or any(edges.has_edge(n, n) for n in g)]
    return {node: k for k, group in enumerate(groups) for node in group}


def is_linear(node: Node) -> bool:
    """Return whether an elementwise operator is a sum, or a product with a constant."""
    if node.name == "mul":
        return len(node.refs) < 2
    if node.name == "div":
        return not is_ref(node.args[1]) and node.kwargs.get("rounding_mode") is None
    return node.name in SUMS or (node.name == "_to_copy" and not node.is_spike)


def _is_message(ref: Ref, node: Node, cores: dict[Node, int]) -> bool:
    """Return whether a node takes a result as a message of other neurons, not as a value of its own."""
    sends = ref.node.is_message or _is_product_of_spikes(ref.node)
    return sends and not (ref.node in cores and cores.get(node) == cores[ref.node])


def _is_product_of_spikes(node: Node) -> bool:
    """Return whether a node multiplies spikes of layers that are not looked into with such spikes or the input."""
    factors = [ref.node for ref in node.refs] if node.name == "mul" and len(node.refs) == 2 else []
    return any(map(_is_of_spikes, factors)) and all(_is_of_spikes(n, ("record", "input")) for n in factors)


def _is_of_spikes(node: Node, sources: tuple[str, ...] = ("record",)) -> bool:
    """Return whether a node is spikes, 1 - spikes, or a product of spikes; `sources`: names of what gives spikes."""
    if node.name in sources or _is_product_of_spikes(node):
        return True
    is_same = node.name in MOVES or (is_elementwise(node) and is_linear(node))
    return is_same and len(node.refs) == 1 and _is_of_spikes(node.refs[0].node, sources)


def _join_nodes(graph: StepGraph, cores: dict[Node, int]) -> list[list[Node]]:
    """Return the nodes of each neuron: states, nonlinear functions, and what is computed between them."""
    inner = set(cores) | {node for node in graph.nodes if is_elementwise(node) and not is_linear(node)}
    inner |= {node for node in graph.nodes if _joins_states(node, graph, cores)}
    for node in graph.nodes:  # in order, so that one pass suffices: states are in cores
        if is_elementwise(node) and any(r.node in inner and not _is_message(r, node, cores) for r in node.refs):
            inner.add(node)
    joined = nx.utils.UnionFind(inner)
    for node in inner:
        for ref in node.refs:
            if ref.node in inner and not _is_message(ref, node, cores):
                joined.union(ref.node, node)
    groups = defaultdict(list)
    for node in graph.nodes:
        if node in inner:
            groups[joined[node]].append(node)
    place = {node: i for i, node in enumerate(graph.nodes)}
    return sorted(groups.values(), key=lambda nodes: place[nodes[-1]])


def _joins_states(node: Node, graph: StepGraph, cores: dict[Node, int]) -> bool:
    """Return whether a node only adds or drops axes of one entry, between two states of the same neurons."""
    if node.name != "reshape" or not node.refs or node.refs[0].node not in cores or node.refs[0].node.is_message:
        return False
    is_between = any(user in cores for user, _ in graph.users[node])
    return is_between and drop_ones(node.op.value.shape) == drop_ones(node.refs[0].node.op.value.shape)


def _make_regions(graph: StepGraph, nodes: list[Node], cores: dict[Node, int]) -> list[Region]:
    """Return one region for each value that other layers take as a message; else one that is only read."""
    members = set(nodes)
    read = [n for n in nodes if n in graph.returned or any(user not in members for user, _ in graph.users[n])]
    results = dict.fromkeys(_drop_factor(node, members) for node in read)
    sent = [n for n in results if is_of_messages(n, members) or _feeds_layer(graph, n, members, cores)]
    return [Region(nodes, n, True) for n in sent] or [Region(nodes, n, False) for n in list(results)[-1:] or nodes[-1:]]


def is_of_messages(node: Node, members: set[Node]) -> bool:
    """Return whether a node is a message, or is computed from messages and truth values only."""
    if node.is_message or node.dtype == torch.bool:
        return True
    refs = node.refs
    return bool(refs) and all(r.node in members and not r.delay and is_of_messages(r.node, members) for r in refs)


def is_whole(node: Node) -> bool:
    """Return whether a node is spikes, or a sum, product or maximum of spikes and whole numbers, in the same step."""
    if node.is_message or node.dtype == torch.bool or node.name == "record":
        return True
    numbers = (a.value if is_op(a) else a for a in list_leaves(node.args) if is_op(a) or isinstance(a, int | float))
    is_kept = node.name in KEEPS_WHOLE and all(not torch.as_tensor(n).double().frac().any() for n in numbers)
    return is_kept and bool(node.refs) and all(not r.delay and is_whole(r.node) for r in node.refs)


def _drop_factor(node: Node, members: set[Node]) -> Node:
    """Return the spikes of which a node is a multiple, or else the node."""
    source = node
    while source.name in ("mul", "div") and is_linear(source):
        (ref,) = source.refs
        if ref.delay or ref.node not in members:
            break
        source = ref.node
    return source if source.is_message else node


def _feeds_layer(graph: StepGraph, node: Node, members: set[Node], cores: dict[Node, int]) -> bool:
    """Return whether neurons take a node's result, or the same ones through a map."""
    waiting, seen = [node], {node}
    while waiting:
        source = waiting.pop()
        for user, _ in graph.users[source]:
            if user in members and source not in members:
                return True
            if user in members or user in seen:
                continue
            is_sum = len(user.refs) == 2 and user in {ref.node for ref in user.refs}
            is_map = user.name in WEIGHTED or (is_elementwise(user) and not is_linear(user) and not is_sum)
            if user.is_message or (user in cores and not is_sum) or (graph.sends_membranes and is_map):
                return True
            seen.add(user)
            waiting.append(user)
    return False


def _find_inputs(region: Region, graph: StepGraph) -> Region:
    """Return the region with its inputs; scalings before it become a part of it if it has fewer inputs so."""
    nodes = list(region.nodes)
    fewest = len({ref.node for ref in _outer_refs(nodes)})
    while True:
        refs = _outer_refs(nodes)
        names = {ref.node for ref in refs}
        if len(names) <= fewest:
            fewest, best = len(names), (list(nodes), refs)
        scalings = [node for node in names if _is_scaling(node, set(nodes), graph)]
        if not scalings:
            break
        members = {*nodes, scalings[0]}
        nodes = [node for node in graph.nodes if node in members]
    nodes, refs = best
    first: dict[Node, Ref] = {}
    for ref in refs:
        if ref.node not in first or ref.delay < first[ref.node].delay:
            first[ref.node] = ref
    region = Region(nodes, region.result, region.fires, list(first.values()))
    return replace(region, signs=_find_signs(region, graph) or [])


def _outer_refs(nodes: list[Node]) -> list[Ref]:
    """Return the references of nodes to others, without repetition."""
    members = set(nodes)
    return list({(r.node, r.delay): r for node in nodes for r in node.refs if r.node not in members}.values())


def _is_scaling(node: Node, members: set[Node], graph: StepGraph) -> bool:
    """Return whether a node scales one value, for these members only, in the same step."""
    is_linear_one = is_elementwise(node) and is_linear(node) and len(node.refs) == 1 and not node.refs[0].delay
    is_inside = all(user in members and not delay for user, delay in graph.users[node])
    return is_linear_one and node not in graph.returned and is_inside


def _find_signs(region: Region, graph: StepGraph) -> list[int] | None:
    """Return the sign with which each input is added where all are first joined; None if they are not added."""
    if len(region.inputs) < 2:
        return [1] * len(region.inputs)
    if any(node.name == REGISTER for node in region.nodes):  # each input is corrected alone, without rounding
        return None
    ways = [_follow_sums(ref, region, graph) for ref in region.inputs]
    shared = [node for node in ways[0] if all(node in way for way in ways)]
    return [way[shared[0]] * ways[0][shared[0]] for way in ways] if shared else None


def _follow_sums(ref: Ref, region: Region, graph: StepGraph) -> dict[Node, int]:
    """Return the sums through which an input goes, in order, and its sign in each."""
    ways, sign = {}, 1
    takes = [n for n in region.nodes if any(r.node is ref.node and r.delay == ref.delay for r in n.refs)]
    node = takes[0] if len(takes) == 1 else None
    previous = ref.node
    while node is not None and node.name in SUMS and len(node.refs) <= 2:
        if node.kwargs.get("alpha", 1) != 1 or len(node.args) > 2 or sum(r.node is previous for r in node.refs) != 1:
            break
        is_second = len(node.args) > 1 and is_ref(node.args[1]) and node.args[1].node is previous
        if node.name == "neg" or (node.name == "sub" and is_second) or (node.name == "rsub" and not is_second):
            sign = -sign
        ways[node] = sign
        users = graph.users[node]
        is_last = len(users) != 1 or users[0][1] or node is region.result
        previous, node = node, None if is_last else users[0][0]
        if node not in region.members:
            break
    return ways


def build_program(region: Region, graph: StepGraph, name: str) -> NeuronProgram:
    """Return the step of a region's neurons as a program, with an input for each of the region's that are not added.

    Raises ModelError, naming the place, for operators that no program has.
    """
    states = _find_states(region)
    taken = region.inputs[:1] if region.signs else region.inputs  # what is added before the step is in the first one
    dtypes = (n.dtype for n in region.nodes if n.dtype is not None and n.dtype.is_floating_point)
    example = torch.zeros(1, *drop_ones(region.shape), dtype=next(dtypes, torch.float32))
    is_reshaped = any(
        drop_ones(n.shape) != drop_ones(n.refs[0].node.shape) for n in region.nodes if n.name == "reshape"
    )

    def find_shape(node: Node) -> tuple[int, ...]:  # a view to another shape is the same neurons
        return region.shape if is_reshaped and node.size == prod(region.shape) else node.shape

    def fit_constant(value: Any, node: Node) -> Any:
        value = _fill_equal(value) if node.name == "heaviside" else value
        is_spread = is_reshaped and isinstance(value, torch.Tensor) and value.numel() > 1
        return value.expand(node.shape).reshape(find_shape(node)) if is_spread else value

    def step(state: States, *sums: torch.Tensor, **_) -> tuple[dict, torch.Tensor | None]:
        values: dict[tuple[Node, int], Any] = {}
        for (node, delay), key in states.items():
            value = getattr(state, key).reshape(find_shape(node))
            values[node, delay] = value != 0 if node.dtype == torch.bool else value
        for ref in region.inputs:
            values[ref.node, ref.delay] = torch.zeros((), dtype=example.dtype)
        for ref, x in zip(taken, sums, strict=False):  # neurons without an input have one
            values[ref.node, ref.delay] = x.reshape(
                find_shape(ref.node) if ref.node.size == x.numel() else region.shape
            )
        for node in region.nodes:
            if is_reshaped and node.name == "reshape":
                values[node, 0] = values[node.refs[0].node, node.refs[0].delay]
                continue
            fit = partial(fit_constant, node=node)
            values[node, 0] = run_node(node, lambda ref: values[ref.node, ref.delay], find_constant=fit)
        becomes = {key: values[node, delay - 1] for (node, delay), key in states.items()}
        if not region.fires:
            read = states.get((region.result, 1), "y")
            return {read: values[region.result, 0], **becomes}, None
        return becomes, values[region.result, 0]

    initial = {
        key: _read_constant(region, graph.initial_value(node, delay).to(example.dtype), example)
        for (node, delay), key in states.items()
    }
    try:
        program = trace(step, name, {}, initial=initial, example=[example] * max(len(taken), 1))
    except RuntimeError as e:  # of torch, for example for truth values that are given as numbers
        raise ModelError(f"{region}: these neurons cannot be written as a program: {e}") from None
    except ModelError as e:
        raise ModelError(f"{region}: {str(e).removeprefix(f'neuron {name!r}: ')}") from None

    def read_constant(_name: str, value: torch.Tensor):
        return _read_constant(region, value, example)

    return _merge_states(simplify_program(program, read_constant), read_constant)


def _fill_equal(value: torch.Tensor) -> torch.Tensor:
    """Return a constant of equal entries as a tensor that torch fills, which the tracer reads as one number.

    With a number as its value at 0, heaviside is a comparison.
    """
    first = value.reshape(-1)[0].item()
    return torch.full_like(value, first) if bool((value == first).all()) else value


def _merge_states(program: NeuronProgram, read_constant: Callable) -> NeuronProgram:
    """Return the program with one state for those that start and continue alike."""
    kept: dict[tuple, str] = {}
    merged: dict[Operand, Operand] = {}
    for state in program.states:
        key = (state.next, np.asarray(state.initial).tobytes())
        if key in kept and state.name != program.output:
            merged[state.name] = kept[key]
        kept.setdefault(key, state.name)
    if not merged:
        return program
    operations = tuple(replace(o, operands=tuple(merged.get(a, a) for a in o.operands)) for o in program.operations)
    states = tuple(replace(s, next=merged.get(s.next, s.next)) for s in program.states if s.name not in merged)
    program = simplify_program(program.replace(operations=operations, states=states), read_constant)
    return _merge_states(program, read_constant)


def _find_states(region: Region) -> dict[tuple[Node, int], str]:
    """Return a name for each value of an earlier step that the region takes from itself, by node and delay."""
    inputs = {ref.node: ref.delay for ref in region.inputs}
    longest: dict[Node, int] = {}
    for node in region.nodes:
        for ref in node.refs:
            if ref.delay > inputs.get(ref.node, 0):
                longest[ref.node] = max(longest.get(ref.node, 0), ref.delay)
    place = {node: i for i, node in enumerate([*inputs, *region.nodes])}
    ordered = sorted(longest, key=place.__getitem__)
    before = [n for n in ordered if n in inputs]
    spikes = [n for n in ordered if n not in inputs and (n.is_message or n.dtype == torch.bool)]
    others = [n for n in reversed(ordered) if n not in inputs and n not in spikes]
    groups = (("v", others), ("z", spikes), ("x_before", before))
    names = {n: f"{stem}{k + 1 if k else ''}" for stem, some in groups for k, n in enumerate(some)}
    return {
        (n, d): names[n] + (f"_{d}" if d > inputs.get(n, 0) + 1 else "")
        for n in (*others, *spikes, *before)
        for d in range(inputs.get(n, 0) + 1, longest[n] + 1)
    }


def drop_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without axes of one entry."""
    return tuple(n for n in shape if n != 1) or (1,)


def _read_constant(region: Region, value: torch.Tensor, example: torch.Tensor):
    """Return a constant as one number if all entries are equal, else as an array for the layer's shape."""
    value = torch.as_tensor(value).detach().cpu()
    if value.numel() and bool((value == value.reshape(-1)[0]).all()):
        return value.reshape(-1)[0].item()
    is_whole_shape = drop_ones(tuple(value.shape)) == drop_ones(region.shape)
    try:
        whole = value if is_whole_shape else value.expand(region.shape)
        return whole.reshape(example.shape[1:]).to(example.dtype).numpy().copy()
    except RuntimeError:
        raise ModelError(
            f"{region}: a constant of shape {list(value.shape)} does not fit neurons of {list(region.shape)}"
        ) from None
