"""What ``pooling`` compiles: the maxima of 2 x 2 pixels with which of the four each is, and their gradient.

Numbers of bfloat16 are read as the upper halves of float32 ones. A maximum is found as torch finds it: in the order of
rows, a pixel takes the place of those before if it is larger or NaN.
"""

from typing import Any

import numpy as np

from fl_platform.kernels.primitives import inlined, pointer, unchanged, widened


def forward_float32(
    x: int, images: int, channels: int, height: int, width: int, is_channels_last: int, y: int, which: int
) -> None:
    """Write the maxima and, unless its address is zero, which of its pixels each is: 0 to 3."""
    _forward(x, images, channels, height, width, is_channels_last, y, which, 4, np.float32(0), unchanged, unchanged)


def forward_bfloat16(
    x: int, images: int, channels: int, height: int, width: int, is_channels_last: int, y: int, which: int
) -> None:
    """``forward_float32`` for bfloat16 numbers."""
    _forward(x, images, channels, height, width, is_channels_last, y, which, 2, np.uint16(0), widened, _narrowed)


def backward_float32(
    gradient: int, which: int, images: int, channels: int, height: int, width: int, is_channels_last: int, into: int
) -> None:
    """Write the gradient of all pixels that belong to four."""
    _backward(gradient, which, images, channels, height, width, is_channels_last, into, 4, np.float32(0))


def backward_bfloat16(
    gradient: int, which: int, images: int, channels: int, height: int, width: int, is_channels_last: int, into: int
) -> None:
    """``backward_float32`` for bfloat16 numbers."""
    _backward(gradient, which, images, channels, height, width, is_channels_last, into, 2, np.uint16(0))


@inlined
def _forward(
    x: int,
    images: int,
    channels: int,
    height: int,
    width: int,
    is_channels_last: int,
    y: int,
    which: int,
    size: int,
    like: Any,
    widened: Any,
    narrowed: Any,
) -> None:
    rows, columns = height // 2, width // 2
    if is_channels_last:
        line = width * channels
        for image in range(images):
            for row in range(rows):
                for column in range(columns):
                    start = (image * height + 2 * row) * line + 2 * column * channels
                    found = ((image * rows + row) * columns + column) * channels
                    top, bottom = pointer(x + size * start, like), pointer(x + size * (start + line), like)
                    into = pointer(y + size * found, like)
                    if which:
                        places = pointer(which + found, np.uint8(0))
                        _find(top, bottom, 1, channels, channels, widened, narrowed, into, places)
                    else:
                        _maximise(top, bottom, 1, channels, channels, widened, narrowed, into)
    else:
        for plane in range(images * channels):
            for row in range(rows):
                start, found = (plane * height + 2 * row) * width, (plane * rows + row) * columns
                top, bottom = pointer(x + size * start, like), pointer(x + size * (start + width), like)
                into = pointer(y + size * found, like)
                if which:
                    places = pointer(which + found, np.uint8(0))
                    _find(top, bottom, 2, 1, columns, widened, narrowed, into, places)
                else:
                    _maximise(top, bottom, 2, 1, columns, widened, narrowed, into)


@inlined
def _find(
    top: Any, bottom: Any, step: int, right: int, count: int, widened: Any, narrowed: Any, into: Any, places: Any
) -> None:
    """Maxima of pixels ``step`` apart, their right neighbours and those below, and which of the four they are."""
    for k in range(count):
        best, place = widened(top[step * k]), np.int32(0)
        other = widened(top[step * k + right])
        if (other > best) | (other != other):
            best, place = other, np.int32(1)
        other = widened(bottom[step * k])
        if (other > best) | (other != other):
            best, place = other, np.int32(2)
        other = widened(bottom[step * k + right])
        if (other > best) | (other != other):
            best, place = other, np.int32(3)
        into[k] = narrowed(best)
        places[k] = np.uint8(place)


@inlined
def _maximise(top: Any, bottom: Any, step: int, right: int, count: int, widened: Any, narrowed: Any, into: Any) -> None:
    """``_find`` without the places."""
    for k in range(count):
        best = widened(top[step * k])
        other = widened(top[step * k + right])
        if (other > best) | (other != other):
            best = other
        other = widened(bottom[step * k])
        if (other > best) | (other != other):
            best = other
        other = widened(bottom[step * k + right])
        if (other > best) | (other != other):
            best = other
        into[k] = narrowed(best)


@inlined
def _backward(
    gradient: int,
    which: int,
    images: int,
    channels: int,
    height: int,
    width: int,
    is_channels_last: int,
    into: int,
    size: int,
    zero: Any,
) -> None:
    rows, columns = height // 2, width // 2
    if is_channels_last:
        line = width * channels
        for image in range(images):
            for row in range(rows):
                for column in range(columns):
                    start = (image * height + 2 * row) * line + 2 * column * channels
                    found = ((image * rows + row) * columns + column) * channels
                    numbers, places = pointer(gradient + size * found, zero), pointer(which + found, np.uint8(0))
                    top, bottom = pointer(into + size * start, zero), pointer(into + size * (start + line), zero)
                    _spread(numbers, places, 0, 1, channels, channels, zero, top)
                    _spread(numbers, places, 2, 1, channels, channels, zero, bottom)
    else:
        for plane in range(images * channels):
            for row in range(rows):
                start, found = (plane * height + 2 * row) * width, (plane * rows + row) * columns
                numbers, places = pointer(gradient + size * found, zero), pointer(which + found, np.uint8(0))
                top, bottom = pointer(into + size * start, zero), pointer(into + size * (start + width), zero)
                _spread(numbers, places, 0, 2, 1, columns, zero, top)
                _spread(numbers, places, 2, 2, 1, columns, zero, bottom)


@inlined
def _spread(numbers: Any, places: Any, first: int, step: int, right: int, count: int, zero: Any, into: Any) -> None:
    """Write a line's gradient: numbers where the place is the pixel's, from ``first`` on, and zero elsewhere."""
    for k in range(count):
        number, place = numbers[k], places[k]
        into[step * k] = number if place == np.uint8(first) else zero
        into[step * k + right] = number if place == np.uint8(first + 1) else zero


@inlined
def _narrowed(number: Any) -> Any:
    """Bits of a number that bfloat16 holds."""
    return np.uint16(np.float32(number).view(np.int32) >> np.int32(16))
