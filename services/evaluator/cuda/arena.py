"""Where the buffers of a program lie in their arena, and which bytes of it must not change (needs no device)."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.evaluator.device import ALIGNMENT_BYTES, GUARD_BYTES

SPREAD_BYTES = 1 << 20
"""An arena begins anywhere within so many bytes of its allocation: other addresses, other slices of the L2."""

NUM_SHIFTS = 16
"""A buffer is moved by 0 to 15 times ALIGNMENT_BYTES from one placement to the next."""


@dataclass(frozen=True)
class BufferPlan:
    """One buffer to be placed."""

    name: str
    num_bytes: int
    writable: bool
    """Outputs and scratch; everything else must come back unchanged."""


@dataclass(frozen=True)
class Placement:
    """Where an arena begins in its allocation and by how much each buffer is moved, the same for equal names."""

    offset: int
    """Bytes, aligned."""
    key: bytes

    def shift(self, name: str) -> int:
        """In units of ALIGNMENT_BYTES."""
        return hashlib.blake2b(name.encode(), key=self.key, digest_size=1).digest()[0] % NUM_SHIFTS


def random_placement() -> Placement:
    """From the operating system's randomness: no program knows it."""
    return Placement(secrets.randbelow(SPREAD_BYTES // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, secrets.token_bytes(16))


@dataclass(frozen=True)
class Segment:
    """A stretch of device memory that must not change."""

    label: str
    address: int
    num_words: int
    """4-byte words."""
    is_guard: bool = False


def arena_bytes(plans: Sequence[BufferPlan]) -> int:
    """Device memory that an arena of these buffers takes."""
    last = [NUM_SHIFTS - 1] * len(plans)
    starts = buffer_starts(plans, last)
    end = max((starts[plan.name] + plan.num_bytes for plan in plans), default=0)
    return _round_up(end + GUARD_BYTES, ALIGNMENT_BYTES)


def buffer_starts(plans: Sequence[BufferPlan], shifts: Sequence[int]) -> Mapping[str, int]:
    """Start of each buffer within the arena, for shifts in units of ALIGNMENT_BYTES."""
    starts: dict[str, int] = {}
    cursor = 0
    for plan, shift in zip(plans, shifts, strict=True):
        starts[plan.name] = _round_up(cursor + GUARD_BYTES, ALIGNMENT_BYTES) + shift * ALIGNMENT_BYTES
        cursor = starts[plan.name] + plan.num_bytes
    return starts


def guarded_segments(
    plans: Sequence[BufferPlan], starts: Mapping[str, int], base: int, num_bytes: int
) -> tuple[Segment, ...]:
    """Guard zones and read-only buffers, in the order of the allocation: all of it but what kernels may write.

    `starts` count from `base`, where the allocation of `num_bytes` begins.
    """
    segments: list[Segment] = []
    cursor = 0
    before = ""
    for plan in plans:
        start = starts[plan.name]
        label = f"{before} and {plan.name}" if before else f"the start and {plan.name}"
        segments.append(Segment(f"between {label}", base + cursor, (start - cursor) // 4, is_guard=True))
        # A 16-bit array of odd length ends in the middle of a word: the word belongs to the buffer.
        end = _round_up(start + plan.num_bytes, 4)
        if not plan.writable:
            segments.append(Segment(plan.name, base + start, (end - start) // 4))
        cursor = end
        before = plan.name
    segments.append(Segment(f"behind {before}", base + cursor, (num_bytes - cursor) // 4, is_guard=True))
    return tuple(segments)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
