"""SpikingJelly's other nodes as neuron programs: the framework's numbers, in networks and on a chip."""

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

neuron = framework("spikingjelly.activation_based.neuron")
functional = framework("spikingjelly.activation_based.functional")


def run(module, x):
    functional.reset_net(module)
    return module(x) if module.step_mode == "m" else torch.stack([module(x_t) for x_t in x])


def reset() -> float | None:
    """v_reset of a drawn node: a number, or None for a subtraction."""
    return None if torch.rand(()) < 0.5 else 0.0


def k_lif(scale_reset):
    def make(n):
        node = neuron.KLIFNode(scale_reset, number(1.5, 3), bool(torch.rand(()) < 0.5), v_reset=reset())
        node.k.data = torch.tensor(number(0.8, 1.4))
        return node

    return make


def normalized(learns=False, folds=False):
    def make(n):
        node = neuron.MPBNLIFNode(number(1.5, 3), out_features=n, learnable_vth=learns)
        with torch.no_grad():
            node.vbn.running_mean.uniform_(-0.2, 0.2)
            node.vbn.running_var.uniform_(0.5, 1.5)
            node.vbn.weight.uniform_(0.7, 1.3)
            node.vbn.bias.uniform_(-0.2, 0.2)
            if learns:
                node.a.uniform_(-0.3, 0.3)
        node = node.to(torch.get_default_dtype())
        if folds:
            node.re_parameterize_v_threshold()
        return node

    return make


class Late(neuron.BaseNode):
    """A user's own: half of what it is given counts in this step, half in the next."""

    def __init__(self):
        super().__init__(v_reset=reset())
        self.tau = number(1.5, 3)
        self.register_memory("late", 0.0)

    def materialize_states(self, inputs, states, step_mode):
        v, late = super().materialize_states(inputs, states, step_mode)
        return v, late if isinstance(late, torch.Tensor) else torch.full_like(v, late)

    def single_step_functional_forward(self, inputs, states, **kwargs):
        x, (v, late) = inputs[0], states
        v = v + (x / 2 + late - v / self.tau)
        spike = self.surrogate_function(v - self.v_threshold)
        return (spike,), (functional.voltage_reset(v, spike, self.v_threshold, self.v_reset, False), x / 2)


class Pull(neuron.SimpleBaseNode):
    """A user's own, of a charge: what it is given pulls less the higher the membrane is."""

    def neuronal_charge(self, x):
        self.v = 0.9 * self.v + x.clamp(0, 1) * (2.0 - self.v)


def flexible_step(x, v, trace, leak):
    """A step for FlexSN: a leaky membrane whose threshold follows a trace of its spikes."""
    v = leak * v + x
    spike = (v >= 1.0 + trace).to(x)
    return spike, v - spike, 0.9 * trace + 0.5 * spike


def started(n):
    """A node that begins above 0, and subtracts."""
    node = neuron.LIFNode(number(1.5, 3), v_reset=None)
    node.set_reset_value("v", 0.75)
    node.reset()
    return node


NODES = {
    "LIFNode started": started,
    "QIFNode": lambda n: neuron.QIFNode(number(1.5, 3), number(0.5, 0.9), number(0.5, 1.5), v_reset=-0.1),
    "EIFNode": lambda n: neuron.EIFNode(number(1.5, 3), number(0.5, 1.5)),
    "IzhikevichNode": lambda n: neuron.IzhikevichNode(
        number(1.5, 3), a=number(0, 0.3), b=number(0, 0.3), tau_w=number(2, 20)
    ),
    "RAFNode": lambda n: neuron.RAFNode(-number(0.1, 0.3), number(0.5, 1.5)),
    "KLIFNode": k_lif(False),
    "KLIFNode scaled": k_lif(True),
    "ComplementaryLIFNode": lambda n: neuron.ComplementaryLIFNode(number(1.5, 3)),
    "HalfThresholdIFNode": lambda n: neuron.HalfThresholdIFNode(number(0.6, 1.4)),
    "ActivationAwareIFNode": lambda n: neuron.ActivationAwareIFNode(draw(n, 0.6, 1.4), draw(n, -0.2, 0.2)),
    "ILIFNode": lambda n: neuron.ILIFNode(number(1.2, 3), number(0.6, 1.4)),
    "LIAFNode": lambda n: neuron.LIAFNode(torch.relu, True, number(1.2, 3), v_reset=reset()),
    "TernaryIFNode": lambda n: neuron.TernaryIFNode(number(0.6, 1.4), reset()),
    "TernaryLIFNode": lambda n: neuron.TernaryLIFNode(number(1.2, 3), v_threshold=number(0.3, 0.7), v_reset=reset()),
    "STBIFNode": lambda n: neuron.STBIFNode(number(0.3, 0.7), 8, sym=True),
    "MPBNLIFNode": normalized(),
    "MPBNLIFNode learned": normalized(learns=True),
    "MPBNLIFNode folded": normalized(folds=True),
    "own step": lambda n: Late(),
    "own charge": lambda n: Pull(),
    "FlexSN": lambda n: neuron.FlexSN(flexible_step, num_states=2, static_inputs=(draw(1, 0.5, 0.9),)),
}
SIGNED = ("TernaryIFNode", "TernaryLIFNode", "STBIFNode")


def node(name, step_mode):
    def make(n):
        made = NODES[name](n)
        made.step_mode = step_mode
        return made

    return make


def gated(per_channel):
    """Its steps are as many as it is made for, its neurons those of maps of 5 channels."""

    def make(n):
        made = neuron.GatedLIFNode(T=LONG[0], inplane=5 if per_channel else None)
        with torch.no_grad():
            for name in ("alpha", "beta", "gamma", "tau", "v_threshold", "linear_decay", "v_subreset"):
                value = getattr(made, name)
                value.copy_(draw(value.numel(), -2, 2).reshape(value.shape))
        return made.to(torch.get_default_dtype())

    return make


def run_gated(module, x):
    functional.reset_net(module)
    module.T = len(x)
    return module(x)


CASES = {
    **{
        f"GatedLIFNode {name}": Case(gated(per_channel), run_gated, shape=lambda n: (5, n // 5, 1))
        for name, per_channel in (("by layer", False), ("by channel", True))
    }
} | {
    f"{name} {mode}": Case(node(name, mode), run, low=-1.5 if name in SIGNED else -0.5)
    for name in NODES
    for mode in "sm"
}


@each_once(CASES)
def test_spikingjelly_programs_give_the_frameworks_numbers(name, dtype):
    verify_same(CASES[name], dtype, *SHORT)


@each_in_both(CASES)
def test_spikingjelly_programs_give_the_frameworks_numbers_for_a_million_steps(name, dtype):
    verify_same(CASES[name], dtype, *LONG)


def network(name):
    gain = 9.0 if name == "LIAFNode" else 3.0
    parts = [weights(10, gain=gain), node(name, "m")(10), weights(6, 10, gain), node(name, "m")(6)]
    return torch.nn.Sequential(*parts).eval()


@pytest.mark.parametrize("name", NODES)
def test_from_torch_follows_spikingjelly_nodes_in_a_network(name):
    torch.manual_seed(3)
    module, x = network(name), next_spike_tensor(20, 3, N_IN, rate=0.3)
    with torch.no_grad():
        result = module(x)
    functional.reset_net(module)
    worth = float(getattr(module[3], "q_threshold", 1.0))
    verify_network(module, x, "TB", result / worth)


@pytest.mark.parametrize("inplane", [None, 3])
def test_from_torch_follows_gated_lif(inplane):
    torch.manual_seed(3)
    gated = neuron.GatedLIFNode(T=20, inplane=inplane)
    module, x = torch.nn.Sequential(gated).eval(), 2 * torch.rand(20, 2, 3, 4, 5)
    with torch.no_grad():
        for name in ("alpha", "beta", "gamma"):
            getattr(gated, name).data = 2 * draw(inplane or 1, -1, 1).reshape(getattr(gated, name).shape)
        result = module(x)
    functional.reset_net(module)
    run = nw.simulate(nw.from_torch(module, x, layout="TB"), x.numpy())
    assert (run.output == result.transpose(0, 1).numpy()).all()
    assert 0 < run.output.mean() < 1


@pytest.mark.parametrize(
    ("make", "is_same"),
    [(lambda: neuron.OTTTLIFNode(tau=4.0), True), (lambda: neuron.SLTTLIFNode(tau=4.0, v_reset=None), True),
     (Late, False)],
)  # fmt: skip
def test_from_torch_reads_what_differs_in_training_only_as_a_built_in_neuron(make, is_same):
    network = nw.from_torch(torch.nn.Sequential(weights(10), make()), next_spike_tensor(2, 6, N_IN, rate=0.3))
    assert isinstance(network.node(network.layers[-1]).neuron, nw.NeuronSpec) == is_same


@pytest.mark.parametrize("make", [neuron.NonSpikingIFNode, lambda: neuron.NonSpikingLIFNode(tau=3.0)])
def test_from_torch_reads_the_membrane_of_integrators(make):
    torch.manual_seed(3)
    module, x = torch.nn.Sequential(weights(10), make()), next_spike_tensor(6, 2, N_IN, rate=0.3)
    with torch.no_grad():
        result = torch.stack(module(x))
    run = nw.simulate(nw.from_torch(module, x, layout="TB"), x.numpy())
    torch.testing.assert_close(torch.from_numpy(run.output), result.transpose(0, 1).contiguous())


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NODES if name != "LIAFNode"])
def test_spikingjelly_programs_are_the_same_in_three_backends(name):
    torch.manual_seed(3)
    verify_on_chip(network(name), next_spike_tensor(30, 3, N_IN, rate=0.3), "TB")


@pytest.mark.long
def test_gated_lif_and_a_readout_are_the_same_in_three_backends():
    torch.manual_seed(3)
    gated = [
        neuron.GatedLIFNode(T=20, inplane=3),
        torch.nn.Flatten(2),
        weights(5, 60),
        neuron.NonSpikingLIFNode(tau=3.0),
    ]
    x = next_spike_tensor(20, 2, 3, 4, 5, rate=0.3)
    program = nw.compile(nw.from_torch(torch.nn.Sequential(*gated).eval(), x, layout="TB"), "loihi2", calibration=x)
    assert nw.crosscheck(program, x).agree
    assert nw.simulate(program, x, backend="sequence").spikes["0"].any()


def test_compile_refuses_states_that_grow_without_bound():
    torch.manual_seed(3)
    x = next_spike_tensor(60, 3, N_IN, rate=0.3)
    module = torch.nn.Sequential(weights(10), neuron.QIFNode(v_reset=None, step_mode="m")).eval()
    module[0].bias.data += 3
    network = nw.from_torch(module, x[:3], layout="TB")
    with pytest.raises(ModelError, match="its states grow without bound on the calibration samples; give it a reset"):
        nw.compile(network, "loihi2", calibration=x)


PARALLEL = "computes each step from several steps of its input by weights, and a neuron keeps states, no past input"
REFUSED = {
    "PSN": (lambda: neuron.PSN(T=6), PARALLEL),
    "MaskedPSN": (lambda: neuron.MaskedPSN(k=2, T=6, step_mode="m"), PARALLEL),
    "DSRIFNode": (
        lambda: neuron.DSRIFNode(T=6),
        "it is a function of all steps together, for training by rates; use an IFNode or LIFNode of its threshold",
    ),
    "FewSpikeNode": (
        lambda: neuron.FewSpikeNode(neuron.FewSpikeTable([1.0, 0.5], [1.0, 0.5], [1.0, 0.5])),
        "it keeps no state and sends real numbers of its own table; it is an activation, not a neuron",
    ),
    "NoisyCUBALIFNode": (
        lambda: neuron.NoisyCUBALIFNode(10, T=6),
        "it draws random numbers in every step, and backends must agree",
    ),
    "ILCLIFNode": (
        lambda: neuron.ILCLIFNode(5, 2),
        "its spikes go through a convolution of its own into its next input; use a neuron and a recurrent layer",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_from_torch_says_why_a_node_is_no_program(name):
    make, reason = REFUSED[name]
    with pytest.raises(ModelError) as error:
        nw.from_torch(torch.nn.Sequential(weights(10), make()), next_spike_tensor(6, 2, N_IN, rate=0.3), layout="TB")
    assert str(error.value) == f"'1': {name} cannot be a neuron program: {reason}"


def gated_over_time():
    node = neuron.GatedLIFNode(T=6)
    node.conduct.data[2] += 1
    return node


@pytest.mark.parametrize(
    ("make", "shape", "text"),
    [
        (
            gated_over_time,
            (3, 4, 5),
            "layer 'lif' (spikingjelly GatedLIFNode): its conduct differs from step to step, and a neuron program "
            "computes the same in every step",
        ),
        (
            lambda: neuron.FlexSN(lambda x, v: (v + x, v + x, v - x), num_states=1),
            (4,),
            "layer 'lif' (spikingjelly FlexSN): its step has 1 inputs and 2 outputs, and a layer has one of each",
        ),
        (
            lambda: neuron.NonSpikingIFNode(decode="max-mem"),
            (4,),
            "layer 'lif' (spikingjelly NonSpikingIFNode): decode='max-mem' is known after the last step only; use "
            "decode=None",
        ),
        (
            lambda: neuron.LIAFNode(lambda v: torch.softmax(v, 1), False),
            (4,),
            "layer 'lif' (spikingjelly LIAFNode): torch's _softmax is no operation of a neuron program; "
            "write it with + - * /, comparisons, torch.where",
        ),
        (
            lambda: neuron.LIAFNode(lambda v: v.sum(1, keepdim=True) * v, False),
            (4,),
            "layer 'lif' (spikingjelly LIAFNode): torch's sum, which makes [1, 1] of [1, 4] is no operation of a "
            "neuron program; compute every neuron alone",
        ),
    ],
)
def test_from_torch_says_what_of_a_step_is_no_program(make, shape, text):
    module = make()
    with pytest.raises(ModelError) as error:
        nw.from_torch(module, torch.rand(6, 2, *shape), layout="TB")
    assert str(error.value).startswith(text)
