"""Symptoms of slow programs and what may help: a table, each row with a name by which its gains are counted.

A symptom is told by a profile that needs no counters of the hardware (`Profile`), by the compiler's resources, and by
the text. How far it is there is a number; the worst are told. None of these weights was fitted: what each suggestion
brings is recorded, so that it can be.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparsesmith_proto.evaluation import LaunchProfile, LaunchWork, Profile
from sparsesmith_proto.kernel import Passed

MOST = 3
"""Told at a time."""

LAUNCH_US = 1.0
"""What a further launch in a graph costs about."""


@dataclass(frozen=True)
class Circumstance:
    """A program that passed, and what it is compared with."""

    passed: Passed
    baseline_us: float
    floor_us: float
    """What moving the data once takes on the device."""
    floor_bytes: int
    num_sms: int


@dataclass(frozen=True)
class Case:
    """What a symptom is looked for in."""

    text: str
    circumstance: Circumstance
    launches: Sequence[LaunchProfile]

    @property
    def median_us(self) -> float:
        return self.circumstance.passed.timing.median_us

    @property
    def works(self) -> list[LaunchWork]:
        return [launch.work for launch in self.launches if launch.work is not None]

    def total(self, count: Callable[[LaunchWork], int]) -> int:
        return sum(map(count, self.works))

    def ratio(self, count: Callable[[LaunchWork], int], of: Callable[[LaunchWork], int]) -> float:
        """0 where nothing was counted."""
        whole = self.total(of)
        return self.total(count) / whole if whole else 0.0

    def has(self, pattern: str) -> bool:
        return re.search(pattern, self.text) is not None


@dataclass(frozen=True)
class Suggestion:
    """A row of the table."""

    name: str
    severity: Callable[[Case], float]
    """From 0, the symptom is not there, to about 1."""
    advice: str


def suggested(program: str, circumstance: Circumstance, profile: Profile | None, most: int = MOST) -> list[Suggestion]:
    """Those whose symptoms are worst, the worst first."""
    case = Case(program, circumstance, () if profile is None else profile.launches)
    found = [(each.severity(case), each) for each in SUGGESTIONS]
    there = sorted((pair for pair in found if pair[0] > 0), key=lambda pair: -pair[0])
    return [each for _, each in there[:most]]


def _wide_gathers(case: Case) -> float:
    """Loads of 4 bytes by 32 lanes side by side take 4 sectors."""
    sectors = case.ratio(lambda work: work.load_sectors, lambda work: work.load_requests)
    return max(0.0, (sectors - 8) / 24)


def _wide_stores(case: Case) -> float:
    sectors = case.ratio(lambda work: work.store_sectors, lambda work: work.store_requests)
    return max(0.0, (sectors - 8) / 24)


def _read_again(case: Case) -> float:
    moved = case.ratio(lambda work: work.load_sectors + work.store_sectors, lambda work: work.unique_sectors)
    return min(1.0, max(0.0, (moved - 3) / 16))


def _narrow_loads(case: Case) -> float:
    sectors = case.ratio(lambda work: work.load_sectors, lambda work: work.load_requests)
    is_narrow = 0 < sectors <= 4.5 and not case.has(r"\b(float4|double2|int4|uint4|float2)\b")
    return 0.55 if is_narrow else 0.0


def _atomics(case: Case) -> float:
    share = case.ratio(lambda work: work.atomic_requests, lambda work: work.load_requests + work.store_requests + 1)
    return min(1.0, 2 * share)


def _conflicts(case: Case) -> float:
    passes = case.ratio(lambda work: work.shared_wavefronts, lambda work: work.shared_requests)
    return min(1.0, max(0.0, (passes - 1.2) / 4))


def _divergence(case: Case) -> float:
    lanes = case.ratio(lambda work: work.lane_instructions, lambda work: work.warp_instructions)
    return max(0.0, (24 - lanes) / 24) if lanes else 0.0


def _uneven_warps(case: Case) -> float:
    """The longest warp against the mean one."""
    worst = 0.0
    for launch in case.launches:
        if launch.work is not None and launch.work.warp_instructions:
            warps = launch.num_blocks * -(-launch.threads_a_block // 32)
            mean = launch.work.warp_instructions / warps
            worst = max(worst, launch.work.longest_warp_instructions / max(mean, 1.0))
    return min(0.9, max(0.0, (worst - 4) / 16))


def _barriers(case: Case) -> float:
    share = case.ratio(lambda work: work.barriers, lambda work: work.warp_instructions)
    return min(0.7, 10 * share) if share > 0.01 else 0.0


def _spills(case: Case) -> float:
    return min(1.0, case.circumstance.passed.resources.spill_bytes / 128)


def _low_occupancy(case: Case) -> float:
    least = min((launch.occupancy for launch in case.launches), default=1.0)
    return max(0.0, 0.5 - least)


def _too_few_blocks(case: Case) -> float:
    most = max((launch.num_blocks for launch in case.launches), default=0)
    return 0.0 if not most else max(0.0, 1 - most / case.circumstance.num_sms)


def _too_many_blocks(case: Case) -> float:
    most = max((launch.num_blocks for launch in case.launches), default=0)
    return 0.4 if most > 64 * case.circumstance.num_sms else 0.0


def _small_blocks(case: Case) -> float:
    least = min((launch.threads_a_block for launch in case.launches if launch.num_blocks > 1), default=1024)
    return 0.5 if least < 64 else 0.0


def _many_launches(case: Case) -> float:
    return min(1.0, (len(case.launches) - 1) * LAUNCH_US / case.median_us) if len(case.launches) > 1 else 0.0


def _launch_bound(case: Case) -> float:
    return 0.5 if case.median_us < 3 * LAUNCH_US else 0.0


def _far_from_floor(case: Case) -> float:
    """Where the data are much, and little of the time is moving them."""
    share = case.circumstance.floor_us / max(case.median_us, 1e-9)
    return 0.35 if case.circumstance.floor_us > LAUNCH_US and share < 0.5 else 0.0


def _near_floor(case: Case) -> float:
    share = case.circumstance.floor_us / max(case.median_us, 1e-9)
    return 0.3 if share > 0.8 else 0.0


def _waits(case: Case) -> float:
    """A chain of loads, each waited for."""
    longest = max((work.longest_warp_waits for work in case.works), default=0)
    return min(0.8, longest / 64) if longest > 8 else 0.0


def _local_memory(case: Case) -> float:
    share = case.ratio(lambda work: work.local_requests, lambda work: work.load_requests + work.store_requests + 1)
    return min(0.9, share)


def _double_constants(case: Case) -> float:
    is_float = "double" not in case.text
    return 0.4 if is_float and case.has(r"(?<![\w.])\d+\.\d*(?![\dfFeE])") else 0.0


def _slow_arithmetic(case: Case) -> float:
    return 0.3 if case.has(r"[\w\])]\s*[/%]\s*\(?[a-z_]\w*") and case.has(r"\bfor\s*\(") else 0.0


def _no_knobs(case: Case) -> float:
    return 0.0 if case.has(r"^//@ tune\b") or "//@ tune" in case.text else 0.25


SUGGESTIONS: tuple[Suggestion, ...] = (
    Suggestion(
        "coalesce_loads",
        _wide_gathers,
        "Lanes of a warp read places far apart: let neighbouring threads read neighbouring addresses, or stage a "
        "tile in shared memory.",
    ),
    Suggestion(
        "coalesce_stores",
        _wide_stores,
        "Lanes of a warp write places far apart: write through a shared tile so that neighbouring threads write "
        "neighbours.",
    ),
    Suggestion(
        "reuse_data",
        _read_again,
        "The same data are read many times: keep them in registers, or tile them in shared memory and compute "
        "several results from each.",
    ),
    Suggestion(
        "vector_loads",
        _narrow_loads,
        "Read 16 bytes a thread at a time (float4, double2) where the address is a multiple of 16, with a tail for "
        "the rest.",
    ),
    Suggestion(
        "fewer_atomics",
        _atomics,
        "Reduce in registers, then in the warp by __shfl_down_sync, then in the block, and do one atomic (or one "
        "partial sum in scratch) a block.",
    ),
    Suggestion(
        "avoid_bank_conflicts",
        _conflicts,
        "Lanes meet in the banks of shared memory: pad rows of a shared tile by one element, or change which lane "
        "takes which.",
    ),
    Suggestion(
        "less_divergence",
        _divergence,
        "Few lanes of each warp work: give the work of an idle lane to it, or let a group of lanes share one result.",
    ),
    Suggestion(
        "balance_warps",
        _uneven_warps,
        "One warp takes much longer than the others: split the longest pieces over several warps or blocks.",
    ),
    Suggestion(
        "fewer_barriers",
        _barriers,
        "Barriers take a large share: let a warp do by shuffles what a block does between barriers.",
    ),
    Suggestion(
        "no_spills",
        _spills,
        "Registers are spilled: keep fewer values at a time, unroll less, or allow more registers by "
        "__launch_bounds__.",
    ),
    Suggestion(
        "raise_occupancy",
        _low_occupancy,
        "Few warps fit: use fewer registers or less shared memory a block, or another block size.",
    ),
    Suggestion(
        "more_blocks",
        _too_few_blocks,
        "There are fewer blocks than multiprocessors: split the work further, with a second launch that joins the "
        "parts.",
    ),
    Suggestion(
        "resident_grid",
        _too_many_blocks,
        "There are very many blocks: launch a few for each multiprocessor (grid=num_sms*8) and let them stride over "
        "the work.",
    ),
    Suggestion("larger_blocks", _small_blocks, "Blocks are small: 128 to 256 threads hide latency better."),
    Suggestion(
        "fuse_launches",
        _many_launches,
        "Each launch costs about a microsecond: fuse launches; the block that is the last to finish (an atomic "
        "counter in scratch that an earlier launch sets to zero) can join partial results.",
    ),
    Suggestion(
        "shorten_chains",
        _launch_bound,
        "Latency is all: shorten the chain of dependent steps; load all that is needed at once, then combine by "
        "shuffles.",
    ),
    Suggestion(
        "loads_in_flight",
        _waits,
        "A warp waits for one load after the other: issue four or eight independent loads before the first is used "
        "(unroll).",
    ),
    Suggestion(
        "more_work_a_thread",
        _far_from_floor,
        "Little of the time is moving data: let each thread compute 4 to 8 results from what it has loaded.",
    ),
    Suggestion(
        "streaming_hints",
        _near_floor,
        "It is near the speed of copying: read what is used once by __ldcs and write by __stcs, so that caches keep "
        "the rest.",
    ),
    Suggestion(
        "arrays_in_registers",
        _local_memory,
        "Arrays of a thread lie in local memory: index them by constants only, in fully unrolled loops.",
    ),
    Suggestion(
        "float_constants",
        _double_constants,
        "Constants such as 1.0 are doubles and make the arithmetic slow: write 1.0f.",
    ),
    Suggestion(
        "cheap_indices",
        _slow_arithmetic,
        "Divisions by sizes that are known only at run time are slow in loops: count along instead, or divide once.",
    ),
    Suggestion(
        "leave_numbers_open",
        _no_knobs,
        "Leave block size and unrolling open: //@ tune BLOCK = 128 256 512 and use BLOCK in launch line and code.",
    ),
)
"""In the order in which equally bad symptoms are told."""
