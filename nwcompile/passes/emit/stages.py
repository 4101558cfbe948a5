"""Emit: the program that the chip is loaded with."""

from dataclasses import replace

from nwcompile import __version__
from nwcompile.passes.compilation import Compilation, Stage
from nwcompile.passes.emit.emit import emit
from nwcompile.passes.partition.floorline.step_time import verify_step_time

NO_CALIBRATION = (
    "no calibration samples: scales follow the largest weights, and the mapping takes every neuron to spike in 10 % of "
    "its steps; give calibration samples for closer spikes and a faster mapping"
)
REAL_EXAMPLE = (
    "the example of the model has real values, but without calibration samples the program takes whole numbers only; "
    "give calibration samples of such input, or choose input_layer='host'"
)


def make_program(c: Compilation) -> Compilation:
    """Make the program of the network on the chip, for samples as the given network takes them."""
    manifest, way = _manifest(c), c.options.on_multi_spike
    program = emit(c.network, c.timing, c.mapping, c.chip, c.activity, manifest, way)
    return replace(c, program=program.taking(c.given, c.input.host, c.registers))


def check_step_time(c: Compilation) -> Compilation:
    """Check that a step is not predicted to be longer than `step_limit_us`. Raises FitError."""
    if c.options.step_limit_us is None:
        return c
    verify_step_time(c.program, c.options)
    return replace(c, passed=(*c.passed, "limit"))


def _manifest(c: Compilation) -> dict:
    no_samples = [NO_CALIBRATION] if c.input.samples is None else []
    if no_samples and c.given.real_example and not c.given.is_fixed and c.options.input_layer is None:
        no_samples = [REAL_EXAMPLE, NO_CALIBRATION]
    return {
        "tool": "nwcompile",
        "version": __version__,
        "seed": c.options.seed,
        "options": c.options.to_dict(),
        "quantization": c.quantized.table,
        **({"legalization": [change.to_dict() for change in c.changes]} if c.changes else {}),
        "warnings": [*no_samples, *c.notes, *c.quantized.warnings],
        **({} if c.price is None else {"price": c.price.to_dict()}),
        **({} if c.fewest is None else {"fewest_cores": c.fewest._asdict()}),
    }


STAGES = (Stage("emit", make_program), Stage("limit", check_step_time))
