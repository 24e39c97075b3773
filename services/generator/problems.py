"""The one place where an error becomes an RFC 9457 problem document."""

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from sparsesmith.errors import (
    Conflict,
    InvalidInput,
    InvalidOption,
    LimitExceeded,
    NotFound,
    QuotaExceeded,
    SparsesmithError,
    Unauthorized,
    Unavailable,
)
from sparsesmith_proto.api import Problem

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
MAX_VALUE_CHARACTERS = 200

_EXTRA_HEADERS: Mapping[int, Mapping[str, str]] = {
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": str(RETRY_AFTER_S)},
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    # What is left of the body is not worth reading.
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: {"Connection": "close"},
    HTTPStatus.REQUEST_TIMEOUT: {"Connection": "close"},
}

_STATUSES: tuple[tuple[type[SparsesmithError], HTTPStatus], ...] = (
    (InvalidInput, HTTPStatus.UNPROCESSABLE_ENTITY),
    (LimitExceeded, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (Unauthorized, HTTPStatus.UNAUTHORIZED),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (QuotaExceeded, HTTPStatus.TOO_MANY_REQUESTS),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)

_LIMITS = ("ge", "gt", "le", "lt", "min_length", "max_length", "expected", "pattern")
"""Keys of a pydantic error's context that state a limit."""


def problem_of(error: SparsesmithError) -> Problem:
    """The document for an error of our tree."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
    return Problem(
        type="/problems/" + re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower(),
        title=status.phrase,
        status=status,
        detail=error.message,
        field=error.field,
        value=None if error.value is None else shortened(error.value),
        limit=error.limit,
    )


def invalid_option(error: ValidationError, prefix: Sequence[str] = (), separator: str = ".") -> InvalidOption:
    """The first thing pydantic found wrong, with the path of the field."""
    first = error.errors(include_url=False)[0]
    field = separator.join(str(part) for part in (*prefix, *first["loc"]))
    given = first.get("input")
    value = None if first["type"] == "missing" or isinstance(given, dict | list) else shortened(str(given))
    reason = "is not a known field" if first["type"] == "extra_forbidden" else f": {first['msg']}"
    detail = (f"{field} {reason}" if field else first["msg"]).replace(" : ", ": ")
    return InvalidOption(detail, field=field or None, value=value, limit=_limit_of(first.get("ctx", {})))


def shortened(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 3] + "..."


def install(app: FastAPI) -> None:
    """Answer every error of the application with a problem document."""
    app.add_exception_handler(SparsesmithError, _on_our_error)
    app.add_exception_handler(RequestValidationError, _on_wrong_parameter)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_defect)


def response_of(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    content = problem.model_dump_json(exclude_none=True)
    merged = {**_EXTRA_HEADERS.get(problem.status, {}), **(headers or {})}
    return Response(content, problem.status, headers=merged, media_type=MEDIA_TYPE)


def error_response(error: SparsesmithError) -> Response:
    """The answer to an error of our tree."""
    retry_after_s = error.retry_after_s if isinstance(error, QuotaExceeded) else None
    return response_of(problem_of(error), None if retry_after_s is None else {"Retry-After": str(retry_after_s)})


def _limit_of(context: Mapping[str, Any]) -> str | None:
    limits = [f"{name} {context[name]}" for name in _LIMITS if name in context]
    return "; ".join(limits) or None


async def _on_our_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SparsesmithError)
    return error_response(error)


async def _on_wrong_parameter(request: Request, error: Exception) -> Response:
    """A path, query or header parameter; bodies are read by `intake`."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = str(first["loc"][-1])
    context = first.get("ctx", {})
    wrong = InvalidOption(f"{field}: {first['msg']}", field=field, value=first.get("input"), limit=_limit_of(context))
    return response_of(problem_of(wrong))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase
    problem = Problem(type="about:blank", title=title, status=error.status_code, detail=str(error.detail))
    allowed = {"Allow": _allowed_methods(request)} if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else {}
    return response_of(problem, {**(error.headers or {}), **allowed})


def _allowed_methods(request: Request) -> str:
    """Of all routes with the path, each of which knows its own only."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in routes for method in route.methods or ()}))


async def _on_disconnect(request: Request, error: Exception) -> Response:
    log.info("the client left before its body had arrived")
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _on_defect(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = "the service failed on this request; its log says more"
    return response_of(Problem(type="about:blank", title="Internal Server Error", status=500, detail=detail))
