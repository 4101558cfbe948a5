"""All stages of the compiler in order, grouped as their folders are, and the loop over them."""

from collections.abc import Callable
from time import perf_counter

from nwcompile.at_once import raise_if_canceled
from nwcompile.errors import FitError, OptionError, unknown_choice
from nwcompile.ir.host import on_chip
from nwcompile.passes.partition.elsewhere import elsewhere
from nwcompile.passes.stages import emit, fit, legalize, partition, place, prepare, quantize
from nwcompile.passes.stages.draft import Draft, Stage

GROUPS: dict[str, tuple[Stage, ...]] = {
    "prepare": prepare.STAGES,
    "legalize": legalize.STAGES,
    "quantize": quantize.STAGES,
    "fit": fit.STAGES,
    "partition": partition.STAGES,
    "place": place.STAGES,
    "emit": emit.STAGES,
}
STAGES: tuple[Stage, ...] = tuple(stage for stages in GROUPS.values() for stage in stages)


def run(draft: Draft, until: str | None = None, on_stage: Callable | None = None) -> Draft:
    """Run all stages on a draft, or those up to the stage `until`. Raises OptionError for an unknown `until`."""
    names = tuple(dict.fromkeys(stage.name for stage in STAGES))
    if until is not None and until not in names:
        raise OptionError(unknown_choice("until", until, names))
    for stage in STAGES:
        raise_if_canceled()
        start = perf_counter()
        before, draft = draft, run_stage(stage, draft)
        changed = draft is not before and (stage.name != "input" or draft.input.text is not None)
        if on_stage is not None and changed:
            on_stage(stage.name, draft, perf_counter() - start)
        if stage.name == until:
            break
    return draft


def run_stage(stage: Stage, draft: Draft) -> Draft:
    """Run one stage. Its FitError gets all violations, a change that would help, and other chips that would do."""
    try:
        return stage.run(draft)
    except FitError as e:
        advice = None if stage.advise is None else stage.advise(draft, e)
        if advice is None:
            raise
        chip = draft.chip
        others = elsewhere(on_chip(draft.input.network), chip, draft.options)
        raise FitError(chip.name, advice.violations, advice.change, others) from None
