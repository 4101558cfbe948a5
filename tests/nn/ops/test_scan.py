from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from nwcompile.errors import BackendError, OptionError
from nwcompile.kernels.layers.lif import LARGE_MEM_NUMBERS, lif_forward_narrow
from nwcompile.kernels.layers.simd import width_of
from nwcompile.nn.ops import torch_ops
from nwcompile.nn.ops.scan import LIFNeurons, fire, scan, scan_loop
from nwcompile.nn.ops.surrogate import SURROGATES, atan, sigmoid
from tests.made.tensors import random
from tests.nn.naive import lif

RESETS = ("subtraction", "zero", "none")


def neurons_of(n, reset, dtype=torch.float32, surrogate=atan, detach_reset=False, **options):
    generator = torch.Generator().manual_seed(n)
    beta = torch.rand(n, generator=generator, dtype=dtype)
    threshold = 0.3 + torch.rand(n, generator=generator, dtype=dtype)
    return LIFNeurons(beta, threshold, reset, surrogate, detach_reset, **options)


def dyadic(*shape, seed=0):
    """Weights whose sums are exact in any order."""
    return (random(*shape, seed=seed) * 64).round() / 256


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 40, 37), (2, 7, 130), (70, 9, 33), (6, 70, 8), (5, 9, 32)])
def test_scan_is_bit_for_bit_the_plain_loop(reset, floor, shape):
    n = neurons_of(shape[2], reset, floor=floor)
    current, v0 = random(*shape), random(shape[0], shape[2], seed=1)
    expected = lif(current, v0, n.beta, n.threshold, reset, atan, floor=floor)
    for run in (scan, scan_loop):
        spikes, mem, last = run(current, v0[None], n)
        assert torch.equal(spikes, expected[0])
        assert torch.equal(mem, expected[1])
        assert torch.equal(last, mem[:, -1][None])
    assert shape[1] == 1 or 0 < expected[0].mean() < 1


@pytest.mark.parametrize("n_neurons", [1, 37, 96])
@pytest.mark.parametrize("reset", RESETS)
def test_scan_with_recurrent_weights_is_bit_for_bit_the_plain_loop(reset, n_neurons):
    n = neurons_of(n_neurons, reset, w_rec=dyadic(n_neurons, n_neurons, seed=3))
    current = random(3, 20, n_neurons)
    expected = lif(current, torch.zeros(3, n_neurons), n.beta, n.threshold, reset, atan, w_rec=n.w_rec)
    for run in (scan, scan_loop):
        spikes, mem, last = run(current, n.initial_state(current), n)
        assert torch.equal(spikes, expected[0])
        assert torch.equal(mem, expected[1])
        assert torch.equal(last, torch.stack([mem[:, -1], spikes[:, -1]]))


def test_scan_fires_at_the_threshold_itself():
    n = LIFNeurons(torch.ones(1), torch.ones(1), "zero", atan)
    spikes, mem, _ = scan(torch.tensor([[[1.0], [0.5], [0.5]]]), torch.zeros(1, 1, 1), n)
    assert spikes.flatten().tolist() == [1, 0, 1]
    assert mem.flatten().tolist() == [0, 0.5, 0]


@pytest.mark.parametrize("recurrent", [False, True])
def test_scan_goes_on_from_its_last_state(recurrent):
    n = neurons_of(40, "subtraction", w_rec=random(40, 40, seed=3) / 4 if recurrent else None)
    current = random(3, 30, 40)
    whole = scan(current, n.initial_state(current), n)
    state, parts = n.initial_state(current), []
    for piece in current.split([1, 12, 17], 1):
        *out, state = scan(piece, state, n)
        parts.append(out)
    for k in range(2):
        assert torch.equal(torch.cat([p[k] for p in parts], 1), whole[k])
    assert torch.equal(state, whole[2])


@pytest.mark.parametrize("run", [scan, scan_loop])
@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("detach_reset", [False, True])
@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("recurrent", [False, True])
def test_scan_has_the_gradients_of_the_plain_loop(run, reset, detach_reset, floor, recurrent):
    shape = 6, 19, 37
    n = neurons_of(shape[2], reset, torch.float64)
    w_rec = random(37, 37, seed=3, dtype=torch.float64) / 4 if recurrent else None
    weight = random(3, *shape, seed=2, dtype=torch.float64)
    grads = []
    for function in (run, lif):
        inputs = random(*shape, dtype=torch.float64), random(6, 37, seed=1, dtype=torch.float64)
        leaves = [x.clone().requires_grad_() for x in (*inputs, n.beta, n.threshold, *([w_rec] if recurrent else []))]
        current, v0, beta, threshold, *w = leaves
        if function is lif:
            spikes, mem = lif(*leaves[:4], reset, atan, detach_reset, *w or [None], floor=floor)
            last = mem[:, -1][None] if not recurrent else torch.stack([mem[:, -1], spikes[:, -1]])
        else:
            neurons = LIFNeurons(beta, threshold, reset, atan, detach_reset, floor, *w)
            state = torch.stack([v0, torch.zeros_like(v0)][: 1 + recurrent])
            spikes, mem, last = run(current, state, neurons)
        (spikes * weight[0] + mem * weight[1]).sum().add((last * weight[2, 0, 0]).sum()).backward()
        grads.append([x.grad for x in leaves])
    for got, expected in zip(*grads, strict=True):
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("surrogate", [*SURROGATES.values(), partial(atan, slope=7.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scan_uses_the_surrogate_it_is_given(surrogate, dtype):
    n = neurons_of(6, "subtraction", dtype, surrogate)
    grads = []
    for run in (scan, scan_loop):
        current = (0.5 * random(2, 8, 6, dtype=dtype)).requires_grad_()
        run(current, n.initial_state(current), n)[0].sum().backward()
        grads.append(current.grad)
    assert grads[0].abs().max() > 0
    torch.testing.assert_close(*grads, rtol=1e-9 if dtype == torch.float64 else 1e-4, atol=1e-6)


def test_scan_takes_any_surrogate_that_is_a_function():
    grads = []
    for surrogate in (sigmoid, lambda x: sigmoid(x)):
        n = neurons_of(6, "subtraction", torch.float64, surrogate)
        current = random(2, 8, 6, dtype=torch.float64).requires_grad_()
        scan(current, n.initial_state(current), n)[0].sum().backward()
        grads.append(current.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    "lay", [lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), lambda x: x.mT.contiguous().mT,
            lambda x: torch.cat([x, x], 2)[:, :, :5], lambda x: x[:, :, :1].expand(3, 4, 5),
            lambda x: x[0, 0, 0].expand(3, 4, 5)]
)  # fmt: skip
def test_scan_accepts_currents_that_are_not_contiguous(lay):
    n = neurons_of(5, "zero")
    current = lay(random(3, 4, 5).abs())
    assert not current.is_contiguous()
    results = []
    for x in (current, current.contiguous()):
        x = x.detach().requires_grad_()
        spikes, mem, _ = scan(x, n.initial_state(x), n)
        mem.square().sum().backward()
        results.append((spikes, mem, x.grad))
    for got, expected in zip(*results, strict=True):
        assert torch.equal(got, expected)
    assert results[0][0].any()
    assert torch.equal(fire(current, n.initial_state(current), n, "float")[0], results[0][0].detach())


def test_scan_accepts_gradients_expanded_from_one_number():
    n = neurons_of(37, "subtraction", torch.float64)
    grads = []
    for loss in (lambda s, m: s.sum() + 2 * m.sum(), lambda s, m: (s * 1.0).add(m * 2.0).mul(torch.ones(37)).sum()):
        current = random(3, 20, 37, dtype=torch.float64).requires_grad_()
        loss(*scan(current, n.initial_state(current), n)[:2]).backward()
        grads.append(current.grad)
    assert torch.equal(*grads)


@pytest.mark.parametrize("shape", [(3, 300, 600), (3, 700, 1024)])  # the second is written past the caches
def test_scan_of_a_large_tensor_is_the_same_on_every_number_of_threads(shape):
    n, weight = neurons_of(shape[2], "subtraction"), random(2, *shape, seed=2)
    results = []
    for n_threads in (1, 3, None):
        before = torch.get_num_threads()
        torch.set_num_threads(n_threads or 1)
        try:
            current = random(*shape).requires_grad_()
            beta = n.beta.clone().requires_grad_()
            neurons = LIFNeurons(beta, n.threshold, n.reset, atan)
            if n_threads is None:
                out = lif(current, torch.zeros_like(current[:, 0]), beta, n.threshold, "subtraction", atan)
            else:
                out = scan(current, neurons.initial_state(current), neurons)[:2]
            sum((x * w).sum() for x, w in zip(out, weight, strict=True)).backward()
        finally:
            torch.set_num_threads(before)
        results.append((*out, current.grad, beta.grad))
    for one, three in zip(*results[:2], strict=True):
        assert torch.equal(one, three)
    for k in range(2):
        assert torch.equal(results[0][k], results[2][k])
    torch.testing.assert_close(results[0][2:], results[2][2:], rtol=1e-3, atol=1e-3)


def test_backward_takes_time_in_proportion_to_the_steps():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Bytes(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for t in out if isinstance(out, tuple | list) else [out]:
                self.total += t.numel() if isinstance(t, torch.Tensor) and func._schema.name != "aten::detach" else 0
            return out

    made = []
    for n_steps in (50, 100):
        n = neurons_of(8, "subtraction")
        current = random(2, n_steps, 8).requires_grad_()
        spikes, mem, _ = scan(current, n.initial_state(current), n)
        loss = (spikes.mean(1) + mem[:, 3]).sum()
        with Bytes() as counted:
            loss.backward()
        made.append(counted.total)
    assert made[0] > 800
    assert made[1] < 2.1 * made[0]


@pytest.mark.parametrize("n_steps", [1, 32, 33, 70])
@pytest.mark.parametrize("n_neurons", [5, 37])
def test_spikes_may_be_bytes_or_bits(n_steps, n_neurons):
    n = neurons_of(n_neurons, "zero", floor=True)
    current = random(3, n_steps, n_neurons)
    spikes, _, last = scan(current, n.initial_state(current), n)
    as_float, as_bytes, bits = (fire(current, n.initial_state(current), n, form) for form in ("float", "uint8", "bits"))
    assert torch.equal(as_float[0], spikes)
    assert as_bytes[0].dtype == torch.uint8
    assert torch.equal(as_bytes[0].float(), spikes)
    assert bits[0].dtype == torch.int32
    unpacked = np.unpackbits(bits[0].mT.contiguous().numpy().view(np.uint8), axis=-1, bitorder="little")
    assert (unpacked[:, :, :n_steps] == spikes.mT.numpy()).all()
    assert not unpacked[:, :, n_steps:].any()
    for _, other in (as_float, as_bytes, bits):
        assert torch.equal(other, last)


@pytest.mark.parametrize("per_word", [1, 32])
@pytest.mark.parametrize("n_steps", [1, 2, 33])
@pytest.mark.parametrize("n", [5, 8, 24])
def test_narrow_rows_write_nothing_beyond_their_sample(per_word, n_steps, n):
    current, state = random(2, n_steps, n).flatten().numpy(), np.zeros(2 * n, np.float32)
    spikes = np.full(2 * n_steps * n, 7, np.int32 if per_word == 32 else np.uint8)
    mem, last, n_words = np.full(2 * n_steps * n, 7, np.float32), np.full(2 * n, 7, np.float32), -(-n_steps // per_word)
    beta = threshold = np.full(n, 0.5, np.float32)
    given, out = (state, beta, threshold, 0, False, per_word), (spikes, mem, last)
    lif_forward_narrow(width_of(n))(current, (0, 1, 0, n, n_steps, n), (n_steps * n, n), *given, *out)
    for array, n_written in zip(out, (n_words * n, n_steps * n, n), strict=True):
        assert not (array[:n_written] == 7).any()
        assert (array[n_written:] == 7).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [8, 23, 24])
def test_membranes_that_are_written_past_the_caches_are_those_of_fewer_samples(n, dtype):
    n_samples = LARGE_MEM_NUMBERS // (1000 * n) + 2
    current, neurons = random(n_samples, 1000, n).to(dtype), neurons_of(n, "subtraction")
    neurons = replace(neurons, beta=neurons.beta.to(dtype), threshold=neurons.threshold.to(dtype), floor=True)
    whole = scan(current, neurons.initial_state(current), neurons)
    assert whole[1].numel() >= LARGE_MEM_NUMBERS
    for some in (slice(0, 1), slice(n_samples - 2, n_samples)):
        part = scan(current[some], neurons.initial_state(current[some]), neurons)
        assert torch.equal(part[0], whole[0][some]) and torch.equal(part[1], whole[1][some])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_currents_of_another_type_are_computed_with_as_one_of_betas(dtype):
    n, current = neurons_of(5, "zero"), (3 * random(2, 6, 5)).to(dtype)
    state = n.initial_state(current)
    for run in (scan, lambda *given: fire(*given, "float")):
        for found, expected in zip(run(current, state, n), run(current.float(), state, n), strict=True):
            assert found.dtype == torch.float32 and torch.equal(found, expected)


@pytest.mark.parametrize("plain", [True, False])
def test_gradients_of_gradients_are_refused(plain):
    n = neurons_of(5, "subtraction", torch.float64)
    current = random(2, 6, 5, dtype=torch.float64).requires_grad_()
    given = current, n.initial_state(current), n.beta, n.threshold, None, "subtraction", False, False, "atan", 2.0
    mem = (torch_ops.DirectScan.apply if plain else torch_ops.lif_scan)(*given)[1]
    (grad,) = torch.autograd.grad(mem.square().sum(), current, create_graph=True)
    with pytest.raises(RuntimeError, match="lif_scan_backward"):
        grad.sum().backward()


def test_spikes_alone_name_what_they_have_no_kernel_for():
    n, current = neurons_of(3, "zero"), random(2, 4, 3)
    with pytest.raises(OptionError) as error:
        fire(current, n.initial_state(current), n, "bit")
    assert str(error.value) == "unknown form 'bit'; choose one of: bits, float, uint8"
    recurrent = neurons_of(3, "zero", w_rec=torch.zeros(3, 3))
    with pytest.raises(BackendError) as error:
        fire(current, recurrent.initial_state(current), recurrent, "bits")
    assert str(error.value) == (
        "spikes without membranes have no kernel for neurons with recurrent weights; use nwcompile.nn.ops.scan.scan"
    )
    half = neurons_of(3, "zero", torch.bfloat16)
    with pytest.raises(BackendError, match="no kernel for beta of torch.bfloat16"):
        fire(current, half.initial_state(current), half, "bits")
    with pytest.raises(BackendError, match="no kernel for device 'meta'"):
        fire(current.to("meta"), n.initial_state(current), n, "bits")
