"""The HTTP interface, version 1."""

import asyncio
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from services.generator.http.intake import Intake
from services.generator.jobs.ledger import has_ended
from services.generator.service import Service
from sparsesmith.artifacts import ArtifactKind, artifact
from sparsesmith.errors import Conflict, InvalidOption
from sparsesmith_proto.api import (
    CandidatePage,
    EvaluationRequest,
    Finished,
    JobPage,
    JobStatus,
    KernelReport,
    KernelRequest,
    PolicyStatus,
    Problem,
    Readiness,
)

router = APIRouter()

MAX_KEY_CHARACTERS = 255
MAX_PAGE_CANDIDATES = 256
MAX_PAGE_JOBS = 200
WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?=$|[,;\s])", re.IGNORECASE)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _intake(request: Request) -> Intake:
    intake: Intake = request.app.state.intake
    return intake


ServiceOf = Annotated[Service, Depends(_service)]
IntakeOf = Annotated[Intake, Depends(_intake)]
Key = Annotated[str | None, Header(alias="Idempotency-Key")]
Prefer = Annotated[str | None, Header()]

_BODY = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": KernelRequest.model_json_schema()}}}
}
_PROGRAM_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": EvaluationRequest.model_json_schema()}},
    }
}
_PROBLEMS: dict[int | str, dict[str, object]] = {
    status: {"model": Problem, "content": {"application/problem+json": {}}} for status in (404, 409, 413, 415, 422, 503)
}


@router.post("/v1/kernels", status_code=202, response_model=JobStatus, responses=_PROBLEMS, openapi_extra=_BODY)
async def tune_kernel(
    request: Request, service: ServiceOf, intake: IntakeOf, key: Key = None, prefer: Prefer = None
) -> Response:
    """Tune a kernel for a matrix: JSON index lists, or a form with a matrix file and the options as fields."""
    _check_key(key)
    async with intake.kernel_order(request) as (order, matrix):
        status = await service.jobs.accept(order, matrix, key, _client(request))
    return await _accepted(service, status, prefer, "/v1/kernels")


@router.post(
    "/v1/evaluations", status_code=202, response_model=JobStatus, responses=_PROBLEMS, openapi_extra=_PROGRAM_BODY
)
async def grade_program(
    request: Request, service: ServiceOf, intake: IntakeOf, key: Key = None, prefer: Prefer = None
) -> Response:
    """Grade a kernel program of one's own on a matrix."""
    _check_key(key)
    async with intake.evaluation_order(request) as (order, matrix):
        status = await service.jobs.accept(order, matrix, key, _client(request))
    return await _accepted(service, status, prefer, "/v1/evaluations")


@router.get("/v1/kernels", response_model=JobPage, responses=_PROBLEMS)
async def list_jobs(
    service: ServiceOf,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_JOBS)] = 20,
    before: Annotated[str | None, Query(max_length=128)] = None,
) -> JobPage:
    """Jobs of both kinds, the newest first; page by page, each `before` the last job of the one before it."""
    return await service.ledger.page(limit, before)


@router.get("/v1/kernels/{job_id}", response_model=JobStatus, responses=_PROBLEMS)
@router.get("/v1/evaluations/{job_id}", response_model=JobStatus, responses=_PROBLEMS)
async def job_status(job_id: str, service: ServiceOf, prefer: Prefer = None) -> Response:
    """State, best so far, position in the queue; the answer once there is one."""
    wait_s = _wait_s(prefer, service.settings.max_wait_s)
    status = await service.jobs.status(job_id) if wait_s is None else await service.jobs.finished(job_id, wait_s)
    return _json(status, HTTPStatus.OK, {} if wait_s is None else {"Preference-Applied": f"wait={wait_s}"})


@router.delete("/v1/kernels/{job_id}", status_code=204, responses=_PROBLEMS)
@router.delete("/v1/evaluations/{job_id}", status_code=204, responses=_PROBLEMS)
async def cancel_job(job_id: str, service: ServiceOf) -> Response:
    """Stop a job that has not ended."""
    await service.jobs.cancel(job_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/v1/kernels/{job_id}/events", response_class=EventSourceResponse, responses=_PROBLEMS)
@router.get("/v1/evaluations/{job_id}/events", response_class=EventSourceResponse, responses=_PROBLEMS)
async def job_events(
    job_id: str, service: ServiceOf, last_event_id: Annotated[str | None, Header()] = None
) -> EventSourceResponse:
    """The job's states as server-sent events; a reconnect with Last-Event-ID goes on where it left off."""
    await service.jobs.status(job_id)
    return EventSourceResponse(_sent(service, job_id, last_event_id), ping=15)


@router.get("/v1/kernels/{job_id}/candidates", response_model=CandidatePage, responses=_PROBLEMS)
@router.get("/v1/evaluations/{job_id}/candidates", response_model=CandidatePage, responses=_PROBLEMS)
async def tried_candidates(
    job_id: str,
    service: ServiceOf,
    offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_CANDIDATES)] = 50,
) -> CandidatePage:
    """What was tried for a job so far, failures included, in the order of grading; page by page."""
    await service.jobs.status(job_id)
    return await service.trials.page(job_id, offset, limit)


@router.get("/v1/kernels/{job_id}/artifact", responses=_PROBLEMS)
async def kernel_artifact(job_id: str, service: ServiceOf, kind: Annotated[ArtifactKind, Query()] = "zip") -> Response:
    """The program, the C++ header, the Python loader, the report, what was tried, or all of them."""
    report = _report(await service.jobs.status(job_id))
    pattern = await service.ledger.pattern(report.workload.pattern)
    values = await service.ledger.values(report.workload)
    candidates = await service.trials.all(job_id) if kind in ("candidates", "zip") else ()
    file = await asyncio.to_thread(artifact, kind, report, pattern, values, candidates)
    headers = {"Content-Disposition": f'attachment; filename="{file.filename}"'}
    return Response(file.content, headers=headers, media_type=file.media_type)


@router.get("/v1/policy", response_model=PolicyStatus, responses=_PROBLEMS)
async def policy(service: ServiceOf) -> PolicyStatus:
    """The policy that candidates are sampled from."""
    return service.policy_status()


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@router.get("/readyz", response_model=Readiness, responses={503: _PROBLEMS[503]})
async def ready(service: ServiceOf) -> Readiness:
    """Requests are taken and answered; `degraded` says what does not work meanwhile. 503 where nothing does."""
    return await service.readiness()


@router.get("/metrics")
async def metrics(service: ServiceOf) -> Response:
    """Prometheus: of the generator, and of evaluators and trainer as they published them within the last minute."""
    content, media_type = await asyncio.to_thread(service.metrics.exposition)
    return Response(content, media_type=media_type)


def _client(request: Request) -> str:
    """Whose turn a job takes."""
    return "" if request.client is None else request.client.host


def _check_key(key: str | None) -> None:
    if key is not None and not 1 <= len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidOption("Idempotency-Key: 1 to 255 characters", field="Idempotency-Key", limit=MAX_KEY_CHARACTERS)


async def _accepted(service: Service, status: JobStatus, prefer: str | None, collection: str) -> Response:
    headers = {"Location": f"{collection}/{status.job_id}"}
    wait_s = _wait_s(prefer, service.settings.max_wait_s)
    if wait_s is not None:
        status = await service.jobs.finished(status.job_id, wait_s)
        headers["Preference-Applied"] = f"wait={wait_s}"
    return _json(status, HTTPStatus.OK if has_ended(status.status) else HTTPStatus.ACCEPTED, headers)


def _wait_s(prefer: str | None, most_s: float) -> int | None:
    """Seconds of RFC 7240's `wait` preference, cut to what the service allows; None: not asked for."""
    found = WAIT.search(prefer or "")
    return None if found is None else min(int(found[1]), int(most_s))


def _json(status: JobStatus, code: HTTPStatus, headers: dict[str, str]) -> Response:
    return Response(status.model_dump_json(), code, headers=headers, media_type="application/json")


def _report(status: JobStatus) -> KernelReport:
    match status.status:
        case Finished(report=report):
            return report
        case state:
            raise Conflict(f"job {status.job_id} has no report: it is {state.state}", field="state", value=state.state)


async def _sent(service: Service, job_id: str, last_event_id: str | None) -> AsyncIterator[ServerSentEvent]:
    async for event in service.ledger.events(job_id, after=last_event_id):
        yield ServerSentEvent(event.status.model_dump_json(), event=event.status.status.state, id=event.event_id)
