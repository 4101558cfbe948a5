"""Whole runs: samples on any Machine, with a checkpoint in groups of samples and parts of their steps."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nwcompile.checkpoint import Pace, Steps, has_checkpoint, hash_values, in_parts
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.sim.machine import Machine, Rows, align_rows, build_activity, count_samples, empty_rows
from nwcompile.sim.reference.synaptic_sums import order_dependent
from nwcompile.sim.values import verify_counts, verify_totals

MOST_GROUPS = 256  # Groups of samples of a checkpoint; each has its own file.
LEAST_SAMPLES = 64  # Samples per group of a checkpoint, so that every core of the machine has work.


def run_machine(machine: Machine, inputs: dict[str, np.ndarray], n_steps: int) -> Run:
    """Simulate whole samples, and store them in the checkpoint if there is one. For `inputs` see `Machine.advance`."""
    rows = record_rows(machine, inputs, n_steps, has_checkpoint())
    made_by = {"backend": machine.backend, "device": machine.device, "window": machine.window}
    return build_run(machine.model, inputs, rows, machine.measure, **made_by)


def record_rows(machine: Machine, inputs: dict[str, np.ndarray], n_steps: int, is_stored: bool = False) -> Rows:
    """Simulate whole samples; return aligned spikes and states [B, T, *shape], and the counts of all rows.

    `is_stored`: the checkpoint stores them, some steps at a time.
    """
    network = machine.model.network if isinstance(machine.model, Program) else machine.model
    n_samples = count_samples(inputs)
    groups = groups_of_samples(n_samples, machine.samples_at_once(n_samples), is_stored)
    if len(groups) == 1 and not is_stored:
        done = machine.advance(machine.start(n_samples), inputs, slice(0, machine.n_rows), n_steps)
        return _align_rows(network, done, machine.late, n_steps)
    record = empty_rows(network, machine.recorded, n_samples, n_steps, machine.empty_counts(machine.n_rows))
    pace = Pace(machine.least_rows) if is_stored else None
    for some in groups:
        spikes = {name: a[some] for name, a in record.spikes.items()}
        states = {name: {state: a[some] for state, a in of.items()} for name, of in record.states.items()}
        group = Rows(spikes, states, machine.empty_counts(machine.n_rows))
        _run_group(machine, some, {name: x[some] for name, x in inputs.items()}, group, n_steps, pace)
        for name, total in record.counts.items():
            (np.maximum if name == "peaks" else np.add)(total, group.counts[name], out=total)
    return record


def _align_rows(network: Network, rows: Rows, late: dict[str, range], n_steps: int) -> Rows:
    """Return the aligned steps of all rows of a run, without a copy if they have the right type and none is late.

    The arrays of `rows` are replaced one after the other, so that only one of them is in memory twice.
    """
    for name, a in rows.spikes.items():
        rows.spikes[name] = align_rows(a, late[name], n_steps, network.node(name).neuron.spike_dtype)
    for name, states in rows.states.items():
        for state, a in states.items():
            states[state] = align_rows(a, late[name], n_steps, a.dtype)
    return rows


def _run_group(machine: Machine, some: slice, inputs: dict, record: Rows, n_steps: int, pace: Pace | None) -> None:
    """Simulate some samples, and write their rows into `record`; with a `pace` the checkpoint stores them."""
    state = machine.start(some.stop - some.start, some.start)
    recorded = record.by_row(machine.late)

    def run_steps(steps: slice) -> None:
        done = machine.advance(state, {name: x[:, steps] for name, x in inputs.items()}, steps, n_steps)
        for name, (rows, late) in done.by_row(machine.late).items():
            here, first = recorded[name].select_rows(steps), max(late - steps.start, 0)
            here[...] = rows[first : first + len(here)]

    def identify() -> list:
        model = machine.model.hash if isinstance(machine.model, Network) else program_digest(machine.model)
        return [model, n_steps, machine.window, machine.recorded, inputs]

    if pace is None:
        run_steps(slice(0, machine.n_rows))
    else:
        in_parts(machine.backend, identify, Steps(machine.n_rows, run_steps, recorded, lambda: state.arrays), pace)


def groups_of_samples(n_samples: int, largest: int, is_stored: bool) -> list[slice]:
    """Split the samples into groups of at most `largest`; into more groups if the checkpoint stores each."""
    size = min(max(LEAST_SAMPLES, -(-n_samples // MOST_GROUPS)), largest) if is_stored else largest
    return [slice(first, min(first + size, n_samples)) for first in range(0, n_samples, size)]


def program_digest(program: Program) -> str:
    """Return the SHA-256 of everything in a program that its results depend on."""
    mapping, axons = program.mapping, program.axons
    return hash_values(
        [
            [program.network.hash, program.chip.hash, repr(program.schedule), program.on_multi_spike],
            [mapping.core_of, mapping.site_of, mapping.visit],
            [axons.offset, axons.core, axons.synops, axons.words, axons.row_bits, axons.kernel_bits],
        ]
    )


def build_run(
    model: Network | Program, inputs: dict, rows: Rows, measure: Callable[..., dict[str, Any]], **made_by
) -> Run:
    """Build a Run with its output (`output_of`). `made_by`: its backend, device and window.

    Raises ModelError if neurons fire more spikes at once than the program's messages can carry, or than a count holds.
    """
    network = model.network if isinstance(model, Program) else model
    if isinstance(model, Program):
        verify_counts(network, model.chip, model.on_multi_spike, rows.spikes)
    verify_totals(rows.spikes)
    fields = measure(inputs, rows, made_by["window"])
    if "activity" not in fields:
        fields["activity"] = build_activity(model, inputs, rows.spikes)
    return Run(
        n_samples=count_samples(rows.spikes),
        spikes=rows.spikes,
        states=rows.states,
        output=output_of(network, rows.spikes, rows.states),
        order_dependent=order_dependent(model, made_by["window"], inputs, rows.spikes),
        readout=network.readout,
        **made_by,
        **fields,
    )


def output_of(network: Network, spikes: dict, states: dict) -> np.ndarray | dict[str, np.ndarray]:
    """Return the spikes of the output layer, or its membrane if it never fires; a dict by name for several outputs."""
    neurons = {name: network.node(name).neuron for name in network.outputs}
    outputs = {n: spikes[n] if neuron.fires else states[n][neuron.readout] for n, neuron in neurons.items()}
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs
