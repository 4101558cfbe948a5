"""Import a module from the ATen operators that it runs, whatever its neurons are called: neurons written by hand.

step                                                 function               file
run the module                                       record_run             runs.py
a number of samples in the module's code             FittedSizes            batch_size.py
record its operators                                 OperatorRecorder       record.py, ops.py, own_operators.py
one operator for each step of time                   unroll_steps           unroll.py, step_rules.py, steps.py
the operators that every step repeats                roll_steps             roll.py
the graph of one step, and its values                StepGraph              graph.py
what only the first steps compute                    correct_starts         registers.py
neurons that add up branches, such as dendrites      split_branches         branches.py
neurons, and their step as a program                 find_regions           neurons.py
programs that are built-in neurons                   recognize_neuron       builtin.py
layers of known classes, each as one operator        list_parts             parts.py
linear maps between the neurons                      Connector              connect.py, read_map.py
layers and connections                               Assembler              assemble.py
what the module returns, and computes after layers   describe_results, ...  readout.py
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from traceback import walk_tb
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.modules import preserve_state
from nwcompile.frontend.torch.operators.assemble import Assembler, verify_later
from nwcompile.frontend.torch.operators.branches import split_branches
from nwcompile.frontend.torch.operators.connect import list_maps
from nwcompile.frontend.torch.operators.graph import verify_graph
from nwcompile.frontend.torch.operators.neurons import drop_sums, split_functions
from nwcompile.frontend.torch.operators.ops import PACKAGE, Op, find_raising_site, is_op
from nwcompile.frontend.torch.operators.parts import Part, list_parts
from nwcompile.frontend.torch.operators.readout import (
    describe_missing,
    describe_results,
    find_readout,
    name_dtype,
    stack_steps,
)
from nwcompile.frontend.torch.operators.record import OperatorRecorder
from nwcompile.frontend.torch.operators.registers import choose_entries, correct_starts, expand_buffers
from nwcompile.frontend.torch.operators.roll import find_operands, roll_steps
from nwcompile.frontend.torch.operators.runs import (
    TIME_AXES,
    depends_on_reads,
    draw_like,
    group_results,
    list_results,
    list_tensors,
    record_results,
    record_run,
)
from nwcompile.frontend.torch.operators.step_rules import NO_STATISTICS
from nwcompile.frontend.torch.operators.steps import Steps, cut_value
from nwcompile.frontend.torch.operators.unroll import unroll_steps
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.readout import Readout

ERROR_CODE = "NW2307"
ONE_VALUE = "Expected more than 1 value per channel"  # how torch refuses the norm of a batch of one sample
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class Imported:
    """A network, the recorder of the module's run on the example, and the module's spikes of each layer for the example
    and for drawn inputs `[S, T, *shape]`.

    `n_states`: the number of states of all neurons; a part counts as one. `lead`: the leading axes of the module's
    input. `parts`: those that are not looked into. `has_own`: whether other neurons were found. `reads`: the place in
    the code that reads a value which depends on the input, or "". `depth`: how many lists are around the list of steps
    in the module's result; -1 if it has none. `takes_spikes`: whether the network is right for inputs of 0 and 1 only.
    `read_output`: None, or if the module's first result is an output of the network, a function that returns its
    readout.
    """

    network: Network
    recorder: OperatorRecorder
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
    example = _record_example(module, x, lead, layers or {}, relu)
    values = [getattr(value, "entries", value) for value in example.known.values()]
    entries = [leaf for leaf in pytree.tree_leaves(values, is_leaf=is_op) if is_op(leaf)]  # operators of single steps
    # Other readings of the same steps, each of which is verified: two inputs of a neuron may be one sum if one of them
    # is delayed; the last steps compute states that nothing reads; spikes of recurrent neurons; unused connections.
    attempts: list[dict[str, Any]] = [
        {},
        {"keeps_inputs": False},
        {"unread": entries},
        {"keeps_spikes": True},
        {"drops_zeros": True},
    ]
    refused: list[ModelError] = []
    for options in attempts:
        try:
            assembled = _assemble_example(example, input_name, options)
            break
        except ModelError as e:
            refused.append(e)
    else:
        raise refused[0]
    if assembled.n_gates:
        with suppress(ModelError):
            other = _assemble_example(example, input_name, {"keeps_inputs": False})
            if other.n_gates < assembled.n_gates:
                assembled, options = other, {"keeps_inputs": False}
    if example.recorder.reads and assembled.assembler.layers:
        raise example.recorder.refuse_reading(example.recorder.reads[0])
    imported = _read_result(example, assembled, reads_out=relu is None)
    if imported.network.left_out and assembled.assembler.has_host_maps:  # the host cannot compute them
        assembled = _assemble_example(example, input_name, options, sends_membranes=True)
        whole = _read_result(example, assembled, reads_out=relu is None)
        imported = imported if whole.network.left_out else whole
    return imported


@dataclass(frozen=True, eq=False)
class _Example:
    """A recorded run of a module on one sample of the example, `sample` `[1, T, *shape]`.

    `known`: what each recorded operator became: an operator of one step, or `Steps`. `inputs`: the input of each step.
    `groups`: the operators of each of the module's results; `returned`: as recorded; `depth` as in `Imported`.
    """

    module: torch.nn.Module
    sample: torch.Tensor
    lead: str
    has_spikes: bool
    recorder: OperatorRecorder
    result: Any
    known: dict[Op, Any]
    inputs: list[Op]
    parts: list[Part]
    returned: list[list[Op]]
    groups: list[list[Op]]
    depth: int


class _Assembled(NamedTuple):
    """A network in its Assembler, and the values of operators and nodes for `samples` `[S, T, *shape]`, one by one."""

    assembler: Assembler
    samples: torch.Tensor
    runs: list[tuple[dict, dict]]

    @property
    def n_gates(self) -> int:
        """The number of inputs of neurons beyond the first of each layer."""
        return sum(node.n_inputs - 1 for node in self.assembler.network.nodes.values())


def _record_example(
    module: torch.nn.Module,
    x: torch.Tensor,
    lead: str,
    layers: dict[torch.nn.Module, str],
    relu: NeuronSpec | None,
) -> _Example:
    sample = x[:1]
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
    if recorder.reads and depends_on_reads(module, sample, lead, layers, recorder.ops, result):
        if not layers:
            raise recorder.refuse_reading(recorder.reads[0])
    else:
        recorder.reads.clear()
    half = find_half_precision(recorder.ops)
    if half is not None and not layers:
        raise ModelError(
            f"{half.site}: torch's {half.name} computes in {name_dtype(half.value.dtype)}, and networks compute in "
            "float32 or float64; import module.float()"
        )
    known, inputs = unroll_steps(recorder.ops, TIME_AXES[lead], recorder.calls)
    modules = {name: part for part, name in layers.items()}
    parts = list_parts(recorder.calls, known, len(inputs), modules, relu, lead == "once")
    _note_read(parts, recorder, result)
    returned, depth = _group_operators(result, known, len(inputs))
    groups = [list_results([known[op] for op in ops], len(inputs)) for ops in returned]
    if not any(groups) and not parts:
        raise ModelError("the module returns no tensor that depends on its input; return the spikes")
    return _Example(
        module=module,
        sample=sample,
        lead=lead,
        has_spikes=_are_spikes(x),
        recorder=recorder,
        result=result,
        known=known,
        inputs=inputs,
        parts=parts,
        returned=returned,
        groups=groups,
        depth=depth,
    )


def _assemble_example(
    example: _Example, input_name: str, options: dict[str, Any], sends_membranes: bool = False
) -> _Assembled:
    """Build the network, and verify that it computes what the module does on the example and on drawn inputs.

    `options`: of `roll_steps`. `sends_membranes` as in `StepGraph`.
    """
    parts, inputs, shape = example.parts, example.inputs, example.sample.shape[2:]
    outputs = [op for group in example.groups for op in group]
    fed = [op for part in parts for op in part.fed]
    recorded = _list_records(example.known)
    delays = {part.name for part in parts if part.kind is None}
    read = {op.args[0] for op in find_operands(outputs) if op.name == "record"}  # a result may take some steps only
    late = [op for op in recorded if op.args[0] in delays & read]
    rolled = roll_steps([*outputs, *fed, *late], inputs, **options)
    graph = correct_starts(split_functions(choose_entries(split_branches(drop_sums(expand_buffers(rolled))))))
    for node in (node for node in graph.nodes if node.name == "record"):
        node.values = {op.step: op for op in recorded if op.args == node.op.args}
    places = {part.name: graph.outputs[len(outputs) + i * len(inputs) :][: len(inputs)] for i, part in enumerate(parts)}
    graph.outputs = graph.outputs[: len(outputs)]
    n_first = len(example.groups[0]) if example.groups else 0
    maps = list_maps(example.module)
    graph.sends_membranes = sends_membranes
    assembler = Assembler(graph, input_name, shape, n_first, parts, places, example.has_spikes, maps)
    verify_later(graph)
    given = [op.value for op in graph.inputs]
    trials = [given, *([*drawn[0]] for drawn in draw_like(torch.stack(given)[None]))]
    if assembler.assumed:
        trials = [trial for trial in trials if _are_spikes(torch.stack(trial))]
    if graph.inputs[0].step < 0:  # one input for all steps
        trials = [[steps[0]] * len(steps) for steps in trials]
    samples = [torch.stack([step.reshape(shape) for step in trial])[None] for trial in trials]
    records = [recorded, *(_record_again(example, sample) for sample in samples[1:])]
    kept = [(k, record) for k, record in enumerate(records) if record is not None]
    runs = [verify_graph(graph, assembler.used, trials[k], record) for k, record in kept]
    assembler.verify_feeds(runs)
    return _Assembled(assembler, torch.cat([samples[k] for k, _ in kept]), runs)


def _read_result(example: _Example, assembled: _Assembled, reads_out: bool) -> Imported:
    """Return the import. `reads_out`: whether what the module computes after its layers is looked at."""
    assembler, samples, runs = assembled
    graph, network, groups = assembler.graph, assembler.network, example.groups
    shapes = Counter(str(list(ops[0].value.shape)) + " in each step" * (len(ops) > 1) for ops in example.returned)
    returns = " and ".join(f"{text} ({n} times)" if n > 1 else text for text, n in shapes.items())
    things = describe_results(assembler, runs, [len(group) for group in groups]) if reads_out else []
    if reads_out and not groups and example.result is not None:
        returns = type(example.result).__name__
        things = [f"a result of type {returns}, which holds no tensor"]
    spikes = _list_spikes(assembler, runs)
    read_first = partial(find_readout, assembler, runs, samples, spikes, graph.outputs[: assembler.n_first])
    is_output = bool(groups) and bool(things) and not things[0]
    if groups and things and things[0]:
        readout = read_first()
        if readout is not None:
            network, things[0] = replace(network, readout=readout), ""
    missing = describe_missing(list(filter(None, things)), network, returns)
    reads = example.recorder.reads
    return Imported(
        network=replace(network, left_out="; ".join(filter(None, (*assembler.assumed[:1], missing)))),
        recorder=example.recorder,
        spikes={name: given[:1] for name, given in spikes.items()},
        drawn=samples[1:],
        drawn_spikes={name: given[1:] for name, given in spikes.items()},
        n_steps=graph.n_steps,
        n_states=sum(len(neuron.state_names) for neuron in assembler.neurons.values()) + len(example.parts),
        lead=example.lead,
        parts=example.parts,
        has_own=bool(assembler.layers),
        reads=str(reads[0]) if reads else "",
        depth=example.depth,
        takes_spikes=assembler.takes_spikes,
        read_output=read_first if is_output else None,
    )


def _list_spikes(assembler: Assembler, runs: list[tuple[dict, dict]]) -> dict[str, torch.Tensor]:
    """Return the module's spikes of each layer in several runs, `[S, T, *shape]`."""
    spikes = {}
    for name, node in ((name, assembler.network.node(name)) for name in assembler.network.layers):
        part, result = assembler.parts.get(name), assembler.results.get(name)
        if not node.neuron.fires or (part is None and result is None):
            continue
        if result is not None:
            rows = [stack_steps(values, result, assembler.graph) for _, values in runs]
        else:  # the host takes all steps together
            ops = [op for op in runs[0][0] if op.name == "record" and op.args == (name, 0)]
            ops.sort(key=lambda op: op.step)
            rows = [torch.stack([values[op].reshape(-1) for op in ops]) for values, _ in runs]
        spikes[name] = torch.stack(rows).unflatten(2, node.shape) / (part.spike_value if part else 1.0)
    return spikes


def _note_read(parts: list[Part], recorder: OperatorRecorder, result: Any) -> None:
    """Note which results of each part the module uses, other than as the part's own next state."""
    read = [o for op in recorder.ops for o in op.operands]
    read += [leaf for leaf in pytree.tree_leaves(result, is_leaf=is_op) if is_op(leaf)]
    read += [call.given[0] for call in recorder.calls]
    for part in parts:
        part.read = {op.args[1] for op in read if op.name == "record" and op.args[0] == part.name}


def _are_spikes(values: torch.Tensor) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def _list_records(known: dict[Op, Any]) -> dict[Op, torch.Tensor]:
    """Return the value of every record of a step."""
    return {step: step.value for op, value in known.items() if op.name == "record" for step in _list_entries(value)}


def _find_place(op: Op) -> tuple:
    """Return the name of a record's part, and the place in the part's result."""
    return op.args[0], op.kwargs.get("step", op.args[1])


def _list_entries(value: Any) -> list[Op]:
    return value.entries if isinstance(value, Steps) else [value]


def _record_again(example: _Example, x: torch.Tensor) -> dict[Op, torch.Tensor] | None:
    """Return the value of every record of a step on another input; None if the module then does something else."""
    recorder = example.recorder
    ops = [op for op in recorder.ops if op.name == "record"]
    again = record_results(example.module, x, example.lead, example.parts, {_find_place(op) for op in ops})
    values: dict[Op, torch.Tensor] = {}
    for op in ops:
        other = None if again is None else again.get((*_find_place(op), recorder.calls[op.kwargs["call"]].number))
        if other is None or other.shape != op.value.shape:
            return None
        became = example.known[op]
        cut = cut_value(other, became.layout) if isinstance(became, Steps) else None
        values |= dict(zip(_list_entries(became), cut or [other], strict=True))
    return values


def find_half_precision(ops: list[Op], before_layers: bool = False) -> Op | None:
    """Return the first operator that computes in bfloat16 or float16, or None; it may have to run before a layer."""
    last = max((op.serial for op in ops if op.name == "record" or not before_layers), default=0)
    halves = (op for op in ops[1:] if op.depends and getattr(op.value, "dtype", None) in HALF)
    return next((op for op in halves if op.serial <= last), None)


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
