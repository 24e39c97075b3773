"""What an operator may do, from this machine alone.

Not protected against: a proxy on this machine that passes on what others ask of `/operator`; let it pass `/v1` only.
"""

import ipaddress
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from services.generator.http.body_limit import JSON, media_type
from services.generator.http.openapi import json_body, problems
from services.generator.problems import invalid_option
from services.generator.service import Service
from sparsesmith_proto.api import PolicyStatus, RollbackRequest


def _from_here(request: Request) -> None:
    """Raises HTTPException for a request whose connection does not come from this machine."""
    host = "" if request.client is None else request.client.host
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise HTTPException(HTTPStatus.FORBIDDEN, f"operators ask from the server's own machine, not from {host!r}")


router = APIRouter(
    prefix="/operator", dependencies=[Depends(_from_here)], responses=problems(403, 404, 408, 409, 413, 415, 503)
)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _wish(request: Request) -> RollbackRequest:
    """Raises HTTPException for another type than JSON (a page of another host could send it), InvalidOption."""
    if media_type(request.headers) != JSON:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {JSON}")
    try:
        return RollbackRequest.model_validate_json(await request.body())
    except ValidationError as error:
        raise invalid_option(error) from error


@router.post("/policy/rollback", response_model=PolicyStatus, openapi_extra=json_body(RollbackRequest))
async def roll_back_policy(
    wish: Annotated[RollbackRequest, Depends(_wish)], service: Annotated[Service, Depends(_service)]
) -> PolicyStatus:
    """Serve an earlier accepted version; what is newer is turned down, and training goes on from there."""
    return await service.roll_back_policy(wish.version)
