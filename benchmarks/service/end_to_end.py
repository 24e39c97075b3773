"""The whole stack on this machine: seconds from POST to answer, and the loop from measured kernels to new weights.

    python -m benchmarks.service.end_to_end [--out benchmarks/results] [--samples 64] [--publish-seconds 240]

Starts the real stack, posts the examples and a generated matrix of a million nonzeros twice (cold, then warm, under another
option so that no cache answers), then asks for policy samples until the trainer has published new weights into the engine.
"""

import argparse
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.matrices.generated import stencil_3d, uniform_rows
from benchmarks.matrices.suites import example_matrices
from benchmarks.origin import source_commit
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client, matrix_file
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import Budget, KernelReport, SearchStrategy, TunedAnswer, TuningOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--commit", default="")
    parser.add_argument("--samples", type=int, default=64, help="policy samples a request of the learning part")
    parser.add_argument("--publish-seconds", type=float, default=240)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        began = time.monotonic()
        stack_options = StackOptions(Path(state), port=free_port())
        with Stack(stack_options, on_event=print) as stack, Client(stack.url) as client:
            wait_until_ready(client, stack, is_whole=True)
            ready_s = time.monotonic() - began
            print(f"ready after {ready_s:.1f} s", flush=True)
            try:
                requests = list(_timed_requests(client))
                learning = _learn(client, options.samples, options.publish_seconds)
            finally:
                _print_logs(stack)
    device = requests[0]["device"]
    result = {
        "kind": "end_to_end",
        "device": device,
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python -m benchmarks.service.end_to_end",
        "ready_s": ready_s,
        "requests": requests,
        "learning": learning,
    }
    folder = options.out / ("h200" if "H200" in device["name"] else "cpu")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "end-to-end.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _timed_requests(client: Client) -> Any:
    patterns = [(each.name, each.pattern) for each in example_matrices()]
    patterns += [("stencil3d7_52", stencil_3d(52, 7)), ("uniform_50000_20", uniform_rows(50_000, 20))]
    for budget in (Budget(candidates=24, seconds=60), Budget(candidates=25, seconds=60)):
        for name, pattern in patterns:
            yield _request(client, name, pattern, "auto", budget)


def _request(client: Client, name: str, pattern: Pattern, search: SearchStrategy, budget: Budget) -> dict[str, Any]:
    data = matrix_file(pattern.to_scipy(np.ones(pattern.nnz, np.float32)), None)
    began = time.monotonic()
    report = client.tune_file(f"{name}.npz", data, TuningOptions(search=search, budget=budget))
    seconds = time.monotonic() - began
    row = {"name": name, "nnz": pattern.nnz, "search": search, "candidates": budget.candidates, "seconds": seconds}
    row |= {"first_graded_s": report.search.first_graded_s, "outcomes": report.search.outcomes}
    row |= {"answer": report.answer.kind, "speedup_over_best": _speedup(report)}
    row |= {"policy_versions": list(report.search.policy_versions), "device": report.device.model_dump()}
    print({key: value for key, value in row.items() if key != "device"}, flush=True)
    return row


def _speedup(report: KernelReport) -> float | None:
    return report.answer.speedup_over_best if isinstance(report.answer, TunedAnswer) else None


def _learn(client: Client, samples: int, seconds: float) -> dict[str, Any]:
    """Ask for samples until new weights serve; then once more, to see candidates carry the new version."""
    began, num_requests, seen = time.monotonic(), 0, set[int]()
    while time.monotonic() - began < seconds and client.policy().version == 0:
        pattern = uniform_rows(2000 + 37 * num_requests, 5 + num_requests % 20)
        row = _request(client, "learning", pattern, "sample", Budget(candidates=samples, seconds=60))
        seen.update(row["policy_versions"])
        num_requests += 1
    row = _request(client, "learned", uniform_rows(3001, 9), "sample", Budget(candidates=min(samples, 16), seconds=60))
    status = client.policy()
    print(status.model_dump_json(), flush=True)
    return {
        "seconds": time.monotonic() - began,
        "requests": num_requests,
        "samples_a_request": samples,
        "version": status.version,
        "versions_sampled": sorted(seen | set(row["policy_versions"])),
        "metrics": status.announcement.metrics if status.announcement else None,
    }


def _print_logs(stack: Stack) -> None:
    for name in ("generator", "evaluator-0", "trainer"):
        print(f"--- {name}\n" + stack.log_file(name).read_text(encoding="utf-8", errors="replace")[-1500:], flush=True)


if __name__ == "__main__":
    main()
