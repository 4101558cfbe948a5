"""Float networks on whole sequences: each layer's `[B, T, *shape]` at once, bit for bit equal to the reference.

Synaptic sums cover many steps at once if float64 provably holds every partial sum, so that the order of additions does
not matter; otherwise they go step by step in the reference's shapes. Neuron programs scan over time in a generated
kernel. Built-in neurons use the reference's step, and so do programs with `exp` or `tanh`, whose last bits depend on
the library. Layers that feed each other go step by step.
"""

from math import prod

import numpy as np

from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.run import Run
from nwcompile.kernels.cores.programs.build import build_module
from nwcompile.kernels.cores.programs.source import WITHOUT_KERNEL
from nwcompile.sim.machine import Rows, count_samples, recorded_layers
from nwcompile.sim.reference.run import initial_state, record_spikes
from nwcompile.sim.reference.synaptic_sums import apply_connection
from nwcompile.sim.runs import build_run
from nwcompile.sim.sequence.run import layer_groups
from nwcompile.threads import raise_if_canceled

LARGEST_EXACT = 1 << 53  # Whole numbers up to here are exact in float64.
CHUNK_NUMBERS = 1 << 22  # Numbers per chunk of sums; it limits the memory.
MANTISSA_BITS = 24  # of a float32


def run_network(network: Network, inputs: dict[str, np.ndarray], n_steps: int, keep_states: bool) -> Run:
    """Simulate a float network in aligned steps; `inputs[name]` is `[B, T, *shape]`."""
    return run_values(network, inputs, n_steps, keep_states)[0]


@np.errstate(over="ignore", invalid="ignore")  # a membrane beyond float32 is infinite, as in the framework
def run_values(
    network: Network, inputs: dict[str, np.ndarray], n_steps: int, keep_states: bool
) -> tuple[Run, dict[str, np.ndarray]]:
    """Return the Run, and the output of every input, layer and junction, float32[B, T, *shape] by name."""
    n_samples = count_samples(inputs)
    values = {name: x.astype(np.float32) for name, x in inputs.items()}
    layers: dict[str, _Neurons] = {}
    for node in network.nodes.values():
        values[node.name] = np.zeros((n_samples, n_steps, *node.shape), np.float32)
        if node.neuron is not None:
            has_kernel = isinstance(node.neuron, NeuronProgram) and ProgramScan.has_kernel(node.neuron)
            kind = _Programs if has_kernel else _Neurons
            layers[node.name] = kind(node, n_samples, n_steps, keep_states or not node.neuron.fires)
    for names in layer_groups(network):
        is_loop = any(c.source in names and c.target in names for c in network.connections)
        for steps in (range(t, t + 1) for t in range(n_steps)) if is_loop else (range(n_steps),):
            raise_if_canceled()
            for name in names:
                node = network.node(name)
                x = _sum_inputs(network, node, values, steps)
                sent = layers[name].run(x, steps) if name in layers else x
                values[name][:, steps.start : steps.stop] = node.merge_axon_spikes(sent)
    states = {name: layers[name].states for name in recorded_layers(network, keep_states)}
    rows = Rows({name: layers[name].spikes for name in network.layers}, states, {})
    made_by = {"backend": "sequence", "device": "cpu", "window": "aligned"}
    return build_run(network, inputs, rows, lambda *_: {"counters": {}}, **made_by), values


def _sum_inputs(network: Network, node: Node, values: dict[str, np.ndarray], steps: range) -> np.ndarray:
    """Return the synaptic sums of a layer or junction in some steps, float32[B, step, *input_shape]."""
    n_samples = len(values[node.name])
    total = np.zeros((n_samples, len(steps), *node.input_shape), np.float32)
    for c in network.into(node.name):
        source, first = values[c.source], steps.start - c.aligned_delay
        for part in _exact_parts(c, source, len(steps), node):
            times = range(first + part.start, first + part.stop)
            x = np.stack([source[:, t] if t >= 0 else np.zeros_like(source[:, 0]) for t in times], 1)
            flat = apply_connection(c, x.reshape(-1, *x.shape[2:]), node.input_shape)
            total[:, part] = total[:, part] + flat.reshape(n_samples, len(times), *node.input_shape)
    return total


def _exact_parts(connection: Connection, source: np.ndarray, n_steps: int, node: Node) -> list[slice]:
    """Split the steps into slices whose sums can be taken at once without changing the result."""
    size = 1
    if n_steps > 1 and _is_exact(connection, source):
        taps = prod(np.shape(connection.weight)[1:]) if isinstance(connection, Conv2d) else 1
        numbers = len(source) * max(prod(source.shape[2:]), prod(node.input_shape) * taps)
        size = max(1, CHUNK_NUMBERS // numbers)
    return [slice(t, min(t + size, n_steps)) for t in range(0, n_steps, size)]


def _is_exact(connection: Connection, source: np.ndarray) -> bool:
    """Whether float64 holds every partial sum of the source's values exactly."""
    if not isinstance(connection, Dense | Conv2d | Sparse) or (source != np.trunc(source)).any():
        return False
    weight = np.abs(np.asarray(connection.weight, np.float32).astype(np.float64))
    mantissa, exponent = np.frexp(weight[weight > 0])
    if not mantissa.size:
        return True
    whole = (mantissa * 2.0**MANTISSA_BITS).astype(np.int64)
    unit = np.min((whole & -whole) * 2.0 ** (exponent - MANTISSA_BITS))  # all weights are multiples of it
    if isinstance(connection, Sparse):
        largest = np.bincount(connection.post, weight).max()
    else:
        largest = weight.reshape(len(weight), -1).sum(1).max()
    return bool(largest / unit * np.abs(source).max(initial=0) <= LARGEST_EXACT)


class _Neurons:
    """A layer of float neurons over time, computed by the reference's step, with its output and recorded states."""

    def __init__(self, node: Node, n_samples: int, n_steps: int, keep_states: bool):
        shape = (n_samples, n_steps, *node.shape)
        self.spikes = np.zeros(shape, node.neuron.spike_dtype)
        names = node.neuron.state_names if keep_states else ()
        self.states = {name: np.zeros(shape, np.float32) for name in names}
        self.state = initial_state(node, n_samples)

    def run(self, x: np.ndarray, steps: range) -> np.ndarray:
        """Advance the layer by some steps with the sums `x`; return its output in these steps."""
        for i, t in enumerate(steps):
            record_spikes(self.spikes, t, self.state.step(np.ascontiguousarray(x[:, i])))
            for name, kept in self.states.items():
                kept[:, t] = self.state.named[name]
        return self.spikes[:, steps.start : steps.stop]


class _Programs(_Neurons):
    """A layer of a float program, computed by its generated kernel."""

    def __init__(self, node: Node, n_samples: int, n_steps: int, keep_states: bool):
        super().__init__(node, n_samples, n_steps, keep_states)
        self.scan = ProgramScan(node.neuron, node.shape, n_samples)

    def run(self, x: np.ndarray, steps: range) -> np.ndarray:
        sent, kept = self.scan.run(x, bool(self.states))
        part = slice(steps.start, steps.stop)
        record_spikes(self.spikes, part, sent)
        for name, values in self.states.items():
            values[:, part] = kept[name]
        return sent


class ProgramScan:
    """B samples of a layer of a float program in its generated kernel; each call continues where the last one ended."""

    def __init__(self, program: NeuronProgram, shape: tuple[int, ...], n_samples: int, dtype: type = np.float32):
        self.shape, size = shape, (n_samples, prod(shape))
        self.names, self.kernels = program.state_names, build_module(program.structure, np.dtype(dtype).name)
        self.given: np.ndarray = np.array([program.array(name, shape) for name in program.parameters], dtype).reshape(
            -1
        )
        initial = [np.broadcast_to(program.array(name, shape).reshape(-1), size) for name in self.names]
        self.state: np.ndarray = np.array(initial, dtype).reshape(-1)

    @staticmethod
    def has_kernel(program: NeuronProgram) -> bool:
        """Whether there is a kernel for a float program."""
        return not any(operation.kind in WITHOUT_KERNEL for operation in program.operations)

    def run(self, x: np.ndarray, keep_states: bool = False) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the output for sums `x` [B, T, *input_shape], and with `keep_states` the states after each step."""
        n_samples, n_steps = x.shape[:2]
        drive, shape = np.ascontiguousarray(x, self.state.dtype), (n_samples, n_steps, *self.shape)
        sent, sizes = np.empty(prod(shape), drive.dtype), (0, n_samples, n_samples, n_steps, prod(self.shape))
        kept = np.empty((len(self.names) if keep_states else 0, *shape), drive.dtype)
        if keep_states:
            self.kernels.record(self.given, drive.reshape(-1), sent, self.state, sizes, kept.reshape(-1))
        else:
            self.kernels.scan(self.given, drive.reshape(-1), sent, self.state, sizes)
        return sent.reshape(shape), dict(zip(self.names, kept, strict=False))
