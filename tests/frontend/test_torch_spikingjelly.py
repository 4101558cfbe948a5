"""from_torch of SpikingJelly modules against the modules: every node, reset and step mode, 0 spikes differ."""

import json

import numpy as np
import pytest
import torch

import nwcompile as nw
from tests.frontend.frameworks import framework
from tests.made.spikes import next_spike_tensor

functional = framework("spikingjelly.activation_based.functional")
layer = framework("spikingjelly.activation_based.layer")
neuron = framework("spikingjelly.activation_based.neuron")

NODES = [
    ("IFNode", {}),
    ("IFNode", {"v_reset": None, "v_threshold": 0.7}),
    ("IFNode", {"v_reset": -0.3}),
    ("LIFNode", {}),
    ("LIFNode", {"tau": 3.0, "v_reset": None}),
    ("LIFNode", {"tau": 5.0, "v_reset": -0.25, "v_threshold": 0.5}),
    ("LIFNode", {"tau": 3.0, "decay_input": False}),
    ("LIFNode", {"tau": 1.7, "decay_input": False, "v_reset": None}),
    ("LIFNode", {"tau": 5.0, "decay_input": False, "v_reset": 0.25, "v_threshold": 1.5}),
    ("ParametricLIFNode", {"init_tau": 2.3}),
    ("ParametricLIFNode", {"init_tau": 2.3, "decay_input": False, "v_reset": 0.1}),
    ("CUBALIFNode", {}),
    ("CUBALIFNode", {"c_decay": 0.6, "v_decay": 0.8, "v_reset": None}),
    ("CUBALIFNode", {"c_decay": 0.6, "v_decay": 0.8, "v_reset": -0.25}),
    ("SimpleIFNode", {"v_reset": 0.25}),
    ("SimpleLIFNode", {"tau": 3.0, "decay_input": True, "v_reset": 0.25}),
    ("SimpleLIFNode", {"tau": 3.0, "decay_input": False, "v_reset": -0.25}),
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


def random(module, gain=4.0):
    """Weights of any float32 numbers, and batch norms that have seen data."""
    for part in module.modules():
        if isinstance(part, torch.nn.Linear | torch.nn.Conv1d | torch.nn.Conv2d):
            part.weight.data = torch.randn_like(part.weight) * gain / part.weight[0].numel() ** 0.5
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
            part.bias.data.normal_(0.2, 0.3)
    return module


def recorded(module, x, is_whole):
    """Spikes `[B, T, *]` of every node when the module runs, in eval mode, on `x` `[T, B, *]`."""
    given: dict[str, list] = {}
    nodes = [(n, m) for n, m in module.named_modules() if isinstance(m, neuron.BaseNode | neuron.SimpleBaseNode)]
    hooks = [m.register_forward_hook(lambda m, a, y, n=n: given.setdefault(n, []).append(y)) for n, m in nodes]
    functional.reset_net(module.eval())
    with torch.no_grad():
        for x_t in [x] if is_whole else x:
            module(x_t)
    functional.reset_net(module)
    for hook in hooks:
        hook.remove()
    whole = {n: y[0] if len(y) == 1 else torch.stack(y) for n, y in given.items()}
    return {n: y.transpose(0, 1).numpy() for n, y in whole.items()}


def assert_equal(module, x, step_mode=None, low=0.01):
    """Every node's spikes are those of the imported network's layer of that name; `x` is `[T, B, *]`."""
    if step_mode is not None:
        functional.set_step_mode(module, step_mode)
    expected = recorded(module, x, step_mode != "s")
    network = nw.from_torch(module, x[:4], layout="TB")
    run = nw.simulate(network, x.numpy())
    assert expected
    for name, theirs in expected.items():
        assert low < theirs.mean() < 0.98, (name, theirs.mean())
        assert (run.spikes[name] != theirs).sum() == 0, name
    return network


def dense(node, options, n_in=20, sizes=(40, 20)):
    parts = []
    for n in sizes:
        parts += [layer.Linear(n_in, n), getattr(neuron, node)(**options)]
        n_in = n
    return random(torch.nn.Sequential(*parts))


@pytest.mark.parametrize("step_mode", ["s", "m"])
@pytest.mark.parametrize(("node", "options"), NODES)
def test_spikingjelly_nodes_come_in_exactly(node, options, step_mode):
    assert_equal(dense(node, options), next_spike_tensor(50, 4, 20), step_mode)


@pytest.mark.parametrize("step_mode", ["s", "m"])
@pytest.mark.parametrize(("k", "exp_init"), [(1, True), (2, True), (4, False)])
def test_spikingjelly_sliding_psn_keeps_its_last_inputs(k, exp_init, step_mode):
    module = torch.nn.Sequential(layer.Linear(20, 40), neuron.SlidingPSN(k, exp_init), layer.Linear(40, 20))
    module.append(neuron.SlidingPSN(k, exp_init))
    for node in (module[1], module[3]):
        node.bias.data.fill_(-0.3)
    functional.set_step_mode(random(module), step_mode)
    x = next_spike_tensor(50, 4, 20)
    with torch.no_grad():
        expected = module(x) if step_mode == "m" else torch.stack([module(x_t) for x_t in x])
    functional.reset_net(module)
    network = nw.from_torch(module, x[:4], layout="TB")
    assert expected.sum() > 50
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, expected.transpose(0, 1).numpy())
    nw.compile(network, "loihi2", calibration=x.transpose(0, 1).numpy())


@pytest.mark.parametrize(
    ("node", "options"),
    [
        ("IFNode", {"v_reset": None, "v_threshold": 0.7}),
        ("LIFNode", {}),
        ("LIFNode", {"tau": 4.0, "decay_input": False, "v_reset": None}),
        ("ParametricLIFNode", {"init_tau": 2.3, "v_threshold": 0.3}),
        ("CUBALIFNode", {"c_decay": 0.6, "v_decay": 0.8}),
    ],
)
def test_spikingjelly_membranes_are_equal_to_the_bit(node, options):
    node = getattr(neuron, node)(**options)
    node.step_mode, node.store_v_seq = "m", True
    x = torch.randn(200, 2, 50)
    with torch.no_grad():
        node.eval()(x)
    expected = node.v_seq.transpose(0, 1).numpy()
    run = nw.simulate(nw.from_torch(node, x[:4], layout="TB"), x.numpy(), record="all")
    assert run.spikes["lif"].mean() > 0.01
    np.testing.assert_array_equal(run.states["lif"]["v"], expected)


@pytest.mark.parametrize(
    ("node", "options", "fields"),
    [
        ("IFNode", {}, {"beta": 1.0, "reset": "zero", "threshold": 1.0, "strict": False}),
        ("IFNode", {"v_reset": 0.25}, {"beta": 1.0, "reset": "zero", "threshold": 0.75}),
        ("LIFNode", {"tau": 4.0}, {"membrane": "euler", "k": 0.25, "v_leak": 0.0}),
        ("LIFNode", {"tau": 4.0, "decay_input": False}, {"membrane": "linear", "beta": 0.75, "leak": 0.0}),
        ("LIFNode", {"v_reset": None}, {"membrane": "euler", "k": 0.5, "reset": "subtract", "reset_timing": "now"}),
        ("CUBALIFNode", {"v_reset": -0.5}, {"alpha": 0.5, "beta": 0.75, "leak": 0.125, "threshold": 1.0}),
        ("SimpleLIFNode", {"tau": 2.0, "decay_input": True, "v_reset": 0.5},
         {"k": 0.5, "v_leak": 0.5, "reset": "value", "reset_value": 0.5, "threshold": 1.0}),
    ],
)  # fmt: skip
def test_spikingjelly_numbers_are_read_from_the_node(node, options, fields):
    network = nw.from_torch(getattr(neuron, node)(**options), torch.zeros(3, 2, 5))
    spec = network.node("lif").neuron
    assert {name: getattr(spec, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("case", "node", "options"),
    [
        ("dense_if", "IFNode", ()),
        ("dense_lif_decayinput", "LIFNode", ("tau", "decay_input")),
        ("dense_lif_soft", "LIFNode", ("tau", "decay_input")),
        ("dense_cubalif", "CUBALIFNode", ("c_decay", "v_decay", "v_threshold")),
    ],
)
def test_spikingjelly_stored_spikes_are_given_by_the_imported_module(reference, case, node, options):
    stored = np.load(reference / "frameworks" / f"spikingjelly_{case}.npz")
    meta = json.loads(str(stored["meta"]))
    options = {name: meta[name] for name in options}
    if meta.get("reset") == "soft":
        options["v_reset"] = None
    weights = [torch.from_numpy(stored[f"w{k}_weight"]) for k in range(3)]
    module = torch.nn.Sequential()
    for weight in weights:
        linear = layer.Linear(*weight.T.shape, bias=False)
        linear.weight.data = weight
        module.extend([linear, getattr(neuron, node)(**options)])
    functional.set_step_mode(module, "m")
    network = nw.from_torch(module, stored["x"][:5], layout="TB")
    run = nw.simulate(network, stored["x"])
    for k in range(3):
        np.testing.assert_array_equal(run.spikes[str(2 * k + 1)], stored[f"s{k}"].swapaxes(0, 1))


def convolutional():
    return torch.nn.Sequential(
        layer.Conv2d(2, 6, 3, padding=1, bias=False), layer.BatchNorm2d(6), neuron.IFNode(), layer.MaxPool2d(2),
        layer.Conv2d(6, 8, 3), layer.BatchNorm2d(8), neuron.LIFNode(v_threshold=0.5), layer.AvgPool2d(2),
        layer.Flatten(), layer.Dropout(0.5), layer.Linear(8, 10), neuron.LIFNode(v_threshold=0.1),
    )  # fmt: skip


def one_dimensional():
    return torch.nn.Sequential(
        layer.Conv1d(2, 6, 3, padding=1), layer.BatchNorm1d(6), neuron.IFNode(), layer.Flatten(), layer.Linear(384, 10),
        layer.BatchNorm1d(10), neuron.LIFNode(),
    )  # fmt: skip


@pytest.mark.parametrize("step_mode", ["s", "m"])
@pytest.mark.parametrize(("make", "shape"), [(convolutional, (2, 8, 8)), (one_dimensional, (2, 64))])
def test_spikingjelly_layers_are_followed_in_both_step_modes(make, shape, step_mode):
    assert_equal(random(make()), next_spike_tensor(12, 3, *shape), step_mode)


def containers():
    lif = neuron.LIFNode(v_threshold=0.5)
    return torch.nn.Sequential(
        layer.SeqToANNContainer(torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4)),
        neuron.IFNode(step_mode="m"),
        layer.SeqToANNContainer(torch.nn.MaxPool2d(2), torch.nn.Flatten()),
        layer.MultiStepContainer(torch.nn.Linear(64, 12), lif, torch.nn.Linear(12, 9), neuron.IFNode()),
        layer.StepModeContainer(False, "m", torch.nn.Linear(9, 8)),
        layer.StepModeContainer(True, "m", neuron.IFNode(), torch.nn.Linear(8, 7), neuron.IFNode()),
    )


def test_spikingjelly_containers_are_followed():
    assert_equal(random(containers()), next_spike_tensor(20, 3, 2, 8, 8))


def linear_recurrence(**options):
    inside = torch.nn.Sequential(torch.nn.Linear(12, 7), neuron.LIFNode(v_threshold=0.5))
    return layer.LinearRecurrentContainer(inside, 12, 7, **options)


def elementwise_recurrence():
    return layer.ElementWiseRecurrentContainer(neuron.LIFNode(), lambda before, x: before + x)


@pytest.mark.parametrize("step_mode", ["s", "m"])
@pytest.mark.parametrize(
    ("make", "n", "path"),
    [(linear_recurrence, 7, "1.sub_module.1"), (elementwise_recurrence, 12, "1.sub_module"),
     (lambda: layer.Delay(2), 12, None)],
)  # fmt: skip
def test_spikingjelly_recurrent_containers_and_delays_become_delayed_connections(make, n, path, step_mode):
    first = [layer.Linear(8, 12), make()] if path else [layer.Linear(8, 12), neuron.IFNode(), make()]
    module = torch.nn.Sequential(*first, layer.Linear(n, 9, bias=path is not None), neuron.LIFNode(v_threshold=0.5))
    network = assert_equal(random(module), next_spike_tensor(20, 3, 8), step_mode)
    delays = {c.aligned_delay for c in network.connections if c.source == (path or "1")}
    assert max(delays) == (1 if path else 2)


class Block(torch.nn.Module):
    """Conv, norm, fire, twice, and the block's input joined to the result: SEW (spikes) or MS (membranes)."""

    def __init__(self, join, fires_first=False):
        super().__init__()
        self.a, self.b = (torch.nn.Sequential(*self.stage(fires_first)) for _ in range(2))
        self.join = join

    @staticmethod
    def stage(fires_first):
        weights = [layer.Conv2d(4, 4, 3, padding=1, bias=False), layer.BatchNorm2d(4)]
        return [neuron.IFNode(), *weights] if fires_first else [*weights, neuron.IFNode()]

    def forward(self, x):
        return self.join(x, self.b(self.a(x)))


def residual(join, fires_first=False):
    stem = [layer.Conv2d(2, 4, 3, padding=1), layer.BatchNorm2d(4)]
    end = [layer.AdaptiveAvgPool2d((1, 1)), layer.Flatten(), layer.Linear(4, 6), neuron.IFNode(v_threshold=0.3)]
    blocks = [Block(join, fires_first), Block(join, fires_first)]
    if fires_first:
        return torch.nn.Sequential(*stem, *blocks, neuron.IFNode(), *end)
    return torch.nn.Sequential(*stem, neuron.IFNode(), *blocks, *end)


@pytest.mark.parametrize("step_mode", ["s", "m"])
@pytest.mark.parametrize(
    ("join", "fires_first"),
    [(lambda x, y: x + y, False), (lambda x, y: x * y, False), (lambda x, y: x * (1.0 - y), False),
     (lambda x, y: x + y, True)],
    ids=["SEW ADD", "SEW AND", "SEW IAND", "MS"],
)  # fmt: skip
def test_spikingjelly_residual_blocks_come_in_exactly(join, fires_first, step_mode):
    assert_equal(random(residual(join, fires_first)), next_spike_tensor(12, 2, 2, 6, 6), step_mode, low=0.001)


class Image(torch.nn.Module):
    """One image, given to every step by the module itself; the rate of the output's spikes."""

    def __init__(self, repeat, step_mode):
        super().__init__()
        self.net, self.repeat = dense("LIFNode", {"v_threshold": 0.5}), repeat
        functional.set_step_mode(self.net, step_mode)

    def forward(self, x):
        if self.repeat is None:
            return sum(self.net(x) for _ in range(6)) / 6
        return self.net(self.repeat(x)).mean(0)


@pytest.mark.parametrize(
    "repeat", [None, lambda x: x.unsqueeze(0).repeat(6, 1, 1), lambda x: x.expand(6, -1, -1),
               lambda x: torch.stack([x] * 6)],
)  # fmt: skip
@pytest.mark.parametrize("n_samples", [1, 3, 6])
def test_spikingjelly_networks_may_repeat_an_image_themselves(repeat, n_samples):
    module, x = Image(repeat, "s" if repeat is None else "m"), torch.rand(n_samples, 20)
    network = nw.from_torch(module, x, layout="B")
    functional.reset_net(module)
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    got = nw.simulate(network, np.repeat(x.numpy()[:, None], 6, 1)).output
    assert 0.02 < expected.mean() < 0.98
    np.testing.assert_array_equal(got.mean(1, dtype=np.float32), expected)


def memories(module):
    """Every memory's name and tensors."""
    kept = {}
    for path, part in module.named_modules():
        for name, value in getattr(part, "_memories", {}).items():
            kept[path, name] = [t.clone() for t in (value if isinstance(value, list) else [value])]
    return kept


def test_spikingjelly_states_are_neither_used_nor_changed():
    x = next_spike_tensor(20, 2, 8)
    module = random(torch.nn.Sequential(layer.Linear(8, 12), neuron.CUBALIFNode(), linear_recurrence(),
                                        layer.Delay(2), layer.Linear(7, 5, bias=False), neuron.IFNode()))  # fmt: skip
    expected = recorded(module, x, False)
    with torch.no_grad():
        for x_t in x[:7]:
            module(x_t)
    module.train()
    before = memories(module)
    run = nw.simulate(nw.from_torch(module, x[:4], layout="TB"), x.numpy())
    np.testing.assert_array_equal(run.output, expected["5"])
    assert all(part.training for part in module.modules())
    after = memories(module)
    assert len(before) == 6 and after.keys() == before.keys()
    for name, tensors in before.items():
        assert len(after[name]) == len(tensors) and all(map(torch.equal, after[name], tensors)), name
