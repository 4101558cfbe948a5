"""Follow + - * / between tensors, and with numbers or constant tensors."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nwcompile.frontend.torch.moves import Tracked
from nwcompile.frontend.torch.operations import affine_operation
from nwcompile.frontend.torch.symbols import Applied, Constant, Pooled, Summed, Symbol
from nwcompile.ir.connection import Scale

SIGNS = {"add": (1, 1), "radd": (1, 1), "iadd": (1, 1), "sub": (1, -1), "isub": (1, -1), "subtract": (1, -1),
         "rsub": (-1, 1)}  # fmt: skip
PRODUCTS = ("mul", "rmul", "imul", "multiply")
QUOTIENTS = ("div", "truediv", "itruediv", "divide", "true_divide")


def is_linear(name: str) -> bool:
    """Return whether the torch function of this name is a sum, difference, product or quotient."""
    return name.strip("_") in (*SIGNS, *PRODUCTS, *QUOTIENTS)


def is_product(name: str) -> bool:
    """Return whether the torch function of this name is a product."""
    return name.strip("_") in PRODUCTS


def describe_factor(factors: list[Symbol], is_spikes: Callable[[Symbol], bool]) -> str:
    """Name a factor of a product that is a sum of spikes; "" if there is none."""
    sums = [f for f in factors if isinstance(f, Summed) and all(is_binary(term, is_spikes) for term in f.terms)]
    if not sums:
        return ""
    return f"one factor of which is a sum of spikes, up to {len(sums[0].terms)}, not 0 or 1: multiply before adding"


def follow_linear(name: str, args, kwargs, known: Callable[[torch.Tensor], Tracked], path: str) -> Tracked | None:
    """Return the symbol of the result, None if it is not linear or broadcasts; `path` names a junction."""
    name = name.strip("_")
    if len(args) != 2 or set(kwargs) - {"alpha"}:
        return None
    a: Any
    b: Any
    a, b = (x.item() if isinstance(x, torch.Tensor) and x.ndim == 0 else x for x in args)
    tensors = [x for x in (a, b) if isinstance(x, torch.Tensor)]
    if len(tensors) == 2:
        if a.shape == b.shape:
            return _add_tensors(name, a, b, kwargs.get("alpha", 1), known, path)
        tensors = [x for x in tensors if not isinstance(known(x).symbol, Constant)]
    if len(tensors) != 1:
        return None
    x = known(tensors[0])
    is_first = tensors[0] is a
    number = _read_constant(b if is_first else a, tensors[0], x.symbol)
    if number is None:
        return None
    scale, shift = _affine_coefficients(name, number, is_first, kwargs.get("alpha", 1))
    return None if scale is None else Tracked(_scale_shift(x.symbol, scale, shift, path), x.lead)


def follow_and(
    name: str, args, known: Callable[[torch.Tensor], Tracked], is_spikes: Callable[[Symbol], bool], path: str
) -> Tracked | None:
    """Return the symbol of the product of two spike tensors, a * b or a * (1 - b); None for other products.

    It becomes memoryless neurons that fire if a + b - 1 is 1 (AND; with 1 - b, the IAND of SEW-ResNet).
    """
    if name.strip("_") not in PRODUCTS or len(args) != 2 or not all(isinstance(x, torch.Tensor) for x in args):
        return None
    a, b = map(known, args)
    if args[0].shape != args[1].shape or a.lead != b.lead or not all(is_binary(x.symbol, is_spikes) for x in (a, b)):
        return None
    shape = a.symbol.shape
    return Tracked(Pooled(affine_operation(path, "and", 1, -1), Summed((a.symbol, b.symbol), shape), shape), a.lead)


def is_binary(symbol: Symbol, is_spikes: Callable[[Symbol], bool]) -> bool:
    """Return whether the values are 0 or 1: spikes, or 1 - spikes."""
    if not isinstance(symbol, Applied):
        return is_spikes(symbol)
    done = symbol.operation.connect("", "", 0, symbol.shape)
    low, high = (done.shift, done.scale + done.shift) if isinstance(done, Scale) else (np.nan, np.nan)
    return is_spikes(symbol.source) and bool(np.isin([low, high], (0, 1)).all())


def _read_constant(value, tensor: torch.Tensor, symbol: Symbol):
    """Return a number unchanged, a constant as one float32 per entry of a step, or None if neither."""
    if not isinstance(value, torch.Tensor):
        return value
    try:
        wide = value.detach().expand(tensor.shape).reshape(-1, *symbol.shape)
    except RuntimeError:
        return None
    return wide[0].cpu().to(torch.float32).numpy().copy() if (wide == wide[:1]).all() else None


def _affine_coefficients(name: str, number, tensor_first: bool, alpha: float) -> tuple:
    """Return (scale, shift) of the function with a number, or an array of numbers, as the other operand."""
    if name in PRODUCTS:
        return number, 0.0
    if name in QUOTIENTS:
        return (1 / number if tensor_first and np.all(number) else None), 0
    first, second = SIGNS[name]
    of_second = second * alpha
    return (first, of_second * number) if tensor_first else (of_second, first * number)


def _add_tensors(name: str, a, b, alpha: float, known, path: str) -> Tracked | None:
    if name not in SIGNS:
        return None
    first, second = SIGNS[name]
    terms = [known(a), known(b)]
    leads = {term.lead for term in terms if not isinstance(term.symbol, Constant)}
    if len(leads) != 1:
        return None
    shape = next(term.symbol.shape for term in terms if not isinstance(term.symbol, Constant))
    one, other = (_scale_shift(term.symbol, k, 0, path) for term, k in zip(terms, (first, second * alpha), strict=True))
    return Tracked(Summed((one, other), shape), leads.pop())


def _scale_shift(symbol: Symbol, scale, shift, path: str) -> Symbol:
    if np.all(scale == 1) and np.all(shift == 0):
        return symbol
    digest = b"".join(np.asarray(number, np.float64).tobytes() for number in (scale, shift))
    return Applied(replace(affine_operation(path, "affine", scale, shift), digest=digest), symbol, symbol.shape)
