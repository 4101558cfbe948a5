"""Exact integer inference on a GPU beside our own bfloat16 float inference: one layer, the same weights and spikes.

    python benchmarks/sequence_exact.py [--repeats 20]

Both take [B, T, N] spikes that lie on the GPU and give those of the layer there, one byte each. `float` is a bfloat16
product, rounded to bfloat16 currents, and the LIF scan; `exact` the integers that every backend computes, the current
with its own decay included, with neuron updates counted or not. The products of both are timed by themselves too.
Contenders take turns; medians of wall time in milliseconds, the GPU waited for before and after, compilation not timed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import RESULTS, save
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.nn.ops.scan import LIFNeurons, fire, scan
from nwcompile.nn.ops.surrogate import atan

SHAPES = ((16, 500, 512), (16, 500, 4096), (16, 500, 16384))  # B, T, N
LOOP = (128, 1000, 128)  # with weights from the layer to itself
RATE, DECAY = 0.1, 0.9  # of spikes; of the membrane in a step
Calls = dict[str, Callable]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit(f"this benchmark needs a GPU, and torch {torch.__version__} finds none")
    gpu = torch.device("cuda")
    rows = [row for shape in SHAPES for row in measured(shape, False, gpu, args.repeats)]
    rows += measured(LOOP, True, gpu, args.repeats)
    settings = {"repeats": args.repeats, "gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    save("sequence_exact", rows, settings, args.out)


def measured(shape: tuple[int, int, int], is_loop: bool, device: torch.device, repeats: int) -> Iterator[dict]:
    """A row for each contender."""
    with torch.no_grad():
        calls = contenders(shape, is_loop, device)
        times = medians(calls, repeats)
    for name, ms in times.items():
        yield {
            "B, T, N": f"{shape}{' loop' if is_loop else ''}",
            "contender": name,
            "ms": ms,
            "float / it": f"{times['float'] / ms:.2f}",
        }


def medians(calls: Calls, repeats: int) -> dict[str, float]:
    """Milliseconds of each; the first call of each is not timed."""
    times = {name: [] for name in calls}
    for k in range(repeats + 1):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            result = call()
            torch.cuda.synchronize()
            if k:
                times[name].append((time.perf_counter() - start) * 1e3)
            del result
    return {name: float(np.median(t)) for name, t in times.items()}


def contenders(shape: tuple[int, int, int], is_loop: bool, device: torch.device) -> Calls:
    """Calls that give the spikes of a layer, in float and in integers, and its products."""
    from nwcompile.sim.sequence.cuda.inference import Inference

    (n_samples, n_steps, n), rng = shape, np.random.default_rng(0)
    weight, back = (rng.integers(-127, 128, (n, n), np.int8) for _ in range(2))
    threshold = int(127 * np.sqrt(n * RATE))
    spec = NeuronSpec(threshold=threshold << 6, reset="subtract", decay_v=round((1 - DECAY) * 4096), fixed=FixedPoint())
    edges = [Dense("in", "a", weight), *([Dense("a", "a", back)] if is_loop else [])]
    network = Network.from_arrays({"a": spec}, edges, {"in": n})
    inference = Inference(network, [["a"]], [0, 1][: len(edges)], device)
    x = torch.from_numpy(rng.random(shape) < RATE).to(device, torch.int8)
    in_float = x.to(torch.bfloat16)
    to, again = (torch.from_numpy(w).T.contiguous().to(device, torch.bfloat16) for w in (weight, back))
    neurons = LIFNeurons(
        torch.full((n,), DECAY, device=device),
        torch.full((n,), float(threshold), device=device),
        "subtraction",
        atan,
        w_rec=again.float() if is_loop else None,
    )

    def exact(counts: bool) -> torch.Tensor:
        return inference.infer({"in": x}, (n_samples, n_steps), counts=counts, ranges={"in": (0, 1)}).spikes["a"]

    def in_floats() -> torch.Tensor:
        current = in_float @ to
        if is_loop:
            return scan(current, neurons.initial_state(current), neurons)[0]
        return fire(current, neurons.initial_state(current), neurons, "uint8")[0]

    rows, table = x.reshape(-1, n), torch.from_numpy(weight).to(device)
    return {
        "float": in_floats,
        "exact": lambda: exact(False),
        "exact, updates counted": lambda: exact(True),
        "bfloat16 product": lambda: in_float @ to,
        "int8 product": lambda: torch._int_mm(rows, table.T),
    }


if __name__ == "__main__":
    main()
