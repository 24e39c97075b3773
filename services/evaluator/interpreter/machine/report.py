"""What a launch on the interpreter reports: a finding, if the program did something wrong, and counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingKind = Literal[
    "out_of_bounds",
    "misaligned",
    "race",
    "deadlock",
    "uninitialised_shared",
    "uninitialised_read",
    "step_limit",
    "trap",
    "write_to_read_only",
    "early_access",
    "uninitialised_local",
    "changing_constant",
    "endless",
    "invalid_launch",
]
Position = tuple[int, int, int]


@dataclass(frozen=True)
class Finding:
    """The first error of a launch; the message already names line, block and thread (line 0: not known)."""

    kind: FindingKind
    message: str
    line: int
    block: Position
    thread: Position


@dataclass(frozen=True)
class LineCounts:
    """Work of one source line: warp and lane instructions, 32-byte sectors requested, extra shared wavefronts."""

    line: int
    warp_instructions: int
    lane_instructions: int
    sectors: int
    bank_conflicts: int


@dataclass(frozen=True)
class Counts:
    """What the executed blocks did. Requests are warp instructions; sectors are 32 bytes of device memory."""

    blocks: int = 0
    warp_instructions: int = 0
    lane_instructions: int = 0
    global_load_requests: int = 0
    global_load_sectors: int = 0
    l1_hit_sectors: int = 0
    """Load sectors found in a 256 KiB direct-mapped cache that each block starts empty."""
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_atomic_requests: int = 0
    global_atomic_sectors: int = 0
    unique_sectors_read: int = 0
    """Different sectors read at least once: the least that comes from DRAM."""
    unique_sectors_written: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    """Passes of shared memory; equal to the requests when there are no bank conflicts."""
    local_requests: int = 0
    barriers: int = 0
    divergent_branches: int = 0
    longest_warp_instructions: int = 0
    longest_warp_waits: int = 0
    """Times that the slowest warp had to wait for a value from device memory."""
    lines: tuple[LineCounts, ...] = ()
    """Per source line, the busiest first."""


@dataclass(frozen=True)
class LaunchReport:
    """Outcome of one launch; with a finding, buffers and counts are as they were when it was met."""

    finding: Finding | None
    counts: Counts
