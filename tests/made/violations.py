"""Violations of a chip's limits, and the first lines of a refusal."""

from nwcompile.errors import FitError
from nwcompile.ir.mapping import Mapping
from nwcompile.passes.analyze.check import check
from tests.made.nets import feed_forward


def lines(network, chip, schedule=None, mapping=None) -> list[str]:
    """Texts of the violations of a network on the chip's first core."""
    if mapping is None:
        mapping = Mapping.from_arrays({n: [0] * network.node(n).n_neurons for n in network.layers}, chip.sites[:1])
    try:
        check(network, chip, schedule or feed_forward(network), mapping)
    except FitError as error:
        return [str(v) for v in error.violations]
    return []


def first_lines(error) -> str:
    """The head of a FitError and its only violation; test_refusal.py tests the proposed chips."""
    return "\n".join(str(error).splitlines()[:2])
