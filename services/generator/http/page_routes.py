"""The page for people. Its scripts speak with the same interface as any client (`routes`, `view_routes`)."""

import asyncio
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from services.generator.http.access import AskerOf, CallerOf, secret_of
from services.generator.http.job_page import MAX_ROWS, job_page, locked_page, missing_page
from services.generator.http.page_shell import FILES, OF_FILES, OF_PAGES, VERSION
from services.generator.http.routes import IntakeOf, ServiceOf
from services.generator.http.start_page import compare_page, fleet_page, start_page
from sparsesmith.errors import NotFound

router = APIRouter(include_in_schema=False)


@router.get("/")
async def start() -> HTMLResponse:
    """Upload, examples, earlier jobs."""
    return HTMLResponse(start_page(), headers=dict(OF_PAGES))


@router.get("/compare")
async def compare() -> HTMLResponse:
    """Two jobs side by side."""
    return HTMLResponse(compare_page(), headers=dict(OF_PAGES))


@router.get("/fleet")
async def fleet() -> HTMLResponse:
    """Who works and what waits."""
    return HTMLResponse(fleet_page(), headers=dict(OF_PAGES))


@router.post("/jobs")
async def tune_from_form(request: Request, service: ServiceOf, intake: IntakeOf, asker: AskerOf) -> Response:
    """What the form of the start page does without a script."""
    async with intake.kernel_order(request) as (order, matrix):
        status = await service.arrivals.accept(order, matrix, None, asker)
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": f"./jobs/{status.job_id}"})


@router.get("/jobs/{job_id}")
async def job(job_id: str, request: Request, service: ServiceOf, caller: CallerOf) -> HTMLResponse:
    """A job's permalink. Without its secret, where keys are asked for: a frame whose scripts ask with the key."""
    secret = secret_of(request.scope)
    if not caller.is_trusted and not await asyncio.to_thread(service.channels.permalinks.opens, job_id, secret):
        return HTMLResponse(locked_page(), headers=dict(OF_PAGES))
    try:
        status = await service.jobs.status(job_id)
    except NotFound as error:
        return HTMLResponse(missing_page(error.message), HTTPStatus.NOT_FOUND, headers=dict(OF_PAGES))
    tried = await service.trials.page(job_id, 0, MAX_ROWS)
    page = await asyncio.to_thread(job_page, status, tried.candidates, secret)
    return HTMLResponse(page, headers=dict(OF_PAGES))


@router.get("/page/{version}/{path:path}")
async def static_file(version: str, path: str) -> Response:
    """A file of the page, by its exact name."""
    file = FILES.get(path)
    if file is None or version != VERSION:
        raise NotFound(f"no file {path!r} of version {version!r}", field="path", value=path)
    return Response(file.content, headers=dict(OF_FILES), media_type=file.media_type)
