"""What the page shows beside a job's states, as JSON: the matrix, who works."""

import asyncio
import gzip
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from services.generator.http.access import may_see
from services.generator.http.openapi import problems
from services.generator.service import Service
from sparsesmith.matrix.portrait import MAX_GRID
from sparsesmith_proto.api import Density, Fleet, Listing, MatrixCard

router = APIRouter(dependencies=[Depends(may_see)])

Index = Annotated[int, Query(ge=0, lt=2**31)]
End = Annotated[int | None, Query(ge=1, lt=2**31)]


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service)]


@router.get("/v1/kernels/{job_id}/matrix", response_model=MatrixCard, responses=problems(404, 503))
@router.get("/v1/evaluations/{job_id}/matrix", response_model=MatrixCard, responses=problems(404, 503))
async def matrix_card(job_id: str, service: ServiceOf) -> MatrixCard:
    """What the job's matrix looks like, in numbers; 404 where it is not stored any more."""
    return await service.views.card(job_id)


@router.get("/v1/kernels/{job_id}/density", response_model=Density, responses=problems(404, 503))
@router.get("/v1/evaluations/{job_id}/density", response_model=Density, responses=problems(404, 503))
async def matrix_density(
    request: Request,
    job_id: str,
    service: ServiceOf,
    first_row: Index = 0,
    end_row: End = None,
    first_col: Index = 0,
    end_col: End = None,
    grid: Annotated[int, Query(ge=1, le=MAX_GRID)] = MAX_GRID,
) -> Response:
    """Nonzeros of the job's matrix, or of some of its rows and columns, counted in a grid of boxes."""
    counted = await service.views.density(job_id, (first_row, end_row), (first_col, end_col), grid)
    is_gzip = "gzip" in request.headers.get("accept-encoding", "")
    return await asyncio.to_thread(_text, counted, is_gzip)


@router.get("/v1/kernels/{job_id}/listing", response_model=Listing, responses=problems(404, 409, 503))
@router.get("/v1/evaluations/{job_id}/listing", response_model=Listing, responses=problems(404, 409, 503))
async def program_listing(
    job_id: str, service: ServiceOf, number: Annotated[int | None, Query(ge=0, lt=2**31)] = None
) -> Listing:
    """The PTX of the answer's program, or of a candidate that passed: an evaluator compiles and checks it again."""
    return await service.listings.of(job_id, number)


@router.get("/v1/fleet", response_model=Fleet, responses=problems(503))
async def fleet(service: ServiceOf) -> Fleet:
    """Who works and what waits: jobs, the evaluators' queue, evaluators with their devices, trainers."""
    return await service.fleet()


def _text(counted: Density, is_gzip: bool) -> Response:
    text = counted.model_dump_json().encode()
    headers = {"Vary": "Accept-Encoding"}
    if is_gzip:
        text, headers["Content-Encoding"] = gzip.compress(text, 1), "gzip"
    return Response(text, headers=headers, media_type="application/json")
