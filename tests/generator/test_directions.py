"""A, A^T or both over HTTP: one job, its budget shared, an answer for each direction."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import scipy.sparse

from services.generator.directions import extra_bytes
from services.generator.orders import KernelOrder, fingerprint
from sparsesmith.families import FAMILIES
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.operations.directions import transposed_problem
from sparsesmith_proto.api import Finished, JobStatus, KernelReport
from sparsesmith_proto.kernel import Workload
from tests.artifacts.answers import make_matrix, make_report
from tests.generator.live_service import Evaluators, live_service
from tests.generator.orders import make_order, make_pattern

MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
SYMMETRIC = {"num_rows": 3, "num_cols": 3, "row_indices": [0, 0, 1, 2], "col_indices": [0, 2, 1, 0]}
WAIT = {"Prefer": "wait=20"}


@pytest.fixture
def evaluators() -> Evaluators:
    return Evaluators()


@pytest.fixture
def client(redis_url: str, evaluators: Evaluators) -> Iterator[httpx.Client]:
    with live_service(redis_url, evaluators) as client:
        yield client


def body(**changes: Any) -> dict[str, Any]:
    return {"matrix": MATRIX, "search": "families", "budget": {"candidates": 7, "seconds": 20}, **changes}


def tuned(client: httpx.Client, **changes: Any) -> KernelReport:
    answer = client.post("/v1/kernels", json=body(**changes), headers=WAIT)
    assert answer.is_success, answer.text
    state = JobStatus.model_validate_json(answer.content).status
    assert isinstance(state, Finished), state
    return state.report


def digest_of(matrix: dict[str, Any], *, transposed: bool = False) -> str:
    entries = np.ones(len(matrix["row_indices"])), (matrix["row_indices"], matrix["col_indices"])
    built = scipy.sparse.coo_matrix(entries, (matrix["num_rows"], matrix["num_cols"]))
    return pattern_from_scipy(built.T if transposed else built).digest


def test_both_directions_are_one_job_that_shares_its_budget(client: httpx.Client) -> None:
    answer = client.post("/v1/kernels", json=body(transposed="both"), headers=WAIT)
    location = answer.headers["location"]
    state = JobStatus.model_validate_json(answer.content).status
    assert isinstance(state, Finished)
    forward, backward = state.report, state.report.transposed
    assert backward is not None and backward.transposed is None
    assert forward.workload.pattern == digest_of(MATRIX)
    assert backward.workload.pattern == digest_of(MATRIX, transposed=True)
    assert (backward.num_rows, backward.num_cols) == (4, 3)
    assert forward.search.num_candidates == backward.search.num_candidates == 4
    tried = client.get(f"{location}/candidates").json()["candidates"]
    assert [each["number"] for each in tried] == list(range(8))
    assert backward.extra_bytes is not None and forward.extra_bytes is None
    for transposed, report in ((False, forward), (True, backward)):
        text = client.get(f"{location}/artifact", params={"kind": "json", "transposed": transposed}).text
        assert json.loads(text)["workload"]["pattern"] == report.workload.pattern
        assert client.get(f"{location}/artifact", params={"kind": "zip", "transposed": transposed}).is_success


def test_a_direction_that_was_asked_for_before_is_not_searched_again(
    client: httpx.Client, evaluators: Evaluators
) -> None:
    both = tuned(client, transposed="both")
    num_jobs = len(evaluators.jobs)
    assert tuned(client, transposed="both") == both
    instead = tuned(client, transposed="yes", budget={"candidates": 4, "seconds": 10})
    assert both.transposed is not None
    assert instead == both.transposed.model_copy(update={"extra_bytes": None})
    assert len(evaluators.jobs) == num_jobs


def test_a_symmetric_pattern_is_searched_once_with_all_of_the_budget(client: httpx.Client) -> None:
    report = tuned(client, matrix=SYMMETRIC, transposed="both")
    assert report.search.num_candidates == 7
    assert report.transposed == report.model_copy(update={"transposed": None, "extra_bytes": 0})


def test_the_transpose_is_multiplied_with_from_one_copy(client: httpx.Client, evaluators: Evaluators) -> None:
    report = tuned(client, transposed="both", transposed_storage="shared").transposed
    assert report is not None
    assert (report.workload.operation, report.workload.pattern) == ("spmv_t", digest_of(MATRIX))
    equal_bits = tuned(client, transposed="yes", transposed_storage="shared", deterministic=True)
    assert equal_bits.answer.kind == "kernel"
    assert "atomicAdd" not in equal_bits.answer.best.candidate.program
    sent = [each for job, _ in evaluators.jobs.values() for each in job.candidates if job.workload.deterministic]
    assert sent and not [each for each in sent if "atomic" in each.program]


def test_scaled_products_are_asked_of_the_evaluators(client: httpx.Client, evaluators: Evaluators) -> None:
    report = tuned(client, alpha_beta=True)
    assert report.workload.alpha_beta
    sent = [(job.workload.alpha_beta, each.program) for job, _ in evaluators.jobs.values() for each in job.candidates]
    assert sent and all(is_scaled and "atomic" not in program for is_scaled, program in sent)
    graded = client.post(
        "/v1/evaluations", json={"matrix": MATRIX, "program": "a program", "alpha_beta": True}, headers=WAIT
    )
    assert graded.json()["status"]["answer"]["workload"]["alpha_beta"] is True


def test_an_answer_about_one_direction_has_no_new_field_and_orders_keep_their_fingerprints(
    client: httpx.Client,
) -> None:
    location = client.post("/v1/kernels", json=body(), headers=WAIT).headers["location"]
    answer = client.get(location).json()["status"]["report"]
    assert not {"transposed", "extra_bytes"} & set(answer) and "alpha_beta" not in answer["workload"]
    refused = client.get(f"{location}/artifact", params={"transposed": True})
    assert (refused.status_code, refused.json()["field"]) == (409, "transposed")
    order = make_order(make_pattern())
    stored = json.loads(order.model_dump_json())
    assert not {"transposed", "transposed_storage", "alpha_beta"} & set(stored["options"])
    del stored["transposed"]
    earlier = KernelOrder.model_validate(stored)
    assert fingerprint(earlier) == fingerprint(order)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"transposed": "maybe"}, "transposed"),
        ({"transposed": "both", "search": "instant"}, "transposed"),
        ({"transposed": "both", "transposed_storage": "none"}, "transposed_storage"),
        ({"transposed_storage": "shared"}, "transposed_storage"),
        (
            {"transposed": "yes", "transposed_storage": "shared", "operation": "spmm", "num_dense_cols": 2},
            "transposed_storage",
        ),
        ({"matrix": None, "task": "copy", "axes": {"rows": 8, "cols": 8}, "transposed": "yes"}, "transposed"),
        ({"alpha_beta": True, "element_type": "float16"}, "alpha_beta"),
    ],
)
def test_a_direction_that_cannot_be_is_refused_by_name(
    client: httpx.Client, changes: dict[str, Any], field: str
) -> None:
    sent = {name: value for name, value in body(**changes).items() if value is not None}
    refused = client.post("/v1/kernels", json=sent)
    assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text


def test_values_in_one_order_and_equal_arrays_count_once() -> None:
    matrix = make_matrix(50, 40, 0.1)
    pattern = pattern_from_scipy(matrix)
    forward = Problem(Workload(pattern=pattern.digest, operation="spmv", element_type="float64"), pattern)
    programs = {
        name: family.render({each: spec.default for each, spec in family.parameters.items()}, "float64")
        for name, family in FAMILIES.items()
        if name in ("csr_scalar", "transposed_rows", "transposed_gather")
    }
    report = make_report(matrix, programs["csr_scalar"], element_type="float64")
    shared = transposed_problem(forward, "shared")
    for name, extra in (("transposed_rows", 0), ("transposed_gather", 4 * (2 * pattern.nnz + 41))):
        backward = make_report(matrix, programs[name], element_type="float64", operation="spmv_t")
        assert extra_bytes((forward, shared), (report, backward)) == extra
    copied = transposed_problem(forward, "copy")
    transpose = make_report(matrix.T.tocsr(), programs["csr_scalar"], element_type="float64")
    assert extra_bytes((forward, copied), (report, transpose)) == 12 * pattern.nnz + 4 * 41
    assert extra_bytes((forward,), (report, report)) == 0
