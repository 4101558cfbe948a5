"""Shared: a network is quantized once for all chips with the same numbers, such as a chip and its boards."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.quantize.quantize import Quantized, quantize

NUMBERS = ("core", "weights", "state", "neuron", "io")  # What `quantize` reads of a chip, beside noc.payload_bits.
_KNOWN: ContextVar[dict | None] = ContextVar("known", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Inside, `quantized` keeps what it gives, in memory."""
    token = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(token)


def quantized(network: Network, chip: Chip, samples: dict[str, np.ndarray] | None, options: Options) -> Quantized:
    """`quantize`, or inside `sharing` what it gave for the same network, numbers, samples and options."""
    known = _KNOWN.get()
    if known is None:
        return quantize(network, chip, samples, options)
    digest = hashlib.sha256(f"{network.hash} {network.layout} {options.to_dict()}".encode())
    digest.update(repr([*(getattr(chip, section) for section in NUMBERS), chip.noc.payload_bits]).encode())
    for name, array in (samples or {}).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    key = digest.hexdigest() + f" {samples is None}"
    if key not in known:
        known[key] = quantize(network, chip, samples, options)
    return known[key]
