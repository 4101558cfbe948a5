"""The reference backend: NumPy, slow, obvious. Every other backend must equal it bit for bit."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nwcompile.cost.energy import measure_energy
from nwcompile.cost.family import find_cost
from nwcompile.cost.neuron_program import chip_instructions
from nwcompile.cost.traffic.io_sites import IoRoutes, io_routes
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.cost.traffic.multicast import SpikeFanout, spike_fanout
from nwcompile.ir.connection import Connection
from nwcompile.ir.flat import csr_entries
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.program import SYNAPSE_KINDS, Program
from nwcompile.ir.run import COUNTERS
from nwcompile.sim.machine import (
    NO_END,
    Rows,
    build_activity,
    count_samples,
    empty_rows,
    layer_offsets,
    recorded_layers,
)
from nwcompile.sim.reference.neuron_step import LayerState
from nwcompile.sim.reference.program_step import ProgramState
from nwcompile.sim.reference.synaptic_sums import apply_connection, effective_network, unit_connection


@dataclass(eq=False)
class Samples:
    """Samples between two rows: the neurons of each layer, and arrays by kind and name."""

    layers: dict[str, LayerState | ProgramState]
    kinds: dict[str, dict[str, np.ndarray]]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that the next row depends on, except its number."""
        neurons = {f"layers/{name}/{key}": a for name, layer in self.layers.items() for key, a in layer.arrays.items()}
        return neurons | {f"{kind}/{name}": a for kind, arrays in self.kinds.items() for name, a in arrays.items()}


class NumpyMachine:
    """The parts of a machine that networks and programs share here."""

    backend, device, least_rows = "reference", "cpu", 1
    network: Network
    recorded: list[str]

    def samples_at_once(self, n_samples: int) -> int:
        """All samples are computed together."""
        return n_samples

    def record_step(self, done: Rows, row: int, name: str, spikes: np.ndarray, state: Samples) -> None:
        """Record a step of a layer."""
        record_spikes(done.spikes[name], row, spikes)
        for kind, values in done.states.get(name, {}).items():
            values[:, row] = state.layers[name].named[kind]


class NetworkMachine(NumpyMachine):
    """A float or fixed-point network that is not compiled. Its rows are aligned steps; it has no counts.

    The state is that of the neurons, and the `past` output of all nodes, as many steps as the longest delay. In a
    stream the past begins empty, and takes no more memory than the steps so far.
    """

    window = "aligned"

    def __init__(self, network: Network, keep_states: bool, n_steps: int | None = None):
        self.model = self.network = network
        self.recorded = recorded_layers(network, keep_states)
        self.connections = (effective_network(network) if network.is_fixed else network).connections
        self.number = np.int64 if network.is_fixed else np.float32
        self.n_rows = NO_END if n_steps is None else n_steps
        self.n_past = min(max((c.aligned_delay for c in self.connections), default=0), self.n_rows)
        self.late = dict.fromkeys((*network.inputs, *network.nodes), range(1))

    def start(self, n_samples: int, first_sample: int = 0) -> Samples:
        """Return the state of samples before their first step."""
        nodes = (*self.network.inputs.values(), *self.network.nodes.values())
        n_known = 0 if self.n_rows == NO_END else self.n_past
        past = {node.name: np.zeros((n_samples, n_known, *node.shape), self.number) for node in nodes}
        neurons = [node for node in nodes if node.neuron is not None]
        return Samples({node.name: initial_state(node, n_samples) for node in neurons}, {"past": past})

    @np.errstate(over="ignore", invalid="ignore")  # a membrane beyond float32 is infinite, as in the framework
    def advance(self, state: Samples, inputs: dict, rows: slice, n_steps: int | None) -> Rows:
        """Simulate aligned steps with inputs [B, step, *shape]."""
        network, past, n = self.network, state.kinds["past"], rows.stop - rows.start
        n_samples, first = next(iter(past.values())).shape[:2]
        done = empty_rows(network, self.recorded, n_samples, n, {})
        empty = {node.name: np.zeros((n_samples, n, *node.shape), self.number) for node in network.nodes.values()}
        given = {name: inputs[name].astype(self.number) for name in network.inputs} | empty
        values = {name: np.concatenate([past[name], steps], 1) for name, steps in given.items()}
        for t in range(first, first + n):
            for name in network.order:
                shape = network.node(name).input_shape
                x = np.zeros((n_samples, *shape), self.number)
                for c in self.connections:
                    if c.target == name:
                        at = t - c.aligned_delay
                        sent = values[c.source][:, at] if at >= 0 else np.zeros_like(values[c.source][:, 0])
                        x = x + apply_connection(c, sent, shape)
                if name in state.layers:
                    x = state.layers[name].step(x)
                    self.record_step(done, t - first, name, x, state)
                values[name][:, t] = network.node(name).merge_axon_spikes(x)
        for name, steps in values.items():
            past[name] = steps[:, max(first + n - self.n_past, 0) :].copy()
        return done

    def measure(self, inputs: dict, rows: Rows, window: str) -> dict[str, Any]:
        """Return no counters: there is no chip."""
        return {"counters": {}}

    def empty_counts(self, n_rows: int) -> dict[str, np.ndarray]:
        """Return no counts."""
        return {}


class ProgramMachine(NumpyMachine):
    """A program, simulated micro-step by micro-step, with every message delivered. Its rows are hardware steps.

    The state is that of the neurons, and the synaptic sums in flight: their values and their events. In a run of
    `n_steps`, sums that arrive after its end are dropped.
    """

    def __init__(self, program: Program, keep_states: bool, window: str, n_steps: int | None = None):
        self.model, self.network, self.window = program, program.network, window
        self.recorded = recorded_layers(self.network, keep_states)
        self.late = layer_offsets(program.schedule, window)
        self.nodes = {name: self.network.node(name) for name in self.network.layers}
        every = [self.network.node(name) for name in self.network.offsets]
        self.steps_late = {n.name: program.schedule.steps_late(n.name, n.n_neurons).reshape(n.shape) for n in every}
        # Masks of neurons that are 0, 1, ... steps late; True: all neurons of a layer that is not staggered.
        self.groups = {
            name: [late == k for k in range(n + 1)] if (n := program.schedule.n_late(name)) else [True]
            for name, late in self.steps_late.items()
        }
        self.n_rows = NO_END if n_steps is None else program.schedule.n_hardware_steps(n_steps, window)
        self.delay = program.schedule.clip_delays(self.n_rows)
        self.n_slots = max(self.delay, default=1) + max(map(program.schedule.n_late, self.nodes)) + 1
        self.n_instructions = {name: chip_instructions(program.chip, node.neuron) for name, node in self.nodes.items()}
        self.sent_by = spike_fanout(program)
        self.routes = io_routes(program)

    def start(self, n_samples: int, first_sample: int = 0) -> Samples:
        """Return the state of samples before their first step."""
        shapes = {name: (self.n_slots, n_samples, *node.input_shape) for name, node in self.nodes.items()}
        sums = {kind: {n: np.zeros(s, np.int64) for n, s in shapes.items()} for kind in ("arriving", "events")}
        return Samples({name: initial_state(node, n_samples) for name, node in self.nodes.items()}, sums)

    def empty_counts(self, n_rows: int) -> dict[str, np.ndarray]:
        """Allocate the counters int64[row, core]."""
        return {name: np.zeros((n_rows, self.model.mapping.n_cores), np.int64) for name in COUNTERS}

    def advance(self, state: Samples, inputs: dict, rows: slice, n_steps: int | None) -> Rows:
        """Simulate hardware steps with inputs [B, row, *shape]."""
        period, n = self.model.schedule.period, rows.stop - rows.start
        n_samples = next(iter(state.kinds["events"].values())).shape[1]
        done = empty_rows(self.network, self.recorded, n_samples, n, self.empty_counts(n))
        for h in range(rows.start, rows.stop):
            row = h - rows.start
            for m in range(h * period, (h + 1) * period):
                given = m % period == 0 and (n_steps is None or h < n_steps)
                sent = {name: x[:, row].astype(np.int64) for name, x in inputs.items()} if given else {}
                for name in self.nodes:
                    self._visit_layer(state, name, m, n_steps, done.counts, row, sent)
                    if name in sent:
                        self.record_step(done, row, name, sent[name], state)
                self._deliver_messages(state, m, sent, done.counts, row)
        return done

    def measure(self, inputs: dict, rows: Rows, window: str) -> dict[str, Any]:
        """Return the counters and energies."""
        find_cost(self.model.chip).add_tokens(self.model, rows.counts, count_samples(rows.spikes))
        activity = partial(build_activity, self.model, inputs, rows.spikes)
        return measure_energy(self.model, rows.counts, lambda: link_flits(self.model, activity(), window))

    def _visit_layer(
        self, state: Samples, name: str, m: int, n_steps: int | None, counters: dict, row: int, sent: dict
    ) -> None:
        """Visit a layer in micro-step m; write its spikes to `sent` if it is active."""
        schedule, cores, slot = self.model.schedule, self.model.mapping.core_of[name], m % self.n_slots
        arriving, events = (state.kinds[kind][name][slot] for kind in ("arriving", "events"))
        period, offset = schedule.period, schedule.offset[name]
        t = m // period if self.window == "hardware" else (m - offset) // period
        if period == 1 or m % period == offset:
            n_samples = len(events)
            np.add.at(counters["neuron_visits"][row], cores, n_samples)
            step = t - self.steps_late[name]
            is_active = (step >= 0) & (n_steps is None or step < n_steps)
            if is_active.any():
                layer, node = state.layers[name], self.nodes[name]
                has_event = events.reshape(n_samples, node.n_inputs, *node.shape).any(1)
                idle = layer.is_at_rest & ~has_event
                updates = np.count_nonzero(~idle & is_active, axis=0).reshape(-1)
                np.add.at(counters["neuron_updates"][row], cores, updates)
                np.add.at(counters["neuron_instructions"][row], cores, updates * self.n_instructions[name])
                before = {} if is_active.all() else {key: a.copy() for key, a in layer.arrays.items()}
                sent[name] = np.multiply(layer.step(arriving), is_active)
                for key, a in before.items():
                    np.copyto(layer.arrays[key], a, where=~is_active)
        arriving[...] = 0
        events[...] = 0

    def _deliver_messages(self, state: Samples, m: int, sent: dict, counters: dict, row: int) -> None:
        """Add the messages of micro-step m to the sums of the steps in which they act, and count them."""
        program = self.model
        heard = {name: program.network.node(name).merge_axon_spikes(spikes) for name, spikes in sent.items()}
        for c, delay in zip(program.network.connections, self.delay, strict=True):
            if c.source in heard and heard[c.source].any():
                self._add_sums(state, c, heard[c.source], m + delay)
        for name, spikes in sent.items():
            messages, reads = (_messages_per_neuron(program, x) for x in (spikes, heard[name]))
            _count_messages(program, self.sent_by, name, messages, counters, row)
            _count_reads(program, name, reads, counters, row)
            if self.routes is not None:
                _count_io(program, self.routes, name, messages, counters, row)

    def _add_sums(self, state: Samples, connection: Connection, spikes: np.ndarray, m: int) -> None:
        """Add sums of spikes [B, *shape] to micro-step m; a late source's act earlier, those of a late target later."""
        source, target = connection.source, connection.target
        for early, of_source in enumerate(self.groups[source]):
            sent = spikes if of_source is True else spikes * of_source
            for kind in ("arriving", "events"):
                edge = connection if kind == "arriving" else unit_connection(connection)
                values = sent if kind == "arriving" else (sent != 0).astype(np.int64)
                node = self.nodes[target]
                by_input = (len(spikes), node.n_inputs, *node.shape)
                sums = apply_connection(edge, values, node.input_shape).reshape(by_input)
                for later, of_target in enumerate(self.groups[target]):
                    slot = state.kinds[kind][target][(m + later - early) % self.n_slots].reshape(by_input)
                    np.add(slot, sums, out=slot, where=of_target)


def initial_state(node: Node, n_samples: int) -> LayerState | ProgramState:
    """Return the state of a layer at the beginning of a sample."""
    shape = (n_samples, *node.shape)
    if isinstance(node.neuron, NeuronProgram):
        return ProgramState.from_program(node.neuron, shape)
    return LayerState.from_spec(node.neuron, shape)


def _messages_per_neuron(program: Program, spikes: np.ndarray) -> np.ndarray:
    """Return int64[n]: messages of each neuron to each destination, for spikes [B, *shape] of one step."""
    messages = np.abs(spikes).sum(0) if program.repeats else np.count_nonzero(spikes, axis=0)
    return messages.reshape(-1)


def _count_messages(
    program: Program, sent_by: SpikeFanout, name: str, n_spikes: np.ndarray, counters: dict, h: int
) -> None:
    """Count the messages of a layer or input in hardware step h: `n_spikes` of each neuron to each destination."""
    first = program.network.offsets[name]
    neurons = np.flatnonzero(n_spikes)
    neurons = neurons[program.core_of[first + neurons] >= 0]
    source, count = first + neurons, n_spikes[neurons]
    home = program.core_of[source]
    np.add.at(counters["spikes_out"][h], home, count)
    np.add.at(counters["messages_out"][h], home, count * sent_by.messages[source])
    for i, direction in enumerate(("hops_ew", "hops_ns")):
        np.add.at(counters[direction][h], home, count * sent_by.hops[source, i])
        np.add.at(counters["hops"][h], home, count * sent_by.hops[source, i])
    axon, count = _axons_used(program, name, n_spikes)
    for counter in ("messages_in", "deliveries"):
        np.add.at(counters[counter][h], program.axons.core[axon], count)


def _count_reads(program: Program, name: str, n_reads: np.ndarray, counters: dict, h: int) -> None:
    """Count the synapse reads of a layer or input in hardware step h; axons of each neuron read `n_reads` times."""
    axon, count = _axons_used(program, name, n_reads)
    core = program.axons.core[axon]
    for kind, synops in zip(SYNAPSE_KINDS, program.axons.synops.T, strict=True):
        np.add.at(counters[f"synops_{kind}"][h], core, count * synops[axon])
        np.add.at(counters["synops"][h], core, count * synops[axon])
    np.add.at(counters["weight_reads"][h], core, count * program.axons.words[axon])


def _axons_used(program: Program, name: str, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the axons of a layer or input that are used in a step, and how often, int64[axon] each."""
    neurons, offset = np.flatnonzero(times), program.axons.offset
    source = program.network.offsets[name] + neurons
    return csr_entries(offset, source), np.repeat(times[neurons], offset[source + 1] - offset[source])


def _count_io(program: Program, routes: tuple[IoRoutes, IoRoutes], name: str, n_spikes, counters: dict, h: int) -> None:
    """Count messages through io.sites: for an input line one to each core that it feeds, for an output spike one."""
    if name in program.network.inputs:
        axon, count = _axons_used(program, name, n_spikes)
        direction, route, core = "in", routes[0], program.axons.core[axon]
    elif name in program.network.outputs:
        neurons = np.flatnonzero(n_spikes)
        count, core = n_spikes[neurons], program.core_of[program.network.offsets[name] + neurons]
        direction, route = "out", routes[1]
    else:
        return
    for counter in ("messages_io", f"messages_io_{direction}"):
        np.add.at(counters[counter][h], core, count)
    for i, axis in enumerate(("ew", "ns")):
        np.add.at(counters[f"hops_io_{axis}"][h], core, count * route.hops[core, i])


def record_spikes(recorded: np.ndarray, steps: int | slice, spikes: np.ndarray) -> None:
    """Write the spikes of some steps into `recorded` [B, T, *shape]; `verify_totals` finds invalid counts."""
    with np.errstate(invalid="ignore"):
        recorded[:, steps] = spikes
