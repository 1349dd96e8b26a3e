"""Inner products of some rows of a matrix, and of a vector, with all its rows: the Gram entries of GradMA's memory.

The compiled products serve wide float32 rows on a CPU; their plain twin is ``matrix_products``. The two round
differently.

Gain (``python -m benchmarks.kernels``, W1, m = 100, one thread, CPU time of rounds with and without in turn): 6.5 % of
a round of GradMA-S, 77 ms for 82, and 3.6 % of a round of GradMA, whose workers do more; of the products alone 40 %
(``benchmarks/README.md``: 7.6 ms for 12.6).
"""

from collections.abc import Callable
from ctypes import addressof

import torch
from torch import Tensor

from fl_platform.kernels.addresses import integers
from fl_platform.models.code import code_of

CHUNK = 8192
"""Coordinates per matrix product: long enough for a fast product, short enough for float32 sums to lose little."""
ELEMENTS_AT_ONCE = 1 << 26
"""Numbers of the changed rows that an accelerator copies and multiplies at once: few launches, bounded memory."""
NARROW = 4096
"""Segments up to this width are multiplied in float64: that is cheap, and anchors of small tensors are dependent."""


PIECE = 512
"""Coordinates whose products are summed in float32, in as many sums as a vector has lanes, before they are added in
float64: pieces of all probes stay in the first two caches."""
MOST_PRODUCTS = 16
"""Products of one tile."""


def row_products(rows: Tensor, slots: Tensor, vector: Tensor, start: int, stop: int) -> Tensor:
    """(len(slots) + 1, len(rows)) products over the coordinates from start to stop, in float64.

    The first lines are those of ``rows[slots]``, the last is that of ``vector``.
    """
    if stop - start <= NARROW:
        return matrix_products(rows, slots, vector, start, stop, torch.float64)
    if rows.dtype == torch.float32 and code_of(rows) == "cpu":
        if rows.is_meta:  # the compiled products hold nothing but their result
            return rows.new_empty(len(slots) + 1, len(rows), dtype=torch.float64)
        return compiled_row_products(rows, slots, vector, start, stop)
    return matrix_products(rows, slots, vector, start, stop, rows.dtype)


def compile_products(rows: Tensor) -> None:
    """Compile ``row_products`` for a matrix like this one, so that the first round does not."""
    if rows.dtype == torch.float32 and rows.device.type == "cpu" and rows.shape[1] > NARROW:
        compiled_products()


def compiled_products() -> Callable[..., None]:
    """The compiled function."""
    from fl_platform.kernels import machine_code  # which other methods do not need

    return machine_code.function("compiled_products", "row_products")


def compiled_row_products(rows: Tensor, slots: Tensor, vector: Tensor, start: int, stop: int) -> Tensor:
    """``row_products`` for float32 on a CPU; ``rows`` are a contiguous matrix."""
    vector, width = vector.contiguous(), rows.shape[1]
    first, probes = rows.data_ptr(), [*slots.tolist(), -1]
    places = integers(vector.data_ptr() if slot < 0 else first + 4 * width * slot for slot in probes)
    found = torch.zeros(len(probes), len(rows), dtype=torch.float64)
    work = torch.empty(len(probes) * PIECE + MOST_PRODUCTS)
    compiled_products()(
        first, len(rows), width, addressof(places), len(probes), start, stop, found.data_ptr(), work.data_ptr()
    )
    return found


def matrix_products(rows: Tensor, slots: Tensor, vector: Tensor, start: int, stop: int, dtype: torch.dtype) -> Tensor:
    """``row_products`` by matrix products of type ``dtype``, summed over chunks in float64."""
    slots = slots.to(rows.device)
    total = torch.zeros(len(slots) + 1, len(rows), dtype=torch.float64, device=rows.device)
    chunks = 1 if code_of(rows) == "cpu" else max(1, ELEMENTS_AT_ONCE // (len(total) * CHUNK))
    for left in range(start, stop, chunks * CHUNK):
        columns = slice(left, min(left + chunks * CHUNK, stop))
        part = rows[:, columns].to(dtype)
        total += chunked_products(torch.cat([part[slots], vector[columns].to(dtype).unsqueeze(0)]), part)
    return total


def chunked_products(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right.mT`` with float64 sums over chunks of the coordinates, all multiplied in one call."""
    if right.shape[1] <= CHUNK:
        return left @ right.mT
    whole = right.shape[1] // CHUNK * CHUNK
    parts = [tensor[:, :whole].view(len(tensor), -1, CHUNK).transpose(0, 1) for tensor in (left, right)]
    total = torch.bmm(parts[0], parts[1].mT).sum(0, dtype=torch.float64)
    return total + left[:, whole:] @ right[:, whole:].mT if whole < right.shape[1] else total
