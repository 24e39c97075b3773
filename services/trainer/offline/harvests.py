"""What a harvest of mutants teaches (`benchmarks.tuning.harvest`): changes that paid, and failures beside what works.

Lines are read as they were written: a `parent` is a program with its times, a `mutant` the lines that differ from it
and what became of it. What cannot be used is left out and counted by its reason.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.trainer.offline.edits import changed_text
from services.trainer.offline.records import Record
from services.trainer.offline.targets import Improvement, MeasuredProgram, Repair, WorkloadKey, key_of
from sparsesmith.prompts.refinement import failure_report, timing_report

LEAST_GAIN = 1.01
"""Times that a change must save to be worth learning."""


@dataclass
class Harvested:
    """By workload."""

    improvements: dict[WorkloadKey, list[Improvement]] = field(default_factory=lambda: defaultdict(list))
    repairs: dict[WorkloadKey, list[Repair]] = field(default_factory=lambda: defaultdict(list))
    measured: dict[WorkloadKey, list[MeasuredProgram]] = field(default_factory=lambda: defaultdict(list))
    """Parents, and children that passed."""
    baselines_us: dict[WorkloadKey, float] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, lines: Iterable[Record]) -> None:
        """Of one packed harvest, or of its parts. A parent stands before its mutants."""
        parents: dict[tuple[WorkloadKey, int], Mapping[str, Any]] = {}
        for line in lines:
            match line.get("kind"):
                case "parent":
                    parents[key_of(line), line["number"]] = line
                    self._timed(line)
                case "mutant":
                    parent = parents.get((key_of(line), line["parent"]))
                    reason = "its parent is not there" if parent is None else self._learned(line, parent)
                    if reason is not None:
                        self.left_out[f"mutant: {reason}"] += 1
                case _:
                    pass

    def _timed(self, line: Record) -> None:
        key, program = key_of(line), line["program"]
        if is_time(line.get("best_baseline_us")):
            self.baselines_us[key] = float(line["best_baseline_us"])
        if is_time(line.get("tuned_us")):
            self.measured[key].append(MeasuredProgram(program, line.get("family", ""), float(line["tuned_us"])))
        else:
            self.left_out["parent: its time is no positive number"] += 1

    def _learned(self, line: Record, parent: Mapping[str, Any]) -> str | None:
        """Why not; None where it was taken."""
        key, child = key_of(line), changed_text(parent["program"], line["lines"])
        if line["outcome"] != "passed":
            report = failure_report(line["outcome"], str(line.get("message", "")))
            self.repairs[key].append(Repair(child, report, parent["program"]))
            return None
        gain, child_us = line.get("gain"), line.get("final_us", line.get("brief_us"))
        if not is_time(gain) or not is_time(child_us):
            return "a time or a gain is no positive number"
        assert isinstance(gain, float | int)
        assert isinstance(child_us, float | int)
        self.measured[key].append(MeasuredProgram(child, "", float(child_us)))
        if gain >= LEAST_GAIN:
            report = timing_report(gain * child_us, parent.get("best_baseline_us"))
            self.improvements[key].append(Improvement(parent["program"], report, child, float(gain)))
        return None


def is_time(value: object) -> bool:
    """A finite positive number."""
    return isinstance(value, int | float) and math.isfinite(value) and value > 0
