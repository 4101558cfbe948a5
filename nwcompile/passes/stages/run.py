"""The stages of the compiler, in seven groups; their order; the loop that runs them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from warnings import warn

import numpy as np

from nwcompile import __version__
from nwcompile.cost.compare import predicted_figures
from nwcompile.errors import FitError, ModelError, NwWarning, OptionError, Violation, unknown_choice
from nwcompile.ir.activity import Activity
from nwcompile.ir.host import copy_registers, drop_registers, find_scaled_registers
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network
from nwcompile.ir.options import CORES_WORTH, Options
from nwcompile.ir.shown import count_text
from nwcompile.passes.analyze.axon_types import too_many_weights
from nwcompile.passes.analyze.capability import delay_violations
from nwcompile.passes.analyze.check import check, estimate, unmapped_violations
from nwcompile.passes.emit import emit, interleave_visits
from nwcompile.passes.fit.copy_neurons import copy_neurons, may_copy, sends_too_far
from nwcompile.passes.fit.copy_signs import BOTH_SIGNS, copy_signs
from nwcompile.passes.fit.merge_axons import merge_axons
from nwcompile.passes.fit.relay_delays import count_relays, has_late, relay_delays
from nwcompile.passes.fit.split_fan_in import split_fan_in
from nwcompile.passes.legalize.legalize import legalize
from nwcompile.passes.legalize.prove import idle_clamps, lasting_currents, prove
from nwcompile.passes.partition.floorline.objective import verify_step_time
from nwcompile.passes.partition.partition import assign_sites, partition
from nwcompile.passes.partition.suggest_fit import CAPACITIES, smallest_change, wider_messages
from nwcompile.passes.place.place import place
from nwcompile.passes.prepare.input_layer import legalize_input
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.prepare.programs import merge_inputs
from nwcompile.passes.prepare.schedule import schedule, stagger_layers
from nwcompile.passes.prepare.weights import apply_weight_bits, prune_zeros
from nwcompile.passes.quantize.approximate.approximate import approximate
from nwcompile.passes.quantize.approximate.nearest import nearest_network, suggest_items
from nwcompile.passes.quantize.approximate.price import check_loss
from nwcompile.passes.quantize.compare_currents import compare_currents, compared_rows, send_maxima, verify_messages
from nwcompile.passes.quantize.gate_currents import gate_currents, verify_currents
from nwcompile.passes.quantize.memory import verify_memory
from nwcompile.passes.quantize.quantize import encode_registers, measure_rates, quantize_once
from nwcompile.passes.quantize.send_sums import schedule_senders
from nwcompile.passes.quantize.table import complete_table, refitted_row
from nwcompile.passes.stages.draft import Advice, Draft, Missing, Stage, keep_violations
from nwcompile.sim.inputs import add_constants
from nwcompile.sim.sequence.run import record_activity
from nwcompile.sim.values import verify_counts
from nwcompile.threads import raise_if_canceled

NO_CALIBRATION = (
    "no calibration samples: scales follow the largest weights, and the mapping assumes that every neuron spikes in "
    "10 % of its steps; give calibration samples for closer spikes and a faster mapping"
)
REAL_EXAMPLE = (
    "the example of the model has real values, but without calibration samples the program takes whole numbers only; "
    "give calibration samples of such input, or choose input_layer='host'"
)

AUTO_STAGGER = (2, 4)  # Steps per layer that `stagger="auto"` compares with 1; the gain levels off beyond.


# Prepare: choose how input reaches the chip, and fold what only training needed.
def choose_input(draft: Draft) -> Draft:
    """Choose how input reaches the chip; layers in front of that run on the host. Sets the readout of the options.

    Raises FitError for neurons with more inputs than the chip's synapse types; inputs that are only added count as one.
    """
    network, n_types = merge_inputs(draft.given), draft.chip.n_synapse_types
    gated = [node for node in network.nodes.values() if node.n_inputs > n_types]
    if gated:
        advice = "a neuron has one synaptic sum for each synapse type of the chip (neuron.max_synapse_types)"
        advice = f"{advice}; take a chip with more, such as spinnaker2, or train the network without gates"
        violations = [Violation("inputs of a neuron", node.name, node.n_inputs, n_types, advice) for node in gated]
        raise FitError(draft.chip.name, violations)
    if draft.options.readout is not None:
        draft = replace(draft, given=draft.given.change_readout(draft.options.readout))
    chosen = legalize_input(network, draft.chip, draft.calibration, draft.options)
    network = replace(chosen.network, left_out=draft.given.left_out, readout=draft.given.readout)
    labels = None if draft.labels is None else _check_labels(chosen.samples, draft.labels)
    return replace(
        draft, input=replace(chosen, network=network), network=network, labels=labels, changes=chosen.changes
    )


def fold_maps(draft: Draft) -> Draft:
    """Apply the weight widths; fold scales, batch norms and average pools. Raises OptionError, NotEnoughMemoryError."""
    normal = normalize(prune_zeros(apply_weight_bits(draft.network, draft.chip, draft.options), draft.chip))
    verify_memory(normal, draft.input.samples)
    return replace(draft, network=normal, normal=normal)


def _check_labels(samples: dict | None, given) -> np.ndarray:
    """Return the labels as int[B]. Raises ModelError if they do not match the samples."""
    labels = np.asarray(given)
    n_samples = 0 if not samples else len(next(iter(samples.values())))
    if labels.shape != (n_samples,) or labels.dtype.kind not in "iu":
        raise ModelError(
            f"labels of shape {list(labels.shape)} and type {labels.dtype} must be whole numbers, one for each of the "
            f"{n_samples} calibration samples",
            code="NW5011",
        )
    return labels


# Legalize: rewrite the network for the chip's neurons, and schedule its layers.
def rewrite_neurons(draft: Draft) -> Draft:
    """Rewrite features that the chip's neurons lack."""
    network = replace(draft.network, readout=draft.given.readout)
    legal, changes, notes, compared = legalize(network, draft.chip, draft.options, draft.may_compare)
    if draft.may_compare:
        legal, sent = send_maxima(legal, draft.chip, draft.options, compared)
        legal, gated = gate_currents(legal, draft.chip, draft.options)
        changes = [*changes, *sent, *gated]
    return replace(
        draft,
        network=legal,
        legal=legal,
        changes=[*draft.changes, *changes],
        notes=[*draft.notes, *notes],
        compared=compared,
    )


def check_totals(draft: Draft) -> Draft:
    """Check that the network's totals fit. Raises FitError.

    Approximations, removed clamps and split sums of later stages are predicted from the float network.
    """
    chip, options = draft.chip, draft.options
    network, _ = nearest_network(draft.legal, chip, options)
    network, _ = idle_clamps(network, chip, options)
    network, _ = split_fan_in(network, chip, options)
    estimate(drop_registers(network), chip, options.on_multi_spike)
    return replace(draft, passed=(*draft.passed, "estimate"))


def advise_on_totals(draft: Draft, error: FitError) -> Advice:
    """Advise approximations, or else a change of the chip or the mapping, with which the totals would fit."""

    def verify(options: Options) -> None:
        check_totals(rewrite_neurons(replace(draft, network=draft.normal, options=options)))

    change = suggest_items(drop_registers(draft.legal), draft.chip, draft.options, verify)
    if change is None:
        whole, _ = split_fan_in(draft.legal, draft.chip, draft.options)
        change = smallest_change(drop_registers(whole), draft.chip, error, draft.options)
    return Advice(error.violations, change)


def time_layers(draft: Draft) -> Draft:
    """Choose the steps in which layers are updated. Raises FitError if relay neurons for long delays do not fit."""
    timing = schedule(draft.legal, draft.options.execution)
    if draft.given_mapping is None and "delay" not in draft.options.approximate:
        count_relays(draft.legal, timing, draft.chip, draft.options)
    return replace(draft, timing=timing)


# Quantize: convert the network to integers, and approximate what the chip lacks at a measured price.
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
        draft, network=fixed, changes=[*draft.changes, *changes], lasting=lasting_currents(draft.legal, fixed)
    )


def insert_comparisons(draft: Draft) -> Draft:
    """Rewrite maxima of currents into neurons that send and compare them. Raises FitError."""
    verify_messages(draft.legal, draft.network, draft.chip)
    verify_currents(draft.legal, draft.network, draft.chip)
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
    timing = draft.timing
    if nearer.network is not draft.network:
        timing = schedule_senders(nearer.network, draft.options.execution)  # delays may be shorter
        judged = check_loss(nearer.price, draft.options, draft.chip.name, draft.input.network)
    for text in judged:
        warn(text, NwWarning, stacklevel=2)  # the user set a limit that nothing enforces
    scales = {name: fit.scale_factor for name, fit in nearer.factors.items()}
    return replace(
        draft,
        network=nearer.network,
        timing=timing,
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


# Fit: rewrite fan-ins, delays and axons that the chip cannot hold, and measure how often each neuron sends.
def split_neurons(draft: Draft) -> Draft:
    """Split neurons with more fan-in than a core holds into neurons that send partial sums. Raises FitError."""
    network, changes = split_fan_in(draft.network, draft.chip, draft.options)
    return draft if network is draft.network else send_sums(draft, network, changes)


def insert_relays(draft: Draft) -> Draft:
    """Insert relay neurons for delays longer than the chip supports. Raises FitError if the relays do not fit."""
    if draft.given_mapping is not None or not has_late(draft.network, draft.timing, draft.chip):
        return draft
    network, timing, changes = relay_delays(draft.network, draft.timing, draft.chip, draft.options)
    return replace(draft, network=network, timing=timing, changes=[*draft.changes, *changes])


def calibrate(draft: Draft) -> Draft:
    """Count how often each neuron sends on the samples, and remove the registers of the host from the network."""
    fixed = drop_registers(draft.network)
    activity = _measure_activity(draft).drop_nodes({*draft.network.inputs} - {*fixed.inputs})
    return replace(
        draft,
        network=fixed,
        timing=draft.timing.drop_registers(draft.network),
        activity=activity,
        registers={**find_scaled_registers(draft.input.host), **draft.registers},
        table=complete_table(draft.table, draft.network, draft.chip),
        changes=[*draft.changes, *draft.lasting],
        samples=None,  # no later stage reads them
        normal=Missing(),
        legal=Missing(),
    )


def _measure_activity(draft: Draft) -> Activity:
    """Measure how often each neuron of the integer network spikes; uniform without samples."""
    if draft.samples is None:
        return Activity.uniform(draft.network)
    way = draft.options.on_multi_spike
    activity, spikes = record_activity(draft.network, draft.samples, repeats=way == "repeat")
    verify_counts(draft.network, draft.chip, way, spikes)
    return activity


def share_axons(draft: Draft) -> Draft:
    """Let neurons share axons if the chip's axons combine their inputs."""
    merged = merge_axons(draft.network, draft.timing, draft.chip, draft.activity, draft.given_mapping)
    if not merged.changes:
        return draft
    return replace(
        draft,
        network=merged.network,
        timing=merged.timing,
        activity=merged.activity,
        changes=[*draft.changes, *merged.changes],
        table=[row for row in draft.table if row["layer"] not in merged.gone],
    )


def copy_sources(draft: Draft) -> Draft:
    """Copy sources with synapses of both signs if those of the chip have one."""
    if draft.given_mapping is not None:
        return draft
    copied = copy_signs(draft.network, draft.timing, draft.chip, draft.activity)
    if copied is None:
        return draft
    return replace(
        draft,
        network=copied.network,
        timing=copied.timing,
        activity=copied.activity,
        changes=[*draft.changes, *copied.changes],
        registers=copy_registers(draft.registers, copied.copy_of),
    )


def spread_bursts(draft: Draft) -> Draft:
    """Spread the neurons of each layer over `stagger` steps. Raises FitError if the chip cannot hold their delays."""
    timing = stagger_layers(draft.network, draft.timing, draft.options.stagger)
    if timing is draft.timing:  # `assign_cores` compares for "auto"
        return draft
    if late := list(delay_violations(draft.network, timing, draft.chip)):
        raise FitError(draft.chip.name, late)
    changes = []
    for name in timing.stagger:
        later = timing.offset[name] + timing.n_late(name) - draft.timing.offset[name]
        how = f"spread over {timing.stagger[name]} steps; the last neurons answer {count_text(later, 'step')} later"
        changes.append(Change(name, "all neurons in one step", "delays of synapses", how, EXACT))
    return replace(draft, timing=timing, changes=[*draft.changes, *changes])


# Partition: choose which neurons share a core.
def assign_cores(draft: Draft) -> Draft:
    """Assign neurons to cores; a given mapping stays unchanged. Raises FitError, before a search if possible."""
    if draft.given_mapping is not None:
        return draft
    check_needs(draft)
    if draft.options.stagger == "auto":
        return _choose_stagger(draft)
    made = partition(draft.network, draft.chip, draft.activity, draft.options)
    assert made.mapping is not None, "the stage chooses sites"
    return replace(draft, mapping=made.mapping, notes=[*draft.notes, *made.warnings], tried=made.tried)


def _choose_stagger(draft: Draft) -> Draft:
    """Assign cores for every number of steps of AUTO_STAGGER that the chip supports; keep what `optimize` prefers."""

    def assign(n_parts: int) -> Draft:
        return assign_cores(spread_bursts(replace(draft, options=replace(draft.options, stagger=n_parts))))

    best = assign(1)
    least = _sample_cost(best)
    for n_parts in AUTO_STAGGER if least > 0 else ():
        with suppress(FitError):
            tried = assign(n_parts)
            best, least = min((best, least), (tried, _sample_cost(tried)), key=lambda pair: pair[1])
    return replace(best, options=draft.options)


def _sample_cost(draft: Draft) -> float:
    """Predict what `optimize` minimizes ("time" or "edp") for a sample, all hardware steps included; 0 if unknown."""
    program = emit(
        draft.network, draft.timing, draft.mapping, draft.chip, draft.activity, {}, draft.options.on_multi_spike
    )
    figures = predicted_figures(program, draft.activity)
    us = (figures.step_us or 0.0) * draft.timing.n_hardware_steps(draft.activity.n_steps)
    if draft.options.optimize == "edp":
        return us * (figures.sample_nj or 0.0)
    return us * (figures.cores**CORES_WORTH if draft.options.n_cores is None else 1.0)


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
    """Add the smallest change with which the network would fit, or name the sources whose signs doubled them."""
    doubled = [change.layer for change in draft.changes if change.was == BOTH_SIGNS]
    if doubled:
        advice = f"sources with synapses of both signs count twice ({', '.join(doubled)}): train them with one sign, or"
        fewer = f"{advice} make them fewer"
        return Advice([replace(v, advice=fewer) if v.what in CAPACITIES else v for v in error.violations], None)
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
        timing=stagger_layers(copied.network, copied.timing, max(draft.timing.stagger.values(), default=1)),
        activity=copied.activity,
        changes=[*draft.changes, *copied.changes],
        registers=copy_registers(draft.registers, copied.copy_of),
    )


# Place: choose the site of each core, and the order in which it visits its neurons.
def choose_sites(draft: Draft) -> Draft:
    """Assign a site to every core; a given mapping stays unchanged."""
    if draft.given_mapping is not None:
        return draft
    return replace(draft, mapping=place(draft.mapping, draft.network, draft.chip, draft.activity, draft.options))


def check_mapping(draft: Draft) -> Draft:
    """Check that the mapping fits. Raises FitError."""
    kept = check(draft.network, draft.chip, draft.timing, draft.mapping, draft.options.on_multi_spike)
    return replace(draft, mapping=kept, passed=(*draft.passed, "check"))


def advise_on_mapping(draft: Draft, error: FitError) -> Advice | None:
    """Advise nothing for a given mapping, whose error is raised unchanged: other chips cannot use that mapping."""
    return None if draft.given_mapping is not None else keep_violations(draft, error)


def order_visits(draft: Draft) -> Draft:
    """Choose the order in which each core visits its neurons."""
    return replace(draft, mapping=interleave_visits(draft.mapping, draft.network, draft.chip, draft.activity))


# Emit: build the program that the chip is loaded with.
def make_program(draft: Draft) -> Draft:
    """Build the program of the mapped network. It takes samples in the layout of the given network."""
    manifest, way = _build_manifest(draft), draft.options.on_multi_spike
    program = emit(draft.network, draft.timing, draft.mapping, draft.chip, draft.activity, manifest, way)
    return replace(draft, program=program.attach_host(draft.given, draft.input.host, draft.registers))


def check_step_time(draft: Draft) -> Draft:
    """Check that the predicted step time is within `step_limit_us`. Raises FitError."""
    if draft.options.step_limit_us is None:
        return draft
    verify_step_time(draft.program, draft.options.step_limit_us)
    return replace(draft, passed=(*draft.passed, "limit"))


def _build_manifest(draft: Draft) -> dict:
    no_samples = [NO_CALIBRATION] if draft.input.samples is None else []
    if no_samples and draft.given.real_example and not draft.given.is_fixed and draft.options.input_layer is None:
        no_samples = [REAL_EXAMPLE, NO_CALIBRATION]
    return {
        "tool": "nwcompile",
        "version": __version__,
        "seed": draft.options.seed,
        "options": draft.options.to_dict(),
        "quantization": draft.table,
        **({"legalization": [change.to_dict() for change in draft.changes]} if draft.changes else {}),
        "warnings": [*no_samples, *draft.notes, *draft.rounding],
        **({} if draft.price is None else {"price": draft.price.to_dict()}),
        **({"tried_cores": [tried._asdict() for tried in draft.tried]} if draft.tried else {}),
    }


STAGES: tuple[Stage, ...] = (
    Stage("input", choose_input),
    Stage("normalize", fold_maps),
    Stage("legalize", rewrite_neurons),
    Stage("estimate", check_totals, advise_on_totals),
    Stage("schedule", time_layers, keep_violations),
    Stage("quantize", choose_integers),
    Stage("prove", simplify_integers),
    Stage("compare", insert_comparisons, partial(advise_on_messages, insert_comparisons)),
    Stage("approximate", take_nearest),
    Stage("split", split_neurons, partial(advise_on_messages, split_neurons)),
    Stage("delays", insert_relays, keep_violations),
    Stage("calibrate", calibrate),
    Stage("merge", share_axons),
    Stage("signs", copy_sources),
    Stage("stagger", spread_bursts, keep_violations),
    Stage("partition", assign_cores, advise_on_cores),
    Stage("copies", insert_copies, keep_violations),
    Stage("place", choose_sites),
    Stage("check", check_mapping, advise_on_mapping),
    Stage("interleave", order_visits),
    Stage("emit", make_program),
    Stage("limit", check_step_time),
)


def run(
    draft: Draft,
    until: str | None = None,
    after: str | None = None,
    on_stage: Callable[[str, Draft, float], object] | None = None,
    refuse: Callable[[Stage, Draft, FitError], object] | None = None,
) -> Draft:
    """Run all stages on a draft, or those after the stage `after`, up to and including the stage `until`.

    `on_stage(name, draft, seconds)` is called after each stage that changed the draft. `refuse` is called with the
    FitError of a stage, and may raise a better one (`refusal.py:refuse`). Raises OptionError for unknown stages.
    """
    first = 0 if after is None else _stage_index("after", after) + 1
    last = len(STAGES) if until is None else _stage_index("until", until) + 1
    for stage in STAGES[first:last]:
        raise_if_canceled()
        start, before = perf_counter(), draft
        try:
            draft = stage.run(before)
        except FitError as error:
            if refuse is not None:
                refuse(stage, before, error)
            raise
        if on_stage is not None and draft is not before:
            on_stage(stage.name, draft, perf_counter() - start)
    return draft


def _stage_index(option: str, name: str) -> int:
    names = [stage.name for stage in STAGES]
    if name not in names:
        raise OptionError(unknown_choice(option, name, names))
    return names.index(name)
