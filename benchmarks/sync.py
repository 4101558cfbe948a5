"""What the barrier costs: nets on chips whose cores end their steps together, or wait for their neighbors only.

`python benchmarks/sync.py` writes results/sync.json; `--stress` presses 10^8 flit-hops through buffers of 1 and of 2.
The published scheme without a barrier (arXiv 2407.20947, of which the abstract was read) reports 1.86 times the speed
and 1.55 times the energy efficiency of synchronized ones, on nets and hardware of its own.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import nwcompile as nw
from benchmarks.mapping_nets import NETS, Net
from benchmarks.record import save
from nwcompile.cost.time.floorline import bound_tightness, floorline
from nwcompile.families.neighbors.cost import list_tokens
from nwcompile.ir.chip_sections import BARRIER, NEIGHBORS
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.place.place import place

PUBLISHED = {"speed": 1.86, "energy": 1.55}  # arXiv 2407.20947, abstract
MOST_STEPS = 100  # Of the nets that run by themselves, so that all cases end within minutes.
STRESS_FLIT_HOPS = 10**8


def measured(net: Net, program: nw.Program, sync: str, barrier: dict | None) -> tuple[dict, nw.Run]:
    """One run with `cost.sync`, and the barrier's cycles where they are given."""
    keys = {"cost.sync": sync} | ({} if barrier is None else {"cost.barrier_cycles": barrier})
    program = replace(program, chip=program.chip.replace(keys))
    steps = None if net.x is not None else min(net.steps, MOST_STEPS)
    start = time.process_time()
    run = nw.simulate(program, net.x, "cycle", steps=steps, window=net.window)
    seconds = time.process_time() - start
    bound = floorline(program, run.counters, run.link_flits, run.n_samples, run.activity)
    n_steps = len(run.step_cycles) * run.n_samples
    return {
        "us a step": 1e6 * run.seconds / n_steps,
        "bound / measured": bound_tightness(bound.bound_cycles, run.step_cycles),
        "nJ a step": run.energy_pj["total"] / 1000 / n_steps,
        "messages a step": int(run.counters["messages_in"].sum()) / n_steps,
        "tokens a step": len(list_tokens(program).ends) if sync == NEIGHBORS else 0,
        "CPU s": seconds,
    }, run


def rows_of(name: str, net: Net, partitioner: str) -> list[dict]:
    """A net with its chip's barrier, with one that takes no time, and without one."""
    options = nw.Options(partitioner=partitioner)
    mapping = partition(net.network, net.chip, net.activity, options).mapping
    program = net.emitted(place(mapping, net.network, net.chip, net.activity, options))
    rows, first = [], None
    for case, sync, barrier in (
        ("barrier", BARRIER, None),
        ("free barrier", BARRIER, {"1": 0}),
        ("neighbors", NEIGHBORS, None),
    ):
        row, run = measured(net, program, sync, barrier)
        first = (row, run) if first is None else first
        assert all(np.array_equal(run.spikes[n], first[1].spikes[n]) for n in run.spikes), "the spikes are the same"
        row |= {"speed": first[0]["us a step"] / row["us a step"], "energy": first[0]["nJ a step"] / row["nJ a step"]}
        rows.append({"net": name, "mapping": partitioner, "cores": program.mapping.n_cores, "sync": case, **row})
    return rows


def stress() -> None:
    """10^8 flit-hops between the cores of a mesh, all to all at paces of their own, through the smallest buffers."""
    from tests.families.neighbors.test_engine import all_to_all, flit_hops

    rows = []
    for buffer_flits in (1, 2):
        program = all_to_all(4, n_columns=16, noc__buffer_flits=buffer_flits)
        n_steps = 1 + 20 * STRESS_FLIT_HOPS // flit_hops(program, 20)
        start = time.process_time()
        done = flit_hops(program, n_steps)
        rows.append(
            {"buffer flits": buffer_flits, "steps": n_steps, "flit-hops": done, "CPU s": time.process_time() - start}
        )
        print(rows[-1], file=sys.stderr, flush=True)
    save("sync_stress", rows, {"wanted": STRESS_FLIT_HOPS})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", default=["dvs", "mnist", "cnn", "potjans"], choices=list(NETS))
    parser.add_argument("--partitioners", nargs="+", default=["floorline", "sequential"])
    parser.add_argument("--reference", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "reference")
    parser.add_argument("--stress", action="store_true", help="10^8 flit-hops through buffers of 1 and of 2 instead")
    args = parser.parse_args()
    if args.stress:
        stress()
        return
    rows = []
    for name in args.nets:
        net = NETS[name](args.reference)
        for partitioner in args.partitioners:
            rows += rows_of(name, net, partitioner)
            print(*rows[-3:], sep="\n", file=sys.stderr, flush=True)
    save("sync", rows, {"published": PUBLISHED, "most_steps": MOST_STEPS})


if __name__ == "__main__":
    main()
