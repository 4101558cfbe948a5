"""Neurons of the frameworks that import as neuron programs: drawn ones, run by the framework and by their program."""

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.frontend.torch.kinds import find_kind
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.sim.reference.program_step import ProgramState
from nwcompile.sim.sequence.float_run import ProgramScan

DTYPES = (torch.float32, torch.float64)
SHORT = (40, 4, 20)  # steps, samples, neurons: enough for every operation, quick enough for every run
LONG = (500, 20, 100)  # a million neuron-steps
N_IN = 8


@dataclass(frozen=True)
class Case:
    """`make(n)` draws n neurons; `run(module, x)` is what the framework makes of currents x [T, B, n].

    Currents are drawn from `low`..`high`. `double`: whether the framework runs in float64. `shape`: that of n neurons.
    """

    make: Callable[[int], torch.nn.Module]
    run: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]
    low: float = -0.5
    high: float = 1.5
    double: bool = True
    shape: Callable[[int], tuple[int, ...]] = lambda n: (n,)


def each_once(of: Iterable[str]) -> pytest.MarkDecorator:
    """A test of every case, in float32 and float64 by turns."""
    return pytest.mark.parametrize(("name", "dtype"), list(zip(of, cycle(DTYPES), strict=False)))


def each_in_both(of: Iterable[str]) -> Callable:
    """A long test of every case, in float32 and float64."""
    given = [(name, dtype) for name in of for dtype in DTYPES]

    def marked(test: Callable) -> Callable:
        return pytest.mark.long(pytest.mark.parametrize(("name", "dtype"), given)(test))

    return marked


def draw(n: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    """n numbers between low and high, in torch's default type."""
    return low + (high - low) * torch.rand(n)


def number(low: float, high: float) -> float:
    """One of them."""
    return float(draw(1, low, high))


@contextmanager
def default_type(dtype: torch.dtype):
    """New tensors are of `dtype` inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def verify_same(case: Case, dtype: torch.dtype, n_steps: int, n_samples: int, n: int, seed: int = 5) -> None:
    """Every number that drawn neurons send is the framework's; some of them send, and not all of them always."""
    if dtype == torch.float64 and not case.double:
        pytest.skip("the framework does not run in float64")
    torch.manual_seed(seed)
    with default_type(dtype), torch.no_grad():
        module = case.make(n).eval()
        x = case.low + (case.high - case.low) * torch.rand(n_steps, n_samples, *case.shape(n))
        expected = case.run(module, x.clone()).numpy()
        found = steps(module, x, expected.shape[2:], by_kernel=(n_steps, n_samples, n) == LONG)
    assert 0.005 < (expected != 0).mean()
    assert len(np.unique(expected)) > 1
    for numbers in found:
        n_wrong = int((numbers != expected).sum())
        assert n_wrong == 0, f"{n_wrong} of {expected.size} differ, first {np.argwhere(numbers != expected)[0]}"


def steps(module: torch.nn.Module, x: torch.Tensor, shape: tuple[int, ...], by_kernel: bool) -> list[np.ndarray]:
    """What the program of `module` makes of currents [T, B, n_in], in their type: of a readout its state.

    By the reference's step, and `by_kernel` also by that of backend sequence, where there is one.
    """
    kind = find_kind(module)
    assert kind is not None
    kind.clear(module)
    neurons = kind.read(module, "layer", shape)
    program, weight = neurons.spec, kind.weight(module)
    assert isinstance(program, NeuronProgram)
    program.verify("layer", shape)
    x = x if weight is None else torch.nn.functional.linear(x, weight)
    currents, dtype = x.numpy(), x.numpy().dtype.type
    state = ProgramState.from_program(program, (x.shape[1], *shape), dtype)

    def by_reference(x_t: np.ndarray) -> np.ndarray:
        sent = state.step(x_t)
        return sent if program.fires else state.named[program.readout]

    found = [stepped(by_reference, currents, neurons.recurrent, shape)]
    if by_kernel and ProgramScan.has_kernel(program):
        scan = ProgramScan(program, shape, x.shape[1], dtype)
        if neurons.recurrent:
            found.append(stepped(lambda x_t: scan.run(x_t[:, None])[0][:, 0], currents, neurons.recurrent, shape))
        else:
            sent, kept = scan.run(currents.swapaxes(0, 1), keep_states=not program.fires)
            found.append((sent if program.fires else kept[program.readout]).swapaxes(0, 1))
    return [numbers * dtype(kind.spike(module)) for numbers in found]


def stepped(step: Callable, currents: np.ndarray, recurrent: tuple, shape: tuple[int, ...]) -> np.ndarray:
    """What leaves step by step for currents [T, B, *shape], what comes back over `recurrent` connections added."""
    sent, given = np.zeros((currents.shape[1], *shape), currents.dtype), []
    for x_t in currents:
        for connection in recurrent:
            x_t = x_t + sent @ connection.weight.T.astype(x_t.dtype)
        sent = step(x_t)
        given.append(sent)
    return np.stack(given)


def weights(n_out: int, n_in: int = N_IN, gain: float = 3.0) -> torch.nn.Linear:
    """A linear map that makes neurons spike."""
    linear = torch.nn.Linear(n_in, n_out)
    linear.weight.data *= gain
    return linear


def verify_network(module: torch.nn.Module, x: torch.Tensor, layout: str, result: torch.Tensor) -> nw.Network:
    """The network imports without a difference on the example, its layers are programs, and it gives `result`."""
    network = nw.from_torch(module, x, layout=layout)
    assert len(network.programs) == 2
    run = nw.simulate(network, x.numpy())
    expected = result.numpy() if layout == "BT" else result.transpose(0, 1).numpy()
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(run.output, expected)
    return network


def verify_on_chip(module: torch.nn.Module, x: torch.Tensor, layout: str) -> None:
    """Compiled to a programmable chip, three backends agree bit for bit, and every layer spikes; so if it was trained.

    Trained in the integers of 4-bit weights, module and program agree in every spike and state, and all weights learn.
    """
    network = nw.from_torch(module, x, layout=layout)
    program = nw.compile(network, "loihi2", calibration=x)
    verdict = nw.crosscheck(program, x)
    assert verdict.agree, verdict
    run = nw.simulate(program, x, backend="sequence")
    assert all(np.any(run.spikes[name]) for name in network.layers)
    aware = nw.nn.quantize_aware(network, "loihi2", x, bits=4)
    optimizer = torch.optim.Adam(aware.parameters(), 0.02)
    (aware(x).sum(1) - 2).square().mean().backward()
    assert all(p.grad is not None and p.grad.any() for p in aware.parameters() if p.requires_grad)
    optimizer.step()
    program, found = nw.compile(aware.network(), "loihi2", calibration=x), aware.record(x)
    for backend in ("reference", "cycle", "sequence"):
        run = nw.simulate(program, x, backend=backend, record="all")
        for name, own in found.items():
            np.testing.assert_array_equal(own["spikes"], run.spikes[name])
            for state in own.keys() - {"spikes"}:
                np.testing.assert_array_equal(own[state], run.states[name][state])
