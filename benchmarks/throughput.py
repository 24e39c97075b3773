"""Candidates graded a second, from the records of sweeps: checked on five inputs, run again, timed briefly or fully.

    python -m benchmarks.throughput RECORDS.jsonl.xz ... [--out benchmarks/results]

A record's `grading_s` is what the candidate took of the one process that holds the GPU, waiting for its compilation
included; formats, references and the library's routines are not in it. A search, which times most of its candidates
fully and times finalists again, grades fewer (the suites say how many).
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.measured import Record, matrix_entries, read_records
from benchmarks.strategy_worth import NNZ_CLASSES, kind_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="results folder; without it only the rows are printed")
    parser.add_argument("--device", default="h200", help="folder of the results")
    options = parser.parse_args()
    result = {
        "kind": "throughput",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "records": [path.name for path in options.records],
        "rows": rates(read_records(options.records)),
    }
    print(json.dumps(result["rows"], indent=1))
    if options.out is not None:
        path = options.out / options.device / "throughput.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def rates(records: Iterable[Record]) -> list[dict[str, Any]]:
    """By workload kind and nonzeros, of the records that say what grading took."""
    entries = matrix_entries()
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in records:
        entry = entries.get(record["pattern"])
        if entry is not None and record.get("grading_s", 0) > 0:
            size = next(name for name, low, high in NNZ_CLASSES if low <= entry.nnz < high)
            seconds[kind_of(record), size].append(record["grading_s"])
    return [
        {
            "workload": kind,
            "nnz": size,
            "candidates": len(graded),
            "mean_ms": round(1e3 * fmean(graded), 2),
            "median_ms": round(1e3 * median(graded), 2),
            "a_second": round(1 / fmean(graded), 1),
        }
        for (kind, size), graded in sorted(seconds.items())
    ]


if __name__ == "__main__":
    main()
