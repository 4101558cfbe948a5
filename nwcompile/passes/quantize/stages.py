"""Quantize: the network in integers, its approximations with their price, and neurons that send sums."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from warnings import warn

from nwcompile.errors import FitError, NwWarning
from nwcompile.passes.compilation import Advice, Compilation, Stage, as_it_is
from nwcompile.passes.legalize.approximate import approximate
from nwcompile.passes.legalize.legalize import prove
from nwcompile.passes.legalize.price import check_loss
from nwcompile.passes.legalize.prove import lasting_currents
from nwcompile.passes.legalize.relay_delays import has_late, relay_delays
from nwcompile.passes.legalize.stages import sends_sums
from nwcompile.passes.legalize.sums.compare_currents import compare_currents
from nwcompile.passes.legalize.sums.send_sums import WithSums, with_rows
from nwcompile.passes.legalize.sums.split_fan_in import has_wide, split_fan_in
from nwcompile.passes.partition.suggest_fit import wider_messages
from nwcompile.passes.quantize.quantize import Quantized, encoded, quantized, with_rates
from nwcompile.passes.quantize.table import refitted_row
from nwcompile.sim.inputs import with_constants


def choose_integers(c: Compilation) -> Compilation:
    """Choose the scale of every layer, and round."""
    given = with_constants(c.legal, c.input.samples)
    made = quantized(c.legal, c.chip, given, c.options)
    return replace(_in_integers(c, made), samples=encoded(given, made.registers))


def simplify(c: Compilation) -> Compilation:
    """Rewrite what is the same for these integers."""
    fixed, changes = prove(c.legal, c.network, c.chip, c.options)
    c = _in_integers(c, replace(c.quantized, network=fixed))
    return replace(c, changes=[*c.changes, *changes], lasting=lasting_currents(c.legal, fixed))


def compare(c: Compilation) -> Compilation:
    """Let neurons send their currents where the largest of them is read. Raises FitError."""
    if not c.compared:
        return c
    c = _sending_sums(c, _comparing(c)(chip=c.chip))
    return _in_integers(c, with_rates(c.quantized, c.normal, c.input.samples, c.samples))


def approach(c: Compilation) -> Compilation:
    """Take the nearest neurons that the chip has, and measure their price. Raises LossError.

    Warns (NwWarning) where the samples are too few to judge `max_loss`.
    """
    if not c.options.approximate:
        return c
    nearer = approximate(c.network, c.chip, c.options, c.samples, c.labels)
    judged = [] if nearer.network is c.network else check_loss(nearer.price, c.options, c.chip.name, c.input.network)
    for text in judged:
        warn(text, NwWarning, stacklevel=2)  # who asked for a limit hears that nothing has held it
    scales = {name: fit.scale_factor for name, fit in nearer.factors.items()}
    rows = [
        refitted_row(row, nearer.network.node(row["layer"]).neuron, scales.get(row["layer"]))
        for row in c.quantized.table
    ]
    return replace(
        _in_integers(c, replace(c.quantized, network=nearer.network, table=rows)),
        price=nearer.price,
        changes=nearer.with_price(c.changes),
        notes=[*c.notes, *nearer.warnings, *judged],
    )


def split(c: Compilation) -> Compilation:
    """Split neurons that read more than a core can, into neurons that send parts of their sums. Raises FitError."""
    return _sending_sums(c, _splitting(c)(chip=c.chip)) if has_wide(c.network, c.chip, c.options) else c


def relay_sums(c: Compilation) -> Compilation:
    """Put relay neurons where sums have made delays longer than the chip's. Raises FitError where they have no room."""
    if c.given_mapping is not None or not sends_sums(c) or not has_late(c.network, c.timing, c.chip):
        return c
    fixed, timing, changes = relay_delays(c.network, c.timing, c.chip, c.options)
    table = with_rows(c.quantized.table, fixed, c.chip)
    c = _in_integers(c, replace(c.quantized, network=fixed, table=table))
    return replace(c, timing=timing, changes=[*c.changes, *changes])


def _comparing(c: Compilation) -> Callable[..., WithSums]:
    return partial(compare_currents, c.quantized, c.compared, options=c.options)


def _splitting(c: Compilation) -> Callable[..., WithSums]:
    return partial(split_fan_in, c.quantized, options=c.options)


def advise_on_messages(send: Callable, c: Compilation, error: FitError) -> Advice:
    """The width of messages with which sums could be sent."""
    change = wider_messages(error, c.chip, lambda wider: send(c)(chip=wider).quantized.network)
    return Advice(error.violations, change)


def _in_integers(c: Compilation, made: Quantized) -> Compilation:
    return replace(c, quantized=made, network=made.network)


def _sending_sums(c: Compilation, made: WithSums) -> Compilation:
    return replace(_in_integers(c, made.quantized), timing=made.timing, changes=[*c.changes, *made.changes])


STAGES = (
    Stage("quantize", choose_integers),
    Stage("prove", simplify),
    Stage("compare", compare, partial(advise_on_messages, _comparing)),
    Stage("approximate", approach),
    Stage("split", split, partial(advise_on_messages, _splitting)),
    Stage("delays", relay_sums, as_it_is),
)
