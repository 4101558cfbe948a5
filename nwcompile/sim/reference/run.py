"""The reference backend: NumPy, slow, obvious. Every other backend must equal it bit for bit."""

import numpy as np

from nwcompile.checkpoint import Pace, Recorded, Steps, in_parts
from nwcompile.cost.energy import with_energy
from nwcompile.cost.neuron_program import chip_instructions
from nwcompile.cost.traffic.io_sites import IoRoutes, io_routes
from nwcompile.cost.traffic.multicast import SpikeFanout, spike_fanout
from nwcompile.cost.traffic.tokens import add_tokens
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import csr_entries
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.program import SYNAPSE_KINDS, Program
from nwcompile.ir.run import COUNTERS, Run
from nwcompile.sim.kept import program_digest
from nwcompile.sim.reference.neuron_step import LayerState
from nwcompile.sim.reference.order import order_dependent
from nwcompile.sim.reference.program_step import ProgramState
from nwcompile.sim.reference.synaptic_sums import apply_connection, effective_network, unit_connection
from nwcompile.sim.rows import layer_offsets
from nwcompile.sim.values import verify_counts, verify_totals


def run_network(network: Network, inputs: dict[str, np.ndarray], n_steps: int, keep_states: bool) -> Run:
    """Simulate a float or fixed network in aligned steps; `inputs[name]` is `[B, T, *shape]`."""
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    machine = NetworkMachine(network, n_samples, n_steps)
    recorder = RunRecorder(network, n_samples, n_steps, keep_states)

    def run_steps(steps: slice) -> None:
        given = {name: x[:, steps] for name, x in inputs.items()}
        machine.run_steps(given, steps.stop - steps.start, recorder, steps.start)

    work = Steps(n_steps, run_steps, recorder.recorded_arrays(dict.fromkeys(network.layers, 0)), machine.state_arrays)
    in_parts("network", lambda: [network.hash, n_steps, keep_states, inputs], work, Pace())
    return recorder.build_run("aligned", inputs, {}, None)


class NetworkMachine:
    """State of a network that is not compiled, between two aligned steps: its neurons, and recent output of all nodes.

    A run calls `run_steps` once, a stream many times. The history is as long as the longest delay. A run with known
    `n_steps` keeps at most that many steps; a stream (None) begins with an empty history.
    """

    def __init__(self, network: Network, n_samples: int, n_steps: int | None = None):
        self.network, self.n_samples = network, n_samples
        self.connections = (effective_network(network) if network.is_fixed else network).connections
        self.number = np.int64 if network.is_fixed else np.float32
        self.layers = {n.name: initial_state(n, n_samples) for n in network.nodes.values() if n.neuron is not None}
        longest = max((c.aligned_delay for c in self.connections), default=0)
        self.n_kept = longest if n_steps is None else min(longest, n_steps)
        self.n_known = 0 if n_steps is None else self.n_kept
        nodes = (*network.inputs.values(), *network.nodes.values())
        self.kept = {n.name: np.zeros((n_samples, self.n_known, *n.shape), self.number) for n in nodes}

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on."""
        return _layer_arrays(self.layers) | {f"kept/{name}": steps for name, steps in self.kept.items()}

    @np.errstate(over="ignore", invalid="ignore")  # a membrane beyond float32 is infinite, as in the framework
    def run_steps(self, inputs: dict, n_steps: int, recorder: "RunRecorder", first_step: int = 0) -> None:
        """Simulate `n_steps` aligned steps with inputs `[B, step, *shape]`; the first is recorded as `first_step`."""
        network, first = self.network, self.n_known
        empty = {n.name: np.zeros((self.n_samples, n_steps, *n.shape), self.number) for n in network.nodes.values()}
        given = {name: inputs[name].astype(self.number) for name in network.inputs} | empty
        values = {name: np.concatenate([self.kept[name], steps], 1) for name, steps in given.items()}
        for t in range(first, first + n_steps):
            for name in network.order:
                shape = network.node(name).input_shape
                x = np.zeros((self.n_samples, *shape), self.number)
                for c in self.connections:
                    if c.target == name:
                        at = t - c.aligned_delay
                        sent = values[c.source][:, at] if at >= 0 else np.zeros_like(values[c.source][:, 0])
                        x = x + apply_connection(c, sent, shape)
                if name in self.layers:
                    x = self.layers[name].step(x)
                    recorder.record_step(name, first_step + t - first, x, self.layers[name].named)
                values[name][:, t] = network.node(name).merge_axon_spikes(x)
        self.n_known = min(first + n_steps, self.n_kept)
        self.kept = {name: steps[:, first + n_steps - self.n_known :].copy() for name, steps in values.items()}


def run_program(program: Program, inputs: dict[str, np.ndarray], n_steps: int, keep_states: bool, window: str) -> Run:
    """Simulate a program micro-step by micro-step, delivering every message; `inputs[name]` is int `[B, T, *shape]`."""
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    n_hardware = program.schedule.n_hardware_steps(n_steps, window)
    machine = Machine(program, n_samples, window, n_hardware)
    recorder = RunRecorder(program.network, n_samples, n_steps, keep_states)
    counters = {name: np.zeros((n_hardware, program.mapping.n_cores), np.int64) for name in COUNTERS}

    def run_steps(steps: slice) -> None:
        machine.n_done = steps.start
        given = {name: x[:, steps] for name, x in inputs.items()}
        for name, rows in machine.run_steps(given, steps.stop - steps.start, n_steps, recorder).items():
            counters[name][steps] = rows

    late = layer_offsets(program.schedule, window)
    counted = {f"counters/{name}": Recorded(rows) for name, rows in counters.items()}
    work = Steps(n_hardware, run_steps, recorder.recorded_arrays(late) | counted, machine.state_arrays)
    in_parts("reference", lambda: [program_digest(program), n_steps, window, keep_states, inputs], work, Pace())
    return recorder.build_run(window, inputs, counters, program)


class Machine:
    """State of a program between two hardware steps: its layers, and synaptic sums in flight. It begins with zeros.

    A run calls `run_steps` once, a stream many times. Sums that arrive after the `n_hardware` steps of a run (None for
    a stream) are dropped.
    """

    def __init__(self, program: Program, n_samples: int, window: str, n_hardware: int | None = None):
        self.program, self.n_samples, self.window = program, n_samples, window
        network = program.network
        self.nodes = {name: network.node(name) for name in network.layers}
        self.layers = {name: initial_state(node, n_samples) for name, node in self.nodes.items()}
        self.delay = program.schedule.clip_delays(n_hardware)
        self.n_slots = max(self.delay, default=1) + 1
        shapes = {name: (self.n_slots, n_samples, *node.shape) for name, node in self.nodes.items()}
        self.arriving = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
        self.events = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
        self.n_instructions = {name: chip_instructions(program.chip, node.neuron) for name, node in self.nodes.items()}
        self.sent_by = spike_fanout(program)
        self.routes = io_routes(program)
        self.n_done = 0  # hardware steps

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on, except its number."""
        on_their_way = {"arriving": self.arriving, "events": self.events}
        sums = {f"{kind}/{name}": a for kind, arrays in on_their_way.items() for name, a in arrays.items()}
        return _layer_arrays(self.layers) | sums

    def run_steps(
        self, inputs: dict, n_rows: int, n_steps: int | None, recorder: "RunRecorder", by_hardware=False
    ) -> dict:
        """Simulate `n_rows` hardware steps with inputs [B, row, *shape]; return a Run's counters, int64[row, core].

        `n_steps`: T, or None while the end is unknown. Neurons are recorded by aligned step, or with `by_hardware` by
        row.
        """
        period = self.program.schedule.period
        counters = {name: np.zeros((n_rows, self.program.mapping.n_cores), np.int64) for name in COUNTERS}
        for row in range(n_rows):
            h = self.n_done + row
            for m in range(h * period, (h + 1) * period):
                given = m % period == 0 and (n_steps is None or h < n_steps)
                sent = {name: x[:, row].astype(np.int64) for name, x in inputs.items()} if given else {}
                for name in self.nodes:
                    t = self._visit_layer(name, m, n_steps, counters, row, sent)
                    if name in sent:
                        recorder.record_step(name, row if by_hardware else t, sent[name], self.layers[name].named)
                self._deliver_messages(m, sent, counters, row)
        add_tokens(self.program, counters, self.n_samples)
        self.n_done += n_rows
        return counters

    def _visit_layer(self, name: str, m: int, n_steps: int | None, counters: dict, row: int, sent: dict) -> int:
        """Visit a layer in micro-step m; write its spikes to `sent` if it is active; return the aligned step."""
        schedule, cores, slot = self.program.schedule, self.program.mapping.core_of[name], m % self.n_slots
        period, offset = schedule.period, schedule.offset[name]
        t = m // period if self.window == "hardware" else (m - offset) // period
        if period == 1 or m % period == offset:
            np.add.at(counters["neuron_visits"][row], cores, self.n_samples)
            if 0 <= t and (n_steps is None or t < n_steps):
                idle = self.layers[name].is_at_rest & (self.events[name][slot] == 0)
                updates = np.count_nonzero(~idle, axis=0).reshape(-1)
                np.add.at(counters["neuron_updates"][row], cores, updates)
                np.add.at(counters["neuron_instructions"][row], cores, updates * self.n_instructions[name])
                sent[name] = self.layers[name].step(self.arriving[name][slot])
        self.arriving[name][slot] = 0
        self.events[name][slot] = 0
        return t

    def _deliver_messages(self, m: int, sent: dict, counters: dict, row: int) -> None:
        """Add the messages of micro-step m to the sums of the steps in which they act, and count them."""
        program = self.program
        heard = {name: program.network.node(name).merge_axon_spikes(spikes) for name, spikes in sent.items()}
        for c, delay in zip(program.network.connections, self.delay, strict=True):
            if c.source in heard and heard[c.source].any():
                shape, later = self.nodes[c.target].shape, (m + delay) % self.n_slots
                self.arriving[c.target][later] += apply_connection(c, heard[c.source], shape)
                self.events[c.target][later] += apply_connection(
                    unit_connection(c), (heard[c.source] != 0).astype(np.int64), shape
                )
        for name, spikes in sent.items():
            messages, reads = (_messages_per_neuron(program, x) for x in (spikes, heard[name]))
            _count_messages(program, self.sent_by, name, messages, counters, row)
            _count_reads(program, name, reads, counters, row)
            if self.routes is not None:
                _count_io(program, self.routes, name, messages, counters, row)


def initial_state(node: Node, n_samples: int) -> LayerState | ProgramState:
    """Return the state of a layer at the beginning of a sample."""
    shape = (n_samples, *node.shape)
    if isinstance(node.neuron, NeuronProgram):
        return ProgramState.from_program(node.neuron, shape)
    return LayerState.from_spec(node.neuron, shape)


def _layer_arrays(layers: dict[str, LayerState | ProgramState]) -> dict[str, np.ndarray]:
    """Return the arrays of all layer states by name."""
    return {f"layers/{name}/{key}": a for name, layer in layers.items() for key, a in layer.arrays.items()}


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


class RunRecorder:
    """Collects spikes and states `[B, T, *shape]` and makes the Run."""

    def __init__(self, network: Network, n_samples: int, n_steps: int, keep_states: bool):
        self.network, self.n_samples = network, n_samples
        self.spikes: dict[str, np.ndarray] = {}
        self.states: dict[str, dict[str, np.ndarray]] = {}
        self.names = set(network.layers) if keep_states else set()
        self.names |= {n for n in network.layers if not network.node(n).neuron.fires}
        for name in network.layers:
            node = network.node(name)
            shape = (n_samples, n_steps, *node.shape)
            self.spikes[name] = np.zeros(shape, node.neuron.spike_dtype)
            if name in self.names:
                dtype = np.int64 if node.neuron.is_fixed else np.float32
                self.states[name] = {s: np.zeros(shape, dtype) for s in node.neuron.state_names}

    def recorded_arrays(self, late: dict[str, int]) -> dict[str, Recorded]:
        """Return the recorded arrays for a checkpoint; `late`: steps by which each layer is late."""
        arrays = {f"spikes/{name}": (name, a) for name, a in self.spikes.items()}
        for name, states in self.states.items():
            arrays |= {f"states/{name}/{state}": (name, a) for state, a in states.items()}
        return {key: Recorded(a.swapaxes(0, 1), late[name]) for key, (name, a) in arrays.items()}

    def record_step(self, name: str, t: int, spikes: np.ndarray, states: dict[str, np.ndarray]) -> None:
        """Record step t of a layer."""
        record_spikes(self.spikes[name], t, spikes)
        if name in self.names:
            for state, value in states.items():
                self.states[name][state][:, t] = value

    def build_run(self, window: str, inputs: dict, counters: dict, program: Program | None) -> Run:
        """Build the Run from the records."""
        model = self.network if program is None else program
        run = finish_run(model, "reference", "cpu", window, self.spikes, self.states, inputs, counters)
        return run if program is None else with_energy(program, run)


def record_spikes(recorded: np.ndarray, steps: int | slice, spikes: np.ndarray) -> None:
    """Write the spikes of some steps into `recorded` [B, T, *shape]; `verify_totals` finds invalid counts."""
    with np.errstate(invalid="ignore"):
        recorded[:, steps] = spikes


def output_of(network: Network, spikes: dict, states: dict) -> np.ndarray | dict[str, np.ndarray]:
    """Return the spikes of the output layer, or its membrane if it never fires; a dict by name for several outputs."""
    neurons = {name: network.node(name).neuron for name in network.outputs}
    outputs = {n: spikes[n] if neuron.fires else states[n][neuron.readout] for n, neuron in neurons.items()}
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def finish_run(model: Network | Program, backend, device, window, spikes, states, inputs, counters, **measured) -> Run:
    """Build a Run with its output: spikes of the output layers, or the membrane of those that never fire.

    Raises ModelError if neurons fire more spikes at once than the program's messages can carry, or than a count holds.
    """
    network = model.network if isinstance(model, Program) else model
    repeats = isinstance(model, Program) and model.repeats
    if isinstance(model, Program):
        verify_counts(network, model.chip, model.on_multi_spike, spikes)
    verify_totals(spikes)
    output = output_of(network, spikes, states)
    activity = Activity.from_spikes(network, {**inputs, **spikes}, repeats)
    return Run(
        backend=backend,
        device=device,
        window=window,
        n_samples=len(next(iter(spikes.values()))),
        spikes=spikes,
        states=states,
        output=output,
        counters=counters,
        activity=activity,
        order_dependent=order_dependent(model, window, inputs, spikes),
        readout=network.readout,
        **measured,
    )
