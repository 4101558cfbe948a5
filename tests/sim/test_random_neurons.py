"""Neuron programs drawn over the whole set of operations: reference == cycle == sequence, bit for bit.

What a GPU computes of such programs is in `sequence/cuda_cases.py`.
"""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nwcompile.flow import compile
from nwcompile.ir.neuron_programs.program import WRITTEN
from nwcompile.sim.crosscheck import crosscheck
from tests.long import EXAMPLES, n_drawn
from tests.made.random_neurons import (
    FLOAT,
    NEVER_THE_SAME,
    WHOLE,
    curved_input,
    curved_network,
    curved_neurons,
    whole_neurons,
)
from tests.made.random_programs import inputs, programs

COMPILED = 5  # Each example compiles kernels of its own, so there are so many times fewer.


def agree(data) -> None:
    program = data.draw(programs(neurons=whole_neurons))
    result = crosscheck(program, data.draw(inputs(program)), window=data.draw(st.sampled_from(["aligned", "hardware"])))
    assert result.agree, str(result)


@settings(max_examples=n_drawn(9), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_backends_agree_on_drawn_neurons(data):
    agree(data)


@pytest.mark.long
@settings(max_examples=EXAMPLES // COMPILED, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_backends_agree_on_many_drawn_neurons(data):
    agree(data)


def curves_agree(neuron) -> None:
    x = curved_input()
    program = compile(curved_network(neuron), "loihi2", x)
    assert program.network.node("h").neuron.tables
    assume(program.manifest["quantization"][0]["rate_fixed"] > 0)
    result = crosscheck(program, x)
    assert result.agree, str(result)


@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(neuron=curved_neurons())
def test_backends_agree_on_drawn_curves(neuron):
    curves_agree(neuron)


@pytest.mark.long
@settings(max_examples=EXAMPLES // COMPILED, deadline=None, suppress_health_check=list(HealthCheck))
@given(neuron=curved_neurons())
def test_backends_agree_on_many_drawn_curves(neuron):
    curves_agree(neuron)


def test_every_operation_can_be_drawn():
    assert {*WHOLE, *FLOAT, *NEVER_THE_SAME} == WRITTEN.keys()
    assert not {*WHOLE} & {*NEVER_THE_SAME}
