"""Whether a program is a family's: its text, its text without numbers, and what a compiler makes of it."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.matrices.suites import Source
from benchmarks.tuning.sweep import Plan
from sparsesmith.errors import InvalidProgram
from sparsesmith.families import FamilyInstance
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.extraction import extract_program
from sparsesmith.tuning.grid import grid_of
from sparsesmith_proto.message import ElementType, Operation

Kind = Literal["family", "outside_grid", "no_family"]
"""A family's text for this matrix; one but for its numbers, which the grid has not; neither."""

_NUMBER = re.compile(r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)[uUlLfF]*")


@dataclass(frozen=True)
class Kinship:
    """Of a text to the families' texts for one workload."""

    kind: Kind
    masked: str
    """Digest of the text without its numbers."""
    nearest: str = ""
    """The family program that shares most lines with one that is no family's; empty of others."""


def masked(text: str) -> str:
    """Without its numbers. Those within names stay."""
    return _NUMBER.sub("#", text)


def digest(text: str | bytes) -> str:
    """Short: told apart are the programs of one matrix."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def kinships(source: Source, plan: Plan, texts: Sequence[str]) -> dict[str, Kinship]:
    """Of each text, for all that the families offer for a workload. Seconds: the whole grid is written."""
    return kinships_on(source.load().pattern, plan.operation, plan.element_type, plan.num_dense_cols, texts)


def kinships_on(
    pattern: Pattern, operation: Operation, element_type: ElementType, num_dense_cols: int, texts: Sequence[str]
) -> dict[str, Kinship]:
    """As `kinships`, on a pattern that is at hand."""
    grid = grid_of(pattern, operation, element_type, num_dense_cols)
    return kinships_among([grid.instance(index) for index in range(len(grid.entries))], texts)


def kinships_among(instances: Sequence[FamilyInstance], texts: Iterable[str]) -> dict[str, Kinship]:
    """As `kinships`, of what the families offer."""
    known = {extracted(form) for each in instances for form in (each.written, each.program)}
    known_masked = {masked(text) for text in known}
    lines = [frozenset(each.written.splitlines()) for each in instances]
    return dict(_told_of(texts, known, known_masked, instances, lines))


def _told_of(
    texts: Iterable[str],
    known: set[str],
    known_masked: set[str],
    instances: Sequence[FamilyInstance],
    lines: Sequence[frozenset[str]],
) -> Iterator[tuple[str, Kinship]]:
    for text in dict.fromkeys(texts):
        own = extracted(text)
        without = masked(own)
        if own in known:
            yield text, Kinship("family", digest(without))
        else:
            wanted = frozenset(own.splitlines())
            closest = max(range(len(lines)), key=lambda index: _alike(wanted, lines[index]), default=None)
            nearest = "" if closest is None else instances[closest].program
            yield text, Kinship("outside_grid" if without in known_masked else "no_family", digest(without), nearest)


def _alike(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / max(len(first | second), 1)


def extracted(text: str) -> str:
    """The program in a raw answer; what is none, as it is."""
    try:
        return extract_program(text).strip()
    except InvalidProgram:
        return text.strip()


def invented(sample: Mapping[str, object]) -> bool:
    """Of a sample as it stands in a result file: passed, no family's text, and no family program's machine code."""
    return sample["outcome"] == "passed" and sample["kind"] != "family" and bool(sample["other_code"])
