"""Conversion refuses what it cannot use in one clear sentence, all unsupported modules at once."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nwcompile as nw
from nwcompile.nn import QuantizedReLU

CONVERTS = (
    "convert takes ReLUs (clipped ones and nn.QuantizedReLU too), every linear map between them, and softmax or "
    "sigmoid at the end"
)
OTHER_SAMPLE = (
    "the output for a sample depends on the other samples of the batch, or is random; use functions that compute "
    "every sample alike (batch norm with running statistics, F.dropout with training=self.training)"
)
X = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))


def net(*parts: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), *(parts or (nn.ReLU(),)), nn.Linear(4, 2))


class Own(nn.Module):
    def forward(self, x):
        return torch.sigmoid(F.relu(F.leaky_relu(x)))


class Branching(nn.Module):
    def forward(self, x):
        return F.relu(x) if x.sum() > 0 else x


class Picking(nn.Module):
    def forward(self, x):
        return F.relu(x[x > 0])


class Mixed(nn.Module):
    def forward(self, x):
        return F.relu(x) - x.mean(0)


class Dropped(nn.Module):
    def forward(self, x):
        return F.dropout(F.relu(x))


class Product(nn.Module):
    def forward(self, x):
        return x * x[:, :1]


class Sorted(nn.Module):
    def forward(self, x):
        return x.sort(1)[0]


class LargerOfTwo(nn.Module):
    def forward(self, x):
        return torch.maximum(x, x.flip(1))


class Twice(nn.Module):
    def forward(self, x):
        return F.relu(x), x


def refused(*args, **kwargs) -> str:
    with pytest.raises(nw.NwError) as error:
        nw.convert(*args, **kwargs)
    return str(error.value)


def test_convert_names_all_unsupported_modules_and_functions_at_once():
    wrong = net(nn.ReLU(), nn.Sigmoid(), nn.LayerNorm(4), Own(), nn.GELU())
    assert refused(wrong, X, 8) == (
        "Sequential has '2' (Sigmoid), '3' (LayerNorm), test_convert_errors.py:29: torch's leaky_relu, "
        f"test_convert_errors.py:29: torch's sigmoid, '5' (GELU); {CONVERTS}"
    )


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AdaptiveMaxPool2d(2)])
def test_convert_says_what_to_do_about_maximum_pooling(pool):
    pooled = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), pool, nn.Flatten(), nn.Linear(8, 2))
    hint = "replace maximum pooling by average pooling and train again"
    wrong = f"'2' ({type(pool).__name__})"
    assert refused(pooled, torch.rand(2, 1, 6, 6), 8) == f"Sequential has {wrong}; {CONVERTS}; {hint}"


def broken() -> nn.Sequential:
    wrong = net()
    with torch.no_grad():
        wrong[0].weight[0, 0] = torch.nan
    return wrong


def overflowing() -> nn.Sequential:
    wrong = net()
    with torch.no_grad():
        wrong[0].weight.fill_(3e38)
    return wrong


def silent() -> nn.Sequential:
    wrong = net()
    with torch.no_grad():
        wrong[0].weight.fill_(-1)
        wrong[0].bias.fill_(-1)
    return wrong


@pytest.mark.parametrize(
    "ann, calibration, text",
    [
        (lambda: "net.pt", X, "convert takes a torch.nn.Module, not str"),
        (lambda: net(nn.Identity()), X, "Sequential has no ReLU, and only ReLUs become spiking neurons; "
         f"{CONVERTS}"),
        (lambda: net(Branching()), X, "test_convert_errors.py:34: the code reads a value of a tensor (if, while, "
         ".item(), float(), .numpy()) that depends on the input; a chip runs the same operations for every input; "
         "convert takes no choice by the input, torch.where neither; train the network without it"),
        (lambda: net(Picking()), X, "'2': v[mask] and nonzero() pick entries, how many depends on the input, but a "
         "chip computes all of them; convert takes no choice by the input, torch.where neither; train the network "
         "without it"),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)),
         torch.rand(3, 5, 4), "Sequential has '1.self_attn': torch's scaled_dot_product_flash_attention_for_cpu, "
         f"'1.norm1' (LayerNorm), '1.norm2' (LayerNorm); {CONVERTS}"),
        (lambda: net(Mixed()), X, OTHER_SAMPLE),
        (lambda: net(Dropped()), X, OTHER_SAMPLE),
        (lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 3), Product()), X, "Sequential has test_convert_errors.py:54: "
         f"torch's mul; {CONVERTS}"),
        (lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), LargerOfTwo()), X,
         f"Sequential has test_convert_errors.py:64: torch's maximum; {CONVERTS}"),
        (lambda: net(nn.ReLU(), Sorted()), X, "test_convert_errors.py:59: torch's sort is neither elementwise, "
         "as a step of neurons, nor a linear map with fixed weights; use sums, products with weights, pooling and "
         "BatchNorm"),
        (lambda: nn.Sequential(nn.Linear(3, 4), Twice()), X, "the network gives a tuple, not one tensor; convert takes "
         "one output"),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1), nn.Flatten(0)), X, "the network gives "
         "shape [4] for 4 samples, not [B, *shape]; remove functions that drop or merge axes after its last layer"),
        (overflowing, X, "layer '1' gives NaN or infinity on the calibration "
         "samples; the network is not usable, train it again"),
        (broken, X, "'0' (Linear): weight has NaN or infinite values; the model is not usable, train or load it again"),
        (silent, X, "layer '1' is never above 0 on the 4 calibration samples, so its threshold cannot be chosen; give "
         "samples scaled as in training, or train it again"),
        (net, None, "convert needs calibration samples [B, *shape]; a hundred of the training data will do"),
        (net, X[:0], "calibration must be samples [B, *shape], at least one, got shape [0, 3]; give a hundred of the "
         "training data"),
        (net, X[0], "calibration must be samples [B, *shape], at least one, got shape [3]; give a hundred of the "
         "training data"),
        (net, X / 0, "calibration has NaN, infinite or complex values; clean the data first"),
        (net, X.to_sparse(), "calibration must be an array or tensor of numbers [B, *shape], not sparse, quantized or "
         "meta"),
        (lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU()), X, "'0' (LazyLinear): weight has no values yet; run the "
         "model on a batch, or load it, first"),
        (lambda: nn.Sequential(nn.Linear(3, 4, device="meta"), nn.ReLU()), X, "'0' (Linear): weight has no values yet; "
         "run the model on a batch, or load it, first"),
        (net, "abc", "calibration must be an array or tensor of numbers [B, *shape], not str"),
        (net, X[:, :2], "one sample [1, 2] does not go through the network (RuntimeError: mat1 and mat2 "
         "shapes cannot be multiplied (1x2 and 3x4)); give samples [B, *shape] as it was trained on"),
        (lambda: net(QuantizedReLU(8, 0.1)), X, "'1' are quantized ReLUs, whose steps say what a spike is worth; use "
         "method='quantized', not 'percentile'"),
    ],
)  # fmt: skip
def test_convert_refuses(ann, calibration, text):
    assert refused(ann(), calibration, 8) == text


@pytest.mark.parametrize(
    "options, text",
    [
        ({"method": "maximum"}, "unknown method 'maximum'; choose one of: max, percentile, quantized"),
        ({"steps": 0}, "steps=0 must be a whole number from 1 to 1048576"),
        ({"steps": 2.5}, "steps=2.5 must be a whole number from 1 to 1048576"),
        ({"percentile": 0}, "percentile=0 must be a number above 0, at most 100"),
        ({"unit": 1e-60}, "unit=1e-60 is out of the range of float32; scale the samples to 0..1"),
        ({"unit": -1}, "unit=-1 must be a number above 0, the value of one unit of the input"),
        ({"reset": "none"}, "unknown reset 'none'; choose one of: subtract, zero"),
        ({"method": "quantized", "reset": "zero"}, "method 'quantized' takes spikes back, so its neurons must "
         "subtract; use method='percentile', on a network with plain ReLUs, with reset='zero'"),
        ({"method": "quantized"}, "method 'quantized' needs every ReLU to be an nn.QuantizedReLU before training; "
         "plain ones: '1', '3'; replace and train them, or use method='percentile'"),
    ],
)  # fmt: skip
def test_convert_refuses_options(options, text):
    assert refused(net(nn.ReLU(), nn.Linear(4, 4), nn.ReLU()), X, **{"steps": 8, **options}) == text


def test_convert_refuses_a_quantized_relu_whose_step_was_never_set():
    text = "QuantizedReLU has no step yet; train it for a batch, call calibrate(x), or give step="
    assert refused(net(QuantizedReLU(8)), X, 8, "quantized") == text


CUT = {
    "a long": (lambda h: (3 * h).long().float(), "a cast to torch.int64 cuts numbers to whole ones; keep them float"),
    "a copy into whole numbers": (
        lambda h: torch.zeros_like(h, dtype=torch.int32).copy_(h).float(),
        "a cast to torch.int32 cuts numbers to whole ones; keep them float",
    ),
    "a shrink that is linear far from 0": (lambda h: F.hardshrink(h, 0.01), "torch's hardshrink"),
    "a norm that is linear near 0": (lambda h: torch.renorm(h, 2, 0, 1000.0), "torch's renorm"),
}


@pytest.mark.parametrize("name", CUT)
def test_functions_that_are_linear_for_some_numbers_only_are_refused(name):
    function, text = CUT[name]

    class Cutting(nn.Module):
        def forward(self, x):
            return function(F.relu(x))

    assert text in refused(net(Cutting()), X, 8)
