"""The sequence-parallel backend: each layer's whole `[B, T, N]` tensor at once, in exact integers.

The synaptic sums of a feed-forward layer are one GEMM or convolution over all samples and steps, in a float type that
provably represents every partial sum exactly. Convolutions of few spikes are added spike by spike. The neurons then
scan over time in a Numba kernel. Layers that feed each other (recurrent groups) run their time loop inside one kernel.
Counters follow from the spikes. `sim.sequence.cuda` does the same on a GPU.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nwcompile.cost.energy import measure_energy
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import require_torch
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Connection, Conv2d, Dense, pair
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.kernels.cores.neuron import scan
from nwcompile.kernels.cores.programs.build import build_module
from nwcompile.kernels.cores.programs.call import Programs
from nwcompile.kernels.cores.synapse import convolution_drive, scan_loop, sparse_drive
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.machine import NO_END, Rows, build_activity, empty_rows, layer_offsets, recorded_layers, split_late
from nwcompile.sim.memory import samples_at_once
from nwcompile.sim.reference.synaptic_sums import convolve, effective_network, fold_biases
from nwcompile.sim.runs import record_rows
from nwcompile.sim.sequence import tables
from nwcompile.threads import over_samples

SPARSE_SHARE = 32  # Time of a spike in a loop over spikes, relative to a number in a matrix product.
PATCH_ENTRIES = 1 << 21  # Numbers under all windows of the images that are convolved at once; bounds the memory.
SHORT_UPDATES = 1 << 16  # Below this number of neuron updates, starting threads takes longer than the updates.


def record_activity(
    network: Network, x, steps: int | None = None, repeats: bool = False
) -> tuple[Activity, dict[str, np.ndarray]]:
    """Return activity (with neuron updates) and aligned spikes of a fixed-point network that has no mapping yet.

    `repeats`: n spikes of a step are n messages.
    """
    network, inputs, rows = _trace_rows(network, x, steps, False)
    counts = {name: x.astype(np.int32, copy=False) for name, x in inputs.items()}  # float32 from a float network
    activity = Activity.from_spikes(network, {**counts, **rows.spikes}, repeats)
    return replace(activity, updates=rows.counts), rows.spikes


def trace_layers(network: Network, x, steps: int | None = None, keep_states: bool = True) -> tuple[dict, dict]:
    """Return aligned spikes and states of a fixed-point network that has no mapping yet, two dicts by layer.

    States are `u` and `v`, int64 `[B, T, *shape]`; without `keep_states` only those of readouts.
    """
    rows = _trace_rows(network, x, steps, keep_states)[2]
    return rows.spikes, rows.states


def _trace_rows(network: Network, x, steps: int | None, keep_states: bool) -> tuple[Network, dict, Rows]:
    """Simulate a fixed-point network that has no mapping yet; return it with effective weights, its inputs and Rows."""
    inputs, _, n_steps = prepare_inputs(network, x, steps)
    network = effective_network(fold_biases(network))
    return network, inputs, record_rows(SequenceMachine(network, keep_states, "aligned", n_steps), inputs, n_steps)


class Samples:
    """Samples between two rows. The arrays are built when read, as runs of all rows at once do not need them."""

    def __init__(self, machine: "SequenceMachine", n_samples: int):
        self.machine, self.n_samples = machine, n_samples
        self.waiting: dict[str, np.ndarray] = {}  # in a stream, by name of `Rows.by_row`: rows that are not due yet

    @cached_property
    def groups(self) -> list[tables.SimState]:
        """State of each layer group."""
        return [plan.initial_state(self.n_samples) for plan in self.machine.plans]

    @cached_property
    def past(self) -> dict[str, np.ndarray]:
        """Output [B, step, *shape] of every node in the last steps, as many as the longest delay to another group."""
        network, past = self.machine.network, {}
        outer = [edge for plan in self.machine.plans for edge in plan.outer]
        for name in network.offsets:
            node, n_steps = network.node(name), max((delay for c, delay in outer if c.source == name), default=0)
            dtype = np.int32 if node.neuron is None else node.neuron.spike_dtype
            past[name] = np.zeros((self.n_samples, n_steps, *node.shape), dtype)
        return past

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that the next row depends on, except its number."""
        neurons = {f"{i}/{name}": a for i, at in enumerate(self.groups) for name, a in at.arrays.items()}
        return neurons | {f"past/{name}": a for name, a in self.past.items()}

    def add_past(self, name: str, steps: np.ndarray) -> np.ndarray:
        """Return the past steps of a node and these, and keep the last ones as its past."""
        line = np.concatenate([self.past[name], steps], 1)
        self.past[name][...] = line[:, steps.shape[1] :]
        return line


class SequenceMachine:
    """A program, or a fixed-point network with effective weights. Its rows are aligned steps of all layers.

    In a stream (`n_steps` is None) each layer's rows are returned in the hardware steps in which the chip has them.
    """

    backend, least_rows = "sequence", 1

    def __init__(
        self, model: Program | Network, keep_states: bool, window: str, n_steps: int | None = None, device: str = "cpu"
    ):
        self.model, self.device, self.window = model, device, window
        self.n_rows = NO_END if n_steps is None else n_steps
        self.network = network = model.network if isinstance(model, Program) else model
        self.recorded = recorded_layers(network, keep_states)
        self.late = dict.fromkeys((*network.inputs, *network.nodes), range(1))
        delays = [min(c.aligned_delay, self.n_rows) for c in network.connections]  # longer ones end after the run
        if isinstance(model, Program) and n_steps is None:
            self.late = layer_offsets(model.schedule)
        elif isinstance(model, Program) and window == "hardware" and model.schedule.period == 1:
            delays = list(model.schedule.clip_delays(self.n_rows))
        self.plans = _build_plans(network, delays, device)

    def start(self, n_samples: int, first_sample: int = 0) -> Samples:
        """Return the state of samples before their first step."""
        return Samples(self, n_samples)

    def samples_at_once(self, n_samples: int) -> int:
        """Samples per chunk."""
        return samples_at_once(self.network, n_samples, self.n_rows, self.device)

    def empty_counts(self, n_rows: int) -> dict[str, np.ndarray]:
        """Allocate the neuron updates int64[row, neuron] by layer."""
        return {name: np.zeros((n_rows, self.network.node(name).n_neurons), np.int64) for name in self.network.layers}

    def advance(self, state: Samples, inputs: dict, rows: slice, n_steps: int | None) -> Rows:
        """Simulate aligned steps with inputs [B, step, *shape]; after the end of a stream there are no more."""
        n = rows.stop - rows.start
        done = empty_rows(self.network, self.recorded, state.n_samples, n, self.empty_counts(n))
        is_whole = rows == slice(0, self.n_rows)
        sources: dict[str, np.ndarray] = {}
        if n_steps is None or rows.start < n_steps:
            for name in self.network.inputs:
                sources[name] = inputs[name] if is_whole else state.add_past(name, inputs[name])
            for i, plan in enumerate(self.plans):
                at = () if is_whole else (state.groups[i]._replace(first_step=rows.start),)
                plan.run_layers(sources, done, *at)
                for name in plan.names:
                    sent = self.network.node(name).merge_axon_spikes(done.spikes[name])
                    sources[name] = sent if is_whole else state.add_past(name, sent)
        if self.n_rows == NO_END:
            self._delay_rows(state, done)
        return done

    def _delay_rows(self, state: Samples, done: Rows) -> None:
        """Replace rows by those that are due, which were computed as many rows ago as their layer is late."""
        lines = done._replace(counts={}).by_row(self.late)
        for name, counts in done.counts.items():
            lines |= split_late(f"counts/{name}", counts, self.late[name])
        for name, (rows, late) in lines.items():
            waiting = state.waiting.get(name, np.zeros((late, *rows.shape[1:]), rows.dtype))
            line = np.concatenate([waiting, rows])
            rows[...], state.waiting[name] = line[: len(rows)], line[len(rows) :]

    def measure(self, inputs: dict, rows: Rows, window: str) -> dict[str, Any]:
        """Return the activity with neuron updates, and the counters and energies."""
        program = self.model
        assert isinstance(program, Program), "networks have no chip"
        activity = replace(build_activity(program, inputs, rows.spikes), updates=rows.counts)
        counters = count_events(program, activity, window)
        energies = measure_energy(program, counters, lambda: link_flits(program, activity, window))
        return {"activity": activity} | energies


def _build_plans(network: Network, delays, device: str) -> list:
    """Return the objects that run the layers, in order: one per layer group on the CPU, a single one on a GPU."""
    if device == "cpu":
        return [LayerGroup(network, names, delays) for names in layer_groups(network)]
    require_torch("device 'cuda'")
    from nwcompile.sim.sequence.cuda.device import find_gpu

    device_of_torch = find_gpu()  # raises a clear error before Triton is imported
    from nwcompile.sim.sequence.cuda.inference import Inference

    return [Inference(network, layer_groups(network), delays, device_of_torch)]


def layer_groups(network: Network) -> list[list[str]]:
    """Group the nodes that feed each other, in the order of the network; groups are sorted sources first."""
    import networkx

    graph = networkx.DiGraph()
    graph.add_nodes_from(network.order)
    graph.add_edges_from((c.source, c.target) for c in network.connections if c.source in network.nodes)
    rank = {name: i for i, name in enumerate(network.order)}
    components = [sorted(group, key=rank.__getitem__) for group in networkx.strongly_connected_components(graph)]
    condensed = networkx.condensation(graph, [set(group) for group in components])
    order = networkx.lexicographical_topological_sort(condensed, key=lambda i: rank[components[i][0]])
    return [components[i] for i in order]


class Kept(NamedTuple):
    """Results of a scan over time except spikes; states that are not recorded have 0 samples."""

    u: np.ndarray  # int64[sample, step, neuron]
    v: np.ndarray  # int64[sample, step, neuron]
    words: np.ndarray  # int64[sample, step, word]: states of neuron programs
    updates: np.ndarray  # int64[step, neuron], over all samples


class LayerGroup:
    """Layers that run together: one feed-forward layer, or a recurrent group."""

    def __init__(self, network: Network, names: list[str], delays):
        self.network, self.names = network, names
        self.nodes = [network.node(name) for name in names]
        into = [(c, delays[network.index_of[c]]) for name in names for c in network.into(name)]
        edges = [(c, delay) for c, delay in into if c.source in names]
        self.outer = [(c, delay) for c, delay in into if c.source not in names]
        self.neurons = tables.neuron_tables(network, names)
        self.is_loop = bool(edges)
        self.is_program = not self.is_loop and names[0] in network.programs  # it has a generated kernel
        self.programs = tables.program_tables(network, names, by_address=self.is_loop)
        if self.is_loop:
            inner = Network({}, {node.name: node for node in self.nodes}, tuple(c for c, _ in edges))
            self.inner = tables.synapse_tables(inner, [delay for _, delay in edges])
            self.n_slots = int(self.inner.connection["delay"].max()) + 1

    def run_layers(self, sources: dict, done: Rows, at: tables.SimState | None = None) -> None:
        """Fill the rows of these layers in `done`, continuing from `at` if given."""
        n_samples, n_steps = next(iter(done.spikes.values())).shape[:2]
        drive, touched = self.sum_inputs(sources, n_samples, n_steps)
        shape = (n_samples, n_steps, len(self.neurons.rule_of))
        out = np.empty(shape, np.result_type(*(node.neuron.spike_dtype for node in self.nodes)))
        kept = self.scan(drive, touched, out, any(name in done.states for name in self.names), at)
        first = 0
        for node in self.nodes:
            part, name = slice(first, first + node.n_neurons), node.name
            shape = (n_samples, n_steps, *node.shape)
            done.spikes[name][...] = out[:, :, part].reshape(shape)
            done.counts[name][...] = kept.updates[:, part]
            if name in done.states:
                values = {"u": kept.u[:, :, part], "v": kept.v[:, :, part]}
                if name in self.network.programs:
                    values = tables.program_states(self.programs, node, kept.words, first)
                for state, value in values.items():
                    done.states[name][state][...] = value.reshape(shape)
            first += node.n_neurons

    def sum_inputs(self, sources: dict, n_samples: int, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums from outside the group, int64[B, T, sum], and where a message arrived, uint8[B, T, sum].

        Sources may have extra steps at the beginning, from before the first step.
        """
        n = sum(node.n_sums for node in self.nodes)
        drive = np.zeros((n_samples, n_steps, n), np.int64)
        touched = np.zeros((n_samples, n_steps, n), np.uint8)
        first = 0
        for node in self.nodes:
            part = slice(first, first + node.n_sums)
            for c, delay in self.outer:
                if c.target == node.name:
                    n_known = sources[c.source].shape[1]
                    late = sources[c.source][:, max(n_known - n_steps - delay, 0) : max(n_known - delay, 0)]
                    if n_heard := late.shape[1]:  # the last steps
                        _add_drive(c, late, drive[:, -n_heard:, part], touched[:, -n_heard:, part])
            first = part.stop
        return drive, touched

    def initial_state(self, n_samples: int) -> tables.SimState:
        """Return the state at the beginning of samples."""
        inner = tables.empty_drive(self.n_slots, self.inner) if self.is_loop else None
        return tables.initial_state(n_samples, len(self.neurons.rule_of), inner, self.programs)

    def scan(self, drive, touched, out, keep_states: bool = False, at: tables.SimState | None = None) -> "Kept":
        """Scan the neurons over time, write spikes to `out`, and return the other results.

        Samples begin in their initial state, or in the state `at`, which is updated in place.
        """
        n_samples, n_steps, n = out.shape
        n_words = len(self.programs.state)
        sizes = ((n_samples, n_steps, size) if keep_states else (0, 0, 0) for size in (n, n, n_words))
        u, v, words = (np.empty(size, np.int64) for size in sizes)

        def scan_part(samples: slice) -> np.ndarray:
            counts = np.zeros((n_steps, n), np.int64)
            if at is None:
                scan_samples(samples, counts, self.initial_state(1), 0)
            else:
                for b in range(samples.start, samples.stop):
                    scan_samples(slice(b, b + 1), counts, at, b)
            return counts

        def scan_samples(samples: slice, counts: np.ndarray, at: tables.SimState, b: int) -> None:
            """Scan some samples, with the state of sample b of `at`."""
            now, inner, programs = at.sample_state(b, self.programs)
            states = (array[samples] if keep_states else array for array in (u, v))
            run = (drive[samples], touched[samples], out[samples], *states, counts, now, at.first_step)
            kept_words = words[samples] if keep_states else words
            if self.is_loop:
                scan_loop(self.neurons, self.inner, *run, inner, programs, kept_words)
            elif self.is_program:
                self._scan_program(programs, at.first_step, run[:3], kept_words, counts)
            else:
                scan(self.neurons, *run)

        is_short = not self.is_loop and not self.is_program and drive.size < SHORT_UPDATES
        updates: Any = sum(over_samples(n_samples, scan_part, is_short=is_short))
        return Kept(u, v, words, updates)

    def _scan_program(
        self, programs: Programs, first_step: int, run: tuple, words: np.ndarray, counts: np.ndarray
    ) -> None:
        """Scan the only layer, a program, in its generated kernel."""
        node = self.nodes[0]
        n = node.n_neurons
        n_given = len(node.neuron.parameters) * n
        given, entries = programs.given[:n_given].reshape(-1, n), programs.given[n_given:]
        initial, state = (a.reshape(-1, n) for a in (programs.initial, programs.state))
        kept = words.reshape(*words.shape[:2], len(state), n) if len(words) else np.empty((0, 0, 0, 0), np.int64)
        scan_of = build_module(node.neuron.structure).scan
        scan_of(given, entries, initial, programs.rests, *run, kept, counts, state, first_step)


def _add_drive(connection: Connection, source: np.ndarray, drive, touched) -> None:
    """Add a connection's integer input for whole sequences to `drive` [B, T, n], and mark `touched`."""
    n_samples, n_steps = source.shape[:2]
    flat = source.reshape(n_samples, n_steps, -1)
    if isinstance(connection, Dense):
        dtype = _exact_type(connection, flat)
        drive += (flat.astype(dtype) @ np.asarray(connection.weight).T.astype(dtype)).astype(np.int64)
        touched |= (flat != 0).any(-1, keepdims=True).astype(np.uint8)
    elif isinstance(connection, Conv2d) and np.count_nonzero(flat) * SPARSE_SHARE < flat.size:
        shape = connection.source_shape or source.shape[2:]
        geometry = (pair(connection.stride), pair(connection.padding), pair(connection.dilation))
        weight = np.ascontiguousarray(connection.weight)
        convolution_drive(weight, shape, connection.output_shape(shape), *geometry, flat, drive, touched)
    elif isinstance(connection, Conv2d):
        images = source.reshape(n_samples * n_steps, *(connection.source_shape or source.shape[2:]))
        weight = np.asarray(connection.weight).astype(_exact_type(connection, images))
        drive += _convolve(replace(connection, weight=weight, source_shape=None), images).reshape(drive.shape)
        events = (images != 0).reshape(len(images), connection.groups, -1, *images.shape[2:]).any(2)
        ones = np.ones((connection.groups, 1, *weight.shape[2:]), np.float32)
        reached = _convolve(replace(connection, weight=ones, source_shape=None), events) > 0
        touched |= (
            np.repeat(reached, len(connection.weight) // connection.groups, axis=1)
            .reshape(touched.shape)
            .astype(np.uint8)
        )
    else:
        row, post, order = tables.build_csr(connection, flat.shape[2])
        sparse_drive(row, post, np.asarray(connection.weight)[order].astype(np.int64), flat, drive, touched)


def _exact_type(connection: Connection, x: np.ndarray):
    """Return the fastest number type in which every partial sum of |weight| * |x| is exact."""
    weight = np.abs(np.asarray(connection.weight).astype(np.int64))
    row_sum = int(weight.sum(tuple(range(1, weight.ndim))).max(initial=0))
    largest = row_sum * max(-int(x.min(initial=0)), int(x.max(initial=0)))
    return np.float32 if largest <= 1 << 24 else np.float64 if largest <= 1 << 53 else np.int64


def _convolve(connection: Conv2d, images: np.ndarray) -> np.ndarray:
    """Return the sums, int64[image, *], of `convolve` in the type of the weights, a few images at a time."""
    weight = np.asarray(connection.weight)
    _, rows, columns = connection.output_shape(images.shape[1:])
    n_at_once = max(1, PATCH_ENTRIES // (connection.groups * weight[0].size * rows * columns))
    parts = [images[k : k + n_at_once].astype(weight.dtype) for k in range(0, len(images), n_at_once)]
    return np.concatenate([convolve(connection, part, weight).astype(np.int64) for part in parts])
