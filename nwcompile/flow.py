"""Compile: turn a network into the program for a chip, by the stages of `passes/stages/run.py`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nwcompile import warm_up
from nwcompile.argument_types import checked
from nwcompile.checkpoint import use_checkpoint
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.passes.stages.draft import Draft
from nwcompile.passes.stages.refusal import refuse
from nwcompile.passes.stages.run import run

ERROR_CODE = "NW5011"
DEFAULTS = Options()


@checked("on_stage", "checkpoint")
def compile(
    network: Network,
    chip: Chip | str,
    calibration=None,
    options: Options = DEFAULTS,
    mapping: Mapping | None = None,
    on_stage: Callable | None = None,
    labels=None,
    checkpoint: Path | str | None = None,
) -> Program:
    """Compile a float or fixed-point network for a chip (a Chip, a shipped name, or the path of a chip file).

    `calibration` is sample input in the network's layout (`[B, T, *shape]` unless it was imported otherwise), or a dict
    of such arrays by input name. It selects the input mode (`Options.input_layer`) and the scale of every layer, and
    the mapping is optimized for its spike rates. A given `mapping` is kept. With `labels`, int[B] of the samples, the
    price of approximations is also reported as accuracy. `on_stage(name, draft, seconds)` is called after each stage
    that changed something, with the resulting `Draft` (`passes/stages/draft.py`). The folder `checkpoint` stores every
    finished annealing; the same call after a kill continues from there, to the same program. Equal arguments give equal
    programs (unless `options.time_budget_s` is set).
    Raises ModelError, ChipError, OptionError, FitError with every violation, LossError if the price is above
    `options.max_loss`, ArtifactError if `checkpoint` cannot be used, and NotEnoughMemoryError before work that does not
    fit into memory. Warns (NwWarning) if there are too few samples to judge `options.max_loss`.
    """
    chip = _verify_arguments(network, chip, options, mapping)
    if checkpoint is not None and options.time_budget_s is not None:
        raise OptionError(
            "checkpoint: with time_budget_s the result depends on the clock, so a continued run could give another "
            "program; leave one of them out"
        )
    warm_up.start(chip)
    with use_checkpoint(checkpoint):
        draft = Draft(given=network, chip=chip, options=options, calibration=calibration, labels=labels)
        if mapping is not None:
            draft = replace(draft, given_mapping=mapping, mapping=mapping)
        return run(draft, on_stage=on_stage, refuse=refuse).program


def _verify_arguments(network, chip, options, mapping) -> Chip:
    """Check the types of all arguments and load the chip."""
    if not isinstance(network, Network):
        raise ModelError(
            f"compile takes a Network, not {type(network).__name__}; make one with nw.from_torch(module, example_input)"
        )
    if not isinstance(options, Options):
        raise OptionError(f"options must be an nw.Options(...), not {type(options).__name__}")
    if mapping is not None and not isinstance(mapping, Mapping):
        raise ModelError(f"mapping must be an nw.Mapping, not {type(mapping).__name__}; see nw.Mapping.from_arrays")
    if mapping is not None and options.stagger == "auto":
        raise OptionError("stagger='auto' maps the network itself, but a mapping is given; set stagger to a number")
    network.verify()
    return chip if isinstance(chip, Chip) else Chip.load(chip)
