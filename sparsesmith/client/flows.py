"""The client's conversations with a server, without input or output of their own.

A flow is a generator: it yields a request or a pause and receives the response, or Unavailable where none came. `Client` and `AsyncClient` drive the same
flows, so nothing is written twice.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from sparsesmith.errors import (
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotFound,
    SparsesmithError,
    Unavailable,
)
from sparsesmith_proto.api import (
    Cancelled,
    EvaluationAnswer,
    Failed,
    Finished,
    Graded,
    JobStatus,
    KernelReport,
    PolicyStatus,
    Problem,
    TuningOptions,
)


@dataclass(frozen=True)
class Call:
    """One HTTP request to make."""

    method: str
    path: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Pause:
    """Wait before the next call."""

    seconds: float


Answer = TypeVar("Answer")
Flow = Generator[Call | Pause, httpx.Response, Answer]
OnProgress = Callable[[JobStatus], None]

POLL_SECONDS = 0.5
PATIENCE_SECONDS = 120.0
"""How long polling outlasts a server that does not answer: an accepted job survives its restart."""


def submit_kernel(matrix_name: str, matrix: bytes, options: TuningOptions) -> Flow[JobStatus]:
    """`POST /v1/kernels` with a matrix file."""
    fields = form_fields(options)
    response = yield Call("POST", "/v1/kernels", {"data": fields, "files": {"file": (matrix_name, matrix)}})
    return JobStatus.model_validate_json(_checked(response).content)


def submit_evaluation(program: str, matrix_name: str, matrix: bytes, options: TuningOptions) -> Flow[JobStatus]:
    """`POST /v1/evaluations` with a program and a matrix file."""
    fields = {name: form_fields(options)[name] for name in ("operation", "element_type", "num_dense_cols")}
    files = {"file": (matrix_name, matrix), "program": ("program.cu", program.encode())}
    response = yield Call("POST", "/v1/evaluations", {"data": fields, "files": files})
    return JobStatus.model_validate_json(_checked(response).content)


def form_fields(options: TuningOptions) -> dict[str, str]:
    """Options as the form fields of an upload; the budget's fields stand on their own."""
    fields = options.model_dump(mode="json", exclude={"budget"}) | {
        "budget_candidates": options.budget.candidates,
        "budget_seconds": options.budget.seconds,
    }
    return {name: str(value) for name, value in fields.items()}


def finished_kernel(job_id: str, on_progress: OnProgress | None) -> Flow[KernelReport]:
    """Poll until the job ends. Raises what the server says went wrong; Conflict if it was cancelled."""
    state = yield from _end_of("kernels", job_id, on_progress)
    match state.status:
        case Finished(report=report):
            return report
        case _:
            raise _unfinished(state)


def finished_evaluation(job_id: str, on_progress: OnProgress | None) -> Flow[EvaluationAnswer]:
    """Poll until the program is graded."""
    state = yield from _end_of("evaluations", job_id, on_progress)
    match state.status:
        case Graded(answer=answer):
            return answer
        case _:
            raise _unfinished(state)


def cancel(job_id: str) -> Flow[None]:
    """`DELETE /v1/kernels/{id}`."""
    _checked((yield Call("DELETE", f"/v1/kernels/{job_id}", {})))


def artifact(job_id: str, kind: str) -> Flow[bytes]:
    """`GET /v1/kernels/{id}/artifact`: the bytes of the .cu, .hpp, .py or .zip."""
    response = yield Call("GET", f"/v1/kernels/{job_id}/artifact", {"params": {"kind": kind}})
    return _checked(response).content


def policy() -> Flow[PolicyStatus]:
    """`GET /v1/policy`."""
    return PolicyStatus.model_validate_json(_checked((yield Call("GET", "/v1/policy", {}))).content)


def ready() -> Flow[bool]:
    """`GET /readyz`: whether the server takes and answers requests now."""
    response = yield Call("GET", "/readyz", {})
    return response.status_code == httpx.codes.OK


def _end_of(collection: str, job_id: str, on_progress: OnProgress | None) -> Flow[JobStatus]:
    silent_s = 0.0
    while True:
        try:
            response = yield Call("GET", f"/v1/{collection}/{job_id}", {})
        except Unavailable:
            silent_s += POLL_SECONDS
            if silent_s > PATIENCE_SECONDS:
                raise
            yield Pause(POLL_SECONDS)
            continue
        silent_s = 0.0
        state = JobStatus.model_validate_json(_checked(response).content)
        if on_progress is not None:
            on_progress(state)
        if isinstance(state.status, Finished | Graded | Failed | Cancelled):
            return state
        yield Pause(POLL_SECONDS)


def _unfinished(state: JobStatus) -> SparsesmithError:
    match state.status:
        case Failed(problem=problem):
            return problem_error(problem)
        case _:
            return Conflict(f"job {state.job_id} ended as {state.status.state}", field="state", value=state.status.state)


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        raise Unavailable(f"the server answered {response.status_code}: {response.text[:200]!r}") from None
    raise problem_error(problem)


def problem_error(problem: Problem) -> SparsesmithError:
    """The error of our tree behind a problem document."""
    kinds: dict[int, type[SparsesmithError]] = {404: NotFound, 409: Conflict, 413: LimitExceeded, 422: InvalidInput}
    kind = kinds.get(problem.status, InvalidInput if problem.status < 500 else Unavailable)
    return kind(problem.detail, field=problem.field, value=problem.value, limit=problem.limit)
