"""Memory for large results on the CPU, used again.

A fresh block of memory costs a page fault for every page of it, which for a large tensor takes longer than the scan
that fills it. So the memory of large results comes from NumPy (in huge pages, where the system has them), and goes back
to a store when the last tensor on it is gone. The store holds `STORE_BYTES` at most; what would be more empties it.
"""

import math
import weakref

import numpy as np
import torch

from nwcompile.kernels.layers.simd_code import LINE_BYTES

LARGE_BYTES = 1 << 18  # Below this a fresh block costs less than looking for an old one.
PAGED_BYTES = 1 << 20  # From here on a block is worth huge pages.
HUGE_BYTES = 1 << 22  # From here on NumPy asks for huge pages; what a block has too much of them stays untouched.
STORE_BYTES = 1 << 28  # The store keeps at most so much memory from other programs.
_store: dict[int, list[np.ndarray]] = {}


def allocate_tensor(shape, dtype) -> tuple[torch.Tensor, np.ndarray]:
    """An uninitialized tensor on the CPU of a NumPy dtype, and the same numbers as a flat array."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < LARGE_BYTES:
        array = np.empty(shape, dtype)
        return torch.from_numpy(array), array.reshape(-1)
    step = 1 << max(0, n_bytes.bit_length() - 4)  # so that sizes that differ by less than an eighth share blocks
    size = -(-n_bytes // step) * step
    try:
        block = _store.get(size, []).pop()
    except IndexError:
        block = np.empty(max(size + LINE_BYTES, HUGE_BYTES if size >= PAGED_BYTES else 0), np.uint8)
    start = -block.ctypes.data % LINE_BYTES
    used = block[start : start + n_bytes].view(dtype)
    tensor = torch.from_numpy(used)
    weakref.finalize(used, _give_back, size, block).atexit = False
    return tensor.view(shape), used


def _give_back(size: int, block: np.ndarray) -> None:
    if size + sum(key * len(blocks) for key, blocks in list(_store.items())) > STORE_BYTES:
        _store.clear()
    if size <= STORE_BYTES:
        _store.setdefault(size, []).append(block)
