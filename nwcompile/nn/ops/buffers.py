"""Reuse of the memory of large results on the CPU.

A fresh block of memory costs one page fault per page. For a large tensor that takes longer than the scan that fills it.
Large results therefore get their memory from NumPy, in huge pages if the system has them. When the last tensor on a
block is gone, the block returns to a store. The store is emptied when it would exceed `STORE_BYTES`.
"""

import math
import weakref

import numpy as np
import torch

from nwcompile.kernels.layers.simd_code import LINE_BYTES

LARGE_BYTES = 1 << 18  # Below this size a fresh block costs less than a search of the store.
PAGED_BYTES = 1 << 20  # Huge pages pay off from this size on.
HUGE_BYTES = 1 << 22  # NumPy requests huge pages from this size on; the unused rest of a block is never touched.
STORE_BYTES = 1 << 28  # The most memory that the store keeps from other programs.
_store: dict[int, list[np.ndarray]] = {}


def allocate_tensor(shape, dtype) -> tuple[torch.Tensor, np.ndarray]:
    """Allocate an uninitialized CPU tensor of a NumPy dtype; return it and a flat array on the same memory."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < LARGE_BYTES:
        array = np.empty(shape, dtype)
        return torch.from_numpy(array), array.reshape(-1)
    step = 1 << max(0, n_bytes.bit_length() - 4)  # sizes that differ by less than an eighth share blocks
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
