"""Symbolic values of recorded tensors: expressions over the input and the spikes of layers, for one step of one sample.

`shape` is that of one step of one sample. A tensor that holds all steps is represented by its last step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from nwcompile.frontend.torch.kind import Kind
from nwcompile.ir.connection import Connection

if TYPE_CHECKING:
    from nwcompile.frontend.torch.results import Results


@dataclass(frozen=True, eq=False)
class Source:
    """The input, or a layer's spikes, in step `time`; an input that is given once is the same in every step."""

    name: str
    shape: tuple[int, ...]
    time: int
    is_given_once: bool = False

    def steps_before(self, now: int) -> int:
        """Return the number of steps from the source's step to step `now`."""
        return 0 if self.is_given_once else now - self.time


@dataclass(frozen=True)
class Operation:
    """A linear map: `connect(source, target, delay, source_shape)` returns one connection, or one per delay.

    `reshapes`: the connection accepts a source and target of any shape with the right size. `maximum`, for maximum
    pooling, returns the connection for values that are not spikes; `connect` then sums the spikes of every window.
    `first`: applied to a symbol before `connect`. `then`: applied to the result, with its final shape.
    """

    path: str
    kind: str
    connect: Callable[[str, str, int, tuple[int, ...]], Connection | tuple[Connection, ...]]
    reshapes: bool = False
    has_weight: bool = False
    has_bias: bool = False
    digest: bytes = b""  # of the numbers, if they are not those of the module at `path`
    maximum: Callable[[str, str, int, tuple[int, ...]], Connection] | None = None
    first: "Callable[[Symbol], Symbol] | None" = None
    then: "Callable[[Symbol, tuple[int, ...]], Symbol] | None" = None

    def build_connections(self, source: str, target: str, delay: int, shape: tuple[int, ...]) -> tuple[Connection, ...]:
        """Return the connections of `connect` as a tuple."""
        made = self.connect(source, target, delay, shape)
        return made if isinstance(made, tuple) else (made,)

    def apply(self, symbol: "Symbol", shape: tuple[int, ...]) -> "tuple[Applied, Symbol]":
        """Return the operation on the symbol alone, and after `then`; `shape` is that of the result."""
        source = symbol if self.first is None else self.first(symbol)
        if self.then is None:
            applied = Applied(self, source, shape)
            return applied, applied
        applied = Applied(self, source, self.output_shape(source.shape))
        return applied, self.then(applied, shape)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the connection's output shape for a source of `shape`."""
        given = self.build_connections("source", "target", 0, shape)[0].output_shape(shape)
        assert given is not None, "only a list of synapses takes any shape"
        return tuple(given)


@dataclass(frozen=True, eq=False)
class Applied:
    """An operation applied to one symbol."""

    operation: Operation
    source: "Symbol"
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Pooled:
    """A maximum over windows of spikes: a layer of stateless neurons that fire if any input in their window fires."""

    operation: Operation
    source: "Symbol"
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Summed:
    """The sum of two symbols of equal shape."""

    terms: tuple["Symbol", "Symbol"]
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Picked:
    """Selected entries of symbols: entry i is entry `index[i]` of `sources[which[i]]`, all in flat C order.

    `shift`: the index of the step, relative to the last one (<= 0), if one step of all was selected.
    """

    sources: tuple["Symbol", ...]
    which: np.ndarray
    index: np.ndarray
    shape: tuple[int, ...]
    shift: int = 0

    @property
    def is_view(self) -> bool:
        """Whether this is one source in another shape."""
        n = int(np.prod(self.shape))
        return (
            len(self.sources) == 1 and n == int(np.prod(self.sources[0].shape)) and (self.index == np.arange(n)).all()
        )


@dataclass(frozen=True, eq=False)
class Stacked:
    """All steps in one tensor, assembled from the symbols of every step."""

    steps: tuple["Symbol", ...]
    shape: tuple[int, ...]

    @property
    def last(self) -> "Symbol":
        """The last step."""
        return self.steps[-1]


@dataclass(frozen=True, eq=False)
class Averaged:
    """The mean of a symbol over all steps; linear maps of it are applied to its steps and averaged."""

    last: "Symbol"
    shape: tuple[int, ...]
    reason = "a mean over the steps, which is known only after the last one"


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that depends on neither the input nor a layer."""

    shape: tuple[int, ...]
    is_zero: bool
    reason = "a tensor that comes neither from the input nor from a layer"


@dataclass(frozen=True, eq=False)
class Unsupported:
    """A tensor that cannot be followed; `reason` completes "is fed by ...".

    `by`: the functions that produced it, each once. `layer`: the layer whose state it is derived from, or "".
    """

    reason: str
    shape: tuple[int, ...] = ()
    by: tuple[str, ...] = ()
    layer: str = ""


class WrongLayout(Unsupported):
    """A tensor whose leading axes differ from those that its layer takes."""


@dataclass(frozen=True, eq=False)
class NeuronState(Unsupported):
    """A layer's state after step `time`; only the layer itself may receive it, in the next step."""

    time: int = 0


Symbol = Source | Applied | Pooled | Summed | Picked | Stacked | Averaged | Constant | Unsupported


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a neuron layer: its input, whether it has all steps, and an error in the call."""

    fed: Symbol
    is_whole: bool
    fault: str | None = None


@dataclass(frozen=True, eq=False)
class Recording:
    """The recording of one run of a module on the example. `calls[layer]` are in order of time.

    `kinds[layer]`: how its module is read. `refused`: modules with weights whose input cannot be followed, and the
    reason. `unknown`: neuron modules of a framework that cannot be read, and the reason. `spikes[layer]`: the layer's
    output, `[B, T, *shape]`. `integrators`: layers of which only states are read or returned, never the spikes.
    `results`: the tensors that the module returned. `lead`: the axis order of its input. `reads`: places at which the
    module reads a value that depends on the example, and how. `assumed`: places of products of the input with spikes.
    """

    input: Source
    lead: str
    n_steps: int
    calls: dict[str, list[Call]]
    kinds: dict[str, Kind]
    applied: list[Applied]
    refused: dict[str, str]
    unknown: dict[str, str]
    spikes: dict[str, torch.Tensor]
    integrators: frozenset[str]
    results: "Results"
    reads: list[str]
    assumed: list[str]
