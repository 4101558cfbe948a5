"""nw.neuron: a torch function followed operation by operation computes the same numbers as torch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.sim.reference.program_step import ProgramState
from tests.made.neuron_programs import adaptive


@nw.neuron
def alif(state, x, beta=0.9, rho=0.95, jump=0.2):
    v = beta * state.v + (1 - beta) * x
    threshold = 1.0 + state.a
    spike = (v > threshold).float() if v.dtype == torch.float32 else (v > threshold).double()
    return {"v": v - spike * threshold, "a": rho * state.a + jump * spike}, spike


@nw.neuron(initial={"v": -65.0, "u": -13.0})
def izhikevich(state, x):
    v, u = state.v, state.u
    v = v + 0.5 * (0.04 * v**2 + 5 * v + 140 - u + x)
    u = u + 0.02 * (0.2 * v - u)
    fired = v >= 30
    v = torch.where(fired, -65.0, v)
    u = u.masked_fill(fired, 0.0) + fired * (u + 8)
    return {"v": v, "u": u}, fired


@nw.neuron
def clipped(state, x):
    """In-place operations, clamps, quotients and several spikes per step."""
    v = state.v.clone()
    v += torch.relu(x) - torch.clamp(-x, min=0, max=0.75)
    v *= 0.875
    n = torch.clamp(torch.div(v, 0.3, rounding_mode="trunc"), min=0)
    return {"v": v - n * 0.3}, torch.where(v.abs() > 0.1, n, torch.zeros_like(n))


NEURONS = {
    "alif": (alif, "binary", 6.0),
    "izhikevich": (izhikevich, "binary", 20.0),
    "clipped": (clipped, "multi", 1.0),
}


@pytest.mark.parametrize("name", NEURONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_program_gives_torchs_numbers_bit_for_bit(name, dtype):
    neuron, sends, scale = NEURONS[name]
    program = neuron.program()
    assert program.sends == sends
    x = scale * torch.randn(40, 7, 50, dtype=dtype, generator=torch.Generator().manual_seed(0))
    kind = {torch.float32: np.float32, torch.float64: np.float64}[dtype]
    ours = ProgramState.from_program(program, (7, 50), kind)
    parameters = {key: value.to(dtype) for key, value in neuron.parameter_tensors({}).items()}
    full = {state.name: torch.full((7, 50), state.initial, dtype=dtype) for state in program.states}
    if dtype == torch.float64:  # the parameters of the program are float32 numbers
        parameters = {key: value.float().to(dtype) for key, value in parameters.items()}
    n_sent = 0
    for x_t in x:
        full, sent = neuron(SimpleNamespace(**full), x_t, **parameters)
        given = ours.step(x_t.numpy())
        n_sent += int((given != 0).sum())
        assert np.array_equal(given, sent.to(dtype).numpy())
        for key, value in full.items():
            assert np.array_equal(ours.named[key], value.numpy()), key
            assert ours.named[key].dtype == kind
    assert n_sent > 100


@nw.neuron
def rounded(state, x):
    """Rounding, ties to even; and a sum over neurons that nothing follows from."""
    unused = (x * 2).sum()
    assert unused.ndim == 0
    n = torch.round(state.v + x)
    return {"v": state.v + x - n}, n


def test_rounding_is_torchs_and_what_nothing_follows_from_is_no_matter():
    program = rounded.program()
    assert program.sends == "graded"
    x = torch.cat((torch.arange(-9, 10) / 2, 20 * torch.randn(2000), torch.tensor([0.49999997, -0.49999997, 2.0**24])))
    sent = ProgramState.from_program(program, (1, len(x))).step(x[None].numpy())
    assert np.array_equal(sent[0], torch.round(x).numpy())


FUNCTIONS = {
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "hardswish": torch.nn.functional.hardswish,
    "hardtanh": torch.nn.functional.hardtanh,
    "hardtanh of its ends": lambda x: torch.ops.aten.hardtanh(x),
    "leaky_relu": torch.nn.functional.leaky_relu,
    "leaky_relu of a slope": lambda x: torch.nn.functional.leaky_relu(x, 0.3),
    "prelu": lambda x: torch.nn.functional.prelu(x, torch.tensor([0.3])),
    "ceil": torch.ceil,
    "fmod": lambda x: torch.fmod(x, 0.5),
    "remainder": lambda x: x % 2,
    "cube": lambda x: x**3,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_torch_computes_from_operations_of_a_program_give_its_numbers(name):
    @nw.neuron
    def mine(state, x):
        return {"v": FUNCTIONS[name](x)}, x > 1

    draw = torch.Generator().manual_seed(0)
    x = torch.cat([torch.arange(-40, 41) / 8, *(scale * torch.randn(5000, generator=draw) for scale in (0.1, 1, 20))])
    ours = ProgramState.from_program(mine.program(), (1, len(x)), np.float32)
    ours.step(x[None].numpy())
    np.testing.assert_array_equal(ours.named["v"][0], FUNCTIONS[name](x).numpy())


@nw.neuron
def aliased(state, x):
    """A view is changed in place, and with it what it is a view of."""
    v = 0.5 * state.v
    v.detach().add_(x)
    return {"v": v}, v > 1


def test_what_is_changed_in_place_changes_its_views():
    assert [str(o) for o in aliased.program().operations][:2] == ["t1 = v * 0.5", "t2 = t1 + x"]
    assert aliased.program().states[0].next == "t2"


def test_whole_numbers_are_followed_as_torch_computes_them():
    program = adaptive.program()
    ours = ProgramState.from_program(program, (3, 20))
    x = torch.randint(-40, 80, (60, 3, 20), generator=torch.Generator().manual_seed(1))
    state = {"v": torch.zeros(3, 20, dtype=torch.int64), "a": torch.zeros(3, 20, dtype=torch.int64)}
    n_sent = 0
    for x_t in x:
        state, sent = adaptive(SimpleNamespace(**state), x_t, **adaptive.parameter_tensors({}))
        assert np.array_equal(ours.step(x_t.numpy()), sent.long().numpy())
        n_sent += int(sent.sum())
        assert all(np.array_equal(ours.named[key], value.numpy()) for key, value in state.items())
    assert n_sent > 100


def test_what_parameters_alone_give_is_computed_once():
    program = alif.program(beta=np.linspace(0.5, 0.9, 4))
    assert list(program.parameters) == ["beta", "c1", "rho", "jump"]
    assert program.parameters["c1"].tolist() == (1 - torch.linspace(0.5, 0.9, 4, dtype=torch.float64).float()).tolist()
    assert program.structure == alif.program(beta=np.linspace(0.1, 0.2, 4)).structure


def step_of(line: str, **names):
    scope = {"torch": torch, **names}
    exec(f"def mine(state, x):\n  {line}\n  return {{'v': state.v + x}}, x > 1", scope)
    return scope["mine"]


REFUSED = [
    (
        "x = x if x > 0 else -x",
        None,
        "control flow on a value (if, while, .item()) is no operation of a neuron program",
    ),
    ("x = x * float(x)", None, "choose with torch.where"),
    ("x = x + torch.rand_like(x)", None, "a random number (torch's rand_like)"),
    ("x = x + torch.rand(1)", None, "a random number (torch's rand)"),
    (
        "x = torch.lerp(state.v, x, 0.3)",
        None,
        "torch's lerp is no operation of a neuron program; write a + weight * (b - a)",
    ),
    (
        "x = x % 0.3",
        None,
        "a remainder by 0.3 is no operation of a neuron program; divide float numbers by a power",
    ),
    ("x = x.sum()", None, "torch's sum is no operation of a neuron program; write it with + - "),
    ("x = x[0].reshape(1)", None, "torch's select is no operation of a neuron program"),
    ("x = torch.cumsum(x, 0)", None, "torch's cumsum is no operation"),
    ("x = x.double()", None, "which makes torch.float64 of float32 numbers"),
    ("x = x * 0.5", 16, "which makes torch.float32 of whole numbers"),
    ("x = x / 2", 16, "which makes torch.float32 of whole numbers"),
    (
        "x = x // 3",
        16,
        "a division of whole numbers by 3 is no operation of a neuron program; divide by a power of two",
    ),
    ("x = torch.add(x, x, alpha=2)", None, "alpha=2 is no operation of a neuron program; multiply by it before"),
    ("x = x ** 5", None, "a power of 5"),
    ("x = x & 3", 16, "a bitwise operation on numbers"),
    ("y = state.w", None, "state 'w' is read, but the step does not return its next value"),
    ("state.v = x", None, "state 'v' cannot be set: a step returns its next states, in a dict"),
    ("return x", None, "a step returns its next states, in a dict by name, and its output"),
    ("return {}, None", None, "it keeps no state and sends nothing"),
]


@pytest.mark.parametrize(("line", "bits", "text"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_what_no_program_can_do_is_refused_with_a_sentence(line, bits, text):
    with pytest.raises((nw.ModelError, AttributeError)) as e:
        nw.neuron(bits=bits)(step_of(line)).program()
    assert text in str(e.value)


def test_parameters_are_checked():
    with pytest.raises(nw.ModelError, match="neuron 'alif' has no parameter 'gamma'; it has beta, rho, jump"):
        alif.program(gamma=1)

    @nw.neuron
    def needs(state, x, beta):
        return {"v": beta * state.v + x}, None

    with pytest.raises(nw.ModelError, match="neuron 'needs': give its parameter 'beta' a value"):
        needs.program()
    assert needs.program(beta=0.5).readout == "v"


@pytest.mark.parametrize("at_zero", [0.0, 1.0, 0.5])
def test_heaviside_with_a_number_at_zero_is_a_comparison(at_zero):
    @nw.neuron(sends="graded" if at_zero == 0.5 else "binary")
    def step(state, x):
        s = torch.heaviside(state.v + x - 1.0, torch.tensor(at_zero))
        return {"v": (state.v + x) * (1 - s)}, s

    program = step.program()
    assert program.parameters == {} and ("select" in {o.kind for o in program.operations}) == (at_zero == 0.5)
    v, x = torch.zeros(3), torch.tensor([0.5, 1.0, 1.5])
    assert step(SimpleNamespace(v=v), x)[1].tolist() == [0.0, at_zero, 1.0]
    if at_zero == 0.5:
        return
    network = nw.Network.from_arrays({"a": program}, [nw.Dense("in", "a", np.eye(3, dtype=np.float32))], {"in": 3})
    spikes = np.ones((1, 6, 3), np.float32)
    compiled = nw.compile(network, "loihi2", spikes)
    run = nw.simulate(network, spikes)
    assert (run.spikes["a"][0, 0] == at_zero).all()  # v is exactly 0 there
    assert np.array_equal(nw.simulate(compiled, spikes).spikes["a"], run.spikes["a"])
    assert compiled.network.node("a").neuron.sends == "binary"
