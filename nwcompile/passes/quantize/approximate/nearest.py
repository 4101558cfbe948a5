"""Nearest: find the chip's neuron that is closest to a given one, feature by feature.

Only features are chosen here; threshold and leak are then fitted on samples (`refit.py`). `suggest_items` lists the
approximations with which a network would fit whose neurons lack a feature on the chip.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.options import APPROXIMATIONS, EVERYTHING, Options
from nwcompile.passes.analyze.axon_types import too_many_weights
from nwcompile.passes.analyze.capability import kept_current
from nwcompile.passes.analyze.grids import round_bias
from nwcompile.passes.analyze.nonlinear import find_maxima, pooled_layer
from nwcompile.passes.analyze.pool import spike_cap
from nwcompile.passes.legalize.prove import COMPARISON
from nwcompile.passes.prepare.schedule import n_steps, schedule
from nwcompile.passes.quantize.approximate.nearest_program import built_in, can_be_built_in

# For each reset the alternatives, the closest first: what remains of a membrane above its threshold decides.
CLOSEST_RESETS = {"subtract": ("zero", "value"), "zero": ("value", "subtract"), "value": ("zero", "subtract"),
                  "none": ("subtract", "zero", "value")}  # fmt: skip
NO_BIAS = "no bias"
AT_MEMBRANE = "a bias of the membrane"
TIMINGS = {"now": "at once", "next": "one step late", "both": "by the count before"}
MESSAGES = {"graded": "messages carry counts and signs", "repeat": "n spikes are n messages"}  # by `on_multi_spike`


@dataclass(frozen=True)
class Feature:
    """A feature that the chip lacks: the `word` that allows the change, what the neuron `was` and what it `has`."""

    word: str
    was: str
    has: str


def nearest_neuron(
    spec: NeuronSpec, chip: Chip, options: Options, has_bias: bool = False, cap: int | None = None
) -> tuple[NeuronSpec, list[Feature]]:
    """Return the chip's nearest neuron, float or fixed as `spec` is, and the features that changed.

    Only features named in `options.approximate` change. `has_bias`: whether the connections into the neuron have a
    bias. `cap`: the most spikes per step of the chip's neuron, None if unknown. Of a neuron that never fires, only
    clamp, bias and current change.
    """
    features: list[Feature] = []
    can = chip.neuron

    def change(word: str, was: str, has: str, **changed) -> None:
        nonlocal spec
        if word in options.approximate:
            spec = spec.replace(**changed)
            features.append(Feature(word, was, has))

    if spec.fires:
        reset = "zero" if spec.reset == "value" and not np.any(spec.reset_value) else spec.reset
        if reset not in can.reset:
            closest = next(kind for kind in (*CLOSEST_RESETS[reset], "none") if kind in can.reset)
            timing = "next" if spec.reset_timing == "both" else spec.reset_timing
            change("reset", f"reset {reset}", f"reset {closest}", reset=closest, reset_value=0, reset_timing=timing)
        if spec.reset != "none" and spec.reset_timing not in can.reset_timing:
            timing = can.reset_timing[0]
            change("timing", TIMINGS[spec.reset_timing], TIMINGS[timing], reset_timing=timing)
        if not _is_sent(spec, chip, options.on_multi_spike):
            carried = "sign" if spec.message == "bipolar" else "count"
            hint = f" (on_multi_spike='graded' sends the {carried})" if chip.carries_message(spec.message) else ""
            change("multi-spike", f"{spec.spikes} spikes", f"one spike per step{hint}", spikes="binary")
        used = spec.max_spikes if spec.spikes == "multi" else 1
        if cap is not None and used != cap and spec.spikes in ("binary", "multi"):
            was = "any number of spikes" if used is None else "one spike" if used == 1 else f"up to {used} spikes"
            several = {"spikes": "binary", "max_spikes": None} if cap == 1 else {"spikes": "multi", "max_spikes": cap}
            has = "one spike per step" if cap == 1 else f"up to {cap} spikes per step"
            change("multi-spike", f"{was} per step", has, **several)
        longest = can.refractory_max_steps
        if np.max(spec.refractory) > longest:
            shorter = np.minimum(np.asarray(spec.refractory), longest)
            was = f"refractory {int(np.max(spec.refractory))} steps"
            change("refractory", was, f"{longest} steps", refractory=shorter)
        if spec.fixed is not None and spec.strict not in can.strict:
            change("strict", COMPARISON[bool(spec.strict)], COMPARISON[not spec.strict], strict=not spec.strict)
    was = "no clamp" if spec.v_min is None else "a clamp below 0" if np.any(spec.v_min) else "a clamp at 0"
    if not can.has_floor(spec) and can.v_min == "zero":
        change("v_min", was, "clamp at 0", v_min=0, clamp="maximum")
    elif not can.has_floor(spec):
        change("v_min", was, "no clamp", v_min=None)
    if not can.bias and (has_bias or np.any(spec.bias) or np.any(spec.bias_u)):
        change("bias", "a bias", NO_BIAS, bias=0, bias_u=0)
    slowest = chip.state.decay_offset
    if spec.fixed is not None and np.min(spec.decay_u) < slowest:
        lost, whole = np.asarray(spec.decay_u), 1 << spec.fixed.decay_bits
        was = f"a current that loses {lost.min()}/{whole} per step"
        change("decay", was, f"{slowest}/{whole} or more", decay_u=np.maximum(lost, slowest))
    kept = kept_current(spec)
    if can.current is False and np.any(kept):
        was = f"a current that keeps up to {100 * float(np.max(kept)):.3g} % per step"
        change("decay", was, "no current", **_drop_current(spec))
    is_biased = np.any(spec.bias_u) or (has_bias and spec.alpha is not None)
    if can.current_bias is False and is_biased and np.max(kept_current(spec)) < 1:  # otherwise it grows without bound
        change("bias", "a bias of the current", AT_MEMBRANE, **_move_bias(spec, chip))
    return spec, features


def _drop_current(spec: NeuronSpec) -> dict:
    """Return the fields of a neuron that gets all of its input at once, in the step in which it arrives."""
    if spec.fixed is not None:
        return {"decay_u": spec.fixed.fastest}
    w_in = np.asarray(spec.w_in)
    return {"alpha": None, "w_in": 1.0, "gain": np.asarray(spec.gain) * w_in, "r": np.asarray(spec.r) * w_in}


def _move_bias(spec: NeuronSpec, chip: Chip) -> dict:
    """Return biases at the membrane of a fixed-point neuron, equal to the steady state of the current's bias.

    A float neuron has its biases in its connections.
    """
    if spec.fixed is None:
        return {}
    lost = spec.fixed.lost(spec.decay_u)
    in_the_end = (np.asarray(spec.bias_u, np.int64) << spec.fixed.shift_bits) * (1 - lost) / lost
    return {"bias": round_bias(np.asarray(spec.bias) + in_the_end, chip), "bias_u": 0}


def _move_float_bias(spec: NeuronSpec, added: np.ndarray) -> NeuronSpec:
    """Move biases of a float neuron's connections, `added` up, from the current to the membrane."""
    alpha = np.asarray(spec.alpha, np.float64)
    current = np.asarray(spec.w_in) * added / (1 - alpha) * (alpha if spec.current_order == "add_then_decay" else 1)
    gain = np.asarray(spec.gain) if spec.membrane == "linear" else np.asarray(spec.k) * np.asarray(spec.r)
    return spec.replace(bias=np.asarray(spec.bias) + gain * current)


def _is_sent(spec: NeuronSpec, chip: Chip, on_multi_spike: str) -> bool:
    """Return whether messages can carry the neuron's spikes."""
    kind = spec.message
    if kind == "multi" and on_multi_spike == "repeat" and chip.core.axon_merge is None:
        return True
    return kind in ("binary", *chip.neuron.spikes) or on_multi_spike == "graded"


def nearest_network(network: Network, chip: Chip, options: Options) -> tuple[Network, dict[str, list[Feature]]]:
    """Return the network with the nearest neurons that `options.approximate` allows, and changed features by layer."""
    nodes, features_of = dict(network.nodes), {}
    for name in network.layers:
        neuron, swapped = nodes[name].neuron, []
        if isinstance(neuron, NeuronProgram):
            if "program" not in options.approximate or not can_be_built_in(neuron, chip):
                continue
            swapped = [Feature("program", f"program {neuron.name}", "built-in neurons")]
            neuron = built_in(neuron, chip)
        given = [c for c in network.into(name) if getattr(c, "bias", None) is not None]
        has_bias = any(np.any(c.bias) for c in given)
        cap = spike_cap(network, chip, name)
        spec, features = nearest_neuron(neuron, chip, options, has_bias, cap)
        features = [*swapped, *features]
        if spec.fixed is None and any(feature.has == AT_MEMBRANE for feature in features):
            biases = [b for c in given if (b := c.bias_per_neuron(nodes[name].shape)) is not None]
            spec = _move_float_bias(spec, np.sum(biases, axis=0))
        if features:
            nodes[name] = Node(name, nodes[name].shape, spec)
            features_of[name] = features
    edges = network.connections
    if "delay" in options.approximate:
        timing = schedule(network, options.execution)
        pairs = zip(edges, timing.delay, strict=True)
        edges = tuple(_shorten_delay(c, n_steps(c, delay, timing), chip, features_of) for c, delay in pairs)
    bare = {name for name, features in features_of.items() if any(feature.word == "bias" for feature in features)}
    edges = tuple(c.replace(bias=None) if c.target in bare and c.has_weight else c for c in edges)
    return (Network(network.inputs, nodes, edges), features_of) if features_of else (network, {})


def _shorten_delay(connection: Connection, steps: int, chip: Chip, features_of: dict[str, list[Feature]]) -> Connection:
    """Return a connection with at most the chip's longest delay, as in lava-dl's netx; add a feature if it changes.

    `steps`: from a spike to its effect, one more than the delay of a synapse at most. A delay that goes back is 1 or
    more.
    """
    longest = max(chip.neuron.delay_max_steps, int(steps <= connection.aligned_delay))
    if steps <= 1 + chip.neuron.delay_max_steps or connection.aligned_delay <= longest:
        return connection
    was = f"a delay of {connection.aligned_delay} steps from {connection.source}"
    feature = Feature("delay", was, f"{longest} steps")
    features_of.setdefault(connection.target, []).append(feature)
    return connection.replace(delay=longest)


def suggest_items(network: Network, chip: Chip, options: Options, check: Callable[[Options], object]) -> str | None:
    """Return the `approximate` items with which a legalized network's totals would fit, as advice, or None.

    `check(options)` raises FitError unless the network fits with other options.
    """
    lacking = nearest_network(network, chip, replace(options, approximate=EVERYTHING))[1]
    words = {*options.approximate, *(feature.word for features in lacking.values() for feature in features)}
    if any(pooled_layer(network, pool) for pool in find_maxima(network)):
        words.add("pool")
    if words == set(options.approximate):
        return None
    if too_many_weights(network, chip) or not _options_fit(check, replace(options, approximate=tuple(words))):
        return None
    listed = ",".join(word for word in APPROXIMATIONS if word in words)
    text = f"approximate={listed!r} (--approximate {listed}): the chip's nearest features; the report shows the loss"
    if "multi-spike" in words - set(options.approximate):
        text = f"{_other_messages(options, words, check)}{text}"
    if chip.weights.axon_types is None:
        return text
    n_types = chip.weights.axon_types
    return f"{text} (if its quantized weights need no more than {n_types} axon types, which this does not tell)"


def _options_fit(check: Callable[[Options], object], options: Options) -> bool:
    try:
        check(options)
    except FitError:
        return False
    return True


def _other_messages(options: Options, words: set[str], check: Callable[[Options], object]) -> str:
    """Return a way to send several or negative spikes unchanged, if one fits."""
    fewer = tuple(word for word in APPROXIMATIONS if word in words - {"multi-spike"})
    asked = f" and approximate={','.join(fewer)!r}" if fewer else ""
    for way, what in MESSAGES.items():
        if _options_fit(check, replace(options, on_multi_spike=way, approximate=fewer)):
            return f"on_multi_spike={way!r}{asked} (nearer: {what}), or "
    return ""
