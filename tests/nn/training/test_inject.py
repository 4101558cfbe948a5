"""Injected mismatch: in what layers, when it is drawn, and what training makes of it."""

import copy

import pytest
import torch

from nwcompile import ModelError, OptionError, from_torch, nn


def own():
    return torch.nn.ModuleDict({"s": nn.LIFSynapse(30, 40), "l": nn.LIFLayer(40, 10e-3, layer_topology="RC")})


def ordinary():
    torch.manual_seed(0)
    return nn.Sequential(torch.nn.Conv2d(1, 4, 3, bias=False), nn.LIFLayer(4 * 36, 10e-3), torch.nn.Flatten(),
                         torch.nn.Linear(144, 10), nn.LIFLayer(10, 10e-3))  # fmt: skip


def deviation(found, designed):
    return (found / designed - 1).detach()


def images(n_samples=2, n_steps=3):
    return (torch.rand(n_samples, n_steps, 1, 8, 8, generator=torch.Generator().manual_seed(0)) < 0.5).float()


def test_injected_mismatch_is_of_every_weight_threshold_and_leak():
    model = own()
    assert nn.inject_mismatch(model, weight=0.3, threshold=0.1, leak=0.2) is model
    nn.prepare_net(model, seed=1)
    synapse, layer = model["s"], model["l"]
    weights = deviation(synapse.effective_weight(), synapse.weight), deviation(layer.effective_w_rec(), layer.w_rec)
    for found in weights:
        assert found.unique().numel() > 0.99 * found.numel()
        assert found.std().item() == pytest.approx(0.3, rel=0.1)
    assert layer.effective_thresholds().std().item() == pytest.approx(0.1, rel=0.3)
    rate = -layer.beta.log() * 10
    assert rate.std().item() == pytest.approx(0.2, rel=0.3)
    neurons = layer.build_neurons()
    assert torch.equal(neurons.threshold, layer.effective_thresholds()) and torch.equal(neurons.beta, layer.beta)


def test_injected_mismatch_is_of_ordinary_layers_too():
    model = ordinary()
    designed = [p.detach().clone() for p in (model[0].weight, model[3].weight, model[3].bias)]
    nn.inject_mismatch(model, weight=0.3)
    nn.prepare_net(model, seed=1)
    for found, before in ((model[0].weight, designed[0]), (model[3].weight, designed[1])):
        assert deviation(found, before).std().item() == pytest.approx(0.3, rel=0.5)
    assert deviation(model[3].weight, designed[1]).std().item() == pytest.approx(0.3, rel=0.05)
    assert torch.equal(model[3].bias, designed[2])


def test_injected_mismatch_is_that_of_one_device_for_a_batch_and_of_another_for_the_next():
    model = nn.inject_mismatch(ordinary(), weight=0.3, threshold=0.1)
    drawn = []
    for _ in range(2):
        nn.prepare_net(model, seed=3)
        drawn.append(model[3].weight)
        assert model[3].weight is drawn[-1]
    assert not torch.equal(*drawn)
    again = nn.inject_mismatch(ordinary(), weight=0.3, threshold=0.1)
    nn.prepare_net(again, seed=3)
    assert torch.equal(again[3].weight, drawn[0])
    other = copy.deepcopy(again)
    assert torch.equal(other[3].weight, drawn[0])


def test_injected_mismatch_is_absent_in_eval_mode_unless_asked_for():
    model, plain = nn.inject_mismatch(ordinary(), weight=0.3, threshold=0.2, leak=0.2).eval(), ordinary().eval()
    for net in (model, plain):
        nn.prepare_net(net, seed=1)
    assert torch.equal(model(images())[1], plain(images())[1])
    nn.prepare_net(model, seed=1, mismatch_in_eval=True)
    nn.prepare_net(plain, seed=1)
    assert not torch.equal(model(images())[1], plain(images())[1])
    nn.prepare_net(model)
    assert from_torch(model, images()).hash == from_torch(ordinary(), images()).hash


def test_injected_mismatch_is_a_constant_factor_of_the_gradient():
    model = torch.nn.ModuleList([nn.LIFSynapse(5, 4), torch.nn.Linear(5, 4, bias=False)])
    before = [model[0].weight.detach().clone(), model[1].weight.detach().clone()]
    nn.inject_mismatch(model, weight=0.3)
    parameters = list(model.parameters())
    nn.prepare_net(model, seed=1)
    (model[0](torch.ones(1, 5)).sum() + model[1](torch.ones(1, 5)).sum()).backward()
    for found, parameter, designed in zip((model[0].effective_weight(), model[1].weight), parameters, before,
                                          strict=True):  # fmt: skip
        torch.testing.assert_close(parameter.grad, found.detach() / designed)


def test_injected_mismatch_of_thresholds_lets_them_learn():
    layer = nn.LIFLayer(6, 10e-3, learn_thresholds=True)
    nn.inject_mismatch(layer, threshold=0.2)
    for _ in range(2):
        nn.prepare_net(layer, seed=1)
        layer(torch.full((2, 4, 6), 0.4))[0].sum().backward()
    assert layer.thresholds.grad.abs().min() > 0


def test_injected_mismatch_trains_in_plain_loops_step_by_step():
    model = nn.inject_mismatch(torch.nn.ModuleList([torch.nn.Linear(8, 4), nn.LIFLayer(4, 10e-3)]), weight=0.3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = model[0].parametrizations.weight.original.detach().clone()
    for _ in range(2):
        nn.prepare_net(model, seed=1)
        out = sum(model[1](model[0](torch.ones(2, 8)))[1] for _ in range(3))
        optimizer.zero_grad()
        out.sum().backward()
        optimizer.step()
    assert not torch.equal(model[0].parametrizations.weight.original, before)


def test_injected_mismatch_is_taken_back_with_0():
    model, names = ordinary(), list(ordinary().state_dict())
    parameters = list(model.parameters())
    nn.inject_mismatch(model, weight=0.3, leak=0.1)
    assert {id(p) for p in model.parameters()} == {id(p) for p in parameters}
    assert list(model.state_dict()) != names
    nn.inject_mismatch(model, weight=0.2)
    nn.inject_mismatch(model, weight=0)
    assert sorted(model.state_dict()) == sorted(names) and type(model[3]) is torch.nn.Linear
    assert model[1].mismatches["leak"].deviation == 0.1
    nn.inject_mismatch(model, leak=0)
    model(images())


def test_injected_mismatch_replaces_that_of_an_h1_layer():
    model = torch.nn.ModuleList([nn.H1v2Synapse(20, 50, stddev=0.02), nn.H1v2Layer(50, layer_topology="RC")])
    nn.inject_mismatch(model, weight=0.3, leak=0.1)
    nn.prepare_net(model, seed=1)
    assert deviation(model[0].effective_weight(), model[0].weight).std().item() == pytest.approx(0.3, rel=0.1)
    assert deviation(model[1].effective_w_rec(), model[1].w_rec).std().item() == pytest.approx(0.3, rel=0.1)
    assert model[1].beta.unique().numel() == 50


def test_injected_mismatch_waits_for_prepare_net():
    model = nn.inject_mismatch(torch.nn.Sequential(torch.nn.Linear(3, 2)), weight=0.1)
    with pytest.raises(ModelError) as error:
        model(torch.ones(1, 3))
    assert str(error.value) == (
        "0 (Linear): its mismatch is not drawn yet; call nwcompile.nn.prepare_net(model) before the forward pass of "
        "every batch"
    )


@pytest.mark.parametrize(
    "given, kind, text",
    [
        ({"weight": -0.1}, OptionError,
         "weight=-0.1 must be a number from 0 to 1: a standard deviation as a part of the value, 0.1 for 10 %"),
        ({"leak": float("nan")}, OptionError,
         "leak=nan must be a number from 0 to 1: a standard deviation as a part of the value, 0.1 for 10 %"),
        ({"threshold": 0.1}, ModelError, "threshold=0.1: the model has no LIFLayer whose threshold could deviate"),
        ({"leak": 0.1}, ModelError, "leak=0.1: the model has no LIFLayer whose leak could deviate"),
    ],
)  # fmt: skip
def test_injected_mismatch_out_of_range_or_without_a_place_is_refused(given, kind, text):
    with pytest.raises(kind) as error:
        nn.inject_mismatch(torch.nn.Linear(3, 2), **given)
    assert str(error.value) == text
    with pytest.raises(ModelError) as error:
        nn.inject_mismatch(torch.nn.Flatten(), weight=0.1)
    assert str(error.value) == ("weight=0.1: the model has no Linear, Conv or LIFSynapse whose weight could deviate")


@pytest.mark.parametrize("is_part", [False, True])
def test_injected_mismatch_is_refused_where_integers_are_trained(is_part):
    module = nn.quantize_aware(torch.nn.Sequential(torch.nn.Linear(3, 2), nn.LIFLayer(2, 10e-3)), "tiny")
    with pytest.raises(ModelError) as error:
        nn.inject_mismatch(torch.nn.Sequential(torch.nn.Linear(3, 3), module) if is_part else module, weight=0.1)
    assert str(error.value) == (
        f"{'1' if is_part else 'the model'} (QuantizedNetwork) computes the integers of the compiled program, which "
        "cannot deviate; inject into the float model that nn.quantize_aware is given, train it, and take the mismatch "
        "back with weight=0 before nn.quantize_aware; nwcompile robustness measures the result on devices"
    )


def test_injected_mismatch_that_is_refused_leaves_the_model_as_it_was():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    with pytest.raises(ModelError):
        nn.inject_mismatch(model, weight=0.1, threshold=0.1)
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
