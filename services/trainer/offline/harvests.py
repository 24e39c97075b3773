"""What a harvest of mutants teaches (`benchmarks.tuning.harvest`): changes that paid, and failures beside what works.

Lines are read as they were written: a `parent` is a program with its times, a `mutant` the lines that differ from it
and what became of it. What cannot be used is left out and counted by its reason. What a harvest timed are programs of
plain numbers; parent and child are learned with what follows from the matrix by name, where both are known to be so.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.trainer.offline.edits import changed_text
from services.trainer.offline.named_edits import named_child
from services.trainer.offline.records import Record, Rendering
from services.trainer.offline.targets import Improvement, MeasuredProgram, Repair, WorkloadKey, key_of
from sparsesmith.prompts.refinement import failure_report, timing_report

LEAST_GAIN = 1.01
"""Times that a change must save to be worth learning."""
COUNTS_LINES = ("rejected", "compile_failed")
"""Outcomes whose message is of the lines of plain numbers."""


@dataclass(frozen=True)
class _Parent:
    """A line of a harvest."""

    line: Record
    text: str
    """Named where that is known."""


@dataclass
class Harvested:
    """By workload."""

    rendering: Rendering = field(default_factory=Rendering)
    """How programs have numbers."""
    improvements: dict[WorkloadKey, list[Improvement]] = field(default_factory=lambda: defaultdict(list))
    repairs: dict[WorkloadKey, list[Repair]] = field(default_factory=lambda: defaultdict(list))
    measured: dict[WorkloadKey, list[MeasuredProgram]] = field(default_factory=lambda: defaultdict(list))
    """Parents, and children that passed."""
    baselines_us: dict[WorkloadKey, float] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)
    """Of parent and child: `named`; `plain`, where the parent's text names nothing; `not named`, where the child's
    change does not fit the parent's names."""

    def add(self, lines: Iterable[Record]) -> None:
        """Of one packed harvest, or of its parts. A parent stands before its mutants."""
        parents: dict[tuple[WorkloadKey, int], _Parent] = {}
        for line in lines:
            match line.get("kind"):
                case "parent":
                    parent = _Parent(line, self.rendering.named(line, line["program"]))
                    parents[key_of(line), line["number"]] = parent
                    self._timed(parent)
                case "mutant":
                    known = parents.get((key_of(line), line["parent"]))
                    reason = "its parent is not there" if known is None else self._learned(line, known)
                    if reason is not None:
                        self.left_out[f"mutant: {reason}"] += 1
                case _:
                    pass

    def _timed(self, parent: _Parent) -> None:
        line, key = parent.line, key_of(parent.line)
        if is_time(line.get("best_baseline_us")):
            self.baselines_us[key] = float(line["best_baseline_us"])
        if is_time(line.get("tuned_us")):
            self._measured(key, parent.text, line["program"], float(line["tuned_us"]), line.get("family", ""))
        else:
            self.left_out["parent: its time is no positive number"] += 1

    def _learned(self, line: Record, parent: _Parent) -> str | None:
        """Why not; None where it was taken."""
        key, plain = key_of(line), changed_text(parent.line["program"], line["lines"])
        before, child = self._pair(line, parent, plain)
        if line["outcome"] != "passed":
            report = failure_report(line["outcome"], str(line.get("message", "")))
            self.repairs[key].append(Repair(child, report, before))
            return None
        gain, child_us = line.get("gain"), line.get("final_us", line.get("brief_us"))
        if not is_time(gain) or not is_time(child_us):
            return "a time or a gain is no positive number"
        assert isinstance(gain, float | int)
        assert isinstance(child_us, float | int)
        self._measured(key, child, plain, float(child_us))
        if gain >= LEAST_GAIN:
            report = timing_report(gain * child_us, parent.line.get("best_baseline_us"))
            self.improvements[key].append(Improvement(before, report, child, float(gain)))
        return None

    def _measured(self, key: WorkloadKey, text: str, plain: str, median_us: float, family: str = "") -> None:
        self.measured[key].append(MeasuredProgram(text, family, median_us, "" if plain == text else plain))

    def _pair(self, line: Record, parent: _Parent, child: str) -> tuple[str, str]:
        """Parent and child, both named or both plain. `child`: plain."""
        plain = parent.line["program"]
        if parent.text == plain or line["outcome"] in COUNTS_LINES:
            self.pairs["plain"] += 1
            return plain, child
        named = named_child(parent.text, plain, child, lambda text: self.rendering.comes_to(text, child, line))
        self.pairs["not named" if named is None else "named"] += 1
        return (plain, child) if named is None else (parent.text, named)


def is_time(value: object) -> bool:
    """A finite positive number."""
    return isinstance(value, int | float) and math.isfinite(value) and value > 0
