"""Import a module from the ATen operators that it runs, whatever its neurons are called: neurons written by hand.

step                                                 function               file
run the module                                       record_run             runs.py
record its operators                                 OperatorRecorder       record.py, ops.py, own_operators.py
one operator for each step of time                   unroll_steps           unroll.py, step_rules.py, steps.py
the operators that every step repeats                roll_steps             roll.py
the graph of one step, and its values                StepGraph              graph.py
what only the first steps compute                    correct_starts         registers.py
neurons, and their step as a program                 find_regions           neurons.py
programs that are built-in neurons                   recognize_neuron       builtin.py
layers of known classes, each as one operator        list_parts             parts.py
linear maps between the neurons                      Connector              connect.py
layers and connections                               Assembler              assemble.py
what the module returns, and computes after layers   describe_results, ...  readout.py
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from traceback import walk_tb
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.modules import preserve_state
from nwcompile.frontend.torch.operators.assemble import Assembler, verify_later
from nwcompile.frontend.torch.operators.connect import list_maps
from nwcompile.frontend.torch.operators.graph import verify_graph
from nwcompile.frontend.torch.operators.neurons import drop_sums
from nwcompile.frontend.torch.operators.ops import PACKAGE, Op, is_op
from nwcompile.frontend.torch.operators.parts import Part, list_parts
from nwcompile.frontend.torch.operators.readout import describe_missing, describe_results, find_readout, stack_steps
from nwcompile.frontend.torch.operators.record import OperatorRecorder, find_raising_site
from nwcompile.frontend.torch.operators.registers import choose_entries, correct_starts, expand_buffers
from nwcompile.frontend.torch.operators.roll import find_operands, roll_steps
from nwcompile.frontend.torch.operators.runs import (
    TIME_AXES,
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
    delays = {part.name for part in parts if part.kind is None}
    read = {op.args[0] for op in find_operands(outputs) if op.name == "record"}  # a result may take some steps only
    recorded = _list_records(known)
    late = [op for op in recorded if op.args[0] in delays & read]
    maps = list_maps(module)
    refused: list[ModelError] = []
    values = [getattr(value, "entries", value) for value in known.values()]
    entries = [leaf for leaf in pytree.tree_leaves(values, is_leaf=is_op) if is_op(leaf)]  # operators of single steps
    # Two inputs of a neuron may be one sum if one of them is delayed; the last steps compute states that nothing reads.
    attempts: list[dict[str, Any]] = [{}, {"keeps_inputs": False}, {"unread": entries}]
    for options in attempts:
        try:
            graph = correct_starts(
                choose_entries(drop_sums(expand_buffers(roll_steps([*outputs, *fed, *late], inputs, **options))))
            )
            for node in (node for node in graph.nodes if node.name == "record"):
                node.values = {op.step: op for op in recorded if op.args == node.op.args}
            places = {
                part.name: graph.outputs[len(outputs) + i * len(inputs) :][: len(inputs)]
                for i, part in enumerate(parts)
            }
            graph.outputs = graph.outputs[: len(outputs)]
            n_first = len(groups[0]) if groups else 0
            assembler = Assembler(graph, input_name, sample.shape[2:], n_first, parts, places, _are_spikes(x), maps)
            verify_later(graph)
            given = [op.value for op in graph.inputs]
            trials = [given, *([*drawn[0]] for drawn in draw_like(torch.stack(given)[None]))]
            if assembler.assumed:
                trials = [trial for trial in trials if _are_spikes(torch.stack(trial))]
            if graph.inputs[0].step < 0:  # one input for all steps
                trials = [[steps[0]] * len(steps) for steps in trials]
            samples = [torch.stack([s.reshape(sample.shape[2:]) for s in trial])[None] for trial in trials]
            again = [_record_again(module, one, lead, parts, recorder, known) for one in samples[1:]]
            kept = [(k, record) for k, record in enumerate([recorded, *again]) if record is not None]
            runs = [verify_graph(graph, assembler.used, trials[k], record) for k, record in kept]
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
    samples_of_runs = torch.cat([samples[k] for k, _ in kept])
    spikes = _list_spikes(assembler, runs)
    read_first = partial(find_readout, assembler, runs, samples_of_runs, spikes, graph.outputs[:n_first])
    is_output = bool(groups) and bool(things) and not things[0]
    if groups and things and things[0]:
        readout = read_first()
        if readout is not None:
            network, things[0] = replace(network, readout=readout), ""
    missing = describe_missing(list(filter(None, things)), network, returns)
    return Imported(
        network=replace(network, left_out="; ".join(filter(None, (*assembler.assumed[:1], missing)))),
        recorder=recorder,
        spikes={name: given[:1] for name, given in spikes.items()},
        drawn=samples_of_runs[1:],
        drawn_spikes={name: given[1:] for name, given in spikes.items()},
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


def _record_again(
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
        values |= dict(zip(_list_entries(became), cut or [other], strict=True))
    return values


def _refuse_half_precision(ops: list[Op]) -> None:
    for op in ops[1:]:
        if getattr(op.value, "dtype", None) in HALF:
            raise ModelError(
                f"{op.site}: torch's {op.name} computes in {str(op.value.dtype).removeprefix('torch.')}, and networks "
                "compute in float32 or float64; import module.float()"
            )


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
