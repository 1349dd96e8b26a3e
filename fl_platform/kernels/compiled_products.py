"""What ``row_products`` compiles.

A BLAS copies both factors into a layout of its own first: for 12 rows by 100 that is most of its time. Here the rows of
the large one are multiplied where they lie, and read once, while the next ones are on their way.
"""

import numpy as np

from fl_platform.kernels.primitives import doubles, floats, inlined, integers
from fl_platform.kernels.row_products import PIECE
from fl_platform.kernels.tiles import DOT_COLUMNS, DOT_ROWS, dot_tile

dot = dot_tile(asks_ahead=True)


def row_products(
    rows: int, count: int, width: int, probes: int, num_probes: int, start: int, stop: int, found: int, work: int
) -> None:
    """Add the products of the vectors at the addresses in ``probes`` with all rows to ``found``, a line for each probe.

    The working memory holds a piece of every probe and the products of a tile.
    """
    tile = work + 4 * PIECE * num_probes
    for left in range(start, stop, PIECE):
        length = min(PIECE, stop - left)
        _collect(probes, num_probes, left, length, work)
        for row in range(0, count, DOT_COLUMNS):
            some_rows = min(DOT_COLUMNS, count - row)
            for probe in range(0, num_probes, DOT_ROWS):
                some = min(DOT_ROWS, num_probes - probe)
                _clear(tile)
                place = rows + 4 * (row * width + left)
                dot(work + 4 * probe * PIECE, PIECE, place, width, length, tile, DOT_COLUMNS, some, some_rows)
                _add(tile, some, some_rows, found + 8 * (probe * count + row), count)


@inlined
def _collect(probes: int, num_probes: int, left: int, length: int, into: int) -> None:
    places = integers(probes)
    for probe in range(num_probes):
        piece, kept = floats(places[probe] + 4 * left), floats(into + 4 * PIECE * probe)
        for k in range(length):
            kept[k] = piece[k]


@inlined
def _clear(tile: int) -> None:
    products = floats(tile)
    for k in range(DOT_ROWS * DOT_COLUMNS):
        products[k] = np.float32(0)


@inlined
def _add(tile: int, rows: int, columns: int, into: int, stride: int) -> None:
    products, total = floats(tile), doubles(into)
    for r in range(rows):
        for c in range(columns):
            total[r * stride + c] += np.float64(products[r * DOT_COLUMNS + c])
