"""Compare a module's result with the output of its network, and name the difference.

A network outputs the spikes of its layers, or the membranes of those that never fire, in every step. It covers the
result if the result holds one of these in all steps, or their sum or mean over the steps, times a positive number.
Symbols decide this if all functions can be followed; otherwise the values on the example do.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from nwcompile.frontend.torch.check import is_sum_of_steps
from nwcompile.frontend.torch.moves import ONE_STEP, Extent, Tracked, samples_first
from nwcompile.frontend.torch.symbols import (
    Applied,
    Averaged,
    Constant,
    NeuronState,
    Picked,
    Pooled,
    Source,
    Stacked,
    Summed,
    Symbol,
    Unsupported,
)
from nwcompile.ir.network import Network


@dataclass(frozen=True, eq=False)
class Returned:
    """One tensor of the module's result, from the last call.

    `calls`: the tensors of every call, or of every step if the module returns a list of steps. `is_first`: whether it
    is the first tensor of the result. `depth`: the number of tuples, lists and dicts around it.
    """

    known: Tracked
    calls: tuple[torch.Tensor, ...]
    is_first: bool
    depth: int


@dataclass(frozen=True, eq=False)
class Results:
    """The tensors of a module's result, its type, and the spikes of its layers, `spikes[layer]` `[B, T, *]`.

    `values`: for each layer or linear map and state number, the tensor of every call and the order of its axes.
    """

    returned: tuple[Returned, ...]
    kind: type
    spikes: dict[str, torch.Tensor]
    values: dict[tuple[str, int], list[tuple[torch.Tensor, str]]]
    extent: Extent

    @property
    def has_unknown(self) -> bool:
        """Whether a part of the result was computed by functions that cannot be followed."""
        symbols = (r.known.symbol for r in self.returned)
        return any(isinstance(s, Unsupported) and not isinstance(s, NeuronState) for s in symbols)

    def describe_left_out(
        self, network: Network, readouts: set[str], has_readout: bool = False, by_values: bool = True
    ) -> str:
        """Return a sentence that names the parts of the result that the network lacks; "" if nothing is missing.

        `readouts`: paths of linear maps that are layers. `has_readout`: whether the first result is known.
        `by_values`: whether values of the example that equal an output's prove that nothing follows it.
        """
        returned = self.returned[has_readout:]
        things = [text for r in returned if (text := self._describe_missing(r, network, readouts, by_values))]
        if not self.returned and self.kind is not type(None):
            things = [f"a result of type {self.kind.__name__}, which holds no tensor"]
        layers = [_layer_of(r.known.symbol) for r in self.returned]
        are_hidden = bool(layers) and all(n in network.layers and n not in network.outputs for n in layers)
        if not has_readout and are_hidden:
            things.append(f"the choice of the hidden layer {layers[0]!r}")
        shapes = " and ".join(str(list(r.calls[-1].shape)) for r in self.returned) or self.kind.__name__
        return describe_missing(things, network, shapes)

    def asks_readout(self, network: Network, readouts: set[str]) -> bool:
        """Return whether the first result is more than an output in every step, or its sum or mean over the steps."""
        if not self.returned:
            return False
        symbol = self.returned[0].known.symbol
        layer = _layer_of(symbol)
        if isinstance(symbol, NeuronState) or (layer is not None and layer not in network.outputs):
            return True
        has_more = self._later_operations(symbol, readouts) is not None
        return has_more or self._describe_missing(self.returned[0], network, readouts) is not None

    def _describe_missing(
        self, returned: Returned, network: Network, readouts: set[str], by_values: bool = True
    ) -> str | None:
        symbol, layer = returned.known.symbol, getattr(returned.known.symbol, "layer", "")
        fires = bool(layer) and network.node(layer).neuron.fires
        is_last = len(returned.calls) == 1 and self._is_one_step(returned)
        if isinstance(symbol, NeuronState) and (returned.depth > 1 or (is_last and not returned.is_first)):
            return None  # the state for the next call
        if fires:
            return f"the membrane of layer {layer!r} (simulate(..., record='all') gives it in Run.states)"
        text = None if isinstance(symbol, NeuronState) else self._later_operations(symbol, readouts)
        if text is None and not is_last:
            return None
        is_choice = text is None and returned.known.lead in ONE_STEP  # the symbol decides, not the values
        trusts_values = (by_values or text is None) and not is_choice
        if trusts_values and any(self._is_record(returned.calls, record) for record in self._iterate_records(network)):
            return None
        return text or "the choice of one step"

    def _iterate_records(self, network: Network) -> Iterator[torch.Tensor]:
        """Yield the spikes of every layer and the values of every readout, `[B, T, *]`."""
        yield from self.spikes.values()
        for (name, _), calls in self.values.items():
            if name in network.layers and not network.node(name).neuron.fires:
                yield torch.cat([samples_first(tensor, lead, self.extent) for tensor, lead in calls], 1)

    def _is_one_step(self, returned: Returned) -> bool:
        """Return whether the tensor holds one step of several, and not their mean."""
        axes = self.extent.axes[returned.known.lead]
        is_one_step = returned.known.lead in ONE_STEP or returned.calls[0].shape[: len(axes)] != axes
        return is_one_step and self.extent.n_steps > 1 and not self._is_of_all_steps(returned.known.symbol)

    def _is_of_all_steps(self, symbol: Symbol) -> bool:
        """Return whether the symbol is a mean or sum over the steps, or derived from one."""
        if isinstance(symbol, Picked):
            return all(map(self._is_of_all_steps, symbol.sources))
        if isinstance(symbol, Applied):
            return self._is_of_all_steps(symbol.source)
        is_sum = isinstance(symbol, Summed) and is_sum_of_steps(symbol, self.extent.n_steps)
        return isinstance(symbol, Averaged) or is_sum

    def _later_operations(self, symbol: Symbol, readouts: set[str]) -> str | None:
        """Name the operations after the spikes of layers, or after readouts, in this symbol; None if there are none."""
        if isinstance(symbol, Source):
            return None
        if isinstance(symbol, Averaged | Stacked):
            return self._later_operations(symbol.last, readouts)
        if isinstance(symbol, Unsupported):
            return " and ".join(symbol.by) or f"a choice or another order of the entries of {symbol.layer!r}"
        if isinstance(symbol, Constant):
            return symbol.reason
        if isinstance(symbol, Applied | Pooled):
            path, kind = symbol.operation.path, symbol.operation.kind
            if isinstance(symbol, Applied) and path in readouts:
                return None
            return f"torch function {path!r}" if kind.islower() else f"{path!r} ({kind})"  # modules are CamelCase
        parts = symbol.terms if isinstance(symbol, Summed) else symbol.sources
        if (isinstance(symbol, Picked) and symbol.is_view) or self._is_of_all_steps(symbol):
            return self._later_operations(parts[-1], readouts)
        done = "a sum" if isinstance(symbol, Summed) else "a choice or another order of the entries"
        texts = (self._later_operations(part, readouts) for part in parts)
        return next(filter(None, texts), f"{done} of {_source_names(symbol)}")

    def _is_record(self, calls: tuple[torch.Tensor, ...], record: torch.Tensor) -> bool:
        """Return whether the calls hold this record `[B, T, *]`, or its sum over the steps, times a positive number."""
        n_samples, n_steps = record.shape[:2]
        record = record.reshape(n_samples, n_steps, -1).double()
        calls = calls if all(call.shape == calls[0].shape for call in calls) else calls[-1:]  # the accumulated result
        result = torch.stack(calls, min(1, calls[0].ndim)) if len(calls) > 1 else calls[0]
        if len(calls) > 1 and calls[-1].numel() == record[:, 0].numel() and is_multiple(calls[-1], record.sum(1)):
            return True
        if result.numel() == record.numel():
            orders = [result]
            if len(calls) == 1 and result.shape[:2] == (n_steps, n_samples):
                orders.append(result.transpose(0, 1))
            if len(calls) == 1 and result.shape[0] == n_samples and result.shape[-1] == n_steps:
                orders.append(result.movedim(-1, 1))
            return any(is_multiple(order, record) for order in orders)
        return result.numel() == record[:, 0].numel() and is_multiple(result, record.sum(1))


def describe_missing(things: list[str], network: Network, returns: str) -> str:
    """Return a sentence about things that a network lacks, and what the module returns; "" if nothing is missing."""
    if not things:
        return ""
    outputs = " and ".join(f"{name!r} of shape {list(network.node(name).shape)}" for name in network.outputs)
    return (
        f"the import left out {' and '.join(dict.fromkeys(things))}, so the network's answers may differ from the "
        f"module's: the module returns {returns}; the network gives {outputs} in each step"
    )


def is_multiple(tensor: torch.Tensor, record: torch.Tensor) -> bool:
    """Return whether the tensor holds the entries of a record in order, times a positive number."""
    tensor = tensor.detach().double().reshape(record.shape)
    factor = (tensor * record).sum() / (record * record).sum()
    return bool(factor > 0) and torch.allclose(tensor, factor * record, 1e-4, 1e-5 * float(tensor.abs().max()))


def _layer_of(symbol: Symbol) -> str | None:
    """Return the layer or input whose spikes, or their mean over the steps, the symbol is; None for others."""
    if isinstance(symbol, Averaged | Stacked):
        return _layer_of(symbol.last)
    return symbol.name if isinstance(symbol, Source) else None


def _source_names(symbol: Symbol) -> str:
    """Return the names of the layers, linear maps and inputs in a sum or choice."""
    if isinstance(symbol, Summed | Picked):
        parts = symbol.terms if isinstance(symbol, Summed) else symbol.sources
        return ", ".join(dict.fromkeys(", ".join(map(_source_names, parts)).split(", ")))
    if isinstance(symbol, Averaged | Stacked):
        return _source_names(symbol.last)
    if isinstance(symbol, Source):
        return repr(symbol.name)
    return repr(symbol.operation.path) if isinstance(symbol, Applied | Pooled) else symbol.reason
