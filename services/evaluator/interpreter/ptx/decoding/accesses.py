"""Decoding of memory accesses: loads, stores, atomics, asynchronous copies, phase barriers (mbarrier)."""

from __future__ import annotations

from collections.abc import Sequence

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.machine.lanes import LANES, row_bytes
from services.evaluator.interpreter.machine.operations import MAX_DESTINATIONS
from services.evaluator.interpreter.ptx.decoding.decoder import Decoder
from services.evaluator.interpreter.ptx.parsing import TYPE_BITS, Address, Group, Immediate, Operand, Register, Symbol

_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})
SPACES = {
    "global": layout.SPACE_GLOBAL,
    "shared": layout.SPACE_SHARED,
    "local": layout.SPACE_LOCAL,
    "const": layout.SPACE_CONST,
    "param": layout.SPACE_PARAM,
}
WINDOWS = {
    "shared": layout.SHARED_WINDOW,
    "local": layout.LOCAL_WINDOW,
    "param": layout.PARAM_WINDOW,
    "global": 0,
    "const": 0,
}
_ATOMIC_TYPES = {
    "s32": layout.TYPE_S32,
    "u32": layout.TYPE_U32,
    "b32": layout.TYPE_U32,
    "s64": layout.TYPE_S64,
    "u64": layout.TYPE_U64,
    "b64": layout.TYPE_U64,
    "f32": layout.TYPE_F32,
    "f64": layout.TYPE_F64,
    "b16": layout.TYPE_B16,
    "f16": layout.TYPE_F16,
    "bf16": layout.TYPE_BF16,
    "f16x2": layout.TYPE_F16X2,
    "bf16x2": layout.TYPE_BF16X2,
}
_ALL_GROUPS = -1
_PHASE_UNSUPPORTED = ("complete_tx", "pending_count")


def _memory_columns(decoder: Decoder, address: Operand | None, space: str) -> dict[str, int]:
    if not isinstance(address, Address):
        raise decoder.fail("the address is not in brackets")
    offset = address.offset
    base, wide = decoder.constant(0, 8), 1
    if isinstance(address.base, Register):
        declared = decoder.kind_of(address.base)
        base, wide = decoder.frame.registers[address.base.number], int(declared.endswith("64"))
        if space == "param" and decoder.frame.depth:
            space = "local"
    elif isinstance(address.base, Symbol):
        found_space, place = decoder.address_of(address.base)
        offset += place
        space = found_space if space in ("param", "") or found_space in ("local", "shared") else space
    window = WINDOWS.get(space, 0)
    return {
        "s0": base,
        "address_wide": wide,
        "offset": offset,
        "window": window,
        "space": SPACES.get(space, layout.SPACE_GENERIC),
    }


def _access(decoder: Decoder) -> tuple[str, str, int, int]:
    """State space, element type, elements, and whether the access is strong."""
    opcode = decoder.instruction.opcode
    space = next((part.split("::")[0] for part in opcode[1:] if part.split("::")[0] in SPACES), "")
    if "shared::cluster" in opcode:
        raise decoder.fail("distributed shared memory is not supported")
    count = next((int(part[1:]) for part in opcode if part in ("v2", "v4", "v8")), 1)
    kind = opcode[-1]
    if kind not in TYPE_BITS or kind == "b128" or count > MAX_DESTINATIONS:
        raise decoder.fail("has an unsupported type")
    return space, kind, count, int(any(part in _STRONG for part in opcode))


def _elements(decoder: Decoder, operand: Operand | None, count: int) -> tuple[Operand | None, ...]:
    elements = operand.elements if isinstance(operand, Group) else (operand,)
    if len(elements) != count:
        raise decoder.fail(f"names {len(elements)} registers for {count} elements")
    return elements


def _data_width(decoder: Decoder, elements: Sequence[Operand | None], kind: str) -> int:
    widths = {row_bytes(decoder.kind_of(element)) for element in elements if isinstance(element, Register)}
    width = widths.pop() if len(widths) == 1 else row_bytes(kind)
    if widths or width < row_bytes(kind):
        raise decoder.fail("has registers of the wrong width")
    return int(width == 8 * LANES)


def decode_load(decoder: Decoder) -> None:
    space, kind, count, strong = _access(decoder)
    operands = decoder.operands(2)
    elements = _elements(decoder, operands[0], count)
    wide = _data_width(decoder, elements, kind)
    rows = {
        f"d{index}": decoder.destination(element, "b64" if wide else "b32") for index, element in enumerate(elements)
    }
    decoder.emit(
        layout.KIND_LOAD,
        rows | _memory_columns(decoder, operands[1], space),
        size=TYPE_BITS[kind] // 8,
        count=count,
        signed=int(kind[0] == "s"),
        wide=wide,
        strong=strong,
        constant=int("nc" in decoder.instruction.opcode),
    )


def decode_store(decoder: Decoder) -> None:
    space, kind, count, strong = _access(decoder)
    operands = decoder.operands(2)
    elements = _elements(decoder, operands[1], count)
    wide = _data_width(decoder, elements, kind)
    rows = {
        f"s{1 + index}": decoder.source(element, "b64" if wide else "b32") for index, element in enumerate(elements)
    }
    columns = _memory_columns(decoder, operands[0], space)
    size = TYPE_BITS[kind] // 8
    decoder.emit(layout.KIND_STORE, rows | columns, size=size, count=count, wide=wide, strong=strong)


def decode_atomic(decoder: Decoder) -> None:
    space, kind, count, _ = _access(decoder)
    opcode = decoder.instruction.opcode
    operator = next((part for part in opcode[1:] if part in layout.ATOMIC_NAMES), None)
    if operator is None or count != 1 or kind not in _ATOMIC_TYPES:
        raise decoder.fail("is not supported by the interpreter")
    operands = list(decoder.operands(2))
    wide = int(kind.endswith("64"))
    row_kind = "b64" if wide else "b32"
    result: Operand | None = operands.pop(0) if opcode[0] == "atom" else None
    rows = {"d0": decoder.destination(result, row_kind)}
    for index, operand in enumerate(operands[1:3]):
        rows[f"s{1 + index}"] = decoder.source(operand, row_kind)
    decoder.emit(
        layout.KIND_ATOMIC,
        rows | _memory_columns(decoder, operands[0], space),
        code=layout.ATOMIC_NAMES.index(operator),
        type=_ATOMIC_TYPES[kind],
        size=TYPE_BITS[kind] // 8,
        count=1,
        wide=wide,
        strong=1,
        replaces=int(operator == "exch" and not _is_used(decoder, result)),
    )


def _is_used(decoder: Decoder, result: Operand | None) -> bool:
    """Whether another instruction of the function names the register."""
    if not isinstance(result, Register):
        return False
    others = (each for each in decoder.frame.function.instructions if each is not decoder.instruction)
    return any(result.number in _numbers((each.guard, *each.operands)) for each in others)


def _numbers(operands: Sequence[Operand | None]) -> set[int]:
    """Of the registers that operands name."""
    numbers: set[int] = set()
    for operand in operands:
        match operand:
            case Register(number=number) | Address(base=Register(number=number)):
                numbers.add(number)
            case Group(elements=elements):
                numbers |= _numbers(elements)
            case _:
                pass
    return numbers


def decode_copy(decoder: Decoder) -> None:
    opcode = decoder.instruction.opcode
    if "reduce" in opcode:
        raise decoder.fail("is not supported by the interpreter")
    if "bulk" in opcode:
        _decode_bulk(decoder)
        return
    if opcode[2] == "commit_group":
        decoder.emit(layout.KIND_COMMIT_COPIES)
        return
    if opcode[2] == "wait_all" or "mbarrier" in opcode:
        decoder.emit(layout.KIND_WAIT_FOR_COPIES, code=_ALL_GROUPS)
        if "noinc" in opcode:
            columns = _memory_columns(decoder, decoder.operands(1)[0], "shared")
            _emit_phase(decoder, columns, layout.PHASE_ARRIVE, s1=decoder.constant(1, 4))
        return
    if opcode[2] == "wait_group":
        decoder.emit(layout.KIND_WAIT_FOR_COPIES, code=_constant(decoder, decoder.operands(1)[0], "the number"))
        return
    operands = decoder.operands(3)
    size = _constant(decoder, operands[2], "the size")
    columns = _memory_columns(decoder, operands[1], "global")
    target = _memory_columns(decoder, operands[0], "shared")
    read_bytes = decoder.constant(size, 4)
    if len(operands) > 3 and isinstance(operands[3], Register | Immediate):
        kind = "b32" if not isinstance(operands[3], Register) else decoder.kind_of(operands[3])
        if kind == "pred":
            raise decoder.fail("with an ignore-src predicate is not supported")
        read_bytes = decoder.source(operands[3], "b32")
    decoder.emit(
        layout.KIND_COPY,
        columns,
        d0=target["s0"],
        d1=target["address_wide"],
        d2=target["offset"],
        s1=read_bytes,
        size=size,
        count=1,
    )


def _constant(decoder: Decoder, operand: Operand | None, what: str) -> int:
    if not isinstance(operand, Immediate):
        raise decoder.fail(f"{what} is not a constant")
    return operand.value


def _decode_bulk(decoder: Decoder) -> None:
    opcode = decoder.instruction.opcode
    if "commit_group" in opcode:
        decoder.emit(layout.KIND_NOTHING)
        return
    if "wait_group" in opcode:
        decoder.emit(layout.KIND_WAIT_FOR_BULK, code=_constant(decoder, decoder.operands(1)[0], "the number"))
        return
    operands = decoder.operands(3)
    spaces = [part.split("::")[0] for part in opcode if part.split("::")[0] in ("global", "shared")]
    if spaces not in (["shared", "global"], ["global", "shared"]) or not _BULK_PARTS.issuperset(opcode):
        raise decoder.fail("is not supported by the interpreter")
    to_shared = spaces[0] == "shared"
    target, source = (_memory_columns(decoder, operands[at], spaces[at]) for at in (0, 1))
    barrier = _memory_columns(decoder, operands[3], "shared") if to_shared else target
    decoder.emit(
        layout.KIND_BULK_COPY,
        source,
        d0=target["s0"],
        d1=target["address_wide"],
        d2=target["offset"],
        d3=barrier["address_wide"],
        s1=decoder.source(operands[2], "b32"),
        s2=barrier["s0"],
        target=barrier["offset"],
        signed=int(to_shared),
        count=1,
    )


_BULK_PARTS = frozenset(
    {"cp", "async", "bulk", "shared::cluster", "shared::cta", "global", "mbarrier::complete_tx::bytes", "bulk_group"}
    | {"L2::cache_hint"}
)


def decode_phase_barrier(decoder: Decoder) -> None:
    opcode = decoder.instruction.opcode
    action = opcode[1]
    operands = list(decoder.operands(1))
    if action in _PHASE_UNSUPPORTED:
        raise decoder.fail("is not supported by the interpreter")
    if action == "inval":
        decoder.emit(layout.KIND_NOTHING)
        return
    result = operands.pop(0) if action in ("arrive", "arrive_drop", "test_wait", "try_wait") else None
    columns = _memory_columns(decoder, operands[0], "shared")
    if action == "init":
        _emit_phase(decoder, columns, layout.PHASE_INIT, s1=decoder.source(operands[1], "b32"))
    elif action == "expect_tx":
        _emit_phase(decoder, columns, layout.PHASE_BYTES, s2=decoder.source(operands[1], "b32"))
    elif action in ("arrive", "arrive_drop"):
        number = decoder.source(operands[1], "b32") if len(operands) > 1 else decoder.constant(1, 4)
        brings_bytes = "expect_tx" in opcode
        _emit_phase(
            decoder,
            columns,
            layout.PHASE_ARRIVE if action == "arrive" else layout.PHASE_DROP,
            d0=decoder.destination(result, "b64"),
            s1=decoder.constant(1, 4) if brings_bytes else number,
            s2=number if brings_bytes else decoder.constant(0, 4),
        )
    else:
        by_parity = "parity" in opcode
        _emit_phase(
            decoder,
            columns,
            layout.PHASE_PARITY if by_parity else layout.PHASE_WAIT,
            d0=decoder.destination(result, "pred"),
            s1=decoder.source(operands[1], "b32" if by_parity else "b64"),
        )


def _emit_phase(decoder: Decoder, address: dict[str, int], code: int, **columns: int) -> None:
    rows = {"d0": layout.SINK_OFFSET, "s1": decoder.constant(0, 4), "s2": decoder.constant(0, 4), **columns}
    decoder.emit(layout.KIND_PHASE_BARRIER, address | rows, code=code, size=8, count=1, strong=1)
