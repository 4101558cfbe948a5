"""from_torch of norse modules against the modules: cells, layers over time and readouts, 0 spikes differ."""

import json

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError
from tests.conftest import stored
from tests.frontend.frameworks import framework
from tests.made.spikes import next_spike_tensor

norse = framework("norse.torch")
reset_subtract = framework("norse.torch.functional.reset").reset_subtract
CASES = stored("frameworks/norse_*.npz", "norse_dense_lifbox", "norse_rec_lif")
N = 24


def number(value):
    return torch.as_tensor(value)


def box(**p):
    return norse.LIFBoxCell(norse.LIFBoxParameters(**p))


def rates():
    return 20 + 400 * torch.rand(N)


CELLS = {
    "box": box,
    "box, time constants": lambda: box(tau_mem_inv=rates(), v_th=0.5 + torch.rand(N)),
    "box, reset to a value": lambda: box(v_reset=number(-0.5)),
    "box, leak to a value": lambda: box(v_leak=number(0.25), v_reset=number(-0.5)),
    "box, subtract": lambda: box(reset_method=reset_subtract),
    "box, numbers": lambda: norse.LIFBoxCell(norse.LIFBoxParameters(v_th=number(0.3)), dt=0.004),
    "current": norse.LIFCell,
    "current, time constants": lambda: norse.LIFCell(
        norse.LIFParameters(tau_mem_inv=rates(), tau_syn_inv=rates(), v_reset=number(-0.25))
    ),
    "current, from -65": lambda: norse.LIFCell(
        norse.LIFParameters(v_leak=number(-65.0), v_reset=number(-66.0), v_th=number(-64.0))
    ),
    "integrator": norse.IAFCell,
    "integrator, reset to a value": lambda: norse.IAFCell(norse.IAFParameters(v_reset=number(-0.5), v_th=number(0.7))),
    "recurrent": lambda: norse.LIFRecurrentCell(N, N),
    "recurrent, with autapses": lambda: norse.LIFRecurrentCell(N, N, autapses=True, dt=0.002),
}
LAYERS = {
    "current": norse.LIF,
    "reset to a value": lambda: norse.LIF(norse.LIFParameters(v_leak=number(0.2), v_reset=number(-0.25))),
    "integrator": norse.IAF,
    "recurrent": lambda: norse.LIFRecurrent(N, N),
    "lifted cell": lambda: norse.Lift(norse.LIFCell()),
    "states kept": lambda: norse.LIF(record_states=True),
}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)


def linear(n=N, n_in=N):
    module = torch.nn.Linear(n_in, n, bias=False)
    module.weight.data = 2 * torch.randn(n, n_in)
    return module


def three(make):
    return [part for _ in range(3) for part in (linear(), make())]


def over_time(parts, x):
    """What every stateful part gives on x, `[B, T, *]` by its number; called with all steps `[T, B, *]`."""
    given, x = {}, x.transpose(0, 1)
    with torch.no_grad():
        for i, part in enumerate(parts):
            x = part(x)
            if isinstance(x, tuple):
                x = x[0]
                given[str(i)] = x.transpose(0, 1).numpy()
    return given


def step_by_step(parts, x):
    """What every cell gives on x, `[B, T, *]` by its number; called step by step with its state."""
    given, states = {}, {}
    with torch.no_grad():
        for x_t in x.unbind(1):
            for i, part in enumerate(parts):
                if hasattr(part, "p"):
                    x_t, states[i] = part(x_t, states.get(i))
                    given.setdefault(str(i), []).append(x_t)
                else:
                    x_t = part(x_t)
    return {name: torch.stack(steps, 1).numpy() for name, steps in given.items()}


def assert_equal(network, x, expected):
    run = nw.simulate(network, x.numpy())
    for name, given in expected.items():
        (layer,) = [layer for layer in network.layers if layer.split(".")[0] == name]
        got = run.spikes[layer]
        assert 0.01 < given.mean() < 0.99, layer
        np.testing.assert_array_equal(got, given, layer)


@pytest.mark.parametrize("grid", [0.25, None])  # on a grid, membranes meet their thresholds
@pytest.mark.parametrize("cell", CELLS)
def test_from_torch_is_exact_for_every_cell(cell, grid):
    parts, x = three(CELLS[cell]), next_spike_tensor(8, 60, N)
    for part in parts[::2] if grid else ():
        part.weight.data = grid * torch.round(part.weight.data / grid)
    network = nw.from_torch(norse.SequentialState(*parts), x[:2, :6])
    assert network.layers == ("1", "3", "5")
    assert_equal(network, x, step_by_step(parts, x))


@pytest.mark.parametrize("sequential", [norse.SequentialState, torch.nn.Sequential])
@pytest.mark.parametrize("layer", LAYERS)
def test_from_torch_is_exact_for_every_layer_over_time(layer, sequential):
    parts, x = three(LAYERS[layer]), next_spike_tensor(8, 60, N)
    if layer == "lifted cell" and sequential is torch.nn.Sequential:
        parts = parts[:2]  # a Lift takes the state of the Lift before it for its own
    network = nw.from_torch(sequential(*parts), x[:2, :6].transpose(0, 1), layout="TB")
    assert_equal(network, x.transpose(0, 1), over_time(parts, x))


def test_from_torch_reads_every_field():
    p = norse.LIFParameters(
        tau_syn_inv=number(250.0),
        tau_mem_inv=number(125.0),
        v_leak=number(-1.0),
        v_th=number(0.5),
        v_reset=number(-2.0),
    )
    spec = nw.from_torch(norse.LIFCell(p, dt=0.002), next_spike_tensor(2, 5, N)).node("lif").neuron
    assert (spec.membrane, spec.k, spec.alpha, spec.current_order) == ("euler", 0.25, 0.5, "add_use_decay")
    assert (spec.threshold, spec.strict, spec.spikes, spec.reset, spec.reset_value) == (
        1.5,
        True,
        "binary",
        "value",
        -1,
    )
    assert (spec.v_leak, spec.r, spec.w_in, spec.v_min, spec.refractory) == (0, 1, 1, None, 0)


def test_from_torch_takes_input_weights_and_recurrent_weights():
    cell = norse.LIFRecurrentCell(5, N)
    network = nw.from_torch(cell, next_spike_tensor(2, 6, 5))
    first, again = network.connections
    np.testing.assert_array_equal(first.weight, cell.input_weights.detach())
    np.testing.assert_array_equal(again.weight, cell.recurrent_weights.detach())
    assert (first.source, again.source, first.aligned_delay, again.aligned_delay) == ("input", "lif", 0, 1)


class Loop(torch.nn.Module):
    """[B, T, 1, 8, 8] in, all steps of the readout out; lifted convolution, functional flatten, states by hand."""

    def __init__(self):
        super().__init__()
        self.conv, self.hidden = torch.nn.Conv2d(1, 4, 3, bias=False), norse.LIFCell()
        self.fc, self.out, self.read = linear(10, 144), box(), norse.LILinearCell(10, 3)
        self.conv.weight.data *= 6

    def forward(self, x):
        hidden = out = read = None
        given, spiking = [], []
        for x_t in x.unbind(1):
            s, hidden = self.hidden(self.conv(x_t), hidden)
            s, out = self.out(self.fc(s.flatten(1)), out)
            v, read = self.read(s, read)
            given.append(v)
            spiking.append(s)
        self.spiking = torch.stack(spiking, 1)
        return torch.stack(given, 1).max(1).values.log_softmax(-1)


def test_from_torch_takes_a_loop_with_convolution_and_readout():
    module, x = Loop(), next_spike_tensor(4, 40, 1, 8, 8)
    network = nw.from_torch(module, x[:, :6])
    assert network.readout.text == "largest of max, log_softmax of state 'v' of 'read', as in the module"
    assert network.layers == ("hidden", "out", "read") and network.outputs == ("read",)
    with torch.no_grad():
        module(x)
    assert_equal(network, x, {"out": module.spiking.numpy()})


READOUTS = {"cell": (norse.LICell, norse.LIFCell), "over time": (norse.LI, norse.LIF), "box": (norse.LIBoxCell, box)}


@pytest.mark.parametrize("form", READOUTS)
def test_from_torch_takes_leaky_integrators_as_readouts(form):
    readout, neuron = READOUTS[form]
    parts, x = [linear(), neuron(), linear(4), readout()], next_spike_tensor(4, 60, N)
    whole = form == "over time"
    example = x[:2, :6].transpose(0, 1) if whole else x[:2, :6]
    network = nw.from_torch(norse.SequentialState(*parts), example, layout="TB" if whole else "BT")
    expected = (over_time if whole else step_by_step)(parts, x)["3"]
    output = nw.simulate(network, (x.transpose(0, 1) if whole else x).numpy()).output
    assert network.outputs == ("3",) and not network.node("3").neuron.fires
    assert np.abs(output - expected).max() < 2e-6 * np.abs(expected).max()


def stored(data, meta):
    """The module of a stored case: its weights in order, with the neurons that `meta` states."""
    parts, p = [], {key: number(meta[key]) for key in ("tau_syn_inv", "tau_mem_inv", "v_th") if key in meta}
    for i in range(sum(name[0] == "s" and name[1:].isdigit() for name in data)):
        weights = {name.removeprefix(f"w{i}_"): torch.from_numpy(w) for name, w in data.items() if f"w{i}_" in name}
        if "recurrent_weights" in weights:
            sizes = weights["input_weights"].shape[::-1]
            parts.append(norse.LIFRecurrentCell(*sizes, norse.LIFParameters(**p), dt=meta["dt"], autapses=True))
            parts[-1].load_state_dict(weights)
            continue
        parts.append(torch.nn.Linear(*weights["weight"].shape[::-1], bias="bias" in weights))
        parts[-1].load_state_dict(weights)
        if "tau_syn_inv" in p:
            parts.append(norse.LIFCell(norse.LIFParameters(**p), dt=meta["dt"]))
        else:
            parts.append(norse.LIFBoxCell(norse.LIFBoxParameters(**p), dt=meta["dt"]))
    return norse.SequentialState(*parts)


@pytest.mark.parametrize("case", CASES)
def test_from_torch_is_exact_for_stored_cases(reference, case):
    with np.load(reference / "frameworks" / f"{case}.npz") as file:
        data = dict(file)
    x = data["x"].swapaxes(0, 1)
    network = nw.from_torch(stored(data, json.loads(str(data["meta"]))), x)
    run = nw.simulate(network, x)
    for i, layer in enumerate(network.layers):
        np.testing.assert_array_equal(run.spikes[layer], data[f"s{i}"].swapaxes(0, 1), layer)


COUPLED = "the membranes of its compartments feed each other in a step, and each neuron of a program updates alone"
NO_PROGRAMS = {
    "LIFMCRecurrentCell": COUPLED,
    "LIFMCRefracRecurrentCell": COUPLED,
    "LIFCorrelation": "it keeps a trace for each of its synapses, and a neuron program has states of neurons",
    "CobaLIFCell": "weights of each sign go into a conductance of their own, not into one sum",
}


@pytest.mark.parametrize("name", NO_PROGRAMS)
def test_from_torch_says_why_a_neuron_is_no_program(name):
    options = {"g_coupling": torch.zeros(N, N)} if "MC" in name else {}
    with pytest.raises(ModelError) as error:
        nw.from_torch(getattr(norse, name)(N, N, **options), next_spike_tensor(2, 6, N))
    assert str(error.value) == f"{name} cannot be a neuron program: {NO_PROGRAMS[name]}"


def test_from_torch_says_that_a_cell_without_its_state_starts_again():
    with pytest.raises(ModelError) as e:
        nw.from_torch(Forgets(), next_spike_tensor(2, 6, N))
    assert str(e.value) == (
        "layer 'cell' is called without its state in step 1, so it starts again; give it the state that it returned"
    )


class Forgets(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.cell = linear(), norse.LIFCell()

    def forward(self, x):
        return self.cell(self.fc(x))[0]


def test_from_torch_says_which_layout_a_layer_over_time_takes():
    with pytest.raises(ModelError) as e:
        nw.from_torch(norse.SequentialState(linear(), norse.LIF()), next_spike_tensor(2, 6, N))
    assert str(e.value) == (
        "layer '1' is fed by a tensor [B, T, *], but LIF takes [T, B, *]; give from_torch layout='TB' and an example "
        "in it"
    )


def test_leak_voltage_that_is_not_zero_is_read_from_the_operators():
    cell = norse.LIBoxCell(norse.LIBoxParameters(v_leak=number(0.5)))
    module, x = norse.SequentialState(linear(), cell), next_spike_tensor(2, 6, N)
    network, state, expected = nw.from_torch(module, x), None, []
    for x_t in x.unbind(1):
        membrane, state = module(x_t, state)
        expected.append(membrane.detach())
    np.testing.assert_allclose(nw.simulate(network, x).output, torch.stack(expected, 1), rtol=1e-6, atol=1e-6)


def test_from_torch_refuses_weights_that_are_not_finite():
    cell = norse.LIFRecurrentCell(3, 4)
    cell.input_weights.data[1, 2] = torch.nan
    with pytest.raises(ModelError, match="LIFRecurrentCell: input_weights has NaN or infinite values"):
        nw.from_torch(cell, next_spike_tensor(2, 5, 3))


def test_from_torch_says_what_to_do_with_an_encoder():
    with pytest.raises(ModelError) as e:
        nw.from_torch(norse.SequentialState(norse.ConstantCurrentLIFEncoder(6), linear()), next_spike_tensor(2, 6, N))
    assert str(e.value) == (
        "'0': ConstantCurrentLIFEncoder makes spikes of the sample before the network, which cannot be followed: leave "
        "it out of the module and give its spikes to from_torch, compile and simulate, or feed the sample itself "
        "to the first layer in every step"
    )
