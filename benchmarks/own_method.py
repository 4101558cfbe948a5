"""An example method: neurons with the most input come first; each goes to the core with room and the least work."""

import heapq

import numpy as np

from nwcompile.ir.flat import split_layers
from nwcompile.passes.analyze.capacity import synaptic_load


def deal(network, chip, activity, options):
    """Return the core of every neuron, {layer: int[n]}."""
    load = synaptic_load(network, activity)
    cores = [(0, 0, core) for core in range(options.n_cores or chip.n_cores)]
    core_of = np.zeros(len(load), int)
    for neuron in np.argsort(-load, kind="stable"):
        work, n_held, core_of[neuron] = heapq.heappop(cores)
        if n_held + 1 < chip.core.max_neurons:
            heapq.heappush(cores, (work + 1 + int(load[neuron]), n_held + 1, int(core_of[neuron])))
    return split_layers(network, core_of)
