"""The HTTP interface, version 1."""

import asyncio
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from sse_starlette import EventSourceResponse, ServerSentEvent

from services.generator.http.access import SECRET_PARAMETER, AskerOf, CallerOf, may_see
from services.generator.http.docs_page import HEADERS, docs_page
from services.generator.http.intake import Intake
from services.generator.http.openapi import accepted, artifact_responses, job_body, problems, stream_responses
from services.generator.jobs.ledger import has_answer
from services.generator.service import Service
from sparsesmith.artifacts import ArtifactKind, artifact, instant_artifact
from sparsesmith.errors import Conflict
from sparsesmith_proto.api import (
    CandidatePage,
    EvaluationRequest,
    Finished,
    InstantKernel,
    JobPage,
    JobStatus,
    KernelReport,
    KernelRequest,
    Permalink,
    PolicyStatus,
    Readiness,
    Running,
    SigningKey,
)

router = APIRouter(dependencies=[Depends(may_see)])

MAX_KEY_CHARACTERS = 255
MAX_PAGE_CANDIDATES = 256
MAX_PAGE_JOBS = 200
WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9}|best)\"?(?=$|[,;\s])", re.IGNORECASE)
BEST = "best"


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _intake(request: Request) -> Intake:
    intake: Intake = request.app.state.intake
    return intake


ServiceOf = Annotated[Service, Depends(_service)]
IntakeOf = Annotated[Intake, Depends(_intake)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=MAX_KEY_CHARACTERS)]
Prefer = Annotated[str | None, Header()]


@router.post(
    "/v1/kernels",
    status_code=202,
    response_model=JobStatus,
    responses=accepted(),
    openapi_extra=job_body(KernelRequest),
)
async def tune_kernel(
    request: Request, service: ServiceOf, intake: IntakeOf, asker: AskerOf, key: Key = None, prefer: Prefer = None
) -> Response:
    """Tune a kernel for a matrix (JSON index lists, or a form with a matrix file and the options as fields) or for a
    task without one (JSON)."""
    async with intake.kernel_order(request) as (order, problem):
        status = await service.arrivals.accept(order, problem, key, asker)
    return await _accepted(service, status, prefer, "/v1/kernels")


@router.post(
    "/v1/evaluations",
    status_code=202,
    response_model=JobStatus,
    responses=accepted(),
    openapi_extra=job_body(EvaluationRequest),
)
async def grade_program(
    request: Request, service: ServiceOf, intake: IntakeOf, asker: AskerOf, key: Key = None, prefer: Prefer = None
) -> Response:
    """Grade a kernel program of one's own on a matrix or a task."""
    async with intake.evaluation_order(request) as (order, problem):
        status = await service.arrivals.accept(order, problem, key, asker)
    return await _accepted(service, status, prefer, "/v1/evaluations")


@router.get("/v1/kernels", response_model=JobPage, responses=problems(404, 503))
async def list_jobs(
    service: ServiceOf,
    caller: CallerOf,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_JOBS)] = 20,
    before: Annotated[str | None, Query(max_length=128)] = None,
) -> JobPage:
    """Jobs of both kinds, of one's own key where keys are asked for, the newest first; page by page, each `before` the
    last job of the one before it."""
    return await service.ledger.page(limit, before, None if caller.key is None else caller.key.key_id)


@router.get("/v1/kernels/{job_id}", response_model=JobStatus, responses=problems(404, 503))
@router.get("/v1/evaluations/{job_id}", response_model=JobStatus, responses=problems(404, 503))
async def job_status(job_id: str, service: ServiceOf, prefer: Prefer = None) -> Response:
    """State, best so far, position in the queue; the answer once there is one."""
    status, applied = await _waited_for(service, job_id, prefer)
    return _json(status or await service.jobs.status(job_id), HTTPStatus.OK, applied)


@router.delete("/v1/kernels/{job_id}", status_code=204, responses=problems(404, 409, 503))
@router.delete("/v1/evaluations/{job_id}", status_code=204, responses=problems(404, 409, 503))
async def cancel_job(job_id: str, service: ServiceOf, asker: AskerOf) -> Response:
    """Stop a job that has not ended."""
    await service.jobs.cancel(job_id, asker)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/v1/kernels/{job_id}/events", response_class=EventSourceResponse, responses=stream_responses())
@router.get("/v1/evaluations/{job_id}/events", response_class=EventSourceResponse, responses=stream_responses())
async def job_events(
    job_id: str, service: ServiceOf, last_event_id: Annotated[str | None, Header()] = None
) -> EventSourceResponse:
    """The job's states as server-sent events; a reconnect with Last-Event-ID goes on where it left off."""
    await service.jobs.status(job_id)
    return EventSourceResponse(_sent(service, job_id, last_event_id), ping=15)


@router.get("/v1/kernels/{job_id}/candidates", response_model=CandidatePage, responses=problems(404, 503))
@router.get("/v1/evaluations/{job_id}/candidates", response_model=CandidatePage, responses=problems(404, 503))
async def tried_candidates(
    job_id: str,
    service: ServiceOf,
    offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_CANDIDATES)] = 50,
) -> CandidatePage:
    """What was tried for a job so far, failures included, in the order of grading; page by page."""
    await service.jobs.status(job_id)
    return await service.trials.page(job_id, offset, limit)


@router.get("/v1/kernels/{job_id}/artifact", response_class=Response, responses=artifact_responses())
async def kernel_artifact(
    job_id: str,
    service: ServiceOf,
    kind: Annotated[ArtifactKind, Query()] = "zip",
    transposed: Annotated[bool, Query()] = False,
) -> Response:
    """The program, the C++ header, the Python loader, the report, what was tried, or all of them; those of A^T where
    both directions were tuned."""
    status = await service.jobs.status(job_id)
    if (handed := _handed_out(status)) is not None:
        problem = await service.ledger.problem(handed.workload)
        file = await asyncio.to_thread(instant_artifact, kind, handed, problem.matrix, problem.values)
        headers = {"Content-Disposition": f'attachment; filename="{file.filename}"'}
        return Response(file.content, headers=headers, media_type=file.media_type)
    report = _of_transposed(_report(status)) if transposed else _report(status)
    problem = await service.ledger.problem(report.workload)
    candidates = await service.trials.all(job_id) if kind in ("candidates", "zip") else ()
    file = await asyncio.to_thread(artifact, kind, service.signed(report), problem.matrix, problem.values, candidates)
    headers = {"Content-Disposition": f'attachment; filename="{file.filename}"'}
    return Response(file.content, headers=headers, media_type=file.media_type)


@router.get("/v1/kernels/{job_id}/permalink", response_model=Permalink, responses=problems(404, 503))
@router.get("/v1/evaluations/{job_id}/permalink", response_model=Permalink, responses=problems(404, 503))
async def job_permalink(job_id: str, service: ServiceOf, caller: CallerOf) -> Permalink:
    """The address under which the job can be looked at without a key."""
    await service.jobs.status(job_id)
    if caller.is_trusted:
        return Permalink(path=f"/jobs/{job_id}", secret=None)
    secret = await asyncio.to_thread(service.channels.permalinks.secret_of, job_id)
    return Permalink(path=f"/jobs/{job_id}?{SECRET_PARAMETER}={secret}", secret=secret)


@router.get("/v1/policy", response_model=PolicyStatus, responses=problems(404, 503))
async def policy(service: ServiceOf) -> PolicyStatus:
    """The policy that candidates are sampled from."""
    return service.policy_status()


@router.get("/v1/signing-key", response_model=SigningKey, responses=problems(404))
async def signing_key(service: ServiceOf) -> SigningKey:
    """The public key that reports are verified with: `sparsesmith verify`."""
    return service.signing_key()


@router.get("/docs", include_in_schema=False)
async def documentation(request: Request) -> HTMLResponse:
    """The interface for people."""
    return HTMLResponse(docs_page(request.app.openapi()), headers=HEADERS)


@router.get("/healthz", responses=problems())
async def alive() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@router.get("/readyz", response_model=Readiness, responses=problems(503))
async def ready(service: ServiceOf) -> Readiness:
    """Requests are taken and answered; `degraded` says what does not work meanwhile. 503 where nothing does."""
    return await service.readiness()


@router.get("/metrics", response_class=PlainTextResponse, responses=problems())
async def metrics(service: ServiceOf) -> Response:
    """Prometheus: of the generator, and of evaluators and trainer as they published them within the last minute."""
    content, media_type = await asyncio.to_thread(service.metrics.exposition)
    return Response(content, media_type=media_type)


async def _accepted(service: Service, status: JobStatus, prefer: str | None, collection: str) -> Response:
    waited_for, applied = await _waited_for(service, status.job_id, prefer)
    status = waited_for or status
    headers = {"Location": f"{collection}/{status.job_id}", **applied}
    return _json(status, HTTPStatus.OK if has_answer(status.status) else HTTPStatus.ACCEPTED, headers)


async def _waited_for(service: Service, job_id: str, prefer: str | None) -> tuple[JobStatus | None, dict[str, str]]:
    """The status after RFC 7240's `wait` preference, and what of it was granted; None: it was not asked for.

    `wait=SECONDS` waits for an answer, `wait=best` for the end of the search, as long as the service allows.
    """
    found, most_s = WAIT.search(prefer or ""), int(service.settings.max_wait_s)
    if found is None:
        return None, {}
    if found[1].lower() == BEST:
        return await service.jobs.answered(job_id, most_s, best=True), {"Preference-Applied": f"wait={BEST}"}
    wait_s = min(int(found[1]), most_s)
    status = await service.jobs.answered(job_id, wait_s, best=False)
    return status, {"Preference-Applied": f"wait={wait_s}"}


def _json(status: JobStatus, code: HTTPStatus, headers: dict[str, str]) -> Response:
    return Response(status.model_dump_json(), code, headers=headers, media_type="application/json")


def _handed_out(status: JobStatus) -> InstantKernel | None:
    """The kernel that is there before anything was measured."""
    match status.status:
        case Running(instant=InstantKernel(state="checked") as kernel, so_far=None):
            return kernel
        case _:
            return None


def _of_transposed(report: KernelReport) -> KernelReport:
    """Raises Conflict where A^T was not tuned beside A."""
    if report.transposed is None:
        raise Conflict("the job was about one direction (transposed=both tunes two)", field="transposed", value=True)
    return report.transposed


def _report(status: JobStatus) -> KernelReport:
    match status.status:
        case Finished(report=report) | Running(so_far=KernelReport() as report):
            return report
        case state:
            raise Conflict(f"job {status.job_id} has no report: it is {state.state}", field="state", value=state.state)


async def _sent(service: Service, job_id: str, last_event_id: str | None) -> AsyncIterator[ServerSentEvent]:
    async for event in service.ledger.events(job_id, after=last_event_id):
        yield ServerSentEvent(event.status.model_dump_json(), event=event.status.status.state, id=event.event_id)
