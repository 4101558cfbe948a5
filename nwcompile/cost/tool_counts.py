"""Operations as the packages syops and SpikingJelly count them, layer by layer, on the network as it was imported.

A float network as it was imported has a connection for every layer of the torch module that computes anything: Linear
and convolutions, pooling, and batch norm as a Scale. A module that goes step by step calls each once a step, with all
samples.

SyOPs, as syops 0.0.5 (github.com/iCGY96/syops-counter, `ops.py`): what a layer would do densely. Where the input of a
call holds at most two numbers, both in 0..1, the mean input's share of it are accumulates; else all of it are
multiplications. So biases count as weights do, and by the same share; taps on padding count, and so do weights of 0; a
Linear's bias counts once for all samples of a call; batch norm is two operations a number, pooling one a number that
goes in, and a neuron one accumulate a step. Shares are float32, as there.

SpikingJelly's op_counter 2.0.0 (`activation_based/op_counter/synop.py`, `mac.py`): a matrix product or convolution
whose input holds only 0 and 1 in a call is synaptic operations, as many as weights meet a 1, zero weights included and
taps on padding left out; otherwise it is multiplications, zeros and taps on padding included. Where only the weights
hold 0 and 1, those count as spikes; where both do, the ones that meet. Biases count nowhere. A batch norm multiplies
every number once. Its ACCounter is not reproduced: it adds what torch adds inside norms, pools and neurons, which
depends on how a module is written, and a network does not tell.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from nwcompile.cost.neurobench import fan_out
from nwcompile.errors import ModelError
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, MaxPool2d, Pool2d, Scale
from nwcompile.ir.network import Network

ERROR_CODE = "NW5008"
OF_A_NORM = 2  # Operations of a batch norm on one number: its scale and its shift.


@dataclass(frozen=True)
class SyOps:
    """Operations of a sample: `ops` if every input were dense; the `acs` and `macs` that the inputs leave of them."""

    ops: float
    acs: float
    macs: float


@dataclass(frozen=True)
class OpCounts:
    """Operations of a sample: what SpikingJelly's SynOpCounter and MACCounter give."""

    synops: float
    macs: float


def syops(network: Network, values: dict[str, np.ndarray]) -> SyOps:
    """The SyOps of a float network, not normalized, where its nodes send `values[name]`, float32[B, T, *shape].

    Raises ModelError for connections that no layer of torch is known to be.
    """
    ops = acs = macs = 0.0
    n_samples, n_steps = next(iter(values.values())).shape[:2]
    for connection, x in _layer_inputs(network, values):
        if isinstance(connection, Dense | Conv1d | Conv2d):
            n_biases = 0 if connection.bias is None else len(connection.weight) * _n_places(network, connection)
            n_bias_samples = 1 if isinstance(connection, Dense) else n_samples
            dense = n_samples * _count_multiplications(network, connection) + n_bias_samples * n_biases
        else:
            dense = x[0].size * (OF_A_NORM if isinstance(connection, Scale) else 1)
        share = spike_shares(x)
        ops += dense * n_steps
        acs += sum(dense * s for s in share.tolist() if s == s)
        macs += dense * int(np.isnan(share).sum())
    for name in network.layers:
        into = network.into(name)
        is_maximum = bool(into) and all(isinstance(c, Pool2d) and c.kind == "sum" for c in into)  # of spikes
        if network.node(name).neuron.fires and not is_maximum:  # Readouts and maxima are no modules of neurons.
            n_updates = network.node(name).n_neurons * n_samples * n_steps
            ops, acs = ops + n_updates, acs + n_updates
    return SyOps(ops / n_samples, acs / n_samples, macs / n_samples)


def op_counts(network: Network, values: dict[str, np.ndarray]) -> OpCounts:
    """SpikingJelly's OpCounts; arguments and errors are those of `syops`."""
    synops = macs = 0
    n_samples, n_steps = next(iter(values.values())).shape[:2]
    for connection, x in _layer_inputs(network, values):
        if isinstance(connection, Scale):
            macs += x.size
        if not isinstance(connection, Dense | Conv1d | Conv2d):
            continue
        is_spikes, weights_are = _are_bits(x), bool(_are_bits(np.asarray(connection.weight)[None])[0])
        sent = x[is_spikes].sum((0, 1), dtype=np.float64).reshape(-1)
        synops += int(sent @ _weights_met(network, connection, weights_are))
        n_other = (n_steps - int(is_spikes.sum())) * n_samples
        if weights_are:
            synops += n_other * int(np.count_nonzero(connection.weight)) * _n_places(network, connection)
        else:
            macs += n_other * _count_multiplications(network, connection)
    return OpCounts(synops / n_samples, macs / n_samples)


def _layer_inputs(network: Network, values: dict[str, np.ndarray]) -> Iterator[tuple[Connection, np.ndarray]]:
    """Every connection, and float32[T, B, *shape], its input in each step; `values` as `sim.sequence` gives them."""
    for connection in network.connections:
        if not isinstance(connection, Dense | Conv1d | Conv2d | Pool2d | MaxPool2d | Scale):
            raise connection.fail(f"what torch computes for a {type(connection).__name__} is not known")
        x = values[connection.source]
        late = np.zeros_like(x[:, : connection.aligned_delay])
        yield connection, np.concatenate([late, x[:, : x.shape[1] - late.shape[1]]], 1).swapaxes(0, 1)


def spike_shares(x: np.ndarray) -> np.ndarray:
    """float64[T]: the mean of x [T, ...] in each step, rounded to float32; NaN where it is not taken for spikes."""
    flat = x.reshape(len(x), -1)
    low, high = flat.min(1, keepdims=True), flat.max(1, keepdims=True)
    is_spikes = ((flat == low) | (flat == high)).all(1) & (low[:, 0] >= 0) & (high[:, 0] <= 1)
    mean = flat.sum(1, dtype=np.float64).astype(np.float32) / np.float32(flat.shape[1])
    return np.where(is_spikes, mean, np.nan).astype(np.float64)


def _are_bits(x: np.ndarray) -> np.ndarray:
    """bool[T]: whether all of x [T, ...] is 0 or 1 in a step."""
    return ((x == 0) | (x == 1)).reshape(len(x), -1).all(1)


def _count_multiplications(network: Network, connection: Connection) -> int:
    """Of a sample: weights times the outputs that take each, taps on padding included."""
    return np.size(connection.weight) * _n_places(network, connection)


def _n_places(network: Network, connection: Connection) -> int:
    """Places of a convolution's output, of one channel; 1 of a Dense."""
    if isinstance(connection, Dense):
        return 1
    shape = connection.output_shape(network.node(connection.source).shape)
    if shape is None:
        raise ModelError(f"connection {connection.source!r} -> {connection.target!r} has no shape")
    return prod(shape[1:])


def _weights_met(network: Network, connection: Connection, only_ones: bool) -> np.ndarray:
    """int64[source]: weights that a spike meets, or of weights 0 and 1 only the ones."""
    shape = network.node(connection.source).shape
    conv = connection.as_conv2d((shape[0], shape[1])) if isinstance(connection, Conv1d) else connection
    return fan_out(network, conv if only_ones else conv.replace(weight=np.ones(np.shape(conv.weight), np.int8)))
