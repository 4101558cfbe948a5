"""A GPU that is only pretended: a pytest plugin with which tests/gpu runs without one.

Tensors stay on the CPU, and every kernel runs in Triton's interpreter. It shows errors of names, arguments and shapes.
It cannot show what a GPU computes: a test marked `real_gpu` is left out. `harness.run_on_pretended_gpu` uses it.
"""

import math
from contextlib import nullcontext

import torch

CPU = torch.device("cpu")
LANES = 1024  # of a program
ANSWERS = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_capability": (9, 0),
    "synchronize": None,
    "device": nullcontext(),
}


def on_cpu(value):
    """Return a device of the CPU for one of a GPU; any other value unchanged."""
    is_gpu = str(value).startswith("cuda") if isinstance(value, str | torch.device) else False
    return CPU if is_gpu else value


class OnCpu(torch.overrides.TorchFunctionMode):
    """Every torch function takes "cuda" for the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*map(on_cpu, args), **{name: on_cpu(value) for name, value in (kwargs or {}).items()})


def pytest_configure() -> None:
    """Pretend a GPU from now on, before a test module is imported."""
    from nwcompile.nn.ops import gpu, scan, torch_ops
    from nwcompile.sim.sequence.cuda import device, neurons

    for name, answer in ANSWERS.items():
        setattr(torch.cuda, name, lambda *given, answer=answer: answer)
    torch.Tensor.cuda = lambda tensor: tensor
    move = torch.nn.Module.to
    torch.nn.Module.to = lambda module, *given: move(module, *map(on_cpu, given))
    OnCpu().__enter__()
    for module in (torch_ops, scan):
        module.select_kernels = lambda tensor: gpu
    has_kernel = scan.has_kernel
    scan.has_kernel = lambda current, own: (
        has_kernel(current, own) and (own.w_rec is None or len(own.w_rec) <= scan.MAX_RECURRENT_NEURONS)
    )
    device.find_gpu = lambda: CPU
    # The interpreter takes as long for one lane as for many, and for each step that is written out.
    gpu.FORWARD = ((math.inf, gpu.Launch(LANES, 2, 1)),)
    gpu.BACKWARD = ((math.inf, gpu.Backward(LANES, 2, 1, True)),)
    neurons.block_of = lambda n_lanes: LANES
    neurons.AHEAD_STEPS = 2


def pytest_collection_modifyitems(config, items) -> None:
    """Leave out the tests that need a real GPU."""
    real = [item for item in items if item.get_closest_marker("real_gpu")]
    config.hook.pytest_deselected(items=real)
    items[:] = [item for item in items if item not in real]
