"""Symbolic values of recorded tensors: expressions over the input and the spikes of layers.

`shape` is that of one step of one sample.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeGuard

import numpy as np

from nwcompile.ir.connection import Connection


@dataclass(frozen=True, eq=False)
class Source:
    """The input, or a layer's spikes."""

    name: str
    shape: tuple[int, ...]


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
    has_bias: bool = False
    maximum: Callable[[str, str, int, tuple[int, ...]], Connection] | None = None
    first: "Callable[[Symbol], Symbol] | None" = None
    then: "Callable[[Symbol, tuple[int, ...]], Symbol] | None" = None

    def build_connections(self, source: str, target: str, delay: int, shape: tuple[int, ...]) -> tuple[Connection, ...]:
        """Return the connections of `connect` as a tuple."""
        made = self.connect(source, target, delay, shape)
        return made if isinstance(made, tuple) else (made,)

    def apply(self, symbol: "Symbol", shape: tuple[int, ...]) -> "Symbol":
        """Return the operation on the symbol, after `first` and before `then`; `shape` is that of the result."""
        source = symbol if self.first is None else self.first(symbol)
        if self.then is None:
            return Applied(self, source, shape)
        given = self.build_connections("source", "target", 0, source.shape)[0].output_shape(source.shape)
        assert given is not None, "only a list of synapses takes any shape"
        return self.then(Applied(self, source, tuple(given)), shape)


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


Symbol = Source | Applied | Pooled | Summed | Picked


def pick_entries(sources: list[Symbol], which: np.ndarray, index: np.ndarray, shape: tuple[int, ...]) -> Picked:
    """Return entry `index[i]` of `sources[which[i]]` for each i; a choice of chosen entries is one choice."""
    known: dict[Symbol, int] = {}  # in order of first use
    picks = np.empty((2, index.size), np.int64)
    for k in np.unique(which):
        here, source = which == k, sources[k]
        if isinstance(source, Picked) and not source.shift:
            inner = np.array([known.setdefault(s, len(known)) for s in source.sources])
            picks[:, here] = inner[source.which[index[here]]], source.index[index[here]]
        else:
            picks[0, here], picks[1, here] = known.setdefault(source, len(known)), index[here]
    return Picked(tuple(known), picks[0], picks[1], shape)


def is_permutation(symbol: Any) -> TypeGuard[Picked]:
    """Return whether a symbol has all entries of another one in another order, in the same step."""
    is_one = isinstance(symbol, Picked) and len(symbol.sources) == 1 and not symbol.shift
    return is_one and np.array_equal(np.sort(symbol.index), np.arange(prod(symbol.sources[0].shape)))


def with_shape(symbol: Symbol, shape: tuple[int, ...]) -> Symbol:
    """Return a symbol's entries in another shape."""
    if symbol.shape == shape:
        return symbol
    if isinstance(symbol, Picked) and symbol.is_view and not symbol.shift:
        return with_shape(symbol.sources[0], shape)
    if isinstance(symbol, Picked):
        return replace(symbol, shape=shape)
    n = prod(shape)
    return Picked((symbol,), np.zeros(n, np.int64), np.arange(n), shape)
