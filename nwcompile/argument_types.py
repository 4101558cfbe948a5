"""Argument types: compare the arguments of public functions with their annotations before any work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache, wraps
from inspect import signature
from numbers import Real
from operator import index
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from nwcompile.errors import NotEnoughMemoryError, OptionError, shown

Function = TypeVar("Function", bound=Callable)
WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", NoneType: "None",
         Path: "a path", Callable: "a function", np.ndarray: "an array"}  # fmt: skip
ITEMS = {int: " of whole numbers", float: " of numbers", str: " of texts"}
NO_ROOM = ("allocate memory", "Allocation failed", "calculation overflowed", "multiplication overflow")  # torch's texts
MOST = 1 << 63  # Whole numbers have to be below this.
MOST_SHOWN = 60  # Characters of a value; for a longer one only the type is shown.


def checked(*names: str) -> Callable[[Function], Function]:
    """Make a function raise an OptionError for arguments whose types differ from their annotations.

    `names`: the parameters to check, by default all. A NumPy number counts as a Python number, a list as a tuple and a
    string as a path; True and False are not numbers. Parameters without an annotation accept anything. If an allocation
    fails inside the function, it raises NotEnoughMemoryError.
    """

    def with_types(function: Function) -> Function:
        parameters = signature(function)
        chosen = names or tuple(parameters.parameters)
        hints = cache(lambda: get_type_hints(function))

        @wraps(function)
        def verified(*given, **named):
            for name, value in parameters.bind(*given, **named).arguments.items():
                kind = hints().get(name, Any)
                if name in chosen:
                    _verify_type(function.__qualname__.removesuffix(".__init__"), name, value, kind)
            try:
                return function(*given, **named)
            except (MemoryError, RuntimeError) as e:
                if isinstance(e, NotEnoughMemoryError):
                    raise
                if not (isinstance(e, MemoryError) or any(text in str(e) for text in NO_ROOM)):
                    raise
                where = function.__qualname__.removesuffix(".__init__")
                raise NotEnoughMemoryError(
                    f"{where}: this needs more memory than there is; use smaller sizes"
                ) from None

        return verified  # type: ignore[return-value]

    return with_types


def checked_fields(noun) -> None:
    """Raise OptionError for fields of a dataclass without their annotated types; to be called in `__post_init__`."""
    for field in fields(noun):
        _verify_type(type(noun).__name__, field.name, getattr(noun, field.name), field.type)


def _verify_type(where: str, name: str, value, kind: Any) -> None:
    if not has_type(value, kind):
        raise OptionError(f"{where}: {name}={_brief_text(value)} must be {_describe_type(kind)}", code="NW1010")


def has_type(value, kind: Any) -> bool:
    """Whether a value has an annotated type. The items of lists and dicts are checked too."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(has_type(value, one) for one in _list_alternatives(inner))
    if kind is int:
        return _is_whole(value)
    if kind is float:
        return _is_number(value)
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind is Path:
        return isinstance(value, str | PathLike) and "\0" not in str(value)  # No system accepts a path with a NUL.
    if Callable in (kind, origin):
        return callable(value)
    if origin is Literal:
        return value in inner
    if is_typeddict(kind):
        hints = _hints(kind)
        return (
            isinstance(value, dict)
            and kind.__required_keys__ <= set(value)
            and all(has_type(value[key], hints[key]) for key in set(hints) & set(value))
        )
    what = origin or kind
    if what in (tuple, list, Sequence):
        is_fixed = what is tuple and inner and inner[-1] is not ...
        kinds = inner if is_fixed else inner[:1] * len(value) if isinstance(value, tuple | list) else ()
        return isinstance(value, tuple | list) and (
            not inner or (len(kinds) == len(value) and all(map(has_type, value, kinds)))
        )
    if what in (dict, Mapping):
        return isinstance(value, Mapping) and (
            not inner or all(has_type(k, inner[0]) and has_type(v, inner[1]) for k, v in value.items())
        )
    return what is Any or not isinstance(what, type) or isinstance(value, what)


_hints = cache(get_type_hints)


def _list_alternatives(kinds: Sequence) -> list:
    """The types of a union, without `str` if `Path` is one of them: a string is a path then."""
    return [kind for kind in kinds if kind is not str or Path not in kinds]


def _is_whole(value) -> bool:
    """Whether a value is an integer that fits into 64 bits."""
    try:
        return not isinstance(value, bool) and -MOST <= index(value) < MOST
    except TypeError:
        return False


def _is_number(value) -> bool:
    """Whether a value is a real number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _brief_text(value) -> str:
    """Format a short value; of any other value, only its type."""
    text = shown(value) if isinstance(value, str | Real | None | complex | tuple | list) else ""
    return text if 0 < len(text) <= MOST_SHOWN else f"<{type(value).__name__}>"


def _describe_type(kind: Any) -> str:
    """Describe an annotated type in words: `a whole number or None`."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_describe_type(one) for one in _list_alternatives(inner))
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    what = origin or kind
    if what in (tuple, list, Sequence):
        return "a list" + (ITEMS.get(inner[0], "") if inner else "")
    if what in (dict, Mapping):
        return "a dict"
    return WORDS.get(what) or f"a {getattr(what, '__name__', what)}"
