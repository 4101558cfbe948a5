"""The network classes of NWAVE's tutorial 3, with only the import line changed."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import BackendError, NwWarning
from tests.made.spikes import spike_tensor
from tests.made.tutorial import FAMILIES, net_of, tutorial_classes

X = spike_tensor(6, 30, 16, seed=1, rate=0.3)
CHIPS = {"lif": "tiny", "h1v1": "h1v1", "h1v2": "h1v2"}


@pytest.fixture(scope="module")
def tutorial(reference):
    return tutorial_classes(reference)


@pytest.mark.parametrize("family", FAMILIES)
def test_tutorial_net_gives_the_same_step_by_step_and_at_once(tutorial, family):
    net, x = net_of(tutorial, family), X
    out = net(x)
    assert 0.01 < out["spikes"][1].mean() < 0.9
    nn.prepare_net(net)
    s1, m1 = net.l1(net.s1(x))
    s2, m2 = net.l2(net.s2(s1))
    for found, expected in zip((*out["spikes"], *out["mem"]), (s1, s2, m1, m2), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_tutorial_net_trains_step_by_step_as_at_once(tutorial, family):
    x, y = X, torch.arange(6)
    losses, grads = [], []
    for way in ("steps", "at once"):
        net = net_of(tutorial, family)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            if way == "steps":
                mem = net.forward_cpu(x)["mem"][-1]
            else:
                nn.prepare_net(net)
                mem = net.l2(net.s2(net.l1(net.s1(x))[0]))[1]
            loss = F.cross_entropy(mem.mean(dim=1), y)
            loss.backward()
            grads.append(net.s1.weight.grad.clone())
            optimizer.step()
        losses.append(loss.item())
    assert grads[0].abs().sum() > 0
    torch.testing.assert_close(grads[0], grads[3], rtol=1e-4, atol=1e-6)
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_tutorial_porting_patterns(tutorial, family):
    net = net_of(tutorial, family)
    other = net_of(tutorial, family, seed=5)
    other.load_state_dict(net.state_dict(), strict=True)
    net(X)
    before, during = copy.deepcopy(net), net(X)["mem"][1]
    assert torch.equal(other(X)["mem"][1], during)
    assert torch.equal(before(X)["mem"][1], during)
    assert before.forward.__self__ is before
    if not torch.cuda.is_available():
        with pytest.raises(BackendError):
            copy.deepcopy(net).to_gpu()
        with pytest.raises(BackendError):
            tutorial[FAMILIES[family]](16, 24, 8, device="gpu")
        with pytest.raises(RuntimeError):
            net.forward_gpu(X)


@pytest.mark.parametrize("family", FAMILIES)
def test_tutorial_net_is_imported_and_compiled(tutorial, family):
    net, x = net_of(tutorial, family), X
    with pytest.warns(NwWarning, match="left out the membrane of layer 'l1' .* and the membrane of layer 'l2'"):
        network = nw.from_torch(net, x[:2].numpy())
    run = nw.simulate(network, x.numpy())
    with torch.no_grad():
        out = net(x)
    assert np.array_equal(run.spikes["l1"], out["spikes"][0].numpy())
    assert np.array_equal(run.spikes["l2"], out["spikes"][1].numpy())
    program = nw.compile(network, CHIPS[family], calibration=x.numpy())
    assert nw.crosscheck(program, x.numpy(), ("reference", "sequence")).agree
