"""Legalize: the network as the chip's neurons can have it, and when its layers work."""

from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.ir.host import on_chip
from nwcompile.passes.fit.check import estimate
from nwcompile.passes.legalize.advice import approximations
from nwcompile.passes.legalize.legalize import expected, legalize
from nwcompile.passes.legalize.relay_delays import has_late, relay_delays
from nwcompile.passes.legalize.sums.split_fan_in import has_wide, with_parts
from nwcompile.passes.partition.suggest_fit import smallest_change
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.passes.stages.draft import Advice, Draft, Stage, as_it_is


def rewrite(draft: Draft) -> Draft:
    """Rewrite what the chip's neurons cannot do into what they can."""
    legal, changes, notes, compared = legalize(draft.network, draft.chip, draft.options, draft.may_compare)
    return replace(
        draft,
        network=legal,
        legal=legal,
        changes=[*draft.changes, *changes],
        notes=[*draft.notes, *notes],
        compared=compared,
    )


def check_totals(draft: Draft) -> Draft:
    """Check that the network fits as far as its totals show. Raises FitError."""
    whole = on_chip(expected(draft.legal, draft.chip, draft.options))
    estimate(whole, draft.chip, draft.options.on_multi_spike)
    return replace(draft, passed=(*draft.passed, "estimate"))


def advise_on_totals(draft: Draft, error: FitError) -> Advice:
    """The approximations, or else the change of the chip or the mapping, with which the totals would fit."""
    change = approximations(on_chip(draft.legal), draft.chip, draft.options)
    if change is None:
        whole = on_chip(with_parts(draft.legal, draft.chip, draft.options))
        change = smallest_change(whole, draft.chip, error, draft.options)
    return Advice(error.violations, change)


def time_layers(draft: Draft) -> Draft:
    """Choose the steps in which layers work."""
    return replace(draft, timing=schedule(draft.legal, draft.options.execution))


def relay(draft: Draft) -> Draft:
    """Put relay neurons where spikes are delayed longer than the chip can. Raises FitError where they have no room.

    Where sums are sent later, which takes steps, it is done then (`relay_sums`).
    """
    if draft.given_mapping is not None or sends_sums(draft) or not has_late(draft.legal, draft.timing, draft.chip):
        return draft
    legal, timing, changes = relay_delays(draft.legal, draft.timing, draft.chip, draft.options)
    return replace(draft, network=legal, legal=legal, timing=timing, changes=[*draft.changes, *changes])


def sends_sums(draft: Draft) -> bool:
    """Whether neurons will send sums: currents to be compared, or parts of a wide fan-in."""
    return bool(draft.compared) or has_wide(draft.legal, draft.chip, draft.options)


STAGES = (
    Stage("legalize", rewrite),
    Stage("estimate", check_totals, advise_on_totals),
    Stage("schedule", time_layers),
    Stage("delays", relay, as_it_is),
)
