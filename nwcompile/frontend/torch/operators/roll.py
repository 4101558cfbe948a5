"""Find the operators that are the same in every step, and what each takes from earlier steps: a graph of one step."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import networkx as nx
import torch
from torch.utils import _pytree as pytree

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.operators.graph import (
    MOVES,
    Node,
    Ref,
    StepGraph,
    find_first_value,
    find_operand_nodes,
    is_ref,
    run_node,
)
from nwcompile.frontend.torch.operators.ops import NEVER, Op, aten, constant_op, is_op, list_leaves, map_leaves
from nwcompile.frontend.torch.operators.unroll import SAME_SHAPE

ERROR_CODE = "NW2307"
COPIES = ("clone", "detach", "alias", "lift_fresh")
SOURCES = ("input", "record")
FED = "fed"  # what a layer that is not looked into is given
ENTRY = "entry"  # of a map of the input, each of which is what one step takes
MIN_EQUAL = 2  # steps with the same operators


class DifferentStepsError(ModelError):
    """No two steps in a row of the example compute the same; those of a longer one may."""


class OneStepError(ModelError):
    """The module has no loop over steps, and its input has no axis of them."""


class StepEntriesError(ModelError):
    """The steps of the module are entries of one map of its input."""


def roll_steps(
    outputs: list[Op],
    inputs: list[Op],
    keeps_inputs: bool = True,
    keeps_spikes: bool = False,
    drops_zeros: bool = False,
    unread: Iterable[Op] = (),
) -> StepGraph:
    """Return the graph of one step that computes `outputs`, operators of single steps, from the input of each step.

    `keeps_inputs`: neurons take their input in the step in which the module gives it; else it may be delayed.
    `keeps_spikes`: spikes stay in the step in which the module compares, even if only later steps read them, and all
    neurons are silent before the first step.
    `drops_zeros`: a product with a number that is 0 depends on nothing. `unread`:
    operators, such as the last states, that show what every step computes if they are at places of those that are used.

    Raises ModelError if fewer than two steps in a row are the same. `verify_graph` tells whether the first steps are.
    """
    ops, used = select_used(outputs, drops_zeros)
    places = {(op.site, op.name) for op in ops} if unread else ()
    alike = [op for op in unread if (op.site, op.name) in places]
    if alike:
        ops, used = select_used([*outputs, *alike], drops_zeros)
    outputs = used[: len(outputs)]
    try:
        graph = _align_steps(ops, set(outputs), inputs)
    except ModelError as e:
        graph = _align_neurons(ops, set(outputs), inputs, e)
    if alike:
        needed = find_operands(outputs)
        graph.later = [op for op in graph.later if op in needed]
        read = [*outputs, *(o for op in graph.later for o in op.operands)]
        graph.returned = {graph.node_of[op][0] for op in read if op in graph.node_of}
    graph.ops, graph.outputs = ops, outputs
    _place_nodes(graph, keeps_inputs, keeps_spikes)
    return graph


def select_used(outputs: list[Op], drops_zeros: bool = False) -> tuple[list[Op], list[Op]]:
    """Return the operators that the outputs need, in order, and the outputs; copies and double views are dropped.

    `drops_zeros` as in `roll_steps`.
    """
    simple: dict[Op, Op] = {}
    looks_inside = all(op.name != FED for op in outputs)
    waiting = list(outputs)
    while waiting:
        op = waiting[-1]
        missing = [o for o in op.operands if o not in simple] if op not in simple and op.depends else []
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if op not in simple:
            simple[op] = _simplify_op(op, simple, looks_inside, drops_zeros) if op.depends else op
    outputs = [simple[op] for op in outputs]
    used, waiting = set(), list(outputs)
    while waiting:
        op = waiting.pop()
        if op in used:
            continue
        used.add(op)
        is_drawn = torch.Tag.nondeterministic_seeded in getattr(op.func, "tags", ())
        if is_drawn and op.kwargs.get("generator") is None:  # a generator of the module's own has a seed
            raise ModelError(
                f"{op.site}: torch's {op.name} draws random numbers; backends must agree, so that a chip draws none; "
                "leave the noise out in eval mode"
            )
        # Factors of a constant product that make it zero, whatever the others are: noise of strength 0.
        zeros = [o for o in op.operands if not o.value.any()] if op.name == "mul" and not op.depends else []
        waiting += zeros or op.operands
    return sorted((op for op in used if op.depends), key=lambda op: op.serial), outputs


def _simplify_op(op: Op, simple: dict[Op, Op], looks_inside: bool, drops_zeros: bool) -> Op:
    """Return an operator without copies, views of views and terms that cancel.

    `looks_inside`: whether layers of known classes are imported by their operators. `drops_zeros` as in `roll_steps`.
    """
    args, kwargs = map_leaves(lambda a: simple[a] if is_op(a) else a, (op.args, op.kwargs))
    first = args[0] if args and is_op(args[0]) and isinstance(args[0].value, torch.Tensor) else None
    factors = [simple[o] for o in op.operands]
    # The recurrence of a layer that has none is a product with zeros.
    zeros = [o for o in factors if not o.depends and not o.value.any()]
    is_zero = looks_inside and op.name == "mm" and bool(zeros)
    is_zero |= drops_zeros and op.name == "mul" and (0 in args[1:] or any(not o.value.ndim for o in zeros))
    if is_zero or (factors and not any(o.depends for o in factors)):
        return constant_op(op.value, op.site)
    part = _find_joined(op, args, kwargs)
    if part is not None and not part.depends:
        return constant_op(op.value, op.site)
    first = first if part is None else part
    if first is not None and isinstance(op.value, torch.Tensor):
        is_same_type = first.value.dtype == op.value.dtype
        if op.name in COPIES or (op.name == "_to_copy" and is_same_type):
            return first
        if op.name == "index_put" and _fills_mask(args):
            return replace(op, name="where", func=aten.where.self, args=(args[1][0], args[2], first), kwargs={})
        if part is not None or _keeps_order(op, first):
            while first.name == "reshape":
                first = first.args[0]
            if first.value.shape == op.value.shape and first.step == op.step:
                return first
            return replace(op, name="reshape", func=aten.reshape.default, args=(first, list(op.value.shape)), kwargs={})
        kept = _find_kept_term(op.name, args)
        if kept is not None and kept.value.shape == op.value.shape and kept.value.dtype == op.value.dtype:
            return kept
    return replace(op, args=args, kwargs=kwargs) if op.operands else op


def _find_kept_term(name: str, args: tuple) -> Op | None:
    """Return `hard` of (hard - soft) + soft, and of equal sums, in which spikes get the gradient of `soft`."""
    if len(args) != 2 or not all(map(is_op, args)) or name not in ("add", "sub"):
        return None
    a, b = args
    if name == "add":
        ways = [(a, "sub", 1, b), (b, "sub", 1, a)]
    else:
        ways = [(b, "sub", 0, a), (a, "add", 0, b), (a, "add", 1, b)]
    for total, inner, place, term in ways:
        if total.name == inner and len(total.args) == 2 and total.args[place] is term and is_op(total.args[1 - place]):
            return total.args[1 - place]
    return None


def _find_joined(op: Op, args: tuple, kwargs: dict) -> Op | None:
    """Return the tensor that a view takes out of a stack or concatenation: of states that are kept as one tensor."""
    view = args[0] if op.name == "getitem" else replace(op, args=args, kwargs=kwargs)
    whole, *places = view.args or [None]
    if view.name not in MOVES or not is_op(whole) or whole.name not in ("stack", "cat") or not whole.depends:
        return None
    parts, sizes = whole.args[0], [part.value.numel() for part in whole.args[0]]
    if len(parts) < 2 or not isinstance(op.value, torch.Tensor) or any(map(is_op, list_leaves(places))):
        return None
    numbers = torch.arange(sum(sizes)).split(sizes)
    shaped = [number.reshape(part.value.shape) for number, part in zip(numbers, parts, strict=True)]
    taken = view.func(whole.func(shaped, *whole.args[1:], **whole.kwargs), *places, **view.kwargs)
    taken = (taken[args[1]] if op.name == "getitem" else taken).reshape(-1)
    part = next((part for part, number in zip(parts, numbers, strict=True) if torch.equal(taken, number)), None)
    return part if part is not None and part.value.dtype == whole.value.dtype else None


def _fills_mask(args: tuple) -> bool:
    """Return whether `index_put` writes one number where a mask of the whole tensor is true."""
    base, indices, value, *accumulate = args
    is_whole = len(indices) == 1 and is_op(indices[0]) and indices[0].value.dtype == torch.bool
    return is_whole and indices[0].value.shape == base.value.shape and value.value.numel() == 1 and not any(accumulate)


def _keeps_order(op: Op, first: Op) -> bool:
    """Return whether the operator only changes the shape of its operand."""
    if op.value.numel() != first.value.numel() or not op.value.numel():
        return False
    if op.name in ("permute", "transpose", "t"):
        numbers = torch.arange(first.value.numel()).reshape(first.value.shape)
        return bool((op.func(numbers, *op.args[1:]).reshape(-1) == numbers.reshape(-1)).all())
    if op.name in ("sum", "mean"):
        return op.value.dtype == first.value.dtype  # over axes of one entry
    return op.name in ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "select", "slice", "expand", "unbind")


def _align_steps(ops: list[Op], outputs: set[Op], inputs: list[Op]) -> StepGraph:
    """Build the graph from the longest run of steps with the same operators, and follow it back to step 0."""
    n_steps = max(len(inputs), *(op.step + 1 for op in ops), 0)
    fixed = [op for op in ops if op.step == NEVER]
    steps = [[op for op in ops if op.step == t] for t in range(n_steps)]
    place = {op: i for step in (fixed, *steps) for i, op in enumerate(step)}
    hashes: dict[Op, Any] = {}
    first, last = _find_equal_steps(steps, place, hashes)
    nodes = [Node(op) for op in steps[last]]
    before = {op: Node(op, values=dict.fromkeys(range(-1, n_steps), op)) for op in fixed}

    def find_ref(value, now: int):
        if not is_op(value) or not value.depends:
            return value
        if value.step == NEVER:
            return Ref(before[value], 0)
        if value.step < first:
            raise ModelError(
                f"{value.site}: a step uses a value {now - value.step} steps old; give an example_input of more steps",
                code="NW2308",
            )
        return Ref(nodes[place[value]], now - value.step)

    for op, node in before.items():
        node.args, node.kwargs = map_leaves(lambda a: find_ref(a, 0), (op.args, op.kwargs))
    for node in nodes:
        given = (node.op.args, node.op.kwargs)
        node.args, node.kwargs = map_leaves(lambda a: find_ref(a, last), given)
    for i, node in enumerate(nodes):
        node.values = {t: steps[t][i] for t in range(first, last + 1)}
        for t in range(first + 1, last):
            _verify_operands(steps[t][i], node, first, place)
        if node.name == "input":
            node.values = dict(enumerate(inputs))
        if node.name == "record":
            node.values = {op.step: op for op in ops if op.name == "record" and op.args == node.op.args}
        if node.name == ENTRY:
            node.values = {op.step: op for op in ops if op.name == ENTRY and op.operands == node.op.operands}
    _follow_back(nodes, first, n_steps)
    node_of = {op: (node, t) for node in nodes for t, op in node.values.items() if is_op(op) and op.depends}
    node_of |= {op: (node, t) for node in nodes if node.name == "input" for t, op in node.values.items()}
    for t in (*range(first), *range(last + 1, n_steps)):
        _follow_on(nodes, steps[t], t, node_of, hashes)
    _merge_equal(nodes, node_of, hashes)
    later = [op for op in ops if op.step > NEVER and op not in node_of and op.step > last]
    read = outputs | {o for op in later for o in op.operands}
    returned = {node_of[op][0] for op in read if op in node_of}
    node_of |= {op: (node, 0) for op, node in before.items()}
    return StepGraph([*before.values(), *nodes], inputs, returned, later, node_of=node_of)


def _align_neurons(ops: list[Op], outputs: set[Op], inputs: list[Op], error: ModelError) -> StepGraph:
    """Align the steps without what follows the last spikes, which may have weights for each step.

    If the neurons differ from step to step, they may take entries of one map as steps; otherwise raises `error`.
    """
    for is_last in (lambda node: node.is_message, lambda node: node.is_spike, lambda node: False):
        needed = find_operands([op for op in ops if op.name == FED or is_last(Node(op))])
        rest = [op for op in ops if op not in needed]
        if not needed or not rest:
            continue
        read = {o for op in rest for o in op.operands} & needed
        with suppress(ModelError):
            graph = _align_steps([op for op in ops if op in needed], read, inputs)
            graph.later += rest
            return graph
    if _mark_entries(ops, len(inputs)):
        return _align_steps(ops, outputs, inputs)
    raise error


def _mark_entries(ops: list[Op], n_steps: int) -> bool:
    """Find entries of a map of the input that are the steps; give each the name ENTRY and the step that takes it."""
    groups: dict[Op, list[Op]] = defaultdict(list)
    users: dict[Op, set[int]] = defaultdict(set)
    for user in ops:
        for op in user.operands:
            users[op].add(user.step)
    for op in ops:
        is_part = op.name in ("getitem", "select", "slice") and op.operands[0].step == NEVER
        if is_part and len(users[op]) == 1 and op.step in {NEVER, *users[op]} and _find_map(op).name != "input":
            groups[op.operands[0]].append(op)
    whole = [group for group in groups.values() if sorted(min(users[op]) for op in group) == list(range(n_steps))]
    for op in (op for group in whole for op in group):
        op.name, op.step = ENTRY, min(users[op])
    return bool(whole)


def find_users(ops: list[Op], sources: list[Op]) -> set[Op]:
    """Return the operators, given in order, that depend on one of the sources, and these."""
    users = set(sources)
    for op in sorted(ops, key=lambda op: op.serial):
        if any(operand in users for operand in op.operands):
            users.add(op)
    return users


def find_operands(ops: list[Op]) -> set[Op]:
    """Return the operators that these need, and these, without constants."""
    needed: set[Op] = set()
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        if op not in needed and op.depends:
            needed.add(op)
            waiting += op.operands
    return needed


def _find_equal_steps(steps: list[list[Op]], place: dict[Op, int], hashes: dict) -> tuple[int, int]:
    """Return the first and last step of the longest run of steps with the same operators."""

    def describe(value, now: int):
        if not is_op(value) or not value.depends:
            return _hash_value(value, hashes)
        if value.step == NEVER:
            return "fixed", place[value]
        return now - value.step, place[value] * (value.step == now)

    def describe_op(op: Op, now: int) -> tuple:
        if op.name in SOURCES:
            return (op.name, *(op.args if op.name == "record" else ()))
        leaves = op.operands if op.name == ENTRY else list_leaves((op.args, op.kwargs))
        return (str(op.func), *(describe(a, now) for a in leaves))

    rows = [[describe_op(op, t) for op in step] for t, step in enumerate(steps)]
    best, start = (0, 0, 0), 0
    for t in range(1, len(rows) + 1):
        if t == len(rows) or rows[t] != rows[t - 1]:
            best, start = max(best, ((t - start) * bool(rows[start]), start, t - 1)), t
    if best[0] < MIN_EQUAL:
        raise _explain_difference(steps, rows)
    return best[1:]


def _explain_difference(steps: list[list[Op]], rows: list[list[tuple]]) -> ModelError:
    if len(steps) == 1:
        text = "the module computes one step; give the steps an axis, as layout='BT' takes it"
        return OneStepError(text, code="NW2308")
    if len(steps) < 2 * MIN_EQUAL:
        return ModelError(
            f"{len(steps)} steps are too few to find what every step computes; give an example of more steps, or, with "
            "layout='B', a module that runs more (nw.convert makes spiking networks of those that have no steps)",
            code="NW2308",
        )
    t = len(steps) // 2
    for before, now in zip(steps[t - 1], steps[t], strict=False):
        for one, other in zip(before.operands, now.operands, strict=False):
            is_entry = one.depends and other.depends and one.step == other.step == NEVER and one is not other
            if is_entry and (source := _find_map(other)).name != "input":
                return StepEntriesError(
                    f"{source.site}: the module takes its steps from torch's {source.name}, which gives each step by "
                    "weights of its own; a chip has the same weights in every step; compute this before the network, "
                    "and import the rest with layout='TB'"
                )
    pairs = zip(rows[t - 1], rows[t], steps[t], strict=False)
    op = next((op for one, other, op in pairs if one != other), steps[t][-1] if steps[t] else None)
    where = "" if op is None else f"{op.site}: {op.title}: "
    return DifferentStepsError(
        f"{where}step {t} of the example computes something else than step {t - 1}; a chip has one network, with the "
        "same numbers, for every step"
    )


def _find_map(op: Op) -> Op:
    """Return the operator of whose result an operator only takes entries."""
    while op.operands and (op.func is None or any(r.alias_info is not None for r in op.func._schema.returns)):
        op = op.operands[0]
    return op


def _hash_value(value, hashes: dict) -> Any:
    """Return a hash of a constant or number, -0 as 0; `hashes` keeps those of constants."""
    if not is_op(value) or not isinstance(value.value, torch.Tensor):
        return repr(value.value if is_op(value) else value)
    if value not in hashes:
        constant = value.value.detach()
        numbers = constant.float() if constant.dtype == torch.bfloat16 else constant
        bits = (numbers + 0 if numbers.is_floating_point() else numbers).contiguous().cpu().numpy().tobytes()
        hashes[value] = str(value.value.dtype), tuple(value.value.shape), hash(bits)
    return hashes[value]


def _verify_operands(op: Op, node: Node, first: int, place: dict[Op, int]) -> None:
    for value, ref in zip((o for o in op.operands if o.depends), node.refs, strict=True):
        if value.step >= first and ref.node.op.step != NEVER and place[value] != place[ref.node.op]:
            raise ModelError(
                f"{op.site}: torch's {op.name} takes another value in some steps; compute every step alike"
            )


def _follow_back(nodes: list[Node], first: int, n_steps: int) -> None:
    """Find every node's operators before step `first`, and its initial value, by the arguments of later steps."""
    waiting = [(node, first) for node in nodes]
    while waiting:
        node, t = waiting.pop()
        op = node.values[t]
        pairs = _match_partial_sum(node, op, t)
        if not pairs and is_op(op) and op.name == node.name:
            expected = list_leaves((node.args, node.kwargs))
            given = list_leaves((op.args, op.kwargs))
            is_swapped = node.name in ("add", "mul") and len(given) == 2 and is_op(given[0]) and not is_op(given[1])
            if is_swapped and all(map(is_ref, expected)) and expected[0].delay:  # torch writes 0 + x as x + 0
                given.reverse()
            pairs = list(zip(expected, given, strict=True)) if len(expected) == len(given) else []
        for ref, value in pairs:
            early = t - ref.delay if is_ref(ref) else -n_steps  # no value is read longer ago
            if early > -n_steps and early not in ref.node.values:
                ref.node.values[early] = value
                waiting.append((ref.node, early))


def _match_partial_sum(node: Node, op: Any, t: int) -> list[tuple[Ref, Any]]:
    """Return 0 for the late term of a sum, and `op` for the other one, if `op`, what it is in step t, is that alone."""
    terms = [a for a in node.args if is_ref(a)]
    late = [ref for ref in terms if ref.delay > t]
    if len(late) == 2 and is_op(op) and op.func is not None:  # before the first step both are: a map of spikes is late
        late = [ref for ref in late if ref.node.name not in SAME_SHAPE]
    is_sum = node.name in ("add", "sub") and len(terms) == 2 and len(late) == 1
    if not is_sum or (node.name, late[0]) == ("sub", terms[0]):
        return []
    place = terms.index(late[0])
    if is_op(op) and op.name == node.name:
        given, other = op.args[place], op.args[1 - place]
        if not (is_op(given) and given.depends and is_op(other)):  # torch writes 0 + x as x + 0
            return []
    return [(late[0], 0), (terms[1 - place], op)]


def _follow_on(nodes: list[Node], ops: list[Op], t: int, node_of: dict[Op, tuple[Node, int]], hashes: dict) -> None:
    """Find the operators of a step that has others too, by the nodes' arguments.

    Nodes that compute the same of the same values share an operator if the step has fewer of them.
    """

    def make_key(func, leaves, find) -> tuple:
        return str(func), *(find(a) or _hash_value(a, hashes) for a in leaves)

    waiting: dict[tuple, list[Op]] = defaultdict(list)
    for op in (op for op in ops if op not in node_of):
        leaves = list_leaves((op.args, op.kwargs))
        waiting[make_key(op.func, leaves, lambda a: is_op(a) and a.depends and id(a))].append(op)
    for node in nodes:
        leaves = list_leaves((node.args, node.kwargs))
        key = make_key(node.op.func, leaves, lambda a: is_ref(a) and id(a.node.values.get(t - a.delay)))
        alike = waiting[key]
        if t not in node.values and alike:
            op = node.values[t] = alike.pop(0) if len(alike) > 1 else alike[0]
            node_of.setdefault(op, (node, t))


def _merge_equal(nodes: list[Node], node_of: dict[Op, tuple[Node, int]], hashes: dict) -> None:
    """Merge nodes that compute the same of the same values: the spike of a state, asked for again in the next step."""
    kept: dict[tuple, Node] = {}
    merged: dict[Node, Node] = {}
    for node in list(nodes):
        for ref in node.refs:
            ref.node = merged.get(ref.node, ref.node)
        leaves = list_leaves((node.args, node.kwargs))
        key = (str(node.op.func), *((id(a.node), a.delay) if is_ref(a) else _hash_value(a, hashes) for a in leaves))
        if node.name not in SOURCES and key in kept:
            merged[node] = kept[key]
            kept[key].values = {**node.values, **kept[key].values}
            nodes.remove(node)
        kept.setdefault(key, node)
    for node in nodes:
        for ref in node.refs:
            ref.node = merged.get(ref.node, ref.node)
    for op, (node, t) in node_of.items():
        node_of[op] = merged.get(node, node), t


def _place_nodes(graph: StepGraph, keeps_inputs: bool, keeps_spikes: bool) -> None:
    """Move nodes to later steps while only later steps read them; so messages are sent in the step of the module.

    `keeps_spikes` as in `roll_steps`. If that delays the input, and `keeps_inputs`, move the inner nodes of neurons
    back as far as their operands allow.
    """
    reads: dict[Node, list[Ref]] = {node: [] for node in graph.nodes}
    for node in graph.nodes:
        for ref in node.refs:
            reads[ref.node].append(ref)
    fixed, stateless = graph.returned | _find_sums(graph), _find_stateless(graph)
    sent_late = {ref.node for node in graph.returned for ref in node.refs if ref.delay}  # spikes of the step before
    fixed |= {node for node in graph.nodes if keeps_spikes and node.is_message and node not in sent_late}
    inner = stateless | _find_inner(graph)

    def move_node(node: Node, late: int) -> None:
        for ref in reads[node]:
            ref.delay -= late
        for ref in node.refs:
            ref.delay += late
        node.shift += late

    staying = find_operand_nodes(fixed, lambda ref: not ref.delay)  # in the same step
    is_changed = True
    while is_changed:
        is_changed = False
        for node in reversed(graph.nodes):
            late = min((ref.delay for ref in reads[node]), default=0)
            starts = (_starts_alike(node, k, staying, keeps_spikes) for k in range(1, late + 1))
            if node not in fixed and late and node.refs and all(starts):
                move_node(node, late)
                is_changed = True
    is_changed = keeps_inputs and any(ref.delay for node in stateless for ref in reads[node])
    while is_changed:
        is_changed = False
        for node in graph.nodes:
            early = min([node.shift, *(ref.delay for ref in node.refs if ref.node is not node)])
            if node in inner and early:
                move_node(node, -early)
                is_changed = True
    now = nx.DiGraph([(ref.node, node) for node in graph.nodes for ref in node.refs if not ref.delay])
    now.add_nodes_from(graph.nodes)
    place = {node: i for i, node in enumerate(graph.nodes)}
    graph.nodes = list(nx.lexicographical_topological_sort(now, key=place.__getitem__))


def _find_sums(graph: StepGraph) -> set[Node]:
    """Return the nodes of sums that nothing else reads; without a result, they would move forever."""
    edges = nx.DiGraph([(ref.node, node) for node in graph.nodes for ref in node.refs])
    edges.add_nodes_from(graph.nodes)
    groups = nx.condensation(edges)
    return {node for g in groups if not groups.out_degree(g) for node in groups.nodes[g]["members"]}


def _find_stateless(graph: StepGraph) -> set[Node]:
    """Return the nodes that depend on the input of their step only."""
    stateless: set[Node] = set()
    for node in graph.nodes:
        if node.name == "input" or (node.refs and all(r.node in stateless and not r.delay for r in node.refs)):
            stateless.add(node)
    return stateless


def _find_inner(graph: StepGraph) -> set[Node]:
    """Return the nodes that only neurons themselves read."""
    linear = {ref.node for node in graph.nodes if node.name not in SAME_SHAPE for ref in node.refs}
    taken = linear | graph.returned
    return {n for n in graph.nodes if n.name in SAME_SHAPE and n not in taken and not n.is_message}


def _starts_alike(node: Node, delay: int, staying: set[Node], are_silent: bool) -> bool:
    """Return whether a node's initial value, if it has one, follows from the initial values of its operands.

    Operands without an initial value are computed too. Those of `staying`, which cannot move to a later step, are 0 in
    the moved graph, so the value must follow from 0 as well; or from 0 alone if the neurons are silent before.
    """
    value = find_first_value(node, delay)
    if value is None:
        return True
    ways = [compute_before(node, delay, silent) for silent in ([staying] if are_silent else [set[Node](), staying])]
    return all(all(map(torch.equal, pytree.tree_leaves(value), pytree.tree_leaves(computed))) for computed in ways)


def compute_before(node: Node, delay: int, silent: set[Node], depth: int = 8) -> torch.Tensor:
    """Return a node's value before the first step, computed from those of its operands.

    Operands without an initial value are computed too; those of `silent` are 0.
    """

    def find_value(ref: Ref):
        first = find_first_value(ref.node, delay + ref.delay)
        if first is None and (not depth or not ref.node.refs or ref.node in silent):
            return pytree.tree_map_only(torch.Tensor, torch.zeros_like, ref.node.op.value)
        return compute_before(ref.node, delay + ref.delay, silent, depth - 1) if first is None else first

    with torch.no_grad():
        return run_node(node, find_value)
