"""Speed of the cycle backend: simulated hardware steps, messages, synops and flit-hops per second of CPU time.

    python benchmarks/cycle.py [--parts demo nets threads setup memory cores load activity] [--repeats 3] [--threads 1]
                               [--sanafe PYTHON] [--reference DIR]

demo: the MNIST network of the examples. nets: the DVS-gesture net of SANA-FE and a random net of 16,384 neurons, every
flit simulated, beside SANA-FE's figures. threads: one sample of these nets on one core and on two, in turn, and two
such runs at once, each on a core of its own, for what the machine has for two. setup: tables of networks on chip and
of programs. memory: steps without end. cores, load: cost of a flit-hop on 16 to 4096 cores, and under load; drawn into
results/*.svg. activity: cost of a message where 10 % to 0.1 % of the neurons fire in a step.

Kernels are warm; compiling them (once, then cached on disk) is shown apart. `--threads` pins the process to so many
cores. With `--sanafe` (a Python that has sanafe==2.2.9) SANA-FE runs the same nets, in turn with ours.
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import cycle_demo, cycle_nets, cycle_scale

PARTS = {
    "demo": cycle_demo.demo,
    "nets": cycle_nets.nets,
    "threads": cycle_nets.threads,
    "setup": cycle_nets.setup,
    "memory": cycle_nets.memory,
    "cores": cycle_scale.cores,
    "load": cycle_scale.load,
    "activity": cycle_scale.activity,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--images", type=int, default=200, help="of the demo")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sanafe", metavar="PYTHON")
    parser.add_argument(
        "--reference", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "reference", metavar="DIR"
    )
    args = parser.parse_args()
    args.cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, args.cores[: args.threads])
    for part in args.parts:
        PARTS[part](args)


if __name__ == "__main__":
    main()
