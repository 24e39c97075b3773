"""Decoding of conversions (cvt), in steps where the table of operations has no direct one."""

from __future__ import annotations

from collections.abc import Sequence

from services.evaluator.interpreter.machine.lanes import LANES, row_bytes
from services.evaluator.interpreter.machine.operations import OPERATION_CODES
from services.evaluator.interpreter.ptx.decoding.decoder import Decoder
from services.evaluator.interpreter.ptx.decoding.mnemonics import split_opcode, with_sign
from services.evaluator.interpreter.ptx.parsing import TYPE_BITS, Operand, Register


def decode_conversion(decoder: Decoder) -> None:
    _, modifiers, types = split_opcode(decoder.instruction)
    if len(types) != 2:
        raise decoder.fail("is not supported by the interpreter")
    result_kind, kind = types
    operands = decoder.operands(2)
    if result_kind.endswith("x2") or result_kind == "tf32":
        name = ".".join(["cvt", *modifiers, result_kind, kind])
        if name not in OPERATION_CODES:
            raise decoder.fail("converts in an unsupported way")
        decoder.apply(name, operands)
        return
    source = _conversion_source(decoder, operands[1], kind)
    _convert(decoder, decoder.destination(operands[0], result_kind), source, result_kind, kind, modifiers)


def _conversion_source(decoder: Decoder, operand: Operand | None, kind: str) -> int:
    """Integers may sit in registers wider than the type that is read."""
    if isinstance(operand, Register) and kind[0] in "bsu" and row_bytes(kind) == 4 * LANES:
        declared = decoder.kind_of(operand)
        if row_bytes(declared) == 8 * LANES:
            narrow = decoder.new_row("b32")
            decoder.operate("cvt.u32.u64", [narrow], [decoder.frame.registers[operand.number]])
            return narrow
    return decoder.source(operand, kind)


def _convert(decoder: Decoder, result: int, source: int, result_kind: str, kind: str, modifiers: Sequence[str]) -> None:
    to_float, from_float = "f" in result_kind, "f" in kind
    saturate = "sat" in modifiers
    way = next((modifier for modifier in modifiers if modifier[0] == "r" and modifier != "relu"), "")
    if not to_float and not from_float:
        if saturate:
            raise decoder.fail("saturating integer conversion is not supported")
        decoder.operate(f"cvt.{with_sign(result_kind)}.{with_sign(kind)}", [result], [source])
    elif not to_float:
        _convert_to_integer(decoder, result, source, result_kind, kind, way)
    else:
        _convert_to_float(decoder, result, source, result_kind, kind, way, saturate=saturate)


def _convert_to_integer(decoder: Decoder, result: int, source: int, result_kind: str, kind: str, way: str) -> None:
    if kind in ("f16", "bf16"):
        wide = decoder.new_row("f32")
        decoder.operate(f"cvt.f32.{kind}", [wide], [source])
        source, kind = wide, "f32"
    if way in ("rni", "rmi", "rpi"):
        rounded = decoder.new_row(kind)
        decoder.operate(f"cvt.{way}.{kind}.{kind}", [rounded], [source])
        source = rounded
    decoder.operate(f"cvt.rzi.{result_kind}.{kind}", [result], [source])


def _convert_to_float(
    decoder: Decoder, result: int, source: int, result_kind: str, kind: str, way: str, *, saturate: bool
) -> None:
    if result_kind in ("f16", "bf16") and kind != result_kind:
        if kind != "f32":
            wide = decoder.new_row("f32")
            _convert_to_float(decoder, wide, source, "f32", kind, "", saturate=False)
            source = wide
        if saturate:
            clamped = decoder.new_row("f32")
            decoder.operate("cvt.sat.f32.f32", [clamped], [source])
            source = clamped
        _operate_conversion(decoder, result, source, result_kind, "f32", way)
        return
    if kind in ("f16", "bf16") and result_kind == "f64":
        wide = decoder.new_row("f32")
        decoder.operate(f"cvt.f32.{kind}", [wide], [source])
        source, kind = wide, "f32"
    if kind == result_kind and not way:
        name = f"cvt.sat.{kind}.{kind}" if saturate else f"mov.b{TYPE_BITS[kind]}"
        if name not in OPERATION_CODES:
            raise decoder.fail("converts in an unsupported way")
        decoder.operate(name, [result], [source])
        return
    _operate_conversion(decoder, result, source, result_kind, kind, way)
    if saturate:
        decoder.operate(f"cvt.sat.{result_kind}.{result_kind}", [result], [result])


def _operate_conversion(decoder: Decoder, result: int, source: int, result_kind: str, kind: str, way: str) -> None:
    name = ".".join(part for part in ("cvt", way, result_kind, with_sign(kind)) if part)
    if name not in OPERATION_CODES:
        raise decoder.fail("converts in an unsupported way")
    decoder.operate(name, [result], [source])
