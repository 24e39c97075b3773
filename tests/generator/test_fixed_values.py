"""values=fixed from the request to the answer: a real service, real workers' code on the interpreter."""

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import NotFound
from sparsesmith.matrix.values import fixed_values
from sparsesmith.transport.connection import connect
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith_proto.api import EvaluationAnswer, Finished, Graded, JobStatus, KernelReport, TunedAnswer
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import FromFamily, Mismatch, Passed, Rejected
from tests.generator.live_service import Evaluators, live_service

HEAD = "int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices"
CONSTANT = f"""//@ format csr
//@ values constant
//@ launch spmv grid=ceil_div(num_rows,64) block=64
extern "C" __global__ void spmv({HEAD}, const float* constant_value, const float* x, float* y) {{
  int row = blockIdx.x * 64 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += x[col_indices[j]];
  y[row] = sum * constant_value[0];
}}
"""
TWOS_IN_THE_TEXT = CONSTANT.replace("//@ values constant\n", "").replace("constant_value[0]", "2.0f")
TWOS_IN_THE_TEXT = TWOS_IN_THE_TEXT.replace("constant_value", "values")


class GradingQueue(Evaluators):
    """A work queue that grades in this process, on the interpreter."""

    def __init__(self, patterns: PatternStore, grader: Grader) -> None:
        super().__init__()
        self._patterns = patterns
        self._grader = grader
        self._turn = threading.Lock()
        self._reports: dict[str, EvaluationReport] = {}

    def wait(self, job_id: str, timeout_s: float) -> EvaluationReport | None:
        if job_id not in self.jobs:
            raise NotFound(job_id)
        with self._turn:
            if job_id not in self._reports:
                job: EvaluationJob = self.jobs[job_id][0]
                self._reports[job_id] = self._grader.grade(job, self._patterns)
        return self._reports[job_id]


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    settings = EvaluatorSettings(device="interpreter")
    process = device_process(settings)
    with Compiler(1, timeout_s=settings.compile_limit_s) as compiler:
        yield Grader(process, compiler)
    process.close()


@pytest.fixture
def client(redis_url: str, grader: Grader) -> Iterator[httpx.Client]:
    queue = GradingQueue(PatternStore(connect(redis_url)), grader)
    with live_service(redis_url, queue, max_wait_s=120) as client:
        client.timeout = httpx.Timeout(130)
        yield client


def poisson(side: int = 20) -> scipy.sparse.csr_matrix:
    line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))
    identity = scipy.sparse.identity(side)
    return scipy.sparse.csr_matrix(scipy.sparse.kron(line, identity) + scipy.sparse.kron(identity, line))


def indices(matrix: Any, values: list[float] | None) -> dict[str, Any]:
    coo = scipy.sparse.coo_matrix(matrix)
    lists = {"row_indices": coo.row.tolist(), "col_indices": coo.col.tolist()}
    given = {} if values is None else {"values": values}
    return {"num_rows": coo.shape[0], "num_cols": coo.shape[1], **lists, **given}


def json_of(matrix: Any) -> dict[str, Any]:
    return indices(matrix, scipy.sparse.coo_matrix(matrix).data.tolist())


def graded(client: httpx.Client, program: str, matrix: dict[str, Any], **options: Any) -> EvaluationAnswer:
    body = {"program": program, "matrix": matrix, **options}
    response = client.post("/v1/evaluations", json=body, headers={"Prefer": "wait=100"})
    assert response.is_success, response.text
    state = JobStatus.model_validate_json(response.content).status
    assert isinstance(state, Graded), state
    return state.answer


def tuned(client: httpx.Client, body: dict[str, Any], **headers: str) -> KernelReport:
    response = client.post("/v1/kernels", json=body, headers={"Prefer": "wait=100", **headers})
    assert response.is_success, response.text
    state = JobStatus.model_validate_json(response.content).status
    assert isinstance(state, Finished), state
    return state.report


def problem(client: httpx.Client, matrix: str) -> dict[str, Any]:
    content = f'{{"values": "fixed", "matrix": {matrix}}}'
    response = client.post("/v1/kernels", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 422, response.text
    found: dict[str, Any] = response.json()
    return found


TWOS = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}


def test_compressed_values_are_refused_for_any_values_and_accepted_for_fixed_ones(client: httpx.Client) -> None:
    refused = graded(client, CONSTANT, TWOS).evaluation.outcome
    assert isinstance(refused, Rejected)
    assert "values=fixed" in refused.message
    answer = graded(client, CONSTANT, {**TWOS, "values": [2, 2, 2, 2]}, values="fixed")
    assert isinstance(answer.evaluation.outcome, Passed)
    assert answer.evaluation.outcome.storage_format == "csr values=constant"
    assert answer.workload.values == fixed_values(np.full(4, 2.0), "float32").digest


def test_a_storage_that_the_values_do_not_fit_is_refused_with_the_values(client: httpx.Client) -> None:
    outcome = graded(client, CONSTANT, {**TWOS, "values": [2, 2, 3, 2]}, values="fixed").evaluation.outcome
    assert isinstance(outcome, Rejected)
    assert "2.0 and 3.0" in outcome.message


def test_values_in_the_program_text_are_right_for_those_values_only(client: httpx.Client) -> None:
    assert isinstance(graded(client, TWOS_IN_THE_TEXT, TWOS).evaluation.outcome, Mismatch)
    twos, threes = ({**TWOS, "values": [value] * 4} for value in (2, 3))
    assert isinstance(graded(client, TWOS_IN_THE_TEXT, twos, values="fixed").evaluation.outcome, Passed)
    assert isinstance(graded(client, TWOS_IN_THE_TEXT, threes, values="fixed").evaluation.outcome, Mismatch)


def test_values_of_duplicates_are_added_up_in_any_order(client: httpx.Client) -> None:
    matrix = {
        "num_rows": 3,
        "num_cols": 4,
        "row_indices": [2, 0, 1, 0, 0],
        "col_indices": [2, 3, 1, 0, 3],
        "values": [2, 1.5, 2, 2, 0.5],
    }
    answer = graded(client, CONSTANT, matrix, values="fixed")
    assert isinstance(answer.evaluation.outcome, Passed)
    assert answer.workload == graded(client, CONSTANT, {**TWOS, "values": [2] * 4}, values="fixed").workload


@pytest.mark.parametrize("as_file", [False, True])
def test_a_stencil_is_tuned_for_its_values_and_the_artifacts_say_so(client: httpx.Client, as_file: bool) -> None:
    if as_file:
        buffer = io.BytesIO()
        scipy.io.mmwrite(buffer, poisson())
        fields = {"values": "fixed", "search": "families", "budget_candidates": "6", "budget_seconds": "60"}
        response = client.post(
            "/v1/kernels",
            data=fields,
            files={"file": ("m.mtx", buffer.getvalue())},
            headers={"Prefer": "wait=100"},
        )
    else:
        body = {"values": "fixed", "search": "families", "budget": {"candidates": 6, "seconds": 60}}
        response = client.post(
            "/v1/kernels", json={**body, "matrix": json_of(poisson())}, headers={"Prefer": "wait=100"}
        )
    status = JobStatus.model_validate_json(response.content)
    assert isinstance(status.status, Finished), status.status
    report = status.status.report
    assert report.workload.values == fixed_values(poisson().data, "float32").digest
    assert set(report.search.outcomes) == {"passed"}
    assert isinstance(report.answer, TunedAnswer)
    origin, outcome = report.answer.best.candidate.origin, report.answer.best.outcome
    assert isinstance(origin, FromFamily)
    assert isinstance(outcome, Passed)
    assert "values=" in outcome.storage_format
    assert report.search.num_candidates == 6
    header = client.get(f"/v1/kernels/{status.job_id}/artifact", params={"kind": "hpp"}).text
    loader = client.get(f"/v1/kernels/{status.job_id}/artifact", params={"kind": "py"}).text
    assert "Valid for the values that it was tuned with only" in header
    assert "pattern and the values that this kernel was tuned for" in loader
    assert report.workload.values in loader


def test_an_answer_for_other_values_is_neither_cached_nor_the_same_request(client: httpx.Client) -> None:
    body = {"values": "fixed", "search": "families", "budget": {"candidates": 1, "seconds": 60}}
    first = tuned(client, {**body, "matrix": {**TWOS, "values": [1, 2, 3, 4]}}, **{"Idempotency-Key": "k"})
    again = tuned(client, {**body, "matrix": {**TWOS, "values": [1, 2, 3, 4]}})
    assert again == first, "the second is the first from the cache"
    other = {**body, "matrix": {**TWOS, "values": [1, 2, 3, 5]}}
    assert tuned(client, other).workload.values != first.workload.values
    assert client.post("/v1/kernels", json=other, headers={"Idempotency-Key": "k"}).status_code == 409
    without = {**body, "values": "any", "matrix": TWOS}
    assert tuned(client, without).workload.values is None


@pytest.mark.parametrize(
    ("values", "field", "reason"),
    [
        (None, "matrix.values", "needs the matrix's values"),
        ("null", "matrix.values", "needs the matrix's values"),
        ("[1, 2, 3]", "matrix.values", "values has 3 entries, row_indices has 4"),
        ("[]", "matrix.values", "values has 0 entries"),
        ("[1, 2, NaN, 4]", "matrix.values[2]", "is NaN: must be a finite number"),
        ("[1, 2, 1e999, 4]", "matrix.values[2]", "must be a finite number"),
        ('[1, "2", 3, 4]', "matrix.values[1]", "must be a finite number"),
        ("[1, 2, 3, null]", "matrix.values[3]", "must be a finite number"),
        ("[1, 2, 1e39, 4]", "matrix.values", "must be finite in float32"),
        ('"many"', "matrix.values", "expected a list of numbers"),
    ],
)
def test_values_that_cannot_be_used_are_named(
    client: httpx.Client, values: str | None, field: str, reason: str
) -> None:
    text = json.dumps(TWOS) if values is None else f'{json.dumps(TWOS)[:-1]}, "values": {values}}}'
    found = problem(client, text)
    assert (found["field"], reason in found["detail"]) == (field, True), found


def test_values_without_fixed_are_refused(client: httpx.Client) -> None:
    response = client.post("/v1/kernels", json={"matrix": {**TWOS, "values": [1, 2, 3, 4]}})
    assert response.status_code == 422
    assert "only with values=fixed" in response.json()["detail"]


def test_a_file_without_values_is_refused(client: httpx.Client) -> None:
    content = b"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 1\n"
    response = client.post("/v1/kernels", data={"values": "fixed"}, files={"file": ("m.mtx", content)})
    assert response.status_code == 422
    assert (response.json()["field"], "needs the matrix's values" in response.json()["detail"]) == ("file", True)


def test_a_value_is_as_exact_as_json_writes_it(client: httpx.Client) -> None:
    exact = [0.1, -2.5e-3, 1e-40, 123456789.123]
    answer = graded(client, CONSTANT, {**TWOS, "values": exact}, values="fixed", element_type="float64")
    assert answer.workload.values == fixed_values(np.array(exact), "float64").digest
