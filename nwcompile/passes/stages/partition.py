"""Partition: choose which neurons share a core."""

from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.ir.host import copy_registers
from nwcompile.passes.analyze.axon_types import too_many_weights
from nwcompile.passes.analyze.capability import delay_violations
from nwcompile.passes.analyze.check import unmapped_violations
from nwcompile.passes.fit.copy_neurons import copy_neurons, may_copy, sends_too_far
from nwcompile.passes.partition.partition import assign_sites, partition
from nwcompile.passes.partition.suggest_fit import smallest_change
from nwcompile.passes.stages.draft import Advice, Draft, Stage, keep_violations


def assign_cores(draft: Draft) -> Draft:
    """Assign neurons to cores; a given mapping stays unchanged. Raises FitError, before a search if possible."""
    if draft.given_mapping is not None:
        return draft
    check_needs(draft)
    made = partition(draft.network, draft.chip, draft.activity, draft.options)
    return replace(draft, mapping=made.mapping, notes=[*draft.notes, *made.warnings], fewest=made.fewest)


def check_needs(draft: Draft) -> None:
    """Raise FitError with the violations that no mapping can avoid, if there are any."""
    network, chip = draft.network, draft.chip
    needs = unmapped_violations(network, chip, draft.timing, draft.options.on_multi_spike)
    needs += too_many_weights(network, chip)
    if not may_copy(chip):
        needs += delay_violations(network, draft.timing, chip)
    if needs:
        raise FitError(chip.name, needs)


def advise_on_cores(draft: Draft, error: FitError) -> Advice:
    """Add the smallest change with which the network would fit."""
    return Advice(error.violations, smallest_change(draft.network, draft.chip, error, draft.options))


def insert_copies(draft: Draft) -> Draft:
    """Copy neurons that send to more cores than the chip allows. Raises FitError if the copies do not fit."""
    if draft.given_mapping is not None or not sends_too_far(draft.network, draft.chip, draft.mapping):
        return draft
    copied = copy_neurons(draft.network, draft.timing, draft.chip, draft.activity, draft.mapping, draft.options)
    if copied is None:
        return draft
    return replace(
        draft,
        mapping=assign_sites(copied.network, draft.chip, copied.core_of, draft.options, may_cut=False),
        network=copied.network,
        timing=copied.timing,
        activity=copied.activity,
        changes=[*draft.changes, *copied.changes],
        registers=copy_registers(draft.registers, copied.copy_of),
    )


STAGES = (Stage("partition", assign_cores, advise_on_cores), Stage("copies", insert_copies, keep_violations))
