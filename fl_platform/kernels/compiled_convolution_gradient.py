"""The gradients of ``compiled_convolution``: of weights and bias, and of images whose channels fill vectors.

A maximum's gradient goes to one of its four pixels, and where ReLU left nothing to none; only what these four add is
multiplied, a quarter of what the gradient of a convolution takes.
"""

import numpy as np

from fl_platform.kernels.bfloat16_rows import IN_ORDER, NUMBERS, list_pixels, put_in_order, rows_tile, window_tile
from fl_platform.kernels.compiled_convolution import narrow_image, rounded
from fl_platform.kernels.primitives import floats, inlined, inlined_as, pointer

VECTORS = 5
"""Vectors of a row in the larger tiles."""
wide, flat = rows_tile(2, VECTORS, is_half=False), rows_tile(1, VECTORS, is_half=False)
five, three, one = rows_tile(5, 1, is_half=False), rows_tile(3, 1, is_half=False), rows_tile(1, 1, is_half=False)
half_five, half_three, half_one = (
    rows_tile(5, 1, is_half=True),
    rows_tile(3, 1, is_half=True),
    rows_tile(1, 1, is_half=True),
)
window_of_3, window_of_5 = window_tile(3), window_tile(5)
LANE_OF = np.array(IN_ORDER)


def of_weight(
    gradient: int,
    which: int,
    x: int,
    is_float: int,
    images: int,
    channels: int,
    height: int,
    width: int,
    outputs: int,
    kernel_rows: int,
    kernel_columns: int,
    into: int,
    into_bias: int,
    block: int,
    room: int,
    entries: int,
    sums: int,
) -> None:
    """Write the gradients of weights and bias, so many images at a time as ``block`` says.

    ``room`` is for the numbers of a block in bfloat16 and 64 bytes, ``entries`` for as many int32 as a block has maxima
    and those of a pixel more, ``sums`` for 128 bytes for each row of 32 weights.
    """
    rows, columns = (height - kernel_rows + 1) // 2, (width - kernel_columns + 1) // 2
    numbers, length = height * width * channels, kernel_columns * channels
    line = (length + NUMBERS - 1) // NUMBERS * NUMBERS
    clear(sums, outputs * kernel_rows * line)
    clear(into_bias, outputs)
    for first in range(0, images, block):
        some = min(block, images - first)
        source = x + (4 if is_float else 2) * first * numbers
        if is_float:
            narrow_image(source, some * numbers, room)
            source = room
        start = first * rows * columns * outputs
        note_entries(
            gradient + 2 * start, which + start, some, rows, columns, height, width, outputs, entries, into_bias
        )
        pairs = (some * rows * columns + 1) // 2
        for output in range(outputs):
            add_all(
                entries + 4 * output,
                4 * outputs,
                pairs,
                source,
                2 * channels,
                2 * width * channels,
                kernel_rows,
                length,
                sums + 4 * output * kernel_rows * line,
                4 * line,
            )
    take_apart(sums, outputs, channels, kernel_rows, kernel_columns, line, into)


def of_images(
    gradient: int,
    which: int,
    images: int,
    channels: int,
    height: int,
    width: int,
    weight: int,
    outputs: int,
    kernel_rows: int,
    kernel_columns: int,
    into: int,
    packed: int,
    lists: int,
    pairs: int,
    sums: int,
) -> None:
    """Write the gradient of images in bfloat16, for a multiple of 32 channels and kernels of 3 or 5 columns.

    ``packed`` is for the weights in bfloat16, ``lists`` for four times as many int32 as an image has maxima and 16
    more for each, ``pairs`` for four int64 for the maxima of a channel, ``sums`` for an image in float32.
    """
    rows, columns = (height - kernel_rows + 1) // 2, (width - kernel_columns + 1) // 2
    numbers, cells, most = height * width * channels, rows * columns, outputs + 16
    line = 2 * kernel_columns * channels
    pack_rows(weight, outputs, channels, kernel_rows, kernel_columns, packed)
    for image in range(images):
        clear(sums, numbers)
        for cell in range(cells):
            start = (image * cells + cell) * outputs
            list_pixels(gradient + 2 * start, which + start, outputs, most, lists + 16 * cell * most, pairs + 32 * cell)
        for row in range(kernel_rows + 1):
            is_upper, is_lower = 1 if row < kernel_rows else 0, 1 if row > 0 else 0
            for cell in range(cells):
                pixel = (2 * (cell // columns) + row) * width + 2 * (cell % columns)
                listed, counts = lists + 16 * cell * most, pairs + 32 * cell
                for channel in range(0, channels, NUMBERS):
                    source, to = packed + row * line + 2 * channel, sums + 4 * (pixel * channels + channel)
                    stride, apart = kernel_rows * line, 2 * channels
                    if kernel_columns == 5:
                        window_of_5(listed, most, counts, source, stride, line, apart, is_upper, is_lower, to)
                    else:
                        window_of_3(listed, most, counts, source, stride, line, apart, is_upper, is_lower, to)
        for first in range(0, numbers, NUMBERS):
            put_in_order(sums + 4 * first, into + 2 * (image * numbers + first))


@inlined
def clear(place: int, count: int) -> None:
    """Write zeros."""
    numbers = floats(place)
    for k in range(count):
        numbers[k] = np.float32(0)


@inlined
def pack_rows(weight: int, outputs: int, channels: int, kernel_rows: int, kernel_columns: int, into: int) -> None:
    """Write weights in bfloat16 by output, row, column and channel."""
    numbers, found, k = floats(weight), pointer(into, np.uint16(0)), 0
    for output in range(outputs):
        for channel in range(channels):
            for row in range(kernel_rows):
                for column in range(kernel_columns):
                    place = ((output * kernel_rows + row) * kernel_columns + column) * channels + channel
                    found[place] = rounded(numbers[k])
                    k += 1


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
    into_bias: int,
) -> None:
    """For all maxima the pixel that has the gradient, with it, in an even number of rows; and the sum of gradients."""
    numbers, places = pointer(gradient, np.uint16(0)), pointer(which, np.uint8(0))
    noted, terms, k = pointer(entries, np.uint32(0)), floats(into_bias), 0
    for image in range(images):
        for row in range(rows):
            for column in range(columns):
                corner = np.uint32((image * height + 2 * row) * width + 2 * column)
                for output in range(outputs):
                    place = np.uint32(places[k + output])
                    number = np.uint32(numbers[k + output]) if place < np.uint32(4) else np.uint32(0)
                    below = np.uint32(np.uint32((place >> np.uint32(1)) & np.uint32(1)) * np.uint32(width))
                    pixel = np.uint32(corner + below + (place & np.uint32(1)))
                    noted[k + output] = np.uint32(pixel << np.uint32(16)) | number
                    terms[output] += np.uint32(number << np.uint32(16)).view(np.float32)
                k += outputs
    if images * rows * columns % 2:
        for output in range(outputs):
            noted[k + output] = noted[k + output - outputs] & np.uint32(0xFFFF0000)


@inlined_as("nnnnnnnnnn")
def add_all(
    entries: int,
    step: int,
    pairs: int,
    source: int,
    stride: int,
    source_line: int,
    rows: int,
    length: int,
    into: int,
    line: int,
) -> None:
    """Add rows with their gradients, in vectors and what is left."""
    rest = length % NUMBERS
    vectors, vector = length // NUMBERS + (1 if rest > NUMBERS // 2 else 0), 0
    while vector + VECTORS <= vectors:
        at, to, row = source + 2 * NUMBERS * vector, into + 4 * NUMBERS * vector, 0
        while row + 2 <= rows:
            wide(entries, step, pairs, at + row * source_line, stride, source_line, to + row * line, line)
            row += 2
        if row < rows:
            flat(entries, step, pairs, at + row * source_line, stride, source_line, to + row * line, line)
        vector += VECTORS
    while vector < vectors:
        at, to, row = source + 2 * NUMBERS * vector, into + 4 * NUMBERS * vector, 0
        while row + 5 <= rows:
            five(entries, step, pairs, at + row * source_line, stride, source_line, to + row * line, line)
            row += 5
        while row + 3 <= rows:
            three(entries, step, pairs, at + row * source_line, stride, source_line, to + row * line, line)
            row += 3
        while row < rows:
            one(entries, step, pairs, at + row * source_line, stride, source_line, to + row * line, line)
            row += 1
        vector += 1
    if 0 < rest <= NUMBERS // 2:
        at, to, row = source + 2 * NUMBERS * vector, into + 4 * NUMBERS * vector, 0
        while row + 5 <= rows:
            half_five(entries, step, pairs, at + row * source_line, stride, source_line, to + row * line, line)
            row += 5
        while row + 3 <= rows:
            half_three(entries, step, pairs, at + row * source_line, stride, source_line, to + row * line, line)
            row += 3
        while row < rows:
            half_one(entries, step, pairs, at + row * source_line, stride, source_line, to + row * line, line)
            row += 1


@inlined
def take_apart(
    sums: int, outputs: int, channels: int, kernel_rows: int, kernel_columns: int, line: int, into: int
) -> None:
    """The sums of all weights as the layer has them."""
    found, made, length = floats(sums), floats(into), kernel_columns * channels
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
