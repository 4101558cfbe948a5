"""Pruning: as many zeros as asked for, the smallest first, which stay through training and vanish from the chip."""

import copy

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.connection import Dense, Sparse
from nwcompile.sim import simulate
from tests.made.chips import small_chip


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        torch.nn.Linear(10, 8), nn.LIFLayer(8), nn.LIFSynapse(8, 6), nn.LIFLayer(6, layer_topology="RC")
    )


def zeros(model: torch.nn.Module) -> list[int]:
    return [int((w == 0).sum()) for w in (model[0].weight, model[2].weight, model[3].w_rec)]


def spikes_in() -> torch.Tensor:
    return (torch.rand(3, 8, 10, generator=torch.Generator().manual_seed(1)) < 0.5).float()


def trained(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(3):
        nn.prepare_net(model)
        loss = nn.firing_rate_target_mse_loss(model(spikes_in())[0], 0.5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_prune_takes_the_smallest_weights_of_each_layer():
    model = net()
    before = [w.detach().clone() for w in (model[0].weight, model[2].weight, model[3].w_rec)]
    assert nn.prune(model, 0.75) == pytest.approx(0.75)
    assert zeros(model) == [60, 36, 27]
    for was, now in zip(before, (model[0].weight, model[2].weight, model[3].w_rec), strict=True):
        kept = now != 0
        assert torch.equal(now[kept], was[kept])
        assert was[kept].abs().min() > was[~kept].abs().max()


def test_prune_together_compares_all_weights_with_each_other():
    model = net()
    with torch.no_grad():
        model[2].weight *= 100
        model[3].w_rec *= 100
    assert nn.prune(model, 0.5, together=True) == pytest.approx(82 / 164)
    assert zeros(model)[0] == 80 and sum(zeros(model)) == 82


def test_prune_takes_named_weights_alone():
    model = net()
    assert nn.prune(model, {"2.weight": 0.5}) == 0.5
    assert zeros(model) == [0, 24, 0]


def test_pruned_weights_stay_zero_in_training_with_the_optimizer_of_before():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=0.01)
    trained(model, optimizer)  # so that it has momentum
    nn.prune(model, 0.75)
    before, at_zero = model[0].weight.detach().clone(), model[0].weight == 0
    trained(model, optimizer)
    assert zeros(model) == [60, 36, 27]
    assert torch.equal(model[0].weight == 0, at_zero)
    assert not torch.equal(model[0].weight, before)


def test_prune_again_takes_more_and_gives_nothing_back():
    model = net()
    nn.prune(model, 0.5)
    first = model[0].weight == 0
    nn.prune(model, 0.25)
    assert torch.equal(model[0].weight == 0, first)
    assert nn.prune(model, 0.9) == pytest.approx(0.9, abs=0.01)
    assert bool((model[0].weight == 0)[first].all())


def test_finish_pruning_leaves_plain_weights_and_a_plain_state():
    model = net()
    nn.prune(model, 0.5)
    pruned = copy.deepcopy(model)
    nn.finish_pruning(model)
    assert sorted(model.state_dict()) == sorted(net().state_dict())
    assert zeros(model) == [40, 24, 18]
    assert zeros(pruned) == [40, 24, 18] and "0.parametrizations.weight.original" in pruned.state_dict()
    nn.finish_pruning(model)  # nothing left to do


def test_prune_leaves_other_parametrizations_in_place():
    model = net()
    torch.nn.utils.parametrizations.weight_norm(model[0])
    assert nn.prune(model, 0.5) == 0.5
    assert zeros(model) == [40, 24, 18]
    at_zero = model[0].weight == 0
    trained(model, torch.optim.Adam(model.parameters(), lr=0.05))
    assert torch.equal(model[0].weight == 0, at_zero)
    plain = torch.nn.Sequential(torch.nn.Linear(3, 3))
    torch.nn.utils.parametrizations.weight_norm(plain[0])
    nn.finish_pruning(plain)
    assert torch.nn.utils.parametrize.is_parametrized(plain[0], "weight")


def test_a_pruned_network_compiles_to_lists_that_hold_and_read_no_zero():
    model = net()
    nn.prune(model, 0.75)
    network = nw.from_torch(model, spikes_in()[:1])
    assert [type(c) for c in network.connections] == [Dense] * 3
    program = nw.compile(network, small_chip(), spikes_in().numpy())
    assert [type(c) for c in program.network.connections] == [Sparse] * 3
    assert [np.size(c.weight) for c in program.network.connections] == [20, 12, 9]
    assert program.axons.synops.sum(0).tolist() == [0, 41, 0]
    rows = simulate(program, spikes_in().numpy(), "cycle")
    assert rows.counters["synops_dense"].sum() == 0
    every = simulate(program, spikes_in().numpy(), "reference")
    assert all(np.array_equal(rows.spikes[name], every.spikes[name]) for name in rows.spikes)


def test_wrong_use_of_prune_is_one_sentence():
    for call, error, text in (
        (lambda: nn.prune(net(), {"fc": 0.5}), ModelError,
         "prune: Sequential has no weights 'fc'; it has 0.weight, 2.weight, 3.w_rec"),
        (lambda: nn.prune(net(), 1.0), OptionError, "prune: sparsity 1.0 of '0.weight' must be at least 0 and below 1"),
        (lambda: nn.prune(torch.nn.ReLU(), 0.5), ModelError, "prune: ReLU has no parameter with two axes or more"),
        (lambda: nn.prune(net(), {"2.weight": 0.5}, together=True), OptionError,
         "prune: together takes one sparsity for all weights, not one for each"),
    ):  # fmt: skip
        with pytest.raises(error) as e:
            call()
        assert str(e.value) == text
