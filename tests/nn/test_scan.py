import pytest
import torch

from nwcompile.nn.scan import Neurons, recurrent_scan, scan, scan_loop
from nwcompile.nn.surrogate import SURROGATES, atan
from tests.nn.naive import lif

RESETS = ("subtraction", "zero", "none")


def neurons_of(n, reset, dtype=torch.float32, surrogate=atan, detach_reset=False):
    generator = torch.Generator().manual_seed(n)
    beta = torch.rand(n, generator=generator, dtype=dtype)
    threshold = 0.3 + torch.rand(n, generator=generator, dtype=dtype)
    return Neurons(beta, threshold, reset, surrogate, detach_reset)


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 40, 37), (2, 7, 130)])
def test_scan_is_bit_for_bit_the_plain_loop(reset, shape):
    n = neurons_of(shape[2], reset)
    current, v0 = random(*shape), random(shape[0], shape[2], seed=1)
    expected = lif(current, v0, n.beta, n.threshold, reset, atan)
    for got in (scan(current, v0, n), scan_loop(current, v0, n)):
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[1], expected[1])
    assert shape[1] == 1 or 0 < expected[0].mean() < 1


def test_scan_fires_at_the_threshold_itself():
    n = Neurons(torch.ones(1), torch.ones(1), "zero", atan, False)
    spikes, mem = scan(torch.tensor([[[1.0], [0.5], [0.5]]]), torch.zeros(1, 1), n)
    assert spikes.flatten().tolist() == [1, 0, 1]
    assert mem.flatten().tolist() == [0, 0.5, 0]


@pytest.mark.parametrize("run", [scan, scan_loop])
@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("detach_reset", [False, True])
@pytest.mark.parametrize("shape", [(2, 9, 5), (3, 700, 64)])
def test_scan_has_the_gradients_of_the_plain_loop(run, reset, detach_reset, shape):
    n = neurons_of(shape[2], reset, torch.float64, detach_reset=detach_reset)
    weight = random(2, *shape, seed=2, dtype=torch.float64)
    grads = []
    for function in (run, lif):
        inputs = random(*shape, dtype=torch.float64), random(shape[0], shape[2], seed=1, dtype=torch.float64)
        leaves = [x.clone().requires_grad_() for x in (*inputs, n.beta, n.threshold)]
        if function is lif:
            spikes, mem = lif(*leaves, reset, atan, detach_reset)
        else:
            spikes, mem = run(leaves[0], leaves[1], Neurons(leaves[2], leaves[3], reset, atan, detach_reset))
        (spikes * weight[0] + mem * weight[1]).sum().backward()
        grads.append([x.grad for x in leaves])
    for got, expected in zip(*grads, strict=True):
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SURROGATES)
def test_scan_uses_the_surrogate_it_is_given(name):
    n = neurons_of(6, "subtraction", torch.float64, SURROGATES[name])
    grads = []
    for run in (scan, scan_loop):
        current = (0.5 * random(2, 8, 6, dtype=torch.float64)).requires_grad_()
        run(current, torch.zeros(2, 6, dtype=torch.float64), n)[0].sum().backward()
        grads.append(current.grad)
    assert grads[0].abs().max() > 0
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-12)


def test_scan_accepts_currents_that_are_not_contiguous():
    n = neurons_of(5, "zero")
    current = random(4, 3, 5).transpose(0, 1)
    got = scan(current, torch.zeros(3, 5), n)
    assert torch.equal(got[1], scan(current.contiguous(), torch.zeros(3, 5), n)[1])


@pytest.mark.parametrize("reset", RESETS)
def test_recurrent_scan_feeds_back_the_spikes_of_the_step_before(reset):
    n = neurons_of(6, reset, torch.float64)
    grads = []
    for recurrent in (True, False):
        leaves = [random(2, 12, 6, dtype=torch.float64), random(6, 6, seed=3, dtype=torch.float64)]
        current, w_rec = (x.requires_grad_() for x in leaves)
        zeros = torch.zeros(2, 6, dtype=torch.float64)
        if recurrent:
            spikes, mem = recurrent_scan(current, zeros, zeros, w_rec, n)
        else:
            spikes, mem = lif(current, zeros, n.beta, n.threshold, reset, atan, w_rec=w_rec)
        (spikes + mem).sum().backward()
        grads.append((spikes.detach(), mem.detach(), current.grad, w_rec.grad))
    for got, expected in zip(*grads, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
