"""The full cortical microcircuit, stage by stage: memory and time of each, and what its populations do.

    python -m benchmarks.microcircuit make quantize map emit sequence cycle --scale 0.1 --work /tmp/circuit
    python -m benchmarks.microcircuit float --seeds 10
    python -m benchmarks.microcircuit table

Every stage runs in a process of its own and leaves its result in the work folder, so its peak of memory (VmHWM of
/proc/self/status) is its own; the stages after `emit` read the .nwc file. Rows go to results/microcircuit.json as
they come. The network and its background: benchmarks/microcircuit_net.py.
"""

import argparse
import json
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import nwcompile as nw
from benchmarks import microcircuit_float, microcircuit_spikes, record
from benchmarks.microcircuit_net import SIZES, STEP_MS, Background, microcircuit, sizes_at
from nwcompile.ir.activity import Activity
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.passes.quantize.quantize import quantize

# Two of four SpiNNaker 2 chips take 256 cells a core. Changed against the shipped board, all of it software:
BOARD = {
    "noc.columns": 38, "noc.rows": 4,  # four chips, two by two
    "core.synapse_bits": None,  # synapses lie in the DRAM beside a chip, as on SpiNNaker 1
    "weights.bits": 16, "weights.effective_limit": 32767, "weights.index_bits": 16,  # a synapse is a word of 32 bits
    "neuron.delay_max_steps": 62,  # sums of 63 steps for 256 cells are 64 KB of a core's SRAM, which holds no synapses
    "cost.barrier_cycles": {"1": 0},  # a step ends with its work, not with a tick of 1 ms
}  # fmt: skip
OPTIONS = nw.Options(partitioner="sequential", placer="row-major", on_multi_spike="graded")
SKIPPED_STEPS = 5000  # 0.5 s from rest, before populations are compared.
RELAYED_STEPS = 160  # Compared with relay neurons and without; a quarter of them on the slower backends.
PIECE = 100  # Steps that a session is fed at once.


def chip() -> nw.Chip:
    return nw.Chip.load("spinnaker2_48").replace(BOARD)


def peak_mib() -> float:
    """The most memory that this process held at once."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def make(args) -> dict:
    network = microcircuit(args.seed, args.scale, args.driven)
    network.verify()
    _keep(args, "float", network)
    return {"synapses": sum(np.size(c.weight) for c in network.connections), "connections": len(network.connections)}


def quantize_stage(args) -> dict:
    made = quantize(normalize(_kept(args, "float")), chip(), None, OPTIONS)
    _keep(args, "fixed", made.network)
    return {"exponents": sorted({e for row in made.table for e in row["exponents"]}),
            "weight_error_rms": max(row["weight_error_rms"] for row in made.table)}  # fmt: skip


def map_stage(args) -> dict:
    network = _kept(args, "fixed")
    mapping = partition(network, chip(), Activity.uniform(network), OPTIONS).mapping
    _keep(args, "mapping", mapping)
    return {"cores": mapping.n_cores}


def emit_stage(args) -> dict:
    network = _kept(args, "fixed")
    manifest = {"tool": "nwcompile", "options": OPTIONS.to_dict(), "seed": args.seed}
    timing = schedule(network)
    program = emit(network, timing, _kept(args, "mapping"), chip(), None, manifest, OPTIONS.on_multi_spike)
    path = args.work / "circuit.nwc"
    emitted = peak_mib()
    program.save(path)
    return {"axons": program.axons.n_axons, "file_mib": path.stat().st_size / 2**20, "before_save_mib": emitted}


def simulate(args, backend: str) -> dict:
    """Feed the background piece by piece; spikes go to a file as steps and cells."""
    program = nw.Program.load(args.work / "circuit.nwc")
    loaded, start = peak_mib(), time.process_time()
    session = nw.Session(program, backend, model_dt=STEP_MS * 1e-3)
    background = Background(args.seed, args.scale) if args.driven == "poisson" else None
    ready, begin = time.process_time() - start, time.process_time()
    n_steps, spikes, cycles, counters = round(args.seconds * 1e3 / STEP_MS), [], [], {}
    for first in range(0, n_steps, PIECE):
        n = min(PIECE, n_steps - first)
        chunk = session.feed(None if background is None else background.inputs(n), None if background else n)
        flat = np.concatenate([chunk.spikes[name][0] for name in SIZES], 1)
        step, cell = np.nonzero(flat)
        spikes.append(np.stack([step + chunk.first_step, cell]).astype(np.int32))
        for name, counts in chunk.counters.items():
            counters[name] = counters.get(name, 0) + int(counts.sum())
        if chunk.step_cycles is not None:
            cycles.append(chunk.step_cycles)
        n_done = first + n
        if n_done % (20 * PIECE) == 0:
            np.savez(args.work / f"{backend}.npz", spikes=np.concatenate(spikes, 1), n_steps=n_done)
            took = time.process_time() - begin
            print(f"{backend}: {n_done} steps, {took:.0f} s, {peak_mib():.0f} MiB", file=sys.stderr, flush=True)
        if time.process_time() - begin > args.cpu_limit:
            break
    np.savez(args.work / f"{backend}.npz", spikes=np.concatenate(spikes, 1), n_steps=n_done)
    row = {"model_s": n_done * STEP_MS * 1e-3, "loaded_mib": loaded, "tables_cpu_s": ready,
           "run_cpu_s": time.process_time() - begin, "counters": counters}  # fmt: skip
    if cycles:
        step_us = np.concatenate(cycles) * program.chip.core.cycle_ns * 1e-3
        row |= {"step_us_mean": float(step_us.mean()), "step_us_longest": float(step_us.max()),
                "real_time_factor": float(step_us.mean() * 1e-3 / STEP_MS)}  # fmt: skip
    return row


def relays(args) -> dict:
    """Whether relay neurons, for the shipped board's 15 steps of delay, leave every spike of the populations alike."""
    network = microcircuit(args.seed, args.scale)
    layers = {name: (node.neuron, node.shape) for name, node in network.nodes.items()}
    last = list(SIZES)[-1]
    layers["out"] = (nw.NeuronSpec(fires=False), (1,))  # without it the last population is the output, never relayed
    read = nw.Dense(last, "out", np.ones((1, network.node(last).n_neurons), np.float32))
    inputs = {name: node.shape for name, node in network.inputs.items()}
    network = nw.Network.from_arrays(layers, [*network.connections, read], inputs)
    fixed = quantize(normalize(network), chip(), None, OPTIONS).network
    x = {name: counts[None] for name, counts in Background(args.seed, args.scale).inputs(RELAYED_STEPS).items()}
    few = {name: counts[:, : RELAYED_STEPS // 4] for name, counts in x.items()}
    chips = chip(), chip().replace({"neuron.delay_max_steps": 15})
    held, relayed = (nw.compile(fixed, c, None, OPTIONS) for c in chips)
    runs = [nw.simulate(held, x, "sequence"), nw.simulate(relayed, x, "sequence")]
    runs += [nw.simulate(held, few, "reference"), nw.simulate(held, few, "cycle"), nw.simulate(relayed, few, "cycle")]
    for name in SIZES:
        for run in runs[1:]:
            assert np.array_equal(run.spikes[name], runs[0].spikes[name][:, : run.spikes[name].shape[1]]), name
    n_neurons = [sum(p.network.node(name).n_neurons for name in p.network.layers) - 1 for p in (held, relayed)]
    return {"spikes": sum(int(runs[0].spikes[name].sum()) for name in SIZES), "relays": n_neurons[1] - n_neurons[0]}


def _keep(args, name: str, value) -> None:
    with open(args.work / f"{name}.pickle", "wb") as stream:
        pickle.dump(value, stream, protocol=5)


def _kept(args, name: str):
    with open(args.work / f"{name}.pickle", "rb") as stream:
        return pickle.load(stream)


VERBS = {
    "make": make, "quantize": quantize_stage, "map": map_stage, "emit": emit_stage,
    "sequence": lambda args: simulate(args, "sequence"), "cycle": lambda args: simulate(args, "cycle"),
    "float": microcircuit_float.measure, "relays": relays,
}  # fmt: skip


def run_stage(args) -> dict:
    """One stage in this process."""
    start, wall = time.process_time(), time.perf_counter()
    row = VERBS[args.stage](args)
    took = {"cpu_s": time.process_time() - start, "wall_s": time.perf_counter() - wall, "peak_mib": peak_mib()}
    cells = sum(sizes_at(args.scale).values())
    return {"stage": args.stage, "scale": args.scale, "driven": args.driven, "cells": cells, **took, **row}


def table(args) -> None:
    """Print and write all rows of the work folder, and what the populations of its runs do."""
    rows = [json.loads(line) for line in (args.work / "rows.jsonl").read_text().splitlines()]
    runs = sorted(args.work.glob("float*.npz"))
    populations = {}
    for backend in ("sequence", "cycle"):
        path = args.work / f"{backend}.npz"
        end = int(np.load(path)["n_steps"]) if path.exists() else 0
        end = min([end, *(int(np.load(run)["n_steps"]) for run in runs)])
        if runs and end > SKIPPED_STEPS:
            populations[backend] = microcircuit_spikes.compared(runs, path, SKIPPED_STEPS, end)
            record.show(populations[backend])
    columns = ("stage", "scale", "cells", "peak_mib", "cpu_s", "wall_s", "model_s", "real_time_factor")
    record.show([{name: row.get(name) for name in columns} for row in rows])
    spikes = {"skipped_steps": SKIPPED_STEPS, "float_seeds": len(runs), "populations": populations}
    record.write("microcircuit", rows, {"board": BOARD, "options": OPTIONS.to_dict(), "spikes": spikes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=[*VERBS, "table"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=10, help="of the float reference")
    parser.add_argument("--seconds", type=float, default=0.2, help="of the model's time")
    parser.add_argument("--cpu-limit", type=float, default=1e9, help="seconds of a simulation; it ends early then")
    parser.add_argument("--driven", choices=("poisson", "dc"), default="poisson")
    parser.add_argument("--work", type=Path, default=Path("/tmp/microcircuit"))
    parser.add_argument("--in-process", dest="stage", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.stage is not None:
        print(json.dumps(run_stage(args)))
        return
    for stage in args.stages:
        if stage == "table":
            table(args)
            continue
        names = ("scale", "seed", "seeds", "seconds", "cpu-limit", "driven", "work")
        given = [f"--{name}={getattr(args, name.replace('-', '_'))}" for name in names]
        command = [sys.executable, "-m", "benchmarks.microcircuit", stage, "--in-process", stage, *given]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        print({key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
        with open(args.work / "rows.jsonl", "a") as stream:
            stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
