"""Layers with delays from training to the chip: every spike is the module's in each backend."""

import nir
import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import FitError, ModelError, NwWarning
from nwcompile.sim.sequence.readout import run_readout
from tests.frontend.frameworks import framework
from tests.made.spikes import spike_tensor

pytestmark = pytest.mark.filterwarnings("error::nwcompile.errors.NwWarning")
TAU = 10e-3
LONG = pytest.mark.long


def on_grid(net):
    """The net with weights that every chip's integers hold: k/4, one threshold of 1."""
    with torch.no_grad():
        for m in net.modules():
            if isinstance(m, nn.LIFSynapse | nn.DelayedConv2d):
                m.weight.copy_((m.weight * 10).round() / 4)
    return net.eval()


def flat_net(max_delay=9):
    torch.manual_seed(0)
    return on_grid(
        nn.Sequential(
            nn.DelayedLinear(6, 14, max_delay),
            nn.LIFLayer(14, TAU, reset_mechanism="zero"),
            nn.Delay(14, max_delay),
            nn.LIFSynapse(14, 10),
            nn.LIFLayer(10, TAU, reset_mechanism="zero"),
            nn.DelayedLinear(10, 4, max_delay),
            nn.LIFLayer(4, TAU, reset_mechanism="zero"),
        )
    )


def map_net(max_delay=6):
    torch.manual_seed(1)
    return on_grid(
        nn.Sequential(
            nn.DelayedConv2d(1, 2, 3, max_delay, padding=1),
            nn.LIFLayer(2 * 5 * 4, TAU, reset_mechanism="zero"),
            torch.nn.Flatten(),
            nn.DelayedLinear(40, 3, max_delay),
            nn.LIFLayer(3, TAU, reset_mechanism="zero"),
        )
    )


NETS = {"flat": (flat_net, (6,)), "map": (map_net, (1, 5, 4))}


@pytest.fixture(params=NETS)
def net_and_x(request):
    make, shape = NETS[request.param]
    return make(), spike_tensor(3, 40, *shape, seed=1, rate=0.35)


def recorded(net, x):
    """Spikes of the last layer, int8."""
    nn.prepare_net(net)
    with torch.no_grad():
        return net(x)[0].numpy().astype(np.int8)


def test_the_network_has_the_module_s_spikes(net_and_x):
    net, x = net_and_x
    network, expected = nw.from_torch(net, x), recorded(net, x)
    assert np.array_equal(nw.simulate(network, x.numpy()).output, expected) and expected.any()
    occurring = {int(d) for m in net.modules() if hasattr(m, "rounded_steps") for d in m.rounded_steps.unique()}
    assert {c.aligned_delay for c in network.connections} == occurring | {0}


@pytest.mark.parametrize("chip", [pytest.param("loihi1", marks=LONG), "loihi2"])
def test_trained_delays_survive_on_a_chip(net_and_x, chip):
    net, x = net_and_x
    program = nw.compile(nw.from_torch(net, x), chip, x.numpy())
    expected = recorded(net, x)
    for backend in ("reference", "cycle", "sequence"):
        assert np.array_equal(nw.simulate(program, x.numpy(), backend=backend).output, expected), backend
    assert expected.any()


def test_a_module_that_goes_step_by_step_is_the_same_network():
    class Steps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = flat_net()

        def forward(self, x):
            for layer in self.net:
                x = layer(x)
                x = x[0] if isinstance(x, tuple) else x
            return x

    x = spike_tensor(2, 30, 6, seed=1, rate=0.35)
    one, whole = nw.from_torch(Steps(), x), nw.from_torch(flat_net(), x)
    assert len(one.connections) == len(whole.connections)
    assert np.array_equal(nw.simulate(one, x.numpy()).output, nw.simulate(whole, x.numpy()).output)


def test_equal_delays_stay_one_connection():
    net = nn.Sequential(
        nn.DelayedLinear(3, 2, 5, init_delay=2), nn.LIFLayer(2), nn.Delay(2, 4, 3), nn.LIFSynapse(2, 2), nn.LIFLayer(2)
    )
    network = nw.from_torch(net, spike_tensor(1, 9, 3, seed=1, rate=0.35))
    assert [(type(c).__name__, c.aligned_delay) for c in network.connections if c.aligned_delay] == [
        ("Dense", 2),
        ("Scale", 3),
    ]


def long_net():
    torch.manual_seed(0)
    first = nn.LIFSynapse(6, 8), nn.LIFLayer(8, TAU, reset_mechanism="zero")
    return on_grid(nn.Sequential(*first, nn.DelayedLinear(8, 3, 30), nn.LIFLayer(3, TAU, reset_mechanism="zero")))


def test_delays_longer_than_the_chip_s_become_relay_neurons():
    net, x = long_net(), spike_tensor(2, 50, 6, seed=1, rate=0.35)
    program = nw.compile(nw.from_torch(net, x), "spinnaker2", x.numpy())
    assert any("relay" in name for name in program.network.layers)
    expected = recorded(net, x)
    for backend in ("reference", "cycle"):
        assert np.array_equal(nw.simulate(program, x.numpy(), backend=backend).output, expected), backend
    assert expected.any()


def test_a_delay_behind_the_last_layer_is_in_the_output():
    x = spike_tensor(2, 30, 5, seed=1, rate=0.35)
    net = nn.Sequential(nn.LIFSynapse(5, 4), nn.LIFLayer(4, TAU), nn.Delay(4, 6, torch.tensor([0.0, 2, 6, 3]))).eval()
    with torch.no_grad():
        net[0].weight.fill_(0.5)
        out = net(x)
    network = nw.from_torch(net, x)
    assert np.array_equal(nw.simulate(network, x.numpy()).output, out) and out.any()


class DelayAround(torch.nn.Module):
    """Two layers with a delay between them, whose result is added to the spikes of the second one, or returned too."""

    def __init__(self, is_added):
        super().__init__()
        self.is_added = is_added
        self.first, self.lif = nn.LIFSynapse(5, 4), nn.LIFLayer(4, TAU)
        self.delay = nn.Delay(4, 6, torch.tensor([0.0, 2, 6, 3]))
        self.second = nn.Sequential(nn.LIFSynapse(4, 4), nn.LIFLayer(4, TAU))
        for layer in (self.first, self.second[0]):
            layer.weight.data.fill_(0.5)

    def forward(self, x):
        late = self.delay(self.lif(self.first(x))[0])
        spikes = self.second(late)[0]
        return spikes + late if self.is_added else (spikes, late)


def test_a_delay_that_feeds_a_layer_is_read_out_too():
    x = spike_tensor(2, 30, 5, seed=1, rate=0.35)
    network = nw.from_torch(DelayAround(True).eval(), x)
    expected = DelayAround(True).eval()(x)
    run = nw.simulate(network, x.numpy(), record="all")
    given = run_readout(network.readout, run.spikes, run.states)
    assert np.array_equal(given.reshape(expected.shape), expected.detach()) and expected.any()


def test_the_warning_names_a_delay_among_further_results():
    x = spike_tensor(2, 30, 5, seed=1, rate=0.35)
    with pytest.warns(NwWarning, match=r"the import left out 'delay' \(Delay\), so"):
        nw.from_torch(DelayAround(False).eval(), x)


def test_a_delay_in_two_places_is_refused():
    delay = nn.Delay(4, 6)
    layers = [delay, nn.LIFSynapse(4, 4), nn.LIFLayer(4, TAU), delay, nn.LIFSynapse(4, 4), nn.LIFLayer(4, TAU)]
    text = "layer '[03]' is called 2 times for the 30 steps of the example; a layer with delays keeps the steps of one"
    with pytest.raises(ModelError, match=text):
        nw.from_torch(nn.Sequential(*layers), spike_tensor(2, 30, 4, seed=1, rate=0.35))


def test_delays_of_an_input_of_numbers_take_programs_that_relay_them():
    net = on_grid(nn.Sequential(nn.DelayedLinear(2, 3, 30, init_delay=20.0), nn.LIFLayer(3, TAU)))
    x = spike_tensor(2, 25, 2, seed=1, rate=0.35)
    network = nw.from_torch(net, x)
    program = nw.compile(network, "spinnaker2", x.numpy())
    assert program.network.programs == ("input/relay1",)
    assert np.array_equal(nw.simulate(program, x.numpy()).output, nw.simulate(network, x.numpy()).output)
    with pytest.raises(FitError, match=r"delay steps  input -> 1  \d+ of 15  shorten the delay or raise neuron.delay"):
        nw.compile(network, "spinnaker2", x.numpy(), nw.Options(on_multi_spike="repeat"))


def test_quantization_aware_training_keeps_delays_and_its_spikes_are_the_chip_s():
    net, x = flat_net(), spike_tensor(4, 30, 6, seed=1, rate=0.35)
    aware = nn.quantize_aware(net, "loihi2", x)
    aware(x).square().sum().backward()
    with torch.no_grad():
        for parameter in aware.parameters():
            if parameter.grad is not None:
                parameter -= 1e-3 * parameter.grad
        expected = aware(x).numpy().astype(np.int8)
    network = aware.network()
    program = nw.compile(network, "loihi2", x.numpy())
    assert np.array_equal(nw.simulate(program, x.numpy()).output, expected) and expected.any()
    assert {c.aligned_delay for c in network.connections} >= {int(d) for d in net[0].delays.rounded_steps.unique()}


def test_a_delay_in_a_layout_with_steps_first_is_refused():
    net = nn.Sequential(nn.DelayedLinear(3, 2, 5), nn.LIFLayer(2))
    with pytest.raises(ModelError, match=r"layout"):
        nw.from_torch(net, spike_tensor(9, 2, 3, seed=1, rate=0.35), layout="TB")


def trained(net, x, wanted):
    """The net after some steps towards `wanted` spikes, with delays whole at the end; weights stay on the grid."""
    delays = [p for name, p in net.named_parameters() if name.endswith("delays.steps")]
    before = [p.detach().round().clone() for p in delays]
    optimizer, annealing = torch.optim.Adam(delays, 0.4), nn.DelayAnnealing(net.train(), 6)
    for _ in range(8):
        nn.prepare_net(net)
        optimizer.zero_grad()
        (net(x)[0].cumsum(1) - wanted.cumsum(1)).square().mean().backward()
        optimizer.step()
        annealing.step()
    nn.freeze_delays(net.eval())
    moved = [float((p - q).abs().max()) for p, q in zip(delays, before, strict=True)]
    assert min(moved) >= 1, "every layer's delays were trained to other whole steps"
    return net


@pytest.mark.parametrize(("name", "chip"), [
    ("flat", "loihi2"), ("map", "loihi1"), pytest.param("flat", "loihi1", marks=LONG),
    pytest.param("map", "loihi2", marks=LONG),
])  # fmt: skip
def test_delays_that_gradients_moved_survive_on_a_chip(name, chip):
    make, shape = NETS[name]
    x = spike_tensor(3, 40, *shape, seed=1, rate=0.35)
    start = make()
    drawn = recorded(start, x)
    net = trained(start, x, spike_tensor(*drawn.shape, rate=0.2, seed=5))
    expected = recorded(net, x)
    assert expected.any() and not np.array_equal(expected, drawn)
    program = nw.compile(nw.from_torch(net, x), chip, x.numpy())
    for backend in ("reference", "cycle", "sequence"):
        assert np.array_equal(nw.simulate(program, x.numpy(), backend=backend).output, expected), backend


@pytest.mark.parametrize("name", NETS)
def test_delays_of_layers_go_through_a_nir_file(name, tmp_path):
    """With the file's notes, and without them: as NIR's Delay nodes, and with what the warning says is unsaid."""
    make, shape = NETS[name]
    net, x = make(), spike_tensor(3, 40, *shape, seed=1, rate=0.35)
    network, expected = nw.from_torch(net, x), recorded(net, x)
    with pytest.warns(NwWarning, match=r"net.nir: other readers do not see strict=False of '1', '[0-9]"):
        nw.to_nir(network, tmp_path / "net.nir", dt=1e-3)
    assert np.array_equal(nw.simulate(nw.from_nir(tmp_path / "net.nir"), x.numpy()).output, expected)
    graph = nir.read(tmp_path / "net.nir")
    graph.metadata = {}
    written = {step for n in graph.nodes.values() if isinstance(n, nir.Delay) for step in np.unique(n.delay / 1e-3)}
    occurring = {int(d) for m in net.modules() if hasattr(m, "rounded_steps") for d in m.rounded_steps.unique()} - {0}
    assert {round(step) for step in written} - {0} == occurring
    read = nw.from_nir(graph, dt=1e-3, dialect="nir", neuron={"strict": False})
    assert np.array_equal(nw.simulate(read, x.numpy()).output, expected) and expected.any()


class Stepwise(torch.nn.Module):
    """Layers with delays between the neurons of another framework, step by step."""

    def __init__(self, make):
        super().__init__()
        torch.manual_seed(0)
        self.make = make
        self.first, self.last = (nn.DelayedLinear(*sizes, 7) for sizes in ((6, 12), (12, 4)))
        self.hidden, self.out = make(), make()
        on_grid(self)

    def forward(self, x):
        states, given = [None, None], []
        nn.prepare_net(self)
        for step in range(x.shape[1]):
            spike, states[0] = self.hidden(self.first(x[:, step]), states[0])
            spike, states[1] = self.out(self.last(spike), states[1])
            given.append(spike)
        return torch.stack(given, 1)


def snntorch_neurons():
    return framework("snntorch").Leaky(beta=0.75, reset_mechanism="zero", reset_delay=False)


def norse_neurons():
    norse = framework("norse.torch")
    return norse.LIFBoxCell(norse.LIFBoxParameters(tau_mem_inv=torch.tensor(250.0), v_th=torch.tensor(0.2)), dt=1e-3)


@pytest.mark.parametrize("make", [snntorch_neurons, norse_neurons])
def test_layers_with_delays_go_between_the_neurons_of_other_frameworks(make):
    net, x = Stepwise(make).eval(), spike_tensor(2, 40, 6, seed=1, rate=0.35)
    network = nw.from_torch(net, x)
    with torch.no_grad():
        expected = net(x).numpy()
    assert np.array_equal(nw.simulate(network, x.numpy()).output, expected) and expected.any()
    assert {c.aligned_delay for c in network.connections} == set(range(8))


def test_snntorch_and_norse_have_no_delay_layer_of_their_own():
    """Where a release brings one, it is to be read."""
    for name in ("snntorch", "norse.torch"):
        assert not [public for public in dir(framework(name)) if "delay" in public.lower()]


@pytest.mark.parametrize("n_steps", [1, 3])
def test_steps_padded_in_front_and_cut_behind_are_a_delay(n_steps):
    """The token shift of RWKV: a padding of -1 leaves out the last step."""

    class Shifted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.shift = torch.nn.ZeroPad2d((0, 0, n_steps, -n_steps))
            self.fc, self.lif = torch.nn.Linear(5, 7, bias=False), nn.LIFLayer(7, TAU)
            self.fc.weight.data.uniform_(-0.1, 0.5)

        def forward(self, x):
            return self.lif(self.fc(x + self.shift(x)))[0]

    module, x = Shifted(), spike_tensor(3, 12, 5)
    network = nw.from_torch(module, x[:2, :8])
    assert sorted(c.aligned_delay for c in network.connections if c.source == "input") == [0, n_steps]
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, module.eval()(x).detach().numpy())
