"""Emit: build the program that the chip is loaded with."""

from dataclasses import replace

from nwcompile import __version__
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.floorline.objective import verify_step_time
from nwcompile.passes.stages.draft import Draft, Stage

NO_CALIBRATION = (
    "no calibration samples: scales follow the largest weights, and the mapping assumes that every neuron spikes in "
    "10 % of its steps; give calibration samples for closer spikes and a faster mapping"
)
REAL_EXAMPLE = (
    "the example of the model has real values, but without calibration samples the program takes whole numbers only; "
    "give calibration samples of such input, or choose input_layer='host'"
)


def make_program(draft: Draft) -> Draft:
    """Build the program of the mapped network. It takes samples in the layout of the given network."""
    manifest, way = _build_manifest(draft), draft.options.on_multi_spike
    program = emit(draft.network, draft.timing, draft.mapping, draft.chip, draft.activity, manifest, way)
    return replace(draft, program=program.attach_host(draft.given, draft.input.host, draft.registers))


def check_step_time(draft: Draft) -> Draft:
    """Check that the predicted step time is within `step_limit_us`. Raises FitError."""
    if draft.options.step_limit_us is None:
        return draft
    verify_step_time(draft.program, draft.options)
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
        **({} if draft.fewest is None else {"fewest_cores": draft.fewest._asdict()}),
    }


STAGES = (Stage("emit", make_program), Stage("limit", check_step_time))
