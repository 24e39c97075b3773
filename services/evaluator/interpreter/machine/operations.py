"""The table of lane-wise PTX operations: one entry for each operation and type, executed on 32 lanes at once.

An entry's name is the PTX mnemonic without the parts that change nothing here (`.rn`, `.ftz`, `.approx`; types of equal
width where the sign does not matter are written `b16`, `b32`, `b64`). `.ftz` is not modelled: subnormal values stay.
`.approx` operations are computed to full precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from services.evaluator.interpreter.machine.lanes import (
    F32,
    F64,
    I16,
    I32,
    I64,
    I128,
    LaneEmitter,
    Value,
    both_halves,
)
from services.evaluator.interpreter.machine.rounding import DIRECTIONS, directed, narrow_directed, sum_residual

MAX_DESTINATIONS = 4
MAX_SOURCES = 4


@dataclass(frozen=True)
class Operation:
    """A lane-wise operation: the types of its rows and the code for its results (a value, or a tuple for several)."""

    name: str
    results: tuple[str, ...]
    sources: tuple[str, ...]
    emit: Callable[..., Value]


OPERATIONS: list[Operation] = []
OPERATION_CODES: dict[str, int] = {}

_INTEGERS = ("s16", "u16", "s32", "u32", "s64", "u64")
_FLOATS = ("f32", "f64")
_SHORT_FLOATS = ("f16", "bf16")
_WIDE = {"16": I32, "32": I64, "64": I128}


def _define(name: str, results: str, sources: str, emit: Callable[..., Value]) -> None:
    OPERATION_CODES[name] = len(OPERATIONS)
    OPERATIONS.append(Operation(name, tuple(results.split()), tuple(sources.split()), emit))


def _define_float(name: str, operands: int, emit: Callable[..., Value], suffixes: str = "f32 f64") -> None:
    for type_name in suffixes.split():
        sources = " ".join([type_name] * operands)
        _define(f"{name}.{type_name}", type_name, sources, both_halves(emit) if type_name.endswith("x2") else emit)


_EVERY_FLOAT = "f32 f64 f16 bf16 f16x2 bf16x2"


# -- moves and bits ---------------------------------------------------------------------------------------------------
def _define_moves() -> None:
    for bits in ("16", "32", "64"):
        kind = f"b{bits}"
        _define(f"mov.{kind}", kind, kind, lambda v, x: x)
        _define(f"selp.{kind}", kind, f"{kind} {kind} pred", lambda v, x, y, p: v.ir.select(p, x, y))
        _define(f"slct.{kind}.s32", kind, f"{kind} {kind} s32", _select_by_sign)
        _define(f"and.{kind}", kind, f"{kind} {kind}", lambda v, x, y: v.ir.and_(x, y))
        _define(f"or.{kind}", kind, f"{kind} {kind}", lambda v, x, y: v.ir.or_(x, y))
        _define(f"xor.{kind}", kind, f"{kind} {kind}", lambda v, x, y: v.ir.xor(x, y))
        _define(f"not.{kind}", kind, kind, lambda v, x: v.ir.not_(x))
        _define(f"cnot.{kind}", kind, kind, _logical_not)
        _define(f"shl.{kind}", kind, f"{kind} u32", _shift_left)
        _define(f"shr.u{bits}", f"u{bits}", f"u{bits} u32", _shift_right_logical)
        _define(f"shr.s{bits}", f"s{bits}", f"s{bits} u32", _shift_right_arithmetic)
    for kind in ("f32",):
        _define(f"slct.b32.{kind}", "b32", f"b32 b32 {kind}", _select_by_float_sign)
    _define("mov.pred", "pred", "pred", lambda v, p: p)
    _define("and.pred", "pred", "pred pred", lambda v, p, q: v.ir.and_(p, q))
    _define("or.pred", "pred", "pred pred", lambda v, p, q: v.ir.or_(p, q))
    _define("xor.pred", "pred", "pred pred", lambda v, p, q: v.ir.xor(p, q))
    _define("not.pred", "pred", "pred", lambda v, p: v.ir.not_(p))


def _select_by_sign(v: LaneEmitter, x: Value, y: Value, c: Value) -> Value:
    return v.ir.select(v.ir.icmp_signed(">=", c, v.like(c, 0)), x, y)


def _select_by_float_sign(v: LaneEmitter, x: Value, y: Value, c: Value) -> Value:
    return v.ir.select(v.ir.fcmp_ordered(">=", c, v.like(c, 0.0)), x, y)


def _logical_not(v: LaneEmitter, x: Value) -> Value:
    return v.ir.zext(v.ir.icmp_unsigned("==", x, v.like(x, 0)), x.type)


def _amount(v: LaneEmitter, x: Value, amount: Value) -> tuple[Value, Value, Value]:
    """The shift amount in the type of x, clamped to a legal one, and whether it is too large."""
    width = x.type.element.width
    too_large = v.ir.icmp_unsigned(">=", amount, v.like(amount, width))
    clamped = v.ir.select(too_large, v.like(amount, width - 1), amount)
    return v.cast(clamped, x.type.element, signed=False), too_large, v.like(x, 0)


def _shift_left(v: LaneEmitter, x: Value, amount: Value) -> Value:
    clamped, too_large, zero = _amount(v, x, amount)
    return v.ir.select(too_large, zero, v.ir.shl(x, clamped))


def _shift_right_logical(v: LaneEmitter, x: Value, amount: Value) -> Value:
    clamped, too_large, zero = _amount(v, x, amount)
    return v.ir.select(too_large, zero, v.ir.lshr(x, clamped))


def _shift_right_arithmetic(v: LaneEmitter, x: Value, amount: Value) -> Value:
    return v.ir.ashr(x, _amount(v, x, amount)[0])


def _define_bit_fields() -> None:
    for bits in ("32", "64"):
        kind = f"b{bits}"
        _define(f"popc.{kind}", "u32", kind, lambda v, x: v.cast(v.call("ctpop", x), I32, signed=False))
        _define(f"clz.{kind}", "u32", kind, lambda v, x: v.cast(v.call_flagged("ctlz", x), I32, signed=False))
        _define(f"brev.{kind}", kind, kind, lambda v, x: v.call("bitreverse", x))
        _define(f"bfi.{kind}", kind, f"{kind} {kind} u32 u32", _insert_field)
        for sign in "su":
            field = f"{sign}{bits}"
            extract = _extract_signed_field if sign == "s" else _extract_field
            _define(f"bfe.{field}", field, f"{field} u32 u32", extract)
            _define(f"bfind.{field}", "u32", field, _find_top(signed=sign == "s", as_shift=False))
            _define(f"bfind.shiftamt.{field}", "u32", field, _find_top(signed=sign == "s", as_shift=True))
    _define("prmt.b32", "b32", "b32 b32 b32", _permute_bytes)
    _define("lop3.b32", "b32", "b32 b32 b32 b32", _logic3)
    for mode in ("wrap", "clamp"):
        _define(f"shf.l.{mode}.b32", "b32", "b32 b32 u32", _funnel_shift(left=True, wrap=mode == "wrap"))
        _define(f"shf.r.{mode}.b32", "b32", "b32 b32 u32", _funnel_shift(left=False, wrap=mode == "wrap"))


def _byte_of(v: LaneEmitter, x: Value) -> Value:
    return v.ir.and_(x, v.like(x, 255))


def _low_mask(v: LaneEmitter, kind: Value, length: Value) -> Value:
    """Ones in the `length` lowest bits (all ones from the full width on)."""
    ones = _shift_left(v, v.like(kind, -1), length)
    return v.ir.not_(ones)


def _extract_field(v: LaneEmitter, x: Value, position: Value, length: Value) -> Value:
    shifted = _shift_right_logical(v, x, _byte_of(v, position))
    return v.ir.and_(shifted, _low_mask(v, x, _byte_of(v, length)))


def _extract_signed_field(v: LaneEmitter, x: Value, position: Value, length: Value) -> Value:
    length = _byte_of(v, length)
    shifted = _shift_right_arithmetic(v, x, _byte_of(v, position))
    mask = _low_mask(v, x, length)
    top = v.ir.sub(length, v.like(length, 1))
    negative = v.ir.trunc(_shift_right_logical(v, shifted, top), ir.VectorType(ir.IntType(1), x.type.count))
    empty = v.ir.icmp_unsigned("==", length, v.like(length, 0))
    field = v.ir.and_(shifted, mask)
    extended = v.ir.select(negative, v.ir.or_(field, v.ir.not_(mask)), field)
    return v.ir.select(empty, v.like(x, 0), extended)


def _insert_field(v: LaneEmitter, x: Value, base: Value, position: Value, length: Value) -> Value:
    position = _byte_of(v, position)
    mask = _shift_left(v, _low_mask(v, x, _byte_of(v, length)), position)
    inserted = v.ir.and_(_shift_left(v, x, position), mask)
    return v.ir.or_(inserted, v.ir.and_(base, v.ir.not_(mask)))


def _find_top(*, signed: bool, as_shift: bool) -> Callable[..., Value]:
    def emit(v: LaneEmitter, x: Value) -> Value:
        width = x.type.element.width
        if signed:
            x = v.ir.xor(x, v.ir.ashr(x, v.like(x, width - 1)))
        leading = v.cast(v.call_flagged("ctlz", x), I32, signed=False)
        found = leading if as_shift else v.ir.sub(v.constant(I32, width - 1), leading)
        return v.ir.select(v.ir.icmp_unsigned("==", x, v.like(x, 0)), v.constant(I32, -1), found)

    return emit


def _permute_bytes(v: LaneEmitter, x: Value, y: Value, selector: Value) -> Value:
    build = v.ir
    both = build.or_(v.cast(x, I64, signed=False), build.shl(v.cast(y, I64, signed=False), v.constant(I64, 32)))
    result = v.constant(I32, 0)
    for byte in range(4):
        nibble = build.lshr(selector, v.constant(I32, 4 * byte))
        shift = build.shl(build.and_(nibble, v.constant(I32, 7)), v.constant(I32, 3))
        picked = build.lshr(both, v.cast(shift, I64, signed=False))
        value = build.and_(v.cast(picked, I32, signed=False), v.constant(I32, 255))
        sign = build.select(
            build.icmp_unsigned(">=", value, v.constant(I32, 128)), v.constant(I32, 255), v.constant(I32, 0)
        )
        replicate = build.icmp_unsigned("!=", build.and_(nibble, v.constant(I32, 8)), v.constant(I32, 0))
        value = build.select(replicate, sign, value)
        result = build.or_(result, build.shl(value, v.constant(I32, 8 * byte)))
    return result


def _logic3(v: LaneEmitter, x: Value, y: Value, z: Value, table: Value) -> Value:
    build = v.ir
    result = v.constant(I32, 0)
    for row in range(8):
        term = x if row & 4 else build.not_(x)
        term = build.and_(term, y if row & 2 else build.not_(y))
        term = build.and_(term, z if row & 1 else build.not_(z))
        bit = build.and_(build.lshr(table, v.constant(I32, row)), v.constant(I32, 1))
        result = build.or_(result, build.and_(term, build.sub(v.constant(I32, 0), bit)))
    return result


def _funnel_shift(*, left: bool, wrap: bool) -> Callable[..., Value]:
    def emit(v: LaneEmitter, low: Value, high: Value, amount: Value) -> Value:
        build = v.ir
        both = build.or_(
            v.cast(low, I64, signed=False), build.shl(v.cast(high, I64, signed=False), v.constant(I64, 32))
        )
        amount = build.and_(amount, v.constant(I32, 31)) if wrap else v.call("umin", amount, v.constant(I32, 32))
        wide = v.cast(amount, I64, signed=False)
        shifted = build.lshr(build.shl(both, wide), v.constant(I64, 32)) if left else build.lshr(both, wide)
        return v.cast(shifted, I32, signed=False)

    return emit


def _define_packing() -> None:
    _define("pack.b64.b32", "b64", "b32 b32", lambda v, *parts: _pack(v, I64, parts))
    _define("pack.b32.b16", "b32", "b16 b16", lambda v, *parts: _pack(v, I32, parts))
    _define("pack.b64.b16", "b64", "b16 b16 b16 b16", lambda v, *parts: _pack(v, I64, parts))
    _define("unpack.b64.b32", "b32 b32", "b64", lambda v, x: _unpack(v, x, I32, 2))
    _define("unpack.b32.b16", "b16 b16", "b32", lambda v, x: _unpack(v, x, I16, 2))
    _define("unpack.b64.b16", "b16 b16 b16 b16", "b64", lambda v, x: _unpack(v, x, I16, 4))


def _pack(v: LaneEmitter, element: ir.Type, parts: tuple[Value, ...]) -> Value:
    step = parts[0].type.element.width
    packed = v.constant(element, 0)
    for index, part in enumerate(parts):
        moved = v.ir.shl(v.cast(part, element, signed=False), v.constant(element, index * step))
        packed = v.ir.or_(packed, moved)
    return packed


def _unpack(v: LaneEmitter, x: Value, element: ir.Type, count: int) -> tuple[Value, ...]:
    shifts = [v.ir.lshr(x, v.like(x, index * element.width)) for index in range(count)]
    return tuple(v.cast(shifted, element, signed=False) for shifted in shifts)


# -- integers ---------------------------------------------------------------------------------------------------------
def _define_integers() -> None:
    for bits in ("16", "32", "64"):
        kind = f"b{bits}"
        _define(f"add.{kind}", kind, f"{kind} {kind}", lambda v, x, y: v.ir.add(x, y))
        _define(f"sub.{kind}", kind, f"{kind} {kind}", lambda v, x, y: v.ir.sub(x, y))
        _define(f"mul.lo.{kind}", kind, f"{kind} {kind}", lambda v, x, y: v.ir.mul(x, y))
        _define(f"mad.lo.{kind}", kind, f"{kind} {kind} {kind}", lambda v, x, y, z: v.ir.add(v.ir.mul(x, y), z))
        _define(f"neg.s{bits}", f"s{bits}", f"s{bits}", lambda v, x: v.ir.neg(x))
        _define(f"abs.s{bits}", f"s{bits}", f"s{bits}", _absolute)
    for kind in _INTEGERS:
        signed, bits = kind[0] == "s", kind[1:]
        minimum, maximum = ("smin", "smax") if signed else ("umin", "umax")
        _define(f"min.{kind}", kind, f"{kind} {kind}", lambda v, x, y, n=minimum: v.call(n, x, y))
        _define(f"max.{kind}", kind, f"{kind} {kind}", lambda v, x, y, n=maximum: v.call(n, x, y))
        _define(f"mul.hi.{kind}", kind, f"{kind} {kind}", _multiply_high(signed, _WIDE[bits]))
        _define(f"mad.hi.{kind}", kind, f"{kind} {kind} {kind}", _multiply_add_high(signed, _WIDE[bits]))
        _define(f"div.{kind}", kind, f"{kind} {kind}", _divide(signed=signed, remainder=False))
        _define(f"rem.{kind}", kind, f"{kind} {kind}", _divide(signed=signed, remainder=True))
        _define(f"sad.{kind}", kind, f"{kind} {kind} {kind}", _absolute_difference(signed))
        if bits != "64":
            wide = f"{kind[0]}{int(bits) * 2}"
            _define(f"mul.wide.{kind}", wide, f"{kind} {kind}", _multiply_wide(signed, _WIDE[bits]))
            _define(f"mad.wide.{kind}", wide, f"{kind} {kind} {wide}", _multiply_add_wide(signed, _WIDE[bits]))
    for name, intrinsic_name in (("add", "sadd.sat"), ("sub", "ssub.sat")):
        _define(f"{name}.sat.s32", "s32", "s32 s32", lambda v, x, y, n=intrinsic_name: v.call(n, x, y))
    for left in "su":
        for right in "su":
            sources = f"{left}32 {right}32 b32"
            _define(f"dp4a.{left}32.{right}32", "b32", sources, _dot4(left == "s", right == "s"))
    for name, kind in (("mul24.lo", "s32"), ("mul24.lo", "u32")):
        _define(f"{name}.{kind}", kind, f"{kind} {kind}", _multiply24(signed=kind == "s32"))
    _define_carries()


def _absolute(v: LaneEmitter, x: Value) -> Value:
    return v.ir.select(v.ir.icmp_signed("<", x, v.like(x, 0)), v.ir.neg(x), x)


def _wide_product(v: LaneEmitter, x: Value, y: Value, wide: ir.Type, signed: bool) -> Value:
    return v.ir.mul(v.cast(x, wide, signed=signed), v.cast(y, wide, signed=signed))


def _multiply_wide(signed: bool, wide: ir.Type) -> Callable[..., Value]:
    return lambda v, x, y: _wide_product(v, x, y, wide, signed)


def _multiply_add_wide(signed: bool, wide: ir.Type) -> Callable[..., Value]:
    return lambda v, x, y, z: v.ir.add(_wide_product(v, x, y, wide, signed), z)


def _multiply_high(signed: bool, wide: ir.Type) -> Callable[..., Value]:
    def emit(v: LaneEmitter, x: Value, y: Value) -> Value:
        product = _wide_product(v, x, y, wide, signed)
        high = v.ir.lshr(product, v.like(product, x.type.element.width))
        return v.cast(high, x.type.element, signed=False)

    return emit


def _multiply_add_high(signed: bool, wide: ir.Type) -> Callable[..., Value]:
    high = _multiply_high(signed, wide)
    return lambda v, x, y, z: v.ir.add(high(v, x, y), z)


def _multiply24(*, signed: bool) -> Callable[..., Value]:
    def low24(v: LaneEmitter, x: Value) -> Value:
        moved = v.ir.shl(x, v.like(x, 8))
        return v.ir.ashr(moved, v.like(x, 8)) if signed else v.ir.lshr(moved, v.like(x, 8))

    return lambda v, x, y: v.ir.mul(low24(v, x), low24(v, y))


def _divide(*, signed: bool, remainder: bool) -> Callable[..., Value]:
    """Division as the device does it: nothing traps; x / 0 is all ones and x % 0 is x."""

    def emit(v: LaneEmitter, x: Value, y: Value) -> Value:
        build = v.ir
        by_zero = build.icmp_unsigned("==", y, v.like(y, 0))
        by_minus_one = build.icmp_unsigned("==", y, v.like(y, -1))
        unsafe = build.or_(by_zero, by_minus_one) if signed else by_zero
        divisor = build.select(unsafe, v.like(y, 1), y)
        if remainder:
            rest = build.srem(x, divisor) if signed else build.urem(x, divisor)
            return build.select(by_zero, x, rest)
        quotient = build.sdiv(x, divisor) if signed else build.udiv(x, divisor)
        if signed:
            quotient = build.select(by_minus_one, build.neg(x), quotient)
        return build.select(by_zero, v.like(x, -1), quotient)

    return emit


def _absolute_difference(signed: bool) -> Callable[..., Value]:
    larger, smaller = ("smax", "smin") if signed else ("umax", "umin")

    def emit(v: LaneEmitter, x: Value, y: Value, z: Value) -> Value:
        return v.ir.add(z, v.ir.sub(v.call(larger, x, y), v.call(smaller, x, y)))

    return emit


def _dot4(left_signed: bool, right_signed: bool) -> Callable[..., Value]:
    def byte(v: LaneEmitter, x: Value, index: int, signed: bool) -> Value:
        moved = v.ir.shl(x, v.like(x, 24 - 8 * index))
        return v.ir.ashr(moved, v.like(x, 24)) if signed else v.ir.lshr(moved, v.like(x, 24))

    def emit(v: LaneEmitter, x: Value, y: Value, total: Value) -> Value:
        for index in range(4):
            product = v.ir.mul(byte(v, x, index, left_signed), byte(v, y, index, right_signed))
            total = v.ir.add(total, product)
        return total

    return emit


def _define_carries() -> None:
    """Extended-precision arithmetic; the carry is a predicate that the decoder names explicitly."""
    for bits, wide in (("32", I64), ("64", I128)):
        kind = f"b{bits}"
        _define(f"addc.{kind}", f"{kind} pred", f"{kind} {kind} pred", _add_with_carry(wide))
        _define(f"subc.{kind}", f"{kind} pred", f"{kind} {kind} pred", _subtract_with_borrow(wide))
    for part in ("lo", "hi"):
        for kind in ("s32", "u32", "s64", "u64"):
            wide = _WIDE[kind[1:]]
            emit = _multiply_add_with_carry(signed=kind[0] == "s", high=part == "hi", wide=wide)
            _define(f"madc.{part}.{kind}", f"{kind} pred", f"{kind} {kind} {kind} pred", emit)


def _carry_out(v: LaneEmitter, total: Value, narrow: Value) -> tuple[Value, Value]:
    width = narrow.type.element.width
    over = v.ir.lshr(total, v.like(total, width))
    carry = v.ir.trunc(over, ir.VectorType(ir.IntType(1), narrow.type.count))
    return v.cast(total, narrow.type.element, signed=False), carry


def _add_with_carry(wide: ir.Type) -> Callable[..., Value]:
    def emit(v: LaneEmitter, x: Value, y: Value, carry: Value) -> tuple[Value, Value]:
        total = v.ir.add(v.cast(x, wide, signed=False), v.cast(y, wide, signed=False))
        return _carry_out(v, v.ir.add(total, v.ir.zext(carry, total.type)), x)

    return emit


def _subtract_with_borrow(wide: ir.Type) -> Callable[..., Value]:
    def emit(v: LaneEmitter, x: Value, y: Value, borrow: Value) -> tuple[Value, Value]:
        total = v.ir.sub(v.cast(x, wide, signed=False), v.cast(y, wide, signed=False))
        return _carry_out(v, v.ir.sub(total, v.ir.zext(borrow, total.type)), x)

    return emit


def _multiply_add_with_carry(*, signed: bool, high: bool, wide: ir.Type) -> Callable[..., Value]:
    add = _add_with_carry(wide)

    def emit(v: LaneEmitter, x: Value, y: Value, z: Value, carry: Value) -> tuple[Value, Value]:
        product = _multiply_high(signed, wide)(v, x, y) if high else v.ir.mul(x, y)
        result: tuple[Value, Value] = add(v, product, z, carry)
        return result

    return emit


# -- floats -----------------------------------------------------------------------------------------------------------
def _define_floats() -> None:
    _define_float("add", 2, lambda v, x, y: v.ir.fadd(x, y), _EVERY_FLOAT)
    _define_float("sub", 2, lambda v, x, y: v.ir.fsub(x, y), _EVERY_FLOAT)
    _define_float("mul", 2, lambda v, x, y: v.ir.fmul(x, y), _EVERY_FLOAT)
    _define_float("neg", 1, lambda v, x: v.ir.fneg(x), _EVERY_FLOAT)
    _define_float("abs", 1, lambda v, x: v.call("fabs", x), _EVERY_FLOAT)
    _define_float("min", 2, lambda v, x, y: v.call("minnum", x, y), _EVERY_FLOAT)
    _define_float("max", 2, lambda v, x, y: v.call("maxnum", x, y), _EVERY_FLOAT)
    _define_float("min.NaN", 2, lambda v, x, y: v.call("minimum", x, y), "f32 f16 bf16 f16x2 bf16x2")
    _define_float("max.NaN", 2, lambda v, x, y: v.call("maximum", x, y), "f32 f16 bf16 f16x2 bf16x2")
    _define_float("fma", 3, lambda v, x, y, z: v.call("fma", x, y, z))
    _define_float("fma", 3, _fused_short, "f16 bf16 f16x2 bf16x2")
    _define_float("fma.relu", 3, lambda v, *xyz: _relu(v, _fused_short(v, *xyz)), "f16 bf16 f16x2 bf16x2")
    _define_float("div", 2, lambda v, x, y: v.ir.fdiv(x, y))
    _define_float("rcp", 1, lambda v, x: v.ir.fdiv(v.like(x, 1.0), x))
    _define_float("sqrt", 1, lambda v, x: v.call("sqrt", x))
    _define_float("rsqrt", 1, lambda v, x: v.ir.fdiv(v.like(x, 1.0), v.call("sqrt", x)))
    _define_float("copysign", 2, lambda v, sign, x: v.call("copysign", x, sign))
    _define_float("ex2", 1, lambda v, x: v.each_lane("exp2f", F32, x), "f32 f16 bf16 f16x2 bf16x2")
    _define_float("tanh", 1, lambda v, x: v.each_lane("tanhf", F32, x), "f32 f16 bf16 f16x2 bf16x2")
    _define_float("lg2", 1, lambda v, x: v.each_lane("log2f", F32, x), "f32")
    _define_float("sin", 1, lambda v, x: v.each_lane("sinf", F32, x), "f32")
    _define_float("cos", 1, lambda v, x: v.each_lane("cosf", F32, x), "f32")
    for name, operands, emit in (
        ("add", 2, lambda v, x, y: v.ir.fadd(x, y)),
        ("sub", 2, lambda v, x, y: v.ir.fsub(x, y)),
        ("mul", 2, lambda v, x, y: v.ir.fmul(x, y)),
        ("fma", 3, lambda v, x, y, z: v.call("fma", x, y, z)),
    ):
        _define_float(f"{name}.sat", operands, _saturated(emit), "f32")
    _define_directed()
    for kind in _FLOATS:
        for test, emit_test in _FLOAT_TESTS.items():
            _define(f"testp.{test}.{kind}", "pred", kind, emit_test)


def _fused_short(v: LaneEmitter, x: Value, y: Value, z: Value) -> Value:
    wide = ir.VectorType(F64, x.type.count)
    product = v.ir.fmul(v.ir.fpext(x, wide), v.ir.fpext(y, wide))
    return v.ir.fptrunc(v.ir.fadd(product, v.ir.fpext(z, wide)), x.type)


def _relu(v: LaneEmitter, x: Value) -> Value:
    return v.ir.select(v.ir.fcmp_ordered("<", x, v.like(x, 0.0)), v.like(x, 0.0), x)


def _clamp_to_one(v: LaneEmitter, x: Value) -> Value:
    return v.call("minnum", v.call("maxnum", x, v.like(x, 0.0)), v.like(x, 1.0))


def _saturated(emit: Callable[..., Value]) -> Callable[..., Value]:
    return lambda v, *operands: _clamp_to_one(v, emit(v, *operands))


def _define_directed() -> None:
    for way in DIRECTIONS:
        for kind in _FLOATS:
            _define(f"add.{way}.{kind}", kind, f"{kind} {kind}", _directed_sum(way, negate=False))
            _define(f"sub.{way}.{kind}", kind, f"{kind} {kind}", _directed_sum(way, negate=True))
            _define(f"mul.{way}.{kind}", kind, f"{kind} {kind}", _directed_product(way))
            _define(f"div.{way}.{kind}", kind, f"{kind} {kind}", _directed_quotient(way))
            _define(f"rcp.{way}.{kind}", kind, kind, _directed_reciprocal(way))
            _define(f"sqrt.{way}.{kind}", kind, kind, _directed_root(way))
        _define(f"fma.{way}.f32", "f32", "f32 f32 f32", _directed_fused(way))


def _directed_sum(way: str, *, negate: bool) -> Callable[..., Value]:
    def emit(v: LaneEmitter, x: Value, y: Value) -> Value:
        y = v.ir.fneg(y) if negate else y
        total = v.ir.fadd(x, y)
        return directed(v, way, total, sum_residual(v, x, y, total))

    return emit


def _directed_product(way: str) -> Callable[..., Value]:
    def emit(v: LaneEmitter, x: Value, y: Value) -> Value:
        product = v.ir.fmul(x, y)
        return directed(v, way, product, v.call("fma", x, y, v.ir.fneg(product)))

    return emit


def _directed_quotient(way: str) -> Callable[..., Value]:
    def emit(v: LaneEmitter, x: Value, y: Value) -> Value:
        quotient = v.ir.fdiv(x, y)
        rest = v.call("fma", v.ir.fneg(quotient), y, x)
        residual = v.ir.select(v.ir.fcmp_ordered("<", y, v.like(y, 0.0)), v.ir.fneg(rest), rest)
        return directed(v, way, quotient, residual)

    return emit


def _directed_reciprocal(way: str) -> Callable[..., Value]:
    return lambda v, x: _directed_quotient(way)(v, v.like(x, 1.0), x)


def _directed_root(way: str) -> Callable[..., Value]:
    def emit(v: LaneEmitter, x: Value) -> Value:
        root = v.call("sqrt", x)
        return directed(v, way, root, v.call("fma", v.ir.fneg(root), root, x))

    return emit


def _directed_fused(way: str) -> Callable[..., Value]:
    def emit(v: LaneEmitter, x: Value, y: Value, z: Value) -> Value:
        wide = ir.VectorType(F64, x.type.count)
        product = v.ir.fmul(v.ir.fpext(x, wide), v.ir.fpext(y, wide))
        addend = v.ir.fpext(z, wide)
        total = v.ir.fadd(product, addend)
        return narrow_directed(v, way, total, sum_residual(v, product, addend, total))

    return emit


def _is_finite(v: LaneEmitter, x: Value) -> Value:
    return v.ir.fcmp_ordered("<", v.call("fabs", x), v.like(x, float("inf")))


def _smallest_normal(x: Value) -> float:
    return 2.0**-126 if x.type.element == F32 else 2.0**-1022


def _is_normal(v: LaneEmitter, x: Value) -> Value:
    large_enough = v.ir.fcmp_ordered(">=", v.call("fabs", x), v.like(x, _smallest_normal(x)))
    return v.ir.and_(_is_finite(v, x), large_enough)


def _is_subnormal(v: LaneEmitter, x: Value) -> Value:
    magnitude = v.call("fabs", x)
    small = v.ir.fcmp_ordered("<", magnitude, v.like(x, _smallest_normal(x)))
    return v.ir.and_(small, v.ir.fcmp_ordered(">", magnitude, v.like(x, 0.0)))


_FLOAT_TESTS: dict[str, Callable[..., Value]] = {
    "finite": _is_finite,
    "infinite": lambda v, x: v.ir.fcmp_ordered("==", v.call("fabs", x), v.like(x, float("inf"))),
    "number": lambda v, x: v.ir.fcmp_ordered("ord", x, x),
    "notanumber": lambda v, x: v.ir.fcmp_unordered("uno", x, x),
    "normal": _is_normal,
    "subnormal": _is_subnormal,
}


# -- comparisons ------------------------------------------------------------------------------------------------------
_ORDERINGS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _define_comparisons() -> None:
    for name, symbol in _ORDERINGS.items():
        for bits in ("16", "32", "64"):
            if name in ("eq", "ne"):
                kind = f"b{bits}"
                _define(f"setp.{name}.{kind}", "pred", f"{kind} {kind}", _compare_integers(symbol, signed=False))
            else:
                for sign in "su":
                    kind = f"{sign}{bits}"
                    emit = _compare_integers(symbol, signed=sign == "s")
                    _define(f"setp.{name}.{kind}", "pred", f"{kind} {kind}", emit)
        for kind in (*_FLOATS, *_SHORT_FLOATS):
            _define(f"setp.{name}.{kind}", "pred", f"{kind} {kind}", _compare_floats(symbol, ordered=True))
            _define(f"setp.{name}u.{kind}", "pred", f"{kind} {kind}", _compare_floats(symbol, ordered=False))
        for kind in ("f16x2", "bf16x2"):
            both = both_halves(_compare_floats(symbol, ordered=True))
            either = both_halves(_compare_floats(symbol, ordered=False))
            _define(f"setp.{name}.{kind}", "pred pred", f"{kind} {kind}", both)
            _define(f"setp.{name}u.{kind}", "pred pred", f"{kind} {kind}", either)
            ones = both_halves(_as_one(_compare_floats(symbol, ordered=True)))
            _define(f"set.{name}.{kind}.{kind}", kind, f"{kind} {kind}", ones)
            ones = both_halves(_as_one(_compare_floats(symbol, ordered=False)))
            _define(f"set.{name}u.{kind}.{kind}", kind, f"{kind} {kind}", ones)
    for kind in (*_FLOATS, *_SHORT_FLOATS):
        _define(f"setp.num.{kind}", "pred", f"{kind} {kind}", lambda v, x, y: v.ir.fcmp_ordered("ord", x, y))
        _define(f"setp.nan.{kind}", "pred", f"{kind} {kind}", lambda v, x, y: v.ir.fcmp_unordered("uno", x, y))


def _compare_integers(symbol: str, *, signed: bool) -> Callable[..., Value]:
    if signed:
        return lambda v, x, y: v.ir.icmp_signed(symbol, x, y)
    return lambda v, x, y: v.ir.icmp_unsigned(symbol, x, y)


def _compare_floats(symbol: str, *, ordered: bool) -> Callable[..., Value]:
    if ordered:
        return lambda v, x, y: v.ir.fcmp_ordered(symbol, x, y)
    return lambda v, x, y: v.ir.fcmp_unordered(symbol, x, y)


def _as_one(emit: Callable[..., Value]) -> Callable[..., Value]:
    return lambda v, x, y: v.ir.select(emit(v, x, y), v.like(x, 1.0), v.like(x, 0.0))


# -- conversions ------------------------------------------------------------------------------------------------------
_CONVERTIBLE = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_ROUND_TO_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _define_conversions() -> None:
    for source in _CONVERTIBLE:
        for result in _CONVERTIBLE:
            _define(f"cvt.{result}.{source}", result, source, _resize(result, signed=source[0] == "s"))
        for kind in _FLOATS:
            _define(f"cvt.{kind}.{source}", kind, source, _float_from_integer(kind, signed=source[0] == "s"))
            _define(f"cvt.rzi.{source}.{kind}", source, kind, _integer_from_float(source))
    for way, function in _ROUND_TO_INTEGRAL.items():
        for kind in (*_FLOATS, *_SHORT_FLOATS):
            _define(f"cvt.{way}.{kind}.{kind}", kind, kind, lambda v, x, n=function: v.call(n, x))
    for way in DIRECTIONS:
        _define(f"cvt.{way}.f32.f64", "f32", "f64", lambda v, x, w=way: narrow_directed(v, w, x, v.like(x, 0.0)))
        for source in ("u32", "s32"):
            _define(f"cvt.{way}.f32.{source}", "f32", source, _directed_from_integer(way, signed=source == "s32"))
    _define("cvt.f64.f32", "f64", "f32", lambda v, x: v.ir.fpext(x, v.vector("f64")))
    _define("cvt.f32.f64", "f32", "f64", lambda v, x: v.ir.fptrunc(x, v.vector("f32")))
    _define("cvt.sat.f32.f32", "f32", "f32", _clamp_to_one)
    _define("cvt.sat.f64.f64", "f64", "f64", _clamp_to_one)
    for kind in _SHORT_FLOATS:
        _define(f"cvt.{kind}.f32", kind, "f32", lambda v, x: x)
        _define(f"cvt.f32.{kind}", "f32", kind, lambda v, x: x)
        _define(f"cvt.{kind}x2.f32", f"{kind}x2", "f32 f32", lambda v, high, low: (low, high))
        _define(f"cvt.relu.{kind}x2.f32", f"{kind}x2", "f32 f32", lambda v, high, low: (_relu(v, low), _relu(v, high)))
        for way in DIRECTIONS[:1]:
            _define(f"cvt.{way}.{kind}.f32", kind, "f32", _truncated_short(kind))
    _define("cvt.rna.tf32.f32", "b32", "f32", _tensor_float)


def _resize(result: str, *, signed: bool) -> Callable[..., Value]:
    return lambda v, x: v.cast(x, v.vector(result).element, signed=signed)


def _float_from_integer(kind: str, *, signed: bool) -> Callable[..., Value]:
    if signed:
        return lambda v, x: v.ir.sitofp(x, v.vector(kind))
    return lambda v, x: v.ir.uitofp(x, v.vector(kind))


def _directed_from_integer(way: str, *, signed: bool) -> Callable[..., Value]:
    convert = _float_from_integer("f64", signed=signed)

    def emit(v: LaneEmitter, x: Value) -> Value:
        wide = convert(v, x)
        return narrow_directed(v, way, wide, v.like(wide, 0.0))

    return emit


def _integer_from_float(result: str) -> Callable[..., Value]:
    """Toward zero, saturating; NaN gives 0, and the top bit alone for 64-bit results (as the device does)."""
    name = "fptosi.sat" if result[0] == "s" else "fptoui.sat"

    def emit(v: LaneEmitter, x: Value) -> Value:
        converted = v.call(name, x, result=v.vector(result))
        if not result.endswith("64"):
            return converted
        is_nan = v.ir.fcmp_unordered("uno", x, x)
        return v.ir.select(is_nan, v.like(converted, -(2**63)), converted)

    return emit


def _truncated_short(kind: str) -> Callable[..., Value]:
    """Round toward zero: clear the bits that the short type cannot hold (normal range) before the exact conversion."""
    dropped = 13 if kind == "f16" else 16

    def emit(v: LaneEmitter, x: Value) -> Value:
        bits = v.ir.and_(v.bits(x, I32), v.constant(I32, -(1 << dropped)))
        return v.bits(bits, F32)

    return emit


def _tensor_float(v: LaneEmitter, x: Value) -> Value:
    rounded = v.ir.add(v.bits(x, I32), v.constant(I32, 0x1000))
    return v.ir.and_(rounded, v.constant(I32, -0x2000))


for _define_group in (
    _define_moves,
    _define_bit_fields,
    _define_packing,
    _define_integers,
    _define_floats,
    _define_comparisons,
    _define_conversions,
):
    _define_group()


@intrinsic
def execute_operation(  # type: ignore[no-untyped-def]
    typing_context, code, d0, d1, d2, d3, s0, s1, s2, s3, active
):
    """Execute operation number `code` on rows given by their addresses, for the lanes in the mask `active`.

    The caller answers for the addresses: they come from the decoder only, never from the interpreted program.
    """
    signature = types.void(types.int64, *[types.int64] * (MAX_DESTINATIONS + MAX_SOURCES), types.uint32)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[Value]) -> Value:
        operation_code, *rows, mask = arguments
        function = builder.function
        done = function.append_basic_block("done")
        switch = builder.switch(operation_code, done)
        for number, operation in enumerate(OPERATIONS):
            block = function.append_basic_block(operation.name)
            switch.add_case(ir.Constant(I64, number), block)
            builder.position_at_end(block)
            _emit_operation(LaneEmitter(builder, mask), operation, rows)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


def _emit_operation(lanes: LaneEmitter, operation: Operation, rows: list[Value]) -> None:
    sources = rows[MAX_DESTINATIONS:]
    operands = [lanes.load(kind, sources[index]) for index, kind in enumerate(operation.sources)]
    results = operation.emit(lanes, *operands)
    if len(operation.results) == 1:
        results = (results,)
    for index, (kind, value) in enumerate(zip(operation.results, results, strict=True)):
        lanes.store(kind, rows[index], value)
