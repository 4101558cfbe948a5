"""Each offset and delay here is the only one that DESIGN 3 allows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.passes.prepare.schedule import schedule


def net(*edges, inputs=("in",)):
    """Layers of one neuron, joined as `(source, target, D)`."""
    names = dict.fromkeys(n for a, b, _ in edges for n in (a, b) if n not in inputs)
    connections = [Dense(a, b, np.ones((1, 1), np.float32), delay=d) for a, b, d in edges]
    return Network.from_arrays({n: (NeuronSpec(), 1) for n in names}, connections, dict.fromkeys(inputs, 1))


def test_schedule_puts_each_layer_of_a_chain_one_step_later():
    s = schedule(net(("in", "a", 0), ("a", "b", 0), ("b", "c", 0)))
    assert s.offset == {"in": 0, "a": 1, "b": 2, "c": 3} and s.delay == (1, 1, 1)
    assert s.period == 1 and s.depth == 3 and s.execution == "pipelined"


def test_schedule_delays_a_skip_until_the_longer_path_arrives():
    s = schedule(net(("in", "a", 0), ("a", "b", 0), ("b", "c", 0), ("a", "c", 0)))
    assert s.delay == (1, 1, 1, 2)


def test_schedule_takes_the_longest_delay_and_none_beyond():
    assert schedule(net(("in", "a", 1 << 20))).delay == (1 << 20,)
    with pytest.raises(ModelError, match="takes 1048577 micro-steps of the chip, of at most 1048576; shorten it"):
        schedule(net(("in", "a", (1 << 20) + 1)))


def test_schedule_uses_an_aligned_delay_instead_of_depth():
    s = schedule(net(("in", "a", 0), ("a", "b", 3), ("in", "c", 1)))
    assert s.offset == {"in": 0, "a": 1, "b": 0, "c": 0} and s.delay == (1, 2, 1)


def test_schedule_pulls_a_source_later_when_its_target_waits_anyway():
    s = schedule(net(("in", "a", 0), ("a", "b", 0), ("in", "b", 2)))
    assert s.offset["b"] == 2 and s.delay == (1, 1, 4)


def test_schedule_leaves_a_layer_onto_itself_at_delay_one():
    s = schedule(net(("in", "a", 0), ("a", "a", None)))
    assert s.delay == (1, 1)


def test_schedule_accepts_a_cycle_with_a_step_for_each_connection():
    s = schedule(net(("in", "a", 0), ("a", "b", 0), ("b", "a", 2)))
    assert s.offset == {"in": 0, "a": 1, "b": 2} and s.delay == (1, 1, 1)


def test_schedule_refuses_a_cycle_that_a_pipeline_cannot_keep_up_with():
    with pytest.raises(ModelError) as error:
        schedule(net(("in", "a", 0), ("a", "b", 0), ("b", "c", 0), ("c", "a", 1)))
    assert str(error.value) == (
        "cycle 'a' -> 'b' -> 'c' -> 'a': its delays sum to 1 of the 3 steps that its 3 connections take in a pipeline; "
        "give one of them 2 more steps of delay, or compile with execution='phased'"
    )


def test_schedule_runs_the_same_cycle_in_phases():
    s = schedule(net(("in", "a", 0), ("a", "b", 0), ("b", "c", 0), ("c", "a", 1)), "phased")
    assert s.period == 4 and s.offset == {"in": 0, "a": 1, "b": 2, "c": 3}
    assert s.delay == (1, 1, 1, 2) and s.depth == 0


def test_schedule_in_phases_starts_a_layer_fed_late_only_in_the_first_phase():
    s = schedule(net(("in", "a", 1), ("a", "b", 1)), "phased")
    assert s.period == 1 and s.offset == {"in": 0, "a": 0, "b": 0} and s.delay == (1, 1)


def test_schedule_refuses_an_unknown_execution():
    with pytest.raises(OptionError) as error:
        schedule(net(("in", "a", 0)), "pipeline")
    assert str(error.value) == "unknown execution 'pipeline'; choose one of: pipelined, phased"


edges = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=12)


@given(edges, st.sampled_from(["pipelined", "phased"]))
def test_schedule_keeps_every_delay_and_moves_no_layer_later_than_needed(pairs, execution):
    names = "in", "a", "b", "c", "d", "e"
    try:
        network = net(*((names[a], names[b], d) for a, b, d in pairs))
        s = schedule(network, execution)
    except ModelError as error:
        assert "cycle" in str(error)
        return
    assert min(s.delay) >= 1
    for c, delay in zip(network.connections, s.delay, strict=True):
        assert delay == c.aligned_delay * s.period + s.offset[c.target] - s.offset[c.source]
    for name in network.layers:
        forced = [d for c, d in zip(network.connections, s.delay, strict=True) if c.target == name != c.source]
        assert s.offset[name] == 0 or min(forced) == 1, f"{name} could work earlier"
