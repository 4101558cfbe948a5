"""Run: what verify refuses, word for word."""

from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ModelError


def small_run() -> nw.Run:
    spec = nw.NeuronSpec(threshold=64, fixed=nw.FixedPoint())
    network = nw.Network.from_arrays({"a": spec}, [nw.Dense("in", "a", np.ones((3, 2), np.int8))], {"in": 2})
    return nw.simulate(nw.compile(network, "tiny"), np.ones((2, 4, 2)), backend="cycle", record="all")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda r: {"n_samples": 3}, "run: spikes of 'a' are [2, 4, 3], not [3, 4, ...]"),
        (lambda r: {"states": {"a": {"v": np.zeros((2, 4, 2))}}},
         "run: state v of 'a' is [2, 4, 2], its spikes [2, 4, 3]"),
        (lambda r: {"counters": {**r.counters, "hops": r.counters["hops"] - 1}},
         "run: counter hops is missing or not int64[5, 1] of counts"),
        (lambda r: {"counters": {**r.counters, "synops": r.counters["synops"] + 1}},
         "run: synops is not the sum of synops_dense, synops_sparse, synops_conv"),
        (lambda r: {"step_cycles": r.step_cycles[1:]}, "run: step_cycles has 4 steps, the counters 5"),
    ],
)  # fmt: skip
def test_run_that_does_not_add_up_is_refused(change, text):
    run = small_run()
    run.verify()
    with pytest.raises(ModelError) as error:
        replace(run, **change(run)).verify()
    assert str(error.value) == text
