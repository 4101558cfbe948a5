"""Partition: which neurons share a core."""

from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.ir.host import of_copies
from nwcompile.passes.compilation import Advice, Compilation, Stage, as_it_is
from nwcompile.passes.fit.check import unmapped_violations
from nwcompile.passes.partition.copy_neurons import copy_neurons, sends_too_far
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.partition.suggest_fit import smallest_change


def share_out(c: Compilation) -> Compilation:
    """Share the neurons out over cores. A mapping that was given stays. Raises FitError."""
    if c.given_mapping is not None:
        return c
    made = partition(c.network, c.chip, c.activity, c.options)
    return replace(c, mapping=made.mapping, notes=[*c.notes, *made.warnings], fewest=made.fewest)


def advise_on_cores(c: Compilation, error: FitError) -> Advice:
    """What no mapping can mend stands first; where all can be, the change of the chip or the mapping with which it fits."""
    needs = unmapped_violations(c.network, c.chip, c.timing, c.options.on_multi_spike)
    change = None if needs else smallest_change(c.network, c.chip, error, c.options)
    return Advice([*needs, *error.violations], change)


def copy(c: Compilation) -> Compilation:
    """Copy neurons that send to more cores than a neuron of the chip can. Raises FitError where copies have no room."""
    if c.given_mapping is not None or not sends_too_far(c.network, c.chip, c.mapping):
        return c
    copied = copy_neurons(c.network, c.timing, c.chip, c.activity, c.mapping, c.options)
    return replace(
        c,
        mapping=copied.mapping,
        network=copied.network,
        timing=copied.timing,
        activity=copied.activity,
        changes=[*c.changes, *copied.changes],
        registers=of_copies(c.registers, copied.copy_of),
    )


STAGES = (Stage("partition", share_out, advise_on_cores), Stage("copies", copy, as_it_is))
