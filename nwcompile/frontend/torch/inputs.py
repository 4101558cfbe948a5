"""Prepare the example input: all steps in the requested layout, or one step after the other."""

import inspect
import sys
from contextlib import contextmanager

import torch

from nwcompile.errors import ModelError, unknown_choice
from nwcompile.ir.network import LAYOUTS

ERROR_CODE = "NW2302"


def is_wrapper(module) -> bool:
    """Return whether the module only runs another: torch.compile, DataParallel or DistributedDataParallel."""
    kinds = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    return isinstance(module, kinds) or "_orig_mod" in getattr(module, "_modules", ())


def unwrap_module(module):
    """Return the module inside all wrappers."""
    while is_wrapper(module):
        module = next(module.children())
    return module


@contextmanager
def disable_compile():
    """Run functions of torch.compile eagerly inside, so that they can be followed."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def parse_layout(text) -> str:
    """Return "BT", "TB" or "B" for a layout such as "BT", "[B, T]", "[T, B]" or "[B]"; raise ModelError for others."""
    letters = "".join(c for c in text.upper() if c.isalpha()) if isinstance(text, str) else ""
    if letters not in LAYOUTS:
        raise ModelError(unknown_choice("layout", text, LAYOUTS))
    return letters


def verify_modules(module: torch.nn.Module) -> None:
    """Raise ModelError for TorchScript parts, and for rockpool, whose modules return dicts of their parameters."""
    for path, part in torch.nn.Module.named_modules(module):
        where = repr(path) if path else "the module"
        if isinstance(part, torch.jit.ScriptModule):
            raise ModelError(
                f"{where} is TorchScript, whose functions cannot be followed; give from_torch the module that it was "
                "made from"
            )
        if any(cls.__module__.partition(".")[0] == "rockpool" for cls in type(part).__mro__):
            raise ModelError(
                f"{where} is {type(part).__name__} of rockpool, whose modules are not read; export the network with "
                "rockpool.nn.modules.to_nir and read the file by nw.from_nir(path, dialect='rockpool')"
            )


def prepare_example(module: torch.nn.Module, example_input, layout: str) -> torch.Tensor:
    """Return the example `[B, T, *shape]` in the module's float type, on its device, with 2 or more samples and steps.

    In layout "B", T is 1.
    """
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"from_torch takes a torch.nn.Module, not {type(module).__name__}")
    verify_modules(module)
    axes = LAYOUTS[layout]
    try:
        x = torch.as_tensor(example_input)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ModelError(f"example_input must be numbers {axes}: {e}") from None
    x = x if x.layout == torch.strided else x.to_dense()
    if x.ndim <= len(layout) or 0 in x.shape:
        raise ModelError(f"example_input must be {axes}, got shape {list(x.shape)}")
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
