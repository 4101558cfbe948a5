"""Fit: what is to lie on the chip, and how often it sends."""

from dataclasses import replace

from nwcompile.ir.activity import Activity
from nwcompile.ir.host import on_chip, registers_of
from nwcompile.passes.partition.merge_axons import merge_axons
from nwcompile.passes.quantize.table import complete_table
from nwcompile.passes.stages.draft import Draft, Missing, Stage
from nwcompile.sim.sequence.run import record
from nwcompile.sim.values import verify_counts


def calibrate(draft: Draft) -> Draft:
    """Count how often each neuron sends in the samples, and take the registers of the host out of the network."""
    fixed = on_chip(draft.network)
    activity = _activity(draft).without({*draft.network.inputs} - {*fixed.inputs})
    return replace(
        draft,
        network=fixed,
        timing=draft.timing.on_chip(draft.network),
        activity=activity,
        registers={**registers_of(draft.input.host), **draft.registers},
        table=complete_table(draft.table, draft.network, draft.chip),
        changes=[*draft.changes, *draft.lasting],
        samples=None,  # no later stage reads them
        normal=Missing(),
        legal=Missing(),
    )


def _activity(draft: Draft) -> Activity:
    """How often each neuron of the network in integers spikes on the samples, or an even guess without any."""
    if draft.samples is None:
        return Activity.uniform(draft.network)
    way = draft.options.on_multi_spike
    activity, spikes = record(draft.network, draft.samples, repeats=way == "repeat")
    verify_counts(draft.network, draft.chip, way, spikes)
    return activity


def merge(draft: Draft) -> Draft:
    """Let neurons share axons where the chip's axons join what comes."""
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


STAGES = (Stage("calibrate", calibrate), Stage("merge", merge))
