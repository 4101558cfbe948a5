"""Ways of writing in public code: states in one tensor, straight-through spikes, values kept for plots, and others."""

import copy

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError, NwWarning
from tests.frontend.frameworks import framework
from tests.made.spikes import spike_tensor

N_IN, N, STEPS = 8, 6, 9


class Net(torch.nn.Module):
    """Neurons with recurrent weights; `run_step(net, x, state)` returns what is sent and the next state."""

    def __init__(self, run_step):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.own = torch.nn.Linear(N_IN, N), torch.nn.Linear(N, N, bias=False)
        self.fc.weight.data *= 3
        self.run_step, self.log = run_step, []

    def forward(self, x):
        state, sent = None, []
        for x_t in x.unbind(1):
            s, state = self.run_step(self, x_t, state)
            sent.append(s)
        return torch.stack(sent, 1)


def import_and_compare(module, n_steps=STEPS):
    """Import a module; verify that it sends the network's spikes for other samples too."""
    network = nw.from_torch(module, spike_tensor(3, n_steps, N_IN))
    x = spike_tensor(4, n_steps, N_IN, seed=1)
    with torch.no_grad():
        expected = module(x.clone()).numpy()
    assert expected.any() and not expected.all()
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, expected)
    return network


def fire(v, x, decay=0.8):
    v = decay * v + x
    s = (v > 0.5).float()
    return s, v * (1 - s)


def use(hook):
    def run_step(net, x, v):
        s, v = fire(0.0 if v is None else v, net.fc(x))
        return s if (changed := hook(net, s)) is None else changed, v

    return run_step


def keep_array(net, s):
    net.history = s.detach().cpu().numpy()


KEPT = {
    "item": lambda net, s: net.log.append(s.mean().item()),
    "array": keep_array,
    "list": lambda net, s: net.log.append(s.tolist()),
    "count": lambda net, s: setattr(net, "count", int(s.sum())),
    "text": lambda net, s: net.log.append(f"{s}"),
}


@pytest.mark.parametrize("kept", KEPT)
def test_values_that_are_kept_for_a_plot_change_nothing(kept):
    import_and_compare(Net(use(KEPT[kept])))


def zero_first(net, s):
    s.numpy()[:, 0] = 0


def scale_by_value(net, s):
    return s * (2.0 if s.sum().item() > 3 else 1.0)


def halve_until_small(net, s):
    while s.max() > 0.6:
        s = s / 2
    return s


def stop_at_zeros(net, s):
    sums = [(spikes + 1).sum().item() for spikes in s.unbind(1)]  # never 0
    return s - 0.0 if any(sums) else torch.zeros_like(s)


def halve_if_large(net, s):
    while s.max() > 5:  # never on the example
        s = s / 2
    return s


def keep_until_equal(net, s):
    before, net.before = getattr(net, "before", None), s.sum().item()
    return s if before is None or abs(net.before - before) > 0.01 else 1 - s


@pytest.mark.parametrize(
    "hook",
    [
        zero_first,
        scale_by_value,
        halve_until_small,
        halve_if_large,
        keep_until_equal,
        lambda net, s: torch.from_numpy(1 - s.numpy()),
        lambda net, s: torch.zeros_like(s) if s.sum().item() == s.mean().item() == 0 else s - 0.0,
        stop_at_zeros,
    ],
)
def test_values_that_change_what_the_module_computes_are_refused(hook):
    with pytest.raises(ModelError, match=r"test_torch_public.py:\d+: the code reads a value of a tensor"):
        nw.from_torch(Net(use(hook)), spike_tensor(3, STEPS, N_IN))


def test_result_that_a_value_chooses_is_refused():
    class Chooses(Net):
        def forward(self, x):
            a = super().forward(x)
            b = 1 - a
            return a if a.sum().item() > 20 else b

    def run_step(net, x, v):
        return fire(0.0 if v is None else v, net.fc(x))

    with pytest.raises(ModelError, match=r"test_torch_public.py:\d+: the code reads a value of a tensor"):
        nw.from_torch(Chooses(run_step), spike_tensor(3, STEPS, N_IN))


STRAIGHT = {
    "(h - s) + s": lambda hard, soft: (hard - soft).detach() + soft,
    "s + (h - s)": lambda hard, soft: soft + (hard - soft).detach(),
    "s - (s - h)": lambda hard, soft: soft - (soft - hard).detach(),
    "h - s + s": lambda hard, soft: hard.detach() - soft.detach() + soft,
    "h + s - s": lambda hard, soft: hard.detach() + soft - soft.detach(),
}


@pytest.mark.parametrize("form", STRAIGHT)
def test_straight_through_spikes_are_spikes(form):
    def run_step(net, x, v):
        v = (0.0 if v is None else 0.25 * v) + net.fc(x)
        s = STRAIGHT[form]((v > 0.5).float(), torch.sigmoid(4 * v))
        return s, v * (1 - s)

    net, x = Net(run_step), spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(net, x)
    expected = net(x).detach().round().numpy()
    assert expected.any()
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, expected)
    assert nw.compile(network, "loihi2", calibration=x.numpy()).chip.name == "loihi2"


def test_spikes_times_several_factors_are_spikes():
    def run_step(net, x, v):
        v = (0.0 if v is None else 0.9 * v) + net.fc(x)
        s = (v > 0.5).float() * 0.1
        return net.own(s / 0.05), v - 5 * s

    x = spike_tensor(3, STEPS, N_IN).numpy()
    network = nw.from_torch(Net(run_step), spike_tensor(3, STEPS, N_IN))
    assert nw.compile(network, "loihi2", calibration=x).chip.name == "loihi2"


JOINED = {
    "stack": (lambda v, z: torch.stack([v, z]), lambda state: state),
    "stack behind": (lambda v, z: torch.stack([v, z], -1), lambda state: state.unbind(-1)),
    "rows": (lambda v, z: torch.stack([v, z], 1), lambda state: (state[:, 0], state[:, 1])),
    "cat": (lambda v, z: torch.cat([v, z], 1), lambda state: state.chunk(2, 1)),
    "slices": (lambda v, z: torch.cat([v, z], 1), lambda state: (state[:, :N], state[:, N:])),
}


@pytest.mark.parametrize("way", JOINED)
def test_states_may_be_kept_as_one_tensor(way):
    join, split = JOINED[way]

    def run_step(net, x, state):
        zero = torch.zeros(len(x), N)
        v, z = split(join(zero, zero) if state is None else state)
        v = 0.8 * v * (1 - z) + net.fc(x) + net.own(z)
        z = (v > 0.5).float()
        return z, join(v, z)

    network = import_and_compare(Net(run_step))
    assert isinstance(network.node(network.layers[0]).neuron, nw.NeuronSpec)


def test_states_that_are_kept_with_a_constant():
    def run_step(net, x, state):
        zero = torch.zeros(len(x), N)
        joined = torch.cat([zero, zero + 0.1, zero], 1) if state is None else state
        v, z = joined[:, :N] + joined[:, N : 2 * N], joined[:, 2 * N :]
        s, v = fire(v, net.fc(x) + net.own(z))
        return s, torch.cat([v, torch.full_like(v, 0.1), s], 1)

    import_and_compare(Net(run_step))


def test_copied_states():
    def run_step(net, x, state):
        mem = {0: torch.zeros(len(x), N)} if state is None else state[0]
        spike = copy.deepcopy(mem) if state is None else state[1]
        mem[0] = 0.9 * mem[0] * (1 - spike[0]) + net.fc(x)
        spike[0] = (mem[0] > 0.5).float()
        return spike[0], (mem, spike)

    import_and_compare(Net(run_step))


def test_weights_without_a_diagonal():
    def run_step(net, x, state):
        u, s = (torch.zeros(len(x), N),) * 2 if state is None else state
        u = 0.9 * (u - s) + net.fc(x) + s @ net.own.weight.clone().fill_diagonal_(0)
        s = (u > 0.5).float()
        return s, (u, s)

    network = import_and_compare(Net(run_step))
    assert any(c.aligned_delay for c in network.connections)


def test_module_that_writes_into_its_input_leaves_the_example_as_it_is():
    class Repeats(Net):
        def forward(self, x):
            x.unsqueeze_(1)
            return super().forward(x.repeat(1, 6, 1).mul_(2))

    x = spike_tensor(3, 1, N_IN)[:, 0]
    before = x.clone()
    module = Repeats(lambda net, x, v: fire(0.0 if v is None else v, net.fc(x)))
    network = nw.from_torch(module, x, layout="B")
    assert torch.equal(x, before)
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, module(x).detach().numpy())


def test_module_that_scales_its_input_in_place():
    class Scales(Net):
        def forward(self, x):
            return super().forward(x.mul_(2))

    x = spike_tensor(3, STEPS, N_IN)
    before = x.clone()
    module = Scales(lambda net, x, v: fire(0.0 if v is None else v, net.fc(x)))
    network = nw.from_torch(module, x)
    assert torch.equal(x, before)
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, module(x.clone()).detach().numpy())


STATES = {
    "the spikes": lambda s, mem: s,
    "half of it": lambda s, mem: mem / 2,
    "clamped": lambda s, mem: mem.clamp(min=0),
    "without what fired": lambda s, mem: mem * (1 - s),
}


@pytest.mark.parametrize("state", STATES)
def test_layer_of_a_framework_that_is_given_another_state_is_read_as_a_hand_written_one(state):
    class Changed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.lif = torch.nn.Linear(N_IN, N), framework("snntorch").Leaky(beta=0.9, threshold=0.4)

        def forward(self, x):
            mem, sent = self.lif.init_leaky(), []
            for x_t in x.unbind(1):
                s, mem = self.lif(self.fc(x_t), mem)
                mem = STATES[state](s, mem)
                sent.append(s)
            return torch.stack(sent, 1)

    import_and_compare(Changed())


BRANCHES = {
    "sum": (lambda y: y.reshape(-1, N, 4), lambda d: d.sum(2), 0.0),
    "mean": (lambda y: y.reshape(-1, N, 4), lambda d: d.mean(-1), 0.05),
    "branches first": (lambda y: y.reshape(-1, 4, N), lambda d: d.sum(1), 0.05),
    "of functions": (lambda y: y.reshape(-1, N, 4), lambda d: torch.relu(d).sum(2), 0.0),
    "of many": (lambda y: y.reshape(-1, N, 4).repeat(1, 1, 9), lambda d: d.sum(2), 0.05),
    "of one current": (lambda y: y[:, :N].unsqueeze(2).expand(-1, N, 4), lambda d: d.sum(2), 0.0),
}


class Dendrites(torch.nn.Module):
    """Neurons that add up four branches, each with a decay of its own."""

    def __init__(self, split, add_up, start):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.own = torch.nn.Linear(N_IN, 4 * N), torch.nn.Linear(N, 4 * N, bias=False)
        self.split, self.add_up = split, add_up
        self.decay = torch.nn.Parameter(torch.sigmoid(torch.randn(split(torch.zeros(1, 4 * N)).shape[1:])))
        self.start = start * torch.arange(self.decay.numel()).reshape(self.decay.shape)

    def forward(self, x):
        d, v, s, sent = self.start, torch.zeros(len(x), N), torch.zeros(len(x), N), []
        for x_t in x.unbind(1):
            d = self.decay * d + 2 * (1 - self.decay) * self.split(self.fc(x_t) + self.own(s))
            v = 0.9 * v + 0.5 * self.add_up(d) - 0.5 * s
            s = (v > 0.3).float()
            sent.append(s)
        return torch.stack(sent, 1)


@pytest.mark.parametrize("form", BRANCHES)
def test_branches_are_inputs_of_their_neurons_and_land(form):
    network = import_and_compare(Dendrites(*BRANCHES[form]))
    (layer,) = network.layers
    assert network.node(layer).n_inputs == (36 if form == "of many" else 4)
    x = spike_tensor(3, STEPS, N_IN).numpy()
    program = nw.compile(network, "spinnaker2", calibration=x)
    assert nw.crosscheck(program, x).agree


def test_branches_of_one_current_have_one_input():
    def run_step(net, x, state):
        d, v = (torch.zeros(len(x), N, 3), torch.zeros(len(x), N)) if state is None else state
        d = torch.tensor([0.2, 0.5, 0.9]) * d + net.fc(x).unsqueeze(2)
        s, v = fire(v, d.mean(2), decay=0.5)
        return s, (d, v)

    network = import_and_compare(Net(run_step))
    (layer,) = network.layers
    assert network.node(layer).n_inputs == 1


@pytest.mark.parametrize("change", [lambda v: v.clamp(max=0.3), lambda v: v.mul_(0.5)])
def test_state_in_an_attribute_that_the_code_changes(change):
    neuron = framework("spikingjelly.activation_based.neuron")
    functional = framework("spikingjelly.activation_based.functional")

    class Changed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.lif = torch.nn.Linear(N_IN, N), neuron.LIFNode(tau=2.0, v_threshold=0.5)
            self.fc.weight.data *= 3

        def forward(self, x):
            functional.reset_net(self)
            sent = []
            for x_t in x.unbind(1):
                sent.append(self.lif(self.fc(x_t)))
                self.lif.v = change(self.lif.v)
            return torch.stack(sent, 1)

    import_and_compare(Changed())


class Back(torch.nn.Module):
    """Two layers of neurons; the first one gets back `call(net, spikes)` of itself and what the second one sends."""

    def __init__(self, call):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = (torch.nn.Linear(n, N) for n in (N_IN, N, N))
        self.a.weight.data *= 3
        self.call = call

    def forward(self, x):
        u = v = back = 0.0
        sent = []
        for x_t in x.unbind(1):
            s, u = fire(u, self.a(x_t) + back)
            current = 2 * self.b(s) + 0.3
            z, v = fire(v, current)
            back = self.call(self, current, z)
            sent.append(z)
        return torch.stack(sent, 1)


def test_branches_that_fire_or_decay_alike_are_layers_of_their_own():
    def fire_each(d):
        return (d > 0.2).float().sum(2)

    fired = import_and_compare(Dendrites(BRANCHES["sum"][0], fire_each, 0.0))
    assert [fired.node(name).n_neurons for name in fired.layers] == [4 * N, N]
    alike = Dendrites(*BRANCHES["sum"])
    alike.decay.data[:] = 0.75
    alike.own.weight.data[:] = 0
    assert nw.compile(import_and_compare(alike), "loihi2", calibration=spike_tensor(3, STEPS, N_IN).numpy())


def test_branches_that_the_spike_resets():
    def run_step(net, x, state):
        d, s = (torch.zeros(len(x), N, 2), torch.zeros(len(x), N)) if state is None else state
        d = torch.tensor([0.5, 0.9]) * d * (1 - s.unsqueeze(2)) + net.fc(x).unsqueeze(2)
        s = (d.sum(2) > 1.5).float()
        return s, (d, s)

    assert len(import_and_compare(Net(run_step)).layers) == 1


DECODERS = {
    "a map of membranes": lambda net, s, v: net.out(v),
    "two maps": lambda net, s, v: net.out(torch.relu(net.own(v))),
    "two maps of spikes": lambda net, s, v: net.out(torch.relu(net.own(s))),
}


@pytest.mark.parametrize("decoder", DECODERS)
def test_decoder_is_the_hosts(decoder):
    class Decoded(Net):
        def __init__(self):
            super().__init__(None)
            self.out = torch.nn.Linear(N, 2)

        def forward(self, x):
            v, total = 0.0, 0.0
            for x_t in x.unbind(1):
                s, v = fire(v, self.fc(x_t))
                total = total + DECODERS[decoder](self, s, v)
            return total / x.shape[1]

    net, x = Decoded(), spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(net, x)
    assert network.layers == ("fc",)
    answer = nw.read_out(nw.simulate(network, x.numpy(), record="all"))
    np.testing.assert_allclose(answer.reshape(3, 2), net(x).detach(), rtol=1e-5, atol=1e-6)
    assert nw.compile(network, "loihi2", calibration=x.numpy()).network.readout is not None


@pytest.mark.parametrize("n_layers", [1, 2])
def test_map_of_the_membranes_of_a_framework_is_the_hosts(n_layers):
    class Policy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            sizes = [(N_IN, N), (N, N)][:n_layers]
            self.fc = torch.nn.ModuleList(torch.nn.Linear(*size) for size in sizes)
            self.lif = torch.nn.ModuleList(framework("snntorch").Leaky(beta=0.9, threshold=0.4) for _ in sizes)
            self.out = torch.nn.Linear(N, 2)

        def forward(self, x):
            mem, total = [lif.init_leaky() for lif in self.lif], 0.0
            for s in x.unbind(1):
                for i, (fc, lif) in enumerate(zip(self.fc, self.lif, strict=True)):
                    s, mem[i] = lif(fc(s), mem[i])
                    total = total + self.out(mem[i])
            return total / x.shape[1]

    net, x = Policy(), spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(net, x)
    assert network.layers == ("lif.0", "lif.1")[:n_layers]
    answer = nw.read_out(nw.simulate(network, x.numpy(), record="all"))
    np.testing.assert_allclose(answer.reshape(3, 2), net(x).detach(), rtol=1e-5, atol=1e-6)


def test_spikes_and_membranes_may_both_feed_a_layer_of_a_framework():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.of_v, self.of_s = (torch.nn.Linear(n, N) for n in (N_IN, N, N))
            self.fc.weight.data *= 3
            self.lif = framework("snntorch").Leaky(beta=0.9, threshold=0.4)

        def forward(self, x):
            v, mem, sent = 0.0, self.lif.init_leaky(), []
            for x_t in x.unbind(1):
                v = 0.8 * v + self.fc(x_t)
                s = (v > 0.5).float()
                z, mem = self.lif(self.of_v(v) + self.of_s(s), mem)
                v = v * (1 - s)
                sent.append(z)
            return torch.stack(sent, 1)

    import_and_compare(Mixed())


def test_maps_of_membranes_that_the_host_cannot_read_stay_layers():
    def run_step(net, x, state):
        v, s = (torch.zeros(len(x), N),) * 2 if state is None else state
        v = 0.8 * v * (1 - s) + net.fc(x)
        s = (v > 0.5).float()
        return net.own(v) + net.own(s), (v, s)

    net, x = Net(run_step), spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(net, x)
    assert network.left_out == "" and len(network.layers) > 1
    answer = nw.read_out(nw.simulate(network, x.numpy(), record="all"))
    np.testing.assert_allclose(answer.reshape(3, STEPS, N), net(x).detach(), rtol=1e-4, atol=1e-5)


def test_layer_that_the_input_feeds_outside_of_the_loop_is_refused_with_its_line():
    class Outside(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lif = framework("snntorch").Leaky(beta=0.9, threshold=0.4, init_hidden=True)

        def forward(self, x):
            s, v, sent = torch.softmax(self.lif(x), 1), 0.0, []
            for _ in range(6):
                z, v = fire(v, s)
                sent.append(z)
            return torch.stack(sent, 1)

    with pytest.raises(ModelError, match=r"^test_torch_public.py:\d+: layer 'lif' is fed by the input, which"):
        nw.from_torch(Outside(), torch.rand(3, N_IN), layout="B")


def test_products_of_spikes_before_a_map_stay_on_the_chip():
    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.gate, self.out = torch.nn.Linear(N_IN, N), torch.nn.Linear(N_IN, N), torch.nn.Linear(N, 2)
            self.a, self.b = (framework("snntorch").Leaky(beta=0.9, threshold=0.4) for _ in range(2))

        def forward(self, x):
            a, b, sent = self.a.init_leaky(), self.b.init_leaky(), []
            for x_t in x.unbind(1):
                s, a = self.a(self.fc(x_t), a)
                z, b = self.b(self.gate(x_t), b)
                sent.append(self.out((1 - s) * z))
            return torch.stack(sent, 1)

    network = nw.from_torch(Gated(), spike_tensor(3, STEPS, N_IN))
    assert len(network.layers) == 4 and network.readout is None


def test_way_back_with_a_bias_that_starts_at_zero():
    network = import_and_compare(Back(lambda net, current, z: net.c(z) + 0))
    assert any(c.aligned_delay for c in network.connections)


def test_way_back_that_a_factor_of_zero_closes():
    network = import_and_compare(Back(lambda net, current, z: current * torch.tensor(0.0)))
    assert not any(c.aligned_delay for c in network.connections)


def test_recurrent_neurons_may_return_their_membrane_before_the_reset():
    def run_step(net, x, state):
        v, s = (torch.zeros(len(x), N),) * 2 if state is None else state
        v = 0.9 * v + net.fc(x) + net.own(s)
        s = (v > 0.5).float()
        return v, (v - s, s)

    net, x = Net(run_step), spike_tensor(3, STEPS, N_IN)
    with pytest.warns(NwWarning, match="the import left out the membrane"):
        network = nw.from_torch(net, x)
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, (net(x) > 0.5).float().numpy())


def test_factor_that_training_drove_to_nothing_is_dropped():
    def run_step(net, x, state):
        u, v = (torch.zeros(len(x), N),) * 2 if state is None else state
        u = u - 0.5 * v + net.fc(x)
        v = v + 1e-34 * u + 0.5 * net.fc(x)
        s = (v >= 1).float()
        return s, (u - 0.5 * s, v - s)

    x = spike_tensor(3, STEPS, N_IN).numpy()
    program = nw.compile(import_and_compare(Net(run_step)), "loihi2", calibration=x)
    assert nw.crosscheck(program, x).agree


def test_first_step_before_the_loop_has_no_recurrent_input():
    class First(Net):
        def forward(self, x):
            s, v = fire(0.0, self.fc(x[:, 0]))
            sent = [s]
            for t in range(1, x.shape[1]):
                v = 0.8 * v + self.own(s) + self.fc(x[:, t])
                s = (v > 0.5).float()
                v = v * (1 - s)
                sent.append(s)
            return torch.stack(sent, 1)

    import_and_compare(First(None))


def test_first_state_that_is_the_input_times_zero():
    def run_step(net, x, q):
        current = net.fc(x)
        v = (current * 0.0 + 0.2 if q is None else q) + current
        s = (v >= 0.4).float() - (v < 0).float()
        return s, v - 0.4 * s

    import_and_compare(Net(run_step))


@pytest.mark.parametrize("n_layers", [1, 2])
def test_states_of_all_steps_that_are_filled_a_step_ahead(n_layers):
    def fill(own, current):
        v, s = torch.zeros_like(current), torch.zeros_like(current)
        for t in range(current.shape[1] - 1):
            v[:, t + 1] = 0.9 * v[:, t] + current[:, t] + own(s[:, t]) - s[:, t]
            s[:, t + 1] = (v[:, t + 1] > 0.5).float()
        return s

    class Filled(Net):
        def forward(self, x):
            s = fill(self.own, x @ self.fc.weight.T)
            return s if n_layers == 1 else fill(self.own, self.own(s))

    network = import_and_compare(Filled(None).requires_grad_(False))
    assert len(network.layers) == n_layers
    x = spike_tensor(3, STEPS, N_IN).numpy()
    assert nw.crosscheck(nw.compile(network, "loihi2", calibration=x), x).agree  # its neurons have one input
