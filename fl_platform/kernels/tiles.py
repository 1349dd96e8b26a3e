"""Tiles of matrix products, as LLVM code: what stays in a processor's vector registers while a product is summed.

A BLAS rearranges its factors and checks its arguments before it multiplies; for a batch of 64 samples that costs as
much as a quarter of the product. These tiles multiply rows where they lie. Two forms are enough for a linear layer and
its derivatives: ``dot`` sums along rows of both factors (x W^T), ``outer`` along rows of the second one (e W, e^T x).

Addresses and strides are integers, strides count numbers.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from fl_platform.kernels.machine_code import LANES
from fl_platform.kernels.primitives import call, intrinsic

FLOAT, INDEX, LANE = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR, QUAD = ir.VectorType(FLOAT, LANES), ir.VectorType(FLOAT, 4)
BYTES = ir.Constant(INDEX, 4)  # of a number

DOT_ROWS, DOT_COLUMNS = (4, 4) if LANES == 16 else (3, 4)
WIDTHS = ((7, 3), (4, 5), (1, 12)) if LANES == 16 else ((3, 4), (2, 6), (1, 8))
"""Vectors side by side and rows of the tiles of ``outer``: as many sums as registers hold beside the factors."""


def index(number: int) -> ir.Constant:
    """An integer, as addresses and counts are."""
    return ir.Constant(INDEX, number)


def zeros(kind: ir.VectorType) -> ir.Constant:
    """A vector of zeros."""
    return ir.Constant(kind, [0.0] * kind.count)


def variable(builder: ir.IRBuilder) -> Any:
    """A place on the stack for a vector."""
    return cgutils.alloca_once(builder, VECTOR)  # type: ignore[no-untyped-call]


def counted(builder: ir.IRBuilder, count: Any) -> Any:
    """A loop of so many turns; ``index`` of what it gives is the turn."""
    return cgutils.for_range(builder, count)


class Builder:
    """What the tiles need of LLVM's builder, for vectors of floats at addresses that need not be aligned."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.llvm = builder

    def place(self, address: Any, row: Any, stride: Any) -> Any:
        """The address of a row."""
        return self.llvm.add(address, self.llvm.mul(self.llvm.mul(row, stride), BYTES))

    def load(self, address: Any, kind: Any = VECTOR) -> Any:
        loaded = self.llvm.load(self.llvm.inttoptr(address, kind.as_pointer()), typ=kind)
        loaded.align = 4
        return loaded

    def store(self, value: Any, address: Any) -> None:
        self.llvm.store(value, self.llvm.inttoptr(address, value.type.as_pointer())).align = 4

    def call(self, name: str, result: Any, arguments: list[Any]) -> Any:
        """Call one of LLVM's own functions."""
        return call(self.llvm, name, result, arguments)

    def fetch(self, address: Any) -> None:
        """Ask for what lies at an address, which need not exist, to be read soon."""
        number = ir.IntType(32)
        is_read, into_first_cache, is_data = number(0), number(3), number(1)
        place = self.llvm.inttoptr(address, FLOAT.as_pointer())
        self.call("llvm.prefetch.p0", ir.VoidType(), [place, is_read, into_first_cache, is_data])

    def load_some(self, address: Any, mask: Any, kind: Any = VECTOR) -> Any:
        """Zero where the mask is false; nothing is read there."""
        arguments = [
            self.llvm.inttoptr(address, kind.as_pointer()),
            ir.Constant(LANE, 4),
            mask,
            zeros(kind),
        ]
        return self.call(f"llvm.masked.load.v{kind.count}f32.p0", kind, arguments)

    def store_some(self, value: Any, address: Any, mask: Any) -> None:
        kind = value.type
        arguments = [value, self.llvm.inttoptr(address, kind.as_pointer()), ir.Constant(LANE, 4), mask]
        self.call(f"llvm.masked.store.v{kind.count}f32.p0", ir.VoidType(), arguments)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """x y + z, rounded once."""
        return self.call(f"llvm.fma.v{LANES}f32", VECTOR, [x, y, z])

    def splat(self, number: Any, lanes: int = LANES) -> Any:
        """The number in every lane."""
        undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
        first = self.llvm.insert_element(undefined, number, ir.Constant(LANE, 0))
        return self.llvm.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(LANE, lanes), [0] * lanes))

    def lanes_below(self, count: Any, lanes: int = LANES) -> Any:
        """A mask of the first ``count`` lanes."""
        numbers = ir.Constant(ir.VectorType(INDEX, lanes), list(range(lanes)))
        return self.llvm.icmp_signed("<", numbers, self.splat(count, lanes))

    def shuffle(self, x: Any, y: Any, lanes: list[int]) -> Any:
        return self.llvm.shuffle_vector(x, y, ir.Constant(ir.VectorType(LANE, len(lanes)), lanes))

    def smaller(self, x: Any, y: Any) -> Any:
        return self.llvm.select(self.llvm.icmp_signed("<", x, y), x, y)

    def sums(self, vectors: list[Any]) -> Any:
        """A vector whose lanes are the sums of the given ones, at most as many as it has lanes.

        Neighbours are added lane by lane while they are interleaved, so the sums of 16 vectors take 15 additions.
        """
        distance, rows = 1, vectors + [zeros(VECTOR)] * (LANES - len(vectors))
        while distance < LANES:
            first = [lane if not lane & distance else LANES + lane - distance for lane in range(LANES)]
            second = [lane + distance for lane in first]
            rows = [
                self.llvm.fadd(self.shuffle(x, y, first), self.shuffle(x, y, second))
                for x, y in zip(rows[::2], rows[1::2], strict=True)
            ]
            distance *= 2
        return rows[0]


class Sums:
    """The sums of a tile, in registers: LLVM turns variables on the stack that nobody points to into them."""

    def __init__(self, builder: Builder, rows: int, columns: int) -> None:
        self._builder = builder.llvm
        self._places = [[variable(builder.llvm) for _ in range(columns)] for _ in range(rows)]
        for row in self._places:
            for place in row:
                self._builder.store(zeros(VECTOR), place)

    def __getitem__(self, place: tuple[int, int]) -> Any:
        return self._builder.load(self._places[place[0]][place[1]], typ=VECTOR)

    def __setitem__(self, place: tuple[int, int], value: Any) -> None:
        self._builder.store(value, self._places[place[0]][place[1]])


def dot_tile(asks_ahead: bool) -> Any:
    """Make ``into[r, c] += sum_k x[r, k] w[c, k]`` for up to DOT_ROWS rows and DOT_COLUMNS columns.

    Where there are fewer, the last one is multiplied again and the product not used. One that asks ahead has memory
    send the next DOT_COLUMNS rows of w meanwhile, for a w that no cache holds.
    """

    @intrinsic
    def dot(
        typing: Any,
        x: Any,
        x_stride: Any,
        w: Any,
        w_stride: Any,
        length: Any,
        into: Any,
        stride: Any,
        rows: Any,
        columns: Any,
    ) -> Any:

        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            x, x_stride, w, w_stride, length, into, stride, rows, columns = arguments
            b, sums = Builder(llvm), Sums(Builder(llvm), DOT_ROWS, DOT_COLUMNS)
            last_row, last_column = llvm.sub(rows, index(1)), llvm.sub(columns, index(1))
            left = [b.place(x, b.smaller(index(r), last_row), x_stride) for r in range(DOT_ROWS)]
            right = [b.place(w, b.smaller(index(c), last_column), w_stride) for c in range(DOT_COLUMNS)]

            following = range(DOT_COLUMNS, 2 * DOT_COLUMNS) if asks_ahead else ()
            ahead = [b.place(w, index(row), w_stride) for row in following]

            def add(load: Callable[[Any], Any]) -> None:
                factors = [load(place) for place in right]
                for r, place in enumerate(left):
                    factor = load(place)
                    for c, other in enumerate(factors):
                        sums[r, c] = b.fma(factor, other, sums[r, c])

            whole = llvm.sdiv(length, index(LANES))
            with counted(llvm, whole) as loop:
                offset = llvm.mul(loop.index, index(4 * LANES))
                for place in ahead:
                    b.fetch(llvm.add(place, offset))
                add(lambda place: b.load(llvm.add(place, offset)))
            rest = llvm.sub(length, llvm.mul(whole, index(LANES)))
            with llvm.if_then(llvm.icmp_signed(">", rest, index(0))):
                mask, end = b.lanes_below(rest), llvm.mul(whole, index(4 * LANES))
                add(lambda place: b.load_some(llvm.add(place, end), mask))

            flat = [sums[r, c] for r in range(DOT_ROWS) for c in range(DOT_COLUMNS)]
            found = [b.sums(flat[first : first + LANES]) for first in range(0, len(flat), LANES)]
            is_column = b.lanes_below(columns, DOT_COLUMNS)
            for r in range(DOT_ROWS):
                vector, lane = divmod(r * DOT_COLUMNS, LANES)
                quad = b.shuffle(found[vector], found[vector], list(range(lane, lane + DOT_COLUMNS)))
                is_row = b.splat(llvm.icmp_signed("<", index(r), rows), DOT_COLUMNS)
                mask, place = llvm.and_(is_column, is_row), b.place(into, index(r), stride)
                b.store_some(llvm.fadd(b.load_some(place, mask, QUAD), quad), place, mask)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), generate

    return dot


def outer_tile(vectors: int, most_rows: int, is_masked: bool) -> Any:
    """Make ``into[r, :] = sum_k a[r, k] b[k, :]`` for so many vectors of columns and up to so many rows.

    Where there is a ``base`` it is ``into = base + scale * sum``; both have the same stride and may be one. Rows of a
    are ``row_stride`` apart and its columns ``k_stride``; of a masked tile, which has one vector, ``columns`` lanes
    count.
    """

    @intrinsic
    def outer(
        typing: Any,
        a: Any,
        row_stride: Any,
        k_stride: Any,
        b: Any,
        b_stride: Any,
        length: Any,
        into: Any,
        stride: Any,
        rows: Any,
        columns: Any,
        base: Any,
        scale: Any,
    ) -> Any:
        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            a, row_stride, k_stride, b, b_stride, length, into, stride, rows, columns, base, scale = arguments
            build, sums = Builder(llvm), Sums(Builder(llvm), most_rows, vectors)
            mask = build.lanes_below(columns) if is_masked else None

            def load(place: Any) -> Any:
                return build.load_some(place, mask) if is_masked else build.load(place)

            def store(value: Any, place: Any) -> None:
                if is_masked:
                    build.store_some(value, place, mask)
                else:
                    build.store(value, place)

            last_row = llvm.sub(rows, index(1))
            left = [build.place(a, build.smaller(index(r), last_row), row_stride) for r in range(most_rows)]
            with counted(llvm, length) as loop:
                right = build.place(b, loop.index, b_stride)
                factors = [load(llvm.add(right, index(4 * LANES * v))) for v in range(vectors)]
                for r in range(most_rows):
                    number = build.splat(build.load(build.place(left[r], loop.index, k_stride), FLOAT))
                    for v in range(vectors):
                        sums[r, v] = build.fma(number, factors[v], sums[r, v])

            def places(address: Any) -> list[list[Any]]:
                rows = [build.place(address, index(r), stride) for r in range(most_rows)]
                return [[llvm.add(row, index(4 * LANES * v)) for v in range(vectors)] for row in rows]

            made, added_to = places(into), places(base)
            is_written = llvm.icmp_signed("==", base, index(0))
            with llvm.if_else(is_written) as (written, added):
                with written:
                    for r in range(most_rows):
                        with llvm.if_then(llvm.icmp_signed("<", index(r), rows)):
                            for v in range(vectors):
                                store(sums[r, v], made[r][v])
                with added:
                    factor = build.splat(scale)
                    for r in range(most_rows):
                        with llvm.if_then(llvm.icmp_signed("<", index(r), rows)):
                            for v in range(vectors):
                                store(build.fma(factor, sums[r, v], load(added_to[r][v])), made[r][v])
            return context.get_dummy_value()

        return types.void(*[types.intp] * 11, types.float32), generate

    return outer
