"""Run a module of the user: unwrap it, step by step or on all steps, and leave it as it was."""

import inspect
import sys
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.kinds import clear
from nwcompile.nn import prepare_net

ERROR_CODE = "NW2302"
TO_NIR = "export the network with rockpool.nn.modules.to_nir and read the file by nw.from_nir(path, dialect='rockpool')"
PLAIN = (int, float, str, type(None))  # values without contents
MAX_DEPTH = 12  # of containers and objects in each other whose contents are restored


def is_wrapper(module) -> bool:
    """Return whether the module only runs another: torch.compile, DataParallel or DistributedDataParallel."""
    kinds = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    return isinstance(module, kinds) or "_orig_mod" in getattr(module, "_modules", ())


def unwrap_module(module):
    """Return the module inside all wrappers."""
    while is_wrapper(module):
        module = next(module.children())
    return module


def is_rockpool(module) -> bool:
    """Return whether a class of rockpool is among the module's classes."""
    return any(cls.__module__.partition(".")[0] == "rockpool" for cls in type(module).__mro__)


def convert_rockpool(module):
    """Return a copy with torch's `parameters()` and `modules()`, and states at their start, if rockpool's are inside.

    A rockpool module that is called by another still returns `(output, states, record)`, as its caller expects.
    """
    if not isinstance(module, torch.nn.Module) or not any(map(is_rockpool, torch.nn.Module.modules(module))):
        return module
    module = deepcopy(module)
    for part in list(torch.nn.Module.modules(module)):
        if is_rockpool(part) and not part._has_torch_api:
            part.reset_state()
            part.to_torch(use_torch_call=part is module)
    return module


@contextmanager
def disable_compile():
    """Run functions of torch.compile, and attention, as single operators inside, so that they can be followed."""
    is_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)


def verify_modules(module: torch.nn.Module, is_converted: bool = False) -> None:
    """Raise ModelError for parts in TorchScript or of lava-dl, and of rockpool unless `convert_rockpool` was called."""
    for path, part in torch.nn.Module.named_modules(module):
        where = repr(path) if path else "the module"
        if isinstance(part, torch.jit.ScriptModule):
            raise ModelError(
                f"{where} is TorchScript, whose functions cannot be followed; give the module that it was made from"
            )
        if any(cls.__module__.startswith("lava.lib.dl.slayer") for cls in type(part).__mro__):
            raise ModelError(
                f"{where} is {type(part).__name__} of lava-dl, whose modules are not read; export the network with its "
                "export_hdf5 and read the file by nw.from_lava(path)"
            )
        if hasattr(type(part), "network") and type(part).__module__.startswith("nwcompile.nn.qat"):
            raise ModelError(
                f"{where} is {type(part).__name__}, which has a network of its own: compile module.network()"
            )
        if is_rockpool(part) and not is_converted:
            raise ModelError(f"{where} is {type(part).__name__} of rockpool, whose modules are not read; {TO_NIR}")


class Stepwise:
    """Calls a module step by step.

    If its forward takes more arguments than the input and returns a tuple or list, all entries after the first are the
    state, which the next step receives.
    """

    def __init__(self, module: torch.nn.Module):
        self.module, self.states = module, ()
        parameters = list(inspect.signature(module.forward).parameters.values())[1:]
        self.places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.missing = (None,) * sum(p.default is p.empty for p in self.places)

    def run_step(self, x: torch.Tensor):
        """Run one step `[B, *shape]` and return the module's result."""
        result = self.module(x, *(self.states or self.missing))
        if self.places and isinstance(result, tuple | list) and 1 < len(result) <= len(self.places) + 1:
            self.states = tuple(result[1:])
        return result


@contextmanager
def preserve_state(module: torch.nn.Module):
    """Set eval mode, clear state and run compiled functions eagerly inside; restore modes, attributes and state."""
    restores: list[Callable[[], object]] = []
    _snapshot(list(module.modules()), set(), restores)
    module.eval()
    clear_state(module)
    for m in module.modules():
        m._buffers.update({name: value.clone() for name, value in m._buffers.items() if value is not None})
    try:
        with disable_compile():
            yield
    finally:
        for restore in restores:
            restore()
        prepare_net(module)


def _snapshot(value: Any, seen: set[int], restores: list[Callable[[], object]], depth: int = 0) -> None:
    """Append functions that restore the contents of tensors, containers, modules and objects in a value."""
    if depth > MAX_DEPTH or id(value) in seen or isinstance(value, type | ModuleType | FunctionType):
        return
    seen.add(id(value))
    content = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    items: list[Any] = []
    if isinstance(value, torch.Tensor):
        restores.append(partial(_restore_tensor, value, value.detach().clone(), value._version))
    elif isinstance(value, list | deque | tuple | set | frozenset):
        items = list(value)
        if isinstance(value, list | deque):
            restores += [value.clear, partial(value.extend, items)]
    elif isinstance(content, dict):
        kept = dict(content)
        items = list(kept.values())
        restores += [content.clear, partial(content.update, kept)]
    for item in items:
        if not isinstance(item, PLAIN):
            _snapshot(item, seen, restores, depth + 1)


def _restore_tensor(tensor: torch.Tensor, content: torch.Tensor, version: int) -> None:
    is_dense = tensor.layout == torch.strided  # torch compares no others
    if tensor._version != version or (is_dense and not torch.equal(tensor, content)):
        if tensor.shape != content.shape:
            tensor.data = content
        else:
            tensor.data.copy_(content)


def clear_state(module: torch.nn.Module) -> None:
    """Clear the state of all neuron layers."""
    prepare_net(module)
    for part in module.modules():
        clear(part)
