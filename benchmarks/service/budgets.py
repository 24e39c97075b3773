"""What a request that is too much for its budget costs those behind it: seconds until it ends, and until a small job does.

    python -m benchmarks.service.budgets [--seconds 5] [--out benchmarks/results]

Generator, one evaluator and Valkey, without a policy. Each of the requests that once held an evaluator for minutes is
posted with a budget, and a second later a search on a matrix of a few rows, from the same client.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.origin import RESULTS, machine, source_commit, write_result
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions

Json = dict[str, Any]

HEAD_START_S = 1.0
POLL_S = 0.1
LONGEST_S = 600.0
ENDED = ("finished", "graded", "failed", "cancelled")
NO_POLICY = {"SPARSESMITH_GENERATOR_POLICY_DIR": "no-policy", "SPARSESMITH_TRAINER_POLICY_DIR": "no-policy"}


def diagonal(num_rows: int, num_entries: int) -> Json:
    """Ones from the first row on."""
    entries = list(range(num_entries))
    return {"num_rows": num_rows, "num_cols": num_rows, "row_indices": entries, "col_indices": entries}


HEAVY: Mapping[str, Json] = {
    "9,900,000 rows, one nonzero": {"matrix": diagonal(9_900_000, 1)},
    "spmm, 60,000 rows, 1,024 columns": {
        "matrix": diagonal(60_000, 60_000), "operation": "spmm", "num_dense_cols": 1_024,
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="budget of each heavy request")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ss-budgets-") as folder,
        Stack(StackOptions(Path(folder), port=free_port(), environment=NO_POLICY), on_event=print) as stack,
        Client(stack.url) as client,
        httpx.Client(base_url=stack.url, timeout=60) as http,
    ):
        wait_until_ready(client, stack)
        device = warmed_up(http)
        rows = [measured(http, name, body, options.seconds, 4 + at) for at, (name, body) in enumerate(HEAVY.items())]
    result = {
        "kind": "budgets",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit(),
        "command": f"python -m benchmarks.service.budgets --seconds {options.seconds:g}",
        "machine": machine(),
        "graded_on": device,
        "load_average": os.getloadavg()[0],
        "budget_s": options.seconds,
        "requests": rows,
    }
    path = options.out / "cpu" / "budgets.json"
    write_result(path, result)
    print(json.dumps(result, indent=1))


def warmed_up(http: httpx.Client) -> str:
    """The evaluator has started and graded; its device's name."""
    ((_, status),) = ends(http, posted(http, small(3)))
    return str(status["report"]["device"]["name"])


def measured(http: httpx.Client, name: str, body: Json, budget_s: float, small_rows: int) -> Json:
    """A heavy request, and one behind it on a matrix that no cache knows."""
    content = {**body, "search": "families", "budget": {"candidates": 4, "seconds": budget_s}}
    began = time.monotonic()
    heavy = posted(http, content)
    time.sleep(HEAD_START_S)
    behind_began = time.monotonic()
    behind = posted(http, small(small_rows))
    (ended_at, status), (behind_at, behind_status) = ends(http, heavy, behind)
    row = {
        "request": name,
        "body_bytes": len(json.dumps(content, separators=(",", ":"))),
        "ended_s": ended_at - began,
        "said": said(status),
        "small_ended_s": behind_at - behind_began,
        "small_said": said(behind_status),
    }
    print(row, flush=True)
    return row


def small(num_rows: int) -> Json:
    return {"matrix": diagonal(num_rows, num_rows), "search": "families", "budget": {"candidates": 2, "seconds": 60}}


def posted(http: httpx.Client, content: Json) -> str:
    """The job's path."""
    response = http.post("/v1/kernels", json=content).raise_for_status()
    return str(response.headers["location"])


def ends(http: httpx.Client, *paths: str) -> list[tuple[float, Json]]:
    """When each was seen to have ended, and how. Raises TimeoutError."""
    found: dict[str, tuple[float, Json]] = {}
    deadline = time.monotonic() + LONGEST_S
    while len(found) < len(paths):
        for path in set(paths) - found.keys():
            status: Json = http.get(path).raise_for_status().json()["status"]
            if status["state"] in ENDED:
                found[path] = time.monotonic(), status
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {LONGEST_S:g} s {len(paths) - len(found)} jobs have not ended")
        time.sleep(POLL_S)
    return [found[path] for path in paths]


def said(status: Json) -> str:
    """How a job ended, in a word or its problem's."""
    return str(status["problem"]["detail"] if status["state"] == "failed" else status["state"])


if __name__ == "__main__":
    main()
