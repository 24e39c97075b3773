"""What compiled functions need beyond Python: typed pointers, bit counts, reinterpretation of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic


class Pointer(Protocol):
    """A typed pointer in compiled code."""

    def __getitem__(self, index: int) -> int: ...

    def __setitem__(self, index: int, value: Any) -> None: ...


Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def machine_code(function: Compiled) -> Compiled:
    """Compile a function with Numba when it is first called (numba.njit, with its type kept)."""
    return cast(Compiled, njit(function))


def part_of_its_caller(function: Compiled) -> Compiled:
    """Compile a function that is called at one place within its caller. Numba optimizes and translates a function anew
    in each that calls it: what a chain of them all contain takes as many times as long."""
    return cast(Compiled, njit(inline="always")(function))


@intrinsic
def _popcount(typing_context, value):  # type: ignore[no-untyped-def]
    """Number of ones of an int64."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[Any]) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@intrinsic
def _lowest_bit(typing_context, value):  # type: ignore[no-untyped-def]
    """Index of the lowest one of an int64 (64 for zero)."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[Any]) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@intrinsic
def _pointer_to(typing_context, array):  # type: ignore[no-untyped-def]
    """The address of an array's data as a typed pointer: no reference counts, no negative indices, no bounds."""
    pointer = types.CPointer(array.dtype)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[Any]) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.bitcast(view.data, context.get_value_type(pointer))

    return pointer(array), generate


@intrinsic
def _at(typing_context, pointer, index):  # type: ignore[no-untyped-def]
    """The pointer to element `index` of what a pointer points to."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[Any]) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.int64), generate


@intrinsic
def _address_of(typing_context, pointer):  # type: ignore[no-untyped-def]
    """The address that a pointer holds."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[Any]) -> Any:
        return builder.ptrtoint(arguments[0], ir.IntType(64))

    return types.int64(pointer), generate


@intrinsic
def _float_of_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    """The float32 with the bits in the low half of an int64."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[Any]) -> Any:
        return builder.bitcast(builder.trunc(arguments[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.int64), generate


@intrinsic
def _bits_of_float(typing_context, value):  # type: ignore[no-untyped-def]
    """The bits of a float32 as a non-negative int64."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[Any]) -> Any:
        return builder.zext(builder.bitcast(arguments[0], ir.IntType(32)), ir.IntType(64))

    return types.int64(types.float32), generate


@intrinsic
def _double_of_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    """The float64 with the bits of an int64."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[Any]) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


popcount = cast(Callable[[int], int], _popcount)
lowest_bit = cast(Callable[[int], int], _lowest_bit)
pointer_to = cast(Callable[[Any], Any], _pointer_to)
at = cast(Callable[[Pointer, int], Pointer], _at)
address_of = cast(Callable[[Pointer], int], _address_of)
float_of_bits = cast(Callable[[int], float], _float_of_bits)
bits_of_float = cast(Callable[[Any], int], _bits_of_float)
double_of_bits = cast(Callable[[int], float], _double_of_bits)
