"""Atomics whose order, which no device promises, decides the bits of what they leave.

Those are atomic additions of floating-point numbers, and compare-and-swap and exchange, from which any operation on
such numbers can be made. Whole numbers may be added, and joined by min, max, and, or, xor: every order gives the same.

What this does not see: a program that lets the result of an atomic addition of whole numbers (a ticket) decide in which
order it adds up others. The repeated runs are what finds that.
"""

from collections.abc import Iterator

from services.evaluator.ptx import Function, Instruction

_FLOATING = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"})
_ANY_OPERATION = frozenset({"cas", "exch"})


def unordered_atomics(function: Function) -> Iterator[tuple[str, int]]:
    """Instructions and their lines, in the order of the code."""
    for instruction in function.instructions:
        if _is_unordered(instruction):
            yield ".".join(instruction.opcode), instruction.line


def _is_unordered(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    is_atomic = opcode[0] in ("atom", "red", "multimem") or (opcode[0] == "cp" and "reduce" in opcode)
    return is_atomic and not {*_FLOATING, *_ANY_OPERATION}.isdisjoint(opcode)
