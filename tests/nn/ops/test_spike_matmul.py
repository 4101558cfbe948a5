import numpy as np
import pytest
import torch

from nwcompile.kernels.layers.simd import width_of
from nwcompile.kernels.layers.spike_matmul import spike_matmul_narrow
from nwcompile.nn.ops import torch_ops
from nwcompile.nn.ops.spike_matmul import MAX_CACHED_WEIGHTS, spike_matmul


def given(*shape, n_out, rate=0.3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(*shape, generator=generator) < rate).to(dtype)
    return x, torch.randn(shape[-1], n_out, generator=generator, dtype=dtype)


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("shape", "n_out"), [((7, 5, 33), 24), ((3, 1), 1), ((4, 64), 65), ((2, 3, 2, 40), 32), ((0, 4), 3), ((3, 0), 4)]
)
def test_spike_matmul_is_the_matrix_product(shape, n_out, rate):
    x, weight = given(*shape, n_out=n_out, rate=rate)
    x = x * torch.linspace(-2, 3, x.shape[-1], dtype=x.dtype)
    torch.testing.assert_close(spike_matmul(x, weight), x @ weight)
    small = x.float()
    torch.testing.assert_close(spike_matmul(small, weight.float()), small @ weight.float())


def test_spike_matmul_of_a_row_does_not_depend_on_other_rows():
    x, weight = given(9, 40, 24, n_out=24, dtype=torch.float32)
    whole = spike_matmul(x, weight)
    assert torch.equal(torch.stack([spike_matmul(row, weight) for row in x.unbind(1)], 1), whole)
    assert torch.equal(spike_matmul(x[2:3, 7:9].contiguous(), weight), whole[2:3, 7:9])


@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 5)])
@pytest.mark.parametrize("run", [spike_matmul, torch_ops.spike_matmul])
def test_spike_matmul_has_the_gradients_of_the_matrix_product(shape, run):
    grads = []
    for function in (run, torch.matmul):
        x, weight = (t.requires_grad_() for t in given(*shape, n_out=7))
        (function(x, weight).square()).sum().backward()
        grads.append((x.grad, weight.grad))
    for got, expected in zip(*grads, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("n_in", [3, 16, 33, 64, 65])
def test_spike_matmul_of_dyadic_weights_is_exact_whatever_the_inputs(n_in):
    x, weight = given(50, n_in, n_out=24, dtype=torch.float32)
    weight = (weight * 64).round() / 256
    x[::3, n_in // 2] = 1.5
    x[::7] = 0
    expected = x.double() @ weight.double()
    assert torch.equal(spike_matmul(x, weight).double(), expected)


@pytest.mark.parametrize(("n_in", "n_out"), [(1, 1), (5, 8), (16, 24), (17, 9), (24, 8), (33, 32), (64, 16)])
def test_spike_matmul_of_zeros_and_ones_adds_the_sums_of_every_four_inputs_in_order(n_in, n_out):
    x, weight = given(40, n_in, n_out=n_out, dtype=torch.float32)
    expected = torch.zeros(40, n_out)
    for group in range(0, n_in, 4):
        of_group = torch.zeros(40, n_out)
        for j in range(group, min(group + 4, n_in)):
            of_group += x[:, j, None] * weight[j]
        expected += of_group
    assert torch.equal(spike_matmul(x, weight), expected)


def test_spike_matmul_of_a_part_of_the_rows_writes_no_others():
    x, weight = given(50, 16, n_out=24, dtype=torch.float32)
    for n_out in (8, 13, 24):
        out = np.full(50 * n_out, 7, np.float32)
        w = weight[:, :n_out].contiguous()
        spike_matmul_narrow(2, width_of(n_out))(x.numpy().reshape(-1), (10, 30, 16, n_out), w.numpy().reshape(-1), out)
        assert np.array_equal(out[10 * n_out : 30 * n_out], spike_matmul(x[10:30], w).numpy().reshape(-1))
        assert (out[: 10 * n_out] == 7).all() and (out[30 * n_out :] == 7).all()


def test_spike_matmul_of_many_weights_is_torchs_product():
    x, weight = given(3, 5, MAX_CACHED_WEIGHTS // 100, n_out=101, dtype=torch.float32)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert torch.equal(spike_matmul(x, weight), x @ weight)


def test_spike_matmul_passes_torchs_own_check():
    x, weight = given(3, 2, 5, n_out=7)
    torch.library.opcheck(torch_ops.spike_matmul, (x.requires_grad_(), weight.requires_grad_()))
