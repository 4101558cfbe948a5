"""Xylo's arithmetic: every current, membrane and spike equal to what the vendor's simulator computes.

`reference/xylo` holds recorded runs of it; where `xylosim` is installed, drawn networks are run by both.
"""

import numpy as np
import pytest

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Conv1d, Dense, synapse_list
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.sim import BACKENDS, simulate
from tests.long import EXAMPLES
from tests.made.xylo import Case, draw, first_open, one_core, with_vendor

PLAIN = ["one_neuron", "feed_forward_3_layers", "output_cap"]  # no sum depends on the order of spikes
OPEN = ["random_v1", "random_v2", "random_v2_1000", "saturation_order"]
COUNTS = "must be a whole number 1..8388607, and goes with spikes='multi'"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PLAIN)
def test_xylo_recorded_runs_are_equal(name, backend, reference):
    case = Case.load(reference / "xylo" / f"{name}.npz")
    run = simulate(case.program, np.minimum(case.x, 15)[None], backend, window="hardware", record="all")
    assert run.spikes["hidden"].any()
    assert case.first_difference(run, late=1) is None
    assert first_open(run) is None


@pytest.mark.parametrize("name", OPEN)
def test_xylo_recorded_runs_differ_only_from_a_sum_that_depends_on_order(name, reference):
    case = Case.load(reference / "xylo" / f"{name}.npz")
    run = simulate(case.program, np.minimum(case.x, 15)[None], window="hardware", record="all")
    different = case.first_difference(run, late=1)
    assert different is not None and first_open(run) <= different[0]


def test_xylo_recorded_run_with_biases_differs_only_from_a_sum_that_depends_on_order(reference):
    """Hidden neurons in their own steps: outside of them ours hold still, where a bias moves the vendor's outputs."""
    case = Case.load(reference / "xylo" / "random_v2_bias.npz")
    run = simulate(case.program, np.minimum(case.x, 15)[None], record="all")
    places, states = run.order_dependent["hidden"], run.states["hidden"]
    pairs = {"sim_rec_spikes": run.spikes["hidden"], "sim_v": states["v"], "sim_i": states["u"]}
    for name, ours in pairs.items():
        theirs = case.arrays[name].reshape(ours.shape[1:])
        first = np.flatnonzero((ours[0] != theirs).any(1))[0]
        assert 3 <= places[:, 1].min() <= first, name


def equals_vendor(case: Case, backend: str) -> bool:
    """Whether all of a drawn case is equal; where it is not, a sum that depends on order came before."""
    case = with_vendor(case)
    x = np.concatenate([case.x[1:], case.x[:1]])
    run = simulate(case.program, x[None], backend, window="hardware", record="all")
    different, risky = case.first_difference(run), first_open(run)
    assert different is None or (risky is not None and risky <= different[0]), (different, risky)
    return different is None


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("backend", BACKENDS)
def test_xylo_equals_the_vendors_simulator(backend, version):
    n_equal = sum(equals_vendor(draw(np.random.default_rng(seed), version, 5 + 9 * seed), backend) for seed in range(8))
    assert n_equal >= 4


@pytest.mark.long
@pytest.mark.parametrize("version", [1, 2])
def test_xylo_equals_the_vendors_simulator_on_many_networks(version):
    """200 networks of up to 1,000 hidden neurons by default."""
    sizes = np.geomspace(1, 1000, max(EXAMPLES, 200)).astype(int)
    cases = [draw(np.random.default_rng(k), version, int(n)) for k, n in enumerate(sizes)]
    assert sum(equals_vendor(case, "sequence") for case in cases) > len(sizes) // 2


def test_xylo_sums_that_depend_on_order_are_named():
    """100 + 100 passes 127, so it matters where -90 comes; sums of one sign, or small ones, depend on nothing."""
    form = FixedPoint(8, 4, 0, "clip", "shift")
    spec = NeuronSpec(threshold=100, strict=False, reset="subtract", decay_u=1, decay_v=0, fixed=form)
    weight = np.array([[100, 100, -90], [100, 100, 90], [30, 30, -90]])
    network = Network.from_arrays({"a": spec}, [Dense("in", "a", weight)], {"in": 3})
    x = np.zeros((2, 3, 3), np.int64)
    x[1, 1] = 1
    run = simulate(network, x)
    assert run.order_dependent["a"].tolist() == [[1, 1, 0]]
    assert "1 sum that may depend on the order of spikes" in repr(run)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "reset, timing, v",
    [("subtract", "now", [10, 5, 8, 7]), ("subtract", "next", [20, 10, 0, 3]), ("subtract", "both", [10, 15, 13, 10]),
     ("zero", "next", [20, 10, 5, 6])],
)  # fmt: skip
def test_decays_by_shift_go_with_late_resets(backend, reset, timing, v):
    """Currents of 20, 10, 5, 3 after one spike of 40; no chip does this, but what one does is compared with it.

    A late subtraction follows the leak, and what a late reset to zero clears has not leaked.
    """
    form = FixedPoint(16, 4, 0, "clip", "shift")
    spec = NeuronSpec(
        threshold=10, strict=False, reset=reset, reset_timing=timing, decay_u=1, decay_v=1, fixed=form
    )  # fmt: skip
    program = one_core(Network.from_arrays({"a": spec}, [Dense("in", "a", np.array([[40]]))], {"in": 1}))
    x = np.zeros((1, 4, 1), np.int64)
    x[0, 0] = 1
    run = simulate(program, x, backend, record="all")
    assert run.states["a"]["u"][0, :, 0].tolist() == [20, 10, 5, 3]
    assert run.states["a"]["v"][0, :, 0].tolist() == v


def test_xylo_neurons_need_saturation():
    spec = NeuronSpec(reset="subtract", threshold=3, fixed=FixedPoint(8, 4, 0, "clip", "shift"))
    edge = [Dense("in", "a", np.ones((1, 1), np.int8))]
    for changes, text in (
        ({"fixed": FixedPoint(8, 4, 0, "wrap", "shift")}, "decay='shift' needs overflow='clip', not 'wrap'"),
        ({"decay_v": 16}, "decay_v 16 is outside 0..15"),
        ({"max_spikes": 3}, f"max_spikes=3 {COUNTS}, not 'binary'"),
    ):
        with pytest.raises(ModelError) as error:
            Network.from_arrays({"a": spec.replace(**changes)}, edge, {"in": 1})
        assert str(error.value) == f"layer 'a': {text}"


def test_decays_by_shift_behind_a_convolution_of_one_axis_are_those_behind_its_matrix():
    rng = np.random.default_rng(0)
    conv = Conv1d("in", "a", rng.integers(-9, 20, (4, 2, 3)).astype(np.int8), padding=1)
    pre, post, place = synapse_list(conv, (2, 6))
    matrix = np.zeros((24, 12), np.int8)
    matrix[post, pre] = conv.weight.reshape(-1)[place]
    spec = NeuronSpec(
        threshold=64,
        reset="subtract",
        decay_u=3,
        decay_v=3,
        fixed=FixedPoint(state_bits=10, decay="shift", overflow="clip"),
    )
    x = (rng.random((3, 20, 2, 6)) < 0.4).astype(np.int8)
    runs = [
        simulate(Network.from_arrays({"a": (spec, (4, 6))}, [edge], {"in": (2, 6)}), x, record="all")
        for edge in (conv, Dense("in", "a", matrix))
    ]
    for kind in ("u", "v"):
        np.testing.assert_array_equal(*(run.states["a"][kind] for run in runs))
    np.testing.assert_array_equal(*(run.order_dependent["a"] for run in runs))
    assert runs[0].spikes["a"].any() and len(runs[0].order_dependent["a"])
