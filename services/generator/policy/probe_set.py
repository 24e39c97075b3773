"""The prompts that every policy version is probed on: small patterns by formula, the same on every machine.

They stand for kinds of matrices (stencil, blocks, kNN, power law, circuit, short rows), not for any matrix of the
benchmarks, and for each kind of product that the shipped policy was taught: what a policy learns of one it may unlearn
of another. Nothing is learned from samples of them, so they stay a measure.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType, Operation

EDITION = 2
"""Of the formulas below: probes of different editions do not compare."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ProbePattern:
    """What one probe prompt asks for."""

    name: str
    pattern: Pattern
    workload: Workload
    sample_seed: int
    """Of the prompt: fixed, so that all versions are asked the same."""


@cache
def probe_set() -> tuple[ProbePattern, ...]:
    """Eight prompts."""
    return (
        _prompt(1, "stencil", _stencil(64, diagonal=False)),
        _prompt(2, "power-law", _power_law(3000)),
        _prompt(3, "circuit", _circuit(2500)),
        _prompt(4, "scattered", _scattered(3000, 3000, 8), operation="spmm", num_dense_cols=8),
        _prompt(5, "blocks", _blocks(400, 6), element_type="float64"),
        _prompt(6, "short-rows", _scattered(4000, 900, 3), element_type="float64"),
        _prompt(7, "neighbours", _neighbours(2500, 10), operation="spmm", num_dense_cols=32),
        _prompt(8, "wide-stencil", _stencil(30, diagonal=True), operation="spmm", num_dense_cols=128),
    )


def probe_set_id(shipped: Iterable[Path], temperature: float) -> str:
    """Names the prompts, the shipped policy (by its files) and the temperature: what a probe depends on. Blocking."""
    files = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(shipped)]
    return f"probe-{hashlib.sha256(json.dumps([EDITION, files, temperature]).encode()).hexdigest()[:16]}"


def _prompt(
    seed: int,
    name: str,
    pattern: Pattern,
    operation: Operation = "spmv",
    element_type: ElementType = "float32",
    num_dense_cols: int = 1,
) -> ProbePattern:
    workload = Workload(
        pattern=pattern.digest, operation=operation, element_type=element_type, num_dense_cols=num_dense_cols
    )
    return ProbePattern(name, pattern, workload, seed)


def _stencil(side: int, *, diagonal: bool) -> Pattern:
    """A square grid whose points touch their 4 neighbours, or 8, and themselves."""
    reach = [(-1, 0), (0, -1), (0, 0), (0, 1), (1, 0), *([(-1, -1), (-1, 1), (1, -1), (1, 1)] if diagonal else [])]
    rows, cols = [], []
    for down, right in reach:
        y, x = np.divmod(np.arange(side * side), side)
        inside = (y + down >= 0) & (y + down < side) & (x + right >= 0) & (x + right < side)
        rows.append((y * side + x)[inside])
        cols.append(((y + down) * side + x + right)[inside])
    return pattern_from_indices(side * side, side * side, np.concatenate(rows), np.concatenate(cols))


def _power_law(size: int) -> Pattern:
    """Row i has about 300 / (1 + i') ** 0.7 nonzeros, i' a scrambled i: a few long rows, many of one or two."""
    rank = np.argsort(_scrambled(np.arange(size), 11), kind="stable")
    rows = np.repeat(np.arange(size), np.maximum(1, 300 / (1 + rank) ** 0.7).astype(np.int64))
    return pattern_from_indices(size, size, rows, _scrambled(np.arange(rows.size), 12) % size)


def _circuit(size: int) -> Pattern:
    """A diagonal, a few scattered nonzeros a row, and two nets that touch every fifth row and column."""
    each = np.arange(size)
    fifth = each[::5]
    rows = [each, np.repeat(each, 2), fifth, fifth, np.full(fifth.size, 7), np.full(fifth.size, size // 2)]
    cols = [each, _scrambled(np.arange(2 * size), 21) % size, np.full(fifth.size, 7)]
    cols += [np.full(fifth.size, size // 2), fifth, fifth]
    return pattern_from_indices(size, size, np.concatenate(rows), np.concatenate(cols))


def _scattered(num_rows: int, num_cols: int, length: int) -> Pattern:
    """`length` columns a row from anywhere; now and then two are the same and the row is shorter."""
    rows = np.repeat(np.arange(num_rows), length)
    return pattern_from_indices(num_rows, num_cols, rows, _scrambled(np.arange(rows.size), 31 + length) % num_cols)


def _blocks(count: int, size: int) -> Pattern:
    """Dense blocks on the diagonal and beside it, and one far away in each row of blocks."""
    block = np.arange(count)
    down = np.concatenate([block, block[1:], block[:-1], block])
    right = np.concatenate([block, block[1:] - 1, block[:-1] + 1, _scrambled(block, 41) % count])
    inner_rows, inner_cols = np.divmod(np.arange(size * size), size)
    rows = (down[:, None] * size + inner_rows).ravel()
    cols = (right[:, None] * size + inner_cols).ravel()
    return pattern_from_indices(count * size, count * size, rows, cols)


def _neighbours(size: int, degree: int) -> Pattern:
    """Each point and `degree` others within 200 of it."""
    rows = np.repeat(np.arange(size), degree)
    cols = (rows + _scrambled(np.arange(rows.size), 51) % 401 - 200) % size
    return pattern_from_indices(size, size, np.append(rows, np.arange(size)), np.append(cols, np.arange(size)))


def _scrambled(number: IntArray, salt: int) -> IntArray:
    """SplitMix64 of each number, as a non-negative integer: no library's generator, which may change."""
    start = salt * 0x9E3779B97F4A7C15 % 2**64
    state = number.astype(np.uint64) + np.uint64(start)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((state ^ (state >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
