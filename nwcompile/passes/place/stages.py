"""Place: where each core lies on the chip, and in which order it visits its neurons."""

from dataclasses import replace

from nwcompile.errors import FitError
from nwcompile.passes.compilation import Advice, Compilation, Stage, as_it_is
from nwcompile.passes.emit.visit_order import interleave_visits
from nwcompile.passes.fit.check import check
from nwcompile.passes.place.place import place


def choose_sites(c: Compilation) -> Compilation:
    """Give every core a site. A mapping that was given stays."""
    return (
        c
        if c.given_mapping is not None
        else replace(c, mapping=place(c.mapping, c.network, c.chip, c.activity, c.options))
    )


def check_mapping(c: Compilation) -> Compilation:
    """Check that the mapping fits. Raises FitError."""
    kept = check(c.network, c.chip, c.timing, c.mapping, c.options.on_multi_spike)
    return replace(c, mapping=kept, passed=(*c.passed, "check"))


def advise_on_mapping(c: Compilation, error: FitError) -> Advice | None:
    """A mapping made elsewhere is refused as it is: no other chip takes it."""
    return None if c.given_mapping is not None else as_it_is(c, error)


def order_visits(c: Compilation) -> Compilation:
    """Choose the order in which each core visits its neurons."""
    return replace(c, mapping=interleave_visits(c.mapping, c.network, c.chip, c.activity))


STAGES = (
    Stage("place", choose_sites),
    Stage("check", check_mapping, advise_on_mapping),
    Stage("interleave", order_visits),
)
