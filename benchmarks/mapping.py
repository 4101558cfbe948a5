"""Mapping: what every partitioner and placer makes of several nets, predicted and measured.

    .venv/bin/python benchmarks/mapping.py
    .venv/bin/python benchmarks/mapping.py --net dvs --method striped,metis,floorline+routed@sneap --cores 42,126

A method is PARTITIONER[:OBJECTIVE][+PLACER][@CORES[/US]], the placer `anneal` unless it is named. A partitioner or
placer is one of nwcompile or of `OWN_...` below, or a function of one's own as module:function. `sneap` is the
frozen baseline: METIS and annealing (over a million moves), the lowest predicted EDP of five seeds. CORES is a number,
or `sneap`: as many as the row of that baseline took. US is the longest step that may be predicted, `sneap` that row's:
`floorline:traffic@sneap/sneap` is the fewest hops at equal step time. One table, a comparison with the baseline, and
results/mapping.json with its circumstances, written after every row; `--resume` takes rows from there that were made
with the same arguments, each naming its commit. `--sanafe PYTHON` names a Python with sanafe==2.2.9, whose `simple` and
`detailed` judge as well. Each mapping runs in a process of its own, so that seconds (of the CPU) and peak memory are
its own.

    .venv/bin/python benchmarks/mapping.py --name mapping_scale --predict-only --limit 900 --plot \\
        --net vgg9-8,vgg9-16,vgg9,million \\
        --method sequential+hilbert,striped+hilbert,metis+hilbert,streaming+hilbert,floorline+hilbert
    .venv/bin/python benchmarks/mapping.py --name mapping_scale --predict-only --limit 900 --resume \\
        --net sheet --method metis+hilbert,streaming+hilbert,floorline+hilbert

`--plot` draws seconds and memory of every method against the number of neurons: results/<name>_{seconds,memory}.svg.
"""

import argparse
import json
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from benchmarks.halving import halve
from benchmarks.mapping_methods import hysmap, partition_by_neuromap, place_by_neuromap
from benchmarks.mapping_nets import NETS as OUR_NETS
from benchmarks.mapping_nets import Net
from benchmarks.mapping_published import PUBLISHED
from benchmarks.plot import line_plot
from benchmarks.record import RESULTS, commit, save, write
from nwcompile.cost.compare import measured_figures, predicted_figures
from nwcompile.cost.least import find_lower_bounds
from nwcompile.cost.time.work import compute_work
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.ir.artifact import write_files
from nwcompile.ir.options import OBJECTIVES
from nwcompile.passes.emit import interleave_visits
from nwcompile.passes.partition.partition import PARTITIONERS, partition
from nwcompile.passes.place.place import PLACERS, place
from nwcompile.plugins import import_function
from nwcompile.report.export.sanafe import sanafe_files

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"
NETS = OUR_NETS | PUBLISHED
SNEAP_SEEDS = range(5)
TABLE = ["dvs", "cnn", "mnist", "random", "potjans", "vgg9"]
OWN_PARTITIONERS = {"halving": halve, "neuromap": partition_by_neuromap, "hysmap": hysmap}  # not in the package
OWN_PLACERS = {"neuromap": place_by_neuromap}
METHODS = [
    *("sneap", *PARTITIONERS, "halving", "neumap+neumap", "neuromap+neuromap"),
    *(f"metis+{placer}" for placer in PLACERS if placer != "anneal"),
    *("floorline+routed", "floorline+routed@sneap", "floorline:traffic@sneap/sneap"),
]
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
    parser.add_argument("--net", default=",".join(TABLE), help=f"of {', '.join(NETS)}")
    parser.add_argument("--method", default=",".join(METHODS), help="comma-separated; see above")
    parser.add_argument("--cores", default="0", help="of methods without @CORES; 0: as few as the method finds")
    parser.add_argument("--optimize", default="time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--predict-only", action="store_true", help="do not measure with the cycle backend")
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--sanafe", metavar="PYTHON", help="a Python with sanafe==2.2.9")
    parser.add_argument("--limit", type=float, default=300, help="seconds of the CPU that one row may take")
    parser.add_argument("--name", default="mapping", help="of the files in results")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the results have")
    parser.add_argument("--one", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)  # where nets lie, once made
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        table(args, folder)


def table(args, folder: str) -> None:
    """Every row, printed and written as it comes; nets are kept in the folder."""
    settings = {k: v for k, v in vars(args).items() if k not in ("one", "reference", "sanafe", "resume")}
    rows = _kept(args.name, settings) if args.resume else []
    for net in args.net.split(","):
        for method in args.method.split(","):
            for cores in [""] if "@" in method else [f"@{n}" if int(n) else "" for n in args.cores.split(",")]:
                if any((r["net"], r["method"]) == (net, method + cores) for r in rows):
                    continue
                rows.append(
                    {"net": net, "method": method + cores, **_row(net, method + cores, args.limit, rows, folder)}
                )
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                write(args.name, _even(rows), settings)
    save(args.name, _even(rows), settings)
    print("\n".join(against_sneap(rows)))
    if args.plot:
        plots(args.name, rows)


def _kept(name: str, settings: dict) -> list[dict]:
    """Rows of results/<name>.json, if what decides them is as it was."""
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text()) if path.exists() else {"settings": {}, "rows": []}
    same = all(before["settings"].get(key) == settings[key] for key in ("optimize", "seed", "predict_only", "limit"))
    return before["rows"] if same else []


def _even(rows: list[dict]) -> list[dict]:
    """The rows by net, all with the same columns."""
    columns, nets = dict.fromkeys(key for row in rows for key in row), [*dict.fromkeys(row["net"] for row in rows)]
    return [{**columns, **row} for row in sorted(rows, key=lambda row: nets.index(row["net"]))]


def _row(net: str, method: str, limit: float, rows: list[dict], folder: str) -> dict:
    """The figures of one mapping, made by another process; `rows`: those before it."""
    known = {"commit": commit(), "cores": None}
    if "@sneap" in method:
        taken = [r for r in rows if r["net"] == net and r["method"] == "sneap"]
        if not taken or taken[0]["cores"] is None:
            return {**known, "outcome": "no number of cores: sneap has no row"}
        method = method.replace("@sneap", f"@{taken[0]['cores']}").replace("/sneap", f"/{taken[0]['predicted us']}")
    own = ["--net", net, "--method", method, "--one", folder]
    done = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], *own],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (round(limit), round(limit))),
    )
    if -done.returncode in (signal.SIGXCPU, signal.SIGKILL):
        return {**known, "outcome": f"over {limit:.0f} s"}
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode or not last:
        return {**known, "outcome": f"ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"}
    return {**known, **json.loads(last[0])}


def against_sneap(rows: list[dict]) -> list[str]:
    """By method of ours, as lines: step time, EDP and hops as shares of the baseline's, and the mean EDP."""
    base = {r["net"]: r for r in rows if r["method"] == "sneap" and r["cores"]}
    lines = []
    for method in dict.fromkeys(r["method"] for r in rows if r["method"].startswith("floorline")):
        shares = {}
        for row in (r for r in rows if r["method"] == method and r["cores"] and r["net"] in base):
            pairs = {key: (row.get(key), base[row["net"]].get(key)) for key in ("measured us", "EDP J s", "hops")}
            shares[row["net"]] = {key: a / b for key, (a, b) in pairs.items() if a and b}
        told = (f"{net} {', '.join(f'{key} {x:.2f}' for key, x in share.items())}" for net, share in shares.items())
        edp = [share["EDP J s"] for share in shares.values() if "EDP J s" in share]
        mean = f"; geometric mean of EDP {np.exp(np.mean(np.log(edp))):.2f}" if edp else ""
        lines.append(f"{method} of sneap: {'; '.join(told)}{mean}")
    return lines


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
    return measure(load_net(args.net, args.one, args.reference), args)


def load_net(name: str, folder: Path, reference: Path = REFERENCE) -> Net:
    """The net of that name, made once and kept in the folder."""
    kept = folder / name
    if not kept.exists():
        kept.with_suffix(".new").write_bytes(pickle.dumps(NETS[name](reference)))
        kept.with_suffix(".new").replace(kept)
    return pickle.loads(kept.read_bytes())


def measure(net: Net, args) -> dict:
    """The figures of a net mapped by a method; `least` ones are bounds for every mapping on as many cores."""
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
    if not args.predict_only and net.runs:
        run = nw.simulate(program, net.x, "cycle", steps=None if net.x is not None else net.steps, window=net.window)
        measured = measured_figures(program, run)
        row["measured us"] = measured.step_us
        if measured.sample_nj is not None:
            row["nJ a step"] = measured.sample_nj / len(run.link_flits)
            row["EDP J s"] = run.seconds * run.energy_pj["total"] * 1e-12
            row["balance EDP"] = row["balance us"] / measured.step_us * row["EDP J s"]
        least = find_lower_bounds(program, run, figures.cores)
        row["least us"] = least.step_us
        row["least EDP J s"] = least.edp_nj_us and least.edp_nj_us * run.n_samples**2 * 1e-15
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
    way, _, cores = method.partition("@")
    cores, _, limit = cores.partition("/")
    way, _, placer = way.partition("+")
    partitioner, _, optimize = way.partition(":")
    if optimize and optimize not in OBJECTIVES:
        partitioner, optimize = way, ""
    options = nw.Options(
        seed=seed,
        partitioner=_function(partitioner, OWN_PARTITIONERS),
        placer=_function(placer or "anneal", OWN_PLACERS),
        optimize=optimize or args.optimize,
        n_cores=int(cores) if cores else None,
        step_limit_us=float(limit) if limit else None,
    )
    mapping = partition(net.network, net.chip, net.activity, options).mapping
    mapping = place(mapping, net.network, net.chip, net.activity, options)
    if partitioner == "floorline":  # the others are as their papers have them, which know no order of visits
        mapping = interleave_visits(mapping, net.network, net.chip, net.activity)
    return net.emitted(mapping)


def _function(name: str, own: dict):
    """A method of nwcompile by name, or a function from `own` or from the module that the name says."""
    return import_function(name, nw.OptionError, "NW1103") if ":" in name else own.get(name, name)


def _predicted_edp(program: nw.Program, net: Net) -> float:
    figures = predicted_figures(program, net.activity)
    return figures.step_us * (figures.sample_nj or 1.0)


def balance(program: nw.Program) -> dict:
    """Mean step time, in microseconds, if all cores had equal parts of each unit's work of a step, and none waited."""
    activity = program.activity
    counters, flits = count_events(program, activity), link_flits(program, activity)
    done = compute_work(program, counters, flits, activity.n_samples)
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
