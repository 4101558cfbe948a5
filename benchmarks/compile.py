"""How long importing nwcompile and compiling the demo network take.

    python benchmarks/compile.py [--repeats 5]

Import time is that of a fresh interpreter with `import nwcompile` less that of a bare one (median, warm); which of the
heavy packages it loads is printed too. Compile time is `nw.compile` on the trained demo network with 100 calibration
images, stage by stage, in a process that has imported everything and loaded its kernels from the cache.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import save

HEAVY = ("torch", "numba", "triton", "networkx")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    bare, full = (interpreter(code, args.repeats) for code in ("pass", "import nwcompile"))
    code = f"import sys, nwcompile; print([m for m in {HEAVY!r} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    rows = [{"what": "import nwcompile, more than a bare interpreter", "median s": full - bare, "note": loaded}]
    rows += [{"what": what, "median s": median, "note": note} for what, median, note in compile_stages(args.repeats)]
    save("compile", rows, vars(args))


def interpreter(code: str, repeats: int) -> float:
    """Median seconds of a fresh interpreter that runs `code`, after one warm-up."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def compile_stages(repeats: int):
    """(stage, median seconds, note) of compiling the demo network for loihi1, and the whole."""
    import torch

    import nwcompile as nw
    from examples import mnist_snn

    torch.set_num_threads(1)
    data = mnist_snn.digits()
    net = nw.from_torch(mnist_snn.train(data, n_epochs=2), mnist_snn.encode(data.train_images[:2]))
    calibration = mnist_snn.encode(data.train_images[:100])
    stages: dict[str, list[float]] = {}
    for i in range(repeats + 1):
        start = time.perf_counter()
        nw.compile(
            net,
            "loihi1",
            calibration,
            nw.Options(n_cores=17),
            on_stage=lambda name, _, s: stages.setdefault(name, []).append(s),
        )
        stages.setdefault("whole", []).append(time.perf_counter() - start)
        if i == 0:
            first = stages["whole"][0]
    for name, times in stages.items():
        note = f"first call {first:.2f} s" if name == "whole" else ""
        yield f"compile: {name}", float(np.median(times[1:])), note


if __name__ == "__main__":
    main()
