"""Tunes each task by the system's own means (first programs and their knobs) and compares with its naive program.

    python -m benchmarks.measure.tasks [--device auto] [--sizes published] [--tasks dot,sum] [--candidates 24] [--seconds 60]
        [--mutants 16] [--most-bytes B] [--all-seconds S] [--before FILE ...] [--again top_k,dot:n=65536] [--out benchmarks/results]

On a GPU at the five published sizes, with libraries' times beside it; on the interpreter at the small ragged size of each
task's own, where times are estimates of a model and no statement about a device. What is right of a size is found on the host:
one of more than `--most-operations` is left out, and says so. With `--mutants` the starting programs are graded with the first values
of their knobs as well, and the best of the search is then changed so many times, one change on top of what has paid: what search
and changes gain is over the fastest of the former. A row is written as soon as it is there: a run that is cut off is taken up where it ended,
on the same device and the same commit. `--before` keeps what earlier runs on such a device have solved, each row with its commit; `--again`
names what of it is measured anew, whole tasks or sizes with such an axis. Rows of two devices are never in one file.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.measure.task_groups import (
    REDUCTIONS,
    best_us,
    is_compared,
    require_one_device,
    slower_than_a_library,
)
from benchmarks.origin import RESULTS, device_folder, machine, source_commit, write_result
from benchmarks.report.results import geometric_mean
from services.evaluator.checking.draws import draw_inputs, kinds_of
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.cores import num_cores
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FamilyInstance
from sparsesmith.mutation import random_mutant, subject_of
from sparsesmith.operations import Problem
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.operations.task import Task
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.tuner import Tuner, TuningLimits
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import (
    AdverseTiming,
    BaselineTiming,
    Candidate,
    DeviceDescription,
    FromFamily,
    Mismatch,
    Passed,
    UserWritten,
    Workload,
)

BATCH = 8


@dataclass(frozen=True)
class Again:
    """Sizes to be measured anew: of a task, all or those with such an axis."""

    task: str
    axis: str = ""
    size: int = 0

    def names(self, task: str, axes: Mapping[str, int]) -> bool:
        return task == self.task and (not self.axis or axes.get(self.axis) == self.size)


def again_of(text: str) -> tuple[Again, ...]:
    """`top_k,least_squares:n=1048576`. Raises ValueError for a task, an axis or a size that there is not."""
    known = {task.name: task for task in our_tasks()}
    asked = []
    for each in filter(None, text.split(",")):
        name, _, size = each.partition(":")
        axis, _, number = size.partition("=")
        if name not in known:
            raise ValueError(f"--again {each}: no task is called {name}; there are {', '.join(known)}")
        again = Again(name, axis, int(number)) if size else Again(name)
        if not any(again.names(name, axes) for axes in known[name].published):
            raise ValueError(f"--again {each}: {name} has no such size among {list(known[name].published)}")
        asked.append(again)
    return tuple(asked)


class Tasks:
    """What a grader asks for problems."""

    def problem(self, workload: Workload) -> Problem:
        return Problem(workload)


class Grades(Protocol):
    """What searches here need of a grader."""

    def grade(self, job: EvaluationJob, patterns: Tasks) -> EvaluationReport: ...


def main() -> None:
    options = _parsed()
    end = time.monotonic() + options.all_seconds
    settings = EvaluatorSettings(device=options.device)
    num_compilers = max(2, num_cores() - 1)
    with (
        closing(device_process(settings)) as process,
        Compiler(num_compilers, timeout_s=settings.compile_limit_s) as compiler,
    ):
        grader = Grader(process, compiler)
        process.start()
        device = process.description()
        path = options.out / (device_folder(device) if device.kind == "cuda" else "cpu") / "tasks.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        commit = options.commit or source_commit()
        rows = _rows_before(path, device, commit)
        for before in options.before:
            rows += rows_kept(before, rows, device, options.again)
        for task, axes in _asked(options, device):
            if time.monotonic() > end:
                break
            if bytes_of(task, axes) > options.most_bytes:
                continue
            if any((row["task"], row["axes"]) == (task, dict(axes)) for row in rows):
                continue
            rows.append(tuned(grader, task, axes, options, device) | {"commit": commit})
            print(json.dumps(rows[-1]), flush=True)
            _write(path, rows, device, options)
        _write(path, rows, device, options)  # What was kept, where nothing was measured.
    print(json.dumps({name: value for name, value in told(rows, device, options).items() if name != "rows"}, indent=1))


def _write(path: Path, rows: list[dict[str, Any]], device: DeviceDescription, options: argparse.Namespace) -> None:
    result = told(rows, device, options) | {"commit": _commits(rows)}
    write_result(path, result)


def tuned(
    grader: Grader, task: str, axes: Mapping[str, int], options: argparse.Namespace, device: DeviceDescription
) -> dict[str, Any]:
    """One task at one size. What cannot be done at all is told in the row."""
    started = time.monotonic()
    problem = _problem(task, axes)
    row: dict[str, Any] = {"task": task, "axes": dict(axes), "device": device.name, "bytes": problem.floor.bytes_moved}
    if problem.floor.flops > options.most_operations:
        return row | {"left_out": f"{problem.floor.flops} operations on the host", "seconds": 0.0}
    stages = dict[str, float]()
    try:
        row |= _searched_row(Staged(grader, stages), problem, options)
    except SparsesmithError as error:
        row |= {"failed": error.message}
    if device.kind == "cuda" and "failed" not in row:
        begun = time.monotonic()
        row |= _library_row(problem)
        stages["libraries"] = (time.monotonic() - begun) * 1e3
    row["stages_s"] = {stage: round(ms / 1e3, 2) for stage, ms in stages.items()}
    return row | {"seconds": round(time.monotonic() - started, 2)}


@dataclass(frozen=True)
class Staged:
    """A grader, and the milliseconds that its jobs have spent by stage (`EvaluationReport.stages_ms`)."""

    grader: Grader
    stages: dict[str, float]

    def grade(self, job: EvaluationJob, patterns: Tasks) -> EvaluationReport:
        report = self.grader.grade(job, patterns)
        for stage, ms in report.stages_ms.items():
            self.stages[stage] = self.stages.get(stage, 0.0) + ms
        return report


def bytes_of(task: str, axes: Mapping[str, int]) -> int:
    """Of its operands."""
    return _problem(task, axes).floor.bytes_moved


def _problem(task: str, axes: Mapping[str, int]) -> Problem:
    return Problem(Workload(operation=task, element_type="float32", axes=dict(axes)))


@dataclass(frozen=True)
class Found:
    """The fastest program of a search that passed."""

    instance: FamilyInstance
    passed: Passed
    program: str
    """Its numbers filled in."""


@dataclass(frozen=True)
class Searched:
    """What came of the first programs and their knobs."""

    naive: BaselineTiming | None
    outcomes: Mapping[str, int]
    wrong: str
    """What was said against the first program that was found to be wrong; empty where none was."""
    best: Found | None


def searched(grader: Grades, problem: Problem, candidates: int, seconds: float) -> Searched:
    """Tuned by the system's own means. Raises SparsesmithError where nothing can be graded."""
    limits = TuningLimits(candidates=candidates, least=min(16, candidates))
    tuner = Tuner(grid_of_problem(problem), AnalyticCost(), limits)
    outcomes: Counter[str] = Counter()
    naive: BaselineTiming | None = None
    wrong = ""
    best: Found | None = None
    end = time.monotonic() + seconds
    while not tuner.done and time.monotonic() < end and (batch := tuner.next_batch(BATCH)):
        report = _graded(grader, problem, _of_families(batch), end)
        naive = naive or report.baselines.best_routine()
        for instance, evaluation in zip(batch, report.evaluations, strict=True):
            outcome = evaluation.outcome
            outcomes[outcome.outcome] += 1
            if isinstance(outcome, Mismatch):
                wrong = wrong or f"{instance.family}: {outcome.message}"
            tuner.tell(instance, outcome.timing.median_us if isinstance(outcome, Passed) else outcome.outcome)
            if isinstance(outcome, Passed) and (
                best is None or outcome.timing.median_us < best.passed.timing.median_us
            ):
                best = Found(instance, outcome, evaluation.candidate.program)
    return Searched(naive, dict(outcomes), wrong, best)


def _searched_row(grader: Grades, problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    found = searched(grader, problem, options.candidates, options.seconds)
    best = found.best
    row: dict[str, Any] = {**_told_of_naive(found.naive), "outcomes": found.outcomes, "best": None}
    row["candidates"] = options.candidates
    if found.wrong:
        row["wrong"] = found.wrong
    if best is None:
        return row
    row["best"] = _told_of(best.instance, best.passed)
    if not options.mutants:
        return row
    first = starting(grader, problem, options.seconds)
    row["starting"] = None if first is None else {"family": first.instance.family, "us": first.passed.timing.median_us}
    return row | {"mutated": _mutated(grader, problem, best.program, best.passed.timing.median_us, options)}


def starting(grader: Grades, problem: Problem, seconds: float) -> Found | None:
    """The fastest of the starting programs with the first values of their knobs; None where none passes."""
    grid = grid_of_problem(problem)
    firsts = [number for number, family in enumerate(grid.families) if family not in grid.families[:number]]
    instances = [grid.instance(number) for number in firsts]
    report = _graded(grader, problem, _of_families(instances), time.monotonic() + seconds)
    passed = [
        Found(instance, evaluation.outcome, evaluation.candidate.program)
        for instance, evaluation in zip(instances, report.evaluations, strict=True)
        if isinstance(evaluation.outcome, Passed)
    ]
    return min(passed, key=lambda each: each.passed.timing.median_us, default=None)


def _mutated(
    grader: Grades, problem: Problem, program: str, before_us: float, options: argparse.Namespace
) -> dict[str, Any]:
    """The best that changes have made of a program, each made with a seed of its number."""
    workload, best_us, deeds = problem.workload, before_us, list[str]()
    parent = subject_of(program, None, workload.operation, workload.element_type)
    outcomes, end = Counter[str](), time.monotonic() + options.seconds
    for first in range(0, options.mutants, BATCH):
        numbers = range(first, min(first + BATCH, options.mutants))
        found = {
            each.text: each for each in (random_mutant(parent, str(number)) for number in numbers) if each is not None
        }
        if not found or time.monotonic() > end:
            break
        candidates = [
            Candidate(candidate_id=str(place), program=text, origin=UserWritten()) for place, text in enumerate(found)
        ]
        report = _graded(grader, problem, candidates, end)
        outcomes.update(each.outcome.outcome for each in report.evaluations)
        better = [
            (outcome.timing.median_us, mutant)
            for mutant, evaluation in zip(found.values(), report.evaluations, strict=True)
            if isinstance(outcome := evaluation.outcome, Passed) and outcome.timing.median_us < best_us
        ]
        if better:
            best_us, mutant = min(better, key=lambda each: each[0])
            parent, deeds = mutant.subject, [*deeds, mutant.deed]
    return {"us": best_us, "deeds": deeds, "outcomes": dict(outcomes)}


def _of_families(batch: Sequence[FamilyInstance]) -> list[Candidate]:
    return [
        Candidate(
            candidate_id=str(place),
            program=instance.program,
            origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
        )
        for place, instance in enumerate(batch)
    ]


def _graded(grader: Grades, problem: Problem, candidates: Sequence[Candidate], end: float) -> EvaluationReport:
    budget_s = max(60.0, end - time.monotonic())
    job = EvaluationJob(job_id="tasks", workload=problem.workload, candidates=tuple(candidates), budget_s=budget_s)
    return grader.grade(job, Tasks())


def _told_of_naive(naive: BaselineTiming | None) -> dict[str, Any]:
    if naive is None:
        return {"naive_us": 0.0}
    return {"naive_us": naive.timing.median_us, **_told_of_adverse("naive_adverse", naive.adverse)}


def _told_of_adverse(name: str, adverse: AdverseTiming | None) -> dict[str, Any]:
    """Of tasks whose times depend on what inputs hold."""
    return {} if adverse is None else {name: {"draw": adverse.draw, "us": adverse.timing.median_us}}


def _told_of(instance: FamilyInstance, passed: Passed) -> dict[str, Any]:
    return {
        "family": instance.family,
        "parameters": dict(instance.parameters),
        "us": passed.timing.median_us,
        "timing": passed.timing.model_dump(mode="json"),
        **_told_of_adverse("adverse", passed.adverse),
    }


def _library_row(problem: Problem) -> dict[str, Any]:
    """Libraries' times on inputs of the kind that is timed."""
    from benchmarks.measure.task_libraries import libraries_us

    inputs = draw_inputs(kinds_of(problem)[0], problem, np.random.default_rng(1))
    found, failed = libraries_us(problem.workload.operation, inputs, problem.sizes)
    row: dict[str, Any] = {f"{library}_us": us for library, us in found.items()}
    if found:
        row["library_us"] = min(found.values())
    return row | ({"libraries_failed": failed} if failed else {})


def told(rows: Sequence[dict[str, Any]], device: DeviceDescription, options: argparse.Namespace) -> dict[str, Any]:
    """The result file. Raises ValueError for rows of two devices, which have no mean."""
    require_one_device(rows, device.name)
    compared = [row for row in rows if is_compared(row)]
    reductions = [row for row in compared if row["task"] in REDUCTIONS]
    others = [row for row in compared if row["task"] not in REDUCTIONS]
    tasks = {row["task"] for row in rows}
    asked = [row for row in rows if "left_out" not in row]
    solved = {row["task"] for row in asked} - {row["task"] for row in asked if not row.get("best")}
    return {
        "kind": "tasks",
        "times": "measured" if device.kind == "cuda" else "estimated",
        "device": device.model_dump(mode="json"),
        "machine": machine(),
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"benchmarks.measure.tasks --device {options.device} --sizes {options.sizes} --candidates "
        f"{options.candidates} --seconds {options.seconds:g} --mutants {options.mutants}",
        "tasks": len(tasks),
        "solved": len(solved),
        "unsolved": sorted(tasks - solved),
        "sizes_left_out": len(rows) - len(asked),
        "longest_s": max((row["seconds"] for row in rows), default=0.0),
        "over_naive": {
            "all": _over(compared, "naive_us"),
            "reductions": _over(reductions, "naive_us"),
            "others": _over(others, "naive_us"),
        },
        "over_naive_on_adverse_inputs": _over_on_adverse(compared),
        "mutated_over_best": _mutated_over_best(asked),
        "search_and_changes_over_starting": over_starting(asked),
        "sizes_that_were_changed": len(_changed(asked)),
        "over_torch": _over([row for row in compared if "torch_us" in row], "torch_us"),
        "over_best_library": _over([row for row in compared if "library_us" in row], "library_us"),
        "slower_than_a_library": slower_than_a_library(rows),
        "rows": list(rows),
    }


def _over(rows: Sequence[dict[str, Any]], other: str) -> float | None:
    """Geometric mean; None of none. Where nothing is faster than the naive program, that is what a user gets. Left
    out where a program could not be told from the copy that brings its input back."""
    timed = ((row[other], best_us(row)) for row in rows)
    ratios = [theirs / ours for theirs, ours in timed if ours > 0]
    return round(geometric_mean(ratios), 4) if ratios else None


def _over_on_adverse(rows: Sequence[dict[str, Any]]) -> float | None:
    """Geometric mean over the naive program of what was the fastest on usual inputs, where both were timed on adverse
    ones; None of none."""
    timed = ((row["naive_adverse"], row["best"].get("adverse")) for row in rows if "naive_adverse" in row)
    ratios = [naive["us"] / best["us"] for naive, best in timed if best is not None and best["us"] > 0]
    return round(geometric_mean(ratios), 4) if ratios else None


def _mutated_over_best(rows: Sequence[dict[str, Any]]) -> float | None:
    """Geometric mean; None where nothing was changed."""
    ratios = [row["best"]["us"] / row["mutated"]["us"] for row in rows if "mutated" in row]
    return round(geometric_mean(ratios), 4) if ratios else None


def over_starting(rows: Sequence[dict[str, Any]]) -> float | None:
    """Geometric mean of what the tuner and changes made of the fastest starting program, which a user gets where it
    stays the fastest; None where nothing was changed."""
    changed = _changed(rows)
    found = [min(row["best"]["us"], row["mutated"]["us"], row["starting"]["us"]) for row in changed]
    ratios = [row["starting"]["us"] / us for row, us in zip(changed, found, strict=True) if us > 0]
    return round(geometric_mean(ratios), 4) if ratios else None


def _changed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row.get("starting") and "mutated" in row]


def _asked(options: argparse.Namespace, device: DeviceDescription) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The smallest size of every task, then the next: a run that is cut off has some of each."""
    chosen = options.tasks.split(",") if options.tasks else [task.name for task in our_tasks()]
    sizes = options.sizes if options.sizes != "auto" else "published" if device.kind == "cuda" else "trial"
    wanted = [task for task in our_tasks() if task.name in chosen]
    asked = [[(task.name, axes) for axes in _sizes_of(task, sizes)] for task in wanted]
    return (each for of_a_place in zip_longest(*asked) for each in of_a_place if each is not None)


def _sizes_of(task: Task, sizes: str) -> Sequence[Mapping[str, int]]:
    return task.published if sizes == "published" else (task.trial,)


def _rows_before(path: Path, device: DeviceDescription, commit: str) -> list[dict[str, Any]]:
    """Of a run on the same device and commit."""
    if not path.exists():
        return []
    before = json.loads(path.read_text(encoding="utf-8"))
    if before["device"]["name"] != device.name:
        return []
    return [row for row in _with_commits(before) if row["commit"] == commit]


def rows_kept(
    path: Path, rows: Sequence[dict[str, Any]], device: DeviceDescription, again: Sequence[Again] = ()
) -> list[dict[str, Any]]:
    """Of an earlier run on the same kind of device: sizes that were solved, that `rows` does not have and that are not
    to be measured again."""
    before = json.loads(path.read_text(encoding="utf-8"))
    if before["device"]["name"] != device.name:
        raise SystemExit(f"{path} is of {before['device']['name']}, this is {device.name}: its rows cannot be kept")
    here = [(row["task"], row["axes"]) for row in rows]
    return [
        row
        for row in _with_commits(before)
        if row.get("best")
        and (row["task"], row["axes"]) not in here
        and not any(each.names(row["task"], row["axes"]) for each in again)
    ]


def _with_commits(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows, each with the commit and the device that it was measured at."""
    return [{"commit": result["commit"], "device": result["device"]["name"], **row} for row in result["rows"]]


def _commits(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of all rows, in order of their appearance."""
    return ", ".join(dict.fromkeys(row["commit"] for row in rows))


def _again(text: str) -> tuple[Again, ...]:
    try:
        return again_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "interpreter"))
    parser.add_argument("--sizes", default="auto", choices=("auto", "published", "trial"))
    parser.add_argument("--tasks", default="", help="names with commas between; all by default")
    parser.add_argument("--candidates", type=int, default=24, help="programs tried of a task at a size, at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a task at a size, at most")
    parser.add_argument("--mutants", type=int, default=0, help="changes of the best of each size")
    parser.add_argument("--most-operations", type=float, default=3 * 10**11, help="of what is right, on the host")
    parser.add_argument(
        "--most-bytes", type=float, default=float("inf"), help="of operands: larger sizes are not begun"
    )
    parser.add_argument("--all-seconds", type=float, default=24 * 3600, help="no size is begun after this time")
    parser.add_argument(
        "--before",
        type=Path,
        action="append",
        default=[],
        help="an earlier run's file: sizes that it has solved are kept",
    )
    parser.add_argument("--again", type=_again, default=(), help="tasks, or task:axis=size, that are not kept of it")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
