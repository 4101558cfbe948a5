"""Find where a module that gets one input for all steps repeats it, or loops over the steps."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from nwcompile.frontend.torch.operators.record import Op, is_op

COPIES = (
    "repeat", "expand", "stack", "cat", "unsqueeze", "select_scatter", "slice_scatter", "clone", "detach", "alias",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Repeat:
    """Copies of `source` along a new leading `axis`; steps that are not `written` hold constants."""

    source: Op
    axis: int
    written: tuple[bool, ...]


def find_repeats(ops: list[Op]) -> dict[Op, Repeat]:
    """Return the operators that hold one value in every step, or in those that are written so far."""
    places: dict[Op, tuple[Op, torch.Tensor]] = {}  # the source, and its entry at every place; -1: a constant
    repeats = {}
    for op in ops:
        sources = {places[o][0] if o in places else o for o in op.operands if o.depends}
        if op.name not in COPIES or len(sources) != 1:
            continue
        source = sources.pop()

        def find_entries(operand, source=source):
            if not is_op(operand) or operand in places:
                return places[operand][1] if is_op(operand) else operand
            shape = operand.value.shape
            return torch.arange(shape.numel()).reshape(shape) if operand is source else torch.full(shape, -1)

        args, kwargs = pytree.tree_map(find_entries, (op.args, op.kwargs), is_leaf=is_op)
        entries = op.func(*args, **kwargs)
        places[op] = source, entries
        repeat = _read_repeat(op, source, entries)
        if repeat is not None:
            repeats[op] = repeat
    n_steps = next((len(repeat.written) for repeat in repeats.values() if all(repeat.written)), 0)
    return {op: repeat for op, repeat in repeats.items() if len(repeat.written) == n_steps}


def _read_repeat(op: Op, source: Op, entries: torch.Tensor) -> Repeat | None:
    """Return the axis along which the entries are those of the source, in order, once for each step."""
    given = [list(o.value.shape) for o in (source, *op.operands)]
    for axis in range(min(2, entries.ndim - 1)):
        without, one = list(entries.shape), list(entries.shape)
        del without[axis]
        one[axis] = 1
        is_leading = axis == 0 or op.name in ("repeat", "expand")
        steps = entries.movedim(axis, 0).flatten(1)
        if steps.shape != (max(len(steps), 2), source.value.numel()):
            continue
        written = (steps == torch.arange(steps.shape[1])).all(1)
        is_repeat = written.any() and bool((written | (steps == -1).all(1)).all())
        if is_repeat and (without in given or (one in given and is_leading)):
            return Repeat(source, axis, tuple(written.tolist()))
    return None


def count_loops(ops: list[Op]) -> tuple[int, dict[Op, int]]:
    """Return the number of steps of a loop, and the step of every operator in it, from the runs of its place.

    The first runs may compute from initial states only.
    """
    runs: dict[tuple, list[Op]] = defaultdict(list)
    for op in ops:
        if op.site.frames:
            inside = op.site.frames[: op.site.n_inside]  # a part may be called at several places
            runs[op.site.modules, inside or op.site.frames, op.name].append(op)
    runs = {place: run for place, run in runs.items() if any(op.depends for op in run)}
    counts = Counter(len(run) for run in runs.values() if len(run) > 1)
    if not counts:
        return 1, {}
    n_steps = counts.most_common(1)[0][0]
    enough = sum(counts.values()) // 10  # code that all layers share runs once for each layer and step
    n_steps = min(n for n, often in counts.items() if n_steps % n == 0 and (often > enough or n == n_steps))
    whole = [run for run in runs.values() if len(run) % n_steps == 0]
    return n_steps, {op: k // (len(run) // n_steps) for run in whole for k, op in enumerate(run)}
