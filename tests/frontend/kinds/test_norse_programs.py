"""norse's other neurons as neuron programs: the framework's numbers, in networks and on a chip."""

import pytest
import torch

import nwcompile as nw
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

norse = framework("norse.torch")
izhikevich = framework("norse.torch.functional.izhikevich")


def tensor(low: float, high: float) -> torch.Tensor:
    return torch.tensor(number(low, high))


def lif(n):
    return norse.LIFParameters(v_th=draw(n, 0.3, 0.6))


PARAMETERS = {
    "LSNN": lambda n: norse.LSNNParameters(
        tau_adapt_inv=draw(n, 1.0, 20.0), beta=draw(n, 0.1, 2.0), v_th=tensor(0.2, 0.4)
    ),
    "LIFAdEx": lambda n: norse.LIFAdExParameters(adaptation_current=tensor(0.2, 4), v_th=draw(n, 0.3, 0.6)),
    "LIFEx": lambda n: norse.LIFExParameters(delta_T=draw(n, 0.3, 0.8), v_th=tensor(0.4, 0.6)),
    "LIFRefrac": lambda n: norse.LIFRefracParameters(lif(n), rho_reset=torch.tensor(3.0)),
    "LIFAdExRefrac": lambda n: norse.LIFAdExRefracParameters(
        norse.LIFAdExParameters(v_th=tensor(0.3, 0.6)), rho_reset=torch.tensor(3.0)
    ),
    "Izhikevich": lambda n: izhikevich.tonic_spiking,
}


def run(module, x):
    if not type(module).__name__.endswith("Cell"):
        return module(x)[0]
    state, given = None, []
    for x_t in x:
        spike, state = module(x_t, state)
        given.append(spike)
    return torch.stack(given)


def made(name, form):
    def make(n, n_in=None):
        parameters = PARAMETERS[name](n)
        if "Recurrent" not in form:
            return getattr(norse, name + form)(parameters)
        module = getattr(norse, name + form)(n_in or n, n, parameters)
        gain = 20.0 if name == "Izhikevich" else 1.0
        with torch.no_grad():
            module.input_weights *= gain
            module.recurrent_weights *= gain / 2
        return module

    return make


def case(name, form):
    is_wide = name == "Izhikevich" and "Recurrent" not in form
    return Case(made(name, form), run, 0.0 if is_wide else -0.5, 40.0 if is_wide else 2.0)


FORMS = ("", "Cell", "RecurrentCell", "Recurrent")


def halved(z, v, reset, threshold):
    """A user's own reset: half of the membrane stays."""
    return v * (1 - 0.5 * z)


def box(reset_method, v_leak):
    return Case(
        lambda n: norse.LIFBoxCell(
            norse.LIFBoxParameters(v_leak=torch.tensor(v_leak), v_th=draw(n, 0.3, 0.8), reset_method=reset_method)
        ),
        run,
        high=6.0,
    )


CASES = {name + form: case(name, form) for name in PARAMETERS for form in FORMS if hasattr(norse, name + form)}


CASES |= {"LIFBoxCell own reset": box(halved, 0.0), "LIFBoxCell leak": box(norse.reset_subtract, 0.25)}


@each_once(CASES)
def test_norse_programs_give_the_frameworks_numbers(name, dtype):
    verify_same(CASES[name], dtype, *SHORT)


@each_in_both(CASES)
def test_norse_programs_give_the_frameworks_numbers_for_a_million_steps(name, dtype):
    verify_same(CASES[name], dtype, *LONG)


def network(name):
    torch.manual_seed(3)
    gain = 300.0 if name.startswith("Izh") else 6.0
    parts = [weights(10, gain=gain), CASES[name].make(10), weights(6, 10, gain), CASES[name].make(6)]
    return norse.SequentialState(*parts).eval()


@pytest.mark.parametrize("name", [*(f"{name}Cell" for name in PARAMETERS), "LSNNRecurrentCell"])
def test_from_torch_follows_norse_cells_in_a_network(name):
    module, x = network(name), next_spike_tensor(3, 40, N_IN, rate=0.3)
    state, given = None, []
    with torch.no_grad():
        for x_t in x.unbind(1):
            spike, state = module(x_t, state)
            given.append(spike)
    verify_network(module, x, "BT", torch.stack(given, 1))


@pytest.mark.parametrize("name", ["LSNN", "LIFRefracRecurrent"])
def test_from_torch_follows_norse_neurons_over_time_in_a_network(name):
    module, x = network(name), next_spike_tensor(40, 3, N_IN, rate=0.3)
    with torch.no_grad():
        result = module(x)[0]
    verify_network(module, x, "TB", result)


def test_from_torch_starts_izhikevich_neurons_where_norse_does():
    torch.manual_seed(3)
    module = norse.SequentialState(weights(4), made("Izhikevich", "Cell")(4))
    x = next_spike_tensor(2, 5, N_IN, rate=0.3)
    program = nw.from_torch(module, x).node("1").neuron
    assert {state.name: state.initial for state in program.states} == {"v": -70.0, "u": -14.0}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_norse_programs_are_the_same_in_three_backends(name):
    shape, layout = ((3, 60), "BT") if name.endswith("Cell") else ((60, 3), "TB")
    verify_on_chip(network(name), next_spike_tensor(*shape, N_IN, rate=0.3), layout)
