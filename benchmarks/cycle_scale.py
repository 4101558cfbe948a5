"""Cost of simulating against the number of cores and against load: tables, and curves in results/*.svg."""

import numpy as np

import nwcompile as nw
from benchmarks.nets import program_of, random_net
from benchmarks.plot import line_plot
from benchmarks.record import RESULTS, median_seconds, save
from nwcompile.sim.cycle.noc import replay_packets

CORES = (16, 64, 256, 1024, 4096)
PER_CORE = {"neurons": 32, "fan_out": 8, "active": 0.05}
LOADS = (0.01, 0.02, 0.05, 0.10, 0.15, 0.20, 0.25, 0.30, 0.35)
CYCLES = 4000
ACTIVE = (0.1, 0.03, 0.01, 0.003, 0.001)
ACTIVITY_NET = {"n_neurons": 16384, "n_cores": 128, "fan_out": 64, "threshold": 16000}
# BookSim 2 on another machine, millions of flit-hops a second: shared/notes/noc-and-chip-simulators.md, 1.4
BOOKSIM = {8: {0.01: 0.29, 0.05: 0.58, 0.15: 0.49, 0.30: 0.67}, 16: {0.01: 0.24, 0.05: 0.38, 0.12: 0.34}}


def cores(args) -> None:
    """A net that grows with the cores, its synapses at random over all of them: time of a step, and of a flit-hop."""
    rows = []
    for n in CORES:
        program = program_of(random_net(PER_CORE["neurons"] * n, n, PER_CORE["fan_out"], PER_CORE["active"]))
        steps = max(40, 6400 // n)
        seconds, run = median_seconds(
            lambda p=program, s=steps: nw.simulate(p, None, "cycle", steps=s, window="hardware", record="totals"),
            args.repeats,
        )
        messages, hops = (int(run.counters[name].sum()) for name in ("messages_out", "hops"))
        rows.append(
            {
                "cores": n,
                "steps": steps,
                "steps/s": steps / seconds,
                "messages a step": messages / steps,
                "hops a message": hops / messages,
                "us a message": 1e6 * seconds / messages,
                "us a flit-hop": 1e6 * seconds / (messages + hops),
                "real-time factor": seconds / run.seconds,
            }
        )
    save("cycle_cores", rows, {"repeats": args.repeats, "seed": 0, **PER_CORE})
    curves = {name: [(row["cores"], row[name]) for row in rows] for name in ("us a message", "us a flit-hop")}
    _draw("cycle_cores", "Simulating a random net flit by flit", "cores", "CPU time, us", curves)


def load(args) -> None:
    """Uniform traffic of single flits on meshes of `mesh_spec` up to near saturation, beside BookSim 2's figures."""
    rows = []
    for k, n_vcs in ((8, 1), (8, 4), (16, 1)):
        keys = {"noc.columns": k, "noc.rows": k, "noc.virtual_channels": n_vcs}
        chip = nw.Chip.load("mesh_spec").replace(keys)
        rng = np.random.default_rng(0)
        for rate in LOADS if k == 8 else [r for r in LOADS if r < 0.16]:
            made, src = np.nonzero(rng.random((CYCLES, k * k)) < rate)
            dst = rng.integers(0, k * k, len(made))
            seconds, done = median_seconds(
                lambda c=chip, m=made, s=src, d=dst: replay_packets(c, m, s, d, np.ones(len(m))), args.repeats
            )
            flit_hops = float((done.hops + 1).sum())
            rows.append(
                {
                    "mesh": f"{k}x{k}",
                    "channels": n_vcs,
                    "load": rate,
                    "flit-hops/s": flit_hops / seconds,
                    "ns a flit-hop": 1e9 * seconds / flit_hops,
                    "cycles/s": CYCLES / seconds,
                    "BookSim 2 noted, M flit-hops/s": BOOKSIM[k].get(rate, "") if n_vcs == 1 else "",
                }
            )
    save("cycle_load", rows, {"repeats": args.repeats, "seed": 0, "cycles": CYCLES})
    curves = {}
    for mesh, n_vcs in (("8x8", 1), ("8x8", 4), ("16x16", 1)):
        own = [row for row in rows if (row["mesh"], row["channels"]) == (mesh, n_vcs)]
        curves[f"{mesh}, {n_vcs} VC"] = [(row["load"], row["ns a flit-hop"]) for row in own]
    for k, noted in BOOKSIM.items():
        curves[f"BookSim 2, {k}x{k}, 1 VC (noted)"] = [(rate, 1e3 / speed) for rate, speed in noted.items()]
    _draw(
        "cycle_load", "Simulating uniform traffic", "load, flits a core and cycle", "CPU time of a flit-hop, ns", curves
    )


def activity(args) -> None:
    """One net at fewer and fewer spikes: CPU time of a message beyond that of the same steps without any spike.

    These are of the same neurons with opposite biases, which are updated as often and never spike.
    """
    rows = []
    for active in ACTIVE:
        net, steps = random_net(**ACTIVITY_NET, active=active), round(20 / active)
        idle, _ = _timed({**net, "bias": -net["bias"]}, steps, args.repeats)
        seconds, run = _timed(net, steps, args.repeats)
        spikes, messages, hops = (int(run.counters[name].sum()) for name in ("spikes_out", "messages_out", "hops"))
        rows.append(
            {
                "steps": steps,
                "activity": spikes / (steps * ACTIVITY_NET["n_neurons"]),
                "messages a step": messages / steps,
                "us a step": 1e6 * seconds / steps,
                "us a step, no spikes": 1e6 * idle / steps,
                "us a message": 1e6 * (seconds - idle) / messages,
                "ns a flit-hop": 1e9 * (seconds - idle) / (messages + hops),
            }
        )
    save("cycle_activity", rows, {"repeats": args.repeats, "seed": 0, **ACTIVITY_NET})


def _timed(net: dict, steps: int, repeats: int) -> tuple[float, nw.Run]:
    program = program_of(net, threshold=ACTIVITY_NET["threshold"])
    keys = {"steps": steps, "window": "hardware", "record": "totals"}
    return median_seconds(lambda: nw.simulate(program, None, "cycle", **keys), repeats)


def _draw(name: str, title: str, label_x: str, label_y: str, curves: dict) -> None:
    (RESULTS / f"{name}.svg").write_text(line_plot(title, label_x, label_y, curves) + "\n")
