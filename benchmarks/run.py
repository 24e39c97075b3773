"""Measures library routines, kernel families and a policy's samples side by side, through the evaluator itself.

    python -m benchmarks.run                                  the examples and the generated matrices
    python -m benchmarks.run --pack CORE.pack [--samples SAMPLES.jsonl]     the core development matrices too

One result file a workload kind under benchmarks/results/<device>/, written anew after every matrix, so that a run that is
cut off leaves what it had. `python -m benchmarks.report` turns the files into REPORT.md and the README's table.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.suites import ROOT, Matrix, core_matrices, example_matrices, generated_matrices
from benchmarks.sweep import Plan, parse_plan
from services.evaluator.compilation import Compiler
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.domain.families import propose
from sparsesmith.domain.pattern import Pattern
from sparsesmith.errors import SparsesmithError
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import (
    Candidate,
    DeviceDescription,
    Evaluation,
    FromFamily,
    MeasuredTiming,
    Passed,
    Timing,
    UserWritten,
    Workload,
)

PLANS = ("spmv:float32:1:48", "spmv:float64:1:32", "spmm:float32:32:24")
JOB_BUDGET_S = 120
SAMPLE_PREFIX = "policy"


@dataclass(frozen=True)
class OnePattern:
    """What the grader takes a pattern from, without a Redis."""

    pattern: Pattern

    def get(self, digest: str) -> Pattern:
        assert digest == self.pattern.digest
        return self.pattern


Samples = dict[tuple[str, str, str, int], list[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, help="pack of development patterns (benchmarks.matrix_pack)")
    parser.add_argument("--samples", type=Path, help="a policy's programs (benchmarks.sample_policy)")
    parser.add_argument("--plan", nargs="+", default=PLANS, help="operation:type:columns:programs")
    parser.add_argument("--seconds", type=float, default=3600, help="no new workload is begun after this time")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--no-generated", action="store_true")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    settings, samples = EvaluatorSettings(), _read_samples(options.samples)
    num_compilers = max(1, (os.cpu_count() or 1) - 1)
    with (
        closing(device_process(settings)) as process,
        Compiler(num_compilers, timeout_s=settings.compile_limit_s) as compiler,
    ):
        device = process.start()
        grader = Grader(process, compiler)
        for plan in map(parse_plan, options.plan):
            rows: list[dict[str, Any]] = []
            for matrix in _matrices(options, plan):
                if time.monotonic() > deadline:
                    print(f"time is up at {matrix.name}", flush=True)
                    break
                programs = samples.get((matrix.name, plan.operation, plan.element_type, plan.num_dense_cols), [])
                try:
                    rows.append(measure(grader, matrix, plan, programs))
                except SparsesmithError as error:
                    rows.append({"name": matrix.name, "failed": error.message})
                print(_line(rows[-1]), flush=True)
                _write(options.out, plan, device, rows, options.commit)


def measure(grader: Grader, matrix: Matrix, plan: Plan, programs: list[str]) -> dict[str, Any]:
    """One row: every library routine, the best family program, the samples' outcomes."""
    workload = Workload(
        pattern=matrix.pattern.digest,
        operation=plan.operation,
        element_type=plan.element_type,
        num_dense_cols=plan.num_dense_cols,
    )
    instances = propose(matrix.pattern, plan.operation, plan.element_type, plan.num_dense_cols, limit=plan.limit)
    families = [
        Candidate(
            candidate_id=f"family-{number}",
            program=instance.program,
            origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
        )
        for number, instance in enumerate(instances)
    ]
    sampled = [
        Candidate(candidate_id=f"{SAMPLE_PREFIX}-{number}", program=program, origin=UserWritten())
        for number, program in enumerate(programs)
    ]
    job = EvaluationJob(
        job_id=f"bench-{matrix.name}", workload=workload, candidates=(*families, *sampled), budget_s=JOB_BUDGET_S
    )
    began = time.monotonic()
    report = grader.grade(job, OnePattern(matrix.pattern))  # type: ignore[arg-type]
    return _row(matrix, report, time.monotonic() - began)


def _row(matrix: Matrix, report: EvaluationReport, seconds: float) -> dict[str, Any]:
    by_kind = {"family": list[Evaluation](), SAMPLE_PREFIX: list[Evaluation]()}
    for evaluation in report.evaluations:
        by_kind[evaluation.candidate.candidate_id.rsplit("-", 1)[0]].append(evaluation)
    best = report.baselines.best_routine()
    return {
        "name": matrix.name,
        "class": matrix.matrix_class,
        "split": matrix.split,
        "num_rows": matrix.pattern.num_rows,
        "num_cols": matrix.pattern.num_cols,
        "nnz": matrix.pattern.nnz,
        "csr_bytes": report.csr_bytes,
        "default": _times(report.baselines.default_routine().timing),
        "best_baseline": {"routine": best.routine, **_times(best.timing)},
        "routines_us": {each.routine: each.timing.median_us for each in report.baselines.routines},
        "families": _summary(by_kind["family"]),
        "policy": _summary(by_kind[SAMPLE_PREFIX]),
        "grading_s": report.seconds,
        "seconds": seconds,
    }


def _summary(evaluations: list[Evaluation]) -> dict[str, Any]:
    """Outcomes in order, and the fastest that passed."""
    passed = [each for each in evaluations if isinstance(each.outcome, Passed)]
    if not passed:
        return {"outcomes": [each.outcome.outcome for each in evaluations], "best": None}
    best = min(passed, key=lambda each: each.outcome.timing.median_us)  # type: ignore[union-attr]
    assert isinstance(best.outcome, Passed)
    origin = best.candidate.origin
    written = {"family": origin.family, "parameters": origin.parameters} if isinstance(origin, FromFamily) else {}
    return {
        "outcomes": [each.outcome.outcome for each in evaluations],
        "best": {
            **written,
            **_times(best.outcome.timing),
            "storage_format": best.outcome.storage_format,
            "format_bytes": best.outcome.format_bytes,
            "conversion_ms": best.outcome.conversion_ms,
        },
    }


def _times(timing: Timing) -> dict[str, float | bool | str]:
    match timing:
        case MeasuredTiming():
            return {"us": timing.median_us, "low_us": timing.low_us, "high_us": timing.high_us,
                    "cold_us": timing.cold_us, "stable": timing.stable}  # fmt: skip
        case _:
            return {"us": timing.median_us, "traffic_model": timing.traffic_model}


def _line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['name']:44s} FAILED {row['failed'][:200]}"
    best, baseline = row["families"]["best"], row["best_baseline"]
    ours = f"{best['us']:9.2f} {best['family']:22s} x{baseline['us'] / best['us']:.2f}" if best else "none passed"
    policy = row["policy"]["best"]
    passed = sum(outcome == "passed" for outcome in row["policy"]["outcomes"])
    sampled = (
        f" policy {passed}/{len(row['policy']['outcomes'])} x{baseline['us'] / policy['us']:.2f}" if policy else ""
    )
    return f"{row['name']:44s} {row['nnz']:9d} {baseline['us']:9.2f} {baseline['routine']:22s} {ours}{sampled} {row['seconds']:.1f} s"


def _matrices(options: argparse.Namespace, plan: Plan) -> Iterator[Matrix]:
    if options.pack is not None:
        yield from core_matrices(options.pack)
    else:
        yield from example_matrices()
    if not options.no_generated and plan == parse_plan(options.plan[0]):
        yield from generated_matrices()


def _read_samples(path: Path | None) -> Samples:
    lines: Iterable[str] = path.read_text(encoding="utf-8").splitlines() if path else ()
    parsed = map(json.loads, lines)
    return {(e["pattern"], e["operation"], e["element_type"], e["num_dense_cols"]): e["programs"] for e in parsed}


def _write(out: Path, plan: Plan, device: DeviceDescription, rows: list[dict[str, Any]], commit: str) -> None:
    folder = out / ("h200" if "H200" in device.name else device.name.lower().replace(" ", "-"))
    folder.mkdir(parents=True, exist_ok=True)
    columns = f"-{plan.num_dense_cols}" if plan.operation == "spmm" else ""
    result = {
        "kind": "suite",
        "operation": plan.operation,
        "element_type": plan.element_type,
        "num_dense_cols": plan.num_dense_cols,
        "proposals": plan.limit,
        "device": device.model_dump(),
        "commit": commit or _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "command": " ".join(
            ["python -m benchmarks.run", *(Path(word).name if "/" in word else word for word in sys.argv[1:])]
        ),
        "rows": rows,
    }
    name = f"suite-{plan.operation}{columns}-{plan.element_type}.json"
    (folder / name).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _commit() -> str:
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False)
    return run.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
