import copy

import pytest
import torch

from nwcompile import nn


def net(stddev=0.1, leak=0.1):
    init = torch.full((4, 10), 0.25)
    return torch.nn.ModuleDict(
        {"s1": nn.H1v1Synapse(4, 10, stddev=stddev, init=init), "l1": nn.H1v1Layer(10, ileak_mismatch=leak),
         "s2": nn.H1v1Synapse(4, 10, stddev=stddev, init=init)}
    )  # fmt: skip


def factors(synapse):
    return (synapse(torch.eye(synapse.n_in)) / synapse.weight).detach()


def test_mismatch_is_off_by_default():
    synapse, layer = nn.H1v1Synapse(4, 10), nn.H1v1Layer(10)
    nn.prepare_net(torch.nn.ModuleList([synapse, layer]))
    assert torch.equal(factors(synapse), torch.ones(4, 10))
    assert layer.beta.unique().numel() == 1


def test_mismatch_multiplies_weights_by_numbers_around_one():
    synapse = nn.H1v2Synapse(200, 100, stddev=0.02, init=torch.full((200, 100), 0.5))
    nn.prepare_net(synapse, seed=1)
    found = factors(synapse)
    assert found.mean().item() == pytest.approx(1, abs=5e-4)
    assert found.std().item() == pytest.approx(0.02, rel=0.02)


def test_mismatch_of_the_leak_differs_from_neuron_to_neuron():
    layer = nn.H1v1Layer(20_000, 10e-3, 1e-3, ileak_mismatch=0.1)
    nn.prepare_net(layer, seed=1)
    rate = -layer.beta.log() * 10
    assert rate.mean().item() == pytest.approx(1, abs=3e-3)
    assert rate.std().item() == pytest.approx(0.1, rel=0.03)
    wide = nn.H1v1Layer(2000, ileak_mismatch=3.0)
    nn.prepare_net(wide, seed=1)
    assert wide.beta.max() == 1


def test_mismatch_is_drawn_anew_in_every_prepare_net_and_for_every_layer():
    model = net()
    drawn = []
    for _ in range(3):
        nn.prepare_net(model, seed=5)
        drawn += [factors(model["s1"]), factors(model["s2"])]
        assert torch.equal(factors(model["s1"]), drawn[-2])
        assert torch.equal(model["l1"].beta, model["l1"].beta)
    assert len({tuple(d.flatten().tolist()) for d in drawn}) == 6


def test_mismatch_follows_from_seed_name_and_call():
    models = net(), net()
    for call in range(2):
        for model in models:
            nn.prepare_net(model, seed=7)
        assert torch.equal(factors(models[0]["s2"]), factors(models[1]["s2"])), call
        assert torch.equal(models[0]["l1"].beta, models[1]["l1"].beta), call
    nn.prepare_net(models[0], seed=7)
    nn.prepare_net(models[1], seed=8)
    assert not torch.equal(factors(models[0]["s2"]), factors(models[1]["s2"]))


def test_mismatch_takes_torchs_seed_where_none_is_given():
    drawn = []
    for seed in (3, 3, 4):
        model = net()
        torch.manual_seed(seed)
        nn.prepare_net(model)
        drawn.append(factors(model["s1"]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_mismatch_is_the_same_in_a_copy_and_goes_on_there():
    model = net()
    nn.prepare_net(model, seed=1)
    before = factors(model["s1"])
    other = copy.deepcopy(model)
    assert torch.equal(factors(other["s1"]), before)
    for m in (model, other):
        nn.prepare_net(m, seed=1)
    assert torch.equal(factors(model["s1"]), factors(other["s1"]))
    assert not torch.equal(factors(model["s1"]), before)


def test_mismatch_is_absent_in_eval_mode_unless_asked_for():
    model = net().eval()
    nn.prepare_net(model, seed=1)
    assert torch.equal(factors(model["s1"]), torch.ones(4, 10))
    assert model["l1"].beta.unique().numel() == 1
    nn.prepare_net(model, seed=1, mismatch_in_eval=True)
    asked = factors(model["s1"])
    assert asked.unique().numel() == 40
    assert model["l1"].beta.unique().numel() == 10
    trained = net()
    for _ in range(2):
        nn.prepare_net(trained, seed=1)
    assert torch.equal(factors(trained["s1"]), asked)
    model.train()
    nn.prepare_net(model, seed=1)
    model.eval()
    assert torch.equal(factors(model["s1"]), torch.ones(4, 10))


def test_mismatch_is_a_constant_factor_of_the_gradient():
    synapse = nn.H1v1Synapse(4, 10, stddev=0.1)
    nn.prepare_net(synapse, seed=1)
    synapse(torch.ones(1, 4)).sum().backward()
    torch.testing.assert_close(synapse.weight.grad, factors(synapse), rtol=1e-5, atol=0)
    assert synapse.weight.grad.unique().numel() == 40
