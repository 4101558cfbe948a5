"""Run a module on samples, and record what it does and returns."""

from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from random import Random
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.kinds import fit_batch
from nwcompile.frontend.torch.modules import Stepwise, preserve_state
from nwcompile.frontend.torch.operators.batch_size import fit_run
from nwcompile.frontend.torch.operators.ops import Op, aten, is_op, list_leaves, run_op
from nwcompile.frontend.torch.operators.parts import Part
from nwcompile.frontend.torch.operators.record import OperatorRecorder, list_states
from nwcompile.frontend.torch.operators.steps import Steps, set_times

DRAWN_SCALES = (1.0, 8.0)  # of drawn inputs, relative to the largest of the example
N_OTHER_READS = 6  # runs in which Python reads other values
LARGE_READ = 10**6
TIME_AXES = {"once": None, "TB": 0, "BT": 1, "B": 1, "T*B": 0, "B*T": 0}  # of the input, by its leading axes


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
    run, given = _order_axes(module, sample, lead)
    return fit_run(module, run, len(sample)), given.clone()  # a module may write into its input


def _order_axes(module: torch.nn.Module, sample: torch.Tensor, lead: str) -> tuple[Callable, torch.Tensor]:
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
    module: torch.nn.Module,
    sample: torch.Tensor,
    lead: str,
    layers: dict[torch.nn.Module, str] | None = None,
    alter: Callable[[Any], Any] | None = None,
) -> tuple[OperatorRecorder, Any]:
    """Return the recorder of a run on a sample, and the result with operators instead of tensors.

    `alter`: see OperatorRecorder.
    """
    run, given = prepare_run(module, sample, lead)
    recorder = OperatorRecorder(given, {part: path for path, part in module.named_modules()}, layers, alter=alter)
    return recorder, recorder.record(run, given)


def depends_on_reads(
    module: torch.nn.Module, sample: torch.Tensor, lead: str, layers: dict[torch.nn.Module, str], ops: list[Op], result
) -> bool:
    """Return whether a module runs other operators than `ops`, or returns others, if Python reads other values.

    Values that are read for a log or a plot change nothing. The others are zeros, large ones, and drawn ones.
    """
    for k in range(N_OTHER_READS):
        calls, draw = count(), Random(k)

        def alter(value: Any, k=k, calls=calls, draw=draw) -> Any:
            if next(calls) > len(ops):
                raise RuntimeError("the module loops until it reads a certain value")
            if isinstance(value, bool) or getattr(value, "dtype", None) == torch.bool:
                return (value & False) | (k == 1 if k < 2 else bool(draw.getrandbits(1)))
            factor, offset = (0, k * LARGE_READ) if k < 2 else (draw.randint(-3, 3), draw.randint(-9, 9))
            return factor * value + offset

        try:
            with preserve_state(module):
                recorder, other = record_run(module, sample, lead, layers, alter)
        except Exception:  # a value that the module does not take
            return True
        if not _are_equal([*ops, *list_tensors(result)], [*recorder.ops, *list_tensors(other)]):
            return True
    return False


def _are_equal(ops: list[Op], others: list[Op]) -> bool:
    """Return whether operators are the same, of the same operands, with the same constants."""
    if len(ops) != len(others):
        return False
    place = {op: k for run in (ops, others) for k, op in enumerate(run)}
    for op, other in zip(ops, others, strict=True):
        leaves, given = (list_leaves((o.func, o.name, o.args, o.kwargs)) for o in (op, other))
        if [place[a] if is_op(a) else a for a in leaves] != [place[a] if is_op(a) else a for a in given]:
            return False
        if place[op] != place[other] or (not op.depends and not torch.equal(op.value, other.value)):
            return False
    return True


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
                given: dict[Any, Any] = {**list_states(module), **dict(enumerate(pytree.tree_leaves(result)))}
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
        if not given:  # this input takes another path
            continue
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
