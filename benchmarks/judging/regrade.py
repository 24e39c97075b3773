"""Grades the winners of committed suites again: how many the judge of now would not pass, and whose time has changed.

    python -m benchmarks.judging.regrade --pack FILE [--suites suite-spmv-float32 ...] [--seconds 500]

Each winner is written anew from its family and parameters, checked, timed briefly and in a final of its own, on the
matrix it won on. Writes benchmarks/results/<device>/regraded.json after every matrix.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.judging.judge import final_of
from benchmarks.matrices.suites import Source, core_sources, generated_sources, held_out_sources
from benchmarks.measure.measured import ADDED_LATER
from benchmarks.origin import ROOT, command, device_folder, source_commit
from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.race import Race
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FAMILIES
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Candidate, FromFamily, MeasuredTiming, Passed, Workload

COMPILE_WAIT_S = 600
SAME_TIME = 0.05
"""A final time that differs by less is no change: placements are chosen anew."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Winner:
    """The best kernel of one matrix of a suite, as its result file names it."""

    suite: str
    matrix: str
    workload: Workload
    """Its pattern is filled in when the matrix is read."""
    candidate: Candidate
    us: float


def winners(suite: Path) -> list[Winner]:
    """Of one result file; a winner that the families do not offer any more is left out."""
    result = json.loads(suite.read_text(encoding="utf-8"))
    found = [_winner(suite.stem, result, row) for row in result["rows"] if (row.get("families") or {}).get("best")]
    return [winner for winner in found if winner is not None]


def _winner(suite: str, result: Row, row: Row) -> Winner | None:
    best = row["families"]["best"]
    family = FAMILIES.get(best["family"])
    if family is None:
        return None
    added = {name: value for name, value in ADDED_LATER.items() if name in family.parameters}
    parameters = added | best["parameters"]
    try:
        program = family.render(parameters, result["element_type"], result["num_dense_cols"])
    except SparsesmithError:
        return None
    workload = Workload(
        pattern="0" * 64,
        operation=result["operation"],
        element_type=result["element_type"],
        num_dense_cols=result["num_dense_cols"],
    )
    origin = FromFamily(family=family.name, parameters=parameters)
    return Winner(
        suite, row["name"], workload, Candidate(candidate_id="winner", program=program, origin=origin), best["us"]
    )


def regraded(
    chosen: Sequence[Winner], sources: dict[str, Source], process: DeviceProcess, compiler: Compiler, seconds: float
) -> Iterator[Row]:
    """One row a winner, matrix by matrix; none is begun after so many seconds."""
    end = time.monotonic() + seconds
    with CompilationsAhead(compiler, process.description().architecture, COMPILE_WAIT_S) as ahead:
        for winner in chosen:
            ahead.start([parse_candidate(winner.candidate, winner.workload)])
        read: tuple[str, Pattern] | None = None
        for winner in sorted(chosen, key=lambda each: each.matrix):
            if time.monotonic() > end:
                return
            if read is None or read[0] != winner.matrix:
                read = winner.matrix, sources[winner.matrix].load().pattern
            yield _row(winner, read[1], process, ahead)


def _row(winner: Winner, pattern: Pattern, process: DeviceProcess, ahead: CompilationsAhead) -> Row:
    workload = winner.workload.model_copy(update={"pattern": pattern.digest})
    workbench = process.open(Problem(workload, pattern))
    outcome = evaluate_kernel(parse_candidate(winner.candidate, workload), ahead.result, workbench, Race(1e12))
    row: Row = {"suite": winner.suite, "matrix": winner.matrix, "family": winner.candidate.program[:60].split("\n")[0]}
    row |= {"before_us": winner.us, "outcome": outcome.outcome, "message": getattr(outcome, "message", "")[:300]}
    if isinstance(outcome, Passed) and isinstance(outcome.timing, MeasuredTiming):
        row |= {"brief_us": outcome.timing.median_us, **final_of("winner", workbench)}
    return row


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """How many are not passed any more, and how times have moved."""
    ratios = [row["final_us"] / row["before_us"] for row in rows if "final_us" in row]
    return {
        "winners": len(rows),
        "not_passed": [f"{row['suite']}/{row['matrix']}" for row in rows if row["outcome"] != "passed"],
        "time_changed": sum(abs(ratio - 1) > SAME_TIME for ratio in ratios),
        "geometric_mean": round(geometric_mean(ratios), 4) if ratios else None,
    }


def main() -> None:
    options = _options()
    folder = ROOT / "benchmarks" / "results" / "h200"
    chosen = [winner for name in options.suites for winner in winners(folder / f"{name}.json")]
    known: list[Source] = [*core_sources(options.pack), *held_out_sources(options.pack), *generated_sources()]
    sources = {source.name: source for source in known}
    chosen = [winner for winner in chosen if winner.matrix in sources]
    settings, rows = EvaluatorSettings(), []
    with (
        closing(device_process(settings)) as process,
        Compiler(max(1, (os.cpu_count() or 1) - 1), timeout_s=settings.compile_limit_s) as compiler,
    ):
        device = process.start()
        out = options.out / device_folder(device)
        out.mkdir(parents=True, exist_ok=True)
        for row in regraded(chosen, sources, process, compiler, options.seconds):
            rows.append(row)
            if row["outcome"] != "passed":
                print(json.dumps(row), flush=True)
            if len(rows) % 20 == 0 or len(rows) == len(chosen):
                result = {
                    "kind": "regraded",
                    "device": device.model_dump(),
                    "commit": options.commit or source_commit(),
                    "date": datetime.now(UTC).isoformat(timespec="seconds"),
                    "python": platform.python_version(),
                    "command": command("benchmarks.judging.regrade"),
                    "suites": options.suites,
                    "asked": len(chosen),
                    "summary": summary(rows),
                    "rows": rows,
                }
                (out / "regraded.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary(rows)))


def _options() -> argparse.Namespace:
    suites = sorted(path.stem for path in (ROOT / "benchmarks" / "results" / "h200").glob("*s*-spm*.json"))
    named = [name for name in suites if name.startswith(("suite-", "held-out-"))]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, required=True, help="pack of development patterns")
    parser.add_argument("--suites", nargs="+", choices=named, default=named)
    parser.add_argument("--seconds", type=float, default=500, help="no winner is begun after this time")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
