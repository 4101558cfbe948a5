"""Running a module on the example while writing down which tensor came from what."""

from contextlib import ExitStack, contextmanager
from itertools import repeat

import torch
from torch.overrides import TorchFunctionMode

from nwcompile.frontend.torch.linear import is_linear, linear
from nwcompile.frontend.torch.moves import MOVES, Extent, Tracked, follow
from nwcompile.frontend.torch.operations import IDENTITIES, MAKERS, SHAPERS, Unfollowable, operation
from nwcompile.frontend.torch.symbols import (
    Applied,
    Call,
    Constant,
    Picked,
    Pooled,
    Recording,
    Source,
    Stacked,
    Symbol,
    Unsupported,
)
from nwcompile.nn import LIFLayer

CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
CASTS = frozenset(
    ("to", "float", "double", "half", "bfloat16", "type", "type_as", "cpu", "cuda", "requires_grad_", "dropout")
)
CREATES = frozenset(
    (
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
        "new_zeros",
        "new_ones",
        "new_empty",
        "new_full",
        "new_tensor",
    )
)


class Recorder(TorchFunctionMode):
    """Follows tensors through the leaf modules of `module` and the torch functions called between them."""

    def __init__(self, module: torch.nn.Module, x: torch.Tensor, one_step: bool, input_name: str):
        super().__init__()
        self.module, self.x, self.one_step = module, x, one_step
        self.extent = Extent(*x.shape[:2])
        self.shape = tuple(x.shape[2:])
        self.input_name = input_name
        self.paths = {id(m): name for name, m in module.named_modules()}
        self.tracked: dict[int, Tracked] = {}
        self.alive: list[torch.Tensor] = []  # ids of tensors stay theirs as long as they live
        self.calls: dict[str, list[Call]] = {}
        self.applied: list[Applied] = []
        self.refused: list[str] = []
        self.refused_feeds: dict[str, str] = {}
        self.depth = 0  # of leaf modules being run, whose insides are not followed
        self.containers = [""]  # paths of the modules being run that are followed inside

    def record(self) -> Recording:
        """Run the module and give what it did. Exceptions of the module itself pass through."""
        last = self.extent.n_steps - 1
        whole = Source(self.input_name, self.shape, last)
        with torch.no_grad(), self._hooks(), self:
            if self.one_step:
                for t in range(self.extent.n_steps):
                    x_t = self._quietly(lambda t=t: self.x[:, t].clone())
                    self._track(x_t, Source(self.input_name, self.shape, t), "B")
                    self.module(x_t)
            else:
                self._track(self.x, whole, "BT")
                self.module(self.x)
        return Recording(whole, self.extent.n_steps, self.calls, self.applied, self.refused_feeds)

    @contextmanager
    def _hooks(self):
        with ExitStack() as stack:
            for module in self.module.modules():
                before, after = (self._enter, self._leave) if _is_leaf(module) else (self._open, self._close)
                stack.callback(module.register_forward_pre_hook(before).remove)
                stack.callback(module.register_forward_hook(after).remove)
            yield

    def _open(self, module, args):
        self.containers.append(self.paths[id(module)])
        return self._enter(module, args, 0)

    def _close(self, module, args, result):
        self.containers.pop()

    def _enter(self, module, args, deeper=1):
        self.depth += deeper
        if len(args) == 1 and isinstance(args[0], tuple) and len(args[0]) == 2 and id(args[0][0]) in self.tracked:
            return (args[0][0],)  # inside a torch.nn.Sequential: a layer's (spikes, mem) goes on as its spikes
        return None

    def _leave(self, module, args, result):
        self.depth -= 1
        if self.depth == 0:
            self._quietly(lambda: self._called(module, self.paths[id(module)], args, result))

    def _quietly(self, action):
        self.depth += 1
        try:
            return action()
        finally:
            self.depth -= 1

    def _track(self, tensor: torch.Tensor, symbol: Symbol, lead: str) -> None:
        self.tracked[id(tensor)] = Tracked(symbol, lead)
        self.alive.append(tensor)

    def _of(self, tensor: torch.Tensor) -> Tracked:
        """What a tensor that reached a module stands for."""
        known = self.tracked.get(id(tensor))
        if known is not None:
            return known
        shape, lead = self._by_shape(tensor)
        return Tracked(Constant(shape, not tensor.count_nonzero()), lead)

    def _by_shape(self, tensor: torch.Tensor) -> tuple[tuple[int, ...], str]:
        """Shape of one step, and lead, of a tensor that is not followed: as its first axes look."""
        whole = not self.one_step and tuple(tensor.shape[:2]) == tuple(self.x.shape[:2])
        return tuple(tensor.shape[1 + whole :]), "BT" if whole else "B"

    def _called(self, module, path: str, args, result) -> None:
        kind = type(module).__name__
        if len(args) != 1 or not isinstance(args[0], torch.Tensor):
            self._refuse(result, f"{path!r} ({kind}), which is not supported")
            return
        given = self._of(args[0])
        if isinstance(module, LIFLayer):
            self._layer_called(module, path, given, result)
        elif isinstance(module, IDENTITIES):
            self._track(result, given.symbol, given.lead)
        elif isinstance(module, SHAPERS) and isinstance(given.symbol, Unsupported):
            self._refuse(result, given.symbol.reason)
        elif isinstance(module, SHAPERS):
            self._moved(module, args, {}, result, f"{path!r} ({kind}), which mixes steps or samples")
        else:
            self._operated(module, path, given, result)

    def _layer_called(self, layer: LIFLayer, path: str, given: Tracked, result) -> None:
        fed = given.symbol
        if given.lead in ("TB", "M") and not isinstance(fed, Unsupported):
            order = "[T, B, *]" if given.lead == "TB" else "[B*T, *]"
            fed = Unsupported(f"a tensor [{order[1:-1]}]; a layer takes [B, T, *] or one step [B, *]", fed.shape)
        calls = self.calls.setdefault(path, [])
        calls.append(Call(fed, given.lead == "BT"))
        time = self.extent.n_steps - 1 if given.lead == "BT" else len(calls) - 1
        shape = fed.shape or (layer.n_neurons,)
        spikes, mem = result
        self._track(spikes, Source(layer_name(path), tuple(shape), time), given.lead)
        self._track(
            mem, Unsupported(f"the membrane of layer {layer_name(path)!r}; only its spikes can be sent"), given.lead
        )

    def _operated(self, module, path: str, given: Tracked, result) -> None:
        symbol, kind = given.symbol, type(module).__name__
        if isinstance(symbol, Unsupported):
            if next(module.parameters(), None) is not None:
                self.refused_feeds.setdefault(path, symbol.reason)
            self._refuse(result, symbol.reason)
            return
        try:
            done = operation(module, path, symbol.shape, given.lead in ("B", "M"))
        except Unfollowable as e:
            self._refuse(result, f"{path!r} ({kind}), {e}")
            return
        lead_axes = {"BT": 2, "TB": 2, "M": 1, "B": 1}[given.lead]
        shape = tuple(result.shape[lead_axes:])
        if isinstance(module, torch.nn.MaxPool2d):
            if not self._is_spikes(symbol):
                self._refuse(
                    result, f"{path!r} ({kind}) of currents; a maximum is supported of spikes only, after a layer"
                )
                return
            self._track(result, Pooled(done, symbol, shape), given.lead)
            return
        applied = Applied(done, symbol, shape)
        self.applied.append(applied)
        self._track(result, applied, given.lead)

    def _is_spikes(self, symbol: Symbol) -> bool:
        if isinstance(symbol, Source):
            return symbol.name != self.input_name or bool(((self.x == 0) | (self.x == 1)).all())
        if isinstance(symbol, Picked):
            return all(map(self._is_spikes, symbol.sources))
        return isinstance(symbol, Pooled) or (isinstance(symbol, Stacked) and all(map(self._is_spikes, symbol.steps)))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.depth == 0:
            self._quietly(lambda: self._function(func, args, kwargs, result))
        return result

    def _function(self, func, args, kwargs, result) -> None:
        name = getattr(func, "__name__", repr(func))
        tensors = [t for t in _tensors((args, tuple(kwargs.values()))) if id(t) in self.tracked]
        if name == "__setitem__":
            self._refuse(args[0], "a tensor that is filled by item assignment; use torch.stack or torch.cat")
        if not tensors or not _tensors(result) or name in CREATES:
            return
        for tensor in tensors:
            if isinstance(self._of(tensor).symbol, Unsupported):
                self._refuse(result, self._of(tensor).symbol.reason)
                return
        where = f"{self.containers[-1]!r}" if self.containers[-1] else "forward"
        reason = f"torch function {name!r} in {where}, which is not supported here"
        if name in CASTS and isinstance(result, torch.Tensor):
            self._cast(tensors[0], result, reason)
        elif name in MOVES:
            self._moved(func, args, kwargs, result, reason)
        elif is_linear(name):
            known = linear(name, args, kwargs, self._of, self._junction_path(name)) or Tracked(Unsupported(reason), "B")
            self._track(result, known.symbol, known.lead)
        else:
            self._refuse(result, reason)

    def _cast(self, given, result, reason) -> None:
        known = self.tracked.get(id(given))
        same = known is not None and given.shape == result.shape and torch.equal(given.to(result.dtype), result)
        if same and (result.is_floating_point() or self._is_spikes(known.symbol)):
            self._track(result, known.symbol, known.lead)
        else:
            self._refuse(result, reason)

    def _moved(self, func, args, kwargs, result, reason) -> None:
        found = follow(func, args, kwargs, self.tracked, self.extent)
        for tensor, known in zip(_tensors(result), found or repeat(None), strict=False):
            if known is None:
                self._refuse(tensor, reason)
            else:
                self._track(tensor, known.symbol, known.lead)

    def _junction_path(self, name: str) -> str:
        return ".".join(filter(None, (self.containers[-1], name.strip("_"))))

    def _refuse(self, result, reason: str) -> None:
        self.refused.append(reason)
        for tensor in _tensors(result):
            shape, lead = self._by_shape(tensor)
            self._track(tensor, Unsupported(reason, shape), lead)


def layer_name(path: str) -> str:
    """The layer's name: its module path, or "lif" where the layer is the whole module."""
    return path or "lif"


def _is_leaf(module: torch.nn.Module) -> bool:
    if isinstance(module, CONTAINERS):
        return False
    known = any(isinstance(module, kind) and type(module).forward is kind.forward for kind in (LIFLayer, *MAKERS))
    return known or type(module).__module__.startswith("torch.")


def _tensors(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []
