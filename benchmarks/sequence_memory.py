"""Peak memory of the LIF scan over long sequences, and what torch.compile does to it, ours and others', on the CPU.

    OMP_NUM_THREADS=1 python benchmarks/sequence_memory.py [--only memory compile] [--steps 1000 10000]

Every figure comes from a process of its own, with one thread; peers that are not installed are left out.

memory: B = 4, N = 512, forward without gradients, and forward + backward from the sum of the spikes. `peak MB` is the
highest resident memory of the call less the resident memory before it (modules loaded, kernels compiled and the input
made by then); `B/update` is that over B * T * N. `alike`: the share of spikes that equal ours, so 1 means equal
dynamics; `cosine`: of the gradient of the input and ours.
compile: B = 10, T = 50, N = 512 (torch.compile unrolls a peer's loop over T, which takes minutes for long ones),
medians of CPU ms without the compilation; `equal` says whether spikes and gradient stay the same, bit for bit.
"""

import argparse
import gc
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import median_seconds, save
from benchmarks.sequence_peers import BETA, PEERS, THRESHOLD, installed
from nwcompile.nn.ops.scan import LIFNeurons, fire, scan
from nwcompile.nn.ops.surrogate import atan

N_SAMPLES, N_NEURONS = 4, 512
COMPILED = (10, 50, 512)
LIMIT_S = 300
INFERENCE, TRAINING = "forward", "forward + backward"
OURS, BITS = "nwcompile", "nwcompile bits"
FORWARD_ONLY = (BITS, "spyx")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure, *arguments = json.loads(args.one)
        print(json.dumps(MEASURES[measure](*arguments)))
        return
    rows = []
    for measure in args.only:
        for n_steps in args.steps if measure == "memory" else COMPILED[1:2]:
            for work in (INFERENCE, TRAINING):
                rows += [apart(measure, n_steps, work, name) for name in contenders(measure, work)]
    columns = dict.fromkeys(column for row in rows for column in row)
    shapes = {"memory B, N": [N_SAMPLES, N_NEURONS], "compile B, T, N": COMPILED}
    save(
        "sequence_memory",
        [{c: row.get(c, "") for c in columns} for row in rows],
        {"threads": 1, **shapes, "peers": installed()},
    )


def contenders(measure: str, work: str) -> list[str]:
    names = [OURS, BITS, *installed()]
    if measure == "compile":
        names = [name for name in names if name not in (BITS, "spyx")]  # spyx is compiled by XLA as it is
    return [name for name in names if work == INFERENCE or name not in FORWARD_ONLY]


def apart(measure: str, n_steps: int, work: str, name: str) -> dict:
    """One measurement in a process of its own; why there is none, if it fails."""
    row = {"measure": measure, "work": work, "T": n_steps, "contender": name}
    command = [sys.executable, __file__, "--one", json.dumps([measure, n_steps, work, name])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return row | {"note": f"not done in {LIMIT_S} s"}
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no message")
        return row | {"note": f"fails: {last.strip()[:80]}"}
    return row | json.loads(done.stdout.splitlines()[-1])


def memory(n_steps: int, work: str, name: str) -> dict:
    """Peak memory of one call; then its spikes and gradient beside ours."""
    torch.set_num_threads(1)
    warm, _ = call((N_SAMPLES, 8, N_NEURONS), work, name)
    warm()
    shape = (N_SAMPLES, n_steps, N_NEURONS)
    run, in_order = call(shape, work, name)
    del warm
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    found = run()
    peak = resident("VmHWM") - before
    row = {"peak MB": round(peak / 1e6, 1), "B/update": round(peak / (N_SAMPLES * n_steps * N_NEURONS), 2)}
    if name in (OURS, BITS):
        return row
    own, _ = call(shape, work, OURS)
    return row | beside(in_order(found), own(), work)


def beside(found: tuple, own: tuple, work: str) -> dict:
    row = {"alike": f"{(found[0] == own[0]).float().mean():.4f}"}
    if work == TRAINING:
        cosine = torch.nn.functional.cosine_similarity(*(of[1].flatten().double() for of in (found, own)), 0)
        row["cosine"] = f"{cosine.item():.6f}"
    return row


def compiled(n_steps: int, work: str, name: str) -> dict:
    """Milliseconds with and without torch.compile."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    shape = (COMPILED[0], n_steps, COMPILED[2])
    eager, _ = call(shape, work, name)
    fast, _ = call(shape, work, name, torch.compile)
    (eager_s, expected), (fast_s, found) = (median_seconds(run, 9) for run in (eager, fast))
    equal = all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    return {"eager ms": eager_s * 1e3, "compiled ms": fast_s * 1e3, "eager / compiled": f"{eager_s / fast_s:.2f}",
            "equal": "yes" if equal else "no"}  # fmt: skip


def call(shape: tuple[int, int, int], work: str, name: str, wrap: Callable = lambda run: run) -> tuple:
    """A call that gives spikes (and the input's gradient, if it trains), and what puts those of a peer in our order."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).abs() * 0.2
    trains = work == TRAINING
    if name in (OURS, BITS):
        given, forward = x.requires_grad_(trains), wrap(ours(x, name))
    else:
        given = x.transpose(0, 1).contiguous().requires_grad_(trains)
        forward = wrap(PEERS[name]([], given))

    def in_order(found: tuple) -> tuple:
        return tuple(torch.as_tensor(of).transpose(0, 1) for of in found)

    def infer() -> tuple:
        with torch.no_grad():
            return (forward(),)

    def train() -> tuple:
        given.grad = None
        spikes = forward()
        spikes.sum().backward()
        return spikes.detach(), given.grad

    return train if trains else infer, in_order


def ours(x: torch.Tensor, name: str) -> Callable:
    n = LIFNeurons(*(torch.full((x.shape[2],), value) for value in (BETA, THRESHOLD)), "subtraction", atan)
    if name == BITS:
        return lambda: fire(x, n.initial_state(x), n, "bits")[0]
    return lambda: scan(x, n.initial_state(x), n)[0]


def resident(key: str) -> int:
    """Bytes of this process' memory, as Linux counts them now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


MEASURES = {"memory": memory, "compile": compiled}

if __name__ == "__main__":
    main()
