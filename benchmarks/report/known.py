"""What the command line shows of measurements where it can only estimate: sparsesmith/cli/known_results.json.

Written by `make report` from the results of `python -m benchmarks.service.end_to_end` on a GPU: the answers of a whole stack to the
matrices in examples/.
"""

from collections.abc import Iterable, Iterator

from benchmarks.matrices.suites import example_matrices
from benchmarks.origin import ROOT
from benchmarks.report.results import Json
from sparsesmith.cli.known import RESULTS, KnownResult
from sparsesmith_proto.kernel import Workload

KNOWN_RESULTS = ROOT / "sparsesmith" / "cli" / "known_results.json"
SOURCE = "benchmarks/results/{folder}/end-to-end.json"


def known_results(results: Iterable[Json]) -> str:
    """The file's text."""
    measured = [
        result for result in results if result.get("kind") == "end_to_end" and result["device"]["kind"] == "cuda"
    ]
    return RESULTS.dump_json([known for result in measured for known in _examples(result)], indent=1).decode() + "\n"


def _examples(result: Json) -> Iterator[KnownResult]:
    """Those that have a kernel for an answer in every run."""
    for matrix in example_matrices():
        rows = [row for row in result["requests"] if row["name"] == matrix.name]
        if rows and all(row["answer"] == "kernel" for row in rows):
            digest = matrix.pattern.digest
            yield KnownResult(
                workload=Workload(pattern=digest, operation="spmv", element_type="float32"),
                matrix=matrix.name,
                device=result["device"]["name"],
                speedup_over_best=min(row["speedup_over_best"] for row in rows),
                num_runs=len(rows),
                candidates=min(row["candidates"] for row in rows),
                commit=result["commit"],
                date=result["date"][:10],
                source=SOURCE.format(folder="h200" if "H200" in result["device"]["name"] else "cpu"),
            )
