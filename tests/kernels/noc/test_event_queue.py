"""The event queue: times beyond the slots of its wheel, which wait in its tree, give the same cycles."""

import numpy as np
import pytest

from nwcompile.kernels.noc import event_queue
from nwcompile.sim import simulate
from tests.made.programs import four_cores

X = (np.random.default_rng(0).random((2, 6, 6)) < 0.5).astype(np.int8)


@pytest.mark.parametrize("noc", [{"hop_cycles_ew": 500}, {"route_cycles": 700, "credit_cycles": 300}])
def test_wheel_of_few_slots_gives_the_same_cycles(monkeypatch, noc):
    program = four_cores(**noc)
    near = simulate(program, X, "cycle").step_cycles
    monkeypatch.setattr(event_queue, "MAX_SLOTS", 64)
    assert np.array_equal(simulate(program, X, "cycle").step_cycles, near)


def test_wheel_does_not_grow_with_the_cycles_of_a_chip_file():
    cycles = simulate(four_cores(hop_cycles_ew=1 << 40), X, "cycle").step_cycles
    assert cycles.max() > 1 << 39
