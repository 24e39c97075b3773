"""Candidates graded a second end to end: jobs through a real Redis to one evaluator, reports back.

    python -m benchmarks.measure.throughput [--pack FILE] [--plan spmv:float32:1:40] [--max-nnz 1e6] [--matrices 24]

What a search pays and a sweep does not is in it: the queue, opening each workload, the library's routines, formats, inputs,
the finals of every job. The programs are the cost model's first for each matrix, written before the clock starts; each
matrix comes with one job. The evaluator has graded the first matrix before, which is not counted.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.matrices.suites import Matrix, core_sources, example_sources
from benchmarks.origin import ROOT, command, device_folder, source_commit
from benchmarks.tuning.sweep import Plan, parse_plan
from sparsesmith.runtime import processes
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import connect
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.queue import EvaluationQueue
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.grid import grid_of
from sparsesmith.tuning.models import CostModels
from sparsesmith.tuning.tuner import Tuner, TuningLimits
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, DeviceDescription, FromFamily, Workload

START_S = 240
JOB_S = 600
STOP_S = 30


def main() -> None:
    options = _options()
    matrices = some_matrices(options)
    plans = [parse_plan(text) for text in options.plan]
    cost = CostModels(options.cost_model).expected()
    rows: list[dict[str, Any]] = []
    with evaluators(1) as (patterns, queue):
        for matrix in matrices:
            patterns.put(matrix.pattern)
        device = graded([first_programs(matrices[0], plans[0], cost)], queue, START_S)[0].device
        for plan in plans:
            jobs = [first_programs(matrix, plan, cost) for matrix in matrices[1:]]
            began = time.monotonic()
            reports = graded(jobs, queue, JOB_S)
            rows.append(_row(plan, reports, time.monotonic() - began))
            print(rows[-1], flush=True)
            write("throughput", rows, device, matrices, options)


def write(
    kind: str,
    rows: Sequence[dict[str, Any]],
    device: DeviceDescription,
    matrices: Sequence[Matrix],
    options: argparse.Namespace,
    **more: object,
) -> None:
    """The result file of a benchmark in this folder, by its module's name, after each row: a run that is cut off leaves
    what it had. `more`: what the options were."""
    result = {
        "kind": kind,
        "device": device.model_dump(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpu_cores": os.cpu_count(),
        "command": command(f"benchmarks.measure.{kind}"),
        **more,
        "matrices": [matrix.name for matrix in matrices],
        "rows": rows,
    }
    folder = options.out / device_folder(device)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{kind.replace('_', '-')}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


@contextmanager
def evaluators(count: int, settings: Mapping[str, str] | None = None) -> Iterator[tuple[PatternStore, EvaluationQueue]]:
    """A Valkey and evaluators of its own, each on a GPU of its own where there are any; all ended afterwards.

    `settings`: variables of the evaluators beside these.
    """
    with tempfile.TemporaryDirectory() as state:
        valkey = EmbeddedValkey(Path(state) / "valkey")
        valkey.start()
        connection = connect(valkey.address)
        logs = [Path(state) / f"evaluator-{number}.log" for number in range(count)]
        environment = {
            **os.environ,
            "SPARSESMITH_REDIS_URL": valkey.address,
            "SPARSESMITH_EVALUATOR_GPU_CLAIMS_DIR": state,
            **(settings or {}),
        }
        started = [processes.start([sys.executable, "-m", "services.evaluator"], log, environment) for log in logs]
        try:
            yield PatternStore(connection), EvaluationQueue(connection)
        finally:
            for evaluator, log in zip(started, logs, strict=True):
                processes.stop(evaluator, STOP_S)
                print(log.read_text(encoding="utf-8")[-2000:], file=sys.stderr)
            valkey.stop()


def graded(jobs: Sequence[EvaluationJob], queue: EvaluationQueue, limit_s: float) -> list[EvaluationReport]:
    """Reports of jobs that are queued at once. Raises TimeoutError."""
    for job in jobs:
        queue.submit(job)
    end, reports = time.monotonic() + limit_s, []
    for job in jobs:
        report = queue.wait(job.job_id, end - time.monotonic())
        if report is None:
            raise TimeoutError(f"job {job.job_id} is not graded after {limit_s} s")
        reports.append(report)
    return reports


def first_programs(matrix: Matrix, plan: Plan, cost: CostModel) -> EvaluationJob:
    """The cost model's first programs for a matrix."""
    grid = grid_of(matrix.pattern, plan.operation, plan.element_type, plan.num_dense_cols)
    instances = Tuner(grid, cost, TuningLimits(candidates=plan.limit)).next_batch(plan.limit)
    return EvaluationJob(
        job_id=f"{plan_name(plan)}-{plan.limit}-{matrix.name}",
        workload=Workload(
            pattern=matrix.pattern.digest,
            operation=plan.operation,
            element_type=plan.element_type,
            num_dense_cols=plan.num_dense_cols,
        ),
        candidates=tuple(
            Candidate(
                candidate_id=f"program-{number}",
                program=instance.program,
                origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
            )
            for number, instance in enumerate(instances)
        ),
    )


def _row(plan: Plan, reports: Sequence[EvaluationReport], seconds: float) -> dict[str, Any]:
    evaluations = [evaluation for report in reports for evaluation in report.evaluations]
    return {
        "workload": plan_name(plan),
        "jobs": len(reports),
        "candidates_a_job": plan.limit,
        "candidates": len(evaluations),
        "outcomes": dict(Counter(evaluation.outcome.outcome for evaluation in evaluations)),
        "seconds": round(seconds, 2),
        "seconds_in_batches": round(sum(report.seconds for report in reports), 2),
        "a_second": round(len(evaluations) / seconds, 1),
    }


def plan_name(plan: Plan) -> str:
    columns = f"-{plan.num_dense_cols}" if plan.operation == "spmm" else ""
    return f"{plan.operation}{columns}-{plan.element_type}"


def first_jobs(options: argparse.Namespace) -> tuple[list[Matrix], list[EvaluationJob]]:
    """The matrices, and of each the first programs of the one plan that was asked for."""
    matrices, plan = some_matrices(options), parse_plan(options.plan)
    cost = CostModels(options.cost_model).expected()
    return matrices, [first_programs(matrix, plan, cost) for matrix in matrices]


def some_matrices(options: argparse.Namespace) -> list[Matrix]:
    """Spread evenly over those that are small enough."""
    sources = example_sources() if options.pack is None else core_sources(options.pack)
    matrices = [matrix for source in sources if (matrix := source.load()).pattern.nnz <= options.max_nnz]
    step = max(1, len(matrices) // options.matrices)
    return matrices[::step]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", nargs="+", default=["spmv:float32:1:40"], help="operation:type:columns:candidates")
    add_options(parser)
    return parser.parse_args()


def add_options(parser: argparse.ArgumentParser) -> None:
    """What every benchmark of jobs through a queue is told: its matrices, whose programs, where the result goes."""
    parser.add_argument("--pack", type=Path, help="pack of development patterns; default: the examples")
    parser.add_argument("--matrices", type=int, default=24, help="about so many jobs a plan")
    parser.add_argument("--max-nnz", type=float, default=1e6)
    parser.add_argument("--cost-model", type=Path, default=ROOT / "models" / "cost-h200")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")


if __name__ == "__main__":
    main()
