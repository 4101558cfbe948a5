"""What a recorded tensor stands for: an expression over the input and the spikes of layers, for one step of one sample.

`shape` is that of one step of one sample. A tensor that holds all steps stands for its last step.
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
    """The input, or the spikes of a neuron layer, in step `time`; of an input that is given once, in every step."""

    name: str
    shape: tuple[int, ...]
    time: int
    is_given_once: bool = False

    def steps_before(self, now: int) -> int:
        """How many steps before step `now` that was."""
        return 0 if self.is_given_once else now - self.time


@dataclass(frozen=True)
class Operation:
    """A linear map: `connect(source, target, delay, source_shape)` makes its connection, or several for some delays.

    `reshapes`: the connection takes a source, and a target, of any shape of the right size. `maximum`, of a maximum
    pooling, makes the connection of what is no spikes; `connect` then sums up the spikes of every window. `first`: what
    is done to a symbol before `connect`, and `then`, with the shape of the result, what is done to it afterwards.
    """

    path: str
    kind: str
    connect: Callable[[str, str, int, tuple[int, ...]], Connection | tuple[Connection, ...]]
    reshapes: bool
    has_weight: bool
    has_bias: bool
    digest: bytes = b""  # of the numbers, where they are not those of the module at `path`
    maximum: Callable[[str, str, int, tuple[int, ...]], Connection] | None = None
    first: "Callable[[Symbol], Symbol] | None" = None
    then: "Callable[[Symbol, tuple[int, ...]], Symbol] | None" = None

    def build_connections(self, source: str, target: str, delay: int, shape: tuple[int, ...]) -> tuple[Connection, ...]:
        """What `connect` makes."""
        made = self.connect(source, target, delay, shape)
        return made if isinstance(made, tuple) else (made,)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that its connection gives for a source of `shape`."""
        given = self.build_connections("source", "target", 0, shape)[0].output_shape(shape)
        assert given is not None, "only a list of synapses takes any shape"
        return tuple(given)


@dataclass(frozen=True, eq=False)
class Applied:
    """An operation on one symbol."""

    operation: Operation
    source: "Symbol"
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Pooled:
    """A maximum over windows of spikes: a layer of stateless neurons that fire if any input of their window does."""

    operation: Operation
    source: "Symbol"
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Summed:
    """Two symbols of equal shape, added."""

    terms: tuple["Symbol", "Symbol"]
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Picked:
    """Entries picked from symbols: entry i is entry `index[i]` of `sources[which[i]]`, all in flat C order.

    `shift`: steps by which a tensor of all steps was indexed before its last step, as a number <= 0.
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
    """All steps in one tensor, put together from the symbols of every step."""

    steps: tuple["Symbol", ...]
    shape: tuple[int, ...]

    @property
    def last(self) -> "Symbol":
        """The last step."""
        return self.steps[-1]


@dataclass(frozen=True, eq=False)
class Averaged:
    """The mean over all steps of a symbol; linear maps of it are those of its steps, averaged."""

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

    `by`: the functions that made it, each once. `layer`: the layer whose state it is made of, "" for none.
    """

    reason: str
    shape: tuple[int, ...] = ()
    by: tuple[str, ...] = ()
    layer: str = ""


class WrongLayout(Unsupported):
    """A tensor whose axes do not begin as the layer that it is fed to takes them."""


@dataclass(frozen=True, eq=False)
class NeuronState(Unsupported):
    """A state of a neuron layer after step `time`, which only the layer itself may be given, in the next step."""

    time: int = 0


Symbol = Source | Applied | Pooled | Summed | Picked | Stacked | Averaged | Constant | Unsupported


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a neuron layer: what it was fed, whether with all steps at once, and what is wrong with it."""

    fed: Symbol
    is_whole: bool
    fault: str | None = None


@dataclass(frozen=True, eq=False)
class Recording:
    """What running a module once on the example showed. `calls[layer]` are in order of time.

    `kinds[layer]`: how its module is read. `refused`: modules with weights that are fed what cannot be followed, and
    the reason. `unknown`: neuron modules of a framework that cannot be read, and the reason. `spikes[layer]`: what the
    layer gave, `[B, T, *shape]`. `integrators`: layers of which only states are read or returned, never the spikes.
    `results`: the tensors that the module returned.
    """

    input: Source
    n_steps: int
    calls: dict[str, list[Call]]
    kinds: dict[str, Kind]
    applied: list[Applied]
    refused: dict[str, str]
    unknown: dict[str, str]
    spikes: dict[str, torch.Tensor]
    integrators: frozenset[str]
    results: "Results"
