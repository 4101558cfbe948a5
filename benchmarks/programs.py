"""Speed of neuron programs: beside the built-in neuron, beside other frameworks' adaptive neurons, and to compile.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/programs.py [--repeats 9] [--only built-in alif compile]

One torch thread; the contenders of a row are run in turn in the same process; figures are medians of milliseconds of
the whole process' CPU time. `of built-in`: time over that of the built-in neuron (goal: at most 1.3). `peer / ours`:
the peer's time over ours (goal: at least 15); `alike`: the share of the peer's spikes that equal ours, both computed in
float32 by the same equations. `compile`: seconds until a program that this machine has never seen has run (goal: at
most 5), then in another network, then in another process.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from benchmarks.record import save, show
from benchmarks.sequence import Clock
from benchmarks.sequence_peers import BETA
from benchmarks.sequence_work import currents, neurons
from nwcompile.kernels.cores.programs import build
from nwcompile.nn.ops import cpu
from nwcompile.nn.ops.scan import fire
from nwcompile.sim.sequence.run import LayerGroup
from tests.made.neuron_programs import adaptive, cuba, every_operation

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ((1, 500, 512), (10, 500, 512), (64, 500, 512))  # B, T, N
WHOLE_SHAPE = (10, 500, 512)
Row = dict[str, object]


@nw.neuron
def leaky(state, x, beta=0.9, threshold=1.0):
    """The layer LIFLayer of `nn`."""
    v = beta * state.v + x
    spike = nw.nn.spike(v, threshold)
    return {"v": v - spike * threshold}, spike


@nw.neuron
def sinabs_alif(state, x, alpha_mem, alpha_adapt, adapt_scale=1.8, b0=1.0):
    """sinabs' ALIF with single spikes, operation by operation (sinabs.layers.functional.alif)."""
    v = alpha_mem * state.v + x
    threshold = b0 + adapt_scale * state.b
    spike = nw.nn.spike(v - threshold, 0.0)
    b = alpha_adapt * state.b + (1 - alpha_adapt) * spike
    return {"v": v - spike * threshold, "b": b}, spike


@nw.neuron(initial={"b": 1.0})
def norse_lsnn(state, x, tau_mem_inv=100.0, tau_syn_inv=200.0, tau_adapt_inv=1 / 800, v_th=1.0, beta=1.8, dt=0.001):
    """norse's LSNN without recurrence, operation by operation (norse.torch.functional.lsnn)."""
    v = state.v + dt * tau_mem_inv * ((0.0 - state.v) + state.i)
    i = state.i + -dt * tau_syn_inv * state.i
    b = state.b + dt * tau_adapt_inv * (v_th - state.b)
    spike = (v - b > 0).float()
    return {"v": (1 - spike) * v + spike * 0.0, "i": i + x, "b": b + spike * beta}, spike


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="of compile, a third")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts, printed but not written")
    args = parser.parse_args()
    torch.set_num_threads(1)
    clock = Clock(time.process_time, args.repeats)
    with torch.no_grad():
        rows = [row for part in args.only or PARTS for row in PARTS[part](clock)]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    rows = [{column: row.get(column, "") for column in columns} for row in rows]
    if args.only:
        show(rows)
    else:
        save("programs", rows, {"repeats": args.repeats, "threads": 1})


def beside_built_in(clock: Clock) -> Iterator[Row]:
    """The same LIF as a program: in whole numbers, alone and with all that a backend does, and in float."""
    shape = WHOLE_SHAPE
    spec = nw.NeuronSpec(threshold=6400, decay_u=1000, decay_v=300, fixed=nw.FixedPoint(overflow="saturate"))
    rng = np.random.default_rng(0)
    weight = rng.integers(-60, 100, (shape[2], 64)).astype(np.int8)
    kinds = {"built-in": spec, "program": cuba(6400, 1000, 300)}
    nets = {
        name: nw.Network.from_arrays({"h": (neuron, shape[2])}, [nw.Dense("in", "h", weight)], {"in": 64})
        for name, neuron in kinds.items()
    }
    x = (rng.random((*shape[:2], 64)) < 0.1).astype(np.int32)
    groups = {name: LayerGroup(net, ["h"], [0]) for name, net in nets.items()}
    driven = groups["program"].sum_inputs({"in": x}, shape[0], shape[1])
    out = {name: np.empty(shape, np.int8) for name in kinds}
    calls = {name: lambda name=name: groups[name].scan(*driven, out[name]) for name in kinds}
    yield from _of_built_in(f"scan in whole numbers {shape}", clock, calls)
    assert np.array_equal(out["built-in"], out["program"]) and out["program"].any()
    chip = nw.Chip.load("loihi2").replace({"state.overflow": "saturate"})
    compiled = {name: nw.compile(net, chip, x[:2], nw.Options(seed=0)) for name, net in nets.items()}
    for backend, samples in (("sequence", 10), ("cycle", 1)):
        runs = {name: lambda p=p, b=backend, n=samples: nw.simulate(p, x[:n, :100], b) for name, p in compiled.items()}
        yield from _of_built_in(f"backend {backend}, {samples} samples of 100 steps", clock, runs)
    program, lif, current = leaky.program(), neurons(shape[2]), currents(shape)
    given = torch.tensor(list(program.parameters.values()))[:, None].expand(-1, shape[2]).contiguous()
    calls = {
        "built-in": lambda: fire(current, lif.initial_state(current), lif, "float")[0],
        "program": lambda: cpu.run_program(program.structure, given, current, torch.zeros(1, shape[0], shape[2])),
    }
    yield from _of_built_in(f"scan in float32 {shape}", clock, calls)
    assert torch.equal(calls["built-in"](), calls["program"]())
    layers = {
        "built-in": nw.nn.LIFLayer(shape[2], -1e-3 / np.log(BETA), dt=1e-3),
        "program": nw.nn.ProgramLayer(leaky, shape[2]),
    }
    calls = {name: lambda layer=layer: _from_start(layer, current) for name, layer in layers.items()}
    yield from _of_built_in(f"layer of nn {shape}", clock, calls)


def _of_built_in(work: str, clock: Clock, calls: dict[str, Callable]) -> Iterator[Row]:
    times = clock.medians(calls)
    for name, ms in times.items():
        yield {"work": work, "contender": name, "ms": ms, "of built-in": f"{ms / times['built-in']:.2f}"}


def _from_start(layer, current: torch.Tensor) -> torch.Tensor:
    layer.reset_state()
    return layer(current)


def beside_peers(clock: Clock) -> Iterator[Row]:
    """Adaptive neurons on whole tensors."""
    import norse.torch
    import sinabs.activation
    import sinabs.layers

    single = {"spike_fn": sinabs.activation.SingleSpike, "reset_fn": sinabs.activation.MembraneSubtract()}
    for shape in SHAPES:
        n = shape[2]
        current = currents(shape)
        peer = sinabs.layers.ALIF(tau_mem=20.0, tau_adapt=50.0, adapt_scale=1.8, norm_input=False, **single)
        alphas = {"alpha_mem": peer.alpha_mem_calculated, "alpha_adapt": peer.alpha_adapt_calculated}
        ours = nw.nn.ProgramLayer(sinabs_alif, n, **alphas)
        yield from _of_peer(f"ALIF {shape}", clock, "sinabs ALIF", ours, current, _sinabs_call(peer, current))
        strong, lsnn = current * 20, norse.torch.LSNN()
        late = strong.transpose(0, 1).contiguous()
        ours = nw.nn.ProgramLayer(norse_lsnn, n)
        call = lambda lsnn=lsnn, late=late: lsnn(late)[0].transpose(0, 1)  # noqa: E731
        yield from _of_peer(f"LSNN {shape}", clock, "norse LSNN", ours, strong, call)


def _sinabs_call(layer, current: torch.Tensor) -> Callable:
    def call():
        layer.reset_states()
        return layer(current)

    return call


def _of_peer(work: str, clock: Clock, peer: str, ours, current: torch.Tensor, call: Callable) -> Iterator[Row]:
    times = clock.medians({"nwcompile": lambda: _from_start(ours, current), peer: call})
    spikes, theirs = _from_start(ours, current), call()
    assert spikes.any()
    ratio = f"{times[peer] / times['nwcompile']:.1f}"
    yield {"work": work, "contender": "nwcompile", "ms": times["nwcompile"], "peer / ours": ratio}
    alike = f"{(spikes == theirs).double().mean():.6f}"
    yield {"work": work, "contender": peer, "ms": times[peer], "alike": alike}


FIRST_RUN = """
import sys, time
import nwcompile as nw
from benchmarks.programs import first_run, new_programs
program = new_programs(int(sys.argv[2]))[sys.argv[1]]
start = time.perf_counter()
first_run(program)
print(time.perf_counter() - start)
"""


def new_programs(unlike: int) -> dict[str, object]:
    """Programs that no machine has seen: each with a number of its own in its operations."""
    programs = {"cuba": cuba(6400, 1000, 300), "adaptive": adaptive.program(), "every operation": every_operation()}
    for name, program in programs.items():
        first, *rest = program.operations
        last = type(first)("unlike", "add", (program.states[0].name, unlike))
        programs[name] = program.replace(operations=(first, *rest, last))
    return programs


def first_run(program) -> None:
    """A step of all backends on the CPU, with a network of its own."""
    net = nw.Network.from_arrays(
        {"h": (program, 10)},
        [nw.Dense("in", "h", np.ones((10, 4), np.int8)), nw.Dense("h", "h", np.eye(10, dtype=np.int8))],
        {"in": 4},
    )
    LayerGroup(net, ["h"], [0, 1])  # called from the kernel of all loops, by its address
    alone = LayerGroup(nw.Network(net.inputs, net.nodes, net.connections[:1]), ["h"], [0])
    alone.scan(np.zeros((1, 1, 10), np.int64), np.zeros((1, 1, 10), np.uint8), np.zeros((1, 1, 10), np.int32))


def compilation(clock: Clock) -> Iterator[Row]:
    """Seconds of the wall until a program has run: new, in another network, in another process that finds it kept."""
    first_run(cuba(1, 2, 3))
    with tempfile.TemporaryDirectory() as kept:
        for name in new_programs(0):
            seconds = {"new": [], "other network": [], "other process": []}
            for k in range(-(-clock.repeats // 3)):
                unlike = time.time_ns() + k
                command = [sys.executable, "-c", FIRST_RUN, name, str(unlike)]
                for which in seconds:
                    seconds[which].append(_seconds(which, name, unlike, command, kept))
            for which, times in seconds.items():
                yield {"work": f"compile {name}", "contender": which, "ms": float(np.median(times)) * 1e3}


def _seconds(which: str, name: str, unlike: int, command: list[str], kept: str) -> float:
    import os

    os.environ[build.FOLDER] = kept
    if which == "other process":
        return float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()[-1])
    program = new_programs(unlike)[name]
    start = time.perf_counter()
    first_run(program)
    return time.perf_counter() - start


PARTS = {"built-in": beside_built_in, "alif": beside_peers, "compile": compilation}

if __name__ == "__main__":
    main()
