"""Modules in further styles of research code, imported from the operators that they run."""

import re
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError, NwWarning
from nwcompile.ir.neuron_programs.program import NeuronProgram
from tests.made.spikes import spike_tensor

N_IN, N = 6, 12


def fire(v, threshold=0.5):
    return (v > threshold).float()


class Net(torch.nn.Module):
    """A layer of weights, and neurons whose loop is `run(fc, x)`."""

    def __init__(self, run, n_in=N_IN, n=N):
        super().__init__()
        torch.manual_seed(1)
        self.fc = torch.nn.Linear(n_in, n)
        self.fc.weight.data *= 3
        self.run = run

    def forward(self, x):
        return self.run(self.fc, x)


def verify_spikes(module, example, x, **options):
    """Import a module that returns all spikes `[B, T, ...]`; its last layer must spike as the module does on `x`."""
    network = nw.from_torch(module, example, **options)
    with torch.no_grad():
        expected = module(x)
    run = nw.simulate(network, x.numpy())
    assert 0.05 < expected.mean() < 0.95
    got = run.spikes[network.outputs[0]]
    np.testing.assert_array_equal(got.reshape(expected.shape), expected.numpy())
    return network


class State(NamedTuple):
    v: torch.Tensor
    fired: torch.Tensor


def fire_once(fc, x):  # integrators without a leak
    states = [State(torch.zeros(len(x), N), torch.zeros(len(x), N)) for _ in range(2)]
    second, sent = torch.eye(N) * 2, []
    for t in range(x.shape[1]):
        h = fc(x[:, t])
        for i in range(2):
            v = states[i].v + (h if i == 0 else h @ second)
            h = fire(v) * (1 - states[i].fired)
            states[i] = State(v, torch.maximum(states[i].fired, h))
        sent.append(h)
    spikes = torch.stack(sent, 1)
    return spikes * torch.arange(x.shape[1], 0, -1.0).view(1, -1, 1)


def test_spikes_that_are_weighted_by_step():
    x = spike_tensor(3, 8, N_IN)
    module = Net(fire_once)
    network = nw.from_torch(module, x)
    with torch.no_grad():
        expected = module(x)
    run = nw.simulate(network, x.numpy(), record="all")
    np.testing.assert_allclose(nw.read_out(run).reshape(expected.shape), expected.numpy(), 1e-6)
    assert expected.any()


def reset(v, x):
    v = 0.5 * v + x
    return v * (1 - fire(v)), fire(v)


def over_steps(fc, x):  # a batch alone is contiguous, so that torch adds the bias with the product
    current, v, sent = fc(x.permute(1, 0, 2)), torch.zeros(len(x), N), []
    for step in current:
        v, s = reset(v, step)
        sent.append(s)
    return torch.stack(sent, 1)


def split(fc, x):
    v, sent = torch.zeros(len(x), N), []
    for part in x.split(1, dim=1):
        v, s = reset(v, fc(part.squeeze(1)))
        sent.append(s)
    return torch.stack(sent, 1)


def shift(fc, x):  # parts of one step, joined to the steps before
    late = torch.cat([torch.zeros_like(x[:, :1]), x[:, :1], x[:, 1:-1]], 1)
    return split(fc, late)


def convolve_split(_, x):
    kernel, v, sent = torch.linspace(-1, 2, 18).view(2, 1, 3, 3), torch.zeros(len(x), 2, 2, 3), []
    for part in x.unflatten(2, (1, 2, 3)).split(1, dim=1):
        v, s = reset(v, torch.nn.functional.conv2d(part.squeeze(1), kernel, padding=1))
        sent.append(s)
    return torch.stack(sent, 1)


def assign_slices(fc, x):  # every step keeps its axis
    v, sent = torch.zeros(len(x), 1, N), torch.zeros(len(x), x.shape[1], N)
    for t in range(x.shape[1]):
        v, s = reset(v, fc(x[:, t : t + 1]))
        sent[:, t : t + 1] = s
    return sent


def mask_weights(fc, x):  # in every forward, as dendrites with sparse weights do
    fc.weight.data = fc.weight.data * (fc.weight.data > 0)
    return split(fc, x)


def view_groups(fc, x):  # thresholds of groups; the membrane is given back as one row
    thresholds, v, sent = torch.tensor([[0.3], [0.5], [0.9]]), torch.zeros(len(x), N), []
    for t in range(x.shape[1]):
        v = 0.9 * v + fc(x[:, t])
        groups = v.view(len(x), 3, -1)
        s = (groups > thresholds).float()
        v = (groups - s * thresholds).reshape(len(x), -1)
        sent.append(s.flatten(1))
    return torch.stack(sent, 1)


def roll_buffer(fc, x):  # delays by a tensor of the latest inputs
    buffer, taps = torch.zeros(4, len(x), N_IN), torch.tensor([0.2, 0.0, 1.0, 0.5])
    v, sent = torch.zeros(len(x), N), []
    for t in range(x.shape[1]):
        buffer = torch.roll(buffer, 1, 0)
        buffer[0] = x[:, t]
        v, s = reset(v, fc(torch.einsum("l,lbi->bi", taps, buffer)))
        sent.append(s)
    return torch.stack(sent, 1)


def join_buffer(fc, x):  # recurrence from a tensor of the latest spikes, the newest last
    buffer, taps = torch.zeros(len(x), 3, N), torch.linspace(-1.0, 1.0, 3 * N).view(3, N)
    v, sent = torch.zeros(len(x), N), []
    for t in range(x.shape[1]):
        v, s = reset(v, fc(x[:, t]) + (buffer * taps).sum(1))
        buffer = torch.cat([buffer[:, 1:], s.unsqueeze(1)], 1)
        sent.append(s)
    return torch.stack(sent, 1)


def fuse_sums(fc, x):  # operators that are several others, and a sum onto the membrane
    v, u, sent = torch.zeros(len(x), N), torch.zeros(len(x), N), []
    for t in range(x.shape[1]):
        u = torch.addmm(torch.lerp(u, v, 0.25), x[:, t], fc.weight.t(), beta=0.5)
        v = torch.add(torch.addcmul(u, v, torch.full_like(v, 0.5)), fc.bias, alpha=0.5)
        v.sub_(torch.addcdiv(u, v, torch.full_like(v, 4.0), value=0.5), alpha=0.25)
        s = fire(v * torch.rsqrt(1 + v * v) + torch.nn.functional.silu(u))
        v = torch.addcmul(v, v, s, value=-1)
        sent.append(s)
    return torch.stack(sent, 1)


def send_whole_numbers(fc, x):
    v, sent = torch.zeros(len(x), N), []
    for t in range(x.shape[1]):
        v.mul_(0.8).add_(fc(x[:, t])).clamp_(-1, 1)
        fired = v > 0.5
        v[fired] = 0.0
        sent.append(fired.long())
    return torch.stack(sent, 1).float()


def turn_in_place(fc, x):
    x = x.clone()
    x.transpose_(0, 1)
    v, sent = torch.zeros(x.shape[1], N), []
    for step in x:
        current = fc(step)
        row = current[:, :1]
        current.unsqueeze_(1).squeeze_(1)
        v, s = reset(v, current + row)
        sent.append(s)
    whole = torch.stack(sent)
    return whole.transpose_(0, 1)


def gather_delays(fc, x):  # each neuron's spikes arrive after its own delay
    v, u, sent = torch.zeros(len(x), N), torch.zeros(len(x), N), []
    buffer, delays = torch.zeros(3, len(x), N), (torch.arange(N) % 3).expand(1, len(x), N)
    for t in range(x.shape[1]):
        v, s = reset(v, fc(x[:, t]))
        buffer = torch.cat([s.unsqueeze(0), buffer[:-1]])
        u, z = reset(u, torch.gather(buffer, 0, delays).squeeze(0).roll(1, 1) * 0.4)
        sent.append(z)
    return torch.stack(sent, 1)


def divide_by_threshold(fc, x):
    v, sent = torch.zeros(len(x), N), []
    for t in range(x.shape[1]):
        v = v + fc(x[:, t])
        s = torch.div(v, 0.5, rounding_mode="floor").clamp(0, 1)
        v = v - 0.5 * s
        sent.append(s)
    return torch.stack(sent, 1)


LOOPS = (over_steps, split, convolve_split, shift, assign_slices, mask_weights, view_groups, roll_buffer, join_buffer)
LOOPS += (turn_in_place, gather_delays, fuse_sums, send_whole_numbers, divide_by_threshold)


@pytest.mark.parametrize("run", LOOPS)
def test_loops(run):
    verify_spikes(Net(run), spike_tensor(2, 8, N_IN), spike_tensor(3, 11, N_IN, seed=2))


def compare_again(v, x):  # the spike of the step before, from its membrane
    v = 0.9 * v + x - 0.7 * (v - 0.7 > 0).float()
    return v, (v - 0.7 > 0).float()


def fill_in_units_of_threshold(v, x):
    before = 0.7 * (v / 0.7 - 1 > 0).float()
    v = 0.9 * v + x - before
    s = torch.zeros_like(v)
    s[v / 0.7 - 1 > 0] = 1.0
    return v, s


@pytest.mark.parametrize("cell", [compare_again, fill_in_units_of_threshold])
def test_reset_by_the_membrane_of_the_step_before_is_built_in(cell):
    def run(fc, x):
        v, sent = torch.zeros(len(x), N), []
        for t in range(x.shape[1]):
            v, s = cell(v, fc(x[:, t]))
            sent.append(s)
        return torch.stack(sent, 1)

    network = verify_spikes(Net(run), spike_tensor(2, 8, N_IN), spike_tensor(3, 11, N_IN, seed=2))
    neuron = network.node("fc").neuron
    assert (neuron.reset, neuron.reset_timing) == ("subtract", "next")
    assert neuron.beta == pytest.approx(0.9)


def test_membrane_that_starts_above_the_threshold_stays_a_program():
    def run(fc, x):
        v, sent = torch.zeros(len(x), N), []
        for t in range(x.shape[1]):
            v = 0.9 * v + fc(x[:, t]) - 0.3 * (v + 0.2 > 0).float()
            sent.append((v + 0.2 > 0).float())
        return torch.stack(sent, 1)

    network = verify_spikes(Net(run), spike_tensor(2, 8, N_IN), spike_tensor(3, 11, N_IN, seed=2))
    assert isinstance(network.node("fc").neuron, NeuronProgram)


def test_spikes_that_fill_zeros_are_whole_numbers_on_a_chip():
    def run(fc, x):
        v, sent = torch.zeros(len(x), N), torch.zeros(*x.shape[:2], N)
        for t in range(x.shape[1]):
            v = (0.9 * v + fc(x[:, t])).clamp(-1, 1)
            sent[:, t][v > 0.5] = 1.0
            v = v * (1 - sent[:, t])
        return sent

    x = spike_tensor(3, 8, N_IN)
    program = nw.compile(verify_spikes(Net(run), x, x), "loihi2", x.numpy())
    spikes = [nw.simulate(program, x.numpy(), backend=b).output for b in ("reference", "sequence", "cycle")]
    assert spikes[0].any()
    np.testing.assert_array_equal(spikes[0], spikes[1])
    np.testing.assert_array_equal(spikes[0], spikes[2])


@pytest.mark.parametrize("of_spikes", [True, False])
@pytest.mark.parametrize(
    "choose",
    [lambda z: z.max(1)[0], lambda z: z.amax((1, 2))[:, None], lambda z: torch.max(z, dim=-1, keepdim=True).values],
)
def test_maximum_over_axes_before_neurons(choose, of_spikes):
    def run(fc, x):
        v, u, sent = torch.zeros(len(x), 3, 4), 0.0, []
        for t in range(x.shape[1]):
            z = fc(x[:, t]).view(-1, 3, 4)
            if of_spikes:
                v, z = reset(v, z)
            u, s = reset(u, choose(z))
            sent.append(s)
        return torch.stack(sent, 1)

    verify_spikes(Net(run), spike_tensor(2, 8, N_IN), spike_tensor(3, 11, N_IN, seed=2))


class Pooling(torch.nn.Module):  # steps on axis 0; means over entries after the last layer
    def __init__(self, pool):
        super().__init__()
        self.pool = pool
        torch.manual_seed(1)
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1)
        self.conv.weight.data *= 4

    def forward(self, x):
        v, sent = 0.0, []
        for step in x:
            v, s = reset(v, self.conv(step))
            sent.append(s)
        return self.pool(torch.stack(sent))


def pool_volumes(spikes):
    return torch.nn.functional.adaptive_avg_pool3d(spikes, (None, 1, 1)).flatten(2).mean(0)


def pool_rows(spikes):  # torch changes the strides of the result in place
    rows = spikes.flatten(3).mean(0).transpose(1, 2)
    return torch.nn.functional.adaptive_avg_pool1d(rows.transpose(1, 2), 1).squeeze(-1)


@pytest.mark.parametrize("pool", [pool_volumes, pool_rows])
def test_adaptive_pooling_of_all_steps_is_a_readout(pool):
    module, x = Pooling(pool), spike_tensor(8, 3, 2, 5, 5)
    network = nw.from_torch(module, x[:, :2], layout="TB")
    with torch.no_grad():
        expected = module(x)
    got = nw.read_out(nw.simulate(network, x.numpy(), record="all"))
    np.testing.assert_allclose(got.reshape(expected.shape), expected.numpy(), 1e-5)
    assert expected.std() > 0


def test_one_image_is_written_into_all_steps():
    def run(fc, image):
        steps = torch.zeros(8, *image.shape)
        steps[:] = image
        return split(fc, steps.transpose(0, 1))

    torch.manual_seed(2)
    verify_spikes(Net(run), torch.rand(1, N_IN), torch.rand(3, N_IN), layout="B")


def test_module_of_one_step():
    class OneStep(torch.nn.Module):  # spikes are worth up to 4, so that one step is enough
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.a, self.b = torch.nn.Linear(N_IN, N), torch.nn.Linear(N, 3)

        def forward(self, image):
            steps, v = image.unsqueeze(0).repeat(1, 1, 1), 0
            for current in self.a(steps):
                v = v * 0.25 + current * 3
                s = torch.round(torch.clamp(v, 0, 4))
                v = v - s
            return self.b(s)

    torch.manual_seed(2)
    module, x = OneStep(), torch.rand(3, N_IN)
    network = nw.from_torch(module, x[:2], layout="B")
    run = nw.simulate(network, x.numpy())
    with torch.no_grad():
        expected = module(x)
    assert run.output.shape == (3, 1, 3)
    np.testing.assert_allclose(nw.read_out(run).reshape(3, 3), expected.numpy(), 1e-5, 1e-6)


class FewSteps(torch.nn.Module):
    """Shows one image to a known layer, which gives two tensors in each of few steps."""

    def __init__(self, n_steps):
        super().__init__()
        self.n_steps, self.lif = n_steps, nn.LIFLayer(N_IN, 4e-3, 0.3, "subtraction", 1e-3)

    def forward(self, image):
        return torch.stack([self.lif(image)[0] for _ in range(self.n_steps)], 1)


@pytest.mark.parametrize("n_steps", [2, 3, 5])
def test_results_of_a_known_layer_are_not_counted_as_steps(n_steps):
    module, x = FewSteps(n_steps), torch.rand(3, N_IN)
    network = nw.from_torch(module, x[:2], layout="B")
    expected = module.eval()(x).detach().numpy()
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, expected)
    assert expected.any()


def test_known_layer_that_is_called_once_is_one_step():
    with pytest.raises(ModelError, match="^the module computes one step; give the steps an axis, as layout='BT' takes"):
        nw.from_torch(FewSteps(1), torch.rand(2, N_IN), layout="B")


def test_module_of_one_step_with_a_state_is_refused():
    class Keeping(torch.nn.Module):
        v = 0.0

        def forward(self, image):
            self.v = 0.5 * self.v + image
            return fire(self.v)

    with pytest.raises(ModelError, match="the module computes one step; give the steps an axis, as layout='BT' takes"):
        nw.from_torch(Keeping(), torch.rand(2, N_IN), layout="B")


def adapt(fc, x):  # states behind states, which two steps of an example of four do not show
    zeros = torch.zeros(len(x), N)
    states, sent = [[zeros] * 4 for _ in range(2)], []
    for t in range(x.shape[1]):
        h = fc(x[:, t])
        for i, (v, b, trace, s) in enumerate(states):
            trace = 0.7 * trace + s
            b = 0.95 * b + 0.2 * trace
            v = 0.8 * v + h - s * (0.3 + b)
            s = (v > 0.3 + b).float()
            states[i] = [v, b, trace, s]
            h = s.roll(1, -1) * 2
        sent.append(s)
    return torch.stack(sent, 1)


@pytest.mark.parametrize("n_steps", [4, 8])
def test_example_of_few_steps_with_states_behind_states(n_steps):
    verify_spikes(Net(adapt), spike_tensor(2, n_steps, N_IN), spike_tensor(3, 11, N_IN, seed=2))


def test_steps_that_differ_are_refused_with_the_step_of_the_example():
    def run(fc, x):
        v, sent = torch.zeros(len(x), N), []
        for t in range(x.shape[1]):
            v, s = reset(v, fc(x[:, t]) * (t + 1))
            sent.append(s)
        return torch.stack(sent, 1)

    with pytest.raises(ModelError, match=re.escape("torch's mul: step 4 of the example computes something else")):
        nw.from_torch(Net(run), spike_tensor(2, 8, N_IN))


def attend(fc, x):
    rows = fc(x).view(*x.shape[:2], 4, 3)
    return split(lambda z: z, torch.nn.functional.scaled_dot_product_attention(rows, rows, rows).flatten(2))


def take_logarithm(fc, x):
    return split(lambda z: torch.log1p(fc(z).abs()), x)


def multiply_sparse(fc, x):
    fc.sparse = getattr(fc, "sparse", fc.weight.detach().to_sparse())  # kept, as a buffer would be
    weight = fc.sparse
    return split(lambda z: torch.sparse.mm(weight, z.t()).t(), x)


def transpose_wrongly(fc, x):
    return split(fc, x.transpose(1, 2))


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (attend, "torch's scaled_dot_product_flash_attention_for_cpu divides by a sum"),
        (multiply_sparse, "sparse tensors cannot be followed; use dense ones: weights of 0 are no synapses"),
        (take_logarithm, "torch's log1p is no operation of a neuron program; write it with "),
        (transpose_wrongly, "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_refusals_name_the_operator_and_its_place(run, text):
    with pytest.raises(ModelError, match=r"test_torch_styles\.py:\d+: " + text):
        nw.from_torch(Net(run), spike_tensor(2, 8, N_IN))


class TwoInputs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.fc = torch.nn.Linear(N_IN + 2, N)

    def forward(self, a, b):
        v, sent = torch.zeros(len(a), N), []
        for t in range(a.shape[1]):
            v, s = reset(v, self.fc(torch.cat([a[:, t], b[:, t]], -1)))
            sent.append(s)
        return torch.stack(sent, 1).sum(1) * a.mean()  # of all samples: no readout


def test_warnings_name_the_line_of_the_user():
    example = spike_tensor(2, 8, N_IN), spike_tensor(2, 8, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nw.from_torch(TwoInputs(), example)
    (warning,) = [w for w in caught if issubclass(w.category, NwWarning)]
    assert warning.filename == __file__
