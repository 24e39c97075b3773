"""Rows and columns in another order over HTTP: asked for, kept apart in the cache, refused where no program uses it."""

import io
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.matrices.irregular import neighbours
from sparsesmith_proto.api import Finished, JobStatus, KernelReport
from tests.generator.live_service import Evaluators, live_service

SMALL = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
WAIT = {"Prefer": "wait=20"}
EVERY_FIELD = {
    "operation": "spmv", "element_type": "float64", "num_dense_cols": 1, "values": "any", "deterministic": True,
    "transposed": "no", "transposed_storage": "copy", "alpha_beta": True, "search": "families", "reorder": "allowed",
    "budget_candidates": 8, "budget_seconds": 20, "refine_children": 8, "refine_generations": 6, "refine_beam": 4,
    "refine_writer": "mutate", "refine_feedback": "latency", "gpu": "",
}  # fmt: skip


@pytest.fixture
def evaluators() -> Evaluators:
    return Evaluators()


@pytest.fixture
def client(redis_url: str, evaluators: Evaluators) -> Iterator[httpx.Client]:
    with live_service(redis_url, evaluators) as client:
        yield client


@pytest.fixture(scope="module")
def points() -> bytes:
    """A graph of neighbours in an order that says nothing, as a file."""
    pattern, file = neighbours(60_000, 8, 3), io.BytesIO()
    sp.save_npz(file, pattern.to_scipy(np.ones(pattern.nnz, np.float32)))
    return file.getvalue()


def tuned(client: httpx.Client, points: bytes, **fields: Any) -> KernelReport:
    given = {"search": "families", "budget_candidates": 8, "budget_seconds": 20, **fields}
    answer = client.post("/v1/kernels", data=given, files={"file": ("points.npz", points)}, headers=WAIT)
    assert answer.is_success, answer.text
    state = JobStatus.model_validate_json(answer.content).status
    assert isinstance(state, Finished), state
    return state.report


def families_sent(evaluators: Evaluators) -> set[str]:
    return {getattr(each.origin, "family", "") for job, _ in evaluators.jobs.values() for each in job.candidates}


def test_only_where_it_is_allowed_are_such_programs_graded_and_no_answer_stands_in_for_the_other(
    client: httpx.Client, evaluators: Evaluators, points: bytes
) -> None:
    kept = tuned(client, points)
    assert "row_bins" in families_sent(evaluators)
    assert "row_bins_reordered" not in families_sent(evaluators)
    allowed = tuned(client, points, reorder="allowed")
    assert "row_bins_reordered" in families_sent(evaluators)
    num_jobs = len(evaluators.jobs)
    assert tuned(client, points, reorder="allowed") == allowed
    assert tuned(client, points, reorder="keep") == kept
    assert len(evaluators.jobs) == num_jobs


def test_a_form_may_have_every_field(client: httpx.Client, evaluators: Evaluators, points: bytes) -> None:
    report = tuned(client, points, **EVERY_FIELD)
    assert report.workload.deterministic and report.workload.alpha_beta
    assert "row_bins_reordered" in families_sent(evaluators)


def test_both_directions_have_an_order_of_their_own(
    client: httpx.Client, evaluators: Evaluators, points: bytes
) -> None:
    rectangle = io.BytesIO()
    sp.save_npz(rectangle, sp.load_npz(io.BytesIO(points)).tocsr()[:50_000])
    report = tuned(client, rectangle.getvalue(), reorder="allowed", transposed="both", budget_candidates=16)
    assert report.transposed is not None and report.transposed.num_rows == 60_000
    reordered = {
        job.workload.pattern
        for job, _ in evaluators.jobs.values()
        for each in job.candidates
        if "numbering=breadth" in each.program
    }
    assert reordered == {report.workload.pattern, report.transposed.workload.pattern}


def body(**changes: Any) -> dict[str, Any]:
    return {"matrix": SMALL, "search": "families", "reorder": "allowed", **changes}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (body(reorder="maybe"), "reorder: "),
        (
            body(operation="sddmm", num_dense_cols=4),
            "no family of programs for sddmm does that, only for spmm, spmv; leave it out",
        ),
        (body(element_type="float16"), "for float16, only for float32, float64; leave it out"),
        (body(search="sample"), "send search=auto or families"),
        (body(transposed="yes", transposed_storage="shared"), "send transposed_storage=copy"),
        (body(transposed="both", transposed_storage="shared"), "send transposed_storage=copy"),
        (
            {"task": "copy", "axes": {"rows": 8, "cols": 8}, "reorder": "allowed"},
            "reorder is allowed: a task has no matrix whose rows and columns could be; leave it out",
        ),
    ],
    ids=lambda given: "" if isinstance(given, str) else str({**given, "matrix": ""}),
)
def test_what_it_does_not_go_with_is_refused_by_name(client: httpx.Client, sent: dict[str, Any], words: str) -> None:
    refused = client.post("/v1/kernels", json=sent)
    assert (refused.status_code, refused.json()["field"]) == (422, "reorder"), refused.text
    assert words in refused.json()["detail"]


def test_a_users_program_says_itself_which_order_it_wants(client: httpx.Client) -> None:
    refused = client.post("/v1/evaluations", json={"matrix": SMALL, "program": "a program", "reorder": "allowed"})
    assert (refused.status_code, refused.json()["field"]) == (422, "reorder"), refused.text
    assert "write numbering=breadth" in refused.json()["detail"]
    unknown = client.post("/v1/evaluations", json={"matrix": SMALL, "program": "a program", "order": "x"})
    assert unknown.json()["field"] == "order"


def test_a_matrix_that_gains_nothing_is_tuned_as_it_is(client: httpx.Client, evaluators: Evaluators) -> None:
    answer = client.post("/v1/kernels", json=body(budget={"candidates": 6, "seconds": 20}), headers=WAIT)
    assert JobStatus.model_validate_json(answer.content).status.state == "finished", answer.text
    assert not [each for each in families_sent(evaluators) if "reordered" in each]
