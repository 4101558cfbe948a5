"""A stream of a million steps: memory that stays, speed, latency and load, on each backend that is asked for.

    python -m benchmarks.stream [--backends cycle sequence] [--steps 1000000] [--chunk 1000]

16 input lines, each spiking in a fifth of the steps, 20 and 5 LIF neurons on loihi1; a step stands for 1 ms. Memory is
what the process holds (VmRSS) after the first 20,000 steps and after the last; each backend has a process. Kernels are
compiled before. Written to results/stream.json.
"""

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import nwcompile as nw
from benchmarks.record import save
from nwcompile.sim import BACKENDS

SIZES = (16, 20, 5)
RATE = 0.2  # spikes of an input line in a step
SETTLED_STEPS = 20_000  # after so many all has been allocated that a stream needs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", choices=BACKENDS, nargs="+", default=["cycle", "sequence"])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--chunk", type=int, default=1000)
    args = parser.parse_args()
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:  # memory is of a process
        rows = [alone.submit(streamed, backend, args.steps, args.chunk).result() for backend in args.backends]
    save("stream", rows, vars(args))


def streamed(backend: str, n_steps: int, n_chunk: int) -> dict:
    """A stream of `n_steps`: memory after 20,000 and after all, and its figures."""
    x = np.random.default_rng(0).random((n_chunk, SIZES[0])) < RATE
    nw.simulate(program(), x[None], backend)
    session, settled = nw.Session(program(), backend, model_dt=1e-3), None
    rng, start = np.random.default_rng(1), time.process_time()
    while session.n_steps < n_steps:
        session.feed(rng.random((n_chunk, SIZES[0])) < RATE)
        if settled is None and session.n_steps >= SETTLED_STEPS:
            settled = held_mib()
    session.close()
    cpu_seconds = time.process_time() - start
    return {"backend": backend, "settled (MiB)": settled, "at the end (MiB)": held_mib(), "CPU (s)": cpu_seconds,
            **asdict(session.figures())}  # fmt: skip


def program() -> nw.Program:
    """Two layers of random integer weights on loihi1."""
    rng = np.random.default_rng(2)
    neuron = nw.NeuronSpec(threshold=64, decay_v=0, fixed=nw.FixedPoint())
    weights = [rng.integers(-5, 6, shape).astype(np.int8) for shape in ((SIZES[1], SIZES[0]), (SIZES[2], SIZES[1]))]
    edges = [nw.Dense("in", "hidden", weights[0]), nw.Dense("hidden", "out", weights[1])]
    network = nw.Network.from_arrays(
        {"hidden": (neuron, (SIZES[1],)), "out": (neuron, (SIZES[2],))}, edges, {"in": (SIZES[0],)}
    )
    return nw.compile(network, nw.Chip.load("loihi1"))


def held_mib() -> float:
    """Memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


if __name__ == "__main__":
    main()
