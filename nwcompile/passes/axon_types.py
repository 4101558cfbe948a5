"""Axon types: can the in-axons of every core be typed so that each neuron needs one weight a type?

On TrueNorth a core's crossbar is binary: an axon reaches a neuron or not. Each of its 256 axons is of one of 4 types,
and a neuron adds its own weight for the type (Merolla et al., Science 345, 2014, doi 10.1126/science.1254642).
"""

from collections.abc import Iterator

import numpy as np

from nwcompile.errors import Violation
from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Dense, pair
from nwcompile.ir.network import Network

MOST_TRIES = 10_000  # axons typed, one by one, before a core is said to need more types than were found
N_SHOWN = 5


def axon_type_violations(network: Network, chip: Chip, core_of: np.ndarray, n_cores: int) -> Iterator[Violation]:
    """Cores whose weights need more axon types than the chip has; `core_of` int32[neuron] in the order of the layers.

    Two axons may share a type unless some neuron reads both with weights that differ; weights of 0 are no synapses.
    That is a colouring of the axons. The used figure is the number of types that were found to do; a core is refused
    only if fewer were proved impossible, or were not found in `MOST_TRIES`.
    """
    limit = chip.weights.axon_types
    if limit is None:
        return
    n_lines = sum(node.n_neurons for node in network.inputs.values())
    core_of = np.concatenate([np.full(n_lines, -1, np.int32), core_of.astype(np.int32)])
    pre, post, weight = (np.concatenate(part) for part in zip(*_synapses(network, chip), strict=True))
    order = np.argsort(core_of[post], kind="stable")
    ends = np.searchsorted(core_of[post][order], np.arange(n_cores + 1))
    over = []
    for core in range(n_cores):
        mine = order[ends[core] : ends[core + 1]]
        used = n_types(_matrix(pre[mine], post[mine], weight[mine]), limit)
        if used > limit:
            over.append((used, core, post[mine]))
    over.sort(key=lambda entry: (-entry[0], entry[1]))
    for i, (used, core, neurons) in enumerate(over[: N_SHOWN + 1]):
        layer = _layer_of(network, neurons)
        place = f"core {core}" if i < N_SHOWN else f"{len(over) - N_SHOWN} more cores"
        advice = f"give each neuron of {layer} at most {limit} weights, and inputs of one kind the same one"
        yield Violation("axon types", f"{layer} -> {place}", used, limit, f"{advice}, or raise weights.axon_types")


def n_types(weights: np.ndarray, limit: int) -> int:
    """Types that the axons of `weights` int64[axon, neuron] need: `limit` or fewer if that is found to do.

    Saturation colouring (Brélaz, CACM 22(4), 1979), first greedily, then by backtracking within `limit`.
    """
    conflict = _conflicts(np.unique(weights, axis=0))
    greedy = _colour(conflict, len(conflict), len(conflict) + 1)
    if greedy is None or greedy <= limit:
        return greedy or 0
    found = _colour(conflict, limit, MOST_TRIES)
    return greedy if found is None else found


def _conflicts(weights: np.ndarray) -> np.ndarray:
    """bool[axon, axon]: whether some neuron reads both with different weights: sum (w_i - w_j)^2 where both are set."""
    w, reads = weights.astype(np.float64), (weights != 0).astype(np.float64)
    squares = (w * w) @ reads.T
    return squares + squares.T - 2 * (w @ w.T) > 0.5


def _colour(conflict: np.ndarray, n_colours: int, tries: int) -> int | None:
    """The colours used by a proper colouring with at most `n_colours`, or None if none was found in `tries`."""
    n, least, vertex = len(conflict), 0, -1
    colour, degree = np.full(n, -1), conflict.sum(1)
    neighbours = np.zeros((n, n_colours), np.int32)  # of each colour
    path: list[int] = []
    used: list[int] = []  # colours in use before each vertex of the path
    while len(path) < n:
        n_used = max(used[-1], colour[path[-1]] + 1) if path else 0
        if least == 0:
            saturation = (neighbours[:, :n_used] > 0).sum(1)
            vertex = int(np.where(colour < 0, saturation * (n + 1) + degree, -1).argmax())
        free = [c for c in range(least, min(n_used + 1, n_colours)) if neighbours[vertex, c] == 0]
        if free:
            tries, least = tries - 1, 0
            colour[vertex] = free[0]
            neighbours[conflict[vertex], free[0]] += 1
            path.append(vertex)
            used.append(n_used)
        elif path and tries > 0:
            vertex = path.pop()
            used.pop()
            neighbours[conflict[vertex], colour[vertex]] -= 1
            colour[vertex], least = -1, colour[vertex] + 1
        else:
            return None
    return int(colour.max(initial=-1)) + 1


def _matrix(pre: np.ndarray, post: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """int64[axon, neuron]: the synapses as a matrix of the sources and targets that occur; parallel ones add up."""
    sources, row = np.unique(pre, return_inverse=True)
    targets, column = np.unique(post, return_inverse=True)
    matrix = np.zeros((len(sources), len(targets)), np.int64)
    np.add.at(matrix, (row.reshape(-1), column.reshape(-1)), weight)
    return matrix


def _synapses(network: Network, chip: Chip) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Sources, targets (numbered as in `network.offsets`) and effective weights of every connection's synapses."""
    yield (np.zeros(0, np.int64),) * 3
    for c in network.connections:
        first_pre, first_post = network.offsets[c.source], network.offsets[c.target]
        pre, post, weight = _listed(network, c)
        yield pre + first_pre, post + first_post, effective_weight(weight, c.exponent, chip.weights.effective_limit)


def _listed(network: Network, c: Connection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if isinstance(c, Dense):
        post, pre = np.indices(np.shape(c.weight)).reshape(2, -1)
        return pre, post, np.asarray(c.weight).reshape(-1)
    if isinstance(c, Conv2d):
        return _of_convolution(c, network.node(c.source).shape)
    return np.asarray(c.pre), np.asarray(c.post), np.asarray(c.weight)


def _of_convolution(c: Conv2d, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The synapses of a convolution; taps on padding are left out."""
    (_, rows, columns), (n_out, out_rows, out_columns) = c.geometry(shape)
    weight, stride, padding, dilation = np.asarray(c.weight), pair(c.stride), pair(c.padding), pair(c.dilation)
    place = np.indices((*weight.shape, out_rows, out_columns)).reshape(6, -1)
    y = place[4] * stride[0] - padding[0] + place[2] * dilation[0]
    x = place[5] * stride[1] - padding[1] + place[3] * dilation[1]
    inside = (y >= 0) & (y < rows) & (x >= 0) & (x < columns)
    channel = place[0] // (n_out // c.groups) * weight.shape[1] + place[1]
    pre = (channel * rows + y) * columns + x
    post = (place[0] * out_rows + place[4]) * out_columns + place[5]
    return pre[inside], post[inside], weight[tuple(place[:4])][inside]


def _layer_of(network: Network, neurons: np.ndarray) -> str:
    """The layer that most of these neurons, numbered as in `network.offsets`, are of."""
    starts = np.array([network.offsets[name] for name in network.layers])
    layer = np.searchsorted(starts, np.unique(neurons), side="right") - 1
    return network.layers[int(np.bincount(layer).argmax())]
