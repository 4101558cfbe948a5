"""Boards: several chips joined into one mesh, with `noc.chip_columns` x `noc.chip_rows` routers each."""

from math import ceil

import numpy as np

from nwcompile.ir.chip_sections import Noc


def chip_size(noc: Noc) -> tuple[int, int]:
    """Return the routers of one chip along x and y; all routers if there is one chip."""
    return noc.chip_columns or noc.columns, noc.chip_rows or noc.rows


def count_chips(noc: Noc) -> tuple[int, int]:
    """Count chips along x and y, including partial ones at an edge; (1, 1) for one chip."""
    columns, rows = chip_size(noc)
    return ceil(noc.columns / columns), ceil(noc.rows / rows)


def chips_used(noc: Noc, site_of: np.ndarray) -> int:
    """Number of chips with at least one of the sites int[core, 3] (x, y, port)."""
    columns, rows = chip_size(noc)
    return len(np.unique(np.asarray(site_of, np.int64)[:, :2] // (columns, rows), axis=0))


def fewest_chips(noc: Noc, n_cores: int) -> tuple[int, int]:
    """Smallest rectangle of chips (along x, along y) that holds `n_cores`; the squarest one on ties.

    Returns all chips if no rectangle holds `n_cores`.
    """
    (columns, rows), (most_x, most_y) = chip_size(noc), count_chips(noc)
    rectangles = ((x, y) for x in range(1, most_x + 1) for y in range(1, most_y + 1))
    n_routers = {(x, y): min(x * columns, noc.columns) * min(y * rows, noc.rows) for x, y in rectangles}
    large = [xy for xy, n in n_routers.items() if n * noc.cores_per_router >= n_cores]
    return min(large, key=lambda xy: (xy[0] * xy[1], xy[0] + xy[1], xy[1]), default=(most_x, most_y))
