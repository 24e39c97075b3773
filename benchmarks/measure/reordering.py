"""What it brings that rows and columns may be reordered: the same search with `reorder` keep and allowed.

    python -m benchmarks.measure.reordering [--names NAME ...] [--types float32 float64] [--columns 1 32] [--candidates 64]

`--columns`: of the dense operand, spmv where it is 1. Times hold all launches of a product: the copy of x into the other
order, and y where the user has it. Without a GPU they are estimates and say so. `conversion_ms` is one thread of the host,
the search for the order included. A row is written as soon as it is there.
"""

import argparse
import json
import time
from datetime import UTC, datetime
from itertools import product
from typing import Any, get_args

from benchmarks.matrices.irregular import IRREGULAR
from benchmarks.origin import command, device_folder, machine, source_commit
from benchmarks.solvers.tuned_here import TunedHere, add_tuning, tuned_here
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith_proto.api import KernelReport
from sparsesmith_proto.kernel import FromFamily, Passed, Workload
from sparsesmith_proto.message import ElementType
from sparsesmith_proto.words import ReorderOption


def main() -> None:
    options = _options()
    end = time.monotonic() + options.seconds
    with tuned_here(options) as tuner:
        rows: list[dict[str, Any]] = []
        for name in options.names:
            matrix_class, make = IRREGULAR[name]
            pattern = make()
            for element_type, columns in product(options.types, options.columns):
                if time.monotonic() > end:
                    return
                row = {"name": name, "class": matrix_class, "nnz": pattern.nnz, "element_type": element_type}
                rows.append(row | {"num_dense_cols": columns} | compared(tuner, pattern, element_type, columns))
                print(rows[-1], flush=True)
                _write(rows, tuner, options)


def compared(tuner: TunedHere, pattern: Pattern, element_type: ElementType, columns: int) -> dict[str, Any]:
    """The winners of both searches; `gain`: times as fast where it is allowed."""
    operation = "spmv" if columns == 1 else "spmm"
    workload = Workload(pattern=pattern.digest, operation=operation, element_type=element_type, num_dense_cols=columns)
    found: dict[str, Any] = {
        reorder: _winner(tuner.report(Problem(workload, pattern), reorder)) for reorder in get_args(ReorderOption)
    }
    return found | {"gain": round(found["keep"]["us"] / found["allowed"]["us"], 3)}


def _winner(report: KernelReport) -> dict[str, Any]:
    """The fastest program, or the library's routine where none passed."""
    best = report.answer.best if report.answer.kind == "kernel" else report.answer.closest
    if best is None or not isinstance(best.outcome, Passed) or not isinstance(best.candidate.origin, FromFamily):
        routine = report.baselines.best_routine()
        return {"routine": routine.routine, "us": routine.timing.median_us, "kind": routine.timing.kind}
    outcome, origin = best.outcome, best.candidate.origin
    return {
        "family": origin.family,
        "parameters": dict(origin.parameters),
        "us": round(outcome.timing.median_us, 3),
        "kind": outcome.timing.kind,
        "conversion_ms": round(outcome.conversion_ms, 3),
    }


def _write(rows: list[dict[str, Any]], tuner: TunedHere, options: argparse.Namespace) -> None:
    result = {
        "kind": "reordering",
        "device": tuner.device.model_dump(),
        "machine": machine(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.measure.reordering"),
        "candidates": options.candidates,
        "rows": rows,
    }
    folder = options.out / ("cpu" if tuner.device.kind == "interpreter" else device_folder(tuner.device))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reordering.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", choices=IRREGULAR, default=[*IRREGULAR])
    parser.add_argument("--types", nargs="+", choices=("float32", "float64"), default=["float32", "float64"])
    parser.add_argument("--columns", nargs="+", type=int, default=[1])
    add_tuning(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
