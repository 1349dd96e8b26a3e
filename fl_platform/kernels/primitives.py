"""What functions of compiled kernels are made of: how numba takes them, and numbers at addresses.

Arguments of kernels are addresses and counts, so that nothing in them allocates memory, raises or calls Python. Only
what is compiled imports this module, and with it numba.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

from fl_platform.kernels.machine_code import HOW, signature

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

inlined: Decorator = numba.njit(**HOW)
"""For functions that kernels call: IEEE arithmetic in the order that is written."""
contracted: Decorator = numba.njit(**HOW, fastmath={"contract"})
"""The same with a product and its sum in one instruction."""
reordered: Decorator = numba.njit(**HOW, fastmath={"reassoc", "contract"})
"""The same with sums in any order, too; what is not finite stays so."""


def inlined_as(arguments: str) -> Decorator:
    """``inlined`` for arguments of these types, once; it would be compiled for every constant that is given, too."""
    made: Decorator = numba.njit(signature(arguments), **HOW)
    return made


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function of compiled code whose body is LLVM code."""
    return extending.intrinsic(function)


def call(builder: ir.IRBuilder, name: str, result: Any, arguments: list[Any]) -> Any:
    """Call one of LLVM's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)  # type: ignore[no-untyped-call]


@intrinsic
def pointer(typing: Any, address: Any, like: Any) -> Any:
    """What lies at an address, numbers of the type of ``like``: they are read and written by index."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(types.intp, like), generate  # type: ignore[no-untyped-call]


@intrinsic
def fma(typing: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return call(builder, "llvm.fma.f32", ir.FloatType(), list(arguments))

    return types.float32(*[types.float32] * 3), generate


@intrinsic
def ticks(typing: Any) -> Any:
    """The processor's clock, in ticks of its own."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return call(builder, "llvm.readcyclecounter", ir.IntType(64), [])

    return types.intp(), generate


@intrinsic
def power_of_two(typing: Any, shifted: Any) -> Any:
    """2^n for a float32 that holds 1.5 2^23 + n, where n is one of float32's exponents."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits, number = ir.IntType(32), arguments[0]
        exponent = builder.add(builder.shl(builder.bitcast(number, bits), bits(23)), bits(127 << 23))
        return builder.bitcast(exponent, number.type)

    return types.float32(types.float32), generate


@inlined
def floats(address: int) -> Any:
    """The float32 numbers at an address."""
    return pointer(address, np.float32(0))


@inlined
def doubles(address: int) -> Any:
    """The float64 numbers at an address."""
    return pointer(address, np.float64(0))


@inlined
def integers(address: int) -> Any:
    """The int64 numbers at an address."""
    return pointer(address, np.int64(0))


@inlined
def unchanged(number: Any) -> Any:
    """The number."""
    return number


@inlined
def widened(bits: Any) -> Any:
    """The float32 number that bits of bfloat16 are."""
    return np.float32(np.int32(np.int32(bits) << np.int32(16)).view(np.float32))


@inlined
def rounded(number: Any) -> Any:
    """The bits of a float32 number as bfloat16, rounded to nearest even."""
    bits = np.uint32(np.float32(number).view(np.uint32))
    found = np.uint32(bits + np.uint32(0x7FFF) + np.uint32((bits >> np.uint32(16)) & np.uint32(1)))
    return np.uint16(0x7FC0) if number != number else np.uint16(found >> np.uint32(16))
