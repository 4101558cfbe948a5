"""The sequence backend as a stream: each layer's next steps at once, going on from where its neurons are."""

from dataclasses import replace

import numpy as np

from nwcompile.cost.traffic.events import count_events
from nwcompile.ir.program import Program
from nwcompile.sim.rows import Late, Rows, activity_of, energy_of, kept_layers, offsets
from nwcompile.sim.sequence.run import LayerGroup, groups


class Stream:
    """One sample on the sequence backend, between two calls of `go`.

    It computes aligned steps, of all layers as soon as their input is known, and gives them back in the hardware steps
    in which the chip does them.
    """

    def __init__(self, program: Program, keep_states: bool):
        self.program = program
        self.network = network = program.network
        delays = [c.aligned_delay for c in network.connections]
        self.groups = [LayerGroup(network, names, delays) for names in groups(network)]
        self.at = [group.cleared(1) for group in self.groups]
        nodes = {name: network.node(name) for name in network.offsets}
        n_past = dict.fromkeys(nodes, 0)
        for c, delay in (edge for group in self.groups for edge in group.outer):
            n_past[c.source] = max(n_past[c.source], delay)
        self.past = {n: np.zeros((1, n_past[n], *node.shape), np.int8) for n, node in nodes.items()}
        late = offsets(program.schedule)
        layers = {name: nodes[name] for name in network.layers}
        self.spikes = {n: Late(late[n], node.shape, node.neuron.spike_dtype) for n, node in layers.items()}
        self.updates = {n: Late(late[n], (node.n_neurons,), np.int64) for n, node in layers.items()}
        self.states = {
            n: {state: Late(late[n], nodes[n].shape, np.int64) for state in nodes[n].neuron.state_names}
            for n in kept_layers(program.network, keep_states)
        }

    def go(self, inputs: dict, n_rows: int, n_steps: int | None) -> Rows:
        """Do `n_rows` hardware steps with int32 inputs [1, row, *shape]; the last of `n_steps` inputs was, if given."""
        spikes, states, updates = self._blank(n_rows)
        if n_steps is None:
            self._compute(inputs, n_rows, spikes, states, updates)
        spikes = {name: line.through(spikes[name]) for name, line in self.spikes.items()}
        updates = {name: line.through(updates[name][None])[0] for name, line in self.updates.items()}
        states = {
            name: {state: line.through(states[name][state]) for state, line in lines.items()}
            for name, lines in self.states.items()
        }
        activity = replace(activity_of(self.program, inputs, spikes), updates=updates)
        counters = count_events(self.program, activity, "hardware")
        return Rows(spikes, states, counters, {"step_energy_pj": energy_of(self.program, counters, activity)})

    def _blank(self, n_rows: int) -> tuple[dict, dict, dict]:
        """Spikes, states and updates of steps in which nothing happens."""
        nodes = {name: self.network.node(name) for name in self.spikes}
        spikes = {n: np.zeros((1, n_rows, *node.shape), node.neuron.spike_dtype) for n, node in nodes.items()}
        updates = {n: np.zeros((n_rows, node.n_neurons), np.int64) for n, node in nodes.items()}
        states = {
            n: {state: np.zeros((1, n_rows, *nodes[n].shape), np.int64) for state in names}
            for n, names in self.states.items()
        }
        return spikes, states, updates

    def _compute(self, inputs: dict, n_steps: int, spikes: dict, states: dict, updates: dict) -> None:
        """Fill in the next aligned steps of every layer."""
        sources = {name: self._with_past(name, x) for name, x in inputs.items()}
        for i, group in enumerate(self.groups):
            group.run(sources, slice(0, 1), n_steps, spikes, states, updates, self.at[i])
            self.at[i] = self.at[i]._replace(first_step=self.at[i].first_step + n_steps)
            for name in group.names:
                sources[name] = self._with_past(name, self.network.node(name).merge_axon_spikes(spikes[name]))

    def _with_past(self, name: str, steps: np.ndarray) -> np.ndarray:
        """The next steps of a source after those that are still on their way, some of which are kept for the next."""
        line = np.concatenate([self.past[name], steps], 1)
        self.past[name] = line[:, steps.shape[1] :].copy()
        return line
