"""A linear layer and its derivatives, of the tiles in ``tiles``; samples are rows."""

import numpy as np

from fl_platform.kernels.machine_code import LANES
from fl_platform.kernels.primitives import floats, inlined, inlined_as
from fl_platform.kernels.tiles import DOT_COLUMNS, DOT_ROWS, WIDTHS, dot_tile, outer_tile

LENGTH = 1024
"""Longest sum of one tile of ``dot``: its rows stay in the first cache."""
DEPTH = 256
"""Longest sum of one tile of ``outer`` where rows of b are many."""
PANEL = 64
"""Rows of weights that all samples are multiplied with before the next ones: they stay in the second cache."""
(WIDE, WIDE_ROWS), (MIDDLE, MIDDLE_ROWS), (NARROW, NARROW_ROWS) = WIDTHS
dot = dot_tile(asks_ahead=False)
wide = outer_tile(WIDE, WIDE_ROWS, is_masked=False)
middle = outer_tile(MIDDLE, MIDDLE_ROWS, is_masked=False)
narrow = outer_tile(NARROW, NARROW_ROWS, is_masked=True)


def forward(x: int, weight: int, bias: int, into: int, samples: int, inputs: int, outputs: int) -> None:
    """Write x W^T + b; b is zero without an address."""
    linear(x, weight, bias, into, samples, inputs, outputs)


def backward(
    gradient: int, x: int, weight: int, of_x: int, of_weight: int, samples: int, inputs: int, outputs: int
) -> None:
    """Write the derivatives of a layer by its input and its weight, those that have an address."""
    if of_x:
        outer(gradient, outputs, 1, weight, samples, outputs, inputs, of_x, DEPTH, 0, 0.0)
    if of_weight:
        outer(gradient, 1, outputs, x, outputs, samples, inputs, of_weight, DEPTH, 0, 0.0)


@inlined
def linear(x: int, weight: int, bias: int, into: int, samples: int, inputs: int, outputs: int) -> None:
    """x W^T + b; b is zero without an address."""
    made, added = floats(into), floats(bias)
    for sample in range(samples):
        for k in range(outputs):
            made[sample * outputs + k] = added[k] if bias else np.float32(0)
    for start in range(0, inputs, LENGTH):
        length = min(LENGTH, inputs - start)
        for first in range(0, outputs, PANEL):
            last = min(first + PANEL, outputs)
            for row in range(0, samples, DOT_ROWS):
                for column in range(first, last, DOT_COLUMNS):
                    dot(
                        x + 4 * (row * inputs + start),
                        inputs,
                        weight + 4 * (column * inputs + start),
                        inputs,
                        length,
                        into + 4 * (row * outputs + column),
                        outputs,
                        min(DOT_ROWS, samples - row),
                        min(DOT_COLUMNS, last - column),
                    )


@inlined_as("nnnnnnnnnnx")
def outer(
    a: int,
    row_stride: int,
    k_stride: int,
    b: int,
    rows: int,
    length: int,
    columns: int,
    into: int,
    depth: int,
    base: int,
    scale: float,
) -> None:
    """a b, or base + scale a b where there is a base, in sums of ``depth``; rows of b and of the result are ``columns``
    long."""
    factor = np.float32(scale) if base else np.float32(1)
    for start in range(0, max(length, 1), depth):  # once for no samples, too: their sum is zero
        left, right = a + 4 * start * k_stride, b + 4 * start * columns
        count, column, added_to = min(depth, length - start), 0, into if start else base
        while column + WIDE * LANES <= columns:
            for r in range(0, rows, WIDE_ROWS):
                at, some, place = left + 4 * r * row_stride, min(WIDE_ROWS, rows - r), 4 * (r * columns + column)
                to, on = into + place, added_to + place if added_to else 0
                wide(at, row_stride, k_stride, right + 4 * column, columns, count, to, columns, some, 0, on, factor)
            column += WIDE * LANES
        while column + MIDDLE * LANES <= columns:
            for r in range(0, rows, MIDDLE_ROWS):
                at, some, place = left + 4 * r * row_stride, min(MIDDLE_ROWS, rows - r), 4 * (r * columns + column)
                to, on = into + place, added_to + place if added_to else 0
                middle(at, row_stride, k_stride, right + 4 * column, columns, count, to, columns, some, 0, on, factor)
            column += MIDDLE * LANES
        while column < columns:
            rest = min(NARROW * LANES, columns - column)
            for r in range(0, rows, NARROW_ROWS):
                at, some, place = left + 4 * r * row_stride, min(NARROW_ROWS, rows - r), 4 * (r * columns + column)
                to, on = into + place, added_to + place if added_to else 0
                narrow(
                    at, row_stride, k_stride, right + 4 * column, columns, count, to, columns, some, rest, on, factor
                )
            column += NARROW * LANES
