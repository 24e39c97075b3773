"""Candidates a second of one, two and more evaluators of one host, each on a GPU of its own, and whether their times agree.

    python -m benchmarks.measure.several_gpus --pack FILE [--evaluators 1 2] [--plan spmv:float32:1:40] [--max-nnz 1e6]

The same jobs for each number of evaluators, through a real queue. `finals_over_alone`: the time in the finals of each
matrix's fastest program over that of one evaluator alone, geometric mean and worst; what the GPUs of one host take from
each other (host cores, memory, clocks) shows there. `seconds_in_jobs` is the evaluators' time in grading: more of it than
one alone takes is what they take from each other, too; `seconds_without_work` is the rest of their time: the queue, and its
end, where one has nothing left. The first time that a program is compiled is not counted: the jobs are
run once before, on as many evaluators as there will be.
"""

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.matrices.suites import Matrix
from benchmarks.measure.throughput import (
    JOB_S,
    START_S,
    add_options,
    evaluators,
    first_jobs,
    graded,
    write,
)
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import MeasuredTiming, Passed

Finals = Mapping[str, float]
"""Time of a job's fastest program, us, by the job's name without the number of evaluators."""


def main() -> None:
    options = _options()
    matrices, jobs = first_jobs(options)
    rows: list[dict[str, Any]] = []
    alone: Finals | None = None
    for count in options.evaluators:
        reports, seconds, device = _run(count, matrices, jobs)
        fastest = finals(reports)
        row = _row(count, reports, seconds) | _agreement(fastest, alone)
        alone = fastest if alone is None else alone
        rows.append(row | {"over_one": round(row["a_second"] / rows[0]["a_second"], 3) if rows else 1.0})
        print(rows[-1], flush=True)
        write("several_gpus", rows, device, matrices, options, plan=options.plan)


def _run(
    count: int, matrices: Sequence[Matrix], jobs: Sequence[EvaluationJob]
) -> tuple[list[EvaluationReport], float, Any]:
    """Reports, seconds and device of the second of two rounds."""
    with evaluators(count) as (patterns, queue):
        for matrix in matrices:
            patterns.put(matrix.pattern)
        # As many at once as there are evaluators: each has begun when the first round is over.
        graded([_renamed(jobs[0], f"warm-{count}-{number}") for number in range(2 * count)], queue, START_S)
        graded([_renamed(job, f"first-{count}-{job.job_id}") for job in jobs], queue, JOB_S)
        began = time.monotonic()
        reports = graded([_renamed(job, f"{count}-{job.job_id}") for job in jobs], queue, JOB_S)
        return reports, time.monotonic() - began, reports[0].device


def _renamed(job: EvaluationJob, name: str) -> EvaluationJob:
    return job.model_copy(update={"job_id": name})


def finals(reports: Sequence[EvaluationReport]) -> Finals:
    """By job; those of which no program passed are left out."""
    found = {}
    for report in reports:
        times = [
            each.outcome.timing.median_us
            for each in report.evaluations
            if isinstance(each.outcome, Passed) and counts(each.outcome)
        ]
        if times:
            found[report.job_id.split("-", 1)[1]] = min(times)
    return found


def counts(outcome: Passed) -> bool:
    """Estimates are all of one kind."""
    return not isinstance(outcome.timing, MeasuredTiming) or outcome.timing.is_final


def _agreement(fastest: Finals, alone: Finals | None) -> dict[str, Any]:
    """Nothing for the first, which is what others are held against."""
    if alone is None:
        return {}
    ratios = [fastest[name] / alone[name] for name in sorted(fastest.keys() & alone.keys())]
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    worst = max(ratios, key=lambda ratio: abs(math.log(ratio)))
    return {"finals_over_alone": round(mean, 4), "finals_worst": round(worst, 4), "finals": len(ratios)}


def _row(count: int, reports: Sequence[EvaluationReport], seconds: float) -> dict[str, Any]:
    candidates = sum(len(report.evaluations) for report in reports)
    in_jobs = [report.seconds for report in reports]
    return {
        "evaluators": count,
        "jobs": len(reports),
        "candidates": candidates,
        "seconds": round(seconds, 2),
        "a_second": round(candidates / seconds, 2),
        "seconds_in_jobs": round(math.fsum(in_jobs), 2),
        "longest_job_s": round(max(in_jobs), 2),
        "seconds_without_work": round(count * seconds - math.fsum(in_jobs), 2),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--evaluators", type=int, nargs="+", default=[1, 2], help="the first is what others are held against"
    )
    parser.add_argument("--plan", default="spmv:float32:1:40", help="operation:type:columns:candidates")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
