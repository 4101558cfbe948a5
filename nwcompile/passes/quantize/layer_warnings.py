"""Layer warnings: silent and saturated layers, and numbers that rounding or registers have erased."""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Direct, Sparse
from nwcompile.ir.shown import count_text, grouped
from nwcompile.passes.analyze.state_range import StateRange, state_bits
from nwcompile.passes.quantize.scaled_layer import Layer, Scaled

SATURATED = 0.95  # Above this share of its neurons and steps, a firing layer carries next to no information.
ALWAYS_ON = 0.05  # A larger share of neurons that always fire causes a warning.
# Rounding error of weights, over their root mean square, above which accuracy drops. The nets of benchmarks/convert.py
# and examples/mnist_snn.py have at most 0.16 at 4 bits and more, and lose at most 0.5 points there; with 3 bits or
# units of 1/255 they have 0.2 to 0.3 and lose up to 1 point; with 1 or 2 bits, 0.4 to 0.9 and 1 to 21 points.
COARSE = 0.2
ALIKE = 90.0  # Percentage of equal spikes above which a layer is fine, whatever its rounding error.
# Tolerated relative change of a layer's rate: at most 13 % in benchmarks/quantize_nets.py at 2 bits and more.
RATE_MOVED = 0.2
NEURON_MOVED = 0.5  # Tolerated relative change of a neuron's rate.
# Tolerated share of a layer's neurons above that: there at most 3 % at 3 bits and more, 23 % at 2 bits.
NEURONS_MOVED = 0.25
FEWEST_OF_LAYER = 100  # Spikes of a layer below which its rate is chance: their standard deviation is 10 %.
FEWEST_OF_NEURON = 20  # The same for a neuron, 22 %.
MOST_NAMED = 5  # Items that a warning lists; it counts the others.


def input_warnings(samples: dict[str, np.ndarray]) -> list[str]:
    """Warn of calibration samples without any spike."""
    if samples and not any(array.any() for array in samples.values()):
        return ["no input spikes in any calibration sample; give samples like those that the chip will see"]
    return []


def activity_warnings(name: str, wanted: np.ndarray | None, spikes: np.ndarray, before: list[str]) -> list[str]:
    """Warn of layers that carry nothing: never a spike, almost always one, or some neurons firing in every step.

    `before`: the sources of the layer, if none of them sent a spike; then the problem is in an earlier layer.
    """
    n_fired = np.count_nonzero(spikes)
    n_wanted = 0 if wanted is None else np.count_nonzero(wanted)
    if not n_fired and before:
        return [f"layer {name!r} gets no spike in the calibration samples: {', '.join(before)} sent none"]
    if not n_fired and n_wanted:
        return [
            f"layer {name!r} is dead on the chip: no spike in the calibration samples, {n_wanted} in float; "
            "give it more weight bits, or train it with weights of more equal size"
        ]
    if not n_fired:
        return [f"layer {name!r} is dead: no spike in the calibration samples; lower its threshold or train it longer"]
    if n_fired > SATURATED * spikes.size:
        return [
            f"layer {name!r} is saturated: {100 * n_fired / spikes.size:.0f} % of its neurons and steps fire in the "
            "calibration samples; raise its threshold or scale its input down"
        ]
    n_on = int((spikes != 0).all((0, 1)).sum())
    n = spikes[0, 0].size
    if n_on > ALWAYS_ON * n:
        return [
            f"layer {name!r}: {grouped(n_on)} of {grouped(n)} neurons fire in every step of the calibration samples; "
            "they carry nothing"
        ]
    return []


def number_warnings(row: dict, layer: Layer, scaled: Scaled, chip: Chip) -> list[str]:
    """Warn of numbers that rounding has erased."""
    name, warnings = row["layer"], []
    binary = [w for w, grid in zip(layer.weights, layer.grids, strict=True) if grid.is_binary]
    n_zero = sum(int(np.count_nonzero(w == 0)) for w in binary)
    if n_zero:
        warnings.append(
            f"layer {name!r}: weights of 1 bit and both signs have no 0, so {n_zero} of "
            f"{sum(w.size for w in binary)} weights are no longer 0; give it 2 bits, or leave these synapses out"
        )
    if row["tau_error_percent"] is None:
        warnings.append(
            f"layer {name!r}: a leak is finer than the chip's decay of {chip.state.decay_bits} bits, "
            "which cannot tell it from none or from a full one"
        )
    if scaled.weights and not any(w.effective.any() for w in scaled.weights) and row["weight_error_rms"]:
        warnings.append(
            f"layer {name!r}: every weight is 0 after rounding, because its biases, threshold or currents are so much "
            "larger; scale its input or take a chip with wider states"
        )
    return warnings


def rounding_warnings(row: dict, layer: Layer, scaled: Scaled, chip: Chip) -> list[str]:
    """Warn of weights with a rounding error that costs accuracy, and say whether bits or state width are short."""
    error, agreement = row["weight_error_rms"], row["spike_agreement_percent"]
    is_gone = not any(w.effective.any() for w in scaled.weights)
    if error < COARSE or is_gone or (agreement is not None and agreement >= ALIKE):
        return []
    if _lacks_bits(layer, scaled) and layer.bits is not None and layer.bits < chip.weights.bits:
        advice = f"give it more bits than {layer.bits}, or train it with nn.quantize_aware"
    elif _lacks_bits(layer, scaled):
        advice = (
            f"the chip has no more bits than {layer.bits} for them; train the layer with weights of more equal size, "
            "or with nn.quantize_aware"
        )
    else:
        largest = max(np.abs(w.effective).max(initial=0) for w in scaled.weights)
        advice = (
            f"the largest is {largest:.0f} there, because its threshold, biases or currents are so much larger; scale "
            "its input up (of nw.convert and nw.encode: a larger unit), or take a chip with wider states"
        )
    return [
        f"layer {row['layer']!r}: the chip's weights differ from the float ones by {100 * error:.0f} % (root mean "
        f"square), and from {100 * COARSE:.0f} % on networks lose accuracy; {advice}"
    ]


def lost_warnings(layers: dict[str, Layer], scaled: dict[str, Scaled], wanted: dict, sent: dict) -> list[str]:
    """Warn of connections whose weights are all 0 after rounding, and of neurons left without any weight.

    `wanted` and `sent`: spikes [B, T, *shape] by layer, of the float network and on the chip, empty without calibration
    samples. A neuron that fires and sends the same spikes in both has lost nothing. `number_warnings` covers layers
    without any weight left, `activity_warnings` dead ones.
    """
    connections, neurons, n_neurons = [], [], 0
    for name, layer in layers.items():
        parts = list(zip(layer.connections, layer.weights, scaled[name].weights, strict=True))
        if not any(rounded.effective.any() for _, _, rounded in parts):
            continue
        connections += [
            f"{c.source!r} -> {name!r}" for c, w, rounded in parts if w.any() and not rounded.effective.any()
        ]
        n = layer.node.n_neurons
        had, has = np.zeros(n, bool), np.zeros(n, bool)
        for c, weight, rounded in parts:
            had |= _has_weights(c, weight, n)
            has |= _has_weights(c, rounded.effective, n)
        lost = had & ~has
        if name in wanted and layer.neuron.fires:
            lost &= (wanted[name] != sent[name]).any((0, 1)).reshape(-1) & sent[name].any()
        if lost.any():
            n_neurons += int(lost.sum())
            neurons.append(f"{name!r} ({lost.sum()} of {n}: {_list_some([str(i) for i in np.flatnonzero(lost)])})")
    advice = (
        "the other weights of the layer are much larger; give the layer more weight bits if the chip has them, or "
        "train it with weights of more equal size"
    )
    warnings = []
    if connections:
        what = f"{count_text(len(connections), 'connection')} {'has' if len(connections) == 1 else 'have'}"
        warnings.append(f"{what} only weights of 0 after rounding ({_list_some(connections)}): {advice}")
    if neurons:
        what = f"{count_text(n_neurons, 'neuron')} {'has' if n_neurons == 1 else 'have'}"
        warnings.append(f"{what} only weights of 0 after rounding, in layer {_list_some(neurons)}: {advice}")
    return warnings


def rate_warnings(table: list[dict], wanted: dict, sent: dict) -> list[str]:
    """Return one warning for all layers whose firing rates differ from the float network's, except dead layers.

    `wanted` and `sent`: spikes [B, T, *shape] by layer, of the float network and on the chip.
    """
    moved = []
    for row in table:
        name, before, after = row["layer"], row["rate_float"], row["rate_fixed"]
        if before is None or not after or max(before, after) * wanted[name].size < FEWEST_OF_LAYER:
            continue
        float_count, count = ((spikes[name] != 0).sum((0, 1)) for spikes in (wanted, sent))
        larger, moves = np.maximum(float_count, count), np.abs(count - float_count)
        n_moved = np.count_nonzero((larger >= FEWEST_OF_NEURON) & (moves > NEURON_MOVED * float_count))
        if abs(after - before) > RATE_MOVED * before or n_moved > NEURONS_MOVED * larger.size:
            moved.append(
                f"{name!r} ({before:.3g} to {after:.3g} spikes per neuron and step; {n_moved} of {larger.size} neurons)"
            )
    if not moved:
        return []
    return [
        f"rounding changes the firing rate of {count_text(len(moved), 'layer')} by more than {100 * RATE_MOVED:.0f} % "
        f"in the calibration samples, or that of more than {100 * NEURONS_MOVED:.0f} % of its neurons by more than "
        f"{100 * NEURON_MOVED:.0f} %: {_list_some(moved)}; begin with the first: give it more weight bits, or train it "
        "with nn.quantize_aware"
    ]


def _has_weights(connection: Direct, weight: np.ndarray, n_target: int) -> np.ndarray:
    """Return bool[n_target]: the neurons with a non-zero weight."""
    if isinstance(connection, Sparse):
        return np.bincount(connection.post, weight != 0, n_target) > 0
    n_channels = len(weight)
    return np.repeat(weight.reshape(n_channels, -1).any(1), n_target // n_channels)


def _list_some(parts: list[str]) -> str:
    """Return the first MOST_NAMED items, and the number of the others."""
    named = ", ".join(parts[:MOST_NAMED])
    return f"{named}, and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else named


def _lacks_bits(layer: Layer, scaled: Scaled) -> bool:
    """Return whether grids are coarser than state units, or too narrow so that clipping causes most of the error."""
    clipped = total = 0.0
    for grid, wanted, given in zip(layer.grids, layer.weights, scaled.weights, strict=True):
        spacing = grid.spacing(given.exponent)
        if spacing > 1:
            return True
        error = np.abs(given.effective - wanted * scaled.weight_scale)
        clipped += float((error[error > spacing / 2] ** 2).sum())
        total += float((error**2).sum())
    return clipped > total / 2


def range_warnings(row: dict, states: StateRange, chip: Chip) -> list[str]:
    """Warn of a threshold beyond reach, and of states that overflowed."""
    name, warnings = row["layer"], []
    if not states.reaches_threshold and states.v_bound:
        bits = "" if row["bits"] is None else f" at {row['bits']} weight bits"
        warnings.append(
            f"layer {name!r} can never fire{bits}: its membranes reach {states.v_bound} at most, its thresholds are "
            f"{row['threshold_int']}; give it more bits, or lower its threshold"
        )
    for state in states.overflowing_states:
        largest = getattr(states, f"{state}_largest")
        what = "wraps" if chip.fixed_point.wraps(state) else "saturates"
        choice = 'set state.overflow = "saturate" or' if what == "wraps" else "set"
        warnings.append(
            f"layer {name!r}: {state} reaches {largest} in the calibration samples and {what}, beyond the "
            f"{chip.state.bits} bits of a state; {choice} state.bits = {state_bits(largest)}, or scale the layer down"
        )
    return warnings
