"""What the barrier costs: nets on chips whose cores end their steps together, or wait for their neighbors only.

`python benchmarks/sync.py` writes results/sync.json; `--stress` presses 10^8 flit-hops through buffers of 1 and of 2.
`--grid` runs a sheet of neurons with local synapses on 16,384 cores, with little and with much work per core; other
asynchronous designs are reported to be 4.1 to 4.3 times as fast.
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
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip_sections import BARRIER, NEIGHBORS
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.place.place import place

PUBLISHED = {"speed": 1.86, "energy": 1.55}  # arXiv 2407.20947, abstract
ASYNCHRONOUS = (4.1, 4.3)  # published speed without a barrier, on designs and nets of their own
GRID_CORES, GRID_STEPS = 128, 40  # cores along each side of the grid
GRID_TILES = (4, 8, 16)  # neurons along each side of a core's part of the sheet
GRID_BARRIER = {"1025": 66_000, "2049": 74_000}  # 0.8 us more for each doubling of the chips, as the chip file assumes
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
    """The rows of a net that a partitioner maps."""
    options = nw.Options(partitioner=partitioner)
    mapping = partition(net.network, net.chip, net.activity, options).mapping
    program = net.emitted(place(mapping, net.network, net.chip, net.activity, options))
    return compare_barriers(name, net, program, partitioner)


def compare_barriers(name: str, net: Net, program: nw.Program, mapped: str) -> list[dict]:
    """A program with its chip's barrier, with one that takes no time, and without one."""
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
        rows.append({"net": name, "mapping": mapped, "cores": program.mapping.n_cores, "sync": case, **row})
    return rows


def sheet(tile: int) -> tuple[Net, nw.Mapping]:
    """A sheet of neurons with 5 x 5 synapses each, `tile` x `tile` on each core of a grid, next to its neighbors.

    Each neuron spikes by itself every 10 to 30 steps, so about 6 % of them in a step once they have begun.
    """
    chip = nw.Chip.load("loihi1_nahuku")
    barrier = {**chip.cost.barrier_cycles, **GRID_BARRIER}
    side = GRID_CORES // 2
    chip = chip.replace({"noc.columns": side, "noc.rows": side, "cost.barrier_cycles": barrier})
    n, rng = GRID_CORES * tile, np.random.default_rng(0)
    threshold = 64 * rng.integers(1000, 3000, n * n)
    spec = nw.NeuronSpec(threshold=threshold, bias=6400, decay_v=0, reset="zero", fixed=chip.fixed_point)
    synapses = nw.Conv2d("sheet", "sheet", np.full((1, 1, 5, 5), 2, np.int8), padding=2, delay=1)
    network = nw.Network.from_arrays({"sheet": (spec, (1, n, n))}, [synapses])
    y, x = np.divmod(np.arange(n * n), n)
    cy, cx = np.divmod(np.arange(GRID_CORES**2), GRID_CORES)
    sites = np.stack([cx // 2, cy // 2, cx % 2 + 2 * (cy % 2)], 1)
    mapping = nw.Mapping.from_arrays({"sheet": y // tile * GRID_CORES + x // tile}, sites)
    return Net(network, chip, Activity.uniform(network), None, GRID_STEPS), mapping


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
    parser.add_argument("--grid", action="store_true", help="a sheet of neurons on 16,384 cores instead")
    args = parser.parse_args()
    if args.grid:
        rows = []
        for tile in GRID_TILES:
            net, mapping = sheet(tile)
            rows += compare_barriers(f"{tile**2} neurons per core", net, net.emitted(mapping), "by place")
            print(*rows[-3:], sep="\n", file=sys.stderr, flush=True)
        save("sync_grid", rows, {"published": ASYNCHRONOUS, "steps": GRID_STEPS, "barrier_cycles": GRID_BARRIER})
        return
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
