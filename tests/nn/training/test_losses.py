import pytest
import torch

from nwcompile import nn
from nwcompile.errors import ModelError, OptionError
from nwcompile.nn.layers.h1 import keep_sum_sign


def test_weight_magnitude_loss_is_the_mean_square_beyond_the_limit():
    weight = torch.tensor([[0.5, -1.4], [2.9, 0.9]])
    assert nn.weight_magnitude_loss(weight).item() == pytest.approx((0.5**2 + 2.0**2) / 4)
    assert nn.weight_magnitude_loss(weight, limit=1.4).item() == pytest.approx(1.5**2 / 4)
    one, two = nn.LIFSynapse(2, 2, init=weight), nn.H1v1Synapse(1, 2, lif_threshold=0.5, init=[[0.2, -0.7]])
    net = torch.nn.Sequential(one, two)
    loss = nn.weight_magnitude_loss(net)
    assert loss.item() == pytest.approx((0.5**2 + 2.0**2 + 0.5**2) / 6)
    loss.backward()
    torch.testing.assert_close(one.weight.grad, torch.tensor([[0, -1.0], [4.0, 0]]) / 6)


def test_topology_loss_is_zero_for_one_sign_in_every_block():
    weight = torch.tensor([[1.0, 2, 3, 4, 5, -1, -2], [-1.0, -1, 3, 0, 0, 1, -1]])
    blocks = [0, 0, 5 - 1, 2]
    assert nn.topology_loss(weight).item() == pytest.approx(sum(blocks) / 4)
    assert nn.topology_loss(weight, block=7).item() == pytest.approx((18 - 12 + 7 - 1) / 2)
    assert nn.topology_loss(weight, block=1 << 50).item() == nn.topology_loss(weight, block=7).item()
    assert nn.topology_loss(keep_sum_sign(weight)).item() == 0


def test_topology_loss_leads_weights_to_one_sign():
    torch.manual_seed(0)
    synapse = nn.H1v1Synapse(6, 10, init=torch.nn.init.normal_)
    optimizer = torch.optim.SGD(synapse.parameters(), 1.0)
    before = nn.topology_loss(synapse).item()
    for _ in range(100):
        optimizer.zero_grad()
        nn.topology_loss(synapse).backward()
        optimizer.step()
    assert nn.topology_loss(synapse).item() < 0.05 * before


def test_firing_rate_loss_compares_each_neurons_mean_over_the_steps():
    spikes = torch.tensor([[[1.0, 0], [1, 0]], [[0, 1], [0, 0]]]).requires_grad_()
    assert nn.firing_rate_target_mse_loss(spikes, 0.5).item() == pytest.approx((0.25 + 0.25 + 0.25 + 0) / 4)
    loss = nn.firing_rate_target_mse_loss(spikes, torch.tensor([1.0, 0.0]))
    assert loss.item() == pytest.approx((0 + 0 + 1 + 0.25) / 4)
    loss.backward()
    assert spikes.grad[1].tolist() == [[-0.25, 0.125]] * 2


def test_sign_annealing_grows_steeper_and_ends_with_the_chips_signs():
    synapse = nn.H1v1Synapse(1, 5, init=[[0.5, -0.25, 0.5, -0.25, 0.5]])
    annealing, found, alphas = nn.SignAnnealing(synapse, 3), [], []
    for _ in range(4):
        nn.prepare_net(synapse)
        alphas.append(annealing.alpha)
        found.append(synapse(torch.ones(1, 1)).detach()[0])
        annealing.step()
    assert alphas[:3] == pytest.approx([0.5, 10**0.5, 20]) and alphas[3] is None
    magnitude = torch.tensor([0.5, 0.25, 0.5, 0.25, 0.5])
    for alpha, weight in zip(alphas[:3], found[:3], strict=True):
        torch.testing.assert_close(weight, magnitude * torch.tensor(alpha * 0.5).tanh())
    assert found[3].tolist() == [0.5, 0, 0.5, 0, 0.5]


def test_sign_annealing_is_for_training_and_has_its_own_gradient():
    synapse = nn.H1v1Synapse(1, 5, init=[[0.5, -0.25, 0.5, -0.25, 0.5]])
    nn.SignAnnealing(synapse, 3, alpha_start=1.0)
    synapse(torch.ones(1, 1)).sum().backward()
    weight = synapse.weight.detach().double().requires_grad_()
    (weight.abs() * torch.tanh(weight.sum() / weight.abs().sum())).sum().backward()
    torch.testing.assert_close(synapse.weight.grad.double(), weight.grad, rtol=1e-5, atol=1e-6)
    nn.SignAnnealing(synapse, 3, alpha_start=1.0, block=2)
    nn.prepare_net(synapse)
    steep = torch.tensor([0.25 / 0.75, 0.25 / 0.75, 1.0]).tanh().repeat_interleave(2)[:5]
    torch.testing.assert_close(synapse(torch.ones(1, 1))[0], synapse.weight[0].abs() * steep)
    synapse.eval()
    assert synapse(torch.ones(1, 1)).tolist() == [[0.5, 0, 0.5, 0, 0.5]]
    assert list(synapse.state_dict()) == ["weight"]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.topology_loss(torch.nn.Linear(2, 3)), ModelError, "Linear has no synapses of nwcompile.nn"),
        (lambda: nn.weight_magnitude_loss(nn.LIFLayer(3)), ModelError, "LIFLayer has no synapses of nwcompile.nn"),
        (lambda: nn.topology_loss(torch.ones(2, 3), 0), OptionError, "block is 0, must be >= 1"),
        (
            lambda: nn.firing_rate_target_mse_loss(torch.ones(2, 5, 3), torch.ones(2, 1)),  # one for each sample
            ModelError,
            "firing_rate_target_mse_loss: target of shape (2, 1) must be a number or one for each neuron, (3,)",
        ),
        (
            lambda: nn.SignAnnealing(nn.LIFSynapse(2, 3), 4),
            ModelError,
            "SignAnnealing: LIFSynapse has no H1v1Synapse or H1v2Synapse",
        ),
        (
            lambda: nn.SignAnnealing(nn.H1v1Synapse(2, 3), 4, 3.0, 2.0),
            OptionError,
            "SignAnnealing: n_steps=4, alpha_start=3.0, alpha_end=2.0, block=5: must be n_steps >= 1, "
            "0 < alpha_start <= alpha_end and block >= 1",
        ),
    ],
)
def test_losses_name_what_is_wrong(make, error, text):
    with pytest.raises(error) as raised:
        make()
    assert str(raised.value) == text


def test_losses_take_whole_numbers_that_64_bits_do_not_hold():
    assert nn.firing_rate_target_mse_loss(torch.ones(1, 3, 1).double(), 2**64).item() == 2.0**128
    assert nn.weight_magnitude_loss(torch.ones(2, 2), 2**64).item() == 0
