"""Quantize: the network in integers, its approximations with their price, and neurons that send sums."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from warnings import warn

from nwcompile.errors import FitError, NwWarning
from nwcompile.passes.legalize.approximate import approximate
from nwcompile.passes.legalize.legalize import prove
from nwcompile.passes.legalize.price import check_loss
from nwcompile.passes.legalize.prove import lasting_currents
from nwcompile.passes.legalize.relay_delays import has_late, relay_delays
from nwcompile.passes.legalize.sums.compare_currents import compare_currents
from nwcompile.passes.legalize.sums.send_sums import WithSums, with_rows
from nwcompile.passes.legalize.sums.split_fan_in import has_wide, split_fan_in
from nwcompile.passes.partition.suggest_fit import wider_messages
from nwcompile.passes.quantize.quantize import Quantized, encoded, quantized, with_rates
from nwcompile.passes.quantize.table import refitted_row
from nwcompile.passes.stages.draft import Advice, Draft, Stage, as_it_is
from nwcompile.passes.stages.legalize import sends_sums
from nwcompile.sim.inputs import with_constants


def choose_integers(draft: Draft) -> Draft:
    """Choose the scale of every layer, and round."""
    given = with_constants(draft.legal, draft.input.samples)
    made = quantized(draft.legal, draft.chip, given, draft.options)
    return replace(_in_integers(draft, made), samples=encoded(given, made.registers))


def simplify(draft: Draft) -> Draft:
    """Rewrite what is the same for these integers."""
    fixed, changes = prove(draft.legal, draft.network, draft.chip, draft.options)
    draft = _in_integers(draft, replace(draft.quantized, network=fixed))
    return replace(draft, changes=[*draft.changes, *changes], lasting=lasting_currents(draft.legal, fixed))


def compare(draft: Draft) -> Draft:
    """Let neurons send their currents where the largest of them is read. Raises FitError."""
    if not draft.compared:
        return draft
    draft = _sending_sums(draft, _comparing(draft)(chip=draft.chip))
    return _in_integers(draft, with_rates(draft.quantized, draft.normal, draft.input.samples, draft.samples))


def take_nearest(draft: Draft) -> Draft:
    """Take the nearest neurons that the chip has, and measure their price. Raises LossError.

    Warns (NwWarning) where the samples are too few to judge `max_loss`.
    """
    if not draft.options.approximate:
        return draft
    nearer = approximate(draft.network, draft.chip, draft.options, draft.samples, draft.labels)
    judged: list[str] = []
    if nearer.network is not draft.network:
        judged = check_loss(nearer.price, draft.options, draft.chip.name, draft.input.network)
    for text in judged:
        warn(text, NwWarning, stacklevel=2)  # who asked for a limit hears that nothing has held it
    scales = {name: fit.scale_factor for name, fit in nearer.factors.items()}
    rows = [
        refitted_row(row, nearer.network.node(row["layer"]).neuron, scales.get(row["layer"]))
        for row in draft.quantized.table
    ]
    return replace(
        _in_integers(draft, replace(draft.quantized, network=nearer.network, table=rows)),
        price=nearer.price,
        changes=nearer.with_price(draft.changes),
        notes=[*draft.notes, *nearer.warnings, *judged],
    )


def split(draft: Draft) -> Draft:
    """Split neurons that read more than a core can, into neurons that send parts of their sums. Raises FitError."""
    if not has_wide(draft.network, draft.chip, draft.options):
        return draft
    return _sending_sums(draft, _splitting(draft)(chip=draft.chip))


def relay_sums(draft: Draft) -> Draft:
    """Put relay neurons where sums have made delays longer than the chip's. Raises FitError where they have no room."""
    may_add = draft.given_mapping is None and sends_sums(draft)
    if not may_add or not has_late(draft.network, draft.timing, draft.chip):
        return draft
    fixed, timing, changes = relay_delays(draft.network, draft.timing, draft.chip, draft.options)
    table = with_rows(draft.quantized.table, fixed, draft.chip)
    draft = _in_integers(draft, replace(draft.quantized, network=fixed, table=table))
    return replace(draft, timing=timing, changes=[*draft.changes, *changes])


def _comparing(draft: Draft) -> Callable[..., WithSums]:
    return partial(compare_currents, draft.quantized, draft.compared, options=draft.options)


def _splitting(draft: Draft) -> Callable[..., WithSums]:
    return partial(split_fan_in, draft.quantized, options=draft.options)


def advise_on_messages(send: Callable, draft: Draft, error: FitError) -> Advice:
    """The width of messages with which sums could be sent."""
    change = wider_messages(error, draft.chip, lambda wider: send(draft)(chip=wider).quantized.network)
    return Advice(error.violations, change)


def _in_integers(draft: Draft, made: Quantized) -> Draft:
    return replace(draft, quantized=made, network=made.network)


def _sending_sums(draft: Draft, made: WithSums) -> Draft:
    return replace(_in_integers(draft, made.quantized), timing=made.timing, changes=[*draft.changes, *made.changes])


STAGES = (
    Stage("quantize", choose_integers),
    Stage("prove", simplify),
    Stage("compare", compare, partial(advise_on_messages, _comparing)),
    Stage("approximate", take_nearest),
    Stage("split", split, partial(advise_on_messages, _splitting)),
    Stage("delays", relay_sums, as_it_is),
)
