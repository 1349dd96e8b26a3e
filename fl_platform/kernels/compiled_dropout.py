"""What ``dropout`` compiles: the hash of ``noise.bits`` with what it keeps of a tensor, and the gradient.

Numbers of bfloat16 are the upper halves of float32 ones; quotients are rounded to the nearest, ties to even.
"""

from typing import Any

import numpy as np

from fl_platform.kernels.primitives import inlined, pointer, rounded, unchanged, widened


def forward_float32(x: int, count: int, low: int, high: int, bound: int, into: int, keep: int, left: float) -> None:
    """Write x keep / left where the bits of a position are above the bound, and the mask if it has an address."""
    _forward(x, count, low, high, bound, into, keep, left, np.float32(0), unchanged, unchanged)


def forward_bfloat16(x: int, count: int, low: int, high: int, bound: int, into: int, keep: int, left: float) -> None:
    """``forward_float32`` for bfloat16 numbers."""
    _forward(x, count, low, high, bound, into, keep, left, np.uint16(0), widened, rounded)


def backward_float32(gradient: int, keep: int, count: int, into: int, left: float) -> None:
    """Write gradient / left keep."""
    _backward(gradient, keep, count, into, left, np.float32(0), unchanged, unchanged)


def backward_bfloat16(gradient: int, keep: int, count: int, into: int, left: float) -> None:
    """``backward_float32`` for bfloat16 numbers."""
    _backward(gradient, keep, count, into, left, np.uint16(0), widened, rounded)


@inlined
def _forward(
    x: int,
    count: int,
    low: int,
    high: int,
    bound: int,
    into: int,
    keep: int,
    left: float,
    like: Any,
    widened: Any,
    narrowed: Any,
) -> None:
    numbers, found, quotient = pointer(x, like), pointer(into, like), np.float32(left)
    first, second, least = np.uint32(low), np.uint32(high), np.int32(bound)
    if keep:
        mask = pointer(keep, np.uint8(0))
        for k in range(count):
            is_kept = _bits(k, first, second) > least
            mask[k] = np.uint8(is_kept)
            found[k] = narrowed(_times(widened(numbers[k]), is_kept) / quotient)
    else:
        for k in range(count):
            is_kept = _bits(k, first, second) > least
            found[k] = narrowed(_times(widened(numbers[k]), is_kept) / quotient)


@inlined
def _backward(
    gradient: int, keep: int, count: int, into: int, left: float, like: Any, widened: Any, narrowed: Any
) -> None:
    numbers, mask, found = pointer(gradient, like), pointer(keep, np.uint8(0)), pointer(into, like)
    quotient = np.float32(left)
    for k in range(count):
        whole = widened(narrowed(widened(numbers[k]) / quotient))
        found[k] = narrowed(_times(whole, mask[k] != np.uint8(0)))


@inlined
def _bits(position: int, low: Any, high: Any) -> Any:
    """31 random bits of a position."""
    return np.int32(_mixed(np.uint32(_mixed(np.uint32(np.uint32(position) ^ low)) ^ high)) & np.uint32(0x7FFFFFFF))


@inlined
def _mixed(bits: Any) -> Any:
    bits = np.uint32(bits ^ (bits >> np.uint32(16)))
    bits = np.uint32(bits * np.uint32(0x7FEB352D))
    bits = np.uint32(bits ^ (bits >> np.uint32(15)))
    bits = np.uint32(bits * np.uint32(0x846CA68B))
    return np.uint32(bits ^ (bits >> np.uint32(16)))


@inlined
def _times(number: Any, is_kept: Any) -> Any:
    """The number or, where it is finite, a zero of its sign."""
    return number * (np.float32(1) if is_kept else np.float32(0))
