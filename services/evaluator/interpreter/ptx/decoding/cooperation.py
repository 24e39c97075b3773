"""Decoding of what lanes and warps do together: shuffles, votes, matches, reductions, barriers."""

from __future__ import annotations

from collections.abc import Mapping

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.ptx.decoding.decoder import Decoder
from services.evaluator.interpreter.ptx.parsing import Group, Immediate, Operand


def decode_shuffle(decoder: Decoder) -> None:
    opcode = decoder.instruction.opcode
    if "sync" not in opcode:
        raise decoder.fail("warp functions without .sync are not supported")
    modes = {
        "up": layout.COLLECTIVE_SHUFFLE_UP,
        "down": layout.COLLECTIVE_SHUFFLE_DOWN,
        "bfly": layout.COLLECTIVE_SHUFFLE_XOR,
        "idx": layout.COLLECTIVE_SHUFFLE_INDEX,
    }
    result, *sources = decoder.operands(5)[:5]
    value, inside = result.elements if isinstance(result, Group) else (result, None)
    rows = {f"s{index}": decoder.source(operand, "b32") for index, operand in enumerate(sources)}
    decoder.emit(
        layout.KIND_COLLECTIVE,
        rows,
        code=modes[opcode[2]],
        d0=decoder.destination(value, "b32"),
        d1=decoder.destination(inside, "pred"),
    )


def decode_vote(decoder: Decoder) -> None:
    opcode = decoder.instruction.opcode
    modes = {
        "any": layout.COLLECTIVE_VOTE_ANY,
        "all": layout.COLLECTIVE_VOTE_ALL,
        "uni": layout.COLLECTIVE_VOTE_UNIFORM,
        "ballot": layout.COLLECTIVE_BALLOT,
    }
    if "sync" not in opcode:
        raise decoder.fail("warp functions without .sync are not supported")
    result, source, members = decoder.operands(3)[:3]
    kind = "b32" if opcode[2] == "ballot" else "pred"
    _emit_collective(decoder, modes[opcode[2]], result, kind, source, "pred", members)


def decode_match(decoder: Decoder) -> None:
    opcode = decoder.instruction.opcode
    result, source, members = decoder.operands(3)[:3]
    value, all_equal = result.elements if isinstance(result, Group) else (result, None)
    code = layout.COLLECTIVE_MATCH_ANY if "any" in opcode else layout.COLLECTIVE_MATCH_ALL
    extra = {"d1": decoder.destination(all_equal, "pred"), "wide": int(opcode[-1].endswith("64"))}
    _emit_collective(decoder, code, value, "b32", source, opcode[-1], members, extra)


def decode_reduction(decoder: Decoder) -> None:
    opcode = decoder.instruction.opcode
    if opcode[2] not in layout.ATOMIC_NAMES or opcode[-1] not in ("s32", "u32", "b32"):
        raise decoder.fail("is not supported by the interpreter")
    result, source, members = decoder.operands(3)[:3]
    extra = {"type": layout.ATOMIC_NAMES.index(opcode[2]), "signed": int(opcode[-1] == "s32")}
    _emit_collective(decoder, layout.COLLECTIVE_REDUCE, result, "b32", source, "b32", members, extra)


def decode_election(decoder: Decoder) -> None:
    result, members = decoder.operands(2)[:2]
    leader, elected = result.elements if isinstance(result, Group) else (result, None)
    row = decoder.destination(elected, "pred")
    source = Immediate(0)
    _emit_collective(decoder, layout.COLLECTIVE_ELECT, leader, "b32", source, "b32", members, {"d1": row})


_SHAPE = ("sync", "aligned", "m16n8k16", "row", "col")
_MULTIPLIED = {"f16": layout.TYPE_F16, "bf16": layout.TYPE_BF16}


def decode_multiplication(decoder: Decoder) -> None:
    """mma.sync.aligned.m16n8k16 of 16-bit floats with sums in float32: an instruction for each register of the result.

    PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
    """
    element = next((name for name in _MULTIPLIED if name in decoder.instruction.opcode), "")
    if tuple(decoder.instruction.opcode[1:]) != (*_SHAPE, "f32", element, element, "f32"):
        raise decoder.fail("is not supported by the interpreter")
    groups = [group.elements if isinstance(group, Group) else () for group in decoder.operands(4)]
    if [len(group) for group in groups] != [4, 4, 2, 4]:
        raise decoder.fail("has an unexpected number of operands")
    results = [decoder.destination(each, "f32") for each in groups[0]]
    left, right = ([decoder.source(each, "b32") for each in group] for group in groups[1:3])
    sums = [decoder.source(each, "f32") for each in groups[3]]
    if any(result in sums[place + 1 :] for place, result in enumerate(results)):
        raise decoder.fail("writes a register that it has still to read: the interpreter does not support it")
    members = decoder.constant(layout.ALL_MEMBERS, 4)
    for place, (result, before) in enumerate(zip(results, sums, strict=True)):
        rows = {"s0": before, "s1": left[place // 2], "s2": left[2 + place // 2], "s4": right[0], "offset": right[1]}
        kind = {"code": layout.COLLECTIVE_MULTIPLY, "type": _MULTIPLIED[element], "signed": place % 2}
        decoder.emit(layout.KIND_COLLECTIVE, rows | kind, d0=result, s3=members)


def _emit_collective(
    decoder: Decoder,
    code: int,
    result: Operand | None,
    result_kind: str,
    source: Operand | None,
    source_kind: str,
    members: Operand | None,
    extra: Mapping[str, int] | None = None,
) -> None:
    decoder.emit(
        layout.KIND_COLLECTIVE,
        extra,
        code=code,
        d0=decoder.destination(result, result_kind),
        s0=decoder.source(source, source_kind),
        s3=decoder.source(members, "b32"),
    )


def decode_barrier(decoder: Decoder) -> None:
    opcode = decoder.instruction.opcode
    if "cluster" in opcode:
        decoder.emit(
            layout.KIND_BARRIER, code=layout.BARRIER_SYNC, s0=decoder.constant(0, 4), s1=decoder.constant(0, 4)
        )
        return
    if "warp" in opcode:
        row = decoder.source(decoder.operands(1)[0], "b32")
        decoder.emit(layout.KIND_COLLECTIVE, code=layout.COLLECTIVE_WARP_BARRIER, s3=row)
        return
    operands = list(decoder.operands(1))
    if "red" in opcode:
        decode_reducing_barrier(decoder, operands)
        return
    mode = layout.BARRIER_ARRIVE if "arrive" in opcode else layout.BARRIER_SYNC
    number = decoder.source(operands[0], "b32")
    threads = decoder.source(operands[1], "b32") if len(operands) > 1 else decoder.constant(0, 4)
    aligned = int(opcode[0] == "bar" or "aligned" in opcode)
    decoder.emit(layout.KIND_BARRIER, code=mode, s0=number, s1=threads, signed=aligned)


def decode_reducing_barrier(decoder: Decoder, operands: list[Operand | None]) -> None:
    opcode = decoder.instruction.opcode
    modes = {"popc": layout.BARRIER_POPC, "and": layout.BARRIER_AND, "or": layout.BARRIER_OR}
    mode = next((modes[part] for part in opcode if part in modes), None)
    if mode is None:
        raise decoder.fail("is not supported by the interpreter")
    result, number, *middle, predicate = operands
    decoder.emit(
        layout.KIND_BARRIER,
        code=mode,
        d0=decoder.destination(result, "b32" if mode == layout.BARRIER_POPC else "pred"),
        s0=decoder.source(number, "b32"),
        s1=decoder.source(middle[0], "b32") if middle else decoder.constant(0, 4),
        s2=decoder.source(predicate, "pred"),
        signed=int(opcode[0] == "bar" or "aligned" in opcode),
    )
