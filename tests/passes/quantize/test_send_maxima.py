"""Maxima of currents that several layers read: neurons send and compare the currents once, exactly."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError, ModelError
from nwcompile.ir.chip import Chip
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize.compare_currents import send_maxima
from nwcompile.passes.quantize.quantize import choose_scales

SHAPE = (2, 6, 6)
SAMPLES = (np.random.default_rng(0).random((4, 8, *SHAPE)) < 0.3).astype(np.float32)


def residual(bias=(0.25, -0.5), spec=None, kernel=2, stride=2):
    """Currents of a convolution, whose maximum drives two layers, one of which gets spikes too, and a mean of it.

    All weights are multiples of a power of two, so that float32 rounds nothing.
    """
    rng = np.random.default_rng(1)
    lif = nw.NeuronSpec(beta=0.5, threshold=1.0)
    pooled = (2, (6 - kernel) // stride + 1, (6 - kernel) // stride + 1)
    layers = {
        "spikes": (spec or lif, SHAPE),
        "currents": (None, SHAPE),
        "first": (lif, pooled),
        "second": (lif, pooled),
    }
    layers |= {"mean": (None, pooled), "third": (lif, 4)}

    def weights(*size):
        return (rng.integers(-4, 7, size) / 8).astype(np.float32)

    edges = [
        nw.Conv2d("x", "spikes", weights(2, 2, 3, 3) + 0.25, padding=1),
        nw.Conv2d("spikes", "currents", weights(2, 2, 3, 3), np.asarray(bias, np.float32), padding=1),
        nw.MaxPool2d("currents", "first", kernel, stride),
        nw.MaxPool2d("currents", "second", kernel, stride),
        nw.Conv2d("first", "second", weights(2, 2, 3, 3), padding=1),
        nw.MaxPool2d("currents", "mean", kernel, stride),
        nw.Dense("mean", "third", weights(4, int(np.prod(pooled))) / 4),
    ]
    return nw.Network.from_arrays(layers, edges, {"x": SHAPE})


def send(net, chip="loihi2"):
    return send_maxima(normalize(net), Chip.load(chip), nw.Options(), ())


@pytest.mark.parametrize("windows", [{}, {"kernel": 3, "stride": 1, "bias": (-1.5, -2.0)}])
def test_layers_get_the_largest_current_of_each_window(windows):
    net = residual(**windows)
    sent, rows = send(net)
    wanted, made = (nw.simulate(n, SAMPLES).spikes for n in (net, sent))
    for name in net.layers:
        assert 0.05 < wanted[name].mean() < 0.95
        np.testing.assert_array_equal(made[name], wanted[name])
    (row,) = rows
    assert (row.layer, row.label) == ("currents", "exact") and row.how.startswith("72 neurons send their currents, ")
    assert not any(isinstance(c, nw.MaxPool2d) for c in sent.connections) and "currents" not in sent.nodes


@pytest.mark.parametrize(("chip", "bits", "least"), [("loihi2", 8, 0.97), ("spinnaker2", 8, 0.9), ("loihi2", 2, 0.6)])
def test_maxima_of_integers_are_exact_in_every_backend(chip, bits, least):
    net = residual()
    program = nw.compile(net, chip, SAMPLES, nw.Options(bits=bits))
    nw.crosscheck(program, SAMPLES)
    spikes = nw.simulate(program, SAMPLES, backend="sequence").spikes
    sums = spikes["currents/sums"].reshape(4, 8, 2, 3, 2, 3, 2)
    assert np.abs(sums).max() > 1 and (sums < 0).any()
    np.testing.assert_array_equal(spikes["currents/max"], sums.max(axis=(4, 6)))
    wanted = nw.simulate(net, SAMPLES).spikes
    for name in ("second", "third"):
        assert (spikes[name] == wanted[name]).mean() > least


@pytest.mark.parametrize(
    ("chip", "changes"),
    [
        ("loihi1", {}),
        ("loihi2", {"bias": np.linspace(0, 1, 72).reshape(SHAPE)}),
        ("loihi2", {"spec": nw.NeuronSpec(spikes="multi", reset="subtract")}),
    ],
)
def test_maxima_that_no_messages_hold_are_refused(chip, changes):
    net = residual(**changes)
    sent, rows = send(net, chip)
    assert "currents/sums" not in sent.nodes and rows == []
    with pytest.raises(FitError, match="pooling  currents -> second  must be sums, is a maximum of currents"):
        nw.compile(net, chip, SAMPLES)


def test_scales_are_chosen_for_the_integers_that_are_sent():
    scales = choose_scales(send(residual())[0], Chip.load("loihi2"), {"x": SAMPLES}, nw.Options())
    sent, wanted = (s["currents/max"] for s in (scales.samples.sent, scales.samples.run.spikes))
    assert np.abs(sent - wanted).max() < 0.05 * np.abs(sent).max()


def test_messages_too_narrow_for_currents_are_refused():
    chip = Chip.load("loihi2").replace({"noc.payload_bits": 8})
    with pytest.raises(FitError, match=r"payload bits  currents \(its sums\)  \d+ of 8  raise noc.payload_bits"):
        nw.compile(residual(), chip, SAMPLES)


def test_currents_of_unknown_size_need_samples():
    with pytest.raises(ModelError, match="layer 'currents/sums' sends currents as numbers.*; give calibration samples"):
        nw.compile(residual(), "loihi2")
