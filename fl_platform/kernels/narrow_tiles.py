"""Numbers rounded to bfloat16 and put in pairs, as LLVM code."""

from typing import Any

from llvmlite import ir
from numba.core import types

from fl_platform.kernels.primitives import intrinsic
from fl_platform.kernels.vectors import PAIRS, SHORT, VECTOR, Pairs, index

IN_TURN = [k // 2 + 16 * (k % 2) for k in range(32)]
"""The numbers of one vector of 16, each followed by that of another."""
HALF = ir.VectorType(SHORT, 16)


@intrinsic
def narrow_tile(typing: Any, x: Any, into: Any) -> Any:
    """Round 32 float32 numbers."""

    def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
        x, into = arguments
        b = Pairs(llvm)
        b.write_narrow(b.both_narrowed(b.load(x), b.load(llvm.add(x, index(64)))), into)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


def pair_tile(is_float: bool, is_masked: bool) -> Any:
    """Write 16 numbers of a row, or up to so many where it is masked, each with that of another row."""

    @intrinsic
    def tile(typing: Any, x: Any, other: Any, into: Any, count: Any) -> Any:
        def generate(context: Any, llvm: Any, signature: Any, arguments: Any) -> Any:
            x, other, into, count = arguments
            b, kind = Pairs(llvm), VECTOR if is_float else HALF
            mask = b.lanes_below(count) if is_masked else None
            one, two = (b.load_some(row, mask, kind) if is_masked else b.load(row, kind) for row in (x, other))
            if is_float:
                found = b.both_narrowed(one, two)
                paired = b.shuffle(found, found, IN_TURN)
            else:
                paired = b.shuffle(one, two, IN_TURN)
            pairs = llvm.bitcast(paired, PAIRS)
            if is_masked:
                b.store_some(pairs, into, mask)
            else:
                b.store(pairs, into)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4), generate

    return tile
