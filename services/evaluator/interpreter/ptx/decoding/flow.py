"""What follows from the order of instructions: where divergent lanes meet, and where a warp waits for memory."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.machine.control_flow import meeting_points

_ENDS = (layout.KIND_BRANCH, layout.KIND_RETURN, layout.KIND_TRAP)
NEVER = -1


def set_meeting_points(code: NDArray[np.int64]) -> None:
    """Fill in the join of each conditional branch: its immediate post-dominator, or -1.

    A place where the lanes would only leave the kernel is no join: there is nothing to wait for.
    """
    kinds, guards = code[:, layout.COLUMN_KIND].tolist(), code[:, layout.COLUMN_GUARD].tolist()
    targets = code[:, layout.COLUMN_TARGET].tolist()
    starts = _block_starts(kinds, targets)
    count = len(starts)
    successors: list[list[int]] = []
    for block in range(count):
        last = (starts[block + 1] if block + 1 < count else len(kinds)) - 1
        falls_through = guards[last] >= 0 or kinds[last] not in _ENDS
        following = [block + 1] if falls_through else []
        if kinds[last] == layout.KIND_BRANCH:
            following.append(bisect_right(starts, targets[last]) - 1)
        elif kinds[last] in _ENDS:
            following.append(count)
        successors.append(following)
    meeting = meeting_points(successors)
    for index in np.flatnonzero(code[:, layout.COLUMN_KIND] == layout.KIND_BRANCH).tolist():
        if guards[index] >= 0:
            block = meeting[bisect_right(starts, index) - 1]
            place = starts[block] if 0 <= block < count else NEVER
            leaves = place >= 0 and kinds[place] == layout.KIND_RETURN and guards[place] < 0
            code[index, layout.COLUMN_JOIN] = NEVER if leaves else place


def _block_starts(kinds: list[int], targets: list[int]) -> list[int]:
    starts = {0}
    for index, kind in enumerate(kinds):
        if kind in _ENDS:
            starts.add(index + 1)
        if kind == layout.KIND_BRANCH:
            starts.add(targets[index])
    return sorted(start for start in starts if start < len(kinds))


def mark_waits(code: NDArray[np.int64]) -> None:
    """Mark instructions that use a value loaded from device memory earlier in their basic block, or end the block."""
    starts = set(code[code[:, layout.COLUMN_KIND] == layout.KIND_BRANCH, layout.COLUMN_TARGET].tolist())
    first, last = layout.COLUMN_S0, layout.COLUMN_S4 + 1
    pending: set[int] = set()
    for index, values in enumerate(code.tolist()):
        if index in starts:
            pending.clear()
        kind = values[layout.COLUMN_KIND]
        uses = pending.intersection(values[first:last]) or values[layout.COLUMN_GUARD] in pending
        if pending and (uses or kind in _ENDS):
            code[index, layout.COLUMN_WAITS] = 1
            pending.clear()
        if kind == layout.KIND_LOAD and values[layout.COLUMN_SPACE] in (layout.SPACE_GLOBAL, layout.SPACE_GENERIC):
            pending.update(values[layout.COLUMN_D0 : layout.COLUMN_D0 + max(1, values[layout.COLUMN_COUNT])])
