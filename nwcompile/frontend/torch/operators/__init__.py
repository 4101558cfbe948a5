"""Import a module from the ATen operators that it runs, whatever its neurons are called: neurons written by hand.

step                                                 function               file
run the module and record its operators              OperatorRecorder       record.py, own_operators.py
one operator for each step of time                   unroll_steps           unroll.py, step_rules.py, steps.py
the operators that every step repeats                roll_steps             roll.py
the graph of one step, and its values                StepGraph              graph.py
what only the first steps compute                    correct_starts         registers.py
neurons, and their step as a program                 find_regions           neurons.py
programs that are built-in neurons                   recognize_neuron       builtin.py
layers of known classes, each as one operator        find_parts, list_parts  parts.py
linear maps between the neurons                      Connector              connect.py
layers and connections                               import_operators       here
what the module returns, and computes after layers   describe_results, ...  readout.py
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from traceback import walk_tb
from typing import Any

import networkx as nx
import torch
from torch.utils import _pytree as pytree

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.build import READOUT, Builder
from nwcompile.frontend.torch.kind import ReadNeurons
from nwcompile.frontend.torch.kinds import fit_batch
from nwcompile.frontend.torch.modules import Stepwise, preserve_state
from nwcompile.frontend.torch.operations import affine_operation
from nwcompile.frontend.torch.operators.builtin import recognize_neuron
from nwcompile.frontend.torch.operators.connect import Connector, is_binary, list_maps, with_shape
from nwcompile.frontend.torch.operators.graph import MOVES, Node, StepGraph, find_operand_nodes, run_node, verify_graph
from nwcompile.frontend.torch.operators.neurons import (
    WEIGHTED,
    Region,
    build_program,
    drop_ones,
    drop_sums,
    find_regions,
)
from nwcompile.frontend.torch.operators.parts import Part, list_parts
from nwcompile.frontend.torch.operators.readout import describe_missing, describe_results, find_readout, stack_steps
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
from nwcompile.frontend.torch.operators.steps import Steps, cut_value, set_times
from nwcompile.frontend.torch.operators.unroll import NO_STATISTICS, unroll_steps
from nwcompile.frontend.torch.symbols import Picked, Pooled, Source, Symbol
from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.readout import Readout

ERROR_CODE = "NW2307"
ASSUMED = (
    "the product of the input with spikes is a logical AND in the network: right for inputs of 0 and 1, as in the "
    "example; give an example with other values if the module gets some"
)
NO_NEURONS = (
    "has no spiking layer that is called on the example; it needs at least one, of nwcompile.nn, snnTorch, "
    "SpikingJelly, sinabs or norse, or written by hand"
)
DRAWN_SCALES = (1.0, 8.0)  # of drawn inputs, relative to the largest of the example
ONE_VALUE = "Expected more than 1 value per channel"  # how torch refuses the norm of a batch of one sample
STEPPED = ("round", "heaviside")  # operators that make a spike of a number
HALF = (torch.float16, torch.bfloat16)
KEEPS_VALUE = (  # operators that choose between values, or compare them, and compute no new ones
    "where", "masked_fill", "minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "__and__", "__or__", "_to_copy", "reshape", *MOVES,
)  # fmt: skip
TIME_AXES = {"once": None, "TB": 0, "BT": 1, "B": 1, "T*B": 0, "B*T": 0}  # of the input, by its leading axes
MOST_INPUTS = 4  # of neurons that are tried with every combination of spikes


@dataclass(frozen=True, eq=False)
class Imported:
    """A network, and the module's spikes of each layer for the example and for drawn inputs `[S, T, *shape]`.

    `n_states`: the number of states of all neurons. `lead`: the leading axes of the module's input. `parts`: those that
    are not looked into. `has_own`: whether other neurons were found. `reads`: the place in the code that reads a value
    which depends on the input, or "". `depth`: of the list of steps in the module's result, -1 if there is none.
    `takes_spikes`: whether it is right for inputs of 0 and 1 only. `read_output`: returns the readout of a first result
    that is an output of the network; None if it is none.
    """

    network: Network
    spikes: dict[str, torch.Tensor]
    drawn: torch.Tensor
    drawn_spikes: dict[str, torch.Tensor]
    n_steps: int
    n_states: int
    lead: str
    parts: list[Part]
    has_own: bool
    reads: str
    depth: int
    takes_spikes: bool
    read_output: Callable[[], Readout | None] | None


class ModuleFailedError(Exception):
    """The module raised an exception on the example."""


def _is_raised_by_layer(error: Exception) -> bool:
    """Return whether a layer of nwcompile.nn raised an exception, for example for an input of another size."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return frame.f_code.co_filename.startswith(f"{PACKAGE}nn/layers/")


def import_operators(
    module: torch.nn.Module,
    x: torch.Tensor,
    lead: str,
    input_name: str,
    layers: dict[torch.nn.Module, str] | None = None,
    relu: NeuronSpec | None = None,
) -> Imported:
    """Return the network that a module computes on one sample of the example `x`, `[B, T, *shape]`.

    `lead`: the leading axes of the module's input: "BT", "TB", "B" (one step after the other), or "once". The module is
    in eval mode with cleared states. Raises ModelError, naming the place in the module's code, for what cannot be
    followed, and ModuleFailedError if the module cannot be run so.
    """
    sample, layers = x[:1], layers or {}
    try:
        with preserve_state(module):
            recorder, result = record_run(module, sample, lead, layers)
    except Exception as e:
        if isinstance(e, NwError) and not _is_raised_by_layer(e):
            raise
        site = find_raising_site(e, module)
        if ONE_VALUE in str(e):
            raise ModelError(f"{site}: {NO_STATISTICS}") from None
        where = f"{site}: " if str(site) != "the module" else ""
        raise ModuleFailedError(f"{where}{type(e).__name__}: {e}") from e
    if not layers:
        _refuse_half_precision(recorder.ops)
    known, inputs = unroll_steps(recorder.ops, TIME_AXES[lead], recorder.calls)
    modules = {name: part for part, name in layers.items()}
    parts = list_parts(recorder.calls, known, len(inputs), modules, relu, lead == "once")
    _note_read(parts, recorder, result)
    returned, depth = _group_operators(result, known, len(inputs))
    groups = [list_results([known[op] for op in ops], len(inputs)) for ops in returned]
    outputs = [op for group in groups for op in group]
    if not outputs and not parts:
        raise ModelError("the module returns no tensor that depends on its input; return the spikes")
    fed = [op for part in parts for op in part.fed]
    maps = list_maps(module)
    refused: list[ModelError] = []
    values = [getattr(value, "entries", value) for value in known.values()]
    entries = [leaf for leaf in pytree.tree_leaves(values, is_leaf=is_op) if is_op(leaf)]  # operators of single steps
    # Two inputs of a neuron may be one sum if one of them is delayed; the last steps compute states that nothing reads.
    attempts: list[dict[str, Any]] = [{}, {"keeps_inputs": False}, {"unread": entries}]
    for options in attempts:
        try:
            graph = correct_starts(
                choose_entries(drop_sums(expand_buffers(roll_steps([*outputs, *fed], inputs, **options))))
            )
            for node in (node for node in graph.nodes if node.name == "record"):
                node.values = {op.step: op for op in _list_records(known) if op.args == node.op.args}
            places = {
                part.name: graph.outputs[len(outputs) + i * len(inputs) :][: len(inputs)]
                for i, part in enumerate(parts)
            }
            graph.outputs = graph.outputs[: len(outputs)]
            n_first = len(groups[0]) if groups else 0
            assembler = Assembler(graph, input_name, sample.shape[2:], n_first, parts, places, _are_spikes(x), maps)
            _verify_later(graph)
            given = [op.value for op in graph.inputs]
            trials = [given, *([*drawn[0]] for drawn in draw_like(torch.stack(given)[None]))]
            if assembler.assumed:
                trials = [trial for trial in trials if _are_spikes(torch.stack(trial))]
            if graph.inputs[0].step < 0:  # one input for all steps
                trials = [[steps[0]] * len(steps) for steps in trials]
            samples = [torch.stack([s.reshape(sample.shape[2:]) for s in trial])[None] for trial in trials]
            records = [_list_again(module, one, lead, parts, recorder, known) for one in samples[1:]]
            records = [_list_records(known), *records]
            pairs = [(t, r) for t, r in zip(trials, records, strict=True) if r is not None]
            trials = [t for t, _ in pairs]
            runs = [verify_graph(graph, assembler.used, *pair) for pair in pairs]
            assembler.verify_feeds(runs)
            break
        except ModelError as e:
            refused.append(e)
    else:
        raise refused[0]
    if recorder.reads and assembler.layers:
        raise recorder.refuse_reading(recorder.reads[0])
    network = assembler.network
    shapes = Counter(str(list(ops[0].value.shape)) + " in each step" * (len(ops) > 1) for ops in returned)
    returns = " and ".join(f"{text} ({n} times)" if n > 1 else text for text, n in shapes.items())
    things = [] if relu is not None else describe_results(assembler, runs, [len(group) for group in groups])
    if relu is None and not groups and result is not None:
        things = [f"a result of type {type(result).__name__}, which holds no tensor"]
        returns = type(result).__name__
    inputs_of_runs = torch.stack([torch.stack([s.reshape(sample.shape[2:]) for s in given]) for given in trials])
    read_first = partial(find_readout, assembler, runs, inputs_of_runs, graph.outputs[:n_first])
    is_output = bool(groups) and bool(things) and not things[0]
    if relu is None and groups and things and things[0]:
        readout = read_first()
        if readout is not None:
            network, things[0] = replace(network, readout=readout), ""
    spikes = {
        name: torch.stack([stack_steps(values, node, graph) for _, values in runs]).unflatten(
            2, network.node(name).shape
        )
        / (assembler.parts[name].spike_value if name in assembler.parts else 1.0)
        for name, node in assembler.results.items()
        if network.node(name).neuron.fires
    }
    missing = describe_missing(list(filter(None, things)), network, returns)
    return Imported(
        network=replace(network, left_out="; ".join(filter(None, (*assembler.assumed[:1], missing)))),
        spikes={name: recorded[:1] for name, recorded in spikes.items()},
        drawn=inputs_of_runs[1:],
        drawn_spikes={name: recorded[1:] for name, recorded in spikes.items()},
        n_steps=graph.n_steps,
        n_states=sum(len(neuron.state_names) for neuron in assembler.neurons.values()) + len(parts),
        lead=lead,
        parts=parts,
        has_own=bool(assembler.layers),
        reads=str(recorder.reads[0]) if recorder.reads else "",
        depth=depth,
        takes_spikes=assembler.takes_spikes,
        read_output=read_first if is_output else None,
    )


def _note_read(parts: list[Part], recorder: OperatorRecorder, result: Any) -> None:
    """Note which of their results the module uses of each part, not only as its next state."""
    read = [o for op in recorder.ops for o in op.operands]
    read += [leaf for leaf in pytree.tree_leaves(result, is_leaf=is_op) if is_op(leaf)]
    read += [call.given[0] for call in recorder.calls]
    for part in parts:
        part.read = {op.args[1] for op in read if op.name == "record" and op.args[0] == part.name}


def _are_spikes(values: torch.Tensor) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def _list_records(known: dict[Op, Any]) -> dict[Op, torch.Tensor]:
    """Return the value of every record of a step."""
    return {step: step.value for op, value in known.items() if op.name == "record" for step in _entries(value)}


def _find_place(op: Op) -> tuple:
    """Return the part of a record, and the place in its result."""
    return op.args[0], op.kwargs.get("step", op.args[1])


def _entries(value: Any) -> list[Op]:
    return value.entries if isinstance(value, Steps) else [value]


def _list_again(
    module: torch.nn.Module, x: torch.Tensor, lead: str, parts: list[Part], recorder: OperatorRecorder, known: dict
) -> dict[Op, torch.Tensor] | None:
    """Return the value of every record of a step on another input; None if the module then does something else."""
    ops = [op for op in recorder.ops if op.name == "record"]
    again = record_results(module, x, lead, parts, {_find_place(op) for op in ops})
    values: dict[Op, torch.Tensor] = {}
    for op in ops:
        other = None if again is None else again.get((*_find_place(op), recorder.calls[op.kwargs["call"]].number))
        if other is None or other.shape != op.value.shape:
            return None
        became = known[op]
        cut = cut_value(other, became.layout) if isinstance(became, Steps) else None
        values |= dict(zip(_entries(became), cut or [other], strict=True))
    return values


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
    for part in module.modules():
        fit_batch(part, len(sample))
    if lead == "once":
        return module, sample[:, 0].contiguous()
    if "*" in lead:
        return module, (sample.transpose(0, 1) if lead == "T*B" else sample).flatten(0, 1)
    if lead in ("TB", "BT"):
        return module, (sample.transpose(0, 1) if lead == "TB" else sample).contiguous()
    stepwise = Stepwise(module)

    def run(given: torch.Tensor) -> list:
        results = [stepwise.run_step(step) for step in given.unbind(1)]
        return [result[0] for result in results] if stepwise.states else results

    return run, sample.contiguous()


def record_run(
    module: torch.nn.Module, sample: torch.Tensor, lead: str, layers: dict[torch.nn.Module, str] | None = None
) -> tuple[OperatorRecorder, Any]:
    """Return the recorder of a run on a sample, and the result with operators instead of tensors."""
    run, given = prepare_run(module, sample, lead)
    recorder = OperatorRecorder(given, {part: path for path, part in module.named_modules()}, layers)
    return recorder, recorder.record(run, given)


def record_results(
    module: torch.nn.Module, x: torch.Tensor, lead: str, parts: list[Part], places: set[tuple]
) -> dict[tuple, torch.Tensor] | None:
    """Return what parts give for samples `[B, T, *shape]`, by part, place and number of the call; None if a run fails.

    `places`: parts, and places in their results: a number, or the name of an attribute that keeps a state.
    """
    values: dict[tuple, torch.Tensor] = {}
    with ExitStack() as stack:
        for part in parts:
            calls = count()

            def note_call(module, _args, result, name=part.name, calls=calls) -> None:
                given: dict[Any, Any] = {**vars(module), **module._buffers, **vars(module).get("_memories", {})}
                given |= dict(enumerate(pytree.tree_leaves(result)))
                number = next(calls)
                for place in (place for layer, place in places if layer == name):
                    if isinstance(given.get(place), torch.Tensor):
                        values[name, place, number] = given[place].clone()

            stack.callback(part.module.register_forward_hook(note_call).remove)
        with preserve_state(module), torch.no_grad():
            run, given = prepare_run(module, x, lead)
            try:
                run(given)
            except Exception:  # of the module: it does not take such samples
                return None
    return values


def record_spikes(
    module: torch.nn.Module, x: torch.Tensor, lead: str, parts: list[Part]
) -> dict[str, torch.Tensor] | None:
    """Return the spikes `[B, T, *]` of the parts that fire, for samples `[B, T, *shape]`; None if the module fails."""
    firing = [part for part in parts if part.fires]
    values = record_results(module, x, lead, firing, {(part.name, 0) for part in firing})
    if values is None:
        return None
    spikes = {}
    for part in firing:
        given = [value for (name, _, _), value in values.items() if name == part.name]
        whole = given[0] if part.lead != "B" else torch.stack(given, 1)
        if "*" in part.lead:
            whole = whole.unflatten(0, (-1, len(x)) if part.lead == "T*B" else (len(x), -1))
        whole = whole.transpose(0, 1) if part.lead in ("TB", "T*B") else whole
        spikes[part.name] = whole / part.spike_value
    return spikes


def group_results(result, n_steps: int, lists_steps: Callable[[Any, int], bool], depth: int = 0) -> list[list]:
    """Return the tensors, or operators, of a module's result; those of all steps, in a list, are one group.

    `lists_steps`: whether a list, inside of `depth` others, has an entry for each step. If the steps have other shapes,
    the last one is the result.
    """
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple) and not (len(result) == n_steps > 1 and lists_steps(result, depth)):
        return [group for part in result for group in group_results(part, n_steps, lists_steps, depth + 1)]
    leaves = [list_tensors(step) for step in (result if isinstance(result, list | tuple) else [result])]
    shapes = [[getattr(leaf, "value", leaf).shape for leaf in row] for row in leaves]
    if any(row != shapes[0] for row in shapes):
        return [[leaf] for leaf in leaves[-1]]
    return [list(group) for group in zip(*leaves, strict=True)]


def list_tensors(value: Any) -> list:
    """Return the tensors, or operators, in nested lists and dicts."""
    leaves = pytree.tree_leaves(value, is_leaf=is_op)
    return [leaf for leaf in leaves if is_op(leaf) or isinstance(leaf, torch.Tensor)]


def _group_operators(result: Any, known: dict[Op, Any], n_steps: int) -> tuple[list[list[Op]], int]:
    """Return the operators of a module's result, and the depth of the first list of steps in it; -1 if there is none.

    A list of steps has as many entries, which come from different steps.
    """
    depths = []

    def lists_steps(parts: Any, depth: int) -> bool:
        ops = [[known[op] for op in list_tensors(part)] for part in parts]
        if any(isinstance(op, Steps) for row in ops for op in row):
            return False
        last = [max(steps) for row in ops if (steps := [op.step for op in row if op.depends])]
        is_list = len({*last}) == len(last)
        depths.extend([depth] * is_list)
        return is_list

    groups = group_results(result, n_steps, lists_steps)
    return groups, depths[0] if depths else -1


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

    `n_first`: the number of operators of the module's first result. `parts`: those that are not looked into, and in
    `fed` what each is given in every step. `has_spikes`: whether the input is 0 or 1.
    """

    def __init__(
        self,
        graph: StepGraph,
        input_name: str,
        shape: tuple[int, ...],
        n_first: int,
        parts: list[Part],
        fed: dict[str, list[Op]],
        has_spikes: bool,
        maps: dict[str, torch.nn.Module],
    ):
        self.graph, self.regions = graph, find_regions(graph)
        self.parts, self.fed_ops = {part.name: part for part in parts}, fed
        self.fed = {part.name: self._find_fed(part) for part in parts}
        if not self.regions and not any(part.kind for part in parts):
            _verify_later(graph)
            raise ModelError(f"the module {NO_NEURONS}", code="NW2301")
        self.source = Source(input_name, tuple(shape))
        self.inputs = {node: self.source for node in graph.nodes if node.name == "input"}
        self.layers: dict[str, Region] = {}
        self.neurons: dict[str, NeuronSpec | NeuronProgram] = {}
        self.used: set[Node] = set()
        self.binary: set[str] = set()  # layers that send 0 or 1
        self.has_spikes = has_spikes and bool(parts)
        self.takes_spikes = False
        self.assumed: list[str] = []  # what is right only if the input is 0 or 1
        self.connector = Connector(graph, self.inputs, self._is_binary, maps, self._connect_record)
        self.results: dict[str, Node] = {}  # of each layer
        self.shapes = {part.name: part.shape if part.weight is None else (len(part.weight),) for part in parts}
        self.binary |= {
            part.name for part in parts if part.kind is not None and part.kind.gives(part.module) == "spikes"
        }
        self.n_first = n_first
        self.network = self._build_network()

    def _find_fed(self, part: Part) -> Node:
        """Return the node of what a part is given."""
        last = self.fed_ops[part.name][-1]
        node, t = self.graph.node_of.get(last, (None, 0))
        if node is None or t != self.graph.n_steps - 1:
            raise ModelError(
                f"layer {part.name!r} is fed differently in the last step of the example than in the steps before; "
                "from_torch needs the same computation in every step",
                code="NW2304",
            )
        return node

    def verify_feeds(self, runs: list[tuple[dict, dict]]) -> None:
        """Raise ModelError if a part is not given in every step what the network gives it."""
        for name, ops in self.fed_ops.items():
            node = self.fed[name]
            for expected, values in runs:
                pairs = [(values[node, t], expected.get(op, op.value)) for t, op in enumerate(ops)]
                wrong = [t for t, (a, b) in enumerate(pairs) if not torch.equal(a.reshape(-1), b.reshape(-1))]
                if not wrong:
                    continue
                late = max((ref.delay for n in find_operand_nodes([node]) for ref in n.refs), default=0)
                if wrong[-1] < late:
                    text = f"by a tensor that is not zero before step {wrong[0]}; start from zeros"
                else:
                    text = (
                        f"differently in step {wrong[0]} and in the last step of the example; "
                        "from_torch needs the same computation in every step"
                    )
                raise ModelError(f"layer {name!r} is fed {text}", code="NW2304")

    def _connect_record(self, node: Node) -> Symbol:
        layer, place = node.op.args
        part = self.parts[layer]
        if part.kind is None:
            return part.connect_delays(self._connect_fed(part), node.op.value)
        if place == 0 and part.fires:
            return part.connect_spikes(self.shapes[layer])
        raise ModelError(
            f"{node.op.site}: the membrane of layer {layer!r} is used by other layers; only its spikes can be sent"
        )

    def _connect_fed(self, part: Part) -> Symbol:
        return with_shape(self.connector.connect(self.fed[part.name]), part.shape)

    def _build_network(self) -> Network:
        named = list(zip(_name_layers(self.regions, self.graph), self.regions, strict=True))
        for name, region in named:
            if region.has_state and not self._is_of_states(region):
                self._add_neurons(name, region)
        inside = [node for region in self.regions if region.has_state or region.fires for node in region.nodes]
        inside += self.fed.values()
        read = find_operand_nodes(ref.node for node in inside for ref in node.refs)  # the others are the host's
        for name, region in named:
            symbol = None if region.has_state else self._as_function(region)
            if symbol is not None:
                self.connector.symbols[region.result] = symbol
            elif not region.has_state and (region.fires or region.result in read):
                self._add_neurons(name, region)
        self.layers = {name: region for name, region in named if name in self.layers}
        builder = Builder(self.source, {*self.layers, *(part.name for part in self.parts.values() if part.kind)})
        place = {node: i for i, node in enumerate(self.graph.nodes)}
        starts = {name: place[region.nodes[-1]] for name, region in self.layers.items()}
        starts |= {name: place[self.fed[name]] for name, part in self.parts.items() if part.kind is not None}
        for name in sorted(starts, key=starts.__getitem__):
            if name in self.parts:
                part = self.parts[name]
                neurons = self._read_neurons(part)
                builder.add_layer(name, neurons.spec, part.weigh_input(self._connect_fed(part)))
                builder.connections += neurons.recurrent
                self.used |= find_operand_nodes([self.fed[name]])
                continue
            region = self.layers[name]
            if not region.inputs:
                raise ModelError(f"{region}: the neurons have no input; a layer needs one")
            if region.signs:
                fed = self.connector.sum_refs(region.inputs, region.signs, 0, region.shape)
            else:  # inputs that are not added are those of its program
                fed = self.connector.stack_refs(region.inputs, region.shape)
            builder.add_layer(name, self.neurons[name], fed, drop_ones(region.shape))
            self.used |= find_operand_nodes(region.nodes)
        self.results = {name: region.result for name, region in self.layers.items()}
        for node in self.graph.nodes:
            if node.name == "record" and node.op.args[1] == 0 and self.parts[node.op.args[0]].kind is not None:
                self.results[node.op.args[0]] = node
        for node in dict.fromkeys((*self._find_readouts(), *self._find_read_maps())):
            self.used |= find_operand_nodes([node])
            symbol = self.connector.connect(node)
            name = builder.free_name(symbol)
            builder.add_layer(name, READOUT, symbol)
            self.results[name] = node
        self._verify_delays(builder.connections)
        return builder.build_network()

    def _read_neurons(self, part: Part) -> ReadNeurons:
        try:
            return part.read_neurons()
        except NwError:
            raise
        except Exception as e:
            what = f"{type(part.module).__name__} ({type(e).__name__}: {e})"
            raise ModelError(f"{part.name!r}: nwcompile fails on {what}; please report it") from e

    def _is_of_states(self, region: Region) -> bool:
        """Return whether a region only follows states of known layers, after which the host computes."""
        nodes = find_operand_nodes(region.nodes)
        states = [n for n in nodes if n.name == "record" and (n.op.args[1] or not self.parts[n.op.args[0]].fires)]
        read = find_operand_nodes(self.fed.values())
        return bool(states) and not region.fires and not read & region.members

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
        self.connector.symbols[region.result] = Source(name, drop_ones(region.shape))

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

    def _is_binary(self, symbol: Symbol, on_example: bool = False) -> bool:
        """Return whether a symbol certainly is 0 or 1; `on_example`: or if the input is, as in the example."""

        def is_spikes(part: Symbol) -> bool:
            if isinstance(part, Picked):
                return all(map(is_spikes, part.sources))
            if isinstance(part, Pooled):
                return part.operation.kind == "and" or is_spikes(part.source)
            if on_example and self.has_spikes and part is self.source:
                self.takes_spikes = True
                return True
            return isinstance(part, Source) and part.name in self.binary

        return is_binary(symbol, is_spikes)

    def _as_function(self, region: Region) -> Symbol | None:
        """Return neurons without a state whose inputs are spikes as a sum of these, or as a logical product."""
        if not 0 < len(region.inputs) <= MOST_INPUTS:
            return None
        try:
            given = [self.connector.broadcast(ref, region.shape) for ref in region.inputs]
        except ModelError:
            return None
        if not all(self._is_binary(fed, on_example=True) for fed in given):
            return None
        is_certain = all(map(self._is_binary, given))
        if not is_certain and not (any(map(self._is_binary, given)) and region.result.name == "mul"):
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
        if is_sum and is_certain:
            return self.connector.sum_refs(region.inputs, slopes, base, region.shape)
        fires = [bits for bits, value in table.items() if value]
        if len(fires) != 1 or table[fires[0]] != 1:
            return None
        if not is_certain:
            self.assumed.append(f"{region}: {ASSUMED}")
        total = self.connector.sum_refs(region.inputs, [1 if bit else -1 for bit in fires[0]], 0, region.shape)
        name = self.connector.name_place(region.result)
        operation = affine_operation(name, "and", 1, 1 - sum(fires[0]))
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
