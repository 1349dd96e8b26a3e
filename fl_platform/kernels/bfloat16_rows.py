"""Tiles of the gradients of maxima of a convolution in bfloat16, as LLVM code: listed rows, scaled and summed in pairs.

Of the four pixels of a maximum one has a gradient. What it adds to the weight's gradient are the numbers under the
kernel, and what it adds to the image's the weights of its channel. An entry of a list has the number of such a row in
its upper half and the bits of the gradient in the lower one.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from fl_platform.kernels.bfloat16_tiles import BYTE, PAIRS, SHORT, PairBuilder, store
from fl_platform.kernels.primitives import intrinsic
from fl_platform.kernels.tiles import INDEX, LANE, Sums, counted, index

NUMBERS = 32
"""Numbers of a row that are read at once."""
LOW = [8 * (k // 8) + k % 8 // 2 + 32 * (k % 2) for k in range(NUMBERS)]
HIGH = [k + 4 for k in LOW]
"""Which numbers of two vectors are paired in the first and the second of two: within 128 bits, as processors do it."""
PLACES = LOW[::2] + HIGH[::2]
"""Which number of a row each of the 32 sums belongs to."""
IN_ORDER = [PLACES.index(k) for k in range(NUMBERS)]
KEPT, HALF = ir.Constant(LANE, 0xFFFF), ir.Constant(LANE, 16)


class Entries:
    """Two entries of a list: their factors as a pair in every lane, and the addresses of their rows."""

    def __init__(self, b: PairBuilder, place: Any, following: Any, source: Any, stride: Any) -> None:
        self._b, both = b, [b.load(place, LANE), b.load(following, LANE)]
        self.pair = b.splat(b.llvm.or_(b.llvm.and_(both[0], KEPT), b.llvm.shl(both[1], HALF)))
        numbers = [b.llvm.zext(b.llvm.lshr(one, HALF), INDEX) for one in both]
        self._rows = [b.llvm.add(source, b.llvm.mul(number, stride)) for number in numbers]

    def add(self, sums: Sums, number: int, offset: Any, pairings: list[list[int]]) -> None:
        """Add what both rows have at an offset to a vector of sums, or to two."""
        b, kind = self._b, ir.VectorType(SHORT, 16 if len(pairings) == 1 else NUMBERS)
        x, y = (b.load(b.llvm.add(row, offset), kind) for row in self._rows)
        for part, pairing in enumerate(pairings):
            sums[number, part] = b.dot(self.pair, b.llvm.bitcast(b.shuffle(x, y, pairing), PAIRS), sums[number, part])


class Target:
    """Vectors of sums in memory, taken into registers and put back."""

    def __init__(self, b: PairBuilder, places: list[Any], width: int) -> None:
        self._b, self.sums = b, Sums(b, len(places), width)
        self._places = [
            (number, part, b.llvm.add(place, index(64 * part)))
            for number, place in enumerate(places)
            for part in range(width)
        ]
        for number, part, place in self._places:
            self.sums[number, part] = b.load(place)

    def write(self) -> None:
        for number, part, place in self._places:
            self._b.store(self.sums[number, part], place)


def rows_tile(rows: int, vectors: int, is_half: bool) -> Any:
    """Make ``into[r] += sum_e g_e source[i_e, r]`` for a list's entries: ``rows`` rows of ``vectors`` x 32 numbers.

    Entries are ``step`` apart, and pairs of them counted. Sums lie as ``PLACES`` says; of 16 numbers, in order.
    """
    pairings = [[k // 2 + 16 * (k % 2) for k in range(NUMBERS)]] if is_half else [LOW, HIGH]

    @intrinsic
    def add_rows(
        typing: Any, entries: Any, step: Any, pairs: Any, source: Any, stride: Any, line: Any, into: Any, target: Any
    ) -> Any:
        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            entries, step, pairs, source, stride, line, into, target = arguments
            b = PairBuilder(llvm)
            tile = [(r, v) for r in range(rows) for v in range(vectors)]
            found = Target(
                b,
                [llvm.add(into, llvm.add(llvm.mul(target, index(r)), index(128 * v))) for r, v in tile],
                len(pairings),
            )
            with counted(llvm, pairs) as loop:
                place = llvm.add(entries, llvm.mul(loop.index, llvm.mul(step, index(2))))
                both = Entries(b, place, llvm.add(place, step), source, stride)
                for number, (r, v) in enumerate(tile):
                    both.add(found.sums, number, llvm.add(llvm.mul(line, index(r)), index(64 * v)), pairings)
            found.write()
            return context.get_dummy_value()

        return types.void(*[types.intp] * 8), generate

    return add_rows


def window_tile(columns: int) -> Any:
    """Make one row of the gradient of the images under a maximum, of 32 channels, for a kernel of so many columns.

    ``lists`` are the four pixels' lists of output channels, ``most`` numbers apart, and ``pairs`` their lengths.
    ``source`` is the kernel's row for the upper pixels and the one ``line`` before it for the lower ones; ``is_upper``
    and ``is_lower`` say which exist.
    """

    @intrinsic
    def add_window(
        typing: Any,
        lists: Any,
        most: Any,
        pairs: Any,
        source: Any,
        stride: Any,
        line: Any,
        pixel: Any,
        is_upper: Any,
        is_lower: Any,
        into: Any,
    ) -> Any:
        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            lists, most, pairs, source, stride, line, pixel, is_upper, is_lower, into = arguments
            b, step = PairBuilder(llvm), llvm.mul(pixel, index(2))
            found = Target(b, [llvm.add(into, llvm.mul(step, index(c))) for c in range(columns + 1)], 2)
            for place in range(4):
                row, column = divmod(place, 2)
                count = llvm.mul(b.load(llvm.add(pairs, index(8 * place)), INDEX), is_lower if row else is_upper)
                entries = llvm.add(lists, llvm.mul(most, index(4 * place)))
                first = llvm.sub(source, line) if row else source
                with counted(llvm, count) as loop:
                    at = llvm.add(entries, llvm.mul(loop.index, index(8)))
                    both = Entries(b, at, llvm.add(at, index(4)), first, stride)
                    for c in range(columns):
                        both.add(found.sums, column + c, llvm.mul(pixel, index(c)), [LOW, HIGH])
            found.write()
            return context.get_dummy_value()

        return types.void(*[types.intp] * 10), generate

    return add_window


@intrinsic
def list_pixels(typing: Any, gradient: Any, which: Any, outputs: Any, most: Any, lists: Any, pairs: Any) -> Any:
    """List the output channels of each of a maximum's four pixels, and write half of their numbers, rounded up.

    Lists have room for all channels and 16 more; an odd one ends with a gradient of zero.
    """

    def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
        gradient, which, outputs, most, lists, pairs = arguments
        b = PairBuilder(llvm)
        counts = [cgutils.alloca_once_value(llvm, index(0)) for _ in range(4)]  # type: ignore[no-untyped-call]
        starts = [llvm.add(lists, llvm.mul(most, index(4 * place))) for place in range(4)]
        for count in counts:
            llvm.store(index(0), count)
        with counted(llvm, llvm.ashr(outputs, index(4))) as loop:
            first = llvm.mul(loop.index, index(16))
            bits = llvm.zext(b.load(llvm.add(gradient, llvm.mul(first, index(2))), ir.VectorType(SHORT, 16)), PAIRS)
            places = b.load(llvm.add(which, first), ir.VectorType(BYTE, 16))
            numbers = llvm.add(b.splat(llvm.trunc(first, LANE)), ir.Constant(PAIRS, list(range(16))))
            entries = llvm.or_(llvm.shl(numbers, b.lanes(LANE, 16)), bits)
            is_some = llvm.icmp_unsigned("!=", llvm.and_(bits, b.lanes(LANE, 0x7FFF)), b.lanes(LANE, 0))
            for place, (start, count) in enumerate(zip(starts, counts, strict=True)):
                mask = llvm.and_(llvm.icmp_unsigned("==", places, b.lanes(BYTE, place)), is_some)
                chosen = b.call("llvm.x86.avx512.mask.compress.v16i32", PAIRS, [entries, b.lanes(LANE, 0), mask])
                number = llvm.load(count, typ=INDEX)
                b.store(chosen, llvm.add(start, llvm.mul(number, index(4))))
                more = b.call("llvm.ctpop.i16", SHORT, [llvm.bitcast(mask, SHORT)])
                llvm.store(llvm.add(number, llvm.zext(more, INDEX)), count)
        for place, (start, count) in enumerate(zip(starts, counts, strict=True)):
            number = llvm.load(count, typ=INDEX)
            end = llvm.add(start, llvm.mul(number, index(4)))
            last = llvm.select(llvm.icmp_signed(">", number, index(0)), llvm.sub(end, index(4)), end)
            b.store(llvm.and_(b.load(last, LANE), ir.Constant(LANE, 0xFFFF0000)), end)
            half = llvm.ashr(llvm.add(number, index(1)), index(1))
            b.store(half, llvm.add(pairs, index(8 * place)))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), generate


@intrinsic
def put_in_order(typing: Any, sums: Any, into: Any) -> Any:
    """Round 32 sums that lie as ``PLACES`` says to bfloat16, and write them in order."""

    def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
        sums, into = arguments
        b = PairBuilder(llvm)
        low, high = b.load(sums), b.load(llvm.add(sums, index(64)))
        for half in range(2):
            chosen = b.shuffle(low, high, IN_ORDER[16 * half : 16 * half + 16])
            store(b, b.narrowed(chosen), llvm.add(into, index(32 * half)))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate
