"""Memory of a generator while it takes in large matrices: resident bytes when idle, and the peak of each request.

    python -m benchmarks.service.memory [--out FILE.json]

A real generator process without policy and evaluator on an embedded Valkey; the kernel keeps the peak (VmHWM), which is
reset before each request. A small request comes first: code that is imported once is not counted, and the search on a
large matrix starts only when the small one is cancelled. Linux only.
"""

import argparse
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import scipy.io
import scipy.sparse

from benchmarks.origin import ROOT, write_result
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.processes import start, stop

RESULTS = ROOT / "benchmarks" / "results"
START_TIMEOUT_S = 60
SETTLE_S = 10
"""After the answer: the search looks at the pattern."""

Body = tuple[str, bytes]
"""Content type and content."""


@dataclass(frozen=True)
class Upload:
    """A request and what it cost, in bytes above the idle process."""

    name: str
    num_rows: int
    nnz: int
    body_bytes: int
    pattern_bytes: int
    """The index arrays of the parsed pattern."""
    accepted_peak_bytes: int
    """Highest resident set until the request was accepted."""
    searched_peak_bytes: int
    """The same until SETTLE_S later."""
    left_bytes: int
    """Still resident then."""

    @property
    def ratio(self) -> float:
        return self.accepted_peak_bytes / self.pattern_bytes


def random_matrix(num_rows: int, nnz: int) -> scipy.sparse.coo_matrix:
    """Distinct entries in no order."""
    random = np.random.default_rng(7)
    flat = np.unique(random.integers(0, num_rows * num_rows, nnz + nnz // 100))
    flat = random.permutation(flat)[:nnz]
    values = random.uniform(-1, 1, flat.size)
    return scipy.sparse.coo_matrix((values, (flat // num_rows, flat % num_rows)), shape=(num_rows, num_rows))


def json_body(matrix: scipy.sparse.coo_matrix) -> Body:
    lists = {"row_indices": matrix.row.tolist(), "col_indices": matrix.col.tolist()}
    content = {"matrix": {"num_rows": matrix.shape[0], "num_cols": matrix.shape[1], **lists}, "search": "families"}
    return "application/json", json.dumps(content, separators=(",", ":")).encode()


def file_body(name: str, content: bytes) -> Body:
    request = httpx.Request("POST", "http://none", files={"file": (name, content)}, data={"search": "families"})
    return request.headers["content-type"], request.read()


def npz_body(matrix: scipy.sparse.spmatrix) -> Body:
    stream = io.BytesIO()
    scipy.sparse.save_npz(stream, matrix, compressed=True)
    return file_body("matrix.npz", stream.getvalue())


def matrix_market_body(matrix: scipy.sparse.coo_matrix) -> Body:
    stream = io.BytesIO()
    scipy.io.mmwrite(stream, matrix, precision=6)
    return file_body("matrix.mtx", stream.getvalue())


CASES: dict[str, tuple[int, int, Callable[[scipy.sparse.coo_matrix], Body]]] = {
    "json, 2e6 indices": (1_000_000, 2_000_000, json_body),
    "npz csr, 5e6 nonzeros": (1_000_000, 5_000_000, lambda matrix: npz_body(matrix.tocsr())),
    "npz coo, 5e6 nonzeros": (1_000_000, 5_000_000, npz_body),
    "mtx, 5e6 nonzeros": (1_000_000, 5_000_000, matrix_market_body),
}


@dataclass(frozen=True)
class Generator:
    """A running generator process."""

    pid: int
    url: str
    running_job: str
    """Path of the one job that runs; others wait."""

    def measure(self, name: str, body: Body, pattern: Pattern) -> Upload:
        (Path("/proc") / str(self.pid) / "clear_refs").write_text("5")
        idle_bytes = self.resident("VmRSS")
        post(self.url, body)
        accepted = self.resident("VmHWM") - idle_bytes
        httpx.delete(f"{self.url}{self.running_job}").raise_for_status()
        time.sleep(SETTLE_S)
        return Upload(
            name,
            pattern.num_rows,
            pattern.nnz,
            len(body[1]),
            pattern.num_bytes,
            accepted,
            self.resident("VmHWM") - idle_bytes,
            self.resident("VmRSS") - idle_bytes,
        )

    def resident(self, field: str) -> int:
        status = (Path("/proc") / str(self.pid) / "status").read_text()
        return 1024 * int(status.partition(f"{field}:")[2].split()[0])


def post(url: str, body: Body) -> str:
    """Path of the job."""
    content_type, content = body
    response = httpx.post(f"{url}/v1/kernels", content=content, headers={"content-type": content_type}, timeout=300)
    response.raise_for_status()
    return response.headers["location"]


def wait(url: str) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            readiness = httpx.get(f"{url}/readyz")
            if readiness.status_code == 200 and readiness.json().get("degraded") is None:
                return
        time.sleep(0.2)
    raise TimeoutError(f"{url} is not ready after {START_TIMEOUT_S} s")


@contextmanager
def running_generator() -> Iterator[Generator]:
    """A new process, so that no request finds memory that another has left. A small request has made it import all."""
    with tempfile.TemporaryDirectory() as folder:
        valkey = EmbeddedValkey(Path(folder) / "valkey")
        valkey.start()
        port = free_port()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
            "SPARSESMITH_REDIS_URL": valkey.address,
            "SPARSESMITH_GENERATOR_PORT": str(port),
            "SPARSESMITH_GENERATOR_POLICY_DIR": "",
            "SPARSESMITH_GENERATOR_MAX_RUNNING_JOBS": "1",
        }
        command = [sys.executable, "-m", "services.generator"]
        process = start(command, Path(folder) / "generator.log", environment)
        try:
            url = f"http://127.0.0.1:{port}"
            wait(url)
            yield Generator(process.pid, url, post(url, json_body(random_matrix(100, 500))))
        finally:
            stop(process, 5)
            valkey.stop()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu" / "memory.json")
    options = parser.parse_args(arguments)
    uploads, idle = [], []
    for name, (num_rows, nnz, make_body) in CASES.items():
        matrix = random_matrix(num_rows, nnz)
        pattern, body = pattern_from_scipy(matrix), make_body(matrix)
        with running_generator() as generator:
            idle.append(generator.resident("VmRSS"))
            uploads.append(generator.measure(name, body, pattern))
        print(f"{name}: {uploads[-1].ratio:.2f} x the pattern until accepted  {uploads[-1]}")
    write_result(options.out, report(uploads, max(idle)))
    return 0


def report(uploads: list[Upload], idle_bytes: int) -> dict[str, object]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "kind": "memory",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "idle_bytes": idle_bytes,
        "uploads": [{**asdict(upload), "ratio": round(upload.ratio, 2)} for upload in uploads],
    }


if __name__ == "__main__":
    raise SystemExit(main())
