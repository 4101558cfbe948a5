"""Legalize: the network as the chip's neurons can have it, and when its layers work."""

from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.ir.host import on_chip
from nwcompile.passes.compilation import Advice, Compilation, Stage, as_it_is
from nwcompile.passes.fit.check import estimate
from nwcompile.passes.legalize.advice import approximations
from nwcompile.passes.legalize.legalize import expected, legalize
from nwcompile.passes.legalize.relay_delays import has_late, relay_delays
from nwcompile.passes.legalize.sums.split_fan_in import has_wide, with_parts
from nwcompile.passes.partition.suggest_fit import smallest_change
from nwcompile.passes.prepare.schedule import schedule


def rewrite(c: Compilation) -> Compilation:
    """Rewrite what the chip's neurons cannot do into what they can."""
    legal, changes, notes, compared = legalize(c.network, c.chip, c.options)
    return replace(
        c, network=legal, legal=legal, changes=[*c.changes, *changes], notes=[*c.notes, *notes], compared=compared
    )


def check_totals(c: Compilation) -> Compilation:
    """Check that the network fits as far as its totals show. Raises FitError."""
    estimate(on_chip(expected(c.legal, c.chip, c.options)), c.chip, c.options.on_multi_spike)
    return replace(c, passed=(*c.passed, "estimate"))


def advise_on_totals(c: Compilation, error: FitError) -> Advice:
    """The approximations, or else the change of the chip or the mapping, with which the totals would fit."""
    change = approximations(on_chip(c.legal), c.chip, c.options)
    change = change or smallest_change(on_chip(with_parts(c.legal, c.chip, c.options)), c.chip, error, c.options)
    return Advice(error.violations, change)


def time_layers(c: Compilation) -> Compilation:
    """Choose the steps in which layers work."""
    return replace(c, timing=schedule(c.legal, c.options.execution))


def relay(c: Compilation) -> Compilation:
    """Put relay neurons where spikes are delayed longer than the chip can. Raises FitError where they have no room.

    Where sums are sent later, which takes steps, it is done then (`relay_sums`).
    """
    if c.given_mapping is not None or sends_sums(c) or not has_late(c.legal, c.timing, c.chip):
        return c
    legal, timing, changes = relay_delays(c.legal, c.timing, c.chip, c.options)
    return replace(c, network=legal, legal=legal, timing=timing, changes=[*c.changes, *changes])


def sends_sums(c: Compilation) -> bool:
    """Whether neurons will send sums: currents to be compared, or parts of a wide fan-in."""
    return bool(c.compared) or has_wide(c.legal, c.chip, c.options)


STAGES = (
    Stage("legalize", rewrite),
    Stage("estimate", check_totals, advise_on_totals),
    Stage("schedule", time_layers),
    Stage("delays", relay, as_it_is),
)
