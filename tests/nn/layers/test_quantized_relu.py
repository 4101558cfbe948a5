"""QuantizedReLU: rounded activations with a straight-through gradient and a step that learns."""

import math

import pytest
import torch

import nwcompile as nw
from nwcompile.nn import QuantizedReLU

X = torch.tensor([[-1.0, 0.0, 0.1, 0.124, 0.125, 0.6, 1.9, 2.0, 2.3, 9.0]])


def test_quantized_relu_rounds_half_up_between_zero_and_its_largest_level():
    found = QuantizedReLU(8, 0.25)(X)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 2.0, 2.0, 2.0, 2.0]]))


def test_quantized_relu_gradients_go_through_the_rounding_and_to_the_step():
    relu, x = QuantizedReLU(8, 0.25), X.clone().requires_grad_()
    relu(x).sum().backward()
    assert x.grad.ravel().tolist() == pytest.approx([0, 1, 1, 1, 1, 1, 1, 1, 0, 0])
    inside = [(math.floor(v / 0.25 + 0.5) - v / 0.25) for v in (0.1, 0.124, 0.125, 0.6, 1.9)]
    assert float(relu.step.grad) == pytest.approx((sum(inside) + 2 * 8) / math.sqrt(8 * 10), abs=1e-4)


def test_quantized_relu_sets_its_step_by_the_first_batch_and_learns_it():
    relu, x = QuantizedReLU(4), torch.rand(64, 5, generator=torch.Generator().manual_seed(0)) * 3
    relu(x)
    assert float(relu.step.detach()) == pytest.approx(float(x.max()) / 4, rel=0.01)
    first = float(relu.step.detach())
    relu(5 * x)
    assert float(relu.step.detach()) == first
    optimizer = torch.optim.Adam(relu.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        (relu(x) - x.clamp(max=1)).square().mean().backward()
        optimizer.step()
    assert float(relu.step.detach()) == pytest.approx(0.25, abs=0.03)


def test_quantized_relu_keeps_its_step_in_the_state_dict():
    other = QuantizedReLU(4)
    other.load_state_dict(QuantizedReLU(4, 0.5).state_dict())
    torch.testing.assert_close(other.eval()(torch.tensor([0.6])), torch.tensor([0.5]))


def gone_below(relu: QuantizedReLU) -> torch.Tensor:
    with torch.no_grad():
        relu.step.fill_(-0.1)
    return relu(X)


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: QuantizedReLU(0), "levels=0 must be a whole number from 1 on"),
        (lambda: QuantizedReLU((1 << 24) + 1), "levels=16777217 is above the largest supported, 16777216"),
        (lambda: QuantizedReLU(2.5), "levels=2.5 must be a whole number from 1 on"),
        (lambda: QuantizedReLU(4, "0.1"), "step='0.1' must be a number above 0, or None to set it by the first batch"),
        (lambda: QuantizedReLU(4)(X * math.inf),
         "QuantizedReLU is given NaN or infinite values, so it cannot set its step; clean the data"),
        (lambda: QuantizedReLU(4, -1.0), "step=-1.0 must be a number above 0, or None to set it by the first batch"),
        (lambda: QuantizedReLU(4).eval()(X),
         "QuantizedReLU has no step yet; train it for a batch, call calibrate(x), or give step="),
        (lambda: QuantizedReLU(4)(-X.abs()),
         "QuantizedReLU is given nothing above 0, so it cannot set its step; give it other data or step="),
        (lambda: gone_below(QuantizedReLU(4, 0.5)),
         "the step of a QuantizedReLU became -0.1 in training; lower the learning rate, or give more levels"),
    ],
)  # fmt: skip
def test_quantized_relu_refuses(make, text):
    with pytest.raises(nw.NwError) as error:
        make()
    assert str(error.value) == text


def test_quantized_relu_takes_a_number_and_nothing():
    relu = QuantizedReLU(4, 0.5)
    assert float(relu(torch.tensor(1.1)).detach()) == 1.0
    assert relu(torch.zeros(0, 3)).shape == (0, 3)
