"""A small mapped program with round figures, its runs, and chips that lack costs: what the report tests share."""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.passes.emit.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate
from tests.chips import small_chip

SITES = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]


def chip_without(*keys: str) -> Chip:
    """small_chip() with some keys left out, `cost.word_cycles`."""
    table = small_chip().to_dict()
    for key in keys:
        section, name = key.split(".")
        del table[section][name]
    return Chip.from_dict(table)


def three_cores(chip: Chip | None = None, hidden: str = "fc1", calibrated: bool = False, **manifest) -> Program:
    """4 lines -> `hidden`, 6 neurons on cores 0 and 1 -> `out`, 2 neurons on core 2; any spike makes all spike."""
    spec = NeuronSpec(threshold=0, fixed=FixedPoint())
    edges = [Dense("in", hidden, np.full((6, 4), 1)), Dense(hidden, "out", np.full((2, 6), 1))]
    network = Network.from_arrays({hidden: (spec, (6,)), "out": (spec, (2,))}, edges, {"in": (4,)})
    mapping = Mapping.from_arrays({hidden: [0, 0, 0, 1, 1, 1], "out": [2, 2]}, SITES)
    program = emit(network, schedule(network), mapping, chip or small_chip(), None, manifest)
    if not calibrated:
        return program
    activity = simulate(program, spikes_in(), backend="reference").activity
    return emit(network, schedule(network), mapping, chip or small_chip(), activity, manifest)


def spikes_in(n_steps: int = 2) -> np.ndarray:
    """Two samples: one line spikes in every step of the first, all four in every step of the second."""
    x = np.zeros((2, n_steps, 4), np.int64)
    x[0, :, 0] = 1
    x[1] = 1
    return x


def run_of(program: Program, backend: str = "cycle", **more) -> Run:
    return simulate(program, spikes_in(), backend=backend, **more)
