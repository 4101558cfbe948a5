"""Follow tensors through the torch functions that are called between modules."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

import torch
from torch.overrides import TorchFunctionMode

from nwcompile.errors import NwError
from nwcompile.frontend.torch.functions import (
    FUNCTIONS,
    MATRIX_PRODUCTS,
    PRODUCTS,
    REDUCTIONS,
    bind_arguments,
    describe_factor,
    follow_and,
    follow_linear,
    follow_matmul,
    follow_sum,
    is_binary,
    is_linear,
    operation_from_call,
)
from nwcompile.frontend.torch.moves import MOVES, Extent, Tracked, follow_moves
from nwcompile.frontend.torch.operations import NORMALIZES, UnfollowableError
from nwcompile.frontend.torch.symbols import (
    Applied,
    Constant,
    NeuronState,
    Operation,
    Picked,
    Pooled,
    Source,
    Stacked,
    Symbol,
    Unsupported,
)

CASTS = frozenset(
    ("to", "float", "double", "half", "bfloat16", "type", "type_as", "cpu", "cuda", "requires_grad_", "dropout")
)
FILLS = ("zeros", "ones", "empty", "full")
CREATES = frozenset(("new_tensor", *(f"{fill}_like" for fill in FILLS), *(f"new_{fill}" for fill in FILLS)))
READS_VALUE = frozenset(
    ("item", "tolist", "numpy", "equal", "allclose", "__bool__", "__float__", "__int__", "__index__", "__array__")
)
PACKAGES = tuple(str(Path(module).parent) for module in (torch.__file__, __file__))  # whose frames are not the user's
RELUS = ("relu", "relu_")  # They leave spikes unchanged.
KEEPS_STATE = frozenset(("detach", "detach_", "clone", "contiguous", "requires_grad_", "__get__", "to", "float"))


class Tracker(TorchFunctionMode):
    """Maps tensors, by id, to their symbols, and updates the map in every torch function."""

    def __init__(self, extent: Extent, lead: str, input_name: str):
        """Start without tensors; `lead`: the leading axes of the module's input."""
        super().__init__()
        self.extent, self.lead, self.input_name = extent, lead, input_name
        self.input_is_spikes = False
        self.counting: set[str] = set()  # layers that may fire several spikes in a step
        self.tracked: dict[int, Tracked] = {}
        self.alive: list[torch.Tensor] = []  # keeps tensors alive, so that their ids stay unique
        self.read: set[int] = set()  # ids of tensors that a function or module took, or in the final result
        self.applied: list[Applied] = []
        self.refused: list[str] = []
        self.reads: list[str] = []  # places at which Python reads a value
        self.assumed: list[str] = []  # places of products that are right if the input holds spikes only
        self.depth = 0  # number of running leaf modules; their insides are not followed
        self.containers: list[tuple[str, torch.nn.Module | None]] = [("", None)]  # running, insides are followed

    def run_untracked(self, action):
        """Return `action()` without following its torch functions."""
        self.depth += 1
        try:
            return action()
        finally:
            self.depth -= 1

    def track(self, tensor: torch.Tensor, symbol: Symbol, lead: str) -> None:
        self.tracked[id(tensor)] = Tracked(symbol, lead)
        self.alive.append(tensor)

    def look_up(self, tensor: torch.Tensor) -> Tracked:
        """Return the symbol and lead of a tensor."""
        known = self.tracked.get(id(tensor))
        if known is not None:
            return known
        shape, lead = self.guess_axes(tensor)
        return Tracked(Constant(shape, not tensor.count_nonzero()), lead)

    def guess_axes(self, tensor: torch.Tensor) -> tuple[tuple[int, ...], str]:
        """Return the step shape and lead of an unfollowed tensor, judged by its first axes."""
        axes = self.extent.axes[self.lead]
        lead = self.lead if tuple(tensor.shape[: len(axes)]) == axes else "B"
        return tuple(tensor.shape[len(self.extent.axes[lead]) :]), lead

    def refuse(self, result, reason: str, by: tuple[str, ...] = (), layer: str = "") -> None:
        """Mark all tensors in `result` as unsupported; `by` and `layer` as in `Unsupported`."""
        self.refused.append(reason)
        by = tuple(dict.fromkeys(by)) or (() if layer else (reason.partition(", which")[0],))
        for tensor in tensors_in(result):
            shape, lead = self.guess_axes(tensor)
            self.track(tensor, Unsupported(reason, shape, by, layer), lead)

    def is_spikes(self, symbol: Symbol, on_example: bool = False) -> bool:
        """Return whether a tensor certainly holds spikes, 0 or 1; `on_example`: or if the input holds spikes only."""
        if isinstance(symbol, Source):
            is_input = symbol.name == self.input_name
            return symbol.name not in self.counting and (not is_input or (on_example and self.input_is_spikes))
        if isinstance(symbol, Pooled):
            return symbol.operation.kind == "and" or self.is_spikes(symbol.source, on_example)
        parts = symbol.sources if isinstance(symbol, Picked) else symbol.steps if isinstance(symbol, Stacked) else ()
        return bool(parts) and all(self.is_spikes(part, on_example) for part in parts)

    def track_operation(self, done: Operation, given: Tracked, result: torch.Tensor) -> None:
        """Track `result` as the operation applied to `given`."""
        shape = tuple(result.shape[len(self.extent.axes[given.lead]) :])
        if done.maximum is not None:
            if self.is_spikes(given.symbol, on_example=True):  # a maximum of numbers is the same
                self.track(result, Pooled(done, given.symbol, shape), given.lead)
                return
            done = replace(done, connect=done.maximum)
        applied, symbol = done.apply(given.symbol, shape)
        self.applied.append(applied)
        self.track(result, symbol, given.lead)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.depth == 0:
            self.guard(lambda: self._follow(func, args, kwargs, result), result, f"torch function {_func_name(func)!r}")
        return result

    def guard(self, action, result, what: str) -> bool:
        """Run a recording action; if nwcompile fails in it, `result` cannot be followed. `what` names the call."""
        try:
            self.run_untracked(action)
            return True
        except NwError as e:
            raise RecordError(e) from e
        except Exception as e:
            text = (str(e).strip().splitlines() or [""])[0]
            self.refuse(result, f"{what}, on which nwcompile fails ({type(e).__name__}: {text}); please report it")
            return False

    def _follow(self, func, args, kwargs, result) -> None:
        name = _func_name(func)
        tensors = [t for t in tensors_in((args, tuple(kwargs.values()))) if id(t) in self.tracked]
        self.read.update(map(id, tensors))
        if name == "__setitem__":
            self.refuse(args[0], "a tensor that is filled by item assignment; use torch.stack or torch.cat")
        if tensors and name in READS_VALUE:
            self.reads.append(f"{_find_place()}: the code reads a value of a tensor ({name.strip('_')})")
        if not tensors or not tensors_in(result) or name in CREATES:
            return
        where = f"{self.containers[-1][0]!r}" if self.containers[-1][0] else "forward"
        for tensor in tensors:
            symbol = self.look_up(tensor).symbol
            is_same_shape = tensor.shape == getattr(result, "shape", None)
            if isinstance(symbol, NeuronState) and name in KEEPS_STATE and is_same_shape:
                self.track(result, symbol, self.look_up(tensor).lead)
                return
            if isinstance(symbol, Unsupported):
                by = () if name in MOVES or name in CASTS else (f"torch function {name!r} in {where}",)
                self.refuse(result, symbol.reason, (*symbol.by, *by), symbol.layer)
                return
        reason = f"torch function {name!r} in {where}, which is not supported here"
        if name in CASTS and isinstance(result, torch.Tensor):
            self._follow_cast(tensors[0], result, reason)
        elif name in MOVES:
            self.track_move(func, args, kwargs, result, reason)
        elif is_linear(name):
            path = self._path(name)
            args = self._broadcast_pair(args)
            known = follow_linear(name, args, kwargs, self.look_up, path)
            known = known or follow_and(name, args, self.look_up, self.is_spikes, path)
            if known is None and any(is_binary(self.look_up(t).symbol, self.is_spikes) for t in tensors):
                known = follow_and(name, args, self.look_up, partial(self.is_spikes, on_example=True), path)
                self.assumed += [_find_place()] if known else []
            if known is None and name.strip("_") in PRODUCTS and all(id(t) in self.tracked for t in args):
                factor = describe_factor([self.look_up(t).symbol for t in args], self.is_spikes)
                reason = f"torch function {name!r} in {where}, {factor}" if factor else reason
            self._track_or_refuse(result, known, reason)
        elif name in REDUCTIONS:
            given = self.look_up(args[0])
            known = follow_sum(name, args, kwargs, given, self.extent, self._follow_move, self._path(name))
            self._track_or_refuse(result, known, reason)
        elif name in MATRIX_PRODUCTS and len(args) == 2 and all(id(t) in self.tracked for t in args):
            lead = self.look_up(args[0]).lead
            known = follow_matmul(args[0], args[1], lead, self.extent, self._follow_move, self._path("matmul"))
            self._track_or_refuse(result, known, reason)
        elif name in RELUS and self.is_spikes((given := self.look_up(tensors[0])).symbol):
            self.track(result, given.symbol, given.lead)
        elif name in FUNCTIONS:
            self._follow_module_function(name, args, kwargs, result, reason)
        else:
            why = NORMALIZES if name in ("layer_norm", "group_norm") else "which is not supported here"
            self.refuse(result, f"torch function {name!r} in {where}, {why}")

    def _track_or_refuse(self, result, known: Tracked | None, reason: str) -> None:
        if known is None:
            self.refuse(result, reason)
        else:
            self.track(result, known.symbol, known.lead)

    def _broadcast_pair(self, args) -> tuple:
        """Broadcast two followed tensors to one shape inside their steps; return other arguments unchanged."""
        if len(args) != 2 or not all(id(t) in self.tracked for t in args) or args[0].ndim != args[1].ndim:
            return args
        if args[0].shape == args[1].shape or self.look_up(args[0]).lead != self.look_up(args[1]).lead:
            return args
        wide = torch.broadcast_tensors(*args)
        self.track_move(
            torch.broadcast_tensors, args, {}, wide, "torch function 'broadcast_tensors', which mixes steps"
        )
        return wide

    def _follow_move(self, func, *tensors) -> Tracked | None:
        """Return the symbol of the one result of `func`, which only moves entries; None if it mixes steps."""
        return follow_moves(func, tensors, {}, self.look_up, self.extent)[0]

    def _follow_module_function(self, name: str, args, kwargs, result, reason: str) -> None:
        """Follow a function with weights as arguments, or a pooling."""
        given = bind_arguments(name, args, kwargs)
        others = [v for k, v in given.items() if k != "input" and isinstance(v, torch.Tensor)]
        if id(given.get("input")) not in self.tracked or any(id(t) in self.tracked for t in others):
            self.refuse(result, reason)
            return
        known = self.look_up(given["input"])
        path, module = self.containers[-1]
        if not isinstance(module, FUNCTIONS[name].kind):
            path = self._path(name)
        try:
            done = operation_from_call(name, given, path, known.symbol.shape, known.lead in ("B", "B*T", "T*B"))
        except UnfollowableError as e:
            self.refuse(result, f"torch function {name!r}, {e}")
            return
        self.track_operation(done, known, result)

    def _follow_cast(self, given, result, reason) -> None:
        known = self.tracked.get(id(given))
        if known is None or given.shape != result.shape or not torch.equal(given.to(result.dtype), result):
            self.refuse(result, reason)
        elif result.is_floating_point() or self.is_spikes(known.symbol):
            self.track(result, known.symbol, known.lead)
        else:
            self.refuse(result, reason)

    def track_move(self, func, args, kwargs, result, reason) -> None:
        """Track `result` as entries of the arguments, moved by `func`."""

        def find_operand(tensor: torch.Tensor) -> Tracked | None:
            return self.look_up(tensor) if id(tensor) in self.tracked or tensor.is_floating_point() else None

        followed = follow_moves(func, args, kwargs, find_operand, self.extent)
        for tensor, known in zip(tensors_in(result), followed, strict=True):
            if known is None:
                self.refuse(tensor, reason)
            else:
                self.track(tensor, known.symbol, known.lead)

    def _path(self, name: str) -> str:
        return ".".join(filter(None, (self.containers[-1][0], name.strip("_"))))


class RecordError(Exception):
    """An error of nwcompile while it records a module; `error` is the one to report."""

    def __init__(self, error: NwError):
        super().__init__(str(error))
        self.error = error


def _find_place() -> str:
    """Return the innermost line of the user's code that runs, as `net.py:35`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGES):
        frame = frame.f_back
    return "forward" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _func_name(func) -> str:
    return getattr(func, "__name__", repr(func))


def tensors_in(value) -> list[torch.Tensor]:
    """Return all tensors in nested lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, list | tuple) else []
