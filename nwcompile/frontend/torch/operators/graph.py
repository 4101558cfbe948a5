"""The graph of one step: its nodes, what they take from earlier steps, and the values that they compute."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.operators.ops import Op, call_operator, is_op, list_leaves, map_leaves

ERROR_CODE = "NW2307"
QUANTIZERS = ("where", "masked_fill", "round", "heaviside", "sign", "floor", "ceil", "trunc", "floor_divide")
MOVES = frozenset(
    (
        "reshape", "view", "_unsafe_view", "select", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand",
        "cat", "stack", "slice", "flip", "repeat", "unbind", "split", "split_with_sizes", "unsafe_split",
        "constant_pad_nd", "index_select", "index", "roll", "pixel_shuffle", "select_scatter", "slice_scatter",
    )
)  # fmt: skip


@dataclass(eq=False)
class Ref:
    """The result of a node, `delay` steps ago."""

    node: "Node"
    delay: int


@dataclass(eq=False, repr=False)
class Node:
    """An operator of every step; `args` and `kwargs` hold Refs for what depends on the input.

    `values[t]` is its operator in step t of the example; t < 0, or a value that is no operator: before the first step.
    """

    op: Op
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)
    shift: int = 0  # steps by which the node runs later than in the module
    recorded: "Node | None" = None  # as the module runs it, if an equal node has taken its place

    def __post_init__(self):
        self._refs: tuple[Any, Any, list[Ref]] = (None, None, [])  # the arguments, and the references among them

    @property
    def name(self) -> str:
        """Name of the operator."""
        return self.op.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result, with axes of one sample and one step; () for a tuple."""
        return tuple(getattr(self.op.value, "shape", ()))

    @property
    def size(self) -> int:
        """Number of entries of the result."""
        return prod(self.shape)

    @property
    def refs(self) -> list[Ref]:
        """References among the arguments, in order."""
        args, kwargs, known = self._refs
        if args is not self.args or kwargs is not self.kwargs:  # a node may get other arguments
            known = [a for a in list_leaves((self.args, self.kwargs)) if is_ref(a)]
            self._refs = (self.args, self.kwargs, known)
        return known

    @property
    def is_spike(self) -> bool:
        """Whether the result is a truth value as a number."""
        return self.op.is_spike

    @property
    def is_message(self) -> bool:
        """Whether the result may be a message: a truth value as a number, or a rounded number."""
        return self.is_spike or self.name in QUANTIZERS or self.kwargs.get("rounding_mode") is not None

    @property
    def dtype(self) -> torch.dtype | None:
        """Type of the result; None for a tuple."""
        return getattr(self.op.value, "dtype", None)


@dataclass(eq=False)
class StepGraph:
    """The operators of one step in order, and the module's results.

    `inputs`: the input operator of each step. `returned`: nodes that the module returns, or from which it computes its
    result after the last step. `later`: operators that run after the last step. `ops` and `outputs`: all operators of
    single steps in order, and those that the module returns. `node_of`: the node and step of every operator of a step.
    `sums`: nodes that add up the steps for the module's result only, and are none of `nodes`. `sends_membranes`: maps
    of values that are not spikes are layers, even if only the module's result takes them; else the host computes them.
    """

    nodes: list[Node]
    inputs: list[Op]
    returned: set[Node]
    later: list[Op]
    ops: list[Op] = field(default_factory=list)
    outputs: list[Op] = field(default_factory=list)
    node_of: dict[Op, tuple[Node, int]] = field(default_factory=dict)
    sums: list[Node] = field(default_factory=list)
    sends_membranes: bool = False

    @property
    def n_steps(self) -> int:
        """Number of steps of the example."""
        return len(self.inputs)

    @cached_property
    def users(self) -> dict[Node, list[tuple[Node, int]]]:
        """Nodes that take each node's result, and the delay."""
        users = defaultdict(list)
        for node in self.nodes:
            for ref in node.refs:
                users[ref.node].append((node, ref.delay))
        return users

    @cached_property
    def longest_delays(self) -> dict[Node, int]:
        """The largest delay with which each node is read, if it is not 0."""
        longest: dict[Node, int] = {}
        for node in self.nodes:
            for ref in node.refs:
                if ref.delay:
                    longest[ref.node] = max(longest.get(ref.node, 0), ref.delay)
        return longest

    def initial_value(self, node: Node, delay: int) -> Any:
        """Return a node's value `delay` steps before the first one; 0 if the module does not use it."""
        value = find_first_value(node, delay)
        return pytree.tree_map_only(torch.Tensor, torch.zeros_like, node.op.value) if value is None else value


def is_ref(value) -> bool:
    """Return whether a value is a reference to a node."""
    return isinstance(value, Ref)


def find_operand_nodes(nodes: Iterable[Node], is_needed: Callable[[Ref], bool] = lambda ref: True) -> set[Node]:
    """Return the nodes whose results these need, through references that are needed, and these."""
    needed: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [ref.node for ref in node.refs if is_needed(ref)]
    return needed


def find_first_value(node: Node, delay: int) -> Any:
    """Return the value that the module gives a node before the first step, in the result's type; None if none."""
    value: Any = node.values.get(-delay - node.shift)
    if value is None or (is_op(value) and value.depends):
        return None
    value = value.value if is_op(value) else value
    likes, spec = pytree.tree_flatten(node.op.value)  # a split gives several tensors
    given = pytree.tree_leaves(value)
    if len(given) != len(likes) or not all(isinstance(v, torch.Tensor | int | float | bool) for v in given):
        raise ModelError(f"{node.op.site}: a state starts as {type(value).__name__}; start from a tensor or number")
    return pytree.tree_unflatten([_fit_value(v, like) for v, like in zip(given, likes, strict=True)], spec)


def _fit_value(value: Any, like: torch.Tensor) -> torch.Tensor:
    """Return a number or tensor in another one's type and shape."""
    value = torch.as_tensor(value, dtype=like.dtype)
    return value.reshape(like.shape) if value.numel() == like.numel() else value.expand(like.shape)


def run_graph(
    graph: StepGraph, inputs: list[torch.Tensor], records: dict[Op, torch.Tensor]
) -> dict[tuple[Node, int], Any]:
    """Return the values of all nodes in every step, by node and step, for the input and the records of each step."""
    values: dict[tuple[Node, int], Any] = {}
    for node, longest in graph.longest_delays.items():
        for k in range(1, longest + 1):
            values[node, -k] = graph.initial_value(node, k)
    for t in range(graph.n_steps):

        def find_value(ref: Ref, t: int = t) -> Any:
            place = ref.node, t - ref.delay
            if not ref.delay and place not in values:  # a recorded node needs it
                values[place] = run_node(ref.node, find_value)
            return values[place]

        for node in graph.nodes:
            with torch.no_grad():
                if node.name == "record":
                    values[node, t] = records[node.values[t]]
                else:
                    values[node, t] = inputs[t] if node.name == "input" else run_node(node.recorded or node, find_value)
    return values


def run_ops(graph: StepGraph, inputs: list[torch.Tensor], records: dict[Op, torch.Tensor]) -> dict[Op, Any]:
    """Return the values of all operators, as the module runs them, for the input of each step."""
    values: dict[Op, Any] = dict(records)
    for op in graph.ops:
        if op in values:
            continue
        if op.name == "input":
            values[op] = inputs[max(op.step, 0)]
            continue
        values[op] = call_operator(op.func, op.args, op.kwargs, lambda operand: values.get(operand, operand.value))
    return values


def run_node(node: Node, find_value: Callable[[Ref], Any], **options):
    """Return a node's result for the values of its references; `options` are those of `fill_arguments`."""
    args, kwargs = fill_arguments(node, find_value, **options)
    return args[0][args[1]] if node.op.func is None else node.op.func(*args, **kwargs)


def fill_arguments(
    node: Node, find_value: Callable[[Ref], Any], find_constant: Callable[[Any], Any] = lambda value: value
) -> tuple[tuple, dict]:
    """Return a node's arguments with values for its references and constants."""
    return map_leaves(
        lambda a: find_value(a) if is_ref(a) else find_constant(a.value) if is_op(a) else a, (node.args, node.kwargs)
    )


def verify_graph(
    graph: StepGraph, nodes: set[Node], inputs: list[torch.Tensor], records: dict[Op, torch.Tensor]
) -> tuple[dict, dict]:
    """Return the values of all operators and nodes; verify that `nodes` have the module's values in every step.

    `inputs`: the input of each step, the example's or another one. `records`: what the layers give that are not looked
    into. Raises ModelError, naming the first difference.
    """
    expected, values = run_ops(graph, inputs, records), run_graph(graph, inputs, records)
    wanted = [(t, i, node, op) for i, node in enumerate(graph.nodes) if node in nodes for t, op in node.values.items()]
    for t, _, node, op in sorted(wanted, key=lambda row: row[:2]):
        given = values.get((node, t + node.shift))
        if t < 0 or node.name in ("input", "record") or not is_op(op) or not isinstance(given, torch.Tensor):
            continue
        right = expected.get(op, op.value)  # a constant is not among the operators that were run
        is_same_size = given.numel() == right.numel()
        if not is_same_size or not torch.equal(given.float().reshape(-1), right.float().reshape(-1)):
            raise ModelError(
                f"{op.site}: {op.title} computes something else in step {t} of the example than in the others; start "
                "from fixed states, and compute every step alike"
            )
    return expected, values
