import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from sparsesmith.errors import Unavailable
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.job_store import Asker, IdempotencyKey, JobStore
from sparsesmith_proto.api import (
    Cancelled,
    Failed,
    Finished,
    Graded,
    JobStatus,
    LibraryAnswer,
    Running,
    TunedAnswer,
)
from tests.generator.live_service import Evaluators, live_service

MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
PROGRAM = "//@ format csr\n//@ launch spmv grid=1 block=32\n"


@pytest.fixture
def evaluators() -> Evaluators:
    return Evaluators()


@pytest.fixture
def client(redis_url: str, evaluators: Evaluators) -> Iterator[httpx.Client]:
    with live_service(
        redis_url, evaluators, max_body_bytes=200_000, max_json_bytes=100_000, max_json_indices=5000
    ) as client:
        yield client


def kernel_request(**changes: Any) -> dict[str, Any]:
    return {"matrix": MATRIX, "budget": {"candidates": 6, "seconds": 20}, **changes}


def status_of(response: httpx.Response) -> JobStatus:
    assert response.is_success, response.text
    return JobStatus.model_validate_json(response.content)


def finished(client: httpx.Client, location: str) -> JobStatus:
    return status_of(client.get(location, headers={"Prefer": "wait=20"}))


def matrix_market() -> bytes:
    buffer = io.BytesIO()
    scipy.io.mmwrite(buffer, scipy.sparse.random(20, 20, 0.2, rng=np.random.default_rng(0)))
    return buffer.getvalue()


def test_a_kernel_is_tuned(client: httpx.Client) -> None:
    accepted = client.post("/v1/kernels", json=kernel_request())
    assert accepted.status_code == 202
    assert accepted.headers["location"] == f"/v1/kernels/{status_of(accepted).job_id}"
    state = finished(client, accepted.headers["location"]).status
    assert isinstance(state, Finished)
    assert isinstance(state.report.answer, TunedAnswer)
    assert state.report.search.num_candidates == 6
    assert (state.report.num_rows, state.report.num_cols, state.report.nnz) == (3, 4, 4)


def test_the_result_comes_at_once_with_prefer_wait(client: httpx.Client) -> None:
    response = client.post("/v1/kernels", json=kernel_request(), headers={"Prefer": "respond-async, wait=10"})
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=10"
    assert isinstance(status_of(response).status, Finished)


def test_a_wait_that_is_too_short_gives_the_state_so_far(client: httpx.Client, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    response = client.post("/v1/kernels", json=kernel_request(), headers={"Prefer": "wait=1"})
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "wait=1"
    evaluators.released.set()


def test_the_library_is_recommended_where_no_candidate_passes(redis_url: str) -> None:
    from sparsesmith_proto.kernel import CompileFailed

    with live_service(redis_url, Evaluators(CompileFailed(log="no"))) as client:
        response = client.post("/v1/kernels", json=kernel_request(), headers={"Prefer": "wait=10"})
    state = status_of(response).status
    assert isinstance(state, Finished)
    assert isinstance(state.report.answer, LibraryAnswer)


@pytest.mark.parametrize("name", ["m.mtx", "M.MTX.GZ", "m.npz"])
def test_a_matrix_file_is_taken(client: httpx.Client, name: str) -> None:
    import gzip

    content = matrix_market()
    if name.lower().endswith(".gz"):
        content = gzip.compress(content)
    if name.endswith(".npz"):
        buffer = io.BytesIO()
        scipy.sparse.save_npz(buffer, scipy.sparse.random(20, 20, 0.2, format="csr"))
        content = buffer.getvalue()
    fields = {"operation": "spmm", "num_dense_cols": "8", "budget_candidates": "4", "budget_seconds": "20"}
    response = client.post("/v1/kernels", data=fields, files={"file": (name, content)}, headers={"Prefer": "wait=10"})
    state = status_of(response).status
    assert isinstance(state, Finished)
    assert (state.report.workload.operation, state.report.workload.num_dense_cols) == ("spmm", 8)
    assert state.report.search.num_candidates == 4


def test_a_program_is_graded(client: httpx.Client) -> None:
    body = {"matrix": MATRIX, "program": PROGRAM}
    accepted = client.post("/v1/evaluations", json=body)
    assert accepted.status_code == 202
    state = finished(client, accepted.headers["location"]).status
    assert isinstance(state, Graded)
    assert state.answer.evaluation.candidate.program == PROGRAM


def test_equal_bits_are_asked_of_the_evaluators_and_promised_in_the_answer(
    client: httpx.Client, evaluators: Evaluators
) -> None:
    tuned = client.post("/v1/kernels", json=kernel_request(deterministic=True), headers={"Prefer": "wait=10"})
    state = status_of(tuned).status
    assert isinstance(state, Finished)
    assert state.report.workload.deterministic
    body = {"matrix": MATRIX, "program": PROGRAM, "deterministic": True}
    graded = status_of(client.post("/v1/evaluations", json=body, headers={"Prefer": "wait=10"})).status
    assert isinstance(graded, Graded)
    assert graded.answer.workload.deterministic
    assert all(job.workload.deterministic for job, _ in evaluators.jobs.values())


@pytest.mark.parametrize("as_file", [True, False])
def test_a_program_is_graded_on_a_matrix_file(client: httpx.Client, as_file: bool) -> None:
    files: dict[str, Any] = {"file": ("m.mtx", matrix_market())}
    data = {}
    if as_file:
        files["program"] = ("p.cu", PROGRAM.encode())
    else:
        data["program"] = PROGRAM
    response = client.post("/v1/evaluations", data=data, files=files, headers={"Prefer": "wait=10"})
    assert isinstance(status_of(response).status, Graded)


def bad(*path: str, **changes: Any) -> dict[str, Any]:
    """A request with one part of the matrix changed."""
    return kernel_request(matrix={**MATRIX, **changes})


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"budget": {}}, 422, "matrix"),
        (kernel_request(matrix=[]), 422, "matrix"),
        (kernel_request(matrix=None), 422, "matrix"),
        (bad(num_rows=0), 422, "matrix.num_rows"),
        (bad(num_rows=1.5), 422, "matrix.num_rows"),
        (bad(num_rows="many"), 422, "matrix.num_rows"),
        (bad(num_rows=2**31), 422, "matrix.num_rows"),
        (bad(num_rows=2**31 - 1), 413, "matrix.num_rows"),
        (bad(num_cols=100_000_001), 413, "matrix.num_cols"),
        (bad(row_indices=[0, 0, 1, 3]), 422, "matrix.row_indices[3]"),
        (bad(row_indices=[0, 0, 1, -1]), 422, "matrix.row_indices[3]"),
        (bad(row_indices=[0, 0, 1, 2.5]), 422, "matrix.row_indices[3]"),
        (bad(row_indices=[0, 0, 1, 10**30]), 422, "matrix.row_indices[3]"),
        (bad(row_indices=[0, 0]), 422, "matrix.col_indices"),
        (bad(row_indices=[], col_indices=[]), 422, "matrix.nnz"),
        (bad(row_indices="zero"), 422, "matrix.row_indices"),
        (bad(values=[1.0]), 422, "matrix.values"),
        (bad(row_indices=[0] * 5001, col_indices=[0] * 5001), 413, "matrix.row_indices"),
        (kernel_request(operation="spgemm"), 422, "operation"),
        (kernel_request(element_type="int8"), 422, "element_type"),
        (kernel_request(num_dense_cols=4), 422, "num_dense_cols"),
        (kernel_request(operation="spmm", num_dense_cols=5000), 422, "num_dense_cols"),
        (kernel_request(budget={"candidates": 0}), 422, "budget.candidates"),
        (kernel_request(budget={"seconds": 1e9}), 422, "budget.seconds"),
        (kernel_request(search="guess"), 422, "search"),
        (kernel_request(colour="red"), 422, "colour"),
    ],
)
def test_a_wrong_field_is_named(client: httpx.Client, body: dict[str, Any], status: int, field: str) -> None:
    response = client.post("/v1/kernels", json=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["status"], problem["field"]) == (status, field)
    assert problem["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"null",
        b'{"matrix": ',
        b"\xff\xfe",
        b'{"matrix": {"num_rows": NaN}}',
        b'{"operation": "\xff", "matrix": {}}',
        b'{"\xff": 1}',
        b'{"matrix": ' + b"[" * 90_000,
        b'{"matrix":' * 9000,
    ],
)
def test_a_body_that_is_not_json_is_a_problem(client: httpx.Client, body: bytes) -> None:
    response = client.post("/v1/kernels", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"


def test_another_content_type_is_refused(client: httpx.Client) -> None:
    response = client.post("/v1/kernels", content=b"x", headers={"content-type": "text/csv"})
    assert (response.status_code, response.headers["content-type"]) == (415, "application/problem+json")


@pytest.mark.parametrize(
    ("files", "data", "status", "field"),
    [
        ({}, {"operation": "spmv"}, 422, "file"),
        ({"file": ("m.csv", b"1")}, {}, 422, "file"),
        ({"file": ("m.mtx", b"not a matrix")}, {}, 422, None),
        ({"file": ("m.mtx", matrix_market())}, {"budget_candidates": "lots"}, 422, "budget_candidates"),
        ({"file": ("m.mtx", matrix_market())}, {"budget_minutes": "1"}, 422, "budget_minutes"),
        ({"file": ("m.mtx", matrix_market()), "other": ("o", b"1")}, {}, 422, "other"),
    ],
)
def test_a_wrong_form_is_a_problem(
    client: httpx.Client, files: dict[str, Any], data: dict[str, str], status: int, field: str | None
) -> None:
    if not files:
        files = {"unnamed": ("", b"")}
    response = client.post("/v1/kernels", files=files, data=data)
    assert response.status_code == status, response.text
    if field is not None:
        assert response.json()["field"] == field


@pytest.mark.parametrize("name", ["file", "search"])
def test_a_form_field_that_comes_twice_is_a_problem(client: httpx.Client, name: str) -> None:
    matrix, option = ("m.mtx", matrix_market()), (None, b"families")
    part = matrix if name == "file" else option
    response = client.post("/v1/kernels", files=[("file", matrix), ("search", option), (name, part)])
    assert (response.status_code, response.json()["field"]) == (422, name)


def test_a_form_that_is_cut_short_is_a_problem(client: httpx.Client) -> None:
    headers = {"content-type": "multipart/form-data"}
    response = client.post("/v1/kernels", content=b"--x\r\n", headers=headers)
    assert (response.status_code, response.headers["content-type"]) == (400, "application/problem+json")


def test_an_archive_of_odd_shapes_is_a_problem(client: httpx.Client) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775807, 8)}"
        archive.writestr("data.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    response = client.post("/v1/kernels", files={"file": ("m.npz", buffer.getvalue())})
    assert (response.status_code, response.json()["field"]) == (422, "data.npy")


def test_a_program_that_is_not_utf8_is_a_problem(client: httpx.Client) -> None:
    files = {"file": ("m.mtx", matrix_market()), "program": ("p.cu", b"//\xff")}
    response = client.post("/v1/evaluations", files=files)
    assert (response.status_code, response.json()["field"]) == (422, "program")


def test_a_large_body_is_refused_before_it_has_been_read(client: httpx.Client) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 50_000_000:
            sent += 65536
            yield b" " * 65536

    headers = {"content-type": "application/json"}
    try:
        response = client.post("/v1/kernels", content=endless(), headers=headers)
    except httpx.TransportError:  # The server has closed the connection after its answer.
        pass
    else:
        assert (response.status_code, response.json()["limit"]) == (413, "100000")
    assert sent < 50_000_000


def test_a_declared_length_beyond_the_limit_is_refused(client: httpx.Client) -> None:
    response = client.post("/v1/kernels", files={"file": ("m.mtx", b" " * 300_000)})
    assert (response.status_code, response.json()["field"]) == (413, "body")


def test_an_unknown_job_is_not_found(client: httpx.Client) -> None:
    for path in ("/v1/kernels/none", "/v1/evaluations/none", "/v1/kernels/none/events", "/v1/kernels/none/artifact"):
        response = client.get(path)
        assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json"), path
    assert client.get("/nowhere").headers["content-type"] == "application/problem+json"


def test_the_same_idempotency_key_gives_the_same_job(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = client.post("/v1/kernels", json=kernel_request(), headers=headers)
    again = client.post("/v1/kernels", json=kernel_request(operation="spmv"), headers=headers)
    other = client.post("/v1/kernels", json=kernel_request(element_type="float64"), headers=headers)
    assert first.headers["location"] == again.headers["location"]
    assert (other.status_code, other.json()["field"]) == (409, "Idempotency-Key")


def test_the_same_question_is_answered_from_the_cache(client: httpx.Client, evaluators: Evaluators) -> None:
    wait = {"Prefer": "wait=10"}
    first = status_of(client.post("/v1/kernels", json=kernel_request(), headers=wait)).status
    num_jobs = len(evaluators.jobs)
    again = status_of(client.post("/v1/kernels", json=kernel_request(), headers=wait)).status
    assert again == first
    assert len(evaluators.jobs) == num_jobs
    client.post("/v1/kernels", json=kernel_request(), headers={**wait, "Cache-Control": "no-cache"})
    assert len(evaluators.jobs) > num_jobs
    num_jobs = len(evaluators.jobs)
    client.post("/v1/kernels", json=kernel_request(budget={"candidates": 20, "seconds": 20}), headers=wait)
    assert len(evaluators.jobs) > num_jobs, "a larger budget is another search"


def test_a_cancelled_job_stops_and_withdraws_its_evaluations(client: httpx.Client, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    location = client.post("/v1/kernels", json=kernel_request()).headers["location"]
    while not evaluators.jobs:
        time.sleep(0.02)
    assert client.delete(location).status_code == 204
    assert isinstance(status_of(client.get(location)).status, Cancelled)
    while evaluators.cancelled != set(evaluators.jobs):
        time.sleep(0.02)
    assert client.delete(location).status_code == 409


def test_a_job_in_the_queue_knows_its_place_and_can_be_cancelled(redis_url: str, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    with live_service(redis_url, evaluators, max_running_jobs=1) as client:
        # Equal requests would share one search.
        orders = [kernel_request(operation="spmm", num_dense_cols=columns) for columns in (1, 2, 3, 4)]
        locations = [client.post("/v1/kernels", json=order).headers["location"] for order in orders]
        while not evaluators.jobs:
            time.sleep(0.02)
        places = [client.get(location).json()["status"].get("position") for location in locations]
        assert places == [None, 0, 1, 2]
        client.delete(locations[2])
        assert client.get(locations[3]).json()["status"]["position"] == 1
        evaluators.released.set()
        assert isinstance(finished(client, locations[3]).status, Finished)


def test_a_job_that_is_cancelled_by_many_at_once_ends_once(redis_url: str, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    with live_service(redis_url, evaluators) as client:
        location = client.post("/v1/kernels", json=kernel_request()).headers["location"]
        while not evaluators.jobs:
            time.sleep(0.02)
        with ThreadPoolExecutor(8) as pool:
            codes = sorted(pool.map(lambda _: client.delete(location).status_code, range(8)))
        assert set(codes) <= {204, 409}
        assert codes[0] == 204
    events = JobStore(connect(redis_url)).events(location.rsplit("/", 1)[1])
    assert [event.status.status.state for event in events].count("cancelled") == 1


class CutOff(JobStore):
    """A store whose server writes what it is told to and dies before it answers, once each."""

    def __init__(self, connection: Redis) -> None:
        super().__init__(connection)
        self.dies = {"accept", "update"}

    def accept(
        self,
        status: JobStatus,
        request: str,
        idempotency: IdempotencyKey | None = None,
        asker: Asker | None = None,
        detail: str = "",
    ) -> str:
        job_id = super().accept(status, request, idempotency, asker, detail)
        self._die("accept")
        return job_id

    def update(self, status: JobStatus, canceller: Asker | None = None) -> bool:
        is_written = super().update(status, canceller)
        if isinstance(status.status, Finished):
            self._die("update")
        return is_written

    def _die(self, what: str) -> None:
        if what in self.dies:
            self.dies.remove(what)
            raise Unavailable("Redis does not answer", field="redis_url")


def test_a_job_whose_acceptance_and_whose_end_an_outage_cut_off_is_answered_once(
    redis_url: str, evaluators: Evaluators
) -> None:
    with live_service(redis_url, evaluators, jobs=CutOff(connect(redis_url))) as client:
        key = {"Idempotency-Key": "k", "Prefer": "wait=20"}
        assert client.post("/v1/kernels", json=kernel_request(), headers=key).status_code == 503
        again = client.post("/v1/kernels", json=kernel_request(), headers=key)
        status = status_of(again)
        assert isinstance(status.status, Finished)
        assert [each["job_id"] for each in client.get("/v1/kernels").json()["jobs"]] == [status.job_id]
    events = JobStore(connect(redis_url)).events(status.job_id)
    assert [event.status.status.state for event in events].count("finished") == 1


def test_a_job_that_could_not_be_cancelled_goes_on(redis_url: str, evaluators: Evaluators) -> None:
    class Deaf(JobStore):
        def update(self, status: JobStatus, canceller: Asker | None = None) -> bool:
            if isinstance(status.status, Cancelled):
                raise Unavailable("Redis does not answer", field="redis_url")
            return super().update(status, canceller)

    evaluators.released.clear()
    with live_service(redis_url, evaluators, jobs=Deaf(connect(redis_url))) as client:
        location = client.post("/v1/kernels", json=kernel_request()).headers["location"]
        while not evaluators.jobs:
            time.sleep(0.02)
        assert client.delete(location).status_code == 503
        evaluators.released.set()
        assert isinstance(finished(client, location).status, Finished)


def test_a_full_queue_is_told(redis_url: str, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    with live_service(redis_url, evaluators, max_running_jobs=1, max_waiting_jobs=2) as client:
        codes = []
        for _ in range(5):
            response = client.post("/v1/kernels", json=kernel_request())
            codes.append(response.status_code)
            while not evaluators.jobs:
                time.sleep(0.02)
        assert codes == [202, 202, 202, 503, 503]
        assert int(response.headers["retry-after"]) > 0
        evaluators.released.set()


def test_a_request_that_comes_again_is_its_old_job_though_the_queue_is_full(
    redis_url: str, evaluators: Evaluators
) -> None:
    evaluators.released.clear()
    with live_service(redis_url, evaluators, max_running_jobs=1, max_waiting_jobs=1) as client:

        def posted(key: str) -> httpx.Response:
            return client.post("/v1/kernels", json=kernel_request(), headers={"Idempotency-Key": key})

        first = posted("first")
        while not evaluators.jobs:
            time.sleep(0.02)
        waits = posted("waits")
        assert (first.status_code, waits.status_code) == (202, 202)
        assert posted("new").status_code == 503
        for key, earlier in (("first", first), ("waits", waits)):
            again = posted(key)
            assert (again.status_code, again.headers["location"]) == (202, earlier.headers["location"])
        evaluators.released.set()


def test_jobs_share_the_evaluators(redis_url: str) -> None:
    evaluators = Evaluators(seconds=0.5)
    with live_service(redis_url, evaluators, batch_candidates=2, max_running_jobs=2, cache_ttl_s=0) as client:
        big = kernel_request(budget={"candidates": 60, "seconds": 30})
        large = client.post("/v1/kernels", json=big).headers["location"]
        small = client.post("/v1/kernels", json=kernel_request()).headers["location"]
        assert isinstance(finished(client, small).status, Finished)
        assert isinstance(status_of(client.get(large)).status, Running)


def events_of(
    client: httpx.Client, location: str, last_event_id: str | None = None
) -> list[tuple[str, str, JobStatus]]:
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    events: list[tuple[str, str, JobStatus]] = []
    current: dict[str, str] = {}
    with client.stream("GET", f"{location}/events", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line == "" and "data" in current:
                events.append((current["id"], current["event"], JobStatus.model_validate_json(current["data"])))
                current = {}
            name, _, value = line.partition(": ")
            current[name] = value
    return events


def test_events_end_with_the_answer_and_go_on_where_they_left_off(client: httpx.Client) -> None:
    location = client.post("/v1/kernels", json=kernel_request()).headers["location"]
    events = events_of(client, location)
    assert [name for _, name, _ in events] == ["queued", "running", "running", "running", "finished"]
    assert events_of(client, location, last_event_id=events[1][0]) == events[2:]
    assert events_of(client, location, last_event_id=events[-1][0]) == []
    assert events_of(client, location, last_event_id="rubbish") == events


@pytest.mark.parametrize("kind", ["cu", "hpp", "py", "json", "candidates", "zip"])
def test_the_answer_can_be_taken_home(client: httpx.Client, kind: str) -> None:
    location = client.post("/v1/kernels", json=kernel_request(), headers={"Prefer": "wait=10"}).headers["location"]
    response = client.get(f"{location}/artifact", params={"kind": kind})
    assert response.status_code == 200, response.text
    assert response.content
    assert f".{kind}" in response.headers["content-disposition"]


def test_an_unfinished_job_has_no_artifact_and_an_unknown_kind_is_a_problem(
    client: httpx.Client, evaluators: Evaluators
) -> None:
    evaluators.released.clear()
    location = client.post("/v1/kernels", json=kernel_request()).headers["location"]
    assert client.get(f"{location}/artifact").status_code == 409
    response = client.get(f"{location}/artifact", params={"kind": "exe"})
    assert (response.status_code, response.json()["field"]) == (422, "kind")
    evaluators.released.set()


def test_sampling_without_a_policy_fails_plainly(client: httpx.Client) -> None:
    response = client.post("/v1/kernels", json=kernel_request(search="sample"), headers={"Prefer": "wait=10"})
    state = status_of(response).status
    assert isinstance(state, Failed)
    assert state.problem.field == "search"
    assert client.get("/v1/policy").status_code == 404


def test_health_readiness_and_metrics(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready", "degraded": None}
    client.post("/v1/kernels", json=kernel_request(), headers={"Prefer": "wait=10"})
    text = client.get("/metrics").text
    assert 'sparsesmith_candidates_total{origin="family",outcome="passed"} 6.0' in text
    assert 'sparsesmith_jobs_ended_total{kind="kernel",state="finished"} 1.0' in text
    assert client.get("/openapi.json").status_code == 200


def test_without_redis_the_service_is_alive_and_not_ready() -> None:
    with live_service("unix:///nonexistent/valkey.sock", Evaluators()) as client:
        assert client.get("/healthz").status_code == 200
        response = client.get("/readyz")
        assert (response.status_code, response.json()["field"]) == (503, "redis_url")
        response = client.post("/v1/kernels", json=kernel_request())
        assert (response.status_code, "retry-after" in response.headers) == (503, True)


def test_a_stopped_service_leaves_its_jobs_to_the_next(redis_url: str, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    with live_service(redis_url, evaluators, max_running_jobs=1) as client:
        locations = [client.post("/v1/kernels", json=kernel_request()).headers["location"] for _ in range(3)]
        while not evaluators.jobs:
            time.sleep(0.02)
    evaluators.released.set()
    with live_service(redis_url, evaluators, max_running_jobs=1) as client:
        assert all(isinstance(finished(client, location).status, Finished) for location in locations)


def test_a_large_body_does_not_hold_up_other_requests(redis_url: str) -> None:
    nnz = 1_000_000
    random = np.random.default_rng(0)
    matrix = {
        "num_rows": 10**6,
        "num_cols": 10**6,
        "row_indices": random.integers(0, 10**6, nnz).tolist(),
        "col_indices": random.integers(0, 10**6, nnz).tolist(),
    }
    body = json.dumps(kernel_request(matrix=matrix)).encode()
    slowest_s = 0.0
    with live_service(redis_url, Evaluators()) as client:
        posted: list[httpx.Response] = []
        headers = {"content-type": "application/json"}
        post = threading.Thread(
            target=lambda: posted.append(
                httpx.post(f"{client.base_url}/v1/kernels", content=body, headers=headers, timeout=60)
            )
        )
        began = time.monotonic()
        post.start()
        while post.is_alive():
            started = time.monotonic()
            assert client.get("/healthz").status_code == 200
            slowest_s = max(slowest_s, time.monotonic() - started)
        took_s = time.monotonic() - began
        assert posted[0].status_code == 202
    assert slowest_s < max(1.0, took_s / 2), "one that is held up waits nearly as long as the body takes"


def test_a_small_matrix_waits_for_no_large_one(redis_url: str, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    size = 200_000
    large = {"num_rows": size, "num_cols": size, "row_indices": [0], "col_indices": [0]}
    with live_service(redis_url, evaluators, max_running_jobs=2) as client:
        for seconds in (600, 601, 602):
            budget = {"candidates": 4096, "seconds": seconds}
            assert client.post("/v1/kernels", json=kernel_request(matrix=large, budget=budget)).status_code == 202
        small = client.post("/v1/kernels", json=kernel_request()).headers["Location"]
        end = time.monotonic() + 30
        while not isinstance(status_of(client.get(small)).status, Running):
            assert time.monotonic() < end, "it still waits"
            time.sleep(0.05)
        evaluators.released.set()
        assert isinstance(finished(client, small).status, Finished)


def test_equal_requests_at_one_time_are_searched_once(redis_url: str, evaluators: Evaluators) -> None:
    evaluators.released.clear()
    with live_service(redis_url, evaluators, max_running_jobs=4) as client:
        jobs = [client.post("/v1/kernels", json=kernel_request()).headers["Location"] for _ in range(3)]
        while not evaluators.jobs:
            time.sleep(0.02)
        time.sleep(0.5)
        evaluators.released.set()
        answers = [finished(client, job).status for job in jobs]
    assert all(isinstance(answer, Finished) for answer in answers)
    assert len({job_id.partition(".")[0] for job_id in evaluators.jobs}) == 1
