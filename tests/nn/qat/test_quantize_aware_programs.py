"""Quantization-aware training of neuron programs: the module sends what the compiled program sends, and it learns."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import nwcompile as nw
from nwcompile import nn
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.kernels.cores.programs.build import build_gradient_module
from nwcompile.kernels.cores.programs.gradient import COMPARISONS, n_comparisons
from nwcompile.sim.reference.program_step import MEANING
from tests.frontend.frameworks import framework
from tests.made.quantized import refused, spikes
from tests.made.random_neurons import whole_neurons

BACKENDS = ("reference", "cycle", "sequence")
FINE = {"weights.bits": 16, "weights.step": 1, "weights.effective_limit": 1 << 20}
SEVERAL = {"neuron.spikes": ["binary", "multi", "bipolar"], "noc.payload_bits": 16}

pytestmark = pytest.mark.filterwarnings("ignore::nwcompile.errors.NwWarning")


def adaptive_step(detaches: bool):
    @nw.neuron
    def adaptive(state, x, beta=0.9, rho=0.95, jump=0.3):
        v = beta * state.v + x
        threshold = 1.0 + state.a
        spike = nn.spike(v, threshold, "atan")
        resets = spike.detach() if detaches else spike
        return {"v": v - resets * threshold, "a": rho * state.a + jump * resets}, spike

    return adaptive


@nw.neuron
def leaky(state, x, tau=8.0):
    return {"v": state.v + (x - state.v) / tau}, None


@nw.neuron
def graded(state, x, theta=0.25):
    """Sends how often its membrane holds theta, of either sign, and counts what it has sent."""
    v = 0.5 * state.v + x
    n = torch.trunc(v / theta).clamp(-9, 9)
    return {"v": v - n * theta, "n": state.n + n.abs()}, n


@nw.neuron
def inverting(state, x, beta=0.5):
    v = beta * state.v + state.last / x
    fired = nn.spike(v, 1.5)
    return {"v": torch.where(fired > 0, 0.0, v), "last": x}, fired


def dense(hidden=None, detaches: bool = False) -> torch.nn.Sequential:
    torch.manual_seed(0)
    first = hidden or nn.ProgramLayer(
        adaptive_step(detaches), 9, learn=("beta", "rho", "jump"), beta=np.linspace(0.6, 0.95, 9)
    )
    return torch.nn.Sequential(
        torch.nn.Linear(12, 9), first, torch.nn.Linear(9, 4), nn.ProgramLayer(leaky, 4, learn=("tau",))
    )


X = spikes(6, 12, 12)
LEARNED = ("beta", "rho", "jump", "tau")


def assert_equal_bits(module, x, backends=BACKENDS) -> None:
    """Spikes and states of every layer are those of the compiled program, and every layer that sends has sent."""
    program = nw.compile(module.network(), module.chip, x)
    found = module.record(x)
    for backend in backends:
        run = nw.simulate(program, x, backend=backend, record="all")
        for name, own in found.items():
            np.testing.assert_array_equal(own["spikes"], run.spikes[name])
            for state in own.keys() - {"spikes"}:
                np.testing.assert_array_equal(own[state], run.states[name][state])
    for name in module.names:
        assert found[name]["spikes"].any() or not module.float_network.node(name).neuron.fires


def train(module, x, n_steps: int = 3, rate: float = 0.05) -> None:
    optimizer = torch.optim.Adam(module.parameters(), rate)
    for _ in range(n_steps):
        sums = module(x).sum(1).flatten(1)[:, :4]
        loss = torch.nn.functional.cross_entropy(sums, torch.arange(len(sums)) % 4)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.any() for p in module.parameters() if p.requires_grad)
        optimizer.step()


@pytest.mark.parametrize(
    ("bits", "detach_reset"),
    [(2, False), *(pytest.param(b, d, marks=pytest.mark.long) for b, d in ((2, True), (8, True)))],
)
def test_programs_train_what_the_chip_runs(bits, detach_reset):
    module = nn.quantize_aware(dense(), "loihi2", X, bits=bits, learn_parameters=LEARNED, detach_reset=detach_reset)
    before = module.network()
    train(module, X)
    after = module.network()
    assert after.hash != before.hash
    own = [before.node("1").neuron, after.node("1").neuron]
    assert all(np.any(own[0].parameters[name] != own[1].parameters[name]) for name in ("beta", "rho", "jump"))
    assert own[0].structure == own[1].structure  # one kernel for all of training
    assert_equal_bits(module, X)


def test_programs_begin_where_compile_quantizes_them():
    module = nn.quantize_aware(dense(), "loihi2", X, bits=4)
    program = nw.compile(nw.from_torch(dense(), X[:1]), "loihi2", X, nw.Options(bits=4))
    own = nw.compile(module.network(), "loihi2", X)
    assert module.table == program.manifest["quantization"]
    for name in own.network.layers:
        one, other = (p.network.node(name).neuron.canonical_fields() for p in (own, program))
        for (key, value), (_, expected) in zip(one, other, strict=True):
            assert np.array_equal(value, expected) if isinstance(value, np.ndarray) else value == expected, key
    for c, other in zip(own.network.connections, program.network.connections, strict=True):
        np.testing.assert_array_equal(c.weight, other.weight)


@pytest.mark.parametrize("detaches", [True, pytest.param(False, marks=pytest.mark.long)])
def test_gradients_of_programs_are_those_of_the_float_layers(detaches):
    """With so many bits that spikes are the same."""
    net, chip = dense(detaches=detaches), nw.Chip.load("loihi2").replace(FINE)
    choices = {"learn_parameters": LEARNED, "surrogate": "atan", "detach_reset": detaches}
    module = nn.quantize_aware(net, chip, X, **choices)
    wanted, found = net(torch.from_numpy(X)), module(X)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    of = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1))
    (wanted * of).sum().backward()
    (found * of).sum().backward()
    hidden, readout = module.layers
    pairs = [
        (net[0].weight, hidden.weights[0]), (net[0].bias, hidden.biases[0]), (net[2].weight, readout.weights[0]),
        (net[2].bias, readout.biases[0]), (net[3].tau, readout.learned["tau"]),
    ]  # fmt: skip
    pairs += [(getattr(net[1], name), hidden.learned[name]) for name in ("beta", "rho", "jump")]
    for one, other in pairs:
        torch.testing.assert_close(other.grad, one.grad, rtol=5e-3, atol=5e-3 * float(one.grad.abs().max()))


@pytest.mark.long
def test_programs_behind_convolutions_and_beside_built_in_neurons_are_exact():
    x = spikes(4, 5, 1, 8, 8)
    network = nw.Network.from_arrays(
        {"map": (adaptive_step(False).program(beta=np.linspace(0.5, 0.9, 3).reshape(3, 1, 1)), (3, 6, 6)),
         "out": (nw.NeuronSpec(beta=0.9), 4)},
        [nw.Conv2d("in", "map", np.random.default_rng(0).normal(0, 0.5, (3, 1, 3, 3)).astype(np.float32)),
         nw.Dense("map", "out", np.random.default_rng(1).normal(0.1, 0.3, (4, 108)).astype(np.float32))],
        {"in": (1, 8, 8)},
    )  # fmt: skip
    module = nn.quantize_aware(network, "loihi2", x, bits=3, learn_parameters="beta")
    assert module.layer("map").learned["beta"].shape == (3, 1, 1)
    train(module, x)
    assert_equal_bits(module, x)


def test_programs_in_a_loop_and_graded_messages_are_exact():
    rng = np.random.default_rng(0)
    layers = {"a": (adaptive_step(False).program(), 9), "b": (graded.program(), 6), "r": (leaky.program(), 4)}
    edges = [("in", "a", 9, 12), ("a", "a", 9, 9), ("a", "b", 6, 9), ("b", "a", 9, 6), ("b", "r", 4, 6)]
    connections = [
        nw.Dense(
            source,
            target,
            rng.normal(0, 0.4, (n, m)).astype(np.float32),
            bias=rng.normal(0, 0.1, n),
            delay=4 if target == "a" and source != "in" else 0,
        )
        for source, target, n, m in edges
    ]
    network = nw.Network.from_arrays(layers, connections, {"in": 12})
    module = nn.quantize_aware(
        network,
        nw.Chip.load("loihi2").replace(SEVERAL),
        X,
        bits=5,
        on_multi_spike="graded",
        learn_parameters=("theta",),
    )
    train(module, X, rate=0.01)
    assert_equal_bits(module, X)
    assert len(np.unique(module.record(X)["b"]["spikes"])) > 2


def test_a_state_dict_of_programs_holds_the_integers(tmp_path):
    module = nn.quantize_aware(dense(), "loihi2", X, bits=3, learn_parameters=LEARNED)
    train(module, X, 1)
    torch.save(module.state_dict(), tmp_path / "net.pt")
    other = nn.quantize_aware(dense(), "loihi2", X[:1], bits=3, learn_parameters=LEARNED)
    assert other.network().hash != module.network().hash
    other.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True))
    assert other.network().hash == module.network().hash == copy.deepcopy(module).network().hash


@pytest.mark.long
def test_recalibrating_programs_chooses_bits_after_the_point_anew():
    module = nn.quantize_aware(dense(), "loihi2", X, learn_parameters=LEARNED)
    before = module.layers[0].pinned
    with torch.no_grad():
        module.layers[0].weights[0].mul_(40)
    module(X)
    assert module.layers[0].pinned is before
    module.recalibrate(X)
    assert module.layers[0].pinned.fraction_bits < before.fraction_bits
    assert_equal_bits(module, X, ("sequence",))


def test_parameters_to_learn_are_those_of_a_program():
    text = refused(lambda: nn.quantize_aware(dense(), "loihi2", X, learn_parameters=("beta", "gamma")))
    assert text == (
        "learn_parameters: no neuron program of the network has a parameter 'gamma'; their parameters are beta, jump, "
        "rho, tau"
    )


def test_parameters_of_programs_that_are_spoiled_are_named():
    module = nn.quantize_aware(dense(), "loihi2", X, learn_parameters=LEARNED)
    with torch.no_grad():
        module.layers[0].learned["rho"].fill_(torch.nan)
    assert refused(lambda: module(X)).startswith("layer '1': learned.rho has NaN or infinite values; an optimizer step")


def test_a_parameter_that_has_become_0_is_not_divided_by():
    module = nn.quantize_aware(dense(), "loihi2", X, learn_parameters=("tau",))
    with torch.no_grad():
        module.layers[1].learned["tau"].zero_()
    text = refused(lambda: module(X))
    assert text.startswith("layer '3': program ") and "divides by 'tau', which is 0; its inverse is not finite" in text


def test_programs_that_divide_by_their_input_are_exact_with_a_bias_in_it():
    edge = nw.Dense("in", "a", np.linspace(0.25, 1.0, 12).reshape(3, 4), bias=np.array([1.0, 1.5, 2.0]))
    network = nw.Network.from_arrays({"a": (inverting.program(), (3,))}, [edge], {"in": (4,)})
    x = spikes(4, 12, 4)
    assert_equal_bits(nn.quantize_aware(network, "loihi2", x), x)


def test_a_loss_without_numbers_is_told_of_programs():
    module = nn.quantize_aware(dense(), "loihi2", X)
    text = refused(lambda: (module(X) * torch.inf).sum().backward())
    assert text.startswith("layer '3' is given a gradient with NaN or infinite values: the loss is NaN or infinite")


@pytest.mark.long
@pytest.mark.parametrize("detach_reset", [False, True])
@pytest.mark.parametrize("name", ["ALIF", "ALIFRecurrent"])
def test_sinabs_programs_train_what_the_chip_runs(name, detach_reset):
    layers, activation = framework("sinabs.layers"), framework("sinabs.activation")
    torch.manual_seed(0)
    given = {"tau_mem": 10.0, "tau_adapt": 20.0, "norm_input": False, "spike_fn": activation.SingleSpike}
    if name == "ALIFRecurrent":
        given["rec_connect"] = torch.nn.Linear(9, 9, bias=False)
    net = dense(getattr(layers, name)(**given))
    module = nn.quantize_aware(net, "loihi2", X, bits=4, learn_parameters="c1", detach_reset=detach_reset)
    train(module, X)
    assert_equal_bits(module, X)


class _Whole(torch.autograd.Function):
    """A whole number in place of a float one; the gradient goes straight through."""

    @staticmethod
    def forward(ctx, value, whole):
        return whole

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _Compared(torch.autograd.Function):
    """1 where a difference is above 0 (or at 0, where `at_0`); its gradient is that of an arctangent, in units."""

    @staticmethod
    def forward(ctx, difference, truth, unit):
        ctx.save_for_backward(difference)
        ctx.unit = unit
        return truth.double()

    @staticmethod
    def backward(ctx, grad):
        (difference,) = ctx.saved_tensors
        slope = nn.surrogate.atan((difference * ctx.unit).float())
        return grad * slope.double() * ctx.unit, None, None


FLOAT_RULES = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a,
    "abs": lambda a: a.abs(), "modulo": lambda a, b: a, "number": lambda a: a, "and": lambda a, b: a * b,
    "or": lambda a, b: a + b - a * b, "not": lambda a: 1 - a, "shl": lambda a, b: a * 2.0**b,
    "shr": lambda a, b: a / 2.0**b, "shr0": lambda a, b: a / 2.0**b,
    "min": lambda a, b: torch.where(a.detach() < b.detach(), a, b),
    "max": lambda a, b: torch.where(a.detach() > b.detach(), a, b),
    "select": lambda c, a, b: torch.where(c.detach() != 0, a, b),
}  # fmt: skip


def exponential(state, x, sharpness=0.4):
    v = 0.8 * state.v + x + 0.1 * torch.exp(state.v / sharpness)
    threshold = 1 + state.a
    fired = nw.nn.spike(v / threshold, 1.0)
    return {"v": v * (1 - fired), "a": 0.9 * state.a + 0.2 * fired}, fired


def test_programs_with_tables_are_trained_in_the_chips_whole_numbers():
    """Their tables stay while weights and parameters change; a parameter that is learned is part of none."""
    torch.manual_seed(0)
    weight = torch.randn(6, 5).numpy()
    x = (torch.rand(4, 20, 5) < 0.4).numpy().astype(np.int8)
    network = nw.Network.from_arrays({"h": nw.neuron(exponential).program()}, [nw.Dense("in", "h", weight)], {"in": 5})
    module = nn.QuantizedNetwork(network, "loihi2", calibration=x, learn_parameters=("sharpness",))
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    for _ in range(2):
        module.zero_grad()
        module(torch.from_numpy(x)).float().mean().backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0 if p.grad is None else 0.05 * p.grad
    changed = {name for name, p in module.named_parameters() if not torch.equal(p, before[name])}
    assert any("weights" in name for name in changed) and any("sharpness" in name for name in changed)
    sent = module(torch.from_numpy(x)).detach().numpy()
    program = nw.compile(module.network(), "loihi2", x)
    assert len(program.network.node("h").neuron.tables) == 2
    for backend in BACKENDS:
        np.testing.assert_array_equal(sent, nw.simulate(program, x, backend=backend).output)


def as_tensor(value) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)


def oracle_step(program: NeuronProgram, x, states, parameters, units):
    """A step of a program in torch: values as whole numbers, gradients those of the float rules above."""
    values = {"x": x, **states, **parameters}
    whole = {name: value.detach().long().numpy() for name, value in values.items()}
    for k, operation in enumerate(program.operations):
        kind = operation.kind
        tables = [program.tables[o] for o in operation.operands[: kind == "table"]]
        operands = operation.operands[len(tables) :]
        given = [values[o] if isinstance(o, str) else float(o) for o in operands]
        numbers = [*tables, *(whole[o] if isinstance(o, str) else np.int64(o) for o in operands)]
        result = numbers[0].astype(np.int64) if kind == "number" else MEANING[kind](*numbers)
        exact = torch.from_numpy(np.broadcast_to(np.asarray(result), x.shape).copy())
        if kind in COMPARISONS:
            value = _Compared.apply(as_tensor(given[1]) - as_tensor(given[0]), exact, units[k])
        elif kind == "table":
            steps = np.diff(numbers[0])[numbers[1] >> numbers[2]] / 2.0 ** numbers[2]
            value = as_tensor(given[0]) * torch.from_numpy(np.asarray(steps))
        elif kind in FLOAT_RULES:
            shifts = kind in ("shl", "shr", "shr0", "modulo")
            value = FLOAT_RULES[kind](*(g if shifts and i else as_tensor(g) for i, g in enumerate(given)))
        else:
            value = torch.zeros(x.shape, dtype=torch.float64)
        values[operation.result] = value if kind in COMPARISONS else _Whole.apply(value.expand(x.shape), exact.double())
        whole[operation.result] = np.asarray(result)

    def of(operand):
        return values[operand] if isinstance(operand, str) else torch.full(x.shape, float(operand)).double()

    following = {}
    for state in program.states:
        low, high = state.limits
        number = of(state.next).detach().long()
        span = 1 << state.bits
        held = (number - low) % span + low if state.overflow == "modulo" else number.clamp(low, high)
        following[state.name] = _Whole.apply(of(state.next), held.double())
    return following, of(program.output)


@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program=whole_neurons())
def test_the_gradient_kernel_is_that_of_each_operation(program):
    assert_gradients(program)


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=whole_neurons())
def test_the_gradient_kernels_of_many_programs_are_those_of_each_operation(program):
    assert_gradients(program)


@nw.neuron(bits={"v": 20, "n": 6})
def logical(state, x, low=-9, high=14):
    """Comparisons, joined in every way, as numbers."""
    v = torch.div(state.v * 3, 4, rounding_mode="trunc") + x
    above, below, rises = v > high, v <= low, x >= state.n
    inside = ~(above | below)
    late = v + 4 * above > 20
    sent = 3 * inside + 11 * late - 5 * (above & rises) + 2 * (below | rises) + 7 * (inside & (v < x))
    return {"v": torch.where(above, v - high, torch.maximum(v, low - 50 * rises)), "n": state.n + 3 * inside - 1}, sent


def test_the_gradient_of_comparisons_is_that_of_each():
    assert_gradients(logical.program())


def assert_gradients(program: NeuronProgram) -> None:
    """Against torch, which follows the operations one by one."""
    shape, rng = (2, 5, 7), np.random.default_rng(0)
    units = tuple(2.0**-3 if o.kind in COMPARISONS else 0.0 for o in program.operations)
    drive, of_sent = rng.integers(-40, 40, shape), rng.normal(size=shape).astype(np.float32)
    of_last = rng.normal(size=(2, len(program.states), 7))
    given = {n: torch.full((7,), float(v), dtype=torch.float64).requires_grad_() for n, v in program.parameters.items()}
    x = torch.from_numpy(drive).double().requires_grad_()
    states = {s.name: torch.full((2, 7), float(s.initial), dtype=torch.float64) for s in program.states}
    sent = []
    for t in range(5):
        expanded = {name: value.expand(2, 7) for name, value in given.items()}
        states, output = oracle_step(program, x[:, t], states, expanded, units)
        sent.append(output.expand(2, 7))
    sent = torch.stack(sent, 1)
    loss = (sent * torch.from_numpy(of_sent)).sum()
    loss = loss + sum((states[s.name] * torch.from_numpy(of_last[:, i])).sum() for i, s in enumerate(program.states))
    (loss + 0 * x.sum()).backward()
    module = build_gradient_module(program.structure, units, None, False)
    rows = np.array([np.full(7, v) for v in program.parameters.values()], np.int64).reshape(-1, 7)
    start = np.array([np.full((2, 7), s.initial) for s in program.states], np.int64).reshape(-1, 2, 7).swapaxes(0, 1)
    start, found = np.ascontiguousarray(start), np.empty(shape, np.float32)
    kept = np.empty((2, 5, len(program.states), 7), np.int64)
    distance = np.empty((2, n_comparisons(program.structure), 5, 7), np.float32)
    module.forward(rows, program.table_entries, start.copy(), drive, found, kept, distance)
    np.testing.assert_array_equal(found, sent.detach().numpy())
    slope = nn.surrogate.atan(torch.from_numpy(distance)).numpy()
    of_drive, of_given, of_state = np.empty(shape, np.float32), np.zeros(rows.shape), of_last.copy()
    nothing = np.zeros((0, 0, 0), np.float32)
    entries = program.table_entries
    module.backward(rows, entries, start, drive, kept, slope, of_sent, nothing, of_state, of_drive, of_given)
    wanted = np.zeros(shape) if x.grad is None else x.grad.numpy()
    np.testing.assert_allclose(of_drive, wanted, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(wanted).max()))
    for row, value in zip(of_given, given.values(), strict=True):
        wanted = np.zeros(7) if value.grad is None else value.grad.numpy()
        np.testing.assert_allclose(row, wanted, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(wanted).max()))
