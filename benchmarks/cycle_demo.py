"""The MNIST network of the examples on 1, 17 and 64 cores of Loihi 1, and what compiling the kernels takes."""

import os
import subprocess
import sys
import tempfile

import nwcompile as nw
from benchmarks.record import median_seconds, save

FIRST_CALL = """
import time, numpy as np, nwcompile as nw
spec = nw.NeuronSpec(threshold=64, fixed=nw.Chip.load("tiny").fixed_point)
net = nw.Network.from_arrays({"a": spec}, [nw.Dense("in", "a", np.ones((2, 2), np.int8))], {"in": 2})
program = nw.compile(net, "tiny")
start = time.perf_counter()
nw.simulate(program, np.ones((1, 2, 2)), backend="cycle")
print(time.perf_counter() - start)
"""


def demo(args) -> None:
    """Print and save the figures of the demo network."""
    from examples import mnist_snn

    data = mnist_snn.digits()
    net = nw.from_torch(mnist_snn.train(data, n_epochs=3), mnist_snn.encode(data.train_images[:2]))
    calibration = mnist_snn.encode(data.train_images[:100])
    x = mnist_snn.encode(data.test_images[: args.images])
    rows = []
    for n_cores in (None, 17, 64):
        program = nw.compile(net, "loihi1", calibration=calibration, options=nw.Options(n_cores=n_cores))
        seconds, run = median_seconds(lambda p=program: nw.simulate(p, x, backend="cycle"), args.repeats)
        total = {name: int(run.counters[name].sum()) for name in ("messages_in", "synops")}
        rows.append(
            {
                "cores": program.mapping.n_cores,
                "median s": seconds,
                "steps/s": len(run.step_cycles) * run.n_samples / seconds,
                "messages/s": total["messages_in"] / seconds,
                "synops/s": total["synops"] / seconds,
                "flits": int(run.link_flits.sum()),
                "real-time factor": seconds / run.seconds,
            }
        )
    cold = kernel_compile_seconds()
    save(
        "cycle",
        rows,
        {"images": args.images, "repeats": args.repeats, "threads": args.threads, "kernel compile s": cold},
    )
    print(f"compiling the kernels from nothing, once: {cold:.1f} s")


def kernel_compile_seconds() -> float:
    """First call of the cycle backend in a new process whose kernel cache is empty, less that of one whose is not."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = {"args": [sys.executable, "-c", FIRST_CALL], "env": environment, "text": True, "check": True}
        cold, warm = (float(subprocess.run(**command, stdout=subprocess.PIPE).stdout) for _ in range(2))
    return cold - warm
