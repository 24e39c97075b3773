"""Decoding of lane-wise operations: arithmetic, moves, comparisons, carries."""

from __future__ import annotations

from collections.abc import Sequence

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.machine.operations import OPERATION_CODES
from services.evaluator.interpreter.ptx.decoding.accesses import SPACES, WINDOWS
from services.evaluator.interpreter.ptx.decoding.decoder import Decoder
from services.evaluator.interpreter.ptx.decoding.mnemonics import split_opcode, type_spellings
from services.evaluator.interpreter.ptx.parsing import TYPE_BITS, Group, Operand, Symbol


def decode_operation(decoder: Decoder) -> None:
    base, modifiers, types = split_opcode(decoder.instruction)
    if base == "mad" and types and types[-1] in ("f32", "f64"):
        base = "fma"
    for candidate in type_spellings(base, types):
        name = ".".join([base, *modifiers, *candidate])
        if name in OPERATION_CODES:
            decoder.apply(name, decoder.instruction.operands)
            return
    raise decoder.fail("is not supported by the interpreter")


def decode_move(decoder: Decoder) -> None:
    result, source = decoder.operands(2)[:2]
    kind = decoder.instruction.opcode[-1]
    if isinstance(source, Group):
        _pack(decoder, result, source.elements, kind)
    elif isinstance(result, Group):
        _unpack(decoder, result.elements, source, kind)
    elif isinstance(source, Symbol) and source.name in layout.CLOCK_REGISTERS:
        wide = int(kind.endswith("64"))
        decoder.emit(layout.KIND_CLOCK, d0=decoder.destination(result, kind), wide=wide)
    else:
        kind = kind if kind == "pred" else f"b{TYPE_BITS[kind]}"
        decoder.apply(f"mov.{kind}", (result, source))


def _pack(decoder: Decoder, result: Operand | None, parts: Sequence[Operand | None], kind: str) -> None:
    name = f"pack.{kind}.b{TYPE_BITS[kind] // len(parts)}"
    if name not in OPERATION_CODES:
        raise decoder.fail("packs registers in an unsupported way")
    decoder.apply(name, (result, *parts))


def _unpack(decoder: Decoder, parts: Sequence[Operand | None], source: Operand | None, kind: str) -> None:
    name = f"unpack.{kind}.b{TYPE_BITS[kind] // len(parts)}"
    if name not in OPERATION_CODES:
        raise decoder.fail("unpacks a register in an unsupported way")
    decoder.apply(name, (Group(tuple(parts)), source))


def decode_address_conversion(decoder: Decoder) -> None:
    opcode = decoder.instruction.opcode
    space = next((part.split("::")[0] for part in opcode if part.split("::")[0] in SPACES), "global")
    window = WINDOWS[space]
    if "to" in opcode:
        window = -window
    result, source = decoder.operands(2)[:2]
    wide = opcode[-1].endswith("64")
    kind = "b64" if wide else "b32"
    if not window or not wide:
        decoder.apply(f"mov.{kind}", (result, source))
        return
    rows = [decoder.source(source, kind), decoder.constant(window, 8)]
    decoder.operate("add.b64", [decoder.destination(result, kind)], rows)


def decode_space_test(decoder: Decoder) -> None:
    result, source = decoder.operands(2)[:2]
    space = decoder.instruction.opcode[1].split("::")[0]
    address = decoder.source(source, "b64")
    row = decoder.destination(result, "pred")
    if space == "global":
        decoder.operate("setp.ge.u64", [row], [address, decoder.constant(layout.VARIABLE_WINDOW, 8)])
        return
    relative = decoder.new_row("b64")
    decoder.operate("add.b64", [relative], [address, decoder.constant(-WINDOWS[space], 8)])
    decoder.operate("setp.lt.u64", [row], [relative, decoder.constant(layout.WINDOW_BYTES, 8)])


def decode_comparison(decoder: Decoder) -> None:
    _, *parts = decoder.instruction.opcode
    operands = decoder.operands(3)
    kind = parts[-1]
    joined = next((part for part in parts if part in ("and", "or", "xor")), None)
    name = _comparison_name(decoder, parts[0], kind)
    results = operands[0].elements if isinstance(operands[0], Group) else (operands[0],)
    sources = [decoder.source(operand, kind) for operand in operands[1:3]]
    if kind.endswith("x2"):
        decoder.operate(name, [decoder.destination(result, "pred") for result in results], sources)
        return
    raw = decoder.new_row("pred") if joined or len(results) > 1 else decoder.destination(results[0], "pred")
    decoder.operate(name, [raw], sources)
    if not joined and len(results) == 1:
        return
    inverse = decoder.new_row("pred")
    decoder.operate("not.pred", [inverse], [raw])
    third = decoder.source(operands[3], "pred") if joined else None
    for result, row in zip(results, (raw, inverse), strict=False):
        target = decoder.destination(result, "pred")
        if third is None:
            decoder.operate("mov.pred", [target], [row])
        else:
            decoder.operate(f"{joined}.pred", [target], [row, third])


def _comparison_name(decoder: Decoder, comparison: str, kind: str) -> str:
    comparison = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(comparison, comparison)
    for spelling in (kind, f"b{TYPE_BITS[kind]}", f"u{TYPE_BITS[kind]}" if kind[0] == "b" else kind):
        if f"setp.{comparison}.{spelling}" in OPERATION_CODES:
            return f"setp.{comparison}.{spelling}"
    raise decoder.fail("compares in an unsupported way")


def decode_set(decoder: Decoder) -> None:
    _, comparison, *parts = decoder.instruction.opcode
    result_kind, kind = parts[-2:]
    operands = decoder.operands(3)
    if kind.endswith("x2"):
        name = f"set.{comparison}.{result_kind}.{kind}"
        if name not in OPERATION_CODES:
            raise decoder.fail("compares in an unsupported way")
        decoder.apply(name, operands)
        return
    test = decoder.new_row("pred")
    sources = [decoder.source(operand, kind) for operand in operands[1:3]]
    decoder.operate(_comparison_name(decoder, comparison, kind), [test], sources)
    joined = next((part for part in parts if part in ("and", "or", "xor")), None)
    if joined:
        decoder.operate(f"{joined}.pred", [test], [test, decoder.source(operands[3], "pred")])
    bits = TYPE_BITS[result_kind]
    one = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(result_kind, -1)
    ones, zeros = decoder.constant(one, 4), decoder.constant(0, 4)
    decoder.operate(f"selp.b{bits}", [decoder.destination(operands[0], result_kind)], [ones, zeros, test])


def decode_carrying(decoder: Decoder) -> None:
    base, *parts = decoder.instruction.opcode
    takes = base in ("addc", "subc", "madc")
    gives = "cc" in parts
    if not takes and not gives:
        decode_operation(decoder)
        return
    kind = parts[-1]
    operands = decoder.operands(3)
    carry_in = decoder.frame.carry if takes else decoder.constant(0, 0)
    carry_out = decoder.frame.carry if gives else layout.SINK_OFFSET
    stem = {"add": "addc", "sub": "subc", "mad": "madc"}.get(base, base)
    name = f"madc.{parts[0]}.{kind}" if stem == "madc" else f"{stem}.b{TYPE_BITS[kind]}"
    if name not in OPERATION_CODES:
        raise decoder.fail("carries in an unsupported way")
    sources = [decoder.source(operand, kind) for operand in operands[1:]] + [carry_in]
    decoder.operate(name, [decoder.destination(operands[0], kind), carry_out], sources)


def decode_active_mask(decoder: Decoder) -> None:
    decoder.emit(layout.KIND_ACTIVE_MASK, d0=decoder.destination(decoder.operands(1)[0], "b32"))


def decode_policy(decoder: Decoder) -> None:
    decoder.operate("mov.b64", [decoder.destination(decoder.operands(1)[0], "b64")], [decoder.constant(0, 8)])
