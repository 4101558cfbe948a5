"""Compare a module's results with its network's outputs, and turn what it computes after the layers into a readout."""

from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.operators.assemble import Assembler
from nwcompile.frontend.torch.operators.graph import MOVES, Node, StepGraph, find_first_value, is_ref
from nwcompile.frontend.torch.operators.neurons import is_of_messages
from nwcompile.frontend.torch.operators.ops import Op, is_op
from nwcompile.frontend.torch.operators.roll import FED, find_operands
from nwcompile.ir.network import Network
from nwcompile.ir.readout import OPERATORS, Readout, iterate_references
from nwcompile.ir.run import Run
from nwcompile.sim import simulate
from nwcompile.sim.sequence.readout import run_readout

ERROR_CODE = "NW2309"
OF_PLACE = ("device", "layout", "pin_memory", "memory_format", "non_blocking")  # options that change no value
UNNAMED = frozenset(  # operators that a description leaves out
    (
        "reshape", "view", "_unsafe_view", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "cat",
        "stack", "getitem", "_to_copy", "unbind", "select_scatter", "slice_scatter",
    )
)  # fmt: skip
CLOSE = 1e-4  # relative to the largest value of a result: sums in another order round otherwise
UNKNOWN = "?"
MOST_NAMED = 5  # operators that a warning lists


class Record(NamedTuple):
    """The spikes of a layer, or one of its states, times a factor."""

    layer: str
    state: str | None  # None: spikes
    factor: float = 1.0


class Records:
    """The spikes and states of all layers in several runs, `[S, T, n]`, by layer and state (None: spikes)."""

    def __init__(self, network: Network, run: Run):
        self.known: dict[tuple[str, str | None], torch.Tensor] = {}
        for name in network.layers:
            if network.node(name).neuron.fires:
                self._add(name, None, run.spikes[name])
            for state, values in run.states.get(name, {}).items():
                self._add(name, state, values)

    def _add(self, layer: str, state: str | None, values: np.ndarray) -> None:
        flat = np.asarray(values, np.float32).reshape(*values.shape[:2], -1)
        self.known[layer, state] = torch.from_numpy(flat)

    def find(self, values: torch.Tensor, layer: str) -> Record | None:
        """Return the record of the layer that has these values `[S, T, n]`, or None."""
        for key, record in self.known.items():
            if key[0] == layer and record.shape == values.shape and is_close(values.float(), record):
                return Record(*key)
        return None


def is_close(values: torch.Tensor, expected: torch.Tensor, tolerance: float = CLOSE) -> bool:
    """Return whether values are equal but for rounding: a part of the largest one."""
    return bool(((values - expected).abs() <= tolerance * max(float(expected.abs().max()), 1e-6)).all())


class ReadoutBuilder:
    """Builds the readout of a graph's results.

    `find_record(node or operator)` tells what of a layer it is, or None. `rolls`: whether operators that every step
    repeats become rows of every step; otherwise all run after the last step.
    """

    def __init__(self, graph: StepGraph, find_record: Callable[[Any], Record | None], rolls: bool = True):
        self.graph, self.n_steps, self.find_record = graph, graph.n_steps, find_record
        self.node_of = {op: place for op, place in graph.node_of.items() if rolls or find_record(place[0]) is not None}
        self.records: dict[Any, dict] = {}  # rows, by node or by the arguments of an operator "record"
        self.row_of: dict[Any, int] = {}  # of records and nodes
        self.after_of: dict[Op, int] = {}
        self.arrays: list[np.ndarray] = []
        self.array_of: dict[Any, int] = {}
        self.names: list[str] = []

    def build(self, outputs: list[Op]) -> Readout:
        """Return the readout of one operator, or of one for each step. Raises ModelError for what cannot be read."""
        if not outputs or not outputs[0].value.numel():
            raise ModelError("the module's result is empty")
        nodes, ops = self._find_needed(outputs)
        if not self.records:
            raise ModelError("the module's result takes nothing of its layers")
        n_spikes = sum(Node(op).is_spike for op in ops)
        most_spikes = 0 if len(outputs) > 1 else self.n_steps - 1  # a decision after the last step makes a few
        if any(node.is_spike for node in nodes) or n_spikes > most_spikes:
            raise ModelError("the module makes spikes of the states of its layers")
        self.row_of = {key: i for i, key in enumerate((*self.records, *nodes))}
        for key, record in self.records.items():
            before = self._initial_values(key, nodes) if isinstance(key, Node) else {}
            record |= {"before": before} if before else {}
        rows = list(self.records.values())
        for node in nodes:
            row = self._make_row(node.op, node.args, node.kwargs)
            if node in self.graph.sums:
                self.names[-1] = "sum"
            before = self._initial_values(node, nodes)
            rows.append(row | ({"before": before} if before else {}))
        after = []
        for op in ops:
            after.append(self._make_row(op, op.args, op.kwargs))
            self.after_of[op] = len(self.after_of)
        result = self._refer_all(outputs)
        value = outputs[0].value
        readout = Readout(
            per_step=tuple(rows),
            after=tuple(after),
            result=result,
            arrays=tuple(self.arrays),
            shape=tuple(value.shape),
            is_whole=not value.dtype.is_floating_point,
            n_steps=self.n_steps,
        )
        return replace(readout, text=self._describe(readout))

    def _describe(self, readout: Readout) -> str:
        """Return the class that a readout gives, in words: its operators in order."""
        texts = (
            repr(row["layer"]) if row["state"] is None else f"state {row['state']!r} of {row['layer']!r}"
            for row in self.records.values()
        )
        layers = " and ".join(dict.fromkeys(texts))
        sums = {self.row_of.get(node) for node in self.graph.sums}
        refs = [r for row in readout.after for r in iterate_references(row["arguments"])]
        refs += [*iterate_references(readout.result)]
        steps = {r["step"] for r in refs if "step" in r and r["row"] not in sums}
        done = [*dict.fromkeys(self.names), *(["the last step"] if steps == {-1} else [])]
        what = f"{', '.join(done)} of {layers}, as in the module" if done else f"{layers}, as in the module"
        if readout.is_class:
            return f"{what}, the most frequent of all steps" if readout.is_per_step else what
        return f"largest of {what}, summed over all steps" if readout.is_per_step else f"largest of {what}"

    def _find_needed(self, outputs: list[Op]) -> tuple[list[Node], list[Op]]:
        """Find the records; return the nodes and the operators after the last step that the outputs need, in order."""
        seen: set[Any] = set()
        waiting: list[Any] = list(outputs)
        while waiting:
            item = waiting.pop()
            if is_op(item) and item in self.node_of:
                item = self.node_of[item][0]
            key = item.args if is_op(item) and item.name == "record" else item
            if key in seen or (is_op(item) and not item.depends):
                continue
            seen.add(key)
            if (record := self.find_record(item)) is not None:
                like = (item.op if isinstance(item, Node) else item).value
                shape = {"shape": list(like.shape), "dtype": name_dtype(like.dtype)}
                self.records[key] = {**record._asdict(), **shape}
            elif item.name in ("input", "record"):
                raise ModelError("the module's result depends on more than what its layers do")
            else:
                waiting += [ref.node for ref in item.refs] if isinstance(item, Node) else item.operands
        nodes = [node for node in (*self.graph.nodes, *self.graph.sums) if node in seen and node not in self.records]
        ops = [item for item in seen if is_op(item) and item not in self.records]
        return nodes, sorted(ops, key=lambda op: op.serial)

    def _initial_values(self, node: Node, nodes: list[Node]) -> dict[str, dict]:
        """Return references to a node's values before the first step, by delay. Raises ModelError if there are none."""
        users = [(user, ref.delay) for user in nodes for ref in user.refs if ref.node is node and ref.delay]
        longest = max((delay for _, delay in users), default=0)
        is_sum = node.name == "add" and {user for user, _ in users} == {node}  # which starts from 0
        before = {}
        for k in range(1, longest + 1):
            if find_first_value(node, k) is None and not is_sum:
                raise ModelError(f"{node.op.site}: torch's {node.name} has no value before the first step")
            before[str(k)] = self._constant((node, k), self.graph.initial_value(node, k))
        return before

    def _make_row(self, op: Op, args, kwargs) -> dict:
        name = op.name
        if name not in OPERATORS:
            raise ModelError(f"{op.site}: torch's {name}, which no readout may use")
        self.names += [] if name in UNNAMED else [name.strip("_")]
        overload = "" if op.func is None else f".{op.func._overloadname}"
        options = {key: self._encode(value) for key, value in kwargs.items() if key not in OF_PLACE}
        return {"operator": name + overload, "arguments": self._encode(list(args)), "options": options}

    def _encode(self, value: Any) -> Any:
        """Return an argument in the form of a readout's rows."""
        if is_ref(value):
            return {"row": self.row_of[value.node], "delay": value.delay}
        if is_op(value):
            return self._refer(value)
        if isinstance(value, list | tuple):
            if len(value) == self.n_steps > 1 and all(is_op(v) and v.depends for v in value):
                return self._refer_all(list(value))
            return [self._encode(part) for part in value]
        if isinstance(value, torch.dtype):
            return {"dtype": name_dtype(value)}
        if isinstance(value, float) and not isfinite(value):
            return {"number": repr(value)}
        return value

    def _refer_all(self, ops: list[Op]) -> Any:
        """Return a reference to one operator, to one row in all steps, or a list of references."""
        refs = [self._refer(op) for op in ops]
        row = refs[0].get("row")
        if row is not None and refs == [{"row": row, "step": self._as_step(t)} for t in range(self.n_steps)]:
            return {"all": row}
        return refs[0] if len(refs) == 1 else refs

    def _refer(self, op: Op) -> dict:
        """Return a reference from after the last step."""
        if not op.depends:
            return self._constant(op, op.value)
        if op in self.node_of:
            node, t = self.node_of[op]
            return {"row": self.row_of[node], "step": self._as_step(t + node.shift)}
        if op.name == "record":
            return {"row": self.row_of[op.args], "step": self._as_step(op.step)}
        return {"after": self.after_of[op]}

    def _as_step(self, t: int) -> int:
        return -1 if t == self.n_steps - 1 else t

    def _constant(self, key: Any, value: Any) -> dict:
        if key not in self.array_of:
            constant = torch.as_tensor(value).detach().cpu().contiguous()
            if constant.dtype == torch.bfloat16:
                raise ModelError("the module's result takes constants in bfloat16, which no readout stores")
            self.array_of[key] = len(self.arrays)
            self.arrays.append(constant.numpy())
        return {"array": self.array_of[key]}


def verify_readout(readout: Readout, run: Run, expected: torch.Tensor) -> None:
    """Raise ModelError unless a readout of a network's run gives the module's results `[S, *]`.

    The steps may be on any axis of `expected`.
    """
    given = torch.from_numpy(run_readout(readout, run.spikes, run.states)).double()
    if given.numel() != expected.numel():
        raise ModelError(f"the readout gives {list(given.shape)}, and the module {list(expected.shape)}")
    axes = [axis for axis in range(2, expected.ndim) if expected.shape[axis] == given.shape[min(1, given.ndim - 1)]]
    orders = [expected, *(expected.movedim(axis, 1) for axis in axes)]
    if not any(is_close(given.reshape(-1), order.reshape(-1).double()) for order in orders):
        raise ModelError("the readout of the network's layers differs from the module's result")


def build_readout(
    graph: StepGraph,
    find_record: Callable[[Any], Record | None],
    outputs: list[Op],
    run: Run,
    expected: torch.Tensor,
) -> Readout:
    """Return a readout that gives the module's results `expected`, `[S, *]`, for a run of its network.

    A sum that begins late, or ends early, is none that every step continues: then nothing is taken for repeated. Raises
    ModelError if the readout needs more than the layers, or differs.
    """
    try:
        readout = ReadoutBuilder(graph, find_record).build(outputs)
        verify_readout(readout, run, expected)
    except ModelError:
        readout = ReadoutBuilder(graph, find_record, rolls=False).build(outputs)
        verify_readout(readout, run, expected)
    return readout


def record_layers(network: Network, inputs: torch.Tensor) -> Run:
    """Run a network on inputs `[S, T, *shape]`, with the states of all layers."""
    return simulate(network, inputs.float().cpu().numpy(), record="all")


def compare_layers(run: Run, spikes: dict[str, torch.Tensor]) -> list[bool]:
    """Return for each sample whether a network's run has the module's `spikes[layer]` `[S, T, *]`."""
    got = {name: torch.from_numpy(run.spikes[name]).float().reshape(given.shape) for name, given in spikes.items()}
    n_samples = len(next(iter(spikes.values()), ()))
    return [all(is_close(got[name][s], given[s].float()) for name, given in spikes.items()) for s in range(n_samples)]


def name_dtype(dtype: torch.dtype) -> str:
    """Return the name of a type without "torch."."""
    return str(dtype).removeprefix("torch.")


def describe_results(assembler: Assembler, runs: list[tuple[dict, dict]], sizes: list[int]) -> list[str]:
    """Return for each of the module's results what of it is no output of the network, in each step or summed, or "".

    `runs`: the values of the module's operators and of the graph's nodes, for several inputs. `sizes`: the number of
    operators of each result.
    """
    graph, network = assembler.graph, assembler.network
    things: list[str] = []
    start = 0
    for size in sizes:
        ops = graph.outputs[start : start + size]
        start += size
        is_later_state = len(ops) == 1 and len(things) > 0 and _is_state(ops[0])  # for the next call
        if is_later_state or not any(op.depends for op in ops):
            things.append("" if things else "a result that no input changes")
            continue
        result = [torch.stack([expected.get(op, op.value).reshape(-1) for op in ops]) for expected, _ in runs]
        thing = _describe_result(result, assembler, [values for _, values in runs], is_first=not things)
        things.append(_name_operators(ops, assembler) if thing == UNKNOWN else thing)
    return things if network.layers else [""] * len(things)


def _is_state(op: Op) -> bool:
    """Return whether an operator is a state of a part that is not looked into, but for a choice or view."""
    while op.name in MOVES and len(op.operands) == 1:
        op = op.operands[0]
    return op.name == "record" and op.args[1] != 0


def _name_operators(result: list[Op], assembler: Assembler) -> str:
    """Name the operators that a result takes and the network has not."""
    graph = assembler.graph
    operands = find_operands(result)
    taken = {(op.name, op.site) for op in operands}
    ops = [node.op for node in graph.nodes if node not in assembler.used] + graph.later
    ops = [op for op in ops if op.name not in (*MOVES, "getitem", "record", FED) and (op.name, op.site) in taken]
    read = {op.args[0] for op in operands if op.name == "record"}
    delays = [p for p in assembler.parts.values() if p.kind is None and p.name in read]
    texts = [f"{part.name!r} ({type(part.module).__name__})" for part in delays]
    texts += dict.fromkeys(f"torch's {op.name.strip('_')} ({op.site})" for op in ops)
    texts = texts or ["the choice of some steps or entries"]
    return " and ".join(texts[:MOST_NAMED]) + (f" and {len(texts) - MOST_NAMED} more" if texts[MOST_NAMED:] else "")


def _describe_result(result: list[torch.Tensor], assembler: Assembler, runs: list[dict], is_first: bool) -> str:
    """Return "" for the record or the sum of an output; else what the result is, or UNKNOWN.

    `is_first`: whether it is the module's first result. Others may be records of hidden layers.
    """
    graph, network = assembler.graph, assembler.network

    def is_record(node: Node) -> bool:
        return _is_record(result, [stack_steps(values, node, graph) for values in runs])

    for name in sorted(assembler.results, key=lambda name: name not in network.outputs):
        if is_record(assembler.results[name]):
            return "" if name in network.outputs or not is_first else f"the choice of the hidden layer {name!r}"
    states = [(node.op.args[0], node) for node in graph.nodes if node.name == "record" and node.op.args[1]]
    for name, region in assembler.layers.items():
        inside = [n for n in region.nodes if n.size == region.result.size and not is_of_messages(n, region.members)]
        states += [(name, node) for node in inside if region.fires]
    for name, node in states:
        if is_record(node):
            return (
                f"the membrane of layer {name!r} (Run.states of simulate(..., record='all') has what the layer keeps)"
            )
    return UNKNOWN


def _is_record(results: list[torch.Tensor], records: list[torch.Tensor]) -> bool:
    """Return whether results are the records, both `[T, n]`, or their sums `[1, n]`, times a positive number."""
    if results[0].shape != records[0].shape:
        records = [record.sum(0, keepdim=True) for record in records]
    if results[0].shape != records[0].shape:
        return False
    result, record = torch.cat(results).double(), torch.cat(records).double()
    return find_factor(result, record) > 0 if record.any() else not result.any()


def find_readout(
    assembler: Assembler,
    runs: list[tuple[dict, dict]],
    inputs: torch.Tensor,
    spikes: dict[str, torch.Tensor],
    outputs: list[Op],
) -> Readout | None:
    """Return the readout of the module's first result; None if it takes more than what the layers do.

    `inputs` `[S, T, *shape]` and `spikes[layer]` `[S, T, *]` of the module's runs. Drawn inputs on which the network's
    spikes differ, as rounding may make them, are left out.
    """
    graph, network = assembler.graph, assembler.network
    if not network.layers:
        return None
    run = record_layers(network, inputs)
    same = compare_layers(run, spikes)
    if not all(same) and same[0]:
        kept = [pair for pair, is_same in zip(runs, same, strict=True) if is_same]
        return find_readout(assembler, kept, inputs[same], {n: part[same] for n, part in spikes.items()}, outputs)
    records = Records(network, run)
    results = {node: name for name, node in assembler.results.items()}
    inside = {node: name for name, region in assembler.layers.items() for node in region.nodes}

    def find_record(item: Any) -> Record | None:
        if item.name == "record" and (item not in results or results[item] in assembler.parts):
            return _match_record(item, records, graph, runs)
        if item in results:
            neuron = network.node(results[item]).neuron
            return Record(results[item], None if neuron.fires else neuron.readout)
        if item not in inside or item.size != assembler.layers[inside[item]].result.size:
            return None
        values = torch.stack([stack_steps(values, item, graph) for _, values in runs])
        return records.find(values, inside[item])

    try:
        expected = [torch.stack([values.get(op, op.value) for op in outputs]) for values, _ in runs]
        return build_readout(graph, find_record, outputs, run, torch.stack(expected))
    except ModelError:
        return None


def _match_record(item: Any, records: Records, graph: StepGraph, runs: list[tuple[dict, dict]]) -> Record | None:
    """Return which layer's spikes or state a record is, in every step or in one, times a factor."""
    if is_op(item):
        layer, values = item.args[0], torch.stack([run.get(item, item.value).reshape(1, -1) for run, _ in runs])
    else:
        layer, values = item.op.args[0], torch.stack([stack_steps(known, item, graph) for _, known in runs])
    for (name, state), record in records.known.items():
        if name == layer:
            factor = find_factor(values, record[:, item.step : item.step + 1] if is_op(item) else record)
            if factor:
                return Record(layer, state, factor)
    return None


def find_factor(values: torch.Tensor, record: torch.Tensor) -> float:
    """Return the number by which values are the record's, or 0. Spikes may be worth more than 1."""
    values = values.detach().float()
    if values.shape != record.shape:
        return 0.0
    if is_close(values, record):
        return 1.0
    factor = float((values * record).sum() / (record * record).sum().clamp(min=1e-12))
    return factor if factor > 0 and is_close(values, factor * record) else 0.0


def describe_missing(things: list[str], network: Network, returns: str) -> str:
    """Return a sentence about things that a network lacks, and what the module returns; "" if nothing is missing."""
    if not things:
        return ""
    outputs = " and ".join(f"{name!r} of shape {list(network.node(name).shape)}" for name in network.outputs)
    return (
        f"the import left out {' and '.join(dict.fromkeys(things))}, so the network's answers may differ from the "
        f"module's: the module returns {returns}; the network gives {outputs} in each step"
    )


def stack_steps(values: dict, node: Node, graph: StepGraph) -> torch.Tensor:
    """Return a node's value in all steps, `[T, n]`."""
    return torch.stack([values[node, t].reshape(-1) for t in range(graph.n_steps)])
