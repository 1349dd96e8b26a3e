"""Matrices turned over in vector registers, as LLVM code."""

from typing import Any

from numba.core import types

from fl_platform.kernels.machine_code import LANES
from fl_platform.kernels.primitives import inlined, intrinsic
from fl_platform.kernels.vectors import Builder, index


def transposed_tile(is_masked: bool) -> Any:
    """Make ``into[c, r] = x[r, c]`` for LANES rows and columns, or for up to so many where it is masked."""

    @intrinsic
    def tile(typing: Any, x: Any, stride: Any, into: Any, into_stride: Any, rows: Any, columns: Any) -> Any:
        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            x, stride, into, into_stride, rows, columns = arguments
            b, last = Builder(llvm), llvm.sub(rows, index(1))
            if is_masked:
                is_column, is_row = b.lanes_below(columns), b.lanes_below(rows)
                given = [b.load_some(b.place(x, b.smaller(index(r), last), stride), is_column) for r in range(LANES)]
            else:
                given = [b.load(b.place(x, index(r), stride)) for r in range(LANES)]
            for c, column in enumerate(turned(b, given)):
                place = b.place(into, index(c), into_stride)
                if is_masked:
                    with llvm.if_then(llvm.icmp_signed("<", index(c), columns)):
                        b.store_some(column, place, is_row)
                else:
                    b.store(column, place)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6), generate

    return tile


def turned(builder: Builder, rows: list[Any]) -> list[Any]:
    """The columns of a square of vectors: lanes beside the diagonal change places, then blocks of two, and so on."""
    distance = 1
    while distance < LANES:
        upper = [lane if not lane & distance else LANES + lane - distance for lane in range(LANES)]
        lower = [lane + distance for lane in upper]
        for first in (row for row in range(LANES) if not row & distance):
            x, y = rows[first], rows[first + distance]
            rows[first], rows[first + distance] = builder.shuffle(x, y, upper), builder.shuffle(x, y, lower)
        distance *= 2
    return rows


whole_tile, edge_tile = transposed_tile(is_masked=False), transposed_tile(is_masked=True)


@inlined
def transpose(x: int, rows: int, columns: int, into: int) -> None:
    """Write a matrix of so many rows the other way round."""
    for row in range(0, rows, LANES):
        for column in range(0, columns, LANES):
            place, turned_place = x + 4 * (row * columns + column), into + 4 * (column * rows + row)
            some_rows, some_columns = min(LANES, rows - row), min(LANES, columns - column)
            if some_rows == LANES and some_columns == LANES:
                whole_tile(place, columns, turned_place, rows, some_rows, some_columns)
            else:
                edge_tile(place, columns, turned_place, rows, some_rows, some_columns)
