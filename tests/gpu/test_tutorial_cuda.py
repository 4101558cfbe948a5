"""The tutorial's networks with only the import line changed, on a GPU: parity, porting, benchmark, training."""

import copy
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F

if not torch.cuda.is_available():
    pytest.skip("no GPU that torch can use", allow_module_level=True)

from tests.made.spikes import spike_tensor
from tests.made.tutorial import FAMILIES, net_of, tutorial_classes

FUNCTIONS = ("benchmark_inference_ms", "random_data", "train_one_step", "get_time")
X = spike_tensor(6, 30, 16, seed=1, rate=0.3)


@pytest.fixture(scope="module")
def tutorial(reference):
    return tutorial_classes(reference)


@pytest.fixture
def functions(reference):
    """The tutorial's own functions that time and train."""
    text = (reference.parent / "seeds" / "nwave-tutorial-3.txt").read_text()
    space = {"torch": torch, "time": time, "F": F, "np": np}
    for name in FUNCTIONS:
        lines = text[text.index(f"def {name}(") :].splitlines()
        end = next(k for k, line in enumerate(lines) if k and line and not line.startswith((" ", ")")))
        exec("\n".join(lines[:end]), space)
    return space


@pytest.mark.parametrize("family", FAMILIES)
def test_parity_of_the_tutorials_nets(tutorial, family):
    net, x = net_of(tutorial, family), X
    with torch.no_grad():
        on_cpu = net.forward(x)
        moved = net.to_gpu()
        on_gpu = moved.forward(x)
    assert moved is net and net.device_flag == "gpu"
    for name in ("spikes", "mem"):
        for one, other in zip(on_cpu[name], on_gpu[name], strict=True):
            assert torch.equal(one, other.cpu())


@pytest.mark.parametrize("family", FAMILIES)
def test_porting_of_the_tutorials_nets(tutorial, family):
    net, x = net_of(tutorial, family), X
    on_gpu = tutorial[FAMILIES[family]](16, 24, 8, device="gpu")
    on_gpu.load_state_dict(net.state_dict(), strict=True)
    net.load_state_dict(on_gpu.state_dict(), strict=True)
    copied = copy.deepcopy(net).to_gpu()
    assert net.device_flag == "cpu" and copied is not net
    expected = net(x)["mem"][1]
    assert torch.equal(on_gpu(x)["mem"][1].cpu(), expected)
    assert torch.equal(net(x)["mem"][1], expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_benchmark_and_training_of_the_tutorials_nets(tutorial, functions, family):
    batches = functions["random_data"](4, 8, 20, 16, 8)
    losses = []
    for backend in ("cpu", "gpu"):
        net = net_of(tutorial, family)
        if backend == "gpu":
            net = net.to_gpu()
        assert functions["benchmark_inference_ms"](net, X, backend, warmup=1, runs=2) > 0
        losses.append(functions["get_time"](net, backend, batches, warmup_steps=1)[1])
    assert losses[1] == pytest.approx(losses[0], abs=1e-3)
