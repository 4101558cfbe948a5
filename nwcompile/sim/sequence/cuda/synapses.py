"""Connections on a GPU: integer sums at the targets for rows of spikes, and where messages arrived.

Every kind has `row_sum`, the largest sum of magnitudes of one target's weights; `plan(low, high)`, the plan of sums for
payloads in these bounds; `sum_rows(rows, plan)`, `plan.dtype`[row, target] without `plan.bits`; and
`touched_targets(rows)`, uint8[row, target or 1]. Rows are steps of samples, [row, *source_shape].
"""

from functools import cached_property

import numpy as np
import torch

from nwcompile.ir.connection import Connection, Conv2d, Dense, pair
from nwcompile.ir.flat import csr_offset
from nwcompile.ir.network import Node
from nwcompile.kernels.gpu.sparse_sums import gather
from nwcompile.sim.sequence.cuda.product import INT32, INT64, Product, ProductPlan, verify_sum

PATCH_BYTES = 1 << 28  # Most memory for a convolution's unfolded input at a time.
GATHER_ROWS = 16  # Rows of input per program of the gather kernel, with sums in registers.
GATHER_TARGETS = 64  # Target neurons per program of the gather kernel.


def build_synapses(connection: Connection, source: Node, target: Node, device: torch.device):
    """Copy a connection to the device."""
    name = f"connection {connection.source!r} -> {connection.target!r}"
    if isinstance(connection, Dense):
        return DenseSynapses(connection, device, name)
    if isinstance(connection, Conv2d):
        return ConvSynapses(connection, source, device, name)
    return SparseSynapses(connection, target.n_sums, device, name)


class DenseSynapses:
    """One matrix product. Every spike is an event at all targets."""

    def __init__(self, connection: Dense, device: torch.device, name: str):
        self.product = Product(np.asarray(connection.weight)[None], device, name)
        self.plan, self.row_sum = self.product.plan, self.product.row_sum

    def sum_rows(self, rows: torch.Tensor, plan: ProductPlan) -> torch.Tensor:
        return self.product(rows.flatten(1), plan)

    def touched_targets(self, rows: torch.Tensor) -> torch.Tensor:
        return (rows.flatten(1) != 0).any(1, keepdim=True).to(torch.uint8)


class ConvSynapses:
    """A convolution as products of its unfolded input, as many images at a time as PATCH_BYTES allow."""

    def __init__(self, connection: Conv2d, source: Node, device: torch.device, name: str):
        self.c, self.source_shape = connection, tuple(connection.source_shape or source.shape)
        weight = np.asarray(connection.weight)
        self.n_channels = len(weight)
        self.kernel = weight.shape[2:]
        self.product = Product(
            weight.reshape(connection.groups, self.n_channels // connection.groups, -1), device, name
        )
        self.plan, self.row_sum = self.product.plan, self.product.row_sum

    def sum_rows(self, rows: torch.Tensor, plan: ProductPlan) -> torch.Tensor:
        images = rows.reshape(-1, *self.source_shape)
        size = max(1, PATCH_BYTES // (self._unfold_taps(images[:1]).numel() * images.element_size()))
        return torch.cat([self._sum_images(part, plan) for part in images.split(size)])

    def touched_targets(self, rows: torch.Tensor) -> torch.Tensor:
        images = rows.reshape(-1, *self.source_shape)
        events = (images != 0).unflatten(1, (self.c.groups, -1)).any(2).to(torch.uint8)
        reached = self._unfold_taps(events).amax((4, 5))
        return reached.repeat_interleave(self.n_channels // self.c.groups, 1).flatten(1)

    def _sum_images(self, images: torch.Tensor, plan: ProductPlan) -> torch.Tensor:
        taps = self._unfold_taps(images).unflatten(1, (self.c.groups, -1))
        parts = []
        for g in range(self.c.groups):
            patches = taps[:, g].permute(0, 2, 3, 1, 4, 5)
            sums = self.product(patches.reshape(patches.shape[:3].numel(), -1), plan, g)
            parts.append(sums.unflatten(0, patches.shape[:3]))
        return torch.cat(parts, -1).permute(0, 3, 1, 2).flatten(1)

    def _unfold_taps(self, images: torch.Tensor) -> torch.Tensor:
        """Return a view [image, channel, row, column, kernel row, kernel column] of images, padded with zeros."""
        (sh, sw) = pair(self.c.stride)
        (ph, pw) = pair(self.c.padding)
        (dh, dw) = pair(self.c.dilation)
        taps = torch.nn.functional.pad(images, (pw, pw, ph, ph))
        for axis, size, dilation, stride in ((2, self.kernel[0], dh, sh), (3, self.kernel[1], dw, sw)):
            taps = taps.unfold(axis, dilation * (size - 1) + 1, stride)
        return taps[..., ::dh, ::dw]


class SparseSynapses:
    """A list of synapses, gathered target by target. A stored zero is an event too."""

    def __init__(self, connection: Connection, n_target: int, device: torch.device, name: str):
        self.n_target, self.name = n_target, name
        pre, post, weight = (
            np.asarray(a).astype(np.int64) for a in (connection.pre, connection.post, connection.weight)
        )
        order = np.argsort(post, kind="stable")
        row = csr_offset(np.bincount(post, minlength=n_target))
        total = np.zeros(n_target, np.int64)
        np.add.at(total, post, np.abs(weight))
        self.row_sum = int(total.max())
        arrays = (row, pre[order].astype(np.int32), weight[order])
        self.row, self.source, self.weight = (torch.from_numpy(a).to(device) for a in arrays)

    def plan(self, low: int, high: int) -> ProductPlan:
        """Plan sums in 32 bits if they fit, else in 64. Raises BackendError if they exceed 62 bits."""
        largest = self.row_sum * max(-low, high)
        verify_sum(self.name, largest, INT64)
        return ProductPlan(0, 1, 1, False, largest)

    @cached_property
    def narrow_weight(self) -> torch.Tensor:
        return self.weight.to(torch.int32)

    def sum_rows(self, rows: torch.Tensor, plan: ProductPlan) -> torch.Tensor:
        is_narrow = plan.largest <= INT32 and self.row_sum <= INT32
        return self._gather_sums(rows, self.narrow_weight if is_narrow else self.weight, plan.dtype, False)

    def touched_targets(self, rows: torch.Tensor) -> torch.Tensor:
        return self._gather_sums(rows, self.weight, torch.uint8, True)

    def _gather_sums(
        self, rows: torch.Tensor, weight: torch.Tensor, number: torch.dtype, is_events: bool
    ) -> torch.Tensor:
        rows = rows.flatten(1).contiguous()
        n_rows, n_source = rows.shape
        out = torch.empty((n_rows, self.n_target), dtype=number, device=rows.device)
        n_programs = -(-n_rows // GATHER_ROWS) * -(-self.n_target // GATHER_TARGETS)
        gather[(n_programs,)](
            self.row,
            self.source,
            weight,
            rows,
            out,
            n_rows,
            n_source,
            self.n_target,
            EVENTS=is_events,
            ROWS=GATHER_ROWS,
            BLOCK=GATHER_TARGETS,
            num_warps=4,
            enable_fp_fusion=False,
        )
        return out
