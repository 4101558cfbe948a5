"""Modules whose code names a number of samples, as in `torch.zeros(batch_size, 128)`: here they run on any number."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

SIZED = frozenset(
    (
        "zeros", "ones", "full", "empty", "rand", "randn", "new_zeros", "new_ones", "new_full", "new_empty", "view",
        "reshape", "expand", "repeat",
    )
)  # fmt: skip  # functions that take the sizes of their result
N_LEADING = 2  # sizes among which the samples are: [B, ...] or [T, B, ...]
_named: ContextVar[int] = ContextVar("_named", default=0)


class FittedSizes(TorchFunctionMode):
    """Replaces the number of samples that code names in sizes of tensors by another one; `seen` are all such sizes."""

    def __init__(self, named: int, n_samples: int):
        super().__init__()
        self.named, self.n_samples = named, n_samples
        self.seen: set[int] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Run a function of torch with its sizes replaced."""
        args, kwargs = list(args), dict(kwargs or {})
        if getattr(func, "__name__", "") in SIZED:
            at = int(bool(args) and isinstance(args[0], torch.Tensor))
            if "size" in kwargs:
                kwargs["size"] = self._fit(kwargs["size"])
            elif len(args) > at and isinstance(args[at], int):
                args[at:] = self._fit(args[at:])
            elif len(args) > at and isinstance(args[at], tuple | list):
                args[at] = self._fit(args[at])
        return func(*args, **kwargs)

    def _fit(self, sizes: Sequence[int]) -> list[int]:
        leading, rest = list(sizes[:N_LEADING]), sizes[N_LEADING:]
        if len(leading) < N_LEADING:  # entries of one sample
            return leading
        self.seen |= set(leading)
        if self.named in leading:
            leading[leading.index(self.named)] = self.n_samples
        return [*leading, *rest]


@contextmanager
def name_samples(named: int) -> Iterator[None]:
    """Let modules run on any number of samples although their code names one; 0: it names none."""
    token = _named.set(named)
    try:
        yield
    finally:
        _named.reset(token)


def list_equal_rows(module: torch.nn.Module) -> list[tuple[torch.nn.Module, str]]:
    """Return parts and names of the tensors that a module keeps with several equal rows: states of several samples."""
    return [
        (part, name)
        for part in module.modules()
        for name, value in {**vars(part), **part._buffers}.items()
        if isinstance(value, torch.Tensor) and value.ndim > 1 and len(value) > 1 and bool((value == value[:1]).all())
    ]


def fit_run(module: torch.nn.Module, run: Callable, n_samples: int) -> Callable:
    """Return a function that runs a module on this number of samples; its states now have as many."""
    named = _named.get()
    if not named:
        return run
    for part, name in list_equal_rows(module):
        value = getattr(part, name)
        if len(value) == named:
            setattr(part, name, value[:1].repeat(n_samples, *[1] * (value.ndim - 1)))

    def run_fitted(given: torch.Tensor) -> Any:
        with FittedSizes(named, n_samples):
            return run(given)

    return run_fitted
