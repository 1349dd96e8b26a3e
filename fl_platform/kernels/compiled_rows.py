"""What the gradients of convolutions are summed from: rows with a gradient each, noted, added and put in order."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fl_platform.kernels.convolution_gradient_tiles import IN_ORDER, NUMBERS, rows_tile
from fl_platform.kernels.primitives import floats, inlined, inlined_as, pointer, rounded

VECTORS = 5
"""Vectors of a row in the larger tiles."""
LANE_OF = np.array(IN_ORDER)


def adding(is_narrow: bool) -> Callable[..., None]:
    """Make a function that adds rows with their gradients, in vectors and what is left."""
    of_a_vector = NUMBERS if is_narrow else NUMBERS // 2
    wide, flat = (rows_tile(rows, VECTORS, is_narrow) for rows in (2, 1))
    add_column, add_rest = adding_a_column(is_narrow, is_half=False), adding_a_column(is_narrow, is_half=is_narrow)

    @inlined_as("nnnnnnnnnnn")
    def add_all(
        entries: int,
        step: int,
        apart: int,
        pairs: int,
        source: int,
        stride: int,
        source_line: int,
        rows: int,
        length: int,
        into: int,
        line: int,
    ) -> None:
        vectors, vector = length // of_a_vector, 0
        if is_narrow and length % of_a_vector > of_a_vector // 2:
            vectors += 1
        while vector + VECTORS <= vectors:
            at, to, row = source + 64 * vector, into + 4 * of_a_vector * vector, 0
            while row + 2 <= rows:
                wide(
                    *(entries, step, apart, pairs, at + row * source_line, stride, source_line),
                    *(to + row * line, line),
                )
                row += 2
            if row < rows:
                flat(
                    *(entries, step, apart, pairs, at + row * source_line, stride, source_line),
                    *(to + row * line, line),
                )
            vector += VECTORS
        while vector < vectors:
            at, to = source + 64 * vector, into + 4 * of_a_vector * vector
            add_column(entries, step, apart, pairs, at, stride, source_line, rows, to, line)
            vector += 1
        if vector * of_a_vector < length:
            at, to = source + 64 * vector, into + 4 * of_a_vector * vector
            add_rest(entries, step, apart, pairs, at, stride, source_line, rows, to, line)

    made: Callable[..., None] = add_all
    return made


def adding_a_column(is_narrow: bool, is_half: bool) -> Callable[..., None]:
    """Make a function that does it for one vector of each row, or half of one."""
    five, three, one = (rows_tile(rows, 1, is_narrow, is_half) for rows in (5, 3, 1))

    @inlined
    def add_column(
        entries: int,
        step: int,
        apart: int,
        pairs: int,
        source: int,
        stride: int,
        source_line: int,
        rows: int,
        into: int,
        line: int,
    ) -> None:
        row = 0
        while row + 5 <= rows:
            at, to = source + row * source_line, into + row * line
            five(entries, step, apart, pairs, at, stride, source_line, to, line)
            row += 5
        while row + 3 <= rows:
            at, to = source + row * source_line, into + row * line
            three(entries, step, apart, pairs, at, stride, source_line, to, line)
            row += 3
        while row < rows:
            at, to = source + row * source_line, into + row * line
            one(entries, step, apart, pairs, at, stride, source_line, to, line)
            row += 1

    made: Callable[..., None] = add_column
    return made


@inlined
def clear(place: int, count: int) -> None:
    """Write zeros."""
    numbers = floats(place)
    for k in range(count):
        numbers[k] = np.float32(0)


def packing(is_narrow: bool) -> Callable[..., None]:
    """Make a function that puts weights in order."""
    write = write_narrow if is_narrow else write_float

    @inlined
    def pack_rows(weight: int, outputs: int, channels: int, kernel_rows: int, kernel_columns: int, into: int) -> None:
        """Write weights by output, row, column and channel."""
        numbers, k = floats(weight), 0
        for output in range(outputs):
            for channel in range(channels):
                for row in range(kernel_rows):
                    for column in range(kernel_columns):
                        place = ((output * kernel_rows + row) * kernel_columns + column) * channels + channel
                        write(into, place, numbers[k])
                        k += 1

    made: Callable[..., None] = pack_rows
    return made


@inlined
def write_float(into: int, place: int, number: Any) -> None:
    """Write a number."""
    floats(into)[place] = number


@inlined
def write_narrow(into: int, place: int, number: Any) -> None:
    """Write a number in bfloat16."""
    pointer(into, np.uint16(0))[place] = rounded(number)


def noting(is_narrow: bool) -> Callable[..., None]:
    """Make a function that lists which pixels have gradients."""
    note, half = note_narrow if is_narrow else note_float, np.uint32(16 if is_narrow else 0)

    @inlined
    def note_entries(
        gradient: int,
        which: int,
        images: int,
        rows: int,
        columns: int,
        height: int,
        width: int,
        outputs: int,
        entries: int,
        factors: int,
        into_bias: int,
    ) -> None:
        """For all maxima the pixel that has the gradient, and it, in an even number of rows; and the sum of gradients.

        Gradients are apart from the pixels, among ``factors``; those of bfloat16 beside them.
        """
        places, noted, terms, k = pointer(which, np.uint8(0)), pointer(entries, np.uint32(0)), floats(into_bias), 0
        for image in range(images):
            for row in range(rows):
                for column in range(columns):
                    corner = np.uint32((image * height + 2 * row) * width + 2 * column)
                    for output in range(outputs):
                        place = np.uint32(places[k + output])
                        below = np.uint32(np.uint32((place >> np.uint32(1)) & np.uint32(1)) * np.uint32(width))
                        pixel = np.uint32(corner + below + (place & np.uint32(1)))
                        terms[output] += note(gradient, place < np.uint32(4), pixel, entries, factors, k + output)
                    k += outputs
        if images * rows * columns % 2:
            for output in range(outputs):
                note(gradient, False, noted[k + output - outputs] >> half, entries, factors, k + output)

    made: Callable[..., None] = note_entries
    return made


@inlined
def note_float(gradient: int, is_some: bool, pixel: Any, entries: int, factors: int, k: int) -> Any:
    """Write a pixel and its gradient; returns that."""
    number = floats(gradient)[k] if is_some else np.float32(0)
    pointer(entries, np.uint32(0))[k], floats(factors)[k] = pixel, number
    return number


@inlined
def note_narrow(gradient: int, is_some: bool, pixel: Any, entries: int, factors: int, k: int) -> Any:
    """``note_float`` in bfloat16, both in one number."""
    number = np.uint32(pointer(gradient, np.uint16(0))[k]) if is_some else np.uint32(0)
    pointer(entries, np.uint32(0))[k] = np.uint32(pixel << np.uint32(16)) | number
    return np.uint32(number << np.uint32(16)).view(np.float32)


@inlined
def take_apart(
    sums: int,
    outputs: int,
    channels: int,
    kernel_rows: int,
    kernel_columns: int,
    line: int,
    is_narrow: int,
    into: int,
) -> None:
    """The sums of all weights as the layer has them."""
    found, made, length = floats(sums), floats(into), kernel_columns * channels
    paired = 0
    if is_narrow:
        paired = length if length % NUMBERS > NUMBERS // 2 else length // NUMBERS * NUMBERS
    for output in range(outputs):
        for row in range(kernel_rows):
            start, k = (output * kernel_rows + row) * line, 0
            for column in range(kernel_columns):
                place = (output * channels * kernel_rows + row) * kernel_columns + column
                for _ in range(channels):
                    lane = k // NUMBERS * NUMBERS + LANE_OF[k % NUMBERS] if k < paired else k
                    made[place] = found[start + lane]
                    place += kernel_rows * kernel_columns
                    k += 1
