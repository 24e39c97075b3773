"""Bounds what a request may send and how slowly, while it arrives: nothing beyond the limits is read or waited for."""

import asyncio
import time
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.generator.problems import response_of
from sparsesmith.errors import LimitExceeded
from sparsesmith_proto.api import Problem

JSON = "application/json"
WITH_BODY = ("POST", "PUT", "PATCH")
LEAST_BYTES_A_SECOND = 16 * 1024
"""Of a whole body, beyond the time that any may take."""


def media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class BodyLimit:
    """ASGI middleware. Its errors are raised where the route reads the body, so that they are mapped like any other."""

    def __init__(
        self, app: ASGIApp, *, max_header_bytes: int, max_json_bytes: int, max_body_bytes: int, timeout_s: float
    ) -> None:
        self._app = app
        self._max_header_bytes = max_header_bytes
        self._timeout_s = timeout_s
        self._max_json_bytes = max_json_bytes
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _header_bytes(scope) > self._max_header_bytes:  # h11 bounds headers in pieces; these came in one.
            await response_of(_headers_too_large(self._max_header_bytes))(scope, receive, send)
            return
        headers = Headers(scope=scope)
        limit = self._max_json_bytes if media_type(headers) == JSON else self._max_body_bytes
        timed = _timed(receive, self._timeout_s) if scope["method"] in WITH_BODY else receive
        await self._app(scope, _bounded(timed, limit, headers.get("content-length", "")), send)


def _header_bytes(scope: Scope) -> int:
    """Of the request's target and its headers as they were sent."""
    target = len(scope["raw_path"]) + len(scope["query_string"])
    return target + sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])


def _headers_too_large(limit: int) -> Problem:
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    detail = f"the target and the headers have more than {limit} bytes"
    return Problem(
        type="about:blank", title=status.phrase, status=status, detail=detail, field="headers", limit=str(limit)
    )


def _timed(receive: Receive, timeout_s: float) -> Receive:
    """Raises HTTPException 408 for a body that pauses or is too slow as a whole."""
    began, num_bytes, is_complete = time.monotonic(), 0, False

    async def timed() -> Message:
        nonlocal num_bytes, is_complete
        if is_complete:
            return await receive()
        left_s = timeout_s + num_bytes / LEAST_BYTES_A_SECOND - (time.monotonic() - began)
        try:
            message = await asyncio.wait_for(receive(), min(timeout_s, left_s))
        except TimeoutError:
            detail = f"the body came too slowly: {num_bytes} bytes in {time.monotonic() - began:.0f} s"
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, detail) from None
        num_bytes += len(message.get("body", b""))
        is_complete = not message.get("more_body", False)
        return message

    return timed


def _bounded(receive: Receive, limit: int, declared: str) -> Receive:
    received = int(declared) if declared.isdecimal() and int(declared) > limit else 0

    async def bounded() -> Message:
        nonlocal received
        if received <= limit:
            message = await receive()
            received += len(message.get("body", b""))
            if received <= limit:
                return message
        raise LimitExceeded(
            f"the body has more than {limit} bytes", field="body", value=f"{received} bytes or more", limit=limit
        )

    return bounded
