"""Vectors of numbers at addresses, as LLVM code: what tiles of products are written with.

One instruction of AVX512-BF16 multiplies 16 pairs of bfloat16 by 16 others and adds both products of a pair to a sum,
so such numbers lie in pairs along what is summed over. Products are exact and sums are float32, as in oneDNN.
"""

from typing import Any, ClassVar

from llvmlite import ir
from numba.core import cgutils

from fl_platform.kernels.machine_code import LANES
from fl_platform.kernels.primitives import call

FLOAT, INDEX, LANE, SHORT, BYTE = ir.FloatType(), ir.IntType(64), ir.IntType(32), ir.IntType(16), ir.IntType(8)
VECTOR, QUAD, PAIRS = ir.VectorType(FLOAT, LANES), ir.VectorType(FLOAT, 4), ir.VectorType(LANE, 16)


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
    """What the tiles need of LLVM's builder, for vectors of float32 at addresses that need not be aligned.

    Factors of products are float32 as well, a lane each.
    """

    FACTORS: ClassVar[ir.VectorType] = VECTOR

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.llvm = builder

    def place(self, address: Any, row: Any, stride: Any) -> Any:
        """The address of a row."""
        return self.llvm.add(address, self.llvm.mul(self.llvm.mul(row, stride), index(4)))

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

    def spread(self, place: Any) -> Any:
        """What is multiplied with a vector of factors, in every lane."""
        return self.splat(self.load(place, FLOAT))

    def product(self, x: Any, y: Any, z: Any) -> Any:
        """z plus the products of x and y."""
        return self.fma(x, y, z)

    def write(self, numbers: Any, address: Any) -> None:
        """Write a vector of what was found, in the type of the factors."""
        self.store(numbers, address)

    def write_narrow(self, value: Any, address: Any) -> None:
        """Write a vector of numbers that are shorter than float32."""
        self.llvm.store(value, self.llvm.inttoptr(address, value.type.as_pointer())).align = 1

    def lanes(self, kind: Any, number: int) -> Any:
        """The number in all 16 lanes."""
        return ir.Constant(ir.VectorType(kind, 16), [number] * 16)

    def replaces(self, other: Any, best: Any) -> Any:
        """Where a number takes the place of the largest before: it is larger, or NaN."""
        larger, is_nan = self.llvm.fcmp_ordered(">", other, best), self.llvm.fcmp_unordered("uno", other, other)
        return self.llvm.or_(larger, is_nan)

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


class Pairs(Builder):
    """The same with factors of bfloat16, a pair of them in each lane."""

    FACTORS = PAIRS

    def load(self, address: Any, kind: Any = VECTOR) -> Any:
        loaded = super().load(address, kind)
        loaded.align = 2
        return loaded

    def spread(self, place: Any) -> Any:
        return self.splat(self.load(place, LANE))

    def product(self, x: Any, y: Any, z: Any) -> Any:
        return self.call("llvm.x86.avx512bf16.dpbf16ps.512", VECTOR, [z, x, y])

    def write(self, numbers: Any, address: Any) -> None:
        self.write_narrow(self.narrowed(numbers), address)

    def narrowed(self, numbers: Any) -> Any:
        """float32 numbers as the bits of bfloat16, rounded to nearest even."""
        bits = self.llvm.bitcast(numbers, PAIRS)
        odd = self.llvm.and_(self.llvm.lshr(bits, self.lanes(LANE, 16)), self.lanes(LANE, 1))
        rounded = self.llvm.lshr(
            self.llvm.add(self.llvm.add(bits, self.lanes(LANE, 0x7FFF)), odd), self.lanes(LANE, 16)
        )
        is_nan = self.llvm.fcmp_unordered("uno", numbers, numbers)
        found = self.llvm.select(is_nan, self.lanes(LANE, 0x7FC0), rounded)
        return self.llvm.trunc(found, ir.VectorType(SHORT, 16))


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
