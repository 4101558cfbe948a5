"""Fit: fan-ins, delays and axons as the chip can hold them; what is to lie on the chip, and how often it sends."""

from dataclasses import replace
from functools import partial

from nwcompile.ir.activity import Activity
from nwcompile.ir.host import drop_registers, find_scaled_registers
from nwcompile.passes.fit.merge_axons import merge_axons
from nwcompile.passes.fit.relay_delays import has_late, relay_delays
from nwcompile.passes.fit.split_fan_in import split_fan_in
from nwcompile.passes.quantize.table import complete_table
from nwcompile.passes.stages.draft import Draft, Missing, Stage, as_it_is
from nwcompile.passes.stages.quantize import advise_on_messages, send_sums
from nwcompile.sim.sequence.run import record
from nwcompile.sim.values import verify_counts


def split(draft: Draft) -> Draft:
    """Split neurons that read more than a core can, into neurons that send parts of their sums. Raises FitError."""
    network, changes = split_fan_in(draft.network, draft.chip, draft.options)
    return draft if network is draft.network else send_sums(draft, network, changes)


def relay(draft: Draft) -> Draft:
    """Put relay neurons where spikes are delayed longer than the chip can. Raises FitError where they have no room."""
    if draft.given_mapping is not None or not has_late(draft.network, draft.timing, draft.chip):
        return draft
    network, timing, changes = relay_delays(draft.network, draft.timing, draft.chip, draft.options)
    return replace(draft, network=network, timing=timing, changes=[*draft.changes, *changes])


def calibrate(draft: Draft) -> Draft:
    """Count how often each neuron sends in the samples, and take the registers of the host out of the network."""
    fixed = drop_registers(draft.network)
    activity = _activity(draft).drop_nodes({*draft.network.inputs} - {*fixed.inputs})
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


STAGES = (
    Stage("split", split, partial(advise_on_messages, split)),
    Stage("delays", relay, as_it_is),
    Stage("calibrate", calibrate),
    Stage("merge", merge),
)
