"""The reference backend: NumPy, slow, obvious. It is the definition that every other backend must equal bit for bit."""

import numpy as np

from nwcompile.cost.energy import energy_pj
from nwcompile.cost.neuron_program import instructions
from nwcompile.cost.traffic.io_sites import IoRoutes, io_routes
from nwcompile.cost.traffic.multicast import SpikeFanout, spike_fanout
from nwcompile.ir.activity import Activity
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.program import SYNAPSE_KINDS, Program
from nwcompile.ir.run import COUNTERS, Run
from nwcompile.sim.reference.neuron_step import LayerState
from nwcompile.sim.reference.order import order_dependent
from nwcompile.sim.reference.program_step import ProgramState
from nwcompile.sim.reference.synaptic_sums import apply, effective_network, structure
from nwcompile.sim.values import verify_counts


def run_network(network: Network, inputs: dict[str, np.ndarray], n_steps: int, keep_states: bool) -> Run:
    """Simulate a float or fixed network in aligned steps; `inputs[name]` is `[B, T, *shape]`."""
    connections = (effective_network(network) if network.is_fixed else network).connections
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    number = np.int64 if network.is_fixed else np.float32
    values = {name: x.astype(number) for name, x in inputs.items()}
    layers = {}
    for node in network.nodes.values():
        values[node.name] = np.zeros((n_samples, n_steps, *node.shape), number)
        if node.neuron is not None:
            layers[node.name] = cleared(node, n_samples)
    recorder = RunRecorder(network, n_samples, n_steps, keep_states)
    for t in range(n_steps):
        for name in network.order:
            shape = network.node(name).shape
            x = np.zeros((n_samples, *shape), number)
            for c in connections:
                if c.target == name:
                    late = t - c.aligned_delay
                    source = values[c.source][:, late] if late >= 0 else np.zeros_like(values[c.source][:, 0])
                    x = x + apply(c, source, shape)
            if name in layers:
                x = layers[name].step(x)
                recorder.take(name, t, x, layers[name].named)
            values[name][:, t] = network.node(name).heard(x)
    return recorder.run("aligned", inputs, {}, None)


def run_program(program: Program, inputs: dict[str, np.ndarray], n_steps: int, keep_states: bool, window: str) -> Run:
    """Simulate a program micro-step by micro-step, delivering every message; `inputs[name]` is int `[B, T, *shape]`."""
    network, schedule = program.network, program.schedule
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    n_hardware = schedule.n_hardware_steps(n_steps, window)
    n_slots = max(schedule.delay, default=1) + 1
    nodes = {name: network.node(name) for name in network.layers}
    layers = {name: cleared(node, n_samples) for name, node in nodes.items()}
    arriving = {n: np.zeros((n_slots, n_samples, *node.shape), np.int64) for n, node in nodes.items()}
    events = {n: np.zeros((n_slots, n_samples, *node.shape), np.int64) for n, node in nodes.items()}
    recorder = RunRecorder(network, n_samples, n_steps, keep_states)
    counters = {name: np.zeros((n_hardware, program.mapping.n_cores), np.int64) for name in COUNTERS}
    n_instructions = {name: instructions(program.chip, node.neuron) for name, node in nodes.items()}
    sent_by = spike_fanout(program)
    routes = io_routes(program)
    for m in range(n_hardware * schedule.period):
        h = m // schedule.period
        slot = m % n_slots
        sent = {}
        for name, x in inputs.items():
            if m % schedule.period == 0 and h < n_steps:
                sent[name] = x[:, h].astype(np.int64)
        for name in network.layers:
            cores = program.mapping.core_of[name]
            in_phase = schedule.period == 1 or m % schedule.period == schedule.offset[name]
            t = h if window == "hardware" else (m - schedule.offset[name]) // schedule.period
            if in_phase:
                np.add.at(counters["neuron_visits"][h], cores, n_samples)
            if in_phase and 0 <= t < n_steps:
                layer = layers[name]
                idle = layer.is_at_rest & (events[name][slot] == 0)
                updates = np.count_nonzero(~idle, axis=0).reshape(-1)
                np.add.at(counters["neuron_updates"][h], cores, updates)
                np.add.at(counters["neuron_instructions"][h], cores, updates * n_instructions[name])
                sent[name] = layer.step(arriving[name][slot])
                recorder.take(name, t, sent[name], layer.named)
            arriving[name][slot] = 0
            events[name][slot] = 0
        heard = {name: network.node(name).heard(spikes) for name, spikes in sent.items()}
        for c, delay in zip(network.connections, schedule.delay, strict=True):
            if c.source in heard and heard[c.source].any():
                shape = nodes[c.target].shape
                later = (m + delay) % n_slots
                arriving[c.target][later] += apply(c, heard[c.source], shape)
                events[c.target][later] += apply(structure(c), (heard[c.source] != 0).astype(np.int64), shape)
        for name, spikes in sent.items():
            messages, reads = (_messages(program, x) for x in (spikes, heard[name]))
            _count_messages(program, sent_by, name, messages, counters, h)
            _count_reads(program, name, reads, counters, h)
            if routes is not None:
                _count_io(program, routes, name, messages, counters, h)
    return recorder.run(window, inputs, counters, program)


def cleared(node: Node, n_samples: int) -> LayerState | ProgramState:
    """The state of a layer as every sample begins."""
    shape = (n_samples, *node.shape)
    if isinstance(node.neuron, NeuronProgram):
        return ProgramState.cleared(node.neuron, shape)
    return LayerState.cleared(node.neuron, shape)


def _messages(program: Program, spikes: np.ndarray) -> np.ndarray:
    """int64[n]: messages to each destination, of spikes [B, *shape] of one step."""
    messages = np.abs(spikes).sum(0) if program.repeats else np.count_nonzero(spikes, axis=0)
    return messages.reshape(-1)


def _count_messages(
    program: Program, sent_by: SpikeFanout, name: str, n_spikes: np.ndarray, counters: dict, h: int
) -> None:
    """Add the messages, `n_spikes` of each neuron to each destination, of one layer or input in hardware step h."""
    axons, first = program.axons, program.network.offsets[name]
    for neuron in np.flatnonzero(n_spikes):
        count = n_spikes[neuron]
        source = first + neuron
        home = program.core_of[source]
        if home >= 0:
            counters["spikes_out"][h, home] += count
            counters["messages_out"][h, home] += count * sent_by.messages[source]
            for i, direction in enumerate(("hops_ew", "hops_ns")):
                counters[direction][h, home] += count * sent_by.hops[source, i]
                counters["hops"][h, home] += count * sent_by.hops[source, i]
        for core in axons.core[axons.offset[source] : axons.offset[source + 1]]:
            counters["messages_in"][h, core] += count
            counters["deliveries"][h, core] += count


def _count_reads(program: Program, name: str, n_reads: np.ndarray, counters: dict, h: int) -> None:
    """Add what the axons of one layer or input read in hardware step h, those of each neuron `n_reads` times."""
    axons, first = program.axons, program.network.offsets[name]
    for neuron in np.flatnonzero(n_reads):
        count, source = n_reads[neuron], first + neuron
        for axon in range(axons.offset[source], axons.offset[source + 1]):
            core = axons.core[axon]
            for kind, synops in zip(SYNAPSE_KINDS, axons.synops[axon], strict=True):
                counters[f"synops_{kind}"][h, core] += count * synops
                counters["synops"][h, core] += count * synops
            counters["weight_reads"][h, core] += count * axons.words[axon]


def _count_io(program: Program, routes: tuple[IoRoutes, IoRoutes], name: str, n_spikes, counters: dict, h: int) -> None:
    """Add messages through the io.sites: of an input line one to each core that it feeds, of an output spike one."""
    axons, first = program.axons, program.network.offsets[name]
    is_input = name in program.network.inputs
    if not is_input and name not in program.network.outputs:
        return
    direction, route = ("in", routes[0]) if is_input else ("out", routes[1])
    for neuron in np.flatnonzero(n_spikes):
        source = first + neuron
        count = n_spikes[neuron]
        cores = axons.core[axons.offset[source] : axons.offset[source + 1]] if is_input else [program.core_of[source]]
        for core in cores:
            counters["messages_io"][h, core] += count
            counters[f"messages_io_{direction}"][h, core] += count
            counters["hops_io_ew"][h, core] += count * route.hops[core, 0]
            counters["hops_io_ns"][h, core] += count * route.hops[core, 1]


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

    def take(self, name: str, t: int, spikes: np.ndarray, states: dict[str, np.ndarray]) -> None:
        """Record step t of a layer."""
        self.spikes[name][:, t] = spikes
        if name in self.names:
            for state, value in states.items():
                self.states[name][state][:, t] = value

    def run(self, window: str, inputs: dict, counters: dict, program: Program | None) -> Run:
        """The Run of what was recorded."""
        energy = None if program is None else energy_pj(counters, program.chip)
        model = self.network if program is None else program
        return finish(model, "reference", "cpu", window, self.spikes, self.states, inputs, counters, energy_pj=energy)


def output_of(network: Network, spikes: dict, states: dict) -> np.ndarray | dict[str, np.ndarray]:
    """Spikes of the output layers, or the membrane of those that never fire; a dict of them where there are several."""
    neurons = {name: network.node(name).neuron for name in network.outputs}
    outputs = {n: spikes[n] if neuron.fires else states[n][neuron.readout] for n, neuron in neurons.items()}
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def finish(model: Network | Program, backend, device, window, spikes, states, inputs, counters, **measured) -> Run:
    """A Run with its output: spikes of the output layers, or the membrane of those that never fire.

    Raises ModelError where a program's neurons fire more spikes at once than its messages can tell.
    """
    network = model.network if isinstance(model, Program) else model
    repeats = isinstance(model, Program) and model.repeats
    if isinstance(model, Program):
        verify_counts(network, model.chip, model.on_multi_spike, spikes)
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
        **measured,
    )
