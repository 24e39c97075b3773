"""One GPU with one evaluator and with several that take turns: candidates a second, how busy it is, and the times.

    python -m benchmarks.measure.sharing --pack FILE [--sharers 1 2 3] [--plan spmv:float32:1:16] [--matrices 24]

The same jobs for each number of sharers, through a real queue, as often as `--rounds` says. As while a policy learns, every
program is a text that no evaluator has compiled before (a last line tells the rounds apart), and every job times the
library's routines. `gpu_busy` is what NVML tells (`services.trainer.course.gpu_use`), the mean of all looks.

`finals_over_alone` holds programs that were timed at length against the same programs of one evaluator alone: per matrix the
geometric mean over its programs and rounds, then over matrices with a 95 % interval by bootstrap. `alone_again` is the same
of one evaluator's second round over its first: what times differ by without sharers. `stages_s`: seconds of all jobs by
stage, `turn` what calls waited for the GPU.
"""

import argparse
import math
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.matrices.suites import Matrix
from benchmarks.measure.several_gpus import counts
from benchmarks.measure.throughput import (
    JOB_S,
    START_S,
    add_options,
    evaluators,
    first_jobs,
    graded,
    write,
)
from benchmarks.report.intervals import geometric_interval
from services.trainer.course.gpu_use import GpuUse
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Passed

LOOK_S = 0.1

Finals = Mapping[str, Mapping[str, float]]
"""Times of a round's programs in the finals, us, by matrix and candidate_id."""


@dataclass(frozen=True)
class Round:
    """The jobs, once."""

    reports: Sequence[EvaluationReport]
    seconds: float
    gpu_busy: float | None
    """None where NVML does not tell."""


def main() -> None:
    options = _options()
    matrices, jobs = first_jobs(options)
    rows: list[dict[str, Any]] = []
    alone: list[Finals] = []
    for sharers in options.sharers:
        rounds = _rounds(sharers, matrices, jobs, options.rounds)
        found = [finals(each.reports) for each in rounds]
        row = _row(sharers, rounds)
        row["over_one"] = round(row["a_second"] / rows[0]["a_second"], 3) if rows else 1.0
        if alone:
            row["finals_over_alone"] = agreement(found, alone)
        else:
            alone = found
            row |= {"alone_again": agreement(found[1:], found[:1])} if len(found) > 1 else {}
        rows.append(row)
        print(row, flush=True)
        device = rounds[0].reports[0].device
        write("sharing", rows, device, matrices, options, plan=options.plan, rounds=options.rounds)


def _rounds(sharers: int, matrices: Sequence[Matrix], jobs: Sequence[EvaluationJob], number: int) -> list[Round]:
    with evaluators(sharers, environment_of(sharers)) as (patterns, queue):
        for matrix in matrices:
            patterns.put(matrix.pattern)
        # As many at once as there are evaluators, twice: each has begun when these are over.
        graded([anew(jobs[0], f"warm-{sharers}-{each}") for each in range(2 * sharers)], queue, START_S)
        rounds = []
        for each in range(number):
            with _gpu_use() as use:
                began = time.monotonic()
                reports = graded([anew(job, f"{sharers}-{each}") for job in jobs], queue, JOB_S)
                seconds = time.monotonic() - began
            rounds.append(Round(reports, seconds, *use))
        return rounds


def environment_of(sharers: int) -> dict[str, str]:
    """Of evaluators that all take the first GPU that this process may see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or "0"
    return {
        "CUDA_VISIBLE_DEVICES": visible.split(",")[0],
        "SPARSESMITH_EVALUATOR_SHARERS": str(sharers),
        "SPARSESMITH_EVALUATOR_CACHED_BASELINES": "1",
    }


def anew(job: EvaluationJob, name: str) -> EvaluationJob:
    """The job under another name, its programs as texts that nobody has compiled."""
    candidates = (
        each.model_copy(update={"program": f"{each.program.rstrip()}\n// {name}\n"}) for each in job.candidates
    )
    return job.model_copy(update={"job_id": f"{name}-{job.job_id}", "candidates": tuple(candidates)})


@contextmanager
def _gpu_use() -> Iterator[list[float | None]]:
    """Meanwhile; one value once it is over."""
    use, over = GpuUse(), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            use.look()

    looking, told = threading.Thread(target=look), list[float | None]()
    looking.start()
    try:
        yield told
    finally:
        over.set()
        looking.join()
        told.append(next(iter(use.shares()), None))


def finals(reports: Sequence[EvaluationReport]) -> Finals:
    """By pattern; those of which no program passed are left out."""
    return {
        str(report.job_id.split("-", 2)[2]): times
        for report in reports
        if (
            times := {
                each.candidate.candidate_id: each.outcome.timing.median_us
                for each in report.evaluations
                if isinstance(each.outcome, Passed) and counts(each.outcome)
            }
        )
    }


def agreement(rounds: Sequence[Finals], alone: Sequence[Finals]) -> dict[str, Any]:
    """Of what both have: times over those alone."""
    theirs, ours = _logarithms(alone), _logarithms(rounds)
    by_matrix: dict[str, list[float]] = defaultdict(list)
    for matrix, program in sorted(ours.keys() & theirs.keys()):
        by_matrix[matrix].append(ours[matrix, program] - theirs[matrix, program])
    ratios = [math.exp(math.fsum(each) / len(each)) for each in by_matrix.values()]
    if not ratios:
        return {"matrices": 0}
    worst = max(ratios, key=lambda ratio: abs(math.log(ratio)))
    programs = sum(map(len, by_matrix.values()))
    return {
        **geometric_interval(ratios).rounded(),
        "worst": round(worst, 4),
        "matrices": len(ratios),
        "programs": programs,
    }


def _logarithms(rounds: Sequence[Finals]) -> dict[tuple[str, str], float]:
    """Mean over the rounds in which a program was in the finals, by matrix and program."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in rounds:
        for matrix, programs in each.items():
            for program, us in programs.items():
                times[matrix, program].append(math.log(us))
    return {key: math.fsum(found) / len(found) for key, found in times.items()}


def _row(sharers: int, rounds: Sequence[Round]) -> dict[str, Any]:
    reports = [report for each in rounds for report in each.reports]
    candidates = sum(len(report.evaluations) for report in reports)
    passed = sum(isinstance(each.outcome, Passed) for report in reports for each in report.evaluations)
    seconds = math.fsum(each.seconds for each in rounds)
    busy = [each.gpu_busy for each in rounds if each.gpu_busy is not None]
    stages: Counter[str] = Counter()
    for report in reports:
        stages.update(report.stages_ms)
    return {
        "sharers": sharers,
        "jobs": len(reports),
        "candidates": candidates,
        "passed": passed,
        "seconds": round(seconds, 2),
        "a_second": round(candidates / seconds, 2),
        "gpu_busy": round(math.fsum(busy) / len(busy), 3) if busy else None,
        "stages_s": {stage: round(ms / 1e3, 2) for stage, ms in sorted(stages.items())},
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sharers", type=int, nargs="+", default=[1, 2, 3], help="the first is what others are held against"
    )
    parser.add_argument("--plan", default="spmv:float32:1:16", help="operation:type:columns:candidates")
    parser.add_argument("--rounds", type=int, default=2, help="of all jobs, for each number of sharers")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
