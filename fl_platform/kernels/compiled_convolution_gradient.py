"""The gradients of ``compiled_convolution``: of weights and bias, and of images whose channels fill vectors.

A maximum's gradient goes to one of its four pixels, and where ReLU left nothing to none; only what these four add is
multiplied, a quarter of what the gradient of a convolution takes.
"""

from collections.abc import Callable

from fl_platform.kernels.compiled_convolution import narrow_image
from fl_platform.kernels.compiled_perceptron import copy
from fl_platform.kernels.compiled_rows import adding, clear, noting, packing, take_apart
from fl_platform.kernels.convolution_gradient_tiles import NUMBERS, list_tile, put_in_order, window_tile


def of_weight_in(is_narrow: bool) -> Callable[..., None]:
    """Make the gradient of weights and bias with products in bfloat16 or in float32."""
    size, of_a_vector = (2, NUMBERS) if is_narrow else (4, NUMBERS // 2)
    add_all, note_entries = adding(is_narrow), noting(is_narrow)

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
                copy(source, room, some * numbers)
                source = room
            note_entries(
                *(gradient + size * start, which + start, some, rows, columns, height, width),
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
    size, of_a_vector = (2, NUMBERS) if is_narrow else (4, NUMBERS // 2)
    pack_rows, list_pixels = packing(is_narrow), list_tile(is_narrow)
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


of_weight_float32, of_weight_bfloat16 = of_weight_in(is_narrow=False), of_weight_in(is_narrow=True)
of_images_float32, of_images_bfloat16 = of_images_in(is_narrow=False), of_images_in(is_narrow=True)
