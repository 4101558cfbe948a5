"""State and effective weights from one call to the next, and what backward passes may still reach."""

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError
from tests.made.tensors import random

SPENT = "a second backward pass reached weights or states that an earlier one has used up"


def net_of(family="lif", topology="FF", **options):
    torch.manual_seed(0)
    synapse, layer = {"lif": (nn.LIFSynapse, nn.LIFLayer), "h1v2": (nn.H1v2Synapse, nn.H1v2Layer)}[family]
    return torch.nn.Sequential(synapse(4, 12), layer(12, layer_topology=topology, **options))


@pytest.mark.parametrize("topology", ["FF", "RC"])
def test_generic_layers_may_go_on_after_a_backward_pass(topology):
    net = net_of("lif", topology, learn_taus=True, learn_thresholds=True)
    net(random(3, 9, 4))[1].sum().backward()
    net.zero_grad()
    net(random(3, 9, 4, seed=1))[1].sum().backward()
    truncated = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    nn.prepare_net(net)
    with torch.no_grad():
        net(random(3, 9, 4))
    net(random(3, 9, 4, seed=1))[1].sum().backward()
    for p, grad in zip(net.parameters(), truncated, strict=True):
        torch.testing.assert_close(p.grad, grad)
        assert grad.abs().sum() > 0


@pytest.mark.parametrize("topology", ["FF", "RC"])
def test_steps_give_every_parameter_the_gradient_of_the_sequence(topology):
    grads = []
    for lengths in ([12], [1] * 12, [5, 7]):
        net = net_of("lif", topology, learn_taus=True, learn_thresholds=True).double()
        x = random(3, 12, 4).double()
        parts = [net(piece[:, 0] if piece.shape[1] == 1 else piece) for piece in x.split(lengths, 1)]
        torch.cat([(spikes + mem).reshape(3, -1) for spikes, mem in parts], 1).sum().backward()
        grads.append({name: p.grad for name, p in net.named_parameters()})
    for name, grad in grads[0].items():
        assert grad.abs().sum() > 0, name
        for other in grads[1:]:
            torch.testing.assert_close(other[name], grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", ["lif", "h1v2"])
def test_a_second_backward_pass_through_the_same_steps_is_an_error(family):
    net = net_of(family)
    loss = net(random(3, 9, 4))[1].sum()
    loss.backward()
    with pytest.raises(ModelError, match=SPENT):
        loss.backward()


def test_a_backward_pass_into_steps_that_are_used_up_is_an_error():
    net = net_of()
    first = net(random(3, 4))[1]
    net(random(3, 4, seed=1))
    first.sum().backward()
    later = net(random(3, 4, seed=2))[1]
    with pytest.raises(ModelError, match=SPENT):
        later.sum().backward()
    nn.prepare_net(net)
    net(random(3, 4))[1].sum().backward()


def test_h1_net_trains_on_with_prepare_net_and_not_without():
    net = net_of("h1v2")
    for _ in range(3):
        nn.prepare_net(net)
        net(random(3, 9, 4))[1].sum().backward()
    with pytest.raises(ModelError, match=SPENT):
        net(random(3, 9, 4))[1].sum().backward()
    with torch.no_grad():
        net(random(3, 9, 4))


def test_prepare_net_reaches_layers_inside_other_modules():
    net = torch.nn.ModuleDict({"a": torch.nn.ModuleList([net_of()])})
    layer = net["a"][0][1]
    layer(random(3, 12))
    assert layer._kept is not None
    nn.prepare_net(net)
    assert layer._kept is None


def test_decay_follows_taus_that_were_changed_or_loaded():
    layer = nn.LIFLayer(3, taus=1e-3, dt=1e-3)
    current = torch.ones(1, 3)
    first = layer(current)[1]
    layer.load_state_dict({"taus": torch.full((3,), 5e-3), "thresholds": torch.full((3,), 9.0)})
    assert torch.equal(layer(current)[1], layer.beta * first + 1)
    nn.prepare_net(layer)
    layer.taus.data.fill_(2e-3)
    layer(current)
    assert torch.equal(layer(current)[1], layer.beta * current + 1)


def test_copies_keep_no_graph():
    net = net_of("h1v2", "RC")
    net(random(3, 9, 4))
    other = copy.deepcopy(net)
    assert other[0]._made == other[1]._made == {}
    assert not other[1]._kept.state.requires_grad
    assert net[1]._kept.state.requires_grad


def test_layers_follow_a_change_of_dtype():
    net = net_of("h1v2", "RC")
    x = (random(3, 9, 4) > 0).float()
    single = net(x)[1]
    net.double()
    nn.prepare_net(net[1])
    double = net(x.double())[1]
    assert double.dtype == net[1].build_neurons().beta.dtype == torch.float64
    torch.testing.assert_close(double[:, 0], single[:, 0].double(), rtol=1e-6, atol=1e-6)


def test_a_result_that_was_changed_in_place_is_torchs_error():
    net = net_of()
    spikes, mem = net(random(3, 9, 4))
    with torch.no_grad():
        mem.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        spikes.sum().backward()


@pytest.mark.parametrize("family", ["lif", "h1v2"])
def test_training_may_go_on_from_inference_mode(family):
    net, x = net_of(family, "RC"), random(3, 9, 4)
    with torch.inference_mode():
        net(x)
    mem = net(x)[1]
    mem.sum().backward()
    other = net_of(family, "RC")
    with torch.no_grad():
        other(x)
    assert torch.equal(other(x)[1], mem)
    assert net[0].weight.grad.abs().sum() > 0


def made_counted(synapse):
    """A list that has an entry for every time that the synapse makes its weights."""
    calls, make = [], synapse._make_weight
    synapse._make_weight = lambda spent: calls.append(spent) or make(spent)
    return calls


def test_weights_that_are_as_before_are_not_made_again_for_a_batch_without_gradients():
    synapse = nn.H1v2Synapse(4, 12, init=torch.full((4, 12), 0.25))
    calls, x = made_counted(synapse), random(3, 4)
    with torch.no_grad():
        first = synapse(x)
        nn.prepare_net(synapse)
        assert torch.equal(synapse(x), first) and len(calls) == 1
        nn.prepare_net(synapse)
        synapse.weight.data[2, 3] = 0.75  # of which torch's version counter knows nothing
        assert synapse.effective_weight()[2, 3] == 0.75 and len(calls) == 2
        nn.prepare_net(synapse)
        synapse.lif_threshold = 0.5
        assert synapse.effective_weight()[2, 3] == 1.5
    nn.prepare_net(synapse)
    synapse(x).sum().backward()
    assert synapse.weight.grad.abs().sum() > 0 and len(calls) == 4


def test_weights_that_were_handed_out_and_changed_are_right_in_the_next_batch():
    synapse = nn.H1v2Synapse(4, 12)
    with torch.no_grad():
        expected = synapse.effective_weight().clone()
        synapse.effective_weight().zero_()
        nn.prepare_net(synapse)
        assert torch.equal(synapse.effective_weight(), expected)


def test_mismatch_is_drawn_anew_for_every_batch_without_gradients():
    synapse, layer = nn.H1v2Synapse(4, 12, stddev=0.1), nn.H1v2Layer(12, ileak_mismatch=0.1, layer_topology="RC")
    found = []
    with torch.no_grad():
        for _ in range(3):
            nn.prepare_net(torch.nn.Sequential(synapse, layer), seed=1)
            found.append((synapse.effective_weight(), layer.build_neurons().beta))
    assert all(not torch.equal(a, b) for k in range(2) for a, b in zip(found[k], found[k + 1], strict=True))


def test_weights_under_annealing_are_made_anew_for_every_batch():
    synapse = nn.H1v2Synapse(4, 12, init=random(4, 12))
    with torch.no_grad():
        signed = synapse.effective_weight()
        annealing = nn.SignAnnealing(synapse, 3)
        found = [signed]
        for _ in range(2):
            nn.prepare_net(synapse)
            found.append(synapse.effective_weight())
            annealing.step()
        assert not torch.equal(found[0], found[1]) and not torch.equal(found[1], found[2])
        nn.prepare_net(synapse.eval())
        assert torch.equal(synapse.effective_weight(), signed)


def test_a_layer_follows_a_change_of_its_time_step():
    layer = nn.H1v1Layer(3, 2e-3, 1e-3)
    for dt in (1e-3, 4e-3):
        layer.dt = dt
        nn.prepare_net(layer)
        assert torch.equal(layer.build_neurons().beta, layer.beta)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("surrogate", ["fast_sigmoid", "eventprop"])
def test_a_checkpointed_network_has_the_gradients_of_the_network(surrogate, reentrant):
    net = torch.nn.Sequential(nn.DelayedLinear(4, 12, 3), nn.LIFLayer(12, learn_taus=True, surrogate=surrogate))
    x, grads = random(3, 9, 4).requires_grad_(), []

    def whole(x):
        nn.prepare_net(net)
        return net(x)[1]

    for mem in (whole(x), checkpoint(whole, x, use_reentrant=reentrant)):
        net.zero_grad()
        mem.square().sum().backward()
        grads.append([x.grad, *(p.grad for p in net.parameters())])
        x.grad = None
    for found, expected in zip(*grads, strict=True):
        assert torch.equal(found, expected) and expected.any()


@nw.neuron
def leaks(state, x):
    spike = nn.spike(0.9 * state.v + x)
    return {"v": (0.9 * state.v + x) * (1 - spike)}, spike


@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_that_kept_their_state_are_not_computed_again(reentrant):
    """Torch computes what is checkpointed twice, and the second time would begin where the first one ended."""
    layers = nn.LIFLayer(4), nn.Delay(4, 3), nn.ProgramLayer(leaks, 4)
    for layer, name in zip(layers, ("LIFLayer(4)", "Delay(4)", "ProgramLayer(leaks)"), strict=True):
        out = checkpoint(layer, random(3, 9, 4).requires_grad_(), use_reentrant=reentrant)
        with pytest.raises(ModelError) as error:
            (out[1] if isinstance(out, tuple) else out).sum().backward()
        assert str(error.value) == (
            f"{name}: computed again in a backward pass, as torch.utils.checkpoint does, but it would continue from "
            "the state of its last step; call nwcompile.nn.prepare_net(model) first in the function that is "
            "checkpointed, and give it all steps at once"
        )


def test_mismatch_is_not_drawn_anew_for_what_is_computed_again():
    layer, x = nn.H1v2Layer(4, ileak_mismatch=0.1), random(3, 9, 4).requires_grad_()

    def whole(x):
        nn.prepare_net(layer)
        return layer(x)[1]

    with pytest.raises(ModelError) as error:
        checkpoint(whole, x, use_reentrant=False).sum().backward()
    assert str(error.value) == (
        "H1v2Layer(4): computed again in a backward pass, as torch.utils.checkpoint does, its mismatch would "
        "change; do not checkpoint this layer"
    )
