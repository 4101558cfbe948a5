"""Rules that translate torch's elementwise operations into the closed set of a neuron program, in torch's order.

A rule takes the tracer and the operands and keyword arguments of the torch call. It returns the operand of the result.
"""

from collections.abc import Callable
from math import frexp
from typing import TYPE_CHECKING

from nwcompile.ir.neuron_programs.program import Operand

if TYPE_CHECKING:
    from nwcompile.nn.neurons.trace import Tracer

MAKERS = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")  # Fill with a single number.
MOVES = ("select", "slice", "view", "_unsafe_view", "unsqueeze", "squeeze", "stack", "cat", "expand", "unbind")


def _binary_rule(kind: str) -> Callable:
    return lambda do, a, b: do.emit_number(kind, a, b)


def _sum_rule(kind: str) -> Callable:
    def rule(do: "Tracer", a: Operand, b: Operand, alpha: float = 1) -> Operand:
        if alpha != 1:
            raise do.make_refusal(f"alpha={alpha}", "multiply by it before")
        return do.emit_number(kind, a, b)

    return rule


def _unary_rule(kind: str) -> Callable:
    return lambda do, a: do.emit_number(kind, a)


def _comparison_rule(kind: str, swapped: bool = False) -> Callable:
    return lambda do, a, b: do.emit_comparison(kind, b, a) if swapped else do.emit_comparison(kind, a, b)


def _divide_numbers(do: "Tracer", a: Operand, divisor: Operand, rounding_mode: str | None = None) -> Operand:
    if not do.is_fixed:
        if rounding_mode == "floor":
            raise do.make_refusal("rounding_mode='floor' of float numbers", "divide, then torch.floor")
        quotient = do.emit_number("div", a, divisor)
        return quotient if rounding_mode is None else do.emit_number("trunc", quotient)
    if rounding_mode is None:
        raise do.make_refusal("a quotient of whole numbers", "divide with rounding_mode='trunc' or 'floor'")
    if not isinstance(divisor, int) or divisor < 1 or divisor & (divisor - 1):
        raise do.make_refusal(f"a division of whole numbers by {divisor}", "divide by a power of two, 2**k")
    return do.emit_number("shr0" if rounding_mode == "trunc" else "shr", a, divisor.bit_length() - 1)


def _clamp(do: "Tracer", a: Operand, low: Operand | None = None, high: Operand | None = None, **ends) -> Operand:
    low, high = ends.get("min", low), ends.get("max", high)
    a = a if low is None else do.emit_number("max", a, low)
    return a if high is None else do.emit_number("min", a, high)


def _clamp_between(do: "Tracer", a: Operand, low: Operand = -1, high: Operand = 1) -> Operand:
    return _clamp(do, a, low, high)


def _hard_sigmoid(do: "Tracer", a: Operand) -> Operand:
    return do.emit_number("div", _clamp(do, do.emit_number("add", a, 3), 0, 6), 6)


def _hard_swish(do: "Tracer", a: Operand) -> Operand:
    return do.emit_number("div", do.emit_number("mul", a, _clamp(do, do.emit_number("add", a, 3), 0, 6)), 6)


def _scale_below_zero(do: "Tracer", a: Operand, slope: Operand = 0.01) -> Operand:
    return do.emit_number("select", do.emit_comparison("lt", 0, a), a, do.emit_number("mul", a, slope))


def _remainder_rule(rounding: str) -> Callable:
    """Return the rule of a remainder by a power of two: of others, torch's float32 numbers are no such operations."""

    def rule(do: "Tracer", a: Operand, divisor: Operand) -> Operand:
        if do.is_fixed or isinstance(divisor, str) or divisor <= 0 or frexp(divisor)[0] != 0.5:
            raise do.make_refusal(f"a remainder by {divisor}", "divide float numbers by a power of two")
        whole = do.emit_number(rounding, do.emit_number("div", a, divisor))
        return do.emit_number("sub", a, do.emit_number("mul", whole, divisor))

    return rule


def _raise_to_power(do: "Tracer", a: Operand, exponent: Operand) -> Operand:
    if exponent in (2, 3):
        square = do.emit_number("mul", a, a)
        return square if exponent == 2 else do.emit_number("mul", square, a)
    if exponent == 0.5 and not do.is_fixed:
        return do.emit_number("sqrt", a)
    raise do.make_refusal(f"a power of {exponent}", "write it as products")


def _sigmoid(do: "Tracer", a: Operand) -> Operand:
    return do.emit_number("div", 1.0, do.emit_number("add", 1.0, do.emit_number("exp", do.emit_number("neg", a))))


def _step_at_zero(do: "Tracer", a: Operand, at_zero: Operand) -> Operand:
    if at_zero in (0, 1):
        return do.emit_number("number", do.emit_comparison("le" if at_zero else "lt", 0, a))
    is_above = do.emit_number("number", do.emit_comparison("lt", 0, a))
    return do.emit_number("select", do.emit_comparison("eq", a, 0), at_zero, is_above)


def _round_to_even(do: "Tracer", a: Operand) -> Operand:
    """Round to the nearest whole number, ties to even."""
    below = do.emit_number("floor", a)
    rest = do.emit_number("sub", a, below)
    half = do.emit_number("floor", do.emit_number("mul", below, 0.5))
    is_odd = do.emit_comparison("ne", below, do.emit_number("mul", half, 2.0))
    is_tie = do.emit_logical("and", do.emit_comparison("eq", rest, 0.5), is_odd)
    return do.emit_number("add", below, do.emit_logical("or", do.emit_comparison("lt", 0.5, rest), is_tie))


def _replace_below(do: "Tracer", a: Operand, threshold: Operand, value: Operand) -> Operand:
    return do.emit_number("select", do.emit_comparison("lt", threshold, a), a, value)


def _logical_rule(kind: str) -> Callable:
    return lambda do, *given: do.emit_logical(kind, *given)


def _bitwise_rule(kind: str) -> Callable:
    def rule(do: "Tracer", *given: Operand) -> Operand:
        if any(isinstance(operand, str) and operand not in do.truths for operand in given):
            raise do.make_refusal("a bitwise operation on numbers", "compare, and join truth values")
        return do.emit_logical(kind, *given)

    return rule


def _pass_through(do: "Tracer", a: Operand, *_, **__) -> Operand:
    return a


RULES: dict[str, Callable[..., Operand]] = {
    "add": _sum_rule("add"),
    "sub": _sum_rule("sub"),
    "rsub": lambda do, a, b, alpha=1: _sum_rule("sub")(do, b, a, alpha),
    "mul": _binary_rule("mul"),
    "div": _divide_numbers,
    "floor_divide": lambda do, a, b: _divide_numbers(do, a, b, "floor"),
    "fmod": _remainder_rule("trunc"),
    "remainder": _remainder_rule("floor"),
    "reciprocal": lambda do, a: _divide_numbers(do, 1.0, a),
    "square": lambda do, a: do.emit_number("mul", a, a),
    "pow": _raise_to_power,
    "neg": _unary_rule("neg"),
    "abs": _unary_rule("abs"),
    "sign": _unary_rule("sign"),
    "sgn": _unary_rule("sign"),
    "floor": _unary_rule("floor"),
    "ceil": lambda do, a: do.emit_number("neg", do.emit_number("floor", do.emit_number("neg", a))),
    "trunc": _unary_rule("trunc"),
    "round": _round_to_even,
    "exp": _unary_rule("exp"),
    "tanh": _unary_rule("tanh"),
    "sqrt": _unary_rule("sqrt"),
    "sigmoid": _sigmoid,
    "minimum": _binary_rule("min"),
    "maximum": _binary_rule("max"),
    "clamp": _clamp,
    "clamp_min": lambda do, a, low: do.emit_number("max", a, low),
    "clamp_max": lambda do, a, high: do.emit_number("min", a, high),
    "hardtanh": _clamp_between,
    "hardsigmoid": _hard_sigmoid,
    "hardswish": _hard_swish,
    "leaky_relu": _scale_below_zero,
    "_prelu_kernel": _scale_below_zero,
    "relu": lambda do, a: do.emit_number("max", a, 0),
    "heaviside": _step_at_zero,
    "__lshift__": _binary_rule("shl"),
    "__rshift__": _binary_rule("shr"),
    "bitwise_left_shift": _binary_rule("shl"),
    "bitwise_right_shift": _binary_rule("shr"),
    "lt": _comparison_rule("lt"),
    "le": _comparison_rule("le"),
    "gt": _comparison_rule("lt", swapped=True),
    "ge": _comparison_rule("le", swapped=True),
    "eq": _comparison_rule("eq"),
    "ne": _comparison_rule("ne"),
    "threshold": _replace_below,
    "where": lambda do, condition, yes, no: do.emit_number("select", condition, yes, no),
    "masked_fill": lambda do, a, mask, value: do.emit_number("select", mask, value, a),
    "logical_and": _logical_rule("and"),
    "logical_or": _logical_rule("or"),
    "logical_not": _logical_rule("not"),
    "bitwise_and": _bitwise_rule("and"),
    "bitwise_or": _bitwise_rule("or"),
    "bitwise_not": _bitwise_rule("not"),
    "__and__": _bitwise_rule("and"),
    "__or__": _bitwise_rule("or"),
    "clone": _pass_through,
    "detach": _pass_through,
    "alias": _pass_through,
    "positive": _pass_through,
    "lift_fresh": _pass_through,
    "_to_copy": _pass_through,
    "to": _pass_through,
}
INSTEAD = {  # of operators that torch rounds in other places than the operations of a program
    "lerp": "write a + weight * (b - a)",
    "addcmul": "write a + value * b * c",
    "addcdiv": "write a + value * b / c",
    "rsqrt": "write 1 / torch.sqrt(x)",
    "silu": "write x * torch.sigmoid(x)",
    "elu": "write torch.where(x > 0, x, alpha * (torch.exp(x) - 1))",
    "logical_xor": "write a != b",
}
WRITE = "write it with + - * /, comparisons, torch.where, minimum, maximum, clamp, floor, round, exp, tanh and sqrt"
