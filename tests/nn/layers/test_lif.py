import copy
import pickle

import pytest
import torch

from nwcompile import nn
from nwcompile.errors import BackendError, ModelError, OptionError
from nwcompile.nn.ops.surrogate import fast_sigmoid
from tests.made.tensors import random
from tests.nn.naive import lif


def test_subtract_is_another_word_for_subtraction():
    assert nn.LIFLayer(2, reset_mechanism="subtract").reset_mechanism == "subtraction"


def layer_of(n=6, **options):
    torch.manual_seed(0)
    return nn.LIFLayer(n, taus=20e-3, thresholds=0.7, dt=5e-3, **options)


def test_synapse_multiplies_by_a_weight_of_n_in_by_n_out():
    synapse = nn.LIFSynapse(3, 2, init=[[1, 2], [3, 4], [5, 6]])
    assert synapse(torch.tensor([[True, False, True]])).tolist() == [[6, 8]]
    assert synapse(torch.ones(4, 7, 3)).shape == (4, 7, 2)
    assert list(synapse.state_dict()) == ["weight"]


def test_synapse_weights_are_uniform_or_as_the_init_function_fills_them():
    weight = nn.LIFSynapse(16, 500).weight
    assert weight.abs().max() <= 0.25
    assert weight.abs().max() > 0.2
    assert (nn.LIFSynapse(3, 2, init=torch.nn.init.ones_).weight == 1).all()


@pytest.mark.parametrize("reset", ["subtraction", "zero", "none"])
@pytest.mark.parametrize("topology", ["FF", "RC"])
def test_layer_follows_the_published_dynamics(reset, topology):
    layer = layer_of(reset_mechanism=reset, layer_topology=topology)
    current = random(3, 30, 6)
    w_rec = layer.w_rec if topology == "RC" else None
    expected = lif(current, torch.zeros(3, 6), layer.beta, layer.thresholds, reset, fast_sigmoid, w_rec=w_rec)
    spikes, mem = layer(current)
    assert torch.equal(spikes, expected[0])
    assert torch.equal(mem, expected[1])
    assert 0 < spikes.mean() < 1


def test_layer_decays_by_exp_of_minus_dt_over_tau():
    layer = nn.LIFLayer(2, taus=[10e-3, float("inf")], thresholds=[5.0, 6.0], dt=2e-3)
    assert layer.beta.tolist() == pytest.approx([0.8187307530779818, 1.0])
    assert layer.thresholds.tolist() == [5, 6]


@pytest.mark.parametrize("topology", ["FF", "RC"])
def test_layer_gives_the_same_for_a_sequence_its_steps_and_its_chunks(topology):
    layer = layer_of(layer_topology=topology)
    current = random(3, 20, 6)
    weight = random(3, 20, 6, seed=1)
    results = []
    for lengths in ([20], [1] * 20, [7, 13]):
        nn.prepare_net(layer)
        x = current.clone().requires_grad_()
        parts = [layer(c[:, 0] if c.shape[1] == 1 else c) for c in x.split(lengths, 1)]
        spikes, mem = (torch.cat([p[k].reshape(3, -1, 6) for p in parts], 1) for k in (0, 1))
        ((spikes + mem) * weight).sum().backward()
        results.append((spikes.detach(), mem.detach(), x.grad))
    for other in results[1:]:
        assert torch.equal(other[0], results[0][0])
        assert torch.equal(other[1], results[0][1])
        torch.testing.assert_close(other[2], results[0][2])


def test_layer_accepts_neurons_with_a_shape():
    layer = layer_of(12)
    current = random(2, 5, 3, 2, 2)
    spikes, mem = layer(current)
    assert spikes.shape == mem.shape == current.shape
    nn.prepare_net(layer)
    assert torch.equal(layer(current.flatten(2))[0], spikes.flatten(2))
    nn.prepare_net(layer)
    assert torch.equal(layer(current[:, 0])[0], spikes[:, 0])


def test_prepare_net_clears_the_kept_state():
    layer = layer_of()
    current = random(3, 6)
    first = layer(current)[1]
    assert not torch.equal(layer(current)[1], first)
    nn.prepare_net(torch.nn.ModuleList([layer]))
    assert torch.equal(layer(current)[1], first)


def test_layer_refuses_another_batch_size_until_prepare_net():
    layer = layer_of()
    layer(random(3, 6))
    with pytest.raises(ModelError) as error:
        layer(random(4, 6))
    assert str(error.value) == (
        "LIFLayer(6): the batch has 4 samples, the kept state has 3; "
        "call nwcompile.nn.prepare_net(model) before a new batch"
    )
    nn.prepare_net(layer)
    layer(random(4, 6))


def test_kept_state_is_a_constant_after_a_backward_pass():
    layer = layer_of()
    x = random(3, 10, 6).requires_grad_()
    layer(x)[0].sum().backward()
    before = x.grad.clone()
    layer(random(3, 10, 6, seed=1).requires_grad_())[0].sum().backward()
    assert torch.equal(x.grad, before)


def test_layer_can_be_copied_moved_and_pickled_in_the_middle_of_training():
    layer = layer_of(learn_taus=True, learn_thresholds=True, layer_topology="RC")
    spikes, _ = layer(random(3, 10, 6).requires_grad_())
    copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    after = layer(random(3, 6, seed=1))
    for other in copies:
        assert torch.equal(other(random(3, 6, seed=1))[1], after[1])
    spikes.sum().backward()
    assert layer.taus.grad.abs().sum() > 0
    assert layer.double()(random(3, 6, seed=2).double())[1].dtype == torch.float64


def test_state_dict_holds_what_is_trained_and_nothing_that_is_kept():
    assert list(layer_of().state_dict()) == ["taus", "thresholds"]
    layer = layer_of(layer_topology="RC", learn_taus=True)
    layer(random(3, 6))
    assert sorted(layer.state_dict()) == ["taus", "thresholds", "w_rec"]
    assert layer.w_rec.shape == (6, 6)
    assert {name for name, _ in layer.named_parameters()} == {"taus", "w_rec"}
    other = layer_of(layer_topology="RC", learn_thresholds=True)
    other.load_state_dict(layer.state_dict(), strict=True)
    assert torch.equal(other.w_rec, layer.w_rec)


def test_learned_taus_and_thresholds_get_gradients():
    layer = layer_of(learn_taus=True, learn_thresholds=True)
    layer(random(3, 10, 6))[1].sum().backward()
    assert layer.taus.grad.abs().min() > 0
    assert layer.thresholds.grad.abs().max() > 0


@pytest.mark.parametrize("device", ["gpu", "cuda"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_gpu_that_is_missing_is_a_backend_error(device):
    expected = (
        f"device {device!r} needs a GPU and torch with CUDA: torch {torch.__version__} "
        f"{'was built without CUDA' if torch.version.cuda is None else 'was built for CUDA ' + torch.version.cuda} "
        "and finds no GPU; use device='cpu'"
    )
    for make in (lambda: nn.LIFSynapse(3, 2, device=device), lambda: nn.LIFLayer(2, device=device)):
        with pytest.raises(BackendError) as error:
            make()
        assert str(error.value) == expected
    for module in (nn.LIFSynapse(3, 2), nn.LIFLayer(2), nn.Sequential(nn.LIFLayer(2))):
        with pytest.raises(RuntimeError, match="^device 'gpu' needs a GPU"):
            module.to_gpu()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.LIFSynapse(0, 2), ModelError, "LIFSynapse(0, 2): sizes must be >= 1"),
        (
            lambda: nn.LIFSynapse(3, 2, init=torch.ones(2, 3)),
            ModelError,
            "LIFSynapse(3, 2): init has shape (2, 3), not (3, 2)",
        ),
        (
            lambda: nn.LIFSynapse(3, 2)(torch.ones(1, 2)),
            ModelError,
            "LIFSynapse(3, 2): input of shape (1, 2) must end in 3",
        ),
        (lambda: nn.LIFLayer(0), ModelError, "LIFLayer: n_neurons is 0, must be >= 1"),
        (lambda: nn.LIFLayer(2, dt=0), ModelError, "LIFLayer(2): dt is 0, must be a number of seconds > 0"),
        (lambda: nn.LIFLayer(2, taus=[1.0, 0.0]), ModelError, "LIFLayer(2): taus are 0 s at least, must be > 0"),
        (lambda: nn.LIFLayer(2, thresholds=float("nan")), ModelError, "LIFLayer(2): thresholds must be finite"),
        (
            lambda: nn.LIFLayer(2, taus=[1, 2, 3]),
            ModelError,
            "LIFLayer(2): taus of shape (3,) must be a number or of shape [2]",
        ),
        (
            lambda: nn.LIFLayer(2, reset_mechanism="substraction"),
            OptionError,
            "unknown reset_mechanism 'substraction'; choose one of: subtraction, none, subtract, zero",
        ),
        (
            lambda: nn.LIFLayer(2, layer_topology="FC"),
            OptionError,
            "unknown layer_topology 'FC'; choose one of: RC, FF",
        ),
        (lambda: nn.LIFLayer(2, device="tpu"), OptionError, "unknown device 'tpu'; choose one of: gpu, cpu, cuda"),
        (
            lambda: nn.LIFLayer(2)(torch.ones(4, 3)),
            ModelError,
            "LIFLayer(2): input of shape (4, 3) is neither [B, 2] nor [B, T, 2]",
        ),
        (
            lambda: nn.Sequential(nn.LIFLayer(2))(torch.ones(4, 2)),
            ModelError,
            "nwcompile.nn.Sequential takes whole sequences [B, T, *shape], got shape (4, 2)",
        ),
    ],
)
def test_wrong_arguments_are_named(make, error, text):
    with pytest.raises(error) as raised:
        make()
    assert str(raised.value) == text


def test_sequential_treats_steps_as_a_batch_for_modules_without_time():
    torch.manual_seed(0)
    conv, norm, lif1, fc = torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), layer_of(48), torch.nn.Linear(48, 4)
    for module in (conv, fc):  # multiples of 1/64: sums are exact in any order
        module.weight.data = (module.weight.data.abs() * 64).round() / 64
        module.bias.data.zero_()
    net = nn.Sequential(conv, norm, lif1, torch.nn.Flatten(), fc, layer_of(4)).eval()
    x = (random(2, 7, 1, 6, 6) > 0).float()
    spikes, mem = net(x)
    assert spikes.shape == mem.shape == (2, 7, 4)
    nn.prepare_net(net)
    steps = []
    for x_t in x.unbind(1):
        s, _ = lif1(norm(conv(x_t)))
        steps.append(net[5](fc(s.flatten(1)))[0])
    assert torch.equal(torch.stack(steps, 1), spikes)
    assert spikes.sum() > 0


@pytest.mark.parametrize(
    ("layer", "name"), [(nn.LIFSynapse(4, 4), "LIFSynapse(4, 4)"), (nn.H1v1Layer(4), "H1v1Layer(4)")]
)
def test_input_on_another_device_is_named(layer, name):
    with pytest.raises(ModelError) as error:
        layer(torch.zeros(2, 4, device="meta"))
    assert str(error.value) == (
        f"{name}: the input is on meta, the layer on cpu; move the input with .to('cpu'), or the model"
    )
