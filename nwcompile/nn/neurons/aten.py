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
SAME = ("clone", "detach", "alias", "positive", "lift_fresh", "_to_copy", "to")  # They leave the numbers unchanged.
MOVES = ("select", "slice", "view", "_unsafe_view", "unsqueeze", "squeeze", "stack", "cat", "expand", "unbind")


def _number_rule(kind: str) -> Callable:
    return lambda do, *given: do.emit_number(kind, *given)


def _sum_rule(kind: str) -> Callable:
    def rule(do: "Tracer", a: Operand, b: Operand, alpha: float = 1) -> Operand:
        if alpha != 1:
            raise do.make_refusal(f"alpha={alpha}", "multiply by it before")
        return do.emit_number(kind, a, b)

    return rule


def _comparison_rule(kind: str, swapped: bool = False) -> Callable:
    return lambda do, a, b: do.emit_comparison(kind, b, a) if swapped else do.emit_comparison(kind, a, b)


def _divide_numbers(do: "Tracer", a: Operand, divisor: Operand, rounding_mode: str | None = None) -> Operand:
    if not do.is_fixed:
        if rounding_mode == "floor" and not _is_power_of_two(divisor):  # torch rounds other quotients differently
            raise do.make_refusal("rounding_mode='floor' of float numbers", "divide, then torch.floor")
        quotient = do.emit_number("div", a, divisor)
        return quotient if rounding_mode is None else do.emit_number(rounding_mode, quotient)
    if rounding_mode is None:
        raise do.make_refusal("a quotient of whole numbers", "divide with rounding_mode='trunc' or 'floor'")
    if not isinstance(divisor, int) or divisor < 1 or divisor & (divisor - 1):
        raise do.make_refusal(f"a division of whole numbers by {divisor}", "divide by a power of two, 2**k")
    return do.emit_number("shr0" if rounding_mode == "trunc" else "shr", a, divisor.bit_length() - 1)


def _clamp(do: "Tracer", a: Operand, low: Operand | None = None, high: Operand | None = None, **ends) -> Operand:
    low, high = ends.get("min", low), ends.get("max", high)
    a = a if low is None else do.emit_number("max", a, low)
    return a if high is None else do.emit_number("min", a, high)


def _hard_sigmoid(do: "Tracer", a: Operand) -> Operand:
    return do.emit_number("div", _clamp(do, do.emit_number("add", a, 3), 0, 6), 6)


def _hard_swish(do: "Tracer", a: Operand) -> Operand:
    return do.emit_number("div", do.emit_number("mul", a, _clamp(do, do.emit_number("add", a, 3), 0, 6)), 6)


def _scale_below_zero(do: "Tracer", a: Operand, slope: Operand = 0.01) -> Operand:
    return do.emit_number("select", do.emit_comparison("lt", 0, a), a, do.emit_number("mul", a, slope))


def _is_power_of_two(divisor: Operand) -> bool:
    return not isinstance(divisor, str) and frexp(divisor)[0] == 0.5


def _remainder_rule(rounding: str) -> Callable:
    """Return the rule of a remainder by a power of two; for other divisors torch's float32 results would differ."""

    def rule(do: "Tracer", a: Operand, divisor: Operand) -> Operand:
        if do.is_fixed or not _is_power_of_two(divisor):
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


def _logical_rule(kind: str) -> Callable:
    return lambda do, *given: do.emit_logical(kind, *given)


def _bitwise_rule(kind: str) -> Callable:
    def rule(do: "Tracer", *given: Operand) -> Operand:
        if any(isinstance(operand, str) and operand not in do.truths for operand in given):
            raise do.make_refusal("a bitwise operation on numbers", "compare, and join truth values")
        return do.emit_logical(kind, *given)

    return rule


RULES: dict[str, Callable[..., Operand]] = {
    **{kind: _number_rule(kind) for kind in ("mul", "neg", "abs", "sign", "floor", "trunc", "exp", "tanh", "sqrt")},
    "add": _sum_rule("add"),
    "sub": _sum_rule("sub"),
    "rsub": lambda do, a, b, alpha=1: _sum_rule("sub")(do, b, a, alpha),
    "div": _divide_numbers,
    "floor_divide": lambda do, a, b: _divide_numbers(do, a, b, "floor"),
    "fmod": _remainder_rule("trunc"),
    "remainder": _remainder_rule("floor"),
    "reciprocal": lambda do, a: _divide_numbers(do, 1.0, a),
    "square": lambda do, a: do.emit_number("mul", a, a),
    "pow": _raise_to_power,
    "sgn": _number_rule("sign"),
    "ceil": lambda do, a: do.emit_number("neg", do.emit_number("floor", do.emit_number("neg", a))),
    "round": _round_to_even,
    "sigmoid": _sigmoid,
    "minimum": _number_rule("min"),
    "maximum": _number_rule("max"),
    "clamp": _clamp,
    "clamp_min": lambda do, a, low: do.emit_number("max", a, low),
    "clamp_max": lambda do, a, high: do.emit_number("min", a, high),
    "hardtanh": lambda do, a, low=-1, high=1: _clamp(do, a, low, high),
    "hardsigmoid": _hard_sigmoid,
    "hardswish": _hard_swish,
    "leaky_relu": _scale_below_zero,
    "_prelu_kernel": _scale_below_zero,
    "relu": lambda do, a: do.emit_number("max", a, 0),
    "heaviside": _step_at_zero,
    **dict.fromkeys(("__lshift__", "bitwise_left_shift"), _number_rule("shl")),
    **dict.fromkeys(("__rshift__", "bitwise_right_shift"), _number_rule("shr")),
    **{kind: _comparison_rule(kind) for kind in ("lt", "le", "eq", "ne")},
    "gt": _comparison_rule("lt", swapped=True),
    "ge": _comparison_rule("le", swapped=True),
    "threshold": lambda do, a, low, value: do.emit_number("select", do.emit_comparison("lt", low, a), a, value),
    "where": lambda do, condition, yes, no: do.emit_number("select", condition, yes, no),
    "masked_fill": lambda do, a, mask, value: do.emit_number("select", mask, value, a),
    "logical_and": _logical_rule("and"),
    "logical_or": _logical_rule("or"),
    "logical_not": _logical_rule("not"),
    "bitwise_not": _bitwise_rule("not"),
    **dict.fromkeys(("__and__", "bitwise_and"), _bitwise_rule("and")),
    **dict.fromkeys(("__or__", "bitwise_or"), _bitwise_rule("or")),
    **dict.fromkeys(SAME, lambda do, a, *_, **__: a),
}
INSTEAD = {  # for operators that torch rounds at other points than a program would
    "lerp": "write a + weight * (b - a)",
    "addcmul": "write a + value * b * c",
    "addcdiv": "write a + value * b / c",
    "rsqrt": "write 1 / torch.sqrt(x)",
    "silu": "write x * torch.sigmoid(x)",
    "elu": "write torch.where(x > 0, x, alpha * (torch.exp(x) - 1))",
    "logical_xor": "write a != b",
}
WRITE = "write it with + - * /, comparisons, torch.where, minimum, maximum, clamp, floor, round, exp, tanh and sqrt"
