"""Collect: all figures of a report as plain JSON values, with units in the keys; the source of text and HTML."""

from dataclasses import asdict
from math import inf, nan, prod
from typing import Any

import numpy as np

from nwcompile import __version__
from nwcompile.cost.energy import BoardEnergy, kinds_without_source
from nwcompile.cost.family import find_cost
from nwcompile.cost.summary import Summary, summarize
from nwcompile.cost.time.floorline import Floorline
from nwcompile.cost.time.work import Bottleneck, link_name, link_place
from nwcompile.errors import ModelError, unknown_choice
from nwcompile.families import load_parts
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import BARRIER, NEIGHBORS, chips_used, count_chips
from nwcompile.ir.program import Program
from nwcompile.ir.resources import RESOURCE_OF
from nwcompile.ir.run import Basis, Run
from nwcompile.ir.shown import format_figure
from nwcompile.report.host import collect_host, host_text
from nwcompile.report.json.neurobench import collect_neurobench
from nwcompile.report.json.profile import collect_profile
from nwcompile.report.json.traffic import collect_dropped, collect_multicast, collect_traffic
from nwcompile.report.mapping import explain_mapping
from nwcompile.report.text import format_verdict, io_text, multi_spike_text, verdict_rows
from nwcompile.sim.accuracy import share_interval
from nwcompile.sim.answers import answer_rule
from nwcompile.sim.crosscheck import Crosscheck

REPORT_SCHEMA = 1  # Incremented when a key of report.json changes its meaning or is removed.
MOST_VALUES = 300_000  # More are slow to write and read; later steps are left out, and the report says so.
ALIKE = (
    "Every step is alike in this prediction, as without calibration samples. "
    "nwcompile report PROGRAM.nwc --input SAMPLES.npz -o DIR shows every step."
)
COUNTERS = ("synops", "spikes_out", "messages_in")


def collect_report(
    program: Program, run: Run, accuracy=None, crosscheck=None, model_dt=None, wall_seconds=None, title=None
) -> dict[str, Any]:
    """Collect the content of report.json: the `Summary` of the run, and its provenance.

    `accuracy`: a number (the chip's) or {"float": ..., "chip": ...}, 0..1; with "n_samples" the report also has 95 %
    intervals. `crosscheck`: a Crosscheck. `model_dt`: seconds per step of the model. `wall_seconds`: the duration of
    the simulation. `title`: names of model and input. Raises ModelError if `run` is not a run of `program`.
    """
    for noun, kind in ((program, Program), (run, Run), (crosscheck, Crosscheck | None)):
        if not isinstance(noun, kind):
            raise ModelError(f"a report takes a Program, a Run and a Crosscheck or None, not {type(noun).__name__}")
    s, chip = summarize(program, run), program.chip
    fits = all(row.limit is None or row.used <= row.limit for row in s.fits)
    doc: dict[str, Any] = {
        "report_schema": REPORT_SCHEMA,
        "title": title,
        "fits": fits,
        "chip": {"name": chip.name, "description": chip.description, "n_cores": chip.n_cores,
                 "n_chips": prod(count_chips(chip.noc)), "n_chips_used": chips_used(chip.noc, program.mapping.site_of),
                 "columns": chip.noc.columns, "rows": chip.noc.rows, "cores_per_router": chip.noc.cores_per_router,
                 "topology": chip.noc.topology, "pool_step_us": _pool_step_us(program, run)},
        "run": {"backend": run.backend, "device": run.device, "window": run.window, "n_samples": run.n_samples,
                "n_hardware_steps": s.n_steps, "n_dropped": run.n_dropped},
        "fit": [_fit_row(row) for row in s.fits],
        "time": _collect_time(s),
        "time_basis": collect_basis(s.time_basis),
        "bottleneck": None if s.bound is None else _bottleneck(s.bound.bottleneck, chip),
        "advice": None if s.bound is None else {**asdict(s.bound.advice), "text": str(s.bound.advice)},
        "steps": _collect_steps(s, chip),
        "floorline": _collect_floorline(s.bound),
        "profile": collect_profile(program, run, s),
        "real_time": real_time_factors(run, model_dt, wall_seconds),
        "energy": _collect_energy(s, chip),
        "energy_basis": collect_basis(s.energy_basis),
        "board": collect_board(s.board),
        "events_per_sample": s.events,
        "neurobench": collect_neurobench(program, run),
        "multi_spike": _collect_multi_spike(program, s),
        "multicast": collect_multicast(program.chip, s),
        "io": _collect_io(program, s),
        "host": collect_host(program, run, s.events["synops"]),
        "dropped": collect_dropped(program, run),
        **{part.KEY: part.collect(program, run) for part in load_parts("report")},
        "layers": layer_rows(program, s),
        "cores": core_rows(program, s),
        "links": link_rows(program, s),
        "traffic": collect_traffic(program, run, s),
        "by_step": collect_by_step(run, s),
        "work": _collect_work(s),
        "accuracy": _collect_accuracy(accuracy),
        "crosscheck": None if crosscheck is None else _collect_crosscheck(crosscheck),
        "legalization": [dict(row) for row in program.legalization],
        "price": program.manifest.get("price"),
        "warnings": list(program.warnings),
        "provenance": _collect_provenance(program, run),
    }  # fmt: skip
    doc["explanation"] = explain_mapping(program, run, doc)
    below = verdict_rows(doc) + ([] if doc["host"] is None else [["host", host_text(doc["host"])]])
    has_answers = accuracy is not None or (doc["price"] or {}).get("output_changed_percent") is not None
    if has_answers or program.network.readout is not None:
        below.append(["answers", answer_rule(program.network)])
    return {"verdict": format_verdict(doc), "verdict_rows": below, **doc}


def _pool_step_us(program: Program, run: Run) -> float | None:
    """The mean step of a pool of neurons, from their activity, on a chip that has such times."""
    cycles = find_cost(program.chip).mean_step_cycles(program, run.activity)
    return None if cycles is None else cycles * program.chip.core.cycle_ns / 1000


def _collect_accuracy(given) -> dict | None:
    if given is None:
        return None
    table = dict(given) if isinstance(given, dict) else {"chip": given}
    n_samples = table.pop("n_samples", None)
    for name in table:
        if name not in ("float", "chip"):
            raise ModelError(unknown_choice("accuracy", name, ("float", "chip")))
    parts = {name: _check_share(name, value) for name, value in table.items() if value is not None}
    if n_samples is None:
        return parts
    if not isinstance(n_samples, int) or n_samples < 1:
        raise ModelError(f"n_samples of accuracy is {n_samples!r}; give the number of samples, 1 or more")
    interval = {name: list(share_interval(part, n_samples)) for name, part in parts.items()}
    return {**parts, "n_samples": n_samples, "interval": interval}


def _check_share(name: str, value) -> float:
    try:
        part = float(value)
    except (TypeError, ValueError):
        part = nan
    if not 0 <= part <= 1:
        raise ModelError(f"accuracy of {name} is {value!r}; give the part of samples that are right, 0..1")
    return part


def _fit_row(row) -> dict:
    unit = "cores" if row.resource == "cores" else RESOURCE_OF[row.resource].unit
    return {"resource": row.resource, "unit": unit, "core": row.core, "used": row.used,
            "limit": row.limit, "percent": _percent_of(row.used, row.limit), "total_used": row.total_used,
            "total_limit": row.total_limit, "total_percent": _percent_of(row.total_used, row.total_limit)}  # fmt: skip


def _percent_of(used: int, limit: int | None) -> float | None:
    return None if limit is None else 100 * used / limit


def _collect_time(summary: Summary) -> dict | None:
    """Mean times of a hardware step and a sample; `source`: whether `step_us` is measured or the floorline's bound."""
    if summary.bound is None or summary.step_us is None:
        return None
    curves = {"measured": summary.measured_us, "bound": summary.bound_us, "predicted": summary.predicted_us}
    rows = {
        name: {"step_us": float(us.mean()), "step_us_max": float(us.max()), "sample_us": float(us.sum())}
        for name, us in curves.items()
        if us is not None
    }
    source = "measured" if "measured" in rows else "bound"
    tightness = None if summary.tightness is None else 100 * summary.tightness
    return {"source": source, **rows[source], "samples_per_second": summary.samples_per_second, "rows": rows,
            "tightness_percent": tightness, "barrier_percent": 100 * summary.bound.barrier_share,
            "links_percent": 100 * summary.bound.link_share, "sync": _collect_sync(summary)}  # fmt: skip


def collect_basis(basis: Basis | None) -> dict | None:
    """How figures are known: the basis, the keys that decide it, rows of silicon, and the words next to a figure."""
    if basis is None:
        return None
    rows = [asdict(row) for row in basis.silicon]
    return {"basis": basis.basis, "keys": list(basis.keys), "silicon": rows, "text": str(basis)}


def _collect_sync(summary: Summary) -> dict | None:
    """The cost of the barrier: the bound of a mean step with and without it; None if the chip has no choice."""
    other = summary.other_sync
    if other is None or summary.bound is None:
        return None
    bounds = {NEIGHBORS: float(summary.bound.step_us.mean()), other.sync: other.step_us}
    if other.sync == NEIGHBORS:
        bounds[BARRIER] = float(summary.bound.step_us.mean())
    with_barrier, without = bounds[BARRIER], bounds[NEIGHBORS]
    change = without / with_barrier - 1 if with_barrier else 0.0
    first, second = (format_figure(us, "us", summary.time_basis, tells_basis=False) for us in (with_barrier, without))
    text = (
        f"a mean step takes {first} or more with a barrier, and {second} ({100 * change:+.0f} %) if cores wait for "
        f'their neighbors only (cost.sync = "{NEIGHBORS}", with its tokens)'
    )
    return {"barrier_us": with_barrier, "neighbors_us": without, "text": text}


def _bottleneck(bottleneck: Bottleneck, chip: Chip) -> dict:
    link = None if bottleneck.link is None else link_name(chip, bottleneck.link)
    return {"kind": bottleneck.kind, "core": bottleneck.core, "unit": bottleneck.unit, "layer": bottleneck.layer,
            "link": link, "share_percent": 100 * bottleneck.share}  # fmt: skip


def _collect_steps(summary: Summary, chip: Chip) -> dict:
    """Lists by hardware step, means per sample; null if unknown."""
    table = {"max_synops": summary.max_synops, "measured_us": summary.measured_us, "bound_us": summary.bound_us,
             "energy_pj": summary.step_energy_pj, "power_mw": summary.step_power_mw,
             "predicted_max_synops": summary.predicted_synops, "predicted_us": summary.predicted_us}  # fmt: skip
    lists: dict[str, Any] = {name: None if a is None else a.tolist() for name, a in table.items()}
    lists["bottleneck"] = None if summary.bound is None else [_bottleneck(b, chip) for b in summary.bound.bottlenecks]
    return lists


def _collect_floorline(bound: Floorline | None) -> dict | None:
    """The lines of the floorline plot: barrier, barrier plus compute, and the time per synop."""
    if bound is None:
        return None
    us = bound.cycle_ns / 1000
    return {"barrier_us": bound.barrier_cycles * us, "floor_us": bound.floor_cycles * us,
            "us_per_synop": bound.cycles_per_synop * us}  # fmt: skip


def _collect_work(summary: Summary) -> dict | None:
    """Core cycles per mean step and sample: `cycles_per_step[event]` is a list by core; and the events of each unit."""
    if summary.bound is None:
        return None
    done = summary.bound.work
    per_step = 1 / (summary.n_steps * summary.bound.n_samples)
    cycles = {event: (by_step.sum(0) * per_step).tolist() for event, by_step in done.cycles.items()}
    units = {unit: list(events) for unit, events in done.units.items()}
    return {"cycle_us": summary.bound.cycle_ns / 1000, "units": units, "cycles_per_step": cycles}


def collect_board(board: BoardEnergy | None) -> dict | None:
    """The energy of a sample as a board measures it; None if times or all figures of power are unknown."""
    if board is None:
        return None
    parts = {key: value for key, value in asdict(board).items() if key != "basis"}
    return parts | {"static_nj": board.static_nj, "total_nj": board.total_nj, "basis": collect_basis(board.basis)}


def _collect_energy(summary: Summary, chip: Chip) -> dict | None:
    """Energy of a sample, total and by kind. The total does not include kinds that are None.

    A kind is None if the chip file has no figure for it. Static power is None if no times were measured.
    """
    if summary.energy_pj is None:
        return None
    left_out = [*kinds_without_source(chip), *(["static"] if chip.static_mw else [])]
    by_kind = dict.fromkeys((f"{kind}_pj" for kind in left_out), None)
    by_kind |= {f"{kind}_pj": pj for kind, pj in summary.energy_pj.items()}
    mean = largest = None
    if summary.step_us is not None and summary.step_power_mw is not None:
        mean = summary.energy_pj["total"] / (1000 * float(summary.step_us.sum()))
        largest = float(summary.step_power_mw.max())
    return {"sample_nj": summary.energy_pj["total"] / 1000, "pj_per_synop": summary.pj_per_synop,
            "by_kind_pj_per_sample": by_kind, "mean_mw": mean, "largest_mw": largest}  # fmt: skip


def real_time_factors(run: Run, model_dt: float | None, wall_seconds: float | None) -> dict | None:
    """Seconds that the hardware and the simulator take per second of model time; below 1 is faster than real time."""
    if model_dt is None:
        return None
    n_steps = next(iter(run.spikes.values())).shape[1] if run.totals is None else run.totals.n_steps
    if not 0 < model_dt < inf:
        raise ModelError(f"model_dt is {model_dt}; give the seconds that a step of the model stands for, above 0")
    model = model_dt * n_steps * run.n_samples
    return {"model_dt_s": model_dt, "model_s": model,
            "hardware_factor": None if run.seconds is None else run.seconds / model,
            "simulator_factor": None if wall_seconds is None else wall_seconds / model}  # fmt: skip


def _collect_multi_spike(program: Program, summary: Summary) -> dict | None:
    """The senders of several spikes per step; messages and synops per sample as sent, if binary, and one by one."""
    if summary.multi is None:
        return None
    sources = [
        {
            "source": row.name,
            "is_input": row.name in program.network.inputs,
            "several_percent": 100 * row.several,
            "negative_percent": 100 * row.negative,
            "largest": row.largest,
            "is_number": getattr(program.network.node(row.name).neuron, "sends", None) == "graded",
        }
        for row in summary.multi.senders
    ]
    doc = {
        "on_multi_spike": summary.multi.on_multi_spike,
        "payload_flits": summary.multi.payload_flits,
        "sources": sources,
    }
    for kind in ("sent", "binary", "one_by_one"):
        messages, synops = getattr(summary.multi, kind)
        doc[kind] = {"messages_per_sample": messages, "synops_per_sample": synops}
    return {**doc, "text": multi_spike_text(doc)}


def _collect_io(program: Program, summary: Summary) -> dict | None:
    """The messages through the chip's io.sites; None if it has none."""
    if program.chip.io.sites is None:
        return None
    doc = {"sites": list(program.chip.io.sites), "messages_in_per_sample": summary.events["messages_io_in"],
           "messages_out_per_sample": summary.events["messages_io_out"]}  # fmt: skip
    return {**doc, "text": io_text(doc)}


def layer_rows(program: Program, summary: Summary) -> list[dict]:
    """One row per layer: its neurons, cores and quantization, and means per step and sample."""
    quantized = {row["layer"]: row for row in program.manifest.get("quantization", [])}
    rows = []
    for row in summary.layers:
        rows.append(
            {
                "layer": row.name,
                "neurons": row.n_neurons,
                "n_cores": len(row.cores),
                "cores": list(row.cores),
                "binding_resource": row.binding,
                "binding_percent": None if row.binding_part is None else 100 * row.binding_part,
                "spikes_per_step": row.spikes,
                "synops_per_step": row.synops,
                "time_percent": None if row.time_share is None else 100 * row.time_share,
                "quantization": {k: v for k, v in quantized.get(row.name, {}).items() if k != "layer"} or None,
            }
        )
    return rows


def core_rows(program: Program, summary: Summary) -> list[dict]:
    """One row per logical core in use."""
    held: list[dict[str, int]] = [{} for _ in range(program.mapping.n_cores)]
    for name, cores in program.mapping.core_of.items():
        for core, n in enumerate(np.bincount(cores, minlength=len(held))):
            if n:
                held[core][name] = int(n)
    rows = []
    for core, (x, y, port) in enumerate(program.mapping.site_of.tolist()):
        use = {name: int(amount[core]) for name, amount in summary.core_use.items()}
        busy = None if summary.core_busy_us is None else float(summary.core_busy_us[core])
        rows.append(
            {
                "core": core,
                "x": x,
                "y": y,
                "port": port,
                "layers": held[core],
                **use,
                "synops_per_step": float(summary.core_synops[core]),
                "busy_us_per_step": busy,
                "energy_pj_per_sample": None if summary.core_pj is None else float(summary.core_pj[core]),
                "note": program.mapping.note.get(core),
            }
        )
    return rows


def link_rows(program: Program, summary: Summary) -> list[dict]:
    """One row per link that carried flits; peak and mean are the flits in the buffers at its end."""
    rows, loads = [], {load.link: load for load in summary.loads or ()}
    for i in np.flatnonzero(summary.link_flits).tolist():
        x, y, kind = link_place(program.chip, i)
        load = loads.get(i)
        more = {"peak_flits": load.peak, "mean_flits": load.mean} if load else {}
        rows.append({"link": i, "x": x, "y": y, "kind": kind, "flits_per_step": float(summary.link_flits[i]), **more})
    return rows


def _collect_crosscheck(crosscheck) -> dict:
    first = None if crosscheck.first_difference is None else str(crosscheck.first_difference)
    return {"agree": crosscheck.agree, "backends": list(crosscheck.backends), "n_samples": crosscheck.n_samples,
            "n_compared": crosscheck.n_compared, "first_difference": first, "text": str(crosscheck)}  # fmt: skip


def _collect_provenance(program: Program, run: Run) -> dict:
    shown_apart = ("quantization", "legalization", "price", "warnings", "tried_cores", "fewest_cores")
    known = {k: v for k, v in program.manifest.items() if k not in shown_apart}
    return {"reported_by": f"nwcompile {__version__}", **known, "backend": run.backend, "device": run.device,
            "chip": program.chip.name, "chip_hash": program.chip.hash, "network_hash": program.network.hash,
            "program_hash": program.hash}  # fmt: skip


def collect_by_step(run: Run, summary: Summary) -> dict:
    """Integer sums over the samples: `cores[figure]` and `flits` are lists by core or link, each a list by step.

    They are in the order of `cores` and `links` of report.json. `busy_cycles` is the work of each core's busiest unit
    in core cycles, absent on a chip without times. The first `n_steps` steps are included; `left_out` says why the
    others are not, and `missing` says how to get steps if there are none.
    """
    empty = {"n_steps": 0, "cores": {}, "flits": [], "left_out": None, "missing": None}
    if run.backend == "prediction" and run.activity is not None:
        counts = {n for sent in run.activity.counts.values() for n in np.unique(sent).tolist()}
        if len(counts) == 1:  # All neurons send equally in all steps, the assumption without calibration.
            return empty | {"missing": ALIKE}
    if summary.n_steps < 2:
        return empty | {"missing": "The run has one hardware step; simulate more of them to see how they differ."}
    tables = {name: run.counters[name] for name in COUNTERS}
    if summary.bound is not None:
        tables = {"busy_cycles": summary.bound.work.busy.max(0), **tables}
    flits = summary.step_flits[:, summary.link_flits > 0]
    n_values = sum(table.shape[1] for table in tables.values()) + flits.shape[1]
    n_steps = min(summary.n_steps, max(MOST_VALUES // n_values, 1))
    left_out = None
    if n_steps < summary.n_steps:
        left_out = (
            f"Steps {n_steps} to {summary.n_steps - 1} are left out: {n_values} values per step are many; "
            "nwcompile simulate -o OUT.npz writes them all."
        )
    cores = {name: table[:n_steps].T.tolist() for name, table in tables.items()}
    return empty | {"n_steps": n_steps, "cores": cores, "flits": flits[:n_steps].T.tolist(), "left_out": left_out}
