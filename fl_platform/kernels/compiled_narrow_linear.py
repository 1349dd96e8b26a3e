"""A linear layer and its derivatives with factors of bfloat16; samples are rows, sums are float32.

Weights, and inputs that are float32, are rounded on the way, some rows or columns at a time, in the second cache. Where
rows of a factor are summed over they lie in pairs: each number beside that of the next row, zero after the last.
"""

from typing import Any

import numpy as np

from fl_platform.kernels.compiled_convolution import rounded
from fl_platform.kernels.compiled_linear import DEPTH, LENGTH, outer_of
from fl_platform.kernels.linear import BLOCK, PANEL
from fl_platform.kernels.narrow_tiles import narrow_tile, pair_tile
from fl_platform.kernels.primitives import floats, inlined, pointer
from fl_platform.kernels.tiles import DOT_COLUMNS, DOT_ROWS, dot_tile

dot = dot_tile(asks_ahead=False, is_narrow=True)
outer = outer_of(is_narrow=True)
pair_floats, pair_some_floats = (pair_tile(is_float=True, is_masked=is_masked) for is_masked in (False, True))
pair_narrow, pair_some_narrow = (pair_tile(is_float=False, is_masked=is_masked) for is_masked in (False, True))


def forward(
    x: int,
    is_float: int,
    weight: int,
    bias: int,
    into: int,
    samples: int,
    inputs: int,
    outputs: int,
    room: int,
    panel: int,
    sums: int,
) -> None:
    """Write x W^T + b in bfloat16; b is zero without an address.

    ``room`` is for x where it is float32; ``panel`` for PANEL rows of the weight, and ``sums`` for all samples' sums
    with them.
    """
    given = x
    if is_float:
        narrow(x, samples * inputs, room)
        given = room
    for first in range(0, outputs, PANEL):
        width = min(PANEL, outputs - first)
        narrow(weight + 4 * first * inputs, width * inputs, panel)
        begin(bias + 4 * first if bias else 0, samples, width, sums)
        for start in range(0, inputs, 2 * LENGTH):
            length = min(2 * LENGTH, inputs - start)
            for row in range(0, samples, DOT_ROWS):
                for column in range(0, width, DOT_COLUMNS):
                    dot(
                        given + 2 * (row * inputs + start),
                        inputs,
                        panel + 2 * (column * inputs + start),
                        inputs,
                        length,
                        sums + 4 * (row * width + column),
                        width,
                        min(DOT_ROWS, samples - row),
                        min(DOT_COLUMNS, width - column),
                    )
        put(sums, samples, width, into + 2 * first, outputs, 0)


def backward(
    gradient: int,
    x: int,
    is_float: int,
    weight: int,
    of_x: int,
    of_weight: int,
    samples: int,
    inputs: int,
    outputs: int,
    room: int,
    panel: int,
    sums: int,
) -> None:
    """Write the derivatives of a layer by its input, in its type, and by its weight, those that have an address.

    ``room`` is for the pairs of a gradient, ``panel`` for those of all outputs' weights of BLOCK inputs or for those of
    x, and ``sums`` for BLOCK of each sample.
    """
    if of_x:
        half, rows = (outputs + 1) // 2, gradient
        if outputs % 2:
            pad(gradient, samples, outputs, room)
            rows = room
        for first in range(0, inputs, BLOCK):
            width = min(BLOCK, inputs - first)
            pair_rows(weight + 4 * first, 1, outputs, inputs, width, panel)
            outer(rows, half, 1, panel, samples, half, width, sums, DEPTH, 0, 0.0, 0)
            put(sums, samples, width, of_x + (4 if is_float else 2) * first, inputs, is_float)
    if of_weight:
        half = (samples + 1) // 2
        pair_rows(gradient, 0, samples, outputs, outputs, room)
        pair_rows(x, is_float, samples, inputs, inputs, panel)
        outer(room, 1, outputs, panel, outputs, half, inputs, of_weight, half, 0, 0.0, 0)


@inlined
def narrow(x: int, count: int, into: int) -> None:
    """Round float32 numbers to bfloat16."""
    numbers, made, whole = floats(x), pointer(into, np.uint16(0)), count // 32 * 32
    for k in range(0, whole, 32):
        narrow_tile(x + 4 * k, into + 2 * k)
    for k in range(whole, count):
        made[k] = rounded(numbers[k])


@inlined
def begin(bias: int, samples: int, width: int, sums: int) -> None:
    """The rounded bias as every sample's sums; zero without an address."""
    terms, made = floats(bias), floats(sums)
    for k in range(width):
        made[k] = widened(rounded(terms[k])) if bias else np.float32(0)
    for sample in range(1, samples):
        for k in range(width):
            made[sample * width + k] = made[k]


@inlined
def widened(bits: Any) -> Any:
    """The number that bits of bfloat16 are."""
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@inlined
def put(sums: int, samples: int, width: int, into: int, stride: int, is_float: int) -> None:
    """Write all samples' sums, rounded where they are not to be float32, to rows ``stride`` numbers apart."""
    for sample in range(samples):
        numbers = floats(sums + 4 * sample * width)
        if is_float:
            wide = floats(into + 4 * sample * stride)
            for k in range(width):
                wide[k] = numbers[k]
        else:
            made = pointer(into + 2 * sample * stride, np.uint16(0))
            for k in range(width):
                made[k] = rounded(numbers[k])


@inlined
def pad(gradient: int, samples: int, outputs: int, into: int) -> None:
    """Write rows of an odd number of bfloat16, followed by a zero each."""
    for sample in range(samples):
        read = pointer(gradient + 2 * sample * outputs, np.uint16(0))
        made = pointer(into + 2 * sample * (outputs + 1), np.uint16(0))
        for k in range(outputs):
            made[k] = read[k]
        made[outputs] = np.uint16(0)


@inlined
def pair_rows(x: int, is_float: int, rows: int, stride: int, columns: int, into: int) -> None:
    """Write so many columns of rows that are ``stride`` numbers apart, in pairs."""
    size, whole = 4 if is_float else 2, columns // 16 * 16
    for row in range(0, rows, 2):
        place, made = x + size * row * stride, into + 4 * (row // 2) * columns
        if row + 1 == rows:
            follow_by_zeros(place, is_float, columns, made)
            continue
        other = place + size * stride
        if is_float:
            for k in range(0, whole, 16):
                pair_floats(place + 4 * k, other + 4 * k, made + 4 * k, 16)
            if whole < columns:
                pair_some_floats(place + 4 * whole, other + 4 * whole, made + 4 * whole, columns - whole)
        else:
            for k in range(0, whole, 16):
                pair_narrow(place + 2 * k, other + 2 * k, made + 4 * k, 16)
            if whole < columns:
                pair_some_narrow(place + 2 * whole, other + 2 * whole, made + 4 * whole, columns - whole)


@inlined
def follow_by_zeros(x: int, is_float: int, count: int, into: int) -> None:
    """Write numbers of bfloat16, or rounded to it, each followed by a zero."""
    made, wide, read = pointer(into, np.uint32(0)), floats(x), pointer(x, np.uint16(0))
    for k in range(count):
        made[k] = np.uint32(rounded(wide[k])) if is_float else np.uint32(read[k])
