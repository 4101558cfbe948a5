"""Write programs: integer neurons of another number format, on chips whose neurons are programs.

A network file has the widths of the chip that it was trained for: states of 24 bits, decays of 12, a current that
wraps. On a chip with wider states, a program computes the same numbers in the same order (DESIGN 4.2). It also takes a
power of two that all weights into a layer have in common, so that their mantissas fit narrower synapses.
Weight exponents below the chip's are folded first: the weights that they round to are whole numbers.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection
from nwcompile.ir.host import Injected
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operation, StateVariable
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.capability import weight_violations
from nwcompile.passes.analyze.state_range import largest_payload, largest_sums
from nwcompile.sim.reference.synaptic_sums import effective_connection, fold_bias

OVERFLOWS = ("wrap", "saturate")
SPARE_BITS = 1  # A current that wraps may be 2**(state_bits - 1), one more than a state of that width holds.


def fold_exponents(network: Network, chip: Chip) -> tuple[Network, list[Change]]:
    """Store effective weights in place of integer weights whose exponent is below the chip's."""
    least = chip.weights.exponent_min
    below = [c for c in network.connections if network.is_fixed and c.exponent < least]
    folded = {c: effective_connection(c).replace(weight_bits=None) for c in below}
    was, has = f"weight exponents below {least}", f"exponents of at least {least}"
    changes = [Change(c.target, was, has, f"weights from {c.source} as they are rounded", EXACT) for c in folded]
    return replace(network, connections=tuple(folded.get(c, c) for c in network.connections)), changes


def write_programs(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Replace integer neurons whose number format or weights the chip lacks by programs that send the same spikes.

    Late resets, several spikes in a step, and currents that one step could move further than a wrap takes back stay
    unchanged, for `estimate` to refuse.
    """
    nodes, changes = dict(network.nodes), []
    edges: dict[Connection, Connection] = {}
    for name in network.layers if network.is_fixed and chip.neuron.programmable else ():
        node, into = fold_bias(network, network.node(name)), network.into(name)
        if any(isinstance(c, Injected) for c in into):  # by the host, in units of the neurons
            continue
        shift, program = find_common_shift(into, chip), node.neuron
        if isinstance(node.neuron, NeuronSpec):
            form, chip_form = node.neuron.number_format, chip.fixed_point
            is_written = (shift or form != chip_form) and _is_expressible(node.neuron, chip)
            if not is_written or not _wraps_once(network, name, form):
                continue
            program, how = write_program(node.neuron), "a neuron program with the same numbers"
            if form.overflow == "wrap" and any(c.source in network.inputs for c in into):
                how += " for input values -1, 0 and 1"
            changes.append(Change(name, _describe_format(form), _describe_format(chip_form), how, EXACT))
        elif not shift:
            continue
        if shift:
            has, how = f"weights of {chip.weights.bits} bits", f"weights / {1 << shift}, inputs * {1 << shift}"
            changes.append(Change(name, "wider weights", has, how, EXACT))
        nodes[name] = replace(node, neuron=program.shift_input(shift) if shift else program)
        edges |= {c: _divide_weights(c, shift) for c in into}
    if not changes:
        return network, []
    return Network(network.inputs, nodes, tuple(edges.get(c, c) for c in network.connections)), changes


def write_program(spec: NeuronSpec) -> NeuronProgram:
    """Return the program of a fixed-point neuron: the rules of DESIGN 4.2 in the neuron's own widths."""
    form = spec.number_format
    half, full = 1 << (form.state_bits - 1), 1 << form.decay_bits
    parameters: dict[str, Any] = {key: getattr(spec, key) for key in ("bias_u", "bias") if np.any(getattr(spec, key))}
    parameters |= {f"keep_{s}": full - np.asarray(getattr(spec, f"decay_{s}"), np.int64) for s in ("u", "v")}
    steps: list[tuple] = []

    def add_step(result: str, kind: str, *operands) -> str:
        steps.append((result, kind, *operands))
        return result

    x = add_step("biased", "add", INPUT, "bias_u") if "bias_u" in parameters else INPUT
    add_step("drive", "shl", x, form.shift_bits)
    for state in ("u", "v"):
        add_step(f"{state}_wide", "mul", state, f"keep_{state}")
        add_step(f"{state}_left", "shr0", f"{state}_wide", form.decay_bits)
    u = add_step("u_driven", "add", "u_left", "drive")
    if form.overflow == "wrap":
        add_step("is_over", "lt", half, u)
        add_step("u_lowered", "sub", u, 2 * half)
        add_step("is_under", "le", u, -half)
        add_step("u_raised", "add", u, 2 * half)
        add_step("u_inside", "select", "is_under", "u_raised", u)
        u = add_step("u_next", "select", "is_over", "u_lowered", "u_inside")
    else:
        u = add_step("u_next", "max", add_step("u_low", "min", u, half - 1), 1 - half)
    v = add_step("v_driven", "add", "v_left", u)
    v = add_step("v_biased", "add", v, "bias") if "bias" in parameters else v
    v = add_step("v_full", "max", add_step("v_low", "min", v, half - 1), 1 - half)
    states = [StateVariable("u", u, bits=form.state_bits + SPARE_BITS * (form.overflow == "wrap"))]
    waits = spec.fires and np.max(spec.refractory) > 1  # 1 freezes no step
    if spec.fires:
        parameters["threshold"] = spec.threshold
        fired = add_step("is_above", "lt" if spec.strict else "le", "threshold", v)
        if waits:
            parameters["refractory"] = spec.refractory
            add_step("steps_left", "max", add_step("waited", "sub", "wait", 1), 0)
            add_step("is_free", "le", "steps_left", 0)
            fired = add_step("fired", "and", "is_above", "is_free")
            add_step("wait_next", "select", fired, "refractory", "steps_left")
            states.append(StateVariable("wait", "wait_next", bits=1 + int(np.max(spec.refractory)).bit_length()))
        after: Any = 0
        if spec.reset == "value":
            parameters["reset_value"], after = spec.reset_value, "reset_value"
        if spec.reset == "subtract":
            after = add_step("v_lowered", "sub", v, "threshold")
        v = v if spec.reset == "none" else add_step("v_reset", "select", fired, after, v)
        add_step("spike", "number", fired)
    if spec.v_min is not None:
        parameters["v_min"] = spec.v_min
        v = add_step("v_clamped", "max", v, "v_min")
    v = add_step("v_next", "select", "is_free", v, "v") if waits else v
    return NeuronProgram(
        name="leaky",
        states=(*states, StateVariable("v", v, bits=form.state_bits)),
        operations=tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps),
        output="spike" if spec.fires else "v",
        sends="binary" if spec.fires else "none",
        is_fixed=True,
        parameters=parameters,
    )


def _is_expressible(spec: NeuronSpec, chip: Chip) -> bool:
    """Return whether `write_program` has the neuron's rules, and the chip's states their width."""
    form = spec.number_format
    is_plain = spec.spikes == "binary" and (spec.reset == "none" or spec.reset_timing == "now")
    has_clamp = spec.v_min is None or spec.clamp != "reset"
    has_room = form.state_bits + SPARE_BITS * (form.overflow == "wrap") <= chip.state.bits
    return is_plain and has_clamp and has_room and form.overflow in OVERFLOWS and not form.shifts


def _wraps_once(network: Network, name: str, form: FixedPoint) -> bool:
    """Return whether no step adds more to u than one wrap takes back, for inputs of -1, 0 and 1."""

    def payload(source: str) -> tuple[float, float]:
        neuron = network.node(source).neuron
        return (1.0, 1.0) if neuron is None else largest_payload(neuron)

    bias = np.abs(network.node(name).neuron.array("bias_u", network.node(name).shape)).max(initial=0)
    largest = max(float(side.max(initial=0)) for side in largest_sums(network, name, payload)) + float(bias)
    return form.overflow != "wrap" or largest * (1 << form.shift_bits) <= 1 << form.state_bits


def find_common_shift(connections: Sequence[Connection], chip: Chip) -> int:
    """Return the fewest bits to drop from all weights so that the chip's synapses hold them; 0 if there are none."""
    shift = 0
    whole: list[np.ndarray] = []
    while any(v for c in connections for v in weight_violations(_divide_weights(c, shift), chip)):
        whole, shift = whole or [effective_connection(c).weight for c in connections], shift + 1
        if shift == chip.state.bits or any(np.any(weight % (1 << shift)) for weight in whole):
            return 0
    return shift


def _divide_weights(connection: Connection, shift: int) -> Connection:
    """Return a connection whose weights are divided by 2**shift, without the bias, which its neurons have."""
    if shift == 0:
        return connection.replace(bias=None)
    whole = effective_connection(connection)
    return whole.replace(weight=whole.weight >> shift, weight_bits=None, bias=None)


def _describe_format(form: FixedPoint) -> str:
    return f"states of {form.state_bits} bits that {form.overflow}, decays of {form.decay_bits} bits"
