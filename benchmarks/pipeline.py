"""The pipeline over processes: how its time depends on the number of chunks, and the number that is best.

    OMP_NUM_THREADS=1 python benchmarks/pipeline.py [--ranks 1 2] [--repeats 9] [--steps 4096]

Every process has one thread and owns a share of 4 layers of 256 neurons, B = 8. The chunks take turns, repeat by
repeat; times are taken between two barriers. docs/pipeline.md derives time(C) = T_0 + T_s/C + C*T_c, and best
C = sqrt(T_s/T_c). It is fitted twice: to the wall time's lower quartile; and to what the processes compute, which other
programs on the machine do not disturb: the largest CPU time of a process times (C + R - 1)/C, its share of a schedule
without gaps. Processes need a core each: more ranks than cores measure the operating system, and are refused.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import save
from nwcompile import nn
from nwcompile.nn.distributed.pipeline import TimePipeline

CHUNKS = (1, 2, 4, 8, 16, 32, 64)
N_SAMPLES, N_NEURONS, N_LAYERS = 8, 256, 4
WORK = ("forward", "forward + backward")
LIMIT_S = 900


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    n_cores = len(os.sched_getaffinity(0))
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], choices=range(1, min(n_cores, N_LAYERS) + 1))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--steps", type=int, default=4096)
    args = parser.parse_args()
    rows = [row for n in args.ranks for row in of_ranks(n, args.repeats, args.steps)]
    shape = {"batch": N_SAMPLES, "steps": args.steps, "neurons": N_NEURONS, "layers": N_LAYERS}
    save("pipeline", rows, {"repeats": args.repeats, "threads": 1, "backend": "gloo", **shape})


def of_ranks(n_ranks: int, repeats: int, n_steps: int) -> list[dict]:
    """A row for each number of chunks, and one for each fit."""
    with tempfile.TemporaryDirectory() as folder:
        processes = mp.spawn(measure, (n_ranks, folder, repeats, n_steps), n_ranks, join=False)
        until = time.monotonic() + LIMIT_S
        while not processes.join(timeout=max(0, until - time.monotonic())):
            if time.monotonic() > until:
                raise SystemExit(f"{n_ranks} processes have not ended in {LIMIT_S} s")
        times = json.loads((Path(folder) / "times.json").read_text())
    return [row for work in WORK for row in rows(work, n_ranks, times[work])]


def rows(work: str, n_ranks: int, times: dict[str, list]) -> list[dict]:
    """`times`: for each number of chunks the repeats' [wall ms, [CPU ms of every process]]."""
    found, walls, ideals = [], [], []
    for chunks in CHUNKS:
        walls.append(float(np.percentile([wall for wall, _ in times[str(chunks)]], 25)))
        busy = float(np.median([max(cpu) for _, cpu in times[str(chunks)]]))
        ideals.append(busy * (chunks + n_ranks - 1) / chunks)
        found.append(
            {
                "work": work,
                "ranks": n_ranks,
                "chunks": chunks,
                "wall ms": walls[-1],
                "busy ms": busy,
                "from busy ms": ideals[-1],
            }
        )
    for name, ms in (("wall ms", walls), ("from busy ms", ideals)):
        t_0, t_s, t_c = fitted(ms)
        best = f"{(t_s / t_c) ** 0.5:.1f}" if t_s > 0 and t_c > 0 else "1" if t_c > 0 else "none"
        residual = max(abs(t_0 + t_s / c + t_c * c - t) / t for c, t in zip(CHUNKS, ms, strict=True))
        found.append(
            {
                "work": work,
                "ranks": n_ranks,
                "chunks": f"fit of {name}",
                "T_0 ms": t_0,
                "T_s ms": t_s,
                "T_c ms": t_c,
                "residual": f"{residual:.0%}",
                "best predicted": best,
                "best measured": CHUNKS[int(np.argmin(ms))],
            }
        )
    columns = dict.fromkeys(column for row in found for column in row)
    return [{c: row.get(c, "") for c in columns} for row in found]


def fitted(ms: list[float]) -> tuple[float, float, float]:
    """T_0, T_s, T_c of T_0 + T_s/C + C*T_c: least squares of relative residuals."""
    c, t = np.array(CHUNKS, float), np.array(ms)
    found, *_ = np.linalg.lstsq(np.stack([1 / t, 1 / c / t, c / t], 1), np.ones(len(t)), rcond=None)
    return tuple(map(float, found))


def measure(rank: int, n_ranks: int, folder: str, repeats: int, n_steps: int) -> None:
    """One process; the first one writes all times."""
    torch.set_num_threads(1)
    store, limit = f"file://{folder}/store", timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=n_ranks, timeout=limit)
    net, x = network(), spikes(n_steps)
    lines = {chunks: TimePipeline(net, chunks, timeout_s=120) for chunks in CHUNKS}
    times = {work: {chunks: [] for chunks in CHUNKS} for work in WORK}
    for k in range(repeats + 1):
        for chunks, line in lines.items():
            for work, call in (
                (WORK[0], lambda line=line: line.forward(x)),
                (WORK[1], lambda line=line: line.step(x, loss)),
            ):
                dist.barrier()
                start, busy = time.perf_counter(), time.process_time()
                call()
                busy = (time.process_time() - busy) * 1e3
                dist.barrier()
                wall, every = (time.perf_counter() - start) * 1e3, [None] * n_ranks
                dist.all_gather_object(every, busy)
                if k:
                    times[work][chunks].append((wall, every))
    if rank == 0:
        (Path(folder) / "times.json").write_text(json.dumps(times))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    pairs = [(nn.LIFSynapse(N_NEURONS, N_NEURONS), nn.LIFLayer(N_NEURONS, thresholds=0.3)) for _ in range(N_LAYERS)]
    return nn.Sequential(*(module for pair in pairs for module in pair))


def spikes(n_steps: int) -> torch.Tensor:
    size = N_SAMPLES, n_steps, N_NEURONS
    return (torch.rand(size, generator=torch.Generator().manual_seed(1)) < 0.1).float()


def loss(result) -> torch.Tensor:
    return result[1].square().mean()


if __name__ == "__main__":
    main()
