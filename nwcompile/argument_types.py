"""Arguments of public functions are compared with their annotations before anything is computed."""

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
MOST = 1 << 63  # Whole numbers are below it.
MOST_SHOWN = 60  # Longer values are shown as their type.


def checked(*names: str) -> Callable[[Function], Function]:
    """Make a function refuse arguments that are not of the annotated types, with an OptionError that names them.

    `names`: the parameters to check, by default all. A NumPy number counts as a Python number, a list as a tuple and a
    string as a path; True and False are not numbers. Parameters without an annotation take anything. If an allocation
    fails inside the function, NotEnoughMemoryError is raised.
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
                    _verify(function.__qualname__.removesuffix(".__init__"), name, value, kind)
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
    """Refuse fields of a dataclass that are not of the annotated types, as `checked` does: its `__post_init__`."""
    for field in fields(noun):
        _verify(type(noun).__name__, field.name, getattr(noun, field.name), field.type)


def _verify(where: str, name: str, value, kind: Any) -> None:
    if not is_of(value, kind):
        raise OptionError(f"{where}: {name}={_brief(value)} must be {_in_words(kind)}", code="NW1010")


def is_of(value, kind: Any) -> bool:
    """Whether a value is of an annotated type; of lists and dicts, whether every item is."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(is_of(value, one) for one in _alternatives(inner))
    if kind is int:
        return _is_whole(value)
    if kind is float:
        return _is_number(value)
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind is Path:
        return isinstance(value, str | PathLike) and "\0" not in str(value)  # which no system takes
    if Callable in (kind, origin):
        return callable(value)
    if origin is Literal:
        return value in inner
    if is_typeddict(kind):
        hints = _hints(kind)
        return (
            isinstance(value, dict)
            and kind.__required_keys__ <= set(value)
            and all(is_of(value[key], hints[key]) for key in set(hints) & set(value))
        )
    what = origin or kind
    if what in (tuple, list, Sequence):
        is_fixed = what is tuple and inner and inner[-1] is not ...
        kinds = inner if is_fixed else inner[:1] * len(value) if isinstance(value, tuple | list) else ()
        return isinstance(value, tuple | list) and (
            not inner or (len(kinds) == len(value) and all(map(is_of, value, kinds)))
        )
    if what in (dict, Mapping):
        return isinstance(value, Mapping) and (
            not inner or all(is_of(k, inner[0]) and is_of(v, inner[1]) for k, v in value.items())
        )
    return what is Any or not isinstance(what, type) or isinstance(value, what)


_hints = cache(get_type_hints)


def _alternatives(kinds: Sequence) -> list:
    """The kinds of a union; where a path is one of them, a text is a path."""
    return [kind for kind in kinds if kind is not str or Path not in kinds]


def _is_whole(value) -> bool:
    """Whether a value is a whole number of 64 bits."""
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


def _brief(value) -> str:
    """A short value as it is written, or the type of any other value."""
    text = shown(value) if isinstance(value, str | Real | None | complex | tuple | list) else ""
    return text if 0 < len(text) <= MOST_SHOWN else f"<{type(value).__name__}>"


def _in_words(kind: Any) -> str:
    """An annotated type as a person says it: `a whole number or None`."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_in_words(one) for one in _alternatives(inner))
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    what = origin or kind
    if what in (tuple, list, Sequence):
        return "a list" + (ITEMS.get(inner[0], "") if inner else "")
    if what in (dict, Mapping):
        return "a dict"
    return WORDS.get(what) or f"a {getattr(what, '__name__', what)}"
