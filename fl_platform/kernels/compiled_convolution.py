"""A convolution with bias, maxima of 2 x 2 pixels and ReLU in one pass, of the tiles in ``convolution_tiles``.

Images lie channels last, so what is under a row of the kernel lies side by side. For products in bfloat16 numbers are
rounded image by image, in the first cache. The output of the convolution is never written.
"""

from collections.abc import Callable

import numpy as np

from fl_platform.kernels.convolution_tiles import CHANNELS, maxima_tile
from fl_platform.kernels.primitives import floats, inlined, pointer, rounded

WIDE = 6
"""Columns of a tile: as many as registers hold sums for."""


def forward_in(is_narrow: bool) -> Callable[..., None]:
    """Make the pass with products in bfloat16 or in float32."""
    size = 2 if is_narrow else 4
    wide, middle, narrow = (maxima_tile(columns, is_narrow) for columns in (WIDE, 4, 2))

    def forward(
        x: int,
        is_float: int,
        images: int,
        channels: int,
        height: int,
        width: int,
        weight: int,
        bias: int,
        outputs: int,
        kernel_rows: int,
        kernel_columns: int,
        is_rectified: int,
        into: int,
        which: int,
        packed: int,
        room: int,
    ) -> None:
        """Write maxima of 2 x 2 pixels and, where it has an address, ``which`` each is, 4 where ReLU leaves nothing.

        ``packed`` is for the weights, of bfloat16 an even number of them for each row of a kernel, and ``room``, which
        float32 does not need, for an image of six bytes a number and 64 more.
        """
        numbers, length = height * width * channels, kernel_columns * channels
        rows, columns = (height - kernel_rows + 1) // 2, (width - kernel_columns + 1) // 2
        steps, is_odd = (length // 2, length % 2) if is_narrow else (length, 0)
        line = kernel_rows * (steps + is_odd) * 4 * CHANNELS
        followed = room + 4 * ((numbers + 1) // 2)
        if is_narrow:
            pack_pairs(weight, outputs, channels, kernel_rows, kernel_columns, packed)
        else:
            pack(weight, outputs, channels, kernel_rows, kernel_columns, packed)
        for image in range(images):
            source = x + (4 if is_float else 2) * image * numbers
            if is_narrow and is_float:
                narrow_image(source, numbers, room)
                source = room
            if is_odd:
                follow_by_zeros(source, numbers, followed)
            for group in range(outputs // CHANNELS):
                weights, terms = packed + group * line, bias + 4 * group * CHANNELS
                for row in range(rows):
                    column = 0
                    while column < columns:
                        start = (2 * row * width + 2 * column) * channels
                        at, rest = source + size * start, followed + 4 * (start + length - 1) if is_odd else 0
                        target = ((image * rows + row) * columns + column) * outputs + group * CHANNELS
                        to, place = into + size * target, which + target if which else 0
                        left, stride, apart = 2 * (columns - column), size * width * channels, size * channels
                        if left >= WIDE:
                            wide(
                                *(at, rest, stride, apart, weights, kernel_rows),
                                *(steps, terms, is_rectified, to, place, outputs),
                            )
                            column += WIDE // 2
                        elif left == 4:
                            middle(
                                *(at, rest, stride, apart, weights, kernel_rows),
                                *(steps, terms, is_rectified, to, place, outputs),
                            )
                            column += 2
                        else:
                            narrow(
                                *(at, rest, stride, apart, weights, kernel_rows),
                                *(steps, terms, is_rectified, to, place, outputs),
                            )
                            column += 1

    return forward


@inlined
def pack_pairs(weight: int, outputs: int, channels: int, kernel_rows: int, kernel_columns: int, into: int) -> None:
    """Write weights in bfloat16: numbers of one kernel row in pairs, each of CHANNELS outputs side by side."""
    numbers, found = floats(weight), pointer(into, np.uint16(0))
    length = kernel_columns * channels
    steps = (length + 1) // 2
    line = steps * 2 * CHANNELS
    for output in range(outputs):
        group, lane = output // CHANNELS, output % CHANNELS
        for row in range(kernel_rows):
            start = (group * kernel_rows + row) * line + 2 * lane
            for column in range(kernel_columns):
                for channel in range(channels):
                    k = column * channels + channel
                    place = start + (k // 2) * (2 * CHANNELS) + k % 2
                    found[place] = rounded(
                        numbers[((output * channels + channel) * kernel_rows + row) * kernel_columns + column]
                    )
            if length % 2:
                found[start + (length // 2) * (2 * CHANNELS) + 1] = np.uint16(0)


@inlined
def pack(weight: int, outputs: int, channels: int, kernel_rows: int, kernel_columns: int, into: int) -> None:
    """Write weights: numbers of one kernel row, each of CHANNELS outputs side by side."""
    numbers, found, of_an_output = floats(weight), floats(into), channels * kernel_rows * kernel_columns
    for group in range(outputs // CHANNELS):
        k = group * CHANNELS * of_an_output
        for channel in range(channels):
            for row in range(kernel_rows):
                for column in range(kernel_columns):
                    place = ((group * kernel_rows + row) * kernel_columns + column) * channels + channel
                    for lane in range(CHANNELS):
                        found[place * CHANNELS + lane] = numbers[k + lane * of_an_output]
                    k += 1


@inlined
def narrow_image(x: int, numbers: int, into: int) -> None:
    """Round float32 numbers to bfloat16."""
    wide, found = floats(x), pointer(into, np.uint16(0))
    for k in range(numbers):
        found[k] = rounded(wide[k])


@inlined
def follow_by_zeros(x: int, numbers: int, into: int) -> None:
    """Write each number followed by a zero."""
    read, found = pointer(x, np.uint16(0)), pointer(into, np.uint32(0))
    for k in range(numbers):
        found[k] = np.uint32(read[k])


forward_float32, forward_bfloat16 = forward_in(is_narrow=False), forward_in(is_narrow=True)
