"""Measured programs as the repository keeps them: family and parameters, from which the text is written on reading.

A record is one JSON line: pattern (name or digest), operation, element_type, num_dense_cols, family, parameters,
median_us; `program` and `best_baseline_us` where they were kept. Only programs that passed belong here.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from services.trainer.offline.text_files import open_text
from sparsesmith.families import FAMILIES, Family
from sparsesmith.families.naming import named_program
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import comes_to

Record = Mapping[str, Any]

Numbers = Literal["plain", "open"]
"""How a text holds what follows from the matrix: as numbers, or by name (`//@ let`), for the evaluator to fill in."""

NUMBERS: tuple[Numbers, ...] = get_args(Numbers)
NUM_SMS = 132
"""Multiprocessors of the H200, on which the records were measured."""

FindPattern = Callable[[str], Pattern]
"""The pattern that a record names. Raises KeyError."""


def read_records(path: Path) -> Iterator[Record]:
    """Records of a JSON-lines file, plain or .xz."""
    with open_text(path, "r") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


@dataclass
class Rendering:
    """Records with their texts. What cannot be used is left out, and counted by its reason."""

    numbers: Numbers = "plain"
    pattern: FindPattern | None = None
    """Needed for open numbers, which must be seen to come to the program that was measured."""
    left_out: Counter[str] = field(default_factory=Counter)
    kept_plain: Counter[str] = field(default_factory=Counter)
    """Families -> programs whose numbers are not those that the facts give today."""

    def __call__(self, records: Iterable[Record]) -> Iterator[Record]:
        """Each with a `program`, and with it as it was measured, without open numbers: `plain`."""
        for record in records:
            if (reason := unusable(record)) is not None:
                self.left_out[reason] += 1
            else:
                plain = str(record["program"]) if "program" in record else _rendered(record)
                yield {**record, "program": self.named(record, plain), "plain": plain}

    def named(self, record: Record, plain: str) -> str:
        """A program of a record's family and parameters as this rendering has numbers."""
        if self.numbers == "plain" or self.pattern is None or "parameters" not in record:
            return plain
        family, kind = record.get("family", ""), record["element_type"]
        opened = named_program(family, record["parameters"], plain, _circumstances(record, self.pattern), kind)
        if opened is None:
            self.kept_plain[family] += 1
        return opened or plain

    def comes_to(self, text: str, plain: str, record: Record) -> bool:
        """Whether an open text is that program on the record's matrix."""
        assert self.pattern is not None, "nothing was named"
        circumstances = _circumstances(record, self.pattern)
        return comes_to(text, plain, circumstances, record["operation"], record["element_type"])


def unusable(record: Record) -> str | None:
    """Why a record teaches nothing; None where it does."""
    median_us = record.get("median_us")
    if not isinstance(median_us, int | float) or not math.isfinite(median_us) or median_us <= 0:
        return "median_us is not a positive number"
    if "program" in record:
        return None
    if "family" not in record or "parameters" not in record:
        return "neither a program nor a family with its parameters"
    family = FAMILIES.get(record["family"])
    if family is None:
        return f"unknown family {record['family']}"
    if family.operation != record["operation"] or not _is_accepted(family, record):
        return f"family {family.name} does not take these parameters"
    return None


def _is_accepted(family: Family, record: Record) -> bool:
    return family.accepts(record["parameters"], record["element_type"], int(record.get("num_dense_cols", 1)))


def _circumstances(record: Record, pattern: FindPattern) -> Circumstances:
    return Circumstances(pattern(record["pattern"]), int(record.get("num_dense_cols", 1)), NUM_SMS)


def _rendered(record: Record) -> str:
    return FAMILIES[record["family"]].render(
        record["parameters"], record["element_type"], int(record.get("num_dense_cols", 1))
    )
