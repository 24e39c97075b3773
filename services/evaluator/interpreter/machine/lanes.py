"""Vector code for 32 lanes: an emitter that turns the words of the operation table into LLVM vector instructions.

A register is a row of 32 lanes in the register file of its warp: 128 bytes for types of up to 32 bits, 256 bytes for
64 bits. A predicate is one 32-bit word with a bit for each lane. 16-bit floats are computed in float32 and rounded
once, which is exact for +, -, * and /.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]

LANES = 32

I1, I8, I16, I32, I64, I128 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64, 128))
F32, F64 = ir.FloatType(), ir.DoubleType()

Value = Any
"""An `llvmlite.ir` value: a vector of 32 lanes, or a pair of such vectors for packed 16-bit types."""

_INTEGER_BITS = {"8": I8, "16": I16, "32": I32, "64": I64}


def row_bytes(type_name: str) -> int:
    """Bytes of a register row that holds values of a PTX type."""
    if type_name == "pred":
        return 8
    return 8 * LANES if type_name.endswith("64") else 4 * LANES


def float_bits(value: float, type_name: str) -> int:
    """The bit pattern of a float32 or float64 constant."""
    if type_name == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _element(type_name: str) -> ir.Type:
    if type_name == "f32":
        return F32
    if type_name == "f64":
        return F64
    return _INTEGER_BITS[type_name.lstrip("bsu")]


class LaneEmitter:
    """Emits code for all lanes at once; results are stored under the mask of active lanes."""

    def __init__(self, builder: ir.IRBuilder, active: Value) -> None:
        self.ir = builder
        self._active_bits = active
        self._active = builder.bitcast(active, ir.VectorType(I1, LANES))

    # -- rows -----------------------------------------------------------------------------------------------------
    def load(self, type_name: str, address: Value) -> Value:
        """Read an operand row; predicates come as vectors of i1, 16-bit floats as float32 (pairs for packed types)."""
        if type_name == "pred":
            word = self.ir.load(self.ir.inttoptr(address, I32.as_pointer()), align=4)
            return self.ir.bitcast(word, ir.VectorType(I1, LANES))
        if type_name in ("f16", "bf16"):
            return self._widen(type_name, self.ir.and_(self._load_row(I32, address), self.constant(I32, 0xFFFF)))
        if type_name in ("f16x2", "bf16x2"):
            packed = self._load_row(I32, address)
            half = type_name[:-2]
            low = self.ir.and_(packed, self.constant(I32, 0xFFFF))
            return (self._widen(half, low), self._widen(half, self.ir.lshr(packed, self.constant(I32, 16))))
        element = _element(type_name)
        if isinstance(element, ir.IntType) and element.width < 32:
            return self.ir.trunc(self._load_row(I32, address), ir.VectorType(element, LANES))
        return self._load_row(element, address)

    def store(self, type_name: str, address: Value, value: Value) -> None:
        """Write a result row in the active lanes; short integers are extended to 32 bits by their sign."""
        if type_name == "pred":
            self._store_predicate(address, value)
        elif type_name in ("f16", "bf16"):
            self._store_row(I32, address, self.narrow(type_name, value))
        elif type_name in ("f16x2", "bf16x2"):
            low, high = (self.narrow(type_name[:-2], half) for half in value)
            self._store_row(I32, address, self.ir.or_(low, self.ir.shl(high, self.constant(I32, 16))))
        else:
            element = _element(type_name)
            if isinstance(element, ir.IntType) and element.width < 32:
                extend = self.ir.sext if type_name.startswith("s") else self.ir.zext
                value, element = extend(value, ir.VectorType(I32, LANES)), I32
            self._store_row(element, address, value)

    def _load_row(self, element: ir.Type, address: Value) -> Value:
        pointer = self.ir.inttoptr(address, ir.VectorType(element, LANES).as_pointer())
        return self.ir.load(pointer, align=8)

    def _store_row(self, element: ir.Type, address: Value, value: Value) -> None:
        pointer = self.ir.inttoptr(address, ir.VectorType(element, LANES).as_pointer())
        old = self.ir.load(pointer, align=8)
        self.ir.store(self.ir.select(self._active, value, old), pointer, align=8)

    def _store_predicate(self, address: Value, value: Value) -> None:
        pointer = self.ir.inttoptr(address, I32.as_pointer())
        new = self.ir.and_(self.ir.bitcast(value, I32), self._active_bits)
        kept = self.ir.and_(self.ir.load(pointer, align=4), self.ir.not_(self._active_bits))
        self.ir.store(self.ir.or_(kept, new), pointer, align=4)

    # -- constants and shapes -------------------------------------------------------------------------------------
    def constant(self, element: ir.Type, value: float) -> Value:
        """The same constant in every lane."""
        return ir.Constant(ir.VectorType(element, LANES), [value] * LANES)

    def like(self, value: Value, constant: float) -> Value:
        """The same constant in every lane, of the type of another vector."""
        return self.constant(value.type.element, constant)

    def vector(self, type_name: str) -> ir.VectorType:
        """The vector type of a PTX type."""
        return ir.VectorType(_element(type_name), LANES)

    def cast(self, value: Value, element: ir.Type, *, signed: bool) -> Value:
        """Change the width of integers."""
        target = ir.VectorType(element, LANES)
        if value.type.element.width > element.width:
            return self.ir.trunc(value, target)
        if value.type.element.width == element.width:
            return value
        return self.ir.sext(value, target) if signed else self.ir.zext(value, target)

    def bits(self, value: Value, element: ir.Type) -> Value:
        """Reinterpret lanes as another type of the same width."""
        return self.ir.bitcast(value, ir.VectorType(element, LANES))

    def call(self, name: str, *arguments: Value, result: ir.Type | None = None) -> Value:
        """Call an overloaded LLVM intrinsic, as in `call("fma", a, b, c)`."""
        returned = result or arguments[0].type
        suffix = _suffix(returned) + ("" if result is None else "." + _suffix(arguments[0].type))
        return self._call_named(f"llvm.{name}.{suffix}", returned, arguments)

    def call_flagged(self, name: str, value: Value) -> Value:
        """Call an LLVM intrinsic that takes a trailing `i1 false` (ctlz)."""
        function = self._declare(f"llvm.{name}.{_suffix(value.type)}", value.type, [value.type, I1])
        return self.ir.call(function, [value, ir.Constant(I1, 0)])

    def each_lane(self, name: str, result: ir.Type, *arguments: Value) -> Value:
        """Call a function of the C mathematics library lane by lane."""
        element = arguments[0].type.element
        function = self._declare(name, element, [element] * len(arguments))
        vector = ir.Constant(ir.VectorType(result, LANES), ir.Undefined)
        for lane in range(LANES):
            index = ir.Constant(I32, lane)
            scalar = self.ir.call(function, [self.ir.extract_element(argument, index) for argument in arguments])
            vector = self.ir.insert_element(vector, scalar, index)
        return vector

    def _call_named(self, name: str, returned: ir.Type, arguments: Sequence[Value]) -> Value:
        function = self._declare(name, returned, [argument.type for argument in arguments])
        return self.ir.call(function, list(arguments))

    def _declare(self, name: str, returned: ir.Type, arguments: Sequence[ir.Type]) -> Value:
        module = self.ir.module
        existing = module.globals.get(name)
        return existing or ir.Function(module, ir.FunctionType(returned, list(arguments)), name)

    # -- 16-bit floats --------------------------------------------------------------------------------------------
    def _widen(self, type_name: str, low_bits: Value) -> Value:
        """float32 of the 16-bit floats in the low half of each lane."""
        build = self.ir
        if type_name == "bf16":
            return self.bits(build.shl(low_bits, self.constant(I32, 16)), F32)
        sign = build.shl(build.and_(low_bits, self.constant(I32, 0x8000)), self.constant(I32, 16))
        magnitude = build.and_(low_bits, self.constant(I32, 0x7FFF))
        shifted = build.shl(magnitude, self.constant(I32, 13))
        scaled = self.bits(build.fmul(self.bits(shifted, F32), self.constant(F32, 2.0**112)), I32)
        special = build.icmp_unsigned(">=", magnitude, self.constant(I32, 0x7C00))
        finite_or_not = build.select(special, build.or_(shifted, self.constant(I32, 0x7F800000)), scaled)
        return self.bits(build.or_(sign, finite_or_not), F32)

    def narrow(self, type_name: str, value: Value) -> Value:
        """Round float32 to the nearest 16-bit float (ties to even); the bits come in the low half of 32-bit lanes."""
        bits = self.bits(value, I32)
        return self._narrow_bfloat(bits) if type_name == "bf16" else self._narrow_half(bits)

    def _narrow_bfloat(self, bits: Value) -> Value:
        build = self.ir
        odd = build.and_(build.lshr(bits, self.constant(I32, 16)), self.constant(I32, 1))
        rounded = build.add(build.add(bits, self.constant(I32, 0x7FFF)), odd)
        magnitude = build.and_(bits, self.constant(I32, 0x7FFFFFFF))
        is_nan = build.icmp_unsigned(">", magnitude, self.constant(I32, 0x7F800000))
        return build.select(is_nan, self.constant(I32, 0x7FFF), build.lshr(rounded, self.constant(I32, 16)))

    def _narrow_half(self, bits: Value) -> Value:
        build = self.ir
        sign = build.and_(build.lshr(bits, self.constant(I32, 16)), self.constant(I32, 0x8000))
        magnitude = build.and_(bits, self.constant(I32, 0x7FFFFFFF))
        odd = build.and_(build.lshr(magnitude, self.constant(I32, 13)), self.constant(I32, 1))
        rebased = build.sub(magnitude, self.constant(I32, 0x38000000 - 0xFFF))
        normal = build.lshr(build.add(rebased, odd), self.constant(I32, 13))
        half_ulp = self.bits(build.fadd(self.bits(magnitude, F32), self.constant(F32, 0.5)), I32)
        subnormal = build.sub(half_ulp, self.constant(I32, 0x3F000000))
        is_small = build.icmp_unsigned("<", magnitude, self.constant(I32, 0x38800000))
        finite = build.select(is_small, subnormal, normal)
        is_large = build.icmp_unsigned(">=", magnitude, self.constant(I32, 0x47800000))
        finite = build.select(is_large, self.constant(I32, 0x7C00), finite)
        is_nan = build.icmp_unsigned(">", magnitude, self.constant(I32, 0x7F800000))
        return build.select(is_nan, self.constant(I32, 0x7FFF), build.or_(sign, finite))


def both_halves(emit: Callable[..., Value]) -> Callable[..., Value]:
    """The packed form of an operation on single 16-bit floats."""

    def packed(lanes: LaneEmitter, *arguments: Value) -> Value:
        low = emit(lanes, *(argument[0] for argument in arguments))
        high = emit(lanes, *(argument[1] for argument in arguments))
        return (low, high)

    return packed


def _suffix(vector: ir.Type) -> str:
    element = cast(ir.VectorType, vector).element
    if isinstance(element, ir.IntType):
        return f"v{LANES}i{element.width}"
    return f"v{LANES}f32" if element == F32 else f"v{LANES}f64"
