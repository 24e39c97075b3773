"""Whether a block can ever go on. Blocks run one after another, so nobody else changes what its threads wait for.

Where its warps are as they were some time before, registers, groups of lanes and barriers alike, and it has written
nothing in between, each load gave what it had given then: the block goes round in circles for ever. Looked for now and
then only, by hashes; the earlier state is a later one each time (Brent 1980), so that circles of any length are found.
"""

from __future__ import annotations

from services.evaluator.interpreter.layout import (
    COUNT_CHANGES,
    COUNT_KEPT_STATE,
    COUNT_LOOKED_AT,
    COUNT_LOOKED_CHANGES,
    COUNT_LOOKS,
    COUNT_STEPS,
    FINDING_ENDLESS,
)
from services.evaluator.interpreter.machine.fronts import next_ready
from services.evaluator.interpreter.machine.intrinsics import lowest_bit, machine_code
from services.evaluator.interpreter.machine.state import (
    FRONT_MASK,
    FRONT_PC,
    JOIN_EXPECTED,
    LAUNCH_REGISTER_BYTES,
    LAUNCH_WARPS,
    MAX_JOINS,
    NUM_BARRIERS,
    NUM_FRONT,
    NUM_JOIN,
    WARP_FRONTS,
    WARP_LIVE,
    Machine,
    as_int64,
    front_of,
    join_of,
    record,
    warp_of,
)

LOOK_STEPS = 16384
"""Warp instructions between two looks at least."""
_PRIME = 1099511628211


@machine_code
def begin_looking(m: Machine) -> None:
    """For a block that begins."""
    m.counters[COUNT_LOOKED_AT] = m.counters[COUNT_STEPS]
    m.counters[COUNT_LOOKED_CHANGES] = -1


@machine_code
def look_for_standstill(m: Machine) -> None:
    """Behind a round of all warps: notes a thread that goes on for ever where nothing can change any more."""
    counters = m.counters
    if counters[COUNT_STEPS] - counters[COUNT_LOOKED_AT] < LOOK_STEPS:
        return
    counters[COUNT_LOOKED_AT] = counters[COUNT_STEPS]
    if counters[COUNT_CHANGES] != counters[COUNT_LOOKED_CHANGES]:
        counters[COUNT_LOOKED_CHANGES] = counters[COUNT_CHANGES]
        counters[COUNT_LOOKS] = 0
        return
    state = _state(m)
    if counters[COUNT_LOOKS] > 0 and state == counters[COUNT_KEPT_STATE]:
        _record_endless(m)
        return
    counters[COUNT_LOOKS] += 1
    if counters[COUNT_LOOKS] & (counters[COUNT_LOOKS] - 1) == 0:
        counters[COUNT_KEPT_STATE] = state


@machine_code
def _state(m: Machine) -> int:
    """A hash of all that decides what the block does next, but memory."""
    warps = m.launch[LAUNCH_WARPS]
    state = as_int64(0)
    for place in range(warps * m.launch[LAUNCH_REGISTER_BYTES] >> 3):
        state = (state ^ as_int64(m.longs[place])) * _PRIME
    for warp in range(warps):
        state = (state ^ warp_of(m, warp)[WARP_LIVE]) * _PRIME
        state = (state ^ warp_of(m, warp)[WARP_FRONTS]) * _PRIME
        for index in range(warp_of(m, warp)[WARP_FRONTS]):
            for column in range(NUM_FRONT):
                state = (state ^ front_of(m, warp, index)[column]) * _PRIME
        for index in range(MAX_JOINS):
            if join_of(m, warp, index)[JOIN_EXPECTED]:
                for column in range(NUM_JOIN):
                    state = (state ^ join_of(m, warp, index)[column]) * _PRIME
    for place in range(2 * NUM_BARRIERS):
        state = (state ^ m.barriers[place]) * _PRIME
    return state


@machine_code
def _record_endless(m: Machine) -> None:
    """Names a thread that could run, else one that waits: all may have just come to a barrier."""
    for must_be_ready in (True, False):
        for warp in range(m.launch[LAUNCH_WARPS]):
            index = next_ready(m, warp) if must_be_ready else warp_of(m, warp)[WARP_FRONTS] - 1
            if index >= 0:
                front = front_of(m, warp, index)
                record(m, FINDING_ENDLESS, front[FRONT_PC], warp * 32 + lowest_bit(front[FRONT_MASK]), 0, 0, 0)
                return
