"""Warm up: compile the kernels of the cycle backend in a second process, if the cache is empty.

A user's first command needs the kernels of the mapper, then those of the simulators, and Numba compiles them one after
another. So the very first compilation (`jit.FirstCompilation`), or else `flow.compile`, starts `python -P -m
nwcompile.warm_up`. It runs a few neurons on a chip that resembles most chips, then on the chip that `flow.compile`
sends, and leaves the kernels of the cycle backend in the cache. The backend waits for them before it calls them
(`jit.wait_for_others`). This happens once per machine, and no result depends on it: kernels that are not in the cache
are compiled when they are called.
"""

import json
import select
import sys

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.kernels import cycle, jit
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate

USUAL_CHIP = "loihi1"  # The engine that simulates its network on chip is the one of most shipped chips.


def start(chip: Chip) -> None:
    """Compile the cycle backend's kernels in another process, if none is cached and there is a second core."""
    if jit.is_cold(cycle.run_samples):
        jit.warm_up_elsewhere()
    jit.tell_others(json.dumps(chip.to_dict()))


def simulate_few_neurons(chip: Chip) -> None:
    """Simulate one step of two layers with one neuron each, on the first core of a chip."""
    spec = NeuronSpec(threshold=64, fixed=FixedPoint(), decay_v=0)
    weight = np.ones((1, 1), np.int8)
    network = Network.from_arrays(
        {"first": (spec, (1,)), "second": (spec, (1,))},
        [Dense("in", "first", weight), Dense("first", "second", weight)],
        {"in": (1,)},
    )
    mapping = Mapping.from_arrays({name: np.zeros(1, int) for name in network.layers}, chip.sites[:1])
    program = emit(network, schedule(network), mapping, chip, Activity.uniform(network), {"warnings": []})
    simulate(program, np.ones((1, 1, 1), np.int8), backend="cycle")


if __name__ == "__main__":
    if not select.select([sys.stdin], [], [], 0)[0]:  # no chip is known yet
        simulate_few_neurons(Chip.load(USUAL_CHIP))
    if given := sys.stdin.read():
        simulate_few_neurons(Chip.from_dict(json.loads(given)))
