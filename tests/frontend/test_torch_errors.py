"""What from_torch cannot follow, word for word."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError, NwWarning
from nwcompile.frontend.torch import operations
from nwcompile.frontend.torch.operators import assemble, connect
from nwcompile.frontend.torch.operators.parts import Part
from tests.made.spikes import spike_tensor


def lif(n):
    return nn.LIFLayer(n, 4e-3, 0.75, "subtraction", 1e-3)


SUPPORTED = (
    "supported between spiking layers: Linear, LIFSynapse, Delay, DelayedLinear, DelayedConv2d, Conv1d, Conv2d, "
    "ConvTranspose1d, ConvTranspose2d, AvgPool1d, AvgPool2d, AdaptiveAvgPool2d, MaxPool1d, MaxPool2d, "
    "nearest Upsample, BatchNorm1d, BatchNorm2d, Flatten, Unflatten, Dropout, Identity, and + - * / with numbers and "
    "constants, + and - of tensors, products of spikes, matrix products, sums and means over axes, indexing, views, "
    "cat, stack"
)


def sequential(*parts):
    return torch.nn.Sequential(*parts, lif(4))


def module_of(forward, **parts):
    """A module with these parts and this forward(self, x)."""
    module = type("Net", (torch.nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(module, name, part)
    return module


def broken(value):
    module = torch.nn.Linear(8, 4)
    module.weight.data[1, 2] = value
    return module


def twice(self, x):
    return self.lif(self.lif(self.fc(x))[0])


def first_step_only(self, x):
    return torch.stack([self.lif(self.fc(x[:, t]) if t == 0 else self.back(x[:, t]))[0] for t in range(x.shape[1])], 1)


def started(self, x):
    s = torch.ones(len(x), 4)
    for x_t in x.unbind(1):
        s = self.lif(self.fc(x_t) + self.back(s))[0]
    return s


ERRORS = [
    (
        lambda: sequential(torch.nn.LSTM(8, 4, batch_first=True)),
        "Sequential cannot be run on example_input of shape [2, 3, 8]: with all steps, '1': AttributeError: 'tuple' "
        "object has no attribute 'shape'; step by step, '1': AttributeError: 'tuple' object has no attribute 'shape'; "
        "example_input must be [B, T, *shape] as the module takes it",
    ),
    (
        lambda: module_of(lambda self, x: self.lif(self.fc(torch.ones_like(x))), fc=torch.nn.Linear(8, 4), lif=lif(4)),
        f"layer 'lif' is fed by a tensor that comes neither from the input nor from a layer; {SUPPORTED}",
    ),
    (
        lambda: module_of(lambda self, x: self.lif(self.fc(torch.ones(x.shape))), fc=torch.nn.Linear(8, 4), lif=lif(4)),
        f"layer 'lif' is fed by a tensor that comes neither from the input nor from a layer; {SUPPORTED}",
    ),
    (
        lambda: module_of(twice, fc=torch.nn.Linear(8, 4), lif=lif(4)),
        "layer 'lif' is called 2 times for the 3 steps of the example; "
        "a layer has one state: call it once with all steps, or once in every step",
    ),
    (
        lambda: module_of(first_step_only, fc=torch.nn.Linear(8, 4), back=torch.nn.Linear(8, 4), lif=lif(4)),
        "layer 'lif' is fed differently in step 0 and in the last step of the example; "
        "from_torch needs the same computation in every step",
    ),
    (
        lambda: module_of(started, fc=torch.nn.Linear(8, 4), back=torch.nn.Linear(4, 4), lif=lif(4)),
        "layer 'lif' is fed by a tensor that is not zero before step 0; start from zeros",
    ),
    (
        lambda: torch.nn.Linear(8, 4),
        "the module has no spiking layer that is called on the example; it needs at least one, "
        "of nwcompile.nn, snnTorch, SpikingJelly, sinabs or norse, or written by hand",
    ),
    (
        lambda: sequential(broken(float("nan"))),
        "'0' (Linear): weight has NaN or infinite values; the model is not usable, train or load it again",
    ),
    (
        lambda: nn.LIFLayer(8).requires_grad_(False).apply(lambda m: m.thresholds.fill_(float("nan"))),
        "LIFLayer: thresholds has NaN or infinite values; the model is not usable, train or load it again",
    ),
    (
        lambda: sequential(broken(float("inf"))),
        "'0' (Linear): weight has NaN or infinite values; the model is not usable, train or load it again",
    ),
    (
        lambda: torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4, track_running_stats=False), lif(4)),
        "'1': torch's batch_norm without running statistics is a norm over the samples of a batch, which no weight can "
        "hold; set track_running_stats=True, and train again",
    ),
]


@pytest.mark.parametrize(("make", "text"), ERRORS)
def test_from_torch_names_what_it_cannot_follow(make, text):
    torch.manual_seed(0)
    with pytest.raises(ModelError) as error:
        nw.from_torch(make(), spike_tensor(2, 3, 8))
    assert str(error.value) == text


IMAGE_ERRORS = [
    (
        lambda: nn.Sequential(
            lif(36), torch.nn.AdaptiveMaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(4, 4), lif(4)
        ),
        "'1': layer '4' is fed by the result of torch's adaptive_max_pool2d, which from_torch cannot split into "
        f"steps; {SUPPORTED}",
    ),
    (
        lambda: nn.Sequential(torch.nn.AdaptiveMaxPool2d(2), lif(4), torch.nn.Flatten(), torch.nn.Linear(4, 4), lif(4)),
        "'0': layer '1' is fed by the result of torch's adaptive_max_pool2d, which from_torch cannot split into "
        f"steps; {SUPPORTED}",
    ),
    (
        lambda: nn.Sequential(lif(36), torch.nn.LPPool2d(1, 3), torch.nn.Flatten(), torch.nn.Linear(4, 4), lif(4)),
        "'1': LPPool2d, which is given (6, 6) in a step, not [B, C, H, W]",
    ),
    (
        lambda: nn.Sequential(torch.nn.InstanceNorm2d(1), lif(36)),
        "'0': a norm has its own numbers for each step; use one BatchNorm for all steps: a chip has one weight",
    ),
]


@pytest.mark.parametrize(("make", "text"), IMAGE_ERRORS)
def test_from_torch_names_image_operations_it_cannot_follow(make, text):
    with pytest.raises(ModelError) as error:
        nw.from_torch(make(), spike_tensor(2, 3, 1, 6, 6))
    assert str(error.value) == text


def test_steps_that_take_layers_in_turn_are_refused_with_the_name_of_a_layer():
    def take_in_turn(self, x):
        steps = []
        for t, x_t in enumerate(x.unbind(1)):
            spikes = [layer(self.fc(x_t))[0] for layer in (self.a, self.b)]
            steps.append(self.lif(spikes[t % 2])[0])
        return torch.stack(steps, 1)

    module = module_of(take_in_turn, fc=torch.nn.Linear(8, 4), a=lif(4), b=lif(4), lif=lif(4))
    text = r"^test_torch_errors\.py:\d+: layer '[ab]': step 4 of the example computes something else than step 3; a "
    with pytest.raises(ModelError, match=text):
        nw.from_torch(module, spike_tensor(2, 3, 8))


@pytest.mark.parametrize(
    ("example", "text"),
    [
        (
            spike_tensor(2, 8),
            "example_input must be [B, T, *shape], got shape [2, 8]; one number in each step is an axis of one entry",
        ),
        (spike_tensor(2, 0, 8), "example_input must be [B, T, *shape], got shape [2, 0, 8]"),
        (
            torch.full((2, 3, 8), float("nan")),
            "example_input has NaN, infinite or complex values; give real, finite numbers",
        ),
        (
            spike_tensor(2, 3, 9),
            "Sequential cannot be run on example_input of shape [2, 3, 9]: with all steps, '0': RuntimeError: mat1 and "
            "mat2 shapes cannot be multiplied (3x9 and 8x4); step by step, '0': RuntimeError: mat1 and mat2 shapes "
            "cannot be multiplied (1x9 and 8x4); example_input must be [B, T, *shape] as the module takes it",
        ),
    ],
)
def test_from_torch_names_an_unusable_example(example, text):
    with pytest.raises(ModelError) as error:
        nw.from_torch(sequential(torch.nn.Linear(8, 4)), example)
    assert str(error.value) == text


class FunctionalRelu(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


RELUS = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


@pytest.mark.parametrize(
    ("module", "layout", "shape"),
    [(RELUS, "BT", (2, 3, 4)), (RELUS, "BT", (2, 4)), (RELUS, "B", (2, 4)), (FunctionalRelu(), "BT", (2, 3, 4))],
)
def test_a_network_of_relus_is_pointed_to_convert(module, layout, shape):
    with pytest.raises(
        nw.ModelError, match=r"if it is a network of ReLUs without spiking neurons, convert it with nw.convert\("
    ):
        nw.from_torch(module, torch.rand(shape), layout)


def test_an_lstm_over_all_steps_is_refused():
    with pytest.raises(nw.ModelError, match="runs all steps of a torch.nn.LSTM at once; use torch.nn.LSTMCell"):
        nw.from_torch(torch.nn.LSTM(4, 6, batch_first=True), torch.rand(2, 7, 4))


class NormalizedByHand(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())

    def forward(self, x):
        v, spikes = torch.zeros(len(x), 8), []
        for t in range(x.shape[1]):
            v = 0.9 * v + self.fc(x[:, t])
            v = v / v.norm(dim=1, keepdim=True)
            spikes.append((v > 0.2).float())
        return torch.stack(spikes, 1)


SPIKING = nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), nn.LIFLayer(8, 20e-3, 1.0, "zero", 1e-3))


@pytest.mark.parametrize(
    ("module", "shape", "options"),
    [(NormalizedByHand(), (2, 6, 4), {}), (SPIKING, (2, 4), {}), (RELUS, (2, 4), {"relu": nw.NeuronSpec()})],
)
def test_spiking_networks_with_relus_are_not_pointed_to_convert(module, shape, options):
    with pytest.raises(nw.ModelError) as error:
        nw.from_torch(module, torch.rand(shape), **options)
    assert "nw.convert" not in str(error.value)


def test_from_torch_takes_modules_only():
    with pytest.raises(ModelError) as error:
        nw.from_torch("net.pt", spike_tensor(2, 3, 8))
    assert str(error.value) == "from_torch takes a torch.nn.Module, not str"


def test_from_torch_tells_its_own_failures_from_those_of_the_module(monkeypatch):
    def fails(*_):
        raise AttributeError("'NoneType' object has no attribute 'detach'")

    monkeypatch.setitem(operations.MAKERS, torch.nn.Linear, fails)
    with pytest.raises(ModelError) as error:
        nw.from_torch(sequential(torch.nn.Linear(8, 4), lif(4)), spike_tensor(2, 3, 8))
    assert str(error.value) == (
        "'0': nwcompile fails on torch's addmm (AttributeError: 'NoneType' object has no attribute 'detach'); "
        "please report it"
    )


def test_from_torch_tells_its_own_failures_at_neurons_and_functions(monkeypatch):
    class Doubles(torch.nn.Sequential):
        def forward(self, x):
            return super().forward(x * 2)

    module = Doubles(torch.nn.Linear(8, 4), lif(4))
    with monkeypatch.context() as patch:
        patch.setattr(connect, "scale_symbol", lambda *_: 1 / 0)
        with pytest.raises(
            ModelError, match=r"test_torch_errors\.py:\d+: nwcompile fails on torch's mul \(ZeroDivisionError"
        ):
            nw.from_torch(module, spike_tensor(2, 3, 8))
    monkeypatch.setattr(assemble, "build_program", lambda *_: 1 / 0)
    monkeypatch.setattr(Part, "read_neurons", lambda *_: 1 / 0)
    with pytest.raises(ModelError, match=r"^'1': nwcompile fails on LIFLayer \(ZeroDivisionError.*please report it$"):
        nw.from_torch(module, spike_tensor(2, 3, 8))


def test_layers_that_nwcompile_fails_on_are_read_as_hand_written_ones_with_a_warning(monkeypatch):
    module, x = sequential(torch.nn.Linear(8, 4), lif(4)), spike_tensor(2, 3, 8)
    monkeypatch.setattr(Part, "read_neurons", lambda *_: 1 / 0)
    with pytest.warns(NwWarning, match=r"^'1': nwcompile fails on LIFLayer .*; its layers were read as hand-written"):
        network = nw.from_torch(module, x)
    monkeypatch.undo()
    wanted, has = (nw.simulate(one, x.numpy()).spikes for one in (nw.from_torch(module, x), network))
    np.testing.assert_array_equal(*(spikes[list(spikes)[0]] for spikes in (wanted, has)))


def test_from_torch_passes_on_what_it_refuses_while_it_records(monkeypatch):
    def refuses(*_):
        raise ModelError("'0' has no number of steps")

    monkeypatch.setitem(operations.MAKERS, torch.nn.Linear, refuses)
    with pytest.raises(ModelError, match="^'0' has no number of steps"):
        nw.from_torch(sequential(torch.nn.Linear(8, 4), lif(4)), spike_tensor(2, 3, 8))


def elsewhere(name: str, where: str, **methods):
    """An instance of a class of that name that says it is defined in module `where`."""

    def forward(self, x):
        self.v = self.v * 0.5 + x
        return (self.v > 1).float()

    cls = type(name, (torch.nn.Module,), {"__module__": where, "forward": forward, "v": 0.0, **methods})
    return cls()


@pytest.mark.parametrize("name", ["LIFNode", "MultiStepLIFNode", "IFNode"])
def test_from_torch_imports_the_nodes_of_an_old_spikingjelly_by_their_operators(name):
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), elsewhere(name, "spikingjelly.clock_driven.neuron"))
    x = spike_tensor(2, 6, 8)
    network = nw.from_torch(module, x)
    expected = torch.stack([module(step) for step in x.unbind(1)], 1)
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).spikes["1"], expected.detach().numpy())
    assert network.node("1").neuron.reset == "none"


@pytest.mark.parametrize(
    "use", [nw.from_torch, lambda m, x: nn.quantize_aware(m, "loihi2"), lambda m, x: nw.convert(m, x, 4)]
)
def test_modules_of_lava_dl_are_refused_by_a_sentence(use):
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), elsewhere("Dense", "lava.lib.dl.slayer.block.cuba"))
    with pytest.raises(ModelError) as error:
        use(module, spike_tensor(2, 3, 8))
    assert str(error.value) == (
        "'1' is Dense of lava-dl, whose modules are not read; export the network with its export_hdf5 and read the "
        "file by nw.from_lava(path)"
    )


@pytest.mark.parametrize("use", [lambda m, x: nn.quantize_aware(m, "loihi2"), lambda m, x: nw.convert(m, x, 4)])
def test_modules_of_rockpool_are_refused_by_a_sentence(use):
    as_rockpool = {"parameters": lambda self, family=None: {}, "modules": lambda self: {}}
    module = elsewhere("LIFTorch", "rockpool.nn.modules.torch.lif_torch", **as_rockpool)
    for net, where in ((module, "the module"), (torch.nn.Sequential(torch.nn.Linear(8, 4), module), "'1'")):
        with pytest.raises(ModelError) as error:
            use(net, spike_tensor(2, 3, 8))
        assert str(error.value) == (
            f"{where} is LIFTorch of rockpool, whose modules are not read; export the network with "
            "rockpool.nn.modules.to_nir and read the file by nw.from_nir(path, dialect='rockpool')"
        )
