"""NeuroBench: the complexity metrics of neuromorphic algorithms, for a network and one run of it.

Definitions: J. Yik et al., "NeuroBench: a framework for benchmarking neuromorphic computing algorithms and systems",
arXiv 2304.04640, algorithm track, "complexity metrics". Details that it leaves open follow the PyPI package neurobench
2.3.0, whose figures are in `tests/cost/neurobench.json`. Differences from the package:

- The package counts a torch module; this module counts the network that runs. A Program has batch norm and pooling
  folded into its weights, rounded weights (some to 0, which makes them ineffective), and images encoded into spikes.
- Footprint: the package counts parameters and buffers as float32. Here a float network counts the same way, a Program
  at the widths that its chip stores. The package also counts a framework's own buffers (such as snnTorch's reset
  codes), but no state before a run.
- A `Sparse` connection counts as the matrix that it fills, zeros included, in the connection sparsity and the dense
  operations, like a framework's Linear. Its footprint is that of the list. An excitatory and an inhibitory connection
  with the same ends and delay count as the single connection that they were split from.
- MAC or AC: the package decides for each call of a layer (a step of a batch). Here a source counts as MACs in the whole
  run if it ever sends a value other than -1, 0 and 1. Spikes sent one by one (`on_multi_spike="repeat"`) are ACs.
- The synops of a Run are what the chip reads: zeros stored in a row are read, and the message of a last spike is sent
  even if no step of the run receives it. Effective operations include neither.
- Layers that never fire have no activations here, and zeros in the package.
- A membrane is compared as it is after a step and its reset, like the package for snnTorch neurons with
  `reset_delay=False`. With a delay, snnTorch's membrane stays above the threshold until the next step, which counts
  as another update.
- The package counts calls: a recurrent sum that snnTorch computes twice a step (RLeaky, reset to zero) counts twice.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields

import numpy as np

from nwcompile.cost.traffic.memory import synapse_bits
from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse, pair
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.program import DENSE, SPARSE, Program
from nwcompile.ir.run import Run

ERROR_CODE = "NW7003"
FLOAT_BITS = 32  # The float networks of this package compute in float32.
DEFAULTS = {f.name: f.default for f in fields(NeuronSpec)}


@dataclass(frozen=True)
class NeuroBench:
    """Static figures of a network, and figures of a run as means per sample.

    `synapse_bytes`: weights (shared kernels once) and biases of connections. `neuron_bytes`: the neurons' parameters
    that differ from their default. The footprint is their sum. `state_bytes`: u and v (i and v) of every neuron; not
    in the footprint. `connection_sparsity`: zero weights over all weights. `activation_sparsity`: 1 - spikes /
    (neurons * steps), without inputs. Synaptic operations, without biases: `dense_synops` as if no weight or input
    were 0; `effective_macs` and `effective_acs` where neither is 0, for inputs with and without values other than -1,
    0 and 1. `membrane_updates`: neurons whose v (without a v: any state) changes in a step, and every neuron in its
    first step; None if states were not recorded.
    """

    synapse_bytes: int
    neuron_bytes: int
    state_bytes: int
    connection_sparsity: float
    activation_sparsity: float
    dense_synops: float
    effective_macs: float
    effective_acs: float
    membrane_updates: float | None

    @property
    def footprint_bytes(self) -> int:
        """Memory of the network: synapses and neuron parameters."""
        return self.synapse_bytes + self.neuron_bytes


def neurobench(model: Network | Program, run: Run, graded: Collection[str] | None = None) -> NeuroBench:
    """Compute the NeuroBench figures of a Program or a normalized Network, and a run of it.

    Membrane updates need a run with `record="all"`. `graded`: the inputs and layers that send values other than -1, 0
    and 1; None: as counted by the run, which counts integers only. Raises ModelError for another model's run, and for
    connections that are not weighted sums (MaxPool2d).
    """
    network, chip = (model.network, model.chip) if isinstance(model, Program) else (model, None)
    if run.activity is None or set(run.activity.counts) != set(network.offsets):
        raise ModelError("the run is not one of this network; simulate the network and take that run")
    for c in network.connections:
        if not isinstance(c, Dense | Conv2d | Sparse):
            raise c.fail(f"the operations of a {type(c).__name__} are not counted")
    activity, effective = run.activity, {"mac": 0, "ac": 0}
    if graded is None:
        one_by_one = isinstance(model, Program) and model.repeats
        graded = [name for name, m in activity.multi.items() if m.largest > 1 and not one_by_one]
    for c, delay in zip(network.connections, _connection_delays(model, run), strict=True):
        taken = activity.count_reads(c.source)[: max(activity.n_steps - delay, 0)].sum(0, dtype=np.int64)
        effective["mac" if c.source in graded else "ac"] += int(taken @ fan_out(network, c))
    wholes = _whole_connections(network)
    n_weights = sum(_matrix_size(network, c) for c in wholes)
    n_zeros = n_weights - sum(np.count_nonzero(c.weight) for c in network.connections)
    dense = (
        sum(_matrix_size(network, c) if isinstance(c, Sparse) else synapse_count(network, c) for c in wholes)
        * activity.n_steps
    )
    synapse_bytes, neuron_bytes, state_bytes = _memory_bytes(network, chip)
    return NeuroBench(
        synapse_bytes=synapse_bytes,
        neuron_bytes=neuron_bytes,
        state_bytes=state_bytes,
        connection_sparsity=float(n_zeros / max(n_weights, 1)),
        activation_sparsity=_activation_sparsity(network, activity),
        dense_synops=float(dense),
        effective_macs=effective["mac"] / activity.n_samples,
        effective_acs=effective["ac"] / activity.n_samples,
        membrane_updates=_membrane_updates(network, run),
    )


def fan_out(network: Network, connection: Connection) -> np.ndarray:
    """Return int64[source]: non-zero weights that multiply a spike of each source neuron, without padded taps."""
    shape = network.node(connection.source).shape
    if isinstance(connection, Dense):
        return np.count_nonzero(connection.weight, axis=0).astype(np.int64)
    if isinstance(connection, Sparse):
        n = network.node(connection.source).n_neurons
        return np.bincount(np.asarray(connection.pre)[np.asarray(connection.weight) != 0], minlength=n)
    if not isinstance(connection, Conv2d):
        raise connection.fail("its operations are not counted; normalize the network first", code="NW5008")
    (channels, *size), (n_out, *out) = connection.kernel_geometry(shape)
    weight = np.asarray(connection.weight)
    by_group = np.count_nonzero(weight.reshape(connection.groups, -1, *weight.shape[1:]), axis=1)
    taps = by_group.reshape(channels, *weight.shape[2:]).astype(np.int64)
    rows, columns = (_axis_reads(connection, axis, size[axis], out[axis]) for axis in (0, 1))
    return np.einsum("ckl,kh,lw->chw", taps, rows, columns).reshape(-1)


def _axis_reads(connection: Conv2d, axis: int, size: int, n_out: int) -> np.ndarray:
    """Return int64[tap, place]: whether an output reads this place on an axis of the source with this kernel tap."""
    stride, padding, dilation = (pair(getattr(connection, n))[axis] for n in ("stride", "padding", "dilation"))
    n_taps = np.shape(connection.weight)[2 + axis]
    place = np.arange(n_out) * stride - padding + np.arange(n_taps)[:, None] * dilation
    tap, _ = inside = np.nonzero((place >= 0) & (place < size))
    return np.bincount(tap * size + place[inside], minlength=n_taps * size).reshape(n_taps, size)


def _connection_delays(model: Network | Program, run: Run) -> Collection[int]:
    """Return the steps from a spike to the step that receives it, for every connection."""
    if isinstance(model, Program) and run.window == "hardware" and model.schedule.period == 1:
        return model.schedule.delay
    network = model.network if isinstance(model, Program) else model
    return [c.aligned_delay for c in network.connections]


def _whole_connections(network: Network) -> list[Connection]:
    """Return the connections; of an excitatory and an inhibitory half only the excitatory one."""

    def connection_key(connection: Connection) -> tuple:
        return (
            connection.source,
            connection.target,
            connection.aligned_delay,
            np.shape(connection.weight) if isinstance(connection, Conv2d) else (),
        )

    halves = {connection_key(c) for c in network.connections if c.sign_mode == "exc"}
    return [c for c in network.connections if c.sign_mode != "inh" or connection_key(c) not in halves]


def _matrix_size(network: Network, connection: Connection) -> int:
    """Return the number of weights of a connection; for a sparse one, the size of its matrix."""
    if isinstance(connection, Sparse):
        return network.node(connection.source).n_neurons * network.node(connection.target).n_sums
    return int(np.size(connection.weight))


def _memory_bytes(network: Network, chip: Chip | None) -> tuple[int, int, int]:
    """Return the bytes of the synapses, the neuron parameters and the states, each rounded up."""
    synapses = sum(_synapse_bits(c, chip) for c in network.connections)
    numbers = states = 0
    for name in network.layers:
        node = network.node(name)
        state_bits = FLOAT_BITS if chip is None else chip.state.bits
        if isinstance(node.neuron, NeuronProgram):
            numbers += sum(np.size(value) for value in node.neuron.parameters.values()) * state_bits
            states += node.n_neurons * sum(s.bits or FLOAT_BITS for s in node.neuron.states)
            continue
        numbers += sum(np.size(getattr(node.neuron, n)) * _number_bits(n, chip) for n in _given_numbers(node))
        n_states = 2 if chip is not None or node.neuron.alpha is not None else 1
        states += node.n_neurons * n_states * state_bits
    return -(-synapses // 8), -(-numbers // 8), -(-states // 8)


def _synapse_bits(connection: Connection, chip: Chip | None) -> int:
    n_biases = 0 if connection.bias is None else np.size(connection.bias)
    if chip is None:
        return (np.size(connection.weight) + n_biases) * FLOAT_BITS
    return np.size(connection.weight) * synapse_bits(
        connection, SPARSE if isinstance(connection, Sparse) else DENSE, chip
    )


def _given_numbers(node: Node) -> list[str]:
    """Return the neuron parameters of a layer that differ from their default, and always the threshold."""
    values = {name: getattr(node.neuron, name) for name in NeuronSpec.NUMBERS}
    return [n for n, v in values.items() if n == "threshold" or np.ndim(v) or v is not None and v != DEFAULTS[n]]


def _number_bits(name: str, chip: Chip | None) -> int:
    if chip is None:
        return FLOAT_BITS
    of = {"threshold": chip.neuron.threshold_bits, "bias": chip.neuron.bias_bits, "bias_u": chip.neuron.bias_bits,
          "decay_u": chip.state.decay_bits, "decay_v": chip.state.decay_bits}  # fmt: skip
    return of.get(name, chip.state.bits)


def _activation_sparsity(network: Network, activity: Activity) -> float:
    n_spikes = n_all = 0
    for name in network.layers:
        if network.node(name).neuron.fires:
            several = activity.multi.get(name)
            n_spikes += int((activity.counts[name] if several is None else several.event_counts).sum(dtype=np.int64))
            n_all += network.node(name).n_neurons * activity.n_steps * activity.n_samples
    return 1 - n_spikes / n_all if n_all else 0.0


def _membrane_updates(network: Network, run: Run) -> float | None:
    if set(run.states) != set(network.layers):
        return None
    n = 0
    for states in run.states.values():
        every = [states["v"]] if "v" in states else list(states.values())
        if not every:
            continue
        n += every[0][:, 0].size
        n += int(np.count_nonzero(np.any([v[:, 1:] != v[:, :-1] for v in every], axis=0)))
    return n / run.n_samples
