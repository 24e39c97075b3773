"""The matrices that are measured: development patterns of a pack, generated large ones, the examples."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generated import generated_patterns
from benchmarks.split import SPLIT_FILE
from sparsesmith.domain.matrix_files import MatrixLimits, read_matrix
from sparsesmith.domain.pattern import Pattern
from sparsesmith.domain.pattern_pack import pack_index, read_pack

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, eq=False)
class Matrix:
    """One matrix of a suite."""

    name: str
    matrix_class: str
    split: str
    """`train`, `validation`, `generated` or `example`."""
    pattern: Pattern


def core_matrices(pack: Path) -> Iterator[Matrix]:
    """The core development matrices of a pack, small ones first."""
    with SPLIT_FILE.open(encoding="utf-8", newline="") as rows:
        known = {row["name"]: row for row in csv.DictReader(rows) if row["suite"] == "core"}
    for name in sorted(known.keys() & pack_index(pack).keys(), key=lambda name: int(known[name]["nnz"])):
        row = known[name]
        yield Matrix(name, row["class"], row["split"], dict(read_pack(pack, [name]))[name])


def generated_matrices() -> Iterator[Matrix]:
    """Large matrices, 5e6 to 2e7 nonzeros."""
    for name, matrix_class, pattern in generated_patterns():
        yield Matrix(name, matrix_class, "generated", pattern)


def example_matrices() -> Iterator[Matrix]:
    """What lies in examples/."""
    for path in sorted((ROOT / "examples").glob("*.mtx")):
        pattern, _ = read_matrix(path, path.name, MatrixLimits())
        yield Matrix(path.stem, "example", "example", pattern)
