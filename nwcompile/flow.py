"""The compiler on one screen: the ordered stages from a network to the program that a chip is loaded with."""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np

from nwcompile import __version__, warm_up
from nwcompile.errors import FitError, ModelError, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.host import of_copies, on_chip, registers_of
from nwcompile.ir.legalization import Change
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.passes.emit.emit import emit
from nwcompile.passes.emit.visit_order import interleave_visits
from nwcompile.passes.fit.check import check, estimate, unmapped_violations
from nwcompile.passes.legalize.advice import approximations
from nwcompile.passes.legalize.approximate import approximate
from nwcompile.passes.legalize.legalize import expected, legalize, prove, sized
from nwcompile.passes.legalize.price import check_loss
from nwcompile.passes.legalize.relay_delays import has_late, relay_delays
from nwcompile.passes.partition.copy_neurons import copy_neurons, sends_too_far
from nwcompile.passes.partition.elsewhere import elsewhere
from nwcompile.passes.partition.floorline.step_time import verify_step_time
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.partition.suggest_fit import smallest_change
from nwcompile.passes.place.place import place
from nwcompile.passes.prepare.input_layer import legalize_input
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.passes.quantize.quantize import Quantized, encoded, quantize
from nwcompile.passes.quantize.table import refitted_row
from nwcompile.sim.inputs import verify_counts, with_constants
from nwcompile.sim.sequence.run import record

DEFAULTS = Options()
NO_CALIBRATION = (
    "no calibration samples: scales follow the largest weights, and the mapping takes every neuron to spike in 10 % of "
    "its steps; give calibration samples for closer spikes and a faster mapping"
)


def compile(
    network: Network,
    chip: Chip | str,
    calibration=None,
    options: Options = DEFAULTS,
    mapping: Mapping | None = None,
    on_stage: Callable | None = None,
    labels=None,
) -> Program:
    """The program of a float or fixed-point network for a chip (a Chip, a shipped name, or the path of a chip file).

    `calibration` is sample input, laid out as the network says (`[B, T, *shape]` unless it was imported otherwise), or
    a dict of such arrays by input name: it tells how input comes to the chip (`Options.input_layer`), chooses the scale
    of every layer, and the mapping is made for how often its neurons spike. With a `mapping` made elsewhere, neurons
    stay where it puts them. `labels`, int[B] of the samples, let the price of approximations be told in accuracy.
    `on_stage(name, value, seconds)` is called after each stage ("input" only where it changes something). Equal
    arguments give equal programs (unless `options.time_budget_s` is set). Raises ModelError, ChipError, OptionError,
    FitError with all that does not fit, and LossError where the price is above `options.max_loss`.
    """

    def stage(name: str, verb: Callable, *nouns):
        start = perf_counter()
        value = verb(*nouns)
        if on_stage is not None:
            on_stage(name, value, perf_counter() - start)
        return value

    def refused(violations, change: str | None) -> FitError:
        return FitError(chip.name, violations, change, elsewhere(on_chip(given.network), chip, options))

    chip = _verified(network, chip, options, mapping)
    warm_up.start(chip)
    start = perf_counter()
    given = legalize_input(network, chip, calibration, options)
    if given.text is not None and on_stage is not None:
        on_stage("input", given, perf_counter() - start)
    labels = None if labels is None else _labels(given.samples, labels)
    normal = stage("normalize", normalize, sized(given.network, chip, options))
    legal, changes, notes = stage("legalize", legalize, normal, chip, options)
    try:
        stage("estimate", estimate, on_chip(expected(legal, chip, options)), chip, options.on_multi_spike)
    except FitError as e:
        change = approximations(on_chip(legal), chip, options) or smallest_change(on_chip(legal), chip, e, options)
        raise refused(e.violations, change) from None
    timing = stage("schedule", schedule, legal, options.execution)
    if mapping is None and has_late(legal, timing, chip):
        legal, timing, delayed = stage("delays", relay_delays, legal, timing, chip, options)
        changes = [*changes, *delayed]
    samples = with_constants(legal, given.samples)
    quantized = stage("quantize", quantize, legal, chip, samples, options)
    x = encoded(samples, quantized.registers)
    registers = {**registers_of(given.host), **quantized.registers}
    (full, proved), price = stage("prove", prove, legal, quantized.network, chip, options), None
    changes = [*changes, *proved]
    if options.approximate:
        nearer = stage("approximate", approximate, full, chip, options, x, labels)
        if nearer.network is not full:
            check_loss(nearer.price, options, chip.name)
        full, price = nearer.network, nearer.price
        changes, notes = nearer.with_price(changes), [*notes, *nearer.warnings]
        quantized = replace(
            quantized, table=[refitted_row(row, full.node(row["layer"]).neuron) for row in quantized.table]
        )
    activity = stage("calibrate", _activity, full, chip, x, options.on_multi_spike)
    fixed, timing = on_chip(full), timing.on_chip(full)
    activity = activity.without({*full.inputs} - {*fixed.inputs})
    is_ours, fewest = mapping is None, None
    if is_ours:
        try:
            partitioned = stage("partition", partition, fixed, chip, activity, options)
        except FitError as e:
            needs = unmapped_violations(fixed, chip, timing, options.on_multi_spike)
            change = None if needs else smallest_change(fixed, chip, e, options)
            raise refused([*needs, *e.violations], change) from None
        notes, mapping, fewest = [*notes, *partitioned.warnings], partitioned.mapping, partitioned.fewest
        if sends_too_far(fixed, chip, mapping):
            try:
                copied = stage("copies", copy_neurons, fixed, timing, chip, activity, mapping, options)
            except FitError as e:
                raise refused(e.violations, None) from None
            fixed, timing, activity, mapping = copied.network, copied.timing, copied.activity, copied.mapping
            changes, registers = [*changes, *copied.changes], of_copies(registers, copied.copy_of)
        mapping = stage("place", place, mapping, fixed, chip, activity, options)
    try:
        mapping = stage("check", check, fixed, chip, timing, mapping, options.on_multi_spike)
    except FitError as e:
        raise refused(e.violations, None) if is_ours else e from None
    mapping = stage("interleave", interleave_visits, mapping, fixed, chip, activity)
    changes = [*given.changes, *changes]
    manifest = _manifest(options, quantized, changes, notes, x) | ({} if price is None else {"price": price.to_dict()})
    manifest |= {} if fewest is None else {"fewest_cores": fewest._asdict()}
    program = stage("emit", emit, fixed, timing, mapping, chip, activity, manifest, options.on_multi_spike)
    program = program.taking(network, given.host, registers)
    if options.step_limit_us is not None:
        stage("limit", verify_step_time, program, options)
    return program


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


def _manifest(options: Options, quantized: Quantized, changes: list[Change], notes: list[str], x: dict | None) -> dict:
    return {
        "tool": "nwcompile",
        "version": __version__,
        "seed": options.seed,
        "options": options.to_dict(),
        "quantization": quantized.table,
        **({"legalization": [change.to_dict() for change in changes]} if changes else {}),
        "warnings": [*([NO_CALIBRATION] if x is None else []), *notes, *quantized.warnings],
    }
