"""Build the connections of a lava-dl `.net` layer: dense, convolution, pooling, groups, and lists of synapses.

Delays are on outgoing spikes (SLAYER's axons), on inputs, or on single synapses.

Complex weights become two real connections, whose sums are packed into one synaptic input of a neuron. A neuron has one
synaptic input, so extra neurons `layer1/imag` add up the imaginary parts and send their sums in units of 2**PART_BITS,
in the same step. The real parts feed the layer directly if their sums provably fit; else `layer1/real` adds them up and
saturates. The result is equal: a sum beyond PART_BITS bits saturates a 24-bit state in any case.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from nwcompile.frontend.lava.entry import DENSE, TRANSPOSED, Entry
from nwcompile.frontend.lava.neurons import LARGEST_PART, PART_BITS, complex_input
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse, pair, window_count
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.shown import grouped

ERROR_CODE = "NW2203"
INPUT_WEIGHT = 64  # Default weight of an input entry (netx, create_input).
MAX_LISTED_SYNAPSES = 50_000_000  # Listing more synapses one by one would take gigabytes.
Shape = tuple[int, ...]
NONE = np.zeros((1, 1), np.int64)
UNIT_WEIGHT = 64  # Weight of the joining connections; it fits into 8 bits.
UNIT_EXPONENT = 7  # Loihi has no larger exponent.
SENT_BITS = PART_BITS - UNIT_EXPONENT - (UNIT_WEIGHT.bit_length() - 1)  # The message carries the remaining bits.


def build_connection(entry: Entry, source: str, shape: Shape, part: str | None = None) -> tuple[Connection, Shape]:
    """Return the connection from `source`, which has shape `shape`, to the entry's layer, and that layer's shape.

    The connection has no delay. `part` selects "real" or "imag" of complex weights (dense and conv).
    """
    declared = entry.read_shape()
    told: dict[str, Any] = {"exponent": _weight_exponent(entry), "delay": 0}
    if entry.kind == "input":
        default = 1 if entry.read_text("type", "neuron") == "SDNN" else INPUT_WEIGHT
        weight = np.array([[[[entry.read_integer("weight", default)]]]])
        told |= {"sign_mode": sign_mode(weight), "source_shape": (1, 1, prod(shape))}
        return Conv2d(source, entry.name, weight, **told), declared
    if entry.kind == "average":
        return _average_connection(entry, source, shape, declared)
    weight = entry.read_weight(part) if part else entry.read_integers("weight")
    told["sign_mode"] = sign_mode(weight)
    if entry.kind in DENSE:
        n_target = prod(declared)
        return Dense(source, entry.name, _weight_matrix(entry, weight, n_target, prod(shape)), **told), (n_target,)
    if entry.kind == "pool":
        return _pool_connection(entry, source, shape, weight, told), declared
    if weight.ndim != 4 and (weight.ndim != 5 or weight.shape[4] != 1):
        raise entry.fail(f"weight {weight.shape} must be [C_out, C_in/groups, rows, columns, 1]")
    window: dict[str, Any] = {"stride": entry.read_pair("stride", 1), "padding": entry.read_pair("padding", 0)}
    window["dilation"] = entry.read_pair("dilation", 1)
    groups = entry.read_integer("groups", 1)
    kernel = Conv2d(source, entry.name, weight.reshape(weight.shape[:4]), groups=groups, **window, **told)
    return (_transpose(entry, kernel, shape, declared) if entry.kind in TRANSPOSED else kernel), declared


def build_recurrence(entry: Entry, n: int) -> Dense:
    """Return the connection of a recurrent layer of `n` neurons to itself: SLAYER feeds back the spikes of t-1."""
    key = "recWeight" if entry.kind == "recurrent" else "weight_rec"
    weight = entry.read_integers(key)
    told: dict[str, Any] = {"exponent": _weight_exponent(entry), "delay": 1, "sign_mode": sign_mode(weight)}
    return Dense(entry.name, entry.name, _weight_matrix(entry, weight, n, n, key), **told)


def sign_mode(weight: np.ndarray) -> str:
    """Return the sign mode that netx chooses: one sign allows odd weights on a Loihi synapse, mixed only even ones."""
    return "exc" if weight.min() >= 0 else "inh" if weight.max() <= 0 else "mixed"


def _weight_matrix(entry: Entry, weight: np.ndarray, n_target: int, n_source: int, key: str = "weight") -> np.ndarray:
    if weight.size != n_target * n_source or weight.ndim > 1 and weight.shape[0] != n_target:
        raise entry.fail(f"{key} {weight.shape} does not join {n_source} inputs to {n_target} neurons")
    return weight.reshape(n_target, n_source)


def _weight_exponent(entry: Entry) -> int:
    """Return `wgtExp` of the layer or its neurons: the weights are multiplied by 2**wgtExp."""
    return entry.read_integer("wgtExp") if "wgtExp" in entry.values else entry.read_integer("wgtExp", 0, "neuron")


def _transpose(entry: Entry, kernel: Conv2d, source: Shape, target: Shape) -> Sparse:
    """Return the synapses of the convolution from target to source, with their ends exchanged.

    As for `pool`, SLAYER slides the one kernel of `unpool` over all channels as one tall image.
    """
    small, large = source, target
    if entry.kind == "unpool" and len(small) == len(large) == 3:
        small, large = ((1, shape[0] * shape[1], shape[2]) for shape in (source, target))
    back = kernel.replace(source=entry.name, target=kernel.source)
    if len(large) != 3 or back.output_shape(large) != small:
        raise entry.fail(f"weight {kernel.weight.shape} does not give shape {target} for a source {source}")
    many = list_synapses(entry, back, large, small)
    return many.replace(source=kernel.source, target=entry.name, pre=many.post, post=many.pre)


def _average_connection(entry: Entry, source: str, shape: Shape, declared: Shape) -> tuple[Connection, Shape]:
    """Connect an equal run of source neurons, in C order, to each of declared[0] outputs (SLAYER's Average)."""
    n = prod(shape)
    groups = declared[0]
    if n % groups or n > MAX_LISTED_SYNAPSES:
        raise entry.fail(f"{n} neurons do not divide into {groups} groups, or are over {grouped(MAX_LISTED_SYNAPSES)}")
    post = np.repeat(np.arange(groups), n // groups)
    pooled = Sparse(
        source, entry.name, pre=np.arange(n), post=post, weight=np.ones(n, np.int64), delay=0, sign_mode="exc"
    )
    return pooled, (groups,)


def _pool_connection(entry: Entry, source: str, shape: Shape, weight: np.ndarray, told: dict) -> Connection:
    """Return a weighted sum over windows of each channel; a map that the kernel does not divide is extended by zeros.

    SLAYER slides one kernel over all channels as one tall image, so a window that does not tile the rows mixes
    channels.
    """
    kernel = entry.read_pair("kernelSize", 0) if weight.ndim < 4 else weight.shape[2:4]
    if min(kernel) < 1 or weight.size != prod(kernel) or len(shape) != 3:
        raise entry.fail(f"weight {weight.shape} must be [1, 1, rows, columns], of one kernel for a source [C, H, W]")
    stride = entry.read_pair("stride", 0) if "stride" in entry.values else kernel
    padding = entry.read_pair("padding", 0)
    dilation = entry.read_pair("dilation", 1)
    channels, *size = shape
    rows, columns = (size[a] + size[a] % kernel[a] for a in (0, 1))
    if min(*stride, *dilation) < 1 or padding[0] or rows % stride[0] or dilation[0] * (kernel[0] - 1) >= stride[0]:
        raise entry.fail(
            f"windows of {kernel[0]} rows, stride {stride[0]}, padding {padding[0]}, dilation {dilation[0]} do not "
            f"tile {size[0]} rows, so SLAYER mixes channels there; pool with stride = kernel and padding 0"
        )
    columns_out = window_count((rows, columns), kernel, stride, padding, dilation)[1]
    out = (channels, rows // stride[0], columns_out)
    if columns_out < 1 or out != entry.read_shape():
        raise entry.fail(f"it gives shape {out}, but declares {entry.read_shape()}")
    tall = (1, channels * rows, columns)
    weight = weight.reshape(1, 1, *kernel)
    plain = Conv2d(
        source, entry.name, weight, stride=stride, padding=padding, dilation=dilation, source_shape=tall, **told
    )
    if (rows, columns) == tuple(size):
        return plain
    by_channel = plain.replace(weight=np.repeat(weight, channels, 0), groups=channels, source_shape=None)
    return list_synapses(entry, by_channel, shape, out)


def list_synapses(entry: Entry, connection: Dense | Conv2d, source: Shape, target: Shape) -> Sparse:
    """Return a dense connection or convolution as a list of synapses, without taps outside the source's map."""
    told: dict[str, Any] = {name: getattr(connection, name) for name in ("delay", "exponent", "sign_mode")}
    n = connection.weight.size * (1 if isinstance(connection, Dense) else prod(target) // len(connection.weight))
    if n > MAX_LISTED_SYNAPSES:
        raise entry.fail(
            f"its synapses must be listed one by one, {grouped(n)} of at most {grouped(MAX_LISTED_SYNAPSES)}; "
            "make delays equal"
        )
    if isinstance(connection, Dense):
        post, pre = np.indices(connection.weight.shape, np.int32).reshape(2, -1)
        return Sparse(connection.source, connection.target, pre, post, connection.weight.reshape(-1), **told)
    shape = connection.source_shape or source
    channel = (
        np.arange(len(connection.weight)) // (len(connection.weight) // connection.groups) * connection.weight.shape[1]
    )
    channel = channel[:, None] + np.arange(connection.weight.shape[1])
    parts = []
    for a, b in np.ndindex(*connection.weight.shape[2:]):
        (oy, y), (ox, x) = (_tap_pairs(connection, axis, tap, shape, target) for axis, tap in ((0, a), (1, b)))
        place = oy[:, None] * target[-1] + ox
        pixel = y[:, None] * shape[2] + x
        n_pixels = prod(target) // len(connection.weight)
        pre = channel[:, :, None, None] * (shape[1] * shape[2]) + pixel
        post = np.arange(len(connection.weight))[:, None, None, None] * n_pixels + place
        weight = connection.weight[:, :, a, b, None, None]
        parts.append([np.broadcast_to(array, pre.shape).reshape(-1) for array in (pre, post, weight)])
    pre, post, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Sparse(connection.source, connection.target, pre.astype(np.int32), post.astype(np.int32), weight, **told)


def _tap_pairs(connection: Conv2d, axis: int, tap: int, source: Shape, target: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return, along one axis, the outputs whose kernel position `tap` is inside the map, and the inputs they read."""
    out = np.arange(target[1 + axis])
    at = out * pair(connection.stride)[axis] - pair(connection.padding)[axis] + tap * pair(connection.dilation)[axis]
    inside = (at >= 0) & (at < source[1 + axis])
    return out[inside], at[inside]


def read_delays(entry: Entry, shape: Shape, n_source: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `delay` steps of the inputs, int64[n_target or 1, n_source or 1], and of the spikes, int64[1, n or 1].

    One number, one per channel or one per neuron delays the layer's spikes (SLAYER exports these). In dense layers,
    netx reads one per input, or a matrix [n_target, n_source] with one per synapse.
    """
    steps = entry.read_integers("delay", 0)
    n = prod(shape)
    if steps.min() < 0:
        raise entry.fail(f"delay {steps.min()} must be 0 or more steps")
    if steps.ndim == 2 and entry.kind in DENSE and steps.shape == (n, n_source) and min(steps.shape) > 1:
        return steps, NONE
    if (steps == steps.flat[0]).all() and steps.size in (1, shape[0], n):
        return NONE, steps.reshape(-1, 1)[:1]
    if steps.size in (shape[0], n) and n <= MAX_LISTED_SYNAPSES:
        return NONE, np.repeat(steps.reshape(-1), n // steps.size)[None]
    if entry.kind in DENSE and steps.size == n_source:
        return steps.reshape(1, -1), NONE
    sizes = ", ".join(str(size) for size in sorted({1, shape[0], n}))
    inputs = f", or {n_source} (its inputs)" if entry.kind in DENSE else ""
    raise entry.fail(f"delay has shape {steps.shape}; this layer takes {sizes} values (its neurons){inputs}")


def add_delays(entry: Entry, connection: Connection, more: tuple[np.ndarray, ...], source: Shape) -> list[Connection]:
    """Add the steps of `more`, each int64[n_target or 1, n_source or 1], and return one connection per delay.

    If delays differ, the synapses are listed one by one.
    """
    if all((steps == steps.flat[0]).all() for steps in more):
        return [connection.replace(delay=connection.aligned_delay + sum(int(steps.flat[0]) for steps in more))]
    if isinstance(connection, Sparse):
        many = connection
    else:
        assert isinstance(connection, Dense | Conv2d)
        many = list_synapses(entry, connection, source, connection.output_shape(source))
    late = np.zeros(len(many.pre), np.int64)
    for steps in more:
        late += steps[many.post if steps.shape[0] > 1 else 0, many.pre if steps.shape[1] > 1 else 0]
    by_delay = [(int(d), np.flatnonzero(late == d)) for d in np.unique(late)]
    return [
        many.replace(pre=many.pre[k], post=many.post[k], weight=many.weight[k], delay=many.aligned_delay + delay)
        for delay, k in by_delay
    ]


@dataclass(frozen=True)
class Parts:
    """Complex weights as parts of a network."""

    layers: dict[str, tuple[NeuronProgram, Shape]]  # neurons that add up one part
    from_source: list[Connection]  # to these neurons, or to the layer itself
    joining: list[Connection]  # from these neurons to the layer, without delay


def split_complex_weights(entry: Entry, source: str, shape: Shape, sends_spikes: bool) -> Parts:
    """Split an entry's complex weights from `source` of `shape`; `sends_spikes`: its messages are spikes of value 1."""
    layers: dict[str, tuple[NeuronProgram, Shape]] = {}
    from_source: list[Connection] = []
    joining: list[Connection] = []
    for part, bits in (("imag", SENT_BITS), ("real", 0)):
        edge, after = build_connection(entry, source, shape, part)
        if part == "real" and sends_spikes and largest_sum(edge) <= LARGEST_PART:
            from_source.append(edge)
            continue
        name = f"{entry.name}/{part}"
        layers[name] = complex_input(bits), after
        from_source.append(edge.replace(target=name))
        weight, exponent = (UNIT_WEIGHT, UNIT_EXPONENT) if bits else (1, 0)
        joining.append(
            Conv2d(
                name,
                entry.name,
                np.full((1, 1, 1, 1), weight),
                exponent=exponent,
                sign_mode="exc",
                delay=0,
                source_shape=(1, 1, prod(after)),
            )
        )
    return Parts(layers, from_source, joining)


def largest_sum(connection: Connection) -> int:
    """Return the largest possible sum of spikes at any target."""
    weight = np.abs(np.asarray(connection.weight, np.int64)) << max(0, connection.exponent)
    return int(weight.sum(tuple(range(1, weight.ndim))).max())
