"""Products of whole numbers on a GPU's matrix units, exact because a bound on every partial sum is proved first.

Weights and payloads are cut into digits of base 256, -128..127 each, after a power of two that all weights share is
taken out: 8-bit weights and spikes are one digit each. A product of digits is one int8 matrix product summed in int32.
Where a product would need several, and weights and payloads are at most 256 (bfloat16 holds those) with sums of at most
2**24 (float32 holds those, and with them every partial sum, in any order), one bfloat16 product summed and given as
float32 does instead. No other number types are used.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from nwcompile.errors import BackendError

INT32, INT64, FLOAT32, BFLOAT16 = (1 << 31) - 1, (1 << 62) - 1, 1 << 24, 256
LEAST_ROWS, MULTIPLE = 17, 16  # of int8 matrices: more than 16 rows, and sizes that every cuBLAS takes


@dataclass(frozen=True)
class Way:
    """How a product is computed: `bits` are taken out of all weights; digits of each side, or one bfloat16 product.

    `largest`: no partial sum is beyond it (without the bits taken out).
    """

    bits: int
    n_weight: int
    n_payload: int
    in_bfloat16: bool
    largest: int

    @property
    def number(self) -> torch.dtype:
        """Of the sums."""
        return torch.int32 if self.largest <= INT32 else torch.int64


class Product:
    """Integer weights [group, target, source] on a device, to be multiplied with payloads; `name` is for errors."""

    def __init__(self, weight: np.ndarray, device: torch.device, name: str):
        self.weight, self.device, self.name = np.asarray(weight).astype(np.int64), device, name
        self._operands: dict[tuple, list] = {}

    @cached_property
    def row_sum(self) -> int:
        """The largest sum of the magnitudes of the weights of one target."""
        return int(np.abs(self.weight).sum(-1).max(initial=0))

    @cached_property
    def bits(self) -> int:
        """The largest power of two that divides all weights."""
        common = int(np.bitwise_or.reduce(self.weight, axis=None))
        return (common & -common).bit_length() - 1 if common else 0

    def way(self, low: int, high: int) -> Way:
        """How payloads low..high are multiplied. Raises BackendError where no exact way is known."""
        scaled, largest = self.weight >> self.bits, max(-low, high)
        n_weight, n_payload = n_digits(int(scaled.min(initial=0)), int(scaled.max(initial=0))), n_digits(low, high)
        row_sum = self.row_sum >> self.bits
        if n_weight * n_payload > 1 and has_bfloat16_sums(self.device):
            widest = int(np.abs(scaled).max(initial=0))
            if max(widest, largest) <= BFLOAT16 and row_sum * largest <= FLOAT32:
                return Way(self.bits, 1, 1, True, row_sum * largest)
        each = largest if n_payload == 1 else 128
        sums = [int(np.abs(d).sum(-1).max(initial=0)) * each for d in digits(scaled, n_weight)]
        total = sum(s << 8 * (a + b) for a, s in enumerate(sums) for b in range(n_payload))
        verify_sum(self.name, max(sums), INT32)
        verify_sum(self.name, total << self.bits, INT64)
        return Way(self.bits, n_weight, n_payload, False, total)

    def __call__(self, payload: torch.Tensor, way: Way, group: int = 0) -> torch.Tensor:
        """payload int[row, source] times the weights of a group: `way.number`[row, target], without `way.bits`."""
        n_rows, n_target = len(payload), self.weight.shape[1]
        operands = self._operand(way)[group]
        if way.in_bfloat16:
            return bfloat16_product(payload, operands[0]).to(torch.int32)
        total = None
        payload = payload.to(torch.int64) if way.n_payload > 1 else payload
        for b, x in enumerate(digits(payload, way.n_payload)):
            x = padded(x)
            for a, w in enumerate(operands):
                part = torch._int_mm(x, w.t())[:n_rows, :n_target]
                part = part if total is None and way.number == torch.int32 else part.to(way.number) << 8 * (a + b)
                total = part if total is None else total + part
        return total

    def _operand(self, way: Way) -> list[list[torch.Tensor]]:
        """The weights of each group as matrices on the device: one for each digit."""
        key = (way.n_weight, way.in_bfloat16)
        if key not in self._operands:
            scaled = torch.from_numpy(self.weight >> self.bits)
            if way.in_bfloat16:
                self._operands[key] = [[w.to(self.device, torch.bfloat16)] for w in scaled]
            else:
                parts = [[d.to(self.device, torch.int8) for d in digits(w, way.n_weight)] for w in scaled]
                self._operands[key] = [[padded(d, MULTIPLE) for d in group] for group in parts]
        return self._operands[key]


def verify_sum(name: str, largest: int, limit: int) -> None:
    """Raise BackendError, naming where, unless partial sums of at most `largest` are within what is summed exactly."""
    if largest > limit:
        raise BackendError(
            f"{name}: sums of up to {largest} are beyond {limit}, the most that device 'cuda' adds exactly here; "
            "use device='cpu'"
        )


def n_digits(low: int, high: int) -> int:
    """How many digits -128..127 of base 256 hold all numbers low..high."""
    n = 1
    while low < -128 * ((256**n - 1) // 255) or high > 127 * ((256**n - 1) // 255):
        n += 1
    return n


def digits(x, n: int) -> list:
    """The n digits of whole numbers (array or tensor), lowest first: sum(d * 256**i) is x, each in -128..127."""
    found = []
    for _ in range(n - 1):
        low = ((x + 128) & 255) - 128
        found.append(low)
        x = (x - low) >> 8
    return [*found, x]


def padded(x: torch.Tensor, least_rows: int = LEAST_ROWS) -> torch.Tensor:
    """A matrix as int8, with zeros to the sizes that int8 products take; the same where it has them."""
    n_rows, n_columns = x.shape
    rows = max(least_rows, n_rows) if least_rows == LEAST_ROWS else -(-n_rows // MULTIPLE) * MULTIPLE
    columns = -(-n_columns // MULTIPLE) * MULTIPLE
    if (rows, columns) == (n_rows, n_columns):
        return x.to(torch.int8).contiguous()
    out = torch.zeros((rows, columns), dtype=torch.int8, device=x.device)
    out[:n_rows, :n_columns] = x
    return out


def has_bfloat16_sums(device: torch.device) -> bool:
    """Whether a bfloat16 product can be given as float32 there: a GPU from sm_80, and a torch that offers it."""
    offered = "dtype" in torch.ops.aten.mm.overloads()
    return device.type == "cuda" and offered and torch.cuda.get_device_capability(device) >= (8, 0)


def bfloat16_product(payload: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """float32[row, target] of whole numbers up to 256, in bfloat16 with float32 sums that are never rounded between."""
    settings = torch.backends.cuda.matmul
    before = settings.allow_bf16_reduced_precision_reduction
    settings.allow_bf16_reduced_precision_reduction = False
    try:
        with torch.autocast(payload.device.type, enabled=False):
            return torch.mm(payload.to(torch.bfloat16), weight.t(), out_dtype=torch.float32)
    finally:
        settings.allow_bf16_reduced_precision_reduction = before
