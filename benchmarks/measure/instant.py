"""A kernel at once: from the pattern in memory to a program that may be launched, by stage; and what it is worth.

    python -m benchmarks.measure.instant [--nnz 1e5 1e6 1e7] [--runs 5] [--search 64] [--seconds S] [--out FOLDER]

The choice is made in this process, as the generator makes it; format, compilation, input and check are an evaluator's
(`Grader.hand_out`), without a queue between. Each run is of a pattern that nothing is remembered of; the stack is warm: the
device and the compilers have worked before and, as in an evaluator with a GPU, usual programs are compiled (`--unprepared`:
none is). `--search`: behind each first run the full protocol grades the same program and so many of the tuner's, which says
what share of the searched kernel's speed the instant one has, and when each is repaid.
The result file is written after every matrix.

Without a GPU the check is the interpreter's, whose time says nothing of a GPU's; choice, format and compilation are the host's.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.matrices.generated import banded, fem_blocks, power_law, stencil_2d, uniform_rows
from benchmarks.origin import ROOT, command, device_folder, source_commit
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.cores import num_cores
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import SparsesmithError
from sparsesmith.families.usual import usual_programs
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.instant import Choice, choices, filled_in
from sparsesmith.tuning.models import CostModels
from sparsesmith.tuning.tuner import Tuner, TuningLimits
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport, InstantJob
from sparsesmith_proto.kernel import Baselines, Candidate, Checked, FromFamily, Passed, Workload
from sparsesmith_proto.message import ElementType

TARGET_MS = {1e5: 25, 1e6: 60, 1e7: 150}
"""What the design asks for on a GPU machine, by nonzeros."""
BATCH = 12
STOPS_MS = (100, 500)
"""At which it is kept what the search has found."""
TRIES = 3


class NonePassed(Exception):
    """No choice of a few passed its check."""


def main() -> None:
    options = _options()
    end = time.monotonic() + options.seconds
    settings = EvaluatorSettings(_secrets_dir=os.environ.get("SPARSESMITH_SECRETS_DIR"))
    with closing(device_process(settings)) as process, Compiler(max(1, num_cores() - 1)) as compiler:
        device = process.start()
        compiler.warm_up(device.architecture)
        if not options.unprepared:
            compiler.compile_meanwhile((each.source for each in usual_programs()), device.architecture)
            compiler.wait_for_meanwhile()
        evaluator = Evaluator(
            Grader(process, compiler),
            CostModels(options.cost_model).on(device.name),
            options.type,
        )
        evaluator.run(named_patterns(3e4)["uniform"])
        how = {
            "kind": "instant",
            "device": device.model_dump(),
            "commit": options.commit or source_commit(),
            "python": platform.python_version(),
            "cpu_cores": os.cpu_count(),
            "command": command("benchmarks.measure.instant"),
            "element_type": options.type,
            "chosen_by": evaluator.cost.name,
            "unprepared": options.unprepared,
        }
        folder = options.out / ("cpu" if device.kind == "interpreter" else device_folder(device))
        rows: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        for nnz in options.nnz:
            for name, pattern in named_patterns(nnz).items():
                if time.monotonic() > end:
                    return
                try:
                    rows.append(_row(evaluator, name, nnz, pattern, options.runs, options.search))
                    print(rows[-1], flush=True)
                except (NonePassed, SparsesmithError) as error:
                    failed.append({"name": name, "class_nnz": nnz, "failed": str(error)})
                    print(failed[-1], flush=True)
                _write(how, rows, failed, folder)


def _write(how: dict[str, Any], rows: Sequence[dict[str, Any]], failed: Sequence[dict[str, Any]], folder: Path) -> None:
    """After every matrix: a run that is cut off leaves what it had."""
    measured = list(dict.fromkeys(row["class_nnz"] for row in rows))
    result = {
        **how,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "classes": [_class(nnz, [row for row in rows if row["class_nnz"] == nnz]) for nnz in measured],
        "rows": rows,
        "failed": failed,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "instant.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def named_patterns(nnz: float) -> dict[str, Pattern]:
    """Matrices of about so many nonzeros, of kinds that different families win."""
    rows = max(64, int(nnz / 10))
    return {
        "stencil": stencil_2d(int((nnz / 5) ** 0.5), 5),
        "band": banded(rows, 5),
        "fem": fem_blocks(max(4, int((nnz / 81) ** 0.5)), 3),
        "uniform": uniform_rows(rows, 10),
        "power_law": power_law(rows, 10),
        "neighbours": neighbours(rows, 10),
    }


def neighbours(num_rows: int, count: int) -> Pattern:
    """Points in a plane, each with its nearest ones by cell, rows and columns in random order."""
    random = np.random.default_rng(1)
    order = random.permutation(num_rows).astype(np.int32)
    near = (np.arange(num_rows)[:, None] + np.arange(-(count // 2), count - count // 2)) % num_rows
    rows, cols = np.repeat(order, count), order[near.reshape(-1)]
    return pattern_from_scipy(
        scipy.sparse.csr_matrix((np.ones(rows.size, np.int8), (rows, cols)), (num_rows, num_rows))
    )


class Evaluator:
    """One evaluator, and the model that chooses for it."""

    def __init__(self, grader: Grader, cost: CostModel, element_type: ElementType) -> None:
        self.grader = grader
        self.cost = cost
        self._element_type = element_type
        self._num_runs = 0

    def problem(self, pattern: Pattern) -> Problem:
        """Of a copy that nothing was computed of yet but its digest, which is an upload's."""
        fresh = Pattern(pattern.num_rows, pattern.num_cols, pattern.row_offsets, pattern.col_indices)
        workload = Workload(pattern=fresh.digest, operation="spmv", element_type=self._element_type)
        return Problem(workload, fresh)

    def run(self, pattern: Pattern) -> dict[str, Any]:
        """Milliseconds by stage, in all, and what was chosen; the first choice that passes counts, all tries are paid."""
        self._num_runs += 1
        problem, stages = self.problem(pattern), dict[str, float]()
        began = time.perf_counter()
        for number, choice in enumerate(self._choices(problem, stages)):
            job = InstantJob(
                job_id=f"run-{self._num_runs}-{number}",
                workload=problem.workload,
                candidate=filled_in(candidate_of(choice, "lead"), choice.instance),
            )
            report = self.grader.hand_out(job, HeldMatrix(problem.pattern, None))
            for stage, ms in report.stages_ms.items():
                stages[stage] = stages.get(stage, 0.0) + ms
            if isinstance(report.outcome, Checked):
                total_ms = (time.perf_counter() - began) * 1e3
                return {
                    "family": choice.instance.family,
                    "tries": number + 1,
                    "total_ms": total_ms,
                    "stages_ms": stages,
                }
        raise NonePassed(f"none of {TRIES} choices passed: {report.outcome}")

    def _choices(self, problem: Problem, stages: dict[str, float]) -> Iterator[Choice]:
        found = choices(problem, self.cost)
        for _ in range(TRIES):
            began = time.perf_counter()
            choice = next(found, None)
            if choice is None:
                return
            stages["choose"] = stages.get("choose", 0.0) + (time.perf_counter() - began) * 1e3
            yield choice

    def searched(self, pattern: Pattern, limit: int, instant_ms: float) -> dict[str, Any]:
        """The instant program and the tuner's, graded in full: times, the share of speed, products to be repaid."""
        problem = self.problem(pattern)
        began = time.perf_counter()
        lead = candidate_of(next(choices(problem, self.cost)), "lead")
        reports = [self._graded(problem, (lead,), "lead")]
        ended_ms = [(time.perf_counter() - began) * 1e3]
        tuner = Tuner(grid_of_problem(problem), self.cost, TuningLimits(candidates=limit))
        while batch := tuner.next_batch(BATCH):
            candidates = tuple(candidate_of(Choice(each, 0.0), f"c{number}") for number, each in enumerate(batch))
            reports.append(self._graded(problem, candidates, f"batch-{len(reports)}"))
            ended_ms.append((time.perf_counter() - began) * 1e3)
            for instance, evaluation in zip(batch, reports[-1].evaluations, strict=True):
                outcome = evaluation.outcome
                tuner.tell(instance, outcome.timing.median_us if isinstance(outcome, Passed) else outcome.outcome)
        return _worth(reports, ended_ms, instant_ms)

    def _graded(self, problem: Problem, candidates: tuple[Candidate, ...], name: str) -> EvaluationReport:
        job = EvaluationJob(
            job_id=f"{self._num_runs}-{name}",
            workload=problem.workload,
            candidates=candidates,
            search=str(self._num_runs),
        )
        return self.grader.grade(job, HeldMatrix(problem.pattern, None))


def candidate_of(choice: Choice, name: str) -> Candidate:
    instance = choice.instance
    origin = FromFamily(family=instance.family, parameters=dict(instance.parameters))
    return Candidate(candidate_id=name, program=instance.written, origin=origin)


def _worth(reports: Sequence[EvaluationReport], ended_ms: Sequence[float], instant_ms: float) -> dict[str, Any]:
    """`ended_ms`: of each report, from the search's begin."""
    outcomes = [evaluation.outcome for report in reports for evaluation in report.evaluations]
    passed = [outcome for outcome in outcomes if isinstance(outcome, Passed)]
    lead = outcomes[0]
    if not isinstance(lead, Passed):
        return {"withdrawn": lead.outcome}
    best = min(passed, key=lambda outcome: outcome.standing)
    baselines = reports[0].baselines
    return {
        "kind": lead.timing.kind,
        "instant_us": lead.timing.median_us,
        "searched_us": best.timing.median_us,
        "speed": best.timing.median_us / lead.timing.median_us,
        "search_ms": round(ended_ms[-1], 1),
        "repaid": {"instant": _repaid(instant_ms, lead, baselines)} | _repaid_after(reports, ended_ms),
    }


def _repaid_after(reports: Sequence[EvaluationReport], ended_ms: Sequence[float]) -> dict[str, dict[str, int | None]]:
    """Of the best kernel that the search had after each of some times, and at its end; without those at which it had none."""
    found = {}
    for name, limit_ms in {**{f"{ms / 1e3:g} s": ms for ms in STOPS_MS}, "full": ended_ms[-1]}.items():
        reached = [(report, ms) for report, ms in zip(reports, ended_ms, strict=True) if ms <= limit_ms]
        graded = [evaluation.outcome for report, _ in reached for evaluation in report.evaluations]
        passed = [outcome for outcome in graded if isinstance(outcome, Passed)]
        if passed:
            best = min(passed, key=lambda outcome: outcome.standing)
            found[name] = _repaid(reached[-1][1], best, reports[0].baselines)
    return found


def _repaid(cost_ms: float, passed: Passed, baselines: Baselines) -> dict[str, int | None]:
    """Products after which a kernel has repaid its cost, conversion included, against each of the two routines."""

    def products(routine_us: float, preparation_ms: float) -> int | None:
        gain_us = routine_us - passed.timing.median_us
        return (
            None if gain_us <= 0 else max(0, int((cost_ms + passed.conversion_ms - preparation_ms) * 1e3 / gain_us) + 1)
        )

    best, default = baselines.best_routine(), baselines.default_routine()
    return {
        "best": products(best.timing.median_us, best.preparation_ms),
        "default": products(default.timing.median_us, default.preparation_ms),
    }


def _row(evaluator: Evaluator, name: str, nnz: float, pattern: Pattern, num_runs: int, search: int) -> dict[str, Any]:
    runs = [evaluator.run(pattern) for _ in range(num_runs)]
    stages = {stage: [run["stages_ms"].get(stage, 0.0) for run in runs] for stage in runs[0]["stages_ms"]}
    row = {
        "name": name,
        "class_nnz": nnz,
        "num_rows": pattern.num_rows,
        "nnz": pattern.nnz,
        "family": runs[0]["family"],
        "tries": runs[0]["tries"],
        "first_ms": round(runs[0]["total_ms"], 2),
        "again_ms": round(statistics.median([run["total_ms"] for run in runs[1:]] or [runs[0]["total_ms"]]), 2),
        "first_stages_ms": {stage: round(ms[0], 2) for stage, ms in stages.items()},
        "again_stages_ms": {stage: round(statistics.median(ms[1:] or ms), 2) for stage, ms in stages.items()},
    }
    return row | ({"worth": evaluator.searched(pattern, search, runs[0]["total_ms"])} if search else {})


def _class(nnz: float, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`first`: of each matrix, whether its text was compiled before, as a usual one, or not; `again`: it was."""
    stages = rows[0]["first_stages_ms"]
    return {
        "nnz": nnz,
        "target_ms": TARGET_MS.get(nnz),
        "matrices": len(rows),
        "first_ms": statistics.median(row["first_ms"] for row in rows),
        "again_ms": statistics.median(row["again_ms"] for row in rows),
        "first_stages_ms": {
            name: statistics.median(row["first_stages_ms"].get(name, 0) for row in rows) for name in stages
        },
        "worst_first_ms": max(row["first_ms"] for row in rows),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nnz", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument(
        "--runs", type=int, default=5, help="of each matrix; the first compiles, the others find the text"
    )
    parser.add_argument("--search", type=int, default=0, help="candidates of the search behind; 0: none")
    parser.add_argument("--seconds", type=float, default=3600, help="no matrix is begun after this time")
    parser.add_argument("--unprepared", action="store_true", help="usual programs are not compiled before")
    parser.add_argument("--type", choices=("float32", "float64"), default="float32")
    parser.add_argument("--cost-model", type=Path, default=ROOT / "models" / "cost-h200")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
