"""Layers in continuous time: spike times and gradients against closed forms, differences, other people's code."""

from math import exp, inf, log, sqrt

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from nwcompile.errors import ModelError, OptionError
from nwcompile.nn.event import EventLIF, first_spike_loss
from tests.frontend.frameworks import framework

MS = 1e-3
TAUS = [(20 * MS, 5 * MS), (10 * MS, 10 * MS), (5 * MS, 12 * MS)]


def drawn_times(seed: int, n_in: int = 5, n_spikes: int = 3) -> torch.Tensor:
    """Spike times of 4 samples, float64, some absent."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.rand(4, n_in, n_spikes, generator=generator, dtype=torch.float64) * 40 * MS
    times[torch.rand(times.shape, generator=generator) < 0.2] = inf
    return times.sort(-1).values


def drawn_net(seed: int, taus: tuple[float, float], delays: str | None) -> tuple[EventLIF, EventLIF]:
    """5-6-3 neurons in float64, the first layer with delays."""
    torch.manual_seed(seed)
    times = {"t_end": 80 * MS, "tau_mem": taus[0], "tau_syn": taus[1], "max_spikes": 999}
    first = EventLIF(5, 6, delays=delays, max_delay=None if delays is None else 20 * MS, **times).double()
    second = EventLIF(6, 3, **times).double()
    with torch.no_grad():
        first.weight.mul_(2.0)
        second.weight.mul_(1.5)
        if delays is not None:
            first.delay.uniform_(1 * MS, 10 * MS)
    return first, second


def worst_gradient(seed: int, taus: tuple[float, float], delays: str | None) -> tuple[float, int]:
    """How far gradients of a drawn loss are from differences, relative; and how many spikes there were.

    Some numbers of each tensor are checked, each by two central differences whose errors of second order cancel
    (Richardson): a membrane that nearly misses the threshold has large derivatives of every order.
    """
    first, second = drawn_net(seed, taus, delays)
    times = drawn_times(seed)
    outputs = second(first(times)).detach()
    fired = outputs.isfinite()
    factor = torch.randn(outputs.shape, dtype=torch.float64)

    def loss(times: torch.Tensor) -> torch.Tensor:
        out = second(first(times))
        assert torch.equal(out.isfinite(), fired), "a difference so small must not make or lose a spike"
        return (out[fired] * factor[fired]).sum()

    times.requires_grad_()
    loss(times).backward()
    checked = [(times, 1e-8), (first.weight, 1e-7), (second.weight, 1e-7)]
    checked += [] if delays is None else [(first.delay, 1e-8)]
    worst = 0.0
    for tensor, step in checked:
        numbers, gradient = tensor.detach().reshape(-1), tensor.grad.reshape(-1)
        for k in range(0, len(numbers), max(len(numbers) // 5, 1)):
            kept = numbers[k].item()
            if kept == inf:
                assert gradient[k] == 0
                continue
            either = []
            for away in (step, -step, step / 2, -step / 2):
                numbers[k] = kept + away
                either.append(loss(times.detach()).item())
            numbers[k] = kept
            wide, narrow = (either[0] - either[1]) / (2 * step), (either[2] - either[3]) / step
            difference = (4 * narrow - wide) / 3
            worst = max(worst, abs(difference - gradient[k].item()) / max(abs(difference), gradient.abs().max().item()))
    return worst, int(fired.sum())


@pytest.mark.parametrize("delays", [None, "axon", "synapse"])
@pytest.mark.parametrize("taus", TAUS)
def test_gradients_are_those_of_differences(taus, delays):
    worst, n_spikes = worst_gradient(3, taus, delays)
    assert worst < 1e-5 and n_spikes > 3


@pytest.mark.long
def test_gradients_of_two_hundred_drawn_nets_are_those_of_differences():
    found = [worst_gradient(seed, TAUS[seed % 3], (None, "axon", "synapse")[seed // 3 % 3]) for seed in range(200)]
    assert max(worst for worst, _ in found) < 1e-5 and sum(n > 0 for _, n in found) > 150


def closed_form(weight: float, tau_syn: float) -> tuple[float, float]:
    """The first spike of one input of that weight where tau_mem = 2 tau_syn, and its derivative by the weight."""
    root = sqrt(1 - 4 / weight)
    z = (1 + root) / 2
    return -2 * tau_syn * log(z), -2 * tau_syn / (z * weight**2 * root)


def test_one_and_two_spikes_are_those_of_the_closed_form():
    layer = EventLIF(1, 1, t_end=15 * MS, tau_mem=20 * MS, tau_syn=10 * MS, init=torch.tensor([[9.0]]).double())
    times = torch.full((1, 1, 1), 2 * MS, dtype=torch.float64, requires_grad=True)
    out = layer(times)[0, 0]
    first, by_weight = closed_form(9.0, 10 * MS)
    left = 9.0 * exp(-first / (10 * MS))  # the current that the first spike leaves
    second, by_left = closed_form(left, 10 * MS)
    assert torch.allclose(out[:2] - 2 * MS, torch.tensor([first, first + second]).double(), rtol=1e-14)
    (gradient,) = torch.autograd.grad(out[0], layer.weight, retain_graph=True)
    assert gradient.item() == pytest.approx(by_weight, rel=1e-12)
    gradient, of_input = torch.autograd.grad(out[1], (layer.weight, times))
    change_of_left = exp(-first / (10 * MS)) * (1 - 9.0 * by_weight / (10 * MS))
    assert gradient.item() == pytest.approx(by_weight + by_left * change_of_left, rel=1e-12)
    assert of_input.item() == pytest.approx(1.0, rel=1e-12)  # later inputs, later spikes


def integrated(times: np.ndarray, weight: np.ndarray, taus: tuple[float, float], t_end: float) -> list[float]:
    """The spikes of one neuron, by a solver of differential equations; times and weight [event]."""

    def change(t, state):
        return [(state[1] - state[0]) / taus[0], -state[1] / taus[1]]

    def reaches(t, state):
        return state[0] - 1.0

    reaches.terminal, reaches.direction = True, 1
    order = np.argsort(times)
    spikes, state, t = [], [0.0, 0.0], 0.0
    for k in range(len(times) + 1):
        until = times[order[k]] if k < len(times) else t_end
        while t < until:
            solved = solve_ivp(change, (t, until), state, events=reaches, rtol=1e-11, atol=1e-13)
            t, state = solved.t[-1], solved.y[:, -1]
            if solved.status == 1:
                spikes.append(t)
                state = [0.0, state[1]]
        state = [state[0], state[1] + (weight[order[k]] if k < len(times) else 0.0)]
    return spikes


@pytest.mark.parametrize("taus", TAUS)
def test_spike_times_are_those_of_a_solver(taus):
    layer, times = drawn_net(5, taus, "synapse")[0], drawn_times(5)
    out = layer(times).detach().numpy()
    weight, delay = layer.weight.detach().numpy(), layer.delay.detach().numpy()
    n_spikes = 0
    for sample, neuron in ((0, 0), (1, 2), (2, 4), (3, 5)):
        pre, spike = np.nonzero(np.isfinite(times[sample].numpy()))
        arrivals = times[sample].numpy()[pre, spike] + delay[pre, neuron]
        wanted = integrated(arrivals, weight[pre, neuron], taus, 80 * MS)
        found = out[sample, neuron][np.isfinite(out[sample, neuron])]
        assert found == pytest.approx(wanted, rel=1e-7)
        n_spikes += len(wanted)
    assert n_spikes > 4


def test_first_spikes_are_those_of_exact_snn():
    """exact-snn-nn, its kernel scaled to a peak of 1; it looks for spikes on a grid, and refines them."""
    exact_snn = framework("exact_snn")
    theirs = exact_snn.ExactTTFSLinear(8, 12, tm=20.0, ts=5.0, t_max=60.0, grid_pts=20001, w_scale=4.0, bias_val=8.0,
                                       dtype=torch.float64)  # fmt: skip
    at_peak = log(4) * 20 / 3
    peak = (exp(-at_peak / 20) - exp(-at_peak / 5)) / 3
    ours = EventLIF(9, 12, t_end=60.0, tau_mem=20.0, tau_syn=5.0, max_spikes=99, init=theirs.weight.T / peak)
    times = torch.rand(16, 8, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 30
    given = [times.clone().requires_grad_() for _ in range(2)]
    wanted = theirs(given[0][:, :, 0].T).T
    found = ours(torch.cat([given[1], torch.zeros(16, 1, 1)], 1))[:, :, 0]  # their bias is an input at 0
    fired = wanted.isfinite()
    assert torch.equal(fired, found.isfinite()) and fired.sum() > 150
    assert torch.allclose(found[fired], wanted[fired], atol=1e-5)
    for out in (wanted, found):
        (out[fired] * torch.linspace(-1, 1, int(fired.sum()))).sum().backward()
    assert torch.allclose(given[1].grad, given[0].grad, atol=1e-5)
    assert torch.allclose(ours.weight.grad, theirs.weight.grad.T * peak, atol=1e-5)


def test_an_axonal_delay_is_a_later_input():
    layer, times = drawn_net(1, TAUS[0], "axon")[0], drawn_times(1)
    plain = EventLIF(5, 6, t_end=80 * MS, max_spikes=999, init=layer.weight)
    assert torch.equal(layer(times), plain(times + layer.delay.detach()[:, None]))
    same = EventLIF(5, 6, t_end=80 * MS, max_spikes=999, init=layer.weight, delays="synapse", max_delay=1.0).double()
    with torch.no_grad():
        same.delay.copy_(layer.delay[:, None].expand(5, 6))
    assert torch.equal(same(times), layer(times))
    with torch.no_grad():
        layer.delay.fill_(1.0)
    assert torch.equal(layer(times), plain(times + 20 * MS))  # held at max_delay


def test_a_neuron_may_spike_once_only():
    layer, times = drawn_net(3, TAUS[0], None)[0], drawn_times(3)
    once = EventLIF(5, 6, t_end=80 * MS, once=True, init=layer.weight)
    every = layer(times)
    assert every[:, :, 1].isfinite().any() and torch.equal(once(times), every[:, :, :1])
    first = every[:, :, 0]
    wanted = torch.autograd.grad(first[first.isfinite()].sum(), layer.weight)[0]
    found = once(times)
    assert torch.equal(torch.autograd.grad(found[found.isfinite()].sum(), once.weight)[0], wanted)


def test_results_do_not_depend_on_threads():
    torch.manual_seed(0)
    layer = EventLIF(64, 64, t_end=50 * MS, max_spikes=99)
    times = torch.rand(300, 64, 2) * 30 * MS
    found = []
    before = torch.get_num_threads()
    for n_threads in (1, 2):
        torch.set_num_threads(n_threads)
        layer.zero_grad()
        out = layer(times.sort(-1).values)
        out[out.isfinite()].sum().backward()
        found.append((out.detach(), layer.weight.grad.clone()))
    torch.set_num_threads(before)
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True)) and found[0][0].isfinite().sum() > 1000


def test_what_is_kept_for_gradients_grows_with_spikes_only():
    def kept_bytes(t_end: float, n_spikes: int) -> int:
        layer = EventLIF(4, 4, t_end=t_end, max_spikes=4, init=torch.full((4, 4), 0.1))
        out = layer(torch.arange(4 * n_spikes).reshape(1, n_spikes, 4).swapaxes(1, 2) * MS)
        events, *_, spikes, current = out.grad_fn.kept
        return sum(array.nbytes for array in (events.time, events.place, spikes, current))

    assert kept_bytes(1.0, 2) == kept_bytes(1000.0, 2) < kept_bytes(1.0, 8)


def test_what_changes_before_the_backward_pass_is_refused_or_does_not_matter():
    layer, times = drawn_net(3, TAUS[0], None)[0], drawn_times(3)
    out = layer(times)
    loss = out[out.isfinite()].sum()
    (wanted,) = torch.autograd.grad(loss, layer.weight, retain_graph=True)
    out.detach().fill_(0.0)
    assert torch.equal(torch.autograd.grad(loss, layer.weight, retain_graph=True)[0], wanted)
    with torch.no_grad():
        layer.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_it_trains():
    """Two classes by which of two inputs comes first."""
    torch.manual_seed(0)
    times = torch.rand(200, 2, 1) * 10 * MS
    labels = (times[:, 1, 0] < times[:, 0, 0]).long()
    hidden, out = (EventLIF(n_in, n, t_end=60 * MS, max_spikes=50) for n_in, n in ((2, 8), (8, 2)))
    with torch.no_grad():
        hidden.weight.abs_().mul_(1.5)
        out.weight.abs_().mul_(1.5)
    optimizer = torch.optim.Adam([*hidden.parameters(), *out.parameters()], lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        first_spike_loss(out(hidden(times)), labels, 2 * MS, 60 * MS).backward()
        optimizer.step()
    assert (out(hidden(times))[:, :, 0].argmin(1) == labels).float().mean() > 0.95


@pytest.mark.parametrize(
    "given, error, text",
    [
        ({"t_end": 0.0}, ModelError, "EventLIF(3, 2): t_end is 0.0, must be a number > 0"),
        ({"threshold": inf}, ModelError, "EventLIF(3, 2): threshold is inf, must be a number > 0"),
        ({"max_spikes": 0}, ModelError, "EventLIF(3, 2): n_in, n_out and max_spikes must be 1 or more"),
        ({"delays": "axom", "max_delay": 1.0}, OptionError, "unknown delays 'axom'; choose one of: axon, synapse"),
        ({"delays": "axon"}, OptionError, "EventLIF(3, 2): delays and max_delay, in seconds > 0, go together"),
        ({"init": torch.zeros(2, 3)}, ModelError, "EventLIF(3, 2): init has shape (2, 3), not (3, 2)"),
    ],
)
def test_wrong_layers_are_named(given, error, text):
    with pytest.raises(error) as raised:
        EventLIF(3, 2, **{"t_end": 1.0, **given})
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize(
    "times, text",
    [
        (torch.zeros(1, 2, 1), "EventLIF(3, 2): input of shape (1, 2, 1) must be [B, 3, spikes]"),
        (
            torch.full((1, 3, 1), -1.0),
            "EventLIF(3, 2): spike times must be 0 or more, infinity where there is none, and",
        ),
        (
            torch.full((1, 3, 1), torch.nan),
            "EventLIF(3, 2): spike times must be 0 or more, infinity where there is none",
        ),
        (torch.zeros(1, 3, 1), "EventLIF(3, 2): a neuron spikes 5 times, and max_spikes is 2; raise it, or"),
    ],
)
def test_wrong_inputs_are_named(times, text):
    layer = EventLIF(3, 2, t_end=0.1, max_spikes=2, init=torch.full((3, 2), 9.0))
    with pytest.raises(ModelError) as raised:
        layer(times)
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize(
    "parameter, value, text",
    [
        (
            "weight",
            torch.nan,
            "EventLIF(3, 2): weight holds NaN or infinity; train with a lower rate or clip gradients",
        ),
        ("weight", inf, "EventLIF(3, 2): weight holds NaN or infinity"),
        ("delay", torch.nan, "EventLIF(3, 2): delay holds NaN or infinity"),
        ("weight", 1e30, "EventLIF(3, 2): a neuron spikes 100000 times or more, and max_spikes is 16; raise it, or"),
    ],
)
def test_what_failed_training_leaves_is_named(parameter, value, text):
    layer = EventLIF(3, 2, t_end=0.1, delays="synapse", max_delay=1.0)
    with torch.no_grad():
        getattr(layer, parameter)[1] = value
    with pytest.raises(ModelError) as raised:
        layer(torch.zeros(1, 3, 1))
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize(
    "shape, tau, error, text",
    [
        (
            (1, 2, 0),
            1.0,
            ModelError,
            "first_spike_loss: times of shape (1, 2, 0) must be [B, classes, 1 or more spikes]",
        ),
        ((1, 2), 1.0, ModelError, "first_spike_loss: times of shape (1, 2) must be [B, classes, 1 or more spikes]"),
        ((1, 2, 1), 0.0, OptionError, "first_spike_loss: tau is 0.0 and t_end 1.0; both must be seconds > 0"),
    ],
)
def test_a_wrong_loss_is_named(shape, tau, error, text):
    with pytest.raises(error) as raised:
        first_spike_loss(torch.ones(shape), torch.zeros(1, dtype=torch.int64), tau, 1.0)
    assert str(raised.value) == text


@pytest.mark.parametrize("taus", [(1 * MS, 2 * MS), (2 * MS, 1 * MS), (1 * MS, 1 * MS)])
@pytest.mark.parametrize("delays", [None, "synapse"])
def test_after_thousands_of_time_constants_a_neuron_spikes_as_at_first(taus, delays):
    layer = EventLIF(1, 1, t_end=20.0, tau_mem=taus[0], tau_syn=taus[1], delays=delays, max_delay=delays and 1.0,
                     init=torch.tensor([[6.0]]).double())  # fmt: skip
    times = torch.tensor([[[0.0, 10.0]]], dtype=torch.float64, requires_grad=True)
    out = layer(times)[0, 0]
    n_spikes = int(out.isfinite().sum())
    assert n_spikes >= 2 and n_spikes % 2 == 0
    early, late = out[: n_spikes // 2], out[n_spikes // 2 : n_spikes]
    assert torch.allclose(late - 10.0, early, rtol=1e-9)
    (gradient,) = torch.autograd.grad(late[0], times)
    # A time of 10 s is rounded to 2e-12 time constants.
    assert gradient[0, 0].tolist() == [0.0, pytest.approx(1.0, rel=1e-10)]


def test_the_order_of_spikes_and_of_inputs_does_not_matter():
    layer, times = drawn_net(4, TAUS[0], None)[0], drawn_times(4)
    shuffled = times[:, :, [2, 0, 1]].requires_grad_()
    times.requires_grad_()
    out, same = layer(times), layer(shuffled)
    assert torch.equal(out, same)
    wanted, found = (torch.autograd.grad(o[o.isfinite()].sum(), t)[0] for o, t in ((out, times), (same, shuffled)))
    assert torch.equal(found, wanted[:, :, [2, 0, 1]])


def test_spikes_at_one_time_add_up_and_share_the_gradient():
    twice = EventLIF(2, 1, t_end=0.1, max_spikes=99, init=torch.tensor([[6.0], [8.0]]).double())
    whole = EventLIF(1, 1, t_end=0.1, max_spikes=99, init=torch.tensor([[14.0]]).double())
    times = torch.full((1, 2, 1), 1 * MS, dtype=torch.float64, requires_grad=True)
    out, wanted = twice(times)[0, 0], whole(times.detach()[:, :1])[0, 0]
    n_spikes = int(wanted.isfinite().sum())
    assert n_spikes > 1 and torch.allclose(out, wanted, rtol=1e-13)
    gradient, of_times = torch.autograd.grad(out[n_spikes - 1], (twice.weight, times))
    (of_whole,) = torch.autograd.grad(wanted[n_spikes - 1], whole.weight)
    assert torch.allclose(gradient, of_whole.expand(2, 1), rtol=1e-12)
    assert of_times.sum().item() == pytest.approx(1.0, rel=1e-12)


def test_delays_that_leave_their_bounds_come_back():
    layer = EventLIF(1, 1, t_end=0.1, delays="synapse", max_delay=5 * MS, init=torch.tensor([[9.0]]))
    times = torch.zeros(1, 1, 1)
    with torch.no_grad():
        layer.delay.fill_(-3 * MS)
    out = layer(times)[0, 0, 0]
    (-out).backward()
    assert layer.delay.item() == 0.0 and layer.delay.grad.item() == pytest.approx(-1.0, rel=1e-6)


def test_second_derivatives_are_refused():
    layer = EventLIF(1, 1, t_end=0.1, once=True, init=torch.tensor([[9.0]]))
    out = layer(torch.zeros(1, 1, 1))
    with pytest.raises(ModelError) as raised:
        torch.autograd.grad(out.sum(), layer.weight, create_graph=True)
    assert str(raised.value) == "EventLIF has no second derivatives; go back without create_graph"


def test_no_samples_and_no_spikes_are_fine():
    layer = EventLIF(3, 2, t_end=0.1)
    assert layer(torch.zeros(0, 3, 1)).shape == (0, 2, 16)
    out = layer(torch.full((2, 3, 0), inf))
    assert out.shape == (2, 2, 16) and (out == inf).all()
    first_spike_loss(out, torch.zeros(2, dtype=torch.int64), 1.0, 0.1).backward()
    assert (layer.weight.grad == 0).all()


@pytest.mark.parametrize("labels", [torch.zeros(1), torch.zeros(2).long(), torch.tensor(0)])
def test_labels_that_are_no_whole_numbers_for_each_sample_are_refused(labels):
    with pytest.raises(
        ModelError, match="^first_spike_loss: labels of shape .* must be whole numbers, one for each of 1"
    ):
        first_spike_loss(torch.ones(1, 2, 1), labels, 1.0, 1.0)
