"""Time and memory of the compiler from 10^5 to 10^7 neurons, half of whose layers are irregular.

    python benchmarks/scale.py [--neurons 100000,1000000] [--partitioner NAME] [--reach 8] [--limit 900] [--profile]

The network is a chain of 20 layers of equal maps with 8 channels, for the board loihi2_hala. Layers alternate between a
3 x 3 convolution (fan-in 72) and a list of 64 random synapses per neuron, from at most `reach` pixels away; `--reach 0`
draws them from the whole layer. A size is a process of its own: seconds are CPU seconds of `nw.compile` (user and
system), memory is the largest resident set, network included. `--profile` prints the 40 functions that take longest.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np

import nwcompile as nw
from benchmarks.record import save
from nwcompile.cost.compare import predicted_figures

BOARD = "loihi2_hala"
N_LAYERS, N_CHANNELS, FAN_IN = 20, 8, 64


def chain(n_neurons: int, reach: int) -> nw.Network:
    """A chain of layers of about `n_neurons` in total."""
    rng, chip = np.random.default_rng(0), nw.Chip.load(BOARD)
    side = round((n_neurons / N_LAYERS / N_CHANNELS) ** 0.5)
    shape, n = (N_CHANNELS, side, side), N_CHANNELS * side**2
    spec, layers, edges, before = nw.NeuronSpec(threshold=640, fixed=chip.fixed_point), {}, [], "in"
    for i in range(N_LAYERS):
        name = f"layer{i:02}"
        layers[name] = (spec, shape)
        if i % 2 == 0:
            weight = (2 * rng.integers(-20, 30, (N_CHANNELS, N_CHANNELS, 3, 3))).astype(np.int8)
            edges.append(nw.Conv2d(before, name, weight, padding=1))
        else:
            post = np.repeat(np.arange(n, dtype=np.int32), FAN_IN)
            weight = (2 * rng.integers(-20, 30, len(post), dtype=np.int8)).astype(np.int8)
            edges.append(nw.Sparse(before, name, _draw_sources(rng, post, side, reach), post, weight))
        before = name
    return nw.Network.from_arrays(layers, edges, {"in": shape})


def _draw_sources(rng: np.random.Generator, post: np.ndarray, side: int, reach: int) -> np.ndarray:
    """Return a random source for each synapse, int32[synapse], from a window around its target `post` that wraps."""
    channel = rng.integers(0, N_CHANNELS, len(post), np.int32)
    if not reach:
        return channel * side**2 + rng.integers(0, side**2, len(post), np.int32)
    y, x = np.divmod(post % (side * side), side)
    y = (y + rng.integers(-reach, reach, len(post), np.int32, endpoint=True)) % side
    x = (x + rng.integers(-reach, reach, len(post), np.int32, endpoint=True)) % side
    return ((channel * side + y) * side + x).astype(np.int32)


def measure(n_neurons: int, args: argparse.Namespace) -> dict:
    """Compile one size in this process."""
    import cProfile
    import pstats

    options = nw.Options(partitioner=args.partitioner)
    nw.compile(chain(1600, 3), BOARD, None, options)  # loads compiled kernels
    network = chain(n_neurons, args.reach)
    stages: dict[str, float] = {}
    last = [time.process_time()]

    def mark(stage: str, *_: object) -> None:
        now = time.process_time()
        stages[stage] = round(stages.get(stage, 0.0) + now - last[0], 2)
        last[0] = now
        print(f"  {stage:12} {stages[stage]:8.2f} s  peak {_peak_gb():6.2f} GB", file=sys.stderr, flush=True)

    start, profile = time.process_time(), cProfile.Profile()
    if args.profile:
        profile.enable()
    program = nw.compile(network, BOARD, None, options, on_stage=mark)
    if args.profile:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    cpu_s, peak_gb = time.process_time() - start, _peak_gb()
    n = sum(node.n_neurons for node in network.nodes.values())
    return {
        "neurons": n,
        "reach": args.reach,
        "partitioner": args.partitioner,
        "cpu_s": round(cpu_s, 1),
        "us_per_neuron": round(1e6 * cpu_s / n, 1),
        "peak_gb": peak_gb,
        "cores": program.mapping.n_cores,
        "axons": program.axons.n_axons,
        "step_us": predicted_step_us(program),
        "stages": {stage: s for stage, s in stages.items() if s >= 0.05},
    }


def predicted_step_us(program: nw.Program) -> float | None:
    """The mean step that the floorline predicts for the mapping, links included."""
    assert program.activity is not None
    return predicted_figures(program, program.activity).step_us


def _peak_gb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20), 2)


def in_a_process(n_neurons: int, args: argparse.Namespace) -> dict:
    """The row of one size, or why it has none."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", str(n_neurons), "--reach", str(args.reach)]
    command += ["--partitioner", args.partitioner, *(["--profile"] if args.profile else [])]
    row = {"neurons": n_neurons, "reach": args.reach, "partitioner": args.partitioner}
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=args.limit)
    except subprocess.TimeoutExpired:
        return row | {"error": f"not done within {args.limit} s"}
    return json.loads(done.stdout.splitlines()[-1]) if not done.returncode else row | {"error": done.returncode}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neurons", default="100000,1000000")
    parser.add_argument("--partitioner", default="floorline")
    parser.add_argument("--reach", type=int, default=8)
    parser.add_argument("--limit", type=float, default=900, help="seconds of wall time per size")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--name", default="scale", help="of the file in benchmarks/results")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.child, args)))
        return
    rows = [in_a_process(int(n), args) for n in args.neurons.split(",")]
    save(args.name, rows, {"board": BOARD, "layers": N_LAYERS, "fan_in": FAN_IN})


if __name__ == "__main__":
    main()
