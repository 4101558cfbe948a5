"""nw.robustness: accuracies of devices, and what it says to arguments that cannot be used."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.chip_sections import Variation
from nwcompile.sim import BACKENDS
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.variation import Devices
from tests.made.nets import FIXED, dense_net

X = (np.random.default_rng(0).random((40, 8, 6)) < 0.4).astype(np.int8)


def program(**chip):
    return nw.compile(dense_net(6, 12, 4, spec=FIXED.replace(reset="subtract")), nw.Chip.load("tiny").replace(chip))


def labels(of):
    return nw.simulate(of, X).output.sum(1).argmax(1)


def test_robustness_is_the_accuracy_of_each_device():
    of = program()
    y = labels(of)
    found = nw.robustness(of, X, y, samples=5, seed=3, weight=0.3, dead=0.05)
    devices = Devices(of, Variation(weight=0.3, dead=0.05), 3)
    wanted = [np.mean(nw.simulate(devices.device(i), X).output.sum(1).argmax(1) == y) for i in range(5)]
    assert found.ideal == 1.0 and found.accuracies == tuple(wanted)
    assert 0 < found.mean < 1 and found.std > 0
    assert (found.mean, found.std, found.min) == (np.mean(wanted), np.std(wanted), min(wanted))
    assert found.lost == 1 - np.mean(wanted) and found.quantile(0.5) == np.median(wanted)
    assert found.n_samples == 40 and found.seed == 3 and found.variation == Variation(weight=0.3, dead=0.05)


def test_robustness_device_does_not_depend_on_how_many_there_are_or_on_threads(monkeypatch):
    of = program()
    few = nw.robustness(of, X, labels(of), samples=2, weight=0.3)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    many = nw.robustness(of, X, labels(of), samples=4, weight=0.3)
    assert many.accuracies[:2] == few.accuracies and len(many.accuracies) == 4
    assert nw.robustness(of, X, labels(of), samples=2, weight=0.3, seed=1).accuracies != few.accuracies


def test_robustness_takes_what_the_chip_says_where_nothing_is_given():
    of = program(**{"variation.weight": 0.3, "variation.leak": 0.1})
    y = labels(of)
    found = nw.robustness(of, X, y, samples=2)
    assert found.variation == Variation(weight=0.3, leak=0.1)
    assert nw.robustness(of, X, y, samples=2, weight=0.0, stuck=0.5).variation == Variation(0.0, None, 0.1, 0.5)
    assert found.accuracies == nw.robustness(program(), X, y, samples=2, weight=0.3, leak=0.1).accuracies


def test_robustness_is_the_same_in_every_backend():
    of = program()
    found = {nw.robustness(of, X[:5], labels(of)[:5], samples=2, weight=0.4, backend=b) for b in BACKENDS}
    assert len(found) == 1


VARIES = (
    "tiny does not say how its devices differ: give weight, threshold, leak, stuck, dead, levels, jitter, noise or "
)
DEVIATION = "must be a number from 0 to 1: a standard deviation as a part of the value, 0.1 for 10 %"


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (
            {},
            VARIES
            + "drift (on the command line --weight 0.1, ...), or write them into the [variation] of its chip file",
        ),
        ({"weight": -0.1}, f"weight=-0.1 {DEVIATION}"),
        ({"threshold": float("nan")}, f"threshold=nan {DEVIATION}"),
        ({"leak": 30}, f"leak=30 {DEVIATION}"),
        ({"weight": "a lot"}, f"weight='a lot' {DEVIATION}"),
        ({"noise": 2}, f"noise=2 {DEVIATION}"),
        ({"drift": -1}, "drift=-1 must be a number of seconds from 0 to 1099511627776"),
        ({"stuck": 1.01}, "stuck=1.01 must be a number from 0 to 1: a share, 0.01 for 1 %"),
        ({"dead": float("inf")}, "dead=inf must be a number from 0 to 1: a share, 0.01 for 1 %"),
        ({"weight": 0.1, "samples": 0}, "samples=0 must be a whole number from 1 to 1000000"),
        ({"weight": 0.1, "samples": 2.5}, "samples=2.5 must be a whole number from 1 to 1000000"),
        ({"weight": 0.1, "seed": -1}, "seed=-1 must be a whole number from 0 to 9223372036854775807"),
        (
            {"weight": 0.1, "y": [0, 1]},
            "labels y of shape [2] do not fit the 40 samples of x; give one for each sample",
        ),
        ({"weight": 0.1, "y": [[0], [1, 2]]}, "labels y must be an array of whole numbers, one for each sample"),
        ({"weight": 0.1, "y": np.full(40, 1e30)}, "labels y must be whole numbers, each the index of an output neuron"),
        ({"weight": 0.1, "y": np.full(40, 0.5)}, "labels y must be whole numbers, each the index of an output neuron"),
        ({"weight": 0.1, "y": np.full(40, 4)}, "labels y are 4..4, but the output has 4 neurons, 0..3"),
        ({"weight": 0.1, "x": X[:, :, :5]}, "input 'in' must be [B, T, 6], got shape [40, 8, 5]"),
    ],
)
def test_robustness_says_what_it_needs(arguments, expected):
    with pytest.raises(nw.NwError) as error:
        nw.robustness(program(), **{"x": X, "y": np.zeros(40, int), "samples": 1, **arguments})
    assert str(error.value) == expected


def test_robustness_runs_with_read_noise():
    of = program()
    inputs = prepare_inputs(of.network, X, None)[0]
    devices = Devices(of, Variation(noise=0.5), 3)
    wanted = [np.mean(devices.run(i, inputs).output.sum(1).argmax(1) == labels(of)) for i in range(3)]
    found = nw.robustness(of, X, labels(of), samples=3, seed=3, noise=0.5)
    assert found.accuracies == tuple(wanted) and 0 < found.mean < 1 and found.variation == Variation(noise=0.5)


def test_robustness_takes_a_program():
    with pytest.raises(nw.OptionError) as error:
        nw.robustness(dense_net(6, 4), X, np.zeros(40, int), weight=0.1)
    assert str(error.value) == "robustness takes an nw.Program, not Network; compile the network first"
