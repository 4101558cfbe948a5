"""Nearest program: fit a built-in neuron to a neuron program, for chips whose neurons are not programmable.

A program does not say which threshold and leak come closest, so both are searched on samples, on integers. The built-in
neuron gets the sums of the program, and should fire as often and as similarly as possible (`refit.py`). For a readout,
the leak is searched whose membrane is closest to a multiple of the program's state.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.passes.analyze.grids import find_decay_for_loss, largest_threshold, round_bias
from nwcompile.passes.quantize.approximate.ideal import DrivenLayer, PooledLayer
from nwcompile.passes.quantize.approximate.refit import Refitted, best_value, refit, scale_neuron
from nwcompile.passes.quantize.program_format import to_whole_numbers
from nwcompile.passes.quantize.program_tables import any_table
from nwcompile.passes.quantize.scale_search import n_spikes

RESETS = ("subtract", "zero")  # Resets to try, of those that the chip has.
FIRST_LEAK = 0.1  # The search begins with this loss per step: a time constant of 10 steps.
FAST_LEAK = 0.5  # A second search begins with this loss, faster than any multiple of the first that is tried.
FIRST_THRESHOLDS = tuple(2.0**k for k in range(4, -9, -1))  # As fractions of the largest sum of the samples.
READOUT_LEAKS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)  # Leaks to try for a readout.
N_LEAKS_REFINED = 4  # Further leaks, each halfway between the best so far and a neighbor.
TRIED_BITS = 8  # Bits after the point for the test whether a float program can be written in whole numbers.


@dataclass(frozen=True)
class FittedProgram(Refitted):
    """The built-in neuron that replaces a program."""

    def __str__(self) -> str:
        spec = self.neuron
        lost = float(np.max(spec.number_format.lost(spec.decay_v)))
        parts = [f"a membrane that loses {100 * lost:.3g} % per step" if lost else "no leak"]
        if spec.fires:
            least, largest = int(np.min(spec.threshold)), int(np.max(spec.threshold))
            threshold = f"threshold {least}" if least == largest else f"thresholds {least} to {largest}"
            parts = [f"reset {spec.reset}", threshold, *parts]
        if self.current is not None:
            parts.append(f"inputs as a current that keeps {self.current:.0%} per step")
        elif spec.number_format.shifts:
            parts.append("inputs as a current that halves in every step")
        return ", ".join(parts)


def can_be_built_in(program: NeuronProgram, chip: Chip) -> bool:
    """Return whether a built-in neuron can replace a program: it sends spikes or is read, and whole numbers express it.

    Graded messages are not spikes.
    """
    if chip.neuron.programmable or program.sends == "graded" or not (_chip_resets(chip) or not program.fires):
        return False
    if program.is_fixed:
        return True
    try:
        to_whole_numbers(program, TRIED_BITS, 24, 1.0, table_of=any_table)
    except ModelError:
        return False
    return True


def built_in(program: NeuronProgram, chip: Chip) -> NeuronSpec:
    """Return the built-in neuron from which `refit_program` starts, float or in integers as the program is."""
    can = chip.neuron
    leak = 0.0 if can.leak is False else FIRST_LEAK
    kinds: dict[str, Any] = {
        "spikes": program.message,
        "strict": can.strict[0],
        "reset": _chip_resets(chip)[0],
        "reset_timing": can.reset_timing[0],
        "fires": True,
    }
    if not program.fires:
        kinds = {"fires": False, "reset": "none", "strict": can.strict[0]}
    if can.v_min == "zero":
        kinds["v_min"] = 0
    if not program.is_fixed:
        return NeuronSpec(threshold=1.0, beta=1 - leak, **kinds)
    form = chip.fixed_point
    decay = find_decay_for_loss(np.asarray(leak), form)
    bias = round_bias(np.asarray(program.input_bias, np.int64) << form.shift_bits, chip)
    # A shift of 0 would lose a sum before it is used.
    fastest = 1 if form.shifts else form.fastest
    return NeuronSpec(threshold=largest_threshold(chip), decay_u=fastest, decay_v=decay, bias=bias, fixed=form, **kinds)


def _chip_resets(chip: Chip) -> list[str]:
    return [kind for kind in RESETS if kind in chip.neuron.reset]


def refit_program(
    layer: DrivenLayer | PooledLayer, spec: NeuronSpec, wanted: tuple[np.ndarray, ...], chip: Chip
) -> FittedProgram:
    """Fit the built-in neuron, starting from `spec`, whose trains are closest to `wanted` `[B, T, *shape]`.

    A layer that never fires in the samples gets the largest threshold, so it never fires afterwards.
    """
    if not any(np.any(train) for train in wanted):
        return FittedProgram(spec.replace(threshold=largest_threshold(chip)), np.ones(1), None, (0.0, 0.0))
    fits = []
    for reset in _chip_resets(chip):
        start = _find_first_threshold(layer, spec.replace(reset=reset), wanted, chip)
        fits.append(refit(layer, start, wanted, chip))
    best = min(fits, key=lambda fit: fit.off)
    if chip.neuron.leak is not False:
        fast = find_decay_for_loss(np.asarray(FAST_LEAK), spec.number_format)
        start = _find_first_threshold(layer, spec.replace(reset=best.neuron.reset, decay_v=fast), wanted, chip)
        best = min(best, refit(layer, start, wanted, chip), key=lambda fit: fit.off)
    return FittedProgram(best.neuron, best.threshold_factor, best.leak_factor, best.off, best.current)


def _find_first_threshold(
    layer: DrivenLayer | PooledLayer, spec: NeuronSpec, wanted: tuple[np.ndarray, ...], chip: Chip
) -> NeuronSpec:
    """Return the neuron with the threshold of FIRST_THRESHOLDS at which it fires about as often as wanted."""
    peak = max(layer.largest_drive, 1) << spec.number_format.shift_bits
    aim = n_spikes(wanted[0])
    tried = [scale_neuron(spec.replace(threshold=peak), chip, np.asarray(part), None, 0.0) for part in FIRST_THRESHOLDS]
    return min(tried, key=lambda neuron: abs(n_spikes(layer.run_trains(neuron)[0]) - aim))


def refit_readout(layer: DrivenLayer, spec: NeuronSpec, wanted: np.ndarray, chip: Chip) -> FittedProgram:
    """Fit the readout whose membrane is closest, up to a factor, to `wanted` `[B, T, *shape]`."""
    leaks = (0.0,) if chip.neuron.leak is False else READOUT_LEAKS

    def at(leak: float) -> FittedProgram:
        neuron = spec.replace(decay_v=find_decay_for_loss(np.asarray(leak), spec.number_format))
        membrane = layer.run_membrane(neuron).astype(np.float64)
        factor = float((membrane * wanted).sum() / max(np.square(wanted, dtype=np.float64).sum(), 1.0))
        size = float(np.linalg.norm(membrane) * np.linalg.norm(wanted))
        alike = float((membrane * wanted).sum()) / size if size else 0.0
        return FittedProgram(neuron, np.ones(1), None, (0.0, 1 - alike), scale_factor=factor if factor > 0 else 1.0)

    return best_value(at, leaks, N_LEAKS_REFINED)[1]


def float_neuron(fit: FittedProgram, float_edges: tuple[Connection, ...], edges: tuple[Connection, ...]) -> NeuronSpec:
    """Return the fitted neuron in float; `edges`: the connections into it in integers; `float_edges`: those in float.

    If decays are shifts, quantization adds the current that halves again.
    """
    spec = fit.neuron
    unit = weight_unit(float_edges, edges) * (1 << spec.number_format.shift_bits)
    kept = fit.current or 0.0
    return NeuronSpec(
        beta=1 - spec.number_format.lost(spec.decay_v),
        threshold=np.asarray(spec.threshold) * (1 - kept) / unit if spec.fires else 1.0,
        alpha=kept or None,
        w_in=1 - kept,
        fires=spec.fires,
        spikes=spec.spikes,
        strict=spec.strict,
        reset=spec.reset,
        reset_timing=spec.reset_timing,
        v_min=spec.v_min,
    )


def weight_unit(float_edges: tuple[Connection, ...], edges: tuple[Connection, ...]) -> float:
    """Return the integers per unit of a float weight."""
    both, size = 0.0, 0.0
    for given, fixed in zip(float_edges, edges, strict=True):
        weight = np.asarray(given.weight, np.float64)
        both += float((weight * np.asarray(fixed.weight, np.float64) * 2.0**fixed.exponent).sum())
        size += float(np.square(weight).sum())
    return both / size if both > 0 else 1.0
