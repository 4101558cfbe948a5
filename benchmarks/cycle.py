"""Speed of the cycle backend on the demo network: simulated hardware steps, messages, synops, flit-hops per second.

    python benchmarks/cycle.py [--images 200] [--repeats 5] [--threads 1]

Compiling the kernels (once, then cached on disk) is shown apart. `--threads` pins the process to so many cores.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    import numpy as np

    import nwcompile as nw
    from examples import mnist_snn

    data = mnist_snn.digits()
    net = nw.from_torch(mnist_snn.train(data, n_epochs=3), mnist_snn.encode(data.train_images[:2]))
    chip = nw.Chip.load("loihi1")
    calibration = mnist_snn.encode(data.train_images[:100])
    x = mnist_snn.encode(data.test_images[: args.images])
    rows = []
    for n_cores in (None, 17, 64):
        program = nw.compile(net, chip, calibration=calibration, options=nw.Options(n_cores=n_cores))
        first = seconds(lambda p=program: nw.simulate(p, x[:1], backend="cycle"))[0]
        times = []
        for _ in range(args.repeats):
            elapsed, run = seconds(lambda p=program: nw.simulate(p, x, backend="cycle"))
            times.append(elapsed)
        median = float(np.median(times))
        total = {name: int(run.counters[name].sum()) for name in ("messages_in", "synops", "hops")}
        rows.append({
            "cores": program.mapping.n_cores,
            "first call s": first,
            "median s": median,
            "steps/s": len(run.step_cycles) * run.n_samples / median,
            "messages/s": total["messages_in"] / median,
            "synops/s": total["synops"] / median,
            "flits": int(run.link_flits.sum()),
            "flit-hops/s": int(run.link_flits.sum()) / median,
            "real-time factor": median / run.seconds,
        })  # fmt: skip
    cold = kernel_compile_seconds()
    save("cycle", rows, {**vars(args), "kernel compile s": cold})
    print(f"compiling the kernels from nothing, once: {cold:.1f} s (first call above: with the kernels cached)")


def kernel_compile_seconds() -> float:
    """First call of the cycle backend in a new process whose kernel cache is empty, less that of one whose is not."""
    code = """
import time, numpy as np, nwcompile as nw
spec = nw.NeuronSpec(threshold=64, fixed=nw.Chip.load("tiny").fixed_point)
net = nw.Network.from_arrays({"a": spec}, [nw.Dense("in", "a", np.ones((2, 2), np.int8))], {"in": 2})
program = nw.compile(net, "tiny")
start = time.perf_counter()
nw.simulate(program, np.ones((1, 2, 2)), backend="cycle")
print(time.perf_counter() - start)
"""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = {"args": [sys.executable, "-c", code], "env": environment, "text": True, "check": True}
        cold, warm = (float(subprocess.run(**command, stdout=subprocess.PIPE).stdout) for _ in range(2))
    return cold - warm


def seconds(call):
    """How long a call takes, and what it gives."""
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


if __name__ == "__main__":
    main()
