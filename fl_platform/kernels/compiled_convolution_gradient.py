"""The gradients of ``compiled_convolution``: of weights and bias, and of images whose channels fill vectors.

A maximum's gradient goes to one of its four pixels, and where ReLU left nothing to none; only what these four add is
multiplied, a quarter of what the gradient of a convolution takes.
"""

from collections.abc import Callable

import numpy as np

from fl_platform.kernels.compiled_convolution import narrow_image, rounded
from fl_platform.kernels.convolution_gradient_tiles import (
    IN_ORDER,
    NUMBERS,
    list_tile,
    put_in_order,
    rows_tile,
    window_tile,
)
from fl_platform.kernels.primitives import floats, inlined, inlined_as, pointer

VECTORS = 5
"""Vectors of a row in the larger tiles."""
HALVES = 5
"""Rows of at most one vector in one tile; of bfloat16 of less than one."""
LANE_OF = np.array(IN_ORDER)


def of_weight_in(is_narrow: bool) -> Callable[..., None]:
    """Make the gradient of weights and bias with products in bfloat16 or in float32."""
    size, of_a_vector, add_all = 2 if is_narrow else 4, NUMBERS if is_narrow else NUMBERS // 2, adding(is_narrow)

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

        ``room`` is for the numbers of a block and 64 bytes, ``entries`` for as many int32, in float32 twice as many, as
        a block has maxima and those of a pixel more, ``sums`` for 128 bytes for each row of 32 weights.
        """
        rows, columns = (height - kernel_rows + 1) // 2, (width - kernel_columns + 1) // 2
        numbers, length = height * width * channels, kernel_columns * channels
        line, apart = (length + NUMBERS - 1) // NUMBERS * NUMBERS, 4 * outputs * (block * rows * columns + 1)
        clear(sums, outputs * kernel_rows * line)
        clear(into_bias, outputs)
        for first in range(0, images, block):
            some, start = min(block, images - first), first * rows * columns * outputs
            source = x + (4 if is_float else 2) * first * numbers
            if is_narrow and is_float:
                narrow_image(source, some * numbers, room)
                source = room
            elif length % of_a_vector and first + some == images:  # vectors reach beyond a row: not beyond all
                copy(source, some * numbers, room)
                source = room
            if is_narrow:
                note_pairs(
                    *(gradient + 2 * start, which + start, some, rows, columns, height, width),
                    *(outputs, entries, into_bias),
                )
            else:
                note_entries(
                    *(gradient + 4 * start, which + start, some, rows, columns, height, width),
                    *(outputs, entries, entries + apart, into_bias),
                )
            for output in range(outputs):
                add_all(
                    *(entries + 4 * output, 4 * outputs, apart, (some * rows * columns + 1) // 2),
                    *(source, size * channels, size * width * channels),
                    *(kernel_rows, length, sums + 4 * output * kernel_rows * line, 4 * line),
                )
        take_apart(sums, outputs, channels, kernel_rows, kernel_columns, line, is_narrow, into)

    return of_weight


def of_images_in(is_narrow: bool) -> Callable[..., None]:
    """Make the gradient of images in bfloat16 or in float32."""
    size, of_a_vector, list_pixels = 2 if is_narrow else 4, NUMBERS if is_narrow else NUMBERS // 2, list_tile(is_narrow)
    window_of_3, window_of_5 = window_tile(3, is_narrow), window_tile(5, is_narrow)

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
        room: int,
    ) -> None:
        """Write the gradient of images, for a multiple of 32 channels and kernels of 3 or 5 columns.

        ``packed`` is for the weights, ``lists`` for four times as many int32, in float32 eight times as many, as an
        image has maxima and 16 more for each, ``pairs`` for four int64 for the maxima of a channel, ``room`` for an
        image in float32.
        """
        rows, columns = (height - kernel_rows + 1) // 2, (width - kernel_columns + 1) // 2
        numbers, cells, most = height * width * channels, rows * columns, outputs + 16
        line, apart = size * kernel_columns * channels, 16 * cells * most
        if is_narrow:
            pack_narrow_rows(weight, outputs, channels, kernel_rows, kernel_columns, packed)
        else:
            pack_rows(weight, outputs, channels, kernel_rows, kernel_columns, packed)
        for image in range(images):
            sums = room if is_narrow else into + 4 * image * numbers
            clear(sums, numbers)
            for cell in range(cells):
                start = (image * cells + cell) * outputs
                list_pixels(
                    *(gradient + size * start, which + start, outputs, most, apart),
                    *(lists + 16 * cell * most, pairs + 32 * cell),
                )
            for channel in range(0, channels, of_a_vector):
                for row in range(kernel_rows + 1):
                    is_upper, is_lower = 1 if row < kernel_rows else 0, 1 if row > 0 else 0
                    source = packed + row * line + size * channel
                    for cell in range(cells):
                        pixel = (2 * (cell // columns) + row) * width + 2 * (cell % columns)
                        listed, counts = lists + 16 * cell * most, pairs + 32 * cell
                        to = sums + 4 * (pixel * channels + channel)
                        if kernel_columns == 5:
                            window_of_5(
                                *(listed, most, apart, counts, source, kernel_rows * line, line, size * channels),
                                *(is_upper, is_lower, to, 4 * channels),
                            )
                        else:
                            window_of_3(
                                *(listed, most, apart, counts, source, kernel_rows * line, line, size * channels),
                                *(is_upper, is_lower, to, 4 * channels),
                            )
            if is_narrow:
                for first in range(0, numbers, NUMBERS):
                    put_in_order(sums + 4 * first, into + 2 * (image * numbers + first))

    return of_images


def adding(is_narrow: bool) -> Callable[..., None]:
    """Make a function that adds rows with their gradients, in vectors and what is left."""
    of_a_vector = NUMBERS if is_narrow else NUMBERS // 2
    wide, flat, single = (rows_tile(*shape, is_narrow) for shape in ((2, VECTORS), (1, VECTORS), (1, 1)))
    halves, half = (rows_tile(rows, 1, is_narrow, is_half=is_narrow) for rows in (HALVES, 1))

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
            for row in range(rows):
                single(
                    *(entries, step, apart, pairs, source + 64 * vector + row * source_line, stride, source_line),
                    *(into + 4 * of_a_vector * vector + row * line, line),
                )
            vector += 1
        if vector * of_a_vector < length:
            at, to, row = source + 64 * vector, into + 4 * of_a_vector * vector, 0
            while row + HALVES <= rows:
                halves(
                    *(entries, step, apart, pairs, at + row * source_line, stride, source_line),
                    *(to + row * line, line),
                )
                row += HALVES
            while row < rows:
                half(
                    *(entries, step, apart, pairs, at + row * source_line, stride, source_line),
                    *(to + row * line, line),
                )
                row += 1

    made: Callable[..., None] = add_all
    return made


@inlined
def clear(place: int, count: int) -> None:
    """Write zeros."""
    numbers = floats(place)
    for k in range(count):
        numbers[k] = np.float32(0)


@inlined
def copy(place: int, count: int, into: int) -> None:
    """Write numbers elsewhere."""
    numbers, found = floats(place), floats(into)
    for k in range(count):
        found[k] = numbers[k]


@inlined
def pack_rows(weight: int, outputs: int, channels: int, kernel_rows: int, kernel_columns: int, into: int) -> None:
    """Write weights by output, row, column and channel."""
    numbers, found, k = floats(weight), floats(into), 0
    for output in range(outputs):
        for channel in range(channels):
            for row in range(kernel_rows):
                for column in range(kernel_columns):
                    place = ((output * kernel_rows + row) * kernel_columns + column) * channels + channel
                    found[place] = numbers[k]
                    k += 1


@inlined
def pack_narrow_rows(
    weight: int, outputs: int, channels: int, kernel_rows: int, kernel_columns: int, into: int
) -> None:
    """``pack_rows`` in bfloat16."""
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
    factors: int,
    into_bias: int,
) -> None:
    """For all maxima the pixel that has the gradient, and it, in an even number of rows; and the sum of gradients."""
    numbers, places = floats(gradient), pointer(which, np.uint8(0))
    noted, found, terms, k = pointer(entries, np.uint32(0)), floats(factors), floats(into_bias), 0
    for image in range(images):
        for row in range(rows):
            for column in range(columns):
                corner = np.uint32((image * height + 2 * row) * width + 2 * column)
                for output in range(outputs):
                    place = np.uint32(places[k + output])
                    number = numbers[k + output] if place < np.uint32(4) else np.float32(0)
                    below = np.uint32(np.uint32((place >> np.uint32(1)) & np.uint32(1)) * np.uint32(width))
                    noted[k + output] = np.uint32(corner + below + (place & np.uint32(1)))
                    found[k + output] = number
                    terms[output] += number
                k += outputs
    if images * rows * columns % 2:
        for output in range(outputs):
            noted[k + output], found[k + output] = noted[k + output - outputs], np.float32(0)


@inlined
def note_pairs(
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
    """``note_entries`` of pixels and gradients in bfloat16 side by side."""
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


of_weight_float32, of_weight_bfloat16 = of_weight_in(is_narrow=False), of_weight_in(is_narrow=True)
of_images_float32, of_images_bfloat16 = of_images_in(is_narrow=False), of_images_in(is_narrow=True)
