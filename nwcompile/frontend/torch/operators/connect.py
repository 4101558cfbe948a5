"""Express the operators between neurons as linear maps of symbols."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.operations import (
    UnfollowableError,
    affine_operation,
    as_float32,
    build_operation,
    sparse_operation,
    sum_windows,
)
from nwcompile.frontend.torch.operators.graph import MOVES, Node, Ref, StepGraph, fill_arguments, is_ref, run_node
from nwcompile.frontend.torch.operators.neurons import drop_ones, is_elementwise, is_linear
from nwcompile.frontend.torch.operators.ops import CrashError, is_op
from nwcompile.frontend.torch.operators.read_map import read_linear_map
from nwcompile.frontend.torch.operators.roll import FED
from nwcompile.frontend.torch.operators.step_rules import NO_STATISTICS
from nwcompile.frontend.torch.operators.unroll import NO_MAP
from nwcompile.frontend.torch.symbols import (
    Applied,
    Operation,
    Picked,
    Pooled,
    Source,
    Summed,
    Symbol,
    is_permutation,
    pick_entries,
    with_shape,
)
from nwcompile.ir.connection import MatMul, Pool2d, Scale

ERROR_CODE = "NW2307"
FUNCTIONS = {  # of torch, which run operators
    "max_pool2d_with_indices": "max_pool2d", "addmm": "linear", "mm": "matmul", "bmm": "matmul",
    "convolution": "conv2d",
}  # fmt: skip
OF_MAPS = ("torch.nn.modules.", "spikingjelly.activation_based.layer")  # whose classes name the operators they run
MAXIMA = ("max_pool2d_with_indices", "max_pool3d_with_indices")
MEANS = ("avg_pool2d", "avg_pool3d")
NOWHERE = -1


class Connector:
    """Returns the symbol of each node's result; `sources` are the symbols of neurons and inputs.

    `maps`: the modules by path whose operators have the module's name, such as a torch.nn.Linear. `connect_record`:
    returns the symbol of what a layer gives that is not looked into.
    """

    def __init__(
        self,
        graph: StepGraph,
        sources: dict[Node, Source],
        is_binary: Callable[..., bool],
        maps: dict[str, torch.nn.Module],
        connect_record: Callable[[Node], Symbol] | None = None,
    ):
        self.graph, self.is_binary, self.maps, self.connect_record = graph, is_binary, maps, connect_record
        self.symbols: dict[Node, Any] = dict(sources)
        self.running: set[Node] = set()  # nodes that are being connected

    def sum_refs(
        self, refs: list[Ref], signs: list, shift: float, shape: tuple[int, ...], total: Node | None = None
    ) -> Symbol:
        """Return the symbol of a weighted sum of references and a number, in the size of `shape`.

        `total`: the node of the sum, whose place names its terms between known layers.
        """
        terms = [
            self.scale(self.broadcast(r, shape), sign, 0, total or r.node)
            for r, sign in zip(refs[1:], signs[1:], strict=True)
        ]
        first = self.scale(self.broadcast(refs[0], shape), signs[0], shift, total or refs[0].node)
        return reduce(lambda a, b: Summed((a, with_shape(b, a.shape)), a.shape), terms, first)

    def stack_refs(self, refs: list[Ref], shape: tuple[int, ...]) -> Symbol:
        """Return the symbol of several inputs of neurons of `shape`: the channels of the first, of the second, ..."""
        sources = tuple(self.broadcast(ref, shape) for ref in refs)
        n, (n_channels, *rest) = prod(shape), drop_ones(shape)
        which, index = np.divmod(np.arange(n * len(refs)), n)
        return Picked(sources, which, index, (n_channels * len(refs), *rest))

    def look_up(self, ref: Ref) -> Symbol:
        """Return the symbol of a reference; raise ModelError if it starts from another value than the network's."""
        symbol = self.connect(ref.node)
        if not ref.delay:
            return symbol
        self._verify_start(ref)
        n = prod(symbol.shape)
        return Picked((symbol,), np.zeros(n, np.int64), np.arange(n), symbol.shape, -ref.delay)

    def _verify_start(self, ref: Ref) -> None:
        silent = self._silent_value(ref.node)
        for k in range(1, ref.delay + 1):
            if not torch.equal(self.graph.initial_value(ref.node, k).to(silent.dtype), silent):
                late = f"{ref.delay} step{'s' if ref.delay > 1 else ''} late"
                raise ModelError(
                    f"{ref.node.op.site}: the input that arrives {late} starts from a value that no connection has: "
                    "with a bias, the module adds it from a later step on, but a chip from step 0 on; use bias=False, "
                    "or start from zeros"
                )

    def _silent_value(self, node: Node) -> torch.Tensor:
        """Return a node's value if no neuron fires and the input is 0."""
        if node.name == "record" or isinstance(self.symbols.get(node), Source):
            return torch.zeros_like(node.op.value)
        with torch.no_grad():
            return run_node(node, lambda ref: self._silent_value(ref.node))

    def connect(self, node: Node) -> Symbol:
        """Return the symbol of a node's result in the same step."""
        if node not in self.symbols:
            if node in self.running:
                raise ModelError(
                    f"{node.op.site}: a state goes through torch's {node.name}, which is no part of a neuron; keep "
                    "states in elementwise operators, and earlier spikes in a list"
                )
            self.running.add(node)
            try:
                self.symbols[node] = self._connect_node(node)
            finally:
                self.running.discard(node)
        return self.symbols[node]

    def _connect_node(self, node: Node) -> Symbol:
        name, site = node.name, node.op.site
        if is_elementwise(node) and not is_linear(node):
            raise ModelError(
                f"{site}: a value inside a neuron is used by other neurons; a chip sends a neuron's result only"
            )
        try:
            if name == "record" and self.connect_record is not None:
                return self.connect_record(node)
            if name == FED:
                return self.look_up(node.refs[0])
            if name == "getitem":
                return self._connect_entry(node)
            if name in MOVES:
                return self._move(node, lambda args, kwargs: node.op.func(*args, **kwargs))
            if is_elementwise(node):
                return self._connect_elementwise(node)
            if name in ("mm", "bmm") and len(node.refs) == 2:
                return self._multiply(node)
            makers = {"convolution": self._convolve}
            makers |= dict.fromkeys(("addmm", "mm", "bmm"), self._multiply_constant)
            makers |= dict.fromkeys(MEANS, self._average)
            makers |= {"_adaptive_avg_pool2d": self._average_windows, "sum": self._add_axes, "mean": self._add_axes}
            makers |= {"amax": self._maximize_axes, "max": self._maximize_axes}
            symbol = makers[name](node) if name in makers else None
            if symbol is not None:
                return symbol
            if len(node.refs) == 1 and isinstance(node.op.value, torch.Tensor) and not node.op.value.is_complex():
                return self._read_map(node)
        except UnfollowableError as e:
            name = node.refs[0].node.name if name == "getitem" else name
            name = f"conv{len(node.shape) - 2}d" if name == "convolution" else FUNCTIONS.get(name, name)
            raise ModelError(f"{site}: torch's {name}, {e}") from None
        except NwError:
            raise
        except Exception as e:
            text = f"{site}: nwcompile fails on torch's {name} ({type(e).__name__}: {e}); please report it"
            raise CrashError(text) from e
        raise self._refuse(node)

    def _refuse(self, node: Node) -> ModelError:
        why = NO_MAP.get(node.name) or (
            "is neither elementwise, as a step of neurons, nor a linear map with fixed weights; use sums, products "
            "with weights, pooling and BatchNorm"
        )
        return ModelError(f"{node.op.site}: {node.op.title} {why}")

    def name_place(self, node: Node) -> str:
        """Return the path of the map that runs an operator; elsewhere, the module's path and the function's name."""
        path, name = node.op.site.path, node.name.strip("_")
        return path if path in self.maps else ".".join(filter(None, (path, FUNCTIONS.get(name, name))))

    # Entries of tuples.

    def _connect_entry(self, node: Node) -> Symbol:
        whole, entry = node.refs[0], node.args[1]
        maker = whole.node
        if maker.name == "native_batch_norm":
            return self._normalize(maker)
        if maker.name in MAXIMA:
            return self._maximize(maker)
        if maker.name == "max" and entry == 0:
            return self._maximize_axes(maker)
        if maker.name not in MOVES:
            raise self._refuse(maker)
        return self._move(maker, lambda args, kwargs: maker.op.func(*args, **kwargs)[entry])

    def _normalize(self, node: Node) -> Symbol:
        x, weight, bias, mean, variance, is_training, _, epsilon = node.args
        if is_training or mean is None:
            raise ModelError(f"{node.op.site}: {NO_STATISTICS}")
        source = self.look_up(x)
        n_rows, n_channels, *after = x.node.shape  # more than one row if the module moves axes to that of the samples
        n, inner = n_rows * n_channels, prod(after)
        scale = (1.0 if weight is None else weight.value.double()) / torch.sqrt(variance.value.double() + epsilon)
        shift = (0.0 if bias is None else bias.value.double()) - mean.value.double() * scale
        scale, shift = scale.repeat(n_rows), shift.repeat(n_rows)
        operation = affine_operation(self.name_place(node), "BatchNorm", as_float32(scale), as_float32(shift))
        shape = source.shape if source.shape[0] == n else (n, inner) if inner > 1 else (n,)
        return Applied(operation, with_shape(source, shape), shape)

    def _maximize(self, node: Node) -> Symbol:
        source, numbers, shape = self._window(node)
        if {*(dilation := _read_per_axis(node.args, 4, 1)[-2:])} == {1} and not any(node.args[5:]):
            return self._pool_maxima(node, source, shape, **numbers)
        if not self.is_binary(source, on_example=True):
            raise UnfollowableError("whose dilation or ceil_mode is supported for spikes only")
        operation = sum_windows(self.name_place(node), source.shape, shape, dilation=dilation, **numbers)
        return Pooled(operation, source, shape)

    def _pool_maxima(self, node: Node, source: Symbol, shape: tuple[int, ...], **numbers) -> Symbol:
        """Return the maxima of windows, as spikes or as currents; `numbers`: of a torch.nn.MaxPool2d."""
        given = SimpleNamespace(**numbers, dilation=1, ceil_mode=False, return_indices=False)
        operation, source, shape = self._build_pool(torch.nn.MaxPool2d, torch.nn.MaxPool1d, given, node, source, shape)
        if self.is_binary(source, on_example=True):  # a maximum of other numbers is the same
            return Pooled(operation, source, shape)
        assert operation.maximum is not None, "a maximum pooling has it"
        return Applied(replace(operation, connect=operation.maximum), source, shape)

    def _maximize_axes(self, node: Node) -> Symbol:
        """Return the maximum over neighboring axes, such as tokens, as a pooling whose window has all their entries."""
        x = node.refs[0]
        given = node.args[1] if len(node.args) > 1 else []
        n_axes = len(x.node.shape)
        axes = sorted(axis % n_axes for axis in (given if isinstance(given, list | tuple) else [given]))
        axes = [axis for axis in axes or range(n_axes) if x.node.shape[axis] > 1] or [0]
        first, last = axes[0], axes[-1]
        if axes != [*range(first, last + 1)]:
            raise UnfollowableError("over axes that are not neighbors; permute them before")
        before, window, after = (prod(x.node.shape[k:n]) for k, n in ((0, first), (first, last + 1), (last + 1, None)))
        source = with_shape(self.look_up(x), (before, window, after))
        size = (window, 1)
        pooled = self._pool_maxima(node, source, (before, 1, after), kernel_size=size, stride=size, padding=(0, 0))
        result = node.op.value[0] if isinstance(node.op.value, tuple | list) else node.op.value
        return with_shape(pooled, drop_ones(tuple(result.shape)))

    def _add_axes(self, node: Node) -> Symbol | None:
        """Return a sum or mean over axes as a pooling whose window has all their entries."""
        if isinstance(self.maps.get(node.op.site.path), torch.nn.AdaptiveAvgPool2d):
            return self._average_windows(node)
        x = node.refs[0]
        given = node.args[1] if len(node.args) > 1 else None
        n_axes = len(x.node.shape)
        axes = sorted({axis % n_axes for axis in (given if given is not None else range(n_axes))}) or [*range(n_axes)]
        kept = [axis for axis in range(n_axes) if axis not in axes]
        n_kept, n_added = (prod(x.node.shape[axis] for axis in some) for some in (kept, axes))
        if node.kwargs.get("dtype") is not None or n_added == 1:
            return None
        stand_in = Node(x.node.op, (x,), {})
        windows = self._move(stand_in, lambda args, _: args[0].permute(*kept, *axes).reshape(n_kept, 1, n_added))
        kind = "sum" if node.name == "sum" else "avg"

        def connect(source, target, delay, _shape):
            return Pool2d(source, target, kernel=(1, n_added), kind=kind, delay=delay)

        operation = Operation(self.name_place(node), node.name, connect)
        pooled = Applied(operation, with_shape(windows, (n_kept, 1, n_added)), (n_kept, 1, 1))
        return with_shape(pooled, drop_ones(node.shape))

    def _average_windows(self, node: Node) -> Symbol:
        x = node.refs[0]
        n_channels = prod(x.node.shape[:-2])
        source = with_shape(self.look_up(x), (n_channels, *x.node.shape[-2:]))
        given = SimpleNamespace(output_size=tuple(node.shape[-2:]))
        operation = build_operation(torch.nn.AdaptiveAvgPool2d, given, self.name_place(node), source.shape)
        return Applied(operation, source, (n_channels, *given.output_size))

    def _average(self, node: Node) -> Symbol | None:
        try:
            source, numbers, shape = self._window(node)
        except UnfollowableError:
            return None
        leaves_out_padding = len(node.args) > 5 and not node.args[5] and any(numbers["padding"])
        if any(node.args[4:5]) or leaves_out_padding or any(node.args[6:]):
            return None
        given = SimpleNamespace(**numbers, ceil_mode=False, divisor_override=None, count_include_pad=True)
        return Applied(*self._build_pool(torch.nn.AvgPool2d, torch.nn.AvgPool1d, given, node, source, shape))

    def _build_pool(
        self, of_rows: type, of_one: type, given: SimpleNamespace, node: Node, source: Symbol, shape
    ) -> Any:
        """Return the operation of a pooling, its source and the shape of its result, without rows if it has one."""
        path, part = self.name_place(node), self.maps.get(node.op.site.path)
        is_1d = isinstance(part, of_one) or (part is None and node.refs[0].node.shape[-2] == 1)
        if not is_1d:
            return build_operation(of_rows, given, path, source.shape), source, shape
        last = {name: value[-1] if isinstance(value, tuple) else value for name, value in vars(given).items()}
        source, shape = with_shape(source, (source.shape[0], source.shape[-1])), (shape[0], shape[-1])
        path = path if part is not None else path.replace("pool2d", "pool1d")
        return build_operation(of_one, SimpleNamespace(**last), path, source.shape), source, shape

    def _window(self, node: Node) -> tuple[Symbol, dict, tuple[int, ...]]:
        """Return the source `[C, H, W]` of a pooling, its numbers over H and W, and the shape of its result."""
        x = node.refs[0]
        n_axes = 3 if "3d" in node.name else 2
        kernel = _read_per_axis(node.args, 1, 1, n_axes)
        stride = _read_per_axis(node.args, 2, 1, n_axes) if len(node.args) > 2 and node.args[2] else kernel
        padding = _read_per_axis(node.args, 3, 0, n_axes)
        result = node.op.value[0] if isinstance(node.op.value, tuple | list) else node.op.value
        before, after = x.node.shape[-n_axes:], result.shape[-n_axes:]
        first = next((k for k in range(n_axes) if (kernel[k], stride[k], padding[k]) != (1, 1, 0)), n_axes)
        moved = range(first, n_axes)
        if len(moved) > 2:
            raise UnfollowableError("whose windows are over more than two axes")

        def pick(values, rest: int) -> tuple[int, ...]:
            return (*(rest,) * (2 - len(moved)), *(values[k] for k in moved))

        wide, narrow = pick(before, 1), pick(after, 1)
        n_channels = x.node.size // prod(wide)
        source = with_shape(self.look_up(x), (n_channels, *wide))
        numbers = {"kernel_size": pick(kernel, 1), "stride": pick(stride, 1), "padding": pick(padding, 0)}
        return source, numbers, (n_channels, *narrow)

    # Moves, sums and products.

    def _move(self, node: Node, run: Callable) -> Symbol:
        """Return chosen entries of the operands; constants among them are added."""
        refs = list({(r.node, r.delay): r for r in node.refs}.values())
        sources = [self.look_up(r) for r in refs]
        starts = np.cumsum([0, *(r.node.size for r in refs)])
        numbers = {
            (r.node, r.delay): (torch.arange(r.node.size, dtype=torch.float64) + start).reshape(r.node.shape)
            for r, start in zip(refs, starts, strict=False)
        }

        def find_constant(value: torch.Tensor) -> torch.Tensor:
            return value.double() if value.dtype.is_floating_point else value

        with torch.no_grad():
            args, kwargs = fill_arguments(node, lambda r: torch.zeros_like(numbers[r.node, r.delay]), find_constant)
            shift = run(args, kwargs)
            args, kwargs = fill_arguments(node, lambda r: numbers[r.node, r.delay] + 1, find_constant)
            moved = run(args, kwargs)
            moved = moved.where((moved != shift) & moved.isfinite(), 0)  # equal ones are constants
            places = moved.reshape(-1).to(torch.int64).numpy() - 1
        shape = drop_ones(tuple(shift.shape))
        which = np.searchsorted(starts, places, side="right") - 1
        used = [k for k in range(len(refs)) if (which == k).any()]
        if not used:
            raise ModelError(f"{node.op.site}: torch's {node.name} takes constants only")
        if (places == NOWHERE).any():
            terms: list[Symbol] = []  # entries at places of the result, and 0 elsewhere
            for k in used:
                operation = sparse_operation(
                    self.name_place(node), node.name, places[which == k] - starts[k], np.flatnonzero(which == k)
                )
                terms.append(Applied(operation, sources[k], shape))
            entries = reduce(lambda a, b: Summed((a, b), shape), terms)
            return self.scale(entries, 1, shift.reshape(-1).numpy(), node)
        index = (places - starts[which]).astype(np.int64)
        chosen = pick_entries(sources, which, index, shape)
        return with_shape(chosen.sources[0], shape) if chosen.is_view else chosen

    def _connect_elementwise(self, node: Node) -> Symbol:
        if node.name == "_to_copy":
            source, dtype = self.look_up(node.refs[0]), node.op.value.dtype
            if (
                not dtype.is_floating_point
                and node.refs[0].node.op.value.is_floating_point()
                and not self._is_whole(source)
            ):
                raise ModelError(
                    f"{node.op.site}: a cast to {dtype} cuts numbers to whole ones; keep them float, or use torch.trunc"
                )
            return source
        terms = [a for a in node.args[:2] if is_ref(a) or is_op(a) or isinstance(a, int | float)]
        refs = [a for a in terms if is_ref(a)]
        alpha = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
        signs = {"add": (1, alpha), "sub": (1, -alpha), "rsub": (-alpha, 1), "neg": (-1,)}.get(node.name)
        if signs is not None:
            pairs = list(zip(terms, signs, strict=False))
            shifts = [k * self._constant(a, node) for a, k in pairs if not is_ref(a)]
            shift = shifts[0] if len(shifts) == 1 else sum(shifts)  # a sum has no -0
            return self.sum_refs(refs, [k for a, k in pairs if is_ref(a)], shift, node.shape, node)
        number = self._constant(next(a for a in terms if not is_ref(a)), node)
        if node.name == "div" and not np.all(number):
            raise ModelError(f"{node.op.site}: a division by 0; divide by other numbers")
        scale = number if node.name == "mul" else 1 / np.asarray(number)
        shift = 0.0 if node.name == "mul" else 0  # as in networks of earlier releases
        return self.scale(self.broadcast(refs[0], node.shape), scale, shift, node)

    def _is_whole(self, symbol: Symbol) -> bool:
        """Return whether values are certainly whole numbers: spikes, and their sums."""
        parts = symbol.terms if isinstance(symbol, Summed) else symbol.sources if isinstance(symbol, Picked) else ()
        return self.is_binary(symbol) or (bool(parts) and all(map(self._is_whole, parts)))

    def broadcast(self, ref: Ref, shape: tuple[int, ...]) -> Symbol:
        """Return an operand in the size of `shape`."""
        if ref.node.size == prod(shape):
            return self.look_up(ref)
        stand_in = Node(ref.node.op, (ref,), {})
        try:
            return self._move(stand_in, lambda args, _: args[0].expand(shape))
        except RuntimeError:
            op = ref.node.op
            what = f"{list(ref.node.shape)} of torch's {op.name} do not spread over {list(shape)}"
            raise ModelError(f"{op.site}: {what}; give both the same shape") from None

    def _constant(self, value, node: Node):
        """Return a constant as a number, or an array of the node's entries."""
        if not is_op(value):
            return value
        tensor = value.value.double()
        if bool((tensor == tensor.reshape(-1)[0]).all()):
            return tensor.reshape(-1)[0].item()
        return tensor.expand(node.shape).reshape(-1).numpy()

    def scale(self, symbol: Symbol, scale, shift, node: Node) -> Symbol:
        """Return `scale * symbol + shift`, with numbers or one for each entry; `node` gives its place."""
        if np.all(scale == 1) and np.all(shift == 0):
            return symbol
        if is_permutation(symbol):  # scaled before it moves: there the numbers may be those of channels
            order = np.argsort(symbol.index)
            scale, shift = (np.ravel(v)[order] if np.ndim(v) else v for v in (scale, shift))
            return replace(symbol, sources=(self.scale(symbol.sources[0], scale, shift, node),))
        scale, shift = _per_channel(scale, symbol.shape), _per_channel(shift, symbol.shape)
        return scale_symbol(symbol, scale, shift, self.name_place(node))

    # Maps with weights.

    def _multiply_constant(self, node: Node) -> Symbol | None:
        """Return a product with constant weights, on the right for one row or for each, or on the left."""
        x, weight = node.args[-2:]
        if node.name != "addmm" and is_ref(weight) and not is_ref(x) and weight.node.shape[-1] > 1:
            return self._multiply_columns(node, x.value, weight)
        if not is_ref(x) or is_ref(weight) or (node.name == "addmm" and is_ref(node.args[0])) or node.kwargs:
            return None
        matrix = weight.value.squeeze(0) if node.name == "bmm" else weight.value
        if matrix.ndim > 2:
            return None
        bias = node.args[0].value if node.name == "addmm" else None
        if bias is not None and bias.numel() != matrix.shape[1]:
            bias = bias.expand(matrix.shape[1]) if bias.numel() == 1 else None
            if bias is None:
                return None
        rows, n_in = x.node.shape[-2:]
        given = SimpleNamespace(weight=matrix.T, bias=None if bias is None else bias.reshape(-1))
        shape, result = ((n_in,), (matrix.shape[1],)) if rows == 1 else ((rows, n_in), node.shape[-2:])
        operation = build_operation(torch.nn.Linear, given, self.name_place(node), shape)
        return operation.apply(with_shape(self.look_up(x), shape), result)

    def _multiply_columns(self, node: Node, weight: torch.Tensor, columns: Ref) -> Symbol:
        """Return `weight @ columns` as a convolution along the columns, whose kernel has one entry."""
        matrices, n_columns = weight.reshape(-1, *weight.shape[-2:]), columns.node.shape[-1]
        given = SimpleNamespace(
            weight=matrices.flatten(0, 1)[:, :, None], bias=None, groups=len(matrices), padding_mode="zeros",
            kernel_size=(1,), stride=(1,), padding=(0,), dilation=(1,),
        )  # fmt: skip
        shape, result = (prod(columns.node.shape[:-1]), n_columns), (prod(node.shape[:-1]), n_columns)
        operation = build_operation(torch.nn.Conv1d, given, self.name_place(node), shape)
        return operation.apply(with_shape(self.look_up(columns), shape), result)

    def _convolve(self, node: Node) -> Symbol | None:
        x, weight, bias, stride, padding, dilation, transposed, more, groups = node.args
        if not is_ref(x) or is_ref(weight):
            return None
        n_rows, sizes = x.node.shape[0], x.node.shape[2:]  # each row is a group of channels of its own
        geometry = list(zip(sizes, weight.value.shape[2:], stride, padding, dilation, more, strict=True))
        kept = [
            k for k, (size, kernel, step, pad, *_) in enumerate(geometry) if (size, kernel, step, pad) != (1, 1, 1, 0)
        ]
        if len(kept) > 2:
            return None
        if len(kept) == 0:
            kept = [0]
        names = ("stride", "padding", "dilation", "output_padding")
        numbers = {n: tuple(v[k] for k in kept) for n, v in zip(names, (stride, padding, dilation, more), strict=True)}
        tensor = weight.value.reshape(*weight.value.shape[:2], *(weight.value.shape[2 + k] for k in kept))
        tensor = tensor.repeat(n_rows, *[1] * (tensor.ndim - 1))
        given = SimpleNamespace(
            weight=tensor, bias=None if bias is None else bias.value.repeat(n_rows), groups=n_rows * groups,
            padding_mode="zeros",
            kernel_size=tuple(tensor.shape[2:]), **numbers,
        )  # fmt: skip
        kinds = {
            (1, False): torch.nn.Conv1d, (2, False): torch.nn.Conv2d,
            (1, True): torch.nn.ConvTranspose1d, (2, True): torch.nn.ConvTranspose2d,
        }  # fmt: skip
        shape = (n_rows * x.node.shape[1], *(sizes[k] for k in kept))
        operation = build_operation(kinds[len(kept), transposed], given, self.name_place(node), shape)
        result = (n_rows * node.shape[1], *(node.shape[2 + k] for k in kept))
        return operation.apply(with_shape(self.look_up(x), shape), result)

    def _multiply(self, node: Node) -> Symbol:
        """Return the product of two matrices that both depend on the input."""
        a, b = node.refs
        left, right = ((prod(r.node.shape[:-2]), *r.node.shape[-2:]) for r in (a, b))
        joined = Node(node.op, (a, b), {})
        both = self._move(joined, lambda args, _: torch.cat([x.reshape(-1) for x in args]))
        return Applied(matmul_operation(self.name_place(node), left, right), both, drop_ones(node.shape))

    def _read_map(self, node: Node) -> Symbol:
        """Return a linear map, whatever its name."""
        x = node.refs[0].node

        def run(row: torch.Tensor) -> torch.Tensor:
            try:
                return run_node(node, lambda _: row.reshape(x.shape), find_constant=_widen).double().reshape(-1)
            except RuntimeError:  # of torch, for what is no number
                raise self._refuse(node) from None

        with torch.no_grad():
            read = read_linear_map(run, x.shape, node.shape)
        if read is None:
            raise self._refuse(node)
        (pre, post, weight), shift = (v.numpy() for v in read[:3]), read.shift.numpy()
        operation = sparse_operation(self.name_place(node), node.name, pre, post, weight.astype(np.float32))
        applied = Applied(operation, self.look_up(node.refs[0]), drop_ones(node.shape))
        return self.scale(applied, 1, shift, node)


def _widen(value):
    """Return a constant in double precision, if it is a tensor of numbers."""
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def list_maps(module: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the parts of a module that name the operators they run, by path: those of torch and SpikingJelly."""
    return {path: part for path, part in module.named_modules() if type(part).__module__.startswith(OF_MAPS)}


def is_binary(symbol: Symbol, is_spikes: Callable[[Symbol], bool]) -> bool:
    """Return whether the values are 0 or 1: spikes, or 1 - spikes."""
    if not isinstance(symbol, Applied):
        return is_spikes(symbol)
    done = symbol.operation.connect("", "", 0, symbol.shape)
    low, high = (done.shift, done.scale + done.shift) if isinstance(done, Scale) else (np.nan, np.nan)
    return is_spikes(symbol.source) and bool(np.isin([low, high], (0, 1)).all())


def scale_symbol(symbol: Symbol, scale, shift, path: str) -> Symbol:
    """Return `scale * symbol + shift`, with numbers, one per channel or one per entry; `path` names a junction."""
    if np.all(scale == 1) and np.all(shift == 0):
        return symbol
    return Applied(affine_operation(path, "affine", scale, shift), symbol, symbol.shape)


def matmul_operation(path: str, left: tuple[int, ...], right: tuple[int, ...]) -> Operation:
    """Return the product of matrices `[heads, n, k]` and `[heads, k, m]`, whose entries are side by side."""

    def connect(source, target, delay, _shape):
        return MatMul(source, target, left=left, right=right, delay=delay)

    return Operation(path, "matmul", connect, reshapes=True)


def _per_channel(values, shape: tuple[int, ...]):
    """Return numbers of a layer's entries as one per channel, if all of a channel are equal; a number is unchanged."""
    if np.ndim(values) == 0:
        return values
    values = np.asarray(values, np.float32).reshape(shape)
    first = values.reshape(shape[0], -1)
    return first[:, 0].copy() if (first == first[:, :1]).all() else values


def _read_per_axis(args: tuple, place: int, missing: int, n: int = 2) -> list[int]:
    """Return a number for each axis from an argument that may be missing, one number, or a list."""
    value = args[place] if len(args) > place else missing
    value = list(value) if isinstance(value, list | tuple) else [value]
    return value * n if len(value) == 1 else value or [missing] * n
