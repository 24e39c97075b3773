"""From the machine's note of a finding to a message that a person (or a model) can act on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.machine.report import Finding, FindingKind, Position
from services.evaluator.interpreter.machine.shadow import MANY
from services.evaluator.interpreter.ptx.decoding import DecodedKernel

_ACCESS_WORDS = {layout.ACCESS_READ: "read", layout.ACCESS_WRITE: "write", layout.ACCESS_ATOMIC: "atomic operation"}


@dataclass(frozen=True)
class Place:
    """A buffer in the virtual address space: name, address, bytes of an element, number of elements."""

    name: str
    address: int
    element_bytes: int
    num_elements: int


def describe_finding(
    found: NDArray[np.int64], kernel: DecodedKernel, places: Sequence[Place], grid: Position, block: Position
) -> Finding | None:
    """The finding of a launch, or None."""
    values = found.tolist()
    if values[layout.FOUND_KIND] == layout.FINDING_NONE:
        return None
    instruction = values[layout.FOUND_INSTRUCTION]
    line = int(kernel.code[instruction, layout.COLUMN_LINE])
    block_position = _position(values[layout.FOUND_BLOCK], grid)
    thread_position = _position(values[layout.FOUND_THREAD], block)
    what = _what_happened(values, kernel, places, grid, block)
    where = f"line {line}, block {block_position}, thread {thread_position}"
    kind = cast(FindingKind, layout.FINDING_KINDS[values[layout.FOUND_KIND]])
    return Finding(kind, f"{what} ({where})", line, block_position, thread_position)


def _position(linear: int, sizes: Position) -> Position:
    return linear % sizes[0], linear // sizes[0] % sizes[1], linear // (sizes[0] * sizes[1])


def _what_happened(
    values: Sequence[int], kernel: DecodedKernel, places: Sequence[Place], grid: Position, block: Position
) -> str:
    access = _ACCESS_WORDS.get(values[layout.FOUND_ACCESS], "access")
    reading = f"{access} on" if values[layout.FOUND_ACCESS] == layout.ACCESS_ATOMIC else f"{access} of"
    size, address = values[layout.FOUND_SIZE], values[layout.FOUND_ADDRESS]
    target = _name_address(address, kernel, places)
    match values[layout.FOUND_KIND]:
        case layout.FINDING_OUT_OF_BOUNDS:
            return f"out-of-bounds {access} of {size} bytes: {target}"
        case layout.FINDING_MISALIGNED:
            return f"misaligned {access} of {size} bytes: {target} is not on a multiple of {size} bytes"
        case layout.FINDING_READ_ONLY:
            return f"{access} to read-only memory: {target}"
        case layout.FINDING_EARLY_ACCESS:
            if kernel.code[values[layout.FOUND_INSTRUCTION], layout.COLUMN_CONSTANT]:
                return f"constant {access}, which may move up past griddepcontrol.wait (__restrict__?): {target}"
            return f"{access} before griddepcontrol.wait, while earlier kernels may still run: {target}"
        case layout.FINDING_UNINITIALISED_SHARED:
            return f"{reading} shared memory that no thread of the block has written: {target}"
        case layout.FINDING_UNINITIALISED_READ:
            return f"{reading} memory that the program has not written before: {target}"
        case layout.FINDING_UNINITIALISED_LOCAL:
            return f"read of local memory that its thread has not written before: {target}"
        case layout.FINDING_CHANGING_CONSTANT:
            return f"constant {access} (ld.global.nc) of what the same kernel writes, which need not be seen: {target}"
        case layout.FINDING_RACE:
            return f"race on {target}: {access} without order after {_other(values, kernel, grid, block)}"
        case layout.FINDING_DEADLOCK:
            return _deadlock(values, kernel)
        case layout.FINDING_ENDLESS:
            return "an endless loop, or a wait for what no earlier block and no other thread of its block will do"
        case layout.FINDING_STEP_LIMIT:
            return "the limit of executed instructions is reached: an endless loop, or slow code"
        case _:
            return "the kernel executed a trap (__trap or a failed assert)"


def _name_address(address: int, kernel: DecodedKernel, places: Sequence[Place]) -> str:
    if layout.SHARED_WINDOW <= address < layout.SHARED_WINDOW + layout.WINDOW_BYTES:
        return _name_shared(address - layout.SHARED_WINDOW, kernel)
    if layout.LOCAL_WINDOW <= address < layout.LOCAL_WINDOW + layout.WINDOW_BYTES:
        return f"byte {address - layout.LOCAL_WINDOW} of {kernel.local_bytes} bytes of local memory"
    if layout.PARAM_WINDOW <= address < layout.PARAM_WINDOW + layout.WINDOW_BYTES:
        return f"byte {address - layout.PARAM_WINDOW} of {kernel.parameter_bytes} bytes of parameters"
    nearest = min(places, key=lambda place: _distance(address, place), default=None)
    if nearest is None or _distance(address, nearest) > layout.BUFFER_STRIDE // 4:
        wild = "null pointer" if 0 <= address < 4096 else "it belongs to no buffer"
        return f"address {address & (2**64 - 1):#x} ({wild})"
    index, rest = divmod(address - nearest.address, nearest.element_bytes)
    part = f" + {rest} bytes" if rest else ""
    return f"{nearest.name}[{index}]{part} ({nearest.name} has {nearest.num_elements} elements)"


def _distance(address: int, place: Place) -> int:
    end = place.address + place.element_bytes * place.num_elements
    return max(place.address - address, address - end + 1, 0)


def _name_shared(offset: int, kernel: DecodedKernel) -> str:
    before = [array for array in kernel.shared_arrays if array.offset <= offset]
    if offset >= kernel.dynamic_shared_offset:
        return f"byte {offset - kernel.dynamic_shared_offset} of the dynamic shared memory"
    if not before:
        return f"byte {offset} of shared memory"
    array = before[-1]
    return f"byte {offset - array.offset} of shared array {array.name} ({array.size_bytes} bytes)"


def _other(values: Sequence[int], kernel: DecodedKernel, grid: Position, block: Position) -> str:
    line = int(kernel.code[values[layout.FOUND_OTHER_INSTRUCTION], layout.COLUMN_LINE])
    thread, number = values[layout.FOUND_OTHER_THREAD], values[layout.FOUND_OTHER_BLOCK]
    who = "several threads" if thread == MANY else f"thread {_position(thread, block)}"
    which = "several blocks" if number == MANY else f"block {_position(number, grid)}"
    return f"an access by {who} of {which} at line {line}"


def _deadlock(values: Sequence[int], kernel: DecodedKernel) -> str:
    mnemonic = kernel.mnemonics[values[layout.FOUND_INSTRUCTION]]
    match values[layout.FOUND_DETAIL]:
        case layout.DEADLOCK_BARRIER:
            return f"deadlock: threads wait at the barrier '{mnemonic}' for threads that never come to it"
        case layout.DEADLOCK_DIVERGENT_BARRIER:
            return f"barrier '{mnemonic}' in divergent code: not all threads of the warp reach the same barrier"
        case layout.DEADLOCK_MEMBERS:
            return f"'{mnemonic}' is executed by a lane that its member mask does not name"
        case _:
            return f"deadlock: lanes wait at '{mnemonic}' for lanes of their member mask that never come to it"
