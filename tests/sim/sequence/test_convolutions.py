"""Convolutions of whole sequences: spike by spike and as matrix products they give the reference's sums."""

import numpy as np
import pytest

from nwcompile.ir.connection import Conv2d
from nwcompile.sim.reference.synaptic_sums import apply_connection, unit_connection
from nwcompile.sim.sequence import run

GEOMETRY = [
    {}, {"padding": 1}, {"stride": 2}, {"stride": (2, 3), "padding": (1, 2)}, {"dilation": 2, "padding": 2},
    {"groups": 2}, {"groups": 4, "stride": 2, "padding": (2, 0), "dilation": (1, 2)}, {"source_shape": (4, 9, 7)},
]  # fmt: skip


@pytest.mark.parametrize("sparse_share", [0, 1 << 40], ids=["by spikes", "as products"])
@pytest.mark.parametrize("geometry", GEOMETRY, ids=str)
def test_a_convolution_gives_the_references_sums_and_events(geometry, sparse_share, monkeypatch):
    monkeypatch.setattr(run, "SPARSE_SHARE", sparse_share)
    rng, groups = np.random.default_rng(len(str(geometry))), geometry.get("groups", 1)
    weight = rng.integers(-9, 10, (8, 4 // groups, 3, 2)).astype(np.int8)
    c = Conv2d("a", "b", weight, **geometry)
    shape = (7, 36) if "source_shape" in geometry else (4, 9, 7)
    x = rng.integers(-300, 301, (2, 3, *shape)) * (rng.random((2, 3, *shape)) < 0.1)
    target = c.output_shape(shape)
    n = int(np.prod(target))
    drive, touched = np.zeros((2, 5, n + 3), np.int64), np.zeros((2, 5, n + 3), np.uint8)
    run._add_drive(c, x, drive[:, 2:, 1:-2], touched[:, 2:, 1:-2])
    for b in range(2):
        sums, events = apply_connection(c, x[b], target), apply_connection(unit_connection(c), (x[b] != 0) * 1, target)
        np.testing.assert_array_equal(drive[b, 2:, 1:-2], sums.reshape(3, -1))
        np.testing.assert_array_equal(touched[b, 2:, 1:-2], events.reshape(3, -1) > 0)
    assert not drive[:, :2].any() and not drive[:, :, 0].any() and not touched[:, :, -2:].any()


def test_a_convolution_in_several_parts_gives_the_same_sums(monkeypatch):
    rng = np.random.default_rng(5)
    c = Conv2d("a", "b", rng.integers(-9, 10, (3, 2, 3, 3)).astype(np.int8), padding=1)
    x = rng.integers(0, 2, (5, 7, 2, 6, 6))
    sums = {}
    for entries in (run.PATCH_ENTRIES, 1, 5 * 2 * 9 * 36):
        monkeypatch.setattr(run, "PATCH_ENTRIES", entries)
        drive, touched = np.zeros((5, 7, 108), np.int64), np.zeros((5, 7, 108), np.uint8)
        run._add_drive(c, x, drive, touched)
        sums[entries] = drive
    whole, *parts = sums.values()
    assert whole.any() and all(np.array_equal(whole, part) for part in parts)
