"""Memory that a layer keeps for its backward pass, in continuous time and in steps, by how many neurons spike.

    python -m benchmarks.event_memory [--percents 1 5 20]

256 neurons feed 256, 16 samples of 1,000 ms; `EventLIF` beside `LIFSynapse` and `LIFLayer` in steps of 1 ms, with the
same input: of every 100 steps a neuron spikes in 1, 5 or 20, at a drawn time within the step. Weights are drawn and
scaled, by halving, until the outputs spike about as often (`out %`). `kept MB` is the resident memory with input and
output, ready to go back, less that before the input was made; every figure comes from a process of its own, on one
thread, in which arrays of 64 KB or more have pages of their own (MALLOC_MMAP_THRESHOLD_), so that what was freed does
not count. Times are float32, padded to the neuron that spikes most.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from math import inf
from multiprocessing import get_context

import torch

from benchmarks.record import save
from benchmarks.sequence_memory import resident
from nwcompile import nn

N_SAMPLES, N_NEURONS, N_STEPS, STEP_S = 16, 256, 1000, 1e-3
N_HALVINGS = 12
FORMS = ("event", "steps")


def drawn(form: str, percent: float, n_samples: int) -> torch.Tensor:
    """Spikes float32 `[B, T, N]`, or their times `[B, N, S]` in seconds."""
    generator = torch.Generator().manual_seed(0)
    spikes = torch.rand(n_samples, N_STEPS, N_NEURONS, generator=generator) < percent / 100
    if form == "steps":
        return spikes.float()
    moments = torch.arange(N_STEPS)[:, None] + torch.rand(spikes.shape, generator=generator)
    times = torch.where(spikes, moments * STEP_S, inf).swapaxes(1, 2).sort(2).values
    return times[:, :, : int(spikes.sum(1).max())].clone()


def run(form: str, scale: float, x: torch.Tensor, max_spikes: int = N_STEPS) -> torch.Tensor:
    """Spikes or spike times of the layer for x, ready to go back."""
    weight = scale * (1 + 0.3 * torch.randn(N_NEURONS, N_NEURONS, generator=torch.Generator().manual_seed(1)))
    if form == "event":
        t_end = N_STEPS * STEP_S
        return nn.event.EventLIF(N_NEURONS, N_NEURONS, t_end=t_end, max_spikes=max_spikes, init=weight)(x)
    synapses, neurons = nn.LIFSynapse(N_NEURONS, N_NEURONS, init=weight), nn.LIFLayer(N_NEURONS, reset_mechanism="zero")
    return neurons(synapses(x))[0]


def percent_active(form: str, out: torch.Tensor) -> float:
    """Spikes in 100 steps of a neuron."""
    n_spikes = out.isfinite().sum() if form == "event" else out.sum()
    return 100 * float(n_spikes) / (len(out) * N_NEURONS * N_STEPS)


def fitting(form: str, percent: float) -> tuple[float, int]:
    """The scale of weights that makes outputs spike as often as inputs, and the most spikes of a neuron then."""
    torch.set_num_threads(1)
    low, high = 0.0, 0.5 / percent  # this much makes outputs spike in 30 % of the steps, or in all
    with torch.no_grad():
        x = drawn(form, percent, 2)
        for _ in range(N_HALVINGS):
            scale = (low + high) / 2
            is_less = percent_active(form, run(form, scale, x)) < percent
            low, high = (scale, high) if is_less else (low, scale)
        out = run(form, low, drawn(form, percent, N_SAMPLES))
    return low, int(out.isfinite().sum(2).max()) if form == "event" else N_STEPS


def kept(form: str, percent: float, scale: float, max_spikes: int) -> dict:
    """The row of one layer."""
    torch.set_num_threads(1)
    run(form, scale, drawn(form, percent, 1), max_spikes).sum().backward()
    before = resident("VmRSS")
    x = drawn(form, percent, N_SAMPLES)
    out = run(form, scale, x.requires_grad_(), max_spikes)
    n_bytes = resident("VmRSS") - before
    return {"layer": form, "in %": percent_active(form, x.detach()), "out %": percent_active(form, out.detach()),
            "kept MB": n_bytes / 1e6, "B/update": n_bytes / (N_SAMPLES * N_NEURONS * N_STEPS)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--percents", type=float, nargs="+", default=[1.0, 5.0, 20.0])
    given = parser.parse_args()
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # read by the processes that are made from here on
    rows = []
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for percent, form in product(given.percents, FORMS):
            scale, max_spikes = pool.submit(fitting, form, percent).result()
            rows.append(pool.submit(kept, form, percent, scale, max_spikes).result())
    save("event_memory", rows, vars(given) | {"B, N, T": [N_SAMPLES, N_NEURONS, N_STEPS], "threads": 1})


if __name__ == "__main__":
    main()
