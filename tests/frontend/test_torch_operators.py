"""Modules whose neurons are written by hand, imported from the ATen operators that they run."""

from functools import partial

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError, NwWarning
from nwcompile.frontend.torch.compare import compare_drawn
from nwcompile.frontend.torch.modules import preserve_state
from nwcompile.frontend.torch.operators import import_operators
from nwcompile.frontend.torch.operators.runs import record_run
from tests.frontend.frameworks import framework
from tests.made.spikes import spike_tensor

N_IN, N, STEPS = 6, 5, 8


def spike(v):
    return (v > 1.0).float()


class Loop(torch.nn.Module):
    """A layer of weights and a loop over the steps; `step(v, x)` returns the next state and what is sent."""

    def __init__(self, step, start=0.0, after=lambda spikes: spikes):
        super().__init__()
        torch.manual_seed(1)
        self.fc = torch.nn.Linear(N_IN, N)
        self.fc.weight.data *= 3
        self.step, self.start, self.after = step, start, after

    def forward(self, x):
        v, sent = torch.full((len(x), N), self.start), []
        for t in range(x.shape[1]):
            v, s = self.step(v, self.fc(x[:, t]))
            sent.append(s)
        return self.after(torch.stack(sent, 1))


def leaky(v, x):
    v = 0.5 * v + x
    return v * (1 - spike(v)), spike(v)


def verify_import(module, x=None):
    x = spike_tensor(3, STEPS, N_IN) if x is None else x
    network = nw.from_torch(module, x)
    with torch.no_grad():
        expected = module(x)
    run = nw.simulate(network, x.numpy())
    np.testing.assert_array_equal(run.spikes[network.outputs[0]], expected.numpy().reshape(3, STEPS, -1))
    return network


def before(v, x):  # STBP: the spike of the step before resets
    v = 0.5 * v * (1 - spike(v)) + x
    return v, spike(v)


def subtracting(v, x):
    v = 0.9 * v + 0.1 * x
    return v - spike(v), spike(v)


def euler(v, x):
    v = v + (x - v) / 2.0
    return v.masked_fill(spike(v).bool(), 0.0), spike(v)


def stepping(v, x):
    v = 0.5 * v + x
    s = torch.heaviside(v - 1.0, torch.tensor(1.0))
    return v * (1 - s), s


def stepping_like(v, x):
    v = 0.5 * v + x
    s = torch.heaviside(v - 1.0, torch.zeros_like(v))
    return v * (1 - s), s


@pytest.mark.parametrize(
    ("step", "fields"),
    [
        (stepping, {"beta": 0.5, "threshold": 1.0, "reset": "zero", "strict": False}),
        (stepping_like, {"beta": 0.5, "threshold": 1.0, "reset": "zero", "strict": True}),
        (leaky, {"beta": 0.5, "threshold": 1.0, "reset": "zero", "strict": True, "membrane": "linear"}),
        (before, {"beta": 0.5, "threshold": 1.0, "reset": "zero", "strict": True, "membrane": "linear"}),
        (subtracting, {"beta": 0.9, "gain": 0.1, "threshold": 1.0, "reset": "subtract"}),
        (euler, {"k": 0.5, "threshold": 1.0, "reset": "zero", "membrane": "euler"}),
    ],
)
def test_hand_written_neuron_becomes_the_built_in_one_that_it_is(step, fields):
    neuron = verify_import(Loop(step)).node("fc").neuron
    assert isinstance(neuron, nw.NeuronSpec)
    assert {name: getattr(neuron, name) for name in fields} == pytest.approx(fields)


def subtract_in_place(v, s):
    v[v > 1.0] -= 1.0


def subtract_by_mask(v, s):
    mask = s.bool()
    v[mask] = v[mask] - torch.ones(1)


def zero_in_place(v, s):
    v[v > 1.0] *= 0


def scale_by_mask(v, s):
    fired, low = v > 1.0, torch.tanh(v)
    v[fired] = 0.5 * v[fired] - low[fired]


@pytest.mark.parametrize(
    ("change", "reset"),
    [(subtract_in_place, "subtract"), (subtract_by_mask, "subtract"), (zero_in_place, "zero"), (scale_by_mask, None)],
)
def test_reset_of_the_entries_of_a_mask_is_followed(change, reset):
    def step(v, x):
        v = 0.5 * v + x
        s = spike(v)
        change(v, s)
        return v, s

    neuron = verify_import(Loop(step)).node("fc").neuron
    assert (neuron.reset if reset else type(neuron)) == (reset or nw.NeuronProgram)


def test_hand_written_neuron_of_no_built_in_kind_becomes_a_program():
    def step(v, x):
        v = torch.tanh(v) + x
        return v - 0.3 * spike(v), spike(v)

    neuron = verify_import(Loop(step)).node("fc").neuron
    assert isinstance(neuron, nw.NeuronProgram)
    assert neuron.state_names == ("v",)


def test_initial_state_that_is_not_zero_is_kept():
    neuron = verify_import(Loop(leaky, start=0.5)).node("fc").neuron
    assert [state.initial for state in neuron.states] == [0.5]


def test_initial_state_below_the_threshold_that_zero_is_above_is_kept():
    def quadratic(v, x):
        v = v + 0.5 * (0.04 * v * v + 5 * v + 140 + 40 * x)
        s = (v >= 30.0).float()
        return torch.where(s.bool(), torch.full_like(v, -65.0), v), s

    neuron = verify_import(Loop(quadratic, start=-65.0)).node("fc").neuron
    assert [state.initial for state in neuron.states] == [-65.0]


def test_imported_hand_written_neurons_run_on_a_chip_like_their_integers():
    x = spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(Loop(before), x)
    program = nw.compile(network, "loihi1", calibration=x.numpy())
    spikes = [nw.simulate(program, x.numpy(), backend=backend).spikes["fc"] for backend in ("reference", "sequence")]
    np.testing.assert_array_equal(*spikes)
    assert spikes[0].any()


def test_module_that_fixes_its_four_steps_is_imported_though_its_last_states_are_not_read():
    class Fixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.fc, self.out = torch.nn.Linear(N_IN, N), torch.nn.Linear(4 * N, 3)
            self.fc.weight.data *= 3

        def forward(self, x):
            v, threshold, sent = 0.0, 1.0, []
            for t in range(4):
                v = v + (self.fc(x[:, t]) - v) / 1.5
                sent.append((v - threshold > 0).float())
                v = (1 - sent[-1]) * v
                threshold = 0.2 * sent[-1] + 0.7 * threshold
            return self.out(torch.cat(sent, 1))

    module, x = Fixed(), spike_tensor(20, 4, N_IN)
    network = nw.from_torch(module, x)
    assert network.readout.n_steps == 4
    with torch.no_grad():
        given = nw.read_out(nw.simulate(network, x.numpy())).reshape(20, 3)
        np.testing.assert_allclose(given, module(x).numpy(), 1e-4, 1e-5)


def test_own_neuron_behind_a_framework_neuron_is_a_layer():
    class Own(torch.nn.Module):
        v = None

        def forward(self, x):
            self.v = x if self.v is None else 0.5 * self.v + x
            s = spike(self.v)
            self.v = self.v * (1 - s)
            return s

    snn = framework("snntorch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(N_IN, N), snn.Leaky(0.5, init_hidden=True), torch.nn.Linear(N, N), Own()
    )
    module[0].weight.data *= 4
    module[2].weight.data *= 4
    x = spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(module, x)
    module[1].reset_mem()
    module[3].v = None
    with torch.no_grad():
        expected = torch.stack([module(step) for step in x.unbind(1)], 1)
    assert list(network.layers) == ["1", "3"]
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).spikes["3"], expected.numpy())


def test_mean_of_the_spikes_is_the_networks_rate_and_other_results_are_read_out():
    x = spike_tensor(3, STEPS, N_IN)
    assert nw.from_torch(Loop(leaky, after=lambda s: s.mean(1)), x).readout is None
    network = nw.from_torch(Loop(leaky, after=lambda s: 1 - s.mean(1)), x)
    assert network.readout.text == "largest of mean, rsub of 'fc', as in the module"


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (
            lambda s: (s.mean(1), s[:, -1]),
            "left out the choice of some steps or entries, so .* .1, 5. .2 times.;",
        ),
        (lambda s: (s.mean(1), torch.tanh(s.mean(1))), r"left out torch's mean \(\S+\) and torch's tanh \(\S+\), so"),
        (lambda s: (s.mean(1), 1 - s), r"left out torch's rsub \(\S+\), so .* returns \[1, 5\] and \[1, 8, 5\];"),
    ],
)
def test_warning_names_what_the_left_out_result_takes(after, text):
    with pytest.warns(NwWarning, match=text):
        nw.from_torch(Loop(leaky, after=after), spike_tensor(3, STEPS, N_IN))


def test_list_of_all_steps_next_to_another_result_is_one_result():
    network = nw.from_torch(Loop(leaky, after=lambda s: (s.mean(1), [*s.unbind(1)])), spike_tensor(3, STEPS, N_IN))
    assert network.left_out == "" and network.readout is None


def test_list_of_all_steps_in_a_dict_is_one_result():
    net = Loop(leaky, after=lambda spikes: {"counts": spikes.sum(1), "steps": list(spikes.unbind(1))})
    assert nw.from_torch(net, spike_tensor(3, STEPS, N_IN)).left_out == ""


class Rows(Loop):
    """Pools the rows of images of 3 x 2 pixels, and leaves the columns."""

    def __init__(self, pool):
        super().__init__(leaky)
        self.pool, self.fc = pool, torch.nn.Linear(4, N)
        self.fc.weight.data *= 3

    def forward(self, x):
        v, sent = torch.zeros(len(x), N), []
        for x_t in x.unbind(1):
            v, s = leaky(v, self.fc(self.pool(x_t.view(-1, 1, 3, 2)).flatten(1)))
            sent.append(s)
        return torch.stack(sent, 1)


@pytest.mark.parametrize("pool", [torch.nn.AvgPool2d((2, 1), 1), torch.nn.MaxPool2d((2, 1), 1)])
def test_pools_over_rows_only_stand_before_own_neurons(pool):
    assert any(isinstance(c, nw.Pool2d | nw.MaxPool2d) for c in verify_import(Rows(pool)).connections)


def test_result_that_takes_the_input_too_is_reported():
    class Both(Loop):
        def forward(self, x):
            return super().forward(x).sum(1) + x.sum((1, 2))[:, None]

    with pytest.warns(NwWarning, match=r"left out torch's sum \(test_torch_operators.py:\d+\) and torch's"):
        nw.from_torch(Both(leaky), spike_tensor(3, STEPS, N_IN))


def noisy(v, x):
    return leaky(v + 0.1 * torch.randn_like(v), x)


def reading(v, x):
    return leaky(v * 2 if v.sum() > 0 else v, x)


class PerStep(Loop):
    def forward(self, x):
        v, sent = torch.zeros(len(x), N), []
        for t in range(x.shape[1]):
            v, s = leaky(v, self.fc(x[:, t]) * (1 + t))
            sent.append(s)
        return torch.stack(sent, 1)


class Rates(Loop):
    def forward(self, x):
        rates = super().forward(x).mean(1)
        v, sent = torch.zeros(len(x), N), []
        for _ in range(x.shape[1]):
            v, s = leaky(v, rates)
            sent.append(s)
        return torch.stack(sent, 1)


class Gated(Loop):
    def forward(self, x):
        v, sent = torch.zeros(len(x), N), []
        for t in range(x.shape[1]):
            v, s = leaky(v * torch.sigmoid(self.fc(x[:, t] * 2)), self.fc(x[:, t]))
            sent.append(s)
        return torch.stack(sent, 1)


COUPLINGS = {
    "weights": lambda v, s, couple: 0.2 * couple(v),
    "mean": lambda v, s, couple: -0.3 * v.mean(1, keepdim=True),
    "neighbors": lambda v, s, couple: 0.2 * torch.roll(v, 1, 1),
    "spike count": lambda v, s, couple: -0.3 * s.sum(1, keepdim=True),
}


class Coupled(Loop):
    """Neurons that take membranes or spikes of each other."""

    def __init__(self, kind):
        super().__init__(leaky)
        self.couple, self.kind = torch.nn.Linear(N, N, bias=False), kind

    def forward(self, x):
        v, s, sent = torch.zeros(len(x), N), torch.zeros(len(x), N), []
        for t in range(x.shape[1]):
            if self.kind == "sum of this step":
                v = 0.8 * v + self.fc(x[:, t])
                s = spike(v - 0.05 * v.sum(1, keepdim=True))
            else:
                v = 0.8 * v + COUPLINGS[self.kind](v, s, self.couple) + self.fc(x[:, t])
                s = spike(v)
            v = v * (1 - s)
            sent.append(s)
        return torch.stack(sent, 1)


class CellOfBoth(Loop):
    """Weights of the input and the neurons' own spikes side by side, which are as many."""

    def __init__(self, order):
        super().__init__(leaky)
        self.both, self.order = torch.nn.Linear(2 * N, 2 * N), order

    def forward(self, x):
        v, s, sent = torch.zeros(len(x), N), torch.zeros(len(x), N), []
        for t in range(x.shape[1]):
            drive = torch.relu(self.fc(x[:, t]))
            gate, y = self.both(torch.cat([drive, s] if self.order else [s, drive], 1)).chunk(2, 1)
            v, s = leaky(v * torch.sigmoid(gate), 2 * y)
            sent.append(s)
        return torch.stack(sent, 1)


class Peeking(Loop):
    """Every step takes a sum of the steps around it."""

    def forward(self, x):
        around = torch.nn.functional.conv1d(self.fc(x).transpose(1, 2), torch.ones(N, 1, 3), padding=1, groups=N)
        v, sent = torch.zeros(len(x), N), []
        for t in range(x.shape[1]):
            v, s = leaky(v, around[..., t])
            sent.append(s)
        return torch.stack(sent, 1)


class Unreset(Loop):
    """The first steps do not reset."""

    def forward(self, x):
        v, sent = torch.zeros(len(x), N), []
        for t in range(x.shape[1]):
            v = 0.5 * v + self.fc(x[:, t])
            sent.append(spike(v))
            v = v * (1 - sent[-1]) if t >= 3 else v
        return torch.stack(sent, 1)


class Started(Loop):
    """The state starts from the first input."""

    def forward(self, x):
        v, sent = self.fc(x[:, 0]), []
        for t in range(x.shape[1]):
            v, s = leaky(v, self.fc(x[:, t]))
            sent.append(s)
        return torch.stack(sent, 1)


class Rolled(Loop):
    """Spikes go through a delay line that is rolled."""

    def forward(self, x):
        v, line, sent = torch.zeros(len(x), N), torch.zeros(3, len(x), N), []
        for t in range(x.shape[1]):
            v, s = leaky(v, self.fc(x[:, t]) + line[-1])
            line = torch.roll(line, 1, 0)
            line[0] = s
            sent.append(s)
        return torch.stack(sent, 1)


def scaled_by_numpy(v, x):
    return leaky(v, x / float(abs(x.numpy()).max()))


def listing(v, x):
    v, s = leaky(v, x)
    return v * (1 - max(s.flatten().tolist())), s


def counting(v, x):
    v, s = leaky(v, x)
    return (v * 0.5 if len(s.nonzero()) else v), s


def replacing_data(v, x):
    v = 0.5 * v + x
    s = spike(v)
    v.data = v.data * (1 - s)
    return v, s


def normed_by_batch(v, x):
    return leaky(v, torch.nn.functional.batch_norm(x, None, None, training=True))


def normed(v, x):
    return leaky(v, torch.nn.functional.layer_norm(x, (N,)))


def halving(v, x):
    return leaky(v.bfloat16(), x.bfloat16())


def attending(v, x):
    return leaky(v, torch.softmax(x, -1))


def picking(v, x):
    v = 0.5 * v + x
    picked = v[v > 1.0]
    v[v > 1.0] = picked - 1.0
    return v, spike(v)


def averaging_picked(v, x):
    v = 0.5 * v + x
    s = spike(v)
    v[v > 1.0] -= v[v > 1.0].mean()
    return v, s


def counting_picked(v, x):
    v = 0.5 * v + x
    return v - 0.1 * v[v > 1.0].numel(), spike(v)


def normed_by_own_batch(v, x):
    return leaky(v, torch.nn.BatchNorm1d(N, track_running_stats=False)(x))


class OfAllSteps(Loop):
    """The input, or the first state, is a number of all steps."""

    def __init__(self, kind):
        super().__init__(leaky)
        self.kind = kind

    def forward(self, x):
        if self.kind == "state":
            v = self.fc(x.mean(1))
        else:
            x, v = x / (x.amax((1, 2), keepdim=True) if self.kind == "amax" else x.max()), torch.zeros(len(x), N)
        sent = []
        for t in range(x.shape[1]):
            v, s = leaky(v, self.fc(x[:, t]))
            sent.append(s)
        return torch.stack(sent, 1)


class OfThree(Loop):
    """A module that is written for a batch of three samples."""

    def forward(self, x):
        return super().forward(torch.stack([x[0], x[1], x[2]]))


PLACE = r"test_torch_operators\.py:\d+: "


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Loop(noisy), PLACE + "torch's randn_like draws random numbers; backends must agree, so that a chip"),
        (lambda: Loop(reading), PLACE + r"the code reads a value of a tensor \(if, while, .item\(\), float"),
        (lambda: PerStep(leaky), PLACE + "torch's mul: step 4 of the example computes something else than step 3; "),
        (lambda: Rates(leaky), PLACE + "torch's mean joins all steps before other neurons, which a chip runs step by "),
        (
            lambda: Coupled("sum of this step"),
            PLACE + "a value of these neurons reaches them again in the same step, through a sum over neurons, weights",
        ),
        (
            lambda: Loop(normed),
            PLACE
            + "torch's layer_norm normalizes every sample and step by its own statistics, which no fixed weights ",
        ),
        (lambda: Loop(halving), PLACE + "torch's _to_copy computes in bfloat16, and networks compute in float32 or "),
        (
            lambda: Loop(attending),
            PLACE + "torch's softmax divides by a sum over entries, which no neuron of ",
        ),
        *(
            (
                partial(Loop, step),
                PLACE + r"v\[mask\] and nonzero\(\) pick entries, how many depends on the input, but ",
            )
            for step in (counting, picking, averaging_picked, counting_picked)
        ),
        (lambda: OfAllSteps("amax"), PLACE + "torch's amax joins all steps before the first neurons, but a chip "),
        (lambda: OfAllSteps("max"), PLACE + "torch's max joins all steps before the first neurons, but a chip "),
        (lambda: OfAllSteps("state"), PLACE + "torch's mean joins all steps before the first neurons, but a chip "),
        *(
            (partial(Loop, step), PLACE + "torch's batch_norm without running statistics is a norm over the samples of")
            for step in (normed_by_batch, normed_by_own_batch)
        ),
        (
            lambda: OfThree(leaky),
            "the module fails on one sample of the example, on which its neurons are looked for: with all steps, "
            + PLACE
            + "IndexE",
        ),
    ],
)
def test_refusals_name_the_place_in_the_users_code(make, text):
    with pytest.raises(ModelError, match=f"^{text}"):
        nw.from_torch(make(), spike_tensor(3, STEPS, N_IN))


def test_a_gate_is_a_second_input_of_the_neurons():
    neuron = verify_import(Gated(leaky)).node("fc").neuron
    assert neuron.inputs == ("x", "x2")


@pytest.mark.parametrize("kind", COUPLINGS)
def test_neurons_take_membranes_of_the_step_before_as_messages(kind):
    verify_import(Coupled(kind))


def test_inhibition_by_a_count_of_spikes_is_one_input_on_a_chip():
    x = spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(Coupled("spike count"), x)
    assert network.node("fc").n_inputs == 2
    result = nw.crosscheck(nw.compile(network, "loihi2", x.numpy()), x.numpy(), ("reference", "cycle", "sequence"))
    assert result.agree and all(row.fired["cycle"] for row in result.layers)


def test_membranes_as_messages_fit_no_chip():
    x = spike_tensor(3, STEPS, N_IN)
    with pytest.raises(ModelError, match="sends numbers that are not whole; messages of chips carry whole numbers"):
        nw.compile(nw.from_torch(Coupled("weights"), x), "loihi2", x.numpy())


def test_a_step_may_compute_a_spikes_height_once_that_others_compute_twice():
    class Converted(Loop):
        def __init__(self):
            super().__init__(leaky)
            self.second = torch.nn.Linear(N, N)

        def fire(self, v, x):
            v = v + x
            s = spike(v)
            v = v - 0.5 * s
            return 0.5 * s, v

        def forward(self, x):
            u = v = torch.zeros(len(x), N)
            sent = []
            for t in range(x.shape[1]):
                s, u = self.fire(u, self.fc(x[:, t]))
                s, v = self.fire(v, self.second(s))
                sent.append(s)
            return 2 * torch.stack(sent, 1)

    assert list(verify_import(Converted()).layers) == ["fc", "second"]


def test_states_that_start_as_numbers_may_enter_any_operator():
    class Complementary(Loop):
        def forward(self, x):
            u, m, sent = 0.0, 0, []
            for t in range(x.shape[1]):
                u = 0.5 * u + self.fc(x[:, t])
                s = spike(u)
                m = m * torch.sigmoid(u / 2) + s
                u = u - s * (1 + torch.sigmoid(m))
                sent.append(s)
            return torch.stack(sent, 1)

    verify_import(Complementary(leaky))


@pytest.mark.parametrize(
    "count",
    [
        lambda v: (v > 0) * torch.div(v, 0.5, rounding_mode="trunc"),
        lambda v: torch.sign(v) * (v.abs() > 0.5),
        lambda v: (v > 1.0) & (v < 3.0),
    ],
)
def test_a_last_layer_whose_spikes_are_made_of_truth_values_fires(count):
    def step(v, x):
        v = 0.5 * v + x
        spikes = count(v).float()
        return v - 0.5 * spikes, count(v)

    class Counts(Loop):
        def forward(self, x):
            return super().forward(x).float()

    network = verify_import(Counts(step))
    assert network.node(network.outputs[0]).neuron.fires


def test_gates_that_are_split_from_weights_of_a_state_are_followed():
    class Gru(Loop):
        def __init__(self):
            super().__init__(leaky)
            self.cell = torch.nn.GRUCell(N_IN, N)

        def forward(self, x):
            h, sent = torch.zeros(len(x), N), []
            for t in range(x.shape[1]):
                h = self.cell(x[:, t], h)
                sent.append((h > 0.1).float())
            return torch.stack(sent, 1)

    verify_import(Gru())


@pytest.mark.parametrize("order", [False, True])
def test_an_input_and_a_state_side_by_side_are_no_steps(order):
    verify_import(CellOfBoth(order))


@pytest.mark.parametrize("make", [Unreset, Started, Peeking])
def test_steps_that_differ_are_refused_on_an_example_without_spikes(make):
    module = make(leaky)
    module.fc.bias.data[:] = 0
    with pytest.raises(ModelError, match=f"^{PLACE}"):
        nw.from_torch(module, torch.zeros(2, STEPS, N_IN))


def test_wrong_spikes_on_drawn_inputs_are_reported():
    x = spike_tensor(1, STEPS, N_IN)
    imported = import_operators(Loop(leaky).eval(), x, "BT", "input")
    compare_drawn(imported.network, imported.drawn, imported.drawn_spikes)
    assert imported.drawn_spikes["fc"].any()
    with pytest.warns(NwWarning, match="layer 'fc' spikes differently from the module on drawn inputs; "):
        compare_drawn(imported.network, imported.drawn, {"fc": 1 - imported.drawn_spikes["fc"]})


def test_entries_in_another_order_are_followed():
    verify_import(Loop(lambda v, x: leaky(v, x[:, torch.tensor([3, 1, 4, 0, 2])])))


def test_neurons_in_small_units_are_not_rounded_to_built_in_ones():
    def step(v, x):
        v = 0.9 * v + 1e-6 * x
        s = (v > 1e-6).float()
        return v - 0.3e-6 * s, s

    assert isinstance(verify_import(Loop(step)).node("fc").neuron, nw.NeuronProgram)


class Kept(torch.nn.Module):
    """States in a tensor that is changed in place, in an object, and in a dict in a dict."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(N_IN, N)
        self.v, self.other, self.nested = torch.zeros(1, N), Plain(), {"a": {"u": None}}

    def forward(self, x):
        self.v.mul_(0.5).add_(self.fc(x))
        self.other.count = self.other.count + 0.1 * self.v
        before = self.nested["a"]["u"]
        self.nested["a"]["u"] = self.v.clone() if before is None else 0.5 * before + self.v
        return spike(self.nested["a"]["u"] + self.other.count * 0)


class Plain:
    count = 0.0


def test_parameters_that_a_module_changes_are_restored():
    module = Loop(leaky)
    weight, bias = module.fc.weight.detach().clone(), module.fc.bias.detach().clone()
    with preserve_state(module):
        module.fc.weight.data.add_(1)
        module.fc.bias.data = torch.zeros(2 * N)
    assert torch.equal(module.fc.weight, weight) and torch.equal(module.fc.bias, bias)


def test_states_anywhere_in_the_module_are_as_before_the_import():
    module = Kept()
    x = spike_tensor(1, STEPS, N_IN)
    first, second = nw.from_torch(module, x), nw.from_torch(module, x)
    assert not module.v.any()
    assert (module.other.count, module.nested) == (0.0, {"a": {"u": None}})
    runs = [nw.simulate(network, x.numpy()).spikes[network.outputs[0]] for network in (first, second)]
    np.testing.assert_array_equal(*runs)


def assign_steps(x):
    steps = torch.zeros(STEPS, *x.shape)
    for t in range(STEPS):
        steps[t] = x
    return steps


@pytest.mark.parametrize(
    "repeat",
    [
        assign_steps,
        lambda x: torch.cat([x[None]] * STEPS),
        lambda x: x.repeat(STEPS, 1).reshape(STEPS, *x.shape),
        lambda x: torch.stack([x] * STEPS),
        lambda x: torch.cat([x[:, None]] * STEPS, 1).transpose(0, 1),
    ],
)
def test_an_image_may_be_repeated_in_any_way(repeat):
    class Still(Loop):
        def forward(self, x):
            return super().forward(repeat(x).transpose(0, 1))

    verify_still(Still(leaky))


def test_the_spike_before_the_charge_may_be_sent_in_a_loop_over_one_image():
    class Early(Loop):
        def forward(self, x):
            v, sent = torch.zeros(len(x), N), []
            for _ in range(STEPS):
                s = spike(v)
                v = 0.9 * v + self.fc(x) - s
                sent.append(s)
            return torch.stack(sent, 1)

    verify_still(Early(leaky))


def verify_still(module):
    x = torch.rand(3, N_IN, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = module(x).numpy()
    assert expected.any()
    np.testing.assert_array_equal(nw.simulate(nw.from_torch(module, x, layout="B"), x.numpy()).output, expected)


def test_module_in_the_wrong_layout_is_not_taken_for_neurons_without_states():
    module = Loop(leaky)
    with pytest.raises(ModelError, match="keeps no state from step to step .* but does so with layout='BT'"):
        nw.from_torch(module, spike_tensor(3, STEPS, N_IN), layout="TB")


def test_every_step_of_a_loop_has_the_place_of_the_first_one():
    """Python 3.11 optimizes a call after some steps, and its frames then stand at another instruction."""

    class Add(torch.nn.Module):
        def forward(self, x):
            return torch.stack([sum((x_t, x_t)) for x_t in x.unbind(1)], 1)

    recorder, _ = record_run(Add(), torch.rand(1, 60, 3), "BT")
    sums = [op for op in recorder.ops if op.name == "add"]
    assert len(sums) == 120 and len({op.site.frames for op in sums}) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_step_runs_eagerly_so_that_dynamo_traces_no_recorder():
    step = torch.compile(leaky)
    counters = pytest.importorskip("torch._dynamo.utils").counters
    counters.clear()
    nw.from_torch(Loop(step, after=lambda s: 1 - s.mean(1)), spike_tensor(3, STEPS, N_IN))
    assert not counters["frames"]


def test_example_of_few_steps_is_repeated():
    x = spike_tensor(3, 2, N_IN)
    network = nw.from_torch(Loop(leaky), x)
    assert network.node("fc").neuron.beta == 0.5


def test_longer_example_is_repeated_too_if_states_are_behind_states():
    class Double(Loop):
        """A double exponential synapse with recurrence; every state takes the others of the step before."""

        def __init__(self):
            super().__init__(leaky)
            self.own = torch.nn.Linear(N, N, bias=False)

        def forward(self, x):
            rise = current = v = s = torch.zeros(len(x), N)
            sent = []
            for t in range(x.shape[1]):
                drive = self.fc(x[:, t]) + self.own(s)
                s = spike(v)
                rise, current, v = 0.3 * rise + drive, 0.8 * current + rise, (0.9 * v + current) * (1 - s)
                sent.append(s)
            return torch.stack(sent, 1)

    x = spike_tensor(3, 12, N_IN)
    module = Double()
    network = nw.from_torch(module, x)
    with torch.no_grad():
        np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, module(x).numpy())


def test_module_is_unchanged_by_the_import():
    module = Loop(leaky)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    nw.from_torch(module, spike_tensor(3, STEPS, N_IN))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training


def test_a_loop_over_one_image_has_no_other_layers_than_its_neurons():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = torch.nn.Linear(6, N), torch.nn.Linear(6, N)
            self.a.weight.data *= 3

        def forward(self, image):
            v, sent = torch.zeros(len(image), N), []
            for _ in range(7):
                v = 0.9 * v + self.a(image) + self.b(image.flip(1))  # 0.9 * v is a constant in the first step
                s = spike(v)
                v = v * (1 - s)
                sent.append(s)
            return torch.stack(sent, 1).sum(1)

    x = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    network = nw.from_torch(Net().eval(), x, layout="B")
    assert network.layers == ("a",)
    with torch.no_grad():
        expected = Net().eval()(x).numpy()
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output.sum(1), expected)
