"""What the families proposed and wrote when this was recorded, as digests: a rebuilding of the families changes none.

`python -m tests.families.golden` records anew (golden.json), where programs are meant to change.
Patterns and values are made by formula, without a random generator: they are the same on every machine.
"""

import hashlib
import itertools
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsesmith.families import FAMILIES, Family, FamilyInstance, propose
from sparsesmith.families.family import KernelFamily
from sparsesmith.families.fixed.proposal import propose_fixed
from sparsesmith.families.fixed.rows import FIXED_FAMILIES
from sparsesmith.families.proposal import FamilyProspect, first_of, prospects_of, work_of
from sparsesmith.families.text.values import Compression
from sparsesmith.formats.format import IntegerRange, NumberList, OneOf, ParameterSpec, ParameterValue
from sparsesmith.formats.values.storage import Constant, Dictionary, Float32
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.matrix.values import fixed_values
from sparsesmith_proto.message import ElementType, Operation

RECORD = Path(__file__).with_name("golden.json")
FIRST = 60
CHOICES = 40
"""Of a family's grid, chosen evenly for each element type and number of columns."""
TRIES = 10_000

Indices = npt.NDArray[np.int64]
Workload = tuple[Operation, ElementType, int]
WORKLOADS: tuple[Workload, ...] = (
    ("spmv", "float32", 1),
    ("spmv", "float64", 1),
    ("spmm", "float32", 8),
    ("spmm", "float32", 32),
    ("spmm", "float32", 128),
    ("spmm", "float64", 24),
)
COMPRESSIONS = (
    Compression(Constant()),
    Compression(Dictionary("u8"), "cached"),
    Compression(Dictionary("u8"), "shared"),
    Compression(Dictionary("u16")),
    Compression(Float32()),
)


def scrambled(numbers: Indices, salt: int = 0) -> Indices:
    """Numbers that look random, from 0 up to 2**31 - 1."""
    words = (numbers + (salt << 32)).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return (words >> np.uint64(33)).astype(np.int64)


def of(rows: int, cols: int, row: Indices, col: Indices) -> Pattern:
    """The pattern of some cells; those outside are left out, repeated ones count once."""
    inside = (col >= 0) & (col < cols)
    cells = np.sort(row[inside] * cols + col[inside])
    cells = cells[np.append(True, cells[1:] != cells[:-1])]
    return pattern_from_indices(rows, cols, cells // cols, cells % cols)


def by_lengths(rows: int, cols: int, lengths: Indices, reach: int = 0, salt: int = 0) -> Pattern:
    """About so many nonzeros a row, anywhere or within `reach` columns of the diagonal."""
    row = np.repeat(np.arange(rows), lengths)
    scattered = scrambled(np.arange(row.size), salt)
    return of(rows, cols, row, row * cols // rows + scattered % (2 * reach) - reach if reach else scattered % cols)


def stencil(extents: tuple[int, ...], wide: bool = False) -> Pattern:
    """A grid's points and their neighbours: across faces, or corners as well (`wide`)."""
    rows = math.prod(extents)
    place = np.array(np.unravel_index(np.arange(rows), extents))
    found = []
    for step in itertools.product((-1, 0, 1), repeat=len(extents)):
        if wide or sum(map(abs, step)) <= 1:
            other = place + np.array(step)[:, None]
            inside = np.logical_and.reduce((other >= 0) & (other < np.array(extents)[:, None]))
            cols = np.ravel_multi_index(tuple(np.clip(other, 0, np.array(extents)[:, None] - 1)), extents)
            found.append((np.flatnonzero(inside), cols[inside]))
    return of(rows, rows, np.concatenate([row for row, _ in found]), np.concatenate([col for _, col in found]))


def banded(rows: int, offsets: tuple[int, ...], cols: int = 0) -> Pattern:
    row = np.tile(np.arange(rows), len(offsets))
    return of(rows, cols or rows, row, row + np.repeat(np.array(offsets), rows))


def power_law(rows: int, cols: int, longest: int, exponent: float, columns_too: bool = False) -> Pattern:
    place = scrambled(np.arange(rows), 7) % rows
    lengths = np.maximum(longest / (1.0 + place) ** exponent, 1).astype(np.int64)
    row = np.repeat(np.arange(rows), lengths)
    scattered = scrambled(np.arange(row.size), 3)
    return of(
        rows, cols, row, (cols * (scattered / 2.0**31) ** 4).astype(np.int64) if columns_too else scattered % cols
    )


def blocks(block_rows: int, extent: int, cols: int, a_row: int) -> Pattern:
    """Dense blocks at random places."""
    block = np.repeat(np.arange(block_rows), a_row)
    place = scrambled(np.arange(block.size), 5) % (cols // extent)
    inner = np.arange(extent * extent)
    row = (block[:, None] * extent + inner // extent).reshape(-1)
    return of(block_rows * extent, cols, row, (place[:, None] * extent + inner % extent).reshape(-1))


def with_dense_rows(rows: int, cols: int, short: int, dense: int, length: int) -> Pattern:
    lengths = np.full(rows, short)
    lengths[scrambled(np.arange(dense), 1) % rows] = length
    return by_lengths(rows, cols, lengths, salt=2)


def constant(rows: int, length: int) -> Indices:
    return np.full(rows, length)


def between(rows: int, low: int, high: int) -> Indices:
    return low + scrambled(np.arange(rows), 9) % (high - low + 1)


PATTERNS: dict[str, Callable[[], Pattern]] = {
    "one entry": lambda: of(1, 1, np.array([0]), np.array([0])),
    "one row": lambda: of(1, 400, np.zeros(133, np.int64), np.arange(133) * 3),
    "one column": lambda: of(200, 1, np.arange(0, 200, 2), np.zeros(100, np.int64)),
    "tiny": lambda: by_lengths(50, 40, between(50, 0, 6)),
    "five points": lambda: stencil((70, 65)),
    "nine points": lambda: stencil((220, 200), wide=True),
    "seven points": lambda: stencil((40, 37, 31)),
    "twenty-seven points": lambda: stencil((52, 51, 50), wide=True),
    "tridiagonal": lambda: banded(4000, (-1, 0, 1)),
    "wide band": lambda: banded(3000, tuple(range(-40, 41, 2))),
    "large band": lambda: banded(400_000, (-900, -30, -1, 0, 1, 30, 900, 901)),
    "shifted band": lambda: banded(90_000, tuple(range(20)), 90_020),
    "random": lambda: by_lengths(3000, 2500, between(3000, 4, 16)),
    "random, wide": lambda: by_lengths(800, 300_000, between(800, 10, 60)),
    "random, tall": lambda: by_lengths(60_000, 900, between(60_000, 1, 9)),
    "random, large": lambda: by_lengths(250_000, 250_000, between(250_000, 6, 18)),
    "near the diagonal": lambda: by_lengths(40_000, 300_000, constant(40_000, 17), 1500),
    "power law": lambda: power_law(20_000, 20_000, 4000, 0.7),
    "power law, columns too": lambda: power_law(300_000, 300_000, 20_000, 0.6, columns_too=True),
    "mostly empty": lambda: of(5000, 70_000, np.array([7, 7, 4999]), np.array([0, 69_999, 3])),
    "dense rows": lambda: with_dense_rows(20_000, 20_000, 4, 6, 15_000),
    "a few long rows": lambda: with_dense_rows(900, 200_000, 4, 30, 120),
    "blocks of three": lambda: blocks(4000, 3, 12_000, 9),
    "blocks of four": lambda: blocks(12_000, 4, 400_000, 12),
    "pruned layer": lambda: by_lengths(768, 1024, constant(768, 220)),
    "full": lambda: of(600, 500, np.repeat(np.arange(600), 500), np.tile(np.arange(500), 600)),
    "long rows": lambda: by_lengths(64, 30_000, constant(64, 4000)),
}

FIXED_PATTERNS = ("one entry", "five points", "nine points", "seven points", "wide band", "random", "blocks of three",
                  "power law", "large band", "random, tall")  # fmt: skip
VALUES: dict[str, Callable[[Pattern], npt.NDArray[np.floating[Any]]]] = {
    "equal": lambda pattern: np.full(pattern.nnz, 3.0),
    "by diagonal": lambda pattern: 1.0 + (pattern.col_indices - pattern.row_indices()) % 5,
    "thousands": lambda pattern: 1.0 + np.arange(pattern.nnz) % 1999,
    "narrow": lambda pattern: np.arange(pattern.nnz) / 8,
    "all different": lambda pattern: np.arange(pattern.nnz) / 7,
}


def digest(*lines: object) -> str:
    return hashlib.sha256("\n".join(map(str, lines)).encode()).hexdigest()[:16]


def written(instances: list[FamilyInstance]) -> list[str]:
    return [f"{instance.family} {instance.parameters}\n{instance.program}" for instance in instances]


def listed(prospects: list[FamilyProspect]) -> list[str]:
    return [f"{entry.family.name} {entry.parameters} {entry.estimated_us:.6g}" for entry in prospects]


def of_pattern(name: str) -> dict[str, str]:
    """For each workload, what is proposed: the first programs, and the parameters of all prospects."""
    pattern, found = PATTERNS[name](), {}
    for operation, element_type, columns in WORKLOADS:
        prospects = prospects_of(work_of(pattern, element_type, columns), operation, element_type)
        programs = first_of(prospects, element_type, columns, FIRST)
        found[f"{operation} {element_type} {columns}"] = digest(*written(programs), *listed(prospects))
    return found


def of_values(name: str) -> dict[str, str]:
    """For each kind of values that a request may fix, the first programs."""
    found = {}
    for kind, (operation, element_type, columns), programs in for_fixed_values(name):
        found[f"{kind} {operation} {element_type} {columns}"] = digest(*written(programs))
    return found


def for_fixed_values(name: str) -> Iterator[tuple[str, Workload, list[FamilyInstance]]]:
    """For each workload and kind of values, the first programs."""
    pattern = PATTERNS[name]()
    for workload in WORKLOADS[:3]:
        operation, element_type, columns = workload
        general = propose(pattern, operation, element_type, columns, FIRST)
        for kind, values in VALUES.items():
            given = fixed_values(values(pattern), element_type)
            yield kind, workload, propose_fixed(pattern, given, operation, element_type, general, FIRST)


def values_of(spec: ParameterSpec) -> tuple[ParameterValue, ...]:
    match spec:
        case OneOf():
            return spec.values
        case IntegerRange():
            return (spec.low, spec.default, spec.high)
        case NumberList():
            lists = (spec.default, "-700,-31,-30,0,2,30,500", "1,3,60", "2,7,130", "-2,-1,0")
            return tuple(value for value in lists if spec.is_legal(value))


def choices(family: KernelFamily, element_type: ElementType, columns: int) -> Iterator[dict[str, ParameterValue]]:
    """Legal choices, chosen evenly; the choice depends on names and values alone."""
    chance = random.Random(f"{family.name} {element_type} {columns}")
    names = sorted(family.parameters)
    values = {name: values_of(family.parameters[name]) for name in names}
    chosen = ({name: chance.choice(values[name]) for name in names} for _ in range(TRIES))
    return itertools.islice((choice for choice in chosen if family.accepts(choice, element_type, columns)), CHOICES)


def types_of(family: KernelFamily) -> tuple[ElementType, ...]:
    """Both of 32 and 64 bits; its own of a family for 16 bits alone."""
    is_short = isinstance(family, Family) and "float32" not in family.element_types
    return family.element_types if is_short else ("float32", "float64")


def texts_of(family: KernelFamily) -> Iterator[tuple[str, str]]:
    """What is written, and the text: a part of the grid, and the compressed forms of some."""
    widths = (8, 32, 100) if family.operation == "spmm" else (1,)
    for element_type, columns in itertools.product(types_of(family), widths):
        for place, choice in enumerate(choices(family, element_type, columns)):
            text = family.render(choice, element_type, columns)
            title = f"{family.name} {element_type} {columns} {choice}"
            yield title, text
            if isinstance(family, Family) and place % 3 == 0:
                for compression in COMPRESSIONS:
                    compressed = family.compressed(choice, element_type, columns, compression)
                    yield f"{title} {compression}", str(compressed)


def of_family(family: KernelFamily) -> str:
    return digest(*(text for _, text in texts_of(family)))


def recorded() -> dict[str, dict[str, object]]:
    families = {**FAMILIES, **FIXED_FAMILIES}
    return {
        "patterns": {name: of_pattern(name) for name in PATTERNS},
        "values": {name: of_values(name) for name in FIXED_PATTERNS},
        "families": {name: of_family(family) for name, family in families.items()},
    }


if __name__ == "__main__":
    RECORD.write_text(json.dumps(recorded(), indent=1) + "\n", encoding="utf-8")
