"""Build a Network of layers, junctions and connections from the symbols that feed each layer."""

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.symbols import Applied, Picked, Pooled, Source, Summed, Symbol
from nwcompile.ir.connection import Connection, Scale, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

ERROR_CODE = "NW2304"
ANY = NeuronSpec(beta=0.0, threshold=0.5, reset="zero")  # fires if any input in its window fires
READOUT = NeuronSpec(beta=0.0, fires=False, reset="none")


class Builder:
    """Collects layers, junctions and connections.

    `source` is the input, and `taken` are names that junctions must not use.
    """

    def __init__(self, source: Source, taken: set[str]):
        self.source = source
        self.taken = set(taken)
        self.layers: dict[str, tuple[NeuronSpec | NeuronProgram | None, tuple[int, ...]]] = {}
        self.connections: list[Connection] = []
        self.made: dict[tuple[Symbol, int], str] = {}  # (symbol, shift in steps) -> its node

    def add_layer(
        self, name: str, spec: NeuronSpec | NeuronProgram, fed: Symbol, shape: tuple[int, ...] | None = None
    ) -> None:
        """Add a layer and everything that feeds it; its shape is that of `fed`, unless its neurons have more inputs."""
        self.layers[name] = (spec, shape or fed.shape)
        self._feed_node(fed, name, fed.shape, 0, name)

    def build_network(self) -> Network:
        """Return the network of all added layers."""
        return Network.from_arrays(self.layers, self.connections, {self.source.name: self.source.shape})

    def _feed_node(self, symbol: Symbol, target: str, shape: tuple[int, ...], shift: int, layer: str) -> None:
        """Connect `symbol`, `shift` steps late, into node `target` of `shape`; `layer` is named in errors."""
        if isinstance(symbol, Summed):
            for term in symbol.terms:
                self._feed_node(term, target, shape, shift, layer)
        elif isinstance(symbol, Picked) and symbol.is_view:
            self._feed_node(symbol.sources[0], target, shape, shift - symbol.shift, layer)
        elif isinstance(symbol, Picked):
            for k, source in enumerate(symbol.sources):
                name, delay = self._as_node(source, shift - symbol.shift, layer)
                post = np.flatnonzero(symbol.which == k)
                pre = symbol.index[post]
                weight = np.ones(len(post), np.float32)
                self.connections.append(Sparse(name, target, pre=pre, post=post, weight=weight, delay=delay))
        elif isinstance(symbol, Applied) and (symbol.operation.reshapes or symbol.shape == shape):
            self.connections += self._wire_operation(symbol, target, shift, layer)
        else:
            name, delay = self._as_node(symbol, shift, layer)
            self.connections.append(Scale(name, target, delay=delay))

    def _wire_operation(self, symbol: Applied | Pooled, target: str, shift: int, layer: str) -> tuple[Connection, ...]:
        operation, source = symbol.operation, symbol.source
        name, delay = self._as_node(source, shift, layer, None if operation.reshapes else source.shape)
        return operation.build_connections(name, target, delay, source.shape)

    def _as_node(self, symbol: Symbol, shift: int, layer: str, shape: tuple[int, ...] | None = None) -> tuple[str, int]:
        """Return (name, delay) of a node with `symbol`'s value `shift` steps late, and with `shape` if given."""
        if isinstance(symbol, Source) and shape in (None, symbol.shape):
            if shift < 0:
                raise ModelError(
                    f"layer {layer!r} is fed by step t + {-shift} of {symbol.name!r}; a step may use earlier ones"
                )
            return symbol.name, shift
        if isinstance(symbol, Picked) and symbol.is_view and shape is None:
            return self._as_node(symbol.sources[0], shift - symbol.shift, layer)
        key = (symbol, shift)
        if key not in self.made:
            self.made[key] = self._add_node(symbol, shift, layer)
        return self.made[key], 0

    def _add_node(self, symbol: Symbol, shift: int, layer: str) -> str:
        name = self.free_name(symbol)
        if isinstance(symbol, Pooled):
            self.layers[name] = (ANY, symbol.shape)
            self.connections += self._wire_operation(symbol, name, shift, name)
        else:
            self.layers[name] = (None, symbol.shape)
            self._feed_node(symbol, name, symbol.shape, shift, layer)
        return name

    def free_name(self, symbol: Symbol) -> str:
        """Return an unused name for a symbol: the path of its operation, with a number if it is taken."""
        if isinstance(symbol, Applied | Pooled):
            stem = symbol.operation.path or symbol.operation.kind.lower()
        elif isinstance(symbol, Summed):
            stem = "sum"
        else:
            stem = "cat" if isinstance(symbol, Picked) and len(symbol.sources) > 1 else "view"
        name, k = stem, 1
        while name in self.taken or name in self.layers or name == self.source.name:
            k += 1
            name = f"{stem}/{k}"
        return name
