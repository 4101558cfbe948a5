"""The event queue: times beyond the slots of its wheel, which wait in its tree, give the same cycles."""

import numpy as np
import pytest

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.program import Program
from nwcompile.kernels.noc import event_queue
from nwcompile.passes.emit.emit import emit
from nwcompile.sim import simulate
from tests.nets import dense_net, feed_forward

X = (np.random.default_rng(0).random((2, 6, 6)) < 0.5).astype(np.int8)


def four_cores(**noc) -> Program:
    """6-8-8-4, every layer on all four cores of `tiny` with these NoC keys changed."""
    network = dense_net(6, 8, 8, 4, recurrent=True)
    chip = Chip.load("tiny").replace({f"noc.{key}": value for key, value in noc.items()})
    of = {name: np.arange(network.node(name).n_neurons) % 4 for name in network.layers}
    mapping = Mapping.from_arrays(of, [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    return emit(network, feed_forward(network), mapping, chip, Activity.uniform(network), {"warnings": []})


@pytest.mark.parametrize("noc", [{"hop_cycles_ew": 500}, {"route_cycles": 700, "credit_cycles": 300}])
def test_wheel_of_few_slots_gives_the_same_cycles(monkeypatch, noc):
    program = four_cores(**noc)
    near = simulate(program, X, "cycle").step_cycles
    monkeypatch.setattr(event_queue, "MAX_SLOTS", 64)
    assert np.array_equal(simulate(program, X, "cycle").step_cycles, near)


def test_wheel_does_not_grow_with_the_cycles_of_a_chip_file():
    cycles = simulate(four_cores(hop_cycles_ew=1 << 40), X, "cycle").step_cycles
    assert cycles.max() > 1 << 39
