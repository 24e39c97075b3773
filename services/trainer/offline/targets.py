"""What to imitate: of the programs measured for a workload the fastest few, weighted by speed."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.trainer.offline.records import Record
from sparsesmith_proto.message import ElementType, Operation


@dataclass(frozen=True)
class WorkloadKey:
    """A workload by the name under which its pattern was measured."""

    pattern: str
    operation: Operation
    element_type: ElementType
    num_dense_cols: int


@dataclass(frozen=True)
class MeasuredProgram:
    """One program and its time."""

    program: str
    family: str
    median_us: float
    plain: str = ""
    """The text without open numbers, as it was measured; empty where that is `program`."""

    @property
    def graded(self) -> str:
        """Without open numbers."""
        return self.plain or self.program


@dataclass(frozen=True)
class Improvement:
    """A change that was timed beside its parent."""

    parent: str
    report: str
    child: str
    gain: float
    """The parent's time over the child's."""


@dataclass(frozen=True)
class Repair:
    """A program that failed, with what was said of it, and one like it that works."""

    failed: str
    report: str
    working: str


@dataclass(frozen=True)
class Target:
    """A program to imitate, with its share of the workload's weight."""

    program: str
    family: str
    weight: float


@dataclass(frozen=True)
class WorkloadTargets:
    """Everything measured of one workload."""

    key: WorkloadKey
    best_baseline_us: float | None
    """None where no baseline was timed beside the programs."""
    measured: tuple[MeasuredProgram, ...]
    """Fastest first, one for each program text."""
    targets: tuple[Target, ...]
    """Fastest first; weights add up to 1."""
    improvements: tuple[Improvement, ...] = ()
    """Of a harvest; any slower program of `measured` is improved by a target, too."""
    repairs: tuple[Repair, ...] = ()
    is_expected: bool = False
    """Nobody measured it: times are what a cost model expects, over the first one's. It teaches to write, not to
    improve."""

    def time_of(self, program: str) -> float | None:
        """Measured time of a program text, None where it was not measured. Microseconds."""
        return next((each.median_us for each in self.measured if each.program == program), None)


@dataclass(frozen=True)
class TargetRule:
    """How many programs, and how much the fastest is preferred."""

    most: int = 8
    slowest: float = 1.15
    """Programs slower than this multiple of the fastest are no targets."""
    temperature: float = 0.04
    """Weights are a softmax of -log(time) / temperature: 4 % slower is worth 1/e."""


def workload_targets(records: Iterable[Record], rule: TargetRule) -> list[WorkloadTargets]:
    """Records with their programs, grouped by workload, in the order of first appearance."""
    grouped: dict[WorkloadKey, list[Record]] = defaultdict(list)
    for record in records:
        grouped[key_of(record)].append(record)
    return [_of_workload(key, group, rule) for key, group in grouped.items()]


def key_of(record: Record) -> WorkloadKey:
    """Of a record or a line of a harvest."""
    columns = int(record.get("num_dense_cols", 1))
    return WorkloadKey(record["pattern"], record["operation"], record["element_type"], columns)


def _of_workload(key: WorkloadKey, records: list[Record], rule: TargetRule) -> WorkloadTargets:
    fastest: dict[str, MeasuredProgram] = {}
    for record in sorted(records, key=lambda each: float(each["median_us"])):
        text, plain = record["program"], record.get("plain", "")
        program = MeasuredProgram(
            text, record.get("family", ""), float(record["median_us"]), "" if plain == text else plain
        )
        fastest.setdefault(program.program, program)
    measured = tuple(fastest.values())
    return WorkloadTargets(key, records[0].get("best_baseline_us"), measured, targets_of(measured, rule))


def targets_of(measured: Sequence[MeasuredProgram], rule: TargetRule) -> tuple[Target, ...]:
    """Of programs, fastest first."""
    limit = measured[0].median_us * rule.slowest
    chosen = [program for program in measured[: rule.most] if program.median_us <= limit]
    raw = [math.exp(-math.log(each.median_us / measured[0].median_us) / rule.temperature) for each in chosen]
    return tuple(Target(each.program, each.family, weight / sum(raw)) for each, weight in zip(chosen, raw, strict=True))
