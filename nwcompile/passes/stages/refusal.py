"""Refusal: the error for a network that does not fit, with advice and the chips and boards that would fit it.

Chip files say whether they are proposed (`Chip.proposals`). A chip is named only after the compiler's stages have
mapped the network to its cores as contiguous slices (`sequential`), without quantization. Only totals are checked
(`estimate`) for large networks, and where the answer depends on quantized weights (axon types, messages of partial
sums). The line then says so.
"""

from dataclasses import replace
from math import prod
from typing import NamedTuple

from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.errors import FitError, NwError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import count_chips, fewest_chips
from nwcompile.ir.host import drop_registers
from nwcompile.ir.manifest import name_own_layers
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.capability import delay_violations
from nwcompile.passes.analyze.check import least_cores
from nwcompile.passes.fit.copy_neurons import sends_too_far
from nwcompile.passes.fit.relay_delays import count_relays, relay_sizes
from nwcompile.passes.prepare.input_layer import InputLayer
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.stages.draft import Draft, Stage
from nwcompile.passes.stages.run import check_needs, run

# Budget of synapses for the checks of one error, about a second. A check goes through all synapses of the network.
# Chips beyond the budget are judged by their totals.
MOST_SYNAPSES = 15_000_000
# A check also goes through all connections for each layer. One such pair costs as much as this number of synapses.
SYNAPSES_OF_A_PAIR = 25


class Place(NamedTuple):
    """A chip or board that takes a network on `n_cores` cores, a lower bound unless `is_checked`.

    `work`: cost of the check, in synapses that it goes through.
    """

    chip: Chip
    work: int
    n_cores: int
    is_checked: bool


def refuse(stage: Stage, draft: Draft, error: FitError) -> None:
    """Raise the FitError of a stage, with inserted layers named after the user's.

    It has a helpful change and other chips that would fit, if the stage has advice.
    """
    advice = None if stage.advise is None else stage.advise(draft, error)
    if advice is not None:
        others = describe_other_chips(drop_registers(draft.input.network), draft.chip, draft.options)
        error = FitError(draft.chip.name, advice.violations, advice.change, others)
    names = {*draft.given.inputs, *draft.given.nodes}
    violations = [
        replace(v, where=name_own_layers(v.where, names), advice=name_own_layers(v.advice, names))
        for v in error.violations
    ]
    change = None if error.change is None else name_own_layers(error.change, names)
    raise FitError(error.chip_name, violations, change, error.elsewhere) from None


def describe_other_chips(network: Network, chip: Chip, options: Options) -> str | None:
    """Return sentences that name the proposed chips and boards that take the network unchanged.

    They are those of the shipped files and of this chip's folder. Returns None for a chip that differs from its file,
    and if `options` bind cores to this chip (`n_cores`, `fixed_sites`).
    """
    if options.n_cores is not None or options.fixed_sites or chip.listing.folder is None:
        return None
    network = normalize(network)  # once for all chips
    slices = replace(options, approximate=(), step_limit_us=None, partitioner="sequential", optimize="time")
    given = Draft(network, chip, slices, network=network, input=InputLayer(network, None, None, []))
    places: list[Place] = []
    left = MOST_SYNAPSES
    for one in chip.proposals():
        if one.chip_of_board in {place.chip.chip_of_board for place in places}:
            continue
        try:
            place = _try_chip(replace(given, chip=one), left)
        except NwError:
            continue
        if place is not None:
            places.append(place)
            left -= place.work if place.is_checked else 0
    checked = [_describe_place(place) for place in places if place.is_checked]
    by_totals = [_describe_place(place) for place in places if not place.is_checked]
    texts = [f"it fits unchanged on {', '.join(checked)}"] if checked else []
    texts += [f"judged by totals alone, it may fit on {', '.join(by_totals)}"] if by_totals else []
    return "; ".join(texts) or "no shipped chip or board takes it unchanged"


def _try_chip(given: Draft, most_work: int) -> Place | None:
    """Return the draft's chip as a Place; None or NwError if it does not fit. Above `most_work` only totals count."""
    chip = given.chip
    draft = run(run(given, after="input", until="schedule"), after="approximate", until="split")
    is_split = draft.network is not draft.legal
    relays = relay_sizes(draft.network, count_relays(draft.network, draft.timing, chip, draft.options), chip)
    if SYNAPSES_OF_A_PAIR * sum(n for _, n in relays) ** 2 > most_work:
        return Place(chip, 0, least_cores(draft.network, chip, relays), False)
    draft = run(draft, after="split", until="delays")
    network = draft.network
    work = sum(synapse_count(network, c) for c in network.connections)
    work += SYNAPSES_OF_A_PAIR * len(network.layers) * len(network.connections)
    if work > most_work or chip.weights.axon_types is not None or is_split:
        check_needs(draft)
        return Place(chip, work, least_cores(network, chip), False)
    draft = run(replace(draft, activity=Activity.uniform(network, 1)), after="merge", until="copies")
    late = any(delay_violations(draft.network, draft.timing, chip))
    has_room = not late and not sends_too_far(draft.network, chip, draft.mapping)
    return Place(chip, work, draft.mapping.n_cores, True) if has_room else None


def _describe_place(place: Place) -> str:
    """Return `loihi2 (12 of 128 cores)`, or `loihi2_kapoho (2 of 8 chips)`."""
    chip, least = place.chip, "" if place.is_checked else "at least "
    if chip.is_board:
        n_chips = prod(fewest_chips(chip.noc, place.n_cores))
        return f"{chip.name} ({least}{n_chips} of {prod(count_chips(chip.noc))} chips)"
    return f"{chip.name} ({least}{place.n_cores} of {int(chip.is_usable.sum())} cores)"
