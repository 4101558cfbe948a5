"""Host: the work of a program's host, in the report and in the verdict."""

import numpy as np

from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.ir.shown import grouped
from nwcompile.report.text import percent


def collect_host(program: Program, run: Run, synops_per_sample: float) -> dict | None:
    """The work of the host per step and the share of the chip; None if the chip receives samples unchanged.

    `macs_per_step`: multiplications with weights for one step of one sample, simulated or not. `macs_once`: whether the
    run did them once per sample, for static input. `writes_per_step`: registers written in a step, known only for a
    run. `messages_per_step`: messages from outside to the cores. The chip's share of synops counts the host's
    multiplications of every step in the total. `lands`: whether a spiking layer is on the chip.
    """
    host = program.host
    if host is None:
        return None
    activity, work = run.activity, run.host
    n_steps = run.totals.n_steps if run.totals is not None else activity.n_steps if activity is not None else 1
    n_outer = run.n_samples * n_steps
    on_chip = [program.network.node(name) for name in program.network.layers]
    n_neurons = sum(node.n_neurons for node in on_chip)
    all_synops = synops_per_sample + host.macs * n_steps
    doc = {
        "way": host.way,
        "layers": list(host.layers),
        "macs_per_step": host.macs,
        "macs_once": None if work is None else work.n_macs < host.macs * n_outer,
        "writes_per_step": None if work is None else work.n_writes / n_outer,
        "messages_per_step": None if activity is None else _n_messages(program, run) / (activity.n_samples * n_steps),
        "clipped": None if work is None else work.n_clipped,
        "neurons_on_chip_percent": 100 * n_neurons / (n_neurons + host.n_neurons),
        "synops_on_chip_percent": 100 * synops_per_sample / all_synops if all_synops else 100.0,
        "lands": any(node.neuron.fires for node in on_chip),
        "text": host.summary,
    }
    return doc


def _n_messages(program: Program, run: Run) -> int:
    """The number of messages from input lines to cores, over all steps and samples."""
    assert run.activity is not None, "the caller checks it"
    n_axons = np.diff(program.axons.offset)
    total = 0
    for name, node in program.network.inputs.items():
        first = program.network.offsets[name]
        total += int(run.activity.counts[name].sum(0, dtype=np.int64) @ n_axons[first : first + node.n_neurons])
    return total


def host_text(host: dict) -> str:
    """Format the host's work for the verdict."""
    once = ", done once per sample" if host["macs_once"] else ""
    parts = [f"{grouped(host['macs_per_step'])} MACs per step{once}"]
    if host["writes_per_step"]:
        parts.append(f"{grouped(host['writes_per_step'])} registers written per step")
    if host["messages_per_step"]:
        parts.append(f"{grouped(host['messages_per_step'])} messages sent per step")
    neurons, synops = percent(host["neurons_on_chip_percent"]), percent(host["synops_on_chip_percent"])
    text = f"host ({host['way']}): {', '.join(parts)}; on the chip {neurons} of the neurons, {synops} of the synops"
    return text if host["lands"] else f"{text}; every spiking layer is on the host, so the network has not landed"


def host_lines(host: dict | None) -> list[str]:
    """Lines about the host for the terminal."""
    if host is None:
        return []
    lines = [f"input: {host['text']}"]
    if host["clipped"]:
        lines.append(f"input: {grouped(host['clipped'])} numbers were beyond what the chip holds and were clipped")
    return lines
