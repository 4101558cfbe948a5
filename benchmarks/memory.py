"""Peak memory of compiling and running, and the estimate by which nwcompile refuses work before it starts.

    OMP_NUM_THREADS=1 python benchmarks/memory.py [--only compile run]

Each row is measured in a process of its own. `counted MB` is the estimate of `nwcompile.passes.quantize.memory` and
`nwcompile.sim.memory`. `peak MB` is the peak resident memory of the call minus that before it, when modules are loaded,
kernels compiled and samples made. Refusals are right if the ratio is never below 1.
"""

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np

import nwcompile as nw
from benchmarks.record import save
from benchmarks.sequence_memory import resident
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize import memory as compiling
from nwcompile.sim import memory as running
from nwcompile.sim.inputs import prepare_inputs

NEURON = nw.NeuronSpec(threshold=1.0, beta=0.9)
CHIP = "loihi2_kapoho"
RATE = 0.1  # of the input, spikes a line and step
# work, network, samples, steps, partitioner or `record`
CELLS = (
    ("compile", "dense", 0, 0, "sequential"),
    ("compile", "dense", 4, 20, "sequential"),
    ("compile", "sparse", 0, 0, "sequential"),
    ("compile", "sparse", 0, 0, "floorline"),
    ("compile", "convolutions", 0, 0, "floorline"),
    ("compile", "convolutions", 20, 50, "sequential"),
    ("compile", "convolutions", 300, 50, "sequential"),
    ("compile", "integers", 0, 0, "sequential"),
    ("reference", "convolutions", 20, 20, "spikes"),
    ("reference", "convolutions", 20, 20, "all"),
    ("sequence", "dense", 400, 100, "spikes"),
    ("sequence", "convolutions", 200, 50, "spikes"),
    ("sequence", "convolutions", 100, 50, "all"),
    ("sequence", "convolutions", 1, 2000, "spikes"),
    ("cycle", "dense", 40, 50, "spikes"),
    ("cycle", "convolutions", 20, 50, "spikes"),
    ("cycle", "convolutions", 20, 50, "all"),
    ("cycle", "dense", 2000, 2, "totals"),
    ("float reference", "convolutions", 20, 50, "spikes"),
    ("float sequence", "convolutions", 40, 50, "all"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("compile", "run"), default=["compile", "run"])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measured(*json.loads(args.one))))
        return
    for what in args.only:
        cells = [cell for cell in CELLS if (cell[0] == "compile") == (what == "compile")]
        save(f"memory_{what}", [apart(cell) for cell in cells], {"chip": CHIP, "rate": RATE})


def apart(cell: tuple) -> dict:
    """Measure a row in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps(cell)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measured(work: str, name: str, n_samples: int, n_steps: int, how: str) -> dict:
    """Measure a row: the estimate and the peak."""
    network = NETWORKS[name]()
    x = samples(network, n_samples, n_steps) if n_samples else None
    if work == "compile":
        warm(name, "cycle", how)
        normal = normalize(network)
        counted = compiling.weight_bytes(normal)
        if x is not None:
            counted = max(counted, compiling.sample_bytes(normal, n_samples, n_steps))
        options = nw.Options(partitioner=how)
        peak = peak_of(lambda: nw.compile(network, CHIP, x, options))
    else:
        kind, _, backend = work.rpartition(" ")
        warm(name, backend, "sequential")
        program = network if kind else nw.compile(network, CHIP, x[:1, :4], nw.Options(partitioner="sequential"))
        x = prepare_inputs(network if kind else program.network, x)[0]
        counted = running.run_bytes(program, n_samples, n_steps, backend, how)
        peak = peak_of(lambda: nw.simulate(program, x, backend, record=how))
    row = {"work": work, "network": name, "samples": n_samples, "steps": n_steps, "how": how}
    return row | {"counted MB": round(counted / 1e6), "peak MB": round(peak / 1e6), "ratio": f"{peak / counted:.2f}"}


def peak_of(call) -> int:
    """Return the peak memory of a call in bytes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # else the call would reuse freed memory, which does not show
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    call()
    return resident("VmHWM") - before


def warm(name: str, backend: str, partitioner: str) -> None:
    """Compile and run a small network of the same kinds, so that kernels are compiled and libraries loaded."""
    network = SMALL[name]()
    x = samples(network, 3, 5)
    program = nw.compile(network, CHIP, x, nw.Options(partitioner=partitioner))
    nw.simulate(program, x, backend)
    nw.simulate(program, x, "cycle", record="totals")
    if not network.is_fixed:
        nw.simulate(network, x, "reference")
        nw.simulate(network, x, "sequence")


def samples(network: nw.Network, n_samples: int, n_steps: int) -> np.ndarray:
    shape = next(iter(network.inputs.values())).shape
    return np.random.default_rng(1).random((n_samples, n_steps, *shape), np.float32) < RATE


def dense(*sizes: int) -> nw.Network:
    """Fully connected layers of these sizes."""
    rng, names = np.random.default_rng(0), ["in", *(f"fc{i}" for i in range(1, len(sizes)))]
    edges = [
        nw.Dense(a, b, (rng.normal(size=(m, n)) * 2 / np.sqrt(n)).astype(np.float32))
        for a, b, n, m in zip(names, names[1:], sizes, sizes[1:], strict=False)
    ]
    layers = {name: (NEURON, (n,)) for name, n in zip(names[1:], sizes[1:], strict=True)}
    return nw.Network.from_arrays(layers, edges, {"in": sizes[0]})


def sparse(n: int, fan_in: int) -> nw.Network:
    """Two layers of n neurons; the second has `fan_in` random synapses per neuron."""
    rng, n_synapses = np.random.default_rng(0), n * fan_in
    edges = [
        nw.Dense("in", "first", rng.normal(0, 0.5, (n, 50)).astype(np.float32)),
        nw.Sparse("first", "second", *rng.integers(0, n, (2, n_synapses)),
                  rng.normal(0, 1 / np.sqrt(fan_in), n_synapses).astype(np.float32)),
    ]  # fmt: skip
    return nw.Network.from_arrays({"first": (NEURON, n), "second": (NEURON, n)}, edges, {"in": 50})


def convolutions(channels: int, size: int) -> nw.Network:
    """Two convolutions and a classifier, for images of two channels."""
    rng = np.random.default_rng(0)
    first, second = ((rng.normal(size=(channels, n, 3, 3)) * 2 / np.sqrt(9 * n)) for n in (2, channels))
    classifier = rng.normal(0, 0.1, (10, channels * (size // 2) ** 2))
    edges = [
        nw.Conv2d("in", "first", first.astype(np.float32), padding=1),
        nw.Conv2d("first", "second", second.astype(np.float32), stride=2, padding=1),
        nw.Dense("second", "out", classifier.astype(np.float32)),
    ]
    return nw.Network.from_arrays(dict.fromkeys(("first", "second", "out"), NEURON), edges, {"in": (2, size, size)})


def integers(*sizes: int) -> nw.Network:
    """Dense layers of integers, as after quantization."""
    neuron = nw.NeuronSpec(threshold=4096, fixed=nw.FixedPoint(), decay_v=400)
    rng, names = np.random.default_rng(0), ["in", *(f"fc{i}" for i in range(1, len(sizes)))]
    edges = [
        nw.Dense(a, b, 2 * rng.integers(-50, 50, (m, n)).astype(np.int8))
        for a, b, n, m in zip(names, names[1:], sizes, sizes[1:], strict=False)
    ]
    layers = {name: (neuron, (n,)) for name, n in zip(names[1:], sizes[1:], strict=True)}
    return nw.Network.from_arrays(layers, edges, {"in": sizes[0]})


NETWORKS = {
    "dense": lambda: dense(1000, 2500, 2500, 10),
    "sparse": lambda: sparse(10_000, 100),
    "convolutions": lambda: convolutions(16, 32),
    "integers": lambda: integers(1000, 3000, 3000, 10),
}
SMALL = {
    "dense": lambda: dense(5, 6, 4),
    "sparse": lambda: sparse(20, 3),
    "convolutions": lambda: convolutions(2, 6),
    "integers": lambda: integers(5, 6, 4),
}

if __name__ == "__main__":
    main()
