"""from_torch on maximum pooling of currents: what the neurons of a pooled layer are driven by is the largest one."""

import numpy as np
import pytest
import snntorch
import torch

import nwcompile as nw
from nwcompile.errors import ModelError
from tests.made.spikes import spike_tensor


def leaky(**choices):
    return snntorch.Leaky(beta=0.75, threshold=0.5, init_hidden=True, reset_mechanism="subtract", **choices)


def normed(n_channels):
    norm = torch.nn.BatchNorm2d(n_channels)
    norm.weight.data = torch.linspace(-1.5, 1.5, n_channels)  # of both signs: a negative one makes a least value of it
    norm.running_mean.uniform_(-0.2, 0.2)
    return norm


NETS = {
    "2d": (lambda: [torch.nn.Conv2d(2, 4, 3), torch.nn.MaxPool2d(2)], (2, 9, 8)),
    "overlapping": (lambda: [torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.MaxPool2d((3, 2), 2, 1)], (2, 9, 8)),
    "normed": (lambda: [torch.nn.Conv2d(2, 4, 3), torch.nn.MaxPool2d(2), normed(4)], (2, 9, 8)),
    "1d": (lambda: [torch.nn.Conv1d(2, 4, 3), torch.nn.MaxPool1d(3, 2, 1)], (2, 21)),
    "input": (lambda: [torch.nn.MaxPool2d(2), torch.nn.Conv2d(2, 4, 3)], (2, 9, 8)),
    "again": (lambda: [torch.nn.Conv2d(2, 4, 2), torch.nn.MaxPool2d(2), torch.nn.Conv2d(4, 3, 2),
                       torch.nn.MaxPool2d(2)], (2, 12, 11)),
}  # fmt: skip


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_from_torch_computes_the_maximum_of_currents_as_torch_does(name, normalized):
    from nwcompile.passes.prepare.normalize import normalize

    torch.manual_seed(2)
    make, shape = NETS[name]
    parts, x = make(), spike_tensor(3, 7, *shape, seed=3, rate=0.4) * (2 if name == "input" else 1)
    net = torch.nn.Sequential(*parts, leaky(), torch.nn.Flatten(1), torch.nn.LazyLinear(5), leaky(output=True)).eval()
    net(x[:, 0])
    wanted: list[list] = [[], []]
    hooks = [(len(parts), 0), (len(parts) + 3, 1)]
    network = nw.from_torch(net, x)
    for part, k in hooks:
        net[part].register_forward_hook(lambda _m, _x, y, k=k: wanted[k].append(y[0] if k else y))
    for part, _ in hooks:
        net[part].reset_mem()
    with torch.no_grad():
        for t in range(x.shape[1]):
            net(x[:, t])
    run = nw.simulate(normalize(network) if normalized else network, x.numpy())
    assert any(isinstance(c, nw.MaxPool2d) for c in network.connections)
    for (part, k), steps in zip(hooks, wanted, strict=True):
        expected = torch.stack(steps, 1).numpy()
        assert 0.05 < expected.mean() < 0.95 or k
        np.testing.assert_array_equal(run.spikes[str(part)], expected)


def test_max_pool_of_a_network_has_windows_hash_and_errors():
    spec = nw.NeuronSpec(threshold=1.0)

    def network(**window):
        pool = nw.MaxPool2d("x", "a", **{"kernel": 2, **window})
        return nw.Network.from_arrays({"a": spec}, [pool], {"x": (1, 4, 6)})

    assert network().node("a").shape == (1, 2, 3)
    assert network().hash != network(stride=1).hash
    source, window = nw.MaxPool2d("x", "a", 2, padding=1).window_taps((1, 2, 2))
    assert list(zip(source.tolist(), window.tolist(), strict=True)) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    for changes, text in (
        ({"kernel": 5}, "kernel (5, 5) is larger than the padded source (4, 6)"),
        ({"padding": 2}, "padding (2, 2) is more than half of the kernel (2, 2)"),
        ({"kernel": 0}, "kernel=0 must be whole numbers >= 1"),
    ):
        with pytest.raises(ModelError) as error:
            network(**changes)
        assert str(error.value) == f"connection 'x' -> 'a': {text}"
    with pytest.raises(ModelError, match="needs a source \\[C, H, W\\] or \\[C, L\\], not \\(4,\\)"):
        nw.Network.from_arrays({"a": spec}, [nw.MaxPool2d("x", "a", 2)], {"x": (4,)})


def test_to_nir_refuses_a_maximum_of_currents(tmp_path):
    layers = {"sum": (None, (1, 4, 4)), "a": nw.NeuronSpec()}
    kernel = np.ones((1, 1, 3, 3), np.float32)
    network = nw.Network.from_arrays(
        layers, [nw.Conv2d("x", "sum", kernel, padding=1), nw.MaxPool2d("sum", "a", 2)], {"x": (1, 4, 4)}
    )
    with pytest.raises(ModelError) as error:
        nw.to_nir(network, tmp_path / "net.nir")
    assert str(error.value) == (
        "connection 'sum' -> 'a': NIR has no maximum of currents; keep the module, or save the program that "
        "nw.compile makes of it"
    )
