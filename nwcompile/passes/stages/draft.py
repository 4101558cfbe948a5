"""Draft: a network on its way to a chip. Every stage takes a Draft and returns the next one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nwcompile.errors import FitError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.host import Encoding
from nwcompile.ir.manifest import Change
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.partition.logical_cores import TriedCores
from nwcompile.passes.prepare.input_layer import InputLayer
from nwcompile.passes.quantize.approximate.price import Price


class Missing(Any):
    """Placeholder in a Draft for a result that no stage has produced yet, or that no later stage reads."""

    field = "a field"

    def __set_name__(self, owner: type, name: str) -> None:
        self.field = name

    def __getattr__(self, name: str):
        kind = AttributeError if name.startswith("__") else AssertionError  # copy and pickle look for such names
        raise kind(f"no stage has made {self.field} of this Draft, and its {name} is read")


@dataclass(frozen=True, eq=False)
class Draft:
    """A network on its way to a chip: the arguments of `compile`, then the results of stages, Missing until they run.

    `network` is the result of the last stage that changed it: first in float, then in integers, finally without the
    registers of the host. `passed` names the checks that succeeded.
    """

    given: Network
    chip: Chip
    options: Options
    calibration: Any = None  # samples, as the caller gave them
    labels: np.ndarray | None = None  # int[B], one label per sample
    given_mapping: Mapping | None = None  # a mapping of the caller's, used unchanged
    may_compare: bool = True  # whether neurons may compute maxima of currents; False while weights are trained
    network: Network = Missing()
    input: InputLayer = Missing()  # how input reaches the chip
    normal: Network = Missing()  # in float, its scales and batch norms folded
    legal: Network = Missing()  # in float, with features that the chip's neurons have
    compared: tuple[str, ...] = ()  # layers that compute a maximum of currents
    timing: Schedule = Missing()
    table: list[dict] = field(default_factory=list)  # of quantization, one row per layer
    rounding: list[str] = field(default_factory=list)  # warnings of quantization for the manifest
    samples: dict[str, np.ndarray] | None = None  # int[B, T, *shape] of every input of `network`
    activity: Activity = Missing()
    registers: dict[str, Encoding] = field(default_factory=dict)  # by input that the host writes
    changes: list[Change] = field(default_factory=list)
    lasting: list[Change] = field(default_factory=list)  # currents with longer decays; listed after all other changes
    notes: list[str] = field(default_factory=list)  # warnings for the manifest
    price: Price | None = None
    tried: tuple[TriedCores, ...] = ()  # numbers of cores
    mapping: Mapping = Missing()
    program: Program = Missing()
    passed: tuple[str, ...] = ()


class Advice(NamedTuple):
    """The violations of a refusal, and a change that would make the network fit, or None."""

    violations: Sequence
    change: str | None


class Stage(NamedTuple):
    """A step of the compiler. `run` returns its argument if there is nothing to do.

    `advise` turns a FitError of `run` into Advice. The error is raised unchanged if there is no `advise` or it returns
    None.
    """

    name: str
    run: Callable[[Draft], Draft]
    advise: Callable[[Draft, FitError], Advice | None] | None = None


def keep_violations(draft: Draft, error: FitError) -> Advice:
    """Keep the violations of the error and add no advice."""
    return Advice(error.violations, None)
