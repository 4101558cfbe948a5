"""from_torch of snnTorch modules against the modules: every reset, every form of a network, 0 spikes differ."""

import json
from itertools import product

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError, NwWarning
from tests.frontend.frameworks import framework
from tests.made.spikes import next_spike_tensor

snn = framework("snntorch")
N_IN, N_HIDDEN, N_OUT = 20, 16, 12
N_STEPS = 12  # of a loop over time, which from_torch follows operator by operator
STATES = {"Leaky": 1, "Synaptic": 2, "RLeaky": 2, "RSynaptic": 3}
WAYS = [
    (kind, reset, delay)
    for kind, reset, delay in product(STATES, ("subtract", "zero", "none"), (True, False))
    if delay or kind != "RSynaptic"  # which cannot run without delay on kept states
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


def neuron(kind, n, **options):
    options = {"beta": torch.rand(n) * 1.1, "threshold": 0.3 + torch.rand(n), **options}
    if "Synaptic" in kind:
        options.setdefault("alpha", torch.rand(n))
    if kind.startswith("R"):
        options.setdefault("linear_features", n)
    return getattr(snn, kind)(**options)


def lively(module):
    for name, value in module.named_parameters():
        if name.endswith(("weight", "bias")):
            value.data *= 2
    return module


def sequential(kind="Leaky", **options):
    parts = [torch.nn.Linear(N_IN, N_HIDDEN), neuron(kind, N_HIDDEN, init_hidden=True, **options)]
    parts += [torch.nn.Linear(N_HIDDEN, N_OUT), neuron(kind, N_OUT, init_hidden=True, **options)]
    return lively(torch.nn.Sequential(*parts))


class Explicit(torch.nn.Module):
    """One step, with every state handed over; `rest` of the result is handed back."""

    def __init__(self, kind, **options):
        super().__init__()
        self.fc1, self.lif1 = torch.nn.Linear(N_IN, N_HIDDEN), neuron(kind, N_HIDDEN, **options)
        self.fc2, self.lif2 = torch.nn.Linear(N_HIDDEN, N_OUT), neuron(kind, N_OUT, **options)
        self.n = STATES[kind]
        lively(self)

    def step(self, x, first, second):
        one = self.lif1(self.fc1(x), *first)
        two = self.lif2(self.fc2(one[0]), *second)
        return two[0], one[-self.n :], two[-self.n :]

    def start(self, n_samples):
        return [tuple(torch.zeros(n_samples, n) for _ in range(self.n)) for n in (N_HIDDEN, N_OUT)]


class Loop(Explicit):
    """[T, B, N] in, spikes and membranes of all steps out."""

    def forward(self, x):
        first, second = self.start(x.shape[1])
        spikes, membranes = [], []
        for step in range(x.shape[0]):
            s, first, second = self.step(x[step], first, second)
            spikes.append(s)
            membranes.append(second[-1])
        return torch.stack(spikes), torch.stack(membranes)


class Repeats(Explicit):
    """The same image [B, N] in each of 20 steps."""

    def forward(self, image):
        first, second = self.start(len(image))
        spikes = []
        for _ in range(20):
            s, first, second = self.step(image, first, second)
            spikes.append(s)
        return torch.stack(spikes)


class Step(Explicit):
    """forward(x[, state])."""

    def forward(self, x, state=None):
        spikes, *state = self.step(x, *(state or self.start(len(x))))
        return spikes, state


def step_by_step(module, x):
    for part in module.modules():
        if hasattr(part, "reset_mem"):
            part.reset_mem()
    with torch.no_grad():
        return torch.stack([module(x_t) for x_t in x.unbind(1)], 1).numpy()


def assert_imports(module, x, expected, **arguments):
    network = nw.from_torch(module, **arguments)
    got = nw.simulate(network, x.numpy()).output
    assert 0.02 < expected.mean() < 0.98
    np.testing.assert_array_equal(got, expected.reshape(got.shape))
    return network


@pytest.mark.parametrize(("kind", "reset", "delay"), WAYS)
def test_from_torch_is_exact_for_every_reset_of_hidden_states(kind, reset, delay):
    module, x = sequential(kind, reset_mechanism=reset, reset_delay=delay), next_spike_tensor(4, 40, N_IN, rate=0.3)
    network = assert_imports(module, x, step_by_step(module, x), example_input=x)
    assert network.layers == ("1", "3")
    assert [c.source for c in network.connections if c.aligned_delay] == (["1", "3"] if kind.startswith("R") else [])


@pytest.mark.parametrize(("kind", "reset", "delay"), list(product(STATES, ("subtract", "zero"), (True, False))))
def test_from_torch_is_exact_for_a_loop_over_time_with_explicit_states(kind, reset, delay):
    module, x = Loop(kind, reset_mechanism=reset, reset_delay=delay), next_spike_tensor(N_STEPS, 4, N_IN, rate=0.3)
    with torch.no_grad():
        expected = module(x)[0].transpose(0, 1).numpy()
    with pytest.warns(NwWarning, match="left out the membrane of layer 'lif2'"):
        network = assert_imports(module, x, expected, example_input=x, layout="TB")
    assert network.layers == ("lif1", "lif2")


@pytest.mark.parametrize("kind", STATES)
def test_from_torch_hands_the_state_of_a_step_to_the_next(kind):
    module, x, state, expected = Step(kind), next_spike_tensor(4, N_STEPS, N_IN, rate=0.3), None, []
    with torch.no_grad():
        for x_t in x.unbind(1):
            s, state = module(x_t, state)
            expected.append(s)
    assert_imports(module, x, torch.stack(expected, 1).numpy(), example_input=x)


@pytest.mark.parametrize("kind", STATES)
def test_from_torch_takes_one_image_that_the_module_repeats(kind):
    module, image = Repeats(kind), torch.rand(4, N_IN)
    with torch.no_grad():
        expected = module(image).transpose(0, 1).numpy()
    network = assert_imports(module, image, expected, example_input=image, layout="B")
    assert (network.layout, network.n_steps) == ("B", 20)
    each_step = image[:, None].expand(4, 20, N_IN).numpy()
    np.testing.assert_array_equal(nw.simulate(network, each_step).output, expected)


class ReadsMembrane(Loop):
    """[T, B, N] in; of its last layer, which has no reset, the membrane comes out, and on demand its spikes too."""

    def __init__(self, with_spikes: bool):
        super().__init__("Leaky")
        self.lif2 = neuron("Leaky", N_OUT, reset_mechanism="none")
        self.with_spikes = with_spikes

    def forward(self, x):
        first, second = self.start(x.shape[1])
        spikes, membranes = [], []
        for x_t in x:
            s, first, second = self.step(x_t, first, second)
            membranes.append(second[-1])
            spikes += [s] if self.with_spikes else []
        return {"mem": torch.stack(membranes), "spk": spikes}


def test_from_torch_reads_the_membrane_of_a_layer_whose_spikes_nobody_reads():
    x = next_spike_tensor(30, 4, N_IN, rate=0.3)
    module = ReadsMembrane(with_spikes=False)
    network = nw.from_torch(module, x, layout="TB")
    with torch.no_grad():
        expected = module(x)["mem"].transpose(0, 1).numpy()
    assert not network.node("lif2").neuron.fires
    np.testing.assert_allclose(nw.simulate(network, x.numpy()).output, expected, rtol=1e-5, atol=1e-5)
    assert (expected > network.node("lif2").neuron.threshold).any()  # it would have sent spikes
    both = nw.from_torch(ReadsMembrane(with_spikes=True), x, layout="TB")
    assert both.node("lif2").neuron.fires


def test_from_torch_takes_both_layouts_by_several_names():
    module, x = Loop("Leaky"), next_spike_tensor(6, 3, N_IN, rate=0.3)
    with pytest.warns(NwWarning, match="left out the membrane of layer 'lif2'"):
        assert nw.from_torch(module, x, layout="[T, B]").hash == nw.from_torch(module, x, layout="tb").hash
    with pytest.raises(ModelError) as error:
        nw.from_torch(module, x, layout="NT")
    assert str(error.value) == "unknown layout 'NT'; choose one of: TB, B, BT"


@pytest.mark.parametrize("delay", [True, False])
def test_from_torch_is_exact_for_convolutional_and_one_to_one_recurrence(delay):
    options = {"init_hidden": True, "reset_delay": delay, "reset_mechanism": "zero"}
    module = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3, padding=1),
        snn.RLeaky(0.8, conv2d_channels=3, kernel_size=3, **options),
        torch.nn.AvgPool2d(2),
        snn.RLeaky(torch.rand(5) / 2, all_to_all=False, V=torch.rand(5), threshold=torch.rand(4, 1), **options),
        torch.nn.Flatten(),
        torch.nn.Linear(60, 7),
        snn.Leaky(0.9, **options),
    )
    x = next_spike_tensor(3, 30, 2, 8, 10, rate=0.3)
    network = assert_imports(lively(module), x, step_by_step(module, x), example_input=x)
    assert network.node("3").neuron.beta.shape == (3, 4, 5)


@pytest.mark.parametrize(
    "make, shape, text",
    [
        (lambda: Loop("Leaky"), (9, 4, N_IN), "; with layout='TB', for an example [T, B, *shape], it can be imported"),
        (lambda: Repeats("Leaky"), (4, N_IN), "; with layout='B', for an example [B, *shape], it can be imported"),
    ],
)
def test_from_torch_names_the_layout_in_which_the_example_can_be_imported(make, shape, text):
    with pytest.raises(ModelError) as refused:
        nw.from_torch(make(), next_spike_tensor(*shape, rate=0.3))
    assert str(refused.value).endswith(text)


def test_from_torch_counts_graded_spikes_by_their_factor():
    module, x = sequential(graded_spikes_factor=2.0, reset_delay=False), next_spike_tensor(4, 40, N_IN, rate=0.3)
    assert_imports(module, x, step_by_step(module, x) / 2, example_input=x)


@pytest.mark.parametrize(("fire", "strict"), [(lambda v: (v > 0).float(), True), (lambda v: (v >= 0).float(), False)])
def test_from_torch_reads_strictness_from_the_surrogate(fire, strict):
    module = torch.nn.Sequential(snn.Leaky(0.5, init_hidden=True, spike_grad=fire))
    x = torch.full((2, 4, 3), 1.0)
    network = nw.from_torch(module, x)
    assert network.node("0").neuron.strict is strict
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, step_by_step(module, x))


def test_from_torch_leaves_the_states_of_the_module_alone():
    module, x = sequential("Synaptic"), next_spike_tensor(2, 5, N_IN, rate=0.3)
    before = step_by_step(module, x)
    states = {name: value.clone() for name, value in module.named_buffers()}
    network = nw.from_torch(module, x)
    after = dict(module.named_buffers())
    assert after.keys() == states.keys()
    assert all(torch.equal(after[name], value) for name, value in states.items())
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, before)


class Restarts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.lif = torch.nn.Linear(N_IN, 4), snn.Leaky(0.9)

    def forward(self, x):
        return self.lif(self.fc(x), self.lif.reset_mem())[0]


def changed():
    module = sequential(reset_delay=False)
    module[1].reset_mechanism = "zero"
    return module


def inhibited():
    module = sequential()
    module[1].inhibition = True
    return module


REFUSED = [
    (Restarts, "layer 'lif' starts from zeros again in step 1; give it the state that it returned a step before"),
    (
        lambda: torch.nn.Sequential(torch.nn.Linear(N_IN, 3), snn._neurons.neurons.LIF(0.9)),
        "'1': LIF is not supported; supported neurons of snntorch: Leaky, Synaptic, RLeaky, RSynaptic, Alpha, "
        "Lapicque, DeltaLeaky, LeakyParallel, StateLeaky, LinearLeaky",
    ),
    (
        inhibited,
        "layer '1' (snntorch Leaky): inhibition lets only the largest of its neurons fire, and a neuron fires alone; "
        "use inhibition=False",
    ),
    (
        lambda: sequential(spike_grad=torch.tanh),
        "layer '1' (snntorch Leaky): spike_grad gives -0.964028, -0.001, -1.17549e-38, 0, 1.17549e-38, 0.001, 0.964028 "
        "for inputs from -2 to 2; it must step from 0 to 1 at 0, in eval mode",
    ),
    (
        changed,
        "layer '1' (snntorch Leaky): its reset_mechanism was changed to 'zero' after construction; construct it "
        "with that",
    ),
]


@pytest.mark.parametrize(("make", "text"), REFUSED)
def test_from_torch_refuses_what_it_cannot_express(make, text):
    with pytest.raises(ModelError) as error:
        nw.from_torch(make(), next_spike_tensor(2, 3, N_IN, rate=0.3))
    assert str(error.value) == text


CASES = ("dense_leaky_default", "dense_leaky_zero_nodelay", "dense_synaptic_subtract", "conv_avgpool",
         "rec_rleaky_zero_nodelay")  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_from_torch_gives_the_stored_spikes(reference, case):
    with np.load(reference / "frameworks" / f"snntorch_{case}.npz") as stored:
        data = {name: stored[name] for name in stored.files}
    meta = json.loads(str(data["meta"]))
    options = {"reset_mechanism": meta.get("reset", "zero" if case.startswith("rec") else "subtract"),
               "reset_delay": meta.get("reset_delay", not case.startswith("rec")), "init_hidden": True}  # fmt: skip

    def layer():
        if "alpha" in meta:
            return snn.Synaptic(meta["alpha"], meta["beta"], **options)
        return snn.Leaky(meta["beta"], **options)

    def linear(k):
        weight, bias = data[f"w{k}_weight"], data.get(f"w{k}_bias")
        shape = weight.shape
        if weight.ndim == 4:
            module = torch.nn.Conv2d(shape[1], shape[0], shape[2:], padding=int(k == 0), bias=bias is not None)
        else:
            module = torch.nn.Linear(shape[1], shape[0], bias=bias is not None)
        module.load_state_dict({k: torch.tensor(v) for k, v in (("weight", weight), ("bias", bias)) if v is not None})
        return module

    if case.startswith("conv"):
        pool = torch.nn.AvgPool2d(2)
        parts = [linear(0), layer(), pool, linear(1), layer(), pool, torch.nn.Flatten(), linear(2), layer()]
    elif case.startswith("rec"):
        middle = snn.RLeaky(meta["beta"], linear_features=16, **options)
        middle.recurrent = linear(1)
        parts = [linear(0), middle, linear(2), layer()]
    else:
        parts = [linear(0), layer(), linear(1), layer(), linear(2), layer()]
    x = torch.tensor(data["x"]).float()
    network = nw.from_torch(torch.nn.Sequential(*parts), x.transpose(0, 1))
    run = nw.simulate(network, x.transpose(0, 1).numpy())
    for k, name in enumerate(network.layers):
        np.testing.assert_array_equal(run.spikes[name].swapaxes(0, 1), data[f"s{k}"], err_msg=name)
