"""Dynamic sparse training: the budget of a chip holds in every round, and synapses grow where the methods say."""

from itertools import product
from math import ceil

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError, OptionError
from nwcompile.nn.training.sparse_training import GROWN

LIF = {"taus": 20e-3, "thresholds": 0.5, "reset_mechanism": "zero", "dt": 1e-3}
LOIHI1 = nw.Chip.load("loihi1")
BITS = 6000  # Of a core; all weights of `net` take 8192 on each of two.


def net(n_in: int = 20, n_hidden: int = 48, n_out: int = 4, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        torch.nn.Linear(n_in, n_hidden),
        nn.LIFLayer(n_hidden, **LIF),
        nn.LIFSynapse(n_hidden, n_out),
        nn.LIFLayer(n_out, **LIF),
    )


def spikes_in(n_in: int = 20) -> torch.Tensor:
    return (torch.rand(3, 8, n_in, generator=torch.Generator().manual_seed(1)) < 0.5).float()


def narrow(bits: int, **limits) -> nw.Chip:
    return LOIHI1.replace({"core.synapse_bits": bits} | {f"core.{key}": value for key, value in limits.items()})


def backward(model: nn.Sequential, x: torch.Tensor) -> None:
    nn.prepare_net(model)
    model.zero_grad()
    nn.firing_rate_target_mse_loss(model(x)[0], 0.5).backward()


def masks(model: nn.Sequential) -> list[torch.Tensor]:
    """Of both weights, bool[n_out, n_in]; all of one that stays dense."""
    made = []
    for module in (model[0], model[2]):
        is_masked = hasattr(module, "parametrizations")
        made.append(module.parametrizations.weight[0].mask if is_masked else torch.ones_like(module.weight).bool())
    return [made[0], made[1].T]


def bits_used(masks: list[torch.Tensor], n_cores: int, bits: int, chip: nw.Chip) -> int:
    """Of the fullest core, neurons dealt in turn: every row of synapses, block by block, in the chip's words."""
    used = np.zeros(n_cores, int)
    for mask in masks:
        for core, source in product(range(n_cores), range(mask.shape[1])):
            left = int(mask[core::n_cores, source].sum())
            while left > 0:
                block = min(left, chip.core.block_synapses)
                used[core] += (
                    ceil((block * bits + chip.core.block_overhead_bits) / chip.core.word_bits) * chip.core.word_bits
                )
                left -= block
    return used.max()


@pytest.mark.parametrize("method", GROWN)
@pytest.mark.parametrize("seed", range(3))
def test_budget_and_fan_in_hold_in_every_round(method, seed):
    draw = np.random.default_rng(seed)
    n_in, n_hidden, n_cores = (int(draw.integers(*span)) for span in ((12, 40), (40, 80), (1, 3)))
    model = net(n_in, n_hidden, seed=seed)
    chip = narrow(int(draw.uniform(0.8, 0.95) * bits_used(masks(model), n_cores, 8, LOIHI1)))
    sparse = nn.SparseTraining(model, chip, n_cores, 4, method, weights=["0.weight", "2.weight"], seed=seed)
    assert min(sparse.density.values()) < 1
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    before, n_moved = [mask.clone() for mask in masks(model)], 0
    fan_in = [mask.sum(1) for mask in before]
    for _ in range(4):
        backward(model, spikes_in(n_in))
        n_moved += sparse.step(optimizer)
        optimizer.step()
        for mask, counts in zip(masks(model), fan_in, strict=True):
            assert torch.equal(mask.sum(1), counts) and len(counts.unique()) == 1
        assert bits_used(masks(model), n_cores, 8, chip) <= chip.core.synapse_bits
    assert n_moved and not torch.equal(masks(model)[0], before[0])


@pytest.mark.parametrize("method", GROWN)
def test_network_compiles_for_so_many_cores(method):
    model, chip = net(), narrow(BITS)
    sparse = nn.SparseTraining(model, chip, 2, 3, method)
    for _ in range(3):
        backward(model, spikes_in())
        sparse.step()
    nn.finish_pruning(model)
    nn.prepare_net(model)
    x = spikes_in().numpy()
    program = nw.compile(nw.from_torch(model, x), chip, x, nw.Options(n_cores=2))
    assert program.mapping.n_cores == 2 and nw.crosscheck(program, x).agree
    dense = nw.from_torch(net(), x)
    with pytest.raises(nw.FitError, match="3 of 2  raise n_cores"):
        nw.compile(dense, chip, x, nw.Options(n_cores=2))


def test_cores_with_few_axons_hear_some_sources_only():
    model, chip = net(24, 32), narrow(3500, max_in_axons=30)
    sparse = nn.SparseTraining(model, chip, 4, 3, "set")
    assert sparse.step()
    for _ in range(2):
        sparse.step()
        for core in range(4):
            assert sum(int(mask[core::4].any(0).sum()) for mask in masks(model)) <= 30
    nn.finish_pruning(model)
    nn.prepare_net(model)
    x = spikes_in(24).numpy()
    program = nw.compile(nw.from_torch(model, x), chip, x, nw.Options(n_cores=4, partitioner="striped"))
    assert program.mapping.n_cores == 4


def moved(method: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the first weight: mask before and after a round, the weights before it, and the gradient of all of them."""
    model = net()
    sparse = nn.SparseTraining(model, narrow(BITS), 2, 3, method)
    backward(model, spikes_in())
    before, weight = masks(model)[0].clone(), model[0].weight.detach().clone()
    plain = net()
    plain.load_state_dict({"0.weight": weight, "0.bias": model[0].bias, "2.weight": model[2].weight}, strict=False)
    backward(plain, spikes_in())
    sparse.step()
    return before, masks(model)[0].clone(), weight, plain[0].weight.grad


def test_smallest_weights_go_and_largest_gradients_grow():
    before, after, weight, gradient = moved("rigl")
    for u in range(len(before)):
        gone, grown = before[u] & ~after[u], after[u] & ~before[u]
        assert gone.sum() == grown.sum() > 0
        assert weight[u][gone].abs().max() <= weight[u][before[u] & after[u]].abs().min()
        assert gradient[u][grown].abs().min() >= gradient[u][~before[u] & ~after[u]].abs().max()


def test_synapses_grow_at_the_ends_of_most_paths():
    """Path by path, as CH3-L3 is defined: links of a neuron on a path to those on no path between these two count."""
    before, after, _, _ = moved("cht")
    left = (before & after).numpy()
    for u in range(len(left)):
        score = {}
        for v in np.flatnonzero(~before[u].numpy()):
            paths = [(z1, z2) for z1 in np.flatnonzero(left[u]) for z2 in np.flatnonzero(left[:, v]) if left[z2, z1]]
            firsts, seconds = {z1 for z1, _ in paths}, {z2 for _, z2 in paths}
            outer = {("in", z): len(set(np.flatnonzero(left[:, z])) - seconds - {u}) for z in firsts}
            outer |= {("out", z): len(set(np.flatnonzero(left[z])) - firsts - {v}) for z in seconds}
            score[v] = sum(1 / np.sqrt((1 + outer["in", z1]) * (1 + outer["out", z2])) for z1, z2 in paths)
        grown = np.flatnonzero((after & ~before)[u])
        rest = [score[v] for v in score if v not in grown]
        assert min(score[v] for v in grown) >= max(rest) - 1e-5


def test_grown_synapses_begin_at_zero_and_learn():
    model = net()
    sparse = nn.SparseTraining(model, narrow(BITS), 2, 3, "set")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    backward(model, spikes_in())
    optimizer.step()
    before = masks(model)[0].clone()
    backward(model, spikes_in())
    sparse.step(optimizer)
    grown = masks(model)[0] & ~before
    original = model[0].parametrizations.weight.original
    assert (model[0].weight[grown] == 0).all() and (optimizer.state[original]["exp_avg"][grown] == 0).all()
    backward(model, spikes_in())
    optimizer.step()
    assert (model[0].weight[grown] != 0).any()


def test_what_fits_stays_dense():
    model = net()
    sparse = nn.SparseTraining(model, "loihi1", 1, 3)
    assert sparse.density == {"0.weight": 1.0, "2.weight": 1.0} and sparse.step() == 0


def test_every_core_hears_a_source_even_of_a_layer_of_two_neurons():
    """Seven cores of few axons: of 10 sources each hears some, and of two those reach more cores, within the axons."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(2, 10), torch.nn.Linear(10, 14), torch.nn.Linear(14, 1)]
    model, chip = torch.nn.Sequential(*layers), narrow(10**6, max_in_axons=9)
    sparse = nn.SparseTraining(model, chip, 7, 3, "set")
    assert max(sparse.density.values()) < 1
    kept = [layer.weight != 0 for layer in layers]
    for weight in sparse.weights:
        assert not (weight.mask.mask & ~weight.heard).any()
    for core in range(7):
        assert sum(int(mask[core::7].any(0).sum()) for mask in kept) <= 9


def test_gradient_of_a_network_step_by_step_is_that_of_the_whole_sequence():
    """A weight used in every step has a gradient for each of them; another backward pass begins a new sum."""
    gradients = []
    for is_whole in (True, False):
        model = net()
        sparse = nn.SparseTraining(model, narrow(BITS), 2, 3)
        for _ in range(2):
            nn.prepare_net(model)
            x = spikes_in()
            out = model(x)[0] if is_whole else torch.stack([one_step(model, step) for step in x.unbind(1)], 1)
            nn.firing_rate_target_mse_loss(out, 0.5).backward()
        gradients.append(sparse.weights[0].mask.gradient)
    assert gradients[0].abs().max() > 1e-5
    torch.testing.assert_close(*gradients)


def one_step(model: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    for layer in model:
        x = layer(x)
        x = x[0] if isinstance(x, tuple) else x
    return x


def test_equal_seeds_give_equal_masks():
    made = [moved("set")[1] for _ in range(2)]
    assert torch.equal(*made)


def test_rigl_without_a_gradient_is_refused():
    sparse = nn.SparseTraining(net(), narrow(BITS), 2, 3)
    with pytest.raises(ModelError, match=r"0.weight has no gradient yet; call step\(\) after backward\(\)"):
        sparse.step()


def test_budget_that_nothing_meets_is_refused():
    text = "1 cores of loihi1 cannot hold the network: synapse memory [0-9]+ of 200 bits a core with one input a neuron"
    with pytest.raises(OptionError, match=f"{text}; take more cores, fewer bits or a smaller network"):
        nn.SparseTraining(net(), narrow(200), 1, 3)
    with pytest.raises(OptionError, match="neurons 52 of 10 a core; take more cores"):
        nn.SparseTraining(net(), LOIHI1.replace({"core.max_neurons": 10}), 1, 3)
    with pytest.raises(OptionError, match="fan-in axons 34 of 16, .* where each source reaches as few cores as it can"):
        nn.SparseTraining(net(), narrow(10_000, max_in_axons=16), 2, 3)


def test_a_weight_in_several_places_is_refused():
    shared = torch.nn.Linear(20, 20)
    tied = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Linear(20, 20))
    tied[1].weight = tied[0].weight
    for model, other in ((torch.nn.Sequential(shared, torch.nn.ReLU(), shared), 2), (tied, 1)):
        text = f"0.weight is also {other}.weight, and a chip stores it for each of them; give each layer a weight of"
        with pytest.raises(ModelError, match=text):
            nn.SparseTraining(model, "loihi1", 1, 3)


def test_unknown_words_are_refused():
    with pytest.raises(ModelError, match=r"Sequential: no weight of .*, weights=\[...\] of 0.weight, 2.weight; others"):
        nn.SparseTraining(net(), "loihi1", 1, 3, weights=[])
    with pytest.raises(OptionError, match="unknown method 'grow'; known: set, rigl, cht"):
        nn.SparseTraining(net(), "loihi1", 1, 3, "grow")
    conv = nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 4))
    with pytest.raises(
        ModelError, match=r"0.weight: no weight of torch.nn.Linear or LIFSynapse; name those .*\[...\] of 2.weight"
    ):
        nn.SparseTraining(conv, "loihi1", 1, 3)
    pruned = net()
    nn.prune(pruned, 0.5)
    with pytest.raises(ModelError, match="0.weight, 2.weight is pruned or parametrized; call finish_pruning first"):
        nn.SparseTraining(pruned, "loihi1", 1, 3)
    with pytest.raises(OptionError, match="truenorth has rules of cores or axons that training does not keep"):
        nn.SparseTraining(net(), "truenorth", 1, 3)
