"""What becomes of mutants: which share is within the contract, compiles, is right, and is other machine code.

    python -m benchmarks.tuning.mutants RECORDS.jsonl.xz ... --pack PATTERNS.pack [--winners 32] [--of-families 16] [--each 4]

The fastest recorded programs of small matrices, families and kinds of workload taking turns, and the fastest ones of
families that are not among them, each changed by every mutator; of a mutator's children `--each` are chosen. They are judged as any candidate, by the evaluator on whatever device
there is: without a GPU by the interpreter, which says nothing of speed. The result file is written after every winner;
the command goes on where it was stopped.
"""

import argparse
import json
import os
import platform
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.origin import ROOT, command, device_folder, source_commit, write_result
from benchmarks.tuning.winners import Winner, patterns_of, read_winners, spread
from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.devices import device_process
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.race import Race
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.mutation import MUTATORS, Mutant, mutants
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Candidate, MeasuredTiming, Passed, UserWritten

COMPILE_WAIT_S = 600.0
MOST_FAILURES = 200
"""Kept with their texts."""

Row = dict[str, Any]


def main() -> None:
    options = _options()
    chosen = _chosen(options)
    patterns = dict(patterns_of(chosen, options.pack))
    chosen = [winner for winner in chosen if winner.matrix in patterns]
    settings, until = EvaluatorSettings(), time.monotonic() + options.seconds
    with (
        closing(device_process(settings)) as process,
        Compiler(max(1, (os.cpu_count() or 1) - 1), timeout_s=settings.compile_limit_s) as compiler,
    ):
        device = process.start()
        out = options.out or ROOT / "benchmarks" / "results" / device_folder(device) / "mutants.json"
        known = {row["winner"]: row for row in _rows_before(out, options)}
        rows = []
        for winner in chosen:
            if winner.key not in known and time.monotonic() < until:
                known[winner.key] = judged(winner, patterns[winner.matrix], options.each, process, compiler)
                print(winner.key, winner.instance.family, known[winner.key]["outcomes"], flush=True)
            if winner.key in known:
                rows.append(known[winner.key])
                _write(out, options, rows, device.model_dump(), settings.device)
    print(json.dumps(summary(rows), indent=1))


def _chosen(options: argparse.Namespace) -> list[Winner]:
    splits = ("train", "validation")
    winners = spread(read_winners(options.records, splits, options.max_nnz), options.winners)
    seen = {winner.instance.family for winner in winners}
    others = read_winners(options.records, splits, options.max_nnz, of_each_family=True)
    return winners + spread((each for each in others if each.instance.family not in seen), options.of_families)


def judged(winner: Winner, pattern: Pattern, each: int, process: DeviceProcess, compiler: Compiler) -> Row:
    """One winner with some children of every mutator."""
    chosen = [(name, mutant) for name in MUTATORS for mutant in _some(winner, pattern, name, each)]
    row: Row = {
        "winner": winner.key,
        "family": winner.instance.family,
        "nnz": winner.nnz,
        "mutants": [],
        "refused": {name: _num_refused(winner, pattern, name) for name in MUTATORS},
    }
    workload = winner.workload(pattern)
    candidates = [parse_candidate(_candidate(number, each.text), workload) for number, (_, each) in enumerate(chosen)]
    parent = parse_candidate(_candidate(len(chosen), winner.instance.program), workload)
    with CompilationsAhead(compiler, process.description().architecture, COMPILE_WAIT_S) as ahead:
        ahead.start((parent, *candidates))
        workbench, race, codes = process.open(Problem(workload, pattern)), Race(1e12), dict[str, bytes]()

        def compile_program(program: Any) -> Any:
            binary = ahead.result(program)
            if isinstance(binary, Compiled):
                codes[program.text] = binary.cubin
            return binary

        outcome = evaluate_kernel(parent, compile_program, workbench, race)
        row |= {"parent": outcome.outcome, "parent_us": _us(outcome)}
        for (name, mutant), candidate in zip(chosen, candidates, strict=True):
            began = time.monotonic()
            outcome = evaluate_kernel(candidate, compile_program, workbench, race)
            entry: Row = {"mutator": name, "deed": mutant.deed, "outcome": outcome.outcome, "us": _us(outcome)}
            entry["is_other_code"] = codes.get(mutant.text) != codes.get(winner.instance.program)
            entry["seconds"] = round(time.monotonic() - began, 3)
            if not isinstance(outcome, Passed):
                entry |= {"message": str(getattr(outcome, "message", "") or getattr(outcome, "log", ""))[:400]}
                entry["program"] = mutant.text
            row["mutants"].append(entry)
    row["outcomes"] = dict(Counter(entry["outcome"] for entry in row["mutants"]))
    return row


def _some(winner: Winner, pattern: Pattern, name: str, each: int) -> list[Mutant]:
    children = list(mutants(winner.subject(pattern), name))
    return random.Random(f"{winner.key} {name}").sample(children, min(each, len(children)))


def _num_refused(winner: Winner, pattern: Pattern, name: str) -> int:
    """Children that the contract refuses: they are never proposed."""
    subject = winner.subject(pattern)
    children = {child.text for child in MUTATORS[name](subject)} - {subject.text}
    return len(children) - sum(1 for _ in mutants(subject, name))


def _candidate(number: int, program: str) -> Candidate:
    return Candidate(candidate_id=f"c{number}", program=program, origin=UserWritten())


def _us(outcome: Any) -> float | None:
    """Estimated times are not kept."""
    is_measured = isinstance(outcome, Passed) and isinstance(outcome.timing, MeasuredTiming)
    return outcome.timing.median_us if is_measured else None


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By mutator and over all: how many, and which share compiled, passed, is other machine code."""
    of_mutator: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        for entry in row["mutants"]:
            of_mutator[entry["mutator"]].append(entry)
            of_mutator["all"].append(entry)
    refused = Counter[str]()
    for row in rows:
        refused.update(row["refused"])
        refused["all"] += sum(row["refused"].values())
    return {
        "winners": len(rows),
        "families": len({row["family"] for row in rows}),
        "mutators": {name: _shares(entries, refused[name]) for name, entries in of_mutator.items()},
    }


def _shares(entries: Sequence[Mapping[str, Any]], num_refused: int) -> dict[str, Any]:
    outcomes = Counter(entry["outcome"] for entry in entries)
    count = len(entries)
    return {
        "mutants": count,
        "refused_unproposed": num_refused,
        "compiled": round(1 - (outcomes["compile_failed"] + outcomes["rejected"]) / count, 4),
        "passed": round(outcomes["passed"] / count, 4),
        "other_code": round(sum(entry["is_other_code"] for entry in entries) / count, 4),
        "outcomes": dict(outcomes),
    }


def _rows_before(out: Path, options: argparse.Namespace) -> Iterator[Row]:
    if out.is_file():
        before = json.loads(out.read_text(encoding="utf-8"))
        if before["each"] == options.each:
            failures = {(entry["winner"], entry["deed"]): entry for entry in before["failures"]}
            for row in before["rows"]:
                for entry in row["mutants"]:
                    entry |= failures.get((row["winner"], entry["deed"]), {})
                yield row


def _write(out: Path, options: argparse.Namespace, rows: Sequence[Row], device: Mapping[str, Any], asked: str) -> None:
    failures = [
        {"winner": row["winner"], "deed": entry["deed"], "message": entry["message"], "program": entry["program"]}
        for row in rows
        for entry in row["mutants"]
        if "program" in entry
    ]
    result = {
        "kind": "mutants",
        "device": device,
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "command": command("benchmarks.tuning.mutants"),
        "each": options.each,
        "summary": summary(rows),
        "rows": [{**row, "mutants": [_short(entry) for entry in row["mutants"]]} for row in rows],
        "failures": failures[:MOST_FAILURES],
    }
    write_result(out, result)


def _short(entry: Row) -> Row:
    return {name: value for name, value in entry.items() if name not in ("program", "message", "winner")}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--pack", type=Path, nargs="+", required=True)
    parser.add_argument("--winners", type=int, default=32)
    parser.add_argument("--of-families", type=int, default=16, help="fastest ones of families that win nowhere")
    parser.add_argument("--each", type=int, default=4, help="children of a mutator and winner")
    parser.add_argument("--max-nnz", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9, help="no winner is begun after this time")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, help="the result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
