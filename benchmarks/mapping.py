"""Mapping: what every partitioner and placer makes of several nets, predicted and measured.

    .venv/bin/python benchmarks/mapping.py --net dvs --method striped,metis --cores 42,126

A method is a partitioner, or PARTITIONER+PLACER (default: anneal); `sneap` is the frozen baseline: METIS and annealing
(over a million moves), the lowest predicted EDP of five seeds. One table, and results/mapping.json with its
circumstances. `--sanafe PYTHON` names a Python with sanafe==2.2.9, whose `simple` and `detailed` judge as well.
Each mapping runs in a process of its own, so that seconds (of the CPU) and peak memory are its own.

    .venv/bin/python benchmarks/mapping.py --net vgg9-8,vgg9-16,vgg9,million --predict-only --name mapping_scale --plot

`--plot` draws seconds and memory of every method against the number of neurons: results/<name>_{seconds,memory}.svg.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from benchmarks.mapping_nets import NETS, Net
from benchmarks.plot import line_plot
from benchmarks.record import RESULTS, save
from nwcompile.cost.compare import measured_figures, predicted_figures
from nwcompile.cost.traffic import count_events, link_flits
from nwcompile.cost.work import work
from nwcompile.ir.artifact import write_files
from nwcompile.passes.partition import PARTITIONERS, partition
from nwcompile.passes.place import place
from nwcompile.report.sanafe import sanafe_files

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"
SNEAP_SEEDS = range(5)
JUDGE = """
import json, sys, sanafe
arch = sanafe.load_arch(sys.argv[1] + "/arch.yaml")
chip = sanafe.SpikingChip(arch)
chip.load(sanafe.load_net(sys.argv[1] + "/snn.yaml", arch))
run = chip.sim(int(sys.argv[2]), timing_model=sys.argv[3], processing_threads=1)
print(json.dumps({"j": run["energy"]["total"], "s": run["sim_time"], "packets": run["packets_sent"]}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default=",".join(NETS), help=f"of {', '.join(NETS)}")
    parser.add_argument("--method", default=",".join(["sneap", *PARTITIONERS]), help="PARTITIONER[+PLACER], sneap")
    parser.add_argument("--cores", default="0", help="numbers of cores to spread over; 0: as few as the method finds")
    parser.add_argument("--optimise", default="time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--predict-only", action="store_true", help="do not measure with the cycle backend")
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--sanafe", metavar="PYTHON", help="a Python with sanafe==2.2.9")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one row may take, by the clock")
    parser.add_argument("--name", default="mapping", help="of the files in results")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args)))
        return
    rows = []
    for net in args.net.split(","):
        for cores in args.cores.split(","):
            for method in args.method.split(","):
                rows.append({"net": net, "method": method, **_row(net, method, cores, args.limit)})
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    settings = {k: v for k, v in vars(args).items() if k not in ("one", "reference", "sanafe")}
    save(args.name, [{**dict.fromkeys(k for row in rows for k in row), **row} for row in rows], settings)
    if args.plot:
        plots(args.name, rows)


def _row(net: str, method: str, cores: str, limit: float) -> dict:
    """The figures of one mapping, made by another process."""
    own = ["--net", net, "--method", method, "--cores", cores, "--one"]
    try:
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], *own], capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return {"cores": None, "outcome": f"over {limit:.0f} s"}
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode or not last:
        raise SystemExit(f"{net}, {method}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(last[0])


def plots(name: str, rows: list[dict]) -> None:
    """results/<name>_seconds.svg and _memory.svg: each method's rows by the number of neurons."""
    for key, label in (("seconds", "seconds of CPU time"), ("peak MiB more", "MiB, peak above the net's own")):
        series: dict[str, list[tuple[float, float]]] = {}
        for row in sorted((r for r in rows if r.get(key)), key=lambda r: r["neurons"]):
            series.setdefault(row["method"], []).append((row["neurons"], row[key]))
        path = RESULTS / f"{name}_{'memory' if 'MiB' in key else key}.svg"
        path.write_text(str(line_plot("Mapping and emitting a net", "neurons", label, series)) + "\n")


def one(args) -> dict:
    """The figures of one net, method and number of cores."""
    net = NETS[args.net](args.reference)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    start, before = time.process_time(), _peak_mib()
    try:
        program = mapped(net, args)
    except nw.NwError as e:
        return {"neurons": net.n_neurons, "cores": None, "outcome": str(e).splitlines()[-1].strip()}
    seconds, memory = time.process_time() - start, _peak_mib() - before
    figures = predicted_figures(program, net.activity)
    n_steps = net.activity.n_steps
    row = {
        "neurons": net.n_neurons, "cores": figures.cores,
        "messages": round(figures.messages_per_step * _n_hardware(program, n_steps)),
        "hops": round(figures.hops_per_step * _n_hardware(program, n_steps)),
        "hottest link": figures.hottest_link_cycles, "predicted us": figures.step_us, **balance(program),
        "nJ a step": None if figures.sample_nj is None else figures.sample_nj / _n_hardware(program, n_steps),
    }  # fmt: skip
    if not args.predict_only:
        run = nw.simulate(program, net.x, "cycle", steps=None if net.x is not None else net.steps, window=net.window)
        measured = measured_figures(program, run)
        row["measured us"] = measured.step_us
        if measured.sample_nj is not None:
            row["nJ a step"] = measured.sample_nj / len(run.link_flits)
            row["EDP J s"] = run.seconds * run.energy_pj["total"] * 1e-12
            row["balance EDP"] = row["balance us"] / measured.step_us * row["EDP J s"]
    if args.sanafe:
        row |= judged(program, net, args.sanafe)
    return {**row, "seconds": seconds, "peak MiB more": memory}


def mapped(net: Net, args) -> nw.Program:
    """The net's program, mapped by the method."""
    if args.method != "sneap":
        return _program(net, args, args.method, args.seed)
    programs = [_program(net, args, "metis+anneal", seed) for seed in SNEAP_SEEDS]
    return min(programs, key=lambda p: _predicted_edp(p, net))


def _program(net: Net, args, method: str, seed: int) -> nw.Program:
    partitioner, _, placer = method.partition("+")
    options = nw.Options(seed=seed, partitioner=partitioner, placer=placer or "anneal", optimise=args.optimise,
                         n_cores=int(args.cores) or None)  # fmt: skip
    mapping = partition(net.network, net.chip, net.activity, options)
    return net.emitted(place(mapping, net.network, net.chip, net.activity, options))


def _predicted_edp(program: nw.Program, net: Net) -> float:
    figures = predicted_figures(program, net.activity)
    return figures.step_us * (figures.sample_nj or 1.0)


def balance(program: nw.Program) -> dict:
    """Mean step time, in microseconds, if all cores had equal parts of each unit's work of a step, and none waited."""
    activity = program.activity
    counters, flits = count_events(program, activity), link_flits(program, activity)
    done = work(program, counters, flits, activity.n_samples)
    cycles = done.barrier_cycles + done.busy.sum(2).max(0) / program.mapping.n_cores
    return {"balance us": float(cycles.mean() * program.chip.core.cycle_ns / 1000 / activity.n_samples)}


def judged(program: nw.Program, net: Net, python: str) -> dict:
    """EDP, in J s, of SANA-FE's run of the exported files, and its messages."""
    row: dict[str, float] = {}
    x = None if net.x is None else {n: net.x[0].reshape(net.steps, -1).astype(np.int64) for n in program.network.inputs}
    with tempfile.TemporaryDirectory() as folder:
        write_files(sanafe_files(program, folder, x))
        for model in ("simple", "detailed"):
            out = subprocess.run([python, "-c", JUDGE, folder, str(net.steps), model], capture_output=True, text=True)
            found = json.loads(out.stdout.strip().splitlines()[-1])
            row |= {f"{model} EDP": found["j"] * found["s"], f"{model} ms": 1e3 * found["s"]}
    return row


def _n_hardware(program: nw.Program, n_steps: int) -> int:
    return program.schedule.n_hardware_steps(n_steps, "aligned")


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
