"""Following + - * / between tensors and with numbers."""

from collections.abc import Callable

import numpy as np
import torch

from nwcompile.frontend.torch.moves import Tracked
from nwcompile.frontend.torch.operations import affine
from nwcompile.frontend.torch.symbols import Applied, Constant, Pooled, Sum, Symbol
from nwcompile.ir.connection import Scale

SIGNS = {"add": (1, 1), "radd": (1, 1), "iadd": (1, 1), "sub": (1, -1), "isub": (1, -1), "subtract": (1, -1),
         "rsub": (-1, 1)}  # fmt: skip
PRODUCTS = ("mul", "rmul", "imul", "multiply")
QUOTIENTS = ("div", "truediv", "itruediv", "divide", "true_divide")


def is_linear(name: str) -> bool:
    """Whether the torch function of that name is a sum, difference, product or quotient."""
    return name.strip("_") in (*SIGNS, *PRODUCTS, *QUOTIENTS)


def linear(name: str, args, kwargs, known: Callable[[torch.Tensor], Tracked], path: str) -> Tracked | None:
    """What the function's result stands for, None for what is not linear or broadcasts; `path` names a junction."""
    name = name.strip("_")
    if len(args) != 2 or set(kwargs) - {"alpha"}:
        return None
    a, b = (x.item() if isinstance(x, torch.Tensor) and x.ndim == 0 else x for x in args)
    tensors = [x for x in (a, b) if isinstance(x, torch.Tensor)]
    if len(tensors) == 2:
        return _combined(name, a, b, kwargs.get("alpha", 1), known, path) if a.shape == b.shape else None
    x = known(tensors[0])
    scale, shift = _of_number(name, b if tensors[0] is a else a, tensors[0] is a, kwargs.get("alpha", 1))
    return None if scale is None else Tracked(_affine(x.symbol, scale, shift, path), x.lead)


def product(
    name: str, args, known: Callable[[torch.Tensor], Tracked], is_spikes: Callable[[Symbol], bool], path: str
) -> Tracked | None:
    """What the product of two tensors of spikes, a and b, or of a and 1 - b, stands for; None if it is not one.

    It is neurons without memory that fire where a + b - 1 does (AND; with 1 - b, the IAND of SEW-ResNet).
    """
    if name.strip("_") not in PRODUCTS or len(args) != 2 or not all(isinstance(x, torch.Tensor) for x in args):
        return None
    a, b = map(known, args)
    if args[0].shape != args[1].shape or a.lead != b.lead or not all(_is_binary(x.symbol, is_spikes) for x in (a, b)):
        return None
    shape = a.symbol.shape
    return Tracked(Pooled(affine(path, "and", 1, -1), Sum((a.symbol, b.symbol), shape), shape), a.lead)


def _is_binary(symbol: Symbol, is_spikes: Callable[[Symbol], bool]) -> bool:
    """Whether it is 0 or 1: spikes, or 1 - spikes."""
    if not isinstance(symbol, Applied):
        return is_spikes(symbol)
    done = symbol.operation.connect("", "", 0, symbol.shape)
    low, high = (done.shift, done.scale + done.shift) if isinstance(done, Scale) else (np.nan, np.nan)
    return is_spikes(symbol.source) and bool(np.isin([low, high], (0, 1)).all())


def _of_number(name: str, number: float, tensor_first: bool, alpha: float) -> tuple[float | None, float]:
    """(scale, shift) of the function with a number on its other side."""
    if name in PRODUCTS:
        return number, 0
    if name in QUOTIENTS:
        return (1 / number if tensor_first and number else None), 0
    first, second = SIGNS[name]
    second *= alpha
    return (first, second * number) if tensor_first else (second, first * number)


def _combined(name: str, a, b, alpha: float, known, path: str) -> Tracked | None:
    if name not in SIGNS:
        return None
    first, second = SIGNS[name]
    terms = [known(a), known(b)]
    leads = {term.lead for term in terms if not isinstance(term.symbol, Constant)}
    if len(leads) != 1:
        return None
    shape = next(term.symbol.shape for term in terms if not isinstance(term.symbol, Constant))
    scaled = [_affine(term.symbol, k, 0, path) for term, k in zip(terms, (first, second * alpha), strict=True)]
    return Tracked(Sum(tuple(scaled), shape), leads.pop())


def _affine(symbol: Symbol, scale: float, shift: float, path: str) -> Symbol:
    if scale == 1 and shift == 0:
        return symbol
    return Applied(affine(path, f"{scale:g} * x + {shift:g}", scale, shift), symbol, symbol.shape)
