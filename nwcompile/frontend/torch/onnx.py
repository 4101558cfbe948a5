"""Read ONNX files of feed-forward networks as torch modules, for `convert`. The package onnx reads the file."""

from collections.abc import Callable
from functools import reduce
from math import prod
from os import PathLike
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from nwcompile.errors import ModelError, OptionError

ERROR_CODE = "NW2310"
OPSET = 18  # Files of older operator sets are converted to it by onnx.
MOST_LETTERS = 300  # of onnx's error


def load_onnx(path) -> torch.nn.Module:
    """Return the torch module that an ONNX file of a feed-forward network computes, in eval mode, for `convert`.

    It takes and returns one tensor `[B, *shape]`, for any B, also if the file has a fixed one. Its values are those of
    the ONNX standard, but for rounding. Every node is a part of the module, under its name. Raises
    OptionError if onnx is not installed. Raises ModelError for a file that onnx cannot read, for several inputs or
    outputs, for nodes that cannot be read (it names them all), and for nodes that hold for the file's B only.
    """
    try:
        import onnx
        from onnx import defs, inliner, version_converter
    except ImportError:
        text = "an .onnx file needs onnx, which is not installed: pip install 'nwcompile[onnx]'"
        raise OptionError(text, code="NW1102") from None
    if not isinstance(path, str | PathLike):
        raise ModelError(f"load_onnx takes the path of a file, not {type(path).__name__}")
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
        newest = max([entry.version for entry in model.opset_import if entry.domain == ""], default=0)
        if newest > defs.onnx_opset_version():
            raise ValueError(f"operator set {newest}; the installed onnx knows {defs.onnx_opset_version()}: upgrade it")
        model = inliner.inline_local_functions(model)
        if any(entry.domain == "" and entry.version < OPSET for entry in model.opset_import):
            model = version_converter.convert_version(model, OPSET)
    except Exception as e:
        text = shorten(str(e) or type(e).__name__, MOST_LETTERS, placeholder=" ...")
        raise ModelError(f"{path}: onnx cannot read the file ({text})") from None
    return OnnxModule(model.graph, str(path)).eval()


# Operators, with the arguments and defaults of https://onnx.ai/onnx/operators.


def _gemm(a, b, c=None, alpha=1.0, beta=1.0, transA=0, transB=0):  # noqa: N803
    product = alpha * ((a.T if transA else a) @ (b.T if transB else b))
    return product if c is None else product + beta * c


class Window(NamedTuple):
    """Steps of a window along each axis, and the padding that torch's F.pad takes: of the last axis first."""

    strides: list[int]
    dilations: list[int]
    pad: list[int]


def _read_window(x, sizes, auto_pad="NOTSET", dilations=None, kernel_shape=None, pads=None, strides=None) -> Window:
    n = len(sizes)
    strides, dilations = strides or [1] * n, dilations or [1] * n
    if auto_pad.startswith("SAME"):
        given = zip(x.shape[2:], sizes, strides, dilations, strict=True)
        totals = [max((-(-long // step) - 1) * step + (k - 1) * far + 1 - long, 0) for long, k, step, far in given]
        more = auto_pad == "SAME_LOWER"  # an odd one goes to the front
        pads = [(total + more) // 2 for total in totals] + [(total + 1 - more) // 2 for total in totals]
    pads = pads or [0] * (2 * n)
    return Window(strides, dilations, [pads[k + half] for k in reversed(range(n)) for half in (0, n)])


def _conv(x, weight, bias=None, group=1, **window):
    strides, dilations, pad = _read_window(x, weight.shape[2:], **window)
    padding = pad[::-2]
    if pad[::2] != pad[1::2]:
        x, padding = F.pad(x, pad), [0] * len(strides)
    return getattr(F, f"conv{len(strides)}d")(x, weight, bias, strides, padding, dilations, group)


def _room_at_end(x, sizes, window: Window, ceil_mode: int) -> list[int]:
    """Return what F.pad adds behind the padding, so that the last window is full; none starts in that padding."""
    more: list[int] = []
    for k, (step, far) in enumerate(zip(window.strides, window.dilations, strict=True)):
        before, after = window.pad[2 * (len(sizes) - 1 - k) :][:2]
        long, span = x.shape[2 + k], far * (sizes[k] - 1) + 1
        n_steps, left = divmod(long + before + after - span, step)
        n_steps += bool(ceil_mode and left and (n_steps + 1) * step < long + before)
        more = [0, n_steps * step + span - long - before - after, *more]
    return more


def _max_pool(x, kernel_shape, ceil_mode=0, storage_order=0, **window):
    window = _read_window(x, kernel_shape, **window)
    pad = [a + b for a, b in zip(window.pad, _room_at_end(x, kernel_shape, window, ceil_mode), strict=True)]
    pool = getattr(F, f"max_pool{len(kernel_shape)}d")
    return pool(F.pad(x, pad, value=-torch.inf), kernel_shape, window.strides, 0, window.dilations)


def _average_pool(x, kernel_shape, ceil_mode=0, count_include_pad=0, **window):
    strides, _, pad = window = _read_window(x, kernel_shape, **window)
    pool = getattr(F, f"avg_pool{len(strides)}d")
    more = _room_at_end(x, kernel_shape, window, ceil_mode)
    padded = (F.pad(x, pad), F.pad(torch.ones_like(x), pad, value=count_include_pad))
    total, share = (pool(F.pad(values, more), kernel_shape, strides) for values in padded)
    return total / share


def _batch_normalization(x, scale, bias, mean, variance, epsilon=1e-5, momentum=0.9, training_mode=0):
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)


def _reshape(x, shape, allowzero=0):
    sizes = [x.shape[k] if size == 0 and not allowzero else size for k, size in enumerate(shape.tolist())]
    return x.reshape(sizes)


def _pad(tensor, pads, value=None, axes=None, mode="constant"):
    before, after = pads.reshape(2, -1).tolist()
    given = range(tensor.ndim) if axes is None else [axis % tensor.ndim for axis in axes.tolist()]
    sides = dict(zip(given, zip(before, after, strict=True), strict=True))
    if mode != "constant":
        for axis, widths in sides.items():
            places = np.pad(np.arange(tensor.shape[axis]), [max(width, 0) for width in widths], mode)
            places = places[max(-widths[0], 0) : len(places) - max(-widths[1], 0)]
            tensor = tensor.index_select(axis, torch.from_numpy(places).to(tensor.device))
        return tensor
    widths = [width for axis in reversed(range(tensor.ndim)) for width in sides.get(axis, (0, 0))]
    return F.pad(tensor, widths, value=0.0 if value is None else value.item())


def _clip(tensor, low=None, high=None):
    bounds = [None if bound is None else bound.item() for bound in (low, high)]
    return tensor if bounds == [None, None] else tensor.clamp(*bounds)


def _reduce_mean(x, axes=None, keepdims=1, noop_with_empty_axes=0):
    if axes is None or not axes.numel():
        return x if noop_with_empty_axes else x.mean(list(range(x.ndim)), bool(keepdims))
    return x.mean(axes.tolist(), bool(keepdims))


def _unsqueeze(x, axes):
    for place in sorted(axis % (x.ndim + axes.numel()) for axis in axes.reshape(-1).tolist()):
        x = x.unsqueeze(place)
    return x


def _slice(tensor, starts, ends, axes=None, steps=None):
    axes = range(starts.numel()) if axes is None else axes.tolist()
    steps = [1] * starts.numel() if steps is None else steps.tolist()
    for axis, start, end, step in zip(axes, starts.tolist(), ends.tolist(), steps, strict=True):
        chosen = range(tensor.shape[axis])[start:end:step]
        tensor = tensor.index_select(axis, torch.tensor(chosen, dtype=torch.int64, device=tensor.device))
    return tensor


def _divide(upper, lower):
    return upper / lower if upper.is_floating_point() else torch.div(upper, lower, rounding_mode="trunc")


OPERATORS: dict[str, Callable] = {
    "Gemm": _gemm,
    "MatMul": torch.matmul,
    "Conv": _conv,
    "Relu": torch.relu,
    "Clip": _clip,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": lambda x: x.mean(list(range(2, x.ndim)), True),
    "BatchNormalization": _batch_normalization,
    "Flatten": lambda x, axis=1: x.reshape(-1 if axis == 1 else prod(x.shape[:axis]), prod(x.shape[axis:])),
    "Reshape": _reshape,
    "Transpose": lambda x, perm=None: x.permute(perm or list(range(x.ndim))[::-1]),
    "Pad": _pad,
    "Concat": lambda *parts, axis: torch.cat(parts, axis),
    "Softmax": lambda x, axis=-1: x.softmax(axis),
    "LogSoftmax": lambda x, axis=-1: x.log_softmax(axis),
    "Sigmoid": torch.sigmoid,
    "Dropout": lambda x, *_, seed=0: x,
    "Identity": lambda x: x,
    "Add": torch.add,
    "Sum": lambda *terms: sum(terms[1:], terms[0]),
    "Neg": torch.neg,
    "Max": lambda *given: reduce(torch.maximum, given),
    "Min": lambda *given: reduce(torch.minimum, given),
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": _divide,
    "ReduceMean": _reduce_mean,
    "Squeeze": lambda x, axes=None: x.squeeze() if axes is None else x.squeeze(axes.tolist()),
    "Unsqueeze": _unsqueeze,
    "Shape": lambda x, start=0, end=None: torch.tensor(x.shape[start:end]),
    "ConstantOfShape": lambda shape, value=None: (
        torch.zeros(shape.tolist(), dtype=None if value is None else value.dtype) + (value or 0)
    ),
    "Cast": lambda x, to, **_: x.to(to),
    "Slice": _slice,
    "Gather": lambda x, index, axis=0: x[(slice(None),) * (axis % x.ndim) + (index,)],
}


ONLY = {"AveragePool": ("dilations", 1), "BatchNormalization": ("training_mode", 0)}  # No other value is read.


class OnnxNode(torch.nn.Module):
    """One node of a graph. Its subclasses are called like the operators."""

    def __init__(self, attributes: dict[str, Any]):
        super().__init__()
        self.attributes = attributes

    def forward(self, *inputs):
        """Return the node's result; an input that the node leaves out is None."""
        return OPERATORS[type(self).__name__](*inputs, **self.attributes)


def _read_attribute(attribute) -> Any:
    """Return an attribute as a number, text, tensor, type of torch, or list."""
    from onnx import AttributeProto, helper, numpy_helper

    value = helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.TENSOR:
        return torch.from_numpy(np.array(numpy_helper.to_array(value)))
    if attribute.name == "to":
        return torch.from_numpy(np.zeros(0, helper.tensor_dtype_to_np_dtype(value))).dtype
    return value.decode() if isinstance(value, bytes) else value


class OnnxModule(torch.nn.Module):
    """The network of an ONNX graph whose nodes are in order, as the format demands."""

    def __init__(self, graph, path: str):
        from onnx import TensorProto, numpy_helper

        super().__init__()
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        inputs = [value.name for value in graph.input if value.name not in arrays]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise ModelError(
                f"{path}: the graph has {len(inputs)} inputs and {len(graph.output)} outputs; convert takes one of each"
            )
        self.input, self.output = inputs[0], graph.output[0].name
        self.calls: list[tuple[str, tuple[str, ...]]] = []  # name of a node, and its inputs
        self.results: dict[str, str] = {}  # of each node
        self.place: dict[str, int] = {}  # of each constant in `numbers`
        self.sizes: dict[str, list[int]] = {}  # of a node that reshapes all samples: its result's, as in the file
        self.numbers = torch.nn.ParameterList()
        wrong = []
        read = {name for node in graph.node for name in node.input if name} | {self.output}
        shape = [d.dim_value for v in graph.input if v.name == self.input for d in v.type.tensor_type.shape.dim]
        self.n_samples = shape[0] if shape else 0  # in the file; 0: any number
        depends = {self.input}
        for i, node in enumerate(graph.node):
            try:
                attributes = {a.name: _read_attribute(a) for a in node.attribute}
                if node.op_type == "Constant":
                    arrays[node.output[0]] = torch.as_tensor(*attributes.values()).numpy()
                    continue
            except (TypeError, RuntimeError):  # a type of numbers that torch lacks, or a text
                wrong.append(f"node {i} {node.name!r} ({node.op_type} of a type that torch does not take)")
                continue
            key, only = ONLY.get(node.op_type, ("", 0))
            is_other = np.any(np.not_equal(attributes.get(key, only), only))
            lacks = f" with {key}={attributes[key]}" if is_other else ""
            if node.op_type == "Dropout" and any(np.any(arrays.get(name, True)) for name in node.input[2:] if name):
                lacks = " with training_mode=True"
            if node.op_type not in OPERATORS or node.domain or read & {*node.output[1:]} or lacks:
                wrong.append(f"node {i} {node.name!r} ({node.op_type}{lacks})")
                continue
            stem = node.name.strip("/").replace(".", "_") or f"{node.op_type}_{i}"
            name = f"{stem}_{i}" if hasattr(self, stem) else stem
            self.add_module(name, type(node.op_type, (OnnxNode,), {"__module__": __name__})(attributes))
            self.calls.append((name, tuple(node.input)))
            self.results[name] = node.output[0]
            if depends & {*node.input} and node.op_type != "Shape":
                depends.add(node.output[0])
            if self.n_samples and node.op_type == "Reshape" and node.input[0] in depends:
                sizes = [int(size) for size in arrays.get(node.input[1], ())]
                self.sizes |= {name: sizes} if sizes and sizes[0] > 0 else {}
        if wrong:
            raise ModelError(f"{path}: not read: {', '.join(wrong)}; read are {', '.join(OPERATORS)}, Constant")
        self.place = {name: k for k, name in enumerate(arrays)}
        tensors = [torch.from_numpy(np.array(array)) for array in arrays.values()]
        self.numbers = torch.nn.ParameterList([torch.nn.Parameter(t, requires_grad=False) for t in tensors])
        is_real = all(v.type.tensor_type.elem_type == TensorProto.FLOAT for v in graph.input if v.name == self.input)
        if self.n_samples and all(shape) and is_real:
            self._verify_any_number(shape[1:], path)

    @torch.no_grad()
    def _verify_any_number(self, shape: list[int], path: str) -> None:
        """Raise ModelError unless as many drawn samples as in the file give what they give one by one."""
        x = torch.rand(max(self.n_samples, 2), *shape, generator=torch.Generator().manual_seed(0))
        try:
            wanted = torch.stack([self(row).ravel() for row in x.split(1)])
            largest = float(wanted.nan_to_num(0, 0, 0).abs().max())
            if torch.allclose(wanted, self(x).reshape(wanted.shape), 1e-3, 1e-4 * largest, equal_nan=True):
                return
        except (RuntimeError, IndexError):  # of torch, for sizes that do not fit
            pass
        raise ModelError(
            f"{path}: the nodes hold for {self.n_samples} sample{'s' * (self.n_samples > 1)} at a time, as the file's "
            "input says; export the model for any number of samples (with a dynamic batch axis)"
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the graph's output for samples `[B, *shape]`."""
        values: dict[str, Any] = {name: self.numbers[k] for name, k in self.place.items()}
        values |= {"": None, self.input: x}
        for name, inputs in self.calls:
            given = [values[i] for i in inputs]
            if name in self.sizes:  # the first axis has all samples
                first, *others = self.sizes[name]
                given[1] = torch.tensor([first * len(x) // self.n_samples, *others])
            values[self.results[name]] = self.get_submodule(name)(*given)
        return values[self.output]
