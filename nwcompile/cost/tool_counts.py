"""Chip-independent operations of a network, and the same as counted by the packages syops and SpikingJelly.

Each tool used in papers has its own definition under its name; NeuroBench's is in `neurobench.py`. The energy is the
one used in papers on spiking networks: every operation in 32-bit floating point at 45 nm, 0.9 pJ per addition and 3.7
pJ per multiplication (M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014, figure
1.1.9), without memory. It makes figures of papers comparable and says nothing about a chip.

An imported float network has a connection for every computing layer of the torch module: Linear and convolutions,
pooling, and batch norm as a Scale. A module that runs step by step calls each layer once per step with all samples.

SyOPs, like syops 0.0.5 (github.com/iCGY96/syops-counter, `ops.py`), begins with the dense operations of a layer. If the
input of a call holds at most two different numbers, both in 0..1, the fraction given by the mean input counts as
accumulates; otherwise all operations are multiplications. Biases count like weights, with the same fraction. Taps on
padding and zero weights count. A Linear's bias counts once for all samples of a call. Batch norm counts two operations
per number, pooling one per input number, and a neuron one accumulate per step. Fractions are float32, as in syops.

SpikingJelly's op_counter 2.0.0 (`activation_based/op_counter/synop.py`, `mac.py`): if the input of a matrix product or
convolution in a call is only 0 and 1, it counts synaptic operations, one per weight that meets a 1, including zero
weights but no taps on padding. Otherwise it counts multiplications, including zeros and taps on padding. If only the
weights are 0 and 1, they count as spikes; if both are, only pairs of ones count. Biases never count. A batch norm
multiplies every number once. Its ACCounter is not reproduced: it counts torch's additions inside norms, pools and
neurons, which depend on how a module is written and are not part of a network.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from nwcompile.cost.neurobench import fan_out, neurobench
from nwcompile.errors import ModelError
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, MaxPool2d, Pool2d, Scale
from nwcompile.ir.network import Network
from nwcompile.ir.run import Run

ERROR_CODE = "NW5008"
OF_A_NORM = 2  # Operations of a batch norm on one number: its scale and its shift.
ADD_PJ = 0.9  # Picojoules of an addition in 32-bit floating point at 45 nm (Horowitz 2014).
MULTIPLY_PJ = 3.7  # Picojoules of a multiplication (same source).


@dataclass(frozen=True)
class SyOps:
    """Operations of a sample: `ops` as if every input were dense, and the `acs` and `macs` among them."""

    ops: float
    acs: float
    macs: float


@dataclass(frozen=True)
class OpCounts:
    """Operations of a sample as counted by SpikingJelly's SynOpCounter and MACCounter."""

    synops: float
    macs: float


def syops(network: Network, values: dict[str, np.ndarray]) -> SyOps:
    """Count the SyOps of a float network, not normalized, whose nodes send `values[name]`, float32[B, T, *shape].

    Raises ModelError for connections that correspond to no torch layer.
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
    """Count SpikingJelly's OpCounts. Arguments and errors are those of `syops`."""
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
    """Yield every connection and its input in each step, float32[T, B, *shape]; `values` come from `sim.sequence`."""
    for connection in network.connections:
        if not isinstance(connection, Dense | Conv1d | Conv2d | Pool2d | MaxPool2d | Scale):
            raise connection.fail(f"what torch computes for a {type(connection).__name__} is not known")
        x = values[connection.source]
        late = np.zeros_like(x[:, : connection.aligned_delay])
        yield connection, np.concatenate([late, x[:, : x.shape[1] - late.shape[1]]], 1).swapaxes(0, 1)


def spike_shares(x: np.ndarray) -> np.ndarray:
    """Return float64[T]: the mean of x [T, ...] per step, rounded to float32; NaN if x does not count as spikes."""
    flat = x.reshape(len(x), -1)
    low, high = flat.min(1, keepdims=True), flat.max(1, keepdims=True)
    is_spikes = ((flat == low) | (flat == high)).all(1) & (low[:, 0] >= 0) & (high[:, 0] <= 1)
    mean = flat.sum(1, dtype=np.float64).astype(np.float32) / np.float32(flat.shape[1])
    return np.where(is_spikes, mean, np.nan).astype(np.float64)


def _are_bits(x: np.ndarray) -> np.ndarray:
    """Return bool[T]: whether all of x [T, ...] is 0 or 1 in a step."""
    return ((x == 0) | (x == 1)).reshape(len(x), -1).all(1)


def _count_multiplications(network: Network, connection: Connection) -> int:
    """Return the multiplications of a sample: each weight times the outputs that use it, with taps on padding."""
    return np.size(connection.weight) * _n_places(network, connection)


def _n_places(network: Network, connection: Connection) -> int:
    """Return the output pixels of a convolution per channel; 1 for a Dense."""
    if isinstance(connection, Dense):
        return 1
    shape = connection.output_shape(network.node(connection.source).shape)
    if shape is None:
        raise ModelError(f"connection {connection.source!r} -> {connection.target!r} has no shape")
    return prod(shape[1:])


def _weights_met(network: Network, connection: Connection, only_ones: bool) -> np.ndarray:
    """Return int64[source]: weights that a spike meets; with `only_ones`, only weights other than 0."""
    shape = network.node(connection.source).shape
    conv = connection.as_conv2d((shape[0], shape[1])) if isinstance(connection, Conv1d) else connection
    return fan_out(network, conv if only_ones else conv.replace(weight=np.ones(np.shape(conv.weight), np.int8)))


@dataclass(frozen=True)
class Count:
    """Operations of a sample as a tool counts them: accumulates and multiplications."""

    tool: str
    acs: float
    macs: float

    @property
    def energy_nj(self) -> float:
        """Energy of a sample in nJ (45 nm table)."""
        return (self.acs * ADD_PJ + self.macs * (ADD_PJ + MULTIPLY_PJ)) / 1000


@dataclass(frozen=True)
class Operations:
    """Operations of a sample. `acs`, `macs`: non-zero weights times non-zero inputs, from sources that send only -1, 0
    and 1, and from others. `ann_macs`: every weight once, as in an ANN of the same layers with one step. `syops`,
    `spikingjelly`: by the definitions of these tools; None if they do not support the network."""

    acs: float
    macs: float
    ann_macs: float
    syops: SyOps | None = None
    spikingjelly: OpCounts | None = None

    @property
    def counts(self) -> tuple[Count, ...]:
        """A row for each tool that supports the network, and one for the ANN with one step."""
        rows = [Count("neurobench 2.3.0", self.acs, self.macs)]
        if self.syops is not None:
            rows.append(Count("syops 0.0.5", self.syops.acs, self.syops.macs))
        if self.spikingjelly is not None:
            rows.append(Count("spikingjelly 2.0.0", self.spikingjelly.synops, self.spikingjelly.macs))
        return (*rows, Count("ANN twin, one step", 0.0, self.ann_macs))

    @property
    def synops(self) -> float:
        """Sum of accumulates and multiplications."""
        return self.acs + self.macs

    @property
    def energy_nj(self) -> float:
        """Energy of a sample in nJ (45 nm table)."""
        return self.counts[0].energy_nj


def count_operations(network: Network, run: Run, graded_inputs: Collection[str]) -> Operations:
    """Count the Operations of a normalized network and a run; `graded_inputs` send values other than -1, 0 and 1.

    Raises ModelError for another model's run, and for connections that are not weighted sums (MaxPool2d).
    """
    graded = [name for name, spikes in run.spikes.items() if (np.abs(spikes) > 1).any() or (spikes % 1).any()]
    figures = neurobench(network, run, [*graded_inputs, *graded])
    assert run.activity is not None, "neurobench asked for it"
    ann_macs = figures.dense_synops / max(run.activity.n_steps, 1)
    return Operations(figures.effective_acs, figures.effective_macs, ann_macs)
