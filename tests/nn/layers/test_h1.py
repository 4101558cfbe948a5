import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import BackendError, ModelError
from tests.made.tensors import random
from tests.nn.naive import lif

FAMILIES = {"h1v1": (nn.H1v1Synapse, nn.H1v1Layer, 0.9), "h1v2": (nn.H1v2Synapse, nn.H1v2Layer, 1.66)}


def effective(synapse):
    """The weights that a synapse multiplies with, found by feeding it one spike at a time."""
    return synapse(torch.eye(synapse.n_in)).detach()


@pytest.mark.parametrize("family", FAMILIES)
def test_h1_synapse_clips_its_weights(family):
    make, _, limit = FAMILIES[family]
    weight = random(7, 12).abs() * 2
    found = effective(make(7, 12, init=weight))
    assert torch.equal(found, weight.clamp(max=limit))
    assert found.max() == torch.tensor(limit)


def test_h1_synapse_keeps_one_sign_for_each_input_and_block_of_five():
    row = [1.0, -2.0, 3.0, -1.0, 0.5, -0.25, 0.125, -0.0625]  # blocks of sums 1.5 and -0.1875
    found = effective(nn.H1v2Synapse(2, 8, init=[row, [-w for w in row]]))
    kept = [1.0, 0.0, 1.66, 0.0, 0.5, -0.25, 0.0, -0.0625]
    assert torch.equal(found, torch.tensor([kept, [-w for w in kept]]))
    balanced = effective(nn.H1v2Synapse(1, 2, init=[[0.5, -0.5]]))
    assert balanced.tolist() == [[0.5, 0]]


@pytest.mark.parametrize("family", FAMILIES)
def test_h1_synapse_draws_weights_that_keep_its_rules(family):
    make, _, limit = FAMILIES[family]
    torch.manual_seed(0)
    synapse = make(16, 23)
    assert torch.equal(effective(synapse), synapse.weight.detach())
    assert 0.2 < synapse.weight.abs().max() <= 0.25
    assert (synapse.weight < 0).any() and (synapse.weight > 0).any()


def test_h1_synapse_takes_weights_over_the_threshold_of_the_float_net():
    weight = random(4, 5).abs() / 4
    assert torch.equal(effective(nn.H1v1Synapse(4, 5, lif_threshold=0.5, init=weight)), (weight * 2).clamp(max=0.9))
    assert effective(nn.H1v1Synapse(4, 5, lif_threshold=0.01, init=weight)).max() == torch.tensor(0.9)


@pytest.mark.parametrize("bits", [2, 5])
@pytest.mark.parametrize("family", FAMILIES)
def test_h1_synapse_quantizes_to_evenly_spaced_levels(family, bits):
    make, _, limit = FAMILIES[family]
    weight = random(9, 5).abs()
    n_levels = 2 ** (bits - 1) - 1
    found = effective(make(9, 5, quantization_bits=bits, init=weight)).double() * n_levels / limit
    assert (found - found.round()).abs().max() < 1e-6
    assert ((found.round() * limit / n_levels - weight.clamp(max=limit)).abs() <= limit / n_levels / 2 + 1e-6).all()
    assert found.max() <= n_levels + 1e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_h1_gradient_goes_straight_through_clip_levels_and_signs(family):
    make = FAMILIES[family][0]
    synapse = make(6, 12, lif_threshold=0.5, quantization_bits=3, init=random(6, 12) * 3)
    x, weight = random(4, 6, seed=1), random(4, 12, seed=2)
    nn.prepare_net(synapse)
    (synapse(x) * weight).sum().backward()
    torch.testing.assert_close(synapse.weight.grad, 2 * x.T @ weight)


def test_h1_second_backward_pass_without_prepare_net_is_an_error():
    expected = (
        "a second backward pass reached weights or states that an earlier one has used up; call "
        "nwcompile.nn.prepare_net(model) before the forward pass of every batch"
    )
    net = torch.nn.Sequential(nn.H1v1Synapse(4, 6), nn.H1v1Synapse(6, 3))
    for change in (lambda: None, lambda: [p.add_(0.1) for p in net.parameters()]):
        nn.prepare_net(net)
        net(random(2, 4)).sum().backward()
        with torch.no_grad():
            change()
        for _ in range(2):
            loss = net(random(2, 4)).sum()
            with pytest.raises(ModelError) as error:
                loss.backward()
            assert str(error.value) == expected
        nn.prepare_net(net)
        net(random(2, 4)).sum().backward()


def test_h1_two_losses_of_one_forward_pass_may_go_back_one_by_one():
    synapse = nn.H1v1Synapse(4, 6)
    current = synapse(random(2, 4))
    current.sum().backward(retain_graph=True)
    current.sum().backward()
    torch.testing.assert_close(synapse.weight.grad, 2 * random(2, 4).sum(0)[:, None].expand(4, 6))


def test_h1_weights_are_made_anew_when_the_parameter_has_changed():
    synapse = nn.H1v1Synapse(2, 5, init=torch.full((2, 5), 0.25))
    assert effective(synapse).unique().tolist() == [0.25]
    synapse.load_state_dict({"weight": torch.full((2, 5), 0.5)})
    assert effective(synapse).unique().tolist() == [0.5]
    with torch.no_grad():
        synapse.weight.fill_(0.125)
    assert effective(synapse).unique().tolist() == [0.125]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("topology", ["FF", "RC"])
def test_h1_layer_subtracts_and_never_goes_below_zero(family, topology):
    torch.manual_seed(0)
    layer = FAMILIES[family][1](7, 10e-3, 1e-3, layer_topology=topology)
    current = random(3, 40, 7) * 0.6
    w_rec = layer.effective_w_rec()
    beta = torch.full((7,), np.exp(-0.1), dtype=torch.float32)
    expected = lif(current, torch.zeros(3, 7), beta, 1.0, "subtraction", nn.surrogate.fast_sigmoid, w_rec=w_rec,
                   floor=True)  # fmt: skip
    spikes, mem = layer(current)
    assert torch.equal(spikes, expected[0])
    torch.testing.assert_close(mem, expected[1], rtol=0, atol=0 if topology == "FF" else 1e-6)
    assert mem.min() == 0 and 0 < spikes.mean() < 1


def test_h1_recurrent_weights_keep_the_rules_and_get_gradients():
    layer = nn.H1v1Layer(10, layer_topology="RC")
    with torch.no_grad():
        layer.w_rec.copy_(random(10, 10) * 2)
    found = layer.effective_w_rec().detach()
    assert found.abs().max() == torch.tensor(0.9)
    assert all((abs(block.sum()) == block.abs().sum()) for row in found for block in row.split(5))
    layer(random(2, 9, 10).abs())[1].sum().backward()
    assert (layer.w_rec.grad != 0)[found == 0].any()


def test_h1v2_taus_snap_to_the_nearest_of_the_chip():
    taus = [1e-4, 14.2e-3, 20e-3, 31e-3, 32e-3, 1.0]
    layer = nn.H1v2Layer(6, torch.tensor(taus), 1e-3)
    snapped = [1e-3, 20e-3, 20e-3, 20e-3, 50e-3, 100e-3]
    assert layer.effective_taus().tolist() == pytest.approx(snapped)
    assert layer.beta.tolist() == pytest.approx(np.exp([-1e-3 / tau for tau in snapped]))
    assert layer.taus.tolist() == pytest.approx(taus)
    assert nn.H1v1Layer(6, torch.tensor(taus), 1e-3).effective_taus().tolist() == pytest.approx(taus)


@pytest.mark.parametrize("make", [nn.H1v1Synapse, nn.H1v2Synapse, nn.H1v1Layer, nn.H1v2Layer])
def test_h1_batches_after_the_first_copy_no_numbers_to_the_device(make, monkeypatch):
    """A graph that a GPU captures may not."""
    module = make(6, 6) if issubclass(make, nn.LIFSynapse) else make(6, layer_topology="RC")
    module(torch.ones(1, 3, 6))
    nn.prepare_net(module)
    for name in ("tensor", "as_tensor"):
        monkeypatch.setattr(torch, name, None)
    module(torch.ones(1, 3, 6))


@pytest.mark.parametrize("make", [nn.H1v1Frontend, nn.H1v2Frontend])
def test_h1_frontend_is_diagonal_with_16_filters(make):
    frontend = make()
    assert frontend.weight.shape == (16, 16)
    assert torch.equal(effective(frontend), torch.eye(16) / 2)
    frontend = make(lif_threshold=2.0, init=random(16, 16))
    assert torch.equal(frontend.weight.detach(), random(16, 16) * torch.eye(16))
    frontend(random(3, 7, 16)).sum().backward()
    assert torch.equal(frontend.weight.grad != 0, torch.eye(16, dtype=torch.bool))
    assert list(frontend.state_dict()) == ["weight"]


def test_h1_state_dict_holds_parameters_taus_and_thresholds():
    assert list(nn.H1v1Synapse(3, 4, stddev=0.1).state_dict()) == ["weight"]
    layer = nn.H1v2Layer(5, layer_topology="RC", ileak_mismatch=0.1)
    layer(random(2, 5))
    assert sorted(layer.state_dict()) == ["taus", "thresholds", "w_rec"]
    assert layer.thresholds.tolist() == [1] * 5


@pytest.mark.parametrize("family", FAMILIES)
def test_h1_net_compiles_for_its_chip_and_all_backends_agree(family):
    make_synapse, make_layer, limit = FAMILIES[family]
    torch.manual_seed(0)
    init = torch.rand(6, 15) * limit
    model = nn.Sequential(
        make_synapse(6, 15, quantization_bits=5, init=init * torch.where(torch.arange(15) < 10, 1.0, -0.3)),
        make_layer(15, 10e-3, 1e-3), make_synapse(15, 4, quantization_bits=5, init=torch.rand(15, 4)),
        make_layer(4, torch.full((4,), 20e-3), 1e-3),
    )  # fmt: skip
    x = (np.random.default_rng(0).random((8, 30, 6)) < 0.3).astype(np.float32)
    network = nw.from_torch(model, x[:2])
    with torch.no_grad():
        spikes = model(torch.from_numpy(x))[0]
    assert (nw.simulate(network, x).output == spikes.numpy()).all() and spikes.sum() > 20
    program = nw.compile(network, family, calibration=x)
    assert nw.crosscheck(program, x).agree
    table = {row["layer"]: row for row in program.manifest["quantization"]}
    assert table["1"]["spike_agreement_percent"] > 90


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nn.H1v1Synapse(3, 4, lif_threshold=0), "H1v1Synapse(3, 4): lif_threshold is 0, must be a number > 0"),
        (
            lambda: nn.H1v2Synapse(3, 4, quantization_bits=1),
            "H1v2Synapse(3, 4): quantization_bits is 1, must be 2..16, or None for none",
        ),
        (
            lambda: nn.H1v1Synapse(3, 4, stddev=-1.0),
            "H1v1Synapse(3, 4): stddev is -1.0, must be a number >= 0, or None for none",
        ),
        (
            lambda: nn.H1v2Layer(3, ileak_mismatch=float("nan")),
            "H1v2Layer(3): ileak_mismatch is nan, must be a number >= 0, or None for none",
        ),
        (lambda: nn.H1v2Layer(3, taus=[1, 2]), "H1v2Layer(3): taus of shape (2,) must be a number or of shape [3]"),
        (lambda: nn.H1v1Synapse(3, 0), "H1v1Synapse(3, 0): sizes must be >= 1"),
    ],
)
def test_h1_wrong_arguments_are_named(make, text):
    with pytest.raises(ModelError) as error:
        make()
    assert str(error.value) == text


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("device", ["gpu", "cuda"])
def test_h1_gpu_that_is_missing_is_a_backend_error(device):
    for make in (lambda: nn.H1v1Synapse(3, 2, device), lambda: nn.H1v2Layer(2, device=device),
                 lambda: nn.H1v2Frontend(device=device), lambda: nn.H1v1Layer(2).to_gpu()):  # fmt: skip
        with pytest.raises(BackendError, match="needs a GPU and torch with CUDA"):
            make()
