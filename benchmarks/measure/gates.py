"""What stands between a GPU and a winner: its ECC counters, and compute-sanitizer over the fastest program of each matrix.

    python -m benchmarks.measure.gates [--pack FILE] [--matrices 12] [--max-nnz 2e5] [--plan spmv:float32:1:12]
        [--limit 60]

ECC is read as the evaluator reads it before and after each job: the seconds of a reading, the counts at the beginning and
at the end. Then the cost model's first programs for each matrix are graded with the evaluator's own gate behind them, whose
limit is long, so that what the tools take is told and not that they were late; `clean_within_default_limit` counts those that the default
limit would have let end. A matrix whose programs are all slower than the library has no winner to look at.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from benchmarks.matrices.suites import Matrix
from benchmarks.measure.throughput import add_options, first_programs, some_matrices
from benchmarks.origin import command, device_folder, source_commit
from benchmarks.tuning.sweep import parse_plan
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.cores import num_cores
from services.evaluator.devices import Gpu, chosen_device, device_process
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from services.evaluator.memory_errors import Counts
from services.evaluator.sanitizing.sanitizer import Sanitizer
from services.evaluator.sanitizing.winners import Batch, WinnersGate
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.cuda.sanitizer import COMMAND, find_sanitizer
from sparsesmith.errors import Unavailable
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Crashed, Mismatch, Passed

READINGS = 200
DEFAULT_LIMIT_S = EvaluatorSettings.model_fields["sanitizer_limit_s"].default


class TimedGate(WinnersGate):
    """The evaluator's own, with the seconds of its last look."""

    seconds = 0.0

    def judged(self, report: EvaluationReport, batch: Batch) -> EvaluationReport:
        began = time.perf_counter()
        try:
            return super().judged(report, batch)
        finally:
            self.seconds = time.perf_counter() - began


@dataclass(frozen=True)
class Ecc:
    """Of one GPU."""

    is_counting: bool
    before: Counts
    reading_ms: Sequence[float]


def main() -> None:
    options = _options()
    settings = EvaluatorSettings()
    chosen = chosen_device(settings)
    if not isinstance(chosen, Gpu):
        raise Unavailable("there is no GPU: neither ECC nor the sanitizer can be asked", field="device")
    tool = find_sanitizer()
    from services.evaluator.cuda.ecc import EccCounters  # Needs NVML, which --help does not.

    counters = EccCounters(chosen.visible_device)
    ecc = Ecc(counters.is_counting, counters.read(), [_milliseconds(counters.read) for _ in range(READINGS)])
    with closing(device_process(settings, chosen)) as process, Compiler(max(1, num_cores() - 1)) as compiler:
        device = process.start()
        grader = Grader(process, compiler)
        gate = None if tool is None else TimedGate(Sanitizer(tool, options.limit, chosen.visible_device))
        if gate is not None:
            grader.look_last(gate)
        plan, cost = parse_plan(options.plan), CostModels(options.cost_model).on(device.name)
        rows = []
        for matrix in some_matrices(options):
            held = HeldMatrix(matrix.pattern, None)
            report = grader.grade(first_programs(matrix, plan, cost), held)
            rows.append(row_of(matrix, report, None if gate is None else gate.seconds))
            print(rows[-1], flush=True)
        result = {
            "kind": "gates",
            "device": device.model_dump(),
            "commit": options.commit or source_commit(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command("benchmarks.measure.gates"),
            "ecc": {
                "is_counting": ecc.is_counting,
                "reading_ms": median(ecc.reading_ms),
                "worst_reading_ms": max(ecc.reading_ms),
                "before": ecc.before,
                "after": counters.read(),
            },
            "sanitizer": f"no {COMMAND} here" if tool is None else summary(rows),
            "rows": rows,
        }
        folder = options.out / device_folder(device)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "gates.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _milliseconds(read: Callable[[], Counts]) -> float:
    began = time.perf_counter()
    read()
    return (time.perf_counter() - began) * 1e3


def row_of(matrix: Matrix, report: EvaluationReport, gate_s: float | None) -> dict[str, Any]:
    """What each tool said of the fastest program that it was asked about."""
    outcomes = [each.outcome for each in report.evaluations]
    checked = [each.sanitized for each in outcomes if isinstance(each, Passed) and each.sanitized]
    told = (each.message for each in outcomes if isinstance(each, Crashed | Mismatch))
    refused = [message for message in told if COMMAND in message]
    looked = bool(checked or refused)
    return {
        "name": matrix.name,
        "nnz": matrix.pattern.nnz,
        "programs": len(outcomes),
        "passed": sum(isinstance(each, Passed) for each in outcomes),
        "gate_s": round(gate_s, 3) if gate_s is not None and looked else None,
        "tools": {check.tool: check.state for check in checked[0]} if checked else None,
        "reason": next((check.reason for check in checked[0] if check.reason), None) if checked else None,
        "refused": len(refused),
        "first_refusal": refused[0] if refused else None,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over the matrices whose winner was looked at."""
    looked = [row for row in rows if row["gate_s"] is not None]
    seconds = [row["gate_s"] for row in looked]
    clean = [row for row in looked if row["tools"] and set(row["tools"].values()) == {"clean"}]
    return {
        "matrices": len(rows),
        "winners_looked_at": len(looked),
        "clean_by_every_tool": len(clean),
        "refused": sum(row["refused"] for row in rows),
        "median_s": median(seconds) if seconds else None,
        "worst_s": max(seconds, default=None),
        "clean_within_default_limit": sum(row["gate_s"] <= DEFAULT_LIMIT_S for row in clean),
        "default_limit_s": DEFAULT_LIMIT_S,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", default="spmv:float32:1:12", help="operation:type:columns:candidates")
    parser.add_argument("--limit", type=float, default=60, help="of all tools over one program, seconds")
    add_options(parser)
    parser.set_defaults(matrices=12, max_nnz=2e5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
