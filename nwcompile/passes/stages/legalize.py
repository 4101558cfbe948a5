"""Legalize: rewrite the network for the chip's neurons, and schedule its layers."""

from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.ir.host import drop_registers
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.check import estimate
from nwcompile.passes.fit.relay_delays import count_relays
from nwcompile.passes.fit.split_fan_in import split_fan_in
from nwcompile.passes.legalize.idle_clamps import idle_clamps
from nwcompile.passes.legalize.legalize import legalize
from nwcompile.passes.partition.suggest_fit import smallest_change
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.passes.quantize.approximate.advice import suggest_items
from nwcompile.passes.quantize.approximate.nearest import nearest_network
from nwcompile.passes.quantize.sums.send_maxima import send_maxima
from nwcompile.passes.stages.draft import Advice, Draft, Stage, keep_violations


def rewrite_neurons(draft: Draft) -> Draft:
    """Rewrite features that the chip's neurons lack."""
    network = replace(draft.network, readout=draft.given.readout)
    legal, changes, notes, compared = legalize(network, draft.chip, draft.options, draft.may_compare)
    legal, sent = send_maxima(legal, draft.chip, draft.options, compared) if draft.may_compare else (legal, [])
    return replace(
        draft,
        network=legal,
        legal=legal,
        changes=[*draft.changes, *changes, *sent],
        notes=[*draft.notes, *notes],
        compared=compared,
    )


def check_totals(draft: Draft) -> Draft:
    """Check that the network's totals fit. Raises FitError.

    Approximations, removed clamps and split sums of later stages are predicted from the float network.
    """
    chip, options = draft.chip, draft.options
    network, _ = nearest_network(draft.legal, chip, options)
    network, _ = idle_clamps(network, chip, options)
    network, _ = split_fan_in(network, chip, options)
    estimate(drop_registers(network), chip, options.on_multi_spike)
    return replace(draft, passed=(*draft.passed, "estimate"))


def advise_on_totals(draft: Draft, error: FitError) -> Advice:
    """Advise approximations, or else a change of the chip or the mapping, with which the totals would fit."""

    def check(options: Options) -> None:
        check_totals(rewrite_neurons(replace(draft, network=draft.normal, options=options)))

    change = suggest_items(drop_registers(draft.legal), draft.chip, draft.options, check)
    if change is None:
        whole, _ = split_fan_in(draft.legal, draft.chip, draft.options)
        change = smallest_change(drop_registers(whole), draft.chip, error, draft.options)
    return Advice(error.violations, change)


def time_layers(draft: Draft) -> Draft:
    """Choose the steps in which layers are updated. Raises FitError if relay neurons for long delays do not fit."""
    timing = schedule(draft.legal, draft.options.execution)
    if draft.given_mapping is None:
        count_relays(draft.legal, timing, draft.chip, draft.options)
    return replace(draft, timing=timing)


STAGES = (
    Stage("legalize", rewrite_neurons),
    Stage("estimate", check_totals, advise_on_totals),
    Stage("schedule", time_layers, keep_violations),
)
