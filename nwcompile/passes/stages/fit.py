"""Fit: rewrite fan-ins, delays and axons that the chip cannot hold, and measure how often each neuron sends."""

from dataclasses import replace
from functools import partial

from nwcompile.ir.activity import Activity
from nwcompile.ir.host import drop_registers, find_scaled_registers
from nwcompile.passes.fit.merge_axons import merge_axons
from nwcompile.passes.fit.relay_delays import has_late, relay_delays
from nwcompile.passes.fit.split_fan_in import split_fan_in
from nwcompile.passes.quantize.table import complete_table
from nwcompile.passes.stages.draft import Draft, Missing, Stage, keep_violations
from nwcompile.passes.stages.quantize import advise_on_messages, send_sums
from nwcompile.sim.sequence.run import record_activity
from nwcompile.sim.values import verify_counts


def split_neurons(draft: Draft) -> Draft:
    """Split neurons with more fan-in than a core holds into neurons that send partial sums. Raises FitError."""
    network, changes = split_fan_in(draft.network, draft.chip, draft.options)
    return draft if network is draft.network else send_sums(draft, network, changes)


def insert_relays(draft: Draft) -> Draft:
    """Insert relay neurons for delays longer than the chip supports. Raises FitError if the relays do not fit."""
    if draft.given_mapping is not None or not has_late(draft.network, draft.timing, draft.chip):
        return draft
    network, timing, changes = relay_delays(draft.network, draft.timing, draft.chip, draft.options)
    return replace(draft, network=network, timing=timing, changes=[*draft.changes, *changes])


def calibrate(draft: Draft) -> Draft:
    """Count how often each neuron sends on the samples, and remove the registers of the host from the network."""
    fixed = drop_registers(draft.network)
    activity = _measure_activity(draft).drop_nodes({*draft.network.inputs} - {*fixed.inputs})
    return replace(
        draft,
        network=fixed,
        timing=draft.timing.drop_registers(draft.network),
        activity=activity,
        registers={**find_scaled_registers(draft.input.host), **draft.registers},
        table=complete_table(draft.table, draft.network, draft.chip),
        changes=[*draft.changes, *draft.lasting],
        samples=None,  # no later stage reads them
        normal=Missing(),
        legal=Missing(),
    )


def _measure_activity(draft: Draft) -> Activity:
    """Measure how often each neuron of the integer network spikes; uniform without samples."""
    if draft.samples is None:
        return Activity.uniform(draft.network)
    way = draft.options.on_multi_spike
    activity, spikes = record_activity(draft.network, draft.samples, repeats=way == "repeat")
    verify_counts(draft.network, draft.chip, way, spikes)
    return activity


def share_axons(draft: Draft) -> Draft:
    """Let neurons share axons if the chip's axons combine their inputs."""
    merged = merge_axons(draft.network, draft.timing, draft.chip, draft.activity, draft.given_mapping)
    if not merged.changes:
        return draft
    return replace(
        draft,
        network=merged.network,
        timing=merged.timing,
        activity=merged.activity,
        changes=[*draft.changes, *merged.changes],
        table=[row for row in draft.table if row["layer"] not in merged.gone],
    )


STAGES = (
    Stage("split", split_neurons, partial(advise_on_messages, split_neurons)),
    Stage("delays", insert_relays, keep_violations),
    Stage("calibrate", calibrate),
    Stage("merge", share_axons),
)
