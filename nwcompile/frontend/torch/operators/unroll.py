"""Unroll a recording over time: a tensor with an axis of steps becomes one operator for each step.

An operator of one step keeps the axis, with one entry, so that it has the arguments of the recorded operator. A module
that gets one input for all steps repeats it somewhere, or loops over the steps.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import dropwhile
from typing import Any

import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.operators.ops import (
    NEVER,
    Op,
    Site,
    aten,
    call_operator,
    constant_op,
    is_op,
    make_op,
    map_leaves,
)
from nwcompile.frontend.torch.operators.record import RESHAPES, Call
from nwcompile.frontend.torch.operators.step_rules import OF_SEVERAL, OF_STEPS
from nwcompile.frontend.torch.operators.steps import Steps, cut_value, find_steps

ERROR_CODE = "NW2307"
REGISTER = "register"  # a value that is used in the first steps, and then is 0
SAME_SHAPE = frozenset(
    (
        "add", "sub", "rsub", "mul", "div", "neg", "abs", "exp", "log", "sqrt", "reciprocal", "pow", "sigmoid",
        "tanh", "relu", "leaky_relu", "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "where", "gt", "ge",
        "lt", "le", "eq", "ne", "logical_and", "logical_or", "logical_not", "logical_xor", "bitwise_and", "bitwise_or",
        "bitwise_not", "sign", "sgn", "round", "floor", "ceil", "trunc", "heaviside", "_to_copy",
        "clone", "detach", "copy", "lift_fresh", "masked_fill", "alias", "threshold", "fmod", "remainder", "sin", "cos",
        "softplus", "elu", "hardtanh", "hardsigmoid", "index_put", "atan", "erf",
        "floor_divide", "gelu", "hardswish", "_prelu_kernel", REGISTER,
    )
)  # fmt: skip
UNCOUNTED = (*RESHAPES, "record")  # operators that one run of a line may have several of
JOINS = ("cat", "stack")  # of one value in several steps, or of several values
NORM = "normalizes every sample and step by its own statistics, which no fixed weights can do; train with BatchNorm"
NO_MAP = {  # what operators do that no weights can
    **dict.fromkeys(
        (
            "_softmax",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_native_multi_head_attention",
            "_transformer_encoder_layer_fwd",
        ),
        "divides by a sum over entries, which no neuron of a chip can do; use products of spikes",
    ),
    "native_layer_norm": NORM,
    "native_group_norm": NORM,
    "mkldnn_rnn_layer": "runs all steps of a torch.nn.LSTM at once; use torch.nn.LSTMCell in a loop over the steps",
}
OF_MEANS = (  # maps that may be applied before a mean over the steps
    "addmm", "mm", "convolution", "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "t", "transpose",
    "mul", "div",
)  # fmt: skip
OF_REPEATS = (  # operators that may hold one value in several steps
    "repeat", "expand", "stack", "cat", "unsqueeze", "select_scatter", "slice_scatter", "clone", "detach", "alias",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Repeat:
    """Copies of `source` along a new leading `axis`; steps that are not `written` hold constants."""

    source: Op
    axis: int
    written: tuple[bool, ...]


@dataclass(eq=False)
class Mean:
    """The mean of `entries` over all steps."""

    entries: list[Op]


def unroll_steps(ops: list[Op], time_axis: int | None, calls: list[Call]) -> tuple[dict[Op, Any], list[Op]]:
    """Return what every recorded operator becomes (an operator, `Steps`, or a list of these), and each step's input.

    `time_axis`: the axis of steps of the input; None if the module repeats its input, or loops with the same input.
    `calls`: those of layers that are not looked into. Raises ModelError, naming the place, for an operator that mixes
    steps in a way that no neuron or delay can.
    """
    unroller = Unroller(time_axis, ops, calls)
    for op in ops:
        unroller.known[op] = unroller.unroll_op(op)
    for op, value in list(unroller.known.items()):
        unroller.site = op.site
        unroller.known[op] = unroller.resolve_mean(value)
    given = unroller.known[ops[0]]
    return unroller.known, given.entries if isinstance(given, Steps) else [given] * unroller.n_steps


class Unroller:
    """Maps recorded operators to those of single steps."""

    def __init__(self, time_axis: int | None, ops: list[Op], calls: list[Call]):
        self.time_axis, self.calls = time_axis, calls
        self.known: dict[Op, Any] = {}
        self.sliced: dict[tuple, Op] = {}  # constants along the axis of steps, cut into steps
        self.site = Site((), ())
        self.steps: dict[Op, int] = {}  # of operators in a loop over the same input
        self.repeats: dict[Op, Repeat] = {}
        self.n_steps = 0
        self.last_spike = max((op.serial for op in ops if op.depends and op.is_spike), default=NEVER)
        self.last_record = max((op.serial for op in ops if op.name == "record"), default=NEVER)
        self.mixed = {
            op.site for op in ops if op.name in JOINS and len({(o.name, o.site) for o in op.operands if o.depends}) > 1
        }
        if time_axis is not None:
            self.n_steps = ops[0].value.shape[time_axis]
        else:
            self.repeats = find_repeats(ops)
            self.n_steps = next((len(repeat.written) for repeat in self.repeats.values()), 0)
            counts = set(Counter(call.layer for call in calls).values())
            if not self.repeats:
                self.n_steps, self.steps = count_loops(ops)
                n_calls = max(counts) if len(counts) == 1 else self.n_steps
                if n_calls > max(self.n_steps, 1):  # the code runs the first step before its loop, or has two loops
                    is_first_apart = n_calls == self.n_steps + 1
                    self.steps = {op: step + 1 for op, step in self.steps.items()} if is_first_apart else {}
                    self.n_steps = n_calls

    def unroll_op(self, op: Op) -> Any:
        """Return what a recorded operator becomes."""
        self.site = op.site
        if op.name == "input":
            return self._unroll_input(op)
        if not op.depends:
            return op
        if op.name == "record":
            return self._unroll_record(op)
        args, kwargs = map_leaves(lambda a: self.known[a] if is_op(a) else a, (op.args, op.kwargs))
        is_of_mean = op.name in OF_MEANS and sum(o.depends for o in op.operands) == 1
        if not is_of_mean or (op.name == "div" and not isinstance(args[0], Mean)):
            args, kwargs = map_leaves(self.resolve_mean, (args, kwargs))
        if op.name == "getitem":
            return args[0][args[1]] if isinstance(args[0], list | tuple) else self.emit(None, *args)
        if op in self.repeats:
            return self._repeat_input(op, self.repeats[op])
        rule = OF_STEPS.get(op.name) if isinstance(args[0], Steps) else None
        rule = rule or OF_SEVERAL.get(op.name)
        result = self._follow_mean(op, args, kwargs)
        if result is None and rule is not None:
            try:
                result = rule(self, op, *args, **kwargs)
            except ModelError:
                if not self.calls or op.serial < max(self.last_spike, self.last_record):
                    raise
                args, kwargs = map_leaves(self.join_steps, (args, kwargs))  # the host may join steps behind all layers
        if result is not None:
            return self._verify_order(result)
        given = find_steps((args, kwargs))
        if given:
            return self.unroll_without_rule(op, args, kwargs, given)
        return self.emit(op.func, *args, step=self.steps.get(op, NEVER), **kwargs)

    def emit(self, func, *args, step: int = NEVER, **kwargs) -> Op:
        """Return an operator of a single step, in `step` or later."""
        try:
            value = call_operator(func, args, kwargs)
        except (RuntimeError, IndexError) as e:
            what = f"one step alone cannot be computed ({str(e).splitlines()[0].rstrip('.')})"
            raise self.make_refusal(what, "compute every step alone, with states of one step") from None
        op = make_op(func, args, kwargs, value, self.site)
        return replace(op, step=step) if step > op.step else op

    def map_steps(self, steps: Steps, run: Callable[[Op], Op], axis: int | None = None) -> Steps:
        """Return the results of `run` on every entry, with the steps on `axis`."""
        return replace(steps, entries=[run(e) for e in steps.entries], axis=steps.axis if axis is None else axis)

    def join_steps(self, value: Any) -> Any:
        """Return all steps as one operator, which only the last step knows."""
        if not isinstance(value, Steps):
            return value
        if value.left != 1:
            raise self.make_refusal("steps behind the entries of an axis are joined", "keep the steps in an axis")
        return self.emit(aten.cat.default, value.entries, value.axis)

    def add_up(self, terms: list[Op]) -> Op:
        """Return the sum of operators."""
        return reduce(lambda total, term: self.emit(aten.add.Tensor, total, term), terms)

    def make_refusal(self, what: str, instead: str) -> ModelError:
        """Return the error for the operator that is unrolled."""
        return ModelError(f"{self.site}: {what}; {instead}")

    def _verify_order(self, result: Any) -> Any:
        """Return a result; raise ModelError if one of its steps depends on later ones."""
        is_whole = isinstance(result, Steps) and len(result.entries) == self.n_steps
        if is_whole and any(e.step > t for t, e in enumerate(result.entries)):
            raise self.make_refusal("a step depends on later steps", "a chip knows earlier steps only: use causal maps")
        return result

    def _unroll_input(self, op: Op) -> Any:
        axis = self.time_axis
        if axis is None:
            return op
        parts = enumerate(op.value.unbind(axis))
        return Steps([replace(op, value=part.unsqueeze(axis), step=t, args=(t,)) for t, part in parts], axis)

    def _unroll_record(self, op: Op) -> Any:
        """Return what a layer gives: in every step, if it was given all steps; a state without steps is the last."""
        call = self.calls[op.kwargs["call"]]
        fed = self.known[call.given[0]]
        if not isinstance(fed, Steps):
            return replace(op, step=call.number)
        parts = None if "step" in op.kwargs else cut_value(op.value, fed.layout)
        if parts is None:
            return replace(op, step=op.kwargs.get("step", len(fed.entries) - 1))
        return replace(fed, entries=[replace(op, value=part, step=t) for t, part in enumerate(parts)])

    def _follow_mean(self, op: Op, args: tuple, kwargs: dict) -> Mean | None:
        """Return the mean over the steps of known layers, and of maps of it, which are applied in every step."""
        means = [a for a in args if isinstance(a, Mean)]
        if means:
            steps = range(self.n_steps)
            rows = [tuple(a.entries[t] if isinstance(a, Mean) else a for a in args) for t in steps]
            return Mean([self.emit(op.func, *row, **kwargs) for row in rows])
        first = args[0]
        axes = args[1] if len(args) > 1 else None
        is_mean = op.name == "mean" and self.calls and isinstance(first, Steps) and isinstance(axes, list | tuple)
        if not is_mean or first.n_inside != 1 or [axis % len(first.shape) for axis in axes or ()] != [first.axis]:
            return None
        rest = args[1:]
        return Mean([self.emit(op.func, e, *rest, **kwargs) for e in first.entries])

    def resolve_mean(self, value: Any) -> Any:
        """Return a mean over the steps as an operator, which only the last step knows."""
        if not isinstance(value, Mean):
            return value
        stacked = self.emit(aten.stack.default, value.entries, 0)
        return self.emit(aten.mean.dim, stacked, [0])

    def _repeat_input(self, op: Op, repeat: Repeat) -> Steps:
        axis, one = repeat.axis, list(op.value.shape)
        one[axis] = 1
        entries = [
            self.emit(aten.reshape.default, self.known[repeat.source], one, step=t)
            if is_written
            else constant_op(op.value.narrow(axis, t, 1).clone(), op.site)
            for t, is_written in enumerate(repeat.written)
        ]
        return Steps(entries, axis)

    def unroll_without_rule(self, op: Op, args, kwargs, given: list[Steps]) -> Steps | Op:
        """Unroll an operator without a rule, if it computes entries or steps alone; others get all steps joined."""
        if op.name in NO_MAP and op.serial < max(self.last_spike, self.last_record):
            raise ModelError(f"{op.site}: {op.title} {NO_MAP[op.name]}")
        if torch.Tag.nondeterministic_seeded in op.func.tags:  # refused by name if a neuron or the result takes it
            return self.map_steps(
                given[0],
                lambda e: self.emit(op.func, *map_leaves(lambda a: e if isinstance(a, Steps) else a, args), **kwargs),
            )
        if not is_entrywise(op):
            alone = self._unroll_alone(op, args, kwargs, given)
            return alone or self.emit(op.func, *map_leaves(self.join_steps, args), **kwargs)
        first = given[0]
        place = first.axis - len(first.shape)  # from the end, as broadcasting aligns
        for steps in given:
            if steps.layout._replace(axis=steps.axis - len(steps.shape)) != first.layout._replace(axis=place):
                raise self.make_refusal(
                    f"torch's {op.name} joins tensors whose steps are on different axes, or of different number",
                    "compute every step alone",
                )
        entries = []
        for t in range(len(first.entries)):
            pick = partial(self._pick_step, t=t, place=place, first=first, op=op)
            row, named = map_leaves(pick, (args, kwargs))
            entries.append(self.emit(op.func, *row, **named))
        return replace(first, entries=entries, axis=op.value.ndim + place)

    def _unroll_alone(self, op: Op, args, kwargs, given: list[Steps]) -> Steps | None:
        """Unroll an operator that gives each step alone what it gives all steps at once, on drawn values; else None."""
        steps, axis, n = given[0], given[0].axis, len(given[0].entries)
        if len(given) > 1 or steps.n_inside > 1 or not isinstance(op.value, torch.Tensor):
            return None
        dtype = steps.entries[0].value.dtype
        drawn = torch.randn(steps.shape, generator=torch.Generator().manual_seed(0)).to(dtype)

        def fill(part, t: int) -> tuple:
            def cut(value):
                if isinstance(value, Steps):
                    return part
                has_steps = is_op(value) and not value.depends and [*value.value.shape] == steps.shape
                return constant_op(value.value.narrow(axis, t, 1), value.site) if has_steps else value

            return map_leaves(cut, (args, kwargs))

        try:
            whole = call_operator(op.func, *map_leaves(lambda a: drawn if isinstance(a, Steps) else a, (args, kwargs)))
            parts = [call_operator(op.func, *fill(drawn.narrow(axis, t, 1), t)) for t in range(n)]
        except (RuntimeError, IndexError):
            return None
        for place, size in enumerate(whole.shape):
            if size == n == sum(p.shape[place] for p in parts if p.ndim == whole.ndim):
                joined = torch.cat(parts, place)
                if torch.equal(joined, whole):
                    rows = (fill(entry, t) for t, entry in enumerate(steps.entries))
                    return replace(
                        steps, entries=[self.emit(op.func, *row, **named) for row, named in rows], axis=place
                    )
        return None

    def _pick_step(self, value, t: int, place: int, first: Steps, op: Op):
        """Return an operand of an elementwise operator in step t; one tensor along the steps is cut."""
        if isinstance(value, Steps):
            return value.entries[t]
        if not is_op(value) or value.value.ndim < -place or value.value.shape[place] == 1:
            return value
        if first.left != 1 or (value.depends and op.serial < self.last_spike):
            raise self.make_refusal(f"torch's {op.name} joins one step with all steps", "compute every step alone")
        if value.depends:
            axis = value.value.ndim + place
            return self.emit(aten.slice.Tensor, value, axis, t * first.right, (t + 1) * first.right)
        start, part = (value.value.narrow(place, k * first.right, first.right) for k in (0, t))
        key = (value, place, 0 if torch.equal(start, part) else t)
        if key not in self.sliced:
            self.sliced[key] = constant_op(part.clone(), self.site)
        return self.sliced[key]


def is_entrywise(op: Op) -> bool:
    """Return whether an operator computes every entry alone."""
    return op.name in SAME_SHAPE or torch.Tag.pointwise in op.func.tags


def find_repeats(ops: list[Op]) -> dict[Op, Repeat]:
    """Return the operators that hold one value in every step, or in those that are written so far."""
    places: dict[Op, tuple[Op, torch.Tensor]] = {}  # the source, and its entry at every place; -1: a constant
    repeats = {}
    for op in ops:
        sources = {places[o][0] if o in places else o for o in op.operands if o.depends}
        if op.name not in OF_REPEATS or len(sources) != 1:
            continue
        source = sources.pop()

        def find_entries(operand, source=source):
            if not is_op(operand) or operand in places:
                return places[operand][1] if is_op(operand) else operand
            shape = operand.value.shape
            return torch.arange(shape.numel()).reshape(shape) if operand is source else torch.full(shape, -1)

        args, kwargs = map_leaves(find_entries, (op.args, op.kwargs))
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
        # Python drops leading axes of one entry of what it assigns.
        is_whole = without in given or list(dropwhile(lambda n: n == 1, without)) == list(source.value.shape)
        if is_repeat and (is_whole or (one in given and is_leading)):
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
    counts = Counter(len(run) for (_, _, name), run in runs.items() if len(run) > 1 and name not in UNCOUNTED)
    if not counts:
        return 1, {}
    n_steps = counts.most_common(1)[0][0]
    enough = sum(counts.values()) // 10  # code that all layers share runs once for each layer and step
    n_steps = min(n for n, often in counts.items() if n_steps % n == 0 and (often > enough or n == n_steps))
    whole = [run for run in runs.values() if len(run) % n_steps == 0]
    return n_steps, {op: k // (len(run) // n_steps) for run in whole for k, op in enumerate(run)}
