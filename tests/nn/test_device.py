import sys
from types import SimpleNamespace

import pytest
import torch

import nwcompile.nn
from nwcompile.errors import BackendError, OptionError
from nwcompile.nn import cpu
from nwcompile.nn.device import kernels, torch_device


def test_kernels_of_a_device_name_triton_where_it_is_missing(monkeypatch):
    assert kernels(torch.zeros(1)) is cpu
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delattr(nwcompile.nn, "gpu", raising=False)
    for name in [
        name for name in sys.modules if name == "nwcompile.nn.gpu" or name.startswith("nwcompile.kernels.gpu_")
    ]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(nwcompile.kernels, name.rpartition(".")[2], raising=False)
    with pytest.raises(BackendError) as error:
        kernels(SimpleNamespace(device=torch.device("cuda")))
    assert str(error.value) == (
        "the GPU kernels need triton (import of triton halted; None in sys.modules); pip install 'nwcompile[cuda]'"
    )


def test_devices_are_named():
    assert torch_device("cpu") == torch.device("cpu")
    with pytest.raises(OptionError) as error:
        torch_device("gpus")
    assert str(error.value) == "unknown device 'gpus'; choose one of: gpu, cpu, cuda"
