"""Clients of the soak that do not behave: slow ones, ones that vanish, ones with large matrices. Each works until the load is
over and counts what it did; jobs that come of it are jobs as any other."""

import io
import json
import random
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import scipy.sparse

from benchmarks.service.load import PAUSE_S, Load, small_request

DRIP_BYTES = 16
DRIP_S = 0.2
DECLARED_BYTES = 2**20
"""Of a slow client's body, of which it sends a little at a time: the server ends it, or somebody kills the server."""
ROW_NONZEROS = 10


def slow(load: Load, seed: int) -> None:
    """Sends bodies by drops until the server has enough of it."""
    while not load.stop.is_set():
        with _opened(load) as connection:
            if connection is None:
                continue
            try:
                connection.sendall(_head(load, {"Content-Length": str(DECLARED_BYTES)}))
                while not load.stop.wait(DRIP_S):
                    connection.sendall(b" " * DRIP_BYTES)
            except OSError:
                load.count("slow client ended by the server")


def vanishing(load: Load, seed: int) -> None:
    """Leaves in the middle of a body, before the answer, and in the middle of a job's events. Of what it was not told it
    asks again under the same key, as a client does whose line broke."""
    chosen = random.Random(f"vanishing {seed}")
    with httpx.Client() as client:
        while not load.stop.is_set():
            key, body = f"vanish-{seed}-{chosen.getrandbits(64)}", small_request(chosen)
            text = json.dumps(body).encode()
            headers = {"Idempotency-Key": key, "Content-Length": str(len(text))}
            _send_and_leave(load, _head(load, headers) + text[: len(text) // 2])
            load.count("left in the middle of a body")
            _send_and_leave(load, _head(load, headers) + text)
            load.count("left before the answer")
            job = load.accepted(client, key, json=body)
            if job is not None:
                _send_and_leave(load, _get(load, f"/v1/kernels/{job.job_id}/events"), PAUSE_S)
                load.count("left in the middle of events")
            time.sleep(chosen.uniform(0, 2 * PAUSE_S))


def uploading(load: Load, seed: int, nnz: int) -> None:
    """Sends large matrices as files, and stops their jobs: what is tried is the way in."""
    chosen = random.Random(f"uploading {seed}")
    with httpx.Client() as client:
        while not load.stop.is_set():
            file = ("large.npz", large_matrix(nnz, chosen.getrandbits(32)))
            options = {"search": "families", "budget_candidates": "1", "budget_seconds": "120"}
            key = f"upload-{seed}-{chosen.getrandbits(64)}"
            job = load.accepted(client, key, files={"file": file}, data=options)
            load.count("large uploads")
            if job is not None:
                load.cancel(client, job)
            time.sleep(chosen.uniform(0, 2 * PAUSE_S))


def large_matrix(nnz: int, seed: int) -> bytes:
    """A square one as SciPy saves it."""
    size = max(1, nnz // ROW_NONZEROS)
    generator = np.random.default_rng(seed)
    columns = generator.integers(0, size, (size, ROW_NONZEROS), dtype=np.int32)
    offsets = np.arange(0, ROW_NONZEROS * size + 1, ROW_NONZEROS, dtype=np.int32)
    matrix = scipy.sparse.csr_matrix((np.ones(columns.size, np.float32), columns.ravel(), offsets), (size, size))
    matrix.sum_duplicates()
    file = io.BytesIO()
    scipy.sparse.save_npz(file, matrix, compressed=False)
    return file.getvalue()


class _opened:
    """A connection to the server; None where there is none at the moment."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._connection: socket.socket | None = None

    def __enter__(self) -> socket.socket | None:
        address = urlsplit(self._load.url)
        try:
            self._connection = socket.create_connection((address.hostname, address.port), 10)
        except OSError:
            time.sleep(PAUSE_S)
        return self._connection

    def __exit__(self, *ended: Any) -> None:
        if self._connection is not None:
            self._connection.close()


def _send_and_leave(load: Load, text: bytes, after_s: float = 0.0) -> None:
    with _opened(load) as connection:
        if connection is not None:
            try:
                connection.sendall(text)
                time.sleep(after_s)
            except OSError:
                pass  # The server was killed first.


def _head(load: Load, headers: dict[str, str]) -> bytes:
    lines = [
        "POST /v1/kernels HTTP/1.1",
        f"Host: {urlsplit(load.url).netloc}",
        "Content-Type: application/json",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _get(load: Load, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {urlsplit(load.url).netloc}\r\n\r\n".encode()
