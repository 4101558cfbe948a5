"""Place: choose the site of each core, and the order in which it visits its neurons."""

from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.passes.analyze.check import check
from nwcompile.passes.emit import interleave_visits
from nwcompile.passes.place.place import place
from nwcompile.passes.stages.draft import Advice, Draft, Stage, keep_violations


def choose_sites(draft: Draft) -> Draft:
    """Assign a site to every core; a given mapping stays unchanged."""
    if draft.given_mapping is not None:
        return draft
    return replace(draft, mapping=place(draft.mapping, draft.network, draft.chip, draft.activity, draft.options))


def check_mapping(draft: Draft) -> Draft:
    """Check that the mapping fits. Raises FitError."""
    kept = check(draft.network, draft.chip, draft.timing, draft.mapping, draft.options.on_multi_spike)
    return replace(draft, mapping=kept, passed=(*draft.passed, "check"))


def advise_on_mapping(draft: Draft, error: FitError) -> Advice | None:
    """Advise nothing for a given mapping, whose error is raised unchanged: other chips cannot use that mapping."""
    return None if draft.given_mapping is not None else keep_violations(draft, error)


def order_visits(draft: Draft) -> Draft:
    """Choose the order in which each core visits its neurons."""
    return replace(draft, mapping=interleave_visits(draft.mapping, draft.network, draft.chip, draft.activity))


STAGES = (
    Stage("place", choose_sites),
    Stage("check", check_mapping, advise_on_mapping),
    Stage("interleave", order_visits),
)
