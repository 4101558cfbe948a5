"""Random float networks (hypothesis): every kind of connection and neuron, with odd shapes, types and names."""

from contextlib import suppress
from math import prod

import numpy as np
from hypothesis import strategies as st

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, Pool2d, Scale, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import CURRENT_ORDERS, MEMBRANES, RESET_TIMINGS, RESETS, SPIKES, NeuronSpec

NAMES = ("fc", "in/out", "..", "output", "A b", "fc_to_x", "rec.lif", "input", "x", "2", "10")
SHAPES = ((1,), (4,), (3, 4), (2, 4, 3), (1, 3, 3), (2, 2, 2))
WEIGHT_TYPES = ("f4", "f4", "f4", "f8", ">f4", "f2", "i1", "i8")


@st.composite
def networks(draw) -> Network:
    """Draw up to two inputs and five layers and junctions with forward, self and backward connections and delays."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=6, unique=True))
    n_inputs = draw(st.integers(0, 2)) if len(names) > 2 else 1
    shapes = {name: draw(st.sampled_from(SHAPES)) for name in names[:n_inputs]}
    layers: dict[str, NeuronSpec | None] = {}
    edges: list[Connection] = []
    for name in names[n_inputs:]:
        shapes[name] = shape = draw(st.sampled_from(SHAPES))
        for source in draw(st.lists(st.sampled_from([*shapes][:-1]), max_size=3)) if len(shapes) > 1 else ():
            kind = draw(st.sampled_from((Conv1d, Conv2d, Pool2d, Dense, Sparse, Scale)))
            edge = draw(connections(kind, rng, source, name, shapes[source], shape))
            if kind in (Conv1d, Conv2d, Pool2d) and not any(e.target == name for e in edges) and draw(st.booleans()):
                with suppress(ModelError):  # a kernel larger than its source: skip the edge
                    shape = shapes[name] = edge.output_shape(shapes[source])
            edges += [edge] if _fits(edge, shapes) else []
        is_layer = not layers or draw(st.sampled_from([True, True, False]))
        layers[name] = draw(specs(rng, shape)) if is_layer else None
    for source, target in draw(st.lists(st.tuples(*[st.sampled_from([*layers])] * 2), max_size=2)):
        edge = draw(connections(Dense, rng, source, target, shapes[source], shapes[target]))
        edges.append(edge.replace(delay=draw(st.sampled_from([None, 1]) if source == target else st.integers(1, 3))))
    given = {name: (layers[name], shapes[name]) for name in draw(st.permutations([*layers]))}
    return Network.from_arrays(given, draw(st.permutations(edges)), {name: shapes[name] for name in names[:n_inputs]})


def _fits(edge: Connection, shapes: dict) -> bool:
    try:
        edge.verify(shapes[edge.source], shapes[edge.target])
    except ModelError:
        return False
    return True


def numbers(rng, shape, dtype: str = "f4") -> np.ndarray:
    """Draw numbers of that type that are not all equal, some of them zero."""
    return (rng.integers(-40, 40, shape) / (1 if np.dtype(dtype).kind == "i" else 16)).astype(dtype)


@st.composite
def connections(draw, kind, rng, source: str, target: str, shape, target_shape) -> Connection:
    """Draw a connection of that kind, or a Dense if the source's shape does not fit it."""
    n_source, n_target = prod(shape), prod(target_shape)
    delay = draw(st.sampled_from([None, 0, 0, 1, 2]))
    dtype = draw(st.sampled_from(WEIGHT_TYPES))
    if kind is Scale and n_source == n_target:
        scale = draw(st.sampled_from([1.0, 1.0, 1, 0.5, "full", "channel"]))
        scale = numbers(rng, shape if scale == "full" else shape[:1]) if isinstance(scale, str) else scale
        return Scale(source, target, scale, draw(st.sampled_from([0.0, 0.0, 0.25])), delay)
    if kind is Pool2d and len(shape) == 3:
        kernel = draw(st.sampled_from([1, 2, (1, 2), [2, 1]]))
        stride = draw(st.sampled_from([None, 1, (2, 1)]))
        return Pool2d(source, target, kernel, stride, draw(st.sampled_from([0, (0, 1)])), draw(sums), delay)
    if kind in (Conv1d, Conv2d) and len(shape) == (2 if kind is Conv1d else 3):
        groups = draw(st.sampled_from([1, shape[0]]))
        n_out = groups * draw(st.integers(1, 2))
        size = draw(
            st.sampled_from([(1,), (3,)] if kind is Conv1d else [(1, 1), (2, 2), (3, 3), (1, 3), (1, 2), (3, 2)])
        )
        weight = numbers(rng, (n_out, shape[0] // groups, *size), dtype)
        bias = draw(st.sampled_from([None, None, 0.5, "channel"]))
        bias = numbers(rng, n_out) if bias == "channel" else bias
        whole = st.integers(1, 2) if kind is Conv1d else st.sampled_from([1, 2, (1, 2), (np.int64(2), 1)])
        return kind(source, target, weight, bias, draw(whole), draw(st.integers(1, 2)), 1, groups, delay)
    bias = draw(st.sampled_from([None, None, 0.5, "full"]))
    bias = numbers(rng, n_target) if bias == "full" else bias
    if kind is Sparse:
        n = draw(st.integers(0, 6))
        pre, post = rng.integers(0, n_source, n), rng.integers(0, n_target, n)
        return Sparse(source, target, pre, post, numbers(rng, n, dtype), delay, bias)
    return Dense(source, target, numbers(rng, (n_target, n_source), dtype), bias, delay)


sums = st.sampled_from(["sum", "avg"])


@st.composite
def specs(draw, rng, shape: tuple[int, ...]) -> NeuronSpec:
    """Draw any float neuron; numbers are scalars, per channel or per neuron, in several types."""

    def number(*choices):
        value = draw(st.sampled_from([*choices, "channel", "neuron"]))
        if not isinstance(value, str):
            return value
        size = shape if value == "neuron" else (shape[0], *[1] * (len(shape) - 1))
        return np.abs(numbers(rng, size, draw(st.sampled_from(["f4", "f8"])))) + 0.5

    spikes = draw(st.sampled_from(SPIKES))
    is_gated = spikes == "gated"
    reset = "subtract" if is_gated else draw(st.sampled_from(RESETS))
    timings = RESET_TIMINGS[:1] if is_gated else RESET_TIMINGS if reset == "subtract" else RESET_TIMINGS[:2]
    return NeuronSpec(
        threshold=number(1, 1.0, 0.3),
        strict=draw(st.booleans()),
        spikes=spikes,
        fires=draw(st.sampled_from([True, True, True, False])),
        reset=reset,
        reset_value=number(0.0, 0.0, -0.2),
        reset_timing=draw(st.sampled_from(timings)),
        refractory=0 if is_gated else draw(st.sampled_from([0, 0, 2, 3.0])),
        v_min=number(None, None, -1.0),
        bias=number(0.0, 0.0, 0.1),
        membrane=draw(st.sampled_from(MEMBRANES)),
        beta=number(1.0, 0.9, 0, 1.5),
        gain=number(1.0, 0.1),
        leak=number(0.0, 0.0, 0.3),
        k=number(0.1, 0.0, 1.0, 3.0),
        v_leak=number(0.0, 0.0, 0.4),
        r=number(1.0, 2.0),
        alpha=number(None, None, 0.5, 1.0),
        w_in=number(1.0, 0.7),
        current_order=draw(st.sampled_from(CURRENT_ORDERS)),
    )
