"""Exact integer inference on a GPU: the cases that are interpreted elsewhere, and what only a GPU can show."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU that torch can use", allow_module_level=True)
pytest.importorskip("triton", reason="triton is not installed")

from nwcompile.ir.connection import Dense  # noqa: E402
from nwcompile.ir.network import Network  # noqa: E402
from nwcompile.sim.runs import record_rows  # noqa: E402
from nwcompile.sim.sequence.cuda.device import find_gpu  # noqa: E402
from nwcompile.sim.sequence.cuda.inference import Inference  # noqa: E402
from nwcompile.sim.sequence.cuda.product import Product, has_bfloat16_sums  # noqa: E402
from nwcompile.sim.sequence.run import SequenceMachine, layer_groups  # noqa: E402
from tests.made.nets import FIXED, conv_net, dense_net  # noqa: E402
from tests.sim.sequence.cuda_cases import *  # noqa: E402, F403


@pytest.mark.parametrize("n_rows, n_source, n_target", [(5000, 512, 512), (300, 4097, 129), (17, 16, 16), (1, 8, 1)])
@pytest.mark.parametrize("widest, high", [(127, 1), (255, 1), (255, 200), (1 << 15, 127)])
def test_gpu_products_are_exact(n_rows, n_source, n_target, widest, high):
    """Sums as large as they can be: every weight of a row at its widest, every payload at its highest."""
    rng = np.random.default_rng(0)
    weight, x = (
        rng.integers(-widest, widest + 1, (1, n_target, n_source)),
        rng.integers(-1, high + 1, (n_rows, n_source)),
    )
    weight[0, 0], x[0] = widest, high
    given = Product(weight, find_gpu(), "it")
    way = given.plan(-1, high)
    sums = given(torch.from_numpy(x.astype(np.int32)).to(find_gpu()), way).to(torch.int64).cpu().numpy() << way.bits
    assert np.array_equal(sums, x @ weight[0].T)


def test_gpu_sums_in_bfloat16_are_among_them():
    if not has_bfloat16_sums(find_gpu()):
        pytest.skip("this torch or GPU cannot give a bfloat16 product as float32")
    assert Product(np.full((1, 16, 512), 255), find_gpu(), "it").plan(-1, 1).in_bfloat16


def equal_to_cpu(network: Network, x: np.ndarray) -> None:
    given, n_steps = {"in": x.astype(np.int32)}, x.shape[1]
    machines = (SequenceMachine(network, True, "aligned", n_steps, device) for device in ("cpu", "cuda"))
    cpu, cuda = (record_rows(machine, given, n_steps) for machine in machines)
    for name in network.layers:
        assert cpu[0][name].any() and np.array_equal(cpu[0][name], cuda[0][name]), name
        assert all(np.array_equal(cpu[1][name][s], cuda[1][name][s]) for s in "uv"), name
        assert np.array_equal(cpu[2][name], cuda[2][name]), name


def binary(*shape: int) -> np.ndarray:
    return (np.random.default_rng(1).random(shape) < 0.2).astype(np.int32)


@pytest.mark.parametrize("n", [8, *(pytest.param(n, marks=pytest.mark.real_gpu) for n in (100, 512, 4096))])
def test_gpu_equals_the_cpu_on_large_layers(n):
    """4096 x 10 lanes take the larger blocks."""
    weight = np.random.default_rng(2).integers(-127, 128, (n, n)).astype(np.int8)
    spec = FIXED.replace(threshold=60 << 6, reset="subtract", decay_v=300)
    equal_to_cpu(
        Network.from_arrays({"a": spec}, [Dense("in", "a", weight)], {"in": n}), binary(10, 500 if n < 4096 else 60, n)
    )


def test_gpu_equals_the_cpu_on_convolutions_and_loops():
    equal_to_cpu(conv_net((2, 20, 20), 16, 10, padding=1), binary(9, 40, 2, 20, 20))
    equal_to_cpu(dense_net(30, 300, 20, recurrent=True), binary(20, 100, 30))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_gpu_may_be_another_than_the_current_one():
    network, found = dense_net(30, 300, 20, recurrent=True), []
    delays = [c.aligned_delay for c in network.connections]
    for k in range(2):
        own = torch.device("cuda", k)
        x = {"in": torch.from_numpy(binary(20, 100, 30)).to(own)}
        found.append(Inference(network, layer_groups(network), delays, own).infer(x, (20, 100)))
    for name in network.layers:
        assert torch.equal(found[1].spikes[name].cpu(), found[0].spikes[name].cpu())
