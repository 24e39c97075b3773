"""Reading mnemonics: base name, modifiers that matter, types and their spellings in the table of operations."""

from __future__ import annotations

from services.evaluator.interpreter.ptx.parsing import TYPE_BITS, Instruction

_IGNORED_MODIFIERS = frozenset({"rn", "ftz", "noftz", "approx", "full", "satfinite"})
_BITWISE = frozenset({"selp", "slct", "and", "or", "xor", "not"})


def split_opcode(instruction: Instruction) -> tuple[str, list[str], list[str]]:
    """Base name, modifiers that matter, and trailing types."""
    base, *parts = instruction.opcode
    types: list[str] = []
    while parts and (parts[-1] in TYPE_BITS or parts[-1] == "pred"):
        types.insert(0, parts.pop())
    return base, [part for part in parts if part not in _IGNORED_MODIFIERS], types


def type_spellings(base: str, types: list[str]) -> list[list[str]]:
    """The types as written, then as untyped bits where that means the same."""
    spellings = [types]
    if all(kind[0] in "sub" and kind[1] != "f" for kind in types) or base in _BITWISE:
        untyped = [kind if kind == "pred" else f"b{TYPE_BITS[kind]}" for kind in types]
        spellings.append(untyped)
        if len(types) > 1:
            spellings.append([untyped[0], *types[1:]])
        spellings.append([f"u{kind[1:]}" if kind[0] == "b" else kind for kind in types])
    return spellings


def with_sign(kind: str) -> str:
    """An untyped width as an unsigned integer type."""
    return "u" + kind[1:] if kind[0] == "b" and kind[1] != "f" else kind
