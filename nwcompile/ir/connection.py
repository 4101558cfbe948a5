"""Connections between the nodes of a network. Weights are float, or integer mantissas with an exponent (DESIGN 4.2).

A connection's `delay` is its aligned delay D in steps; None means 1 for a layer onto itself and 0 otherwise.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from nwcompile.argument_types import has_type
from nwcompile.errors import ModelError, shown
from nwcompile.ir.neuron import align_to_shape, is_in_float32, to_plain, to_plain_numbers

ERROR_CODE = "NW3002"
SIGN_MODES = ("mixed", "exc", "inh")
ARRAYS = ("weight", "bias", "scale", "shift", "pre", "post")
WHOLE = {"exponent": (-32, 32), "weight_bits": (1, 32)}
POOLINGS = ("sum", "avg")
LARGEST_DELAY = (1 << 31) - 1  # Steps are stored in 32 bits.
LARGEST_WINDOW = 1 << 24  # Kernel, stride, dilation and padding; their products fit 64 bits.


def pair(value) -> tuple[int, int]:
    """Return an int or a pair as a pair of ints (rows, columns)."""
    flat = np.asarray(value).reshape(-1)
    return (int(flat[0]), int(flat[-1]))


@dataclass(frozen=True, eq=False)
class Connection(ABC):
    """Base class of connections: names of source and target, and the aligned delay in steps."""

    source: str
    target: str
    has_weight: ClassVar[bool] = True
    is_linear: ClassVar[bool] = True

    if TYPE_CHECKING:  # fields that only some kinds have: weight, bias, delay, ...

        def __getattr__(self, name: str) -> Any: ...

    def __post_init__(self):
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("source", "target") and not isinstance(value, str):
                raise ModelError(f"a connection's {f.name} is the name of a layer or input, not {shown(value)}")
            is_array = isinstance(value, np.ndarray) and value.ndim > 0
            if f.name in ARRAYS or not (is_array or isinstance(value, tuple)):
                value = to_plain_numbers(value) if f.name in ARRAYS and not is_array else to_plain(value)
                object.__setattr__(self, f.name, value)
            if f.name in ARRAYS and isinstance(value, list | tuple):
                raise self.fail(f"{f.name} has rows of different lengths; give an array of numbers")
            if f.name in ("pre", "post") and np.size(value) == 0:
                object.__setattr__(self, f.name, np.zeros(np.shape(value), np.int64))

    def replace(self, **changes) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def aligned_delay(self) -> int:
        """Delay D in aligned steps, including the default."""
        return int(self.source == self.target) if self.delay is None else int(self.delay)

    @property
    def is_integer(self) -> bool:
        """Whether the weights are integer mantissas."""
        return self.has_weight and (
            np.issubdtype(np.asarray(self.weight).dtype, np.integer) or np.size(self.weight) == 0
        )

    def canonical_fields(self) -> list:
        """Field names and values in a fixed order, for hashing and saving."""
        return [("kind", type(self).__name__), *((f.name, getattr(self, f.name)) for f in fields(self))]

    @abstractmethod
    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Output shape for a source of `shape`; None if any target shape of the right size is valid."""

    def fail(self, text: str, code: str | None = None) -> ModelError:
        return ModelError(f"connection {self.source!r} -> {self.target!r}: {text}", code=code)

    def verify_window(self, n_most: int = 2, **least: int) -> None:
        """Raise ModelError unless each field is one to `n_most` whole numbers, not below the given minimum."""
        for name, low in least.items():
            value = getattr(self, name)
            is_ragged = isinstance(to_plain(value), list | tuple)
            numbers = np.zeros(0) if is_ragged else np.asarray(value)
            whole = np.issubdtype(numbers.dtype, np.integer) or np.issubdtype(numbers.dtype, np.floating)
            if (
                not whole
                or not 1 <= numbers.size <= n_most
                or (numbers != np.trunc(numbers)).any()
                or numbers.min() < low
            ):
                raise self.fail(f"{name}={shown(value)} must be whole numbers >= {low}")
            if numbers.max() > LARGEST_WINDOW:
                raise self.fail(f"{name}={shown(value)} is beyond the largest supported, {LARGEST_WINDOW}")

    def verify(self, source_shape: tuple[int, ...], target_shape: tuple[int, ...]) -> None:
        """Raise ModelError unless numbers are finite and the shapes of source and target fit."""
        steps = self.delay
        if steps is not None and not (
            isinstance(steps, int | float | np.number) and 0 <= steps <= LARGEST_DELAY and int(steps) == steps
        ):
            raise self.fail(f"delay {shown(steps, str)} must be a whole number of steps, 0..{LARGEST_DELAY}")
        for name, (low, high) in WHOLE.items():
            value = getattr(self, name, None)
            if value is not None and (type(value) is not int or not low <= value <= high):
                raise self.fail(f"{name}={shown(value)} must be a whole number {low}..{high}")
        for name in ("weight", "bias", "scale", "shift"):
            value = getattr(self, name, None)
            kind = np.asarray(0 if value is None else value).dtype
            if kind.kind not in "biuf":
                raise self.fail(f"{name} of dtype {kind} must be an array of numbers")
            if value is not None and not is_in_float32(value):
                raise self.fail(f"{name} has NaN or infinite values; the model is not usable, train or load it again")
        mode = getattr(self, "sign_mode", "mixed")
        if not isinstance(mode, str) or mode not in SIGN_MODES:
            raise self.fail(f"sign_mode {shown(mode)} is none of {', '.join(SIGN_MODES)}")
        shape = self.output_shape(tuple(source_shape))
        if shape is not None and tuple(shape) != tuple(target_shape):
            may_reshape = len(shape) == 1 or getattr(self, "source_shape", None) is not None
            if not may_reshape or int(np.prod(shape)) != int(np.prod(target_shape)):
                raise self.fail(f"gives shape {tuple(shape)}, but {self.target!r} has shape {tuple(target_shape)}")
        bias = getattr(self, "bias", None)
        if bias is not None:
            self.bias_per_neuron(target_shape)

    def bias_per_neuron(self, target_shape: tuple[int, ...]) -> np.ndarray | None:
        """Bias as an array of the target's shape, or None."""
        if getattr(self, "bias", None) is None:
            return None
        bias = np.asarray(align_to_shape(np.asarray(self.bias), target_shape))
        if bias.ndim and bias.size == int(np.prod(target_shape)):
            bias = bias.reshape(target_shape)
        try:
            return np.broadcast_to(bias, target_shape)
        except ValueError:
            raise self.fail(f"bias of shape {bias.shape} does not fit the target's shape {target_shape}") from None


@dataclass(frozen=True, eq=False)
class Dense(Connection):
    """Dense connection. `weight[n_target, n_source]` as in torch.nn.Linear; neurons in flat C order."""

    weight: np.ndarray
    bias: np.ndarray | None = None
    delay: int | None = None
    exponent: int = 0
    sign_mode: str = "mixed"
    weight_bits: int | None = None

    def output_shape(self, shape):
        weight = np.asarray(self.weight)
        if weight.ndim != 2:
            raise self.fail(f"a dense weight is [n_target, n_source], not of shape {weight.shape}")
        if int(np.prod(shape)) != weight.shape[1]:
            raise self.fail(f"weight {weight.shape} takes {weight.shape[1]} inputs, {self.source!r} has {shape}")
        return (weight.shape[0],)


@dataclass(frozen=True, eq=False)
class Conv2d(Connection):
    """2-D cross-correlation as in torch: `weight[C_out, C_in/groups, rows, columns]`, source and target `[C, H, W]`.

    With `source_shape` the source is viewed as that shape, and the target may have any shape of the output's size.
    """

    weight: np.ndarray
    bias: np.ndarray | None = None
    stride: int | tuple[int, int] = 1
    padding: int | tuple[int, int] = 0
    dilation: int | tuple[int, int] = 1
    groups: int = 1
    delay: int | None = None
    exponent: int = 0
    sign_mode: str = "mixed"
    weight_bits: int | None = None
    source_shape: tuple[int, int, int] | None = None

    def kernel_geometry(self, shape: tuple[int, ...]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return (C, H, W) of the source, a node of `shape`, as the kernel sees it, and (C, H, W) of the output."""
        output = self.output_shape(shape)
        channels, rows, columns = self.source_shape or shape
        return (channels, rows, columns), output

    def bias_per_neuron(self, target_shape):
        if self.bias is None or self.source_shape is None or np.size(self.bias) != np.shape(self.weight)[0]:
            return super().bias_per_neuron(target_shape)
        shape = self.output_shape(self.source_shape)
        return np.broadcast_to(np.reshape(self.bias, (-1, 1, 1)), shape).reshape(target_shape)

    def output_shape(self, shape):
        weight = np.asarray(self.weight)
        self.verify_window(stride=1, dilation=1, padding=0, groups=1)
        if self.source_shape is not None:
            if not has_type(self.source_shape, tuple[int, int, int]):
                raise self.fail(f"source_shape={shown(self.source_shape)} must be [C, H, W], three whole numbers")
            if int(np.prod(shape)) != int(np.prod(self.source_shape)):
                raise self.fail(f"source_shape {tuple(self.source_shape)} does not hold the source {tuple(shape)}")
            shape = self.source_shape
        if weight.ndim != 4 or len(shape) != 3:
            raise self.fail(f"a 2-D convolution of weight {weight.shape} needs a source [C, H, W], not {shape}")
        if weight.shape[1] * self.groups != shape[0] or weight.shape[0] % self.groups:
            raise self.fail(
                f"weight {weight.shape} with groups={self.groups} takes {weight.shape[1] * self.groups} channels, "
                f"{self.source!r} has {shape[0]}"
            )
        size = window_count(shape[1:], weight.shape[2:], self.stride, self.padding, self.dilation)
        if min(size) < 1:
            raise self.fail(f"kernel {weight.shape[2:]} is larger than the padded source {shape[1:]}")
        return (weight.shape[0], *size)


@dataclass(frozen=True, eq=False)
class Conv1d(Connection):
    """1-D cross-correlation: `weight[C_out, C_in/groups, k]`, source and target `[C, L]`."""

    weight: np.ndarray
    bias: np.ndarray | None = None
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    delay: int | None = None
    exponent: int = 0
    sign_mode: str = "mixed"
    weight_bits: int | None = None

    def __post_init__(self):
        super().__post_init__()
        for name in ("stride", "padding", "dilation"):
            value = getattr(self, name)
            if isinstance(value, tuple | np.ndarray) and np.size(value) == 1:
                object.__setattr__(self, name, to_plain(value[0]))  # (1,) in torch

    def as_conv2d(self, shape: tuple[int, int]) -> Conv2d:
        """Equivalent 2-D convolution of a source [C, L] viewed as [C, 1, L]."""
        return Conv2d(
            source=self.source,
            target=self.target,
            weight=np.asarray(self.weight)[:, :, None, :],
            bias=self.bias,
            stride=(1, int(self.stride)),
            padding=(0, int(self.padding)),
            dilation=(1, int(self.dilation)),
            groups=self.groups,
            delay=self.delay,
            exponent=self.exponent,
            sign_mode=self.sign_mode,
            weight_bits=self.weight_bits,
            source_shape=(shape[0], 1, shape[1]),
        )

    def output_shape(self, shape):
        if np.ndim(self.weight) != 3 or len(shape) != 2:
            raise self.fail(f"a 1-D convolution of weight {np.shape(self.weight)} needs a source [C, L], not {shape}")
        self.verify_window(1, stride=1, dilation=1, padding=0, groups=1)
        channels, _, length = self.as_conv2d(shape).output_shape(shape)
        return (channels, length)


@dataclass(frozen=True, eq=False)
class Pool2d(Connection):
    """Sum (`kind="sum"`) or average (`"avg"`) pooling of `[C, H, W]`, channel by channel; floor mode."""

    kernel: int | tuple[int, int]
    stride: int | tuple[int, int] | None = None
    padding: int | tuple[int, int] = 0
    kind: str = "sum"
    delay: int | None = None
    has_weight: ClassVar[bool] = False

    @property
    def window_weight(self) -> float:
        """Weight of each tap."""
        rows, columns = pair(self.kernel)
        return 1.0 if self.kind == "sum" else 1.0 / (rows * columns)

    def as_conv2d(self, n_channels: int) -> Conv2d:
        """Equivalent depth-wise convolution with float weights."""
        weight = np.full((n_channels, 1, *pair(self.kernel)), self.window_weight, np.float32)
        stride = self.kernel if self.stride is None else self.stride
        return Conv2d(
            source=self.source,
            target=self.target,
            weight=weight,
            bias=None,
            stride=stride,
            padding=self.padding,
            dilation=1,
            groups=n_channels,
            delay=self.delay,
        )

    def output_shape(self, shape):
        if len(shape) != 3:
            raise self.fail(f"2-D pooling needs a source [C, H, W], not {shape}")
        if not isinstance(self.kind, str) or self.kind not in POOLINGS:
            raise self.fail(f"pooling kind {shown(self.kind)} is none of avg, sum")
        self.verify_window(kernel=1, padding=0, **({} if self.stride is None else {"stride": 1}))
        stride = self.kernel if self.stride is None else self.stride
        size = window_count(shape[1:], pair(self.kernel), stride, self.padding, 1)
        if min(size) < 1:
            raise self.fail(f"kernel {pair(self.kernel)} is larger than the padded source {tuple(shape[1:])}")
        return (shape[0], *size)


@dataclass(frozen=True, eq=False)
class MaxPool2d(Connection):
    """Maximum pooling of `[C, H, W]`, channel by channel; floor mode, padding is never the maximum.

    Windows of a source `[C, L]` have one row. The operation is not linear: a junction as its source is summed first.
    For binary spikes it is a logical or over the window.
    """

    kernel: int | tuple[int, int]
    stride: int | tuple[int, int] | None = None
    padding: int | tuple[int, int] = 0
    delay: int | None = None
    has_weight: ClassVar[bool] = False
    is_linear: ClassVar[bool] = False

    @property
    def strides(self) -> tuple[int, int]:
        """Rows and columns between windows."""
        return pair(self.kernel if self.stride is None else self.stride)

    def output_shape(self, shape):
        if len(shape) not in (2, 3):
            raise self.fail(f"maximum pooling needs a source [C, H, W] or [C, L], not {shape}")
        self.verify_window(kernel=1, padding=0, **({} if self.stride is None else {"stride": 1}))
        rows = shape[1:-1] or (1,)
        if any(2 * p > k for p, k in zip(pair(self.padding), pair(self.kernel), strict=True)):
            raise self.fail(f"padding {pair(self.padding)} is more than half of the kernel {pair(self.kernel)}")
        size = window_count((*rows, shape[-1]), pair(self.kernel), self.strides, self.padding, 1)
        if min(size) < 1:
            raise self.fail(f"kernel {pair(self.kernel)} is larger than the padded source {tuple(shape[1:])}")
        return (shape[0], *size) if len(shape) == 3 else (shape[0], size[1])

    def window_taps(self, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return source and window of every tap, int64[tap] each, sorted by window; both are flat C-order indices."""
        _, *size = self.output_shape(shape)
        out_rows, out_columns = (1, *size)[-2:]
        channels, rows, columns = shape if len(shape) == 3 else (shape[0], 1, shape[1])
        kernel, padding = pair(self.kernel), pair(self.padding)
        c, oy, ox, ky, kx = np.ogrid[:channels, :out_rows, :out_columns, : kernel[0], : kernel[1]]
        y, x = oy * self.strides[0] - padding[0] + ky, ox * self.strides[1] - padding[1] + kx
        every = (channels, out_rows, out_columns, *kernel)
        inside = np.broadcast_to((y >= 0) & (y < rows) & (x >= 0) & (x < columns), every)
        source = np.broadcast_to((c * rows + y) * columns + x, every)[inside]
        return source, np.broadcast_to((c * out_rows + oy) * out_columns + ox, every)[inside]


@dataclass(frozen=True, eq=False)
class MatMul(Connection):
    """Batched matrix product of two parts of the source: `[n, i, k] @ [n, k, j]` -> `[n, i, j]`.

    `left` is (n, i, k) and `right` is (n, k, j). The source holds the entries of `left`, then those of `right`, in
    C order. The operation is not linear: a junction as its source is summed first.
    """

    left: tuple[int, int, int]
    right: tuple[int, int, int]
    delay: int | None = None
    has_weight: ClassVar[bool] = False
    is_linear: ClassVar[bool] = False

    @property
    def n_products(self) -> int:
        """Number of scalar products that are summed."""
        return prod(self.left) * self.right[2]

    def factor_indices(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return left source entry, right source entry and target entry of every product, int64[n_products] each."""
        of_left = np.arange(prod(self.left)).reshape(*self.left, 1)
        of_right = (prod(self.left) + np.arange(prod(self.right))).reshape(self.right)[:, None]
        target = np.arange(self.left[0] * self.left[1] * self.right[2]).reshape(*self.left[:2], 1, self.right[2])
        every = (*self.left, self.right[2])
        left, right, at = (np.broadcast_to(a, every).reshape(-1) for a in (of_left, of_right, target))
        return left, right, at

    def output_shape(self, shape):
        sizes = [self.left, self.right]
        if any(len(size) != 3 or any(type(n) is not int or n < 1 for n in size) for size in sizes):
            raise self.fail(f"left={shown(self.left)} and right={shown(self.right)} must be three whole numbers >= 1")
        if (self.left[0], self.left[2]) != (self.right[0], self.right[1]):
            raise self.fail(f"left {self.left} and right {self.right} must be (n, i, k) and (n, k, j)")
        if prod(self.left) + prod(self.right) != prod(shape):
            raise self.fail(f"left {self.left} and right {self.right} do not fill the source {tuple(shape)}")
        return (self.left[0] * self.left[1] * self.right[2],)


@dataclass(frozen=True, eq=False)
class Scale(Connection):
    """Elementwise `scale * x + shift`; both are scalars, per channel `[C]`, or of the source's shape."""

    scale: Any = 1.0
    shift: Any = 0.0
    delay: int | None = None
    has_weight: ClassVar[bool] = False

    def per_neuron(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return `scale` or `shift` as float32 of the source's shape."""
        try:
            value = np.asarray(align_to_shape(np.asarray(getattr(self, name), np.float32), shape))
        except (TypeError, ValueError, OverflowError):
            raise self.fail(f"{name} of type {type(getattr(self, name)).__name__} must be numbers") from None
        try:
            return np.broadcast_to(value, shape)
        except ValueError:
            raise self.fail(f"{name} of shape {value.shape} does not fit the source's shape {shape}") from None

    def output_shape(self, shape):
        self.per_neuron("scale", shape)
        self.per_neuron("shift", shape)
        return (int(np.prod(shape)),)


@dataclass(frozen=True, eq=False)
class Sparse(Connection):
    """List of synapses: `weight[k]` from source neuron `pre[k]` to target neuron `post[k]`, flat C-order indices."""

    pre: np.ndarray
    post: np.ndarray
    weight: np.ndarray
    delay: int | None = None
    bias: np.ndarray | None = None
    exponent: int = 0
    sign_mode: str = "mixed"
    weight_bits: int | None = None

    def output_shape(self, shape):
        pre, post, weight = np.asarray(self.pre), np.asarray(self.post), np.asarray(self.weight)
        for name, ends in (("pre", pre), ("post", post)):
            if ends.size and ends.dtype.kind not in "iu":
                raise self.fail(f"{name} of dtype {ends.dtype} must be whole numbers")
        if not (pre.shape == post.shape == weight.shape and pre.ndim == 1):
            raise self.fail(f"pre {pre.shape}, post {post.shape} and weight {weight.shape} must be equal 1-D lengths")
        if pre.size and (pre.min() < 0 or pre.max() >= int(np.prod(shape))):
            raise self.fail(f"pre index {pre.max()} is outside the {int(np.prod(shape))} neurons of {self.source!r}")
        return None

    def verify(self, source_shape, target_shape):
        super().verify(source_shape, target_shape)
        post = np.asarray(self.post)
        if post.size and (post.min() < 0 or post.max() >= int(np.prod(target_shape))):
            raise self.fail(f"post index {post.max()} is outside the neurons of {self.target!r} {tuple(target_shape)}")


def window_count(size, kernel, stride, padding, dilation) -> tuple[int, int]:
    """Output rows and columns of a convolution: floor((n + 2p - d*(k-1) - 1)/s) + 1 per axis."""
    stride, padding, dilation = pair(stride), pair(padding), pair(dilation)
    return tuple((size[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in (0, 1))


Direct = Dense | Conv2d | Sparse  # the connections of a normalized network


def synapse_list(connection: Connection, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return source, target and index into the flat `weight` of every synapse of a Dense, Conv or Sparse.

    Sources and targets are flat indices within their layers. `shape` is the shape of the source node. A convolution is
    unrolled; taps on padding are left out.
    """
    if isinstance(connection, Dense):
        post, pre = np.indices(np.shape(connection.weight)).reshape(2, -1)
        return pre, post, np.arange(np.size(connection.weight))
    if isinstance(connection, Conv1d):
        connection = connection.as_conv2d((shape[0], shape[1]))
    if isinstance(connection, Conv2d):
        return _convolution_synapses(connection, shape)
    return np.asarray(connection.pre), np.asarray(connection.post), np.arange(np.size(connection.weight))


def _convolution_synapses(conv: Conv2d, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    (_, rows, columns), (n_out, out_rows, out_columns) = conv.kernel_geometry(shape)
    size, stride, padding, dilation = np.shape(conv.weight), pair(conv.stride), pair(conv.padding), pair(conv.dilation)
    every = (*size, out_rows, out_columns)
    out, channel, ky, kx, oy, ox = (a.astype(np.int32) for a in np.ogrid[tuple(slice(n) for n in every)])
    y, x = oy * stride[0] - padding[0] + ky * dilation[0], ox * stride[1] - padding[1] + kx * dilation[1]
    inside = np.broadcast_to((y >= 0) & (y < rows) & (x >= 0) & (x < columns), every)
    pre = ((out // (n_out // conv.groups) * size[1] + channel) * rows + y) * columns + x
    post = (out * out_rows + oy) * out_columns + ox
    place = ((out * size[1] + channel) * size[2] + ky) * size[3] + kx
    pre, post, place = (np.broadcast_to(a, every)[inside] for a in (pre, post, place))
    return pre, post, place
