"""The sequence backend as a stream: each layer computes its next steps at once and keeps its state."""

from dataclasses import replace

import numpy as np

from nwcompile.cost.traffic.events import count_events
from nwcompile.ir.program import Program
from nwcompile.sim.rows import Late, Rows, build_activity, energy_per_row, kept_layers, layer_offsets
from nwcompile.sim.sequence.run import LayerGroup, layer_groups


class Stream:
    """A stream on the sequence backend.

    It computes the aligned steps of all layers as soon as their input is known, and returns them in the hardware steps
    in which the chip computes them.
    """

    def __init__(self, program: Program, keep_states: bool):
        self.program = program
        self.network = network = program.network
        delays = [c.aligned_delay for c in network.connections]
        self.groups = [LayerGroup(network, names, delays) for names in layer_groups(network)]
        self.at = [group.initial_state(1) for group in self.groups]
        nodes = {name: network.node(name) for name in network.offsets}
        n_past = dict.fromkeys(nodes, 0)
        for c, delay in (edge for group in self.groups for edge in group.outer):
            n_past[c.source] = max(n_past[c.source], delay)
        self.past = {n: np.zeros((1, n_past[n], *node.shape), np.int8) for n, node in nodes.items()}
        late = layer_offsets(program.schedule)
        layers = {name: nodes[name] for name in network.layers}
        self.spikes = {n: Late(late[n], node.shape, node.neuron.spike_dtype) for n, node in layers.items()}
        self.updates = {n: Late(late[n], (node.n_neurons,), np.int64) for n, node in layers.items()}
        self.states = {
            n: {state: Late(late[n], nodes[n].shape, np.int64) for state in nodes[n].neuron.state_names}
            for n in kept_layers(program.network, keep_states)
        }

    def run_steps(self, inputs: dict, n_rows: int, n_steps: int | None) -> Rows:
        """Simulate `n_rows` hardware steps with int32 inputs [1, row, *shape]; `n_steps`: T once the input ended."""
        spikes, states, updates = self._empty_rows(n_rows)
        if n_steps is None:
            sources = {name: self._with_past(name, x) for name, x in inputs.items()}
            for i, group in enumerate(self.groups):
                group.run_chunk(sources, slice(0, 1), n_rows, spikes, states, updates, self.at[i])
                self.at[i] = self.at[i]._replace(first_step=self.at[i].first_step + n_rows)
                for name in group.names:
                    sources[name] = self._with_past(name, self.network.node(name).merge_axon_spikes(spikes[name]))
        spikes = {name: line.push_rows(spikes[name]) for name, line in self.spikes.items()}
        updates = {name: line.push_rows(updates[name][None])[0] for name, line in self.updates.items()}
        states = {
            name: {state: line.push_rows(states[name][state]) for state, line in lines.items()}
            for name, lines in self.states.items()
        }
        activity = replace(build_activity(self.program, inputs, spikes), updates=updates)
        counters = count_events(self.program, activity, "hardware")
        return Rows(spikes, states, counters, {"step_energy_pj": energy_per_row(self.program, counters, activity)})

    def _empty_rows(self, n_rows: int) -> tuple[dict, dict, dict]:
        """Return spikes, states and updates of silent steps."""
        nodes = {name: self.network.node(name) for name in self.spikes}
        spikes = {n: np.zeros((1, n_rows, *node.shape), node.neuron.spike_dtype) for n, node in nodes.items()}
        updates = {n: np.zeros((n_rows, node.n_neurons), np.int64) for n, node in nodes.items()}
        states = {
            n: {state: np.zeros((1, n_rows, *nodes[n].shape), np.int64) for state in names}
            for n, names in self.states.items()
        }
        return spikes, states, updates

    def _with_past(self, name: str, steps: np.ndarray) -> np.ndarray:
        """Prepend the past steps of a source that delays still need, and update them for the next call."""
        line = np.concatenate([self.past[name], steps], 1)
        self.past[name] = line[:, steps.shape[1] :].copy()
        return line
