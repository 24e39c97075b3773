"""How many warps of a kernel a multiprocessor holds at a time; from the CUDA C++ Programming Guide's table of compute
capabilities."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparsesmith_proto.message import Architecture

WARP_THREADS = 32
REGISTERS = 65_536
"""Of a multiprocessor, on all these."""
REGISTER_UNIT = 256
"""Registers are given to warps in such pieces."""
SHARED_UNIT = 128
RESERVED_SHARED_BYTES = 1024
"""Of each block, for the system."""


@dataclass(frozen=True)
class Multiprocessor:
    """What one has room for."""

    warps: int
    blocks: int
    shared_bytes: int


MULTIPROCESSORS: Mapping[int, Multiprocessor] = {
    80: Multiprocessor(64, 32, 164 << 10),
    86: Multiprocessor(48, 16, 100 << 10),
    87: Multiprocessor(48, 16, 164 << 10),
    89: Multiprocessor(48, 24, 100 << 10),
    90: Multiprocessor(64, 32, 228 << 10),
    100: Multiprocessor(64, 32, 228 << 10),
    120: Multiprocessor(48, 24, 100 << 10),
}
"""By compute capability, times ten."""


def multiprocessor(architecture: Architecture) -> Multiprocessor:
    """Of the newest listed architecture that is not newer; of the oldest for those before."""
    number = int(architecture.removeprefix("sm_").rstrip("a"))
    return MULTIPROCESSORS[max((each for each in MULTIPROCESSORS if each <= number), default=min(MULTIPROCESSORS))]


def occupancy(architecture: Architecture, threads: int, registers: int, shared_bytes: int) -> float:
    """Share of a multiprocessor's warps that blocks of so many threads fill; `registers` are a thread's,
    `shared_bytes` a block's. 0: not even one block fits."""
    room = multiprocessor(architecture)
    warps = -(-threads // WARP_THREADS)
    warp_registers = -(-max(1, registers) * WARP_THREADS // REGISTER_UNIT) * REGISTER_UNIT
    shared = -(-(shared_bytes + RESERVED_SHARED_BYTES) // SHARED_UNIT) * SHARED_UNIT
    by_registers = REGISTERS // warp_registers // warps
    blocks = min(room.blocks, room.warps // warps, by_registers, room.shared_bytes // shared)
    return blocks * warps / room.warps
