"""Speed of the LIF layers on whole `[B, T, N]` tensors beside other frameworks, on the CPU; on a GPU see sequence_cuda.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/sequence.py [--threads 1] [--repeats 9] [--only scan train nwave sweep]

All contenders of a row, and a copy of its input, are run in turn in the same process; figures are medians, in
milliseconds of CPU time with one thread, of wall time with more. Compilation is not timed. `of copy`: bytes that the
scan must read and write in its time, over the bytes that the copy moves in its own. Peers that are not installed are
left out. `alike`: the share of the peer's spikes that equal ours; `cosine`: of its input gradient and ours.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import sequence_cuda
from benchmarks.record import RESULTS, save, show
from benchmarks.sequence_peers import installed, peers
from benchmarks.sequence_work import (
    FAMILIES,
    SWEEP,
    WRITTEN_BYTES,
    Row,
    currents,
    fitted,
    network,
    neurons,
    rows,
    spikes,
    trained,
    whole,
)
from nwcompile import nn
from nwcompile.errors import BackendError
from nwcompile.nn.ops.device import torch_device
from nwcompile.nn.ops.scan import FORMS, fire, scan

SHAPES = ((10, 500, 512), (10, 500, 4096))  # B, T, N of the published comparison
SWEEP_TURNS = 5  # for each repeat of other rows: a turn takes 20 ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", nargs="+", help="parts, printed but not written: of the CPU " + ", ".join(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    args = parser.parse_args()
    settings = {"threads": args.threads, "repeats": args.repeats, "peers": installed()}
    if args.device == "cuda":
        try:
            torch_device("cuda")
        except BackendError as e:
            raise SystemExit(str(e)) from None
        name, parts, clock = "sequence_cuda", sequence_cuda.PARTS, sequence_cuda.Gpu(args.repeats)
        settings |= clock.about()
    else:
        torch.set_num_threads(args.threads)
        name, parts = f"sequence_{args.threads}", PARTS
        clock = Clock(time.process_time if args.threads == 1 else time.perf_counter, args.repeats)
    unknown = set(args.only or ()) - parts.keys()
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))}: choose from {', '.join(parts)}")
    rows, failed = measured({part: parts[part] for part in args.only or parts}, clock)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    rows = [{c: row.get(c, "") for c in columns} for row in rows]
    if rows and not args.only:
        save(name, rows, settings, args.out)
    elif rows:
        show(rows)
    if failed:
        raise SystemExit(f"parts that failed, as told above: {', '.join(failed)}; their other rows are kept")


def measured(parts: dict[str, Callable], clock) -> tuple[list[Row], list[str]]:
    """The rows of all parts, and the names of parts that ended in an error, which is printed."""
    rows, failed = [], []
    for name, part in parts.items():
        try:
            for row in part(clock):
                rows.append(row)
        except Exception:  # of whatever kind: what was measured before is kept
            traceback.print_exc()
            failed.append(name)
    return rows, failed


class Clock:
    """Medians of contenders that take turns."""

    def __init__(self, now: Callable[[], float], repeats: int):
        self.now, self.repeats = now, repeats

    def medians(self, contenders: dict, before: Callable = lambda: None) -> dict:
        """Milliseconds of each; the first call of each is not timed, nor is what is called `before` each."""
        times = {name: [] for name in contenders}
        for k in range(self.repeats + 1):
            for name, call in contenders.items():
                before()
                start = self.now()
                result = call()
                if k:
                    times[name].append((self.now() - start) * 1e3)
                del result
        return {name: float(np.median(t)) for name, t in times.items()}


def scans(clock: Clock) -> Iterator[Row]:
    for shape in SHAPES:
        with torch.no_grad():
            yield from scan_forward(clock, shape)


def scan_forward(clock: Clock, shape: tuple[int, ...]) -> Iterator[Row]:
    """The scan alone, forward, in every form of its spikes."""
    x, n = currents(shape), neurons(shape[2])
    source, target = x.numpy(), np.empty_like(x.numpy())  # NumPy's copy is the faster one: it writes past the caches
    ours = {form: lambda form=form: fire(x, n.initial_state(x), n, form)[0] for form in FORMS}
    ours["float and mem"] = lambda: scan(x, n.initial_state(x), n)[:2]
    theirs = peers([], x)
    times = clock.medians({"copy": lambda: np.copyto(target, source), **ours, **theirs})
    spikes = ours["float"]().numpy()
    more = {
        name: {"alike": f"{(np.asarray(run()).swapaxes(0, 1) == spikes).mean():.4f}"} for name, run in theirs.items()
    }
    for form, n_bytes in WRITTEN_BYTES.items():
        more[form] = {"of copy": f"{(4 + n_bytes) / times[form] * times['copy'] / 8:.0%}"}
    yield from rows(f"scan {shape} forward", times, ours, theirs, more)


def gradients(clock: Clock) -> Iterator[Row]:
    for shape in SHAPES:
        yield from scan_backward(clock, shape)


def scan_backward(clock: Clock, shape: tuple[int, ...]) -> Iterator[Row]:
    """The scan alone, forward and backward from the sum of the spikes."""
    x, n = currents(shape).requires_grad_(), neurons(shape[2])
    theirs = {name: trained(run) for name, run in peers([], x.detach(), True).items()}
    ours = {"": trained(lambda: (scan(x, n.initial_state(x), n)[0], x))}
    times = clock.medians(ours | theirs)
    own = ours[""]().flatten().double()
    more = {}
    for name, run in theirs.items():
        grad = run().transpose(0, 1).flatten().double()
        more[name] = {"cosine": f"{torch.nn.functional.cosine_similarity(grad, own, 0).item():.6f}"}
    yield from rows(f"scan {shape} forward + backward", times, ours, theirs, more)


def steps(net: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    """Step by step, as the tutorial's forward_cpu."""
    nn.prepare_net(net)
    out = []
    for t in range(x.shape[1]):
        s = x[:, t]
        for synapse, layer in zip(net[::2], net[1::2], strict=True):
            s, _ = layer(synapse(s))
        out.append(s)
    return torch.stack(out, 1)


def nwave(clock: Clock) -> Iterator[Row]:
    """The tutorial's inference and training step."""
    with torch.no_grad():
        yield from nwave_rows(clock, "inference", (128, 1000))
    yield from nwave_rows(clock, "training step", (96, 80))


def nwave_rows(clock: Clock, work: str, size: tuple[int, int]) -> Iterator[Row]:
    x, trains = spikes(*size), torch.is_grad_enabled()
    nets = {family: network(family) for family in FAMILIES}
    ours = {
        f"{family} {way.__name__}": lambda net=net, way=way: way(net, x)
        for family, net in nets.items()
        for way in (whole, steps)
    }
    theirs = peers([part.weight.detach() for part in nets["lif"][::2]], x, trains)
    if trains:
        ours = {name: lambda run=run: run().sum().backward() for name, run in ours.items()}
        theirs = {name: trained(run) for name, run in theirs.items()}
    yield from rows(f"nwave {work} {size}", clock.medians(ours | theirs), ours, theirs, {})


def sweep(clock: Clock) -> Iterator[Row]:
    """Inference of B=32 over T steps, fitted by a + b*T (least squares of relative residuals).

    The lengths take turns, so that a slow moment of the machine is one of all of them and each finds its data where
    others left it, but its code, after an untimed call of one step, where a running program has it.
    """
    often, inputs = Clock(clock.now, SWEEP_TURNS * clock.repeats), {n: spikes(32, n) for n in SWEEP}
    step = spikes(32, 1)
    for family in FAMILIES:
        net = network(family)
        with torch.no_grad():
            calls = {n: lambda x=x, net=net: whole(net, x) for n, x in inputs.items()}
            times = often.medians(calls, before=lambda net=net: whole(net, step))
        fit = fitted(list(times.values()))
        for n, ms in times.items():
            yield {"work": f"nwave sweep {family} B=32 T={n}", "contender": "nwcompile", "ms": ms, "fit": fit}


PARTS = {"scan": scans, "train": gradients, "nwave": nwave, "sweep": sweep}

if __name__ == "__main__":
    main()
