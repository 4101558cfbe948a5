"""All stages of the compiler in order, grouped by folder, and the loop that runs them."""

from collections.abc import Callable
from time import perf_counter

from nwcompile.errors import FitError, OptionError, unknown_choice
from nwcompile.passes.stages import emit, fit, legalize, partition, place, prepare, quantize
from nwcompile.passes.stages.draft import Draft, Stage
from nwcompile.threads import raise_if_canceled

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


def run(
    draft: Draft,
    until: str | None = None,
    after: str | None = None,
    on_stage: Callable[[str, Draft, float], object] | None = None,
    refuse: Callable[[Stage, Draft, FitError], object] | None = None,
) -> Draft:
    """Run all stages on a draft, or those after the stage `after`, up to and including the stage `until`.

    `on_stage(name, draft, seconds)` is called after each stage that changed the draft. `refuse` is called with the
    FitError of a stage, and may raise a better one (`refusal.py:refuse`). Raises OptionError for unknown stages.
    """
    first = 0 if after is None else _stage_index("after", after) + 1
    last = len(STAGES) if until is None else _stage_index("until", until) + 1
    for stage in STAGES[first:last]:
        raise_if_canceled()
        start, before = perf_counter(), draft
        try:
            draft = stage.run(before)
        except FitError as error:
            if refuse is not None:
                refuse(stage, before, error)
            raise
        if on_stage is not None and draft is not before:
            on_stage(stage.name, draft, perf_counter() - start)
    return draft


def _stage_index(option: str, name: str) -> int:
    names = [stage.name for stage in STAGES]
    if name not in names:
        raise OptionError(unknown_choice(option, name, names))
    return names.index(name)
