"""Record the ATen operators that a module runs on the example, as a graph without in-place operations."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from inspect import signature
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.kinds import find_kind
from nwcompile.frontend.torch.operators.ops import (
    CrashError,
    Frame,
    Op,
    Site,
    aten,
    call_operator,
    constant_op,
    expand_fixed_choices,
    find_instruction,
    is_op,
    is_user_frame,
    list_leaves,
    make_op,
    map_leaves,
    run_op,
)
from nwcompile.frontend.torch.operators.own_operators import IN_TORCH, INSIDE
from nwcompile.nn.neurons import trace

ERROR_CODE = "NW2307"
COMPOSITE = "CompositeImplicitAutograd"
FILLS = ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")
RESHAPES = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "detach", "alias")
NO_CHOICES = "convert takes no choice by the input, torch.where neither; train the network without it"
TURNS = ("unsqueeze_", "squeeze_", "transpose_", "t_", "as_strided_")  # in place, of axes only
SCATTERS = {  # what writes into the view that an operator takes
    "slice": aten.slice_scatter.default,
    "diagonal": aten.diagonal_scatter.default,
    "as_strided": aten.as_strided_scatter.default,
}
READS_VALUE = ("_local_scalar_dense", "equal", "allclose")
REWRITES: dict[str, Callable] = {  # operators that are several others, which neurons and maps are made of
    "add": lambda run, a, b, alpha: run("add", a, run("mul", b, alpha)),
    "sub": lambda run, a, b, alpha: run("sub", a, run("mul", b, alpha)),
    "rsub": lambda run, a, b, alpha: run("add", run("mul", a, -alpha), b),  # b may be a number
    "lerp": lambda run, a, b, weight: run("add", a, run("mul", run("sub", b, a), weight)),
    "addcmul": lambda run, a, b, c, value=1: run("add", a, run("mul", run("mul", b, value), c)),
    "addcdiv": lambda run, a, b, c, value=1: run("add", a, run("div", run("mul", b, value), c)),
    "addmm": lambda run, a, b, c, beta=1, alpha=1: run("add", run("mul", a, beta), run("mul", run("mm", b, c), alpha)),
    "baddbmm": lambda run, a, b, c, beta=1, alpha=1: run(
        "add", run("mul", a, beta), run("mul", run("bmm", b, c), alpha)
    ),
    "rsqrt": lambda run, a: run("reciprocal", run("sqrt", a)),
    "silu": lambda run, a: run("mul", a, run("sigmoid", a)),
    "expm1": lambda run, a: run("sub", run("exp", a), 1.0),
}


@dataclass(eq=False)
class Call:
    """The `number`-th call of a layer: the tensors that it was given, its place in the code, and the states it kept."""

    layer: str
    number: int
    given: list[Op]
    site: Site
    kept: list[Op]


@dataclass(eq=False)
class Held:
    """A tensor's value: an operator's result, or a view of another tensor as of the `version`-th write to its base."""

    op: Op
    parent: "Held | None" = None
    view: tuple[Any, tuple, dict, int | None] | None = None  # operator, further arguments, entry of a tuple
    version: int = 0
    n_writes: int = 0  # of a base
    address: int = 0  # of the tensor's memory

    @property
    def taken_by(self) -> tuple[Any, tuple, dict, int | None]:
        """The view's operator, its further arguments, and the entry of its result."""
        assert self.view is not None, "a base is no view"
        return self.view

    @property
    def base(self) -> "Held":
        """The tensor that owns the memory."""
        return self if self.parent is None else self.parent.base


@dataclass(eq=False)
class Pick:
    """A tensor v[mask]. Its number of entries depends on the input, so one line must pick, compute and write them."""

    mask: Op
    site: Site
    is_used: bool = False


class OperatorRecorder(TorchDispatchMode):
    """Records every ATen operator. A write in place becomes a new value of the tensor and of all views of its memory.

    `reads` lists where the code reads a value that depends on the example (`.item()`, `if`); `alter` gives the value
    that it gets instead. The inside of `layers`, modules with the names of their layers, is not recorded: their results
    are operators "record". `takes_choices`: whether the caller takes torch.where.
    """

    def __init__(
        self,
        example: torch.Tensor,
        paths: dict[torch.nn.Module, str],
        layers: dict[torch.nn.Module, str] | None = None,
        takes_choices: bool = True,
        alter: Callable[[Any], Any] | None = None,
    ):
        super().__init__()
        self.alter = alter
        self.paths, self.layers, self.takes_choices = paths, layers or {}, takes_choices
        self.calls: list[Call] = []  # of layers, in order
        self.n_calls: Counter[str] = Counter()  # of each layer
        self.reads: list[Site] = []  # places at which Python reads a value that depends on the example
        self.shown: list[tuple[torch.Tensor, torch.Tensor]] = []  # altered ones whose memory Python has, and copies
        self.pairs: dict[int, tuple] = {}  # (spikes, states) that neuron layers of frameworks returned, by id
        self.inside: list[str] = []  # layers that run
        self.states: dict[str, set[str]] = defaultdict(set)  # attributes in which each layer keeps a state
        self.kept: list[Op] = []  # states of the layer that runs, as they were when it was called
        self.hidden: dict[int, str] = {}  # ids of tensors that layers made
        self.running: list[torch.nn.Module] = []
        self.n_outside = 0  # frames around the part of the module that runs
        self.ops: list[Op] = []
        self.alive: list[torch.Tensor] = []  # keeps tensors alive, so that their ids stay unique
        self.held: dict[int, Held] = {}
        self.picks: dict[int, Pick] = {}  # tensors v[mask], which are held as the whole v
        self.input = replace(constant_op(example.clone(), Site((), ())), name="input", depends=True)
        self.ops.append(self.input)
        self._hold(example, Held(self.input))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: otherwise torch loads its compiler, which takes seconds, to disable it in this mode."""
        return False

    def record(self, run, *args) -> Any:
        """Return the result of `run(*args)` with operators instead of tensors."""
        with ExitStack() as stack:
            for module in self.paths:
                stack.callback(module.register_forward_pre_hook(self._enter_module).remove)
                stack.callback(module.register_forward_hook(self._leave_module, with_kwargs=True).remove)
            copying = patch.object(torch.Tensor, "__deepcopy__", _deepcopy_tensor)  # torch's copies without an operator
            for context in (torch.no_grad(), trace.watch_reads(self._note_read), copying, self):
                stack.enter_context(context)
            result = self._take_spikes(run(*args))
        for pick in self.picks.values():
            if not pick.is_used:
                raise self._refuse_picking(pick.site)
        if not all(torch.equal(tensor, copy) for tensor, copy in self.shown):
            raise self.refuse_reading(self.reads[0])  # the code writes into an array that shares a tensor's memory
        result = pytree.tree_map(lambda t: self._find_op(t) if isinstance(t, torch.Tensor) else t, result)
        self.ops = expand_fixed_choices(self.ops)
        return [_drop_states(step) for step in result] if type(result) is list else _drop_states(result)

    def _take_spikes(self, result: Any) -> Any:
        """Return a module's result, or those of its steps, without the states of the layer that ends it."""
        if type(result) is list:
            return [self._take_spikes(step) for step in result]
        return result[0] if id(result) in self.pairs else result

    def _enter_module(self, module: torch.nn.Module, args: tuple) -> Any:
        is_in_sequence = bool(self.running) and isinstance(self.running[-1], torch.nn.Sequential)
        self.running.append(module)
        if len(self.running) == 2:
            self.n_outside = len(self._find_frames())
        is_of_layer = is_in_sequence and len(args) == 1 and id(args[0]) in self.pairs and not self.inside
        if module in self.layers:
            if not self.inside:
                names = self.states[self.layers[module]]
                kept = [t for name, t in list_states(module).items() if name in names and id(t) in self.held]
                with _disable_current_modes():
                    self.kept = [self._find_op(t) for t in kept]
            self.inside.append(self.layers[module])
        return args[0][:1] if is_of_layer else None  # a torch.nn.Sequential passes only the spikes on

    def _leave_module(self, module: torch.nn.Module, args: tuple, kwargs: dict, result: Any) -> None:
        self.running.pop()
        if type(result) is tuple and _is_layer(module):
            self.pairs[id(result)] = result
        if module in self.layers:
            layer = self.inside.pop()
            if not self.inside:
                with _disable_current_modes():
                    given = [t for t in pytree.tree_leaves(_list_arguments(module, args, kwargs)) if torch.is_tensor(t)]
                    ops = [self._find_op(t) for t in given]
                    self.calls.append(Call(layer, self.n_calls[layer], ops, self._find_site(), self.kept))
                    self.n_calls[layer] += 1
                    self._hold_records(layer, dict(enumerate(pytree.tree_leaves(result))), type(result) is list)
                    states = list_states(module)
                    self._hold_records(layer, states)
                    self.states[layer] |= {name for name, t in states.items() if self._is_record(t)}

    def _hold_records(self, layer: str, tensors: dict[Any, Any], are_steps: bool = False) -> None:
        """Record the tensors among these that the layer made, as what it gives at their places, or in their steps."""
        for place, tensor in tensors.items():
            if isinstance(tensor, torch.Tensor) and id(tensor) in self.hidden and not self._is_record(tensor):
                op = replace(constant_op(_copy_value(tensor), self._find_site()), name="record", args=(layer, place))
                op.kwargs = {"call": len(self.calls) - 1}
                if are_steps:
                    op.args, op.kwargs = (layer, 0), {**op.kwargs, "step": place}
                self._hold(tensor, Held(self._add(replace(op, depends=True))))

    def _is_record(self, tensor) -> bool:
        return id(tensor) in self.held and self.held[id(tensor)].op.name == "record"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if self.inside:
            result = INSIDE.get(str(func), func)(*args, **kwargs)
            for tensor in pytree.tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    self.hidden[id(tensor)] = self.inside[0]
                    self.alive.append(tensor)
                    self.held.pop(id(tensor), None)  # a state that is written in place has a new value
            return result
        site = self._find_site()
        in_torch = IN_TORCH.get(str(func))
        if in_torch is None and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE):
            in_torch = func.decompose  # torch does so itself, but not inside of a function of IN_TORCH
        if in_torch is not None:
            with self:
                return in_torch(*args, **kwargs)
        given: Any = map_leaves(lambda a: self._find_op(a) if isinstance(a, torch.Tensor) else a, (args, kwargs))
        if func.namespace not in ("aten", "prims") and any(is_op(a) and a.depends for a in list_leaves(given)):
            raise ModelError(f"{site}: operator {func} is not one of torch's own, and cannot be followed")
        if name == "index" and _is_changing_mask(*given[0]):
            result = func(*args, **kwargs)
            self._hold(result, Held(given[0][0]))
            self.picks[id(result)] = Pick(given[0][1][0], site)
            return result
        if _reads_value(func, *given):
            self.reads.append(site)
            if name not in READS_VALUE:
                raise self._refuse_picking(site) if name in ("index", "nonzero") else self.refuse_reading(site)
            result = func(*args, **kwargs)
            return result if self.alter is None else self.alter(result)
        result = func(*args, **kwargs)
        if "empty" in name and isinstance(result, torch.Tensor):
            result.zero_()  # what memory holds by chance may be no number
        try:
            return self._record_call(func, args, kwargs, given, result, site)
        except NwError:
            raise
        except Exception as e:
            text = f"{site}: nwcompile fails on torch's {name} ({type(e).__name__}: {e}); please report it"
            raise CrashError(text) from e

    def _record_call(self, func, args: tuple, kwargs: dict, given: Any, result, site: Site) -> Any:
        """Record an operator; `given` are its arguments with operators instead of tensors."""
        name = func.overloadpacket.__name__
        tensors = [t for t in list_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if any(id(t) in self.picks for t in tensors):
            return self._record_picked(func, tensors, given, result, site)
        if name == "set_":
            return self._record_shared(result)
        if name in TURNS:
            self._turn(args[0], func, args[1:], kwargs, make_op(func, given[0], given[1], _copy_value(result), site))
            return result
        written = [
            i for i, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        ]
        if written:
            if written != [0] or not isinstance(result, torch.Tensor):
                raise ModelError(f"{site}: torch's {name} with out= cannot be followed; assign its result")
            self._write(
                self._hold_tensor(args[0]), self._replace_in_place(name, func, given[0], given[1], result, site)
            )
            return result
        if not any(isinstance(t, torch.Tensor) for t in pytree.tree_leaves(result)):
            return result
        if name in FILLS:
            self._hold(result, Held(self._add(constant_op(_copy_value(result), site))))
            return result
        op = self._add_rewritten(func, given[0], given[1], pytree.tree_map(_copy_value, result), site)
        parts = (
            [(op, result, None)]
            if isinstance(result, torch.Tensor)
            else [(self._add(run_op(None, (op, i), {}, site)), part, i) for i, part in enumerate(result)]
        )
        for part, tensor, entry in parts:
            if isinstance(tensor, torch.Tensor):
                parent = self._hold_tensor(args[0]) if _shares_memory(func, tensor, args) else None
                view = None if parent is None else (func, args[1:], kwargs, entry)
                held = Held(part, parent, view, 0 if parent is None else parent.base.n_writes)
                self._hold(tensor, held)
        return result

    def _turn(self, tensor: torch.Tensor, func, rest: tuple, kwargs: dict, op: Op) -> None:
        """Hold a tensor whose axes change in place as a view of what it was, as other views of it are."""
        before, packet = self._hold_tensor(tensor), getattr(aten, op.name.removesuffix("_"))
        if op.name == "as_strided_" and _list_strides(tensor) == _list_strides(before.op.value):
            return
        plain = getattr(packet, func._overloadname, None) or packet.int
        turned = self._add(make_op(plain, op.args, kwargs, op.value, op.site))
        self._hold(tensor, Held(turned, before, (plain, rest, kwargs, None), before.base.n_writes))

    def _record_picked(self, func, tensors: list[torch.Tensor], given: Any, result, site: Site) -> Any:
        """Record an elementwise operator on v[mask] as one on the whole v, and v[mask] = new as torch.where."""
        name, (args, kwargs) = func.overloadpacket.__name__, given
        picks = [self.picks[id(t)] for t in tensors if id(t) in self.picks]
        mask = picks[0].mask
        is_one_line = all(pick.mask is mask and str(pick.site) == str(site) for pick in picks)
        plain = getattr(getattr(aten, name.removesuffix("_"), None), func._overloadname, func)
        is_put = name in ("index_put", "index_put_") and args[1:] == ([mask], args[2]) and id(tensors[-1]) in self.picks
        is_entrywise = torch.Tag.pointwise in plain.tags and all(
            t.shape in ((), (1,)) or id(t) in self.picks for t in tensors
        )
        is_kept = name == "view" and not args[1]  # torch takes one entry as a number to write it
        is_drawn = torch.Tag.nondeterministic_seeded in func.tags
        if not is_one_line or is_drawn or not (is_put or is_entrywise or is_kept):
            raise self._refuse_picking(site)
        for pick in picks:
            pick.is_used = True
        if is_put:
            plain, args = aten.where.self, (mask, args[2], args[0])
        else:
            self.picks[id(result)] = Pick(mask, site)
        op = args[0] if is_kept else self._add_rewritten(plain, args, kwargs, call_operator(plain, args, kwargs), site)
        if name.endswith("_"):
            self._write(self._hold_tensor(tensors[0]), op)
        else:
            self._hold(result, Held(op))
        return result

    def _record_shared(self, tensor: torch.Tensor) -> torch.Tensor:
        """Hold a tensor that was given the memory of another one, by `.data =` or `copy.copy`, as a view of it."""
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        for other in reversed(self.alive):
            if other is not tensor and place == (other.data_ptr(), other.shape, other.stride()):
                self._find_op(other)
                shared = self._hold_tensor(other)
                self._hold(tensor, Held(shared.op, shared, (aten.alias.default, (), {}, None), shared.base.n_writes))
                return tensor
        raise ModelError(f"{self._find_site()}: assigning .data or set_ cannot be followed; assign a new tensor")

    def _note_read(self, tensor: torch.Tensor) -> torch.Tensor:
        op = self._find_op(tensor) if id(tensor) in self.held else None
        if op is None or not op.depends:
            return tensor
        self.reads.append(self._find_site())
        if self.alter is not None:
            with _disable_current_modes():
                tensor = self.alter(tensor)
                self.shown.append((tensor, tensor.clone()))
            self._hold(tensor, Held(op))
        return tensor

    def refuse_reading(self, site: Site) -> ModelError:
        return ModelError(
            f"{site}: the code reads a value of a tensor (if, while, .item(), float(), .numpy()) that depends on the "
            "input; a chip runs the same operations for every input; "
            + ("choose with torch.where" if self.takes_choices else NO_CHOICES)
        )

    def _refuse_picking(self, site: Site) -> ModelError:
        whole = "write v = torch.where(mask, new, v), with `new` computed of whole tensors, such as v - threshold"
        return ModelError(
            f"{site}: v[mask] and nonzero() pick entries, how many depends on the input, but a chip computes all of "
            f"them; {whole if self.takes_choices else NO_CHOICES}"
        )

    def _find_site(self) -> Site:
        frames = self._find_frames()
        paths = tuple(self.paths.get(module, "") for module in self.running)
        return Site(paths, frames, max(len(frames) - self.n_outside, 0) if len(self.running) > 1 else 0)

    def _find_frames(self) -> tuple[Frame, ...]:
        """Return the frames of the user's code, innermost first."""
        frames = []
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code is not OperatorRecorder.record.__code__:
            if is_user_frame(frame):
                instruction = find_instruction(frame.f_code, frame.f_lasti)
                frames.append(Frame(frame.f_code.co_filename, frame.f_lineno, instruction))
            frame = frame.f_back
        return tuple(frames)

    def _add(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def _add_rewritten(self, func, args: tuple, kwargs: dict, value, site: Site) -> Op:
        """Add an operator, or those that it is made of; torch rounds some of them once instead of twice."""
        op, name = make_op(func, args, kwargs, value, site), func.overloadpacket.__name__
        is_plain = not kwargs and (name == "addmm" or (name in ("add", "sub", "rsub") and len(args) < 3))
        if not op.depends or name not in REWRITES or (is_plain and not (name == "addmm" and args[0].depends)):
            return self._add(op)

        def run(name: str, *args) -> Op:
            if name == "mul" and not is_op(args[1]) and args[1] == 1:
                return args[0]
            packet = getattr(aten, name)
            overload = packet.Tensor if "Tensor" in packet.overloads() else packet.default
            return self._add(run_op(overload, args, {}, site))

        op = REWRITES[name](run, *args, **kwargs)
        op.value = value
        return op

    def _hold(self, tensor: torch.Tensor, held: Held) -> Held:
        if tensor.layout != torch.strided:
            text = "sparse tensors cannot be followed; use dense ones: weights of 0 are no synapses"
            raise ModelError(f"{self._find_site()}: {text}")
        held.address = tensor.data_ptr()
        self.held[id(tensor)] = held
        self.alive.append(tensor)
        return held

    def _hold_tensor(self, tensor: torch.Tensor) -> Held:
        if id(tensor) not in self.held:
            if id(tensor) in self.hidden:
                layer = self.hidden[id(tensor)]
                raise ModelError(
                    f"{self._find_site()}: a value inside layer {layer!r} is read, not its result or state"
                )
            self._hold(tensor, Held(self._add(constant_op(_copy_value(tensor), self._find_site()))))
        return self.held[id(tensor)]

    def _find_op(self, tensor: torch.Tensor) -> Op:
        """Return the operator whose result the tensor holds now."""
        held = self._hold_tensor(tensor)
        if held.address != tensor.data_ptr():
            self._record_shared(tensor)
            held = self.held[id(tensor)]
        self._update_view(held)
        return held.op

    def _update_view(self, held: Held) -> None:
        """Take the view again if its memory was written since."""
        if held.parent is None or held.version == held.base.n_writes:
            return
        self._update_view(held.parent)
        func, args, kwargs, entry = held.taken_by
        op = self._add(run_op(func, (held.parent.op, *args), kwargs, held.op.site))
        held.op = op if entry is None else self._add(run_op(None, (op, entry), {}, op.site))
        held.version = held.base.n_writes

    def _replace_in_place(self, name: str, func, args: tuple, kwargs: dict, result: torch.Tensor, site: Site) -> Op:
        """Return the operator without side effects that gives the result of one that writes in place."""
        value = _copy_value(result)
        if name in ("fill_", "zero_") and not any(is_op(a) and a.depends for a in args[1:]):
            return self._add(constant_op(value, site))
        if name == "copy_":
            source = args[1]
            if source.value.shape != value.shape:
                source = self._add(run_op(aten.expand.default, (source, list(value.shape)), {}, site))
            if source.value.dtype != value.dtype:
                source = self._add(run_op(aten._to_copy.default, (source,), {"dtype": value.dtype}, site))
            return source
        plain = getattr(getattr(aten, name.removesuffix("_"), None), func._overloadname, None)
        if plain is None or plain._schema.is_mutable:
            if torch.Tag.nondeterministic_seeded in func.tags:
                return self._add(make_op(func, args, kwargs, value, site))
            raise ModelError(f"{site}: torch's {name} cannot be followed; use the form that returns a new tensor")
        return self._add_rewritten(plain, args, kwargs, value, site)

    def _write(self, held: Held, op: Op) -> None:
        """Give a tensor a new value, and its base, which contains it."""
        base = held.base
        if held.parent is not None:
            self._update_view(held.parent)
        base.n_writes += 1
        held.op, held.version = op, base.n_writes
        while held.parent is not None:
            held.parent.op = self._scatter(held, held.parent.op, held.op)
            held.parent.version = base.n_writes
            held = held.parent

    def _scatter(self, held: Held, whole: Op, part: Op) -> Op:
        """Return the parent's value with `part` in place of a view."""
        func, args, _, entry = held.taken_by
        name, site = func.overloadpacket.__name__, part.site

        def run(func, *args) -> Op:
            return self._add(run_op(func, args, {}, site))

        if part.value.dtype != whole.value.dtype:
            part = self._add(run_op(aten._to_copy.default, (part,), {"dtype": whole.value.dtype}, site))
        if name in ("select", "unbind"):
            axis, index = args if entry is None else (args[0] if args else 0, entry)
            return run(aten.select_scatter.default, whole, part, axis, index)
        if name in SCATTERS:
            return run(SCATTERS[name], whole, part, *args)
        if name in RESHAPES:
            shape = list(whole.value.shape)
            return part if list(part.value.shape) == shape else run(aten.view.default, part, shape)
        if name in ("transpose", "t"):
            return run(func, part, *args)
        if name == "permute":
            return run(func, part, [[axis % len(args[0]) for axis in args[0]].index(i) for i in range(len(args[0]))])
        raise ModelError(f"{site}: a write in place through torch's {name} cannot be followed; make a new tensor")


def _drop_states(result: Any, depth: int = 0, before: list[Op] | None = None) -> Any:
    """Return a result without states for the next call: collections inside of others that hold only states of layers.

    `before`: operators before it in the result. The first one is what the module computes.
    """
    before = [] if before is None else before
    if not isinstance(result, dict | list | tuple):
        before += [result] if is_op(result) else []
        return result
    leaves = [leaf for leaf in pytree.tree_leaves(result, is_leaf=is_op) if is_op(leaf)]
    if depth and before and leaves and all(op.name == "record" and op.args[1] != 0 for op in leaves):
        return None
    kept = [_drop_states(part, depth + 1, before) for part in (result.values() if isinstance(result, dict) else result)]
    if isinstance(result, dict):
        return dict(zip(result, kept, strict=True))
    return tuple(kept) if isinstance(result, tuple) else kept


def _list_arguments(module: torch.nn.Module, args: tuple, kwargs: dict) -> list:
    """Return the arguments of a call in the order of the module's signature."""
    if not kwargs:
        return [*args]
    try:
        return [*signature(module.forward).bind(*args, **kwargs).arguments.values()]
    except (TypeError, ValueError):  # code without a signature
        return [*args, *kwargs.values()]


def list_states(module: torch.nn.Module) -> dict[str, Any]:
    """Return the attributes in which a layer may keep its state; SpikingJelly keeps them in `_memories`."""
    return {**vars(module), **module._buffers, **vars(module).get("_memories", {})}


def _is_layer(module: torch.nn.Module) -> bool:
    """Return whether a module is a known layer, or has one as its only part, as norse's Lift."""
    parts = [*module.children()]
    return find_kind(module) is not None or (len(parts) == 1 and find_kind(parts[0]) is not None)


def _is_changing_mask(whole: Op, indices: list) -> bool:
    """Return whether indices are a mask of all entries that depends on the example."""
    is_one = len(indices) == 1 and is_op(indices[0]) and indices[0].depends
    return is_one and indices[0].value.dtype == torch.bool and indices[0].value.shape == whole.value.shape


def _reads_value(func, args: tuple, kwargs: dict) -> bool:
    """Return whether an operator gives Python a value, or a shape, that depends on the example."""
    operands = [a for a in list_leaves((args, kwargs)) if is_op(a) and a.depends]
    name = func.overloadpacket.__name__
    if name == "index":
        return any(a.value.dtype == torch.bool for a in operands)
    gives_shape = torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags
    return bool(operands) and (name in READS_VALUE or gives_shape)


def _list_strides(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Return the size and stride of every axis of more than one entry."""
    return [(n, stride) for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


def _deepcopy_tensor(tensor: torch.Tensor, memo: dict) -> torch.Tensor:
    memo[id(tensor)] = copy = tensor.clone()
    return copy


def _copy_value(value):
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _shares_memory(func, result: torch.Tensor, args: tuple) -> bool:
    """Return whether the result is a view of the first argument."""
    if not any(r.alias_info is not None for r in func._schema.returns) or not isinstance(args[0], torch.Tensor):
        return False
    return result.untyped_storage().data_ptr() == args[0].untyped_storage().data_ptr()
