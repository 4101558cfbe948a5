"""Speed of the segmented bus: transfers a second, and slots over the lower bound, of packets that all wait at once.

    python benchmarks/bus.py [--repeats 5]

One thread. 200 packets a core, uniform or to cores near by; the bound is what the busiest port, or the busiest switch
over all lanes, needs. The time is the CPU time of the whole process, because a replay runs in a thread of its own; the
wall clock of the same run stands beside it. No other simulator of such a bus is known, so no peer stands beside it.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    import numpy as np

    from nwcompile import Chip
    from nwcompile.sim.cycle.noc import replay_packets

    rows = []
    for n_cores in (16, 64, 128):
        for lanes in (1, 4):
            chip = Chip.load("ladderbus").replace({"noc.columns": n_cores, "noc.lanes": lanes, "noc.buffer_flits": 256})
            for kind in ("anywhere", "near"):
                rng = np.random.default_rng(0)
                src = np.repeat(np.arange(n_cores), 200)
                dst = rng.integers(0, n_cores, len(src)) if kind == "anywhere" else src + rng.integers(-3, 4, len(src))
                packets = (np.zeros(len(src)), src, np.clip(dst, 0, n_cores - 1), np.ones(len(src)))
                replay_packets(chip, *(column[:1] for column in packets))  # loads the kernel
                times = []
                for _ in range(args.repeats):
                    cpu, wall = time.process_time(), time.perf_counter()
                    done = replay_packets(chip, *packets)
                    times.append((time.process_time() - cpu, time.perf_counter() - wall))
                best, wall_seconds = min(times)
                slots = done.inject.max() // chip.slot_cycles + 1
                bound = (-(-done.link_flits // chip.link_lanes)).max()
                row = {"cores": n_cores, "lanes": lanes, "packets to": kind, "transfers/s": len(src) / best}
                rows.append(row | {"wall ms": wall_seconds * 1e3, "slots over bound": slots / bound})
    save("bus", rows, {"repeats": args.repeats, "threads": 1, "seed": 0})


if __name__ == "__main__":
    main()
