"""Quantization table: one row per layer with its integers, rounding errors, and results on calibration samples."""

from collections.abc import Sequence

import numpy as np

from nwcompile.cost.neuron_program import program_length, state_words
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection
from nwcompile.ir.manifest import QuantizationRow
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.passes.analyze.state_range import StateRange, state_bits
from nwcompile.passes.quantize.scaled_layer import Layer, Scaled, weight_error

COLUMNS = tuple(QuantizationRow.__annotations__)


def scaled_row(layer: Layer, scaled: Scaled) -> dict:
    """Return a layer's row as far as known without a run; every column exists."""
    spec, d, n_weights = layer.neuron, layer.dynamics, sum(w.effective.size for w in scaled.weights)
    n_clipped = sum(w.n_clipped for w in scaled.weights)
    keep_u = np.zeros(()) if spec.alpha is None else d.keep_u
    return dict.fromkeys(COLUMNS) | {
        "layer": layer.node.name,
        "bits": layer.bits,
        "scale": scaled.scale,
        "channel_scale": None if layer.channel_scale is None else _value_range(layer.channel_scale),
        "exponents": [w.exponent for w in scaled.weights],
        "n_weights": n_weights,
        "clipped_weights": n_clipped,
        "clipped_percent": 100 * n_clipped / n_weights if n_weights else 0.0,
        "weight_error_rms": weight_error(layer, scaled),
        "tau_u": _time_constants(keep_u),
        "tau_v": _time_constants(d.keep_v),
        **_chip_taus(scaled.neuron),
        "tau_error_percent": d.tau_error_percent,
        "threshold_float": _value_range(layer.node.neuron.threshold) if spec.fires else None,
        "threshold_int": _value_range(scaled.neuron.threshold) if spec.fires else None,
        "threshold_factor": scaled.threshold_factor if spec.fires else None,
        "strict_change": _strict_change(spec, scaled),
    }


def kept_row(name: str, neuron: NeuronSpec | NeuronProgram, into: Sequence[Connection], chip: Chip) -> dict:
    """Return the row of a layer that was given in integers."""
    built_in = {} if isinstance(neuron, NeuronProgram) else _built_in(neuron)
    return dict.fromkeys(COLUMNS) | {
        "layer": name,
        "bits": max((c.weight_bits or chip.weights.bits for c in into), default=None),
        "scale": 1.0,
        "exponents": [int(c.exponent) for c in into],
        "n_weights": sum(np.size(c.weight) for c in into),
        **built_in,
    }


def complete_table(table: list[dict], network: Network, chip: Chip) -> list[dict]:
    """Return one row for each layer of a fixed-point network, in order; new rows have no rates."""
    rows = {row["layer"]: row for row in table}
    for name in network.layers:
        if name not in rows:
            neuron = network.node(name).neuron
            rows[name] = kept_row(name, neuron, network.into(name), chip)
            rows[name] |= program_states(neuron, chip, None) if isinstance(neuron, NeuronProgram) else {}
    return [rows[name] for name in network.layers]


def refitted_row(row: dict, neuron: NeuronSpec | NeuronProgram, scale_factor: float | None = None) -> dict:
    """Return the row of a layer whose integers changed after quantization: the new threshold and time constants.

    If a built-in neuron replaced a program, its scale is that of the readout times `scale_factor`.
    """
    if isinstance(neuron, NeuronProgram):
        return row
    if "program" in row:
        scale = None if scale_factor is None else row["scale"] * scale_factor
        row = {key: value for key, value in row.items() if key in COLUMNS} | {"scale": scale}
    return row | _built_in(neuron)


def _built_in(spec: NeuronSpec) -> dict:
    return {**_chip_taus(spec), "threshold_int": _value_range(spec.threshold) if spec.fires else None}


def spike_rates(wanted: np.ndarray | None, spikes: np.ndarray) -> dict:
    """Return spikes per neuron and step, and the percentage of spikes equal to the float layer's (`wanted`)."""
    if wanted is None:
        return {"rate_fixed": _spike_rate(spikes)}
    either = int(np.count_nonzero((wanted != 0) | (spikes != 0)))
    alike = int(np.count_nonzero((wanted == spikes) & (spikes != 0)))
    return {
        "rate_float": _spike_rate(wanted),
        "rate_fixed": _spike_rate(spikes),
        "spike_agreement_percent": 100.0 * alike / either if either else 100.0,
    }


def state_columns(reach: StateRange, chip: Chip) -> dict:
    """Return the bounds and largest values of the states, and `overflow`: a sentence, None if nothing can overflow."""
    return {
        "u_bound": reach.u_bound,
        "v_bound": reach.v_bound,
        "u_largest": reach.u_largest,
        "v_largest": reach.v_largest,
        "state_limit": reach.limit,
        "state_bits": chip.state.bits,
        "overflow": None if reach.is_safe else _describe_overflow(reach, chip),
    }


def program_states(
    program: NeuronProgram,
    chip: Chip,
    seen: dict[str, np.ndarray] | None,
    bounds: dict[str, int] | None = None,
    formats: Sequence[dict] = (),
) -> dict:
    """Return the states of a program layer: their widths, and the largest magnitudes in the samples, `seen`.

    `bounds`: their proven bounds; a state never overflows if its bound is within its width. `formats`: by state its
    `unit` and `scale`, none for a program given in whole numbers.

    `instructions` and `state_words`: what its program takes of a core, and what each of its neurons takes.
    """
    largest = {} if seen is None else {name: int(np.abs(value).max(initial=0)) for name, value in seen.items()}
    format_of = {row["state"]: row for row in formats}
    rows = [
        {
            "state": s.name,
            **{key: format_of.get(s.name, {}).get(key) for key in ("unit", "scale")},
            "bits": s.bits,
            "overflow": s.overflow,
            "bound": None if bounds is None else bounds[s.name],
            "largest": largest.get(s.name),
        }
        for s in program.states
    ]
    size = {"instructions": program_length(program), "state_words": state_words(program, chip)}
    return {"program": program.name, **size, "states": rows}


def _describe_overflow(reach: StateRange, chip: Chip) -> str:
    """Describe which states could overflow, the consequence, whether it happened, and a remedy."""
    bounds = {"u": reach.u_bound, "v": reach.v_bound}
    wraps = [name for name, b in bounds.items() if chip.fixed_point.wraps(name) and (b is None or b > reach.limit)]
    parts = []
    for name, bound in bounds.items():
        if bound is not None and bound <= reach.limit:
            continue
        need = "may grow without bound"
        if bound is not None:
            need = f"may need {state_bits(bound)} bits, more than the chip's {chip.state.bits},"
        does = "wraps" if name in wraps else "saturates"
        seen = "" if reach.u_largest is None else " (not in the calibration samples)"
        seen = " (as in the calibration samples)" if name in reach.overflowing_states else seen
        parts.append(f"{name} {need} and then {does}{seen}")
    ways = []
    if wraps and chip.state.overflow == "modulo" and None in bounds.values():
        ways.append("more state.bits delay it, and exports prove for how many steps it cannot happen")
    elif wraps:
        ways.append(f'state.overflow = "saturate" keeps {" and ".join(wraps)} from wrapping')
    known = [bound for bound in bounds.values() if bound is not None]
    if len(known) == len(bounds):
        ways.append(f"state.bits = {state_bits(max(known))} holds every value")
    return "; ".join([*parts, *ways])


def _strict_change(spec: NeuronSpec, scaled: Scaled) -> str | None:
    neuron = scaled.neuron
    if neuron.strict == spec.strict or not spec.fires:
        return None
    sign = {True: ">", False: ">="}
    threshold = scaled.scale * scaled.threshold_factor * np.min(spec.threshold)
    change = f"v {sign[spec.strict]} {threshold:.6g} became v {sign[neuron.strict]} {np.min(neuron.threshold)}"
    if spec.reset == "subtract" or spec.spikes == "multi":
        change += ", which is also what a spike counts and subtracts"
    return change


def _chip_taus(spec: NeuronSpec) -> dict:
    keep_u, keep_v = (1 - spec.number_format.lost(k) for k in (spec.decay_u, spec.decay_v))
    return {"tau_u_chip": _time_constants(keep_u), "tau_v_chip": _time_constants(keep_v)}


def _time_constants(keep: np.ndarray):
    """Return time constants in steps, -1 / ln(share kept per step); None without a leak, or without memory."""
    leaky = keep[(keep > 0) & (keep < 1)]
    return _value_range(-1 / np.log(leaky)) if leaky.size else None


def _value_range(value):
    """Return a number, or [least, largest] if neurons differ."""
    low, high = np.min(value).item(), np.max(value).item()
    return low if low == high else [low, high]


def _spike_rate(spikes: np.ndarray) -> float:
    return int(np.count_nonzero(spikes)) / spikes.size
