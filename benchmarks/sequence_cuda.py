"""The rows of benchmarks/sequence.py on a GPU, where there is one:

    python benchmarks/sequence.py --device cuda [--repeats 20] [--only scan train layer nwave sweep compile memory]

Contenders of a row take turns in one process, with a copy of 512 MiB among them; figures are medians of device events,
milliseconds. Before each the caches are overwritten and the device is idle, so that eager figures have the time that
Python takes to launch; `in a graph` are replays of the same calls, captured, on both sides. `of copy`: bytes that must
be moved in a contender's time, over those that the copy moves in its own. `B/update`: bytes that it must move for one
neuron and step. `alike`, `cosine`: as in sequence.py. A call that cannot be captured or compiled says why in `note`.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from benchmarks import sequence_work
from benchmarks.sequence_peers import peers
from nwcompile.nn.ops.scan import FORMS, fire, scan

PEERS = ("eager torch", "spikingjelly")
N_SAMPLES, N_STEPS = 16, 500
WIDTHS = (512, 4096, 16384)
LONG = (4, 10_000, 512)  # B, T, N of the memory rows
DTYPES = (torch.float32, torch.bfloat16)
COPIED_BYTES = 1 << 29
WARM_UP = 3
Calls = dict[str, Callable]
Row = dict[str, object]


class Gpu:
    """Times, graphs and peak memory of calls on the current device."""

    device = "cuda"

    def __init__(self, repeats: int):
        self.repeats = repeats
        self.source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=self.device)
        self.target = torch.empty_like(self.source)

    def copy(self) -> None:
        self.target.copy_(self.source)

    def medians(self, contenders: Calls) -> dict[str, float]:
        """Milliseconds of contenders that take turns."""
        times = {name: [] for name in contenders}
        for k in range(WARM_UP + self.repeats):
            for name, call in contenders.items():
                self.target.zero_()
                torch.cuda.synchronize()
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                result = call()
                end.record()
                torch.cuda.synchronize()
                if k >= WARM_UP:
                    times[name].append(start.elapsed_time(end))
                del result
        return {name: float(np.median(t)) for name, t in times.items()}

    def captured(self, call: Callable) -> Callable:
        """A call that replays `call`, captured. Raises RuntimeError where that is not possible."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()

        def replay(keep=result):
            graph.replay()

        return replay

    def peak_bytes(self, call: Callable) -> int:
        """The most memory that a call takes, beyond what was there before it."""
        call()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call()
        torch.cuda.synchronize()
        del result
        return torch.cuda.max_memory_allocated() - before

    def about(self) -> Row:
        import triton

        return {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "triton": triton.__version__}


def measured(gpu: Gpu, work: str, ours: Calls, theirs: Calls, more: dict[str, Row] | None = None) -> Iterator[Row]:
    """Rows of the calls as they are, and captured."""
    yield from timed(gpu, work, ours, theirs, more)
    yield from changed(gpu, f"{work} in a graph", gpu.captured, ours, theirs, more)


def changed(gpu: Gpu, work: str, change: Callable, ours: Calls, theirs: Calls, more=None) -> Iterator[Row]:
    """Rows of the calls after `change`; of one that fails, why."""
    kept = []
    for calls in (ours, theirs):
        kept.append({})
        for name, call in calls.items():
            try:
                kept[-1][name] = change(call)
                kept[-1][name]()
            except Exception as e:  # of whatever kind: a peer's failure is a result
                kept[-1].pop(name, None)
                yield {"work": work, "contender": name, "note": f"{type(e).__name__}: {str(e).splitlines()[0][:60]}"}
    yield from timed(gpu, work, *kept, more)


def timed(gpu: Gpu, work: str, ours: Calls, theirs: Calls, more: dict[str, Row] | None) -> Iterator[Row]:
    times = gpu.medians({"copy": gpu.copy, **ours, **theirs})
    more = {name: dict(row) for name, row in (more or {}).items()}
    for name, row in more.items():
        if "bytes" in row and name in times:
            row["of copy"] = f"{row['bytes'] / times[name] / (2 * COPIED_BYTES / times['copy']):.0%}"
        row.pop("bytes", None)
    yield from sequence_work.rows(work, times, ours, theirs, more)


def given(gpu: Gpu, shape: tuple[int, ...], dtype: torch.dtype):
    """Currents of that type and neurons of float32."""
    n = sequence_work.neurons(shape[2])
    n = type(n)(n.beta.to(gpu.device), n.threshold.to(gpu.device), n.reset, n.surrogate)
    return sequence_work.currents(shape).to(gpu.device, dtype), n


def scans(gpu: Gpu) -> Iterator[Row]:
    """The scan alone, forward, in every form of its spikes."""
    for n_neurons in WIDTHS:
        for dtype in DTYPES:
            shape = (N_SAMPLES, N_STEPS, n_neurons)
            x, n = given(gpu, shape, dtype)
            ours = {form: lambda form=form, x=x, n=n: fire(x, n.initial_state(x), n, form)[0] for form in FORMS}
            ours["float and mem"] = lambda x=x, n=n: scan(x, n.initial_state(x), n)[:2]
            with torch.no_grad():
                theirs = peers([], x, only=PEERS)
                spikes = ours["float"]()
                more = {
                    name: {"alike": f"{(run().transpose(0, 1) == spikes).double().mean():.4f}"}
                    for name, run in theirs.items()
                }
                for form, written in sequence_work.WRITTEN_BYTES.items():
                    n_bytes = x.element_size() + written
                    more[form] = {"bytes": n_bytes * x.numel(), "B/update": f"{n_bytes:g}"}
                yield from measured(gpu, f"scan {shape} {dtype} forward", ours, theirs, more)


def gradients(gpu: Gpu) -> Iterator[Row]:
    """The scan alone, forward and backward from the sum of the spikes."""
    for n_neurons in WIDTHS:
        for dtype in DTYPES:
            shape = (N_SAMPLES, N_STEPS, n_neurons)
            x, n = given(gpu, shape, dtype)
            x.requires_grad_()
            ours = {"": sequence_work.trained(lambda x=x, n=n: (scan(x, n.initial_state(x), n)[0], x))}
            theirs = trained(peers([], x.detach(), True, PEERS))
            own, more = ours[""]().flatten().double(), {}
            for name, run in theirs.items():
                grad = run().transpose(0, 1).flatten().double()
                more[name] = {"cosine": f"{torch.nn.functional.cosine_similarity(grad, own, 0).item():.6f}"}
            yield from measured(gpu, f"scan {shape} {dtype} forward + backward", ours, theirs, more)


def trained(runs: Calls) -> Calls:
    return {name: sequence_work.trained(run) for name, run in runs.items()}


def layers(gpu: Gpu) -> Iterator[Row]:
    """Linear(N, N) and the scan in bfloat16, forward, and forward + backward to weights and input."""
    for n_neurons in WIDTHS:
        shape, dtype = (N_SAMPLES, N_STEPS, n_neurons), torch.bfloat16
        x, n = given(gpu, shape, dtype)
        x = (x > 0.2).to(dtype)
        weight = (torch.randn(n_neurons, n_neurons, generator=torch.Generator().manual_seed(1)) / n_neurons**0.5).abs()
        weight = weight.to(gpu.device, dtype)
        with torch.no_grad():
            theirs = peers([weight], x, only=PEERS)
            ours = {"": lambda x=x, n=n, w=weight: scan(x @ w, n.initial_state(x), n)[0],
                    "bits": lambda x=x, n=n, w=weight: fire(x @ w, n.initial_state(x), n, "bits")[0]}  # fmt: skip
            yield from measured(gpu, f"layer {shape} {dtype} forward", ours, theirs)
        x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
        theirs = trained(peers([weight.detach()], x.detach(), True, PEERS))
        ours = {"": sequence_work.trained(lambda x=x, n=n, w=weight: (scan(x @ w, n.initial_state(x), n)[0], x))}
        yield from measured(gpu, f"layer {shape} {dtype} forward + backward", ours, theirs)


def nwave(gpu: Gpu) -> Iterator[Row]:
    """The tutorial's inference and training step."""
    nets = {family: sequence_work.network(family).to(gpu.device) for family in sequence_work.FAMILIES}
    weights = [part.weight.detach() for part in nets["lif"][::2]]
    x = sequence_work.spikes(128, 1000).to(gpu.device)
    with torch.no_grad():
        ours = {f"{family} whole": lambda net=net: sequence_work.whole(net, x) for family, net in nets.items()}
        yield from measured(gpu, f"nwave inference {tuple(x.shape)}", ours, peers(weights, x, only=PEERS))
    y = sequence_work.spikes(96, 80).to(gpu.device)
    ours = {family: lambda net=net: sequence_work.whole(net, y).sum().backward() for family, net in nets.items()}
    theirs = trained(peers(weights, y, True, PEERS))
    yield from measured(gpu, f"nwave training step {tuple(y.shape)}", ours, theirs)


def sweep(gpu: Gpu) -> Iterator[Row]:
    """Inference of B=32 over T steps in a graph, fitted by a + b*T."""
    for family in sequence_work.FAMILIES:
        net = sequence_work.network(family).to(gpu.device)
        with torch.no_grad():
            times = []
            for n_steps in sequence_work.SWEEP:
                x = sequence_work.spikes(32, n_steps).to(gpu.device)
                replay = gpu.captured(lambda x=x, net=net: sequence_work.whole(net, x))
                times.append(gpu.medians({"": replay})[""])
        fit = sequence_work.fitted(times)
        for n_steps, ms in zip(sequence_work.SWEEP, times, strict=True):
            yield {
                "work": f"nwave sweep {family} B=32 T={n_steps} in a graph",
                "contender": "nwcompile",
                "ms": ms,
                "fit": fit,
            }


def compiled(gpu: Gpu) -> Iterator[Row]:
    """The scan under torch.compile, forward and forward + backward."""
    shape = (N_SAMPLES, N_STEPS, WIDTHS[1])
    x, n = given(gpu, shape, torch.float32)
    with torch.no_grad():
        ours, theirs = {"": lambda: scan(x, n.initial_state(x), n)[0]}, peers([], x, only=("spikingjelly",))
        yield from changed(gpu, f"scan {shape} forward compiled", torch.compile, ours, theirs)
    y = x.clone().requires_grad_()
    ours, theirs = {"": lambda: (scan(y, n.initial_state(y), n)[0], y)}, peers([], x, True, ("spikingjelly",))
    yield from changed(
        gpu,
        f"scan {shape} forward + backward compiled",
        lambda run: sequence_work.trained(torch.compile(run)),
        ours,
        theirs,
    )


def memory(gpu: Gpu) -> Iterator[Row]:
    """Peak memory over a long sequence, forward and forward + backward."""
    x, n = given(gpu, LONG, torch.float32)
    y = x.clone().requires_grad_()
    with torch.no_grad():
        calls = {"nwcompile": lambda: scan(x, n.initial_state(x), n)[0],
                 "nwcompile bits": lambda: fire(x, n.initial_state(x), n, "bits")[0],
                 **peers([], x, only=PEERS)}  # fmt: skip
        found = [("forward", name, gpu.peak_bytes(call)) for name, call in calls.items()]
    calls = {"nwcompile": lambda: (scan(y, n.initial_state(y), n)[0], y), **peers([], x, True, PEERS)}
    found += [("forward + backward", name, gpu.peak_bytes(call)) for name, call in trained(calls).items()]
    for work, name, n_bytes in found:
        yield {"work": f"memory {LONG} {work}", "contender": name, "peak MB": n_bytes / 1e6}


PARTS = {"scan": scans, "train": gradients, "layer": layers, "nwave": nwave, "sweep": sweep, "compile": compiled,
         "memory": memory}  # fmt: skip
