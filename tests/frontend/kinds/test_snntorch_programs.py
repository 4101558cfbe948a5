"""snnTorch's other neurons as neuron programs: the framework's numbers, in networks and on a chip."""

import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError
from tests.frontend.frameworks import framework
from tests.frontend.kinds.cases import (
    LONG,
    N_IN,
    SHORT,
    Case,
    draw,
    each_in_both,
    each_once,
    number,
    verify_network,
    verify_on_chip,
    verify_same,
    weights,
)
from tests.made.spikes import next_spike_tensor

snn = framework("snntorch")
quant = framework("snntorch.functional.quant")
RESETS = ("subtract", "zero", "none")


@pytest.fixture(autouse=True)
def _no_layer_is_left():
    """snnTorch keeps all layers that were ever made, and cannot reset any while a DeltaLeaky is among them."""
    yield
    snn.SpikingNeuron.instances.clear()


def stepped(module, x):
    module.reset_mem()
    given = [module(x_t) for x_t in x]
    return torch.stack([g[0] if isinstance(g, tuple) else g for g in given])


def alpha(reset):
    def make(n):
        beta = draw(n, 0.3, 0.6)
        options = {"threshold": draw(n, 0.3, 1.0), "init_hidden": True, "reset_mechanism": reset}
        return snn.Alpha(beta + draw(n, 0.05, 0.35), beta, **options)

    return Case(make, stepped)


def lapicque(reset):
    def make(n):
        options = {"threshold": draw(n, 0.2, 0.6), "init_hidden": True, "reset_mechanism": reset}
        return snn.Lapicque(R=number(1, 3), C=number(2, 6), **options)

    return Case(make, stepped)


def halves(v):
    """A state on multiples of 1/8, as hardware might keep it."""
    return torch.round(8 * v) / 8


def quantized(kind):
    def make(n):
        options = {"threshold": draw(n, 0.3, 1.0), "init_hidden": True, "state_quant": halves}
        if kind == "Synaptic":
            options["alpha"] = draw(n, 0.3, 0.9)
        if kind == "RLeaky":
            options["linear_features"] = n
        layer = getattr(snn, kind)(beta=draw(n, 0.3, 0.9), **options)
        if kind == "RLeaky":
            torch.nn.init.zeros_(layer.recurrent.bias)
        return layer.to(torch.get_default_dtype())

    return Case(make, stepped, double=kind != "RLeaky")


def parallel(n):
    layer = snn.LeakyParallel(n, n, beta=0.8, threshold=draw(n, 0.2, 0.8), bias=bool(torch.rand(()) < 0.7))
    return layer.to(torch.get_default_dtype())


CASES = {
    **{f"Alpha {reset}": alpha(reset) for reset in RESETS},
    **{f"Lapicque {reset}": lapicque(reset) for reset in RESETS},
    **{f"{kind} state_quant": quantized(kind) for kind in ("Leaky", "Synaptic", "RLeaky")},
    "DeltaLeaky": Case(
        lambda n: snn.DeltaLeaky(delta_threshold=number(0.5, 1.0), beta=draw(n, 0.5, 1.0), init_hidden=True), stepped
    ),
    "LeakyParallel": Case(parallel, lambda module, x: module(x)),
}


@each_once(CASES)
def test_snntorch_programs_give_the_frameworks_numbers(name, dtype):
    verify_same(CASES[name], dtype, *SHORT)


@each_in_both(CASES)
def test_snntorch_programs_give_the_frameworks_numbers_for_a_million_steps(name, dtype):
    verify_same(CASES[name], dtype, *LONG)


def network(name):
    parts = [weights(10), CASES[name].make(10), weights(6, 10), CASES[name].make(6)]
    return torch.nn.Sequential(*parts).eval()


STEPPED = [name for name in CASES if name != "LeakyParallel"]


@pytest.mark.parametrize("name", STEPPED)
def test_from_torch_follows_snntorch_neurons_in_a_network(name):
    torch.manual_seed(3)
    module, x = network(name), next_spike_tensor(3, 20, N_IN, rate=0.3)
    verify_network(module, x, "BT", torch.stack([spikes_of(module, x_t) for x_t in x.unbind(1)], 1))


@torch.no_grad()
def spikes_of(module, x_t):
    """What a step of a Sequential sends: DeltaLeaky gives its states too."""
    for part in module:
        x_t = part(x_t)
        x_t = x_t[0] if isinstance(x_t, tuple) else x_t
    return x_t


def test_from_torch_follows_leaky_parallel_which_has_weights_of_its_own():
    torch.manual_seed(3)
    module = torch.nn.Sequential(snn.LeakyParallel(N_IN, 12, beta=0.9), snn.LeakyParallel(12, 6, beta=0.9))
    for layer in module:
        layer.threshold = layer.threshold * 0.2
        layer.graded_spikes_factor = layer.graded_spikes_factor * 2
    x = next_spike_tensor(20, 3, N_IN, rate=0.3)
    with torch.no_grad():
        result = module(x)
    network = nw.from_torch(module, x, layout="TB")
    run = nw.simulate(network, x.numpy())
    assert (2 * run.output == result.transpose(0, 1).numpy()).all()
    assert 0 < run.output.mean() < 1


def test_from_torch_keeps_what_a_spike_of_alpha_is_worth():
    torch.manual_seed(3)
    module, x = network("Alpha subtract"), next_spike_tensor(3, 20, N_IN, rate=0.3)
    for layer in (module[1], module[3]):
        layer.graded_spikes_factor = layer.graded_spikes_factor * 0.25
    module[2].weight.data *= 4
    with torch.no_grad():
        result = torch.stack([module(x_t) for x_t in x.unbind(1)], 1)
    run = nw.simulate(nw.from_torch(module, x), x.numpy())
    assert (run.output == result.numpy() * 4).all()
    assert run.output.any()


@pytest.mark.parametrize("reset", RESETS)
def test_from_torch_reads_lapicque_of_one_ohm_as_a_built_in_neuron(reset):
    torch.manual_seed(3)
    options = {"beta": 0.8, "init_hidden": True, "reset_mechanism": reset}
    parts = [weights(50), snn.Lapicque(threshold=draw(50, 0.2, 0.6), **options)]
    parts += [weights(6, 50), snn.Lapicque(threshold=0.3, **options)]
    module, x = torch.nn.Sequential(*parts).eval(), next_spike_tensor(4, 60, N_IN, rate=0.3)
    network = nw.from_torch(module, x[:2])
    assert not network.programs
    with torch.no_grad():
        for layer in (module[1], module[3]):
            layer.reset_mem()
        result = torch.stack([module(x_t) for x_t in x.unbind(1)], 1)
    assert (nw.simulate(network, x.numpy()).output == result.numpy()).all()
    assert 0 < result.mean() < 1


@pytest.mark.parametrize("kind", ["StateLeaky", "LinearLeaky"])
@pytest.mark.parametrize("output", [True, False])
def test_from_torch_reads_convolutions_with_a_kernel_in_time_as_leaks(kind, output):
    torch.manual_seed(3)
    if kind == "StateLeaky":
        tail = [weights(10), snn.StateLeaky(draw(10, 0.5, 0.95), channels=10, output=output)]
    else:
        tail = [snn.LinearLeaky(draw(10, 0.5, 0.95), N_IN, 10, output=output)]
    module, x = torch.nn.Sequential(*tail), next_spike_tensor(30, 3, N_IN, rate=0.3)
    with torch.no_grad():
        result = module(x)
    result = result[0] if output else result
    network = nw.from_torch(module, x, layout="TB")
    spec = network.node(network.layers[-1]).neuron
    assert (spec.reset, spec.fires) == ("none", output)
    run = nw.simulate(network, x.numpy())
    if output:
        assert (run.output == result.transpose(0, 1).numpy()).all()
        assert 0 < run.output.mean() < 1
    else:  # the sum over all steps is rounded otherwise than step by step
        torch.testing.assert_close(torch.from_numpy(run.output), result.transpose(0, 1).contiguous())


@pytest.mark.long
@pytest.mark.parametrize("name", STEPPED)
def test_snntorch_programs_are_the_same_in_three_backends(name):
    torch.manual_seed(3)
    verify_on_chip(network(name), next_spike_tensor(3, 30, N_IN, rate=0.3), "BT")


@pytest.mark.long
def test_leaky_parallel_is_the_same_in_three_backends():
    torch.manual_seed(3)
    module = torch.nn.Sequential(snn.LeakyParallel(N_IN, 12, beta=0.9), snn.LeakyParallel(12, 6, beta=0.9))
    for layer in module:
        layer.threshold = layer.threshold * 0.2
    verify_on_chip(module, next_spike_tensor(30, 3, N_IN, rate=0.3), "TB")


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("kind", ["SLSTM", "SConv2dLSTM", "SConv2dLSTM with pooling"])
def test_gates_of_an_lstm_are_inputs_of_its_neurons(kind, reset):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            shared = {"threshold": 0.1, "reset_mechanism": reset}
            self.cell = (
                snn.SLSTM(8, 8, **shared)
                if kind == "SLSTM"
                else snn.SConv2dLSTM(2, 2, 3, max_pool=2 if "pooling" in kind else 0, **shared)
            )

        def forward(self, x):
            (syn, mem), sent = self.cell.reset_mem(), []
            for x_t in x.unbind(1):
                spikes, syn, mem = self.cell(x_t, syn, mem)
                sent.append(spikes)
            return torch.stack(sent, 1)

    torch.manual_seed(4)
    module, shape = Net().eval(), (3, 6, 8) if kind == "SLSTM" else (3, 6, 2, 6, 6)
    network = nw.from_torch(module, next_spike_tensor(*shape, rate=0.3))
    assert network.node(network.layers[0]).n_inputs in (4, 8)  # for a reset, snnTorch computes the gates twice
    x = next_spike_tensor(*shape, rate=0.5)
    with torch.no_grad():
        expected = module(x).numpy()
    spikes = nw.simulate(network, x.numpy()).spikes[network.outputs[-1]]
    assert (spikes == expected).all() and expected.any()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: snn.Leaky(0.9, init_hidden=True, state_quant=quant.state_quant(2)),
            "layer '1' (snntorch Leaky): torch's repeat, which makes [10, 4] of [1, 10] is no operation of a neuron "
            "program; compute every neuron alone",
        ),
    ],
)
def test_from_torch_refuses_what_is_no_program(make, text):
    with pytest.raises(ModelError) as error:
        nw.from_torch(torch.nn.Sequential(weights(10), make()), next_spike_tensor(3, 5, N_IN, rate=0.3))
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: snn.LeakyParallel(10, 10, beta=0.9, weight_hh_enable=True),
            "layer '1' (snntorch LeakyParallel): its membranes feed each other (weight_hh_enable=True), and neurons "
            "send spikes only; use weight_hh_enable=False, or a recurrent layer",
        ),
        (
            lambda: snn.StateLeaky(0.9, 10, kernel_truncation_steps=4),
            "layer '1' (snntorch StateLeaky): kernel_truncation_steps cuts off older input, but a membrane "
            "only leaks; use None",
        ),
        (
            lambda: snn.AssociativeLeaky(10, 2, 5, 10),
            "'1': AssociativeLeaky cannot be a neuron program: its state is a matrix, into which all its inputs are "
            "multiplied with each other",
        ),
    ],
)
def test_from_torch_refuses_sequences_that_are_no_program(make, text):
    with pytest.raises(ModelError) as error:
        nw.from_torch(torch.nn.Sequential(weights(10), make()), next_spike_tensor(5, 3, N_IN, rate=0.3), layout="TB")
    assert str(error.value) == text
