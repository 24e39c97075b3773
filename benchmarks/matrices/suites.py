"""The matrices that are measured: development patterns of a pack, generated large ones, the examples."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.matrices.generated import GENERATED, GENERATED_NNZ
from benchmarks.matrices.layers import DLMC_PREFIX, LAYERS, LLAMA, MATRIX_CLASS
from benchmarks.matrices.split import SPLIT_FILE
from benchmarks.origin import ROOT
from sparsesmith.matrix.files import MatrixLimits, read_matrix
from sparsesmith.matrix.pack import pack_index, read_pack
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy


@dataclass(frozen=True, eq=False)
class Matrix:
    """One matrix of a suite."""

    name: str
    matrix_class: str
    split: str
    """`train`, `validation`, `generated` or `example`."""
    pattern: Pattern


class Source(Protocol):
    """Where a matrix comes from; picklable, so that it is read or made in another process."""

    @property
    def name(self) -> str: ...

    def load(self) -> Matrix: ...


@dataclass(frozen=True)
class Packed:
    """A pattern of a pack."""

    pack: Path
    name: str
    matrix_class: str
    split: str

    def load(self) -> Matrix:
        return Matrix(self.name, self.matrix_class, self.split, dict(read_pack(self.pack, [self.name]))[self.name])


@dataclass(frozen=True)
class Generated:
    """A large matrix made here."""

    name: str
    nnz: int

    def load(self) -> Matrix:
        matrix_class, make = GENERATED[self.name]
        return Matrix(self.name, matrix_class, "generated", make())


@dataclass(frozen=True)
class Layer:
    """A pruned layer made here."""

    name: str

    def load(self) -> Matrix:
        return Matrix(self.name, MATRIX_CLASS, "generated", (LAYERS | LLAMA)[self.name]())


@dataclass(frozen=True)
class Example:
    """A Matrix Market file of examples/."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    def load(self) -> Matrix:
        pattern, _ = read_matrix(self.path, self.path.name, MatrixLimits())
        return Matrix(self.name, "example", "example", pattern)


@dataclass(frozen=True)
class Permuted:
    """Another's matrix with rows and columns in a random order: the same for both where it is square."""

    source: Source
    seed: int

    @property
    def name(self) -> str:
        return self.source.name

    def load(self) -> Matrix:
        matrix = self.source.load()
        return Matrix(matrix.name, matrix.matrix_class, matrix.split, permuted(matrix.pattern, self.seed))


def permuted(pattern: Pattern, seed: int) -> Pattern:
    """P A P^T of a square pattern, P A Q of another."""
    chance = np.random.default_rng(seed)
    rows = chance.permutation(pattern.num_rows)
    cols = rows if pattern.num_rows == pattern.num_cols else chance.permutation(pattern.num_cols)
    return pattern_from_scipy(pattern.to_scipy(np.ones(pattern.nnz, np.int8))[rows][:, cols])


def core_sources(pack: Path) -> list[Packed]:
    """The core development matrices of a pack, small ones first."""
    return _packed(pack, lambda row: row["suite"] == "core")


def held_out_sources(pack: Path) -> list[Packed]:
    """The validation matrices of a pack outside the core suite, small ones first: nothing was developed on them."""
    return _packed(pack, lambda row: row["suite"] != "core" and row["split"] == "validation")


def layer_sources() -> list[Source]:
    """Pruned layers made here."""
    return [Layer(name) for name in LAYERS]


def dlmc_sources(pack: Path) -> list[Packed]:
    """DLMC's matrices that a pack has, small ones first."""
    return _packed(pack, lambda row: row["name"].startswith(DLMC_PREFIX))


def llama_sources() -> list[Source]:
    """Pruned layers of a language model, those with few weights left first."""
    return [Layer(name) for name in LLAMA]


def _packed(pack: Path, is_wanted: Callable[[dict[str, str]], bool]) -> list[Packed]:
    with SPLIT_FILE.open(encoding="utf-8", newline="") as rows:
        known = {row["name"]: row for row in csv.DictReader(rows) if is_wanted(row)}
    names = sorted(known.keys() & pack_index(pack).keys(), key=lambda name: int(known[name]["nnz"]))
    return [Packed(pack, name, known[name]["class"], known[name]["split"]) for name in names]


def generated_sources() -> list[Generated]:
    """Large matrices, 5e6 to 2e7 nonzeros."""
    return [Generated(name, GENERATED_NNZ[name]) for name in GENERATED]


def example_sources() -> list[Example]:
    """What lies in examples/."""
    return [Example(path) for path in sorted((ROOT / "examples").glob("*.mtx"))]


def core_matrices(pack: Path) -> Iterator[Matrix]:
    """The core development matrices of a pack, small ones first, one in memory at a time."""
    return (source.load() for source in core_sources(pack))


def example_matrices() -> Iterator[Matrix]:
    """What lies in examples/."""
    return (source.load() for source in example_sources())
