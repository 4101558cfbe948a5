"""Exact integer products on a GPU's matrix units, with a bound on every partial sum that is proved first.

A power of two common to all weights is factored out. Weights and payloads are then split into digits of base 256,
-128..127 each; 8-bit weights and spikes are one digit. A product of digits is one int8 matrix product with int32 sums.
If several such products were needed, one bfloat16 product with float32 sums and result replaces them, provided that
weights and payloads are at most 256 (exact in bfloat16) and sums at most 2**24 (exact in float32, as is every partial
sum in any order). No other number types are used.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from nwcompile.errors import BackendError

INT32 = (1 << 31) - 1  # The largest sum that an int32 holds.
INT64 = (1 << 62) - 1  # The largest sum allowed in an int64, half of what it holds, so that adding a drive stays exact.
FLOAT32 = 1 << 24  # Whole numbers up to here, and partial sums below, are exact in float32.
BFLOAT16 = 256  # Whole numbers up to here are exact in bfloat16.
BLOCK_WEIGHTS = 1 << 22  # Weights per block; it limits the memory for their digits.
MIN_ROWS = 32  # torch._int_mm refuses matrices of 16 rows or fewer, so smaller ones are padded to 32.
ROW_MULTIPLE = 8  # torch._int_mm needs row counts that are multiples of this.
COLUMN_MULTIPLE = 16  # torch._int_mm needs column counts that are multiples of this.
HAS_SPLIT_K = hasattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction_split_k")  # newer torch


@dataclass(frozen=True)
class ProductPlan:
    """Plan of a product: `bits` factored out of all weights, and the digits of each side or one bfloat16 product.

    `largest`: bound on every partial sum, without the factored bits.
    """

    bits: int
    n_weight: int
    n_payload: int
    in_bfloat16: bool
    largest: int

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the sums."""
        return torch.int32 if self.largest <= INT32 else torch.int64


class Product:
    """Integer weights [group, target, source] on a device, to be multiplied by payloads; `name` is for errors."""

    def __init__(self, weight: np.ndarray, device: torch.device, name: str):
        weight = np.asarray(weight)
        self.least = int(weight.min(initial=0))
        self.most = int(weight.max(initial=0))
        self.weight = weight.astype(np.min_scalar_type(-max(-self.least, self.most + 1)), copy=False)
        self.device, self.name = device, name
        self._plans: dict[tuple[int, int], ProductPlan] = {}
        self._operands: dict[tuple[int, bool], list] = {}

    @cached_property
    def bits(self) -> int:
        """The largest power of two that divides all weights."""
        common = int(np.bitwise_or.reduce(self.weight, axis=None))
        return (common & -common).bit_length() - 1 if common else 0

    @cached_property
    def row_sum(self) -> int:
        """The largest sum of the magnitudes of the weights of one target."""
        return self._row_sums(0, 1)[0]

    def _row_sums(self, bits: int, n: int) -> list[int]:
        """Return the largest sum of magnitudes of one target's weights, without `bits`, for each of the n digits."""
        rows = self.weight.reshape(-1, self.weight.shape[-1])
        size = max(1, BLOCK_WEIGHTS // rows.shape[1])
        sums = np.zeros(n, np.int64)
        for first in range(0, len(rows), size):
            parts = split_digits(rows[first : first + size].astype(np.int64) >> bits, n)
            sums = np.maximum(sums, [np.abs(part).sum(1).max() for part in parts])
        return sums.tolist()

    def plan(self, low: int, high: int) -> ProductPlan:
        """Return the plan for payloads low..high. Raises BackendError if no exact plan exists."""
        if (low, high) not in self._plans:
            self._plans[low, high] = self._make_plan(low, high)
        return self._plans[low, high]

    def _make_plan(self, low: int, high: int) -> ProductPlan:
        lowest = self.least >> self.bits
        highest = self.most >> self.bits
        largest = max(-low, high)
        n_weight = n_digits(lowest, highest)
        n_payload = n_digits(low, high)
        in_bfloat16 = (self.row_sum >> self.bits) * largest
        fits = max(-lowest, highest, largest) <= BFLOAT16 and in_bfloat16 <= FLOAT32
        if n_weight * n_payload > 1 and fits and has_bfloat16_sums(self.device):
            return ProductPlan(self.bits, 1, 1, True, in_bfloat16)
        largest_digit = largest if n_payload == 1 else 128
        sums = [s * largest_digit for s in self._row_sums(self.bits, n_weight)]
        total = sum(s << 8 * (a + b) for a, s in enumerate(sums) for b in range(n_payload))
        verify_sum(self.name, max(sums), INT32)
        verify_sum(self.name, total << self.bits, INT64)
        return ProductPlan(self.bits, n_weight, n_payload, False, total)

    def __call__(self, payload: torch.Tensor, plan: ProductPlan, group: int = 0) -> torch.Tensor:
        """Multiply payload int[row, source] by a group's weights: `plan.dtype`[row, target] without `plan.bits`."""
        n_rows = len(payload)
        n_target = self.weight.shape[1]
        operands = self._operand_matrices(plan)[group]
        if plan.in_bfloat16:
            return bfloat16_product(payload, operands[0]).to(torch.int32)
        total = None
        payload = payload.to(torch.int64) if plan.n_payload > 1 else payload
        for b, x in enumerate(split_digits(payload, plan.n_payload)):
            x = pad_matrix(x)
            for a, w in enumerate(operands):
                part = torch._int_mm(x, w.t())[:n_rows, :n_target]
                part = part if total is None and plan.dtype == torch.int32 else part.to(plan.dtype) << 8 * (a + b)
                total = part if total is None else total + part
        assert total is not None, "every number has a digit"
        return total

    def _operand_matrices(self, plan: ProductPlan) -> list[list[torch.Tensor]]:
        """Return the weights of each group as matrices on the device, one per digit."""
        key = (plan.n_weight, plan.in_bfloat16)
        if key not in self._operands:
            scaled = [torch.from_numpy(np.array(w, order="C")).to(self.device) >> self.bits for w in self.weight]
            if plan.in_bfloat16:
                self._operands[key] = [[w.to(torch.bfloat16)] for w in scaled]
            else:
                wide = scaled if plan.n_weight == 1 else [w.to(torch.int64) for w in scaled]
                self._operands[key] = [
                    [pad_matrix(d, COLUMN_MULTIPLE) for d in split_digits(w, plan.n_weight)] for w in wide
                ]
        return self._operands[key]


def verify_sum(name: str, largest: int, limit: int) -> None:
    """Raise BackendError, with `name`, if partial sums of up to `largest` exceed the exact range `limit`."""
    if largest > limit:
        raise BackendError(
            f"{name}: sums of up to {largest} are beyond {limit}, the most that device 'cuda' adds exactly here; "
            "use device='cpu'"
        )


def n_digits(low: int, high: int) -> int:
    """Return how many digits -128..127 of base 256 represent all numbers low..high."""
    n = 1
    while low < -128 * ((256**n - 1) // 255) or high > 127 * ((256**n - 1) // 255):
        n += 1
    return n


def split_digits(x, n: int) -> list:
    """Split integers (array or tensor) into n digits, lowest first: x = sum(d * 256**i), each d in -128..127."""
    digits_of_x = []
    for _ in range(n - 1):
        low = ((x + 128) & 255) - 128
        digits_of_x.append(low)
        x = (x - low) >> 8
    return [*digits_of_x, x]


def pad_matrix(x: torch.Tensor, rows: int = ROW_MULTIPLE) -> torch.Tensor:
    """Convert a matrix to int8, padded with zeros to sizes that int8 products take: rows a multiple of `rows`.

    cuBLAS refuses some sizes, and gave wrong sums for odd ones (pytorch/pytorch#106840).
    """
    n_rows, n_columns = x.shape
    wide = max(MIN_ROWS, -(-n_rows // rows) * rows), -(-n_columns // COLUMN_MULTIPLE) * COLUMN_MULTIPLE
    if wide == (n_rows, n_columns):
        return x.to(torch.int8).contiguous()
    out = torch.zeros(wide, dtype=torch.int8, device=x.device)
    out[:n_rows, :n_columns] = x
    return out


def has_bfloat16_sums(device: torch.device) -> bool:
    """Whether a bfloat16 product can return float32: it needs a GPU from sm_80 on and support in torch."""
    offered = "dtype" in torch.ops.aten.mm.overloads()
    return device.type == "cuda" and offered and torch.cuda.get_device_capability(device) >= (8, 0)


def bfloat16_product(payload: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply integers up to 256 in bfloat16 with float32 sums that are never rounded; return float32[row, target]."""
    settings = torch.backends.cuda.matmul
    before = [settings.allow_bf16_reduced_precision_reduction]
    before += [settings.allow_bf16_reduced_precision_reduction_split_k] if HAS_SPLIT_K else []
    settings.allow_bf16_reduced_precision_reduction = False
    try:
        with torch.autocast(payload.device.type, enabled=False):
            return torch.mm(payload.to(torch.bfloat16), weight.t(), out_dtype=torch.float32)
    finally:
        settings.allow_bf16_reduced_precision_reduction = before if HAS_SPLIT_K else before[0]
