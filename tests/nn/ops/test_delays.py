"""The sums over synapses with delays against a plain sum over all delays, and the surrogate of a delay."""

import numpy as np
import pytest
import torch

from nwcompile.nn.ops import torch_ops
from nwcompile.nn.ops.delays import build_synapse_lists, compute_taps, delayed_sums
from tests.nn.naive import delayed


def drawn(seed, dtype=torch.float64):
    """x, taps, start, source, target, sizes and reach of synapses that are drawn, as their numbers are."""
    rng = np.random.default_rng(seed)
    n_samples, n_steps, n_in, n_out = (int(rng.integers(1, high)) for high in (20, 30, 40, 40))
    n_taps, reach = int(rng.integers(1, 6)), int(rng.integers(5, 12))
    source, target = (torch.from_numpy(ends) for ends in np.nonzero(rng.random((n_in, n_out)) < 0.5))
    start = torch.from_numpy(rng.integers(0, reach + 2 - n_taps, len(source)).astype(np.int32))
    taps = torch.from_numpy(rng.standard_normal((len(source), n_taps))).to(dtype)
    x = torch.from_numpy(rng.standard_normal((n_samples, n_steps, n_in))).to(dtype)
    return x, taps, start, source, target, n_in, n_out, reach


@pytest.mark.parametrize("seed", range(6))
def test_sums_and_gradients_are_those_of_the_plain_formula(seed):
    x, taps, start, source, target, n_in, n_out, reach = drawn(seed)
    results = []
    for function in ("kernel", "plain"):
        x, taps = x.detach().requires_grad_(), taps.detach().requires_grad_()
        if function == "kernel":
            out = delayed_sums(x, taps, start, build_synapse_lists(source, target, n_in, n_out), reach)
        else:
            out = delayed(x, taps, start, source, target, n_out)
        out.square().sum().backward()
        results.append((out, x.grad, taps.grad))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_gradients_are_finite_differences():
    x, taps, start, source, target, n_in, n_out, reach = drawn(3)
    x, taps, lists = x[:2, :7, :5], taps, build_synapse_lists(source, target, n_in, n_out)
    kept = source < 5
    lists = build_synapse_lists(source[kept], target[kept], 5, n_out)
    inputs = x.requires_grad_(), taps[kept].requires_grad_()
    assert torch.autograd.gradcheck(lambda x, taps: delayed_sums(x, taps, start[kept], lists, reach), inputs)


def test_a_sum_depends_on_no_other_sample_and_on_no_thread():
    x, taps, start, source, target, n_in, n_out, reach = drawn(4, torch.float32)
    lists = build_synapse_lists(source, target, n_in, n_out)
    x = x.repeat(5, 1, 1)
    whole = delayed_sums(x, taps, start, lists, reach)
    assert torch.equal(delayed_sums(x[3:4].contiguous(), taps, start, lists, reach), whole[3:4])
    assert whole.abs().max() > 0


def test_operations_are_known_to_torch():
    x, taps, start, source, target, n_in, n_out, reach = drawn(5)
    lists = build_synapse_lists(source, target, n_in, n_out)
    by_target = [lists.order_by_target, lists.row_by_target, lists.source]
    by_source = [lists.order_by_source, lists.row_by_source, lists.target]
    arguments = x.requires_grad_(), taps.requires_grad_(), start, by_target, by_source, n_out, reach
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch_ops.delayed_sums, arguments, test_utils=tests)


@pytest.mark.parametrize(("form", "width"), [("linear", 1.0), ("linear", 0.4), ("gaussian", 0.3), ("gaussian", 2.5)])
def test_shares_sum_to_one_lie_in_range_and_their_mean_is_the_delay(form, width):
    delay = torch.linspace(0, 9, 181, dtype=torch.float64)
    start, shares = compute_taps(delay, 9, width, form)
    assert start.min() >= 0 and start.max() + shares.shape[1] - 1 <= 9
    torch.testing.assert_close(shares.sum(1), torch.ones_like(delay))
    mean = (shares * (start[:, None] + torch.arange(shares.shape[1]))).sum(1)
    if width == 1:
        torch.testing.assert_close(mean, delay)
    else:
        assert (mean - delay)[60:120].abs().max() < 0.5


@pytest.mark.parametrize("form", ["linear", "gaussian"])
def test_a_narrow_surrogate_rounds(form):
    delay = torch.tensor([0.0, 0.4, 0.6, 3.51, 8.9, 9.0], dtype=torch.float64)
    whole, one = compute_taps(delay, 9, 0.0, form)
    assert whole.tolist() == [0, 0, 1, 4, 9, 9] and (one == 1).all()
    start, shares = compute_taps(delay, 9, 0.02, form)
    torch.testing.assert_close((start + shares.argmax(1)).int(), whole)
    assert shares.amax(1).min() > 0.99


@pytest.mark.parametrize(("form", "width"), [("linear", 1.0), ("linear", 0.6), ("gaussian", 0.7), ("gaussian", 3.0)])
def test_the_gradient_of_a_delay_is_a_finite_difference(form, width):
    delay = torch.tensor([0.3, 2.45, 5.55, 8.6], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda d: compute_taps(d, 9, width, form)[1], (delay,))
    assert torch.autograd.grad(compute_taps(delay, 9, width, form)[1][:, 0].sum(), delay)[0].abs().min() > 0
