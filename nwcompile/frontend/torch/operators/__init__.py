"""Import a module from the ATen operators that it runs, whatever its neurons are called: neurons written by hand.

step                                                 function               file
run the module and record its operators              OperatorRecorder       record.py, own_operators.py
one operator for each step of time                   unroll_steps           unroll.py, step_rules.py, steps.py
the operators that every step repeats                roll_steps             roll.py
the graph of one step, and its values                StepGraph              graph.py
what only the first steps compute                    correct_starts         registers.py
neurons, and their step as a program                 find_regions           neurons.py
programs that are built-in neurons                   recognize_neuron       builtin.py
linear maps between the neurons                      Connector              connect.py
layers and connections                               import_operators       here
what the module returns, and computes after layers   describe_results, ...  readout.py
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from traceback import walk_tb
from typing import Any

import networkx as nx
import torch
from torch.utils import _pytree as pytree

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.build import READOUT, Builder
from nwcompile.frontend.torch.functions import is_binary
from nwcompile.frontend.torch.modules import Stepwise
from nwcompile.frontend.torch.operations import affine_operation
from nwcompile.frontend.torch.operators.builtin import recognize_neuron
from nwcompile.frontend.torch.operators.connect import MOVES, Connector
from nwcompile.frontend.torch.operators.graph import Node, StepGraph, find_operand_nodes, run_node, verify_graph
from nwcompile.frontend.torch.operators.neurons import (
    WEIGHTED,
    Region,
    build_program,
    drop_ones,
    drop_sums,
    find_regions,
)
from nwcompile.frontend.torch.operators.readout import describe_results, find_readout, stack_steps
from nwcompile.frontend.torch.operators.record import (
    PACKAGE,
    Op,
    OperatorRecorder,
    aten,
    find_raising_site,
    is_op,
    run_op,
)
from nwcompile.frontend.torch.operators.registers import choose_entries, correct_starts, expand_buffers
from nwcompile.frontend.torch.operators.roll import find_users, roll_steps
from nwcompile.frontend.torch.operators.steps import Steps, set_times
from nwcompile.frontend.torch.operators.unroll import NO_STATISTICS, unroll_steps
from nwcompile.frontend.torch.results import describe_missing
from nwcompile.frontend.torch.symbols import Picked, Pooled, Source, Symbol
from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.readout import Readout

ERROR_CODE = "NW2307"
NO_NEURONS = "the module has no neurons"
DRAWN_SCALES = (1.0, 8.0)  # of drawn inputs, relative to the largest of the example
ONE_VALUE = "Expected more than 1 value per channel"  # how torch refuses the norm of a batch of one sample
STEPPED = ("round", "heaviside")  # operators that make a spike of a number
HALF = (torch.float16, torch.bfloat16)
KEEPS_VALUE = (  # operators that choose between values, or compare them, and compute no new ones
    "where", "masked_fill", "minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "__and__", "__or__", "_to_copy", "reshape", *MOVES,
)  # fmt: skip
TIME_AXES = {"once": None, "TB": 0, "BT": 1, "B": 1}  # of the input, by its leading axes
MOST_INPUTS = 4  # of neurons that are tried with every combination of spikes


@dataclass(frozen=True, eq=False)
class Imported:
    """A network, and the module's spikes of each layer for the example and for drawn inputs `[S, T, *shape]`.

    `n_states`: the number of states of all neurons. `lead`: the leading axes of the module's input. `read_output`:
    returns the readout of a first result that is an output of the network; None if it is none.
    """

    network: Network
    spikes: dict[str, torch.Tensor]
    drawn: torch.Tensor
    drawn_spikes: dict[str, torch.Tensor]
    n_steps: int
    n_states: int
    lead: str
    read_output: Callable[[], Readout | None] | None


class ModuleFailedError(Exception):
    """The module raised an exception on the example."""


def _is_raised_by_layer(error: Exception) -> bool:
    """Return whether a layer of nwcompile.nn raised an exception, for example for an input of another size."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return frame.f_code.co_filename.startswith(f"{PACKAGE}nn/layers/")


def import_operators(module: torch.nn.Module, x: torch.Tensor, lead: str, input_name: str) -> Imported:
    """Return the network that a module computes on one sample of the example `x`, `[B, T, *shape]`.

    `lead`: the leading axes of the module's input: "BT", "TB", "B" (one step after the other), or "once". The module is
    in eval mode with cleared states. Raises ModelError, naming the place in the module's code, for what cannot be
    followed, and ModuleFailedError if the module cannot be run so.
    """
    sample = x[:1]
    try:
        recorder, result = record_run(module, sample, lead)
    except Exception as e:
        if isinstance(e, NwError) and not _is_raised_by_layer(e):
            raise
        site = find_raising_site(e)
        if ONE_VALUE in str(e):
            raise ModelError(f"{site}: {NO_STATISTICS}") from None
        raise ModuleFailedError(f"{site}: {type(e).__name__}: {e}") from e
    _refuse_half_precision(recorder.ops)
    known, inputs = unroll_steps(recorder.ops, TIME_AXES[lead])
    returned = group_results(result, len(inputs))
    groups = [list_results([known[op] for op in ops], len(inputs)) for ops in returned]
    outputs = [op for group in groups for op in group]
    if not outputs:
        raise ModelError("the module returns no tensor that depends on its input; return the spikes")
    refused: list[ModelError] = []
    values = [getattr(value, "entries", value) for value in known.values()]
    entries = [leaf for leaf in pytree.tree_leaves(values, is_leaf=is_op) if is_op(leaf)]  # operators of single steps
    # Two inputs of a neuron may be one sum if one of them is delayed; the last steps compute states that nothing reads.
    attempts: list[dict[str, Any]] = [{}, {"keeps_inputs": False}, {"unread": entries}]
    for options in attempts:
        try:
            graph = correct_starts(choose_entries(drop_sums(expand_buffers(roll_steps(outputs, inputs, **options)))))
            assembler = Assembler(graph, input_name, sample.shape[2:], lead == "once", len(groups[0]))
            _verify_later(graph)
            given = [op.value for op in graph.inputs]
            trials = [given, *([*drawn[0]] for drawn in draw_like(torch.stack(given)[None]))]
            if graph.inputs[0].step < 0:  # one input for all steps
                trials = [[steps[0]] * len(steps) for steps in trials]
            runs = [verify_graph(graph, assembler.used, given) for given in trials]
            break
        except ModelError as e:
            refused.append(e)
    else:
        raise refused[0]
    network = assembler.network
    shapes = Counter(str(list(ops[0].value.shape)) + " in each step" * (len(ops) > 1) for ops in returned)
    returns = " and ".join(f"{text} ({n} times)" if n > 1 else text for text, n in shapes.items())
    things = describe_results(assembler, runs, [len(group) for group in groups])
    inputs_of_runs = torch.stack([torch.stack([s.reshape(sample.shape[2:]) for s in given]) for given in trials])
    read_first = partial(find_readout, assembler, runs, inputs_of_runs, graph.outputs[: len(groups[0])])
    is_output = bool(things) and not things[0]
    if things and things[0]:
        readout = read_first()
        if readout is not None:
            network, things[0] = replace(network, readout=readout), ""
    spikes = {
        name: torch.stack([stack_steps(values, node, graph) for _, values in runs]).unflatten(
            2, network.node(name).shape
        )
        for name, node in assembler.results.items()
        if network.node(name).neuron.fires
    }
    return Imported(
        network=replace(network, left_out=describe_missing(list(filter(None, things)), network, returns)),
        spikes={name: recorded[:1] for name, recorded in spikes.items()},
        drawn=inputs_of_runs[1:],
        drawn_spikes={name: recorded[1:] for name, recorded in spikes.items()},
        n_steps=graph.n_steps,
        n_states=sum(len(neuron.state_names) for neuron in assembler.neurons.values()),
        lead=lead,
        read_output=read_first if is_output else None,
    )


def _refuse_half_precision(ops: list[Op]) -> None:
    for op in ops[1:]:
        if getattr(op.value, "dtype", None) in HALF:
            raise ModelError(
                f"{op.site}: torch's {op.name} computes in {str(op.value.dtype).removeprefix('torch.')}, and networks "
                "compute in float32 or float64; import module.float()"
            )


def draw_like(sample: torch.Tensor) -> list[torch.Tensor]:
    """Return drawn inputs of the sample's shape `[1, T, *shape]`, on which its silent neurons may fire."""
    largest = max(float(sample.abs().max()), 1.0)
    draw = torch.Generator().manual_seed(0)
    trials = []
    for scale in DRAWN_SCALES:
        drawn = torch.stack([torch.randn(v.shape, generator=draw, dtype=v.dtype) for v in sample.unbind(1)], 1)
        drawn = drawn * largest * scale
        trials += [drawn, (drawn > 0).to(drawn.dtype) * largest * scale]
    return trials


def prepare_run(module: torch.nn.Module, sample: torch.Tensor, lead: str) -> tuple[Callable, torch.Tensor]:
    """Return the function to record, and its input, whose steps are on axis `TIME_AXES[lead]`."""
    if lead == "once":
        return module, sample[:, 0].contiguous()
    if lead in ("TB", "BT"):
        return module, (sample.transpose(0, 1) if lead == "TB" else sample).contiguous()
    stepwise = Stepwise(module)
    return lambda given: [stepwise.run_step(step) for step in given.unbind(1)], sample.contiguous()


def record_run(
    module: torch.nn.Module, sample: torch.Tensor, lead: str, layers: dict[torch.nn.Module, str] | None = None
) -> tuple[OperatorRecorder, Any]:
    """Return the recorder of a run on a sample, and the result with operators instead of tensors."""
    run, given = prepare_run(module, sample, lead)
    recorder = OperatorRecorder(given, {part: path for path, part in module.named_modules()}, layers)
    return recorder, recorder.record(run, given)


def group_results(result, n_steps: int) -> list[list]:
    """Return the tensors, or operators, of a module's result; those of all steps, in a list, are one group.

    If the steps have other shapes, the last one is the result.
    """
    if isinstance(result, dict):
        return [group for part in result.values() for group in group_results(part, n_steps)]
    if isinstance(result, list | tuple) and len(result) != n_steps:
        return [group for part in result for group in group_results(part, n_steps)]
    steps = result if isinstance(result, list | tuple) and len(result) == n_steps > 1 else [result]
    leaves = [pytree.tree_leaves(step, is_leaf=is_op) for step in steps]
    rows = [[leaf for leaf in row if is_op(leaf) or isinstance(leaf, torch.Tensor)] for row in leaves]
    shapes = [[getattr(leaf, "value", leaf).shape for leaf in row] for row in rows]
    if any(row != shapes[0] for row in shapes):
        return [[leaf] for leaf in rows[-1]]
    return [list(group) for group in zip(*rows, strict=True)]


def _verify_later(graph: StepGraph) -> None:
    """Raise ModelError if neurons take a value that is known after the last step only.

    One choice after the last step (torch.where, a comparison) is a readout's; one that is repeated may be a spike.
    """
    joins = [op for op in graph.later if len({o.step for o in op.operands if o.depends}) == graph.n_steps]
    behind = find_users(graph.later, joins)
    repeated = Counter((op.site, op.name) for op in graph.later if op in behind)
    is_neuron = any(
        repeated[op.site, op.name] > 1 if op in behind else Node(op).is_spike or op.name in STEPPED
        for op in graph.later
        if Node(op).is_message
    )
    is_neuron |= _repeats_choices(graph.later)
    if not is_neuron:
        return
    if joins:
        join = next((op for op in graph.later if op.name not in MOVES and joins[0] in op.operands), joins[0])
        joining = f"{join.site}: torch's {join.name} joins all steps before"
        if not any(node.is_message for node in graph.nodes):
            raise ModelError(
                f"{joining} the first neurons, but a chip gets one step after the other; "
                "compute it outside the module, or use numbers that are fixed after training"
            )
        raise ModelError(f"{joining} other neurons, which a chip runs step by step; give them the spikes of each step")
    first = graph.later[0]
    raise ModelError(
        f"{first.site}: torch's {first.name}: step {first.step} of the example computes something else than the steps "
        "before; a chip has one network, with the same numbers, for every step"
    )


def _repeats_choices(ops: list[Op]) -> bool:
    """Return whether arithmetic leads from a choice to a later one of the same place, as from a reset to a spike.

    Without arithmetic, choices only keep a value, such as the step of the first spike.
    """
    choices = {op for op in ops if Node(op).is_message}
    first = {(op.site, op.name): op for op in sorted(choices, key=lambda op: op.serial, reverse=True)}
    for place, source in first.items():
        computed = [op for op in find_users(ops, [source]) - {source} if op.name not in KEEPS_VALUE]
        if any((op.site, op.name) == place for op in find_users(ops, computed) & choices):
            return True
    return False


def list_results(values: list, n_steps: int) -> list[Op]:
    """Return one operator for every step, if a result has an axis of steps or is a list of them; else one operator.

    `values`: what the operators of the result became when they were unrolled.
    """
    steps = [step for value in values for step in (value.entries if isinstance(value, Steps) else [value])]
    if not steps:
        raise ModelError("the module returns no steps")
    steps = set_times(steps, n_steps)
    if len(steps) == n_steps and all(step.step == t for t, step in enumerate(steps) if step.depends):
        return steps
    if len(values) == 1 and isinstance(values[0], Steps) and values[0].left == 1:
        whole = values[0]
        return [run_op(aten.cat.default, (whole.entries, whole.axis), {}, steps[-1].site)]
    return steps


class Assembler:
    """Builds the layers and connections of a graph; `used` are the nodes that the network computes.

    `n_first`: the number of operators of the module's first result.
    """

    def __init__(self, graph: StepGraph, input_name: str, shape: tuple[int, ...], is_once: bool, n_first: int):
        self.graph, self.regions = graph, find_regions(graph)
        if not self.regions:
            _verify_later(graph)
            raise ModelError(f"{NO_NEURONS}: nothing in it keeps a state or compares with a threshold")
        self.source = Source(input_name, tuple(shape), 0, is_once)
        self.inputs = {node: self.source for node in graph.nodes if node.name == "input"}
        self.layers: dict[str, Region] = {}
        self.neurons: dict[str, NeuronSpec | NeuronProgram] = {}
        self.used: set[Node] = set()
        self.binary: set[str] = set()  # layers that send 0 or 1
        self.connector = Connector(graph, self.inputs, self._is_binary)
        self.results: dict[str, Node] = {}  # of each layer
        self.n_first = n_first
        self.network = self._build_network()

    def _build_network(self) -> Network:
        named = list(zip(_name_layers(self.regions, self.graph), self.regions, strict=True))
        for name, region in named:
            if region.has_state:
                self._add_neurons(name, region)
        inside = [node for region in self.regions if region.has_state or region.fires for node in region.nodes]
        read = find_operand_nodes(ref.node for node in inside for ref in node.refs)  # the others are the host's
        for name, region in named:
            symbol = None if region.has_state else self._as_function(region)
            if symbol is not None:
                self.connector.symbols[region.result] = symbol
            elif not region.has_state and (region.fires or region.result in read):
                self._add_neurons(name, region)
        self.layers = {name: region for name, region in named if name in self.layers}
        builder = Builder(self.source, 0, set(self.layers))
        for name, region in self.layers.items():
            if not region.inputs:
                raise ModelError(f"{region}: the neurons have no input; a layer needs one")
            if region.signs:
                fed = self.connector.sum_refs(region.inputs, region.signs, 0, region.shape)
            else:  # inputs that are not added are those of its program
                fed = self.connector.stack_refs(region.inputs, region.shape)
            builder.add_layer(name, self.neurons[name], fed, drop_ones(region.shape))
            self.used |= find_operand_nodes(region.nodes)
        self.results = {name: region.result for name, region in self.layers.items()}
        for node in dict.fromkeys((*self._find_readouts(), *self._find_read_maps())):
            self.used |= find_operand_nodes([node])
            symbol = self.connector.connect(node)
            name = builder.free_name(symbol)
            builder.add_layer(name, READOUT, symbol)
            self.results[name] = node
        self._verify_delays(builder.connections)
        return builder.build_network()

    def _verify_delays(self, connections: list[Connection]) -> None:
        """Raise ModelError if neurons take values of each other in the same step."""
        edges = nx.DiGraph([(c.source, c.target) for c in connections if not c.aligned_delay])
        loops = [edge for edge in edges.edges if edge[0] in nx.descendants(edges, edge[1]) | {edge[1]}]
        region = next((region for name, region in self.layers.items() if name in {n for n, _ in loops}), None)
        if region is not None:
            raise ModelError(
                f"{region}: a value of these neurons reaches them again in the same step, through a sum over neurons, "
                "weights, or a move; neurons get the values of others from the step before"
            )

    def _add_neurons(self, name: str, region: Region) -> None:
        stem = _common_path(region).rpartition(".")[2] or "neuron"
        class_name = "".join(c for c in stem if c.isalnum() or c == "_")
        neuron = recognize_neuron(build_program(region, self.graph, class_name))
        self.layers[name], self.neurons[name] = region, neuron
        if neuron.fires and neuron.message == "binary":
            self.binary.add(name)
        self.connector.symbols[region.result] = Source(name, drop_ones(region.shape), 0)

    def _find_readouts(self) -> list[Node]:
        """Return the last maps with weights that feed no layer."""
        ends: list[Node] = []
        reached: set[Node] = set(self.used)
        for node in reversed(self.graph.nodes):
            is_map = node.name in WEIGHTED and len(node.refs) == 1
            if is_map and node not in reached:
                ends.append(node)
            if node in reached or node in ends:
                reached |= {ref.node for ref in node.refs}
        return ends[::-1]

    def _find_read_maps(self) -> list[Node]:
        """Return the maps with weights that the module's first result takes besides the neurons that they feed."""
        inside = {node for region in self.layers.values() for node in region.nodes}
        maps: list[Node] = []
        seen: set[Any] = set()
        waiting: list[Any] = list(self.graph.outputs[: self.n_first])
        while waiting:
            item: Any = waiting.pop()
            item = self.graph.node_of[item][0] if item in self.graph.node_of else item
            if item in seen or item in inside or (is_op(item) and not item.depends):
                continue
            seen.add(item)
            if isinstance(item, Node) and item.name in WEIGHTED and len(item.refs) == 1:
                maps.append(item)
            else:
                waiting += [ref.node for ref in item.refs] if isinstance(item, Node) else item.operands
        return [node for node in self.graph.nodes if node in maps]

    def _is_binary(self, symbol: Symbol) -> bool:
        if isinstance(symbol, Picked):
            return all(map(self._is_binary, symbol.sources))
        return is_binary(symbol, lambda s: isinstance(s, Pooled) or (isinstance(s, Source) and s.name in self.binary))

    def _as_function(self, region: Region) -> Symbol | None:
        """Return neurons without a state whose inputs are spikes as a sum of these, or as a logical product."""
        if not 0 < len(region.inputs) <= MOST_INPUTS:
            return None
        try:
            given = [self.connector.broadcast(ref, region.shape) for ref in region.inputs]
        except ModelError:
            return None
        if not all(map(self._is_binary, given)):
            return None
        table: dict[tuple[int, ...], float] = {}
        for bits in product((0, 1), repeat=len(given)):
            value = _try_inputs(region, bits)
            if value is None:
                return None
            table[bits] = value
        n = len(given)
        base = table[(0,) * n]
        slopes = [table[tuple(int(k == i) for k in range(n))] - base for i in range(n)]
        is_sum = all(
            value == base + sum(k * b for k, b in zip(slopes, bits, strict=True)) for bits, value in table.items()
        )
        if is_sum:
            return self.connector.sum_refs(region.inputs, slopes, base, region.shape)
        fires = [bits for bits, value in table.items() if value]
        if len(fires) != 1 or table[fires[0]] != 1:
            return None
        total = self.connector.sum_refs(region.inputs, [1 if bit else -1 for bit in fires[0]], 0, region.shape)
        operation = affine_operation(region.path or "and", "and", 1, 1 - sum(fires[0]))
        return Pooled(operation, total, total.shape)


def _try_inputs(region: Region, bits: tuple[int, ...]) -> float | None:
    """Return a region's result if its inputs have these values in every entry; None if entries differ."""
    values: dict[tuple[Node, int], Any] = {
        (ref.node, ref.delay): torch.full_like(ref.node.op.value, bit)
        for ref, bit in zip(region.inputs, bits, strict=True)
    }
    for node in region.nodes:
        values[node, 0] = run_node(node, lambda ref: values[ref.node, ref.delay])
    result = values[region.result, 0].reshape(-1).double()
    return result[0].item() if bool((result == result[0]).all()) else None


def _name_layers(regions: list[Region], graph: StepGraph) -> list[str]:
    """Return the names of layers: the module's path, or the path of the map that feeds it, if only one layer has it."""
    paths = [_common_path(region) for region in regions]
    feeds = [_feeding_path(region, graph) for region in regions]
    once = Counter(paths)
    stems = [
        path if path and once[path] == 1 else feed or path or "neurons" for path, feed in zip(paths, feeds, strict=True)
    ]
    names: list[str] = []
    for stem in stems:
        k = stems[: len(names)].count(stem)
        names.append(f"{stem}/{k + 1}" if k else stem)
    return names


def _common_path(region: Region) -> str:
    """Return the path of the innermost module that contains all nodes of a region."""
    parts = [node.op.site.path.split(".") for node in region.nodes if any(r.node in region.members for r in node.refs)]
    parts = parts or [region.path.split(".")]
    shared = [names[0] for names in zip(*parts, strict=False) if len(set(names)) == 1]
    length = next((i for i, names in enumerate(zip(*parts, strict=False)) if len(set(names)) > 1), len(shared))
    return ".".join(parts[0][:length])


def _feeding_path(region: Region, graph: StepGraph) -> str:
    """Return the path of the nearest module before a region."""
    waiting = [ref.node for ref in region.inputs]
    while waiting:
        node = waiting.pop(0)
        if node.op.site.path:
            return node.op.site.path
        waiting += [ref.node for ref in node.refs if not ref.delay]
    return ""
