"""from_torch of rockpool's torch modules against the modules: 0 spikes differ."""

import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError
from tests.frontend.frameworks import framework

pytestmark = pytest.mark.filterwarnings("ignore")
modules = framework("rockpool.nn.modules")
combinators = framework("rockpool.nn.combinators")
LIF = {"tau_mem": 0.02, "tau_syn": 0.01, "dt": 1e-3}


def stack(**options):
    """Two layers of LIFTorch."""
    first, last = (modules.LIFTorch(n, **LIF, **options) for n in (12, 5))
    return combinators.Sequential(
        modules.LinearTorch((8, 12), has_bias=True), first, modules.LinearTorch((12, 5)), last
    )


def run_module(module, x):
    """Return the module's output from a fresh state."""
    for part in torch.nn.Module.modules(module):
        if hasattr(part, "reset_state"):
            part.reset_state()
    result = module(x)
    return (result if isinstance(result, torch.Tensor) else result[0]).detach()


def test_every_spike_of_rockpool_is_the_modules():
    torch.manual_seed(2)
    module = stack()
    inputs = [(torch.rand(3, 30, 8) < share).float() for share in (0.1, 0.4)] + [torch.randn(3, 30, 8)]
    expected = [run_module(module, x) for x in inputs]
    states = [b.clone() for b in torch.nn.Module.buffers(module)]
    network = nw.from_torch(module, inputs[0][:, :8])  # the state of the last run is left in the module
    assert all(map(torch.equal, states, torch.nn.Module.buffers(module)))
    for x, output in zip(inputs, expected, strict=True):
        assert output.sum() > 10
        assert (torch.from_numpy(nw.simulate(network, x.numpy()).output) != output).sum() == 0


def test_noise_of_rockpool_is_refused_with_a_way_out():
    with pytest.raises(ModelError, match=r"randn draws random numbers.*; or export the network with rockpool\.nn\.mod"):
        nw.from_torch(stack(noise_std=0.1), torch.rand(2, 8, 8))
