"""The client's conversations with a server, without input or output of their own.

A flow is a generator: it yields a request or a pause and receives the response, or Unavailable where none came.
`Client` and `AsyncClient` drive the same flows, so nothing is written twice.
"""

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, assert_never
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from sparsesmith.errors import (
    Conflict,
    InvalidInput,
    InvalidMatrix,
    InvalidOption,
    InvalidProgram,
    LimitExceeded,
    NotFound,
    QuotaExceeded,
    SparsesmithError,
    Unauthorized,
    Unavailable,
)
from sparsesmith_proto.api import (
    Cancelled,
    CandidatePage,
    EvaluationAnswer,
    Failed,
    Finished,
    Graded,
    JobPage,
    JobStatus,
    KernelReport,
    Permalink,
    PolicyStatus,
    Problem,
    Queued,
    Readiness,
    RollbackRequest,
    Running,
    SigningKey,
    TaskCard,
    TaskPage,
    TriedCandidate,
    TuningOptions,
)


@dataclass(frozen=True)
class Call:
    """One HTTP request to make."""

    method: str
    path: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Pause:
    """Wait before the next call."""

    seconds: float


@dataclass(frozen=True)
class Health:
    """What a server says of itself."""

    is_alive: bool
    """Its process answers."""
    is_ready: bool
    """It takes and answers requests now."""
    problem: str | None
    """What is missing: all, where it is not ready; else what does not work meanwhile."""

    def describe(self) -> str:
        """One line."""
        if self.is_ready:
            return "ready" if self.problem is None else f"ready, but {self.problem}"
        return f"not ready: {self.problem}" if self.is_alive else f"no answer: {self.problem}"


Answer = TypeVar("Answer")
Body = TypeVar("Body", bound=BaseModel)
Flow = Generator[Call | Pause, httpx.Response, Answer]
Collection = Literal["kernels", "evaluations"]
OnProgress = Callable[[JobStatus], None]

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5
PAGE_CANDIDATES = 128
HELD_SECONDS = 10
"""A server holds a question back for so long, at most, while there is no answer."""
PATIENCE_SECONDS = 120.0
"""How long polling outlasts a server that does not answer: an accepted job survives its restart."""

_KINDS: Mapping[str, type[SparsesmithError]] = {
    "/problems/invalid-input": InvalidInput,
    "/problems/invalid-matrix": InvalidMatrix,
    "/problems/invalid-program": InvalidProgram,
    "/problems/invalid-option": InvalidOption,
    "/problems/limit-exceeded": LimitExceeded,
    "/problems/unauthorized": Unauthorized,
    "/problems/not-found": NotFound,
    "/problems/conflict": Conflict,
    "/problems/quota-exceeded": QuotaExceeded,
    "/problems/unavailable": Unavailable,
}
_KINDS_BY_STATUS: Mapping[int, type[SparsesmithError]] = {
    401: Unauthorized,
    404: NotFound,
    409: Conflict,
    413: LimitExceeded,
    429: QuotaExceeded,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def submit_kernel(matrix_name: str, matrix: bytes, options: TuningOptions) -> Flow[JobStatus]:
    """`POST /v1/kernels` with a matrix file."""
    body = {"data": form_fields(options), "files": {"file": (matrix_name, matrix)}}
    return _read(JobStatus, (yield Call("POST", "/v1/kernels", body)))


def submit_task(options: TuningOptions) -> Flow[JobStatus]:
    """`POST /v1/kernels` for the task that the options name, without a matrix."""
    return _read(JobStatus, (yield Call("POST", "/v1/kernels", {"json": task_body(options)})))


def submit_task_evaluation(program: str, options: TuningOptions) -> Flow[JobStatus]:
    """`POST /v1/evaluations` with a program for a task. Of the options the workload's and the budget count."""
    _encoded(program)
    body = {name: value for name, value in task_body(options).items() if name not in ("search", "refine")}
    body |= {"program": program}
    return _read(JobStatus, (yield Call("POST", "/v1/evaluations", {"json": body})))


def task_body(options: TuningOptions) -> dict[str, Any]:
    """Options as the JSON of a request about a task."""
    fields = options.model_dump(mode="json", exclude={"operation"})
    return {"task": options.operation, "axes": {}, **fields}


def submit_evaluation(program: str, matrix_name: str, matrix: bytes, options: TuningOptions) -> Flow[JobStatus]:
    """`POST /v1/evaluations` with a program and a matrix file. Of the options the workload's and the budget count."""
    data = {name: value for name, value in form_fields(options).items() if name != "search"}
    body = {"data": data, "files": {"file": (matrix_name, matrix), "program": ("program.cu", _encoded(program))}}
    return _read(JobStatus, (yield Call("POST", "/v1/evaluations", body)))


def form_fields(options: TuningOptions) -> dict[str, str]:
    """Options as the form fields of an upload; those of the budget, of refinement and the axes stand on their own.

    What says how to refine is left out where it is as usual: a server of an earlier release does not know it."""
    fields = options.model_dump(mode="json", exclude={"budget", "axes", "refine"}) | {
        "budget_candidates": options.budget.candidates,
        "budget_seconds": options.budget.seconds,
        **{f"axes_{name}": size for name, size in options.axes.items()},
    }
    fields |= {f"refine_{name}": value for name, value in options.refine.model_dump(exclude_defaults=True).items()}
    return {name: str(value) for name, value in fields.items()}


def finished_kernel(job_id: str, on_progress: OnProgress | None) -> Flow[KernelReport]:
    """Poll until the job ends. Raises what the server says went wrong; Conflict if it was cancelled."""
    state = yield from ended(job_id, on_progress)
    if isinstance(state.status, Finished):
        return state.status.report
    raise unfinished(state)


def finished_evaluation(job_id: str, on_progress: OnProgress | None) -> Flow[EvaluationAnswer]:
    """Poll until the program is graded. Raises as `finished_kernel` does."""
    state = yield from ended(job_id, on_progress, "evaluations")
    if isinstance(state.status, Graded):
        return state.status.answer
    raise unfinished(state)


def ended(job_id: str, on_progress: OnProgress | None, collection: Collection = "kernels") -> Flow[JobStatus]:
    """Poll until the job ends, however it ends. `kernels` knows jobs of either kind."""
    last_heard, pause_s = time.monotonic(), FIRST_PAUSE_SECONDS
    while True:
        try:
            state = _read(JobStatus, (yield Call("GET", _path(collection, job_id), {})))
        except Unavailable:
            if time.monotonic() - last_heard > PATIENCE_SECONDS:
                raise
        except QuotaExceeded as error:  # Too many looks of this key's clients together within the minute.
            last_heard, pause_s = time.monotonic(), LONGEST_PAUSE_SECONDS
            yield Pause(error.retry_after_s or LONGEST_PAUSE_SECONDS)
        else:
            last_heard = time.monotonic()
            if on_progress is not None:
                on_progress(state)
            if not isinstance(state.status, Queued | Running):
                return state
        yield Pause(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_SECONDS)


def answered(job_id: str, on_progress: OnProgress | None) -> Flow[JobStatus]:
    """Ask until there is something to use: a kernel that was handed out before the search, or the job's end."""
    last_heard = time.monotonic()
    while True:
        try:
            held = {"headers": {"Prefer": f"wait={HELD_SECONDS}"}}
            state = _read(JobStatus, (yield Call("GET", _path("kernels", job_id), held)))
        except Unavailable:
            if time.monotonic() - last_heard > PATIENCE_SECONDS:
                raise
            yield Pause(LONGEST_PAUSE_SECONDS)
            continue
        last_heard = time.monotonic()
        if on_progress is not None:
            on_progress(state)
        match state.status:
            case Queued() | Running(instant=None):
                yield Pause(FIRST_PAUSE_SECONDS)  # A server of an earlier release holds nothing back.
            case _:
                return state


def status(job_id: str) -> Flow[JobStatus]:
    """`GET /v1/kernels/{id}`."""
    return _read(JobStatus, (yield Call("GET", _path("kernels", job_id), {})))


def cancel(job_id: str) -> Flow[None]:
    """`DELETE /v1/kernels/{id}`."""
    _checked((yield Call("DELETE", _path("kernels", job_id), {})))


def candidates(job_id: str) -> Flow[list[TriedCandidate]]:
    """`GET /v1/kernels/{id}/candidates`, page by page."""
    tried: list[TriedCandidate] = []
    offset: int | None = 0
    while offset is not None:
        options = {"params": {"offset": offset, "limit": PAGE_CANDIDATES}}
        page = _read(CandidatePage, (yield Call("GET", f"{_path('kernels', job_id)}/candidates", options)))
        tried += page.candidates
        offset = page.next_offset
    return tried


def jobs(limit: int, before: str | None) -> Flow[JobPage]:
    """`GET /v1/kernels`: a page."""
    params = {"limit": limit} | ({} if before is None else {"before": before})
    return _read(JobPage, (yield Call("GET", "/v1/kernels", {"params": params})))


def permalink(job_id: str) -> Flow[Permalink]:
    """`GET /v1/kernels/{id}/permalink`."""
    return _read(Permalink, (yield Call("GET", f"{_path('kernels', job_id)}/permalink", {})))


def artifact(job_id: str, kind: str, *, transposed: bool = False) -> Flow[bytes]:
    """`GET /v1/kernels/{id}/artifact`: the bytes of the .cu, .hpp, .py, .json, .candidates.json or .zip; of A^T where
    both directions were tuned."""
    params = {"kind": kind} | ({"transposed": "true"} if transposed else {})
    response = yield Call("GET", f"{_path('kernels', job_id)}/artifact", {"params": params})
    return _checked(response).content


def policy() -> Flow[PolicyStatus]:
    """`GET /v1/policy`."""
    return _read(PolicyStatus, (yield Call("GET", "/v1/policy", {})))


def signing_key() -> Flow[SigningKey]:
    """`GET /v1/signing-key`."""
    return _read(SigningKey, (yield Call("GET", "/v1/signing-key", {})))


def tasks() -> Flow[tuple[TaskCard, ...]]:
    """`GET /v1/tasks`."""
    return _read(TaskPage, (yield Call("GET", "/v1/tasks", {}))).tasks


def task(name: str) -> Flow[TaskCard]:
    """`GET /v1/tasks/{name}`."""
    return _read(TaskCard, (yield Call("GET", f"/v1/tasks/{quote(name, safe='')}", {})))


def roll_back_policy(version: int | None) -> Flow[PolicyStatus]:
    """`POST /operator/policy/rollback`."""
    wish = RollbackRequest(version=version).model_dump(mode="json")
    return _read(PolicyStatus, (yield Call("POST", "/operator/policy/rollback", {"json": wish})))


def ready() -> Flow[bool]:
    """`GET /readyz`: whether the server takes and answers requests now, and everything works."""
    try:
        return _degraded(_checked((yield Call("GET", "/readyz", {})))) is None
    except Unavailable:
        return False


def health() -> Flow[Health]:
    """`GET /healthz` and `GET /readyz`. No answer is an answer here."""
    try:
        _checked((yield Call("GET", "/healthz", {})))
    except Unavailable as error:
        return Health(is_alive=False, is_ready=False, problem=error.message)
    try:
        degraded = _degraded(_checked((yield Call("GET", "/readyz", {}))))
    except Unavailable as error:
        return Health(is_alive=True, is_ready=False, problem=error.message)
    return Health(is_alive=True, is_ready=True, problem=degraded)


def _degraded(response: httpx.Response) -> str | None:
    """What a server that is ready says does not work; earlier releases did not say."""
    try:
        return Readiness.model_validate_json(response.content).degraded
    except ValidationError:
        return None


def unfinished(job: JobStatus) -> SparsesmithError:
    """Why a job has no answer of the kind that was asked for."""
    match job.status:
        case Failed(problem=problem):
            return problem_error(problem)
        case Cancelled():
            return Conflict(f"job {job.job_id} was cancelled", field="state", value=job.status.state)
        case Finished() | Graded():
            return Conflict(f"job {job.job_id} answers another question", field="state", value=job.status.state)
        case Queued() | Running():
            return Conflict(f"job {job.job_id} has not ended", field="state", value=job.status.state)
        case _:
            assert_never(job.status)


def problem_error(problem: Problem) -> SparsesmithError:
    """The error of our tree behind a problem document."""
    usual = InvalidInput if problem.status < httpx.codes.INTERNAL_SERVER_ERROR else SparsesmithError
    kind = _KINDS.get(problem.type) or _KINDS_BY_STATUS.get(problem.status, usual)
    return kind(problem.detail, field=problem.field, value=problem.value, limit=problem.limit)


def _path(collection: Collection, job_id: str) -> str:
    return f"/v1/{collection}/{quote(job_id, safe='')}"


def _encoded(program: str) -> bytes:
    try:
        return program.encode()
    except UnicodeEncodeError as error:
        raise InvalidProgram(
            f"the program is not UTF-8 text: character {error.start}", field="program", limit="UTF-8"
        ) from error


def _read(model: type[Body], response: httpx.Response) -> Body:
    try:
        return model.model_validate_json(_checked(response).content)
    except ValidationError as error:
        raise _stranger(response) from error


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError as error:
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            detail = f"{response.url} answered {response.status_code}: {response.text[:200]!r}"
            raise Unavailable(detail, value=response.status_code) from error
        raise _stranger(response) from error
    refusal = problem_error(problem)
    if isinstance(refusal, QuotaExceeded):
        seconds = response.headers.get("retry-after", "")
        refusal.retry_after_s = int(seconds) if seconds.isdecimal() else None
    raise refusal


def _stranger(response: httpx.Response) -> InvalidOption:
    return InvalidOption(
        f"{response.url} answered {response.status_code} with something that is no answer of a sparsesmith server of "
        f"this release: {response.text[:80]!r}",
        field="url",
        value=response.url,
    )
