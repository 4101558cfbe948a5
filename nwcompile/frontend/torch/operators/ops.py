"""An operator that a module runs, with its arguments, value and place in the code."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from dis import opmap
from functools import cache
from itertools import count
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from nwcompile.errors import ModelError
from nwcompile.nn.neurons import trace

aten = torch.ops.aten
CHOICES = ("where", "masked_fill")
NEVER = -1  # step of an operator that depends on no step
TORCH = str(Path(torch.__file__).parent)
PRECALL = opmap.get("PRECALL", -1)  # an instruction of Python 3.11
PRECALL_BYTES = 4  # with its cache
PACKAGE = f"{Path(__file__).parents[3]}/"  # whose files are no place in the user's code
HERE = (
    str(Path(__file__).parent),
    trace.__file__,
    str(Path(__file__).parents[1] / "onnx.py"),
)  # whose frames are not the user's


class CrashError(ModelError):
    """An exception in nwcompile's own code."""


class Frame(NamedTuple):
    """One Python frame: file, line, and offset of the bytecode instruction."""

    file: str
    line: int
    instruction: int


class Site(NamedTuple):
    """The place of an operator: the paths of the running modules, outermost first, and the frames, innermost first.

    `n_inside`: the number of frames inside a part of the module; the others are of the module itself.
    """

    modules: tuple[str, ...]
    frames: tuple[Frame, ...]
    n_inside: int = 0

    def __str__(self) -> str:
        """Return the innermost line of the user's code, as `net.py:35`, or else the path of the module."""
        frame = next((frame for frame in self.frames if not frame.file.startswith(PACKAGE)), None)
        if frame is not None:
            return f"{Path(frame.file).name}:{frame.line}"
        return repr(self.path) if self.path else "the module"

    @property
    def path(self) -> str:
        """Path of the innermost module."""
        return self.modules[-1] if self.modules else ""


@dataclass(eq=False, repr=False)
class Op:
    """One run of an ATen operator; operators among its arguments stand for their results.

    `name`: the operator without overload and namespace, or "input", "constant", "getitem" (an entry of a tuple),
    "record": what a layer that is not looked into gives, with the layer and the place in its result as arguments, or
    "fed": what such a layer is given. `step`: the last step of the example on which the result depends.
    `depends`: whether it depends on the example.
    """

    name: str
    func: Any
    args: tuple
    kwargs: dict
    value: Any
    site: Site
    depends: bool
    step: int = NEVER
    serial: int = field(default_factory=count().__next__)  # order of creation

    @property
    def operands(self) -> list["Op"]:
        """Operators among the arguments, in order."""
        return [leaf for leaf in list_leaves((self.args, self.kwargs)) if is_op(leaf)]

    @property
    def title(self) -> str:
        """The operator as refusals name it: "torch's add", "layer 'lif'" for its record, or "the input"."""
        if self.name in ("getitem", "fed"):
            return self.operands[0].title
        if self.name == "record":
            return f"layer {self.args[0]!r}"
        return "the input" if self.name == "input" else f"torch's {self.name.removeprefix('native_').strip('_')}"

    @property
    def is_spike(self) -> bool:
        """Whether the result is a truth value as a number."""
        return self.name == "_to_copy" and self.operands[0].value.dtype == torch.bool


def is_op(value) -> bool:
    """Return whether a value is an operator."""
    return isinstance(value, Op)


def map_leaves(change: Callable[[Any], Any], arguments: Any) -> Any:
    """Return an operator's arguments, tuples, lists and dicts, with each leaf changed; torch's own map is slower."""
    if type(arguments) in (tuple, list):
        return type(arguments)([map_leaves(change, a) for a in arguments])
    if type(arguments) is dict:
        return {name: map_leaves(change, a) for name, a in arguments.items()}
    return change(arguments)


def list_leaves(arguments: Any) -> list:
    """Return the leaves of an operator's arguments, in order."""
    leaves: list = []
    map_leaves(leaves.append, arguments)
    return leaves


def make_op(func, args: tuple, kwargs: dict, value, site: Site) -> Op:
    """Return an operator that depends on what its operands depend on."""
    name = "getitem" if func is None else func.overloadpacket.__name__
    op = Op(name=name, func=func, args=args, kwargs=kwargs, value=value, site=site, depends=False)
    operands = op.operands
    return replace(op, depends=any(o.depends for o in operands), step=max((o.step for o in operands), default=NEVER))


def run_op(func, args: tuple, kwargs: dict, site: Site) -> Op:
    """Run an operator on the values of its operands; `func` None takes an entry of a tuple."""
    return make_op(func, args, kwargs, call_operator(func, args, kwargs), site)


def call_operator(func, args, kwargs: dict, find_value: Callable[[Op], Any] = lambda op: op.value) -> Any:
    """Return an operator's result on the values of its operands, without gradients."""
    plain, named = map_leaves(lambda a: find_value(a) if is_op(a) else a, (args, kwargs))
    with torch.no_grad():
        return plain[0][plain[1]] if func is None else func(*plain, **named)


def constant_op(value: torch.Tensor, site: Site) -> Op:
    """Return an operator that stands for a tensor that does not depend on the example."""
    return Op(name="constant", func=None, args=(), kwargs={}, value=value, site=site, depends=False)


def expand_fixed_choices(ops: list[Op]) -> list[Op]:
    """Return operators in which each choice by a mask that no input changes is a sum of products with 0 and 1.

    The first mask of a state may be fixed although its later ones, of the same line of code, are not.
    """

    def find_line(op: Op) -> tuple:
        return op.site.modules, op.site.frames[:1]  # the first step may be called from another place

    masks = {op: op.args[op.name == "masked_fill"] for op in ops if op.name in CHOICES and len(op.args) == 3}
    changing = {find_line(op) for op, mask in masks.items() if mask.depends}
    expanded: list[Op] = []
    for op in ops:
        if op in masks and op.depends and find_line(op) not in changing and op.value.is_floating_point():
            expanded += _multiply_choice(op, masks[op].value)
        expanded.append(op)
    return expanded


def _multiply_choice(choice: Op, mask: torch.Tensor) -> list[Op]:
    """Make a choice a sum of products; return their operators. A choice of a number that is not finite stays."""
    x, other = (choice.args[0], choice.args[2]) if choice.name == "masked_fill" else (choice.args[2], choice.args[1])
    made: list[Op] = []
    terms: list[Op] = []

    def hold(value: Any) -> Op:
        if not is_op(value):
            made.append(constant_op(torch.as_tensor(value).to(choice.value.dtype), choice.site))
        return value if is_op(value) else made[-1]

    for factors in ((x, ~mask), (other, mask)):
        pair = tuple(map(hold, factors))
        if not all(factor.depends or factor.value.isfinite().all() for factor in pair):
            return []
        terms.append(run_op(aten.mul.Tensor, pair, {}, choice.site))
        terms[-1].serial = choice.serial  # it runs where the choice did
        made.append(terms[-1])
    total = make_op(aten.add.Tensor, tuple(terms), {}, choice.value, choice.site)
    choice.name, choice.func, choice.args, choice.kwargs = total.name, total.func, total.args, {}
    return made


def find_raising_site(error: Exception, module: torch.nn.Module) -> Site:
    """Return the innermost line of the user's code that raised an exception, and the part of the module."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    users = [frame for frame in frames if is_user_frame(frame)]
    paths = {id(part): path for path, part in module.named_modules()}
    modules = tuple(paths[key] for frame in frames if (key := id(frame.f_locals.get("self"))) in paths)
    return Site(modules, tuple(Frame(f.f_code.co_filename, f.f_lineno, f.f_lasti) for f in users[-1:]))


@cache
def find_instruction(code: CodeType, offset: int) -> int:
    """Return the offset of the instruction at which a frame stands.

    Python 3.11 has two instructions for a call, and stands at the second one until it has optimized the first one.
    """
    first = offset - PRECALL_BYTES
    return first if first >= 0 and code.co_code[first] == PRECALL else offset


def is_user_frame(frame: FrameType) -> bool:
    """Return whether a frame is of code that is neither torch's nor the importer's."""
    return not frame.f_code.co_filename.startswith((TORCH, *HERE))
