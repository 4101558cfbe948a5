"""The compiler on one screen: the ordered stages from a network to the program that a chip is loaded with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from warnings import warn

import numpy as np

from nwcompile import __version__, warm_up
from nwcompile.argument_types import checked
from nwcompile.at_once import heed
from nwcompile.checkpoint import keeping
from nwcompile.errors import FitError, ModelError, NwWarning, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.host import of_copies, on_chip, registers_of
from nwcompile.ir.manifest import Change
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.emit.emit import emit
from nwcompile.passes.emit.visit_order import interleave_visits
from nwcompile.passes.fit.check import check, estimate, unmapped_violations
from nwcompile.passes.legalize.advice import approximations
from nwcompile.passes.legalize.approximate import approximate
from nwcompile.passes.legalize.legalize import expected, legalize, prove, sized
from nwcompile.passes.legalize.price import Price, check_loss
from nwcompile.passes.legalize.prove import lasting_currents
from nwcompile.passes.legalize.relay_delays import Relayed, has_late, relay_delays
from nwcompile.passes.legalize.sums.compare_currents import compare_currents
from nwcompile.passes.legalize.sums.send_sums import WithSums, with_rows
from nwcompile.passes.legalize.sums.split_fan_in import has_wide, split_fan_in, with_parts
from nwcompile.passes.partition.copy_neurons import copy_neurons, sends_too_far
from nwcompile.passes.partition.elsewhere import elsewhere
from nwcompile.passes.partition.floorline.step_time import verify_step_time
from nwcompile.passes.partition.logical_cores import FewestCores
from nwcompile.passes.partition.merge_axons import merge_axons
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.partition.suggest_fit import smallest_change, wider_messages
from nwcompile.passes.place.place import place
from nwcompile.passes.prepare.input_layer import InputLayer, legalize_input
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.passes.quantize.memory import verify_memory
from nwcompile.passes.quantize.quantize import Quantized, encoded, with_rates
from nwcompile.passes.quantize.quantize import quantized as quantize
from nwcompile.passes.quantize.table import refitted_row
from nwcompile.sim.inputs import with_constants
from nwcompile.sim.sequence.run import record
from nwcompile.sim.values import verify_counts

DEFAULTS = Options()
NO_CALIBRATION = (
    "no calibration samples: scales follow the largest weights, and the mapping takes every neuron to spike in 10 % of "
    "its steps; give calibration samples for closer spikes and a faster mapping"
)
REAL_EXAMPLE = (
    "the example of the model has real values, but without calibration samples the program takes whole numbers only; "
    "give calibration samples of such input, or choose input_layer='host'"
)


@dataclass(frozen=True, eq=False)
class Draft:
    """What the stages have made so far of a network: `given` is how its input comes to the chip.

    `network` is in integers, registers of the host among its inputs until it is on cores; `changes` and `notes` are for
    the manifest. `mapping` and the fewest cores that hold the network are None before it is on cores.
    """

    given: InputLayer
    network: Network
    timing: Schedule
    activity: Activity
    quantized: Quantized
    registers: dict
    changes: list[Change]
    notes: list[str]
    price: Price | None
    mapping: Mapping | None = None
    fewest: FewestCores | None = None


@checked("on_stage", "checkpoint")
def compile(
    network: Network,
    chip: Chip | str,
    calibration=None,
    options: Options = DEFAULTS,
    mapping: Mapping | None = None,
    on_stage: Callable | None = None,
    labels=None,
    checkpoint: Path | str | None = None,
) -> Program:
    """The program of a float or fixed-point network for a chip (a Chip, a shipped name, or the path of a chip file).

    `calibration` is sample input, laid out as the network says (`[B, T, *shape]` unless it was imported otherwise), or
    a dict of such arrays by input name: it tells how input comes to the chip (`Options.input_layer`), chooses the scale
    of every layer, and the mapping is made for how often its neurons spike. With a `mapping` made elsewhere, neurons
    stay where it puts them. `labels`, int[B] of the samples, let the price of approximations be told in accuracy.
    `on_stage(name, value, seconds)` is called after each stage ("input" and "merge" only where they change something).
    With a folder `checkpoint` every annealing that is done is kept there, and the same call goes on from them after it
    was killed, to the same program. Equal arguments give equal programs (unless `options.time_budget_s` is set).
    Raises ModelError, ChipError, OptionError, FitError with all that does not fit, LossError where the price is above
    `options.max_loss`, ArtifactError for a `checkpoint` that cannot be used, and NotEnoughMemoryError before work that
    cannot have room. Warns (NwWarning) where the samples are too few to judge `options.max_loss`.
    """

    def stage(name: str, verb: Callable, *nouns):
        heed()
        start = perf_counter()
        value = verb(*nouns)
        changes_nothing = (name == "input" and value.text is None) or (name == "merge" and not value.changes)
        if on_stage is not None and not changes_nothing:
            on_stage(name, value, perf_counter() - start)
        return value

    chip = _verified(network, chip, options, mapping)
    if checkpoint is not None and options.time_budget_s is not None:
        raise OptionError(
            "checkpoint: with time_budget_s the clock decides what is found, so what is kept could not be continued to "
            "the same program; leave one of them out"
        )
    warm_up.start(chip)
    with keeping(checkpoint):
        return _compiled(stage, network, chip, calibration, options, mapping, labels)


def _compiled(
    stage: Callable, network: Network, chip: Chip, calibration, options: Options, mapping: Mapping | None, labels
) -> Program:
    """The program, stage after stage."""
    given = stage("input", legalize_input, network, chip, calibration, options)
    given = replace(given, network=replace(given.network, left_out=network.left_out))
    labels = None if labels is None else _labels(given.samples, labels)
    draft = _in_integers(stage, given, chip, options, labels, mapping is None)
    draft = _on_cores(stage, draft, chip, options, mapping)
    fixed, timing, activity = draft.network, draft.timing, draft.activity
    mapping = stage("interleave", interleave_visits, draft.mapping, fixed, chip, activity)
    manifest = _manifest(network, options, draft)
    program = stage("emit", emit, fixed, timing, mapping, chip, activity, manifest, options.on_multi_spike)
    program = program.taking(network, given.host, draft.registers)
    if options.step_limit_us is not None:
        stage("limit", verify_step_time, program, options)
    return program


def _in_integers(
    stage: Callable, given: InputLayer, chip: Chip, options: Options, labels: np.ndarray | None, may_add: bool
) -> Draft:
    """The network in integers that the chip's neurons can be. `may_add`: relay neurons may be put between layers."""
    normal = stage("normalize", normalize, sized(given.network, chip, options))
    verify_memory(normal, given.samples)
    legal, changes, notes, compared = stage("legalize", legalize, normal, chip, options)
    try:
        stage("estimate", estimate, on_chip(expected(legal, chip, options)), chip, options.on_multi_spike)
    except FitError as e:
        change = approximations(on_chip(legal), chip, options)
        change = change or smallest_change(on_chip(with_parts(legal, chip, options)), chip, e, options)
        raise _refused(given, chip, options, e.violations, change) from None
    timing = stage("schedule", schedule, legal, options.execution)
    later = bool(compared) or has_wide(legal, chip, options)  # then relay neurons wait for the steps that sums take
    if may_add and not later and has_late(legal, timing, chip):
        legal, timing, delayed = _relaying(stage, legal, timing, given, chip, options)
        changes = [*changes, *delayed]
    samples = with_constants(legal, given.samples)
    quantized = stage("quantize", quantize, legal, chip, samples, options)
    x = encoded(samples, quantized.registers)
    fixed, proved = stage("prove", prove, legal, quantized.network, chip, options)
    quantized, lasting = replace(quantized, network=fixed), lasting_currents(legal, fixed)
    if compared:
        send = partial(compare_currents, quantized, compared, options=options)
        quantized, timing, made = _sending_sums(stage, "compare", send, given, chip, options)
        quantized = with_rates(quantized, normal, given.samples, x)
        fixed, proved = quantized.network, [*proved, *made]
    changes, price = [*changes, *proved], None
    if options.approximate:
        nearer = stage("approximate", approximate, fixed, chip, options, x, labels)
        judged = [] if nearer.network is fixed else check_loss(nearer.price, options, chip.name, given.network)
        for text in judged:
            warn(text, NwWarning, stacklevel=2)  # who asked for a limit hears that nothing has held it
        fixed, price = nearer.network, nearer.price
        changes, notes = nearer.with_price(changes), [*notes, *nearer.warnings, *judged]
        scales = {name: fit.scale_factor for name, fit in nearer.factors.items()}
        rows = [refitted_row(r, fixed.node(r["layer"]).neuron, scales.get(r["layer"])) for r in quantized.table]
        quantized = replace(quantized, network=fixed, table=rows)
    if has_wide(fixed, chip, options):
        send = partial(split_fan_in, quantized, options=options)
        quantized, timing, made = _sending_sums(stage, "split", send, given, chip, options)
        fixed, changes = quantized.network, [*changes, *made]
    if may_add and later and has_late(fixed, timing, chip):
        fixed, timing, delayed = _relaying(stage, fixed, timing, given, chip, options)
        quantized = replace(quantized, network=fixed, table=with_rows(quantized.table, fixed, chip))
        changes = [*changes, *delayed]
    return Draft(
        given=given,
        network=fixed,
        timing=timing,
        activity=stage("calibrate", _activity, fixed, chip, x, options.on_multi_spike),
        quantized=quantized,
        registers={**registers_of(given.host), **quantized.registers},
        changes=[*given.changes, *changes, *lasting],
        notes=notes,
        price=price,
    )


def _relaying(
    stage: Callable, network: Network, timing: Schedule, given: InputLayer, chip: Chip, options: Options
) -> Relayed:
    """The network with relay neurons, if totals alone do not show that these cannot fit."""
    try:
        return stage("delays", relay_delays, network, timing, chip, options)
    except FitError as e:
        raise _refused(given, chip, options, e.violations, None) from None


def _sending_sums(
    stage: Callable, name: str, send: Callable, given: InputLayer, chip: Chip, options: Options
) -> WithSums:
    """What `send(chip=)` makes, a stage of that name; refused with the messages that would be wide enough."""
    try:
        return stage(name, lambda: send(chip=chip))
    except FitError as e:
        change = wider_messages(e, chip, lambda wider: send(chip=wider).quantized.network)
        raise _refused(given, chip, options, e.violations, change) from None


def _on_cores(stage: Callable, draft: Draft, chip: Chip, options: Options, mapping: Mapping | None) -> Draft:
    """What is on the chip, with a mapping that is checked: the given one, or the best for `options`."""
    fixed = on_chip(draft.network)
    activity = draft.activity.without({*draft.network.inputs} - {*fixed.inputs})
    merged = stage("merge", merge_axons, fixed, draft.timing.on_chip(draft.network), chip, activity, mapping)
    fixed, activity = merged.network, merged.activity
    draft = replace(
        draft,
        network=fixed,
        timing=merged.timing,
        activity=activity,
        changes=[*draft.changes, *merged.changes],
        quantized=draft.quantized.without(merged.gone),
    )
    if mapping is not None:
        kept = stage("check", check, fixed, chip, draft.timing, mapping, options.on_multi_spike)
        return replace(draft, mapping=kept)
    try:
        partitioned = stage("partition", partition, fixed, chip, activity, options)
    except FitError as e:
        needs = unmapped_violations(fixed, chip, draft.timing, options.on_multi_spike)
        change = None if needs else smallest_change(fixed, chip, e, options)
        raise _refused(draft.given, chip, options, [*needs, *e.violations], change) from None
    mapping = partitioned.mapping
    draft = replace(draft, notes=[*draft.notes, *partitioned.warnings], fewest=partitioned.fewest)
    if sends_too_far(fixed, chip, mapping):
        try:
            copied = stage("copies", copy_neurons, fixed, draft.timing, chip, activity, mapping, options)
        except FitError as e:
            raise _refused(draft.given, chip, options, e.violations, None) from None
        mapping = copied.mapping
        draft = replace(
            draft,
            network=copied.network,
            timing=copied.timing,
            activity=copied.activity,
            changes=[*draft.changes, *copied.changes],
            registers=of_copies(draft.registers, copied.copy_of),
        )
    mapping = stage("place", place, mapping, draft.network, chip, draft.activity, options)
    try:
        kept = stage("check", check, draft.network, chip, draft.timing, mapping, options.on_multi_spike)
    except FitError as e:
        raise _refused(draft.given, chip, options, e.violations, None) from None
    return replace(draft, mapping=kept)


def _refused(given: InputLayer, chip: Chip, options: Options, violations: Sequence, change: str | None) -> FitError:
    """The refusal of a network, with the change that would help and the chips and boards that take it as it is."""
    return FitError(chip.name, violations, change, elsewhere(on_chip(given.network), chip, options))


def _verified(network, chip, options, mapping) -> Chip:
    """The chip, if all arguments are of their kinds."""
    if not isinstance(network, Network):
        raise ModelError(
            f"compile takes a Network, not {type(network).__name__}; make one with nw.from_torch(module, example_input)"
        )
    if not isinstance(options, Options):
        raise OptionError(f"options must be an nw.Options(...), not {type(options).__name__}")
    if mapping is not None and not isinstance(mapping, Mapping):
        raise ModelError(f"mapping must be an nw.Mapping, not {type(mapping).__name__}; see nw.Mapping.from_arrays")
    network.verify()
    return chip if isinstance(chip, Chip) else Chip.load(chip)


def _labels(samples: dict | None, given) -> np.ndarray:
    """Labels as int[B], or ModelError."""
    labels = np.asarray(given)
    n_samples = 0 if not samples else len(next(iter(samples.values())))
    if labels.shape != (n_samples,) or labels.dtype.kind not in "iu":
        raise ModelError(
            f"labels of shape {list(labels.shape)} and type {labels.dtype} must be whole numbers, one for each of the "
            f"{n_samples} calibration samples"
        )
    return labels


def _activity(network: Network, chip: Chip, x: dict | None, on_multi_spike: str) -> Activity:
    """How often each neuron of the fixed-point network spikes on the samples, or an even guess without any."""
    if x is None:
        return Activity.uniform(network)
    activity, spikes = record(network, x, repeats=on_multi_spike == "repeat")
    verify_counts(network, chip, on_multi_spike, spikes)
    return activity


def _manifest(network: Network, options: Options, draft: Draft) -> dict:
    no_samples = [NO_CALIBRATION] if draft.given.samples is None else []
    if no_samples and network.real_example and not network.is_fixed and options.input_layer is None:
        no_samples = [REAL_EXAMPLE, NO_CALIBRATION]
    return {
        "tool": "nwcompile",
        "version": __version__,
        "seed": options.seed,
        "options": options.to_dict(),
        "quantization": draft.quantized.table,
        **({"legalization": [change.to_dict() for change in draft.changes]} if draft.changes else {}),
        "warnings": [*no_samples, *draft.notes, *draft.quantized.warnings],
        **({} if draft.price is None else {"price": draft.price.to_dict()}),
        **({} if draft.fewest is None else {"fewest_cores": draft.fewest._asdict()}),
    }
