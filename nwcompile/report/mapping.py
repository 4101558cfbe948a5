"""Explain a mapping: what binds, which numbers of cores were tried, what the next-best costs, how far the bound is."""

from dataclasses import asdict
from typing import Any

from nwcompile.cost.least import find_lower_bounds
from nwcompile.ir.options import CORES_RULE, weighs_cores
from nwcompile.ir.program import Program
from nwcompile.ir.resources import RESOURCE_OF
from nwcompile.ir.run import Run
from nwcompile.ir.shown import count_text
from nwcompile.report.text import bottleneck_text, figure_text, percent

RULES = {
    "time": "the fewest cores that hold the network, as the chip has no times per core",
    "energy": "the number of cores with the least energy",
    "edp": "the number of cores with the least energy x time",
    "cores": "the fewest cores that hold the network",
    "traffic": "the fewest cores that hold the network, then the least traffic",
}
NO_TIMES = "no lower bound: the chip has no times per core"
NO_BOUND = "no lower bound is known where some cores are faster than others, neurons share axons, or neurons are copied"


def explain_mapping(program: Program, run: Run, doc: dict) -> dict[str, Any]:
    """Explain why the mapping of a run's program looks as it does; `doc`: the other parts of report.json.

    `tried_cores`: as in the manifest. `least`: lower bounds over all mappings on as many cores (`same_cores`) and on
    any number (`any_cores`), each as `cost/least.py:Least`. `rows`: pairs of a keyword and its text.
    """
    options, tried = program.manifest.get("options", {}), _read_tried(program.manifest)
    n_cores = program.mapping.n_cores
    least = {
        "same_cores": asdict(find_lower_bounds(program, run, n_cores)),
        "any_cores": asdict(find_lower_bounds(program, run)),
    }
    rows = [
        ["binds", _binding_text(doc)],
        ["tried", _tried_text(doc, tried, options)],
        ["chosen", f"{count_text(n_cores, 'core')}: {_rule_text(options, tried, doc)}"],
        ["next best", _next_best_text(doc, tried, n_cores, options)],
        ["bound", _bound_text(doc, least, n_cores)],
    ]
    return {"tried_cores": tried, "least": least, "rows": rows}


def _read_tried(manifest: dict) -> list[dict]:
    """Return the numbers of cores that were tried; programs of older versions have the fewest cores only."""
    fewest = manifest.get("fewest_cores")
    old = [] if fewest is None else [{**fewest, "fits": True, "objective": fewest["step_us"]}]
    return manifest.get("tried_cores", old)


def _binding_text(doc: dict) -> str:
    """Name what takes most of the time, and the fullest resource of a core or of the chip."""
    parts, bottleneck = [], doc["bottleneck"]
    if bottleneck is not None:
        parts.append(f"time: {bottleneck_text(bottleneck)}, {percent(bottleneck['share_percent'])} of a mean step")
    fullest = max((row for row in doc["fit"] if row["percent"] is not None), key=lambda row: row["percent"])
    name = "cores of the chip"
    if fullest["core"] is not None:
        name = f"{RESOURCE_OF[fullest['resource']].name} of core {fullest['core']}"
    parts.append(f"space: {name}, {percent(fullest['percent'])} in use")
    return "; ".join(parts)


def _tried_text(doc: dict, tried: list[dict], options: dict) -> str:
    if not tried:
        return f"no other number of cores: the mapping is given, or comes from partitioner {_method(options)}"
    texts = []
    for row in sorted(tried, key=lambda row: row["n_cores"]):
        us = "" if row["step_us"] is None else f" ({figure_text(doc, row['step_us'], 'us')})"
        texts.append(f"{row['n_cores']}{us if row['fits'] else ' (too few)'}")
    what = "cores" if tried[0]["step_us"] is None else "cores (time per step)"
    return f"{what}: {', '.join(texts)}; by short searches, with the spikes of the calibration"


def _method(options: dict) -> str:
    return repr(options.get("partitioner", "unknown"))


def _rule_text(options: dict, tried: list[dict], doc: dict) -> str:
    if options.get("n_cores") is not None:
        return f"as n_cores={options['n_cores']} asks"
    if options.get("step_limit_us") is not None:
        return f"few cores that keep step_limit_us={options['step_limit_us']}"
    if options.get("partitioner") not in ("floorline", "coarse"):
        return f"as partitioner {_method(options)} cuts the network"
    if not tried:
        return "as given, or as the limits of the chip require"
    if weighs_cores(options) and doc["time"] is not None:
        return CORES_RULE
    return RULES.get(str(options.get("optimize")), "by an objective that this version does not know")


def _next_best_text(doc: dict, tried: list[dict], n_cores: int, options: dict) -> str:
    """Compare the best other number of cores with the chosen one, as the same short searches saw both."""
    limit = options.get("step_limit_us")
    others = [row for row in tried if row["fits"] and row["n_cores"] != n_cores]
    others = others if limit is None else [row for row in others if row["step_us"] <= limit]
    if not others:
        kept = "" if limit is None else " and keeps the limit"
        return f"unknown: no other number of cores was tried that holds the network{kept}"
    is_weighed = options.get("optimize") not in ("cores", "traffic")
    row = min(others, key=lambda row: row["objective"] if is_weighed else abs(row["n_cores"] - n_cores))
    chosen = next((row for row in tried if row["n_cores"] == n_cores), None)
    text = count_text(row["n_cores"], "core")
    if row["step_us"] is not None:
        text += f" at {figure_text(doc, row['step_us'], 'us')} per step"
        text += f" ({_change_text(row['step_us'], chosen['step_us'])})" if chosen and chosen["step_us"] else ""
        if is_weighed and chosen and chosen["objective"]:
            priced = ", with a price for messages" if options.get("optimize") == "time" else ""
            text += f"; {_change_text(row['objective'], chosen['objective'])} by this rule{priced}"
    return text


def _change_text(to: float, of: float) -> str:
    return f"{100 * (to / of - 1):+.1f} %"


def _bound_text(doc: dict, least: dict, n_cores: int) -> str:
    same, any_number, time = least["same_cores"]["step_us"], least["any_cores"]["step_us"], doc["time"]
    if not same or time is None:
        return NO_TIMES if time is None else NO_BOUND
    times, cores = time["step_us"] / same, count_text(n_cores, "core")
    us, any_us = figure_text(doc, same, "us"), figure_text(doc, any_number, "us")
    on_cores = f"at least {us} per step on {cores}, whatever the mapping (this one takes {times:.2f} times that)"
    return f"{on_cores}; at least {any_us} on any number; with the spikes of this run"
