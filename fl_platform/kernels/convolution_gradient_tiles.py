"""Tiles of the gradients of maxima of a convolution, as LLVM code: listed rows, scaled and summed, two at a time.

Of the four pixels of a maximum one has a gradient. What it adds to the weight's gradient are the numbers under the
kernel, and what it adds to the image's the weights of its channel. An entry of a list has the number of such a row: of
bfloat16 in its upper half and the bits of the gradient in the lower one, of float32 alone, the gradient ``apart``.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from fl_platform.kernels.primitives import intrinsic
from fl_platform.kernels.vectors import BYTE, FLOAT, INDEX, LANE, PAIRS, SHORT, Builder, Pairs, Sums, counted, index

NUMBERS = 32
"""Numbers of a row that are read at once."""
LOW = [8 * (k // 8) + k % 8 // 2 + 32 * (k % 2) for k in range(NUMBERS)]
HIGH = [k + 4 for k in LOW]
IN_TURN = [k // 2 + 16 * (k % 2) for k in range(NUMBERS)]
"""Which numbers of two vectors are paired in the first and the second of two: within 128 bits, as processors do it."""
PLACES = LOW[::2] + HIGH[::2]
"""Which number of a row each of the 32 sums belongs to."""
IN_ORDER = [PLACES.index(k) for k in range(NUMBERS)]
KEPT, HALF = ir.Constant(LANE, 0xFFFF), ir.Constant(LANE, 16)


class PairedRows:
    """The rows of two entries in bfloat16: their factors as a pair in every lane, and their numbers in pairs."""

    STEP = 128
    """Bytes of the sums of a vector of numbers."""

    def __init__(self, b: Pairs, pairings: list[list[int]]) -> None:
        self._b, self._pairings = b, pairings

    def sums(self, places: list[Any]) -> Sums:
        """Sums taken from memory into registers."""
        found = Sums(self._b, len(places), len(self._pairings))
        for number, place in enumerate(places):
            for part in range(len(self._pairings)):
                found[number, part] = self._b.load(self._b.llvm.add(place, index(64 * part)))
        return found

    def write(self, sums: Sums, places: list[Any]) -> None:
        """Put them back."""
        for number, place in enumerate(places):
            for part in range(len(self._pairings)):
                self._b.store(sums[number, part], self._b.llvm.add(place, index(64 * part)))

    def read(self, place: Any, following: Any, apart: Any, source: Any, stride: Any) -> None:
        """Take two entries."""
        llvm, both = self._b.llvm, [self._b.load(one, LANE) for one in (place, following)]
        self._pair = self._b.splat(llvm.or_(llvm.and_(both[0], KEPT), llvm.shl(both[1], HALF)))
        self._rows = [llvm.add(source, llvm.mul(llvm.zext(llvm.lshr(one, HALF), INDEX), stride)) for one in both]

    def add(self, sums: Sums, number: int, offset: Any) -> None:
        """Add what both rows have at an offset."""
        b, kind = self._b, ir.VectorType(SHORT, 16 if len(self._pairings) == 1 else NUMBERS)
        x, y = (b.load(b.llvm.add(row, offset), kind) for row in self._rows)
        for part, pairing in enumerate(self._pairings):
            paired = b.llvm.bitcast(b.shuffle(x, y, pairing), PAIRS)
            sums[number, part] = b.product(self._pair, paired, sums[number, part])


class FloatRows:
    """The rows of two entries in float32, with sums of their own."""

    STEP = 64

    def __init__(self, b: Builder) -> None:
        self._b = b

    def sums(self, places: list[Any]) -> Sums:
        found = Sums(self._b, len(places), 2)
        for number, place in enumerate(places):
            found[number, 0] = self._b.load(place)
        return found

    def write(self, sums: Sums, places: list[Any]) -> None:
        for number, place in enumerate(places):
            self._b.store(self._b.llvm.fadd(sums[number, 0], sums[number, 1]), place)

    def read(self, place: Any, following: Any, apart: Any, source: Any, stride: Any) -> None:
        b, llvm = self._b, self._b.llvm
        self._factors = [b.splat(b.load(llvm.add(one, apart), FLOAT)) for one in (place, following)]
        numbers = [llvm.zext(b.load(one, LANE), INDEX) for one in (place, following)]
        self._rows = [llvm.add(source, llvm.mul(number, stride)) for number in numbers]

    def add(self, sums: Sums, number: int, offset: Any) -> None:
        b = self._b
        for part, (factor, row) in enumerate(zip(self._factors, self._rows, strict=True)):
            sums[number, part] = b.fma(factor, b.load(b.llvm.add(row, offset)), sums[number, part])


def rows_of(llvm: ir.IRBuilder, is_narrow: bool, is_half: bool = False) -> PairedRows | FloatRows:
    """Rows of bfloat16, of half a vector or of whole ones, or of float32."""
    if not is_narrow:
        return FloatRows(Builder(llvm))
    return PairedRows(Pairs(llvm), [IN_TURN] if is_half else [LOW, HIGH])


def rows_tile(rows: int, vectors: int, is_narrow: bool, is_half: bool = False) -> Any:
    """Make ``into[r] += sum_e g_e source[i_e, r]`` for a list's entries: ``rows`` rows of so many vectors.

    Entries are ``step`` apart, and pairs of them counted. Sums of bfloat16 lie as ``PLACES`` says; of half a vector, 16
    numbers, in order.
    """

    @intrinsic
    def add_rows(
        typing: Any,
        entries: Any,
        step: Any,
        apart: Any,
        pairs: Any,
        source: Any,
        stride: Any,
        line: Any,
        into: Any,
        target: Any,
    ) -> Any:
        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            entries, step, apart, pairs, source, stride, line, into, target = arguments
            both, tile = rows_of(llvm, is_narrow, is_half), [(r, v) for r in range(rows) for v in range(vectors)]
            places = [llvm.add(into, llvm.add(llvm.mul(target, index(r)), index(both.STEP * v))) for r, v in tile]
            sums = both.sums(places)
            with counted(llvm, pairs) as loop:
                place = llvm.add(entries, llvm.mul(loop.index, llvm.mul(step, index(2))))
                both.read(place, llvm.add(place, step), apart, source, stride)
                for number, (r, v) in enumerate(tile):
                    both.add(sums, number, llvm.add(llvm.mul(line, index(r)), index(64 * v)))
            both.write(sums, places)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), generate

    return add_rows


def window_tile(columns: int, is_narrow: bool) -> Any:
    """Make one row of the gradient of the images under a maximum, of a vector of channels, for so many columns.

    ``lists`` are the four pixels' lists of output channels, ``most`` numbers apart, and ``pairs`` their lengths.
    ``source`` is the kernel's row for the upper pixels and the one ``line`` before it for the lower ones; ``is_upper``
    and ``is_lower`` say which exist. Pixels are ``pixel`` apart in the kernel and ``target`` in the image.
    """

    @intrinsic
    def add_window(
        typing: Any,
        lists: Any,
        most: Any,
        apart: Any,
        pairs: Any,
        source: Any,
        stride: Any,
        line: Any,
        pixel: Any,
        is_upper: Any,
        is_lower: Any,
        into: Any,
        target: Any,
    ) -> Any:
        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            lists, most, apart, pairs, source, stride, line, pixel, is_upper, is_lower, into, target = arguments
            both, b = rows_of(llvm, is_narrow), Builder(llvm)
            places = [llvm.add(into, llvm.mul(target, index(c))) for c in range(columns + 1)]
            sums = both.sums(places)
            for place in range(4):
                row, column = divmod(place, 2)
                count = llvm.mul(b.load(llvm.add(pairs, index(8 * place)), INDEX), is_lower if row else is_upper)
                entries = llvm.add(lists, llvm.mul(most, index(4 * place)))
                first = llvm.sub(source, line) if row else source
                with counted(llvm, count) as loop:
                    at = llvm.add(entries, llvm.mul(loop.index, index(8)))
                    both.read(at, llvm.add(at, index(4)), apart, first, stride)
                    for c in range(columns):
                        both.add(sums, column + c, llvm.mul(pixel, index(c)))
            both.write(sums, places)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 12), generate

    return add_window


def list_tile(is_narrow: bool) -> Any:
    """List the output channels of each of a maximum's four pixels, and write half of their numbers, rounded up.

    Lists have room for all channels and 16 more; an odd one ends with a gradient of zero.
    """

    @intrinsic
    def list_pixels(
        typing: Any, gradient: Any, which: Any, outputs: Any, most: Any, apart: Any, lists: Any, pairs: Any
    ) -> Any:
        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            gradient, which, outputs, most, apart, lists, pairs = arguments
            b = Builder(llvm)
            counts = [cgutils.alloca_once(llvm, INDEX) for _ in range(4)]  # type: ignore[no-untyped-call]
            starts = [llvm.add(lists, llvm.mul(most, index(4 * place))) for place in range(4)]
            for count in counts:
                llvm.store(index(0), count)
            with counted(llvm, llvm.ashr(outputs, index(4))) as loop:
                first = llvm.mul(loop.index, index(16))
                at, kind = (
                    llvm.add(gradient, llvm.mul(first, index(2 if is_narrow else 4))),
                    SHORT if is_narrow else LANE,
                )
                bits = b.load(at, ir.VectorType(kind, 16))
                places = b.load(llvm.add(which, first), ir.VectorType(BYTE, 16))
                is_some = llvm.icmp_unsigned("!=", llvm.shl(bits, b.lanes(kind, 1)), b.lanes(kind, 0))
                numbers = llvm.add(b.splat(llvm.trunc(first, LANE)), ir.Constant(PAIRS, list(range(16))))
                if is_narrow:
                    columns = [llvm.or_(llvm.shl(numbers, b.lanes(LANE, 16)), llvm.zext(bits, PAIRS))]
                else:
                    columns = [numbers, bits]
                for place, (start, count) in enumerate(zip(starts, counts, strict=True)):
                    mask = llvm.and_(llvm.icmp_unsigned("==", places, b.lanes(BYTE, place)), is_some)
                    number = llvm.load(count, typ=INDEX)
                    end = llvm.add(start, llvm.mul(number, index(4)))
                    for column in columns:
                        chosen = [column, b.lanes(LANE, 0), mask]
                        b.store(b.call("llvm.x86.avx512.mask.compress.v16i32", PAIRS, chosen), end)
                        end = llvm.add(end, apart)
                    more = b.call("llvm.ctpop.i16", SHORT, [llvm.bitcast(mask, SHORT)])
                    llvm.store(llvm.add(number, llvm.zext(more, INDEX)), count)
            for place, (start, count) in enumerate(zip(starts, counts, strict=True)):
                number = llvm.load(count, typ=INDEX)
                end = llvm.add(start, llvm.mul(number, index(4)))
                last = llvm.select(llvm.icmp_signed(">", number, index(0)), llvm.sub(end, index(4)), end)
                if is_narrow:
                    b.store(llvm.and_(b.load(last, LANE), ir.Constant(LANE, 0xFFFF0000)), end)
                else:
                    b.store(b.load(last, LANE), end)
                    b.store(ir.Constant(LANE, 0), llvm.add(end, apart))
                half = llvm.ashr(llvm.add(number, index(1)), index(1))
                b.store(half, llvm.add(pairs, index(8 * place)))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), generate

    return list_pixels


@intrinsic
def put_in_order(typing: Any, sums: Any, into: Any) -> Any:
    """Round 32 sums that lie as ``PLACES`` says to bfloat16, and write them in order."""

    def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
        sums, into = arguments
        b = Pairs(llvm)
        low, high = b.load(sums), b.load(llvm.add(sums, index(64)))
        for half in range(2):
            chosen = b.shuffle(low, high, IN_ORDER[16 * half : 16 * half + 16])
            b.write(chosen, llvm.add(into, index(32 * half)))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate
