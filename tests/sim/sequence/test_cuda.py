"""Exact integer inference on a GPU, as far as it can be tested without one; see also tests/gpu."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from tests.frontend.frameworks import framework

framework("triton")

from nwcompile.errors import BackendError  # noqa: E402
from nwcompile.flow import compile  # noqa: E402
from nwcompile.ir.chip import Chip  # noqa: E402
from nwcompile.ir.connection import Dense, Sparse  # noqa: E402
from nwcompile.ir.network import Network, Node  # noqa: E402
from nwcompile.ir.neuron import FixedPoint, NeuronSpec  # noqa: E402
from nwcompile.sim import simulate  # noqa: E402
from nwcompile.sim.sequence.cuda import device, product, synapses  # noqa: E402
from nwcompile.sim.sequence.cuda.inference import Inference  # noqa: E402
from nwcompile.sim.sequence.cuda.neurons import GpuNeurons  # noqa: E402
from nwcompile.sim.sequence.cuda.product import Product, ProductPlan, n_digits, split_digits  # noqa: E402
from tests.kernels.gpu.harness import interpreted_tests  # noqa: E402
from tests.long import EXAMPLES  # noqa: E402
from tests.made.nets import FIXED, dense_net  # noqa: E402

CPU = torch.device("cpu")
CASES = "tests/sim/sequence/cuda_cases.py"
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.mark.long
def test_cuda_equals_the_reference_on_many_random_programs(monkeypatch):
    monkeypatch.setenv("CUDA_EXAMPLES", str(EXAMPLES))
    interpreted_tests(CASES, timeout_s=1800)


@without_gpu
def test_cuda_without_a_gpu_is_refused():
    program = compile(dense_net(3, 4), Chip.load("tiny"))
    with pytest.raises(BackendError) as error:
        simulate(program, np.ones((1, 2, 3)), backend="sequence", device="cuda")
    assert str(error.value) == (
        f"device 'cuda' needs a GPU that torch can use, and torch {torch.__version__} finds none; use device='cpu'"
    )


@pytest.mark.parametrize("is_counted", [True, False])
def test_cuda_memory_that_is_too_small_is_refused(is_counted, monkeypatch):
    """Counted before a run that is not small: 4 neurons with a spike of a byte and two states; or found out in it."""
    monkeypatch.setattr(device, "SMALL_BYTES", 18_000 if is_counted else 18_001)
    memory = {"mem_get_info": (2 << 10, 1 << 40), "memory_reserved": 5 << 10, "memory_allocated": 4 << 10}
    for name, answer in memory.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())

    def run_out(*given):
        assert not is_counted
        raise torch.OutOfMemoryError("CUDA out of memory")

    inference = Inference(dense_net(3, 4), [["out"]], [0], CPU)
    inference.device = torch.device("cuda")
    monkeypatch.setattr(inference, "_run_group", run_out)
    with pytest.raises(BackendError) as error:
        inference.infer({}, (10, 50), keep_states=True)
    assert error.value.code == "NW1009" and str(error.value) == (
        "a run of 10 samples of 50 steps needs 17.6 KiB or more on device 'cuda', where 3 KiB are free; give fewer "
        "samples or steps, or use device='cpu'"
    )


def test_cuda_without_triton_is_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("nwcompile.sim.sequence.cuda.device.find_spec", lambda name: None)
    program = compile(dense_net(3, 4), Chip.load("tiny"))
    with pytest.raises(BackendError) as error:
        simulate(program, np.ones((1, 2, 3)), backend="sequence", device="cuda")
    assert str(error.value) == (
        "device 'cuda' needs Triton, which is not installed; pip install 'nwcompile[cuda]', or use device='cpu'"
    )


@pytest.mark.parametrize(
    "low, high, n", [(0, 0, 1), (-128, 127, 1), (0, 128, 2), (-129, 0, 2), (-32896, 32639, 2), (0, 32640, 3)]
)
def test_digits_hold_exactly_their_range(low, high, n):
    assert n_digits(low, high) == n
    parts = split_digits(np.array([low, high, (low + high) // 2]), n)
    assert all(-128 <= d.min() and d.max() <= 127 for d in parts)
    assert sum(d << 8 * i for i, d in enumerate(parts)).tolist() == [low, high, (low + high) // 2]


@pytest.mark.parametrize(
    "weight, high, way",
    [
        ([[127, -128]], 1, ProductPlan(0, 1, 1, False, 255)),
        ([[254, -256, 6]], 1, ProductPlan(1, 1, 1, False, 258)),  # Loihi's mantissas are even: one digit
        ([[254, -255]], 1, ProductPlan(0, 2, 1, False, 3 + 2 * 256)),
        ([[1, 1]], 200, ProductPlan(0, 1, 2, False, (2 * 128) * 257)),
        ([[0, 0]], 1, ProductPlan(0, 1, 1, False, 0)),
    ],
)
def test_product_way_is_the_narrowest_that_is_proved(weight, high, way):
    assert Product(np.array([weight]), CPU, "it").plan(0, high) == way


@pytest.mark.parametrize(
    "row, high, fits",
    [([129, -255], 1, True), ([256], 256, True), ([257], 1, False), ([129], 257, False),
     ([255] * 257 + [1], 256, True), ([255] * 257 + [2], 256, False)],
)  # fmt: skip
def test_product_in_bfloat16_only_up_to_its_bounds(row, high, fits, monkeypatch):
    """256 * 65536 is 2**24, the last sum that float32 holds with all before it."""
    monkeypatch.setattr(product, "has_bfloat16_sums", lambda device: True)
    assert Product(np.array([[row]]), CPU, "it").plan(0, high).in_bfloat16 == fits


def test_bfloat16_holds_every_number_that_it_is_used_for():
    numbers = torch.arange(-256, 257)
    assert torch.equal(numbers.to(torch.bfloat16).to(torch.int64), numbers)
    assert int(torch.tensor(257).to(torch.bfloat16)) != 257
    assert not product.has_bfloat16_sums(CPU)


def test_product_in_bfloat16_is_exact(monkeypatch):
    """With what the operator of a GPU does, in its place."""
    multiply = torch.mm

    def mm(a, b, out_dtype):
        assert a.dtype == b.dtype == torch.bfloat16 and out_dtype == torch.float32
        assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        return multiply(a.float(), b.float())

    monkeypatch.setattr(product, "has_bfloat16_sums", lambda device: True)
    monkeypatch.setattr(torch, "mm", mm)
    rng = np.random.default_rng(0)
    weight, x = rng.integers(-255, 256, (1, 9, 60)), rng.integers(-2, 256, (20, 60))
    weight[0, 0], x[0] = 255, 255
    given = Product(weight, CPU, "it")
    way, settings = given.plan(-2, 255), torch.backends.cuda.matmul
    for own in ((False, False), (True, True)):
        settings.allow_bf16_reduced_precision_reduction = own
        found = given(torch.from_numpy(x.astype(np.int32)), way)
        assert way.in_bfloat16 and np.array_equal(found.numpy(), x @ weight[0].T)
        kept = settings.allow_bf16_reduced_precision_reduction, settings.allow_bf16_reduced_precision_reduction_split_k
        assert kept == own


@pytest.mark.parametrize("n_rows, n_source, n_target", [(1, 1, 1), (16, 7, 9), (17, 16, 16), (40, 33, 31)])
@pytest.mark.parametrize("widest, high", [(127, 1), (128, 300), (1 << 22, 1 << 21)])
def test_product_is_exact(n_rows, n_source, n_target, widest, high):
    rng = np.random.default_rng(0)
    weight, x = (
        rng.integers(-widest, widest + 1, (2, n_target, n_source)),
        rng.integers(-high, high + 1, (n_rows, n_source)),
    )
    given = Product(weight, CPU, "it")
    way = given.plan(-high, high)
    for group in range(2):
        sums = given(torch.from_numpy(x.astype(np.int32)), way, group)
        assert np.array_equal(sums.numpy().astype(np.int64) << way.bits, x @ weight[group].T)


def refused(network: Network, **ranges: tuple[int, int]) -> str:
    names = list(network.layers)
    x = {name: torch.zeros((1, 1, *node.shape), dtype=torch.int32) for name, node in network.inputs.items()}
    delays = [c.aligned_delay for c in network.connections]
    with pytest.raises(BackendError) as error:
        Inference(network, [names], delays, CPU).infer(x, (1, 1), ranges=ranges)
    return str(error.value)


def test_cuda_refuses_sums_that_it_cannot_prove_exact():
    wide = Network.from_arrays({"a": FIXED}, [Dense("in", "a", np.full((1, 132_105), 127))], {"in": 132_105})
    assert refused(wide, **{"in": (0, 128)}) == (
        "connection 'in' -> 'a': sums of up to 2147498880 are beyond 2147483647, the most that device 'cuda' adds "
        "exactly here; use device='cpu'"
    )
    spec = NeuronSpec(fixed=FixedPoint(shift_bits=16), bias_u=1 << 40)
    many = Network.from_arrays({"a": spec}, [Dense("in", "a", np.full((1, 3), (1 << 24) + 1))], {"in": 3})
    assert refused(many, **{"in": (0, 1 << 22)}) == (
        "layer 'a': sums of up to 13907116473953812480 are beyond 4611686018427387903, the most that device 'cuda' "
        "adds exactly here; use device='cpu'"
    )


def test_cuda_gathers_for_more_targets_than_the_second_axis_of_a_grid_holds(monkeypatch):
    grids = []

    class Recorder:
        def __getitem__(self, grid):
            grids.append(grid)
            return lambda *arguments, **constants: None

    monkeypatch.setattr(synapses, "gather", Recorder())
    n = 64 * 65535 + 1
    edge = Sparse("in", "a", np.array([0]), np.array([n - 1]), np.array([1]))
    synapses.SparseSynapses(edge, n, CPU, "it").touched_targets(torch.ones((1, 1), dtype=torch.int8))
    assert grids == [(65536,)]


def neurons(**spec) -> GpuNeurons:
    return GpuNeurons(Node("a", (2,), NeuronSpec(**{"fixed": FixedPoint(24, 12, 6), "threshold": 100, **spec})), CPU)


def test_neurons_in_32_bits_only_where_every_value_fits():
    at = neurons(decay_u=1000)
    assert at.fits_32_bits(1 << 18) and not at.fits_32_bits((1 << 18) + 1)  # a drive of 2**24 wraps once
    most = ((1 << 31) - 1 - (1 << 23)) >> 6
    assert neurons().fits_32_bits(most) and not neurons().fits_32_bits(most + 1)  # a u that does not leak is the drive
    saturating = neurons(fixed=FixedPoint(24, 12, 6, "saturate"))
    assert saturating.fits_32_bits(most) and not saturating.fits_32_bits(most + 1)
    assert not neurons(bias_u=1 << 18, decay_u=1000).fits_32_bits(1)
    assert neurons(bias=1 << 30).fits_32_bits(1) and not neurons(bias=1 << 31).fits_32_bits(1)
    assert neurons(threshold=1 << 29).fits_32_bits(1) and not neurons(threshold=1 << 30).fits_32_bits(1)
    assert not neurons(reset="value", reset_value=np.array([0, -(1 << 31)])).fits_32_bits(1)
    assert neurons(fixed=FixedPoint(30, 12, 6)).fits_32_bits(1) and not neurons(fixed=FixedPoint(31)).fits_32_bits(1)


@pytest.mark.parametrize("decay_bits", [1, 12, 16])
def test_neurons_decay_by_the_upper_half_of_a_32_bit_product(decay_bits):
    """The identity that the kernel's `decay` rests on, at its ends."""
    k = np.unique(np.clip([0, 1, 2, (1 << decay_bits) - 1, 1 << decay_bits], 0, 1 << decay_bits))
    x = np.array([0, 1, 2, 3, 4095, 4096, 12345, (1 << 24) - 1, (1 << 30) - 1, 1 << 30])[:, None]
    keep = ((1 << decay_bits) - k).astype(np.uint64)
    upper = ((x.astype(np.uint64) << 1) * (keep << (31 - decay_bits))) >> 32
    assert (keep << (31 - decay_bits)).max() < 1 << 32 and np.array_equal(
        upper, x * keep.astype(np.int64) >> decay_bits
    )


@pytest.mark.parametrize(
    "spec, largest, left_in",
    [
        ({}, 131071, set()),  # a drive of 2**23 - 64, the last within the state
        ({}, 131072, {"OVERFLOW"}),
        ({"decay_u": np.array([4096, 4095])}, 1, {"LEAKS", "OVERFLOW"}),
        ({"refractory": 1}, 1, set()),
        ({"refractory": 2}, 1, {"REFRACTS"}),
        ({"v_min": -5}, 1, {"CLAMPS"}),
        ({"v_min": 1 << 23}, 1, {"CLAMPS", "RESATURATES"}),
        ({"reset": "value", "reset_value": (1 << 23) - 1}, 1, set()),
        ({"reset": "value", "reset_value": -(1 << 23)}, 1, {"RESATURATES"}),
        ({"reset": "subtract", "reset_timing": "next"}, 1, set()),
        ({"reset": "subtract", "reset_timing": "both"}, 1, {"RESATURATES"}),
        ({"reset": "subtract", "threshold": -1}, 1, {"RESATURATES"}),
    ],
)
def test_neurons_leave_out_only_what_has_no_effect(spec, largest, left_in):
    options = neurons(**spec).kernel_options(largest)
    found = {name for name in ("OVERFLOW", "LEAKS", "REFRACTS", "CLAMPS", "RESATURATES") if options[name]}
    assert found == left_in
