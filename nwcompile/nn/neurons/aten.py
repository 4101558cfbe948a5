"""What torch's elementwise operations are in a neuron program: each as operations of its closed set, in torch's order.

A rule takes the tracer, and the operands and keyword arguments that torch got; it gives the operand that holds the
result.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nwcompile.ir.neuron_programs.program import Operand

if TYPE_CHECKING:
    from nwcompile.nn.neurons.trace import Tracer

MAKERS = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")  # of the same number everywhere
MOVES = ("select", "slice", "view", "_unsafe_view", "unsqueeze", "squeeze", "stack", "cat", "expand", "unbind")


def _binary(kind: str) -> Callable:
    return lambda do, a, b: do.number(kind, a, b)


def _sum(kind: str) -> Callable:
    def rule(do: "Tracer", a: Operand, b: Operand, alpha: float = 1) -> Operand:
        if alpha != 1:
            raise do.refused(f"alpha={alpha}", "multiply by it before")
        return do.number(kind, a, b)

    return rule


def _unary(kind: str) -> Callable:
    return lambda do, a: do.number(kind, a)


def _compared(kind: str, swapped: bool = False) -> Callable:
    return lambda do, a, b: do.truth(kind, b, a) if swapped else do.truth(kind, a, b)


def _quotient(do: "Tracer", a: Operand, divisor: Operand, rounding_mode: str | None = None) -> Operand:
    if not do.is_fixed:
        if rounding_mode == "floor":
            raise do.refused("rounding_mode='floor' of float numbers", "divide, then torch.floor")
        quotient = do.number("div", a, divisor)
        return quotient if rounding_mode is None else do.number("trunc", quotient)
    if rounding_mode is None:
        raise do.refused("a quotient of whole numbers", "divide with rounding_mode='trunc' or 'floor'")
    if not isinstance(divisor, int) or divisor < 1 or divisor & (divisor - 1):
        raise do.refused(f"a division of whole numbers by {divisor}", "divide by a power of two, 2**k")
    return do.number("shr0" if rounding_mode == "trunc" else "shr", a, divisor.bit_length() - 1)


def _floor_quotient(do: "Tracer", a: Operand, b: Operand) -> Operand:
    return _quotient(do, a, b, "floor")


def _clamp(do: "Tracer", a: Operand, low: Operand | None = None, high: Operand | None = None, **ends) -> Operand:
    low, high = ends.get("min", low), ends.get("max", high)
    a = a if low is None else do.number("max", a, low)
    return a if high is None else do.number("min", a, high)


def _power(do: "Tracer", a: Operand, exponent: Operand) -> Operand:
    if exponent == 2:
        return do.number("mul", a, a)
    if exponent == 0.5 and not do.is_fixed:
        return do.number("sqrt", a)
    raise do.refused(f"a power of {exponent}", "write it as products")


def _sigmoid(do: "Tracer", a: Operand) -> Operand:
    return do.number("div", 1.0, do.number("add", 1.0, do.number("exp", do.number("neg", a))))


def _step_at_zero(do: "Tracer", a: Operand, at_zero: Operand) -> Operand:
    if at_zero in (0, 1):
        return do.number("number", do.truth("le" if at_zero else "lt", 0, a))
    is_above = do.number("number", do.truth("lt", 0, a))
    return do.number("select", do.truth("eq", a, 0), at_zero, is_above)


def _rounded(do: "Tracer", a: Operand) -> Operand:
    """The nearest whole number, of two the even one."""
    below = do.number("floor", a)
    rest = do.number("sub", a, below)
    half = do.number("floor", do.number("mul", below, 0.5))
    is_odd = do.truth("ne", below, do.number("mul", half, 2.0))
    is_tie = do.logical("and", do.truth("eq", rest, 0.5), is_odd)
    return do.number("add", below, do.logical("or", do.truth("lt", 0.5, rest), is_tie))


def _chosen(do: "Tracer", is_yes: Operand, yes: Operand, no: Operand) -> Operand:
    return do.number("select", is_yes, yes, no)


def _masked(do: "Tracer", a: Operand, is_masked: Operand, value: Operand) -> Operand:
    return do.number("select", is_masked, value, a)


def _logical(kind: str) -> Callable:
    return lambda do, *given: do.logical(kind, *given)


def _bitwise(kind: str) -> Callable:
    def rule(do: "Tracer", *given: Operand) -> Operand:
        if any(isinstance(operand, str) and operand not in do.truths for operand in given):
            raise do.refused("a bitwise operation on numbers", "compare, and join truth values")
        return do.logical(kind, *given)

    return rule


def _same(do: "Tracer", a: Operand, *_, **__) -> Operand:
    return a


RULES: dict[str, Callable[..., Operand]] = {
    "add": _sum("add"),
    "sub": _sum("sub"),
    "rsub": lambda do, a, b, alpha=1: _sum("sub")(do, b, a, alpha),
    "mul": _binary("mul"),
    "div": _quotient,
    "floor_divide": _floor_quotient,
    "reciprocal": lambda do, a: _quotient(do, 1.0, a),
    "square": lambda do, a: do.number("mul", a, a),
    "pow": _power,
    "neg": _unary("neg"),
    "abs": _unary("abs"),
    "sign": _unary("sign"),
    "sgn": _unary("sign"),
    "floor": _unary("floor"),
    "trunc": _unary("trunc"),
    "round": _rounded,
    "exp": _unary("exp"),
    "tanh": _unary("tanh"),
    "sqrt": _unary("sqrt"),
    "sigmoid": _sigmoid,
    "minimum": _binary("min"),
    "maximum": _binary("max"),
    "clamp": _clamp,
    "clamp_min": lambda do, a, low: do.number("max", a, low),
    "clamp_max": lambda do, a, high: do.number("min", a, high),
    "hardtanh": _clamp,
    "relu": lambda do, a: do.number("max", a, 0),
    "heaviside": _step_at_zero,
    "__lshift__": _binary("shl"),
    "__rshift__": _binary("shr"),
    "bitwise_left_shift": _binary("shl"),
    "bitwise_right_shift": _binary("shr"),
    "lt": _compared("lt"),
    "le": _compared("le"),
    "gt": _compared("lt", swapped=True),
    "ge": _compared("le", swapped=True),
    "eq": _compared("eq"),
    "ne": _compared("ne"),
    "where": _chosen,
    "masked_fill": _masked,
    "logical_and": _logical("and"),
    "logical_or": _logical("or"),
    "logical_not": _logical("not"),
    "bitwise_and": _bitwise("and"),
    "bitwise_or": _bitwise("or"),
    "bitwise_not": _bitwise("not"),
    "__and__": _bitwise("and"),
    "__or__": _bitwise("or"),
    "clone": _same,
    "detach": _same,
    "alias": _same,
    "positive": _same,
    "lift_fresh": _same,
    "_to_copy": _same,
    "to": _same,
}
