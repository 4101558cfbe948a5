"""What a module computes after its layers is imported as the network's readout, and gives the module's own answers."""

import cProfile
import warnings
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError, NwWarning, OptionError
from nwcompile.sim.accuracy import accuracy
from nwcompile.sim.answers import answer_rule, find_answers
from tests.frontend.frameworks import framework

N_STEPS, N_NEURONS, N_CLASSES = 10, 8, 3


class Own(torch.nn.Module):
    """Eight neurons written by hand; `ending(spikes, membranes, module)`, both `[B, T, n]`, makes the result."""

    def __init__(self, ending):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.out = torch.nn.Linear(6, N_NEURONS), torch.nn.Linear(N_NEURONS, N_CLASSES)
        self.fc.weight.data.uniform_(-0.2, 0.6)
        self.ending = ending

    def fire(self, x):
        v, spikes, membranes = torch.zeros(len(x), N_NEURONS), [], []
        for t in range(x.shape[1]):
            v = 0.8 * v + self.fc(x[:, t])
            spikes.append((v > 1).float())
            v = v * (1 - spikes[-1])
            membranes.append(v)
        return torch.stack(spikes, 1), torch.stack(membranes, 1)

    def forward(self, x):
        return self.ending(*self.fire(x), self)


class Known(Own):
    """The same with a layer of nwcompile.nn."""

    def __init__(self, ending):
        super().__init__(ending)
        self.lif = nn.LIFLayer(N_NEURONS, taus=20e-3, thresholds=1.0, reset_mechanism="zero", dt=1e-3)

    def fire(self, x):
        return self.lif(self.fc(x))


def draw(n, n_steps=N_STEPS, seed=1):
    return (torch.rand(n, n_steps, 6, generator=torch.Generator().manual_seed(seed)) < 0.4).float()


def run_module(module, x):
    nn.prepare_net(module)
    with torch.no_grad():
        result = module(x)
    return (result.float() if result.dtype == torch.bfloat16 else result).numpy()


def steps_of(x, n):
    return torch.arange(n).view(1, -1, 1).float()


def add_up(terms):
    total = 0
    for term in terms:
        total = total + term
    return total


GENERAL = {  # for any number of steps
    "voting": lambda s, m, net: torch.nn.functional.avg_pool1d(s, 4, 4),
    "votes of all steps": lambda s, m, net: s.sum(1).view(-1, 4, 2).mean(-1),
    "a population code": lambda s, m, net: s[..., :4].sum(1) - s[..., 4:].sum(1),
    "rates of groups": lambda s, m, net: (s.sum(1) / s.shape[1]).view(-1, 4, 2).sum(-1),
    "softmax of rates": lambda s, m, net: s.mean(1).softmax(-1),
    "a class": lambda s, m, net: s.sum(1).argmax(-1),
    "a class in each step": lambda s, m, net: net.out(s).argmax(-1),
    "the last step": lambda s, m, net: s[:, -1],
    "the last membrane": lambda s, m, net: m[:, -1],
    "the largest membrane": lambda s, m, net: m.amax(1),
    "a largest value with its place": lambda s, m, net: m.max(1)[0],
    "counts of the other sign": lambda s, m, net: -s.sum(1),
    "an analog decoder of counts": lambda s, m, net: torch.tanh(net.out(s.sum(1) / 4)),
    "softmax in each step": lambda s, m, net: net.out(s).softmax(-1).mean(1),
    "sums of logarithms": lambda s, m, net: add_up(step.log_softmax(-1) for step in net.out(s).unbind(1)),
    "other neurons": lambda s, m, net: s.flip(-1)[..., 1:5],
    "a spread": lambda s, m, net: s.std(1),
    "a dict": lambda s, m, net: net.out(s.sum(1)) * 2 + 1,
}
OF_LENGTH = {  # with weights or choices of steps
    "weights of steps": lambda s, m, net: (s * torch.linspace(1, 0.1, s.shape[1]).view(1, -1, 1)).sum(1),
    "a product over the steps": lambda s, m, net: s.permute(0, 2, 1).matmul(torch.linspace(1, 0.1, s.shape[1])),
    "first spikes": lambda s, m, net: torch.where(s > 0, steps_of(s, s.shape[1]), float(s.shape[1])).amin(1),
    "some steps": lambda s, m, net: s[:, 3:].sum(1),
    "attention over the steps": lambda s, m, net: (lambda y: (torch.softmax(y, 1) * y).sum(1))(net.out(s)),
}
ENDINGS = {**GENERAL, **OF_LENGTH}


class FirstSpike(Own):
    """Eight neurons, and the step of the first spike of each in a tensor that `keep(first, spikes, step)` updates."""

    def forward(self, x):
        v = torch.zeros(len(x), N_NEURONS)
        first = torch.full((len(x), N_NEURONS), float(N_STEPS))
        for t in range(x.shape[1]):
            v = 0.8 * v + self.fc(x[:, t])
            spikes = (v > 1).float()
            v = v * (1 - spikes)
            first = self.ending(first, spikes, t)
        return -first


LATCHES = {
    "last spike": lambda first, s, t: torch.where(s > 0, torch.full_like(first, float(t)), first),
    "minimum": lambda first, s, t: torch.minimum(first, torch.where(s > 0, float(t), float(N_STEPS))),
    "unless kept": lambda first, s, t: torch.where((s > 0) & (first == N_STEPS), float(t), first),
    "mask": lambda first, s, t: first.masked_fill((s > 0) & (first == N_STEPS), float(t)),
}


@pytest.mark.parametrize("keep", LATCHES)
def test_step_of_a_spike_that_a_tensor_keeps_is_a_readout(keep):
    module = FirstSpike(LATCHES[keep])
    network = nw.from_torch(module, draw(4))  # a warning would be an error
    x = draw(50, seed=2)
    given = nw.read_out(nw.simulate(network, x.numpy(), record="all"))
    np.testing.assert_array_equal(given[:, 0], run_module(module, x))


@pytest.mark.parametrize("kind", [Own, Known])
@pytest.mark.parametrize("ending", ENDINGS)
def test_readout_gives_the_modules_own_results_on_drawn_samples(ending, kind):
    module = kind(ENDINGS[ending])
    network = nw.from_torch(module, draw(4))  # a warning would be an error
    assert network.left_out == ""
    x = draw(100, seed=2)
    result = run_module(module, x)
    run = nw.simulate(network, x.numpy(), record="all")
    assert np.allclose(nw.read_out(run).reshape(result.shape), result, 1e-4, 1e-5)
    scores = result if result.dtype == np.int64 else result.reshape(100, -1, result.shape[-1]).sum(1)
    if result.dtype != np.int64:
        classes = scores.argmax(-1)
    else:
        classes = [np.bincount(votes).argmax() for votes in scores.reshape(100, -1)]
    assert np.mean(find_answers(run) == classes) >= 0.99  # sums in another order may decide between equals


@pytest.mark.parametrize("ending", GENERAL)
def test_readout_is_for_any_number_of_steps_if_the_module_is(ending):
    module = Own(GENERAL[ending])
    network = nw.from_torch(module, draw(4))
    x = draw(20, n_steps=17)
    result = run_module(module, x)
    given = nw.read_out(nw.simulate(network, x.numpy(), record="all"))
    assert network.readout.n_steps is None
    assert np.allclose(given.reshape(result.shape), result, 1e-4, 1e-5)


@pytest.mark.parametrize("ending", OF_LENGTH)
def test_readout_of_chosen_steps_refuses_another_number_of_steps(ending):
    network = nw.from_torch(Own(OF_LENGTH[ending]), draw(4))
    run = nw.simulate(network, draw(2, n_steps=12).numpy(), record="all")
    with pytest.raises(ModelError, match="recorded on 10 steps, and the samples have 12; import the module with an ex"):
        nw.read_out(run)


def test_readout_of_membranes_is_in_units_of_the_module_on_a_chip():
    module = Own(lambda s, m, net: s.sum(1) + m[:, -1])
    network = nw.from_torch(module, draw(4))
    x = draw(50)
    program = nw.compile(network, "loihi2", x.numpy())
    run = nw.simulate(program, x.numpy(), backend="sequence", record="all")
    error = np.abs(nw.read_out(run).reshape(50, -1) - run_module(module, x))
    assert np.median(error) < 0.01


def test_readout_is_saved_with_the_program(tmp_path):
    network = nw.from_torch(Own(GENERAL["an analog decoder of counts"]), draw(4))
    x = draw(20).numpy()
    program = nw.compile(network, "loihi1", x)
    program.save(tmp_path / "net.nwc")
    loaded = nw.Program.load(tmp_path / "net.nwc")
    runs = [nw.simulate(p, x, backend="sequence") for p in (program, loaded)]
    assert np.array_equal(*map(nw.read_out, runs))
    assert (
        loaded.network.readout.text
        == network.readout.text
        == "largest of sum, div, addmm, tanh of 'fc', as in the module"
    )
    assert f"class: {network.readout.text}" in repr(network) and f"class: {network.readout.text}" in repr(program)


def test_program_with_an_unknown_operator_in_its_readout_is_refused(tmp_path):
    network = nw.from_torch(Own(GENERAL["a class"]), draw(4))
    program = nw.compile(network, "loihi1", draw(4).numpy())
    rows = [{**row, "operator": "from_file.default"} for row in network.readout.after]
    bad = replace(network.readout, after=tuple(rows))
    replace(program, network=replace(program.network, readout=bad)).save(tmp_path / "net.nwc")
    with pytest.raises(nw.ArtifactError, match="the readout uses torch's from_file.default, which no readout may use"):
        nw.Program.load(tmp_path / "net.nwc")


def test_run_without_the_states_that_a_readout_needs_says_how_to_get_them():
    network = nw.from_torch(Known(GENERAL["the last membrane"]), draw(4))
    with pytest.raises(ModelError, match="needs state 'v' of layer 'lif'; simulate with record='all'"):
        nw.read_out(nw.simulate(network, draw(2).numpy()))
    program = nw.compile(network, "loihi1", draw(4).numpy())
    with pytest.raises(ModelError, match="simulate with record='spikes' and window='aligned'"):
        nw.read_out(nw.simulate(program, draw(2).numpy(), backend="cycle", record="totals"))


def test_accuracy_is_that_of_the_module_with_several_outputs_too():
    class Two(Own):
        def __init__(self):
            super().__init__(None)
            self.on, self.off = torch.nn.Linear(N_NEURONS, 4), torch.nn.Linear(N_NEURONS, 4)

        def forward(self, x):
            spikes, _ = self.fire(x)
            return (self.on(spikes) - self.off(spikes)).sum(1)

    module, x = Two(), draw(60)
    labels = run_module(module, x).argmax(1)
    network = nw.from_torch(module, draw(4))
    assert len(network.outputs) == 2
    assert accuracy(nw.simulate(network, x.numpy()), labels) == 1.0
    with pytest.raises(ModelError, match="labels y are 0..4, but the output has 4 neurons"):
        accuracy(nw.simulate(network, x.numpy()), np.full(60, 4) * (np.arange(60) > 30))


def test_readout_is_used_by_price_bits_and_robustness():
    from nwcompile.workbench.bit_width_search import find_narrowest

    module, x = Known(GENERAL["votes of all steps"]), draw(60)
    module.lif = nn.LIFLayer(N_NEURONS, taus=20e-3, thresholds=1.0, reset_mechanism="subtraction", dt=1e-3)
    labels = run_module(module, x).argmax(1)
    network = nw.from_torch(module, draw(4))
    program = nw.compile(network, "loihi1", x.numpy(), nw.Options(approximate="all"), labels=labels)
    assert program.manifest["price"]["accuracy_ideal"] > 0.9
    found = find_narrowest(network, nw.Chip.load("loihi2"), None, x.numpy(), labels, nw.Options(), 0.05)
    assert found.accuracy_float == 1.0
    assert nw.robustness(program, x.numpy(), labels, samples=2, weight=0.01).ideal > 0.8


def test_quantized_module_keeps_the_readout():
    module, x = Known(GENERAL["the largest membrane"]), draw(20)
    trained = nn.quantize_aware(module, "loihi2", x).network()
    program = nw.compile(trained, "loihi2", x.numpy())
    run = nw.simulate(program, x.numpy(), backend="sequence", record="all")
    assert np.median(np.abs(nw.read_out(run).reshape(20, -1) - run_module(module, x))) < 0.02


RULES = {
    "sum": lambda s: s.sum(1),
    "last": lambda s: s[:, -1],
    "max": lambda s: s.max(1),
    "first-spike": lambda s: np.where(s.any(1), -s.argmax(1), -(1 << 31)),
}


@pytest.mark.parametrize("n_classes", [None, 4])
@pytest.mark.parametrize("rule", RULES)
def test_chosen_rule_gives_the_answers_that_its_name_says(rule, n_classes):
    x = draw(30).numpy()
    network = nw.from_torch(Own(lambda s, m, net: s), draw(4))
    scores = RULES[rule](nw.simulate(network, x).output.astype(int))
    if n_classes:
        groups = scores.reshape(30, n_classes, -1)
        scores = groups.max(2) if rule in ("max", "first-spike") else groups.sum(2)
    text = rule if n_classes is None else f"{rule}:{n_classes}"
    options = nw.Options(readout=text)
    program = nw.compile(network, "loihi2", x, options)
    assert np.array_equal(nw.read_out(nw.simulate(network.change_readout(text), x)), scores)
    assert np.array_equal(find_answers(nw.simulate(network.change_readout(text), x)), scores.argmax(1))
    assert answer_rule(program.network).endswith(f"(readout={text!r})")


def test_readout_of_a_membrane_that_never_fires_can_be_chosen():
    module, x = Own(lambda s, m, net: net.out(s)), draw(30)
    network = nw.from_torch(module, draw(4)).change_readout("max")
    assert np.allclose(nw.read_out(nw.simulate(network, x.numpy())), run_module(module, x).max(1), 1e-5, 1e-6)


@pytest.mark.parametrize("text", ["best", "sum:", "sum:0", "sum:-2", 3])
def test_rule_that_does_not_exist_is_refused(text):
    with pytest.raises(
        OptionError, match="must be sum, last, max, first-spike, or one of them with a number of classe"
    ):
        nw.Options(readout=text)


def test_rule_with_groups_that_do_not_fit_is_refused():
    network = nw.from_torch(Own(lambda s, m, net: s), draw(4))
    with pytest.raises(OptionError, match="readout='sum:3': the 8 neurons of 'fc' cannot be split into 3 equal groups"):
        nw.compile(network, "loihi1", draw(4).numpy(), nw.Options(readout="sum:3"))


def test_readout_by_an_attribute_of_the_last_layer():
    framework("spikingjelly")
    from spikingjelly.activation_based import functional, neuron

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.lif, self.out = torch.nn.Linear(6, 8), neuron.LIFNode(), torch.nn.Linear(8, 3)
            self.fc.weight.data.uniform_(-0.2, 1.2)
            self.last = neuron.LIFNode(v_threshold=1e9)

        def forward(self, x):
            for t in range(x.shape[1]):
                self.last(self.out(self.lif(self.fc(x[:, t]))))
            return self.last.v

    module, x = Net(), draw(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NwWarning)
        network = nw.from_torch(module, draw(4))
    functional.reset_net(module)
    with torch.no_grad():
        result = module(x).numpy()
    assert np.allclose(nw.read_out(nw.simulate(network, x.numpy(), record="all")).reshape(40, 3), result, 1e-4, 1e-5)
    assert network.readout.text == "largest of the last step of state 'v' of 'last', as in the module"


def test_value_that_python_reads_is_refused_if_it_changes_what_layers_do():
    class Scaled(Known):
        def forward(self, x):
            return self.fire(x / (x.max().item() + 1))[0]

    class Logged(Known):
        def forward(self, x):
            spikes, _ = self.fire(x)
            self.rate = spikes.mean().item()
            return spikes

    with pytest.raises(
        ModelError,
        match=r"test_torch_readouts.py:\d+: the code reads a value of a tensor .* and layer 'lif' then spikes",
    ):
        nw.from_torch(Scaled(None), draw(4))
    nw.from_torch(Logged(None), draw(4))


CHOSEN = {  # results whose entries are no steps, though they come from different steps, and other traps
    "two membranes": lambda s, m, net: torch.cat([m[:, 4], m[:, -1]], -1),
    "a step for each neuron": lambda s, m, net: torch.stack([m[:, -1 - k, k] for k in range(4)], 1),
    "sums of every step so far": lambda s, m, net: s.cumsum(1),
    "a choice by counts": lambda s, m, net: torch.where(s.sum(1) > 6, 0.0, s.sum(1)),
    "any spike": lambda s, m, net: s.amax(1),
    "coincidences": lambda s, m, net: (s[:, 1:] * s[:, :-1]).sum(1) - s.sum(1),
    "a decoder of rates": lambda s, m, net: net.out(s.mean(1)).tanh(),
    "a hidden layer first": lambda s, m, net: (s, net.out(s))[0],
    "a nonlinear decoder in each step": lambda s, m, net: net.out(s).tanh(),
}


@pytest.mark.parametrize("kind", [Own, Known])
@pytest.mark.parametrize("ending", CHOSEN)
def test_readout_that_is_easily_mistaken_is_right(ending, kind):
    module, x = kind(CHOSEN[ending]), draw(60, seed=2)
    network = nw.from_torch(module, draw(4, n_steps=10))
    result = run_module(module, x)
    run = nw.simulate(network, x.numpy(), record="all")
    assert np.allclose(nw.read_out(run).reshape(result.shape), result, 1e-4, 1e-5)
    scores = result.sum(1) if result.ndim == 3 else result
    assert np.mean(find_answers(run) == scores.argmax(-1)) > 0.98


@pytest.mark.parametrize("name", ["running minimum", "steps of a fixed window", "halves"])
def test_readout_is_right_or_refused_on_another_number_of_steps(name):
    endings = {
        "running minimum": lambda s, m, net: reduce(torch.minimum, m.unbind(1)),
        "steps of a fixed window": lambda s, m, net: s[:, :15].sum(1).tanh(),
        "halves": lambda s, m, net: s[:, : s.shape[1] // 2].sum(1) - s[:, s.shape[1] // 2 :].sum(1),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        module = Known(endings[name])
        network = nw.from_torch(module, draw(4))
    assert network.left_out or network.readout.n_steps == 10
    x = 0.2 * draw(60, seed=2)
    result = run_module(module, x)
    given = nw.read_out(nw.simulate(network, x.numpy(), record="all"))
    assert np.allclose(given.reshape(result.shape), result, 1e-4, 1e-5)


FIRST_STEPS = {  # results that an example of 10 steps cannot tell from an output, or from a readout of all steps
    "sum": lambda s, m, net: s[:, :15].sum(1),
    "mean": lambda s, m, net: s[:, :15].mean(1),
    "narrowed": lambda s, m, net: s.narrow(1, 0, min(15, s.shape[1])).sum(1),
    "each": lambda s, m, net: s[:, :15],
    "readout in each": lambda s, m, net: net.out(s)[:, :15],
    "mean of a readout": lambda s, m, net: net.out(s)[:, :15].mean(1),
    "last ten": lambda s, m, net: s[:, -10:].sum(1),
    "loop": lambda s, m, net: add_up(s[:, t] for t in range(min(s.shape[1], 15))),
    "a hundred": lambda s, m, net: s[:, :100].sum(1),
    "a bound in an attribute": lambda s, m, net: s[:, : net.most_steps],
    "a global bound": lambda s, m, net: s[:, :MOST_STEPS].sum(1),
    "a hundred of tanh": lambda s, m, net: s[:, :100].sum(1).tanh(),
}
MOST_STEPS = 70


@pytest.mark.parametrize("kind", [Own, Known])
@pytest.mark.parametrize("ending", FIRST_STEPS)
def test_result_of_the_first_steps_is_for_the_examples_number_of_steps_only(ending, kind):
    module, x = kind(FIRST_STEPS[ending]), draw(30, seed=2)
    module.most_steps = 80
    network = nw.from_torch(module, draw(4))
    assert network.readout.n_steps == N_STEPS
    result = run_module(module, x)
    given = nw.read_out(nw.simulate(network, x.numpy(), record="all"))
    assert np.allclose(given.reshape(result.shape), result, 1e-4, 1e-5)


INPUTS = {
    "cut": lambda x: x[:, :15],
    "silenced": lambda x: torch.cat([x[:, :15], torch.zeros_like(x[:, 15:])], 1),
    "repeated": lambda x: x if x.shape[1] <= 15 else torch.cat([x[:, :15], x[:, : x.shape[1] - 15]], 1),
}


@pytest.mark.parametrize("kind", [Own, Known])
@pytest.mark.parametrize("change", INPUTS)
def test_result_of_the_first_steps_of_the_input_is_for_the_examples_number_of_steps_only(change, kind):
    class Changed(kind):
        def fire(self, x):
            return super().fire(INPUTS[change](x))

    for ending in (lambda s, m, net: s, lambda s, m, net: s.sum(1)):
        assert nw.from_torch(Changed(ending), draw(4)).readout.n_steps == N_STEPS


def test_result_of_the_first_steps_with_time_first_is_for_the_examples_number_of_steps_only():
    class TimeFirst(Own):
        def forward(self, x):
            return self.fire(x.transpose(0, 1))[0].transpose(0, 1)[:15].sum(0)

    network = nw.from_torch(TimeFirst(None), draw(4).transpose(0, 1), layout="TB")
    assert network.readout.n_steps == N_STEPS


OUTPUTS = {
    "each": lambda s, m, net: s,
    "sum": lambda s, m, net: s.sum(1),
    "mean": lambda s, m, net: s.mean(1),
    "mean of a readout": lambda s, m, net: net.out(s).mean(1),
    "with a number": lambda s, m, net: s.view(-1, s.shape[1], 8).sum(1) / 100,
}


@pytest.mark.parametrize("kind", [Own, Known])
@pytest.mark.parametrize("ending", OUTPUTS)
def test_result_that_is_an_output_on_any_number_of_steps_has_no_readout(ending, kind):
    assert nw.from_torch(kind(OUTPUTS[ending]), draw(4)).readout is None


@pytest.mark.parametrize("kind", [Own, Known])
def test_result_of_a_sample_that_depends_on_others_is_left_out(kind):
    module = kind(lambda s, m, net: s.sum(1) - s.sum(1).mean(0))
    with pytest.warns(NwWarning):
        network = nw.from_torch(module, draw(4))
    assert network.readout is None and network.left_out


def test_activation_behind_the_last_map_is_the_hosts_and_not_a_neuron():
    framework("spikingjelly")
    from spikingjelly.activation_based import functional, neuron

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), neuron.LIFNode(), torch.nn.Linear(8, 3), torch.nn.Tanh())
    module[0].weight.data.uniform_(-0.2, 1.2)
    network, x = nw.from_torch(module, draw(4)), draw(20)
    functional.reset_net(module)
    with torch.no_grad():
        result = torch.stack([module(step) for step in x.unbind(1)], 1).numpy()
    assert network.layers == ("1", "2")
    assert np.allclose(nw.read_out(nw.simulate(network, x.numpy())).reshape(result.shape), result, 1e-4, 1e-5)


def test_value_that_is_read_for_a_log_changes_no_readout():
    def log(s, m, net):
        net.rates = [s.mean().item()]
        return s.sum(1).view(-1, 4, 2).mean(-1)

    assert nw.from_torch(Known(log), draw(4)).readout.text == "largest of sum, mean of 'lif', as in the module"


def test_value_that_decides_the_result_is_reported():
    module = Known(lambda s, m, net: s.sum(1) if s.mean().item() > 0.25 else -s.sum(1))
    with pytest.warns(NwWarning, match="the module's result for a sample depends on the other samples"):
        nw.from_torch(module, draw(4))


def test_branch_that_only_small_inputs_take_is_refused():
    class Scaled(Known):
        def forward(self, x):
            return self.fire(x / 255 if x.max() > 1 else x)[0]

    with pytest.raises(
        ModelError,
        match=r"test_torch_readouts.py:\d+: the code reads a value of a tensor .* and layer 'lif' then spikes",
    ):
        nw.from_torch(Scaled(None), 255 * draw(4))


def test_neurons_that_no_step_repeats_are_no_readout():
    def ending(s, m, net):
        v, spikes = torch.zeros(len(s), N_CLASSES), []
        for t, step in enumerate(net.out(s).unbind(1)):
            v = (0.5 + 0.01 * t) * v + step
            spikes.append(torch.where(v > 0.2, 1.0, 0.0))
            v = v - spikes[-1]
        return torch.stack(spikes, 1)

    with pytest.raises(ModelError, match="computes something else than"):
        nw.from_torch(Own(ending), draw(4))


def test_a_module_is_imported_while_a_profiler_runs():
    """cProfile's profiler is an object that sys.setprofile does not take back."""
    module, x = Known(lambda spikes, membranes, _: spikes[:, -3:].sum(1)), draw(2)
    network = cProfile.Profile().runcall(nw.from_torch, module, x)
    assert network.readout is not None and network.hash == nw.from_torch(module, x).hash


@pytest.mark.parametrize(
    "ending", ["pooled steps", "bfloat16", "a threshold of a sum", "a sign of a sum", "a norm over the steps"]
)
def test_known_layers_may_be_followed_by_what_no_step_computes(ending):
    endings = {
        "pooled steps": lambda s, m, net: torch.nn.functional.avg_pool2d(s, (5, 2)).flatten(1),
        "bfloat16": lambda s, m, net: s.sum(1).bfloat16().tanh(),
        "a threshold of a sum": lambda s, m, net: (net.out(s).sum(1) > 4.4).float(),
        "a sign of a sum": lambda s, m, net: (net.out(s).sum(1) - 4.4).sign(),
        "a norm over the steps": lambda s, m, net: torch.nn.functional.instance_norm(s.transpose(1, 2)).amax(-1),
    }
    module, x = Known(endings[ending]), draw(60, seed=2)
    network = nw.from_torch(module, draw(4))
    result = run_module(module, x)
    given = nw.read_out(nw.simulate(network, x.numpy(), record="all"))
    assert network.left_out == "" and np.allclose(given.reshape(result.shape), result, 1e-4, 1e-5)
    assert result.std(0).any()
