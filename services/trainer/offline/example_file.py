"""What a policy learns from, in one file: workloads with their measured programs, improvements and repairs.

Made once from records (`examples`), so that the stages that need a GPU read no records and no families. One JSON line
a workload, after one that says how the file was made.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.trainer.offline.sides import SIDES, Side
from services.trainer.offline.targets import (
    Improvement,
    MeasuredProgram,
    Repair,
    TargetRule,
    WorkloadKey,
    WorkloadTargets,
    targets_of,
)
from services.trainer.offline.text_files import open_text

VERSION = 1
"""Of the file's form: another one is refused."""


@dataclass(frozen=True)
class ExampleFile:
    """Workloads by side."""

    head: Mapping[str, Any]
    """How it was made, what was left out."""
    workloads: Mapping[Side, Sequence[WorkloadTargets]]


def write_examples(path: Path, head: Mapping[str, Any], workloads: Iterable[tuple[Side, WorkloadTargets]]) -> None:
    """The inverse of `read_examples`."""
    with open_text(path, "w") as lines:
        lines.write(_line({"kind": "examples", "version": VERSION, **head}))
        for side, workload in workloads:
            lines.write(_line({"kind": "workload", "side": side, **_written(workload)}))


def read_examples(path: Path, rule: TargetRule) -> ExampleFile:
    """Raises SystemExit, naming the file, where it is of another version or no such file."""
    workloads: dict[Side, list[WorkloadTargets]] = {side: [] for side in SIDES}
    with open_text(path, "r") as lines:
        head = json.loads(next(lines, "{}"))
        if head.get("version") != VERSION or head.get("kind") != "examples":
            raise SystemExit(f"{path} holds no examples of version {VERSION}: make them anew (stage examples)")
        for line in lines:
            read = json.loads(line)
            workloads[read["side"]].append(_read(read, rule))
    return ExampleFile(head, workloads)


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":")) + "\n"


def _written(workload: WorkloadTargets) -> dict[str, Any]:
    return {
        **vars(workload.key),
        "best_baseline_us": workload.best_baseline_us,
        "measured": [[each.program, each.family, each.median_us, each.plain] for each in workload.measured],
        "improvements": [[each.parent, each.report, each.child, each.gain] for each in workload.improvements],
        "repairs": [[each.failed, each.report, each.working] for each in workload.repairs],
        **({"is_expected": True} if workload.is_expected else {}),
    }


def _read(line: Mapping[str, Any], rule: TargetRule) -> WorkloadTargets:
    key = WorkloadKey(*(line[name] for name in ("pattern", "operation", "element_type", "num_dense_cols")))
    measured = tuple(MeasuredProgram(*each) for each in line["measured"])
    return WorkloadTargets(
        key,
        line["best_baseline_us"],
        measured,
        targets_of(measured, rule),
        tuple(Improvement(*each) for each in line["improvements"]),
        tuple(Repair(*each) for each in line["repairs"]),
        line.get("is_expected", False),
    )
