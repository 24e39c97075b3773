"""Grade a kernel program on a matrix through the bare queue: Redis alone, no HTTP, nothing of sparsesmith installed.

    pip install redis scipy
    python push_evaluation.py ADDRESS KERNEL.cu MATRIX.mtx [--certificate certificate.pem]

ADDRESS is redis://, rediss:// or unix://. docs/queue.md describes every message that goes here. Prints what became of
the program, and the library's routines beside it; exits with 0 where it passed, 1 where not, 2 without an answer.
"""

import argparse
import base64
import hashlib
import json
import sys
import time
import uuid
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import redis
import scipy.io
import scipy.sparse

QUEUE = "rq:queue:evaluations"
FUNCTION = "services.evaluator.jobs.grade"
GRACE_S = 300
"""An evaluator ends a job that is later than its budget by so much."""
RESULT_TTL_S = 1800
LONGEST_REPLY_S = 30
DAY_S = 24 * 3600
SUCCESSFUL, RETRIED = 1, 4
"""Types of results; after RETRIED another follows."""
LINES_OF_REASON = 4
"""At the end of a traceback."""


def connect(address: str, certificate: Path | None) -> redis.Redis:
    if address.startswith("unix://"):
        return redis.Redis(unix_socket_path=address.removeprefix("unix://"), socket_timeout=LONGEST_REPLY_S)
    trusted = {} if certificate is None else {"ssl_ca_certs": str(certificate)}
    return redis.Redis.from_url(address, socket_timeout=LONGEST_REPLY_S, **trusted)


def store_pattern(connection: redis.Redis, matrix: scipy.sparse.csr_matrix) -> str:
    """Where the nonzeros are, under its digest, which is returned."""
    offsets, columns = matrix.indptr.astype("<i4").tobytes(), matrix.indices.astype("<i4").tobytes()
    num_rows, num_cols = matrix.shape
    head = f"sparsesmith-pattern-1 {num_rows} {num_cols} {matrix.nnz}\n".encode()
    digest = hashlib.sha256(head + offsets + columns).hexdigest()
    key = f"sparsesmith:pattern:{digest}"
    if not connection.expire(key, 7 * DAY_S):
        fields = {"shape": f"{num_rows} {num_cols}", "row_offsets": offsets, "col_indices": columns}
        connection.hset(key, mapping=fields)
        connection.expire(key, 7 * DAY_S)
    return digest


def push(connection: redis.Redis, job: dict[str, Any]) -> str:
    """Queue an evaluation; the name under which its result will lie."""
    name = f"guest-{uuid.uuid4().hex}"
    fields = {
        "data": json.dumps([FUNCTION, None, [json.dumps(job)], {}]),
        "origin": "evaluations",
        "status": "queued",
        "timeout": int(job["budget_s"]) + GRACE_S,
        "result_ttl": RESULT_TTL_S,
        "failure_ttl": DAY_S,
        "retries_left": 3,
        "enqueue_at_front_on_retry": 1,
    }
    with connection.pipeline(transaction=True) as pipeline:
        pipeline.hset(f"rq:job:{name}", mapping=fields)
        pipeline.expire(f"rq:job:{name}", DAY_S)
        pipeline.rpush(QUEUE, name)
        pipeline.execute()
    return name


def wait(connection: redis.Redis, name: str, seconds: float) -> dict[str, Any]:
    """The report. Raises TimeoutError without one in time, RuntimeError with the reason of a job that failed."""
    end, last = time.monotonic() + seconds, "0-0"
    while (left := end - time.monotonic()) > 0:
        block_ms = max(1, int(min(left, 5) * 1000))
        for _, entries in connection.xread({f"rq:results:{name}": last}, block=block_ms) or []:
            for entry, fields in entries:
                last = entry
                match int(fields[b"type"]):
                    case kind if kind == SUCCESSFUL:
                        report: dict[str, Any] = json.loads(json.loads(base64.b64decode(fields[b"return_value"])))
                        return report
                    case kind if kind != RETRIED:
                        raise RuntimeError(zlib.decompress(base64.b64decode(fields[b"exc_string"])).decode())
    raise TimeoutError(f"no result of {name} in {seconds:g} s")


def grade(connection: redis.Redis, program: str, matrix: scipy.sparse.csr_matrix, budget_s: float) -> dict[str, Any]:
    """The report of one program for y = A x in float32."""
    workload = {"pattern": store_pattern(connection, matrix), "operation": "spmv", "element_type": "float32"}
    candidate = {"candidate_id": "mine", "program": program, "origin": {"kind": "user"}}
    job = {"job_id": uuid.uuid4().hex, "workload": workload, "candidates": [candidate], "budget_s": budget_s}
    return wait(connection, push(connection, job), budget_s + GRACE_S)


def read_matrix(path: Path) -> scipy.sparse.csr_matrix:
    """Rows in order, columns ascending, no duplicates; every stored entry counts, whatever its value."""
    entries = scipy.io.mmread(path).tocoo()
    ones = np.ones(entries.nnz, np.int8)
    matrix = scipy.sparse.csr_matrix((ones, (entries.row, entries.col)), shape=entries.shape)
    matrix.sum_duplicates()
    return matrix


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("kernel", type=Path)
    parser.add_argument("matrix", type=Path)
    parser.add_argument("--certificate", type=Path, help="what a rediss:// address shows must be signed by this")
    parser.add_argument("--budget", type=float, default=300, help="seconds on the evaluator")
    parser.add_argument("--json", action="store_true", help="print the whole report")
    options = parser.parse_args()
    connection = connect(options.address, options.certificate)
    try:
        report = grade(connection, options.kernel.read_text(), read_matrix(options.matrix), options.budget)
    except (redis.exceptions.RedisError, TimeoutError, RuntimeError) as error:
        print("\n".join(str(error).strip().splitlines()[-LINES_OF_REASON:]), file=sys.stderr)
        return 2
    outcome = report["evaluations"][0]["outcome"]
    print(json.dumps(report, indent=1) if options.json else summary(report, outcome))
    return 0 if outcome["outcome"] == "passed" else 1


def summary(report: dict[str, Any], outcome: dict[str, Any]) -> str:
    """For people."""
    if outcome["outcome"] != "passed":
        return f"{outcome['outcome']}: {outcome.get('message') or outcome.get('log')}"
    lines = [f"passed on {report['device']['name']}: {time_of(outcome)}"]
    lines += [f"{routine['routine']}: {time_of(routine)}" for routine in report["baselines"]["routines"]]
    return "\n".join(lines)


def time_of(timed: dict[str, Any]) -> str:
    return f"{timed['timing']['median_us']:.2f} us {timed['timing']['kind']}"


if __name__ == "__main__":
    sys.exit(main())
