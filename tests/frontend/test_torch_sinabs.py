"""from_torch of sinabs modules against the modules: every neuron, reset and form of a network, 0 spikes differ."""

import json

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError
from tests.conftest import stored
from tests.frontend.frameworks import framework
from tests.made.spikes import next_spike_tensor

framework("sinabs")
layers, activation = framework("sinabs.layers"), framework("sinabs.activation")
CASES = stored(
    "frameworks/sinabs_*.npz", "sinabs_conv_iaf_sumpool", "sinabs_dense_iaf_singlespike", "sinabs_dense_lif_norm"
)
N = 24
FORMS = {
    "integrator": lambda: layers.IAF(),
    "clamped": lambda: layers.IAF(min_v_mem=-1.0, spike_threshold=torch.tensor(0.7)),
    "one spike": lambda: layers.IAF(spike_fn=activation.SingleSpike, spike_threshold=0.5 + torch.rand(N)),
    "one at most": lambda: layers.IAF(spike_fn=activation.MaxSpike(1)),
    "no maximum": lambda: layers.IAF(spike_fn=activation.MaxSpike(None)),
    "own threshold": lambda: layers.IAF(reset_fn=activation.MembraneSubtract(subtract_value=1.0)),
    "current": lambda: layers.IAF(tau_syn=3.0),
    "leaky": lambda: layers.LIF(tau_mem=7.0),
    "leaky, sum of inputs": lambda: layers.LIF(tau_mem=1 + 9 * torch.rand(N), norm_input=False, min_v_mem=-0.25),
    "leaky, reset to zero": lambda: layers.LIF(tau_mem=5.0, norm_input=False, reset_fn=activation.MembraneReset()),
    "leaky current": lambda: layers.LIF(tau_mem=7.0, tau_syn=1 + 4 * torch.rand(N), norm_input=False),
    "trained decays": lambda: layers.LIF(tau_mem=7.0, tau_syn=3.0, train_alphas=True),
    "recurrent": lambda: layers.IAFRecurrent(recurrent(), spike_fn=activation.SingleSpike, min_v_mem=-1.0),
    "recurrent leaky": lambda: layers.LIFRecurrent(6.0, recurrent(), tau_syn=3.0, spike_fn=activation.SingleSpike),
    "recurrent, flattened": lambda: layers.LIFRecurrent(
        6.0, torch.nn.Sequential(torch.nn.Flatten(), recurrent()), spike_fn=activation.SingleSpike
    ),
}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


def linear(n=N, n_in=N, scale=0.6):
    module = torch.nn.Linear(n_in, n, bias=False)
    module.weight.data = scale * torch.randn(n, n_in)
    return module


def recurrent():
    return linear(scale=0.2)


def forget(module):
    for part in module.modules():
        for name in ("v_mem", "i_syn"):
            if name in part._buffers:
                part._buffers[name] = torch.zeros(0)


def recorded(module, x, n_samples):
    """What every neuron layer of sinabs gives on x, `[B, T, *shape]` by module path."""
    given, hooks = {}, []
    for path, part in module.named_modules():
        if isinstance(part, layers.StatefulLayer):
            hooks.append(part.register_forward_hook(lambda _, __, result, path=path: given.update({path: result})))
    forget(module)
    with torch.no_grad():
        module(x)
    forget(module)
    for hook in hooks:
        hook.remove()
    merged = {path for path, value in given.items() if len(value) != n_samples}
    return {path: value.unflatten(0, (n_samples, -1)) if path in merged else value for path, value in given.items()}


def assert_imports(module, x, run_on=None, **arguments):
    """All layers of the imported network spike as sinabs' do on x `[B, T, *shape]`, given to the module as `run_on`."""
    expected = recorded(module, x if run_on is None else run_on, len(x))
    network = nw.from_torch(module, x[:2, :6], **arguments)
    run = nw.simulate(network, x.numpy())
    assert set(expected) <= set(network.layers)
    for layer, given in expected.items():
        got = run.spikes[layer]
        assert 0.01 < (given != 0).float().mean() < 0.99, layer
        np.testing.assert_array_equal(got, given.numpy().reshape(got.shape), layer)
    return network


@pytest.mark.parametrize("grid", [0.25, None])  # on a grid, membranes meet their thresholds
@pytest.mark.parametrize("form", FORMS)
def test_from_torch_is_exact_for_every_form_of_neuron(form, grid):
    neurons = [FORMS[form]() for _ in range(3)]
    parts = [part for lif in neurons for part in (linear(scale=3.0 if lif.norm_input else 0.6), lif)]
    for part in parts[::2] if grid else ():
        part.weight.data = grid * torch.round(part.weight.data / grid)
    network = assert_imports(torch.nn.Sequential(*parts), next_spike_tensor(8, 60, N))
    assert network.layers == ("1", "3", "5")


def test_from_torch_reads_every_field():
    threshold = torch.tensor(0.5)
    one = layers.LIF(3.0, 2.0, threshold, activation.SingleSpike, activation.MembraneReset(), min_v_mem=-0.5)
    spec = nw.from_torch(one, next_spike_tensor(2, 5, N)).node("lif").neuron
    keep_v, keep_i = np.exp(-1 / np.float32(3)), np.exp(-1 / np.float32(2))
    assert (spec.threshold, spec.strict, spec.spikes, spec.reset, spec.v_min) == (0.5, False, "binary", "zero", -0.5)
    np.testing.assert_allclose([spec.beta, spec.gain, spec.alpha], [keep_v, 1 - keep_v, keep_i], rtol=1e-6)
    assert (spec.current_order, spec.clamp) == ("add_then_decay", "shift")
    many = nw.from_torch(layers.IAF(), next_spike_tensor(2, 5, N)).node("lif").neuron
    assert (many.beta, many.gain, many.alpha, many.spikes, many.reset) == (1, 1, None, "multi", "subtract")


def test_from_torch_takes_leaks_as_readouts():
    module = torch.nn.Sequential(linear(), layers.LIF(5.0), linear(4), layers.ExpLeak(8.0))
    x = next_spike_tensor(4, 60, N)
    network = nw.from_torch(module, x[:, :6])
    expected = recorded(module, x, 4)["3"].numpy()
    assert network.outputs == ("3",)
    assert np.abs(nw.simulate(network, x.numpy()).output - expected).max() < 1e-6 * np.abs(expected).max()


def convolutional(iaf):
    def conv(n_in, n, **options):
        return torch.nn.Conv2d(n_in, n, 3, bias=False, **options)

    parts = [conv(2, 4, padding=1), iaf(), layers.SumPool2d(2), conv(4, 6), iaf(), torch.nn.AvgPool2d(2)]
    module = torch.nn.Sequential(*parts, torch.nn.Flatten(), linear(10, 24), iaf())
    for parameter in module.parameters():
        if parameter.ndim > 1:
            parameter.data *= 2
    return module


@pytest.mark.parametrize("made_for", [{"batch_size": 1}, {"batch_size": 3}, {"num_timesteps": 40}])
def test_from_torch_takes_squeezed_layers_whatever_they_were_made_for(made_for):
    module = convolutional(lambda: layers.IAFSqueeze(min_v_mem=-1.0, **made_for))
    x = next_spike_tensor(3, 40, 2, 12, 12)
    network = nw.from_torch(module, x[:, :6])
    for part in module:
        if isinstance(part, layers.SqueezeMixin):
            before = (made_for.get("batch_size", -1), made_for.get("num_timesteps", -1))
            assert (part.batch_size, part.num_timesteps) == before and part.v_mem.numel() == 0
            part.batch_size = 3
            part.num_timesteps = -1
    expected = recorded(module, x.flatten(0, 1), 3)
    run = nw.simulate(network, x.numpy())
    for layer in network.layers:
        np.testing.assert_array_equal(run.spikes[layer], expected[layer], layer)


def test_from_torch_takes_layers_between_merged_steps():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.repeat = layers.Repeat(torch.nn.Conv2d(2, 3, 3, bias=False))
            self.lif = layers.LIF(4.0, norm_input=False)
            self.flat, self.unflat = layers.FlattenTime(), layers.UnflattenTime(batch_size=2)
            self.left, self.right, self.merge = linear(8, 48), linear(8, 48), layers.Merge()
            self.out = layers.IAFSqueeze(batch_size=2)

        def forward(self, x):
            s = self.flat(self.lif(self.repeat(x))).flatten(1)
            return self.unflat(self.out(self.merge(self.left(s), self.right(s))))

    network = assert_imports(Net(), next_spike_tensor(2, 30, 2, 6, 6))
    assert network.layers == ("lif", "out")


@pytest.mark.parametrize("whole", [True, False])
def test_from_torch_takes_converted_networks_and_stands_neurons_for_relus(whole):
    from_model = framework("sinabs.from_torch").from_model
    ann = torch.nn.Sequential(linear(), torch.nn.ReLU(), linear(), layers.NeuromorphicReLU(), linear(4))
    x = next_spike_tensor(3, 40, N)
    snn = from_model(ann, batch_size=3, add_spiking_output=True)
    module = snn if whole else snn.spiking_model
    network = assert_imports(module, x, run_on=x.flatten(0, 1))
    assert [name.removeprefix("spiking_model.") for name in network.layers] == ["1", "3", "spike_output"]
    neuron = nw.NeuronSpec(strict=False, spikes="multi", reset="subtract", v_min=-1.0)
    by_hand = nw.simulate(nw.from_torch(ann, x[:, :6], relu=neuron), x.numpy())
    run = nw.simulate(network, x.numpy())
    for layer in ("1", "3"):
        name = next(name for name in network.layers if name.endswith(layer))
        np.testing.assert_array_equal(by_hand.spikes[layer], run.spikes[name])


def test_from_torch_goes_on_from_cleared_states():
    module, x = torch.nn.Sequential(linear(), layers.IAF()), next_spike_tensor(2, 30, N)
    with torch.no_grad():
        module(x)
    assert_imports(module, x)


def stored(data, meta):
    """The module of a stored case: its weights in order, with the neurons that `meta` states."""
    spike_fn = getattr(activation, meta["spike_fn"])
    leaks = {"tau_mem": meta["tau_mem_steps"], "norm_input": meta["norm_input"]} if "tau_mem_steps" in meta else {}
    kind = getattr(layers, ("LIF" if leaks else "IAF") + ("Squeeze" if data["x"].ndim > 3 else ""))
    made_for = {"batch_size": data["x"].shape[1]} if data["x"].ndim > 3 else {}
    parts, shape = [], data["x"].shape[2:]
    for i, name in enumerate(sorted(n for n in data if n.endswith("_weight"))):
        weight, out = torch.from_numpy(data[name]), data[f"s{i}"].shape[2:]
        if weight.ndim == 4:
            padding = (out[1] - shape[1] + weight.shape[2] - 1) // 2
            part = torch.nn.Conv2d(*weight.shape[1::-1], weight.shape[2], padding=padding, bias=False)
        else:
            parts += [torch.nn.Flatten()] if len(shape) > 1 else []
            part = torch.nn.Linear(*weight.shape[::-1], bias=False)
        part.weight.data = weight
        parts += [part, kind(spike_fn=spike_fn, min_v_mem=meta.get("min_v_mem"), **leaks, **made_for)]
        parts += [layers.SumPool2d(2)] if weight.ndim == 4 else []
        shape = (out[0], out[1] // 2, out[2] // 2) if weight.ndim == 4 else out
    return torch.nn.Sequential(*parts)


@pytest.mark.parametrize("case", CASES)
def test_from_torch_is_exact_for_stored_cases(reference, case):
    with np.load(reference / "frameworks" / f"{case}.npz") as file:
        data = dict(file)
    x = data["x"].swapaxes(0, 1)
    network = nw.from_torch(stored(data, json.loads(str(data["meta"]))), x)
    run = nw.simulate(network, x)
    assert len(network.layers) == sum(name[0] == "s" and name[1:].isdigit() for name in data)
    for i, layer in enumerate(network.layers):
        np.testing.assert_array_equal(run.spikes[layer], data[f"s{i}"].swapaxes(0, 1), layer)


REFUSED = {
    "layer '1' (sinabs ExpLeak): min_v_mem clamps the state, but not the membrane that it gives; use None": (
        lambda: layers.ExpLeak(3.0, min_v_mem=0.0)
    ),
    "layer '1' (sinabs IAFRecurrent): rec_connect has a bias, which sinabs adds from step 1 on, but a chip from step 0 "
    "on; use bias=False": lambda: layers.IAFRecurrent(torch.nn.Linear(N, N)),
    "layer '1' (sinabs IAFRecurrent): rec_connect is a Bilinear, which is not supported": (
        lambda: layers.IAFRecurrent(torch.nn.Bilinear(N, N, N))
    ),
    "layer '1' (sinabs IAFRecurrent): rec_connect of 2 layers with weights is not supported; use one": (
        lambda: layers.IAFRecurrent(torch.nn.Sequential(recurrent(), recurrent()))
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_from_torch_refuses_by_name_what_it_cannot_express(text):
    module = torch.nn.Sequential(linear(), REFUSED[text]())
    if "Bilinear" in text:
        module[1].rec_connect.forward = lambda s: s
    with pytest.raises(ModelError) as e:
        nw.from_torch(module, next_spike_tensor(2, 6, N))
    assert str(e.value) == text


def test_from_torch_reads_the_maximum_of_spike_counts_as_one_of_currents_and_that_of_spikes_as_a_layer():
    parts = [torch.nn.Conv2d(1, 2, 3, bias=False), layers.IAFSqueeze(batch_size=2), torch.nn.MaxPool2d(2)]
    module = torch.nn.Sequential(*parts, torch.nn.Flatten(), linear(3, 8), layers.IAFSqueeze(batch_size=2))
    counted = nw.from_torch(module, next_spike_tensor(2, 6, 1, 6, 6))
    assert counted.layers == ("1", "5")
    assert [(c.source, c.target) for c in counted.connections if isinstance(c, nw.MaxPool2d)] == [("1", "2")]
    parts[1].spike_fn = activation.SingleSpike
    assert nw.from_torch(module, next_spike_tensor(2, 6, 1, 6, 6)).layers == ("1", "2", "5")
