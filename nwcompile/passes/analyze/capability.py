"""Capability: find the features of a network's neurons, synapses and delays that a chip lacks."""

from collections.abc import Iterator
from functools import cache

import numpy as np

from nwcompile.errors import Violation
from nwcompile.ir.arithmetic import effective_weight, mantissa_step
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Sparse, synapse_list
from nwcompile.ir.host import Injected
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operand, Operation
from nwcompile.ir.neuron_programs.ranges import TRUTHS
from nwcompile.ir.schedule import Schedule
from nwcompile.sim.reference.synaptic_sums import NO_LIMIT

FORMAT_KEYS = {"state_bits": "state.bits", "decay_bits": "state.decay_bits", "shift_bits": "state.shift_bits",
               "overflow": "state.overflow", "decay": "state.decay"}  # fmt: skip


def neuron_violations(
    node: Node, chip: Chip, has_bias: bool, on_multi_spike: str = "refuse", cap: int | None = None
) -> Iterator[Violation]:
    """Yield features of a layer's neurons that the chip lacks; numbers and strictness are checked for fixed point only.

    `has_bias`: whether the neurons of the layer or the connections into it have a non-zero bias. `on_multi_spike`: how
    several spikes per step are sent (`Options`). `cap`: the most spikes per step of the chip's neurons, None if
    unknown.
    """
    spec, can = node.neuron, chip.neuron
    reset = "zero" if spec.reset == "value" and not np.any(spec.reset_value) else spec.reset

    def lacks(key: str, used: str, has, advice: str, shipped: str = ""):
        advice = f"{advice}, or take a chip whose neuron.{key} has it{shipped}"
        return Violation(key.replace("_", " "), node.name, used, " or ".join(str(word) for word in has), advice)

    if spec.fires:
        if reset not in can.reset:
            others = (c.name for c in _shipped_chips() if c.listing.proposed and reset in c.neuron.reset)
            yield lacks("reset", reset, can.reset, _reset_advice(node, chip), f" ({', '.join(others)})")
        if spec.reset != "none" and spec.reset_timing not in can.reset_timing:
            advice = f"train {node.name} with reset_timing {can.reset_timing[0]!r}"
            yield lacks("reset_timing", spec.reset_timing, can.reset_timing, advice)
        yield from _spike_violations(node, chip, on_multi_spike)
        yield from _count_violations(node, cap)
        if spec.fixed is not None and spec.strict not in can.strict:
            word = {True: "v > threshold", False: "v >= threshold"}
            unit = 1 << can.threshold_shift_bits
            advice = f"change the threshold of {node.name} by one and its strict to {can.strict[0]}"
            if unit > 1:
                advice = f"train {node.name} with strict={can.strict[0]} (thresholds are multiples of {unit})"
            yield lacks("strict", word[spec.strict], [word[s] for s in can.strict], advice)
        refractory = int(np.max(spec.refractory))
        if refractory > can.refractory_max_steps:
            advice = f"shorten refractory of {node.name} or raise neuron.refractory_max_steps"
            yield Violation("refractory steps", node.name, refractory, can.refractory_max_steps, advice)
    yield from _current_violations(node, chip)
    yield from _leak_violations(node, chip)
    yield from _clamp_violations(node, chip)
    if has_bias and not can.bias:
        yield lacks("bias", "a bias", ["no bias"], f"train {node.name} without bias")
    if spec.fixed is not None:
        yield from _number_violations(node, spec, chip)


def program_violations(node: Node, chip: Chip, on_multi_spike: str = "refuse") -> Iterator[Violation]:
    """Yield features of a layer's neuron program that the chip lacks: programmability, state width, messages."""
    program, name = node.neuron, node.name
    if not chip.neuron.programmable:
        yield _program_violation(name, program, chip)
        return
    for state in program.states:
        if state.bits is not None and state.bits > chip.state.bits:
            advice = f"give state {state.name} of {name} fewer bits or raise state.bits"
            yield Violation("state bits", f"{name}.{state.name}", state.bits, chip.state.bits, advice)
    yield from _spike_violations(node, chip, on_multi_spike)


# Operations of a built-in neuron: leaks, sums, a comparison with a threshold, a reset.
BUILT_IN = ("add", "sub", "neg", "shl", "shr", "shr0", "not", "and", "or", "select", "number")
CLAMPS = ("min", "max")  # if its membrane has a floor


def _program_violation(name: str, program: NeuronProgram, chip: Chip) -> Violation:
    """Describe a program on a chip of built-in neurons: its states and operations, and what the neurons lack."""
    states = ["membrane"] if chip.neuron.current is False else ["current", "membrane"]
    numbers = _changing_values(program) - _truth_values(program)
    lacks = {lacking for o in program.operations if (lacking := _lacking_feature(o, numbers, chip)) is not None}
    n_more = len(program.states) - len(states)
    missing = [f"{n_more} more state{'s' if n_more > 1 else ''}"] if n_more > 0 else []
    missing += [f"messages that are {program.sends}"] if program.sends == "graded" else []
    missing += sorted(lacks)
    used = f"program {program.name} of states {', '.join(program.state_names) or 'none'} and operations "
    used += ", ".join(sorted({operation.kind for operation in program.operations})) or "none"
    said = f"they lack {', '.join(missing)}" if missing else "they run no programs"
    chips = ", ".join(chip.name for chip in _shipped_chips() if chip.neuron.programmable)
    advice = f"{said}; take a chip whose neurons are programs (neuron.programmable: {chips}), or a built-in neuron in "
    return Violation("neuron", name, used, f"built-in neurons ({' and '.join(states)})", advice + name)


def _lacking_feature(operation: Operation, numbers: set[Operand], chip: Chip) -> str | None:
    """Return what a built-in neuron lacks for an operation; None if it may be a leak, comparison, reset or clamp.

    `numbers`: the program's values that change from step to step and are not truth values.
    """
    kind = operation.kind
    values = [o for o in operation.operands if o in numbers]
    if kind in ("mul", "div"):
        if len(values) > 1 or (kind == "div" and operation.operands[1] in values):
            return "products of two values" if kind == "mul" else "quotients of two values"
        return None
    if kind in ("lt", "le"):
        return "a threshold that changes" if len(values) > 1 else None
    return None if kind in BUILT_IN or (kind in CLAMPS and chip.neuron.v_min != "none") else kind


def _changing_values(program: NeuronProgram) -> set[Operand]:
    """Return the values that may differ between steps: the inputs, the states, and everything computed from them."""
    changing: set[Operand] = {*program.inputs, *program.state_names}
    for operation in program.operations:
        if changing & {*operation.operands}:
            changing.add(operation.result)
    return changing


def _truth_values(program: NeuronProgram) -> set[Operand]:
    """Return the values that are truth values, as bool or as number: a product with one is a selection."""
    truths: set[Operand] = set()
    for operation in program.operations:
        is_number = operation.kind == "number" and operation.operands[0] in truths
        if operation.kind in TRUTHS or is_number:
            truths.add(operation.result)
    return truths


@cache
def _shipped_chips() -> list[Chip]:
    """Return the shipped chips, without boards."""
    return [chip for name in Chip.shipped() if not (chip := Chip.load(name)).is_board]


def _reset_advice(node: Node, chip: Chip) -> str:
    """Return what to train instead; neurons without leak that subtract most likely come from a conversion."""
    spec, has = node.neuron, chip.neuron.reset
    adds_up = spec.fixed is None and spec.membrane == "linear" and np.all(spec.beta == 1)
    how = " (nw.convert: reset='zero')" if adds_up and spec.reset == "subtract" and "zero" in has else ""
    return f"train {node.name} with reset {has[0]!r}{how}"


def _spike_violations(node: Node, chip: Chip, on_multi_spike: str) -> Iterator[Violation]:
    """Yield several or negative spikes that the chip's messages cannot carry in the requested way."""
    kind, has, name = node.neuron.message, chip.neuron.spikes, node.name
    repeated = kind == "multi" and on_multi_spike == "repeat" and chip.core.axon_merge is None
    can_tell = kind in has or (kind == "graded" and {"multi", "bipolar"} <= {*has} and on_multi_spike != "repeat")
    graded = on_multi_spike == "graded" or (can_tell and not repeated)
    if kind == "binary" or repeated:
        return
    if not graded:
        ways = []
        if chip.carries_message(kind):
            why = "" if kind == "multi" else "; a negative spike cannot be repeated"
            ways.append(f"'graded' (a message carries the {'count' if kind == 'multi' else 'sign'}{why})")
        if kind == "multi" and chip.core.axon_merge is None:
            ways.append("'repeat' (n spikes are n messages)")
        compiled = f"compile with on_multi_spike={' or '.join(ways)}, " if ways else ""
        others = f"use {has[0]} spikes in {name}, or take a chip whose neuron.spikes has {kind!r}"
        yield Violation("spikes", name, kind, " or ".join(has), compiled + others)
        return
    bits, least = chip.noc.payload_bits, 2 if kind in ("bipolar", "graded") else 1
    if bits is not None and not chip.carries_message(kind):
        repeats = kind == "multi" and chip.core.axon_merge is None
        other = "compile with on_multi_spike='repeat' or " if repeats else ""
        advice = f"{other}raise noc.payload_bits: messages of {chip.name} cannot tell the spikes of {name}"
        yield Violation("payload bits", name, bits, f"{least} or more", advice)


def _count_violations(node: Node, cap: int | None) -> Iterator[Violation]:
    """Yield a maximum of spikes per step that differs from that of the chip's neurons."""
    used = node.neuron.max_spikes if node.neuron.spikes == "multi" else 1
    if cap is None or used == cap or node.neuron.spikes not in ("binary", "multi"):
        return
    advice = f"approximate 'multi-spike', or train {node.name} with " + (
        "spikes='binary'" if cap == 1 else f"spikes='multi' and max_spikes={cap}"
    )
    yield Violation("spikes at once", node.name, "any number" if used is None else used, str(cap), advice)


def _current_violations(node: Node, chip: Chip) -> Iterator[Violation]:
    """Yield a synaptic current that outlasts the step, if the chip's neurons have none."""
    kept = kept_current(node.neuron)
    if chip.neuron.current is False and np.any(kept):
        used = f"a current that keeps up to {100 * float(np.max(kept)):.3g} % per step"
        advice = f"train {node.name} without one, or take a chip whose neurons have it"
        yield Violation("current", node.name, used, "no current", advice)


def kept_current(spec: NeuronSpec) -> np.ndarray:
    """Return the share of a current that remains after a step, 0..1."""
    if spec.fixed is None:
        return np.asarray(0.0 if spec.alpha is None else spec.alpha)
    return 1 - spec.fixed.lost(spec.decay_u)


def _leak_violations(node: Node, chip: Chip) -> Iterator[Violation]:
    """Yield a leaky membrane, if the chip's membranes do not leak."""
    spec = node.neuron
    if chip.neuron.leak is not False:
        return
    if spec.fixed is None:
        lost = np.asarray(spec.k) if spec.membrane == "euler" else 1 - np.asarray(spec.beta)
    else:
        lost = spec.fixed.lost(spec.decay_v)
    if np.any(lost):
        used = f"up to {100 * float(np.max(lost)):.3g} % per step"
        advice = f"train {node.name} without a leak (beta=1), or take a chip whose membranes have one"
        yield Violation("leak", node.name, used, "none", advice)


def _clamp_violations(node: Node, chip: Chip) -> Iterator[Violation]:
    floor, can = node.neuron.v_min, chip.neuron.v_min
    if chip.neuron.has_floor(node.neuron):
        return
    kind = "reset" if node.neuron.clamp == "reset" else "clamp"
    used = "no clamp" if floor is None else f"{kind} at {float(np.min(floor)):g}"
    if can == "zero":
        has, advice = "clamp at 0", f"train {node.name} with v_min=0: this chip clamps every membrane at 0"
    else:
        wanted = "reset" if kind == "reset" else "any"
        has = {"none": "no clamp", "any": "clamp", "reset": "reset"}[can]
        advice = f"train {node.name} without v_min, or take a chip whose neuron.v_min is {wanted}"
    yield Violation("v_min", node.name, used, has, advice)


def _number_violations(node: Node, spec: NeuronSpec, chip: Chip) -> Iterator[Violation]:
    """Yield formats, thresholds, biases and decays of a fixed-point layer that the chip cannot hold."""
    can, form = chip.neuron, chip.fixed_point
    why = " (no program computes late resets, several spikes in a step, or sums that wrap twice in a step)"
    why = why if can.programmable else ""
    for name, key in FORMAT_KEYS.items():
        used, has = getattr(spec.fixed, name), getattr(form, name)
        if used != has:
            advice = f"quantize {node.name} for this chip or set {key} to {used}{why}"
            yield Violation(key.partition(".")[2].replace("_", " "), node.name, used, str(has), advice)
            why = ""
    if spec.fires:
        step, top = 1 << can.threshold_shift_bits, ((1 << can.threshold_bits) - 1) << can.threshold_shift_bits
        threshold = np.asarray(spec.threshold, np.int64).reshape(-1)
        bad = threshold[(threshold < 0) | (threshold > top) | (threshold % step != 0)]
        if bad.size:
            grid = f"0..{top}" + (f" in steps of {step}" if step > 1 else "")
            yield Violation("threshold", node.name, int(bad[0]), grid, f"scale {node.name} down or round its threshold")
    for bias in (np.asarray(spec.bias, np.int64), np.asarray(spec.bias_u, np.int64) << spec.number_format.shift_bits):
        bad = _not_representable(bias, can.bias_bits, can.bias_exponent_max)
        if bad is not None:
            shift = f" << 0..{can.bias_exponent_max}" if can.bias_exponent_max else ""
            advice = f"scale {node.name} down or round its bias"
            yield Violation("bias", node.name, bad, f"a {can.bias_bits}-bit mantissa{shift}", advice)
    if can.current_bias is False and np.any(spec.bias_u):
        advice = f"approximate 'bias', or train {node.name} with its bias at the membrane (NeuronSpec.bias)"
        yield Violation("bias", node.name, "of the current", "of the membrane", advice)
    low = int(np.min(spec.decay_u))
    if low < chip.state.decay_offset:
        advice = f"let the current of {node.name} decay faster"
        yield Violation("decay_u", node.name, low, f"{chip.state.decay_offset} or more", advice)


def _not_representable(values: np.ndarray, bits: int, exponent_max: int) -> int | None:
    """Return a value that is not a signed mantissa of `bits` shifted left by 0..exponent_max, or None."""
    top = (1 << (bits - 1)) - 1
    fits = np.zeros(values.shape, bool)
    for exponent in range(exponent_max + 1):
        fits |= (values % (1 << exponent) == 0) & (np.abs(values) >> exponent <= top)
    return None if fits.all() else int(values[~fits].reshape(-1)[0])


def weight_violations(connection: Connection, chip: Chip) -> Iterator[Violation]:
    """Yield bits, exponent and mantissas of a connection's integer weights that the chip's synapses cannot hold."""
    can, where = chip.weights, f"{connection.source} -> {connection.target}"
    bits, largest = connection.weight_bits or can.bits, can.effective_limit
    if bits > can.bits:
        yield Violation("weight bits", where, bits, can.bits, "quantize to fewer bits or raise weights.bits")
        return
    if not can.exponent_min <= connection.exponent <= can.exponent_max:
        has = "..".join(map(str, sorted({can.exponent_min, can.exponent_max})))
        yield Violation("weight exponent", where, connection.exponent, has, "rescale the weights")
    step = mantissa_step(bits, can.bits, can.step, connection.sign_mode)
    low, high = chip.mantissa_range(bits, connection.sign_mode)
    weight = np.asarray(connection.weight)
    if weight.size and (weight.min() < low or weight.max() > high):
        worst = int(weight.max()) if weight.max() > high else int(weight.min())
        yield Violation("weight", where, worst, f"{low}..{high}", "scale the weights down or quantize again")
    elif step > 1 and np.any(off_grid := (weight.astype(np.int64) - low) % step):
        bad = int(weight[off_grid != 0].reshape(-1)[0])
        grid = f"{low} or {high}" if high - low == step else f"multiples of {step}"
        yield Violation("weight", where, bad, grid, "round the weights to the chip's grid")
    elif weight.size and np.abs(whole := effective_weight(weight, connection.exponent, NO_LIMIT)).max() > largest:
        worst = int(whole.flat[np.abs(whole).argmax()])
        yield Violation("weight", where, worst, f"{-largest}..{largest}", "scale the weights down or quantize again")


def find_both_signs(network: Network, chip: Chip) -> dict[str, np.ndarray]:
    """Return the lines or neurons, int64[n], with synapses of both signs, by input or layer of a fixed-point network.

    There are none to report if the sources of the chip may have both.
    """
    if not chip.weights.source_sign:
        return {}
    has = {name: np.zeros((2, network.node(name).n_neurons), bool) for name in network.offsets}
    for c in network.connections:
        pre, _, place = synapse_list(c, network.node(c.source).shape)
        weight = effective_weight(np.ravel(c.weight), c.exponent, chip.weights.effective_limit)[place]
        has[c.source][0, pre[weight > 0]] = True
        has[c.source][1, pre[weight < 0]] = True
    return {name: both for name, signs in has.items() if len(both := np.flatnonzero(signs.all(0)))}


def sign_violations(network: Network, chip: Chip) -> Iterator[Violation]:
    """Yield inputs and layers with sources of both signs, if those of the chip have one. The compiler copies them."""
    for name, both in find_both_signs(network, chip).items():
        advice = f"give each one sign ({len(both)} have both); without a given mapping the compiler copies them, "
        advice += "unless one of several output layers sends to itself with both signs"
        yield Violation("signs of a source", name, "both", "one", advice)


def cell_violations(network: Network, chip: Chip) -> Iterator[Violation]:
    """Yield layers with several synapses from one source to one neuron, if a core is a crossbar with cells for one."""
    for name in network.layers if chip.crossbar.limits else ():
        into = [c for c in network.into(name) if not isinstance(c, Injected)]
        for source in dict.fromkeys(c.source for c in into):
            alike = [c for c in into if c.source == source]
            if len(alike) == 1 and not isinstance(alike[0], Sparse):
                continue
            cells = np.zeros(0, np.int64)
            for c in alike:
                pre, post, place = synapse_list(c, network.node(source).shape)
                used = np.ravel(c.weight)[place] != 0
                cells = np.append(cells, (pre.astype(np.int64) * network.node(name).n_neurons + post)[used])
            n_alike = int(np.unique(cells, return_counts=True)[1].max(initial=0))
            if n_alike > 1:
                advice = "add up their weights in one connection"
                yield Violation("synapses from a source to a neuron", f"{source} -> {name}", n_alike, 1, advice)


def delay_violations(network: Network, schedule: Schedule, chip: Chip) -> Iterator[Violation]:
    """Yield connections whose delay, beyond the one step of the pipeline, exceeds that of the chip's synapses.

    Staggered neurons of a core need a barrier between their steps, and axons whose spikes act at several times.
    """
    if schedule.stagger and (chip.core.axon_merge is not None or not chip.family.has_barrier):
        why = "an axon acts at one time" if chip.family.has_barrier else "cores wait for their neighbors only"
        n_parts = max(schedule.stagger.values())
        yield Violation("stagger", "network", n_parts, 1, f"leave stagger out: {why}")
    limit = chip.neuron.delay_max_steps
    for connection, delay in zip(network.connections, schedule.delay, strict=True):
        steps = (schedule.offset[connection.source] % schedule.period + delay) // schedule.period - 1
        steps += schedule.n_late(connection.target)
        if steps > limit:
            advice = "shorten the delay or raise neuron.delay_max_steps"
            if connection.aligned_delay <= limit:
                advice = "feed the skipped layers instead, use execution='phased' or raise neuron.delay_max_steps"
            if schedule.stagger:
                advice = "lower stagger, or raise neuron.delay_max_steps"
            yield Violation("delay steps", f"{connection.source} -> {connection.target}", steps, limit, advice)
