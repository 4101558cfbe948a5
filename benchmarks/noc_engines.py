"""The two router engines beside each other: which chips need which, and the speed of both on the same networks.

    python benchmarks/noc_engines.py [--repeats 3]

The times are CPU times of the whole process, the least of some runs in turn; nothing is written down. First every chip
in hwmodels/: whether the lockstep engine can run packets alone, and cores that send messages. Then single-flit packets
on `mesh_spec`, uniform traffic, and a program whose cores all send to one another, by both engines.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from benchmarks.nets import program_of, random_net
from benchmarks.record import show
from nwcompile.sim.cycle import noc, run
from nwcompile.sim.cycle.lockstep import fits_lockstep
from nwcompile.sim.cycle.noc_tables import build_mesh

HWMODELS = Path(nw.__file__).resolve().parents[1] / "hwmodels"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    show([row for path in sorted(HWMODELS.glob("*.toml")) if (row := engines_of(nw.Chip.load(path.stem)))])
    print()
    show([packets(8, n_vcs, load, args.repeats) for n_vcs in (1, 4) for load in (0.05, 0.3)] + [cores(args.repeats)])


def engines_of(chip: nw.Chip) -> dict | None:
    """What the lockstep engine can run of a chip with routers, and why not more."""
    if not chip.family.has_routers:
        return None
    in_ticks = build_mesh(chip, chip.ticks[1])
    reasons = {
        "core and network clocks differ": in_ticks.timing.cycle_ticks > 1,
        "slow links": in_ticks.timing.cycle_ticks == 1 and not fits_lockstep(in_ticks),
        "virtual channels": chip.noc.virtual_channels > 1,
        "trees": chip.noc.multicast == "tree",
        "several flits": chip.noc.flits_per_message > 1,
        "drops": chip.noc.on_full == "drop",
        "one unit": chip.cost.units == "shared",
    }
    why_not = ", ".join(name for name, holds in reasons.items() if holds)
    return {
        "chip": chip.name,
        "packets": fits_lockstep(build_mesh(chip)),
        "cores": not why_not,
        "cores go by events for": why_not,
    }


def packets(k: int, n_vcs: int, load: float, repeats: int) -> dict:
    """Flit-hops a second on a k x k mesh."""
    chip = nw.Chip.load("mesh_spec").replace({"noc.columns": k, "noc.rows": k, "noc.virtual_channels": n_vcs})
    rng = np.random.default_rng(0)
    made, src = np.nonzero(rng.random((10_000, k * k)) < load)
    listed = made, src, rng.integers(0, k * k, len(made)), np.ones(len(made))
    n_flit_hops = float((noc.replay_packets(chip, *listed).hops + 1).sum())
    seconds = both("nwcompile.sim.cycle.noc.fits_lockstep", lambda: noc.replay_packets(chip, *listed), repeats)
    return row(f"packets, {k}x{k}, {n_vcs} channels, load {load}", n_flit_hops, seconds)


def cores(repeats: int) -> dict:
    """Flit-hops a second of a program on 64 cores of the kind of `loihi1`."""
    program = program_of(random_net(n_neurons=4096, n_cores=64, fan_out=32, active=0.04))
    assert run.ChipRun(program, 1, 1, "hardware").is_in_lockstep

    def once() -> nw.Run:
        return nw.simulate(program, None, "cycle", steps=200, window="hardware")

    counters = once().counters
    n_flit_hops = float(counters["messages_out"].sum() + counters["hops"].sum())
    return row(
        "cores, 64, random net", n_flit_hops, both("nwcompile.sim.cycle.engine.cores_fit_lockstep", once, repeats)
    )


def both(choice: str, work: Callable, repeats: int) -> tuple[float, float]:
    """Seconds of the lockstep engine and of the event engine, in turn; `choice` names the function that chooses."""
    times = []
    for _ in range(repeats + 1):  # the first pair compiles
        pair = []
        for suited in (True, False):
            with patch(choice, lambda *_, suited=suited: suited):
                start = time.process_time()
                work()
                pair.append(time.process_time() - start)
        times.append(pair)
    lockstep, events = np.min(times[1:], 0)
    return float(lockstep), float(events)


def row(name: str, n_flit_hops: float, seconds: tuple[float, float]) -> dict:
    lockstep, events = seconds
    return {"network": name, "lockstep flit-hops/s": n_flit_hops / lockstep, "event flit-hops/s": n_flit_hops / events,
            "times as fast": events / lockstep}  # fmt: skip


if __name__ == "__main__":
    main()
