"""`nwcompile noc`: simulate the network on chip alone, with a list of packets or generated load."""

import csv
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import numpy as np

from nwcompile.cli.inputs.load import load_chip
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json
from nwcompile.errors import OptionError
from nwcompile.ir.artifact import write_bytes
from nwcompile.ir.chip import Chip
from nwcompile.sim.cycle.noc import offer_load, replay_packets, verify_load

ERROR_CODE = "NW6201"
COLUMNS = ("time", "src", "dst", "size")
UNDECIDED = "too few cycles to tell whether the network is saturated; measure more than {} (--cycles)"
COUNTED = ("chip", "packets", "hops")  # figures of a list of packets without a unit; the others are cycles


def run(args: Namespace) -> int:
    chip = load_chip(args)
    if (args.trace_in is None) == (args.traffic is None):
        raise OptionError("noc: give either --trace-in PACKETS.csv or --traffic PATTERN")
    if args.traffic is not None:
        if args.trace_out is not None:
            raise OptionError("noc: --trace-out belongs to --trace-in")
        if args.load is None:
            raise OptionError("noc: --traffic needs --load, in flits per core and cycle")
        loads = _offer_loads(args, chip)
        if args.json:
            print(as_json({"chip": chip.name, **(loads[0] if len(loads) == 1 else {"loads": loads})}))
        elif len(loads) == 1:
            print_text(_text_of_load(loads[0], args.cycles))
        return 0
    packets = read_packets(Path(args.trace_in))
    time, src, dst, size = (packets[name] for name in COLUMNS)
    done = replay_packets(chip, time, src, dst, size)
    if args.trace_out is not None:
        rows = (f"{i},{a}\n" for i, a in zip(done.inject, done.arrive, strict=True))
        write_bytes(args.trace_out, ("inject,arrive\n" + "".join(rows)).encode())
    latency = done.arrive - packets["time"]
    figures: dict[str, str | int | float | None] = {
        "chip": chip.name,
        "packets": len(latency),
        "makespan": int(done.arrive.max() - packets["time"].min()) if len(latency) else 0,
        "mean_latency": float(latency.mean()) if len(latency) else None,
        "p50": float(np.percentile(latency, 50)) if len(latency) else None,
        "p99": float(np.percentile(latency, 99)) if len(latency) else None,
        "max": int(latency.max()) if len(latency) else None,
        "mean_network_latency": float((done.arrive - done.inject).mean()) if len(latency) else None,
        "hops": int(done.hops.sum()),
    }
    if args.json:
        print(as_json(figures))
    else:
        for name, value in figures.items():
            unit = "" if name in COUNTED or value is None else " cycles"
            print(f"{name:<21} {value if value is None or isinstance(value, str) else format(value, 'g')}{unit}")
    return 0


def read_packets(path: Path) -> dict[str, np.ndarray]:
    """Read the columns time, src, dst and size of a CSV file as int64 arrays. Raises OptionError."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:  # Spreadsheets write a byte order mark.
            rows = [(line, row) for line, row in enumerate(csv.reader(stream), 1) if row]
    except FileNotFoundError:
        raise OptionError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise OptionError(f"{path}: it cannot be read as CSV ({e})") from None
    names = [name.strip() for name in rows[0][1]] if rows else []
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise OptionError(f"{path}: column {missing[0]} is missing; the first line must name time, src, dst, size")
    places = [names.index(name) for name in COLUMNS]
    packets = np.zeros((len(COLUMNS), len(rows) - 1), np.int64)
    for k, (line, row) in enumerate(rows[1:]):
        try:
            packets[:, k] = [int(row[place]) for place in places]
        except (ValueError, IndexError, OverflowError):
            raise OptionError(f"{path}, line {line}: {','.join(row)!r} must hold whole numbers") from None
    return dict(zip(COLUMNS, packets, strict=True))


def _offer_loads(args: Namespace, chip: Chip) -> list[dict]:
    """Simulate each load. With several, print a row of the load-latency curve as soon as it is known."""
    fixed = (args.flits, args.warmup, args.cycles, args.seed)
    for load in args.load:
        verify_load(chip, args.traffic, load, *fixed)
    prints = len(args.load) > 1 and not args.json
    if prints:
        print(f"{args.traffic}; loads in flits/core/cycle, latency in cycles, busy: share of time")
        print("offered  accepted   mean latency      busy  busiest link")
    loads = []
    for load in args.load:
        made = asdict(offer_load(chip, args.traffic, load, *fixed))
        loads.append(made)
        if prints:
            busiest, share = max(made["link_load"].items(), key=lambda row: row[1])
            latency = {None: "too few cycles", False: "saturated"}.get(made["stable"]) or f"{made['mean_latency']:.2f}"
            print(f"{made['offered']:7.4f}  {made['accepted']:8.4f} {latency:>14}  {share:8.4f}  {busiest}", flush=True)
    if prints and any(made["stable"] is None for made in loads):
        print_text(UNDECIDED.format(args.cycles))
    return loads


def _text_of_load(result: dict, cycles: int) -> str:
    offered, accepted = (f"{result[name]:.4f}" for name in ("offered", "accepted"))
    head = (
        f"{result['pattern']}, {result['n_packets']} packets: offered {offered}, accepted {accepted} flits/core/cycle"
    )
    if result["stable"]:
        verdict = f"mean latency {result['mean_latency']:.2f} cycles"
    elif result["stable"] is None:
        verdict = UNDECIDED.format(cycles)
    else:
        verdict = f"saturated, busiest link: {result['bottleneck']}"
    busiest_first = sorted(result["link_load"].items(), key=lambda row: -row[1])
    width = max(len(name) for name, _ in busiest_first)
    links = [f"  {name:<{width}}  {load:.4f}" for name, load in busiest_first]
    return "\n".join([f"{head}; {verdict}", "load of each link, as the share of cycles in which it is busy:", *links])
