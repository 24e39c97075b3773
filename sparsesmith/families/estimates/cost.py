"""Which parameters of each family are worth trying for a pattern, and how long each would about take.

The estimates only order the candidates; what counts is measured. They know latency (launches, dependent loads, the
longest chain of batches), bytes and issued instructions of an H200, and nothing of caches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

from sparsesmith.families.estimates.statistics import PatternStatistics
from sparsesmith.formats.format import ParameterValue

LAUNCH_US = 0.9
LOAD_US = 0.17
"""One dependent read that hits L2."""
OVERLAP_US = 0.2
"""What a programmatic dependency saves of a launch."""
L2_BYTES = 45e6
L2_BYTES_A_US = 5.5e6
DRAM_BYTES_A_US = 3.9e6
NUM_SMS = 132
WARP_INSTRUCTIONS_A_US = NUM_SMS * 4 * 1700 * 0.6
RESIDENT_THREADS = NUM_SMS * 1536
GATHER_SHARE = 0.6
"""Part of the gathers of B that L1 does not catch."""
BYTES_COUNT_NNZ = 100_000
"""Nonzeros from which narrow columns may pay that cost a load more: smaller matrices wait for latency."""

Values = Mapping[str, ParameterValue]


@dataclass(frozen=True)
class Work:
    """The workload that prospects are for."""

    statistics: PatternStatistics
    element_bytes: int
    num_dense_cols: int

    @cached_property
    def rows(self) -> int:
        return self.statistics.pattern.num_rows

    @cached_property
    def nnz(self) -> int:
        return self.statistics.pattern.nnz

    @cached_property
    def vector_bytes(self) -> float:
        """Dense operand and result, read and written once."""
        return float(self.element_bytes * (self.rows + self.statistics.pattern.num_cols) * self.num_dense_cols)

    def csr_bytes(self, index: str = "i32") -> float:
        return self.nnz * (self.element_bytes + index_bytes(index)) + 4.0 * self.rows

    @property
    def max_vector(self) -> int:
        """Elements of the widest aligned vector of dense columns; those of 16 bits are read one by one."""
        width = 16 // self.element_bytes if self.element_bytes > 2 else 1
        while self.num_dense_cols % width:
            width //= 2
        return width


class Prospect(NamedTuple):
    """Parameters worth trying. A tuple: thousands are made for a workload."""

    estimated_us: float
    parameters: dict[str, ParameterValue]

    def with_parameter(self, name: str, value: ParameterValue, estimated_us: float) -> "Prospect":
        """The prospect with a parameter more."""
        return Prospect(estimated_us, {**self.parameters, name: value})


def index_bytes(index: ParameterValue) -> float:
    """Bytes of a stored column index, without what it counts from: `i32`, `u16_row`, `u18`."""
    return int(str(index)[1:].partition("_")[0]) / 8


def estimate(
    work: Work, matrix_bytes: float, warp_instructions: float, chain: float, threads: float, launches: int = 1
) -> float:
    """Microseconds: launches, the longest chain of dependent loads, and the larger of traffic and issue time."""
    total = matrix_bytes + work.vector_bytes
    bandwidth = L2_BYTES_A_US if total < L2_BYTES else DRAM_BYTES_A_US
    waves = max(1.0, threads / RESIDENT_THREADS)
    busy = max(total / bandwidth, warp_instructions / WARP_INSTRUCTIONS_A_US)
    return launches * LAUNCH_US + LOAD_US * chain * (1 + 0.1 * min(waves, 4)) + busy


class Ending(NamedTuple):
    """Values of axes that prospects may leave open, and what these make of an estimate."""

    parameters: dict[str, ParameterValue]
    slower: float = 1.0
    starts_early: bool = False

    def estimated_us(self, estimated_us: float) -> float:
        slowed_us = self.slower * estimated_us
        return early_us(slowed_us) if self.starts_early else slowed_us


def endings(work: Work, open_axes: tuple[str, ...], *, early_only: bool) -> list[Ending]:
    """Of `registers`, free and few: loads in flight win where latency counts, else either may. Of `dependency`, early
    and, unless `early_only`, not: overlap with the launch before saves the same time whatever the size."""
    found = [Ending({})]
    if "registers" in open_axes:
        slower = 1.06 if work.nnz * work.num_dense_cols < 2_000_000 else 1.01
        found = [Ending({"registers": "free"}), Ending({"registers": "few"}, slower)]
    if "dependency" in open_axes:
        started = [("programmatic", True)] if early_only else [("programmatic", True), ("full", False)]
        found = [
            Ending({**each.parameters, "dependency": word}, each.slower, is_early)
            for each in found
            for word, is_early in started
        ]
    return found


def early_us(estimated_us: float) -> float:
    """Of a program that starts early, from what it takes otherwise."""
    return max(estimated_us - OVERLAP_US, estimated_us / 2)


def combine(**axes: tuple[ParameterValue, ...]) -> Iterator[dict[str, ParameterValue]]:
    """Every combination of the values, the first value of each axis first."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def number(values: Values, name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def near(target: float, values: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The `count` values nearest to a target, by ratio, nearest first."""
    aim = max(target, 1e-3)
    return tuple(sorted(values, key=lambda value: max(value / aim, aim / value))[:count])


def indices(narrow: bool) -> tuple[ParameterValue, ...]:
    return ("u16", "i32") if narrow else ("i32",)


def loads(work: Work) -> tuple[ParameterValue, ...]:
    """Streaming pays beyond L2; within it both are worth a try."""
    return ("ldcs", "ldg") if work.csr_bytes() > L2_BYTES / 2 else ("ldg", "ldcs")


def sigmas(work: Work, lanes: int) -> tuple[int, ...]:
    """Sorting windows that store less than smaller ones do."""
    kept = [1]
    for sigma in (64, 256, 1024, 4096, 16384, 0):
        if work.statistics.sell_padding(lanes, sigma) < 0.97 * work.statistics.sell_padding(lanes, kept[-1]):
            kept.append(sigma)
    return tuple(kept[-3:])
