"""Read noise: its size, new numbers in each step, and runs that are the same in every backend."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile.errors import ModelError
from nwcompile.ir.chip_sections import Variation
from nwcompile.sim import BACKENDS, variation
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.variation import Devices, iter_accuracies
from tests.made.nets import FIXED, conv_net, dense_net
from tests.made.neuron_programs import cuba
from tests.made.random_programs import OF_PROGRAMS, programs
from tests.made.random_programs import inputs as inputs_of
from tests.made.spikes import spikes

SPEC = FIXED.replace(threshold=640, decay_u=2000, decay_v=500, reset="subtract")
X = spikes(3, 12, 6, seed=1, rate=0.4)


def program(network=None, **chip):
    return nw.compile(
        dense_net(6, 40, 30, spec=SPEC) if network is None else network, nw.Chip.load("tiny").replace(chip)
    )


def noisy(of, x, noise=0.2, index=0, backend="sequence", record="spikes"):
    inputs = prepare_inputs(of.network, x, None, of.chip, of.on_multi_spike)[0]
    return Devices(of, Variation(noise=noise)).run(index, inputs, backend, record=record)


def test_noise_of_a_sum_is_that_of_its_cells():
    """u keeps nothing, so it is the sum of a step. Its deviation is compared with cells that are drawn one by one."""
    network = dense_net(20, 200, spec=SPEC.replace(decay_u=4096, fires=False))
    of = program(network, **{"core.max_neurons": 200, "core.synapse_bits": 1 << 20})
    x = spikes(4, 50, 20, seed=2, rate=0.4)
    sums = (nw.simulate(of, x, record="all").states["fc1"]["u"] >> 6).astype(float)
    read = noisy(of, x, 0.1, record="all").states["fc1"]["u"] / 64
    weight, rng = network.connections[0].weight.astype(float), np.random.default_rng(0)
    drawn = np.stack([((weight * (1 + 0.1 * rng.standard_normal(weight.shape))) @ x[0, 0]) for _ in range(1000)])
    deviation = (read - sums)[0, 0]
    assert deviation.std() == pytest.approx((drawn - sums[0, 0]).std(), rel=0.2)
    spread = 0.1 * np.sqrt(x.astype(float) ** 2 @ (weight**2).T)
    e = (read - sums)[spread > 0] / spread[spread > 0]
    assert abs(e.mean()) < 0.01 and e.std() == pytest.approx(1, abs=0.01)
    assert np.array_equal(read[spread == 0], sums[spread == 0])
    by_step = ((read - sums) / np.maximum(spread, 1e-9))[0]
    assert abs(np.corrcoef(by_step[:-1].ravel(), by_step[1:].ravel())[0, 1]) < 0.03


@pytest.mark.parametrize(
    "network, x",
    [
        (dense_net(6, 40, 30, spec=SPEC), X),
        (dense_net(6, 20, 10, spec=SPEC, recurrent=True), X),
        (conv_net(), spikes(3, 12, 2, 6, 5, seed=1, rate=0.4)),
    ],
)
def test_noise_is_the_same_in_every_backend_and_again(network, x):
    of = program(network)
    runs = [noisy(of, x, backend=backend, record="all") for backend in (*BACKENDS, "sequence")]
    ideal = nw.simulate(of, x)
    for name in of.network.layers:
        assert all(np.array_equal(run.spikes[name], runs[0].spikes[name]) for run in runs)
        assert all(np.array_equal(run.states[name]["v"], runs[0].states[name]["v"]) for run in runs)
    last = of.network.layers[-1]
    assert (runs[0].spikes[last] != ideal.spikes[last]).any()
    assert (runs[0].spikes[last] != noisy(of, x, index=1).spikes[last]).any()


@settings(OF_PROGRAMS, max_examples=8)
@given(data=st.data())
def test_noise_of_drawn_programs_is_the_same_in_every_backend(data):
    """Programs with delays, shared axons, convolutions, readouts and layers that feed each other."""
    of = data.draw(programs())
    x = data.draw(inputs_of(of))
    runs = [noisy(of, x, 0.3, backend=backend, record="all") for backend in BACKENDS]
    for name in of.network.layers:
        assert all(np.array_equal(run.spikes[name], runs[0].spikes[name]) for run in runs)
        assert all(np.array_equal(run.states[name]["v"], runs[0].states[name]["v"]) for run in runs)


def test_noise_of_a_step_does_not_depend_on_later_steps_or_other_samples():
    """Layers that feed themselves would otherwise get noise of other spikes than theirs."""
    of = program(dense_net(6, 20, 10, spec=SPEC, recurrent=True))
    whole, first, alone = (noisy(of, x).spikes["fc2"] for x in (X[:1], X[:1, :7], X[:2]))
    assert whole.any() and np.array_equal(whole[:, :7], first) and np.array_equal(whole, alone[:1])


def test_noise_takes_one_run_for_each_layer_and_one_more(monkeypatch):
    counted = []
    monkeypatch.setattr(variation, "simulate", lambda *a, **k: counted.append(1) or nw.simulate(*a, **k))
    noisy(program(dense_net(6, 30, 20, 10, spec=SPEC)), X)
    assert len(counted) == 4


def test_noise_of_cells_that_nothing_reads_is_0_and_too_small_noise_changes_nothing():
    of = program()
    silent = np.zeros_like(X)
    biased = program(dense_net(6, 40, 30, spec=SPEC.replace(bias=200)))
    for ideal, x, noise in ((of, X, 1e-9), (of, silent, 0.5)):
        assert np.array_equal(noisy(ideal, x, noise).output, nw.simulate(ideal, x).output)
    assert np.array_equal(noisy(biased, silent, 0.5).spikes["fc1"], nw.simulate(biased, silent).spikes["fc1"])


def test_noise_of_neuron_programs_is_refused():
    edge = nw.Dense("in", "a", np.random.default_rng(0).integers(-90, 128, (8, 6)).astype(np.int8))
    of = nw.compile(nw.Network.from_arrays({"a": (cuba(640, 500, 300), (8,))}, [edge], {"in": (6,)}), "loihi2", X)
    text = (
        r"^layer 'a' is a neuron program \(cuba\), yours or one that the compiler inserted for a maximum or a product "
    )
    with pytest.raises(ModelError, match=text + "of currents; devices vary built-in neurons only$"):
        noisy(of, X)
    with pytest.raises(ModelError, match=text):  # before the ideal device runs
        next(iter_accuracies(of, X, np.zeros(len(X)), [Variation(noise=0.1)], 1, 0, "reference", "cpu"))
