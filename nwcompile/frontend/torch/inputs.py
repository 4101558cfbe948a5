"""Prepare the example input: all steps in the requested layout.

A module with several inputs is imported with all entries side by side in one input, which is then divided again.
"""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch

from nwcompile.errors import ModelError, shown, unknown_choice
from nwcompile.frontend.torch.modules import unwrap_module, verify_modules
from nwcompile.ir.connection import Connection, Dense, Sparse
from nwcompile.ir.network import LAYOUTS, Network, Node

ERROR_CODE = "NW2302"


def parse_layout(text) -> str:
    """Return "BT", "TB" or "B" for a layout such as "BT", "[B, T]", "[T, B]" or "[B]"; raise ModelError for others."""
    letters = "".join(c for c in text.upper() if c.isalpha()) if isinstance(text, str) else ""
    if letters not in LAYOUTS:
        raise ModelError(unknown_choice("layout", text, LAYOUTS))
    return letters


def prepare_example(module: torch.nn.Module, example_input, layout: str) -> torch.Tensor:
    """Return the example `[B, T, *shape]` in the module's float type, on its device, with 2 or more samples and steps.

    In layout "B", T is 1.
    """
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"from_torch takes a torch.nn.Module, not {type(module).__name__}")
    verify_modules(module, is_converted=True)
    axes = LAYOUTS[layout]
    try:
        x = torch.as_tensor(example_input)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ModelError(f"example_input must be numbers {axes}: {e}") from None
    x = x if x.layout == torch.strided else x.to_dense()
    if x.ndim <= len(layout) or 0 in x.shape:
        one = "; one number in each step is an axis of one entry" * (x.ndim == len(layout) > 1)
        raise ModelError(f"example_input must be {axes}, got shape {list(x.shape)}{one}")
    if x.is_complex() or (x.is_floating_point() and not x.isfinite().all()):
        raise ModelError("example_input has NaN, infinite or complex values; give real, finite numbers")
    parameter = next(module.parameters(), torch.empty(0))
    x = x.detach().to(parameter.device, parameter.dtype if parameter.is_floating_point() else torch.float32)
    x = x.transpose(0, 1).contiguous() if layout == "TB" else x
    if layout == "B":
        x = x[:, None]
    for axis in (0, 1)[: len(layout)]:
        x = torch.cat([x, x], axis) if x.shape[axis] == 1 else x
    return x


def has_several(example_input) -> bool:
    """Return whether an example is a dict, or a tuple or list with tensors or arrays: an entry for each input."""
    if isinstance(example_input, Mapping):
        return True
    is_sequence = isinstance(example_input, tuple | list) and len(example_input) > 1
    return is_sequence and any(isinstance(x, torch.Tensor | np.ndarray) and x.ndim for x in example_input)


class JoinedModule(torch.nn.Module):
    """A module `forward(a, b, ...)` as one with a single input `[*lead, n]`, the entries of all inputs side by side.

    It shows the parts of the module under their own paths. `names` are the arguments of `forward`, and `shapes` those
    of one step of one sample.
    """

    inner: torch.nn.Module

    def __init__(self, module: torch.nn.Module, names: list[str], shapes: list[tuple[int, ...]]):
        super().__init__()
        self.names, self.shapes, self.ends = names, shapes, np.cumsum([0, *map(prod, shapes)]).tolist()
        vars(self)["inner"] = module  # not as a part, so that its paths stay

    def forward(self, joined: torch.Tensor) -> Any:
        """Divide the input and call the module by the names of its arguments."""
        lead = joined.shape[:-1]
        parts = zip(self.names, self.shapes, self.ends, self.ends[1:], strict=False)
        return self.inner(**{name: joined[..., a:b].reshape(*lead, *shape) for name, shape, a, b in parts})

    def train(self, mode: bool = True) -> "JoinedModule":
        """Set the mode of the module."""
        self.training = mode
        self.inner.train(mode)
        return self

    def named_modules(self, *args, **options):
        """Yield the module and its parts with their paths."""
        return self.inner.named_modules(*args, **options)

    def divide_input(self, network: Network) -> Network:
        """Return the imported network with an input for each argument of the module."""
        (name,) = network.inputs
        nodes, connections = {name: network.inputs[name]} | network.nodes, list(network.connections)
        inputs: dict[str, Node] = {}
        for k, shape in enumerate(self.shapes):
            given = self.names[k]
            while given in network.nodes or given in inputs or given == name:
                given += "_input"
            inputs[given] = Node(given, shape)
            first, n = self.ends[k], prod(shape)
            places = np.arange(n)
            connections = [_take_from(c, name, given, first, n) for c in connections]
            copy = Sparse(given, name, pre=places, post=first + places, weight=np.ones(n, np.float32))
            connections.append(copy)
        if not any(c.source == name for c in connections):
            del nodes[name]
            connections = [c for c in connections if c.target != name]
        for node in list(nodes.values()):
            connections = _skip_copy(node, nodes, inputs, connections)
        return replace(network, inputs=inputs, nodes=nodes, connections=tuple(connections))


def join_inputs(module, example_input, layout: str) -> tuple[JoinedModule, torch.Tensor]:
    """Return a module with one input, and its example, for an example with an entry for each argument of `forward`."""
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"from_torch takes a torch.nn.Module, not {type(module).__name__}")
    module = unwrap_module(module)
    verify_modules(module)
    arguments = [p for p in inspect.signature(module.forward).parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    names, called = [p.name for p in arguments], f"{type(module).__name__}.forward"
    if not isinstance(example_input, Mapping):
        if len(example_input) > len(names):
            raise ModelError(
                f"example_input has {len(example_input)} inputs, and {called} takes {', '.join(names) or 'none'}"
            )
        example_input = dict(zip(names, example_input, strict=False))
    if not example_input:
        raise ModelError(f"example_input is empty; give a value for each of {', '.join(names)}")
    if unknown := [name for name in example_input if name not in names]:
        raise ModelError(f"example_input names {shown(unknown[0])}, and {called} takes {', '.join(names)}")
    if missing := [p.name for p in arguments if p.default is p.empty and p.name not in example_input]:
        raise ModelError(f"example_input needs a value for {missing[0]!r} of {called}")
    arrays: dict[str, torch.Tensor] = {}
    for name, value in example_input.items():
        try:
            arrays[name] = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as e:
            raise ModelError(f"example_input {name!r} must be numbers {LAYOUTS[layout]}: {e}") from None
        if arrays[name].ndim <= len(layout) or 0 in arrays[name].shape:
            raise ModelError(f"example_input {name!r} must be {LAYOUTS[layout]}, got shape {list(arrays[name].shape)}")
    n_lead = len(layout)
    if len({x.shape[:n_lead] for x in arrays.values()}) > 1:
        sizes = ", ".join(f"{name} {list(x.shape[:n_lead])}" for name, x in arrays.items())
        raise ModelError(f"example_input: inputs differ in {list(layout)}: {sizes}; give them all alike")
    shapes = [tuple(x.shape[n_lead:]) for x in arrays.values()]
    kind = type(type(module).__name__, (JoinedModule,), {})
    joined = torch.cat([x.float().flatten(n_lead) if x.ndim > n_lead else x for x in arrays.values()], -1)
    return kind(module, list(arrays), shapes), joined


def _take_from(connection: Connection, joined: str, name: str, first: int, n: int) -> Connection:
    """Return a list of synapses of the joined input as one of input `name`, if all begin at its entries."""
    if connection.source != joined or not isinstance(connection, Sparse):
        return connection
    pre = np.asarray(connection.pre)
    is_inside = pre.size > 0 and pre.min() >= first and pre.max() < first + n
    return connection.replace(source=name, pre=pre - first) if is_inside else connection


def _skip_copy(node: Node, nodes: dict, inputs: dict, connections: list[Connection]) -> list[Connection]:
    """Connect what a junction feeds to an input directly, if the junction only holds a copy of it."""
    into = [c for c in connections if c.target == node.name]
    source = inputs.get(into[0].source) if len(into) == 1 and node.neuron is None else None
    if source is None or source.n_neurons != node.n_neurons or not isinstance(into[0], Sparse):
        return connections
    fed = [c for c in connections if c.source == node.name]
    takes_any_shape = (isinstance(c, Dense | Sparse) or getattr(c, "source_shape", None) is not None for c in fed)
    if source.shape != node.shape and not all(takes_any_shape):
        return connections
    copy, places = into[0], np.arange(node.n_neurons)
    is_whole = np.shape(copy.pre) == places.shape and (copy.pre == places).all() and (copy.post == places).all()
    if not is_whole or (np.asarray(copy.weight) != 1).any() or copy.bias is not None:
        return connections
    del nodes[node.name]
    late = copy.aligned_delay
    kept = [c for c in connections if c is not copy]
    return [c.replace(source=source.name, delay=c.aligned_delay + late) if c.source == node.name else c for c in kept]
