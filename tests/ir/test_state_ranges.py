"""How far the states of a neuron program can go: proved for all steps, and close where they leak."""

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings

import nwcompile as nw
from nwcompile.ir.neuron_programs.ranges import Range, state_ranges
from nwcompile.sim.reference.program_step import ProgramState
from tests.long import n_drawn
from tests.made.neuron_programs import adaptive, integrator
from tests.made.random_neurons import whole_neurons

N_STEPS = 40


@settings(max_examples=n_drawn(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program=whole_neurons())
def test_no_step_leaves_the_ranges(program):
    """The range of a next state is checked before it saturates, like that of the output."""
    largest = 1000
    x = np.random.default_rng(0).integers(-largest, largest + 1, (N_STEPS, 1, 30))
    x[:10], x[10:20] = largest, -largest
    reach = state_ranges(program, Range(-largest, largest, True))
    for state in program.states:
        run = ProgramState.from_program(program.replace(output=state.next, sends="graded"), (1, 30))
        becomes = np.stack([run.step(now) for now in x])
        assert reach[state.name].low <= becomes.min() and becomes.max() <= reach[state.name].high, state


def test_a_leak_settles_where_it_loses_what_comes_in():
    reach = state_ranges(adaptive.program(), Range(-10, 10, True))
    v, lost = 0, 300 / 4096
    for _ in range(1000):
        v = v * 3796 // 4096 + 640
    assert v <= reach["v"].high <= 640 / lost < 1.002 * v
    assert reach["v"].low == -reach["v"].high


def test_what_never_leaks_has_no_bound_within_its_state():
    reach = state_ranges(integrator.program(), Range(0, 5, True))
    assert reach["v"].high == (1 << 19) - 1 + 5 and reach["v"].low == -(1 << 19)


def test_a_clamp_is_a_bound():
    @nw.neuron(bits=16)
    def clamped(state, x):
        return {"v": torch.clamp(state.v + x, -100, 200)}, None

    assert state_ranges(clamped.program(), Range(-5, 5, True))["v"][:2] == (-100, 200)
