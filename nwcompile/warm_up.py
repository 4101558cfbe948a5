"""Warm up: compile kernels in a second process, if the cache is empty.

A user's first command needs the kernels of the mapper, then those of the simulators, and Numba compiles them one after
another. So the very first compilation (`jit.FirstCompilation`), or else `flow.compile`, starts `python -P -m
nwcompile.warm_up cycle`. It simulates a few neurons on a chip that resembles most chips, then on the chip that
`flow.compile` sends, and leaves the kernels of the cycle backend in the cache. `estimate` simulates nothing: for it
`python -P -m nwcompile.warm_up placement` places a few neurons, while this process compiles the partitioner. Both wait
for the kernels before they call them (`jit.wait_for`). This happens once per machine, and no result depends on it:
kernels that are not in the cache are compiled when they are called.
"""

import json
import select
import sys

import numpy as np

from nwcompile.cost.energy import predict
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.kernels import cycle, jit
from nwcompile.kernels.mapping import placement
from nwcompile.passes.emit import emit
from nwcompile.passes.place.place import place
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate

USUAL_CHIP = "loihi1"  # The engine that simulates its network on chip is the one of most shipped chips.
PLACED_CHIPS = (USUAL_CHIP, "spinnaker2")  # the second has multicast
LAST_KERNELS = {jit.CYCLE: cycle.run_samples, jit.PLACEMENT: placement.anneal_cores}


def start(chip: Chip) -> None:
    """Compile kernels that are needed later in another process, if they are not cached and there is a second core."""
    if jit.is_cold(LAST_KERNELS[jit.ELSEWHERE.get()]):
        jit.warm_up_elsewhere()
    jit.tell_others(json.dumps(chip.to_dict()))


def few_neurons() -> Network:
    """Return a network of two layers with one neuron each."""
    spec = NeuronSpec(threshold=64, fixed=FixedPoint(), decay_v=0)
    weight = np.ones((1, 1), np.int8)
    return Network.from_arrays(
        {"first": (spec, (1,)), "second": (spec, (1,))},
        [Dense("in", "first", weight), Dense("first", "second", weight)],
        {"in": (1,)},
    )


def simulate_few_neurons(chip: Chip) -> None:
    """Simulate one step of a few neurons on the first core of a chip."""
    network = few_neurons()
    mapping = Mapping.from_arrays({name: np.zeros(1, int) for name in network.layers}, chip.sites[:1])
    program = emit(network, schedule(network), mapping, chip, Activity.uniform(network), {"warnings": []})
    simulate(program, np.ones((1, 1, 1), np.int8), backend="cycle")


def place_few_neurons(chip: Chip) -> None:
    """Place a few neurons on two cores of a chip, and predict time and energy."""
    network = few_neurons()
    activity, core_of = Activity.uniform(network), {name: np.full(1, i) for i, name in enumerate(network.layers)}
    mapping = place(Mapping.from_arrays(core_of, chip.sites[:2]), network, chip, activity, Options())
    predict(emit(network, schedule(network), mapping, chip, activity, {"warnings": []}))


if __name__ == "__main__":
    if sys.argv[1] == jit.PLACEMENT:
        for name in PLACED_CHIPS:
            place_few_neurons(Chip.load(name))
        sys.exit()
    if not select.select([sys.stdin], [], [], 0)[0]:  # no chip is known yet
        simulate_few_neurons(Chip.load(USUAL_CHIP))
    if given := sys.stdin.read():
        simulate_few_neurons(Chip.from_dict(json.loads(given)))
