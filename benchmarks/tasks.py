"""Tasks by the system's own means: the programs of their folders, the tuner over their knobs, and mutators.

    python -m benchmarks.tasks [TASK ...] [--sizes trial|published] [--candidates 48] [--mutants 16] [--seconds 60]

For each task and its axes: the naive program's time, how many programs and settings were graded and what became of them,
the best of the folder and the best of its changes. Sizes whose operands or whose result in float64 on the host are beyond
`--most-bytes` and `--most-flops` are left out and listed. Without a GPU the interpreter grades, whose times are estimates
and stand as such. The result file is written after every size.
"""

import argparse
import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import exp, log
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from benchmarks.origin import command, device_folder, source_commit
from benchmarks.results import RESULTS
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FamilyInstance
from sparsesmith.mutation import Subject, drawn, subject_of
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.tuner import Tuner, TuningLimits
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, Evaluation, Passed, UserWritten, Workload
from sparsesmith_proto.message import ElementType

BATCH = 8
DRAWS_A_MUTANT = 8


@dataclass
class Row:
    """One task at one size; microseconds."""

    task: str
    axes: dict[str, int]
    element_type: ElementType
    bytes_moved: int
    flops: int
    naive_us: float | None = None
    best_us: float | None = None
    best: str = ""
    """Family and settings."""
    mutated_us: float | None = None
    """The best of the folder's best program and its changes; None: there were no changes."""
    deed: str = ""
    outcomes: dict[str, int] = field(default_factory=dict)
    first_failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    left_out: str = ""


class Tasks:
    """Has the problems that a grader asks for."""

    def problem(self, workload: Workload) -> Problem:
        return Problem(workload)


def main() -> None:
    options = _options()
    settings = EvaluatorSettings()
    with (
        closing(device_process(settings)) as process,
        Compiler(options.compilers, timeout_s=settings.compile_limit_s) as compiler,
    ):
        grader = Grader(process, compiler, compile_limit_s=settings.compile_limit_s)
        device = process.start()
        out = options.out or RESULTS / device_folder(device) / "tasks.json"
        rows: list[Row] = []
        for problem in problems(options.tasks, options.sizes, options.type):
            rows.append(solved(problem, grader, options))
            print(json.dumps(asdict(rows[-1])), flush=True)
            _write(out, rows, device.model_dump())
    print(json.dumps(summary(rows), indent=1))


def problems(names: Sequence[str], sizes: str, element_type: ElementType) -> Iterator[Problem]:
    for task in our_tasks():
        if not names or task.name in names:
            for axes in task.published if sizes == "published" else (task.trial,):
                yield Problem(Workload(operation=task.name, element_type=element_type, axes=dict(axes)))


def solved(problem: Problem, grader: Grader, options: argparse.Namespace) -> Row:
    """The tuner over the programs of the folder, then changes of the best."""
    floor = problem.floor
    workload = problem.workload
    row = Row(workload.operation, dict(workload.axes), problem.element_type, floor.bytes_moved, floor.flops)
    if problem.operand_bytes > options.most_bytes or floor.flops > options.most_flops:
        row.left_out = f"{problem.operand_bytes} bytes of operands, {floor.flops} operations"
        return row
    began = monotonic()
    try:
        search = _Search(problem, grader, row, began + options.seconds)
        best = search.tune(options.candidates)
        if best is not None and options.mutants:
            search.mutate(best, options.mutants)
    except SparsesmithError as error:
        row.left_out = str(error)[:300]
    row.seconds = round(monotonic() - began, 2)
    return row


class _Search:
    """What is graded of one problem."""

    def __init__(self, problem: Problem, grader: Grader, row: Row, until: float) -> None:
        self._problem, self._grader, self._row, self._until = problem, grader, row, until
        self._num_sent = 0

    def tune(self, candidates: int) -> Evaluation | None:
        """The fastest program of the folder with its settings; None where none passed."""
        tuner = Tuner(grid_of_problem(self._problem), AnalyticCost(), TuningLimits(candidates=candidates))
        best: Evaluation | None = None
        while not tuner.done and monotonic() < self._until and (batch := tuner.next_batch(BATCH)):
            for instance, evaluation in zip(batch, self._graded([each.program for each in batch]), strict=True):
                outcome = evaluation.outcome
                us = outcome.timing.median_us if isinstance(outcome, Passed) else None
                tuner.tell(instance, outcome.outcome if us is None else us)  # type: ignore[arg-type]
                if us is not None and (self._row.best_us is None or us < self._row.best_us):
                    best, self._row.best_us, self._row.best = evaluation, us, _told(instance)
        return best

    def mutate(self, best: Evaluation, count: int) -> None:
        """Changes of the best, and of what became of it, drawn with fixed seeds."""
        workload, text = self._problem.workload, best.candidate.program
        parent: Subject = subject_of(text, None, workload.operation, workload.element_type)
        tried, number, self._row.mutated_us = {text}, 0, self._row.best_us
        while number < count and monotonic() < self._until:
            children = []
            for _ in range(min(BATCH, count - number)):
                child = next((each for each in _children(parent, number) if each.text not in tried), None)
                number += 1
                if child is not None:
                    tried.add(child.text)
                    children.append(child)
            if not children:
                break
            for mutant, evaluation in zip(children, self._graded([each.text for each in children]), strict=True):
                outcome = evaluation.outcome
                if isinstance(outcome, Passed) and outcome.timing.median_us < (self._row.mutated_us or 0):
                    self._row.mutated_us, self._row.deed, parent = outcome.timing.median_us, mutant.deed, mutant.subject

    def _graded(self, programs: Sequence[str]) -> Sequence[Evaluation]:
        first, self._num_sent = self._num_sent, self._num_sent + len(programs)
        candidates = tuple(
            Candidate(candidate_id=f"c{first + number}", program=text, origin=UserWritten())
            for number, text in enumerate(programs)
        )
        job = EvaluationJob(job_id="tasks", workload=self._problem.workload, candidates=candidates, budget_s=600)
        report: EvaluationReport = self._grader.grade(job, Tasks())
        self._row.naive_us = report.baselines.best_routine().timing.median_us
        counts = Counter(self._row.outcomes) + Counter(each.outcome.outcome for each in report.evaluations)
        self._row.outcomes = dict(counts)
        for each in report.evaluations:
            if not isinstance(each.outcome, Passed) and len(self._row.first_failures) < 3:
                self._row.first_failures.append(each.outcome.model_dump_json()[:400])
        return report.evaluations


def _children(parent: Subject, number: int) -> Iterator[Any]:
    for attempt in range(DRAWS_A_MUTANT):
        seed = f"{number}.{attempt}"
        mutant = drawn(parent, seed, Random(seed).choice((1, 1, 2)))
        if mutant is not None:
            yield mutant


def _told(instance: FamilyInstance) -> str:
    return " ".join([instance.family, *(f"{name}={value}" for name, value in instance.parameters.items())])


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Tasks solved at all their sizes, and geometric means of ratios over the sizes that were graded."""
    graded = [row for row in rows if not row.left_out]
    solved_tasks = {row.task for row in graded} - {row.task for row in graded if row.best_us is None}
    over_naive = [row.naive_us / row.best_us for row in graded if row.naive_us and row.best_us]
    by_mutation = [row.best_us / row.mutated_us for row in graded if row.best_us and row.mutated_us]
    return {
        "tasks": len({row.task for row in rows}),
        "solved": sorted(solved_tasks),
        "not_solved": sorted({row.task for row in graded} - solved_tasks),
        "sizes_left_out": len(rows) - len(graded),
        "over_naive": _geometric_mean(over_naive),
        "mutated_over_best": _geometric_mean(by_mutation),
        "longest_s": max((row.seconds for row in graded), default=0.0),
    }


def _geometric_mean(ratios: Sequence[float]) -> float | None:
    return round(exp(sum(map(log, ratios)) / len(ratios)), 4) if ratios else None


def _write(out: Path, rows: Sequence[Row], device: Mapping[str, Any]) -> None:
    result = {
        "kind": "tasks",
        "device": device,
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "command": command("benchmarks.tasks"),
        "summary": summary(rows),
        "rows": [asdict(row) for row in rows],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="all without")
    parser.add_argument("--sizes", choices=("trial", "published"), default="trial")
    parser.add_argument("--type", choices=("float32", "float64"), default="float32")
    parser.add_argument("--candidates", type=int, default=48)
    parser.add_argument("--mutants", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the search for one size")
    parser.add_argument("--most-bytes", type=int, default=4 * 2**30)
    parser.add_argument("--most-flops", type=int, default=40 * 10**9, help="of a result in float64 on the host")
    parser.add_argument("--compilers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for name in options.tasks:
        operation_named(name, "TASK")
    return options


if __name__ == "__main__":
    main()
