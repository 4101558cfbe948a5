"""Pool: the time of a step on chips whose hidden neurons are one pool without a network on chip (`chip.pool`).

SynSense publishes the formula, as mean cycles of a step, in its rockpool library (`cycles_model`). Here it is applied
spike by spike: the cost of a spike depends on the synapses of its own neuron.
"""

import numpy as np

from nwcompile.cost.family import FamilyCost
from nwcompile.cost.traffic.wiring import fed_neurons
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip_sections import given_figures
from nwcompile.ir.program import Program
from nwcompile.kernels.cores.tables import PoolTimes


class PoolCost(FamilyCost):
    """Times of a pool."""

    def pool_times(self, program: Program) -> PoolTimes:
        """Sources are numbered as in `Network.offsets`."""
        network, pool = program.network, program.chip.pool
        of_source = np.zeros(sum(network.node(name).n_neurons for name in network.offsets), np.int64)
        cycles = given_figures(pool)  # NeuronPool.verify requires all of them
        n_lines = sum(node.n_neurons for node in network.inputs.values())
        n_outputs = sum(network.node(name).n_neurons for name in network.outputs)
        n_hidden = len(of_source) - n_lines - n_outputs
        is_reached: dict[str, np.ndarray] = {}
        for name in network.inputs:
            for target, (is_fed, _) in fed_neurons(network, name).items():
                is_reached[target] = is_reached.get(target, False) | is_fed
        n_reached = n_hidden if pool.counts_unwired else sum(map(np.count_nonzero, is_reached.values()))
        of_source[:n_lines] = round(2 * cycles["line_event_cycles"] * n_reached)
        for name in (name for name in network.layers if name not in network.outputs):
            fed, first, n = fed_neurons(network, name), network.offsets[name], network.node(name).n_neurons
            nothing = np.zeros(n, np.int64)
            to_hidden, to_outputs = (
                sum((count for target, (_, count) in fed.items() if (target in network.outputs) == apart), nothing)
                for apart in (False, True)
            )
            of_readout = cycles["readout_cycles"] + cycles["readout_output_cycles"] * n_outputs
            reads = np.ones(n, bool) if pool.counts_unwired else to_outputs > 0
            of_spike = cycles["spike_cycles"] + cycles["synapse_cycles"] * to_hidden + of_readout * reads
            of_source[first : first + n] = np.round(2 * of_spike)
        step = (
            n_lines * cycles["line_cycles"] + n_hidden * cycles["hidden_cycles"] + n_outputs * cycles["output_cycles"]
        )
        return PoolTimes(round(2 * step), of_source)

    def mean_step_cycles(self, program: Program, activity: Activity | None) -> float | None:
        if activity is None:
            return None
        times, offsets = self.pool_times(program), program.network.offsets
        spent = 0
        for name, counts in activity.counts.items():
            first = offsets[name]
            spent += int(counts.sum(0, dtype=np.int64) @ times.of_source[first : first + counts.shape[1]])
        n_steps = program.schedule.n_hardware_steps(activity.n_steps, "aligned")
        return (times.step + spent / (activity.n_samples * n_steps)) / 2


COST = PoolCost()
