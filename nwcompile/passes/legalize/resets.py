"""Resets: replace the resets and clamps that a chip lacks by those that it has, if the spikes stay the same.

A neuron without current and membrane memory (stateless), such as a relay neuron of pooled spikes, fires by the input of
the step alone. Its reset and clamp act after the spike, so they affect no spike, and any of the chip will do. A relay
neuron sends in a step what it receives in it.

Proof for a reset that is one step late. Let v be the membrane in the step of a spike, before any reset. `next` keeps v
until the next step and subtracts the threshold right after the leak; `now` subtracts it at once, and the leak acts on
the rest. Without a leak both give v - threshold + input, in every later step too, also while a neuron is refractory. A
reset to zero forgets v, so the leak does not matter. A clamp at 0 or below changes neither, because the rest after a
spike is not below 0. This fails for bipolar neurons with a clamp, which stay unchanged.

`both` subtracts the threshold by the count that the membrane of the previous step stands for, then the difference. That
count is 0, and `both` equals `now`, as long as no membrane stays above its threshold: always if a neuron spikes as
often as its membrane holds the threshold. For binary neurons it requires that no step adds more than what a leak leaves
of two thresholds, which is not checked.

On a chip without resets, a synapse of weight -threshold from a neuron to itself replaces subtraction. If the synaptic
current decays within a step, a neuron's own spike has the effect of a late subtraction (`next`) one step later, right
after the leak: dec(v) + input - threshold. An immediate subtraction is equivalent if the membrane does not leak. Only
integers can show that the threshold is a weight of the chip, so only networks that are given in integers are rewritten.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.grids import find_decay_for_loss, holds_mantissas
from nwcompile.passes.analyze.state_range import state_range

RELAY = NeuronSpec(beta=0.0, threshold=0.5, reset="zero")  # It keeps no state: a spike of weight 1 drives it to 1.
HARMLESS = ("zero", "value", "none", "subtract")  # Resets in order of preference; v is forgotten after the step anyway.
WHY = {"zero": "zero now forgets as much as zero next", "subtract": "without a leak both leave the same membrane",
       "both": "with several spikes per step no membrane is left above its threshold"}  # fmt: skip


def free_resets(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Use the chip's resets and clamp for stateless neurons whose own the chip lacks."""
    nodes, changes = dict(network.nodes), []
    for name in network.built_in:
        spec = nodes[name].neuron
        if not is_stateless(spec):
            continue
        clamp = {} if chip.neuron.has_floor(spec) else {"v_min": 0 if chip.neuron.v_min == "zero" else None}
        fitting = _fit_reset(spec.replace(clamp="maximum", **clamp) if clamp else spec, chip)
        if fitting is not None and fitting is not spec:
            nodes[name] = Node(name, nodes[name].shape, fitting)
            how = "it keeps no membrane from step to step"
            changes.append(Change(name, _describe_reset(spec), _describe_reset(fitting), how, EXACT))
    return (Network(network.inputs, nodes, network.connections), changes) if changes else (network, [])


def is_stateless(spec: NeuronSpec) -> bool:
    """Return whether a neuron's spikes depend only on the input of the step, apart from a refractory time."""
    if not spec.fires or spec.spikes == "gated":
        return False
    if spec.reset_timing != "now" and spec.reset not in ("zero", "none"):
        return False  # a reset in the next step would subtract from its input
    if spec.fixed is not None:
        return all(np.all(np.asarray(decay) == spec.fixed.fastest) for decay in (spec.decay_u, spec.decay_v))
    return spec.alpha is None and spec.membrane == "linear" and not np.any(spec.beta)


def _fit_reset(spec: NeuronSpec, chip: Chip) -> NeuronSpec | None:
    """Return the neuron with a reset of the chip, or None if none is harmless."""
    reset = "zero" if spec.reset == "value" and not np.any(spec.reset_value) else spec.reset
    timed = spec.reset == "none" or spec.reset_timing in chip.neuron.reset_timing
    if reset in chip.neuron.reset and timed:
        return spec
    harmless = harmless_reset(chip)
    return None if harmless is None else spec.replace(reset_value=0, **harmless)


def _describe_reset(spec: NeuronSpec) -> str:
    clamp = "no clamp" if spec.v_min is None else f"clamp at {float(np.min(spec.v_min)):g}"
    return f"reset {spec.reset}, {clamp}"


def relay_neuron(chip: Chip) -> NeuronSpec | None:
    """Return the float relay neuron that the chip supports, or None.

    If decays are shifts, a current outlasts its step, and a relay neuron would send a spike twice.
    """
    harmless = harmless_reset(chip)
    if harmless is None or chip.fixed_point.shifts:
        return None
    relay = RELAY.replace(v_min=0.0 if chip.neuron.v_min == "zero" else None, **harmless)
    if chip.neuron.leak is False:  # Then the reset clears v, because any spike makes it fire.
        return relay.replace(beta=1.0) if harmless["reset"] in ("zero", "value") else None
    return relay


def harmless_reset(chip: Chip) -> dict[str, str] | None:
    """Return a `reset` and `reset_timing` of the chip without effect on the spikes of a stateless neuron, or None."""
    late = "now" not in chip.neuron.reset_timing  # then only kinds that the step forgets anyway
    kinds = [kind for kind in HARMLESS if kind in chip.neuron.reset and not (late and kind in ("value", "subtract"))]
    timing = chip.neuron.reset_timing[0] if late else "now"
    return {"reset": kinds[0], "reset_timing": timing} if kinds else None


def to_scalar_neuron(spec: NeuronSpec) -> NeuronSpec:
    """Return the neuron of a layer of size one with scalar parameters, for layers of any shape."""
    values = {name: getattr(spec, name) for name in NeuronSpec.NUMBERS}
    return spec.replace(**{name: v.item() for name, v in values.items() if isinstance(v, np.ndarray)})


def reset_now(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Replace late resets by immediate ones if the chip has no late ones and the spikes are provably the same."""
    nodes, changes = dict(network.nodes), []
    for name in network.built_in:
        spec = nodes[name].neuron
        if not spec.fires or spec.reset == "none" or spec.reset_timing in chip.neuron.reset_timing:
            continue
        if "now" not in chip.neuron.reset_timing or not is_same_now(spec, chip):
            continue
        kind = "subtract" if spec.reset == "subtract" else "zero"
        nodes[name] = Node(name, nodes[name].shape, spec.replace(reset=kind, reset_timing="now"))
        was = f"reset {spec.reset}, {spec.reset_timing}"
        has, why = f"resets {', '.join(chip.neuron.reset_timing)}", WHY.get(spec.reset_timing, WHY[kind])
        changes.append(Change(name, was, has, why, EXACT))
    return (Network(network.inputs, nodes, network.connections), changes) if changes else (network, [])


def is_same_now(spec: NeuronSpec, chip: Chip) -> bool:
    """Return whether a neuron with a late reset sends the same spikes on `chip` as with a reset in the same step."""
    counts_all = spec.spikes == "multi" and spec.max_spikes is None
    if spec.reset_timing == "now" or (spec.reset_timing == "both" and not counts_all):
        return False
    if np.min(np.asarray(spec.threshold)) < 0:  # a late reset takes a cleared membrane for one that fired
        return False
    if spec.clamp == "reset" and spec.v_min is not None:
        return False
    if spec.v_min is not None and (np.max(spec.v_min) > 0 or spec.spikes == "bipolar"):
        return False
    if spec.reset == "subtract":
        return spec.reset_timing == "both" or not np.any(_leak_share(spec, chip))
    return spec.reset == "zero" or (spec.reset == "value" and not np.any(spec.reset_value))


def _leak_share(spec: NeuronSpec, chip: Chip) -> np.ndarray:
    """Return the share of the membrane that the chip's leak removes per step; 0 without a leak."""
    form = chip.fixed_point
    if spec.fixed is not None:
        return spec.fixed.lost(spec.decay_v)
    keep = np.asarray(spec.beta if spec.membrane == "linear" else 1 - np.asarray(spec.k), np.float32)
    return form.lost(find_decay_for_loss(1 - keep.astype(np.float64), form))


def self_connections(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Replace subtractions of a fixed-point network by self-connections, on a chip whose only reset is `none`."""
    nodes, edges, changes = dict(network.nodes), [], []
    for name in network.built_in if network.is_fixed and chip.neuron.reset == ["none"] else ():
        node = nodes[name]
        synapses = _self_edges(node, chip) if _subtracts_late(node.neuron) and _has_room(network, node, chip) else None
        if synapses is None:
            continue
        nodes[name] = Node(name, node.shape, node.neuron.replace(reset="none", reset_timing="now"))
        edges.append(synapses)
        was, how = "reset subtract", "each neuron's own spike takes its threshold off in the next step"
        changes.append(Change(name, was, "no reset", how, EXACT))
    return (Network(network.inputs, nodes, (*network.connections, *edges)), changes) if edges else (network, [])


def _subtracts_late(spec: NeuronSpec) -> bool:
    """Return whether the subtraction equals one right after the leak of the next step, in every state."""
    fixed = spec.number_format
    is_late = spec.reset_timing == "next" or (spec.reset_timing == "now" and not np.any(fixed.lost(spec.decay_v)))
    forgets = np.all(np.asarray(spec.decay_u) == fixed.fastest)
    plain = spec.fires and spec.spikes == "binary" and spec.v_min is None and np.max(spec.refractory) <= 1
    return bool(spec.reset == "subtract" and is_late and forgets and plain and np.min(spec.threshold) >= 0)


def _has_room(network: Network, node: Node, chip: Chip) -> bool:
    """Return whether a neuron may have one more destination, and its current can hold its threshold in addition."""
    limit = chip.limit("max_neuron_destinations")
    feeds_others = any(c.target != node.name for c in network.out_of(node.name))
    u_bound = state_range(network, node.name, None, None).u_bound
    largest = (1 << (chip.state.bits - 1)) - 1
    holds = u_bound is not None and u_bound + int(np.max(node.neuron.threshold)) <= largest
    return holds and (limit is None or int(limit.max()) > feeds_others)


def _self_edges(node: Node, chip: Chip) -> Sparse | None:
    """Return one synapse of weight -threshold per neuron, or None if the chip has no such weights."""
    can, shift = chip.weights, node.neuron.fixed.shift_bits
    threshold = node.neuron.array("threshold", node.shape).reshape(-1)
    for exponent in range(max(can.exponent_min, 0), can.exponent_max + 1):
        unit = 1 << (shift + exponent)
        mantissa = -(threshold // unit)
        is_held = holds_mantissas(mantissa, chip, "mixed") and (threshold >> shift).max() <= can.effective_limit
        if not np.any(threshold % unit) and is_held:
            every = np.arange(node.n_neurons)
            weight = mantissa.astype(np.int32)
            return Sparse(node.name, node.name, pre=every, post=every, weight=weight, exponent=exponent, delay=1)
    return None
