"""What a family for fixed values is: it is proposed only where a request fixes the values, and sees them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sparsesmith.families.estimates.statistics import PatternStatistics
from sparsesmith.families.family import KernelFamily
from sparsesmith.formats.format import ParameterValue
from sparsesmith.formats.values.storage import MAX_DISTINCT, Code, distinct
from sparsesmith.matrix.pattern import Int32Array, Pattern
from sparsesmith.matrix.values import FixedValues

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Parameters = dict[str, ParameterValue]


@dataclass(frozen=True, eq=False)
class FixedWork:
    """A matrix whose values are fixed."""

    statistics: PatternStatistics
    values: FixedValues

    @property
    def pattern(self) -> Pattern:
        return self.statistics.pattern

    @property
    def blocks(self) -> tuple[int, ...]:
        """Threads a block worth trying, for a thread a row."""
        return (32, 64, 128) if self.pattern.num_rows < 30_000 else (128, 256, 512)

    @property
    def is_constant(self) -> bool:
        return distinct(self.values.array, 1) is not None

    @cached_property
    def code_by_diagonal(self) -> Code | None:
        """The code that the distinct rows need where rows are told apart by diagonals; None where they are too many."""
        return self._row_code(self.pattern.col_indices - self.pattern.row_indices())

    @cached_property
    def code_by_place(self) -> Code | None:
        """As `code_by_diagonal`, where rows are told apart by the values at their places alone."""
        places = np.repeat(self.pattern.row_offsets[:-1], self.pattern.row_lengths)
        return self._row_code(np.arange(self.pattern.nnz, dtype=np.int32) - places)

    def _row_code(self, slots: Int32Array) -> Code | None:
        """`slots`: of each nonzero, shape [nnz]."""
        hashes = slots.astype(np.uint64) * _MULTIPLIER
        hashes ^= self.values.array.view(f"u{self.values.array.dtype.itemsize}")
        hashes *= _MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
        hashes *= _MULTIPLIER
        sums = np.zeros(self.pattern.nnz + 1, np.uint64)
        np.cumsum(hashes, out=sums[1:])
        table = distinct(np.diff(sums[self.pattern.row_offsets]), MAX_DISTINCT["u16"])
        if table is None or table.size > self.pattern.num_rows // 4 + 1:
            return None
        return "u8" if table.size <= MAX_DISTINCT["u8"] else "u16"


@dataclass(frozen=True, kw_only=True)
class FixedFamily(KernelFamily):
    """A family for fixed values."""

    choices: Callable[[FixedWork], Iterator[Parameters]]
    """Parameters worth trying, likely winners first, but for `dependency`; none where the values do not suit."""
