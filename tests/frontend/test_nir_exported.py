"""NIR files that frameworks write here and now: what from_nir makes of them spikes as the framework's own module does.

As `test_nir_reference`, for those who lack the reference folder: nets are small, weights random, files made here.
"""

import warnings

import nir
import numpy as np
import pytest
import torch

from nwcompile.sim import simulate
from tests.frontend.frameworks import framework
from tests.made.nir_files import first_difference, imported, options

SIZES = (20, 16, 8)
DT = 1e-4


def linears() -> list[torch.nn.Linear]:
    made = [torch.nn.Linear(n, m, bias=False) for n, m in zip(SIZES, SIZES[1:], strict=False)]
    for linear in made:
        linear.weight.data.abs_().mul_(3)
    return made


def snntorch():
    snn, export = framework("snntorch"), framework("snntorch.export_nir").export_to_nir
    first, second = linears()
    layers = [
        snn.Leaky(torch.full((n,), beta), threshold=torch.full((n,), threshold), init_hidden=True)
        for n, beta, threshold in zip(SIZES[1:], (0.9, 0.8), (1.0, 0.5), strict=True)
    ]
    module = torch.nn.Sequential(first, layers[0], second, layers[1])
    return module, lambda x: export(module, x[0, 0]), {"reset": "subtract", "reset_delay": True, "dt": DT}


def norse():
    torch_norse = framework("norse.torch")
    first, second = linears()
    cells = [
        torch_norse.LIFBoxCell(
            torch_norse.LIFBoxParameters(
                tau_mem_inv=torch.full((n,), rate), v_th=torch.ones(n), v_leak=torch.zeros(n), v_reset=torch.zeros(n)
            )
        )
        for n, rate in zip(SIZES[1:], (100.0, 200.0), strict=True)
    ]
    module = torch_norse.SequentialState(first, cells[0], second, cells[1])
    return module, lambda x: torch_norse.to_nir(module, x[0]), {"dt": 1e-3}


def sinabs():
    layers, export = framework("sinabs.layers"), framework("sinabs.nir").to_nir
    first, second = linears()
    module = torch.nn.Sequential(first, layers.IAF(), second, layers.IAF())
    return module, lambda x: export(module, x.swapaxes(0, 1)), {"reset": "subtract", "spike_fn": "MultiSpike"}


def spikingjelly():
    neuron = framework("spikingjelly.activation_based.neuron")
    export = framework("spikingjelly.activation_based.nir_exchange").export_to_nir
    first, second = linears()
    module = torch.nn.Sequential(first, neuron.LIFNode(4.0), second, neuron.IFNode())
    return module, lambda x: export(module, x[0], dt=DT), {"dt": DT}


def spikes_of(module: torch.nn.Module, x: torch.Tensor, takes_all_steps: bool) -> list[np.ndarray]:
    """What both layers of neurons give for `[T, B, N]`, as `[B, T, N]` each."""
    given: list[list[np.ndarray]] = [[], []]
    for layer, record in zip((module[1], module[3]), given, strict=True):
        layer.register_forward_hook(
            lambda _, __, result, record=record: record.append(
                (result[0] if isinstance(result, tuple) else result).detach().numpy()
            )
        )
    with torch.no_grad():
        if takes_all_steps:
            module(x.swapaxes(0, 1))
            return [record[0] for record in given]
        state = None
        for step in x:
            result = module(step, state) if hasattr(module, "stateful_layers") else module(step)
            state = result[1] if isinstance(result, tuple) else None
    return [np.stack(record, 1) for record in given]


@pytest.mark.parametrize("make", [snntorch, norse, sinabs, spikingjelly], ids=lambda make: make.__name__)
def test_exported_file_spikes_as_the_module_does(make, tmp_path):
    torch.manual_seed(3)
    x = (torch.rand(30, 2, SIZES[0]) < 0.3).float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the framework are its own affair
        module, export, meta = make()
        nir.write(tmp_path / "net.nir", export(x))
        module = make_again(make)
        expected = spikes_of(module, x, make is sinabs)
    network = imported(tmp_path / "net.nir", **options(make.__name__, meta))
    run = simulate(network, x.numpy().swapaxes(0, 1))
    assert len(network.layers) == 2 and all(spikes.any() for spikes in expected)
    for layer, spikes in zip(network.layers, expected, strict=True):
        assert first_difference(run.spikes[layer], spikes) == "", layer


def make_again(make) -> torch.nn.Module:
    """The same module without what the export has left in it, such as states."""
    torch.manual_seed(3)
    torch.rand(30, 2, SIZES[0])
    return make()[0]
