"""Warp collectives: shuffles, votes, matches, reductions."""

from __future__ import annotations

import numpy as np

from services.evaluator.interpreter.layout import (
    ATOMIC_ADD,
    ATOMIC_AND,
    ATOMIC_MAX,
    ATOMIC_MIN,
    ATOMIC_OR,
    ATOMIC_XOR,
    COLLECTIVE_BALLOT,
    COLLECTIVE_ELECT,
    COLLECTIVE_MATCH_ALL,
    COLLECTIVE_MATCH_ANY,
    COLLECTIVE_MULTIPLY,
    COLLECTIVE_REDUCE,
    COLLECTIVE_SHUFFLE_DOWN,
    COLLECTIVE_SHUFFLE_INDEX,
    COLLECTIVE_SHUFFLE_UP,
    COLLECTIVE_SHUFFLE_XOR,
    COLLECTIVE_VOTE_ALL,
    COLLECTIVE_VOTE_ANY,
    COLLECTIVE_WARP_BARRIER,
    COLUMN_CODE,
    COLUMN_D0,
    COLUMN_D1,
    COLUMN_OFFSET,
    COLUMN_S0,
    COLUMN_S1,
    COLUMN_S2,
    COLUMN_S3,
    COLUMN_S4,
    COLUMN_SIGNED,
    COLUMN_TYPE,
    COLUMN_WIDE,
    TYPE_BF16,
)
from services.evaluator.interpreter.machine.intrinsics import at, bits_of_float, float_of_bits, lowest_bit, machine_code
from services.evaluator.interpreter.machine.state import (
    ALL_LANES,
    SCRATCH_VALUES,
    Machine,
    as_int64,
    instruction_of,
    registers_of,
)

POISON = 0x7FF7DEAD
"""A NaN that a shuffle returns for a lane that does not take part."""


@machine_code
def collective(m: Machine, pc: int, warp: int, active: int) -> None:
    """Execute a collective for the lanes that take part in it together."""
    code = instruction_of(m, pc)[COLUMN_CODE]
    if code <= COLLECTIVE_SHUFFLE_INDEX:
        _shuffle(m, pc, warp, active, code)
    elif code <= COLLECTIVE_BALLOT:
        _vote(m, pc, warp, active, code)
    elif code in (COLLECTIVE_MATCH_ANY, COLLECTIVE_MATCH_ALL):
        _match(m, pc, warp, active, code)
    elif code == COLLECTIVE_REDUCE:
        _reduce(m, pc, warp, active)
    elif code == COLLECTIVE_ELECT:
        _elect(m, pc, warp, active)
    elif code == COLLECTIVE_MULTIPLY:
        _multiply(m, pc, warp, active)
    elif code == COLLECTIVE_WARP_BARRIER:
        return


@machine_code
def members_of(m: Machine, pc: int, warp: int, lane: int) -> int:
    """The member mask that a lane names."""
    return as_int64(m.words[((registers_of(m, warp) + instruction_of(m, pc)[COLUMN_S3]) >> 2) + lane])


@machine_code
def set_predicate(m: Machine, row: int, active: int, bits: int) -> None:
    """Write the bits of the active lanes into a predicate at byte offset `row`."""
    old = as_int64(m.words[row >> 2])
    m.words[row >> 2] = np.uint32((old & ~active & ALL_LANES) | (bits & active))


@machine_code
def _shuffle(m: Machine, pc: int, warp: int, active: int, code: int) -> None:
    row, base = instruction_of(m, pc), registers_of(m, warp)
    values = at(m.scratch, SCRATCH_VALUES)
    source, target = (base + row[COLUMN_S0]) >> 2, (base + row[COLUMN_D0]) >> 2
    amounts, controls = (base + row[COLUMN_S1]) >> 2, (base + row[COLUMN_S2]) >> 2
    for lane in range(32):
        values[lane] = as_int64(m.words[source + lane])
    inside = 0
    for lane in range(32):
        if active >> lane & 1:
            amount, control = as_int64(m.words[amounts + lane]) & 31, as_int64(m.words[controls + lane])
            segment, clamp = control >> 8 & 31, control & 31
            highest = (lane & segment) | (clamp & ~segment & 31)
            if code == COLLECTIVE_SHUFFLE_UP:
                other = lane - amount
                valid = other >= highest
            elif code == COLLECTIVE_SHUFFLE_DOWN:
                other = lane + amount
                valid = other <= highest
            elif code == COLLECTIVE_SHUFFLE_XOR:
                other = lane ^ amount
                valid = other <= highest
            else:
                other = (lane & segment) | (amount & ~segment & 31)
                valid = other <= highest
            if valid:
                inside |= 1 << lane
            else:
                other = lane
            present = (active >> other & 1) and (members_of(m, pc, warp, lane) >> other & 1)
            m.words[target + lane] = np.uint32(values[other]) if present else np.uint32(POISON)
    set_predicate(m, base + row[COLUMN_D1], active, inside)


@machine_code
def _vote(m: Machine, pc: int, warp: int, active: int, code: int) -> None:
    row, base = instruction_of(m, pc), registers_of(m, warp)
    votes = as_int64(m.words[(base + row[COLUMN_S0]) >> 2])
    result = 0
    for lane in range(32):
        if active >> lane & 1:
            members = members_of(m, pc, warp, lane) & active
            yes = votes & members
            if code == COLLECTIVE_BALLOT:
                m.words[((base + row[COLUMN_D0]) >> 2) + lane] = np.uint32(yes)
                continue
            if code == COLLECTIVE_VOTE_ANY:
                answer = yes != 0
            elif code == COLLECTIVE_VOTE_ALL:
                answer = yes == members
            else:
                answer = yes == 0 or yes == members
            result |= as_int64(answer) << lane
    if code != COLLECTIVE_BALLOT:
        set_predicate(m, base + row[COLUMN_D0], active, result)


@machine_code
def _match(m: Machine, pc: int, warp: int, active: int, code: int) -> None:
    row, base = instruction_of(m, pc), registers_of(m, warp)
    values = at(m.scratch, SCRATCH_VALUES)
    source = base + row[COLUMN_S0]
    for lane in range(32):
        if row[COLUMN_WIDE]:
            values[lane] = as_int64(m.longs[(source >> 3) + lane])
        else:
            values[lane] = as_int64(m.words[(source >> 2) + lane])
    all_equal = 0
    for lane in range(32):
        if active >> lane & 1:
            members, equal = members_of(m, pc, warp, lane) & active, 0
            for other in range(32):
                if members >> other & 1 and values[other] == values[lane]:
                    equal |= 1 << other
            if code == COLLECTIVE_MATCH_ALL:
                same = equal == members
                all_equal |= as_int64(same) << lane
                equal = members if same else 0
            m.words[((base + row[COLUMN_D0]) >> 2) + lane] = np.uint32(equal)
    if code == COLLECTIVE_MATCH_ALL:
        set_predicate(m, base + row[COLUMN_D1], active, all_equal)


@machine_code
def _reduce(m: Machine, pc: int, warp: int, active: int) -> None:
    row, base = instruction_of(m, pc), registers_of(m, warp)
    values, operator = at(m.scratch, SCRATCH_VALUES), row[COLUMN_TYPE]
    for lane in range(32):
        value = as_int64(m.words[((base + row[COLUMN_S0]) >> 2) + lane])
        values[lane] = (value ^ 0x80000000) - 0x80000000 if row[COLUMN_SIGNED] else value
    for lane in range(32):
        if active >> lane & 1:
            members = members_of(m, pc, warp, lane) & active
            first = lowest_bit(members)
            total = values[first]
            for other in range(first + 1, 32):
                if members >> other & 1:
                    total = _reduced(operator, total, values[other])
            m.words[((base + row[COLUMN_D0]) >> 2) + lane] = np.uint32(total & 0xFFFFFFFF)


@machine_code
def _reduced(operator: int, total: int, value: int) -> int:
    if operator == ATOMIC_ADD:
        return total + value
    if operator == ATOMIC_MIN:
        return min(total, value)
    if operator == ATOMIC_MAX:
        return max(total, value)
    if operator == ATOMIC_AND:
        return total & value
    if operator == ATOMIC_OR:
        return total | value
    if operator == ATOMIC_XOR:
        return total ^ value
    return total


@machine_code
def _elect(m: Machine, pc: int, warp: int, active: int) -> None:
    row, base = instruction_of(m, pc), registers_of(m, warp)
    leader = lowest_bit(active)
    for lane in range(32):
        if active >> lane & 1:
            m.words[((base + row[COLUMN_D0]) >> 2) + lane] = np.uint32(leader)
    set_predicate(m, base + row[COLUMN_D1], active, 1 << leader)


@machine_code
def _short_float(bits: int, type_: int) -> float:
    """The number with the bits in the low half of a word: float16, or bfloat16."""
    bits &= 0xFFFF
    if type_ == TYPE_BF16:
        return float_of_bits(bits << 16)
    size, sign = bits & 0x7FFF, (bits >> 15) << 31
    if size < 0x400:
        return size * (-(2.0**-24) if sign else 2.0**-24)
    if size >= 0x7C00:
        return float_of_bits(sign | 0x7F800000 | (size & 0x3FF) << 13)
    return float_of_bits(sign | (size << 13) + (112 << 23))


@machine_code
def _multiply(m: Machine, pc: int, warp: int, active: int) -> None:
    """One register of the result of a 16 x 8 x 16 product: row lane / 4 of 8, column lane % 4 * 2 or the next one.

    Products and their sum are float64's, rounded once; hardware sums in float32 in an order of its own.
    """
    row, base = instruction_of(m, pc), registers_of(m, warp)
    type_, parity = row[COLUMN_TYPE], row[COLUMN_SIGNED]
    target, sums = (base + row[COLUMN_D0]) >> 2, (base + row[COLUMN_S0]) >> 2
    for lane in range(32):
        total = float(float_of_bits(as_int64(m.words[sums + lane])))
        for part in range(2):
            left = (base + row[COLUMN_S2 if part else COLUMN_S1]) >> 2
            right = (base + row[COLUMN_OFFSET if part else COLUMN_S4]) >> 2
            for pair in range(4):
                ours = as_int64(m.words[left + (lane & ~3) + pair])
                theirs = as_int64(m.words[right + 8 * (lane & 3) + 4 * parity + pair])
                total += float(_short_float(ours, type_)) * float(_short_float(theirs, type_))
                total += float(_short_float(ours >> 16, type_)) * float(_short_float(theirs >> 16, type_))
        found = bits_of_float(np.float32(total)) if active == ALL_LANES else POISON
        m.words[target + lane] = np.uint32(found)


@machine_code
def fill(m: Machine, pc: int, warp: int, active: int, value: int) -> None:
    """Write one value into the result row of an instruction, for the active lanes."""
    row = instruction_of(m, pc)
    target = registers_of(m, warp) + row[COLUMN_D0]
    for lane in range(32):
        if active >> lane & 1:
            if row[COLUMN_WIDE]:
                m.longs[(target >> 3) + lane] = np.uint64(value)
            else:
                m.words[(target >> 2) + lane] = np.uint32(value & 0xFFFFFFFF)
