"""A kernel at once as a user gets it: from POST to the answer through HTTP and Redis, beside what of it the evaluator took.

    python -m benchmarks.service.instant_http [--nnz 1e5 1e6 1e7] [--runs 2] [--settle 15] [--seconds 60] [--out FOLDER]

Generator, one evaluator and Valkey on this machine, without a policy. Each matrix is posted as a file that the client
makes, which is ready before the clock starts, with `search=instant` and `Prefer: wait`: the answer comes in the same
response. Of each answer three spans are kept: `http_ms`, what the client waited; `tuning_ms`, the service's own
count, from the parsed matrix to the kernel, queue and messages included; `stages_ms`, choice and evaluator by stage, as in
`benchmarks.measure.instant`, which has neither. What `http_ms` has beyond is transfer and parsing.

Each run posts another pattern, of which nothing is remembered. The search behind an answer has one candidate, the kernel
itself, and has ended before the next is posted: the evaluator is idle then. `--settle`: an evaluator with a GPU compiles usual programs when it starts; so long it is
left alone. The result file is written after every matrix.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.measure.instant import TARGET_MS, named_patterns
from benchmarks.origin import RESULTS, command, device_folder, source_commit
from benchmarks.service.budgets import NO_POLICY
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client, matrix_file
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import InstantKernel, JobStatus, Running

Json = dict[str, Any]

WAIT_S = 30
LONGEST_END_S = 60.0
BESIDE = ("read",)
"""Stages that run beside others: what is waited for of them is a stage of its own."""


def main() -> None:
    options = _options()
    with (
        tempfile.TemporaryDirectory(prefix="ss-instant-") as folder,
        Stack(StackOptions(Path(folder), port=free_port(), environment=NO_POLICY), on_event=print) as stack,
        Client(stack.url) as client,
        httpx.Client(base_url=stack.url, timeout=4 * WAIT_S) as http,
    ):
        wait_until_ready(client, stack)
        warm = answered(http, named_patterns(3e4)["uniform"])
        if warm is None:
            raise SystemExit("no kernel was handed out for a matrix of 30,000 nonzeros")
        time.sleep(options.settle)
        rows: list[Json] = []
        for row in measured_rows(http, options.nnz, options.runs, time.monotonic() + options.seconds):
            rows.append(row)
            print(row, flush=True)
            write_result(result_of(warm[0], rows, options.commit), warm[0], options.out)


def result_of(kernel: InstantKernel, rows: Sequence[Json], commit: str) -> Json:
    """`kernel`: any that was handed out, for what it says of the machine."""
    return {
        "kind": "instant_http",
        "device": kernel.device.model_dump(),
        "commit": commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpu_cores": os.cpu_count(),
        "command": command("benchmarks.service.instant_http"),
        "chosen_by": kernel.chosen_by,
        "classes": [
            class_of(nnz, [row for row in rows if row["class_nnz"] == nnz and "failed" not in row])
            for nnz in dict.fromkeys(row["class_nnz"] for row in rows if "failed" not in row)
        ],
        "rows": list(rows),
    }


def write_result(result: Json, kernel: InstantKernel, out: Path) -> None:
    path = out / ("cpu" if kernel.device.kind == "interpreter" else device_folder(kernel.device))
    path.mkdir(parents=True, exist_ok=True)
    (path / "instant-http.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measured_rows(http: httpx.Client, classes: Sequence[float], num_runs: int, end: float) -> Iterator[Json]:
    """One a matrix; none is begun after `end` (monotonic)."""
    for nnz in classes:
        for name, pattern in named_patterns(nnz).items():
            if time.monotonic() > end:
                return
            yield {"name": name, "class_nnz": nnz, "nnz": pattern.nnz, **measured(http, pattern, num_runs)}


def measured(http: httpx.Client, pattern: Pattern, num_runs: int) -> Json:
    """Medians of some runs."""
    runs = [answered(http, without_last(pattern, run)) for run in range(num_runs)]
    found = [run for run in runs if run is not None]
    if not found:
        return {"failed": "no kernel was handed out before the search"}
    stages = {name: statistics.median(k.stages_ms.get(name, 0.0) for k, _ in found) for name in found[0][0].stages_ms}
    return {
        "runs": len(found),
        "families": sorted({origin_of(kernel) for kernel, _ in found}),
        "http_ms": round(statistics.median(http_ms for _, http_ms in found), 2),
        "slowest_http_ms": round(max(http_ms for _, http_ms in found), 2),
        "tuning_ms": round(statistics.median(kernel.tuning_s * 1e3 for kernel, _ in found), 2),
        "evaluator_ms": round(statistics.median(in_turn_ms(kernel.stages_ms) for kernel, _ in found), 2),
        "stages_ms": {name: round(ms, 2) for name, ms in stages.items()},
    }


def in_turn_ms(stages_ms: dict[str, float]) -> float:
    """Choice and evaluator, one stage after the other."""
    return sum(ms for name, ms in stages_ms.items() if name not in BESIDE)


def origin_of(kernel: InstantKernel) -> str:
    origin = kernel.candidate.origin
    return origin.family if origin.kind == "family" else origin.kind


def without_last(pattern: Pattern, count: int) -> Pattern:
    """The pattern without its last nonzeros: another one, much the same."""
    nnz = pattern.nnz - count
    offsets = np.minimum(pattern.row_offsets, nnz).astype(np.int32)
    return Pattern(pattern.num_rows, pattern.num_cols, offsets, pattern.col_indices[:nnz])


def answered(http: httpx.Client, pattern: Pattern) -> tuple[InstantKernel, float] | None:
    """The kernel and the milliseconds until it was there; None where none was handed out. Nothing runs afterwards."""
    data = matrix_file(pattern.to_scipy(np.ones(pattern.nnz, np.float32)), None)
    fields = {"search": "instant", "budget_candidates": "1", "budget_seconds": str(WAIT_S)}
    began = time.perf_counter()
    response = http.post(
        "/v1/kernels", data=fields, files={"file": ("matrix.npz", data)}, headers={"Prefer": f"wait={WAIT_S}"}
    )
    http_ms = (time.perf_counter() - began) * 1e3
    status = JobStatus.model_validate_json(response.raise_for_status().content)
    _end(http, status)
    match status.status:
        case Running(instant=InstantKernel() as kernel):
            return kernel, http_ms
        case _:
            return None


def _end(http: httpx.Client, status: JobStatus) -> None:
    """Waits for the end of what goes on. Raises TimeoutError."""
    path, end = f"/v1/kernels/{status.job_id}", time.monotonic() + LONGEST_END_S
    while isinstance(status.status, Running):
        if time.monotonic() > end:
            raise TimeoutError(f"job {status.job_id} has not ended {LONGEST_END_S:g} s after its kernel was there")
        time.sleep(0.05)
        status = JobStatus.model_validate_json(http.get(path).raise_for_status().content)


def class_of(nnz: float, rows: Sequence[Json]) -> Json:
    """Medians of the matrices."""
    return {
        "nnz": nnz,
        "target_ms": TARGET_MS.get(nnz),
        "matrices": len(rows),
        "slowest_http_ms": max(row["slowest_http_ms"] for row in rows),
        **{name: statistics.median(row[name] for row in rows) for name in ("http_ms", "tuning_ms", "evaluator_ms")},
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nnz", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--runs", type=int, default=2, help="of each matrix, each of another pattern")
    parser.add_argument("--settle", type=float, default=15, help="seconds that the evaluator is left alone first")
    parser.add_argument("--seconds", type=float, default=60, help="no matrix is begun after this time")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
