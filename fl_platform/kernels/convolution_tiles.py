"""Tiles of a convolution, as LLVM code: products with numbers under a kernel, which lie side by side.

Addresses and strides are integers, strides count bytes.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from fl_platform.kernels.primitives import intrinsic
from fl_platform.kernels.vectors import BYTE, INDEX, VECTOR, Builder, Pairs, Sums, counted, index

VECTORS = 2
"""Vectors of output channels side by side in a tile."""
CHANNELS = 16 * VECTORS
"""Output channels of a tile."""


def maxima_tile(columns: int, is_narrow: bool) -> Any:
    """Make the maxima of 2 x 2 pixels of a convolution for two rows, so many columns and CHANNELS output channels.

    ``x`` is the first number under the kernel, ``steps`` how many of four bytes a row of it has, and ``rest`` the last
    of its first row in an image whose numbers are followed by zeros, for rows of an odd number of bfloat16 (else zero).
    ``weights`` has the kernel's rows, of CHANNELS output channels for each step. ``which`` takes which of its pixels
    each maximum is, 4 where ReLU leaves nothing.
    """

    @intrinsic
    def maxima(
        typing: Any,
        x: Any,
        rest: Any,
        row_stride: Any,
        pixel: Any,
        weights: Any,
        kernel_rows: Any,
        steps: Any,
        bias: Any,
        is_rectified: Any,
        into: Any,
        which: Any,
        outputs: Any,
    ) -> Any:
        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            x, rest, row_stride, pixel, weights, kernel_rows, steps, bias, is_rectified, into, which, outputs = (
                arguments
            )
            b = Pairs(llvm) if is_narrow else Builder(llvm)
            sums = Sums(b, 2 * columns, VECTORS)
            has_rest = llvm.icmp_signed("!=", rest, index(0))
            line = llvm.mul(llvm.add(steps, llvm.zext(has_rest, INDEX)), index(64 * VECTORS))

            def add(places: list[Any], factors: Any) -> None:
                rows = [b.load(llvm.add(factors, index(64 * v)), b.FACTORS) for v in range(VECTORS)]
                for number, place in enumerate(places):
                    number_under = b.spread(place)
                    for v, factor in enumerate(rows):
                        sums[number, v] = b.product(number_under, factor, sums[number, v])

            def places(first: Any, stride: Any, step: Any) -> list[Any]:
                rows = [first, llvm.add(first, stride)]
                return [llvm.add(row, llvm.mul(step, index(c))) for row in rows for c in range(columns)]

            with counted(llvm, kernel_rows) as row:
                top, factors = (
                    llvm.add(x, llvm.mul(row.index, row_stride)),
                    llvm.add(weights, llvm.mul(row.index, line)),
                )
                starts = places(top, row_stride, pixel)
                with counted(llvm, steps) as step:
                    offset = llvm.mul(step.index, index(4))
                    at = llvm.add(factors, llvm.mul(step.index, index(64 * VECTORS)))
                    add([llvm.add(start, offset) for start in starts], at)
                with llvm.if_then(has_rest):
                    double, twice = llvm.mul(row_stride, index(2)), llvm.mul(pixel, index(2))
                    top = llvm.add(rest, llvm.mul(row.index, double))
                    add(places(top, double, twice), llvm.add(factors, llvm.mul(steps, index(64 * VECTORS))))

            for v in range(VECTORS):
                added = b.load(llvm.add(bias, index(64 * v)))
                for c in range(0, columns, 2):
                    pixels = [sums[number, v] for number in (c, c + 1, columns + c, columns + c + 1)]
                    found, place = largest(b, pixels)
                    found = llvm.fadd(found, added)
                    is_left = b.llvm.fcmp_ordered("<=", found, ir.Constant(VECTOR, [0.0] * 16))
                    is_cut = llvm.and_(is_left, b.splat(llvm.icmp_signed("!=", is_rectified, index(0)), 16))
                    found = llvm.select(is_cut, ir.Constant(VECTOR, [0.0] * 16), found)
                    place = llvm.select(is_cut, b.lanes(BYTE, 4), place)
                    offset = llvm.add(llvm.mul(outputs, index(c // 2)), index(16 * v))
                    b.write(found, llvm.add(into, llvm.mul(offset, index(2 if is_narrow else 4))))
                    with llvm.if_then(llvm.icmp_signed("!=", which, index(0))):
                        b.write_narrow(place, llvm.add(which, offset))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 12), generate

    return maxima


def largest(b: Builder, pixels: list[Any]) -> tuple[Any, Any]:
    """The largest of four vectors lane by lane, and which it is: the first among equals, NaN where there is any."""
    best, place = pixels[0], b.lanes(BYTE, 0)
    for number, other in enumerate(pixels[1:], start=1):
        is_better = b.replaces(other, best)
        best, place = b.llvm.select(is_better, other, best), b.llvm.select(is_better, b.lanes(BYTE, number), place)
    return best, place
