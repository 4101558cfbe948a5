"""`nwcompile show MODEL [--core N]`: show the cores of a program, or of a model compiled for a chip."""

from argparse import Namespace

import numpy as np

from nwcompile.cli.compile import program_for
from nwcompile.cli.inputs.load import check_usage
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json, core_rows, cores_text, format_ranges, format_table, site_text
from nwcompile.ir.noc.routing import count_hops
from nwcompile.ir.program import Program
from nwcompile.ir.resources import RESOURCE_OF, RESOURCES

REGISTERS = ("threshold", "decay_u", "decay_v", "bias", "bias_u", "refractory", "reset_value", "v_min")
MODES = ("reset", "reset_timing", "strict", "spikes", "fires")


def run(args: Namespace) -> int:
    check_usage(args)
    program = program_for(args)
    if args.json:
        print(as_json(core_rows(program) if args.core is None else describe_core(program, args.core)))
    elif args.core is None:
        print_text(f"{cores_text(program)}\n\nnwcompile show PROGRAM --core N shows one core")
    else:
        print_text(_core_text(describe_core(program, args.core)))
    return 0


def describe_core(program: Program, c: int) -> dict:
    """Describe one core: neurons, used resources and limits, axons, registers."""
    slices = program.mapping.who(c)
    row = core_rows(program)[c]
    chip, physical = program.chip, program.chip.site_index(program.mapping.site_of[c : c + 1])[0]
    limits = {r.key: chip.limit(r.limit_key) for r in RESOURCES}
    return {
        "core": c,
        "site": row["site"],
        "note": row["note"],
        "neurons": {layer: neurons.tolist() for layer, neurons in slices.items()},
        "used": {r.key: row[r.key] for r in RESOURCES},
        "limit": {name: None if limit is None else int(limit[physical]) for name, limit in limits.items()},
        "in_axons": _in_axons(program, c),
        "out_axons": _out_axons(program, c),
        "registers": {layer: _read_registers(program, layer, neurons) for layer, neurons in slices.items()},
    }


def _in_axons(program: Program, c: int) -> list[dict]:
    """Fan-in axons by source, an input or a layer."""
    axons, here = program.axons, program.axons.core == c
    rows = []
    for name, first in program.network.offsets.items():
        mine = here & (axons.source >= first) & (axons.source < first + program.network.node(name).n_neurons)
        if mine.any():
            row = {"source": name, "axons": int(mine.sum()), "synapses": int(axons.synops[mine].sum())}
            rows.append({**row, "synapse_bits": int(axons.row_bits[mine].sum()), "words": int(axons.words[mine].sum())})
    return rows


def _out_axons(program: Program, c: int) -> list[dict]:
    """Fan-out axons by target core."""
    leaving = program.core_of[program.axons.source] == c
    targets, n_axons = np.unique(program.axons.core[leaving], return_counts=True)
    sites = program.mapping.site_of
    router = program.chip.site_index(sites) // program.chip.noc.cores_per_router
    n_hops = count_hops(program.chip.grid, router[c], router[targets]).sum(1)
    return [
        {"core": int(t), "site": sites[t].tolist(), "axons": int(n), "hops": int(h)}
        for t, n, h in zip(targets, n_axons, n_hops, strict=True)
    ]


def _read_registers(program: Program, layer: str, neurons: np.ndarray) -> dict:
    """The registers of one slice: one value, or [least, largest] if neurons differ."""
    node, chip = program.network.node(layer), program.chip
    if layer in program.network.programs:
        numbers = {n: node.neuron.array(n, node.shape).reshape(-1)[neurons] for n in node.neuron.parameters}
        return {"program": node.neuron.name, **{name: _value_or_range(of) for name, of in numbers.items()}}
    values: dict = {name: getattr(node.neuron, name) for name in MODES}
    for name in REGISTERS:
        if getattr(node.neuron, name) is None:
            continue
        of = node.neuron.array(name, node.shape).reshape(-1)[neurons]
        if name == "threshold":
            name, of = f"threshold >> {chip.neuron.threshold_shift_bits}", of >> chip.neuron.threshold_shift_bits
        if name == "decay_u":
            of = of - chip.state.decay_offset
        values[name] = _value_or_range(of)
    return values


def _value_or_range(values: np.ndarray) -> int | list[int]:
    """One value, or [least, largest] if values differ."""
    low, high = int(values.min()), int(values.max())
    return low if low == high else [low, high]


def _core_text(value: dict) -> str:
    parts = [f"core {value['core']} at {site_text(value['site'])}" + (f": {value['note']}" if value["note"] else "")]
    rows: list = [(layer, len(neurons), format_ranges(neurons)) for layer, neurons in value["neurons"].items()]
    parts.append(format_table(("layer", "neurons", "flat indices"), rows))
    rows = []
    for name, used in value["used"].items():
        limit = value["limit"][name]
        rows.append((RESOURCE_OF[name].name, used, limit or "none", f"{100 * used / limit:.1f} %" if limit else ""))
    parts.append(format_table(("resource", "used", "limit", ""), rows))
    for key, first in (("in_axons", "from"), ("out_axons", "to core")):
        title = RESOURCE_OF[key].name
        rows = [[site_text(v) if k == "site" else v for k, v in row.items()] for row in value[key]]
        header = (f"{title} {first}", *list(value[key][0])[1:]) if rows else ()
        parts.append(format_table(header, rows) if rows else f"{title}: none")
    for layer, registers in value["registers"].items():
        rows = [(name, " .. ".join(map(str, v)) if isinstance(v, list) else v) for name, v in registers.items()]
        parts.append(format_table((f"register of {layer}", "value"), rows))
    return "\n\n".join(parts)
