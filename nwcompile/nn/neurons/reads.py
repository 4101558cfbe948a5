"""Watch methods of a tensor that read its memory without an operator, so that no mode of torch sees them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

METHODS = ("numpy", "tolist", "__array__")


@contextmanager
def watch_reads(on_read: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Call `on_read(tensor)` before such a method runs; an exception of it stops the method."""
    originals = [(name, getattr(torch.Tensor, name)) for name in METHODS]

    def watch(original):
        def read(tensor: torch.Tensor, *args, **kwargs):
            on_read(tensor)
            return original(tensor, *args, **kwargs)

        return read

    for name, original in originals:
        setattr(torch.Tensor, name, watch(original))
    try:
        yield
    finally:
        for name, original in originals:
            setattr(torch.Tensor, name, original)
