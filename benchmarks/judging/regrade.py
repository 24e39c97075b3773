"""Grades the winners of committed suites again: how many the judge of now would not pass, and whose time has changed.

    python -m benchmarks.judging.regrade --pack FILE [--suites suite-spmv-float32 ...] [--seconds 500]

Each winner is written anew from its family and parameters, checked, timed briefly and in a final of its own, on the
matrix it won on, small matrices first. Its time is compared with that of its file where both are of one kind of GPU. Writes
benchmarks/results/<device>/regraded.json as it goes on.
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
from benchmarks.matrices.suites import (
    Source,
    core_sources,
    dlmc_sources,
    generated_sources,
    held_out_sources,
    layer_sources,
    llama_sources,
)
from benchmarks.measure.measured import ADDED_LATER
from benchmarks.origin import RESULTS, command, device_folder, source_commit
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

WON = RESULTS / "h200"
"""Where the suites are whose winners are graded again."""

SUITES = ("suite-", "held-out-", "dlmc-", "layers-")
"""What their files begin with."""

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
    nnz: int
    device: str
    """On which it won, by name."""


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
    candidate = Candidate(candidate_id="winner", program=program, origin=origin)
    return Winner(suite, row["name"], workload, candidate, best["us"], row["nnz"], result["device"]["name"])


def regraded(
    chosen: Sequence[Winner], sources: dict[str, Source], process: DeviceProcess, compiler: Compiler, seconds: float
) -> Iterator[Row]:
    """One row a winner, matrix by matrix, small ones first; none is begun after so many seconds."""
    end = time.monotonic() + seconds
    ordered = sorted(chosen, key=lambda each: (each.nnz, each.matrix))
    with CompilationsAhead(compiler, process.description().architecture, COMPILE_WAIT_S) as ahead:
        for winner in ordered:
            ahead.start([parse_candidate(winner.candidate, winner.workload)])
        read: tuple[str, Pattern] | None = None
        for winner in ordered:
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
    row |= {"outcome": outcome.outcome, "message": getattr(outcome, "message", "")[:300]}
    if process.description().name == winner.device:
        row |= {"before_us": winner.us}
    if isinstance(outcome, Passed) and isinstance(outcome.timing, MeasuredTiming):
        row |= {"brief_us": outcome.timing.median_us, **final_of("winner", workbench)}
    return row


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """How many are not passed any more, and how times have moved."""
    ratios = [row["final_us"] / row["before_us"] for row in rows if "final_us" in row and "before_us" in row]
    return {
        "winners": len(rows),
        "not_passed": [f"{row['suite']}/{row['matrix']}" for row in rows if row["outcome"] != "passed"],
        "compared": len(ratios),
        "time_changed": sum(abs(ratio - 1) > SAME_TIME for ratio in ratios),
        "geometric_mean": round(geometric_mean(ratios), 4) if ratios else None,
    }


def main() -> None:
    options = _options()
    chosen = [winner for name in options.suites for winner in winners(WON / f"{name}.json")]
    sources = {source.name: source for source in _sources(options.pack)}
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


def _sources(packs: Sequence[Path]) -> list[Source]:
    """All matrices that suites are of."""
    packed = [each for pack in packs for of in (core_sources, held_out_sources, dlmc_sources) for each in of(pack)]
    return [*packed, *generated_sources(), *layer_sources(), *llama_sources()]


def _options() -> argparse.Namespace:
    named = sorted(path.stem for path in WON.glob("*-spm*.json") if path.stem.startswith(SUITES))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, nargs="+", required=True, help="packs of development patterns")
    parser.add_argument("--suites", nargs="+", choices=named, default=named)
    parser.add_argument("--seconds", type=float, default=500, help="no winner is begun after this time")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
