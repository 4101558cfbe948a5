"""Board: several chips joined into one mesh, of `noc.chip_columns` x `noc.chip_rows` routers each."""

from math import ceil

import numpy as np

from nwcompile.ir.chip_sections import Noc


def chip_size(noc: Noc) -> tuple[int, int]:
    """Routers along x and along y of one chip; all of them where there is one chip."""
    return noc.chip_columns or noc.columns, noc.chip_rows or noc.rows


def count_chips(noc: Noc) -> tuple[int, int]:
    """Chips along x and along y, those cut off at an edge among them; (1, 1) where there is one chip."""
    columns, rows = chip_size(noc)
    return ceil(noc.columns / columns), ceil(noc.rows / rows)


def chips_used(noc: Noc, site_of: np.ndarray) -> int:
    """How many chips have at least one of the sites int[core, 3] (x, y, port)."""
    columns, rows = chip_size(noc)
    return len(np.unique(np.asarray(site_of, np.int64)[:, :2] // (columns, rows), axis=0))


def fewest_chips(noc: Noc, n_cores: int) -> tuple[int, int]:
    """The rectangle of chips, along x and along y, that holds `n_cores` with the fewest chips, the squarest of these.

    All chips where no rectangle of them holds so many.
    """
    (columns, rows), (most_x, most_y) = chip_size(noc), count_chips(noc)
    rectangles = ((x, y) for x in range(1, most_x + 1) for y in range(1, most_y + 1))
    n_routers = {(x, y): min(x * columns, noc.columns) * min(y * rows, noc.rows) for x, y in rectangles}
    large = [xy for xy, n in n_routers.items() if n * noc.cores_per_router >= n_cores]
    return min(large, key=lambda xy: (xy[0] * xy[1], xy[0] + xy[1], xy[1]), default=(most_x, most_y))
