"""The conversations, held without a network: what comes back decides what is asked next."""

from typing import Any

import httpx
import pytest

from sparsesmith.client import flows
from sparsesmith.client.flows import Call, Pause
from sparsesmith.errors import (
    Conflict,
    InvalidInput,
    InvalidMatrix,
    InvalidOption,
    InvalidProgram,
    LimitExceeded,
    NotFound,
    SparsesmithError,
    Unavailable,
)
from sparsesmith_proto.api import Budget, Cancelled, JobState, JobStatus, Problem, Queued, Running, TuningOptions


def answer(status: int, content: str = "") -> httpx.Response:
    return httpx.Response(status, text=content, request=httpx.Request("GET", "http://server/v1/kernels/j"))


def job(state: JobState) -> httpx.Response:
    status = JobStatus(job_id="j", accepted_at="2026-11-21T00:00:00Z", status=state)
    return answer(200, status.model_dump_json())


def problem(status: int, name: str) -> httpx.Response:
    document = Problem(type=name, title="t", status=status, detail="what was wrong", field="f", value="v", limit="l")
    return answer(status, document.model_dump_json())


def hold(flow: flows.Flow[Any], *replies: httpx.Response | Unavailable) -> tuple[list[Call | Pause], Any]:
    """What the flow asks for, each call answered by the next reply, and its answer."""
    steps = [next(flow)]
    left = list(replies)
    try:
        while True:
            if isinstance(steps[-1], Pause):
                steps.append(next(flow))
                continue
            reply = left.pop(0)
            steps.append(flow.throw(reply) if isinstance(reply, Unavailable) else flow.send(reply))
    except StopIteration as end:
        assert not left
        return steps, end.value


def test_polling_goes_on_through_a_restart_of_the_server_and_of_its_redis() -> None:
    seen: list[str] = []
    with pytest.raises(Conflict, match="job j was cancelled"):
        hold(
            flows.finished_kernel("j", lambda job: seen.append(job.status.state)),
            job(Queued(position=1)),
            Unavailable("refused"),
            problem(503, "/problems/unavailable"),
            answer(502, "<html>bad gateway</html>"),
            job(Running(num_graded=1, budget_candidates=2, best_program=None, best_us=None, best_speedup=None)),
            job(Cancelled()),
        )
    assert seen == ["queued", "running", "cancelled"]


@pytest.mark.parametrize(
    ("status", "name", "kind"),
    [
        (422, "/problems/invalid-matrix", InvalidMatrix),
        (422, "/problems/invalid-program", InvalidProgram),
        (422, "/problems/invalid-option", InvalidOption),
        (422, "/problems/invalid-input", InvalidInput),
        (413, "/problems/limit-exceeded", LimitExceeded),
        (404, "/problems/not-found", NotFound),
        (409, "/problems/conflict", Conflict),
        (503, "/problems/unavailable", Unavailable),
        (404, "about:blank", NotFound),
        (415, "about:blank", InvalidInput),
        (503, "about:blank", Unavailable),
        (500, "about:blank", SparsesmithError),
        (422, "/problems/of-a-later-release", InvalidInput),
    ],
)
def test_a_problem_document_becomes_the_error_it_was(status: int, name: str, kind: type[SparsesmithError]) -> None:
    with pytest.raises(kind) as caught:
        hold(flows.policy(), problem(status, name))
    error = caught.value
    assert type(error) is kind
    assert (error.message, error.field, error.value, error.limit) == ("what was wrong", "f", "v", "l")


@pytest.mark.parametrize("reply", [answer(404, "<html>"), answer(301), answer(200, "hello"), answer(200, "{}")])
def test_a_server_that_is_not_ours_is_told_apart(reply: httpx.Response) -> None:
    with pytest.raises(InvalidOption, match="no answer of a sparsesmith server") as caught:
        hold(flows.finished_kernel("j", None), reply)
    assert caught.value.field == "url"


def test_a_server_is_not_ready_while_its_engine_loads_or_nothing_answers() -> None:
    assert hold(flows.ready(), problem(503, "/problems/unavailable"))[1] is False
    assert hold(flows.ready(), Unavailable("refused"))[1] is False
    assert hold(flows.ready(), answer(200, '{"status": "ready"}'))[1] is True


def test_options_become_form_fields() -> None:
    options = TuningOptions(operation="spmm", num_dense_cols=8, budget=Budget(candidates=3, seconds=1.5))
    assert flows.form_fields(options) == {
        "operation": "spmm",
        "element_type": "float32",
        "num_dense_cols": "8",
        "values": "any",
        "search": "auto",
        "budget_candidates": "3",
        "budget_seconds": "1.5",
    }


def test_a_job_identifier_cannot_reach_another_path() -> None:
    call = next(flows.status("../policy?x"))
    assert isinstance(call, Call)
    assert call.path == "/v1/kernels/..%2Fpolicy%3Fx"


def test_a_program_that_is_not_text_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidProgram, match="UTF-8"):
        next(flows.submit_evaluation("\ud800", "m.mtx", b"", TuningOptions()))


def test_polling_waits_as_long_as_the_quota_of_requests_says() -> None:
    refused = problem(429, "/problems/quota-exceeded")
    refused.headers["Retry-After"] = "17"
    steps, ended = hold(flows.ended("j", None), refused, job(Cancelled()))
    assert Pause(17) in steps
    assert isinstance(ended.status, Cancelled)


def test_a_wish_for_equal_bits_is_a_field_of_an_upload_and_else_nothing_is_sent() -> None:
    assert flows.form_fields(TuningOptions(deterministic=True))["deterministic"] == "True"
    assert "deterministic" not in flows.form_fields(TuningOptions())
    assert flows.form_fields(TuningOptions(reorder="allowed"))["reorder"] == "allowed"
    assert "reorder" not in flows.form_fields(TuningOptions())
    assert flows.task_body(TuningOptions(deterministic=True))["deterministic"] is True


def test_a_kind_of_gpu_is_sent_where_one_is_named() -> None:
    assert flows.form_fields(TuningOptions(gpu="H200"))["gpu"] == "H200"
    assert flows.task_body(TuningOptions(gpu="H200"))["gpu"] == "H200"
    for untold in (TuningOptions(), TuningOptions(gpu="")):
        assert "gpu" not in flows.form_fields(untold)
