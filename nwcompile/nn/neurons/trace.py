"""Tracing of a step: torch's operations on a neuron's states and input become its program."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nwcompile.errors import ModelError
from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operand, Operation, StateVariable
from nwcompile.ir.neuron_programs.ranges import TRUTHS, find_ranges
from nwcompile.nn.neurons.aten import INSTEAD, MAKERS, MOVES, RULES, WRITE

EXAMPLE = (1,)  # The shape of the traced input: one neuron, as operations are the same for every neuron.
TORCHS_OWN = ("aten", "prims")
SURELY_WHOLE = ("number", "floor", "trunc", "sign", *TRUTHS)
WHOLE_OF_WHOLE = ("add", "sub", "mul", "neg", "abs", "min", "max")
CASTS = ("_to_copy", "to")
SUMS = ("add", "sub", "rsub", "mul", "neg")
WIDE = (torch.int32, torch.int64)  # types in which sums of whole numbers equal those of float
READS_VALUE = ("_local_scalar_dense", "is_nonzero", "equal", "item")
METHODS = ("numpy", "tolist", "__array__")  # They read memory without an operator, so no mode of torch sees them.


class States:
    """The states of a neuron while its step is traced; the first read of a name creates the state."""

    def __init__(self, made: Callable[[str], torch.Tensor]):
        vars(self).update(_read={}, _made=made)

    def __getattr__(self, name: str) -> torch.Tensor:
        read = vars(self)["_read"]
        if name not in read:
            read[name] = vars(self)["_made"](name)
        return read[name]

    def __setattr__(self, name: str, value) -> None:
        raise AttributeError(f"state {name!r} cannot be set: a step returns its next states, in a dict")


class Tracer(TorchDispatchMode):
    """Records the operations on tensors that depend on the states and the input.

    A tensor that depends only on others (parameters, and tensors in the code) becomes a parameter of the program;
    numbers stay numbers. An operation that no program has is refused once a state or the output depends on it.
    With `example`, an input `[1, *layer]` of a whole layer, operations may add and remove axes of one entry.
    """

    def __init__(self, name: str, taken: set[str], is_fixed: bool, example: torch.Tensor | None = None):
        super().__init__()
        self.name, self.taken, self.is_fixed = name, taken, is_fixed
        self.shape = None if example is None else tuple(example.shape)
        plain = torch.int64 if is_fixed else torch.float32
        self.dtype = plain if example is None else example.dtype
        self.refusals: dict[int, ModelError] = {}  # by id of a tensor that depends on a refused operation
        self.operations: dict[tuple, Operation] = {}
        self.made_by: dict[Operand, Operation] = {}
        self.operand_of: dict[int, Operand] = {}  # by id of a tensor that depends on states or input
        self.parameter_of: dict[int, str] = {}  # by id of any other tensor
        self.parameters: dict[str, torch.Tensor] = {}
        self.made: set[int] = set()  # ids of tensors that torch filled with one number
        self.kept: list[torch.Tensor] = []  # references, so that no id is used twice
        self.truths: set[Operand] = set()  # operands that are truth values

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: otherwise torch loads its compiler, which takes seconds, to disable it in this mode."""
        return False

    def bind_tensor(self, tensor: torch.Tensor, operand: Operand) -> torch.Tensor:
        """Bind `tensor` to `operand` from now on."""
        self.operand_of[id(tensor)] = operand
        self.refusals.pop(id(tensor), None)
        self.kept.append(tensor)
        return tensor

    def make_example(self) -> torch.Tensor:
        """Return a tensor in the shape of an input."""
        return torch.ones(EXAMPLE if self.shape is None else self.shape, dtype=self.dtype)

    def refuse_read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor; raise ModelError if it is a state, or depends on states or input."""
        if id(tensor) in self.operand_of or id(tensor) in self.refusals:
            raise self.make_refusal("reading a value (.tolist(), .numpy())", "compute with tensors")
        return tensor

    def make_refusal(self, what: str, instead: str) -> ModelError:
        """Return the error for an operation that no program has."""
        return ModelError(f"neuron {self.name!r}: {what} is no operation of a neuron program; {instead}")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kind = func.overloadpacket.__name__
        tensors = _find_tensors((*args, *kwargs.values()))
        follows = any(id(t) in self.operand_of or id(t) in self.refusals for t in tensors)
        if follows and kind in READS_VALUE:
            raise self.make_refusal("control flow on a value (if, while, .item())", "choose with torch.where")
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise self.make_refusal(f"a random number (torch's {kind})", "draw none: backends must agree")
        if follows and func.namespace not in TORCHS_OWN:
            return self._decompose_operation(func, args, kwargs)
        result = func(*args, **kwargs)
        if follows and kind.removesuffix("_") not in MAKERS:
            try:
                self._apply_rule(kind, args, kwargs, tensors, result)
            except ModelError as e:
                self._record_refusal(result, e)
        elif isinstance(result, torch.Tensor) and (
            kind.removesuffix("_") in (*MAKERS, "lift_fresh") or all(id(t) in self.made for t in tensors)
        ):  # torch.tensor(0.5) is lift_fresh
            self.made.add(id(result))
            self.kept.append(result)
        return result

    def _decompose_operation(self, func, args, kwargs):
        """Run a custom operator's CPU implementation and trace the operations inside."""
        with self:
            return func._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)

    def _record_refusal(self, result, error: ModelError) -> None:
        """Remember why no program can compute the tensors in `result`."""
        results = _find_tensors((result,))
        if not results:
            raise error
        for tensor in results:
            self.operand_of.pop(id(tensor), None)
            self.refusals[id(tensor)] = error
            self.kept.append(tensor)

    def _apply_rule(self, kind: str, args, kwargs, tensors: list[torch.Tensor], result) -> None:
        plain = kind if kind in RULES else kind.removesuffix("_")  # the in-place form is the same operation
        if error := next((self.refusals[id(t)] for t in tensors if id(t) in self.refusals), None):
            raise error
        if kind == "native_batch_norm" and not args[5]:
            self._trace_batch_norm(args, result[0])
            return
        if kind == "unbind" and len(result) == 1:
            result = result[0]
        if not isinstance(result, torch.Tensor):
            raise self.make_refusal(f"torch's {kind}", "use elementwise operations")
        if self.shape is not None and _drop_ones(result) != _drop_ones(torch.empty(self.shape, device="meta")):
            made, given = list(result.shape), list(self.shape)
            raise self.make_refusal(f"torch's {kind}, which makes {made} of {given}", "compute every neuron alone")
        if self.shape is not None and kind in MOVES and len(tensors) == 1:
            self.bind_tensor(result, self.look_up_operand(tensors[0]))
            return
        if plain not in RULES:
            raise self.make_refusal(f"torch's {kind}", INSTEAD.get(kind, WRITE))
        given = [self.look_up_operand(a) for a in args]
        named = {k: self.look_up_operand(v) for k, v in kwargs.items() if plain not in CASTS}
        is_number = result.dtype.is_floating_point or (result.dtype in WIDE and plain in (*SUMS, *CASTS))
        is_exact = is_number and all(map(self._is_whole, [*given, *named.values()]))
        is_count = plain in CASTS and given[0] in self.truths  # 0 or 1, which every type holds
        if result.dtype not in (self.dtype, torch.bool) and not is_exact and not is_count:
            numbers = "whole numbers" if self.is_fixed else f"{str(self.dtype).removeprefix('torch.')} numbers"
            raise self.make_refusal(f"torch's {kind}, which makes {result.dtype} of {numbers}", "keep to one type")
        operand = RULES[plain](self, *given, **named)
        if plain in CASTS and operand in self.truths and result.dtype != torch.bool:
            operand = self.emit_number("number", operand)
        elif result.dtype == torch.bool and operand not in self.truths:
            operand = self.emit_comparison("ne", operand, 0)
        if any(result is a for a in args):
            self._rebind_aliases(result, operand)
        self.bind_tensor(result, operand)

    def _is_whole(self, value) -> bool:
        """Return whether a value is certainly a whole number, which every float type holds."""
        if isinstance(value, str) and value in self.parameters:
            parameter = self.parameters[value]
            return not parameter.is_floating_point() or bool((parameter == parameter.trunc()).all())
        if isinstance(value, str):
            operation = self.made_by.get(value)
            if operation is None or operation.kind not in SURELY_WHOLE and operation.kind not in WHOLE_OF_WHOLE:
                return False
            return operation.kind in SURELY_WHOLE or all(map(self._is_whole, operation.operands))
        return not isinstance(value, float) or value == int(value)

    def _trace_batch_norm(self, args, result: torch.Tensor) -> None:
        """Emit batch norm in eval mode: scale * x + shift per channel."""
        x, weight, bias, mean, variance, _, _, epsilon = args
        scale = 1 / torch.sqrt(variance + epsilon) * (1 if weight is None else weight)
        shift = (0 if bias is None else bias) - mean * scale
        axes = (1, -1, *(1 for _ in x.shape[2:]))
        scaled = self.emit_number("mul", self.look_up_operand(x), self.look_up_operand(scale.view(axes)))
        self.bind_tensor(result, self.emit_number("add", scaled, self.look_up_operand(shift.view(axes))))

    def _rebind_aliases(self, tensor: torch.Tensor, operand: Operand) -> None:
        """Bind every tensor that shares memory with `tensor`, which was changed in place, to `operand`."""
        place = tensor.untyped_storage().data_ptr()
        for other in list(self.kept):
            if id(other) in self.operand_of and other.untyped_storage().data_ptr() == place:
                self.operand_of[id(other)] = operand

    def look_up_operand(self, value) -> Any:
        """Return the name or the number that stands for a tensor; return anything else unchanged."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in self.refusals:
            raise self.refusals[id(value)]
        if id(value) in self.operand_of:
            return self.operand_of[id(value)]
        if id(value) in self.made and bool((value == value.reshape(-1)[0]).all()):
            return value.reshape(-1)[0].item()
        if id(value) not in self.parameter_of:
            self.parameter_of[id(value)] = self._take_name("c")
            self.kept.append(value)
        name = self.parameter_of[id(value)]
        self.parameters.setdefault(name, value)
        return name

    def plain_number(self, value) -> Operand:
        """Return a step's result as an operand; truth values become 0 or 1."""
        operand = self.look_up_operand(value)
        return self.emit_number("number", operand) if operand in self.truths else self._to_literal(operand)

    def emit_number(self, kind: str, *operands) -> Operand:
        """Emit an operation on numbers; truth values among its operands become 0 and 1."""
        takes_truth = kind in ("select", "number")  # as its first operand
        numbers = [
            self.emit_number("number", operand) if operand in self.truths and (i or not takes_truth) else operand
            for i, operand in enumerate(operands)
        ]
        return self._emit_operation(kind, numbers)

    def emit_comparison(self, kind: str, *operands) -> Operand:
        """Emit a comparison of numbers."""
        result = self.emit_number(kind, *operands)
        self.truths.add(result)
        return result

    def emit_logical(self, kind: str, *operands) -> Operand:
        """Emit an operation on truth values; a number is true if it is not 0."""
        truths = [o if o in self.truths else self.emit_comparison("ne", o, 0) for o in operands]
        result = self._emit_operation(kind, truths)
        self.truths.add(result)
        return result

    def _emit_operation(self, kind: str, given: list) -> str:
        operands = tuple(self._to_literal(o) for o in given)
        key = (kind, *((type(o), o) for o in operands))
        if key not in self.operations:
            self.operations[key] = Operation(self._take_name("t"), kind, operands)
            self.made_by[self.operations[key].result] = self.operations[key]
        return self.operations[key].result

    def _to_literal(self, operand: Operand) -> Operand:
        if isinstance(operand, str):
            return operand
        return int(operand) if self.is_fixed and operand == int(operand) else operand

    def _take_name(self, letter: str) -> str:
        n = 1
        while f"{letter}{n}" in self.taken:
            n += 1
        self.taken.add(f"{letter}{n}")
        return f"{letter}{n}"


def trace(
    step: Callable,
    name: str,
    parameters: dict[str, torch.Tensor],
    bits: int | dict[str, int] | None = None,
    overflow: str | dict[str, str] = "saturate",
    sends: str | None = None,
    initial: dict[str, Any] | None = None,
    example: torch.Tensor | Sequence[torch.Tensor] | None = None,
) -> NeuronProgram:
    """Trace `step(state, x, **parameters) -> (next states by name, output)` into a program.

    With `bits` (of all states, or by name) it computes in whole numbers, else in float. `sends`: the kind of message,
    one of `SENDS` of `ir.neuron_programs.program`; by default the smallest one that the ranges of the operations allow.
    The output is None for a readout; its first state is then read. `example`: an input `[1, *layer]` of a whole layer,
    for steps that depend on its shape and type; or a list with one for each input, for a step with several. They are
    `x`, `x2`, `x3`, ... of the program. Raises ModelError, naming the operation that no program has.
    """
    examples = example if isinstance(example, Sequence) else [example]
    inputs = (INPUT, *(f"{INPUT}{k}" for k in range(2, len(examples) + 1)))
    tracer = Tracer(name, {*inputs, *parameters}, bits is not None, examples[0])
    tracer.parameter_of |= {id(value): key for key, value in parameters.items()}

    def make_state(state: str) -> torch.Tensor:
        if state in tracer.taken:
            raise ModelError(f"neuron {name!r}: {state!r} is the name of a state and of another value")
        tracer.taken.add(state)
        return tracer.bind_tensor(torch.zeros_like(tracer.make_example()), state)

    states = States(make_state)
    with torch.no_grad(), watch_reads(tracer.refuse_read), tracer:
        sums = [tracer.bind_tensor(tracer.make_example(), key) for key in inputs]
        given = step(states, *sums, **parameters)
        becomes, output = _unpack_result(name, states, given)
        operands = {key: tracer.plain_number(value) for key, value in becomes.items()}
        sent = next(iter(operands)) if output is None else tracer.plain_number(output)
    program = NeuronProgram(
        name=name,
        states=tuple(
            StateVariable(
                name=key,
                next=operand,
                initial=(initial or {}).get(key, 0),
                bits=bits.get(key) if isinstance(bits, dict) else bits,
                overflow=overflow.get(key, "saturate") if isinstance(overflow, dict) else overflow,
            )
            for key, operand in operands.items()
        ),
        operations=_select_needed(tracer.operations.values(), {sent, *operands.values()}),
        output=sent,
        sends="none" if output is None else sends or "graded",
        is_fixed=tracer.is_fixed,
        parameters={key: value.detach().cpu().numpy() for key, value in tracer.parameters.items()},
        inputs=inputs,
    )
    return program.replace(sends=infer_message(program)) if sends is None and program.fires else program


def infer_message(program: NeuronProgram) -> str:
    """Return the smallest kind of `neuron_programs.program.SENDS` that the ranges of the operations allow."""
    if not isinstance(program.output, str):
        return program.sends
    return find_ranges(program, lambda text: ModelError(f"neuron {program.name!r}: {text}"))[program.output].message


def _find_tensors(values: tuple) -> list[torch.Tensor]:
    """Return the tensors among values and in lists of values."""
    flat = [v for value in values for v in (value if isinstance(value, list | tuple) else (value,))]
    return [v for v in flat if isinstance(v, torch.Tensor)]


def _drop_ones(tensor: torch.Tensor) -> list[int]:
    """Return the shape without axes of one entry."""
    return [n for n in tensor.shape if n != 1]


def _unpack_result(name: str, states: States, given) -> tuple[dict, Any]:
    """Verify a step's result; return the next states by name, and the output."""
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], dict):
        raise ModelError(
            f"neuron {name!r}: a step returns its next states, in a dict by name, and its output (None for a "
            "readout): return {'v': v}, spike"
        )
    becomes, output = given
    if lost := [key for key in vars(states)["_read"] if key not in becomes]:
        raise ModelError(f"neuron {name!r}: state {lost[0]!r} is read, but the step does not return its next value")
    if output is None and not becomes:
        raise ModelError(f"neuron {name!r}: it keeps no state and sends nothing")
    return becomes, output


def _select_needed(operations, used: set) -> tuple[Operation, ...]:
    """Return the operations on which the `used` values depend."""
    kept = []
    for operation in reversed(list(operations)):
        if operation.result in used:
            kept.append(operation)
            used |= set(operation.operands)
    return tuple(reversed(kept))


@contextmanager
def watch_reads(on_read: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Run METHODS on `on_read(tensor)` instead of the tensor; an exception of it stops the method."""
    originals = [(name, getattr(torch.Tensor, name)) for name in METHODS]

    def watch(original):
        def read(tensor: torch.Tensor, *args, **kwargs):
            return original(on_read(tensor), *args, **kwargs)

        return read

    for name, original in originals:
        setattr(torch.Tensor, name, watch(original))
    try:
        yield
    finally:
        for name, original in originals:
            setattr(torch.Tensor, name, original)
