"""What requests leave in Redis: in proportion to what was sent, bounded, and gone with the jobs that needed it."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from sparsesmith.transport.connection import Redis, connect
from sparsesmith_proto.kernel import CompileFailed
from tests.generator.live_service import Evaluators, live_service

BUDGET = {"candidates": 2, "seconds": 20}
SMALL = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}


@pytest.fixture
def redis_connection(redis_url: str) -> Iterator[Redis]:
    """Of the service's own server."""
    with connect(redis_url) as connection:
        yield connection


def mostly_empty(num_rows: int) -> dict[str, Any]:
    """About 80 bytes of JSON."""
    return {"num_rows": num_rows, "num_cols": 8, "row_indices": [num_rows - 1], "col_indices": [0]}


def scattered(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    rows, cols = random.integers(0, 10**6, (2, 30_000)).tolist()
    return {"num_rows": 10**6, "num_cols": 10**6, "row_indices": rows, "col_indices": cols}


def post(client: httpx.Client, matrix: dict[str, Any], **headers: str) -> httpx.Response:
    return client.post("/v1/kernels", json={"matrix": matrix, "search": "families", "budget": BUDGET}, headers=headers)


def stored(connection: Redis) -> list[str]:
    return sorted(key.decode() for key in connection.scan_iter("sparsesmith:pattern:*"))


def memory_of_everything(connection: Redis) -> int:
    return sum(int(connection.memory_usage(key, samples=0) or 0) for key in connection.scan_iter("*"))


def test_a_few_bytes_of_json_stay_a_few_bytes(redis_url: str, redis_connection: Redis) -> None:
    evaluators = Evaluators()
    evaluators.released.clear()
    with live_service(redis_url, evaluators) as client:
        response = post(client, mostly_empty(9_900_000))
        assert response.status_code == 202
        assert memory_of_everything(redis_connection) < 20_000
        evaluators.released.set()


@pytest.mark.parametrize("extent", ["num_rows", "num_cols"])
def test_a_shape_of_almost_nothing_but_empty_rows_is_refused_before_it_takes_memory(
    redis_url: str, extent: str
) -> None:
    matrix = {**SMALL, extent: 100_000_000}
    with live_service(redis_url, Evaluators()) as client:
        tracemalloc.start()
        response = post(client, matrix)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        text = f"%%MatrixMarket matrix coordinate pattern general\n{matrix['num_rows']} {matrix['num_cols']} 1\n1 1\n"
        upload = client.post("/v1/kernels", files={"file": ("m.mtx", text.encode())})
    assert (response.status_code, response.json()["field"]) == (413, f"matrix.{extent}")
    assert "leave empty rows and columns out" in response.json()["detail"]
    assert peak_bytes < 20_000_000
    assert upload.status_code == 413


def test_operands_that_no_gpu_holds_are_refused(redis_url: str, redis_connection: Redis) -> None:
    body = {"matrix": mostly_empty(16_000_000), "operation": "spmm", "num_dense_cols": 1024, "element_type": "float64"}
    with live_service(redis_url, Evaluators()) as client:
        response = client.post("/v1/kernels", json=body)
    assert (response.status_code, response.json()["field"]) == (413, "num_dense_cols")
    assert stored(redis_connection) == []


def test_a_cancelled_job_frees_its_matrix_unless_another_needs_it(redis_url: str, redis_connection: Redis) -> None:
    evaluators = Evaluators()
    evaluators.released.clear()
    with live_service(redis_url, evaluators, max_running_jobs=1) as client:
        first, second, third = (post(client, SMALL).headers["location"] for _ in range(3))
        for location in (first, third):
            assert client.delete(location).status_code == 204
            assert len(stored(redis_connection)) == 1
        assert client.delete(second).status_code == 204
        assert stored(redis_connection) == []
        evaluators.released.set()


def test_a_graded_program_and_a_failed_job_leave_no_matrix_and_a_finished_one_keeps_its_files(
    redis_url: str, redis_connection: Redis
) -> None:
    wait = {"Prefer": "wait=20"}
    with live_service(redis_url, Evaluators(CompileFailed(log="no"))) as client:
        client.post("/v1/evaluations", json={"matrix": SMALL, "program": "//"}, headers=wait)
        failed = client.post("/v1/kernels", json={"matrix": SMALL, "search": "sample"}, headers=wait)
        assert failed.json()["status"]["state"] == "failed"
        assert stored(redis_connection) == []
        location = post(client, SMALL, **wait).headers["location"]
        assert client.get(f"{location}/artifact").status_code == 200


def test_a_request_that_was_sent_twice_holds_its_matrix_once(redis_url: str, redis_connection: Redis) -> None:
    evaluators = Evaluators()
    evaluators.released.clear()
    with live_service(redis_url, evaluators) as client:
        locations = {post(client, SMALL, **{"Idempotency-Key": "k"}).headers["location"] for _ in range(3)}
        (location,) = locations
        assert client.delete(location).status_code == 204
        assert stored(redis_connection) == []
        evaluators.released.set()


def test_a_full_store_is_told_and_goes_on_when_there_is_room(redis_url: str, redis_connection: Redis) -> None:
    evaluators = Evaluators()
    evaluators.released.clear()
    with live_service(redis_url, evaluators, max_stored_bytes=2**20) as client:
        locations: list[str] = []
        while (response := post(client, scattered(len(locations)))).status_code == 202:
            locations.append(response.headers["location"])
        assert (response.status_code, response.json()["field"]) == (503, "max_stored_bytes")
        assert int(response.headers["retry-after"]) > 0
        assert len(locations) == 4
        assert sum(redis_connection.memory_usage(key, samples=0) for key in stored(redis_connection)) < 1.3 * 2**20
        assert post(client, SMALL).status_code == 202
        client.delete(locations[0])
        assert post(client, scattered(9)).status_code == 202
        evaluators.released.set()


def test_matrices_wait_for_their_turn_to_be_parsed_and_a_slow_body_takes_none(redis_url: str) -> None:
    with live_service(redis_url, Evaluators(), max_parsed_matrices=1) as client:
        body = json.dumps({"matrix": SMALL, "budget": BUDGET}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body))}

        def slow() -> Any:
            yield body[:10]
            with httpx.Client(base_url=client.base_url) as other:
                assert post(other, SMALL).status_code == 202
            yield body[10:]

        assert client.post("/v1/kernels", content=slow(), headers=headers).status_code == 202
