"""Decoding of branches, calls (which are inlined), returns, fences, traps and hints."""

from __future__ import annotations

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.ptx.decoding.decoder import Decoder
from services.evaluator.interpreter.ptx.parsing import Function, Group, Symbol

MAX_CALL_DEPTH = 1024


def decode_branch(decoder: Decoder) -> None:
    target = decoder.operands(1)[0]
    if not isinstance(target, Symbol):
        raise decoder.fail("the target is not a label")
    decoder.emit(layout.KIND_BRANCH, label=target.name)


def decode_indexed_branch(decoder: Decoder) -> None:
    index, table = decoder.operands(2)[:2]
    if not isinstance(table, Symbol) or table.name not in decoder.frame.function.branch_tables:
        raise decoder.fail("the branch table is not known")
    if decoder.guard[0] >= 0:
        raise decoder.fail("a guarded indexed branch is not supported")
    targets = decoder.frame.function.branch_tables[table.name]
    row = decoder.source(index, "b32")
    for number, name in enumerate(targets[:-1]):
        hit = decoder.new_row("pred")
        decoder.operate("setp.eq.b32", [hit], [row, decoder.constant(number, 4)])
        decoder.emit(layout.KIND_BRANCH, label=name, guard=(hit, 0))
    decoder.emit(layout.KIND_BRANCH, label=targets[-1])


def decode_return(decoder: Decoder) -> None:
    if decoder.instruction.opcode[0] == "ret" and decoder.frame.return_label is not None:
        decoder.emit(layout.KIND_BRANCH, label=decoder.frame.return_label)
    else:
        decoder.emit(layout.KIND_RETURN)


def decode_call(decoder: Decoder) -> None:
    operands = list(decoder.operands(1))
    results = operands.pop(0) if isinstance(operands[0], Group) else Group(())
    name, arguments = operands[0], operands[1] if len(operands) > 1 else Group(())
    if not isinstance(name, Symbol) or not isinstance(results, Group) or not isinstance(arguments, Group):
        raise decoder.fail("indirect calls are not supported")
    if name.name == "vprintf":
        decoder.emit(layout.KIND_NOTHING)
        return
    if name.name in ("__assertfail", "__trap"):
        decoder.emit(layout.KIND_TRAP)
        return
    function = decoder.text.functions.get(name.name)
    if function is None or not function.has_body:
        raise decoder.fail(f"calls '{name.name}', which has no code in the module")
    if decoder.frame.depth >= MAX_CALL_DEPTH or decoder.is_inside(function):
        raise decoder.fail(f"calls '{name.name}' recursively or over {MAX_CALL_DEPTH} levels deep")
    _inline(decoder, function, results, arguments)


def _inline(decoder: Decoder, function: Function, results: Group, arguments: Group) -> None:
    symbols: dict[str, tuple[str, int]] = {}
    formal = (*function.results, *function.parameters)
    actual = (*results.elements, *arguments.elements)
    if len(formal) != len(actual):
        raise decoder.fail(f"calls '{function.name}' with {len(actual)} parameters instead of {len(formal)}")
    for variable, operand in zip(formal, actual, strict=True):
        if not isinstance(operand, Symbol):
            raise decoder.fail("passes a register as a parameter")
        symbols[variable.name] = decoder.address_of(operand)
    skip = f"skip call {len(decoder.progress.rows)}"
    if decoder.guard[0] >= 0:
        decoder.emit(layout.KIND_BRANCH, label=skip, guard=(decoder.guard[0], 1 - decoder.guard[1]))
    decoder.enter(function, symbols, "return", skip)


def decode_nothing(decoder: Decoder) -> None:
    decoder.emit(layout.KIND_NOTHING)


def decode_fence(decoder: Decoder) -> None:
    decoder.emit(layout.KIND_FENCE)


def decode_grid_dependency(decoder: Decoder) -> None:
    waits = "wait" in decoder.instruction.opcode
    decoder.emit(layout.KIND_WAIT_FOR_GRID if waits else layout.KIND_NOTHING)


def decode_trap(decoder: Decoder) -> None:
    decoder.emit(layout.KIND_TRAP)
