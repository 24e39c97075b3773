"""Whether a clock that is read tells anything but how long to sleep.

CUDA's own barriers (`cuda::barrier` of CCCL 13.0) look at `%globaltimer` while they wait, and sleep the longer the
longer they have waited. That is allowed: what is computed from the clock may decide how long a thread sleeps, the time
limit of `mbarrier.try_wait`, and a branch whose ways do nothing but compute and sleep before they meet again. What
these ways compute counts as computed from the clock, too. Anything else that takes such a value is a leak.

What this does not prove: that nobody learns the time by counting how often another thread of the block came round while
one slept. That takes no clock: any two threads that race can do it.
"""

from collections.abc import Sequence

from services.evaluator.compiling.contract.flow.graph import Edges, edges_of
from services.evaluator.compiling.contract.flow.opcodes import kind_of
from services.evaluator.compiling.contract.flow.unset import Access, accesses_of
from services.evaluator.ptx import Function
from services.evaluator.ptx.module import Instruction

CLOCK = "%globaltimer"
"""The one clock that may be read at all."""


def leak(function: Function) -> int | None:
    """The line of the first instruction that does more with the clock than wait; None where there is none."""
    return _Leak(function).line()


class _Leak:
    def __init__(self, function: Function) -> None:
        self._instructions = function.instructions
        self._accesses = accesses_of(function)
        self._edges = edges_of(function)
        self._told: set[str] = set()
        """Registers that tell of the clock."""
        self._decided: set[int] = set()
        """Instructions that run or not by the clock."""

    def line(self) -> int | None:
        known = -1
        while known != (known := len(self._told) + len(self._decided)):
            for index, (instruction, access) in enumerate(zip(self._instructions, self._accesses, strict=True)):
                told = self._told.intersection(access.read)
                takes = bool(told) or any(CLOCK in operand for operand in instruction.operands)
                if (takes or index in self._decided) and not self._is_waiting(index, instruction, access, told):
                    return instruction.line
        return None

    def _is_waiting(self, index: int, instruction: Instruction, access: Access, told: set[str]) -> bool:
        opcode = instruction.opcode
        if opcode[0] == "bra":
            if access.guard.lstrip("!") in told:
                self._decided |= _until_they_meet(self._edges, index)
            return True
        if opcode[0] == "nanosleep":
            return True
        if opcode[:2] == ("mbarrier", "try_wait"):
            return index not in self._decided and not told.intersection(self._accesses_but_last(instruction, access))
        if kind_of(opcode) != "computes":
            return False
        self._told.update(access.written)
        return True

    def _accesses_but_last(self, instruction: Instruction, access: Access) -> set[str]:
        """What a wait reads beside its time limit."""
        limit = instruction.operands[-1] if len(instruction.operands) > 3 else ""
        return {name for name in access.read if name.partition("#")[0] != limit}


def _until_they_meet(edges: Edges, branch: int) -> set[int]:
    """What a branch decides: all that may run behind it before its ways come together for good."""
    meeting = _meeting_point(edges, branch)
    waiting = [target for target in edges[branch] if target is not None]
    found: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index != meeting and index not in found and index < len(edges):
            found.add(index)
            waiting += [target for target in edges[index] if target is not None]
    return found


def _meeting_point(edges: Edges, branch: int) -> int | None:
    """The first instruction that every way from a branch comes through; None where that is the function's end."""
    end = len(edges)
    behind = _always_behind(edges)
    after = [index for index in range(end) if behind[branch] >> index & 1 and index != branch]
    return max(after, key=lambda index: behind[index].bit_count(), default=None)


def _always_behind(edges: Edges) -> Sequence[int]:
    """For each instruction a bit for each that every way from it to the function's end comes through."""
    end = len(edges)
    everything = (1 << end + 1) - 1
    behind = [everything] * end + [1 << end]
    before: Sequence[int] = ()
    while before != behind:
        before = list(behind)
        for index in range(end - 1, -1, -1):
            common = everything
            for target in edges[index] or (None,):
                common &= behind[end if target is None else target]
            behind[index] = common | 1 << index
    return behind
