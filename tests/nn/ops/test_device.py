import sys
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import nwcompile.nn
from nwcompile.errors import BackendError, OptionError
from nwcompile.nn.ops import cpu, torch_ops
from nwcompile.nn.ops.device import torch_device
from nwcompile.nn.ops.scan import FORMS
from nwcompile.nn.ops.torch_ops import select_kernels


def test_kernels_of_a_device_name_triton_where_it_is_missing(monkeypatch):
    assert select_kernels(torch.zeros(1)) is cpu
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delattr(nwcompile.nn.ops, "gpu", raising=False)
    for name in [
        name for name in sys.modules if name == "nwcompile.nn.ops.gpu" or name.startswith("nwcompile.kernels.gpu.")
    ]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(nwcompile.kernels.gpu, name.rpartition(".")[2], raising=False)
    with pytest.raises(BackendError) as error:
        select_kernels(SimpleNamespace(device=torch.device("cuda")))
    assert str(error.value) == (
        "the GPU kernels need triton (import of triton halted; None in sys.modules); pip install 'nwcompile[cuda]'"
    )


def test_operations_on_a_gpu_are_known_by_shape_and_type():
    with FakeTensorMode():
        current = torch.empty(3, 40, 7, dtype=torch.bfloat16, device="cuda")
        state, of_neuron = torch.empty((1, 3, 7), device="cuda"), torch.empty(7, device="cuda")
        neurons, rule = (state, of_neuron, of_neuron), ("zero", False)
        results = (
            *torch_ops.lif_scan(current, *neurons, None, *rule, False, "atan", 2.0)[:2],
            *(torch_ops.lif_fire(current, *neurons, *rule, form)[0] for form in FORMS),
        )
    as_float, spikes, bits = ((3, 40, 7), torch.float32), ((3, 40, 7), torch.uint8), ((3, 2, 7), torch.int32)
    expected = [as_float, as_float, as_float, spikes, bits]
    assert [(tuple(x.shape), x.dtype) for x in results] == expected
    assert {x.device.type for x in results} == {"cuda"}


def test_devices_are_named():
    assert torch_device("cpu") == torch.device("cpu")
    with pytest.raises(OptionError) as error:
        torch_device("gpus")
    assert str(error.value) == "unknown device 'gpus'; choose one of: gpu, cpu, cuda"
