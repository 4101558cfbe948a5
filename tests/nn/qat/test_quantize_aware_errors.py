"""What quantization-aware training says of input that it cannot use."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import NwWarning
from tests.made.quantized import refused

LIF = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 2e-3}
X = (np.random.default_rng(0).random((4, 8, 12)) < 0.6).astype(np.float32)


def dense(**lif) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(torch.nn.Linear(12, 9), nn.LIFLayer(9, **{**LIF, **lif}))


@pytest.fixture
def module() -> nn.QuantizedNetwork:
    return nn.quantize_aware(dense(thresholds=0.3), "loihi1", X, bits=4)


@pytest.mark.parametrize("bits", [0, 17])
def test_bits_beyond_any_chip_are_refused(bits):
    text = refused(lambda: nn.quantize_aware(dense(), "loihi1", X, bits=bits))
    assert text == f"bits={bits} must be a whole number from 1 to 16"


def test_bits_beyond_the_chip_are_refused():
    text = refused(lambda: nn.quantize_aware(dense(), "loihi1", X, bits=9))
    assert text.startswith("9-bit weights into layer '1' are wider than those of loihi1, which have 8; give 1 to 8")


def test_unknown_layer_of_layer_bits_is_refused():
    text = refused(lambda: nn.quantize_aware(dense(), "loihi1", X, layer_bits={"2": 4}))
    assert text == "layer_bits: unknown layer '2'; choose one of: 1"


def test_only_a_module_that_from_torch_refuses_is_named():
    net = nn.Sequential(torch.nn.Linear(12, 9), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Softmax(-1),
                        nn.LIFLayer(9, **LIF)).eval()  # fmt: skip
    text = refused(lambda: nn.quantize_aware(net, "loihi1", X))
    assert text == refused(lambda: nw.from_torch(net, X[:2])) and text.startswith("'3': torch's softmax divides by")


def test_modules_after_the_last_layer_are_not_blamed_for_other_faults():
    net = nn.Sequential(torch.nn.Linear(12, 9), nn.LIFLayer(9, **LIF), torch.nn.GELU(), torch.nn.Softmax(-1))
    trained = nn.quantize_aware(net, "loihi1", X)
    assert trained(X).shape == (4, 8, 9)
    assert trained.network().readout.text.startswith("largest of gelu, softmax of '1', as in the module")
    text = refused(lambda: nn.quantize_aware(net, "loihi1", X[:, :, :5]))
    assert "unsupported" not in text


def test_what_is_no_model_is_refused():
    text = refused(lambda: nn.quantize_aware(3, "loihi1", X))
    assert text == "quantize_aware takes a torch.nn.Module or an nw.Network, not int"


def test_network_in_integers_is_refused(module):
    text = refused(lambda: nn.quantize_aware(module.network(), "loihi1", X))
    assert text == "the network is in integers already; give the float network to train it"


def test_module_without_a_shape_needs_calibration():
    net = nn.Sequential(torch.nn.Conv2d(1, 2, 3), nn.LIFLayer(72, **LIF))
    text = refused(lambda: nn.quantize_aware(net, "loihi1"))
    assert text == (
        "calibration: a module that does not begin with a Linear or LIFSynapse does not tell the shape of its input; "
        "give some samples [B, T, *shape]"
    )


@pytest.mark.parametrize(("shape", "got"), [((4, 12), [4, 12]), ((0, 8, 12), [0, 8, 12])])
def test_calibration_of_a_wrong_shape_is_refused(shape, got):
    text = refused(lambda: nn.quantize_aware(dense(), "loihi1", np.zeros(shape)))
    assert text == f"calibration must be [B, T, *shape] with at least one sample and step, not {got}"


@pytest.mark.filterwarnings("ignore::nwcompile.errors.NwWarning")
def test_calibration_is_not_needed_where_the_first_layer_tells_the_shape():
    module = nn.quantize_aware(dense(), "loihi1")
    assert module(X).shape == (4, 8, 9)


def test_calibration_without_spikes_is_warned_of():
    with pytest.warns(NwWarning, match="no input spikes in any calibration sample; give samples like those"):
        nn.quantize_aware(dense(), "loihi1", 0 * X)


def test_layer_that_cannot_reach_its_threshold_is_warned_of():
    net = dense(thresholds=40.0)
    with pytest.warns(NwWarning, match="layer '1' can never fire at 2 weight bits: its membranes reach .* at most"):
        nn.quantize_aware(net, "loihi1", X, bits=2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_loss_that_is_no_number_is_refused_before_it_spoils_weights(module, value):
    text = refused((module(X).sum() * value).backward)
    assert text == (
        "layer '1' is given a gradient with NaN or infinite values: the loss is NaN or infinite; lower the learning "
        "rate, clip the gradients, or look for a division by 0 or a log of 0 in the loss"
    )


def test_weights_that_are_no_numbers_are_refused(module):
    with torch.no_grad():
        module.layers[0].weights[0][0, 0] = np.nan
    assert refused(lambda: module(X)) == (
        "layer '1': weights.0 has NaN or infinite values; an optimizer step damaged it: lower the learning rate or "
        "clip the gradients, and continue from an earlier state_dict"
    )


def test_module_on_another_device_is_refused(module):
    text = refused(lambda: module.to("meta")(X))
    assert text == (
        "layer '1': weights.0 is on meta, but integers are computed on the CPU; move the module back with .cpu()"
    )


def test_input_is_checked_as_simulate_checks_it(module):
    assert refused(lambda: module(X + 0.5)).startswith("input 'input' has the value 0.5, but the integer program takes")
    assert refused(lambda: module(X[:, :, :3])) == "input 'input' must be [B, T, 12], got shape [4, 8, 3]"


def test_sums_beyond_what_floats_hold_are_refused():
    weight = np.full((1, 70_000), 127 << 24, np.int64).astype(np.float32)
    from nwcompile.nn.qat.sums import IntegerWeights

    c = nw.Dense("in", "out", weight)
    whole = IntegerWeights.from_connection(c, weight.astype(np.float64) + 1, 1)
    text = refused(lambda: whole.choose_dtype(c, 1 << 22))
    assert text.endswith("are beyond 2^53, which floats hold exactly; send smaller numbers")


def test_weights_that_are_not_finite_are_not_calibrated(module):
    with torch.no_grad():
        module.layers[0].weights[0][0, 0] = torch.nan
    assert refused(lambda: module.recalibrate(X)) == refused(lambda: module(X))
