"""Rules that unroll operators which choose, move, join or add up entries of tensors with an axis of steps.

A rule takes the unroller, the recorded operator, and its arguments, in which `Steps` stand for tensors with steps. It
returns the result, or None if the tensors have no steps in this rule's sense.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.operators.ops import Op, aten, constant_op, is_op, make_op
from nwcompile.frontend.torch.operators.steps import Steps, find_steps, set_times, was_moved

if TYPE_CHECKING:
    from nwcompile.frontend.torch.operators.unroll import Unroller

ERROR_CODE = "NW2307"
NO_STATISTICS = (
    "torch's batch_norm without running statistics is a norm over the samples of a batch, which no weight can hold; "
    "set track_running_stats=True, and train again"
)

# Operators that choose steps.


def _select_entry(do: "Unroller", op: Op, steps: Steps, axis: int, index: int) -> Any:
    axis %= len(steps.shape)
    index %= steps.shape[axis]
    if axis != steps.axis:
        return do.map_steps(steps, lambda e: do.emit(aten.select.int, e, axis, index), steps.axis - (axis < steps.axis))
    n = len(steps.entries)
    entry = steps.entries[index // steps.right % n]
    if was_moved(entry):  # In the steps before, it was not moved yet.
        (entry,) = entry.operands
    return do.emit(aten.select.int, entry, axis, index // (steps.right * n) * steps.right + index % steps.right)


def _unbind(do: "Unroller", op: Op, steps: Steps, axis: int = 0) -> list:
    return [_select_entry(do, op, steps, axis, i) for i in range(steps.shape[axis])]


def _split(do: "Unroller", op: Op, steps: Steps, size, axis: int = 0, **options) -> list:
    axis = options.get("dim", axis) % len(steps.shape)
    if axis != steps.axis:
        return _unpack_parts(do, [do.emit(op.func, e, size, axis) for e in steps.entries], steps)
    n = steps.shape[axis]
    sizes = size if isinstance(size, list | tuple) else [size] * ceil(n / size)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    pairs = zip(ends, sizes, strict=True)
    return [_cut_steps(do, steps, range(max(end - one, 0), min(end, n))) for end, one in pairs]


def _unpack_parts(do: "Unroller", results: list[Op], like: Steps) -> Any:
    """Return steps of each part of the results."""
    if isinstance(results[0].value, torch.Tensor):
        return replace(like, entries=results)
    n = len(results[0].value)
    return [replace(like, entries=[do.emit(None, result, i) for result in results]) for i in range(n)]


def _slice(do: "Unroller", op: Op, steps: Steps, axis: int = 0, start=None, end=None, stride: int = 1) -> Steps | Op:
    axis %= len(steps.shape)
    if axis != steps.axis:
        return do.map_steps(steps, lambda e: do.emit(op.func, e, axis, start, end, stride))
    return _cut_steps(do, steps, range(steps.shape[axis])[slice(start, end, stride)])


def _cut_steps(do: "Unroller", steps: Steps, places: range) -> Steps | Op:
    """Return the steps at these places of the axis of steps; one step as its operator."""
    right = steps.right
    wanted = [places[k : k + right] for k in range(0, len(places), right)]
    if steps.left != 1 or any(len(w) != right or w[0] % right or w.step != 1 for w in wanted if right > 1):
        raise do.make_refusal("a slice of an axis that holds steps and entries", "slice before they are merged")
    entries = [steps.entries[w[0] // right] for w in wanted]
    return entries[0] if len(entries) == 1 else replace(steps, entries=entries)


def _flip(do: "Unroller", op: Op, steps: Steps, axes) -> Steps:
    axes = [axis % len(steps.shape) for axis in axes]
    if steps.axis in axes:
        raise do.make_refusal("the order of the steps is reversed", "a chip sees the steps in order of time")
    return do.map_steps(steps, lambda e: do.emit(op.func, e, axes))


def _index_select(do: "Unroller", op: Op, steps: Steps, axis: int, index: Op) -> Steps | None:
    axis %= len(steps.shape)
    return None if axis == steps.axis else do.map_steps(steps, lambda e: do.emit(op.func, e, axis, index))


# Operators that move axes.


def _view(do: "Unroller", op: Op, steps: Steps, *_) -> Steps:
    """Find the axis `[left, step, right]` of the new shape that holds the steps."""
    shape, n = list(op.value.shape), len(steps.entries)
    before = prod(steps.shape[: steps.axis]) * steps.left
    after = prod(steps.shape[steps.axis + 1 :]) * steps.right
    for axis, size in enumerate(shape):
        left, rest = divmod(before, prod(shape[:axis]))
        right, more = divmod(size, left * n) if left else (0, 1)
        if not rest and not more and right and prod(shape[axis + 1 :]) * right == after:
            one = list(shape)
            one[axis] = left * right
            entries = [do.emit(aten.reshape.default, e, one) for e in steps.entries]
            return Steps(entries=entries, axis=axis, left=left, right=right)
    raise do.make_refusal(f"a view of {steps.shape} as {shape} splits the steps", "keep the steps in an axis")


def _permute(do: "Unroller", op: Op, steps: Steps, axes) -> Steps:
    order = [axis % len(axes) for axis in axes]
    return do.map_steps(steps, lambda e: do.emit(op.func, e, axes), order.index(steps.axis))


def _transpose(do: "Unroller", op: Op, steps: Steps, one: int = 0, other: int = 1) -> Steps:
    rank = len(steps.shape)
    if rank < 2:
        return steps
    one, other = one % rank, other % rank
    axis = {one: other, other: one}.get(steps.axis)
    return do.map_steps(steps, lambda e: do.emit(aten.transpose.int, e, one, other), axis)


def _unsqueeze(do: "Unroller", op: Op, steps: Steps, axis: int) -> Steps:
    axis %= len(steps.shape) + 1
    return do.map_steps(steps, lambda e: do.emit(op.func, e, axis), steps.axis + (axis <= steps.axis))


def _squeeze(do: "Unroller", op: Op, steps: Steps, axes=None) -> Steps:
    axes = range(len(steps.shape)) if axes is None else axes if isinstance(axes, list | tuple) else [axes]
    axes = [axis % len(steps.shape) for axis in axes]
    axes = [axis for axis in axes if steps.shape[axis] == 1]
    kept = steps.axis - sum(axis < steps.axis for axis in axes)
    return do.map_steps(steps, lambda e: do.emit(aten.squeeze.dims, e, axes), kept)


def _expand(do: "Unroller", op: Op, steps: Steps, size, **_) -> Steps:
    axis = steps.axis + len(size) - len(steps.shape)
    one = [steps.n_inside if k == axis else n for k, n in enumerate(size)]
    return do.map_steps(steps, lambda e: do.emit(op.func, e, one), axis)


def _repeat(do: "Unroller", op: Op, steps: Steps, counts) -> Steps:
    axis = steps.axis + len(counts) - len(steps.shape)
    if counts[axis] != 1:
        raise do.make_refusal("the steps are repeated", "repeat the input before the module")
    return do.map_steps(steps, lambda e: do.emit(op.func, e, counts), axis)


def _pad(do: "Unroller", op: Op, steps: Steps, pads, value=0) -> Steps:
    pads = list(pads)
    place = 2 * (len(steps.shape) - 1 - steps.axis)
    before, after = pads[place : place + 2] or (0, 0)
    pads[place : place + 2] = [0, 0][: len(pads) - place]
    if (before or after) and steps.n_inside != 1:
        raise do.make_refusal("padding of an axis that holds steps and entries", "pad before they are merged")
    entries = [do.emit(op.func, e, pads, value) for e in steps.entries] if any(pads) else steps.entries
    missing = constant_op(torch.full_like(entries[0].value, value), op.site)
    entries = [missing] * before + entries[max(0, -before) :]  # a negative padding leaves out steps
    return replace(steps, entries=entries[: len(entries) + min(0, after)] + [missing] * after)


# Operators that add up entries.


def _reduce(do: "Unroller", op: Op, steps: Steps, axes=None, keepdim: bool = False, **options) -> Any:
    axes, rank = options.pop("dim", axes), len(steps.shape)
    axes = range(rank) if axes is None or axes == [] else axes if isinstance(axes, list | tuple) else [axes]
    axes = [axis % rank for axis in axes]
    if steps.axis in axes:
        return do.emit(op.func, do.join_steps(steps), *op.args[1:], **op.kwargs)
    kept = steps.axis if keepdim else steps.axis - sum(axis < steps.axis for axis in axes)
    given = axes if op.name in ("sum", "mean", "amax", "amin") else axes[0]
    return do.map_steps(steps, lambda e: do.emit(op.func, e, given, keepdim, **options), kept)


def _work_along(do: "Unroller", op: Op, steps: Steps, axis: int | None = None, *rest, **options) -> Any:
    """Unroll an operator along one axis, which it keeps or not; along the steps, it takes all of them."""
    axis = options.pop("dim", axis)
    if axis is None or axis % len(steps.shape) == steps.axis:
        return None
    axis %= len(steps.shape)
    results = [do.emit(op.func, e, axis, *rest, **options) for e in steps.entries]
    value = op.value if isinstance(op.value, torch.Tensor) else op.value[0]
    is_kept = value.ndim == len(steps.shape)
    return _unpack_parts(do, results, replace(steps, axis=steps.axis - (not is_kept and axis < steps.axis)))


def _add_up_steps(do: "Unroller", op: Op, steps: Steps, axis: int, **options) -> Any:
    if axis % len(steps.shape) != steps.axis or steps.n_inside != 1:
        return _work_along(do, op, steps, axis, **options)
    totals = list(accumulate(steps.entries, lambda total, e: do.emit(aten.add.Tensor, total, e)))
    return replace(steps, entries=totals)


def _normalize_layer(do: "Unroller", op: Op, steps: Steps, shape, *rest) -> Any:
    if steps.axis >= len(steps.shape) - len(shape):
        return None
    return _unpack_parts(do, [do.emit(op.func, e, shape, *rest) for e in steps.entries], steps)


def _convolve(do: "Unroller", op: Op, steps: Steps, weight: Op, bias: Op | None, *geometry) -> Steps:
    stride, padding, dilation, transposed, *rest = geometry
    k = steps.axis - 2
    if steps.axis == 0:
        return do.map_steps(steps, lambda e: do.emit(op.func, e, weight, bias, *geometry))
    if k < 0 or steps.n_inside != 1 or transposed or stride[k] != 1:
        raise do.make_refusal("a convolution mixes steps in a way that is no delay", "use stride 1 over the steps")
    flat = [0 if i == k else n for i, n in enumerate(padding)]
    silent = constant_op(torch.zeros_like(steps.entries[0].value), op.site)
    entries = [silent] * padding[k] + steps.entries + [silent] * padding[k]
    n_taps, reach = weight.value.shape[steps.axis], dilation[k]
    taps = [do.emit(aten.slice.Tensor, weight, steps.axis, i, i + 1) for i in range(n_taps)]
    results = []
    for t in range(len(entries) - (n_taps - 1) * reach):
        terms = [(entries[t + i * reach], tap) for i, tap in enumerate(taps)]
        terms = [(entry, tap) for entry, tap in terms if entry is not silent] or terms[-1:]
        biases = [None] * (len(terms) - 1) + [bias]
        parts = [
            do.emit(op.func, e, tap, b, stride, flat, dilation, transposed, *rest)
            for (e, tap), b in zip(terms, biases, strict=True)
        ]
        results.append(do.add_up(parts))
    return Steps(entries=results, axis=steps.axis)


def _pool(do: "Unroller", op: Op, steps: Steps, size, stride=(), padding=0, *_) -> Any:
    k = steps.axis - (len(steps.shape) - (3 if "3d" in op.name else 2))
    if k >= 0:
        paddings = padding if isinstance(padding, list | tuple) else [padding] * 3
        if (size[k], (stride or size)[k], paddings[k]) != (1, 1, 0):
            raise do.make_refusal("a pooling joins steps", "pool in every step: a kernel of 1 over the steps")
    return _unpack_parts(do, [do.emit(op.func, e, *op.args[1:]) for e in steps.entries], steps)


def _pool_adaptively(do: "Unroller", op: Op, steps: Steps, size) -> Steps | None:
    size, k = list(size), steps.axis - (len(steps.shape) - len(size))
    if k >= 0 and size[k] != steps.shape[steps.axis]:
        return None
    if k >= 0:
        size[k] = steps.n_inside
    return do.map_steps(steps, lambda e: do.emit(op.func, e, size))


def _batch_norm(do: "Unroller", op: Op, steps: Steps, weight, bias, mean, variance, is_training: bool, *rest) -> Any:
    if steps.axis == 1:
        raise do.make_refusal(
            "a norm has its own numbers for each step", "use one BatchNorm for all steps: a chip has one weight"
        )
    if is_training:
        raise ModelError(f"{op.site}: {NO_STATISTICS}")
    numbers = (weight, bias, mean, variance, is_training, *rest)
    return _unpack_parts(do, [do.emit(op.func, e, *numbers) for e in steps.entries], steps)


# Operators of several tensors.


def _stack(do: "Unroller", op: Op, items, axis: int = 0) -> Any:
    axis %= op.value.ndim
    first = next((item for item in items if isinstance(item, Steps)), None)
    if first is None:
        return _join_entries(do, [do.emit(aten.unsqueeze.default, item, axis) for item in items], axis)
    entries = [do.emit(op.func, row, axis) for row in _zip_steps(do, items, first)]
    return replace(first, entries=entries, axis=first.axis + (axis <= first.axis))


def _zip_steps(do: "Unroller", items, first: Steps) -> list[list]:
    """Return the items of each step; all steps must be on the same axis."""
    for item in items:
        if isinstance(item, Steps) and item.layout != first.layout:
            raise do.make_refusal("tensors are joined whose steps are on different axes", "permute them before")
    return [[x.entries[t] if isinstance(x, Steps) else x for x in items] for t in range(len(first.entries))]


def _cat(do: "Unroller", op: Op, items, axis: int = 0) -> Any:
    axis %= op.value.ndim
    items = [item for item in items if isinstance(item, Steps) or item.value.numel()]
    timed = [item for item in items if isinstance(item, Steps)]
    if not timed:
        return _join_entries(do, items, axis)
    first = timed[0]
    if first.axis != axis:
        return replace(first, entries=[do.emit(op.func, row, axis) for row in _zip_steps(do, items, first)])
    entries = []
    for item in items:
        if isinstance(item, Steps) and (item.axis != axis or item.left != 1 or item.right != first.right):
            raise do.make_refusal("tensors are joined whose steps are on different axes", "permute them before")
        entries += item.entries if isinstance(item, Steps) else _slice_constant(do, item, axis, first.right)
    return Steps(entries=entries, axis=axis, right=first.right)


def _join_entries(do: "Unroller", entries: list[Op], axis: int) -> Any:
    """Return steps if the entries are one value in different steps; else one operator, as of an input and a state."""
    sizes = {e.value.shape[axis] for e in entries}
    is_one_value = len(entries) == do.n_steps or do.site not in do.mixed
    if len({e.step for e in entries}) > 1 and len(sizes) == 1 and is_one_value:
        return Steps(entries=set_times(entries, do.n_steps), axis=axis, right=sizes.pop())
    return do.emit(aten.cat.default, entries, axis)


def _slice_constant(do: "Unroller", constant: Op, axis: int, size: int) -> list[Op]:
    return [do.emit(aten.slice.Tensor, constant, axis, k, k + size) for k in range(0, constant.value.shape[axis], size)]


def _cut_like(do: "Unroller", item, like: Steps) -> Steps:
    """Cut a constant into steps on the axis of `like`; return steps unchanged."""
    if isinstance(item, Steps):
        return item
    if item.depends or like.left != 1:
        raise do.make_refusal("an item of all steps is assigned one step", "assign it in every step")
    return Steps(entries=_slice_constant(do, item, like.axis, like.right), axis=like.axis, right=like.right)


def _select_scatter(do: "Unroller", op: Op, whole, part, axis: int, index: int) -> Steps | None:
    axis %= op.value.ndim
    if isinstance(part, Steps):
        timed = replace(part, axis=part.axis + (axis <= part.axis))
        rows = _zip_steps(do, [_cut_like(do, whole, timed)], timed)
        pairs = [(row[0], e) for row, e in zip(rows, part.entries, strict=True)]
        return replace(timed, entries=[do.emit(op.func, w, p, axis, index) for w, p in pairs])
    if is_op(whole):
        if whole.depends or whole.value.shape[axis] < do.n_steps:  # such as a buffer of past spikes
            return None
        whole = Steps(entries=_slice_constant(do, whole, axis, 1), axis=axis)
    if whole.axis != axis or whole.n_inside != 1:
        raise do.make_refusal("an item of all steps is assigned one step", "assign it in every step")
    entries = list(whole.entries)
    entries[index % len(entries)] = do.emit(aten.unsqueeze.default, part, axis)
    is_full = index % len(entries) == len(entries) - 1
    return Steps(entries=set_times(entries, do.n_steps) if is_full else entries, axis=axis)


def _slice_scatter(do: "Unroller", op: Op, whole, part, *place) -> Steps | None:
    given = dict(zip(("axis", "start", "end", "stride"), place, strict=False))
    axis, start, end = given.get("axis", 0) % op.value.ndim, given.get("start"), given.get("end")
    stride = given.get("stride", 1)
    is_timed = not whole.depends and whole.value.shape[axis] >= do.n_steps if is_op(whole) else whole.axis == axis
    if is_timed and is_op(part) and part.step >= 0 and part.value.shape[axis] == 1:
        part = Steps(entries=[part], axis=axis)
    timed = part if isinstance(part, Steps) else whole
    if not isinstance(timed, Steps):
        return None
    if timed.axis != axis:
        rows = _zip_steps(do, [_cut_like(do, item, timed) for item in (whole, part)], timed)
        return replace(timed, entries=[do.emit(op.func, *row, axis, start, end, stride) for row in rows])
    if not isinstance(part, Steps) or part.n_inside != 1:
        raise do.make_refusal("a slice is assigned whose steps are on another axis", "assign it in every step")
    entries = _slice_constant(do, whole, axis, 1) if is_op(whole) else list(whole.entries)
    entries[slice(start, end, stride)] = part.entries
    return Steps(entries=entries, axis=axis)


def _addmm(do: "Unroller", op: Op, bias, left, right, **options) -> Any:
    if isinstance(bias, Steps) or options:
        raise do.make_refusal("a matrix product has a bias for each step", "add it after the product")
    if isinstance(right, Steps) and right.axis == 0:
        product = _multiply(do, op, left, right, lambda a, b: do.emit(aten.mm.default, a, b))
        total = make_op(aten.add.Tensor, (op, bias), {}, op.value, op.site)
        return do.unroll_without_rule(total, (product, bias), {}, find_steps(product))
    return _multiply(do, op, left, right, lambda a, b: do.emit(op.func, bias, a, b))


def _multiply(do: "Unroller", op: Op, left, right, run: Callable[[Op, Op], Op]) -> Any:
    """Unroll a matrix product: along rows of `left`, columns of `right`, or a batch of matrices."""
    if not isinstance(left, Steps) and not isinstance(right, Steps):
        return None
    rows, is_batch = op.value.ndim - 2, op.value.ndim == 3
    if isinstance(left, Steps) and left.axis == rows and not isinstance(right, Steps):
        return do.map_steps(left, lambda e: run(e, right))
    if isinstance(right, Steps) and right.axis == rows + 1 and not isinstance(left, Steps):
        return do.map_steps(right, lambda e: run(left, e))
    if is_batch and all(not isinstance(item, Steps) or item.axis == 0 for item in (left, right)):
        first = left if isinstance(left, Steps) else right
        pairs = _zip_steps(do, [_cut_batch(do, left, first), _cut_batch(do, right, first)], first)
        return replace(first, entries=[run(*pair) for pair in pairs])
    is_causal = isinstance(right, Steps) and right.axis == rows and right.n_inside == 1
    if is_causal and is_op(left) and not left.depends:
        return _mix_steps(do, left, right, run)
    return run(do.join_steps(left), do.join_steps(right))


def _cut_batch(do: "Unroller", item, first: Steps) -> Any:
    """Cut a batch of constant matrices into steps."""
    if isinstance(item, Steps) or item.value.shape[0] == 1:
        return item
    if item.depends or first.left != 1:
        raise do.make_refusal("a product of matrices joins one step with all steps", "compute every step alone")
    return Steps(entries=_slice_constant(do, item, 0, first.right), axis=0, right=first.right)


def _mix_steps(do: "Unroller", matrix: Op, steps: Steps, run: Callable[[Op, Op], Op]) -> Steps:
    """Multiply constant matrices over the steps: row t gives step t, as a sum of steps with weights."""
    entries = []
    for t in range(matrix.value.shape[-2]):
        weights = matrix.value[..., t : t + 1, :]
        chosen = [s for s in range(weights.shape[-1]) if weights[..., s].any()]
        if any(s > t for s in chosen):
            raise do.make_refusal("a step depends on later steps", "use a causal kernel: a chip knows earlier steps")
        terms = [run(constant_op(weights[..., s : s + 1], do.site), steps.entries[s]) for s in chosen]
        entries.append(do.add_up(terms or [constant_op(torch.zeros_like(steps.entries[0].value), do.site)]))
    return Steps(entries=entries, axis=steps.axis)


OF_STEPS: dict[str, Callable] = {  # of operators whose first operand has steps
    "select": _select_entry,
    "unbind": _unbind,
    **dict.fromkeys(("split", "unsafe_split", "split_with_sizes", "unsafe_split_with_sizes"), _split),
    "slice": _slice,
    "flip": _flip,
    "index_select": _index_select,
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), _view),
    "permute": _permute,
    **dict.fromkeys(("transpose", "t"), _transpose),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "repeat": _repeat,
    "constant_pad_nd": _pad,
    **dict.fromkeys(("sum", "mean", "amax", "amin", "any", "all"), _reduce),
    **dict.fromkeys(("argmax", "argmin", "max", "min", "median", "_softmax", "_log_softmax"), _work_along),
    "cumsum": _add_up_steps,
    "native_layer_norm": _normalize_layer,
    "convolution": _convolve,
    **dict.fromkeys(("avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"), _pool),
    "native_batch_norm": _batch_norm,
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _pool_adaptively),
}
OF_SEVERAL: dict[str, Callable] = {
    "stack": _stack,
    "cat": _cat,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "addmm": _addmm,
    **dict.fromkeys(
        ("mm", "bmm"), lambda do, op, left, right: _multiply(do, op, left, right, lambda a, b: do.emit(op.func, a, b))
    ),
}
