"""Quantize: convert the network to integers, and approximate what the chip lacks at a measured price."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from warnings import warn

from nwcompile.errors import FitError, NwWarning
from nwcompile.ir.manifest import Change
from nwcompile.ir.network import Network
from nwcompile.passes.partition.suggest_fit import wider_messages
from nwcompile.passes.quantize.approximate.approximate import approximate
from nwcompile.passes.quantize.approximate.price import check_loss
from nwcompile.passes.quantize.prove import lasting_currents, prove
from nwcompile.passes.quantize.quantize import encode_registers, measure_rates, quantize_once
from nwcompile.passes.quantize.sums.compare_currents import compare_currents, compared_rows, verify_messages
from nwcompile.passes.quantize.sums.send_sums import schedule_senders
from nwcompile.passes.quantize.table import complete_table, refitted_row
from nwcompile.passes.stages.draft import Advice, Draft, Stage
from nwcompile.sim.inputs import add_constants


def choose_integers(draft: Draft) -> Draft:
    """Choose the scale of every layer and round its numbers."""
    given = add_constants(draft.legal, draft.input.samples)
    legal = replace(draft.legal, readout=draft.given.readout)
    made = quantize_once(legal, draft.chip, given, draft.options)
    return replace(
        draft,
        network=made.network,
        table=made.table,
        rounding=made.warnings,
        registers=made.registers,
        samples=encode_registers(given, made.registers),
    )


def simplify_integers(draft: Draft) -> Draft:
    """Apply rewritings that are exact for these integers."""
    fixed, changes = prove(draft.legal, draft.network, draft.chip, draft.options)
    return replace(
        draft,
        network=fixed,
        changes=[*draft.changes, *changes],
        lasting=lasting_currents(draft.legal, fixed),
    )


def insert_comparisons(draft: Draft) -> Draft:
    """Rewrite maxima of currents into neurons that send and compare them. Raises FitError."""
    verify_messages(draft.legal, draft.network, draft.chip)
    if not draft.compared:
        return draft
    network, changes = compare_currents(draft.network, draft.compared, draft.chip)
    table = complete_table(compared_rows(draft.table, draft.compared), network, draft.chip)
    table = measure_rates(table, network, draft.normal, draft.input.samples, draft.samples)
    return send_sums(replace(draft, table=table), network, changes)


def take_nearest(draft: Draft) -> Draft:
    """Replace neurons by the nearest ones that the chip has, and measure the price. Raises LossError.

    Warns (NwWarning) if there are too few samples to judge `max_loss`.
    """
    if not draft.options.approximate:
        return draft
    readout = None if draft.given.readout is None else draft.given.readout.in_integers(draft.table)
    nearer = approximate(draft.network, draft.chip, draft.options, draft.samples, draft.labels, readout)
    judged: list[str] = []
    if nearer.network is not draft.network:
        judged = check_loss(nearer.price, draft.options, draft.chip.name, draft.input.network)
    for text in judged:
        warn(text, NwWarning, stacklevel=2)  # the user set a limit that nothing enforces
    scales = {name: fit.scale_factor for name, fit in nearer.factors.items()}
    return replace(
        draft,
        network=nearer.network,
        table=[
            refitted_row(row, nearer.network.node(row["layer"]).neuron, scales.get(row["layer"])) for row in draft.table
        ],
        price=nearer.price,
        changes=nearer.price_changes(draft.changes),
        notes=[*draft.notes, *nearer.warnings, *judged],
    )


def send_sums(draft: Draft, network: Network, changes: list[Change]) -> Draft:
    """Take a network with neurons that send sums, and schedule its layers again."""
    timing = schedule_senders(network, draft.options.execution)
    return replace(draft, network=network, timing=timing, changes=[*draft.changes, *changes])


def advise_on_messages(stage: Callable[[Draft], Draft], draft: Draft, error: FitError) -> Advice:
    """Advise the message width with which the sums could be sent."""
    change = wider_messages(error, draft.chip, lambda wider: stage(replace(draft, chip=wider)).network)
    return Advice(error.violations, change)


STAGES = (
    Stage("quantize", choose_integers),
    Stage("prove", simplify_integers),
    Stage("compare", insert_comparisons, partial(advise_on_messages, insert_comparisons)),
    Stage("approximate", take_nearest),
)
