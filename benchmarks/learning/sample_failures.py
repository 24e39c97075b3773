"""What fails among a policy's samples, and how: each different text graded on the interpreter, failures by format.

    python -m benchmarks.learning.sample_failures PACK SAMPLES.jsonl [--max-nnz 60000] [--types float32]

SAMPLES as `sample_policy` writes it, which says whether matrices were permuted. The result counts samples, so that a
text that was drawn twice counts twice, and holds one message and one program of each kind of failure, the most frequent kind first. `pass_at`: the chance that one of
k samples passes, the mean over matrices (Chen et al. 2021, unbiased); `different`: texts that passed, of so many samples.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.matrices.suites import permuted
from benchmarks.origin import ROOT, command, machine, source_commit, write_result
from benchmarks.report.results import how_sampled, pass_at
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix, grader_here
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Candidate, Evaluation, Passed, UserWritten, Workload

OUT = ROOT / "benchmarks" / "results" / "cpu" / "sample-failures.json"
BATCH = 12
EXAMPLES = 3
"""Kinds of failure whose program is kept, of each operation."""
KS = (1, 4, 16, 64, 256)
Kind = tuple[str, str, int]
"""Of workloads: operation, type of elements, dense columns."""
_FORMAT = re.compile(r"^//@ format (\w+)", re.MULTILINE)


@dataclass
class Tally:
    """Samples of one kind of workload."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By outcome and format."""
    samples: Counter[str] = field(default_factory=Counter)
    """Of each matrix."""
    failed: Counter[str] = field(default_factory=Counter)
    """Failed samples of each matrix."""
    different: Counter[str] = field(default_factory=Counter)
    """Texts that passed, of each matrix."""
    examples: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def count(self, matrix: str, written: str, evaluation: Evaluation, times: int) -> None:
        outcome = evaluation.outcome
        self.outcomes[outcome.outcome] += times
        self.samples[matrix] += times
        if isinstance(outcome, Passed):
            self.different[matrix] += 1
            return
        stored = _FORMAT.search(written)
        kind = outcome.outcome, stored[1] if stored else "none"
        self.failures[kind] += times
        self.failed[matrix] += times
        message = str(outcome.model_dump().get("message", ""))
        self.examples.setdefault(kind, {"matrix": matrix, "message": message, "program": written})

    def row(self, operation: str, element_type: str, num_dense_cols: int) -> dict[str, Any]:
        ranked = self.failures.most_common()
        examples = {kind: self.examples[kind] for kind, _ in ranked[:EXAMPLES]}
        return {
            "operation": operation,
            "element_type": element_type,
            "num_dense_cols": num_dense_cols,
            "outcomes": dict(self.outcomes.most_common()),
            "failures": [{"outcome": kind[0], "format": kind[1], "samples": count} for kind, count in ranked],
            "failed_by_matrix": dict(self.failed.most_common()),
            "samples": max(self.samples.values()),
            "pass_at": self.pass_at(),
            "different": dict(self.different.most_common()),
            "examples": [{"outcome": kind[0], "format": kind[1], **told} for kind, told in examples.items()],
        }

    def pass_at(self) -> dict[int, float]:
        """By k, as far as every matrix has so many samples."""
        told = {}
        for k in KS:
            if k <= min(self.samples.values()):
                chances = [pass_at(k, count, count - self.failed[name]) for name, count in self.samples.items()]
                told[k] = round(sum(chances) / len(chances), 4)
        return told


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    asked = [json.loads(line) for line in options.samples.read_text(encoding="utf-8").splitlines()]
    asked = [line for line in asked if line["element_type"] in options.types]
    patterns = patterns_of(asked, options.pack)
    lines = [line for line in asked if patterns[line["pattern"]].nnz <= options.max_nnz]
    tallies: dict[Kind, Tally] = {}
    with grader_here(EvaluatorSettings(device="interpreter")) as grader:
        for line in lines:
            kind = line["operation"], line["element_type"], line["num_dense_cols"]
            tally = tallies.setdefault(kind, Tally())
            times = Counter(line["programs"])
            for written, evaluation in graded(grader, line, patterns[line["pattern"]], list(times)):
                tally.count(line["pattern"], written, evaluation, times[written])
            print(line["pattern"], *kind, dict(tally.outcomes), flush=True)
    _write(options, lines, tallies)


def patterns_of(lines: Sequence[dict[str, Any]], pack: Path) -> dict[str, Pattern]:
    """By name, as they were sampled for: of one file all are permuted with one seed, or none."""
    known = dict(read_pack(pack, {line["pattern"] for line in lines}))
    seed = lines[0].get("permuted") if lines else None
    return known if seed is None else {name: permuted(pattern, seed) for name, pattern in known.items()}


def graded(
    grader: Grader, line: dict[str, Any], pattern: Pattern, programs: Sequence[str]
) -> Iterator[tuple[str, Evaluation]]:
    """Each program with what came of it."""
    workload = Workload(
        pattern=pattern.digest,
        operation=line["operation"],
        element_type=line["element_type"],
        num_dense_cols=line["num_dense_cols"],
    )
    held = HeldMatrix(pattern, None)
    for start in range(0, len(programs), BATCH):
        numbered = enumerate(programs[start : start + BATCH], start)
        candidates = tuple(
            Candidate(candidate_id=str(number), program=program, origin=UserWritten()) for number, program in numbered
        )
        job = EvaluationJob(job_id=f"{pattern.digest[:12]}-{start}", workload=workload, candidates=candidates)
        for evaluation in grader.grade(job, held).evaluations:
            yield programs[int(evaluation.candidate.candidate_id)], evaluation


def _write(options: argparse.Namespace, lines: list[dict[str, Any]], tallies: dict[Kind, Tally]) -> None:
    result: dict[str, Any] = {
        "kind": "sample_failures",
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.learning.sample_failures"),
        "machine": machine(),
        "device": "interpreter",
        **how_sampled(lines[0]),
        "matrices": len({line["pattern"] for line in lines}),
        "rows": [tally.row(*kind) for kind, tally in tallies.items()],
    }
    write_result(options.out, result)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--max-nnz", type=int, default=60_000, help="larger matrices are left out")
    parser.add_argument("--types", nargs="+", default=["float32"])
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
