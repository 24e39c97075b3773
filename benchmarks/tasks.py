"""Tunes each task by the system's own means (first programs and their knobs) and compares with its naive program.

    python -m benchmarks.tasks [--device auto] [--sizes published] [--tasks dot,sum] [--candidates 24] [--seconds 60]
        [--out benchmarks/results]

On a GPU at the five published sizes, with PyTorch's time beside it; on the interpreter at the small ragged size of each
task's own, where times are estimates of a model and no statement about a device. A row is written as soon as it is
there: a run that is cut off is taken up where it ended, on the same device and the same commit.
"""

import argparse
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.origin import device_folder, source_commit
from benchmarks.results import RESULTS, geometric_mean
from services.evaluator.checking.draws import draw, kinds_of
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FamilyInstance
from sparsesmith.operations import Problem
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.tuner import Tuner, TuningLimits
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, DeviceDescription, FromFamily, Passed, Workload

BATCH = 8
REDUCTIONS = ("mse", "sum", "dot", "monte_carlo", "cross_entropy", "histogram", "least_squares")
"""FSR's seven reduction-like tasks, whose naive programs add up by atomics."""
UNCOMPARED = ("bubble_sort", "softmax")
"""Left out of ratios: one whose algorithm is prescribed, one that is not among the twenty."""


class Tasks:
    """What a grader asks for problems."""

    def problem(self, workload: Workload) -> Problem:
        return Problem(workload)


def main() -> None:
    options = _parsed()
    settings = EvaluatorSettings(device=options.device)
    with closing(device_process(settings)) as process, Compiler(2, timeout_s=settings.compile_limit_s) as compiler:
        grader = Grader(process, compiler, compile_limit_s=settings.compile_limit_s)
        process.start()
        device = process.description()
        path = options.out / (device_folder(device) if device.kind == "cuda" else "cpu") / "tasks.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = _rows_before(path, device)
        for task, axes in _asked(options, device):
            if any((row["task"], row["axes"]) == (task, dict(axes)) for row in rows):
                continue
            rows.append(tuned(grader, task, axes, options, device))
            print(json.dumps(rows[-1]), flush=True)
            path.write_text(json.dumps(told(rows, device, options), indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in told(rows, device, options).items() if name != "rows"}, indent=1))


def tuned(
    grader: Grader, task: str, axes: Mapping[str, int], options: argparse.Namespace, device: DeviceDescription
) -> dict[str, Any]:
    """One task at one size. What cannot be done at all is told in the row."""
    started = time.monotonic()
    problem = Problem(Workload(operation=task, element_type="float32", axes=dict(axes)))
    row: dict[str, Any] = {"task": task, "axes": dict(axes), "bytes": problem.floor.bytes_moved}
    try:
        row |= _searched(grader, problem, options)
    except SparsesmithError as error:
        row |= {"failed": error.message}
    if device.kind == "cuda":
        row |= _library_row(problem)
    return row | {"seconds": round(time.monotonic() - started, 2)}


def _searched(grader: Grader, problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    limits = TuningLimits(candidates=options.candidates, least=min(16, options.candidates))
    tuner = Tuner(grid_of_problem(problem), AnalyticCost(), limits)
    outcomes: Counter[str] = Counter()
    naive_us, best, end = 0.0, None, time.monotonic() + options.seconds
    while not tuner.done and time.monotonic() < end and (batch := tuner.next_batch(BATCH)):
        report = _graded(grader, problem, batch, end)
        naive_us = naive_us or report.baselines.best_routine().timing.median_us
        for instance, evaluation in zip(batch, report.evaluations, strict=True):
            outcome = evaluation.outcome
            outcomes[outcome.outcome] += 1
            tuner.tell(instance, outcome.timing.median_us if isinstance(outcome, Passed) else outcome.outcome)
            if isinstance(outcome, Passed) and (best is None or outcome.timing.median_us < best[1].timing.median_us):
                best = instance, outcome
    return {"naive_us": naive_us, "outcomes": dict(outcomes), "best": None if best is None else _told_of(*best)}


def _graded(grader: Grader, problem: Problem, batch: Sequence[FamilyInstance], end: float) -> EvaluationReport:
    candidates = tuple(
        Candidate(
            candidate_id=str(place),
            program=instance.program,
            origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
        )
        for place, instance in enumerate(batch)
    )
    budget_s = max(60.0, end - time.monotonic())
    job = EvaluationJob(job_id="tasks", workload=problem.workload, candidates=candidates, budget_s=budget_s)
    return grader.grade(job, Tasks())


def _told_of(instance: FamilyInstance, passed: Passed) -> dict[str, Any]:
    return {
        "family": instance.family,
        "parameters": dict(instance.parameters),
        "us": passed.timing.median_us,
        "timing": passed.timing.model_dump(mode="json"),
    }


def _library_row(problem: Problem) -> dict[str, Any]:
    """PyTorch's time on inputs of the kind that is timed."""
    from benchmarks.task_libraries import ROUTINES, library_us

    task = problem.workload.operation
    if task not in ROUTINES:
        return {}
    inputs = draw(kinds_of(problem)[0], problem, np.random.default_rng(1)).inputs
    try:
        return {"torch_us": library_us(task, inputs, problem.sizes)}
    except RuntimeError as error:
        return {"torch_failed": str(error)[:200]}


def told(rows: Sequence[dict[str, Any]], device: DeviceDescription, options: argparse.Namespace) -> dict[str, Any]:
    """The result file."""
    compared = [row for row in rows if row.get("best") and row["task"] not in UNCOMPARED]
    reductions = [row for row in compared if row["task"] in REDUCTIONS]
    others = [row for row in compared if row["task"] not in REDUCTIONS]
    tasks = {row["task"] for row in rows}
    solved = {task for task in tasks if all(row.get("best") for row in rows if row["task"] == task)}
    return {
        "kind": "tasks",
        "times": "measured" if device.kind == "cuda" else "estimated",
        "device": device.model_dump(mode="json"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"benchmarks.tasks --device {options.device} --sizes {options.sizes} --candidates "
        f"{options.candidates} --seconds {options.seconds:g}",
        "tasks": len(tasks),
        "solved": len(solved),
        "unsolved": sorted(tasks - solved),
        "longest_s": max((row["seconds"] for row in rows), default=0.0),
        "over_naive": {
            "all": _over(compared, "naive_us"),
            "reductions": _over(reductions, "naive_us"),
            "others": _over(others, "naive_us"),
        },
        "over_torch": _over([row for row in compared if "torch_us" in row], "torch_us"),
        "rows": list(rows),
    }


def _over(rows: Sequence[dict[str, Any]], other: str) -> float | None:
    """Geometric mean; None of none. Where nothing is faster than the naive program, that is what a user gets."""
    ratios = [row[other] / min(row["best"]["us"], row["naive_us"]) for row in rows]
    return round(geometric_mean(ratios), 4) if ratios else None


def _asked(options: argparse.Namespace, device: DeviceDescription) -> Iterator[tuple[str, Mapping[str, int]]]:
    chosen = options.tasks.split(",") if options.tasks else [task.name for task in our_tasks()]
    sizes = options.sizes if options.sizes != "auto" else "published" if device.kind == "cuda" else "trial"
    for task in our_tasks():
        if task.name in chosen:
            for axes in task.published if sizes == "published" else (task.trial,):
                yield task.name, axes


def _rows_before(path: Path, device: DeviceDescription) -> list[dict[str, Any]]:
    """Of a run on the same device and commit."""
    if not path.exists():
        return []
    before = json.loads(path.read_text(encoding="utf-8"))
    same = before["commit"] == source_commit() and before["device"]["name"] == device.name
    return list(before["rows"]) if same else []


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "interpreter"))
    parser.add_argument("--sizes", default="auto", choices=("auto", "published", "trial"))
    parser.add_argument("--tasks", default="", help="names with commas between; all by default")
    parser.add_argument("--candidates", type=int, default=24, help="programs tried of a task at a size, at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a task at a size, at most")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
