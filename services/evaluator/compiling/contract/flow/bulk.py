"""Bulk copies (cp.async.bulk) that nobody waits for, seen in the code: a GPU need not show them.

Shared memory is read behind a bulk copy into it only where some wait for a phase barrier stands on every path from the
copy's kernel's begin; and a bulk store is waited for on every path before its thread leaves.

What this does not prove: that the wait is for the right barrier or phase (the interpreter runs that).
"""

from collections.abc import Iterator
from typing import NamedTuple

from services.evaluator.compiling.contract.flow.graph import edges_of
from services.evaluator.ptx import Function
from services.evaluator.ptx.module import Instruction


class Copies(NamedTuple):
    """On the way to an instruction."""

    loaded: bool = False
    """A bulk copy into shared memory may be under way."""
    waited: bool = False
    """Some phase was waited for, on every path."""
    stored: int = 0
    """The line of a bulk store that may be under way, or 0."""


def unfinished_copies(function: Function) -> Iterator[str]:
    """What is read too early or left behind, each with its line and what to write instead."""
    if not any("bulk" in each.opcode for each in function.instructions):
        return
    edges = edges_of(function)
    states = {0: Copies()}
    waiting = [0]
    found: dict[str, None] = {}
    while waiting:
        index = waiting.pop()
        if index >= len(function.instructions):
            continue
        instruction, state = function.instructions[index], states[index]
        if _reads_shared(instruction) and state.loaded and not state.waited:
            found[
                f"line {instruction.line}: shared memory is read while a bulk copy into it may be under way: {_WAIT}"
            ] = None
        if instruction.opcode[0] in ("ret", "exit") and state.stored:
            found[f"line {state.stored}: a bulk store is not waited for on every path: {_WAIT_GROUP}"] = None
        after = _after(instruction, state)
        for target in edges[index]:
            if target is None:
                continue
            merged = _met(states[target], after) if target in states else after
            if states.get(target) != merged:
                states[target] = merged
                waiting.append(target)
    yield from found


_WAIT = "loop over mbarrier.try_wait before the first read"
_WAIT_GROUP = "cp.async.bulk.commit_group and cp.async.bulk.wait_group 0 before the thread leaves"


def _after(instruction: Instruction, state: Copies) -> Copies:
    opcode = instruction.opcode
    if opcode[0] == "mbarrier" and opcode[1] in ("try_wait", "test_wait"):
        return state._replace(waited=True)
    if opcode[:3] != ("cp", "async", "bulk"):
        return state
    if "wait_group" in opcode and not instruction.guard:
        return state._replace(stored=0)
    if "mbarrier::complete_tx::bytes" in opcode:
        return state._replace(loaded=True)
    return state._replace(stored=instruction.line) if "bulk_group" in opcode else state


def _reads_shared(instruction: Instruction) -> bool:
    return instruction.opcode[0] == "ld" and any(part.startswith("shared") for part in instruction.opcode)


def _met(left: Copies, right: Copies) -> Copies:
    return Copies(left.loaded or right.loaded, left.waited and right.waited, max(left.stored, right.stored))
