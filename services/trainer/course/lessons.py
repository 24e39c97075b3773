"""What is asked of the policy while it learns, and what it is judged by."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsesmith.client.clients import matrix_file
from sparsesmith.errors import InvalidOption
from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.api import Budget, Refinement, TuningOptions
from sparsesmith_proto.message import ElementType, Operation
from sparsesmith_proto.words import SearchStrategy

Kind = tuple[Operation, ElementType, int]
"""Operation, element type, dense columns."""

JUDGED: tuple[Kind, ...] = (("spmv", "float32", 1), ("spmv", "float64", 1), ("spmm", "float32", 32))
"""What a policy is judged by."""
REHEARSED: tuple[Kind, ...] = (("spmm", "float32", 8), ("spmm", "float32", 128))
"""What the shipped policy was taught beside these: what it does not practise it may unlearn (docs/training.md)."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """One workload."""

    name: str
    pattern: Pattern
    operation: Operation = "spmv"
    element_type: ElementType = "float32"
    num_dense_cols: int = 1

    def options(self, candidates: int, seconds: float, search: SearchStrategy = "sample") -> TuningOptions:
        """A job of policy samples alone, unless another source is named."""
        return TuningOptions(
            operation=self.operation,
            element_type=self.element_type,
            num_dense_cols=self.num_dense_cols,
            search=search,
            budget=Budget(candidates=candidates, seconds=seconds),
        )

    def changes(self, children: int, seconds: float) -> TuningOptions:
        """A job of the policy's changes of one program: the fastest of as many that families propose."""
        asked = Refinement(children=children, generations=1, beam=1, writer="policy")
        fresh = self.options(2 * children, seconds, "refine")
        return fresh.model_copy(update={"refine": asked})

    def file(self) -> bytes:
        """The matrix as it is posted; nobody looks at its values."""
        return matrix_file(self.pattern.to_scipy(np.ones(self.pattern.nnz, np.float32)), None)


def lessons_of(patterns: Iterable[tuple[str, Pattern]], kinds: Sequence[Kind] = JUDGED) -> list[Lesson]:
    """Each matrix with each of the kinds."""
    return [Lesson(":".join((name, *map(str, kind))), pattern, *kind) for name, pattern in patterns for kind in kinds]


def packed_lessons(lessons: Path, probes: Path, rehearse_every: int = 0) -> tuple[list[Lesson], list[Lesson]]:
    """Of two packs of matrices; with `rehearse_every` n also what is rehearsed, on each n-th matrix of the first.
    Raises InvalidOption where one cannot be read or is empty, and for a matrix that is in both: what the policy is
    judged by must not teach."""
    learned, judged = _pack("lessons", lessons), _pack("probes", probes)
    digests = {pattern.digest for _, pattern in judged}
    for name, pattern in learned:
        if pattern.digest in digests:
            raise InvalidOption(
                f"lessons: {name} of {lessons} is in {probes}, too: it would be learned from and judged by",
                field="lessons",
                value=name,
            )
    rehearsed = learned[::rehearse_every] if rehearse_every else ()
    return lessons_of(learned) + lessons_of(rehearsed, REHEARSED), lessons_of(judged)


def _pack(field: str, path: Path) -> Sequence[tuple[str, Pattern]]:
    try:
        patterns = list(read_pack(path))
    except (OSError, ValueError) as error:
        raise InvalidOption(f"{field}: {path} is no pack of matrices: {error}", field=field, value=str(path)) from error
    if not patterns:
        raise InvalidOption(f"{field}: {path} holds no matrices", field=field, value=str(path), limit="at least 1")
    return patterns
