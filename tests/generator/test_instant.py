"""`search="instant"`: a kernel before the search, the search behind it, and what becomes of the kernel."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import scipy.sparse

import sparsesmith
from services.generator.search.verdict import judged
from sparsesmith.client import InstantOperator
from sparsesmith.errors import Conflict, InvalidInput
from sparsesmith.program.numbers import is_open
from sparsesmith.transport.connection import connect
from sparsesmith.transport.queue import EvaluationQueue
from sparsesmith_proto.api import Finished, InstantKernel, JobStatus, KernelReport, LibraryAnswer, Running, TunedAnswer
from sparsesmith_proto.kernel import FromFamily, Mismatch, Passed, TimedOut
from tests.generator.live_service import Evaluators, live_service
from tests.generator.processes import ServiceProcess
from tests.generator.reports import make_baselines, make_passed, make_timing

MATRIX = {
    "num_rows": 300,
    "num_cols": 300,
    "row_indices": [*range(300), *range(299), *range(1, 300)],
    "col_indices": [*range(300), *range(1, 300), *range(299)],
}


@pytest.fixture
def evaluators() -> Evaluators:
    return Evaluators()


@pytest.fixture
def client(redis_url: str, evaluators: Evaluators) -> Iterator[httpx.Client]:
    with live_service(redis_url, evaluators) as client:
        yield client


def post(client: httpx.Client, prefer: str, **changes: Any) -> httpx.Response:
    body = {"matrix": MATRIX, "search": "instant", "budget": {"candidates": 6, "seconds": 20}, **changes}
    return client.post("/v1/kernels", json=body, headers={"Prefer": prefer, "Cache-Control": "no-cache"})


def status_of(response: httpx.Response) -> JobStatus:
    assert response.is_success, response.text
    return JobStatus.model_validate_json(response.content)


def report_of(response: httpx.Response) -> KernelReport:
    state = status_of(response).status
    assert isinstance(state, Finished), state
    return state.report


def handed_out(response: httpx.Response) -> InstantKernel:
    state = status_of(response).status
    assert isinstance(state, Running), state
    assert state.instant is not None
    return state.instant


def test_a_kernel_is_there_before_anything_was_measured_and_the_search_goes_on_behind_it(
    client: httpx.Client, evaluators: Evaluators
) -> None:
    evaluators.released.clear()
    response = post(client, "wait=10")
    assert response.status_code == 200
    kernel = handed_out(response)
    assert (kernel.state, kernel.passed, kernel.break_even) == ("checked", None, None)
    assert kernel.tuning_s > 0
    assert {"choose", "check"} <= kernel.stages_ms.keys()
    assert isinstance(kernel.candidate.origin, FromFamily)
    address = response.headers["location"]
    program = client.get(f"{address}/artifact", params={"kind": "cu"})
    assert program.text == kernel.candidate.program
    assert "kernel" in client.get(f"{address}/artifact", params={"kind": "py"}).text
    evaluators.released.set()
    report = report_of(client.get(address, headers={"Prefer": "wait=best"}))
    assert isinstance(report.answer, TunedAnswer)
    assert report.search.strategy == "instant"
    assert report.instant is not None
    assert report.instant.state == "confirmed"
    assert isinstance(report.instant.passed, Passed)
    assert report.instant.break_even is not None
    assert report.instant.break_even.tuning_s == kernel.tuning_s <= report.answer.break_even.tuning_s


def test_the_kernel_is_graded_first_and_once(client: httpx.Client, evaluators: Evaluators) -> None:
    report_of(post(client, "wait=best"))
    batches = [job.candidates for job, _ in evaluators.jobs.values()]
    (lead,) = batches[0]
    (asked,) = evaluators.instant_jobs.values()
    assert (asked.candidate.candidate_id, asked.candidate.written) == (lead.candidate_id, lead.program)
    assert (is_open(lead.program), is_open(asked.candidate.program)) == (True, False)
    assert [each.program for batch in batches for each in batch].count(lead.program) == 1


def test_a_kernel_that_fails_the_full_protocol_is_withdrawn_and_says_why(redis_url: str) -> None:
    with live_service(redis_url, Evaluators(Mismatch(message="it races"))) as client:
        report = report_of(post(client, "wait=best"))
    assert isinstance(report.answer, LibraryAnswer)
    assert report.instant is not None
    assert (report.instant.state, report.instant.withdrawn_because) == ("withdrawn", "mismatch: it races")


def test_choices_of_other_families_are_tried_where_one_does_not_pass_and_the_search_goes_on_without(
    client: httpx.Client, evaluators: Evaluators
) -> None:
    evaluators.first_outcome = Mismatch(message="wrong")
    report = report_of(post(client, "wait=best"))
    assert report.instant is None
    assert isinstance(report.answer, TunedAnswer)
    origins = [job.candidate.origin for job in evaluators.instant_jobs.values()]
    families = [origin.family for origin in origins if isinstance(origin, FromFamily)]
    assert len(set(families)) == 3


def test_the_stages_of_choices_that_did_not_pass_are_counted(client: httpx.Client, evaluators: Evaluators) -> None:
    evaluators.outcomes_before = [Mismatch(message="wrong"), Mismatch(message="wrong")]
    report = report_of(post(client, "wait=best"))
    assert report.instant is not None
    assert len(evaluators.instant_jobs) == 3
    assert report.instant.stages_ms["check"] == 3.0, "each report says 1 ms"


def test_a_kernel_of_equal_bits_has_no_atomics(client: httpx.Client, evaluators: Evaluators) -> None:
    report_of(post(client, "wait=best", deterministic=True))
    (job,) = evaluators.instant_jobs.values()
    assert job.workload.deterministic
    assert "atomic" not in job.candidate.program


def test_of_a_device_that_no_model_knows_the_answer_says_that_an_estimate_chose(redis_url: str) -> None:
    with live_service(redis_url, Evaluators(), cost_model_dir=Path("no-model")) as client:
        report = report_of(post(client, "wait=best"))
    assert report.instant is not None
    assert report.instant.chosen_by == "analytic estimate"
    assert report.instant.expected.kind == "estimated"


def test_what_repays_the_search_is_counted_from_the_instant_kernel_on(
    client: httpx.Client, evaluators: Evaluators
) -> None:
    report = report_of(post(client, "wait=best"))
    assert isinstance(report.answer, TunedAnswer)
    kernel = report.instant
    assert kernel is not None
    even = judged(kernel, make_passed(make_timing(8.0)), make_baselines(make_timing(10), make_timing(12))).break_even
    assert even is not None
    cost_us = kernel.tuning_s * 1e6 + 500
    assert even.products_against_best == -(-cost_us // 2)
    assert (
        judged(
            kernel,
            TimedOut(stage="turn", limit_s=1, message="others"),
            make_baselines(make_timing(10), make_timing(12)),
        )
        is kernel
    )


def test_in_python_the_kernel_multiplies_at_once_and_its_best_is_waited_for(
    client: httpx.Client, evaluators: Evaluators
) -> None:
    matrix = scipy.sparse.random(60, 50, 0.1, format="csr", rng=np.random.default_rng(1))
    url, budget = str(client.base_url), {"candidates": 6, "seconds": 20}
    evaluators.released.clear()
    kernel = sparsesmith.tune(matrix, search="instant", url=url, budget=budget)
    assert isinstance(kernel, InstantOperator)
    assert kernel.kernel.state == "checked"
    x = np.ones(50, np.float32)
    with pytest.warns(RuntimeWarning, match="SciPy computes the products"):
        assert np.allclose(kernel @ x, matrix @ x, rtol=1e-5)
    with pytest.raises(InvalidInput, match="x has shape"):
        kernel @ np.ones(51, np.float32)
    evaluators.released.set()
    assert isinstance(kernel.best(), sparsesmith.Operator)
    assert kernel.refresh().state == "confirmed"


def test_in_python_a_kernel_that_was_withdrawn_multiplies_no_more(redis_url: str) -> None:
    matrix = scipy.sparse.random(60, 50, 0.1, format="csr", rng=np.random.default_rng(1))
    evaluators = Evaluators(Mismatch(message="it races"))
    evaluators.released.clear()
    with live_service(redis_url, evaluators) as client:
        url, budget = str(client.base_url), {"candidates": 6, "seconds": 20}
        kernel = sparsesmith.tune(matrix, search="instant", url=url, budget=budget)
        assert isinstance(kernel, InstantOperator)
        evaluators.released.set()
        kernel.best()
        assert kernel.refresh().withdrawn_because == "mismatch: it races"
    with pytest.raises(Conflict, match="it races"):
        kernel @ np.ones(50, np.float32)


@pytest.mark.timeout(300)
def test_end_to_end_on_the_interpreter_the_kernel_passes_the_full_protocol(redis_url: str, tmp_path: Path) -> None:
    """A real queue on a real Valkey, a real evaluator process, its compilers and the PTX interpreter."""
    environment = {"SPARSESMITH_EVALUATOR_DEVICE": "interpreter", "SPARSESMITH_EVALUATOR_COMPILE_WORKERS": "1"}
    evaluator = ServiceProcess(
        "services.evaluator", tmp_path / "evaluator.log", SPARSESMITH_REDIS_URL=redis_url, **environment
    )
    queue: Any = EvaluationQueue(connect(redis_url))
    try:
        with live_service(redis_url, queue, max_wait_s=10) as client:
            response = post(client, "wait=10", budget={"candidates": 3, "seconds": 200})
            address, end = response.headers["location"], time.monotonic() + 240

            def looked_at(prefer: str) -> JobStatus:
                assert time.monotonic() < end, evaluator.log.read_text()[-3000:]
                return status_of(client.get(address, headers={"Prefer": prefer}))

            while isinstance(state := looked_at("wait=10").status, Running) and state.instant is None:
                pass
            while not isinstance(state := looked_at("wait=best").status, Finished):
                assert isinstance(state, Running), state
                assert state.instant is not None
    finally:
        evaluator.end()
    instant = state.report.instant
    assert instant is not None
    assert instant.state == "confirmed"
    assert instant.device.kind == state.report.device.kind == "interpreter"
    assert {"choose", "upload", "format", "input", "check"} <= instant.stages_ms.keys()
    assert instant.break_even is not None
    assert instant.break_even.kind == "estimated"
